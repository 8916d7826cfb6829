"""A claim whose comparisons are given, and its verdict."""

from __future__ import annotations

from typing import Any

from vrtd.paper.evidence import Claim, Finding, NumberCheck, judge

CLAIM = Claim("name", "place", "statement", "test", ("x",), lambda tables: tables["x"]["comparisons"])


def verdict(*comparisons: NumberCheck, claim: Claim = CLAIM, n_claims: int = 1) -> Finding:
    tables: Any = {"x": {"comparisons": comparisons}}
    return judge(claim, tables, n_claims, n_runs=2000)


def below(condition: str, estimate: float, se: float = 0.0, n_runs: int = 0, **rest: Any) -> NumberCheck:
    """That an estimate is below 1."""
    return NumberCheck(condition, "q", estimate, se, n_runs, below=1.0, **rest)
