"""Features without linear dependence: a selection of columns that nearly determine the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import Floats
from vrtd.checks import check_count, check_positive, require
from vrtd.errors import DataError
from vrtd.features.features import (
    Features,
    check_bound,
    check_dense,
    check_features,
    check_some,
    finite_rows,
    row_dtype,
)
from vrtd.sparse import to_dense

_BLOCK = 4096  # rows per block of work
_SPANNED = 1e-6  # root mean square of the residual of the constant 1


@dataclass(frozen=True)
class Selected(Features):
    """Some columns of other features.

    If the columns are not given, ``bind`` selects them, so that least squares with them is well conditioned. The first
    column is selected first, then always the column with the largest residual given the selected ones, until no
    residual exceeds ``tolerance`` times the root mean square of its column on the data. A column that is 0 on all data
    is kept, because later rows may have other values.

    Parameters
    ----------
    features : Features
        The features to select from.
    keep : sequence of int, optional
        Numbers of the columns to keep, increasing. If not given, ``bind`` selects them.
    tolerance : float, default=1e-5
        Smallest relative residual of a selected column.

    Examples
    --------
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
            require(holds, f"keep must be a list of columns, but got {self.keep!r:.60}.", "Pass at least one column.")
            keep = tuple(check_count("keep", column, least=0) for column in self.keep)
            require(
                list(keep) == sorted(set(keep)),
                f"keep must be increasing, but got {self.keep!r:.60}.",
                "Sort the columns, and pass each of them once.",
            )
            object.__setattr__(self, "keep", keep)

    @property
    def needs_data(self) -> bool:
        """Whether ``bind`` takes more than the shape of the observations from data."""
        return self.keep is None or self.features.needs_data

    def bind(self, observations: NDArray[Any]) -> Features:
        """Return these features with the columns to keep.

        Parameters
        ----------
        observations : ndarray of shape (n, ...)
            Observations, from which the columns are selected if they are not given.

        Returns
        -------
        Features
            The bound features. If all columns are kept, they are returned without a selection.
        """
        features = self.features.bind(observations)
        check_dense(features, "Selected")
        keep = self._find_independent(features, observations) if self.keep is None else tuple(self.keep)
        d = features.n_features
        require(
            keep[-1] < d,
            f"keep must hold columns below {d}, the number of features, but got {keep[-1]}.",
            "Remove the columns that do not exist.",
        )
        return features if len(keep) == d else replace(self, features=features, keep=keep)

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return len(check_bound(self, "the columns to keep", self.keep))

    @property
    def largest_norm(self) -> float | None:
        """Upper bound of the norm of every row, or None if it is not known."""
        return self.features.largest_norm

    def __call__(self, observations: NDArray[Any]) -> NDArray[np.floating[Any]]:
        """Return the rows of observations, of shape (n, d)."""
        keep = check_bound(self, "the columns to keep", self.keep)
        observations = np.asarray(observations)
        kept = np.empty((len(observations), len(keep)), row_dtype(observations))
        for start in range(0, len(observations), _BLOCK):
            rows = to_dense(self.features(observations[start : start + _BLOCK]))
            kept[start : start + _BLOCK] = rows[:, list(keep)]
            kept[start : start + _BLOCK][~finite_rows(rows)] = np.nan
        return kept

    def _find_independent(self, features: Features, observations: NDArray[Any]) -> tuple[int, ...]:
        """Return columns that nearly determine all others.

        This is Cholesky's method, with the column of the largest relative residual first.
        """
        observations = np.asarray(observations)
        check_some(observations, "select features", "Pass keep.")
        G = np.zeros((features.n_features, features.n_features))
        for start in range(0, len(observations), _BLOCK):
            rows = to_dense(features(observations[start : start + _BLOCK])).astype(np.float64)
            G += rows.T @ rows
        require(
            np.isfinite(G).all(),
            "Features must be finite on all rows to select columns, but some are not.",
            "Fix or drop these observations.",
            DataError,
        )
        keep = np.flatnonzero(G.diagonal() == 0.0).tolist()
        size = np.sqrt(np.where(G.diagonal() > 0.0, G.diagonal(), 1.0))
        G /= np.outer(size, size)
        left = G.diagonal().copy()  # squared residuals, given the kept columns, relative to the squared columns
        factor: Floats = np.zeros((0, len(G)))
        while left.max() > self.tolerance**2:
            j = int(np.argmax(left >= (1.0 - 1e-9) * left.max()))  # the first of those that are equal up to rounding
            row = (G[j] - factor[:, j] @ factor) / np.sqrt(left[j])
            factor = np.vstack([factor, row])
            left -= row * row
            left[j] = 0.0
            keep.append(j)
        return tuple(sorted(keep))


def spans_constant(phi: NDArray[np.floating[Any]]) -> bool:
    """Return whether a linear combination of the features is 1 on every row.

    Parameters
    ----------
    phi : ndarray of shape (n, d)
        Feature rows.

    Returns
    -------
    bool
        True if a constant lies in the span of the columns.

    Examples
    --------
    >>> spans_constant(np.array([[1.0, 0.0], [0.0, 1.0]])), spans_constant(np.array([[1.0], [2.0]]))
    (True, False)
    """
    rows = np.asarray(phi, np.float64)
    largest = np.abs(rows).max(axis=0, initial=0.0)
    rows = rows[:, largest > 0.0] / largest[largest > 0.0]
    left = 1.0 - rows @ np.linalg.lstsq(rows, np.ones(len(rows)))[0]
    return bool(np.sqrt(np.mean(left * left)) <= _SPANNED)
