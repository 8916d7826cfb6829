"""Parquet files, batch by batch, with the checksums of their pages verified."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from vrtd.errors import DataError
from vrtd.logs.ahead import ahead
from vrtd.logs.arrow import batch_blocks, check_types, type_names
from vrtd.logs.blocks import Block, Origin, readable, rows_per_block
from vrtd.logs.columns import Columns, Wanted, find_columns
from vrtd.logs.parts import FilePart
from vrtd.tables import library


class ParquetPart(FilePart):
    def __init__(self, path: Path, wanted: Wanted) -> None:
        library()
        self.where, self._path = str(path), path
        with readable(self.where), closing(self._open()) as file:
            metadata, schema = file.metadata, file.schema_arrow
            self._n_rows = metadata.num_rows
            _check_names(metadata, schema.names, self.where)
            self.columns = find_columns(schema.names, wanted, self.where)
            check_types(schema, self.columns, self.where)
            self.kinds = type_names(schema, self.columns)
            self._batch = rows_per_block(_row_bytes(schema, self.columns, metadata))
            self.unverified = None if _has_checksums(path) or not self._n_rows else "has no page checksums"

    @property
    def n_rows(self) -> int:
        return int(self._n_rows)

    def blocks(self) -> Generator[Block, None, None]:
        with readable(self.where):
            file = self._open()
        # Only decoding is done ahead: it uses every core, and putting rows together beside it would take one of them.
        with closing(file), closing(ahead(file.iter_batches(self._batch, columns=self.columns.all))) as batches:
            yield from batch_blocks(batches, self.columns, Origin(self.where, self.columns.by_field))

    def _open(self) -> Any:
        from pyarrow.parquet import ParquetFile

        # Reading ahead inside Arrow, and buffers of whole column chunks, would hold a row group of any size in memory.
        return ParquetFile(self._path, pre_buffer=False, buffer_size=2**18, page_checksum_verification=True)


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
    """Whether the first page has one: pyarrow verifies checksums that are there and is silent otherwise.

    After four letters a file begins with a page, and that with its header in Thrift's compact protocol: type, two
    sizes, checksum if any, all of them varints, each after a byte that holds the distance to the number of the field
    before it, and its kind (5 for 32 bits).
    """
    with path.open("rb") as file:
        content = iter(file.read(64)[4:])
    for _ in range(3):
        if next(content, None) != 0x15 or not _skip_varint(content):
            return False
    return next(content, None) == 0x15


def _skip_varint(content: Iterator[int]) -> bool:
    return any(byte < 0x80 for byte in content)
