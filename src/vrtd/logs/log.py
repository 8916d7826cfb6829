"""What a log of transitions is: chunks of rows, in order, as often as they are asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import Floats
from vrtd.checks import check_count, check_fraction
from vrtd.errors import DataError, InvalidInputError

if TYPE_CHECKING:
    from vrtd.features import ObservationSpace
    from vrtd.problems import Transitions

#: Steps of one environment before the next one's come, in the log of several; batches that are chosen keep them whole.
SEGMENT = 64

_FLOAT, _BOOL = np.dtype(np.float64), np.dtype(np.bool_)
_KINDS = {
    "reward": _FLOAT,
    "terminated": _BOOL,
    "truncated": _BOOL,
    "weight": _FLOAT,
    "propensity": _FLOAT,
    "starts": _BOOL,
}
_OPTIONAL = ("weight", "action", "propensity", "starts")


class Chunk(NamedTuple):
    """n consecutive transitions. A terminated one does not bootstrap: its successor is not looked at. A truncated one
    bootstraps from its successor, the last observation before the reset."""

    observations: NDArray[Any]  # (n, ...) C-contiguous
    reward: Floats  # (n,)
    next_observations: NDArray[Any]  # (n, ...) C-contiguous, of the dtype of the observations
    terminated: NDArray[np.bool_]  # (n,)
    truncated: NDArray[np.bool_]  # (n,) the end of an episode or of the recording that is no termination
    weight: Floats | None = None  # (n,) importance ratios; None: all 1
    action: NDArray[Any] | None = None  # (n,) integers below the number of actions, or floats, (n,) or (n, k)
    propensity: Floats | None = None  # (n,) probability with which the action was chosen
    starts: NDArray[np.bool_] | None = None  # (n,) first rows of episodes; None: those after an end
    #: Where row i of the field `name` of this chunk comes from, in words: file, column, row.
    locate: Callable[[str, int], str] | None = None

    @property
    def n_rows(self) -> int:
        return len(self.reward)

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the arrays by name, without those that were not given."""
        arrays = zip(self._fields[:-1], self[:-1], strict=True)
        return {name: values for name, values in arrays if values is not None}

    def check(self) -> None:
        """Raise unless types and lengths are as they are said to be."""
        if self._is_sound():
            return
        columns: tuple[Any, ...] = self[:-1]
        for name, values in zip(self._fields[:-1], columns, strict=True):
            if name in _OPTIONAL and values is None:
                continue
            is_array, kind = isinstance(values, np.ndarray), _KINDS.get(name)
            if not is_array or values.ndim == 0 or (kind is not None and (values.dtype, values.ndim) != (kind, 1)):
                must = f"{name} of a chunk must be an array" + ("" if kind is None else f" of one {kind} per row")
                raise _refuse(must, values)
        if self.action is not None and not _is_action(self.action):
            must = "action of a chunk must be an array of one int64, float64 or float64 vector per row"
            raise _refuse(must, self.action)
        lengths = {name: len(values) for name, values in self.columns.items()}
        if len(set(lengths.values())) > 1:
            raise DataError("all fields of a chunk must be equally long", lengths, "correct the log")
        if self.next_observations.dtype != self.observations.dtype:
            must = f"next observations must be of the type of the observations, {self.observations.dtype}"
            raise DataError(must, self.next_observations.dtype, "convert them")

    def _is_sound(self) -> bool:
        """Return whether all is as it nearly always is. This is checked first, because small chunks come often."""
        try:
            shape = self.reward.shape
            return bool(
                len(shape) == 1
                and self.terminated.shape == self.truncated.shape == shape
                and len(self.observations) == len(self.next_observations) == shape[0]
                and self.reward.dtype is _FLOAT
                and self.terminated.dtype is self.truncated.dtype is _BOOL
                and self.observations.dtype is self.next_observations.dtype
                and (self.weight is None or (self.weight.shape == shape and self.weight.dtype is _FLOAT))
                and (self.action is None or (len(self.action) == shape[0] and _is_action(self.action)))
                and (self.propensity is None or (self.propensity.shape == shape and self.propensity.dtype is _FLOAT))
                and (self.starts is None or (self.starts.shape == shape and self.starts.dtype is _BOOL))
            )
        except (AttributeError, TypeError):
            return False

    def part(self, first: int, last: int) -> Chunk:
        """Return rows first, ..., last - 1 without copying them."""
        if first <= 0 and last >= len(self.reward):
            return self
        locate, rows = self.locate, slice(first, last)
        columns = [None if values is None else values[rows] for values in self[:-1]]
        return Chunk._make([*columns, None if locate is None else lambda field, row: locate(field, row + first)])

    def copy(self) -> Chunk:
        """Return the same rows in arrays of their own."""
        columns: dict[str, Any] = {name: values.copy() for name, values in self.columns.items()}
        return self._replace(**columns)

    @staticmethod
    def concatenate(chunks: Sequence[Chunk]) -> Chunk:
        """Join chunks in new arrays. If only some of them have weights, the rows of the others get weight 1. Other
        columns that only some of them have are left out."""
        if any(chunk.weight is not None for chunk in chunks):
            chunks = [
                chunk._replace(weight=np.ones(chunk.n_rows)) if chunk.weight is None else chunk for chunk in chunks
            ]
        each = [chunk.columns for chunk in chunks]
        shared = set.intersection(*map(set, each))
        columns: dict[str, Any] = {name: np.concatenate([arrays[name] for arrays in each]) for name in shared}
        return Chunk(**columns)

    def mark_truncated(self, rows: slice) -> Chunk:
        """Return the same rows, with these marked as truncated: nothing continues them."""
        truncated = self.truncated.copy()
        truncated[rows] = True
        return self._replace(truncated=truncated)

    @property
    def ends(self) -> NDArray[np.bool_]:
        """(n,) where the next row does not continue this one."""
        if not is_any(self.truncated):
            return self.terminated
        return self.terminated | self.truncated

    @property
    def successors(self) -> NDArray[Any]:
        """Next observations, with the current observation where a transition terminates: its successor is ignored, and
        need not be a state that features know."""
        if not is_any(self.terminated):
            return self.next_observations
        successors = self.next_observations.copy()
        successors[self.terminated] = self.observations[self.terminated]
        return successors

    def __repr__(self) -> str:
        kinds = {
            name: f"{values.dtype} {values.shape}" if isinstance(values, np.ndarray) else type(values).__name__
            for name, values in self.columns.items()
        }
        return f"Chunk({', '.join(f'{name} {kind}' for name, kind in kinds.items())})"

    def place(self, field: str, row: int, n_before: int) -> str:
        """Say where row `row` of a field comes from; `n_before` rows of the log came before this chunk."""
        return f"row {n_before + row} of the log" if self.locate is None else self.locate(field, row)

    def check_finite(self, n_before: int) -> None:
        """Raise if a number that is used is not finite, or a weight is negative."""
        places: list[tuple[int, str]] = []
        for name in ("observations", "next_observations", "reward", "weight"):
            values = getattr(self, name)
            if values is None or values.dtype.kind != "f" or np.isfinite(values).all():
                continue
            is_bad = ~np.isfinite(values.reshape(len(values), -1)).all(axis=1)
            if name == "next_observations":
                is_bad &= ~self.terminated
            places += [(int(row), name) for row in np.flatnonzero(is_bad)[:1]]
        if places:
            row, name = min(places, key=lambda place: place[0])
            got = f"another in {name}: {self.place(name, row, n_before)}"
            raise DataError("every number of a log must be finite", got, "repair or drop it")
        self.check_weight(n_before)

    def check_weight(self, n_before: int) -> None:
        """Raise if a weight is negative."""
        if self.weight is not None and (self.weight < 0.0).any():
            row = int(np.argmax(self.weight < 0.0))
            where = self.place("weight", row, n_before)
            raise DataError("weights must not be negative", f"{self.weight[row]}: {where}", "repair or drop that row")


def _is_action(values: NDArray[Any]) -> bool:
    return (values.dtype.kind, values.ndim) in (("i", 1), ("f", 1), ("f", 2)) and values.dtype.itemsize == 8


def _refuse(must: str, values: Any) -> DataError:
    got = f"{values.dtype} of shape {values.shape}" if isinstance(values, np.ndarray) else type(values).__name__
    return DataError(must, got, "let vrtd.logs.from_arrays make the log")


class Log(ABC):
    """A source of chunks that can be read again from the beginning. The arrays of a chunk may be the caller's own, or
    views of each other: they are read, never written to."""

    @abstractmethod
    def chunks(self) -> Iterator[Chunk]:
        """Yield all chunks from the first on."""

    @property
    @abstractmethod
    def n_rows(self) -> int | None:
        """How many transitions there are at most, or None while that is not known; for progress and plans."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a reader should know, the most important first: rows that were dropped and why, integrity that cannot be
        verified. Complete after a whole reading, and about that reading only."""
        return ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What makes an answer from this log doubtful, such as a large share of rows that were dropped. Complete after
        a whole reading."""
        return ()

    @property
    def space(self) -> ObservationSpace | None:
        """What the observations are; None: only the rows tell."""
        return None

    @property
    def roles(self) -> Mapping[str, tuple[str, ...]]:
        """The columns that each field was read from; empty where there are no columns with names."""
        return {}

    @property
    def knows_first(self) -> bool:
        """Whether it is known if the first row begins an episode. If not, it may go on from the rows before the log."""
        return False

    @property
    def segment(self) -> int | None:
        """Rows come in stretches of this many consecutive steps of one environment of several; None: one trajectory."""
        return None

    @property
    def origin(self) -> str:
        """Where the rows come from, in words."""
        return ""

    def __repr__(self) -> str:
        origin = f" from {self.origin}" if self.origin else ""
        roles = [f"; {role} {shorten(columns)}" for role, columns in self.roles.items()]
        return f"Log({self._size}{origin}{''.join(roles)})"

    def _repr_html_(self) -> str:
        from vrtd.report.notebook import build_summary  # here, because reading needs no HTML

        entries = {"rows": self._size, "from": self.origin}
        entries |= {role: shorten(columns) for role, columns in self.roles.items()}
        notes = {"warnings": "; ".join(self.warnings), "remarks": "; ".join(self.remarks)}
        return build_summary("Log", entries | notes)

    @property
    def _size(self) -> str:
        return "unknown number of rows" if self.n_rows is None else f"{self.n_rows:,} rows"


def check_log(log: Any) -> None:
    if not isinstance(log, Log):
        raise InvalidInputError("log must be a Log", type(log).__name__, "make one with vrtd.logs: from_arrays, read")


class WrappedLog(Log):
    """A log that delegates all but `chunks` to another log."""

    def __init__(self, log: Log) -> None:
        self._log = log

    @property
    def n_rows(self) -> int | None:
        return self._log.n_rows

    @property
    def remarks(self) -> tuple[str, ...]:
        return self._log.remarks

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._log.warnings

    @property
    def space(self) -> ObservationSpace | None:
        return self._log.space

    @property
    def roles(self) -> Mapping[str, tuple[str, ...]]:
        return self._log.roles

    @property
    def knows_first(self) -> bool:
        return self._log.knows_first

    @property
    def segment(self) -> int | None:
        return self._log.segment

    @property
    def origin(self) -> str:
        return self._log.origin


def checked_chunks(log: Log, is_over: bool) -> Iterator[Chunk]:
    """Yield the chunks of one reading, checked.

    Rows that nothing continues are marked as truncated: the last of each segment, and of the log if it `is_over`, so
    that what comes next does not continue it.
    """
    first, last = 0, None
    for chunk in log.chunks():
        chunk.check()
        n = chunk.n_rows
        if log.segment is not None:
            chunk = chunk.mark_truncated(slice(log.segment - 1 - first % log.segment, None, log.segment))
            first += n
        if not is_over:
            yield chunk
        elif n:
            if last is not None:
                yield last
            if n > 1:
                yield chunk.part(0, n - 1)
            last = chunk.part(n - 1, n).copy()  # the log may use the memory of a chunk for the next one
    if last is not None:
        yield last.mark_truncated(slice(-1, None))


def shorten(names: Sequence[str], most: int = 3) -> str:
    """Return the first few names, and how many more there are.

    >>> shorten(["a", "b", "c", "d"])
    'a, b, c and 1 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def is_any(flags: NDArray[np.bool_]) -> bool:
    """Return whether a flag is set; several times as fast as any() for small chunks, which come often."""
    return flags.tobytes() != bytes(flags.size)


def all_observations(chunks: Sequence[Chunk]) -> NDArray[Any]:
    """Return all observations, then all successors that are used: an order that no split changes."""
    successors = [chunk.next_observations[~chunk.terminated] for chunk in chunks]
    return np.concatenate([*(chunk.observations for chunk in chunks), *successors])


def data_set(log: Log, features: Any, discount: float, *, seed: int | None = 0) -> Transitions:
    """Read a whole log into memory, with features of its observations.

    Parameters
    ----------
    log : Log
        The log. Its weights are kept.
    features : Any
        Whatever `vrtd.Evaluator` takes as features.
    discount : float
        Discount in [0, 1] of every row but the terminated ones, which have discount 0.
    seed : int or None
        Seed of the shuffle of the rows, which makes batches of them alike. None keeps their order.

    Returns
    -------
    Transitions
        All rows of the log. When they are in order, `ends` marks the last row of each episode and segment. When they
        are shuffled, no row continues another one and `ends` is True everywhere.

    Examples
    --------
    >>> from vrtd.logs import from_arrays
    >>> log = from_arrays([[1.0], [2.0], [3.0]], [1.0, 0.0, 1.0], terminated=[False, False, True])
    >>> data = data_set(log, None, 0.9, seed=None)
    >>> data.phi_next.ravel()[:2], data.discount
    (array([2., 3.]), array([0.9, 0.9, 0. ]))
    """
    from vrtd.features import as_features, complete  # here, because reading needs neither of them nor Numba
    from vrtd.problems import Transitions

    check_log(log)
    check_fraction("discount", discount)
    if seed is not None:
        check_count("seed", seed, least=0)
    chunks: list[Chunk] = []
    n = 0
    for chunk in checked_chunks(log, is_over=False):
        chunk.check_finite(n)
        chunks.append(chunk.copy())  # the log may use its memory again
        n += chunk.n_rows
    if not n:
        raise DataError("a log must have rows to make a data set", "none", "record some")
    rows = Chunk.concatenate(chunks)
    bound = complete(as_features(features), log.space).bind(all_observations([rows]))
    is_shuffled = seed is not None
    order = np.random.default_rng(seed).permutation(n) if is_shuffled else np.arange(n)
    return Transitions(
        bound(rows.observations)[order],
        rows.reward[order],
        bound(rows.successors)[order],
        np.where(rows.terminated, 0.0, discount)[order],
        None if rows.weight is None else rows.weight[order],
        rows.ends | is_shuffled,
    )
