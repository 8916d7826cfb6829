"""Hashed features: columns of text and numbers, and pairs of them, in a table of fixed width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from vrtd.checks import check_count, check_flag, check_positive, require
from vrtd.features.features import MOST_DENSE, Features, as_rows, check_bound, check_some, check_width, row_dtype
from vrtd.features.pairs import TargetFeatures
from vrtd.features.spaces import ObservationSpace
from vrtd.sparse import make_rows

_MOST_BITS = 24
_MANY = 20  # different whole numbers in the first rows of a column; more may be identifiers


@dataclass(frozen=True)
class Hashed(Features):
    """Signed hashing: each column, and each pair of columns, has a feature at a place that a hash decides.

    A category, such as text that is read with ``text="hash"``, has one feature for each of its values, also for values
    that the first rows do not have. A number has one feature, with its value divided by the root mean square of the
    column. The feature of a pair has the product of both values. There is also a constant. Features that fall on the
    same place are added with random signs. Rows are sparse with more than 512 features.

    Parameters
    ----------
    bits : int, default=20
        There are 2^bits features; at most 24.
    pairs : bool, default=True
        Whether pairs of columns have features.
    seed : int, default=0
        Seed of the hash.
    categories : sequence of int, optional
        Numbers of an observation, counted from 0, that are categories beside the columns of text in a table. If not
        given, these are all numbers of an array of integers, but no column of numbers in a table.
    scales : sequence of float, optional
        Root mean squares of the numbers of an observation, 1 for categories. If not given, ``bind`` takes them from
        data.

    Examples
    --------
    >>> rows = Hashed(10).bind(np.array([[3, 7], [3, 8]]))(np.array([[3, 7], [3, 8]]))
    >>> rows.shape, int((rows.toarray()[0] == rows.toarray()[1]).sum()), rows.nnz
    ((2, 1024), 1020, 8)
    """

    bits: int = 20
    pairs: bool = True
    seed: int = 0
    categories: Sequence[int] | None = field(default=None, kw_only=True)
    scales: Sequence[float] | None = field(default=None, kw_only=True)

    kind = "hash"

    def __post_init__(self) -> None:
        object.__setattr__(self, "bits", check_count("bits", self.bits))
        require(self.bits <= _MOST_BITS, f"bits must be at most {_MOST_BITS}, but is {self.bits}.", "Use fewer bits.")
        check_flag("pairs", self.pairs)
        check_count("seed", self.seed, least=0)
        if self.scales is not None:
            holds = isinstance(self.scales, list | tuple) and len(self.scales) > 0
            require(holds, f"scales must be a list of numbers, but is {self.scales!r:.60}.", "Pass e.g. [1.0, 2.5].")
            object.__setattr__(self, "scales", tuple(check_positive("scales", scale) for scale in self.scales))
        if self.categories is not None:
            holds = isinstance(self.categories, list | tuple)
            require(
                holds, f"categories must be a list of numbers, but is {self.categories!r:.60}.", "Pass e.g. [0, 2]."
            )
            places = tuple(check_count("categories", place, least=0) for place in self.categories)
            object.__setattr__(self, "categories", places)
            last = max(places, default=-1)
            n = last + 1 if self.scales is None else len(self.scales)
            require(last < n, f"categories names number {last}, but there are {n} numbers.", "Count from 0.")

    def bind(self, observations: NDArray[Any]) -> Self:
        """Return these features with the scales and the categories that are not set taken from data.

        Parameters
        ----------
        observations : ndarray of shape (n, ...)
            Observations.

        Returns
        -------
        Hashed
            The bound features.
        """
        if self.categories is not None and self.scales is not None:
            return self
        rows = as_rows(observations)
        check_some(rows, "determine the scales", "Pass scales and categories.")
        for place in self.categories or ():
            n = rows.shape[1]
            require(place < n, f"categories names number {place}, but there are {n} numbers.", "Count from 0.")
        is_whole = np.asarray(observations).dtype.kind in "biu"
        categories = self.categories if self.categories is not None else tuple(range(rows.shape[1] if is_whole else 0))
        scales = np.sqrt(np.square(rows.astype(np.float64)).mean(axis=0))
        scales[~(np.isfinite(scales) & (scales > 0.0))] = 1.0
        scales[list(categories)] = 1.0
        return replace(self, categories=categories, scales=tuple(scales.tolist()))

    @property
    def needs_data(self) -> bool:
        """Whether ``bind`` takes more than the shape of the observations from data."""
        return self.scales is None

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return 1 << self.bits

    @property
    def is_sparse(self) -> bool:
        """Whether rows are sparse."""
        return self.n_features > MOST_DENSE

    def __call__(self, observations: NDArray[Any]) -> Any:
        """Return the rows of observations, of shape (n, d)."""
        from vrtd.kernels.hashing import hash_rows  # imported here because other features need no compiled code

        scales = np.array(check_bound(self, "the scales", self.scales))
        k = len(scales)
        dtype = row_dtype(np.asarray(observations))
        numbers = np.ascontiguousarray(as_rows(observations), np.float64) + 0.0  # the bits of -0 become those of 0
        check_width(numbers, k)
        n, per_row = len(numbers), 1 + k + (k * (k - 1) // 2 if self.pairs else 0)
        is_category = np.zeros(k, np.bool_)
        is_category[list(self.categories or ())] = True
        values, columns = np.empty(n * per_row), np.empty(n * per_row, np.int32)
        starts = np.empty(n + 1, np.int32 if n * per_row < 2**31 else np.int64)
        words = numbers.view(np.uint64)
        size = hash_rows(
            numbers / scales, words, is_category, self.seed, self.bits, self.pairs, values, columns, starts
        )
        rows = make_rows(values[:size].astype(dtype, copy=False), columns[:size], starts, self.n_features)
        return rows if self.is_sparse else rows.toarray()


def text_for(features: Any) -> Literal["hash"] | None:
    """Return how text must be read for these features, or None if they do not need hashes."""
    return "hash" if isinstance(_inner(features), Hashed) else None


def doubt_numbers(features: Any, space: ObservationSpace | None, observations: Any) -> list[str]:
    """Return a warning if columns of whole numbers have one feature each, because they may be identifiers.

    There is none if the user has chosen the categories. `observations` are the first rows, or None.
    """
    given = _inner(features)
    if not isinstance(given, Hashed) or given.categories is not None or space is None or observations is None:
        return []
    names, values = space.names or (), as_rows(observations)
    places = [
        j
        for j in range(len(names))
        if j not in space.hashed
        and (values[:, j] == np.rint(values[:, j])).all()
        and len(np.unique(values[:, j])) > _MANY
    ]
    if not places:
        return []
    columns = " and column ".join(repr(names[j]) for j in places)
    return [
        f"the whole numbers of column {columns} have one feature, so that V is linear in them. If they are "
        "identifiers, convert them to text, or pass "
        f"features='hash:{given.bits},categories={'x'.join(map(str, places))}'"
    ]


def _inner(features: Any) -> Any:
    return features.features if isinstance(features, TargetFeatures) else features
