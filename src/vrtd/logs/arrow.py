"""Arrow tables and streams: columns as NumPy arrays, without a copy where that is possible."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrtd.errors import DataError, InvalidInputError
from vrtd.logs.blocks import Block, Origin, Piece, make_block, readable, rows_per_block
from vrtd.logs.columns import Columns, Wanted, find_columns
from vrtd.logs.log import Log
from vrtd.logs.parts import Part, PartsLog
from vrtd.tables import library


def from_table(
    data: Any,
    *,
    observations: str | Sequence[str] | None = None,
    next_observations: str | Sequence[str] | None = None,
    reward: str | None = None,
    terminated: str | None = None,
    truncated: str | None = None,
    weight: str | None = None,
    episode: str | None = None,
) -> Log:
    """A log from anything that speaks the Arrow C stream: polars, pandas, DuckDB, pyarrow.

    Columns are names, patterns ('x_*') or lists of names; those that are not named are found by convention. A
    RecordBatchReader can be read once; everything else as often as wanted.
    """
    pyarrow = library()
    wanted = Wanted(observations, next_observations, reward, terminated, truncated, weight, episode)
    if not callable(getattr(data, "__arrow_c_stream__", None)):
        raise InvalidInputError(
            "data must have the Arrow C stream (__arrow_c_stream__)",
            type(data).__name__,
            "pass a table of polars, pandas >= 2.2, DuckDB or pyarrow; arrays go to from_arrays, files to read",
        )
    return PartsLog([_Table(data, wanted, pyarrow)], in_thread=False)


class _Table(Part):
    where = "the table"

    def __init__(self, data: Any, wanted: Wanted, pyarrow: Any) -> None:
        self._data, self._pyarrow, self._started = data, pyarrow, False
        self._once = isinstance(data, pyarrow.RecordBatchReader)
        with readable(self.where):
            schema = data.schema if self._once else pyarrow.RecordBatchReader.from_stream(data).schema
        self._columns = find_columns(schema.names, wanted, self.where)
        check_types(schema, self._columns, self.where)
        self._n_rows = data.num_rows if isinstance(data, pyarrow.Table | pyarrow.RecordBatch) else None

    @property
    def n_rows(self) -> int | None:
        return self._n_rows

    @property
    def remarks(self) -> tuple[str, ...]:
        return self._columns.remarks

    def blocks(self) -> Generator[Block, None, None]:
        if self._once and self._started:
            raise DataError(
                "a RecordBatchReader must be read only once", "a second reading", "pass a table, or write it to a file"
            )
        self._started = True
        with readable(self.where):
            reader = self._data if self._once else self._pyarrow.RecordBatchReader.from_stream(self._data)
        origin = Origin(self.where, self._columns.by_field)
        yield from batch_blocks(_parts_of(reader, self.where), self._columns, origin)


def _parts_of(batches: Iterable[Any], where: str) -> Generator[Any, None, None]:
    """The batches, large ones cut: views, so that what is made of them stays small."""
    iterator = iter(batches)
    while True:
        with readable(where):
            batch = next(iterator, None)
        if batch is None:
            return
        rows = rows_per_block(batch.nbytes / max(batch.num_rows, 1))
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


def batch_blocks(batches: Iterable[Any], columns: Columns, origin: Origin) -> Generator[Block, None, None]:
    """Record batches as blocks."""
    first = 0
    iterator = iter(batches)
    while True:
        with readable(origin.where):
            batch = next(iterator, None)
        if batch is None:
            return
        if batch.num_rows == 0:
            continue
        with readable(origin.where):
            arrays = {name: entries(batch.column(name), name, origin, first) for name in columns.all}
        yield make_block(arrays, columns, Piece(origin, first, batch.num_rows))
        first += batch.num_rows


def type_names(schema: Any, columns: Columns) -> dict[str, str]:
    """What must be the same in all parts of a log."""
    return {name: str(schema.field(name).type) for name in columns.all}


def check_types(schema: Any, columns: Columns, where: str) -> None:
    """Raise unless every column but the episode's holds numbers, or lists of them for observations."""
    types = library().types
    for field, names in columns.by_field.items():
        for name in names if field != "episode" else ():
            kind = schema.field(name).type
            if types.is_dictionary(kind):
                kind = kind.value_type
            while field.endswith("observations") and (_is_list(types, kind) or types.is_fixed_size_list(kind)):
                kind = kind.value_type
            if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
                raise DataError(f"{where}, column {name}, must hold numbers", f"type {kind}", "convert or name another")


def _is_list(types: Any, kind: Any) -> bool:
    return bool(types.is_list(kind) or types.is_large_list(kind))


def entries(array: Any, name: str, origin: Origin, first_row: int) -> NDArray[Any]:
    """(n,) or, of lists, (n, k)."""
    types, n = library().types, len(array)
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if array.null_count:
        _refuse_null(array, name, origin, first_row, 1)
    shape: list[int] = []
    per_row = 1
    while True:
        if types.is_fixed_size_list(array.type):
            width = array.type.list_size
        elif _is_list(types, array.type):
            lengths = array.value_lengths().to_numpy(zero_copy_only=False)
            width = int(lengths[0])
            odd = np.flatnonzero(lengths != width)
            if odd.size:
                row = first_row + int(odd[0]) // per_row
                raise DataError(
                    f"the lists of {origin.where}, column {name}, must have one length",
                    f"{lengths[odd[0]]} entries in row {row} and {width} before",
                    "pad them, or split the column",
                )
        else:
            break
        shape.append(width)
        per_row *= width
        array = array.flatten()
        if array.null_count:
            _refuse_null(array, name, origin, first_row, per_row)
    entries: NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return entries.reshape(n, *shape) if shape else entries


def _refuse_null(array: Any, name: str, origin: Origin, first_row: int, per_row: int) -> None:
    row = first_row + int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0]) // per_row
    raise DataError(
        f"{origin.where}, column {name}, must have a value in every row", f"null in row {row}", "fill or drop that row"
    )
