"""Observations that are used as features."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from vrtd.features.features import Features, as_rows, check_bound, check_most, check_width, set_count

_MOST = 1 << 17  # larger than the limit for features that are computed
_FEWER = "Use fewer numbers of the observation, or features of them."


@dataclass(frozen=True)
class Identity(Features):
    """Observations as features: phi(s) = s.

    Observations that are C-contiguous rows of floats are not copied.

    Parameters
    ----------
    n : int, optional
        Number of features, which is the size of an observation. If not given, ``bind`` takes it from the observations.

    Examples
    --------
    >>> rows = np.ones((3, 2))
    >>> Identity()(rows) is rows
    True
    """

    n: int | None = None

    kind = "identity"

    def __post_init__(self) -> None:
        set_count(self, "n", _FEWER, _MOST)

    def bind(self, observations: NDArray[Any]) -> Self:
        """Return these features with their number.

        Parameters
        ----------
        observations : ndarray of shape (n, ...)
            Observations, of which only the shape is used.

        Returns
        -------
        Identity
            The bound features, or the features themselves if they are bound already.
        """
        return self if self.n is not None else replace(self, n=as_rows(observations).shape[1])

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return check_bound(self, "the number of features", self.n)

    def __call__(self, observations: NDArray[Any]) -> NDArray[np.floating[Any]]:
        """Return the rows of observations, of shape (n, d)."""
        rows = as_rows(observations)
        check_width(rows, rows.shape[1] if self.n is None else self.n)
        check_most(rows.shape[1], _FEWER, most=_MOST)
        return rows
