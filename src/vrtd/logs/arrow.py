"""Parts of a log that are read with Arrow: tables, Parquet files and CSV files."""

from __future__ import annotations

import re
import sys
from base64 import b64decode
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import closing, contextmanager
from copy import copy
from itertools import chain
from pathlib import Path
from typing import Any

from vrtd.errors import DataError
from vrtd.files import translate_errors
from vrtd.logs.arrow_values import TEXT, ColumnType, find_types, is_text, translate_table_errors
from vrtd.logs.blocks import Piece, rows_per_block
from vrtd.logs.column_parts import ColumnPart
from vrtd.logs.columns import ANY_KIND, KEYS, Columns, Missing, find_columns
from vrtd.logs.encoding import Values, to_values
from vrtd.logs.part import Part
from vrtd.logs.read_ahead import read_ahead
from vrtd.logs.remote import RemoteFile, open_file
from vrtd.logs.stored_space import SPACE_KEY, unpack_space
from vrtd.tables import library

_YES, _NO = ("1", "1.0", "true", "t", "yes", "y"), ("0", "0.0", "false", "f", "no", "n")  # in any case
_FLAGS = ("terminated", "done", "truncated", "starts")
_NULLS = ("NA", "N/A", "n/a", "NULL", "null", "None", "NaN", "nan")
_NUMBERS, _WORDS = ColumnType("numbers"), ColumnType("true and false")  # of a CSV file


class TablePart(ColumnPart):
    """Table in memory, or a RecordBatchReader, which can be read only once."""

    where = "the table"
    is_in_memory = True

    def __init__(self, table: Any, wanted: Columns, missing: Missing) -> None:
        pyarrow = library()
        self.missing = missing
        self._table, self._started = table, False
        self._seen: list[Any] = []  # batches of a RecordBatchReader that `peek` has read
        self._once = isinstance(table, pyarrow.RecordBatchReader)
        self._first_row = 0  # of a piece, in the table
        self._used: list[Any] | None = None  # columns to read of a pandas table, the others of which may have any type
        with translate_table_errors():
            if _is_of_pandas(table):
                schema = pyarrow.RecordBatchReader.from_stream(table.head(0)).schema  # with the columns of the index
                self.columns = find_columns(schema.names, wanted, self.where)
                self._used = [name for name in table.columns if str(name) in self.columns.all]
                schema = self._open().schema
            else:
                schema = self._open().schema
                self.columns = find_columns(schema.names, wanted, self.where)
        self.kinds = find_types(schema, self.columns, self.where)
        self.n_rows = len(table) if isinstance(table, Sized) else None

    def rows(self) -> Generator[tuple[Piece, Values], None, None]:
        """Yield all rows in order, before they are encoded."""
        if self._once and self._started:
            raise DataError(
                "A RecordBatchReader can be read only once, but this is its second reading.",
                "Pass a table, or write the data to a file.",
            )
        self._started = True
        with translate_table_errors():
            yield from _to_rows(self._batches(), self, self._first_row)

    def divide(self, first: int, least: int) -> list[Part]:
        """Return pieces of a table of pyarrow, in order; other tables are not divided."""
        if not isinstance(self._table, library().Table):
            return [self]
        n = len(self._table)
        pieces: list[Part] = []
        for start in [0, *range(first, n, least)]:
            piece = copy(self)
            piece._table, piece._first_row = self._table.slice(start, least if start else first), start
            piece.n_rows = len(piece._table)
            pieces.append(piece)
        return pieces

    def load(self) -> Part:
        """Return a copy with a table that does not refer to the rows around it, which would be pickled too."""
        pyarrow, sink, part = library(), library().BufferOutputStream(), copy(self)
        with pyarrow.ipc.new_stream(sink, self._table.schema) as writer:
            writer.write_table(self._table)
        part._table = pyarrow.ipc.open_stream(sink.getvalue()).read_all()
        return part

    def peek(self, n_rows: int) -> list[Values]:
        """Return at least the first `n_rows` rows, and keep them for the reading if there can be only one."""
        if not self._once:
            return super().peek(n_rows)
        with translate_table_errors():
            while sum(batch.num_rows for batch in self._seen) < n_rows:
                batch = next(iter(self._table), None)
                if batch is None:
                    break
                self._seen.append(batch)
            return [values for _, values in _to_rows(self._seen, self)]

    def _open(self) -> Any:
        if self._once:
            return self._table
        table = self._table if self._used is None else self._table[self._used]
        return library().RecordBatchReader.from_stream(table)

    def _batches(self) -> Generator[Any, None, None]:
        """Yield the batches, large ones as several slices, so that the arrays made from them stay small."""
        seen, self._seen = self._seen, []
        for batch in chain(seen, self._open()):
            rows = rows_per_block(batch.nbytes / max(batch.num_rows, 1))
            for start in range(0, batch.num_rows, rows):
                yield batch.slice(start, rows)


def _is_of_pandas(table: Any) -> bool:
    pandas = sys.modules.get("pandas")  # imported already if this is one of its tables
    return pandas is not None and isinstance(table, pandas.DataFrame)


class ParquetPart(ColumnPart):
    """Parquet file, read in batches with verified page checksums."""

    def __init__(self, path: Path | RemoteFile, wanted: Columns, missing: Missing) -> None:
        library()
        self.where, self._path, self.missing = str(path), path, missing
        with translate_errors(self.where), closing(self._open()) as file:
            metadata, schema = file.metadata, file.schema_arrow
            self.n_rows = int(metadata.num_rows)
            self._group_rows = tuple(int(metadata.row_group(i).num_rows) for i in range(metadata.num_row_groups))
            self._groups = range(len(self._group_rows))  # row groups that are read
            stored = _check_twice(metadata, schema.names, self.where)
            self.columns = find_columns(schema.names, wanted, self.where)
            self.kinds = find_types(schema, self.columns, self.where)
            self.space = unpack_space(stored, self.columns, self.kinds, missing, self.where)
            self._batch = rows_per_block(_row_bytes(schema, self.columns, metadata))
            self.unverified = None if _has_checksums(path) or not self.n_rows else "has no page checksums"

    def rows(self) -> Generator[tuple[Piece, Values], None, None]:
        """Yield all rows in order, before they are encoded."""
        with translate_errors(self.where), closing(self._open()) as file:
            # Only decoding runs in the thread: it uses every core, and encoding beside it would take one of them.
            groups = list(self._groups)
            batches = read_ahead(file.iter_batches(self._batch, row_groups=groups, columns=self.columns.all))
            with closing(batches):
                yield from _to_rows(batches, self, sum(self._group_rows[: self._groups.start]))

    def divide(self, first: int, least: int) -> list[Part]:
        """Return pieces of whole row groups, in order."""
        pieces: list[Part] = []
        start = n_rows = 0
        for i, n in enumerate(self._group_rows):
            n_rows += n
            if n_rows >= (least if pieces else first) or i == len(self._group_rows) - 1:
                piece = copy(self)
                piece._groups, piece.n_rows = range(start, i + 1), n_rows
                pieces.append(piece)
                start, n_rows = i + 1, 0
        return pieces

    def _open(self) -> Any:
        from pyarrow.parquet import ParquetFile

        # Arrow's own read-ahead and buffers of whole column chunks would keep row groups of any size in memory.
        if isinstance(self._path, RemoteFile):
            path, filesystem, buffer_size = self._path.path, self._path.filesystem, 2**22  # fewer requests
        else:
            path, filesystem, buffer_size = str(self._path), None, 2**18
        return ParquetFile(
            path, filesystem=filesystem, pre_buffer=False, buffer_size=buffer_size, page_checksum_verification=True
        )


class CsvPart(ColumnPart):
    """CSV file, whose numbers are float64, so that no row can change the type.

    The first block of the file decides which observations and actions are text, and whether actions are whole numbers.
    A column with text and numbers counts as numbers, so that one wrong entry does not turn it into a category.
    """

    kinds: dict[str, ColumnType]
    n_rows = None
    unverified = "is text, without checksums"

    def __init__(self, path: Path | RemoteFile, wanted: Columns, missing: Missing) -> None:
        library()
        self.where, self._path, self.missing, self._header = str(path), path, missing, []
        self._types: dict[str, Any] = {}
        with translate_errors(self.where), self._open({}) as reader:
            self._header = reader.schema.names
            self.columns = find_columns(self._header, wanted, self.where)
            self.kinds = self._find_types(reader)
            self._types = self._choose_types(reader.schema)
            for name in self._by_order:
                if not (self._has_fractions(name) or library().types.is_integer(self._types[name])):
                    self.kinds[name] = self.kinds[name]._replace(words=str(self._types[name]))

    def rows(self) -> Generator[tuple[Piece, Values], None, None]:
        """Yield all rows in order, before they are encoded."""
        with translate_errors(self.where), self._open(self._types) as reader:
            yield from _to_rows(self._with_flags(reader), self)

    @staticmethod
    def share_order(parts: Sequence[CsvPart]) -> None:
        """Read a column of `order_by` as float64 in all files if it has fractions in one of them."""
        for name in {name for part in parts for name in part._by_order if part._has_fractions(name)}:
            for part in parts:
                part._types[name] = library().float64()

    @property
    def _by_order(self) -> tuple[str, ...]:
        return self.columns.by_field.get("order_by", ())

    def _has_fractions(self, name: str) -> bool:
        return bool(library().types.is_floating(self._types[name]))

    def _choose_types(self, schema: Any) -> dict[str, Any]:
        """Return the type of each column.

        Columns of `order_by` are numbers or times if the beginning of the file holds these, and text otherwise.
        """
        pyarrow, by_field = library(), self.columns.by_field
        types = {name: schema.field(name).type for name in self._by_order}
        for name, kind in types.items():
            if pyarrow.types.is_timestamp(kind):
                types[name] = pyarrow.timestamp("ns", kind.tz)  # later values may have fractions of a second
            elif pyarrow.types.is_null(kind):
                types[name] = pyarrow.string()
        types |= dict.fromkeys(by_field.get("episode", ()), pyarrow.string())
        fields = [field for field in by_field if field not in KEYS]
        types |= {name: pyarrow.float64() for field in fields for name in by_field[field]}
        types |= {name: pyarrow.string() for name, kind in self.kinds.items() if kind == TEXT}
        types |= {name: pyarrow.bool_() for name, kind in self.kinds.items() if kind == _WORDS}
        return types | {name: pyarrow.string() for field in _FLAGS for name in by_field.get(field, ())}

    def _with_flags(self, batches: Iterable[Any]) -> Generator[Any, None, None]:
        """Yield the batches with flags as booleans."""
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
                        f"{self.where}, column {name}, must hold flags ({', '.join(_YES)} or {', '.join(_NO)}), "
                        f"but has {texts[row].as_py()!r} in line {first + row + 2}.",
                        "Convert the column, or name another one.",
                    )
                flags = compute.less(index, len(_YES))
                batch = batch.set_column(batch.schema.get_field_index(name), name, flags)
            yield batch
            first += batch.num_rows

    def _find_types(self, reader: Any) -> dict[str, ColumnType]:
        """Return the types of the columns as the first block of the file shows them."""
        types = library().types
        names = self.columns.by_field
        of_any_kind = [name for field in ANY_KIND for name in names.get(field, ())]
        found = dict.fromkeys(self.columns.all, _NUMBERS)
        texts = [name for name in of_any_kind if is_text(reader.schema.field(name).type)]
        block = reader.read_next_batch() if texts else None
        for name in of_any_kind:
            kind = reader.schema.field(name).type
            if types.is_boolean(kind):
                found[name] = _WORDS
            elif types.is_integer(kind):
                found[name] = _NUMBERS._replace(is_integer=True)
            elif name in texts and block is not None and not _has_numbers(block.column(name)):
                found[name] = TEXT
            elif types.is_temporal(kind):
                raise DataError(
                    f"{self.where}, column {name}, must hold numbers or categories, but has type {kind}.",
                    "Convert the column, or name another one.",
                )
        return found

    @contextmanager
    def _open(self, types: Mapping[str, Any]) -> Iterator[Any]:
        """Open the file with columns of these types. Errors name the line and column if pyarrow reports them."""
        from pyarrow import csv

        convert = csv.ConvertOptions(
            column_types=types,
            include_columns=list(types),  # none: all
            null_values=[""] if self.missing == "error" else ["", *_NULLS],
            strings_can_be_null=True,  # nan is a number here, and is found when numbers are checked
        )
        # The messages of pyarrow contain row numbers only if one thread reads.
        options = csv.ReadOptions(use_threads=False, block_size=2**22)
        try:
            with open_file(self._path) as file, closing(csv.open_csv(file, options, convert_options=convert)) as reader:
                yield reader
        except library().ArrowInvalid as error:
            line, column = (re.search(rf"{word} #(\d+)", str(error)) for word in ("Row", "column"))
            if line is None:
                raise
            where, what = f"Line {line[1]} of {self.where}", str(error).split(f"{line[0]}: ")[-1]
            if column is not None and int(column[1]) < len(self._header):
                name = self._header[int(column[1])]
                where += f", column {name},"
                if name in self._types and name in self._by_order:
                    raise DataError(
                        f"{where} must have type {self._types[name]}, as in the first rows: {what}.",
                        "Write all values of the column in one form, such as 1.0 and 1.5.",
                    ) from None
            remedy = "Fix the line."
            if self.missing == "error":
                remedy = (
                    "Fix the line, or pass missing='drop' or missing='indicator' if the entry marks a missing value."
                )
            raise DataError(f"{where} cannot be read: {what}.", remedy) from None


def _has_numbers(column: Any) -> bool:
    """Return whether an entry of a column of text is a number."""
    from pyarrow import compute

    is_number = compute.match_substring_regex(compute.unique(column), r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$")
    return bool(compute.any(is_number).as_py())


def _to_rows(batches: Iterable[Any], part: ColumnPart, first: int = 0) -> Generator[tuple[Piece, Values], None, None]:
    names = part.columns.by_field
    for batch in batches:
        if batch.num_rows:
            piece = Piece(part.where, names, first, batch.num_rows)
            yield piece, {name: to_values(batch.column(name), name, piece, part.kinds[name]) for name in part.kinds}
            first += batch.num_rows


def _check_twice(metadata: Any, names: list[str], where: str) -> bytes | None:
    """Return the packed observation space of a file, or None.

    Neither the space nor the names of the columns have a checksum, but Arrow stores both twice. Compare the copies, so
    that damage cannot hide an optional column.
    """
    from pyarrow import ipc, py_buffer

    remedy, key = "Write the file again.", SPACE_KEY.encode()
    entries = metadata.metadata or {}
    stored: bytes | None = entries.get(key)
    if b"ARROW:schema" in entries:
        schema = ipc.read_schema(py_buffer(b64decode(entries[b"ARROW:schema"])))
        if schema.names != names:
            raise DataError(f"{where} is damaged: its two lists of columns differ, one of them is {names}.", remedy)
        if (schema.metadata or {}).get(key) != stored:
            raise DataError(f"{where} is damaged: its two descriptions of the observations differ.", remedy)
    return stored


def _row_bytes(schema: Any, columns: Columns, metadata: Any) -> float:
    """Return the bytes per row of the columns that are read, or of all columns if lists are among them.

    The details of column chunks are not used, because pyarrow aborts if they are damaged.
    """
    types, total = library().types, 0.0
    for name in columns.all:
        kind, width = schema.field(name).type, 1
        while types.is_fixed_size_list(kind):
            kind, width = kind.value_type, width * kind.list_size
        if not types.is_primitive(kind):
            return float(metadata.row_group(0).total_byte_size / max(metadata.row_group(0).num_rows, 1))
        total += width * kind.bit_width / 8
    return total


def _has_checksums(path: Path | RemoteFile) -> bool:
    """Return whether the first page has a checksum; pyarrow verifies checksums but does not report their absence.

    After four letters the file starts with a page header in Thrift's compact protocol: type, two sizes and an optional
    checksum, each a variable-length integer after the byte 0x15.
    """
    with open_file(path) as file:
        return re.match(rb"(?s).{4}(\x15[\x80-\xff]*[\x00-\x7f]){3}\x15", file.read(64)) is not None
