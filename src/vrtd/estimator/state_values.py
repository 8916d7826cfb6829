"""Values of states for a report: all states of a table, a grid over the observed range, or the first observations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import Floats, check_unmasked
from vrtd.errors import InvalidInputError
from vrtd.estimator.evaluator import Evaluator
from vrtd.estimator.visits import VisitCounts
from vrtd.features import Features, Scaled, Tabular, TargetFeatures
from vrtd.features import Table as FeatureTable
from vrtd.features.features import MOST_DENSE
from vrtd.logs import Chunk, Log
from vrtd.logs.encoding import HASH_OF_MISSING
from vrtd.logs.log import WrappedLog
from vrtd.sparse import is_sparse
from vrtd.tables import Table

Kind = Literal["table", "curve", "map", "list"]

_CURVE, _MAP, _LIST = 201, 61, 256  # points of a curve, along each side of a map, and in a list
_BLOCK = 512  # states whose features are in memory at once
_FIRST_ROWS, _FIRST_BYTES = 4096, 1 << 23
_UNKNOWN = "unknown text"  # in place of a hash whose text is not among the first rows of the files
_MISSING = {HASH_OF_MISSING: "missing text"}
_MAPPED = 2  # most numbers in an observation for which visits are counted, since there are no maps of more
# A row is near a state if each of its numbers is within a certain share of the range. With evenly spread rows, this
# share contains `_NEAR_ROWS` rows, but it stays within these limits. The lower one is the size of one cell of a map.
_NEAR_ROWS, _NEAR_LIMITS = 20, (1 / 60, 1 / 20)
_FEW = 1e-5  # share of all rows; a state with fewer rows near it counts as not visited
_VALUES, _N_ROWS = ("value", "low", "high"), "n_rows"
_TAKEN = {*_VALUES, _N_ROWS, "half_width", "rank", "states"}  # names of the other columns of the tables


class Board(NamedTuple):
    """A board whose cells are the numbered states, row by row."""

    shape: tuple[int, int]
    letters: str = ""  # one per cell: a key of `CELLS` or a space; empty if the cells have no letters


#: Meaning of the letters of a board.
CELLS = {"S": "start", "F": "frozen", "H": "hole", "C": "cliff", "G": "goal"}


def _without_sparse_rows(chunk: Chunk) -> Chunk:
    """Return a chunk with dense observations, which a report can show."""
    n = chunk.observations.shape[1]
    if n > MOST_DENSE:
        raise InvalidInputError(
            f"A report shows observations, but these are sparse rows of {n:,} numbers.",
            "Use vrtd.Evaluator, whose fit takes the same log.",
        )
    return chunk._replace(
        observations=chunk.observations.toarray(), next_observations=chunk.next_observations.toarray()
    )


class LogSummary(WrappedLog):
    """A log that collects the facts for a report while it is read for the first time.

    `names` are the names of the numbers in an observation; None takes the names from the log.
    """

    def __init__(self, log: Log, names: Sequence[str] | None = None) -> None:
        super().__init__(log)
        self._is_first = True
        self.names = names
        self._hashed = () if log.space is None else log.space.hashed
        # Words are asked for before reading, which may be possible only once.
        self._words = {**log.words, **_MISSING} if self._hashed else {}
        if log.space is not None and log.space.n_numbers is not None:
            _check_names(names, log.space.n_numbers)
        self.n_terminated = self.n_truncated = self.n_seen = 0
        self.reward = 0.0  # the sum
        self.visits: VisitCounts | None = None  # only for observations of one or two numbers
        self._first: list[NDArray[Any]] = []

    def chunks(self) -> Iterator[Chunk]:
        """Yield the chunks of the log, and collect the facts on the first pass."""
        is_first, self._is_first = self._is_first, False
        for chunk in self._log.chunks():
            if is_sparse(chunk.observations):
                chunk = _without_sparse_rows(chunk)
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
    def dtype(self) -> np.dtype[Any]:
        """The type of the numbers of an observation."""
        return self._first[0].dtype

    @property
    def beginning(self) -> NDArray[Any]:
        """The first observations of the log."""
        return np.concatenate(self._first)

    def first(self, most: int) -> NDArray[Any]:
        """Return the first distinct observations, at most `most`, in order."""
        rows = self.beginning
        _, at = np.unique(rows.reshape(len(rows), -1), axis=0, return_index=True)
        return rows[np.sort(at)[:most]]

    def split(self, rows: NDArray[Any]) -> list[NDArray[Any]]:
        """Return the numbers of observations as columns, with text in place of its hashes."""
        columns = [np.ascontiguousarray(column) for column in rows.reshape(len(rows), -1).T]
        for j in self._hashed:
            columns[j] = np.array([self._words.get(number, _UNKNOWN) for number in columns[j].tolist()])
        return columns

    def _add(self, chunk: Chunk) -> None:
        rows, n = chunk.observations, chunk.n_rows
        n_wanted = min(_FIRST_ROWS, max(1, _FIRST_BYTES // rows[:1].nbytes)) - sum(map(len, self._first))
        if n_wanted > 0:
            self._first.append(rows[:n_wanted].copy())
        if (n_numbers := prod(self.shape)) <= _MAPPED and not self._hashed:
            if self.visits is None:
                self.visits = VisitCounts(n_numbers)
            self.visits.add(rows.reshape(n, -1))
        self.n_seen += n
        self.n_terminated += int(chunk.terminated.sum())
        self.n_truncated += int((chunk.truncated & ~chunk.terminated).sum())
        self.reward += float(chunk.reward.sum())


class StateValues(NamedTuple):
    """States with their observations, values, intervals and numbers of nearby rows."""

    kind: Kind
    names: tuple[str, ...]  # of the columns that hold the observation
    table: Table  # these columns, value, low, high, and n_rows if rows are counted
    near: float = 0.0  # rows are near within this share of the range of each number
    least_rows: int = 0  # a state with fewer rows near it counts as not visited

    @property
    def half_width(self) -> Floats:
        """Half the width of each interval."""
        return np.asarray((self.table["high"] - self.table["low"]) / 2.0)

    @property
    def is_known(self) -> NDArray[np.bool_]:
        """Whether the value of each state is known: see `known_states`."""
        return known_states(self.table, self.least_rows)


def known_states(table: Table, least_rows: int) -> NDArray[np.bool_]:
    """Return whether each state was visited and its interval is not infinite.

    The interval may be nan, because there is no formula for some algorithms.
    """
    is_known: NDArray[np.bool_] = ~np.isinf(table["high"] - table["low"])
    return is_known & (table[_N_ROWS] >= least_rows) if _N_ROWS in table else is_known


def value_states(evaluator: Evaluator, log: LogSummary, level: float, states: Any) -> StateValues:
    """Return the values of `states`, or of a default choice of states if `states` is None."""
    kind, rows = _choose_states(evaluator.features, log) if states is None else ("list", _check_states(states, log))
    flat = rows.reshape(len(rows), -1)
    names = log.names
    if names is None:
        names = _default_names(log, "state" if kind == "table" else "observation", flat.shape[1])
    table: Table = dict(zip(names, log.split(rows), strict=True))
    parts = [evaluator.predict(rows[at : at + _BLOCK], return_interval=level) for at in range(0, len(rows), _BLOCK)]
    table |= dict(zip(_VALUES, map(np.concatenate, zip(*parts, strict=True)), strict=True))
    if log.visits is None:
        return StateValues(kind, tuple(names), table)
    near = 0.0 if kind == "table" else _choose_near(log.n_seen, flat.shape[1])
    table[_N_ROWS] = log.visits.near(flat, near)
    if states is not None:
        least = 0  # states that the user chose are always shown
    else:
        least = 1 if kind == "table" else max(1, round(_FEW * log.n_seen))
    return StateValues(kind, tuple(names), table, near, least)


def _choose_near(n_rows: int, n_numbers: int) -> float:
    return float(np.clip((_NEAR_ROWS / n_rows) ** (1.0 / n_numbers) / 2.0, *_NEAR_LIMITS))


def free_name(name: str) -> str:
    """Return the name of a column of the log, with a prefix if a column of the tables has the same name."""
    return f"observation_{name}" if name in _TAKEN else name


def _default_names(log: LogSummary, word: str, n_numbers: int) -> tuple[str, ...]:
    """Return the column names of the numbers in an observation; without these, the word with a number appended."""
    read = None if log.space is None else log.space.names
    if read is not None and len(read) == n_numbers:
        names = tuple(map(free_name, read))
        if len({*names}) == n_numbers:
            return names
    return (word,) if n_numbers == 1 else tuple(f"{word}_{j}" for j in range(n_numbers))


def n_states_of(features: Features) -> int | None:
    """Return the number of states if the features are those of numbered states, or None."""
    match features:
        case Tabular() | FeatureTable():
            return features.n_states if isinstance(features.n_states, int) else None
        case Scaled(features=inside) | TargetFeatures(features=Features() as inside):
            return n_states_of(inside)
        case _:
            return None


def _check_names(names: Sequence[str] | None, n_numbers: int) -> None:
    """Raise unless there is a distinct name for each number of an observation."""
    if names is not None and (
        len(names) != n_numbers
        or len({*names, *_TAKEN}) != n_numbers + len(_TAKEN)
        or not all(isinstance(name, str) and name for name in names)
    ):
        raise InvalidInputError(
            f"names must be {n_numbers} different words, one for each number of an observation, and none of "
            f"{', '.join(sorted(_TAKEN))}, but is {', '.join(map(str, names)) or 'empty'}.",
            "Change the names.",
        )


def _choose_states(features: Features, log: LogSummary) -> tuple[Kind, NDArray[Any]]:
    n_states = n_states_of(features)
    if n_states is not None:
        return "table", np.arange(n_states)
    if log.visits is None:
        return "list", log.first(_LIST)
    visits = log.visits
    kind: Kind = "curve" if len(visits.low) == 1 else "map"
    n = _CURVE if kind == "curve" else _MAP
    sides = [_side(*side, n).astype(log.dtype) for side in zip(visits.low, visits.high, visits.is_whole, strict=True)]
    return kind, np.stack(np.meshgrid(*sides, indexing="ij"), axis=-1).reshape(-1, *log.shape)


def _side(low: float, high: float, is_whole: bool, n: int) -> Floats:
    """Return at most n equally spaced points, which are whole numbers if the observations are."""
    if not is_whole:
        return np.linspace(low, high, n if low < high else 1)
    step = max(1.0, np.ceil((high - low) / (n - 1)))
    return np.asarray(low + step * np.arange((high - low) // step + 1.0))


def _check_states(states: Any, log: LogSummary) -> NDArray[Any]:
    check_unmasked("states", states)
    rows = np.asarray(states)
    if rows.ndim == 0 or len(rows) == 0 or rows.shape[1:] != log.shape or rows.dtype.kind not in "biuf":
        raise InvalidInputError(
            f"states must be observations like those of the log, of shape (n, {', '.join(map(str, log.shape))}), "
            f"but is an array of {rows.dtype} with shape {rows.shape}.",
            "Pass one row per state.",
        )
    return rows
