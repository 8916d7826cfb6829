"""Categories and missing values: how the columns of a table become the numbers of an observation.

Which levels and means that takes, the first rows of a log tell: see `vrtd.logs.pilot`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrtd.errors import DataError
from vrtd.features.spaces import ObservationSpace
from vrtd.logs.actions import ActionCoding, convert_actions
from vrtd.logs.arrow_values import ColumnType, to_masked, to_text
from vrtd.logs.blocks import Gap, Piece, convert_observations, find_missing
from vrtd.logs.columns import KEYS, VECTORS, Missing
from vrtd.tables import library

#: The rows that show which levels a category has, which columns have missing values, and the means of columns.
PILOT_ROWS = 5000

#: Rows of columns by name: numbers as NumPy arrays, masked where a value is null; categories as text of Arrow.
Values = Mapping[str, Any]


class Encoder:
    """The numbers that columns become in one reading of a log, and how many values were not in the pilot rows."""

    def __init__(
        self,
        space: ObservationSpace | None = None,
        missing: Missing = "error",
        actions: ActionCoding = ActionCoding(),  # noqa: B008 - it cannot be changed
    ) -> None:
        self.missing, self._actions = missing, actions
        self.unseen: Counter[str] = Counter()  # rows with a value that is no level, by column
        self.lacking: Counter[str] = Counter()  # missing values that were filled in or make rows unusable, by column
        self._columns = () if space is None else space.columns
        self._widths = [len(column.numbers) for column in self._columns]
        self._is_plain = not any(column.levels is not None or column.fill is not None for column in self._columns)

    @property
    def row_bytes(self) -> int | None:
        """How many bytes an observation has; None where columns are taken as they are."""
        return None if self._is_plain else 8 * sum(self._widths)

    def name_numbers(self, names: Mapping[str, Sequence[str]]) -> Mapping[str, Sequence[str]]:
        """Return names of columns by field, with one for each number of an observation instead of one a column."""
        if self._is_plain:
            return names
        return {**names, **{field: self._repeat(names[field]) for field in VECTORS if field in names}}

    def _repeat(self, names: Sequence[str]) -> list[str]:
        if len(names) < len(self._columns):  # one column of vectors
            names = [column.name for column in self._columns]
        return [name for name, width in zip(names, self._widths, strict=True) for _ in range(width)]

    def encode(self, columns: Any, field: str, piece: Piece, gaps: list[Gap]) -> NDArray[Any]:
        """Return observations (n, ...) made of a column or a list of them; missing entries are put down in `gaps`."""
        where, listed = piece.column(field), columns if isinstance(columns, list) else [columns]
        if len(listed) == 1 and self._columns:
            listed = [widen(listed[0], len(self._columns))]
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
            must = f"{where} must have {len(self._columns)} entries a row, as the first rows have"
            raise DataError(must, len(listed), "keep observations of different shapes apart")
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
        """Set one number of each row to 1; return the rows with a missing value if that is no level like others."""
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

    def _encode_number(
        self, fill: float | None, values: NDArray[Any], into: NDArray[Any], where: str, name: str
    ) -> NDArray[np.bool_] | None:
        """Set the first number of each row, or both; return the rows with a missing value if they are not filled."""
        if values.ndim != 1:
            must = f"{where} must be columns with one number a row"
            raise DataError(must, f"shape {values.shape}", "name one column of vectors, or several of numbers")
        into[:, 0] = convert_observations(_fill(values), where)
        rows = find_missing(values, self.missing != "error")
        if rows is None or fill is None:
            return rows
        into[rows] = fill, 1.0
        self.lacking[name] += int(rows.sum())
        return None

    def encode_action(self, columns: Any, piece: Piece, gaps: list[Gap]) -> NDArray[Any]:
        """Return actions (n,) or (n, k) made of a column or a list of them; missing entries are put down in `gaps`."""
        if self._actions.width is not None:
            columns = widen(columns, self._actions.width)
        return convert_actions(columns, self._actions, piece, gaps, self.missing != "error")

    def check(self, gaps: Sequence[Gap], piece: Piece) -> None:
        """Raise for the first row with a missing value that can be neither filled nor dropped."""
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
        """Return the error for a missing value that can be neither filled nor dropped."""
        must, do = "every column that is used must have a value in every row", "fill it in, or choose missing='drop'"
        if field in KEYS:
            must, do = f"{field} must have a value in every row", "fill or drop that row"
        elif field in VECTORS and self.missing == "error":
            do += " or missing='indicator'"
        elif field in VECTORS and not self._columns:
            must = "only numbers and vectors can be filled in with missing='indicator'"
        elif field in VECTORS:
            must = f"a column of numbers that lacks some must lack one in the first {PILOT_ROWS:,} rows to be filled in"
        elif self.missing == "indicator":
            must = "only observations may be missing with missing='indicator'"
        return DataError(must, f"no value at {place}", do)


def find_first_gap(gaps: Sequence[Gap], piece: Piece) -> tuple[Gap, str] | None:
    """Return the gap with the first row that lacks a value, and where that is."""
    rows = [(int(np.argmax(gap.rows)), gap) for gap in gaps if gap.rows.any()]
    if not rows:
        return None
    row, gap = min(rows, key=lambda place: place[0])
    return gap, piece.place(gap.field, row, (gap.entry,) if len(piece.names[gap.field]) > 1 else None)


def widen(vectors: Any, width: int) -> Any:
    """Return vectors of length `width` if all of them are missing, because then none shows its length."""
    if not isinstance(vectors, np.ma.MaskedArray) or vectors.ndim != 2 or not np.ma.getmaskarray(vectors).all():
        return vectors
    return np.ma.MaskedArray(np.zeros((len(vectors), width), vectors.dtype), True)


def _fill(column: NDArray[Any]) -> NDArray[Any]:
    return column.filled(0) if isinstance(column, np.ma.MaskedArray) else column


def to_values(array: Any, name: str, piece: Piece, kind: ColumnType) -> Any:
    """Return a column of Arrow as text if it is a category, else as numbers."""
    return to_text(array) if kind.is_category else to_masked(array, name, piece)
