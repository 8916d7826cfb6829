"""Fill in what is known before any data: the bounds of a space, the number of its states."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from vrtd.checks import require
from vrtd.features.bounded import Bounded, Bounds, as_bounds
from vrtd.features.compose import change_parts
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
    a, b = as_bounds("low", low) or (), as_bounds("high", high) or ()
    must, got = "low and high must have a number for each dimension", f"{low!r:.40} and {high!r:.40}"
    require(a and len(a) == len(b), must, got, "pass two arrays")
    lows, highs = zip(*map(_keep_usable, a, b), strict=True)

    def fill(part: Features) -> Features:
        if not isinstance(part, Bounded):
            return part
        return replace(part, low=_merge(part.low, lows), high=_merge(part.high, highs))

    return change_parts(features, fill)


def with_states(features: Features, n_states: int) -> Features:
    """The same features with the number of states that is not set, inside Stack and Scaled too.

    >>> from vrtd.features import Scaled
    >>> with_states(Scaled(Tabular()), 16).features
    Tabular(n_states=16)
    """
    return change_parts(features, lambda part: Tabular(n_states) if part == Tabular() else part)


def _merge(own: Any, known: Bounds) -> Bounds:
    if own is None:
        return known
    must, got = "bounds of features and of the space must be equally long", f"{len(own)} and {len(known)}"
    require(len(own) == len(known), must, got, "pass bounds that fit the observations")
    return tuple(mine if mine is not None else other for mine, other in zip(own, known, strict=True))


def _keep_usable(low: float | None, high: float | None) -> tuple[float | None, float | None]:
    low = None if low is not None and low <= -_NO_BOUND else low
    high = None if high is not None and high >= _NO_BOUND else high
    return (None, None) if low is not None and high is not None and not low < high else (low, high)
