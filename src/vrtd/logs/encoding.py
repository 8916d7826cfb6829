"""Encoding of columns with categories and missing values as the numbers of an observation.

The levels and means come from the first rows of a log; see `vrtd.logs.pilot`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import Floats
from vrtd.errors import DataError
from vrtd.features.spaces import ObservationSpace
from vrtd.logs.actions import ActionCoding, convert_actions
from vrtd.logs.arrow_values import ColumnType, to_masked, to_text
from vrtd.logs.blocks import Gap, Piece, convert_observations, find_missing
from vrtd.logs.columns import KEYS, VECTORS, Missing
from vrtd.sparse import is_scipy_sparse
from vrtd.tables import library

#: Number of first rows that decide the levels of categories, the columns with missing values and the means.
PILOT_ROWS = 5000
HASH_OF_MISSING = -1.0  # no text has it

#: Rows of columns by name: numbers as NumPy arrays, masked where a value is null; categories as Arrow text.
Values = Mapping[str, Any]


def hash_column(values: Any) -> Floats:
    """Return the hash of each text of an Arrow column."""
    from vrtd.kernels.hashing import hash_text  # imported here because other logs need no compiled code

    pyarrow = library()
    text = values.cast(pyarrow.large_string())
    text = text.combine_chunks() if isinstance(text, pyarrow.ChunkedArray) else text
    _, offsets, content = text.buffers()
    places = np.frombuffer(offsets, np.int64)[text.offset : text.offset + len(text) + 1]
    hashes = np.empty(len(text))
    hash_text(np.frombuffer(content or b"", np.uint8), places, hashes)
    return hashes


class Encoder:
    """Encoder of the columns in one reading of a log, which also counts unseen and missing values."""

    def __init__(
        self,
        space: ObservationSpace | None = None,
        missing: Missing = "error",
        actions: ActionCoding = ActionCoding(),  # noqa: B008 - immutable
    ) -> None:
        self.missing, self._actions = missing, actions
        self.unseen: Counter[str] = Counter()  # rows with a value that is not a level, by column
        self.lacking: Counter[str] = Counter()  # missing values that are filled in or make rows unusable, by column
        self._columns = () if space is None else space.columns
        self._widths = [len(column.numbers) for column in self._columns]
        self._is_plain = not any(column.levels is not None or column.fill is not None for column in self._columns)

    @property
    def row_bytes(self) -> int | None:
        """Bytes of an observation, or None if columns are not encoded."""
        return None if self._is_plain else 8 * sum(self._widths)

    def name_numbers(self, names: Mapping[str, Sequence[str]]) -> Mapping[str, Sequence[str]]:
        """Return the names of columns by field, repeated for each number of an observation."""
        if self._is_plain:
            return names
        return {**names, **{field: self._repeat(names[field]) for field in VECTORS if field in names}}

    def _repeat(self, names: Sequence[str]) -> list[str]:
        if len(names) < len(self._columns):  # one column of vectors
            names = [column.name for column in self._columns]
        return [name for name, width in zip(names, self._widths, strict=True) for _ in range(width)]

    def encode(self, columns: Any, field: str, piece: Piece, gaps: list[Gap]) -> Any:
        """Return observations (n, ...) from a column or a list of columns, and add missing entries to `gaps`."""
        where, listed = piece.column(field), columns if isinstance(columns, list) else [columns]
        if len(listed) == 1 and self._columns:
            listed = [widen(listed[0], len(self._columns))]
        if self._is_plain and is_scipy_sparse(columns):
            return convert_observations(columns, where)
        if self._is_plain:
            for j, column in enumerate(listed):
                rows = find_missing(column, self.missing != "error")
                if rows is not None:
                    gaps.append(Gap(field, j, rows))
            bare = [_fill(column) for column in listed]
            return convert_observations(bare if isinstance(columns, list) else bare[0], where)
        if len(listed) == 1 and isinstance(listed[0], np.ndarray) and listed[0].ndim == 2:
            listed = list(listed[0].T)
        if len(listed) != len(self._columns):
            raise DataError(
                f"{where} must have {len(self._columns)} entries per row, like the first rows, but has {len(listed)}.",
                "Read observations of different shapes separately.",
            )
        observations = np.zeros((len(listed[0]), sum(self._widths)))
        at = 0
        for j, (column, values, width) in enumerate(zip(self._columns, listed, self._widths, strict=True)):
            into = observations[:, at : at + width]
            name = piece.name(field, j)
            if column.levels is not None:
                rows = self._encode_category(column.levels, values, into, name)
            else:
                rows = self._encode_number(column.fill, values, into, where, name)
            if rows is not None:
                gaps.append(Gap(field, j, rows))
            at += width
        return observations

    def _encode_category(
        self, levels: Sequence[str], values: Any, into: NDArray[Any], name: str
    ) -> NDArray[np.bool_] | None:
        """Set one number of each row to 1, and return the rows with a missing value unless it counts as 'other'."""
        if not levels:
            return self._hash_category(values, into, name)
        from pyarrow import compute

        found = compute.index_in(values, value_set=library().array(levels, library().string()))
        n_unseen = found.null_count - values.null_count
        if n_unseen:
            self.unseen[name] += n_unseen
        into[np.arange(len(values)), found.fill_null(len(levels)).to_numpy()] = 1.0
        if not values.null_count:
            return None
        if self.missing == "indicator":
            self.lacking[name] += values.null_count
            return None
        is_null: NDArray[np.bool_] = values.is_null().to_numpy(zero_copy_only=False)
        return is_null

    def _hash_category(self, values: Any, into: NDArray[Any], name: str) -> NDArray[np.bool_] | None:
        """Set the number of each row to a hash of its text, and return the rows with a missing value as above."""
        into[:, 0] = hash_column(values)
        if not values.null_count:
            return None
        is_null: NDArray[np.bool_] = values.is_null().to_numpy(zero_copy_only=False)
        into[is_null, 0] = HASH_OF_MISSING
        if self.missing != "indicator":
            return is_null
        self.lacking[name] += values.null_count
        return None

    def _encode_number(
        self, fill: float | None, values: NDArray[Any], into: NDArray[Any], where: str, name: str
    ) -> NDArray[np.bool_] | None:
        """Set the number of each row and its indicator, and return the rows whose missing value is not filled in."""
        if values.ndim != 1:
            raise DataError(
                f"{where} must be columns with one number per row, but one of them has shape {values.shape}.",
                "Name one column of vectors, or several of numbers.",
            )
        into[:, 0] = convert_observations(_fill(values), where)
        rows = find_missing(values, self.missing != "error")
        if rows is None or fill is None:
            return rows
        into[rows] = fill, 1.0
        self.lacking[name] += int(rows.sum())
        return None

    def encode_action(self, columns: Any, piece: Piece, gaps: list[Gap]) -> NDArray[Any]:
        """Return actions (n,) or (n, k) from a column or a list of columns, and add missing entries to `gaps`."""
        if self._actions.width is not None:
            columns = widen(columns, self._actions.width)
        return convert_actions(columns, self._actions, piece, gaps, self.missing != "error")

    def check(self, gaps: Sequence[Gap], piece: Piece) -> None:
        """Raise for the first row with a missing value that can be neither filled in nor dropped."""
        if self.missing == "drop":
            for gap in gaps:
                self.lacking[piece.name(gap.field, gap.entry)] += int(gap.rows.sum())
            gaps = [gap for gap in gaps if gap.field in KEYS]
        first = find_first_gap(gaps, piece)
        if first is None:
            return
        gap, place = first
        raise self.refuse(gap.field, place)

    def refuse(self, field: str, place: str) -> DataError:
        """Return the error for a missing value that can be neither filled in nor dropped."""
        problem, remedy = f"A value is missing in {place}.", "Fill in the value, or pass missing='drop'."
        if field in KEYS:
            problem = f"{field} must have a value in every row, but a value is missing in {place}."
            remedy = "Fill in the value, or drop the row."
        elif field in VECTORS and self.missing == "error":
            remedy = "Fill in the value, or pass missing='drop' or missing='indicator'."
        elif field in VECTORS and not self._columns:
            problem = f"A value is missing in {place}, and missing='indicator' can fill in only numbers and vectors."
        elif field in VECTORS:
            problem = (
                f"A value is missing in {place}, and missing='indicator' can fill in a column only if one of its "
                f"first {PILOT_ROWS:,} values is missing."
            )
        elif self.missing == "indicator":
            problem = f"A value is missing in {place}, and missing='indicator' can fill in only observations."
        return DataError(problem, remedy)


def find_first_gap(gaps: Sequence[Gap], piece: Piece) -> tuple[Gap, str] | None:
    """Return the gap with the first missing value, and the place of that value."""
    rows = [(int(np.argmax(gap.rows)), gap) for gap in gaps if gap.rows.any()]
    if not rows:
        return None
    row, gap = min(rows, key=lambda place: place[0])
    return gap, piece.place(gap.field, row, (gap.entry,) if len(piece.names[gap.field]) > 1 else None)


def widen(vectors: Any, width: int) -> Any:
    """Return missing vectors of length `width` if all vectors are missing, so that none shows its length."""
    if not isinstance(vectors, np.ma.MaskedArray) or vectors.ndim != 2 or not np.ma.getmaskarray(vectors).all():
        return vectors
    return np.ma.MaskedArray(np.zeros((len(vectors), width), vectors.dtype), True)


def _fill(column: NDArray[Any]) -> NDArray[Any]:
    return column.filled(0) if isinstance(column, np.ma.MaskedArray) else column


def to_values(array: Any, name: str, piece: Piece, kind: ColumnType) -> Any:
    """Return an Arrow column as text if it is a category, and as numbers otherwise."""
    return to_text(array) if kind.is_category else to_masked(array, name, piece)
