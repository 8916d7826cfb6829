"""The log interface: chunks of transitions in order, which can be read repeatedly."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import Floats, check_unmasked
from vrtd.checks import check_count, check_fraction
from vrtd.errors import DataError, InvalidInputError
from vrtd.sparse import finite_rows, is_all_finite, is_scipy_sparse, is_sparse, join_tables, part_of, replace_rows

if TYPE_CHECKING:
    from vrtd.features import ObservationSpace
    from vrtd.problems import Transitions

#: Consecutive rows per environment in the log of a vector environment. Automatic batch sizes are multiples of it.
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
_SINGULAR = {"observations": "observation", "next_observations": "next observation"}  # for messages


class Chunk(NamedTuple):
    """Consecutive transitions.

    Parameters
    ----------
    observations : ndarray of shape (n, ...), or csr_array
        Observations, C-contiguous. Sparse rows are a ``scipy.sparse.csr_array`` of float32 or float64.
    reward : ndarray of shape (n,)
        Rewards, float64.
    next_observations : ndarray of shape (n, ...), or csr_array
        Next observations, C-contiguous and of the same type as the observations. The successor of a terminated row is
        ignored. The successor of a truncated row is the last observation before the reset.
    terminated : ndarray of bool of shape (n,)
        Whether the row ends its episode for good. Such a row does not bootstrap.
    truncated : ndarray of bool of shape (n,)
        Whether the episode or the recording stops after the row without termination. Such a row bootstraps.
    weight : ndarray of shape (n,), optional
        Importance ratios, float64. All rows have weight 1 if omitted.
    action : ndarray of shape (n,) or (n, k), optional
        Actions: int64 numbers from 0 on, float64 numbers or float64 vectors.
    propensity : ndarray of shape (n,), optional
        Probability with which each action was chosen, float64.
    starts : ndarray of bool of shape (n,), optional
        Whether the row is the first of its episode. If omitted, episodes start after a terminated or truncated row.
    locate : callable, optional
        Function that maps a field name and a row of the chunk to the origin of the value: file, column and row.

    Examples
    --------
    >>> import numpy as np
    >>> from vrtd.logs import Chunk
    >>> x, no = np.array([[0.0], [1.0]]), np.zeros(2, dtype=bool)
    >>> chunk = Chunk(x, np.ones(2), x + 1.0, terminated=np.array([False, True]), truncated=no)
    >>> chunk.n_rows, chunk.ends
    (2, array([False,  True]))
    """

    observations: Any
    reward: Floats
    next_observations: Any
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    weight: Floats | None = None
    action: NDArray[Any] | None = None
    propensity: Floats | None = None
    starts: NDArray[np.bool_] | None = None
    locate: Callable[[str, int], str] | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.reward)

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """Arrays by field name, without the fields that are None."""
        arrays = zip(self._fields[:-1], self[:-1], strict=True)
        return {name: values for name, values in arrays if values is not None}

    def check(self) -> None:
        """Check the types and lengths of all fields.

        Raises
        ------
        DataError
            If a field has the wrong type, shape or length.
        """
        for name, values in self.columns.items():
            check_unmasked(name, values)
        if self._is_sound():
            return
        columns: tuple[Any, ...] = self[:-1]
        for name, values in zip(self._fields[:-1], columns, strict=True):
            if name in _OPTIONAL and values is None:
                continue
            is_array, kind = isinstance(values, np.ndarray) or is_sparse_column(name, values), _KINDS.get(name)
            if not is_array or values.ndim == 0 or (kind is not None and (values.dtype, values.ndim) != (kind, 1)):
                content = "" if kind is None else f" with one {kind} per row"
                raise _refuse(f"The field {name!r} of a chunk must be an array{content}", values)
        if self.action is not None and not _is_action(self.action):
            content = "one int64, float64 or float64 vector per row"
            raise _refuse(f"The field 'action' of a chunk must be an array with {content}", self.action)
        lengths = {name: values.shape[0] for name, values in self.columns.items()}
        if len(set(lengths.values())) > 1:
            raise DataError(
                f"The fields of a chunk must have the same length, but have the lengths {lengths}.",
                "Pass arrays of equal length.",
            )
        if is_sparse(self.observations) != is_sparse(self.next_observations):
            raise DataError(
                "The observations and the next observations of a chunk must both be sparse or both be dense.",
                "Convert one of them.",
            )
        if self.next_observations.dtype != self.observations.dtype:
            raise DataError(
                f"The next observations of a chunk are {self.next_observations.dtype}, "
                f"but its observations are {self.observations.dtype}.",
                "Convert both to the same type.",
            )

    def _is_sound(self) -> bool:
        """Return whether all fields have the expected types and lengths; fast, because many chunks are small."""
        try:
            shape = self.reward.shape
            return bool(
                len(shape) == 1
                and self.terminated.shape == self.truncated.shape == shape
                and self.observations.shape[0] == self.next_observations.shape[0] == shape[0]
                and type(self.observations) is type(self.next_observations)
                and (isinstance(self.observations, np.ndarray) or is_sparse_column("observations", self.observations))
                and self.reward.dtype is _FLOAT
                and self.terminated.dtype is self.truncated.dtype is _BOOL
                and self.observations.dtype is self.next_observations.dtype
                and (self.weight is None or (self.weight.shape == shape and self.weight.dtype is _FLOAT))
                and (self.action is None or (len(self.action) == shape[0] and _is_action(self.action)))
                and (self.propensity is None or (self.propensity.shape == shape and self.propensity.dtype is _FLOAT))
                and (self.starts is None or (self.starts.shape == shape and self.starts.dtype is _BOOL))
            )
        except (AttributeError, IndexError, TypeError):
            return False

    def part(self, first: int, last: int) -> Chunk:
        """Return a range of rows without copying them.

        Parameters
        ----------
        first, last : int
            The rows from ``first`` to ``last`` - 1 are returned.

        Returns
        -------
        Chunk
            Views of the rows.
        """
        if first <= 0 and last >= len(self.reward):
            return self
        locate = self.locate
        columns = [None if values is None else part_of(values, first, last) for values in self[:-1]]
        return Chunk._make([*columns, None if locate is None else lambda field, row: locate(field, row + first)])

    def copy(self) -> Chunk:
        """Return a copy that shares no memory with this chunk.

        Returns
        -------
        Chunk
            The same rows in new arrays.
        """
        columns: dict[str, Any] = {name: values.copy() for name, values in self.columns.items()}
        return self._replace(**columns)

    @staticmethod
    def concatenate(chunks: Sequence[Chunk]) -> Chunk:
        """Join chunks into one with new arrays.

        Parameters
        ----------
        chunks : sequence of Chunk
            Chunks to join. If only some of them have weights, the rows of the others get weight 1. Other optional
            fields that only some of them have are left out.

        Returns
        -------
        Chunk
            All rows in the order of the chunks.
        """
        if any(chunk.weight is not None for chunk in chunks):
            chunks = [
                chunk._replace(weight=np.ones(chunk.n_rows)) if chunk.weight is None else chunk for chunk in chunks
            ]
        each = [chunk.columns for chunk in chunks]
        shared = set.intersection(*map(set, each))
        columns: dict[str, Any] = {name: join_tables([arrays[name] for arrays in each]) for name in shared}
        return Chunk(**columns)

    def mark_truncated(self, rows: slice) -> Chunk:
        """Return the same rows with some of them marked as truncated.

        Parameters
        ----------
        rows : slice
            Rows to mark, because no row continues them.

        Returns
        -------
        Chunk
            The rows with a new array ``truncated``.
        """
        truncated = self.truncated.copy()
        truncated[rows] = True
        return self._replace(truncated=truncated)

    @property
    def ends(self) -> NDArray[np.bool_]:
        """Whether each row is terminated or truncated, so that the next row does not continue it."""
        if not is_any(self.truncated):
            return self.terminated
        return self.terminated | self.truncated

    @property
    def successors(self) -> Any:
        """Next observations, with the current observation in terminated rows.

        The successor of a terminated row is ignored and need not be a valid input of the features.
        """
        if not is_any(self.terminated):
            return self.next_observations
        return replace_rows(self.next_observations, self.terminated, self.observations)

    def __repr__(self) -> str:
        columns: dict[str, Any] = self.columns
        kinds = {
            name: f"{values.dtype} {values.shape}"
            if isinstance(values, np.ndarray) or is_sparse_column(name, values)
            else type(values).__name__
            for name, values in columns.items()
        }
        return f"Chunk({', '.join(f'{name} {kind}' for name, kind in kinds.items())})"

    def place(self, field: str, row: int, n_before: int) -> str:
        """Return the origin of a value as text.

        Parameters
        ----------
        field : str
            Name of a field of the chunk.
        row : int
            Row of the chunk.
        n_before : int
            Number of rows of the log before this chunk.

        Returns
        -------
        str
            File, column and row if they are known, otherwise the row of the log.
        """
        return f"row {n_before + row} of the log" if self.locate is None else self.locate(field, row)

    def check_finite(self, n_before: int) -> None:
        """Check that all numbers in use are finite and that no weight is negative.

        Parameters
        ----------
        n_before : int
            Number of rows of the log before this chunk, for the message.

        Raises
        ------
        DataError
            If a number is not finite, unless it is the successor of a terminated row, or if a weight is negative.
        """
        places: list[tuple[int, str]] = []
        for name in ("observations", "next_observations", "reward", "weight"):
            values = getattr(self, name)
            if values is None or values.dtype.kind != "f" or is_all_finite(values):
                continue
            is_bad = ~finite_rows(values)
            if name == "next_observations":
                is_bad &= ~self.terminated
            places += [(int(row), name) for row in np.flatnonzero(is_bad)[:1]]
        if places:
            row, name = min(places, key=lambda place: place[0])
            entry = part_of(getattr(self, name), row, row + 1)
            numbers = np.ravel(entry.data if is_sparse(entry) else entry)
            raise DataError(
                f"The {_SINGULAR.get(name, name)} is {numbers[~np.isfinite(numbers)][0]} "
                f"in {self.place(name, row, n_before)}.",
                "Fix or drop the row.",
            )
        self.check_weight(n_before)

    def check_weight(self, n_before: int) -> None:
        """Check that no weight is negative.

        Parameters
        ----------
        n_before : int
            Number of rows of the log before this chunk, for the message.

        Raises
        ------
        DataError
            If a weight is negative.
        """
        if self.weight is not None and (self.weight < 0.0).any():
            row = int(np.argmax(self.weight < 0.0))
            raise DataError(
                f"Weights must not be negative, but the weight is {self.weight[row]} "
                f"in {self.place('weight', row, n_before)}.",
                "Fix or drop the row.",
            )


def is_sparse_column(name: str, values: Any) -> bool:
    """Return whether a field of a chunk holds sparse rows."""
    return name in _SINGULAR and is_scipy_sparse(values) and values.format == "csr" and values.ndim == 2


def _is_action(values: NDArray[Any]) -> bool:
    return (values.dtype.kind, values.ndim) in (("i", 1), ("f", 1), ("f", 2)) and values.dtype.itemsize == 8


def _refuse(rule: str, values: Any) -> DataError:
    content = f"{values.dtype} of shape {values.shape}" if isinstance(values, np.ndarray) else type(values).__name__
    return DataError(f"{rule}, but is {content}.", "Create the log with vrtd.logs.from_arrays.")


class Log(ABC):
    """Abstract base class of logs: transitions in chunks, which can be read repeatedly.

    Use ``vrtd.logs.from_arrays``, ``vrtd.logs.read`` or ``vrtd.logs.from_env`` to create one. A subclass must define
    ``chunks`` and ``n_rows``. The arrays of a chunk must not be written to: they may belong to the caller or be views
    of each other.

    Examples
    --------
    >>> from vrtd.logs import Log, from_arrays
    >>> log = from_arrays([[0.0], [1.0], [2.0]], [1.0, 2.0, 3.0])
    >>> isinstance(log, Log), sum(chunk.n_rows for chunk in log.chunks())
    (True, 2)
    """

    @abstractmethod
    def chunks(self) -> Iterator[Chunk]:
        """Iterate over all chunks, from the first.

        Yields
        ------
        Chunk
            Consecutive transitions.
        """

    @property
    @abstractmethod
    def n_rows(self) -> int | None:
        """Upper bound on the number of transitions, or None if it is unknown."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks on the last complete reading, the most important first.

        They report the rows that were dropped and why, and whether the integrity of the files could be verified.
        """
        return ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons to doubt results from this log, such as many dropped rows, after a complete reading."""
        return ()

    @property
    def space(self) -> ObservationSpace | None:
        """Description of the observations, or None if only the rows show what they are."""
        return None

    @property
    def words(self) -> Mapping[float, str]:
        """Text of the first rows by its hash, for columns that are read as hashes."""
        return {}

    @property
    def roles(self) -> Mapping[str, tuple[str, ...]]:
        """Columns that each field is read from; empty if the columns have no names."""
        return {}

    @property
    def knows_first(self) -> bool:
        """Whether the log records if its first row starts an episode.

        If False, the first row may continue an episode that began before the log.
        """
        return False

    @property
    def segment(self) -> int | None:
        """Number of consecutive rows per environment in the log of a vector environment, or None for one trajectory."""
        return None

    @property
    def origin(self) -> str:
        """Short description of the source of the rows."""
        return ""

    def __repr__(self) -> str:
        origin = f" from {self.origin}" if self.origin else ""
        roles = [f"; {role} {shorten(columns)}" for role, columns in self.roles.items()]
        return f"Log({self._size}{origin}{''.join(roles)})"

    def _repr_html_(self) -> str:
        from vrtd.report.notebook import build_summary  # imported here because reading needs no HTML

        entries = {"rows": self._size, "from": self.origin}
        entries |= {role: shorten(columns) for role, columns in self.roles.items()}
        notes = {"warnings": "; ".join(self.warnings), "remarks": "; ".join(self.remarks)}
        return build_summary("Log", entries | notes)

    @property
    def _size(self) -> str:
        return "unknown number of rows" if self.n_rows is None else f"{self.n_rows:,} rows"


def check_log(log: Any) -> None:
    """Raise unless the argument is a log."""
    if not isinstance(log, Log):
        raise InvalidInputError(
            f"log must be a Log, but is of type {type(log).__name__}.",
            "Create one with vrtd.logs.from_arrays or vrtd.logs.read.",
        )


class WrappedLog(Log):
    """Base class of logs that delegate everything except `chunks` to another log."""

    def __init__(self, log: Log) -> None:
        self._log = log

    @property
    def n_rows(self) -> int | None:
        """Upper bound on the number of transitions of the wrapped log."""
        return self._log.n_rows

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks of the wrapped log."""
        return self._log.remarks

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings of the wrapped log."""
        return self._log.warnings

    @property
    def space(self) -> ObservationSpace | None:
        """Description of the observations of the wrapped log."""
        return self._log.space

    @property
    def words(self) -> Mapping[float, str]:
        """Text of the wrapped log by its hash."""
        return self._log.words

    @property
    def roles(self) -> Mapping[str, tuple[str, ...]]:
        """Columns of the wrapped log."""
        return self._log.roles

    @property
    def knows_first(self) -> bool:
        """Whether the wrapped log records if its first row starts an episode."""
        return self._log.knows_first

    @property
    def segment(self) -> int | None:
        """Number of consecutive rows per environment of the wrapped log."""
        return self._log.segment

    @property
    def origin(self) -> str:
        """Source of the rows of the wrapped log."""
        return self._log.origin


def checked_chunks(log: Log, is_over: bool) -> Iterator[Chunk]:
    """Check and yield the chunks of one reading.

    The last row of each segment is marked as truncated. If the log `is_over`, its last row is marked too, so that the
    rows of the next log do not continue it.
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
    """Return the first names and the number of the others.

    >>> shorten(["a", "b", "c", "d"])
    'a, b, c and 1 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def is_any(flags: NDArray[np.bool_]) -> bool:
    """Return whether a flag is set, several times as fast as any() for small chunks, which are frequent."""
    return flags.tobytes() != bytes(flags.size)


def all_observations(chunks: Sequence[Chunk]) -> Any:
    """Return all observations followed by all successors in use, an order that does not depend on the chunks."""
    successors = [chunk.next_observations[~chunk.terminated] for chunk in chunks]
    return join_tables([*(chunk.observations for chunk in chunks), *successors])


def data_set(log: Log, features: Any, discount: float, *, seed: int | None = 0) -> Transitions:
    """Read a whole log into memory as feature rows.

    Parameters
    ----------
    log : Log
        Log to read. Its weights are kept.
    features : Features, str, callable or None
        Features in any form that ``vrtd.Evaluator`` accepts.
    discount : float
        Discount factor in [0, 1]. Terminated rows get discount 0.
    seed : int or None, default=0
        Seed of the shuffle of the rows. None keeps the order of the log. A shuffle makes batches of consecutive rows
        representative of all rows.

    Returns
    -------
    Transitions
        All rows of the log. If they are in order, ``ends`` marks the last row of each episode and segment. If they are
        shuffled, ``ends`` is True in every row, because no row continues another.

    Raises
    ------
    DataError
        If the log has no rows, or if it has numbers that are not finite or weights that are negative.

    Examples
    --------
    >>> from vrtd.logs import from_arrays
    >>> log = from_arrays([[1.0], [2.0], [3.0]], [1.0, 0.0, 1.0], terminated=[False, False, True])
    >>> data = data_set(log, None, 0.9, seed=None)
    >>> data.phi_next.ravel()[:2], data.discount
    (array([2., 3.]), array([0.9, 0.9, 0. ]))
    """
    from vrtd.features import as_features, complete  # imported here because reading needs neither these nor Numba
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
        raise DataError("The log has no rows for a data set.", "Pass a log with at least one transition.")
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
