"""Features that are chosen by what the observations are. This is the one place where that is decided."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrtd.checks import require
from vrtd.features.compose import Stack
from vrtd.features.features import MOST_FEATURES, Features, check_bound, check_some
from vrtd.features.fourier import RandomFourier
from vrtd.features.identity import Identity
from vrtd.features.polynomial import Polynomial
from vrtd.features.selection import Selected
from vrtd.features.spaces import ObservationSpace
from vrtd.features.standardised import Standardised
from vrtd.features.tabular import OneHot, Tabular, largest_states

# States that data alone show: more of them are rather quantities than states.
_MOST_STATES = 1000
_WAVES = 200  # random Fourier features of a box; those that are determined by others are left out
_MOST_NUMBERS = 2**14  # in an observation of a box
_REACH = 2.0  # standard deviations from the centre to the bounds of the features


@dataclass(frozen=True)
class Auto(Features):
    """Features that `bind` chooses by the space of the observations, or by the observations where no space is known.

    States get a table: one feature each. The columns of a table are standardised and get a constant. The points of a
    box get a constant and random Fourier features, fewer in fewer dimensions. Arrays with two or more dimensions and no
    known space are features already.

    >>> Auto().bind(np.array([2, 0, 1]))
    Tabular(n_states=3, other=True)
    """

    space: ObservationSpace | None = None

    kind = "auto"

    def __post_init__(self) -> None:
        holds = self.space is None or isinstance(self.space, ObservationSpace)
        require(holds, "space must be an ObservationSpace", f"{self.space!r:.60}", "pass log.space")

    @property
    def needs_data(self) -> bool:
        if self.space is None:
            return True
        return self.space.kind != "features" and not (self.space.kind == "states" and _table_of(self.space.sizes))

    def bind(self, observations: NDArray[Any]) -> Features:
        observations = np.asarray(observations)
        check_some(observations, "choose features by", "pass observations")
        return _choose(self.space or guess_space(observations), observations).bind(observations)

    @property
    def n_features(self) -> int:
        return check_bound(self, "the observations", None)

    def __call__(self, observations: NDArray[Any]) -> NDArray[np.floating[Any]]:  # noqa: ARG002
        return check_bound(self, "the observations", None)


def guess_space(observations: NDArray[Any]) -> ObservationSpace:
    """Return what arrays are that come without a description."""
    if observations.ndim > 1:
        return ObservationSpace("features")
    return ObservationSpace("states" if observations.dtype.kind in "biu" else "columns")


def _choose(space: ObservationSpace, observations: NDArray[Any]) -> Features:
    match space.kind:
        case "features":
            return Identity()
        case "columns":
            return Standardised.of_columns(space.columns)
        case "states":
            return _choose_for_states(space.sizes, observations)
        case "box":
            return _choose_for_box(observations)


def _choose_for_states(sizes: tuple[int, ...], observations: NDArray[Any]) -> Features:
    if table := _table_of(sizes):
        return table
    if not sizes and (observations >= 0).all():
        shown = largest_states(observations)
        if prod(shown) <= _MOST_STATES:
            return Tabular(shown, other=True)
    return Standardised()


def _table_of(sizes: tuple[int, ...]) -> Features | None:
    """Return features of discrete variables with these sizes; None where these are not known or too large."""
    if sizes and prod(sizes) <= MOST_FEATURES:
        return Tabular(sizes)
    return OneHot(sizes) if len(sizes) > 1 and sum(sizes) <= MOST_FEATURES else None


def _choose_for_box(observations: NDArray[Any]) -> Features:
    """Return features of points of a box, scaled by their own spread: bounds may be infinite, or far from all points.

    docs/features.md has the measurements behind the numbers.
    """
    n, k = len(observations), prod(observations.shape[1:])
    must, do = f"automatic features need observations of at most {_MOST_NUMBERS} numbers", "choose features yourself"
    require(k <= _MOST_NUMBERS, must, k, do)
    scaling = Standardised().bind(observations)
    centre = np.array(scaling.centre, np.float64)
    spread = np.maximum(np.array(scaling.scale, np.float64), np.abs(centre) * 2.0**-40)
    low, high = (tuple((centre + sign * _REACH * spread).tolist()) for sign in (-1.0, 1.0))
    # The width of the kernel, in units of the spread, grows with the distance between points, and that with k.
    bandwidth = (2.0 * _REACH) ** 2 * 4.0 / k * max(1.0 / k, 1.0 / 16.0)
    waves = RandomFourier(min(_WAVES, max(8, n // 10)), bandwidth=bandwidth, low=low, high=high)
    return Selected(Stack(Polynomial(0, low=low, high=high), waves), tolerance=0.02)
