"""Measured numbers, limits and verdicts in words."""

from __future__ import annotations

import math
from collections.abc import Mapping

from vrtd.paper.evidence import Judged, Kind, NumberCheck
from vrtd.report.numbers import MINUS, plural, round_apart

_ALLOWANCE = 1e-6  # for rounding, in limits


def measured(judged: Judged) -> str:
    """The estimate with its interval; what is exact has none."""
    c = judged.comparison
    values = (c.estimate, judged.low, judged.high) if c.basis != "exact" and judged.low < judged.high else (c.estimate,)
    estimate, *interval = round_apart(values, (c.above, c.below))
    return f"{estimate} [{', '.join(interval)}]" if interval else estimate


def condition(kind: Kind, c: NumberCheck) -> str:
    """What the limits of a comparison mean, in words: a claim needs them, an observation is made inside them."""
    return f"{'observed if' if kind == 'observation' else 'must be'} {limits(c)}"


def totals(counts: Mapping[str, int]) -> str:
    """How many claims have each verdict, and how many observations there are beside them.

    >>> totals({"holds": 2, "undecided": 0, "observation": 1})
    '2 claims: 2 holds; 1 observation'
    """
    claims = {verdict: n for verdict, n in counts.items() if verdict != "observation"}
    listed = ", ".join(f"{n} {verdict}" for verdict, n in claims.items() if n)
    return (
        f"{plural(sum(claims.values()), 'claim')}: {listed or 'none'}; {plural(counts['observation'], 'observation')}"
    )


def limits(c: NumberCheck) -> str:
    """In symbols. A limit a little beyond a plain number allows for rounding: that number may be reached."""
    parts = []
    for limit, sign, reached, outward in ((c.above, ">", "≥", -1.0), (c.below, "<", "≤", 1.0)):
        plain = float(f"{limit:.6g}")
        if 0.0 < outward * (limit - plain) <= _ALLOWANCE * abs(plain):
            parts.append(f"{reached} {plain:,.6g}")
        elif math.isfinite(limit):
            parts.append(f"{sign} {limit:,.10g}")
    return " and ".join(parts).replace("-", MINUS)
