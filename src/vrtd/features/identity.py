"""Observations that are features already."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from vrtd.features.features import Features, as_rows, check_bound, check_most, check_width, set_count

_MOST = 1 << 17  # numbers that are there already may be more than features that are computed
_FEWER = "use fewer numbers of the observation, or features of them"


@dataclass(frozen=True)
class Identity(Features):
    """phi(s) = s, without a copy where the observations are C-contiguous rows of floats.

    >>> rows = np.ones((3, 2))
    >>> Identity()(rows) is rows
    True
    """

    n: int | None = None  # numbers in an observation; None: as many as come

    kind = "identity"

    def __post_init__(self) -> None:
        set_count(self, "n", _FEWER, _MOST)

    def bind(self, observations: NDArray[Any]) -> Self:
        return self if self.n is not None else replace(self, n=as_rows(observations).shape[1])

    @property
    def n_features(self) -> int:
        return check_bound(self, "how many numbers an observation has", self.n)

    def __call__(self, observations: NDArray[Any]) -> NDArray[np.floating[Any]]:
        rows = as_rows(observations)
        check_width(rows, rows.shape[1] if self.n is None else self.n)
        check_most(rows.shape[1], _FEWER, most=_MOST)
        return rows
