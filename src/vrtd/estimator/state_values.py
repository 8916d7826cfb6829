"""The values of states for a report: all states of a table, a grid over what was observed, or the first of a log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import Floats
from vrtd.errors import InvalidInputError
from vrtd.estimator.evaluator import Evaluator
from vrtd.features import Features, Scaled, Tabular
from vrtd.features import Table as FeatureTable
from vrtd.logs import Chunk, Log
from vrtd.logs.log import WrappedLog
from vrtd.tables import Table

Kind = Literal["table", "curve", "map", "list"]

_CURVE, _MAP, _LIST = 201, 61, 256  # points of a curve, along each side of a map, and in a list
_BLOCK = 512  # states whose features are held at once
_MOST_POINTS = 512  # of the picture of where the log has been; beyond, every second one is dropped
_FIRST_ROWS, _FIRST_BYTES = 4096, 1 << 23
_MAPPED = 2  # numbers in an observation of which there are maps: only then its range is asked for
_VALUES = ("value", "low", "high")


class LogSummary(WrappedLog):
    """A log that remembers, while it is first read, what a report tells of it.

    `names` are those of the numbers of an observation, by default what the log calls them.
    """

    def __init__(self, log: Log, names: Sequence[str] | None = None) -> None:
        super().__init__(log)
        self._is_first = True
        self.names = names
        self.n_terminated = self.n_truncated = self.n_seen = 0
        self.reward = 0.0  # the sum
        self.low: NDArray[Any] | None = None  # of the observations, where they are mapped
        self.high: NDArray[Any] | None = None
        self._first: list[NDArray[Any]] = []
        self._points: list[NDArray[Any]] = []
        self._stride = 1

    def chunks(self) -> Iterator[Chunk]:
        is_first, self._is_first = self._is_first, False
        for chunk in self._log.chunks():
            if is_first and chunk.n_rows:
                if not self.n_seen:
                    _check_names(self.names, chunk.observations[0].size)
                self._add(chunk)
            yield chunk

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one observation."""
        return self._first[0].shape[1:]

    @property
    def points(self) -> NDArray[Any]:
        """Observations at equal distances along the log."""
        return np.concatenate(self._points)

    def first(self, most: int) -> NDArray[Any]:
        """Return the first observations that are not the same, in order."""
        rows = np.concatenate(self._first)
        _, at = np.unique(rows.reshape(len(rows), -1), axis=0, return_index=True)
        return rows[np.sort(at)[:most]]

    def _add(self, chunk: Chunk) -> None:
        rows, n = chunk.observations, chunk.n_rows
        n_wanted = min(_FIRST_ROWS, max(1, _FIRST_BYTES // rows[:1].nbytes)) - sum(map(len, self._first))
        if n_wanted > 0:
            self._first.append(rows[:n_wanted].copy())
        if prod(self.shape) <= _MAPPED:
            self._add_points(rows.reshape(n, -1))
        self.n_seen += n
        self.n_terminated += int(chunk.terminated.sum())
        self.n_truncated += int((chunk.truncated & ~chunk.terminated).sum())
        self.reward += float(chunk.reward.sum())

    def _add_points(self, rows: NDArray[Any]) -> None:
        low, high = rows.min(axis=0), rows.max(axis=0)
        self.low = low if self.low is None else np.minimum(self.low, low)
        self.high = high if self.high is None else np.maximum(self.high, high)
        self._points.append(rows[-self.n_seen % self._stride :: self._stride].copy())
        if sum(map(len, self._points)) > _MOST_POINTS:
            points = self.points
            while len(points) > _MOST_POINTS:
                points, self._stride = points[::2], 2 * self._stride
            self._points = [points]


class StateValues(NamedTuple):
    """States with the numbers of their observations, their values and intervals."""

    kind: Kind
    names: tuple[str, ...]  # of the columns that hold the observation
    table: Table  # these columns, value, low, high

    @property
    def half_width(self) -> Floats:
        return np.asarray((self.table["high"] - self.table["low"]) / 2.0)


def value_states(evaluator: Evaluator, log: LogSummary, level: float, states: Any) -> StateValues:
    """Return the values of `states`, or of those that show most where none are given."""
    kind, rows = _choose_states(evaluator.features, log) if states is None else ("list", _check_states(states, log))
    flat = rows.reshape(len(rows), -1)
    names = log.names or (None if log.space is None else log.space.names)
    if names is None:
        word = "state" if kind == "table" else "observation"
        names = [word] if flat.shape[1] == 1 else [f"{word}_{j}" for j in range(flat.shape[1])]
    table: Table = {name: np.ascontiguousarray(flat[:, j]) for j, name in enumerate(names)}
    parts = [evaluator.predict(rows[at : at + _BLOCK], level) for at in range(0, len(rows), _BLOCK)]
    table |= dict(zip(_VALUES, map(np.concatenate, zip(*parts, strict=True)), strict=True))
    return StateValues(kind, tuple(names), table)


def n_states_of(features: Features) -> int | None:
    """Return how many states there are, where the features are those of numbered ones."""
    match features:
        case Tabular() | FeatureTable():
            return features.n_states if isinstance(features.n_states, int) else None
        case Scaled():
            return n_states_of(features.features)
        case _:
            return None


def _check_names(names: Sequence[str] | None, n_numbers: int) -> None:
    """Raise unless there is a name for each number of an observation."""
    taken = {*_VALUES, "half_width"}
    if names is not None and (
        len(names) != n_numbers
        or len({*names, *taken}) != n_numbers + len(taken)
        or not all(isinstance(name, str) and name for name in names)
    ):
        raise InvalidInputError(
            f"names must be {n_numbers} different words, one for each number of an observation, and none of "
            f"{', '.join(sorted(taken))}",
            repr(names),
            "pass as many",
        )


def _choose_states(features: Features, log: LogSummary) -> tuple[Kind, NDArray[Any]]:
    n_states = n_states_of(features)
    if n_states is not None:
        return "table", np.arange(n_states)
    if log.low is None or log.high is None:
        return "list", log.first(_LIST)
    kind: Kind = "curve" if len(log.low) == 1 else "map"
    n = _CURVE if kind == "curve" else _MAP
    sides = [_side(low, high, n) for low, high in zip(log.low, log.high, strict=True)]
    return kind, np.stack(np.meshgrid(*sides, indexing="ij"), axis=-1).reshape(-1, *log.shape)


def _side(low: Any, high: Any, n: int) -> NDArray[Any]:
    points = np.linspace(low, high, n if low < high else 1)
    if low.dtype.kind in "biu":  # observations between whole numbers are none
        points = np.unique(points.round())
    return points.astype(low.dtype)


def _check_states(states: Any, log: LogSummary) -> NDArray[Any]:
    rows = np.asarray(states)
    if rows.ndim == 0 or len(rows) == 0 or rows.shape[1:] != log.shape or rows.dtype.kind not in "biuf":
        raise InvalidInputError(
            f"states must be observations like those of the log, of shape (n, {', '.join(map(str, log.shape))})",
            f"an array of {rows.dtype} of shape {rows.shape}",
            "pass one row for each",
        )
    return rows
