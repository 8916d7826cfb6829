"""Data sets that store every episode separately: local Minari data sets and files of d3rlpy.

The metadata of Minari, which name an environment and its spaces, are read as text: no environment is created, and
nothing is imported.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.errors import DataError, InvalidInputError
from vrtd.features import ObservationSpace
from vrtd.files import check_regular, translate_errors
from vrtd.logs.arrow_values import ColumnType, to_numpy
from vrtd.logs.blocks import Block, Piece, convert_observations, make_block, rows_per_block
from vrtd.logs.columns import Columns, Missing, order_by_number
from vrtd.logs.encoding import Encoder
from vrtd.logs.hdf5 import HDF5_UNVERIFIED, StoredArray, check_dataset, open_hdf5, read_number
from vrtd.logs.log import Log
from vrtd.logs.part import Part
from vrtd.logs.parts import PartsLog
from vrtd.tables import library as arrow_library

_MAIN, _METADATA = "main_data.hdf5", "metadata.json"
_NAMES = {"reward": "rewards", "terminated": "terminations", "truncated": "truncations"}
_COLUMNS = Columns("observations", "rewards", None, "terminations", "truncations")
_ACTION = "actions"  # read only on request


class Episode(NamedTuple):
    """Episode of T steps, with T + 1 observations if the final one is included. Several arrays are concatenated."""

    where: str
    observations: Sequence[tuple[str, StoredArray]]  # name, rows
    columns: Mapping[str, StoredArray]  # reward, terminated and truncated, perhaps action
    has_final: bool


def _make_blocks(episodes: Generator[Episode, None, None], encoder: Encoder) -> Generator[Block, None, None]:
    """Yield blocks of several short episodes or of a part of a long one."""
    waiting: list[Block] = []
    wanted: str | None = None
    with closing(episodes):
        for episode in episodes:
            for block in _cut(episode, encoder):
                kind = f"{block.observations.dtype} {block.observations.shape[1:]}"
                if block.action is not None:
                    kind += f", actions {block.action.dtype} {block.action.shape[1:]}"
                wanted = wanted or kind
                if kind != wanted:
                    raise DataError(
                        f"The observations of {episode.where} must be like those of the first episode, {wanted}, "
                        f"but are {kind}.",
                        "Store data of different spaces separately.",
                    )
                waiting.append(block)
                n_rows = sum(block.reward.size for block in waiting)
                if n_rows >= rows_per_block(sum(block.observations.nbytes for block in waiting) / n_rows):
                    yield Block.join(waiting)
                    waiting = []
    if waiting:
        yield Block.join(waiting)


def _cut(episode: Episode, encoder: Encoder) -> Iterator[Block]:
    with translate_errors(episode.where):
        shape = episode.columns["reward"].shape
        n_steps = shape[0] if shape else 0
        n_wanted = n_steps + episode.has_final
        for name, rows in episode.observations:
            if rows.shape[:1] != (n_wanted,):
                raise DataError(
                    f"{episode.where}, {name}, must have {n_wanted} entries for {n_steps} rewards, "
                    f"but has shape {rows.shape}.",
                    "Record the episode again or remove it: it is incomplete.",
                )
        step = rows_per_block(8 * sum(prod(rows.shape[1:]) for _, rows in episode.observations))
        for start in range(0, n_steps, step):
            stop = min(n_steps, start + step)
            observations, names = _lay_side_by_side(episode, start, stop + episode.has_final)
            fields = {field: np.asarray(rows[start:stop]) for field, rows in episode.columns.items()}
            fields["observations"] = observations[: stop - start]
            if episode.has_final:
                fields["next_observations"] = observations[1:]
            columns = _COLUMNS.by_field | {"observations": names, "next_observations": names, "action": (_ACTION,)}
            yield make_block(fields, Piece(episode.where, columns, start, stop - start, successors_at=1), encoder)


def _lay_side_by_side(episode: Episode, start: int, stop: int) -> tuple[NDArray[Any], tuple[str, ...]]:
    """Return observations with the name of each of their entries, or one name for all entries."""
    arrays = [
        convert_observations(np.asarray(rows[start:stop]), f"{episode.where}, {name},")
        for name, rows in episode.observations
    ]
    if len(arrays) == 1:
        return arrays[0], (episode.observations[0][0],)
    arrays = [array.reshape(stop - start, -1) for array in arrays]
    leaves = zip(episode.observations, arrays, strict=True)
    names = tuple(f"{name}[{j}]" for (name, _), array in leaves for j in range(array.shape[1]))
    return np.ascontiguousarray(np.concatenate(arrays, axis=1)), names


class D3rlpyPart(Part):
    """File of d3rlpy with arrays observations_0, rewards_0, ..., which lacks the final observations of episodes."""

    unverified = HDF5_UNVERIFIED

    def __init__(self, path: Path, wanted: Columns, missing: Missing) -> None:
        self.where, self._path = str(path), path
        self.missing = missing
        self.columns = _choose_columns(wanted, missing, f"the d3rlpy file {path}")
        with translate_errors(self.where), open_hdf5(path) as file:
            self._numbers = sorted(int(name[8:]) for name in file if re.fullmatch(r"rewards_\d+", name))
            n_episodes = int(read_number(file["num_episodes"], f"{path}, num_episodes,"))
            if len(self._numbers) != n_episodes:
                raise DataError(
                    f"{path} is damaged: it has {len(self._numbers)} episodes instead of {n_episodes}.",
                    "Write the file again.",
                )
            self.n_rows = sum(int(file[f"rewards_{k}"].shape[0]) for k in self._numbers)
            first = file["observations_0"]
            self.kinds = {"observations": ColumnType(f"{first.dtype} {first.shape[1:]}", row_shape=None)}
            self.space = ObservationSpace("states" if first.ndim == 1 and first.dtype.kind in "iu" else "box")

    def blocks(self, encoder: Encoder) -> Generator[Block, None, None]:
        """Yield all rows in order as encoded blocks."""
        yield from _make_blocks(self._episodes(), encoder)

    def _episodes(self) -> Generator[Episode, None, None]:
        with translate_errors(self.where), open_hdf5(self._path) as file:
            for k in self._numbers:
                where = f"{self.where}, episode {k}"
                reward = _take_array(file[f"rewards_{k}"], "rewards", where)
                is_terminated = bool(read_number(file[f"terminated_{k}"], f"{where}, terminated,"))
                is_last = np.arange(reward.shape[0]) == reward.shape[0] - 1
                name = f"observations_{k}"
                observations = [(name, _take_array(file[name], name, where))]
                columns = {"terminated": is_last & is_terminated, "truncated": is_last & (not is_terminated)}
                if self.columns.action is not None:
                    columns["action"] = _take_array(file[f"{_ACTION}_{k}"], _ACTION, where)
                yield Episode(where, observations, {"reward": reward, **columns}, has_final=False)


def from_minari(path: str | os.PathLike[str]) -> Log:
    """Create a log from a local Minari data set.

    The data set includes the final observation of every episode, so that every step has its successor. Observations of
    dictionary and tuple spaces are concatenated in the order of their names. Use ``vrtd.logs.read`` to include actions.

    Parameters
    ----------
    path : path
        Folder of the data set, or the folder ``data`` in it.

    Returns
    -------
    Log
        The transitions of all episodes.

    Raises
    ------
    DataError
        If the folder is not a Minari data set, if it is damaged, or if its observations are JPEG images.
    MissingExtraError
        If h5py is not installed, or pyarrow for data sets in Arrow or Parquet.

    Examples
    --------
    >>> from vrtd.logs import from_minari
    >>> log = from_minari("datasets/D4RL/pen/human-v2")  # doctest: +SKIP
    """
    return PartsLog([MinariPart(Path(path), Columns(), "error")], in_thread=True)


def find_data_folder(path: Path) -> Path | None:
    """Return the folder with the data of a Minari data set, or None if the path is not one."""
    for folder in (path / "data", path):
        if (folder / _MAIN).is_file() or (folder / _METADATA).is_file():
            return folder
    return None


class MinariPart(Part):
    """Local Minari data set."""

    def __init__(self, path: Path, wanted: Columns, missing: Missing) -> None:
        folder = find_data_folder(path)
        if folder is None:
            raise DataError(
                f"{path} is not the folder of a Minari data set: it has no data/{_METADATA} or data/{_MAIN}.",
                "Check the path.",
            )
        self._folder, self.where = folder, str(folder)
        self.missing = missing
        self.columns = _choose_columns(wanted, missing, self.where)
        self._names = _NAMES | ({} if self.columns.action is None else {"action": _ACTION})
        metadata = _read_metadata(folder)
        self.kinds = {"observations": ColumnType(str(metadata.get("observation_space")), row_shape=None)}
        self._kind = "hdf5" if (folder / _MAIN).is_file() else str(metadata.get("data_format"))
        self._shape = _check_space(metadata, self.where)
        self.space = _describe_space(metadata)
        if self._kind not in ("hdf5", "arrow", "parquet"):
            raise DataError(
                f"The data format of {folder} must be hdf5, arrow or parquet, but is {self._kind!r}.",
                "Convert the data set.",
            )
        self.unverified = HDF5_UNVERIFIED if self._kind == "hdf5" else "has no page checksums"
        with translate_errors(self.where):
            if self._kind == "hdf5":
                check_regular(folder / _MAIN)
                with open_hdf5(folder / _MAIN) as file:
                    self.n_rows = sum(int(file[name]["rewards"].shape[0]) for name in _episodes(file))
            else:
                arrow_library()
                self.n_rows = sum(_count_rows(file) - 1 for file in self._files())

    def blocks(self, encoder: Encoder) -> Generator[Block, None, None]:
        """Yield all rows in order as encoded blocks."""
        yield from _make_blocks(self._read_hdf5() if self._kind == "hdf5" else self._read_tables(), encoder)

    def _read_hdf5(self) -> Generator[Episode, None, None]:
        path = self._folder / _MAIN
        with translate_errors(str(path)), open_hdf5(path) as file:
            for name in _episodes(file):
                group, where = file[name], f"{path}, {name}"
                leaves = _find_leaves(group["observations"], "observations", where)
                columns = {field: _take_array(group[name], name, where) for field, name in self._names.items()}
                yield Episode(where, leaves, columns, has_final=True)

    def _read_tables(self) -> Generator[Episode, None, None]:
        for path in self._files():
            where = str(path.parent)
            with translate_errors(where):
                table = _read_table(path)
                piece = Piece(where, {}, 0, table.num_rows)
                whole = {name: table.column(name).combine_chunks() for name in self.columns.all}
                columns = {
                    field: _take_array(_to_groups(whole[name], name, piece), name, where)[:-1]
                    for field, name in self._names.items()
                }
                observations = _to_groups(whole["observations"], "observations", piece)
                if isinstance(observations, np.ndarray) and self._shape is not None:
                    observations = observations.reshape(len(observations), *self._shape)
                leaves = _find_leaves(observations, "observations", where)
            yield Episode(where, leaves, columns, has_final=True)

    def _files(self) -> Iterator[Path]:
        """Yield the file of each episode, which has a numbered folder."""
        folders = [folder for folder in self._folder.iterdir() if folder.is_dir() and folder.name.isdigit()]
        for folder in sorted(folders, key=lambda folder: int(folder.name)):
            files = sorted(folder.glob(f"*.{self._kind}"))
            if len(files) != 1:
                raise DataError(
                    f"{folder} must hold one .{self._kind} file, but holds {len(files)}.", "Write the data set again."
                )
            check_regular(files[0])
            yield files[0]


def _read_metadata(folder: Path) -> Mapping[str, Any]:
    path = folder / _METADATA
    if not path.is_file():
        return {}
    with translate_errors(str(path)):
        metadata = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(metadata, dict):
            raise DataError(
                f"{path} must hold a JSON object, but holds a {type(metadata).__name__}.", "Restore the file."
            )
        return metadata


def _read_space(metadata: Mapping[str, Any]) -> Any:
    """Return the observation space as JSON, or None if the metadata do not contain it."""
    text = metadata.get("observation_space")
    with suppress(ValueError):
        return json.loads(text) if isinstance(text, str) else None
    return None


def _describe_space(metadata: Mapping[str, Any]) -> ObservationSpace:
    match _read_space(metadata):
        case {"type": "Discrete", "n": int(n), "start": int(start)}:
            return ObservationSpace("states", sizes=(start + n,))
    return ObservationSpace("box")


def _check_space(metadata: Mapping[str, Any], where: str) -> tuple[int, ...] | None:
    """Return the shape of an observation if the metadata contain it, and raise for images stored as JPEG."""
    space = _read_space(metadata)
    if metadata.get("jpeg_encoding", True) and _has_images(space):
        raise DataError(
            f"The observations of {where} must be stored as numbers, but are JPEG images.",
            "Store the data set with jpeg_encoding=False.",
        )
    match space:
        case {"type": "Box", "shape": [*shape]} if all(isinstance(n, int) and n >= 0 for n in shape):
            return tuple(shape)
    return None


def _has_images(space: Any) -> bool:
    """Return whether Minari stores a space as JPEG, by its rule except for the bounds, which may be long lists."""
    match space:
        case {"subspaces": dict(spaces)}:
            return any(map(_has_images, spaces.values()))
        case {"subspaces": list(spaces)}:
            return any(map(_has_images, spaces))
        case {"dtype": "uint8", "shape": [int(height), int(width)] | [int(height), int(width), int()]}:
            return min(height, width) >= 32
    return False


def _episodes(file: Any) -> list[str]:
    return sorted((name for name in file if re.fullmatch(r"episode_\d+", name)), key=order_by_number)


def _find_leaves(item: Any, name: str, where: str) -> list[tuple[str, StoredArray]]:
    """Return the arrays of a group in the order of their names, _index_2 before _index_10."""
    if isinstance(item, Mapping):
        return [leaf for key in sorted(item, key=_in_order) for leaf in _find_leaves(item[key], f"{name}/{key}", where)]
    if item.dtype.kind not in "biuf":
        raise DataError(f"{where}, {name}, must hold numbers, but has dtype {item.dtype}.", "Convert the data set.")
    return [(name, _check_stored(item, f"{where}, {name},"))]


def _check_stored(item: Any, where: str) -> Any:
    """Return an array unchanged, and raise if it is one of a file that refers to other files."""
    return item if isinstance(item, np.ndarray) else check_dataset(item, where)


def _take_array(item: Any, name: str, where: str) -> Any:
    """Return an array unchanged, and raise for a group of arrays."""
    if isinstance(item, Mapping):
        raise DataError(
            f"{where}, {name}, must be one array, but has the parts {', '.join(map(str, item))}.",
            "Convert the data set, or read it without these values.",
        )
    return _check_stored(item, f"{where}, {name},")


def _to_groups(array: Any, name: str, piece: Piece) -> Any:
    """Return an Arrow column as an array, or a structure as a group of arrays."""
    if not arrow_library().types.is_struct(array.type):
        return to_numpy(array, name, piece)
    return {field.name: _to_groups(array.field(field.name), f"{name}/{field.name}", piece) for field in array.type}


def _in_order(key: str) -> tuple[str, int]:
    number = re.fullmatch(r"(_index_)?(\d+)", key)
    return ("", int(number[2])) if number else (key, 0)


def _read_table(path: Path) -> Any:
    if path.suffix == ".arrow":
        from pyarrow import ipc

        return ipc.open_file(path).read_all()
    from pyarrow.parquet import ParquetFile

    return ParquetFile(path, page_checksum_verification=True).read()


def _count_rows(path: Path) -> int:
    if path.suffix == ".arrow":
        return int(_read_table(path).num_rows)
    from pyarrow.parquet import read_metadata

    return int(read_metadata(path).num_rows)


def _choose_columns(wanted: Columns, missing: Missing, where: str) -> Columns:
    """Return the columns to read, with actions if they are requested."""
    for field in wanted._replace(action=None).by_field:
        raise InvalidInputError(f"{field} cannot be named for {where} because its columns are known.", f"Drop {field}.")
    if wanted.action not in (None, _ACTION):
        raise InvalidInputError(
            f"action must be {_ACTION!r} for {where}, but is {wanted.action!r}.",
            f"Pass action={_ACTION!r}, or omit it.",
        )
    if missing == "indicator":
        raise InvalidInputError(
            f"missing must be 'error' or 'drop' for {where}, but is {missing!r}.",
            "Pass one of these: missing values can be filled in only in columns of tables.",
        )
    return _COLUMNS._replace(action=wanted.action)
