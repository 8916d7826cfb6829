"""npz files, read as a stream: a member is never in memory as a whole unless it is stored by columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from struct import Struct
from typing import IO, Any, Literal
from zipfile import ZipFile

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from vrtd.errors import DataError
from vrtd.logs.named import Header, NamedPart

_END = Struct("<4s4H2LH")  # the end of a zip archive


class NpzPart(NamedPart):
    """The checksum of each member is verified when its last row has been read."""

    def headers(self) -> Mapping[str, Header]:
        with ZipFile(self._path) as archive:
            found = {}
            for member in archive.namelist():
                with archive.open(member) as file:  # of any member, so that a damaged name is noticed
                    if member.endswith(".npy"):
                        found[member[:-4]] = _header(file)[0]
            _check_count(archive, self._path, self.where)
            return found

    @contextmanager
    def readers(self) -> Iterator[Mapping[str, Callable[[int, int], NDArray[Any]]]]:
        with ExitStack() as stack:
            archive = stack.enter_context(ZipFile(self._path))
            yield {
                name: _Member(stack.enter_context(archive.open(f"{name}.npy")), f"{self.where}, column {name},").rows
                for name in self.columns.all
            }


def _check_count(archive: ZipFile, path: Path, where: str) -> None:
    """A damaged list of members can hide some of them; its end says how many there are."""
    with path.open("rb") as file:
        file.seek(-_END.size, 2)
        mark, _, _, _, n_members, _, _, _ = _END.unpack(file.read())
    if mark == b"PK\5\6" and n_members not in (
        len(archive.namelist()),
        0xFFFF,
    ):  # the mark lies elsewhere after a comment
        what = f"{len(archive.namelist())} for {n_members}"
        raise DataError(f"{where} must list all of its members", what, "the file is damaged: write it again")


class _Member:
    def __init__(self, file: IO[bytes], where: str) -> None:
        self._file, self._where = file, where
        header, by_columns = _header(file)
        self._shape, self._dtype = header
        self._row_bytes = int(np.prod(self._shape[1:], dtype=np.int64)) * self._dtype.itemsize
        self._whole = self._read(self._shape, "F") if by_columns and len(self._shape) > 1 else None

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        if self._whole is not None:
            rows: NDArray[Any] = self._whole[start:stop]
        else:
            rows = self._read((stop - start, *self._shape[1:]), "C")
        if stop == self._shape[0] and self._file.read(1):  # at the end the archive compares checksums
            raise DataError(
                f"{self._where} must end with its last row", "more bytes", "the file is damaged: write it again"
            )
        return rows

    def _read(self, shape: tuple[int, ...], order: Literal["C", "F"]) -> NDArray[Any]:
        array = np.empty(shape, self._dtype, order=order)
        flat = array.reshape(-1, order="A").view(np.uint8).data
        filled = 0
        while filled < len(flat):
            n = self._file.readinto(flat[filled : filled + 2**24])  # type: ignore[attr-defined]
            if not n:
                raise DataError(f"{self._where} must be whole", "a member that is cut short", "write the file again")
            filled += n
        return array


def _header(file: IO[bytes]) -> tuple[Header, bool]:
    """Shape and dtype, and whether the entries are stored column by column. Objects are refused: they are pickles."""
    version = npy.read_magic(file)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, by_columns, dtype = read(file)
    if dtype.hasobject:
        return Header((), np.dtype(np.object_)), False  # an error only when the column is needed
    return Header(tuple(shape), dtype), by_columns
