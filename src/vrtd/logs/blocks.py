"""Rows as a file holds them, before every one has its successor, and where each of them comes from."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from vrtd.arrays import Floats
from vrtd.errors import DataError

if TYPE_CHECKING:
    from vrtd.logs.encoding import Encoder

#: What is read at a time: enough rows to make the cost of a chunk small, few enough to stay near the processor.
CHUNK_ROWS, CHUNK_BYTES = 65_536, 4 * 2**20


def rows_per_block(row_bytes: float) -> int:
    return int(min(CHUNK_ROWS, max(64, CHUNK_BYTES // max(row_bytes, 1))))


class Origins(NamedTuple):
    """Where rows come from that were put in order."""

    files: Sequence[str]
    first: Sequence[int]  # the number of each file's first row, when the rows of all files are counted on
    numbers: NDArray[np.int64]  # (n,) of the rows

    def find(self, row: int) -> tuple[str, int]:
        """Return the file of a row, and its number there."""
        number = int(self.numbers[row])
        file = bisect_right(self.first, number) - 1
        return self.files[file], number - self.first[file]


class Piece(NamedTuple):
    """Consecutive rows of a file, a table or arrays, and the columns that each field was read from."""

    where: str  # empty for arrays that were passed in
    names: Mapping[str, Sequence[str]]  # field -> columns
    first_row: int  # counted from 0
    n_rows: int
    successors_at: int = 0  # how many rows further on a recorded successor lies
    origins: Origins | None = None  # of rows that were put in order; `first_row` counts from their beginning

    def column(self, field: str) -> str:
        """Name the column of a field, as the beginning of a message."""
        shown = _show(self.names[field])
        return f"{self.where}, column {shown}," if self.where else shown

    def name(self, field: str, entry: int) -> str:
        """Name the column of a number of a field; all numbers of a vector may be in one."""
        names = self.names[field]
        return names[entry] if len(names) > 1 else names[0]

    def place(self, field: str, row: int, entry: tuple[int, ...] | None = None) -> str:
        """Say where a row of this piece comes from. `entry`: where in the row, when that is known."""
        row += self.first_row + (self.successors_at if field == "next_observations" else 0)
        where = self.where
        if self.origins is not None:
            where, row = self.origins.find(row)
        names = self.names.get(field, (field,))
        if entry is not None and len(names) > 1:
            names, entry = [names[entry[0]]], None
        column = f"{where}, column {_show(names)}" if where else f"array {_show(names)}"
        inside = "" if not entry else f", entry {entry[0] if len(entry) == 1 else entry}"
        return f"{column}, row {row}{inside}"


class Gap(NamedTuple):
    """Rows in which a column has no value."""

    field: str
    entry: int  # which of the columns of the field
    rows: NDArray[np.bool_]


class Block(NamedTuple):
    """n consecutive rows; columns that were not recorded are None. The first nine are those of a chunk."""

    observations: NDArray[Any]
    reward: Floats
    next_observations: NDArray[Any] | None
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    weight: Floats | None
    action: NDArray[Any] | None
    propensity: Floats | None
    starts: NDArray[np.bool_] | None  # None until `vrtd.logs.pairing` finds them, unless they were recorded
    episode: NDArray[Any] | None  # of several columns: a structured array
    is_unusable: NDArray[np.bool_] | None  # a value is missing; None: no row with a missing value may be dropped
    is_unobserved: NDArray[np.bool_] | None  # the observation is missing, so that no row has it as its successor
    lacks_next: NDArray[np.bool_] | None  # the next observation is missing and no flag says that none is needed
    pieces: tuple[Piece, ...]
    part: int = 0  # rows of different parts follow each other only where the episode says so
    order: tuple[NDArray[Any], ...] = ()  # the columns that rows are to be sorted by, before they are

    @property
    def _arrays(self) -> tuple[Any, ...]:
        return self[: self._fields.index("pieces")]

    @staticmethod
    def join(blocks: Sequence[Block]) -> Block:
        """Put blocks one after another, as a block of the last one's part."""
        if len(blocks) == 1:
            return blocks[0]
        columns = zip(*(block._arrays for block in blocks), strict=True)
        arrays = [None if column[0] is None else np.concatenate(column) for column in columns]
        pieces = tuple(piece for block in blocks for piece in block.pieces)
        return Block._make([*arrays, pieces, blocks[-1].part, ()])

    def rows_from(self, start: int) -> Block:
        """Return the rows from `start` on."""
        pieces, skip = [], start
        for piece in self.pieces:
            left = max(0, piece.n_rows - skip)
            if left:
                pieces.append(piece._replace(first_row=piece.first_row + piece.n_rows - left, n_rows=left))
            skip -= piece.n_rows - left
        arrays = [None if array is None else array[start:] for array in self._arrays]
        return Block._make([*arrays, tuple(pieces), self.part, ()])

    def locate(self, rows: NDArray[np.intp] | None, field: str, row: int) -> str:
        """Say where row `row` of a chunk comes from. The chunk holds these `rows` of the block, or all of them.

        A next observation that was not recorded is the observation of one row further on.
        """
        at = row if rows is None else int(rows[row])
        if field == "next_observations" and self.next_observations is None:
            at, field = at + 1, "observations"
        values = {"observations": self.observations, "next_observations": self.next_observations}.get(field)
        entry = None
        if values is not None and values.dtype.kind == "f" and values.ndim > 1:
            bad = np.argwhere(~np.isfinite(values[at]))
            entry = tuple(int(i) for i in bad[0]) if bad.size else None
        for piece in self.pieces:
            if at < piece.n_rows:
                return piece.place(field, at, entry)
            at -= piece.n_rows
        raise IndexError(f"row {row} of a chunk with fewer rows")


#: Field -> its column; a list of columns, one entry per row each, makes a vector. Values that are missing are masked.
Fields = Mapping[str, Any]


def make_block(fields: Fields, piece: Piece, encoder: Encoder) -> Block:
    """Check and convert the columns of a block. Raise for missing values, unless rows that have some are dropped;
    those of next observations are marked."""
    gaps: list[Gap] = []
    observations = encoder.encode(fields["observations"], "observations", piece, gaps)
    successors = None
    if "next_observations" in fields:
        where = piece.column("next_observations")
        successors = encoder.encode(fields["next_observations"], "next_observations", piece, gaps)
        check_length(successors, where, piece)
        shape = observations.shape[1:]
        if successors.shape[1:] != shape:
            must = f"{where} must have the observations' shape, {shape} a row"
            raise DataError(must, successors.shape[1:], "name or pass the matching ones")
        kind = np.result_type(successors, observations)
        observations, successors = observations.astype(kind, copy=False), successors.astype(kind, copy=False)
    counts_nan = encoder.missing != "error"
    reward = _one_per_row(fields, "reward", piece, gaps, counts_nan, dtype=np.float64)
    weight = _one_per_row(fields, "weight", piece, gaps, counts_nan, dtype=np.float64)
    action = encoder.encode_action(fields["action"], piece, gaps) if "action" in fields else None
    propensity = _propensity(fields, piece, gaps, counts_nan)
    assert reward is not None
    truncated = _flags(fields, "truncated", piece, gaps, counts_nan)
    terminated = _flags(fields, "done" if "done" in fields else "terminated", piece, gaps, counts_nan)
    if "done" in fields:
        terminated = terminated & ~truncated
    starts = _flags(fields, "starts", piece, gaps, counts_nan) if "starts" in fields else None
    episodes, order = (_keys(fields, field, piece, gaps) for field in ("episode", "order_by"))
    episode = join_keys(episodes) if episodes else None
    is_unusable = is_unobserved = lacks_next = None
    if successors is not None:
        # The successor of a terminated row is not looked at. Which other rows need none, the rows after them tell.
        missing = [gap.rows for gap in gaps if gap.field == "next_observations"]
        lacks_next = np.logical_or.reduce([np.zeros(piece.n_rows, np.bool_), *missing]) & ~terminated
    gaps = [gap for gap in gaps if gap.field != "next_observations"]
    encoder.check(gaps, piece)
    if encoder.missing == "drop":
        is_unusable, is_unobserved = np.zeros((2, piece.n_rows), np.bool_)
        for gap in gaps:
            is_unusable |= gap.rows
            if gap.field == "observations":
                is_unobserved |= gap.rows
    piece = piece._replace(names=encoder.name_numbers(piece.names))
    columns = (observations, reward, successors, terminated, truncated, weight, action, propensity, starts)
    return Block(*columns, episode, is_unusable, is_unobserved, lacks_next, (piece,), order=order)


def _keys(fields: Fields, field: str, piece: Piece, gaps: list[Gap]) -> tuple[NDArray[Any], ...]:
    """Return the columns by which rows are told apart or sorted: numbers, times or text."""
    columns, keys = fields.get(field, []), []
    for k, column in enumerate(columns if isinstance(columns, list) else [columns]):
        where = piece._replace(names={field: (piece.names[field][k],)}).column(field)
        key = _check_column(column, where, piece)
        rows = find_missing(key, counts_nan=True)
        if rows is not None:
            gaps.append(Gap(field, k, rows))
        keys.append(_convert_key(np.ma.getdata(key), where))
    return tuple(keys)


def _convert_key(key: NDArray[Any], where: str) -> NDArray[Any]:
    """Return a key in a type that can be compared over files and sorted, without a change of any value."""
    if key.dtype.kind == "S":
        return np.strings.decode(key, "utf-8", "backslashreplace")
    if key.dtype.kind == "m":  # which DuckDB keeps in microseconds
        return key.astype(np.int64)
    if key.dtype.kind == "f" and key.dtype.itemsize > 8:
        must = f"{where} must have numbers of at most 64 bits"
        raise DataError(must, f"dtype {key.dtype}", "convert it to float64")
    kind = np.dtype(np.float32) if key.dtype == np.float16 else key.dtype
    return key.astype(kind.newbyteorder("="), copy=False)


def join_keys(keys: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return several columns as one array, whose entries are equal where all of theirs are."""
    if len(keys) == 1:
        return keys[0]
    joined = np.empty(len(keys[0]), np.dtype([(f"key_{k}", key.dtype) for k, key in enumerate(keys)]))
    for k, key in enumerate(keys):
        joined[f"key_{k}"] = key
    return joined


def split_keys(joined: NDArray[Any]) -> list[NDArray[Any]]:
    """Return the columns that were joined."""
    return [joined] if joined.dtype.names is None else [joined[name] for name in joined.dtype.names]


def _one_per_row(
    fields: Fields,
    field: str,
    piece: Piece,
    gaps: list[Gap],
    counts_nan: bool,
    of: str = "of numbers",
    dtype: DTypeLike | None = None,
) -> NDArray[Any] | None:
    """Return a column with one entry per row, of a type if one is named; None for a field that was not recorded.

    Missing entries are put down in `gaps`, and 0 is in their place.
    """
    array = fields.get(field)
    if array is None:
        return None
    where = piece.column(field)
    check_numbers(array, where, of)
    array = _check_column(array, where, piece)
    rows = find_missing(array, counts_nan)
    if rows is not None:
        gaps.append(Gap(field, 0, rows))
        array = np.where(rows, 0, np.ma.getdata(array))
    return np.ascontiguousarray(array, dtype)


def _propensity(fields: Fields, piece: Piece, gaps: list[Gap], counts_nan: bool) -> Floats | None:
    """Return the column of propensities; raise unless all that are there are positive and finite."""
    propensity = _one_per_row(fields, "propensity", piece, gaps, counts_nan, dtype=np.float64)
    if propensity is None:
        return None
    is_bad = ~((propensity > 0.0) & np.isfinite(propensity))
    for gap in gaps:
        if gap.field == "propensity":
            is_bad &= ~gap.rows
    if is_bad.any():
        row = int(np.argmax(is_bad))
        must = "a propensity must be positive and finite: it is the probability of the action that was chosen"
        raise DataError(must, f"{propensity[row]} at {piece.place('propensity', row)}", "repair or drop that row")
    return propensity


def _check_column(array: NDArray[Any], where: str, piece: Piece) -> NDArray[Any]:
    """Return a column with one entry per row."""
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise DataError(f"{where} must have one entry a row", f"shape {array.shape}", "name or pass a single column")
    check_length(array, where, piece)
    return array


def _flags(fields: Fields, field: str, piece: Piece, gaps: list[Gap], counts_nan: bool) -> NDArray[np.bool_]:
    """Return bools, of which a column holds True and False or numbers that are all 1 or 0; all False without one."""
    array = _one_per_row(fields, field, piece, gaps, counts_nan, "of True and False, or 1 and 0")
    if array is None:
        return np.zeros(piece.n_rows, dtype=np.bool_)
    if array.dtype.kind != "b":
        bad = np.flatnonzero((array != 0) & (array != 1))
        if bad.size:
            got = f"{array[bad[0]]} at {piece.place(field, int(bad[0]))}"
            raise DataError("a flag must be 0 or 1", got, "repair it, or rename the column or name another")
    return array.astype(np.bool_, copy=False)


def find_missing(array: NDArray[Any], counts_nan: bool) -> NDArray[np.bool_] | None:
    """Return the rows (n,) with a masked entry or, if it counts, NaN; None where there are none."""
    is_missing: Any = np.ma.getmask(array)
    if counts_nan and array.dtype.kind in "fmM":
        is_missing = is_missing | np.isnan(np.ma.getdata(array))
    if not is_missing.any():
        return None
    rows: NDArray[np.bool_] = is_missing.reshape(len(array), -1).any(axis=1)
    return rows


def convert_observations(columns: NDArray[Any] | list[NDArray[Any]], where: str) -> NDArray[Any]:
    """Return observations (n, ...): C-contiguous numbers, float32, float64 and integers as they are.

    Several columns become one (n, d) array, of a type that holds them all.
    """
    for column in columns if isinstance(columns, list) else [columns]:
        check_numbers(column, where)
    if isinstance(columns, np.ndarray):
        array = columns
    elif len(columns) == 1 and columns[0].ndim > 1:  # a list with the name of one column of vectors
        array = columns[0]
    else:
        shapes = {column.shape for column in columns}
        if len(shapes) > 1 or columns[0].ndim != 1:
            raise DataError(
                f"{where} must be columns with one number a row",
                f"shapes {', '.join(map(str, sorted(shapes)))}",
                "name one column of vectors, or several of numbers",
            )
        array = np.empty((columns[0].size, len(columns)), dtype=np.result_type(*columns))
        for j, column in enumerate(columns):
            array[:, j] = column
    kind = array.dtype
    if kind.kind == "b":
        kind = np.dtype(np.uint8)
    elif kind.kind == "f":  # a half is exact as a single; a long double has no features
        kind = np.dtype(np.float32 if kind.itemsize <= 4 else np.float64)
    return np.ascontiguousarray(array, dtype=kind.newbyteorder("="))


def check_numbers(array: NDArray[Any], where: str, of: str = "of numbers") -> None:
    if array.dtype.kind not in "biuf" or array.ndim == 0:
        got = f"dtype {array.dtype}, shape {array.shape}"
        raise DataError(f"{where} must be an array {of}", got, "convert it first")


def check_length(array: NDArray[Any], where: str, piece: Piece) -> None:
    if len(array) != piece.n_rows:
        got = f"{len(array)} entries for {piece.n_rows} observations"
        raise DataError(f"{where} must have one entry a row", got, "pass arrays of one length")


def _show(names: Sequence[str]) -> str:
    return names[0] if names[0] == names[-1] else f"{names[0]} to {names[-1]}"
