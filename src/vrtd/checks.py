"""Checks of arguments that several rooms need, each with what must hold, what came and what to do."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches
from importlib import import_module
from math import inf, nan
from numbers import Integral, Real
from typing import Any

from vrtd.errors import InvalidInputError, MissingExtraError


def require(holds: Any, must: str, got: Any, do: str, error: type[InvalidInputError] = InvalidInputError) -> None:
    """Raise `error(must, got, do)` unless `holds`. For what is cheap to print: `got` is computed in any case.

    >>> require(2 <= 3, "branching must be at most n_states", "2 for 3 states", "lower branching")
    """
    if not holds:
        raise error(must, got, do)


def as_number(value: Any) -> float:
    """Return a real number as a float, infinite if it is beyond any float; NaN for what is not a number."""
    try:
        return float(value) if not isinstance(value, bool) and isinstance(value, Real) else nan
    except OverflowError:  # an integer
        return inf if value > 0 else -inf


def check_positive(name: str, value: Any) -> float:
    """Return a positive, finite number as a float."""
    number = as_number(value)
    require(0.0 < number < inf, f"{name} must be a positive, finite number", repr(value), "pass a number above 0")
    return number


def check_level(value: Any, name: str = "level") -> float:
    """Return the level of an interval as a float."""
    number = as_number(value)
    require(0.0 < number < 1.0, f"{name} must lie in (0, 1)", repr(value), "pass e.g. 0.95")
    return number


def check_fraction(name: str, value: Any, below_one: bool = False) -> float:
    """Return a number in [0, 1], or in [0, 1) if `below_one`, as a float."""
    number = as_number(value)
    holds, interval = (0.0 <= number < 1.0, "[0, 1)") if below_one else (0.0 <= number <= 1.0, "[0, 1]")
    require(holds, f"{name} must lie in {interval}", repr(value), "pass e.g. 0.8")
    return number


def check_radius(value: Any) -> None:
    if value is not None:
        check_positive("radius", value)


def check_count(name: str, value: Any, least: int = 1) -> int:
    """Return a whole number of at least `least` as an int."""
    holds = not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= least
    require(holds, f"{name} must be a whole number of at least {least}", repr(value), f"pass an integer >= {least}")
    return int(value)


def check_exact_count(name: str, value: Any, least: int = 1) -> int:
    """Return a count that arithmetic with floats must not round."""
    count = check_count(name, value, least)
    require(count <= 2**53, f"{name} must be at most 2**53", value, "lower it")
    return count


def find_nearest(text: str, names: Collection[str]) -> str | None:
    """Return the name that may have been meant, or None if all are far off."""
    return next(iter(get_close_matches(text, names, n=1)), None)


def check_choice(name: str, value: Any, choices: Collection[Any]) -> Any:
    """Return the choice that `value` stands for; `-` and `_` are the same in names.

    >>> check_choice("metric", "squared-error", ("squared_error", "neu"))
    'squared_error'
    """
    try:
        if value in choices:
            return value
    except (TypeError, ValueError):  # arrays are compared entry by entry
        pass
    names = {choice.replace("-", "_"): choice for choice in choices if isinstance(choice, str)}
    if isinstance(value, str) and value.replace("-", "_") in names:
        return names[value.replace("-", "_")]
    near = find_nearest(str(value), [str(choice) for choice in choices])
    do = "choose one of them" if near is None else f"did you mean {near!r}?"
    raise InvalidInputError(f"{name} must be one of {', '.join(map(repr, choices))}", repr(value), do)


def check_flag(name: str, value: Any) -> None:
    require(isinstance(value, bool), f"{name} must be True or False", repr(value), "pass one of them")


def import_extra(library: str, extra: str) -> Any:
    """Import an optional library, or say which extra of vrtd installs it."""
    try:
        return import_module(library)
    except ImportError:
        raise MissingExtraError(library, extra) from None


def check_identifier(name: str, value: Any) -> None:
    require(isinstance(value, str) and value.isidentifier(), f"{name} must be an identifier", repr(value), "rename it")
