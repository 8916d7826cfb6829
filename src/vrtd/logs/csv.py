"""CSV files, read as a stream: a header line, then numbers."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from vrtd.errors import DataError
from vrtd.logs.arrow import batch_blocks
from vrtd.logs.blocks import Block, Origin, readable
from vrtd.logs.columns import Wanted, find_columns
from vrtd.logs.parts import FilePart
from vrtd.tables import library

_YES, _NO = ("1", "1.0", "True", "true", "TRUE"), ("0", "0.0", "False", "false", "FALSE")
_FLAGS = ("terminated", "done", "truncated")


class CsvPart(FilePart):
    """Text has no types: every number is a float64, whatever it looks like, so that no row can change the type."""

    unverified = "is text, without checksums"

    def __init__(self, path: Path, wanted: Wanted) -> None:
        library()
        self.where, self._path = str(path), path
        with readable(self.where), self._numbered_lines(), closing(self._open({})) as reader:
            header = reader.schema.names
        self.columns = find_columns(header, wanted, self.where)
        self.kinds = dict.fromkeys(self.columns.all, "column")

    @property
    def n_rows(self) -> None:
        return None

    def blocks(self) -> Generator[Block, None, None]:
        pyarrow, types = library(), {}
        for field, names in self.columns.by_field.items():
            kind = pyarrow.bool_() if field in _FLAGS else pyarrow.string() if field == "episode" else pyarrow.float64()
            types.update(dict.fromkeys(names, kind))
        yield from batch_blocks(self._batches(types), self.columns, Origin(self.where, self.columns.by_field))

    def _batches(self, types: dict[str, Any]) -> Generator[Any, None, None]:
        with self._numbered_lines(), closing(self._open(types)) as reader:
            yield from reader

    @contextmanager
    def _numbered_lines(self) -> Iterator[None]:
        """Say which line it is, where pyarrow does."""
        try:
            yield
        except library().ArrowInvalid as error:
            line = re.search(r"Row #(\d+)", str(error))
            if line is None:
                raise
            raise DataError(
                f"line {line[1]} of {self.where} must hold a number in each of its fields, as many as the header has",
                str(error).split(f"{line[0]}: ")[-1],
                "repair that line",
            ) from None

    def _open(self, types: dict[str, Any]) -> Any:
        from pyarrow import csv

        convert = csv.ConvertOptions(
            column_types=types,
            include_columns=list(types),  # none: all
            null_values=[""],  # nan is a number here, and found where numbers are checked
            strings_can_be_null=True,
            true_values=_YES,
            false_values=_NO,
        )
        # Rows are numbered in messages only when one thread reads.
        return csv.open_csv(self._path, csv.ReadOptions(use_threads=False, block_size=2**22), convert_options=convert)
