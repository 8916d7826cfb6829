"""Features that are chosen automatically from the observations. All of these choices are made here."""

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
from vrtd.sparse import is_scipy_sparse

# Most states that are inferred from data alone. Larger numbers are probably quantities.
_MOST_STATES = 1000
_WAVES = 200  # random Fourier features of a box, before `Selected` drops those that the others determine
_MOST_NUMBERS = 2**14  # in one observation of a box
_REACH = 2.0  # distance from the centre to the bounds of the features, in standard deviations


@dataclass(frozen=True)
class Auto(Features):
    """Features that are chosen from the observations or from their space.

    ``bind`` returns the chosen features:

    - a table with one feature per state for states;
    - a constant and the standardised columns for the columns of a table;
    - a constant and random Fourier features for the points of a box, fewer in fewer dimensions;
    - the observations themselves for sparse rows, and for arrays with two or more dimensions and no known space.

    Parameters
    ----------
    space : ObservationSpace, optional
        Space of the observations. If not given, the features are chosen from the observations alone.

    Examples
    --------
    >>> Auto().bind(np.array([2, 0, 1]))
    Tabular(n_states=3, other=True)
    """

    space: ObservationSpace | None = None

    kind = "auto"

    def __post_init__(self) -> None:
        holds = self.space is None or isinstance(self.space, ObservationSpace)
        require(
            holds,
            f"space must be an ObservationSpace, but got {self.space!r:.60}.",
            "Pass the attribute space of a log.",
        )

    @property
    def needs_data(self) -> bool:
        """Whether the choice depends on more than the space."""
        if self.space is None:
            return True
        return self.space.kind != "features" and not (self.space.kind == "states" and _table_of(self.space.sizes))

    def bind(self, observations: NDArray[Any]) -> Features:
        """Return the chosen features, bound to the observations.

        Parameters
        ----------
        observations : ndarray of shape (n, ...)
            Observations from which the features are chosen.

        Returns
        -------
        Features
            The chosen features. They are of another class than ``Auto``.
        """
        if is_scipy_sparse(observations):
            return Identity().bind(observations)
        observations = np.asarray(observations)
        check_some(observations, "choose features", "Pass observations.")
        return _choose(self.space or guess_space(observations), observations).bind(observations)

    @property
    def n_features(self) -> int:
        """Number of features d, which is known only for the features that ``bind`` returns."""
        return check_bound(self, "the features", None)

    def __call__(self, observations: NDArray[Any]) -> NDArray[np.floating[Any]]:  # noqa: ARG002
        """Raise an error, because only the features that ``bind`` returns have rows."""
        return check_bound(self, "the features", None)


def guess_space(observations: NDArray[Any]) -> ObservationSpace:
    """Return the space of observations that come as an array without a description."""
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
    """Return features of discrete variables with these sizes, or None if the sizes are not known or too large."""
    if sizes and prod(sizes) <= MOST_FEATURES:
        return Tabular(sizes)
    return OneHot(sizes) if len(sizes) > 1 and sum(sizes) <= MOST_FEATURES else None


def _choose_for_box(observations: NDArray[Any]) -> Features:
    """Return features for the points of a box.

    The features are scaled by the spread of the points, because bounds may be infinite or far from all points. The
    numbers below were chosen by the measurements in docs/features.md.
    """
    n, k = len(observations), prod(observations.shape[1:])
    require(
        k <= _MOST_NUMBERS,
        f"Automatic features need observations of at most {_MOST_NUMBERS} numbers, but these have {k}.",
        "Choose features yourself.",
    )
    scaling = Standardised().bind(observations)
    centre = np.array(scaling.centre, np.float64)
    spread = np.maximum(np.array(scaling.scale, np.float64), np.abs(centre) * 2.0**-40)
    low, high = (tuple((centre + sign * _REACH * spread).tolist()) for sign in (-1.0, 1.0))
    # In units of the spread, the kernel width grows with the typical distance of points, which grows with k.
    bandwidth = (2.0 * _REACH) ** 2 * 4.0 / k * max(1.0 / k, 1.0 / 16.0)
    waves = RandomFourier(min(_WAVES, max(8, n // 10)), bandwidth=bandwidth, low=low, high=high)
    return Selected(Stack(Polynomial(0, low=low, high=high), waves), tolerance=0.02)
