"""Categories and missing values: how the columns of a table become the numbers of an observation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vrtd.errors import DataError
from vrtd.features.spaces import Column, ObservationSpace
from vrtd.logs.arrow_values import ColumnType, to_masked, to_text
from vrtd.logs.blocks import Gap, Piece, convert_observations, find_missing
from vrtd.logs.columns import KEYS, VECTORS, Missing
from vrtd.tables import library

if TYPE_CHECKING:
    from vrtd.logs.parts import Part

#: The rows that show which levels a category has, which columns have missing values, and the means of columns.
PILOT_ROWS = 5000
MOST_LEVELS = 1000

#: Rows of columns by name: numbers as NumPy arrays, masked where a value is null; categories as text of Arrow.
Values = Mapping[str, Any]


class Encoder:
    """The numbers that columns become in one reading of a log, and how many values were not in the pilot rows."""

    def __init__(self, space: ObservationSpace | None = None, missing: Missing = "error") -> None:
        self.missing = missing
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


def _fill(column: NDArray[Any]) -> NDArray[Any]:
    return column.filled(0) if isinstance(column, np.ma.MaskedArray) else column


def choose_space(parts: Sequence[Part], known: ObservationSpace | None = None) -> ObservationSpace | None:
    """Return what the observations of the parts are: the names of their columns, and levels and means of the pilot.

    None where nothing but all rows tells. `known` is the space of an earlier log, which is returned if the columns are
    the same. Observations of files that hold their space are numbers already, which cannot become others.
    """
    stored = find_stored(parts)
    space = _find_space(parts) if stored is None else stored
    if known is None or not known.columns or space is None or not space.columns:
        return space
    ours, theirs = ([(column.name, column.levels is None) for column in each.columns] for each in (space, known))
    if ours != theirs or (stored is not None and stored.columns != known.columns):
        raise DataError(
            "observations must be the columns that were fitted before, categories as categories",
            f"{', '.join(name for name, _ in ours)} after {', '.join(name for name, _ in theirs)}",
            "name the same columns in the same order",
        )
    return known


def find_stored(parts: Sequence[Part]) -> ObservationSpace | None:
    """Return the space that all parts hold; None where one of them holds none."""
    spaces = [part.space for part in parts]
    if None in spaces:
        return None
    for part in parts[1:]:
        if part.space != spaces[0]:
            must = "all parts of a log must hold observations of one space"
            what = f"different ones in {parts[0].where} and {part.where}"
            raise DataError(must, what, "read them apart")
    return spaces[0]


def _find_space(parts: Sequence[Part]) -> ObservationSpace | None:
    first = parts[0]
    if not first.kinds:
        return None
    fields, types = first.columns.by_field, first.kinds
    names, next_names = fields["observations"], fields.get("next_observations", ())
    kinds = [types[name] for name in names]
    _check_roles(first)
    fills = first.missing == "indicator"
    pilot: list[Values] = []
    if fills or any(kind.is_category or kind.row_shape is None for kind in kinds):
        pilot = list(_read_pilot(parts))
        if not pilot:
            return None
    if len(names) == 1 and not kinds[0].is_category:
        return _choose_one(parts, names[0], pilot, fills)
    columns = []
    for j, name in enumerate(names):
        if types[name].is_category:
            both = (name, *next_names[j : j + 1])
            levels = _find_levels([rows[one] for rows in pilot for one in both], first.where, name)
            columns.append(Column(name, levels))
        else:
            columns.append(Column(name, fill=_find_fill([rows[name] for rows in pilot]) if fills else None))
    return ObservationSpace("columns", tuple(columns))


def _check_roles(part: Part) -> None:
    """Raise unless categories are observations only, and those of rows and of their successors are alike."""
    fields, types = part.columns.by_field, part.kinds
    for name, successor in zip(fields["observations"], fields.get("next_observations", ()), strict=False):
        if types[name].is_category != types[successor].is_category:
            must = f"{part.where}, column {successor}, must be like column {name}"
            raise DataError(must, f"{types[successor].words} after {types[name].words}", "convert one of them")
    for field, names in fields.items():
        for name in names if field not in VECTORS else ():
            if name in types and types[name].is_category:
                must = f"{part.where}, column {name}, must have one role"
                raise DataError(must, f"observations and {field}", "leave it out of the observations, or copy it")


def _choose_one(parts: Sequence[Part], name: str, pilot: Sequence[Values], fills: bool) -> ObservationSpace:
    """Choose the space of one column, of numbers or of vectors."""
    kind, rows = parts[0].kinds[name], [values[name] for values in pilot]
    shape = kind.row_shape if not rows else rows[0].shape[1:]
    if shape == ():
        fill = _find_fill(rows) if fills else None
        if not all(part.kinds[name].is_integer for part in parts):
            return ObservationSpace("columns", (Column(name, fill=fill),))
        if fill is not None:
            raise DataError(
                f"{parts[0].where}, column {name}, must have a state in every row, because states have no mean",
                "missing values",
                "choose missing='drop', or convert the column to a category or to floats",
            )
        return ObservationSpace("states", (Column(name),))
    if shape is None or len(shape) > 1:
        return ObservationSpace("box")
    fills_of = [_find_fill([array[:, j] for array in rows]) if fills else None for j in range(shape[0])]
    return ObservationSpace("columns", tuple(Column(f"{name}_{j}", fill=fill) for j, fill in enumerate(fills_of)))


def _read_pilot(parts: Sequence[Part]) -> Iterator[Values]:
    """Yield the first rows of a log, over its parts, cut to the same number for every way of splitting it."""
    n_left = PILOT_ROWS
    for part in parts:
        for values in part.peek(n_left):
            n_rows = len(next(iter(values.values())))
            yield {name: column[:n_left] for name, column in values.items()}
            n_left -= min(n_rows, n_left)
        if not n_left:
            return


def _find_levels(arrays: Sequence[Any], where: str, name: str) -> tuple[str, ...]:
    """Return the values of a category, sorted: numbers before text."""
    from pyarrow import compute

    unique = compute.unique(library().chunked_array(arrays, library().string())).drop_null().to_pylist()
    if len(unique) > MOST_LEVELS:
        n_rows = sum(map(len, arrays))
        raise DataError(
            f"{where}, column {name}, must have at most {MOST_LEVELS:,} different values to be a category",
            f"{len(unique):,} in the first {n_rows:,} rows",
            "it looks like an identifier: leave it out of the observations, or name it as the episode",
        )
    return tuple(sorted(sorted(unique), key=_as_number))


def _as_number(level: str) -> tuple[float, str]:
    try:
        number = float(level)
    except ValueError:
        return inf, level
    return (number, "") if isfinite(number) else (inf, level)


def _find_fill(arrays: Sequence[NDArray[Any]]) -> float | None:
    """Return the mean of a column, or None if no value is missing."""
    values = np.concatenate([np.ma.filled(array.astype(np.float64), np.nan) for array in arrays])
    if not np.isnan(values).any():
        return None
    there = values[np.isfinite(values)]
    return float(there.mean()) if there.size else 0.0


def to_values(array: Any, name: str, piece: Piece, kind: ColumnType) -> Any:
    """Return a column of Arrow as text if it is a category, else as numbers."""
    return to_text(array) if kind.is_category else to_masked(array, name, piece)
