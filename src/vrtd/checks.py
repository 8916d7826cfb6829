"""Checks of arguments that several rooms need, each with what must hold, what came and what to do."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches
from importlib import import_module
from math import inf, nan
from numbers import Integral, Real
from typing import Any

from vrtd.errors import InvalidInputError, MissingExtraError


def check_positive(name: str, value: Any) -> None:
    try:
        number = float(value) if not isinstance(value, bool) and isinstance(value, Real) else nan
    except OverflowError:  # an integer beyond any float
        number = inf
    if not 0 < number < inf:
        raise InvalidInputError(f"{name} must be a positive, finite number", repr(value), "pass a number above 0")


def check_level(value: Any) -> float:
    """Of an interval."""
    number = float(value) if not isinstance(value, bool) and isinstance(value, Real) else nan
    if not 0.0 < number < 1.0:
        raise InvalidInputError("the level of an interval must lie in (0, 1)", repr(value), "pass e.g. 0.95")
    return number


def check_fraction(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, Real) or not 0.0 <= value <= 1.0:  # type: ignore[operator]
        raise InvalidInputError(f"{name} must lie in [0, 1]", repr(value), "pass e.g. 0.8")


def check_radius(value: Any) -> None:
    if value is not None:
        check_positive("radius", value)


def check_count(name: str, value: Any, least: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise InvalidInputError(
            f"{name} must be a whole number of at least {least}", repr(value), f"pass an integer >= {least}"
        )


def check_exact_count(name: str, value: Any, least: int = 1) -> None:
    """A count that arithmetic with floats must not round."""
    check_count(name, value, least)
    if value > 2**53:
        raise InvalidInputError(f"{name} must be at most 2**53", value, "lower it")


def check_choice(name: str, value: Any, choices: Collection[Any]) -> None:
    try:
        known = value in choices
    except (TypeError, ValueError):  # arrays are compared entry by entry
        known = False
    if not known:
        near = get_close_matches(str(value), [str(choice) for choice in choices], n=1)
        do = f"did you mean {near[0]!r}?" if near else "choose one of them"
        raise InvalidInputError(f"{name} must be one of {', '.join(map(repr, choices))}", repr(value), do)


def check_flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise InvalidInputError(f"{name} must be True or False", repr(value), "pass one of them")


def import_extra(library: str, extra: str) -> Any:
    """Import an optional library, or say which extra of vrtd installs it."""
    try:
        return import_module(library)
    except ImportError:
        raise MissingExtraError(library, extra) from None
