"""Texts for measured numbers, limits and verdicts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from vrtd.paper.evidence import Judged, Kind, NumberCheck
from vrtd.report.numbers import MINUS, plural, round_apart

_ALLOWANCE = 1e-6  # relative allowance for rounding in limits


def measured(judged: Judged) -> str:
    """Format the estimate with its interval; exact values have none."""
    c = judged.comparison
    values = (c.estimate, judged.low, judged.high) if c.basis != "exact" and judged.low < judged.high else (c.estimate,)
    estimate, *interval = round_apart(values, (c.above, c.below))
    return f"{estimate} [{', '.join(interval)}]" if interval else estimate


def condition(kind: Kind, c: NumberCheck) -> str:
    """Describe the limits of a comparison: a claim must be inside them, an observation is made inside them."""
    return f"{'observed if' if kind == 'observation' else 'must be'} {limits(c)}"


def totals(counts: Mapping[Any, int]) -> str:
    """Format the number of claims with each verdict, and the number of observations.

    >>> totals({"holds": 2, "undecided": 0, "observation": 1})
    '2 claims: 2 holds; 1 observation'
    """
    claims = {verdict: n for verdict, n in counts.items() if verdict != "observation"}
    listed = ", ".join(f"{n} {verdict}" for verdict, n in claims.items() if n)
    return (
        f"{plural(sum(claims.values()), 'claim')}: {listed or 'none'}; {plural(counts['observation'], 'observation')}"
    )


def limits(c: NumberCheck) -> str:
    """Format the limits in symbols.

    A limit a little beyond a round number allows for rounding, so the round number itself is allowed: >= or <=.
    """
    parts = []
    for limit, sign, reached, outward in ((c.above, ">", "≥", -1.0), (c.below, "<", "≤", 1.0)):
        plain = float(f"{limit:.6g}")
        if 0.0 < outward * (limit - plain) <= _ALLOWANCE * abs(plain):
            parts.append(f"{reached} {plain:,.6g}")
        elif math.isfinite(limit):
            parts.append(f"{sign} {limit:,.10g}")
    return " and ".join(parts).replace("-", MINUS)
