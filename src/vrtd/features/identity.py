"""Observations that are features already."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from vrtd.checks import check_count
from vrtd.features.features import Features, check_most, unbound
from vrtd.features.plain import plain_settings
from vrtd.features.rows import as_rows, check_width


@dataclass(frozen=True)
class Identity(Features):
    """phi(s) = s, without a copy where the observations are C-contiguous rows of floats.

    >>> rows = np.ones((3, 2))
    >>> Identity()(rows) is rows
    True
    """

    n: int | None = None  # numbers in an observation; None: as many as come

    kind: ClassVar[str] = "identity"

    def __post_init__(self) -> None:
        if self.n is not None:
            check_count("n", self.n)
            object.__setattr__(self, "n", int(self.n))
            check_most(self.n, "use fewer numbers of the observation, or features of them")

    def bind(self, observations: NDArray[Any]) -> Self:
        return self if self.n is not None else replace(self, n=as_rows(observations).shape[1])

    @property
    def n_features(self) -> int:
        if self.n is None:
            raise unbound(self, "how many numbers an observation has")
        return self.n

    def __call__(self, observations: NDArray[Any]) -> NDArray[np.floating[Any]]:
        rows = as_rows(observations)
        if self.n is None:
            check_most(rows.shape[1], "use fewer numbers of the observation, or features of them")
        else:
            check_width(rows, self.n)
        return rows

    @property
    def settings(self) -> dict[str, Any]:
        return plain_settings(self.kind, self)
