"""Checks of arguments that several packages need. Messages say what is wrong, show the value, and say what to do."""

from __future__ import annotations

import os
from collections.abc import Collection
from difflib import get_close_matches
from importlib import import_module
from math import inf, nan
from numbers import Integral, Real
from typing import Any

from vrtd.errors import InvalidInputError, MissingExtraError


def require(holds: Any, problem: str, remedy: str, error: type[InvalidInputError] = InvalidInputError) -> None:
    """Raise ``error(problem, remedy)`` unless ``holds``.

    The messages are built in any case, so use this only where that is cheap.

    >>> require(2 <= 3, "branching must be at most n_states=3, but is 2.", "Lower branching.")
    """
    if not holds:
        raise error(problem, remedy)


def as_number(value: Any) -> float:
    """Return a real number as a float. Integers beyond any float become infinite, and other values become NaN."""
    try:
        return float(value) if not isinstance(value, bool) and isinstance(value, Real) else nan
    except OverflowError:  # an integer
        return inf if value > 0 else -inf


def check_positive(name: str, value: Any) -> float:
    """Return a positive, finite number as a float."""
    number = as_number(value)
    require(
        0.0 < number < inf,
        f"{name} must be a positive, finite number, but got {value!r}.",
        "Pass a number above 0.",
    )
    return number


def check_level(value: Any, name: str = "level") -> float:
    """Return the level of an interval as a float."""
    number = as_number(value)
    require(0.0 < number < 1.0, f"{name} must lie in (0, 1), but got {value!r}.", "Pass a number such as 0.95.")
    return number


def check_fraction(name: str, value: Any, below_one: bool = False) -> float:
    """Return a number in [0, 1], or in [0, 1) if ``below_one``, as a float."""
    number = as_number(value)
    holds, interval = (0.0 <= number < 1.0, "[0, 1)") if below_one else (0.0 <= number <= 1.0, "[0, 1]")
    require(holds, f"{name} must lie in {interval}, but got {value!r}.", "Pass a number such as 0.8.")
    return number


def check_radius(value: Any) -> None:
    """Raise unless the radius is None or a positive number."""
    if value is not None:
        check_positive("radius", value)


def check_count(name: str, value: Any, least: int = 1) -> int:
    """Return a whole number of at least ``least`` as an int."""
    holds = not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= least
    require(
        holds,
        f"{name} must be a whole number of at least {least}, but got {value!r}.",
        f"Pass an integer >= {least}.",
    )
    return int(value)


def check_exact_count(name: str, value: Any, least: int = 1) -> int:
    """Return a count as an int, at most 2**53, so that floating-point arithmetic does not round it."""
    count = check_count(name, value, least)
    require(count <= 2**53, f"{name} must be at most 2**53, but got {value}.", "Use a smaller number.")
    return count


def find_nearest(text: str, names: Collection[str]) -> str | None:
    """Return the name that is most similar to ``text``, or None if no name is similar."""
    return next(iter(get_close_matches(text, names, n=1)), None)


def check_choice(name: str, value: Any, choices: Collection[Any]) -> Any:
    """Return the choice that ``value`` stands for. In names, ``-`` and ``_`` are equivalent.

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
    remedy = "Choose one of them." if near is None else f"Did you mean {near!r}?"
    raise InvalidInputError(f"{name} must be one of {', '.join(map(repr, choices))}, but got {value!r}.", remedy)


def check_fits(what: str, n_bytes: int, remedy: str) -> None:
    """Raise unless so many bytes fit in half of the memory. The system may grant more and kill the process later."""
    try:
        physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not on this system
        return
    limit = f"half of the memory, {physical / 2**31:.1f} GiB"
    require(n_bytes <= physical / 2, f"{what}, {n_bytes / 2**30:.3g} GiB, must fit in {limit}.", remedy)


def check_flag(name: str, value: Any) -> None:
    """Raise unless the value is a bool."""
    require(isinstance(value, bool), f"{name} must be True or False, but got {value!r}.", "Pass True or False.")


def import_extra(library: str, extra: str) -> Any:
    """Import an optional library, or raise an error that names the extra of vrtd which installs it."""
    try:
        return import_module(library)
    except ImportError:
        raise MissingExtraError(library, extra) from None


def check_identifier(name: str, value: Any) -> None:
    """Raise unless the value is a Python identifier."""
    require(
        isinstance(value, str) and value.isidentifier(),
        f"{name} must be an identifier, but got {value!r}.",
        "Use letters, digits and underscores.",
    )
