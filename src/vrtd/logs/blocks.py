"""Blocks of rows as they were recorded, before they are paired with their successors, and their origins."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from vrtd.arrays import Floats
from vrtd.errors import DataError
from vrtd.sparse import as_sparse_rows, is_scipy_sparse, is_sparse, join_tables, part_of

if TYPE_CHECKING:
    from vrtd.logs.encoding import Encoder

#: Limits of a block: enough rows to make the cost per block small, few enough for the cache.
CHUNK_ROWS, CHUNK_BYTES = 65_536, 4 * 2**20


def rows_per_block(row_bytes: float) -> int:
    """Return the number of rows in a block for the size of one row."""
    return int(min(CHUNK_ROWS, max(1, CHUNK_BYTES // max(row_bytes, 1))))


class Origins(NamedTuple):
    """Origins of sorted rows."""

    files: Sequence[str]
    first: Sequence[int]  # number of each file's first row, counted over all files
    numbers: NDArray[np.int64]  # (n,) numbers of the rows, counted over all files

    def find(self, row: int) -> tuple[str, int]:
        """Return the file of a row and its number in that file."""
        number = int(self.numbers[row])
        file = bisect_right(self.first, number) - 1
        return self.files[file], number - self.first[file]


class Piece(NamedTuple):
    """Consecutive rows of a file, a table or arrays, and the columns of each field."""

    where: str  # empty for arrays of `from_arrays`
    names: Mapping[str, Sequence[str]]  # field -> columns
    first_row: int  # counted from 0
    n_rows: int
    successors_at: int = 0  # number of rows from a row to its recorded successor
    origins: Origins | None = None  # of sorted rows; `first_row` then counts the sorted rows

    def column(self, field: str) -> str:
        """Return the column of a field as the beginning of a message."""
        shown = _show(self.names[field])
        return f"{self.where}, column {shown}," if self.where else shown

    def name(self, field: str, entry: int) -> str:
        """Return the column of entry `entry` of a field; all entries of a vector may share one column."""
        names = self.names[field]
        return names[entry] if len(names) > 1 else names[0]

    def place(self, field: str, row: int, entry: tuple[int, ...] | None = None) -> str:
        """Return the origin of a row of this piece as text, with the place `entry` inside the row if it is known."""
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
    entry: int  # index among the columns of the field
    rows: NDArray[np.bool_]


class Block(NamedTuple):
    """Consecutive rows. Columns that were not recorded are None. The first nine are the fields of a chunk."""

    observations: Any
    reward: Floats
    next_observations: Any | None
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    weight: Floats | None
    action: NDArray[Any] | None
    propensity: Floats | None
    starts: NDArray[np.bool_] | None  # None until `vrtd.logs.pairing` marks them, unless they were recorded
    episode: NDArray[Any] | None  # a structured array if there are several columns
    is_unusable: NDArray[np.bool_] | None  # a value is missing; None if rows with missing values may not be dropped
    is_unobserved: NDArray[np.bool_] | None  # the observation is missing, so the row cannot be a successor
    lacks_next: NDArray[np.bool_] | None  # the next observation is missing and the row is not terminated
    pieces: tuple[Piece, ...]
    part: int = 0  # rows of different parts are joined only within an episode
    order: tuple[NDArray[Any], ...] = ()  # the columns to sort by, before the sort

    @property
    def _arrays(self) -> tuple[Any, ...]:
        return self[: self._fields.index("pieces")]

    def without_objects(self) -> Block:
        """Return the block with names of episodes as plain text instead of objects."""
        if self.episode is None or not self.episode.dtype.hasobject:
            return self
        keys = [key.astype(np.str_) if key.dtype.hasobject else key for key in split_keys(self.episode)]
        return self._replace(episode=join_keys(keys))

    def check(self) -> None:
        """Raise ValueError unless all columns have the same length."""
        n = sum(piece.n_rows for piece in self.pieces)
        if any(array.shape[0] != n for array in self._arrays if array is not None):
            raise ValueError("columns of different lengths")

    @property
    def shows_episodes(self) -> bool:
        """Whether the rows show episodes or ends of episodes."""
        has_names = self.episode is not None or self.starts is not None
        return has_names or bool((self.terminated | self.truncated).any())

    @property
    def needs_no_pair(self) -> bool:
        """Whether successors were recorded, and nothing else depends on the rows around a row."""
        has_names = self.episode is not None or self.starts is not None
        return self.next_observations is not None and not has_names and self.is_unusable is None

    @staticmethod
    def join(blocks: Sequence[Block]) -> Block:
        """Concatenate blocks to one block, which belongs to the part of the last one."""
        if len(blocks) == 1:
            return blocks[0]
        columns = zip(*(block._arrays for block in blocks), strict=True)
        arrays = [None if column[0] is None else join_tables(column) for column in columns]
        pieces = tuple(piece for block in blocks for piece in block.pieces)
        return Block._make([*arrays, pieces, blocks[-1].part, ()])

    def first_rows(self, n_rows: int) -> Block:
        """Return the first rows, or all if there are fewer."""
        pieces, left = [], n_rows
        for piece in self.pieces:
            if left > 0:
                pieces.append(piece._replace(n_rows=min(left, piece.n_rows)))
            left -= piece.n_rows
        n_rows = min(n_rows, self.reward.size)
        arrays = [None if array is None else part_of(array, 0, n_rows) for array in self._arrays]
        return Block._make([*arrays, tuple(pieces), self.part, ()])

    def rows_from(self, start: int) -> Block:
        """Return the rows from row `start` to the end."""
        pieces, skip = [], start
        for piece in self.pieces:
            left = max(0, piece.n_rows - skip)
            if left:
                pieces.append(piece._replace(first_row=piece.first_row + piece.n_rows - left, n_rows=left))
            skip -= piece.n_rows - left
        arrays = [None if array is None else part_of(array, start, self.reward.size) for array in self._arrays]
        return Block._make([*arrays, tuple(pieces), self.part, ()])

    def locate(self, rows: NDArray[np.intp] | None, field: str, row: int) -> str:
        """Return the origin of row `row` of a chunk that holds the given `rows` of this block (None: all rows).

        A next observation that was not recorded is the observation of the following row.
        """
        at = row if rows is None else int(rows[row])
        if field == "next_observations" and self.next_observations is None:
            at, field = at + 1, "observations"
        values = {"observations": self.observations, "next_observations": self.next_observations}.get(field)
        entry = None
        if values is not None and not is_sparse(values) and values.dtype.kind == "f" and values.ndim > 1:
            bad = np.argwhere(~np.isfinite(values[at]))
            entry = tuple(int(i) for i in bad[0]) if bad.size else None
        for piece in self.pieces:
            if at < piece.n_rows:
                return piece.place(field, at, entry)
            at -= piece.n_rows
        raise IndexError(f"row {row} of a chunk with fewer rows")


#: Field -> its column, or a list of columns that form a vector. Missing values are masked.
Fields = Mapping[str, Any]


def make_block(fields: Fields, piece: Piece, encoder: Encoder) -> Block:
    """Check and convert the columns of a block.

    Missing values are an error unless their rows are to be dropped. Missing next observations are only marked.
    """
    gaps: list[Gap] = []
    observations = encoder.encode(fields["observations"], "observations", piece, gaps)
    successors = None
    if "next_observations" in fields:
        where = piece.column("next_observations")
        successors = encoder.encode(fields["next_observations"], "next_observations", piece, gaps)
        check_length(successors, where, piece)
        shape = observations.shape[1:]
        if successors.shape[1:] != shape:
            raise DataError(
                f"{where} must have the shape of the observations, {shape} per row, but has {successors.shape[1:]}.",
                "Pass next observations that match the observations.",
            )
        kind = np.result_type(successors.dtype, observations.dtype)
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
        # A terminated row needs no successor. Whether another row needs one depends on the rows after it.
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
    """Return the columns that name episodes or give the order: numbers, times or text."""
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
    """Convert a key to a type that can be compared across files and sorted, without changing a value."""
    if key.dtype.kind == "S":
        return np.strings.decode(key, "utf-8", "backslashreplace")
    if key.dtype.kind == "m":  # DuckDB would round to microseconds
        return key.astype(np.int64)
    if key.dtype.kind == "f" and key.dtype.itemsize > 8:
        raise DataError(
            f"{where} must have numbers of at most 64 bits, but has dtype {key.dtype}.",
            "Convert the column to float64.",
        )
    kind = np.dtype(np.float32) if key.dtype == np.float16 else key.dtype
    return key.astype(kind.newbyteorder("="), copy=False)


def join_keys(keys: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return several columns as one structured array."""
    if len(keys) == 1:
        return keys[0]
    joined = np.empty(len(keys[0]), np.dtype([(f"key_{k}", key.dtype) for k, key in enumerate(keys)]))
    for k, key in enumerate(keys):
        joined[f"key_{k}"] = key
    return joined


def split_keys(joined: NDArray[Any]) -> list[NDArray[Any]]:
    """Return the columns of an array from `join_keys`."""
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
    """Return a column with one entry per row as `dtype`, or None for a field that was not recorded.

    Missing entries become 0 and are added to `gaps`.
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
    """Return the column of propensities; raise unless they are positive and finite or missing."""
    propensity = _one_per_row(fields, "propensity", piece, gaps, counts_nan, dtype=np.float64)
    if propensity is None:
        return None
    is_bad = ~((propensity > 0.0) & np.isfinite(propensity))
    for gap in gaps:
        if gap.field == "propensity":
            is_bad &= ~gap.rows
    if is_bad.any():
        row = int(np.argmax(is_bad))
        raise DataError(
            "A propensity is the probability of the chosen action and must be positive and finite, "
            f"but is {propensity[row]} in {piece.place('propensity', row)}.",
            "Fix or drop the row.",
        )
    return propensity


def _check_column(array: NDArray[Any], where: str, piece: Piece) -> NDArray[Any]:
    """Return a column with one entry per row."""
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise DataError(
            f"{where} must have one entry per row, but has shape {array.shape}.", "Name or pass a single column."
        )
    check_length(array, where, piece)
    return array


def _flags(fields: Fields, field: str, piece: Piece, gaps: list[Gap], counts_nan: bool) -> NDArray[np.bool_]:
    """Return flags as booleans. A column holds booleans, or numbers 0 and 1; without one all flags are False."""
    array = _one_per_row(fields, field, piece, gaps, counts_nan, "of True and False, or 1 and 0")
    if array is None:
        return np.zeros(piece.n_rows, dtype=np.bool_)
    if array.dtype.kind != "b":
        bad = np.flatnonzero((array != 0) & (array != 1))
        if bad.size:
            raise DataError(
                f"A flag must be 0 or 1, but is {array[bad[0]]} in {piece.place(field, int(bad[0]))}.",
                "Fix the value, rename the column if it holds no flags, or name another one.",
            )
    return array.astype(np.bool_, copy=False)


def find_missing(array: NDArray[Any], counts_nan: bool) -> NDArray[np.bool_] | None:
    """Return the rows with a masked entry or, if `counts_nan`, a NaN; None if no row has one."""
    is_missing: Any = np.ma.getmask(array)
    if counts_nan and array.dtype.kind in "fmM":
        is_missing = is_missing | np.isnan(np.ma.getdata(array))
    if not is_missing.any():
        return None
    rows: NDArray[np.bool_] = is_missing.reshape(len(array), -1).any(axis=1)
    return rows


def convert_observations(columns: Any, where: str) -> Any:
    """Return observations as a C-contiguous array (n, ...); float32, float64 and integers keep their type.

    Several columns become one (n, d) array of their common type, and a sparse matrix a csr_array.
    """
    if is_scipy_sparse(columns):
        return as_sparse_rows(where, columns)
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
                f"{where} must be columns with one number per row, but have the shapes "
                f"{', '.join(map(str, sorted(shapes)))}.",
                "Name one column of vectors, or several of numbers.",
            )
        array = np.empty((columns[0].size, len(columns)), dtype=np.result_type(*columns))
        for j, column in enumerate(columns):
            array[:, j] = column
    kind = array.dtype
    if kind.kind == "b":
        kind = np.dtype(np.uint8)
    elif kind.kind == "f":  # float16 fits exactly into float32; features need at most float64
        kind = np.dtype(np.float32 if kind.itemsize <= 4 else np.float64)
    return np.ascontiguousarray(array, dtype=kind.newbyteorder("="))


def check_numbers(array: NDArray[Any], where: str, of: str = "of numbers") -> None:
    """Raise unless an array holds numbers or booleans."""
    if array.dtype.kind not in "biuf" or array.ndim == 0:
        raise DataError(
            f"{where} must be an array {of}, but has dtype {array.dtype} and shape {array.shape}.", "Convert it."
        )


def check_length(array: NDArray[Any], where: str, piece: Piece) -> None:
    """Raise unless an array has one entry per row of a piece."""
    if array.shape[0] != piece.n_rows:
        raise DataError(
            f"{where} must have one entry per row, but has {array.shape[0]} entries for {piece.n_rows} observations.",
            "Pass arrays of equal length.",
        )


def _show(names: Sequence[str]) -> str:
    return names[0] if names[0] == names[-1] else f"{names[0]} to {names[-1]}"
