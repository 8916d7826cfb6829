"""Rows as a file holds them, before every one has its successor, and where each of them comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.errors import DataError, VrtdError
from vrtd.logs.columns import Columns

#: What is read at a time: enough rows to make the cost of a chunk small, few enough to stay near the processor.
CHUNK_ROWS, CHUNK_BYTES = 65_536, 4 * 2**20


class Origin(NamedTuple):
    """A file, a table or arrays, and the columns that a field was read from."""

    where: str  # empty for arrays that were passed in
    names: Mapping[str, Sequence[str]]  # field -> columns
    successors_at: int = 0  # how many rows further on a recorded successor lies

    def place(self, field: str, row: int, entry: tuple[int, ...] | None = None) -> str:
        """In words. `entry`: where in the row, when that is known."""
        row += self.successors_at if field == "next_observations" else 0
        names = self.names.get(field, (field,))
        if entry is not None and len(names) > 1:
            names, entry = [names[entry[0]]], None
        shown = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
        column = f"{self.where}, column {shown}" if self.where else f"array {shown}"
        inside = "" if not entry else f", entry {entry[0] if len(entry) == 1 else entry}"
        return f"{column}, row {row}{inside}"


class Piece(NamedTuple):
    """Consecutive rows of one origin; rows are counted from 0."""

    origin: Origin
    first_row: int
    n_rows: int


class Block(NamedTuple):
    """n consecutive rows; what was not recorded is None."""

    observations: NDArray[Any]
    reward: NDArray[np.float64]
    next_observations: NDArray[Any] | None
    terminated: NDArray[np.bool_] | None
    truncated: NDArray[np.bool_] | None
    weight: NDArray[np.float64] | None
    episode: NDArray[Any] | None
    pieces: tuple[Piece, ...]
    part: int = 0  # rows of different parts follow each other only where the episode says so


_ARRAYS = Block._fields[:7]
Fields = dict[str, NDArray[Any]]


def make_block(arrays: Mapping[str, NDArray[Any]], columns: Columns, piece: Piece) -> Block:
    """The block whose columns these arrays are, checked and converted. `arrays` goes from column to entries."""
    origin = piece.origin

    def called(field: str) -> str:
        names = origin.names[field]
        shown = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
        return f"{origin.where}, column {shown}," if origin.where else shown

    def vectors(field: str, name: str | tuple[str, ...]) -> NDArray[Any]:
        if isinstance(name, str):
            return observed(arrays[name], called(field))
        if len(name) == 1 and arrays[name[0]].ndim > 1:  # a list with the name of one column of vectors
            return observed(arrays[name[0]], called(field))
        return observed(side_by_side([arrays[part] for part in name], called(field)), called(field))

    def switch(field: str, name: str | None) -> NDArray[np.bool_] | None:
        if name is None:
            return None
        return flags(arrays[name], lambda row: origin.place(field, piece.first_row + row), called(field))

    observations = vectors("observations", columns.observations)
    successors = None
    if columns.next_observations is not None:
        successors = vectors("next_observations", columns.next_observations)
        if successors.shape[1:] != observations.shape[1:]:
            raise DataError(
                f"{called('next_observations')} must have the observations' shape, {observations.shape[1:]} a row",
                successors.shape[1:],
                "name or pass the matching ones",
            )
        if successors.dtype != observations.dtype:
            kind = np.result_type(successors, observations)
            observations, successors = observations.astype(kind, copy=False), successors.astype(kind, copy=False)
    truncated = switch("truncated", columns.truncated)
    terminated = switch("terminated", columns.terminated)
    if columns.done is not None:
        terminated = switch("done", columns.done)
        if truncated is not None and terminated is not None:
            terminated = terminated & ~truncated
    block = Block(
        observations,
        reals(arrays[columns.reward], called("reward")),
        successors,
        terminated,
        truncated,
        None if columns.weight is None else reals(arrays[columns.weight], called("weight")),
        None if columns.episode is None else labels(arrays[columns.episode], called("episode")),
        (piece,),
    )
    for field, array in zip(Block._fields[:7], block[:7], strict=True):
        if array is not None and len(array) != len(observations):
            raise DataError(
                f"{called(field)} must have one entry a row",
                f"{len(array)} entries for {len(observations)} observations",
                "pass arrays of one length",
            )
    return block


def join(blocks: Sequence[Block]) -> Block:
    """One after another, as a block of the last one's part."""
    if len(blocks) == 1:
        return blocks[0]
    arrays: dict[str, Any] = {
        name: None if getattr(blocks[0], name) is None else np.concatenate([getattr(block, name) for block in blocks])
        for name in _ARRAYS
    }
    return Block(**arrays, pieces=tuple(piece for block in blocks for piece in block.pieces), part=blocks[-1].part)


def rows_from(block: Block, start: int) -> Block:
    """The rows from `start` on."""
    pieces, skip = [], start
    for piece in block.pieces:
        left = max(0, piece.n_rows - skip)
        if left:
            pieces.append(piece._replace(first_row=piece.first_row + piece.n_rows - left, n_rows=left))
        skip -= piece.n_rows - left
    arrays: dict[str, Any] = {
        name: None if getattr(block, name) is None else getattr(block, name)[start:] for name in _ARRAYS
    }
    return Block(**arrays, pieces=tuple(pieces), part=block.part)


@contextmanager
def readable(where: str) -> Iterator[None]:
    """What a library makes of a damaged file, whatever it is, becomes one error that names the file."""
    try:
        yield
    except VrtdError:
        raise
    except FileNotFoundError:
        raise DataError(f"{where} must be there", "no such file", "check the path") from None
    except PermissionError as error:
        raise DataError(f"{where} must be readable", error, "change its permissions") from None
    except Exception as error:  # libraries raise nearly everything when a file is damaged
        what = " ".join(f"{type(error).__name__}: {error}".split())
        what = what if len(what) <= 300 else f"{what[:300]}..."
        raise DataError(
            f"{where} must be whole and hold what its name says",
            what,
            "the file is damaged, cut short or of another format: write or fetch it again",
        ) from error


def rows_per_block(row_bytes: float) -> int:
    return int(min(CHUNK_ROWS, max(64, CHUNK_BYTES // max(row_bytes, 1))))


def observed(array: NDArray[Any], where: str) -> NDArray[Any]:
    """Observations (n, ...): C-contiguous numbers, float32, float64 and integers as they are."""
    if array.dtype.kind not in "biuf" or array.ndim == 0:
        raise _not_numbers(where, array)
    kind = array.dtype
    if kind.kind == "b":
        kind = np.dtype(np.uint8)
    elif kind.kind == "f":  # a half is exact as a single; a long double has no features
        kind = np.dtype(np.float32 if kind.itemsize <= 4 else np.float64)
    return np.ascontiguousarray(array, dtype=kind.newbyteorder("="))


def reals(array: NDArray[Any], where: str) -> NDArray[np.float64]:
    """One real number a row."""
    if array.dtype.kind not in "biuf":
        raise _not_numbers(where, array)
    return np.ascontiguousarray(_one_a_row(array, where), dtype=np.float64)


def flags(array: NDArray[Any], place: Callable[[int], str], where: str) -> NDArray[np.bool_]:
    """One yes or no a row: bool, or numbers that are all 0 or 1."""
    if array.dtype.kind not in "biuf":
        raise _not_numbers(where, array, "of True and False, or 1 and 0")
    array = _one_a_row(array, where)
    if array.dtype.kind != "b":
        yes = array == 1
        bad = np.flatnonzero(~(yes | (array == 0)))
        if bad.size:
            value = array[bad[0]]
            raise DataError(
                "a flag must be 0 or 1", f"{value} at {place(int(bad[0]))}", "repair it or name another column"
            )
        array = yes
    return np.ascontiguousarray(array)


def labels(array: NDArray[Any], where: str) -> NDArray[Any]:
    """What tells one episode from the next; only compared."""
    return _one_a_row(array, where)


def side_by_side(columns: Sequence[NDArray[Any]], where: str) -> NDArray[Any]:
    """d columns of numbers as one (n, d) array, of a type that holds them all."""
    for column in columns:
        if column.dtype.kind not in "biuf":
            raise _not_numbers(where, column)
    shapes = {column.shape for column in columns}
    if len(shapes) > 1 or columns[0].ndim != 1:
        raise DataError(
            f"{where} must be columns with one number a row",
            f"shapes {', '.join(map(str, sorted(shapes)))}",
            "name one column of vectors, or several of numbers",
        )
    rows = np.empty((columns[0].size, len(columns)), dtype=np.result_type(*columns))
    for j, column in enumerate(columns):
        rows[:, j] = column
    return rows


def _one_a_row(array: NDArray[Any], where: str) -> NDArray[Any]:
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise DataError(f"{where} must have one entry a row", f"shape {array.shape}", "name or pass a single column")
    return array


def _not_numbers(where: str, array: NDArray[Any], of: str = "of numbers") -> DataError:
    return DataError(f"{where} must be an array {of}", f"dtype {array.dtype}, shape {array.shape}", "convert it first")


def locate(
    pieces: tuple[Piece, ...],
    start: int,
    kept: NDArray[np.intp] | None,
    successors_follow: bool,
    fields: Fields,
    field: str,
    row: int,
) -> str:
    """Where row `row` of `field` of a chunk comes from. The chunk holds the rows `start + kept` of the pieces; where
    successors follow, a next observation is the observation of one row further on."""
    values = fields.get(field)
    entry = None
    if values is not None and values.dtype.kind == "f" and values.ndim > 1:
        bad = np.argwhere(~np.isfinite(values[row]))
        entry = tuple(int(i) for i in bad[0]) if bad.size else None
    at = start + (row if kept is None else int(kept[row]))
    if field == "next_observations" and successors_follow:
        at, field = at + 1, "observations"
    for piece in pieces:
        if at < piece.n_rows:
            return piece.origin.place(field, piece.first_row + at, entry)
        at -= piece.n_rows
    raise IndexError(f"row {row} of a chunk with fewer rows")
