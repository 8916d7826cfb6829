"""Features that do not depend on one another: which columns of feature rows the others nearly determine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import Floats
from vrtd.checks import check_count, check_positive, require
from vrtd.errors import DataError
from vrtd.features.features import Features, check_bound, check_features, check_some, finite_rows, row_dtype

_BLOCK = 4096  # rows that are looked at at once
_SPANNED = 1e-6  # root mean square of what is left of the constant 1


@dataclass(frozen=True)
class Selected(Features):
    """The columns `keep` of other features.

    Unless they are given, `bind` takes the first column, then the one that adds most to those that are kept, and so on,
    until no column adds more than `tolerance` of its own root mean square on the data. So least squares with them is
    well conditioned. A column that is 0 throughout the data is kept, because rows to come may show it.

    >>> from vrtd.features import Identity
    >>> rows = np.array([[1.0, 0.0, 1.0], [1.0, 1.0, 2.0], [1.0, 2.0, 3.0]])
    >>> Selected(Identity()).bind(rows)(rows).tolist()
    [[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]
    """

    features: Features
    keep: Sequence[int] | None = None
    tolerance: float = field(default=1e-5, kw_only=True)

    kind = "selected"

    def __post_init__(self) -> None:
        check_features(self.features)
        object.__setattr__(self, "tolerance", check_positive("tolerance", self.tolerance))
        if self.keep is not None:
            holds = isinstance(self.keep, list | tuple) and len(self.keep) > 0
            require(holds, "keep must be a list of columns", f"{self.keep!r:.60}", "pass at least one")
            keep = tuple(check_count("keep", column, least=0) for column in self.keep)
            must = "keep must be rising"
            require(list(keep) == sorted(set(keep)), must, f"{self.keep!r:.60}", "sort it, and name a column once")
            object.__setattr__(self, "keep", keep)

    @property
    def needs_data(self) -> bool:
        return self.keep is None or self.features.needs_data

    def bind(self, observations: NDArray[Any]) -> Features:
        features = self.features.bind(observations)
        keep = self._find_independent(features, observations) if self.keep is None else tuple(self.keep)
        must, d = "keep must name columns that there are", features.n_features
        require(keep[-1] < d, must, f"{keep[-1]} of {d} columns", f"stay below {d}")
        return features if len(keep) == d else replace(self, features=features, keep=keep)

    @property
    def n_features(self) -> int:
        return len(check_bound(self, "the columns to keep", self.keep))

    @property
    def largest_norm(self) -> float | None:
        return self.features.largest_norm

    def __call__(self, observations: NDArray[Any]) -> NDArray[np.floating[Any]]:
        keep = check_bound(self, "the columns to keep", self.keep)
        observations = np.asarray(observations)
        kept = np.empty((len(observations), len(keep)), row_dtype(observations))
        for start in range(0, len(observations), _BLOCK):
            rows = self.features(observations[start : start + _BLOCK])
            kept[start : start + _BLOCK] = rows[:, list(keep)]
            kept[start : start + _BLOCK][~finite_rows(rows)] = np.nan
        return kept

    def _find_independent(self, features: Features, observations: NDArray[Any]) -> tuple[int, ...]:
        """Return columns that determine all others nearly (Cholesky's method, the column that adds most first)."""
        observations = np.asarray(observations)
        check_some(observations, "select features by", "pass keep")
        G = np.zeros((features.n_features, features.n_features))
        for start in range(0, len(observations), _BLOCK):
            rows = features(observations[start : start + _BLOCK]).astype(np.float64)
            G += rows.T @ rows
        must = "features that are selected must be finite on all rows"
        require(np.isfinite(G).all(), must, "others", "repair the observations", DataError)
        keep = np.flatnonzero(G.diagonal() == 0.0).tolist()
        size = np.sqrt(np.where(G.diagonal() > 0.0, G.diagonal(), 1.0))
        G /= np.outer(size, size)
        left = (
            G.diagonal().copy()
        )  # squares of what each column adds to those that are kept, as shares of its own square
        factor: Floats = np.zeros((0, len(G)))
        while left.max() > self.tolerance**2:
            j = int(np.argmax(left >= (1.0 - 1e-9) * left.max()))  # the first of those that are equal to rounding
            row = (G[j] - factor[:, j] @ factor) / np.sqrt(left[j])
            factor = np.vstack([factor, row])
            left -= row * row
            left[j] = 0.0
            keep.append(j)
        return tuple(sorted(keep))


def spans_constant(phi: NDArray[np.floating[Any]]) -> bool:
    """Return whether some combination of the columns of (n, d) feature rows is 1 on every row.

    >>> spans_constant(np.array([[1.0, 0.0], [0.0, 1.0]])), spans_constant(np.array([[1.0], [2.0]]))
    (True, False)
    """
    rows = np.asarray(phi, np.float64)
    largest = np.abs(rows).max(axis=0, initial=0.0)
    rows = rows[:, largest > 0.0] / largest[largest > 0.0]
    left = 1.0 - rows @ np.linalg.lstsq(rows, np.ones(len(rows)))[0]
    return bool(np.sqrt(np.mean(left * left)) <= _SPANNED)
