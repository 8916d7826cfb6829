"""Features of states that are numbered 0, 1, ..., S - 1."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vrtd.arrays import frozen, real_array
from vrtd.checks import require
from vrtd.errors import DataError
from vrtd.features.features import Features, check_bound, check_most, check_some, finite_rows, row_dtype, set_count


@dataclass(frozen=True)
class Tabular(Features):
    """One feature for each state, 1 there and 0 elsewhere: phi(s).theta = theta_s, which can represent every V.

    Without `n_states` the features are bound to the largest state of the data.

    >>> Tabular(3)(np.array([2, 0])).tolist()
    [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    """

    n_states: int | None = None

    kind = "tabular"
    largest_norm = 1.0

    def __post_init__(self) -> None:
        set_count(self, "n_states", "group states, or use a Table with fewer columns")

    @property
    def needs_data(self) -> bool:
        return self.n_states is None

    def bind(self, observations: NDArray[Any]) -> Self:
        if self.n_states is not None:
            return self
        states, finite = _as_states(observations, None)
        _check_each(observations, finite, _WHOLE)
        check_some(states, "count states by", "pass n_states")
        return replace(self, n_states=int(states.max()) + 1)

    @property
    def n_features(self) -> int:
        return check_bound(self, "the number of states", self.n_states)

    def __call__(self, observations: NDArray[Any]) -> NDArray[np.floating[Any]]:
        n = self.n_features
        observations = np.asarray(observations)
        states, finite = _as_states(observations, n)
        rows = np.zeros((states.size, n), row_dtype(observations))
        rows[np.arange(states.size), states] = 1.0
        rows[~finite] = np.nan
        return rows


@dataclass(frozen=True, eq=False)
class Table(Features):
    """The features of state s are row s of an (S, d) array.

    >>> Table([[1.0, 0.0], [0.5, 0.5]])(np.array([1, 1])).tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """

    array: ArrayLike

    kind = "table"

    def __post_init__(self) -> None:
        if isinstance(self.array, np.ndarray) and self.array.ndim == 2:  # before it is copied
            check_most(self.array.shape[1], "use fewer columns")
        array = real_array("array", self.array)
        must, got = "array must have a row of features for each state", f"the shape {array.shape}"
        require(array.ndim == 2 and 0 not in array.shape, must, got, "pass an (S, d) array")
        check_most(array.shape[1], "use fewer columns")
        object.__setattr__(self, "array", frozen(array))

    @property
    def n_states(self) -> int:
        return len(self._wide)

    @property
    def n_features(self) -> int:
        return int(self._wide.shape[1])

    @cached_property
    def largest_norm(self) -> float:
        return float(np.linalg.norm(self._wide, axis=1).max())

    def __call__(self, observations: NDArray[Any]) -> NDArray[np.floating[Any]]:
        observations = np.asarray(observations)
        states, finite = _as_states(observations, self.n_states)
        table = self._narrow if row_dtype(observations) == np.float32 else self._wide
        rows: NDArray[np.floating[Any]] = np.take(table, states, axis=0)
        rows[~finite] = np.nan
        return rows

    @property
    def _wide(self) -> NDArray[np.float64]:
        return np.asarray(self.array, np.float64)

    @cached_property
    def _narrow(self) -> NDArray[np.float32]:
        return frozen(self._wide.astype(np.float32))


_WHOLE = "be a whole number of at least 0"


def _as_states(observations: Any, n_states: int | None) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """The states, 0 for an observation that is not finite, and which observations are finite."""
    array = np.asarray(observations)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    got = f"an array of {array.dtype} of shape {array.shape}"
    do = "pass an array of shape (n,), or choose features of observations with several numbers"
    holds = array.ndim == 1 and array.dtype.kind in "biuf"
    require(holds, "observations must be states: one whole number each", got, do, DataError)
    finite = finite_rows(array)
    if array.dtype.kind == "f":
        array = np.where(finite, array, 0.0).astype(np.float64)
    most = np.iinfo(np.intp).max if n_states is None else n_states
    good = (array >= 0) & (array < most) & (array == np.rint(array))
    _check_each(array, good, _WHOLE if n_states is None else f"be a state in 0..{n_states - 1}")
    return array.astype(np.intp), finite


def _check_each(observations: Any, good: NDArray[np.bool_], must: str) -> None:
    if not good.all():
        row = int(np.argmin(good))
        got = f"{np.asarray(observations).reshape(len(good), -1)[row, 0]} in row {row}"
        raise DataError(f"every observation must {must}", got, "count states from 0 and pass how many there are")
