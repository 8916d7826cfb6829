"""Opening of HDF5 files, which may not refer to other files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from vrtd.checks import import_extra
from vrtd.errors import DataError
from vrtd.files import check_declared

HDF5_UNVERIFIED = "is HDF5 without checksums"


class StoredArray(Protocol):
    """Array in memory or in a file whose rows can be read."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the entries."""
        ...

    def __getitem__(self, rows: slice, /) -> Any: ...


def hdf5_library() -> Any:
    """Import h5py, or say how to install it."""
    return import_extra("h5py", "minari")


@contextmanager
def open_hdf5(path: Path) -> Iterator[Any]:
    """Open a file without links to other files, which whoever wrote it could otherwise make us read."""
    h5py = hdf5_library()
    with h5py.File(path, "r") as file:
        if file.id.links.visit(lambda _name, link: link.type == h5py.h5l.TYPE_EXTERNAL or None, info=True):
            raise _refers(f"{path} has links to values")
        yield file


def check_dataset(item: Any, where: str) -> Any:
    """Return an array of a file; raise if its values are in other files, or out of proportion to this file."""
    if item.is_virtual or item.external:
        raise _refers(f"{where} has values")
    n_values = max(item.size, prod(item.chunks or ()))
    check_declared(where, n_values * item.dtype.itemsize, item.file.id.get_filesize())
    return item


def read_number(item: Any, where: str) -> Any:
    """Return the only value of an array of a file."""
    if item.shape != ():
        raise DataError(f"{where} must be a single number, but has shape {item.shape}.", "Write the file again.")
    return check_dataset(item, where)[()]


def _refers(what: str) -> DataError:
    return DataError(f"{what} in other files, which are not read.", "Copy all values to one file, e.g. with h5repack.")
