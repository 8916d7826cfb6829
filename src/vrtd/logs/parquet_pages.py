"""Check of what a Parquet file says about its pages, before a library reads them.

The footer and the headers of pages have no checksums, and a library that trusts them takes gigabytes for a damaged file
of a few kilobytes. Both are written in the compact protocol of Thrift.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from vrtd.files import check_declared
from vrtd.logs.remote import RemoteFile, open_file

_MOST_INSPECTED = 2**26  # bytes; of larger files and files at addresses, only the first page is inspected
_DICTIONARY, _DATA = 2, (0, 3)  # types of pages; 3 is version 2 of a page of data
_UNCOMPRESSED = 0
_WIDTHS = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8}  # physical type -> bytes of an entry
_TEXT_WIDTH = 16
_PADDING = 128  # bytes by which old writers declare a column too short
_MOST_NESTED = 32


class Pages(NamedTuple):
    """What is known about the pages of a file."""

    doubt: str | None  # reason why damage may go undetected
    row_bytes: float | None  # mean size of a decoded row in the widest row group; None if the file is too large


def inspect_pages(file: Path | RemoteFile, where: str) -> Pages:
    """Check the sizes that a file declares, and find out whether its pages have checksums.

    A damaged file may raise any exception.
    """
    with open_file(file) as stream:
        size = stream.size()
        if size > _MOST_INSPECTED or isinstance(file, RemoteFile):
            head = stream.read(2**16)
            return Pages(next(_read_pages(head, 4, size, 1))[-1], None)
        content = stream.read()
    end = size - 8
    metadata = _Reader(content[:end], end - int.from_bytes(content[end : end + 4], "little")).read_struct()
    types = [(leaf[1], leaf.get(2, 0)) for leaf in metadata[2] if not leaf.get(5)]
    doubts: set[str | None] = set()
    widest, n_walked = 0.0, 0
    for group in metadata.get(4, ()):
        n_decoded = n_paged = 0
        for chunk, (kind, length) in zip(group[1], types, strict=True):
            column = chunk[3]
            if column[1] != kind:
                raise ValueError(f"a column has type {kind} in the schema and type {column[1]} in a row group")
            n_decoded += column[5] * _WIDTHS.get(kind, length or _TEXT_WIDTH)
            start = min(column.get(11) or column[9], column[9])
            largest = 0
            for n_stored, n_bytes, doubt in _read_pages(content, start, start + column[7] + _PADDING, column[5]):
                if column[4] == _UNCOMPRESSED and n_stored != n_bytes:
                    raise ValueError("a page without compression has two sizes")
                largest, n_walked = max(largest, n_bytes), n_walked + n_stored + 1
                if n_walked > size:
                    raise ValueError("its pages overlap")
                doubts.add(doubt)
            n_paged += largest
        check_declared(where, n_paged, size)  # pages of all columns are in memory at once
        if n_decoded > group[3] * 16 * len(types):  # lists
            check_declared(where, n_decoded, size)
        widest = max(widest, n_decoded / max(group[3], 1))
    return Pages(next(iter(sorted(filter(None, doubts))), None), widest)


def _read_pages(content: bytes, at: int, end: int, n_values: int) -> Iterator[tuple[int, int, str | None]]:
    """Yield for each page of a column its size in the file, its size in memory, and why it is in doubt."""
    while n_values > 0 and at < end:
        reader = _Reader(content, at)
        header = reader.read_struct()
        kind, n_bytes, n_stored = header[1], header[2], header[3]
        at = reader.at + n_stored
        if min(n_bytes, n_stored) < 0 or at > end:
            raise ValueError("a page is longer than the file")
        if kind in _DATA:
            n_values -= header[5 if kind == 0 else 8][1]
        doubt = None if 4 in header else "has no page checksums"
        if doubt is None and kind == 3:
            doubt = "has pages of version 2, whose checksums do not cover their headers"
        yield n_stored, n_bytes, doubt


class _Reader:
    """Reader of values of Thrift: structures as dicts from the numbers of fields to values."""

    def __init__(self, content: bytes, at: int) -> None:
        if not 4 <= at < len(content):
            raise ValueError("an offset is outside the file")
        self._content, self.at = content, at

    def read_struct(self, depth: int = 0) -> dict[int, Any]:
        if depth > _MOST_NESTED:
            raise ValueError("values are nested too deeply")
        fields: dict[int, Any] = {}
        number = 0
        while kind := self._read_byte():
            number = number + (kind >> 4) if kind >> 4 else self._read_signed()
            fields[number] = self._read_value(kind & 15, depth)
        return fields

    def _read_value(self, kind: int, depth: int) -> Any:
        match kind:
            case 1 | 2:  # in a field the type is the value
                return kind == 1
            case 4 | 5 | 6:
                return self._read_signed()
            case 8:
                n = self._read_number()
                self.at += n
                return self._content[self.at - n : self.at]
            case 9 | 10:
                head = self._read_byte()
                n = head >> 4 if head < 0xF0 else self._read_number()
                return [self._read_entry(head & 15, depth) for _ in range(n)]
            case 12:
                return self.read_struct(depth + 1)
            case 3:
                return self._read_byte()
            case 7:
                self.at += 8
                return None
        raise ValueError(f"type {kind} is unknown")

    def _read_entry(self, kind: int, depth: int) -> Any:
        return self._read_byte() == 1 if kind in (1, 2) else self._read_value(kind, depth + 1)

    def _read_byte(self) -> int:
        byte = self._content[self.at]
        self.at += 1
        return byte

    def _read_number(self) -> int:
        number = shift = 0
        while True:
            byte = self._read_byte()
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7

    def _read_signed(self) -> int:
        number = self._read_number()
        return number >> 1 ^ -(number & 1)
