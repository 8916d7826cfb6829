"""Files that hold arrays by name, one entry a row: npz and HDF5."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.errors import DataError
from vrtd.logs.blocks import Block, Origin, Piece, make_block, readable, rows_per_block
from vrtd.logs.columns import Columns, Wanted, find_columns
from vrtd.logs.parts import FilePart


class Header(NamedTuple):
    """What is known of an array before it is read."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class NamedPart(FilePart):
    """Reads the arrays in step, some rows of each at a time."""

    def __init__(self, path: Path, wanted: Wanted) -> None:
        self.where, self._path = str(path), path
        with readable(self.where):
            headers = self.headers()
        self.columns = find_columns(list(headers), wanted, self.where)
        self.kinds = {name: f"{headers[name].dtype} {headers[name].shape[1:]}" for name in self.columns.all}
        self._n_rows = _check(headers, self.columns, self.where)
        row_bytes = sum(_row_bytes(headers[name]) for name in self.columns.all)
        self._step = rows_per_block(row_bytes)

    @abstractmethod
    def headers(self) -> Mapping[str, Header]:
        """All arrays in the file."""

    @abstractmethod
    @contextmanager
    def readers(self) -> Iterator[Mapping[str, Callable[[int, int], NDArray[Any]]]]:
        """Per column, what gives the rows from one to another; asked for in order, once, to the end."""

    @property
    def n_rows(self) -> int:
        return self._n_rows

    def blocks(self) -> Generator[Block, None, None]:
        origin = Origin(self.where, self.columns.by_field)
        with readable(self.where), self.readers() as readers:
            for start in range(0, self._n_rows, self._step):
                stop = min(self._n_rows, start + self._step)
                arrays = {name: read(start, stop) for name, read in readers.items()}
                yield make_block(arrays, self.columns, Piece(origin, start, stop - start))


def _row_bytes(header: Header) -> int:
    return int(np.prod(header.shape[1:], dtype=np.int64)) * header.dtype.itemsize


def _check(headers: Mapping[str, Header], columns: Columns, where: str) -> int:
    """The number of rows, which all columns share."""
    names = columns.all
    for name in names:
        kinds = "biufUS" if name == columns.episode else "biuf"
        if headers[name].dtype.kind not in kinds or not headers[name].shape:
            what = f"dtype {headers[name].dtype}, shape {headers[name].shape}"
            raise DataError(f"{where}, column {name}, must hold numbers, one entry a row", what, "convert it first")
    lengths = {name: headers[name].shape[0] for name in names}
    odd = [name for name in names if lengths[name] != lengths[names[0]]]
    if odd:
        raise DataError(
            f"the columns of {where} must have one entry a row",
            f"{lengths[odd[0]]} entries of {odd[0]} and {lengths[names[0]]} of {names[0]}",
            "write arrays of one length",
        )
    return lengths[names[0]]
