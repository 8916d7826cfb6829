"""Features of states that are numbered 0, 1, ..., S - 1, and of several discrete variables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vrtd.arrays import check_unmasked, frozen, real_array
from vrtd.checks import check_flag, require
from vrtd.errors import DataError
from vrtd.features.bounded import as_sizes
from vrtd.features.features import (
    MOST_DENSE,
    MOST_FEATURES,
    MOST_SPARSE,
    Features,
    check_bound,
    check_most,
    check_some,
    finite_rows,
    row_dtype,
    set_count,
)
from vrtd.lazy import cached_property
from vrtd.sparse import indicator_rows

_GROUP = "Group states, or use a Table with fewer columns."


@dataclass(frozen=True)
class Tabular(Features):
    """Table: one feature per state, which is 1 in this state and 0 elsewhere.

    phi(s).theta = theta_s, so the features represent every V exactly. Several discrete variables have one feature per
    combination of their values, and the value of the last variable changes fastest.

    Parameters
    ----------
    n_states : int or sequence of int, optional
        Number of states, or number of values of each variable. If not given, ``bind`` takes the largest states of the
        data.
    other : bool, default=False
        Add a last feature for all states that are not in the table. Without it, such states are an error.

    Examples
    --------
    >>> Tabular(3)(np.array([2, 0])).tolist()
    [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    >>> Tabular((2, 2), other=True)(np.array([[1, 0], [0, 7]])).tolist()
    [[0.0, 0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 1.0]]
    """

    n_states: int | Sequence[int] | None = None
    other: bool = field(default=False, kw_only=True)

    kind = "tabular"
    largest_norm = 1.0

    def __post_init__(self) -> None:
        check_flag("other", self.other)
        if isinstance(self.n_states, list | tuple):
            sizes = as_sizes("n_states", self.n_states, "(32, 11, 2)")
            object.__setattr__(self, "n_states", sizes if len(sizes) > 1 else sizes[0])
        else:
            set_count(self, "n_states", _GROUP, MOST_SPARSE)
        if self.n_states is not None:
            check_most(self.n_features, _GROUP, most=MOST_SPARSE)

    @property
    def needs_data(self) -> bool:
        """Whether ``bind`` takes the number of states from data."""
        return self.n_states is None

    def bind(self, observations: NDArray[Any]) -> Self:
        """Return these features with the number of states.

        Parameters
        ----------
        observations : ndarray of shape (n, ...)
            Observations whose largest states determine the table.

        Returns
        -------
        Tabular
            The bound features, or the features themselves if they are bound already.
        """
        if self.n_states is not None:
            return self
        check_some(observations, "determine the number of states", "Pass n_states.")
        return replace(self, n_states=largest_states(observations))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of values of each variable."""
        n_states = check_bound(self, "the number of states", self.n_states)
        return tuple(n_states) if isinstance(n_states, tuple) else (int(n_states),)  # type: ignore[call-overload]

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return prod(self.sizes) + self.other

    @property
    def is_sparse(self) -> bool:
        """Whether rows are sparse."""
        return self.n_states is not None and self.n_features > MOST_DENSE

    def find_places(self, observations: NDArray[Any]) -> NDArray[np.intp]:
        """Return the number of the feature that is 1 for each observation.

        Parameters
        ----------
        observations : ndarray of shape (n,) or (n, k)
            States, or values of k variables.

        Returns
        -------
        ndarray of int, shape (n,)
            The numbers of the features, 0 for an observation that is not finite.
        """
        check_unmasked("observations", observations)
        return self._find(np.asarray(observations))[0]

    def __call__(self, observations: NDArray[Any]) -> Any:
        """Return the rows of observations, of shape (n, d)."""
        check_unmasked("observations", observations)
        observations = np.asarray(observations)
        places, finite = self._find(observations)
        if self.is_sparse:
            return indicator_rows(places[:, None], finite, self.n_features, row_dtype(observations))
        rows = np.zeros((places.size, self.n_features), row_dtype(observations))
        rows[np.arange(places.size), places] = 1.0
        rows[~finite] = np.nan
        return rows

    def _find(self, observations: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        sizes = self.sizes
        values, finite = _as_whole(observations, sizes)
        inside = _is_inside(values, sizes)
        if not self.other:
            _check_inside(values, inside, sizes)
        elif not inside.all():
            values = np.where(inside[:, None], values, 0)
        values = values.astype(np.intp)
        places = values[:, 0] if len(sizes) == 1 else np.ravel_multi_index(tuple(values.T), sizes)
        return (np.where(inside, places, prod(sizes)) if self.other else places), finite


@dataclass(frozen=True)
class OneHot(Features):
    """One feature for each value of several discrete variables.

    V is a sum of functions of one variable each. The first value of every variable but the first has no feature,
    because the features of each variable would sum to 1, as those of the first variable do.

    Parameters
    ----------
    sizes : sequence of int
        Number of values of each variable.

    Examples
    --------
    >>> OneHot((2, 3))(np.array([[1, 0], [0, 2]])).tolist()
    [[0.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 1.0]]
    """

    sizes: Sequence[int]

    kind = "onehot"

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", as_sizes("sizes", self.sizes, "(32, 11, 2)"))
        check_most(self.n_features, _GROUP, most=MOST_SPARSE)

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return sum(self.sizes) - len(self.sizes) + 1

    @property
    def is_sparse(self) -> bool:
        """Whether rows are sparse."""
        return self.n_features > MOST_DENSE

    @property
    def largest_norm(self) -> float:
        """Upper bound of the norm of every row."""
        return float(np.sqrt(len(self.sizes)))

    def __call__(self, observations: NDArray[Any]) -> Any:
        """Return the rows of observations, of shape (n, d)."""
        observations, sizes = np.asarray(observations), tuple(self.sizes)
        values, finite = _as_whole(observations, sizes)
        _check_inside(values, _is_inside(values, sizes), sizes, _COUNT)
        if self.is_sparse:
            ends = np.cumsum(sizes) - np.arange(len(sizes))  # one more than the last place of each variable
            places = np.append(0, ends[:-1] - 1) + values.astype(np.int64)
            found = indicator_rows(places, finite, self.n_features, row_dtype(observations))
            found.data[np.flatnonzero((values == 0) & (np.arange(len(sizes)) > 0))] = 0.0  # values without a feature
            found.eliminate_zeros()
            return found
        rows = np.zeros((len(values), self.n_features), row_dtype(observations))
        start = 0
        for size, value in zip(sizes, values.T.astype(np.intp), strict=True):
            has_feature = np.flatnonzero(value >= (start > 0))
            rows[has_feature, start + value[has_feature] - (start > 0)] = 1.0
            start += size - (start > 0)
        rows[~finite] = np.nan
        return rows


@dataclass(frozen=True, eq=False)
class Table(Features):
    """Features of states from an array: those of state s are row s.

    Parameters
    ----------
    array : array_like of shape (S, d)
        The features.

    Examples
    --------
    >>> Table([[1.0, 0.0], [0.5, 0.5]])(np.array([1, 1])).tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """

    array: ArrayLike

    kind = "table"

    def __post_init__(self) -> None:
        if isinstance(self.array, np.ndarray) and self.array.ndim == 2:  # before the copy
            check_most(self.array.shape[1], "Use fewer columns.")
        array = real_array("array", self.array)
        require(
            array.ndim == 2 and 0 not in array.shape,
            f"array must have one row of features per state, but has the shape {array.shape}.",
            "Pass an (S, d) array.",
        )
        check_most(array.shape[1], "Use fewer columns.")
        object.__setattr__(self, "array", frozen(array))

    @property
    def n_states(self) -> int:
        """Number of states S."""
        return len(self._wide)

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return int(self._wide.shape[1])

    @cached_property
    def largest_norm(self) -> float:
        """Upper bound of the norm of every row."""
        return float(np.linalg.norm(self._wide, axis=1).max())

    def __call__(self, observations: NDArray[Any]) -> NDArray[np.floating[Any]]:
        """Return the rows of observations, of shape (n, d)."""
        observations = np.asarray(observations)
        values, finite = _as_whole(observations, (self.n_states,))
        _check_inside(values, _is_inside(values, (self.n_states,)), (self.n_states,), "Add a row for each state.")
        table = self._narrow if row_dtype(observations) == np.float32 else self._wide
        rows: NDArray[np.floating[Any]] = np.take(table, values[:, 0].astype(np.intp), axis=0)
        rows[~finite] = np.nan
        return rows

    @property
    def _wide(self) -> NDArray[np.float64]:
        return np.asarray(self.array, np.float64)

    @cached_property
    def _narrow(self) -> NDArray[np.float32]:
        return frozen(self._wide.astype(np.float32))


def largest_states(observations: NDArray[Any]) -> tuple[int, ...]:
    """Return one more than the largest value of each variable in the data."""
    values, finite = _as_whole(observations, None)
    _check_each(observations, finite, _WHOLE, _COUNT)
    return tuple(int(value) + 1 for value in values.max(axis=0))


_WHOLE, _COUNT = "be a whole number of at least 0", "Number the states from 0."


def _as_whole(observations: Any, sizes: tuple[int, ...] | None) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return (n, k) whole numbers, with 0 for observations that are not finite, and which observations are finite.

    If ``sizes`` are not known, the numbers must be at least 0.
    """
    check_unmasked("observations", observations)
    array = np.asarray(observations)
    if array.ndim > 0:
        array = array.reshape(len(array), prod(array.shape[1:]))
    holds = array.ndim == 2 and array.dtype.kind in "biuf" and (array.shape[1] == len(sizes) if sizes else True)
    if not (holds and array.shape[1] > 0):
        each = "one whole number" if sizes is None or len(sizes) == 1 else f"{len(sizes)} whole numbers"
        raise DataError(
            f"observations must be states, with {each} each, but got an array of {array.dtype} "
            f"of shape {np.shape(observations)}.",
            "Pass an array of shape (n,), or choose features for observations of several numbers.",
        )
    finite = finite_rows(array)
    if array.dtype.kind == "f":
        array = np.where(finite[:, None], array, 0.0).astype(np.float64)
        is_whole = (array == np.rint(array)).all(axis=1)
        _check_each(array, is_whole, _WHOLE if sizes is None else _state_in(sizes), _COUNT)
    if sizes is None:
        _check_each(array, np.asarray((array >= 0).all(axis=1)), _WHOLE, _COUNT)
    return array, finite


def _is_inside(values: NDArray[Any], sizes: tuple[int, ...]) -> NDArray[np.bool_]:
    if len(sizes) == 1:
        return np.asarray((values[:, 0] >= 0) & (values[:, 0] < sizes[0]))
    return np.asarray(((values >= 0) & (values < np.array(sizes))).all(axis=1))


def _check_inside(values: NDArray[Any], inside: NDArray[np.bool_], sizes: tuple[int, ...], remedy: str = "") -> None:
    if inside.all():
        return
    row = values[int(np.argmin(inside))]
    enough = [max(size, int(value) + 1) for size, value in zip(sizes, row, strict=True)]
    if not remedy:
        can_grow = (row >= 0).all() and prod(enough) <= MOST_FEATURES
        word = f"tabular:{'x'.join(map(str, enough))}"
        remedy = f"Set the number of states, e.g. {word} if this is the last one." if can_grow else _COUNT
    _check_each(values, inside, _state_in(sizes), remedy)


def _state_in(sizes: tuple[int, ...]) -> str:
    ranges = [f"0..{size - 1}" for size in sizes]
    return f"be a state in {ranges[0]}" if len(ranges) == 1 else f"be states in {', '.join(ranges)}"


def _check_each(observations: Any, good: NDArray[np.bool_], condition: str, remedy: str) -> None:
    if not good.all():
        row = int(np.argmin(good))
        values = np.asarray(observations).reshape(len(good), -1)[row]
        value = values[0] if values.size == 1 else values.tolist()
        raise DataError(f"Every observation must {condition}, but got {value} in row {row}.", remedy)
