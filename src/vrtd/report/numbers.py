"""Numbers and limits for people."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from vrtd.experiments.evidence import Judged, Kind, NumberCheck

__all__ = ["condition", "count", "interval", "limits", "measured", "number", "plural", "superscript", "totals"]

_ALLOWANCE = 1e-6  # for rounding, in limits
_MINUS, _TIMES = "\N{MINUS SIGN}", "\N{MULTIPLICATION SIGN}"
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def measured(judged: Judged) -> str:
    """The estimate with its interval; what is exact has none."""
    c = judged.comparison
    values = (c.estimate, judged.low, judged.high) if c.basis != "exact" and judged.low < judged.high else (c.estimate,)
    estimate, *interval = _rounded(values, (c.above, c.below))
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
    return " and ".join(parts).replace("-", _MINUS)


def interval(value: float, low: float, high: float) -> tuple[str, str, str]:
    """An estimate and the ends of its interval, to two digits of half its width.

    >>> interval(99.987, 99.477, 100.497)
    ('99.99', '99.48', '100.50')
    """
    half = (high - low) / 2.0
    decimals = max(0, 1 - math.floor(math.log10(half))) if 0.0 < half < math.inf else -1
    if 0 <= decimals <= 6 and max(abs(low), abs(high)) < 1e7:
        value_text, low_text, high_text = (f"{x:,.{decimals}f}".replace("-", _MINUS) for x in (value, low, high))
    else:
        value_text, low_text, high_text = _rounded((value, low, high), ())
    return value_text, low_text, high_text


def _rounded(values: Sequence[float], limits: Sequence[float]) -> list[str]:
    """To three digits, or as many as keep the values apart and each on its side of the limits."""
    for digits in range(3, 13):
        near = [float(f"{value:.{digits - 1}e}") for value in values]
        pairs = [(value, n, limit) for value, n in zip(values, near, strict=True) for limit in limits]
        same_sides = all((value < limit, value > limit) == (n < limit, n > limit) for value, n, limit in pairs)
        if same_sides and len(set(near)) == len(set(values)):
            break
    return [number(value, digits) for value in values]


def number(value: float, digits: int) -> str:
    """For people; powers of ten only where there would be many zeros.

    >>> [number(value, 3) for value in (0.06128, 0.61, 12345.0, 0.0, float("inf"))]
    ['0.0613', '0.610', '12,300', '0', '∞']
    """
    if not math.isfinite(value):
        return "undefined" if math.isnan(value) else "∞" if value > 0 else f"{_MINUS}∞"
    if value == 0.0:
        return "0"
    mantissa, _, power = f"{value:.{digits - 1}e}".partition("e")
    exponent = int(power)
    if -4 <= exponent < 7:
        text = f"{float(f'{mantissa}e{power}'):,.{max(digits - 1 - exponent, 0)}f}"
    else:
        text = f"{mantissa}{_TIMES}10{superscript(exponent)}"
    return text.replace("-", _MINUS)


def superscript(exponent: int) -> str:
    return str(exponent).translate(_SUPERSCRIPTS)


def count(n: Any) -> str:
    return f"{n:,}" if isinstance(n, int) else str(n)


def plural(n: int, noun: str) -> str:
    return f"{count(n)} {noun}" if n == 1 else f"{count(n)} {noun}s"
