"""Fill in what is known before any data: the bounds of a space, the number of its states."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from vrtd.errors import InvalidInputError
from vrtd.features.bounded import Bounded, Bounds, as_bounds
from vrtd.features.compose import Scaled, Stack
from vrtd.features.features import Features
from vrtd.features.tabular import Tabular

# Environments write "no bound" also as the largest float32.
_NO_BOUND = float(np.finfo(np.float32).max)


def with_bounds(features: Features, low: Any, high: Any) -> Features:
    """The same features with bounds that are not set taken from `low` and `high`, inside Stack and Scaled too.

    What is infinite there (or of the size of the largest float32), and a dimension without extent, is left to data.

    >>> from vrtd.features import Fourier
    >>> with_bounds(Fourier(3), [-1.2, float("-inf")], [0.6, float("inf")])
    Fourier(low=(-1.2, None), high=(0.6, None), order=3)
    """
    a, b = as_bounds("low", low), as_bounds("high", high)
    if a is None or b is None or len(a) != len(b):
        raise InvalidInputError(
            "low and high must have a number for each dimension", f"{low!r:.40} and {high!r:.40}", "pass two arrays"
        )
    pairs = [_usable(x, y) for x, y in zip(a, b, strict=True)]
    return _with_bounds(features, tuple(x for x, _ in pairs), tuple(y for _, y in pairs))


def with_states(features: Features, n_states: int) -> Features:
    """The same features with the number of states that is not set, inside Stack and Scaled too.

    >>> with_states(Scaled(Tabular()), 16).features
    Tabular(n_states=16)
    """
    match features:
        case Tabular(n_states=None):
            return Tabular(n_states)
        case Stack():
            return Stack(*(with_states(part, n_states) for part in features.features))
        case Scaled():
            return replace(features, features=with_states(features.features, n_states))
        case _:
            return features


def _with_bounds(features: Features, low: Bounds, high: Bounds) -> Features:
    match features:
        case Bounded():
            return replace(features, low=_merged(features.low, low), high=_merged(features.high, high))
        case Stack():
            return Stack(*(_with_bounds(part, low, high) for part in features.features))
        case Scaled():
            return replace(features, features=_with_bounds(features.features, low, high))
        case _:
            return features


def _merged(own: Any, given: Bounds) -> Bounds:
    if own is None:
        return given
    if len(own) != len(given):
        raise InvalidInputError(
            "bounds of features and of the space must be equally long",
            f"{len(own)} and {len(given)}",
            "pass bounds that fit the observations",
        )
    return tuple(mine if mine is not None else other for mine, other in zip(own, given, strict=True))


def _usable(low: float | None, high: float | None) -> tuple[float | None, float | None]:
    low = None if low is not None and low <= -_NO_BOUND else low
    high = None if high is not None and high >= _NO_BOUND else high
    return (None, None) if low is not None and high is not None and not low < high else (low, high)
