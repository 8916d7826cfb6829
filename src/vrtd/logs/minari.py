"""Minari data sets on this machine, read as the plain files they are.

The metadata name an environment, and spaces. They are looked at as text: no environment is built, nothing is imported.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

from vrtd.errors import DataError
from vrtd.files import check_regular
from vrtd.logs.arrow import entries
from vrtd.logs.blocks import Block, Origin, readable
from vrtd.logs.episodes import Episode, Rows, episode_blocks
from vrtd.logs.hdf5 import library as hdf5_library
from vrtd.logs.log import Log
from vrtd.logs.parts import Part, PartsLog
from vrtd.tables import library as arrow_library

_MAIN = "main_data.hdf5"
_METADATA = "metadata.json"
_FLAT = ("rewards", "terminations", "truncations")


def from_minari(path: str | os.PathLike[str]) -> Log:
    """A log from a local Minari data set: its folder, or the data folder inside.

    Observations of dictionary and tuple spaces are laid side by side, in the order of their names. Every step has its
    successor, the final observation of an episode included. Needs h5py, or pyarrow for data sets in Arrow or Parquet.
    """
    folder = _data_folder(Path(path))
    if folder is None:
        raise DataError(
            f"{path} must be the folder of a Minari data set", f"no data/{_METADATA} or data/{_MAIN}", "check the path"
        )
    return PartsLog([_Minari(folder)], in_thread=True)


def is_minari(path: Path) -> bool:
    return _data_folder(path) is not None


def _data_folder(path: Path) -> Path | None:
    for folder in (path / "data", path):
        if (folder / _MAIN).is_file() or (folder / _METADATA).is_file():
            return folder
    return None


class _Minari(Part):
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.where = str(folder)
        metadata = _read_metadata(folder)
        self._kind = "hdf5" if (folder / _MAIN).is_file() else str(metadata.get("data_format"))
        self._shape = _check_space(metadata, self.where)
        if self._kind == "hdf5":
            self.unverified = "is HDF5 without checksums"
            hdf5_library()
        elif self._kind in ("arrow", "parquet"):
            self.unverified = "has no page checksums"
            arrow_library()
        else:
            raise DataError(
                f"the data format of {folder} must be hdf5, arrow or parquet", repr(self._kind), "convert the data set"
            )
        with readable(self.where):
            self._n_rows = self._count()

    @property
    def n_rows(self) -> int:
        return self._n_rows

    def blocks(self) -> Generator[Block, None, None]:
        yield from episode_blocks(self._hdf5() if self._kind == "hdf5" else self._tables())

    def _count(self) -> int:
        if self._kind != "hdf5":
            return sum(_table_rows(folder, self._kind) - 1 for folder in _numbered(self._folder))
        check_regular(self._folder / _MAIN)
        with hdf5_library().File(self._folder / _MAIN, "r") as file:
            return sum(int(file[name]["rewards"].shape[0]) for name in _episodes(file))

    def _hdf5(self) -> Generator[Episode, None, None]:
        path = self._folder / _MAIN
        with readable(str(path)), hdf5_library().File(path, "r") as file:
            for name in _episodes(file):
                group, where = file[name], f"{path}, {name}"
                leaves = _leaves(group["observations"], "observations", where)
                rewards, terminations, truncations = (group[key] for key in _FLAT)
                yield Episode(where, leaves, rewards, terminations, truncations, has_final=True)

    def _tables(self) -> Generator[Episode, None, None]:
        for folder in _numbered(self._folder):
            where = str(folder)
            with readable(where):
                table = _table(folder, self._kind)
                columns = {name: table.column(name).combine_chunks() for name in table.column_names}
                origin = Origin(where, {})
                rewards, terminations, truncations = (entries(columns[name], name, origin, 0)[:-1] for name in _FLAT)
                leaves = _fields(columns["observations"], "observations", origin)
                if len(leaves) == 1 and self._shape is not None:
                    leaves = [(name, rows.reshape(len(rows), *self._shape)) for name, rows in leaves]
            yield Episode(where, leaves, rewards, terminations, truncations, has_final=True)


def _read_metadata(folder: Path) -> Mapping[str, Any]:
    path = folder / _METADATA
    if not path.is_file():
        return {}
    with readable(str(path)):
        metadata = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(metadata, dict):
            raise DataError(f"{path} must hold a JSON object", type(metadata).__name__, "restore the file")
        return metadata


def _check_space(metadata: Mapping[str, Any], where: str) -> tuple[int, ...] | None:
    """The shape of an observation, where it is one array and the metadata tell; images kept as JPEG are refused."""
    text = metadata.get("observation_space")
    try:
        space = json.loads(text) if isinstance(text, str) else None
    except ValueError:
        space = None
    if metadata.get("jpeg_encoding", True) and _has_images(space):
        raise DataError(
            f"the observations of {where} must be stored as numbers",
            "images as JPEG",
            "store the data set with jpeg_encoding=False",
        )
    shape = space.get("shape") if isinstance(space, dict) and space.get("type") == "Box" else None
    if isinstance(shape, list) and all(isinstance(n, int) and n >= 0 for n in shape):
        return tuple(shape)
    return None


def _has_images(space: Any) -> bool:
    """By the rule by which Minari stores a space as JPEG, but for the bounds, which may be long lists."""
    if not isinstance(space, dict):
        return False
    inside = space.get("subspaces")
    if isinstance(inside, dict | list):
        return any(_has_images(one) for one in (inside.values() if isinstance(inside, dict) else inside))
    shape = space.get("shape")
    if space.get("dtype") != "uint8" or not isinstance(shape, list) or len(shape) not in (2, 3):
        return False
    return all(isinstance(n, int) for n in shape) and min(shape[:2]) >= 32


def _episodes(file: Any) -> list[str]:
    return sorted((name for name in file if re.fullmatch(r"episode_\d+", name)), key=lambda name: int(name[8:]))


def _leaves(item: Any, name: str, where: str) -> list[tuple[str, Rows]]:
    """The arrays under a group, in the order of their names, _index_2 before _index_10."""
    h5py = hdf5_library()
    if isinstance(item, h5py.Dataset):
        if item.dtype.kind not in "biuf":
            raise DataError(f"{where}, {name}, must hold numbers", f"dtype {item.dtype}", "convert the data set")
        return [(name, item)]
    return [leaf for key in sorted(item, key=_in_order) for leaf in _leaves(item[key], f"{name}/{key}", where)]


def _fields(array: Any, name: str, origin: Origin) -> list[tuple[str, Any]]:
    types = arrow_library().types
    if types.is_struct(array.type):
        keys = sorted((field.name for field in array.type), key=_in_order)
        return [leaf for key in keys for leaf in _fields(array.field(key), f"{name}/{key}", origin)]
    values = entries(array, name, origin, 0)
    if values.dtype.kind not in "biuf":
        raise DataError(f"{origin.where}, {name}, must hold numbers", f"type {array.type}", "convert the data set")
    return [(name, values)]


def _in_order(key: str) -> tuple[str, int]:
    number = re.fullmatch(r"(_index_)?(\d+)", key)
    return ("", int(number[2])) if number else (key, 0)


def _numbered(folder: Path) -> list[Path]:
    return sorted((p for p in folder.iterdir() if p.is_dir() and p.name.isdigit()), key=lambda p: int(p.name))


def _table_file(folder: Path, kind: str) -> Path:
    files = sorted(folder.glob(f"*.{kind}"))
    if len(files) != 1:
        raise DataError(f"{folder} must hold one .{kind} file", len(files), "write the data set again")
    check_regular(files[0])
    return files[0]


def _table(folder: Path, kind: str) -> Any:
    path = _table_file(folder, kind)
    if kind == "arrow":
        from pyarrow import ipc

        return ipc.open_file(path).read_all()
    from pyarrow.parquet import ParquetFile

    return ParquetFile(path, page_checksum_verification=True).read()


def _table_rows(folder: Path, kind: str) -> int:
    path = _table_file(folder, kind)
    if kind == "arrow":
        return int(_table(folder, kind).num_rows)
    from pyarrow.parquet import ParquetFile

    return int(ParquetFile(path).metadata.num_rows)
