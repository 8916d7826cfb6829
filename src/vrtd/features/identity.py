"""Observations that are used as features."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Self

from numpy.typing import NDArray

from vrtd.features.features import (
    MOST_DENSE,
    MOST_SPARSE,
    Features,
    as_rows,
    check_bound,
    check_most,
    check_width,
    set_count,
)
from vrtd.sparse import is_scipy_sparse, to_sparse

_MOST = 1 << 17  # larger than the limit for features that are computed
_FEWER = "Use fewer numbers of the observation, or features of them."


@dataclass(frozen=True)
class Identity(Features):
    """Observations as features: phi(s) = s.

    Observations that are C-contiguous rows of floats, or sparse rows, are not copied.

    Parameters
    ----------
    n : int, optional
        Number of features, which is the size of an observation. If not given, ``bind`` takes it from the observations.
    sparse : bool, default=False
        Whether rows are sparse. ``bind`` sets it for sparse observations with more than 512 numbers.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.ones((3, 2))
    >>> Identity()(rows) is rows
    True
    """

    n: int | None = None
    sparse: bool = field(default=False, kw_only=True)

    kind = "identity"

    def __post_init__(self) -> None:
        set_count(self, "n", _FEWER, MOST_SPARSE if self.sparse else _MOST)

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
        if is_scipy_sparse(observations):
            width = observations.shape[1]
            return replace(self, n=self.n or width, sparse=width > MOST_DENSE)
        return self if self.n is not None else replace(self, n=as_rows(observations).shape[1])

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return check_bound(self, "the number of features", self.n)

    @property
    def is_sparse(self) -> bool:
        """Whether rows are sparse."""
        return self.sparse

    def __call__(self, observations: Any) -> Any:
        """Return the rows of observations, of shape (n, d)."""
        rows: Any = observations
        if not is_scipy_sparse(observations):
            rows = as_rows(observations)
            if self.sparse:
                rows = to_sparse(rows)
        elif not self.sparse:
            rows = observations.toarray()
        check_width(rows, rows.shape[1] if self.n is None else self.n)
        check_most(rows.shape[1], _FEWER, most=MOST_SPARSE if self.sparse else _MOST)
        return rows
