"""Logs from named arrays with one entry per row: in memory, and streamed from npz and HDF5 files."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from copy import copy
from math import prod
from pathlib import Path
from typing import IO, Any, Literal
from zipfile import ZipFile

import numpy as np
from numpy.lib import format as npy
from numpy.typing import ArrayLike, NDArray

from vrtd.arrays import check_unmasked
from vrtd.errors import DataError
from vrtd.features import ObservationSpace
from vrtd.files import check_declared, translate_errors
from vrtd.logs.arrow_values import TEXT, ColumnType
from vrtd.logs.blocks import Block, Piece, make_block, rows_per_block
from vrtd.logs.column_parts import ColumnPart
from vrtd.logs.columns import ANY_KIND, KEYS, VECTORS, Columns, EpisodeEnd, Missing, check_episode_end, find_columns
from vrtd.logs.encoding import Encoder, Values
from vrtd.logs.episodes import D3rlpyPart
from vrtd.logs.hdf5 import HDF5_UNVERIFIED, StoredArray, check_dataset, hdf5_library, open_hdf5
from vrtd.logs.log import Chunk, Log
from vrtd.logs.part import Part
from vrtd.logs.parts import PartsLog
from vrtd.logs.stored_space import SPACE_KEY, unpack_space
from vrtd.sparse import is_scipy_sparse
from vrtd.tables import library

OpenFile = Callable[[Path], AbstractContextManager[Mapping[str, StoredArray]]]


def from_arrays(
    observations: ArrayLike,
    reward: ArrayLike,
    next_observations: ArrayLike | None = None,
    terminated: ArrayLike | None = None,
    truncated: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    episode: ArrayLike | None = None,
    *,
    action: ArrayLike | None = None,
    propensity: ArrayLike | None = None,
    episode_end: EpisodeEnd | None = None,
) -> Log:
    """Create a log from NumPy arrays with one entry per step.

    Parameters
    ----------
    observations : array_like of shape (n,) or (n, ...), or sparse matrix
        Observations. C-contiguous arrays of float32, float64 or integers are not copied: do not change them while the
        log is in use. A sparse matrix or array of SciPy has one row per step, whose numbers are features.
    reward : array_like of shape (n,)
        Reward that follows each observation.
    next_observations : array_like, optional
        Next observations, of the shape of ``observations``. If omitted, row i + 1 is the successor of row i within an
        episode, and rows without a successor are dropped.
    terminated : array_like of shape (n,), optional
        Whether each row ends its episode for good, as booleans or as 0 and 1. Such a row does not bootstrap.
    truncated : array_like of shape (n,), optional
        Whether the episode stops after the row without termination, e.g. by a time limit.
    weight : array_like of shape (n,), optional
        Importance ratios. All rows have weight 1 if omitted.
    episode : array_like of shape (n,), optional
        Names or numbers of the episodes. An episode ends where they change.
    action : array_like of shape (n,) or (n, k), optional
        Actions: whole numbers from 0 on, floats or vectors of floats.
    propensity : array_like of shape (n,), optional
        Probability with which each action was chosen, or its density if actions are continuous.
    episode_end : {'terminated', 'truncated', 'drop'}, optional
        Treatment of the last row of an episode that no flag marks. 'terminated' keeps it without bootstrapping.
        'truncated' keeps it if its next observation was recorded, and drops it otherwise. 'drop' drops it. None is the
        same as 'truncated'.

    Returns
    -------
    Log
        The transitions in the order of the arrays.

    Raises
    ------
    DataError
        If the arrays have different lengths or wrong types, or if no row has a successor.

    Examples
    --------
    >>> from vrtd.logs import from_arrays
    >>> log = from_arrays([[0.0], [1.0], [2.0]], reward=[1.0, 2.0, 3.0])
    >>> [chunk.next_observations.tolist() for chunk in log.chunks()], log.remarks
    ([[[1.0], [2.0]]], ('1 row dropped: the last of the log',))
    """
    check_episode_end(episode_end)
    values = (observations, reward, next_observations, terminated, truncated, weight, action, propensity, episode)
    for name, value in (("observations", observations), ("reward", reward)):
        if value is None:
            raise DataError(f"{name} must be an array with one entry per step, but is None.", f"Pass {name}.")
    named = zip((*Chunk._fields[:8], "episode"), values, strict=True)
    part = _MemoryPart({name: value for name, value in named if value is not None})
    return PartsLog([part], in_thread=False, episode_end=episode_end)


class _MemoryPart(Part):
    where = "the arrays"
    has_names = False
    is_in_memory = True

    def __init__(self, values: Mapping[str, ArrayLike]) -> None:
        arrays: dict[str, Any] = {}
        for name, value in values.items():
            if is_scipy_sparse(value) and name in VECTORS:
                arrays[name] = value
                continue
            check_unmasked(name, value)
            try:
                array = np.asarray(value)
            except (TypeError, ValueError) as error:
                raise DataError(
                    f"{name} cannot be converted to an array: {str(error).rstrip('.')}.", "Pass rows of equal length."
                ) from None
            if array.ndim == 0:
                raise DataError(f"{name} must have one entry per row, but is a single {array.dtype}.", "Pass an array.")
            arrays[name] = array
        names: dict[str, Any] = {name: name for name in arrays}
        self.columns = Columns(**names)
        self.n_rows = arrays["observations"].shape[0]
        self._block = make_block(arrays, Piece("", self.columns.by_field, 0, self.n_rows), Encoder())
        observations = self._block.observations
        if observations.ndim > 1:
            self.space = ObservationSpace("features")
        else:
            self.space = ObservationSpace("states" if observations.dtype.kind in "iu" else "columns")

    def blocks(self, encoder: Encoder) -> Generator[Block, None, None]:  # noqa: ARG002
        yield self._block

    def divide(self, first: int, least: int) -> list[Part]:
        pieces: list[Part] = []
        for start in [0, *range(first, self._block.reward.size, least)]:
            piece = copy(self)
            piece._block = self._block.rows_from(start).first_rows(least if start else first)
            piece.n_rows = piece._block.reward.size
            pieces.append(piece)
        return pieces


def npz_part(path: Path, wanted: Columns, missing: Missing) -> Part:
    """Return the part for an npz file."""
    return _StoredPart(path, wanted, missing, _open_npz, None)


def hdf5_part(path: Path, wanted: Columns, missing: Missing) -> Part:
    """Return the part for an HDF5 file with one array per column, as in D4RL, or one per episode, as in d3rlpy."""
    with translate_errors(str(path)), open_hdf5(path) as file:
        is_by_episode = "num_episodes" in file and "observations_0" in file
    if is_by_episode:
        return D3rlpyPart(path, wanted, missing)
    return _StoredPart(path, wanted, missing, _open_hdf5, HDF5_UNVERIFIED)


class _StoredPart(ColumnPart):
    """File of arrays that are read together, a block of rows at a time."""

    n_rows: int

    def __init__(
        self, path: Path, wanted: Columns, missing: Missing, open_file: OpenFile, unverified: str | None
    ) -> None:
        self.where, self.unverified, self.missing = str(path), unverified, missing
        self._path, self._open = path, open_file
        with translate_errors(self.where), open_file(path) as arrays:
            stored = arrays.get(SPACE_KEY)
            self.columns = find_columns([name for name in arrays if name != SPACE_KEY], wanted, self.where)
            names = self.columns.all
            self.n_rows = (arrays[names[0]].shape or (0,))[0]
            self.kinds = self._find_types(arrays)
            for name in names:
                shape = arrays[name].shape
                if shape[0] != self.n_rows:
                    raise DataError(
                        f"The columns of {path} must have the same length, but {name} has {shape[0]} entries "
                        f"and {names[0]} has {self.n_rows}.",
                        "Write arrays of equal length.",
                    )
            content = None if stored is None else stored[0 : stored.shape[0]].tobytes()
            self.space = unpack_space(content, self.columns, self.kinds, missing, self.where)
            row_bytes = sum(np.dtype((arrays[name].dtype, arrays[name].shape[1:])).itemsize for name in names)
        self._step = rows_per_block(row_bytes)

    def _find_types(self, arrays: Mapping[str, StoredArray]) -> dict[str, ColumnType]:
        """Return the types of the columns. Text is allowed in observations, actions and the names of episodes."""
        found: dict[str, ColumnType] = {}
        for field, names in self.columns.by_field.items():
            for name in names:
                dtype, shape = arrays[name].dtype, arrays[name].shape
                may_be_text = field in ANY_KIND and len(shape) == 1
                if may_be_text and _is_text(dtype):
                    found[name] = TEXT
                elif shape and dtype.kind in ("biufUSmM" if field in KEYS else "biuf"):
                    words = "text" if dtype.kind in "US" else f"{dtype} {shape[1:]}"
                    found.setdefault(name, ColumnType(words, False, dtype.kind in "iu", shape[1:]))
                else:
                    raise DataError(
                        f"{self.where}, column {name}, must hold numbers, one entry per row, "
                        f"but has dtype {dtype} and shape {shape}.",
                        "Convert the column.",
                    )
        return found

    def rows(self) -> Generator[tuple[Piece, Values], None, None]:
        with translate_errors(self.where), self._open(self._path) as arrays:
            for start in range(0, self.n_rows, self._step):
                stop = min(self.n_rows, start + self._step)
                rows = {name: arrays[name][start:stop] for name in self.kinds}
                rows |= {name: _to_text(rows[name]) for name, kind in self.kinds.items() if kind.is_category}
                yield Piece(self.where, self.columns.by_field, start, stop - start), rows


def _is_text(dtype: np.dtype[Any]) -> bool:
    """Return whether entries are text, of NumPy or, with variable length, of h5py."""
    metadata: Mapping[str, Any] = dtype.metadata or {}
    return dtype.kind in "US" or metadata.get("vlen") in (str, bytes)


def _to_text(entries: NDArray[Any]) -> Any:
    pyarrow = library()
    return pyarrow.array(entries).cast(pyarrow.string())


@contextmanager
def _open_hdf5(path: Path) -> Iterator[Mapping[str, StoredArray]]:
    """Open the arrays at the top level of the file."""
    with open_hdf5(path) as file:
        if not all(isinstance(name, str) for name in file):
            raise DataError(f"{path} is damaged: it has names that are not text.", "Write the file again.")
        arrays = {name: item for name, item in file.items() if isinstance(item, hdf5_library().Dataset)}
        for name, array in arrays.items():
            check_dataset(array, f"{path}, column {name},")
        yield arrays


@contextmanager
def _open_npz(path: Path) -> Iterator[Mapping[str, StoredArray]]:
    """Open all members, so that a damaged name is detected."""
    with ExitStack() as stack:
        archive = stack.enter_context(ZipFile(path))
        names = archive.namelist()
        files = {name: stack.enter_context(archive.open(name)) for name in names}
        # A damaged directory can hide members. The end record of the archive, before its comment, holds their number,
        # or 0xFFFF if it is stored elsewhere: for more members than that, and for archives beyond 4 GiB.
        with path.open("rb") as file:
            file.seek(-22 - len(archive.comment), 2)
            n_members = int.from_bytes(file.read(12)[10:], "little")
        if n_members not in (len(names), 0xFFFF):
            raise DataError(
                f"{path} is damaged: it lists {len(names)} members, but should have {n_members}.",
                "Write the file again.",
            )
        yield {
            name[:-4]: _Member(file, f"{path}, column {name[:-4]},", path.stat().st_size)
            for name, file in files.items()
            if name.endswith(".npy")
        }


class _Member:
    """Array of an npz file, whose rows are requested in order.

    The array is streamed unless it is stored in Fortran order. Its checksum is verified with its last row.
    """

    def __init__(self, file: IO[bytes], where: str, n_stored: int) -> None:
        self._file, self._where, self._n_stored = file, where, n_stored
        self._whole: NDArray[Any] | None = None
        read = npy.read_array_header_1_0 if npy.read_magic(file) == (1, 0) else npy.read_array_header_2_0
        self.shape, self._is_by_columns, self.dtype = read(file)
        if self.dtype.hasobject:  # a pickle: an error only if the column is needed
            self.shape, self.dtype = (), np.dtype(np.object_)

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        if self._is_by_columns and len(self.shape) > 1:
            if self._whole is None:
                self._whole = self._read(self.shape, "F")
            array = self._whole[rows]
        else:
            array = self._read((rows.stop - rows.start, *self.shape[1:]), "C")
        if rows.stop == self.shape[0] and self._file.read(1):  # the archive verifies the checksum here
            raise DataError(f"{self._where} is damaged: it has bytes after its last row.", "Write the file again.")
        return array

    def _read(self, shape: tuple[int, ...], order: Literal["C", "F"]) -> NDArray[Any]:
        check_declared(self._where, prod(shape) * self.dtype.itemsize, self._n_stored)
        array = np.empty(shape, self.dtype, order=order)
        flat = array.reshape(-1, order="A").view(np.uint8).data
        filled = 0
        while filled < len(flat):
            n = self._file.readinto(flat[filled : filled + 2**24])  # type: ignore[attr-defined]
            if not n:
                raise DataError(f"{self._where} is damaged: it ends too early.", "Write the file again.")
            filled += n
        return array
