"""Features of states that are numbered 0, 1, ..., S - 1."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vrtd.arrays import frozen, real_array
from vrtd.checks import check_count
from vrtd.errors import DataError, InvalidInputError
from vrtd.features.features import Features, check_most, unbound
from vrtd.features.plain import plain_settings
from vrtd.features.rows import row_dtype


@dataclass(frozen=True)
class Tabular(Features):
    """One feature for each state, 1 there and 0 elsewhere: phi(s).theta = theta_s, which can represent every V.

    Without `n_states` the features are bound to the largest state of the data.

    >>> Tabular(3)(np.array([2, 0])).tolist()
    [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    """

    n_states: int | None = None

    kind: ClassVar[str] = "tabular"

    def __post_init__(self) -> None:
        if self.n_states is not None:
            check_count("n_states", self.n_states)
            object.__setattr__(self, "n_states", int(self.n_states))
            check_most(self.n_states, "group states, or use a Table with fewer columns")

    @property
    def needs_data(self) -> bool:
        return self.n_states is None

    def bind(self, observations: NDArray[Any]) -> Self:
        if self.n_states is not None:
            return self
        states, bad = _states(observations, None)
        if bad is not None:
            _refuse(observations, bad, "be a whole number of at least 0")
        if states.size == 0:
            raise DataError("there must be an observation to count states by", "none", "pass n_states")
        return replace(self, n_states=int(states.max()) + 1)

    @property
    def n_features(self) -> int:
        if self.n_states is None:
            raise unbound(self, "the number of states")
        return self.n_states

    @property
    def largest_norm(self) -> float:
        return 1.0

    def __call__(self, observations: NDArray[Any]) -> NDArray[np.floating[Any]]:
        n = self.n_features
        observations = np.asarray(observations)
        states, bad = _states(observations, n)
        rows = np.zeros((states.size, n), row_dtype(observations))
        rows[np.arange(states.size), states] = 1.0
        return _without(rows, bad)

    @property
    def settings(self) -> dict[str, Any]:
        return plain_settings(self.kind, self)


@dataclass(frozen=True, eq=False)
class Table(Features):
    """The features of state s are row s of an (S, d) array.

    >>> Table([[1.0, 0.0], [0.5, 0.5]])(np.array([1, 1])).tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """

    array: ArrayLike

    kind: ClassVar[str] = "table"

    def __post_init__(self) -> None:
        shape = np.shape(self.array) if isinstance(self.array, np.ndarray) else None
        if shape is not None and len(shape) == 2:  # before it is copied
            check_most(shape[1], "use fewer columns")
        array = real_array("array", self.array)
        if array.ndim != 2 or 0 in array.shape:
            raise InvalidInputError(
                "array must have a row of features for each state", f"the shape {array.shape}", "pass an (S, d) array"
            )
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
        states, bad = _states(observations, self.n_states)
        table = self._narrow if row_dtype(observations) == np.float32 else self._wide
        return _without(np.take(table, states, axis=0), bad)

    @property
    def settings(self) -> dict[str, Any]:
        return plain_settings(self.kind, self)

    @property
    def _wide(self) -> NDArray[np.float64]:
        return np.asarray(self.array, np.float64)

    @cached_property
    def _narrow(self) -> NDArray[np.float32]:
        return frozen(self._wide.astype(np.float32))


def _states(observations: Any, n_states: int | None) -> tuple[NDArray[np.intp], NDArray[np.bool_] | None]:
    """The states, and which observations are not finite (None: none; their state is 0)."""
    array = np.asarray(observations)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or array.dtype.kind not in "biuf":
        raise DataError(
            "observations must be states: one whole number each",
            f"an array of {array.dtype} of shape {array.shape}",
            "pass an array of shape (n,), or choose features of observations with several numbers",
        )
    bad = None
    if array.dtype.kind == "f":
        array = array.astype(np.float64)
        finite = np.isfinite(array)
        if not finite.all():
            bad = ~finite
            array = np.where(finite, array, 0.0)
    most = np.iinfo(np.intp).max if n_states is None else n_states
    wrong = (array < 0) | (array >= most)
    if array.dtype.kind == "f":
        wrong |= array != np.rint(array)
    if wrong.any():
        must = "be a whole number of at least 0" if n_states is None else f"be a state in 0..{n_states - 1}"
        _refuse(array, wrong, must)
    return array.astype(np.intp), bad


def _refuse(observations: NDArray[Any], wrong: NDArray[np.bool_], must: str) -> None:
    row = int(np.argmax(wrong))
    value = np.asarray(observations).reshape(len(wrong), -1)[row, 0]
    raise DataError(
        f"every observation must {must}", f"{value} in row {row}", "count states from 0 and pass how many there are"
    )


def _without(rows: NDArray[np.floating[Any]], bad: NDArray[np.bool_] | None) -> NDArray[np.floating[Any]]:
    if bad is not None:
        rows[bad] = np.nan
    return rows
