"""Tables, Parquet and CSV files: columns of Arrow as NumPy arrays, without a copy where that is possible."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from math import prod
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from vrtd.errors import DataError
from vrtd.files import translate_errors
from vrtd.logs.blocks import Block, Piece, make_block, rows_per_block
from vrtd.logs.columns import Columns, Missing, find_columns
from vrtd.logs.parts import Part, read_ahead
from vrtd.tables import library

_YES, _NO = ("1", "1.0", "true", "t", "yes", "y"), ("0", "0.0", "false", "f", "no", "n")  # in small or large letters
_KEYS = ("episode", "order_by")
_FLAGS = ("terminated", "done", "truncated")


@runtime_checkable
class ArrowStream(Protocol):
    """A table that speaks the Arrow C stream: of polars, pandas, DuckDB or pyarrow."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


class TablePart(Part):
    """A table in memory, or a RecordBatchReader, which can be read once."""

    where = "the table"

    def __init__(self, table: Any, wanted: Columns, missing: Missing) -> None:
        pyarrow = library()
        self._table, self._missing, self._started = table, missing, False
        self._once = isinstance(table, pyarrow.RecordBatchReader)
        with translate_errors(self.where):
            schema = self._open().schema
        self.columns = find_columns(schema.names, wanted, self.where)
        self.kinds = _check_types(schema, self.columns, self.where)
        self.n_rows = table.num_rows if isinstance(table, pyarrow.Table | pyarrow.RecordBatch) else None

    def blocks(self) -> Generator[Block, None, None]:
        if self._once and self._started:
            raise DataError(
                "a RecordBatchReader must be read only once", "a second reading", "pass a table, or write it to a file"
            )
        self._started = True
        with translate_errors(self.where):
            yield from _make_blocks(self._batches(), self)

    def _open(self) -> Any:
        return self._table if self._once else library().RecordBatchReader.from_stream(self._table)

    def _batches(self) -> Generator[Any, None, None]:
        """Yield the batches, large ones cut: views, so that what is made of them stays small."""
        for batch in self._open():
            rows = rows_per_block(batch.nbytes / max(batch.num_rows, 1))
            for start in range(0, batch.num_rows, rows):
                yield batch.slice(start, rows)


class ParquetPart(Part):
    """A Parquet file, batch by batch, with the checksums of its pages verified."""

    def __init__(self, path: Path, wanted: Columns, missing: Missing) -> None:
        library()
        self.where, self._path, self._missing = str(path), path, missing
        with translate_errors(self.where), closing(self._open()) as file:
            metadata, schema = file.metadata, file.schema_arrow
            self.n_rows = int(metadata.num_rows)
            _check_names(metadata, schema.names, self.where)
            self.columns = find_columns(schema.names, wanted, self.where)
            self.kinds = _check_types(schema, self.columns, self.where)
            self._batch = rows_per_block(_row_bytes(schema, self.columns, metadata))
            self.unverified = None if _has_checksums(path) or not self.n_rows else "has no page checksums"

    def blocks(self) -> Generator[Block, None, None]:
        with translate_errors(self.where), closing(self._open()) as file:
            # Only decoding is done ahead: it uses every core, and putting rows together beside it would take one.
            batches = read_ahead(file.iter_batches(self._batch, columns=self.columns.all))
            with closing(batches):
                yield from _make_blocks(batches, self)

    def _open(self) -> Any:
        from pyarrow.parquet import ParquetFile

        # Reading ahead inside Arrow, and buffers of whole column chunks, would hold a row group of any size in memory.
        return ParquetFile(self._path, pre_buffer=False, buffer_size=2**18, page_checksum_verification=True)


class CsvPart(Part):
    """A CSV file. Text has no types: every number is a float64, so that no row can change the type."""

    n_rows = None
    unverified = "is text, without checksums"

    def __init__(self, path: Path, wanted: Columns, missing: Missing) -> None:
        library()
        self.where, self._path, self._missing = str(path), path, missing
        with translate_errors(self.where), self._open({}) as reader:
            self.columns = find_columns(reader.schema.names, wanted, self.where)
            self._types = self._choose_types(reader.schema)
        self.kinds = dict.fromkeys(self.columns.all, "column")

    def blocks(self) -> Generator[Block, None, None]:
        with translate_errors(self.where), self._open(self._types) as reader:
            yield from _make_blocks(self._with_flags(reader), self)

    def _choose_types(self, schema: Any) -> dict[str, Any]:
        """Return the type of each column. Rows are sorted by numbers or times where the beginning of the file holds
        them, by text elsewhere."""
        pyarrow, by_field = library(), self.columns.by_field
        types = {name: schema.field(name).type for name in by_field.get("order_by", ())}
        for name, kind in types.items():
            if pyarrow.types.is_timestamp(kind):
                types[name] = pyarrow.timestamp("ns", kind.tz)  # later ones may have fractions of a second
            elif pyarrow.types.is_null(kind):
                types[name] = pyarrow.string()
        types |= dict.fromkeys(by_field.get("episode", ()), pyarrow.string())
        fields = [field for field in by_field if field not in _KEYS]
        types |= {name: pyarrow.float64() for field in fields for name in by_field[field]}
        return types | {name: pyarrow.string() for field in _FLAGS for name in by_field.get(field, ())}

    def _with_flags(self, batches: Iterable[Any]) -> Generator[Any, None, None]:
        """Yield the batches with the words of flags as booleans."""
        from pyarrow import compute

        words = library().array([*_YES, *_NO])
        by_field, first = self.columns.by_field, 0
        for batch in batches:
            for name in {name for field in _FLAGS for name in by_field.get(field, ())}:
                texts = batch.column(name)
                index = compute.index_in(compute.utf8_lower(compute.utf8_trim_whitespace(texts)), words)
                if index.null_count > texts.null_count:
                    row = compute.index(compute.and_(index.is_null(), texts.is_valid()), True).as_py()
                    raise DataError(
                        f"{self.where}, column {name}, must hold flags: {', '.join(_YES)} or {', '.join(_NO)}",
                        f"{texts[row].as_py()!r} in line {first + row + 2}",
                        "convert the column, or name another",
                    )
                flags = compute.less(index, len(_YES))
                batch = batch.set_column(batch.schema.get_field_index(name), name, flags)
            yield batch
            first += batch.num_rows

    @contextmanager
    def _open(self, types: Mapping[str, Any]) -> Iterator[Any]:
        """Open the file with columns of these types; errors say which line it is, where pyarrow does."""
        from pyarrow import csv

        convert = csv.ConvertOptions(
            column_types=types,
            include_columns=list(types),  # none: all
            null_values=[""],  # nan is a number here, and found where numbers are checked
            strings_can_be_null=True,
        )
        # Rows are numbered in messages only when one thread reads.
        options = csv.ReadOptions(use_threads=False, block_size=2**22)
        try:
            with closing(csv.open_csv(self._path, options, convert_options=convert)) as reader:
                yield reader
        except library().ArrowInvalid as error:
            line = re.search(r"Row #(\d+)", str(error))
            if line is None:
                raise
            raise DataError(
                f"line {line[1]} of {self.where} must hold a number in each of its fields, as many as the header has",
                str(error).split(f"{line[0]}: ")[-1],
                "repair that line",
            ) from None


def _make_blocks(batches: Iterable[Any], part: Part) -> Generator[Block, None, None]:
    first, names = 0, part.columns.by_field
    for batch in batches:
        if batch.num_rows:
            piece = Piece(part.where, names, first, batch.num_rows)
            arrays = {name: to_numpy(batch.column(name), name, piece) for name in part.columns.all}
            yield make_block(part.columns.select(arrays), piece)
            first += batch.num_rows


def _check_types(schema: Any, columns: Columns, where: str) -> dict[str, str]:
    """Raise unless every column holds numbers, lists of them for observations; episodes and order may be text or times.

    Return the types in words.
    """
    types = library().types
    for field, names in columns.by_field.items():
        for name in names:
            kind = schema.field(name).type
            if types.is_dictionary(kind):
                kind = kind.value_type
            if field in _KEYS:
                if types.is_nested(kind) or types.is_null(kind):
                    must = f"{where}, column {name}, must hold numbers, text or times"
                    raise DataError(must, f"type {kind}", "name another")
                continue
            while field.endswith("observations") and _is_list(kind):
                kind = kind.value_type
            if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
                raise DataError(f"{where}, column {name}, must hold numbers", f"type {kind}", "convert or name another")
    return {name: str(schema.field(name).type) for name in columns.all}


def _is_list(kind: Any) -> bool:
    types = library().types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def to_numpy(array: Any, name: str, piece: Piece) -> NDArray[Any]:
    """Return the entries of a column: (n,) or, of lists, (n, k)."""
    shape = [len(array)]
    if library().types.is_dictionary(array.type):
        array = array.dictionary_decode()
    while True:
        per_row = prod(shape[1:])
        if array.null_count:
            is_null = array.is_null().to_numpy(zero_copy_only=False)
            got = f"null in row {piece.first_row + int(np.argmax(is_null)) // per_row}"
            must = f"{piece.where}, column {name}, must have a value in every row"
            raise DataError(must, got, "fill or drop that row")
        if not _is_list(array.type):
            if library().types.is_decimal(array.type):
                array = array.cast("float64")
            entries: NDArray[Any] = array.to_numpy(zero_copy_only=False)
            return entries.reshape(shape)
        from pyarrow.compute import list_value_length

        lengths = list_value_length(array).to_numpy(zero_copy_only=False)
        odd = np.flatnonzero(lengths != lengths[0])
        if odd.size:
            raise DataError(
                f"the lists of {piece.where}, column {name}, must have one length",
                f"{lengths[odd[0]]} entries in row {piece.first_row + odd[0] // per_row} and {lengths[0]} before",
                "pad them, or split the column",
            )
        shape.append(int(lengths[0]))
        array = array.flatten()


def _check_names(metadata: Any, names: list[str], where: str) -> None:
    """Names have no checksum, and a column that may be missing must not be lost to damage; Arrow keeps them twice."""
    from pyarrow import ipc, py_buffer

    kept = (metadata.metadata or {}).get(b"ARROW:schema")
    if kept is not None and ipc.read_schema(py_buffer(b64decode(kept))).names != names:
        raise DataError(f"the two lists of columns in {where} must agree", names, "the file is damaged: write it again")


def _row_bytes(schema: Any, columns: Columns, metadata: Any) -> float:
    """Of the columns that are read; with lists, of all. Damaged details of column chunks abort pyarrow, so those are
    left alone."""
    types, total = library().types, 0.0
    for name in columns.all:
        kind, width = schema.field(name).type, 1
        while types.is_fixed_size_list(kind):
            kind, width = kind.value_type, width * kind.list_size
        if not types.is_primitive(kind):
            return float(metadata.row_group(0).total_byte_size / max(metadata.row_group(0).num_rows, 1))
        total += width * kind.bit_width / 8
    return total


def _has_checksums(path: Path) -> bool:
    """Return whether the first page has a checksum: pyarrow verifies those that are there and is silent otherwise.

    After four letters a file begins with a page, and that with its header in Thrift's compact protocol: type, two
    sizes, checksum if any, each a variable-length integer after the byte 0x15.
    """
    with path.open("rb") as file:
        return re.match(rb"(?s).{4}(\x15[\x80-\xff]*[\x00-\x7f]){3}\x15", file.read(64)) is not None
