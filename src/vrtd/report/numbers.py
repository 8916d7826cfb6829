"""Formatting of numbers, intervals and settings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

MINUS, _TIMES = "\N{MINUS SIGN}", "\N{MULTIPLICATION SIGN}"
_ROUNDING = 1e-9  # of a number
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def interval(value: float, low: float, high: float) -> tuple[str, str, str]:
    """Format an estimate and the ends of its interval, to two significant digits of the half-width.

    >>> interval(99.987, 99.477, 100.497)
    ('99.99', '99.48', '100.50')
    """
    half = (high - low) / 2.0
    if 0.0 <= half <= _ROUNDING * abs(value):  # the ends differ by rounding errors only
        return number(value, 4), number(value, 4), number(value, 4)
    decimals = max(0, 1 - math.floor(math.log10(half))) if 0.0 < half < math.inf else -1
    if 0 <= decimals <= 6 and max(abs(low), abs(high)) < 1e7:
        value_text, low_text, high_text = (f"{x:,.{decimals}f}".replace("-", MINUS) for x in (value, low, high))
    else:
        value_text, low_text, high_text = round_apart((value, low, high), ())
    return value_text, low_text, high_text


def round_apart(values: Sequence[float], limits: Sequence[float]) -> list[str]:
    """Format values with three digits, or with as many as keep them distinct and on their side of the limits."""
    for digits in range(3, 13):
        near = [float(f"{value:.{digits - 1}e}") for value in values]
        pairs = [(value, n, limit) for value, n in zip(values, near, strict=True) for limit in limits]
        same_sides = all((value < limit, value > limit) == (n < limit, n > limit) for value, n, limit in pairs)
        if same_sides and len(set(near)) == len(set(values)):
            break
    return [number(value, digits) for value in values]


def number(value: float, digits: int) -> str:
    """Format a number with this many significant digits; very large and small ones with a power of ten.

    >>> [number(value, 3) for value in (0.06128, 0.61, 12345.0, 0.0, float("inf"))]
    ['0.0613', '0.610', '12,300', '0', '∞']
    """
    if not math.isfinite(value):
        return "undefined" if math.isnan(value) else "∞" if value > 0 else f"{MINUS}∞"
    if value == 0.0:
        return "0"
    mantissa, _, power = f"{value:.{digits - 1}e}".partition("e")
    exponent = int(power)
    if -4 <= exponent < 7:
        text = f"{float(f'{mantissa}e{power}'):,.{max(digits - 1 - exponent, 0)}f}"
    else:
        text = f"{mantissa}{_TIMES}10{superscript(exponent)}"
    return text.replace("-", MINUS)


def percent(share: float) -> str:
    """Format a share, such as a confidence level, in percent.

    >>> percent(0.95)
    '95 %'
    """
    return f"{100.0 * share:.6g} %"


def superscript(exponent: int) -> str:
    """Format a whole number in superscript digits."""
    return str(exponent).translate(_SUPERSCRIPTS)


def count(n: Any) -> str:
    """Format a whole number with thousands separators; other values as they are."""
    return f"{n:,}" if isinstance(n, int) else str(n)


def plural(n: int, noun: str) -> str:
    """Format a number with its noun, in the plural unless the number is 1."""
    return f"{count(n)} {noun}" if n == 1 else f"{count(n)} {noun}s"


def describe_settings(settings: Mapping[str, Any]) -> str:
    """Format the settings of an algorithm: its name, its numbers and the flags that are set.

    >>> describe_settings({"name": "vrtd", "step_size": 0.1, "batch_size": 5000, "radius": None, "output": "random"})
    'vrtd, step_size 0.1, batch_size 5,000'
    """
    words = [str(settings.get("name", ""))]
    for key, value in settings.items():
        if value is True:
            words.append(key)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            words.append(f"{key} {value:,}" if isinstance(value, int) else f"{key} {value:.4g}")
        elif isinstance(value, str) and key.startswith("step_size"):  # a schedule
            words.append(f"{key} {value}")
    return ", ".join(words)
