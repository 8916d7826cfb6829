"""Arrays by name, one entry a row: in memory, in npz files and in HDF5 files, which are read as a stream."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, Literal
from zipfile import ZipFile

import numpy as np
from numpy.lib import format as npy
from numpy.typing import ArrayLike, NDArray

from vrtd.errors import DataError
from vrtd.features import ObservationSpace
from vrtd.files import translate_errors
from vrtd.logs.arrow_values import TEXT, ColumnType
from vrtd.logs.blocks import Block, Piece, make_block, rows_per_block
from vrtd.logs.column_parts import ColumnPart
from vrtd.logs.columns import ANY_KIND, KEYS, Columns, EpisodeEnd, Missing, check_episode_end, find_columns
from vrtd.logs.encoding import Encoder, Values
from vrtd.logs.episodes import HDF5_UNVERIFIED, D3rlpyPart, StoredArray, hdf5_library
from vrtd.logs.log import Chunk, Log
from vrtd.logs.parts import Part, PartsLog
from vrtd.logs.stored_space import SPACE_KEY, unpack_space
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
    """Make a log of NumPy arrays with one entry per step.

    Without `next_observations` row i + 1 follows row i within an episode; see `vrtd.logs.pairing`. C-contiguous
    observations in float32, float64 or integers are handed on as they are, without a copy: leave them alone while the
    log is in use. `action` holds whole numbers 0, 1, ..., or floats, one or a vector for each row. `propensity` holds
    the probability with which each action was chosen. `episode_end` says what the last row of an episode is where no
    flag tells, as for `vrtd.logs.read`.

    >>> log = from_arrays([[0.0], [1.0], [2.0]], reward=[1.0, 2.0, 3.0])
    >>> [chunk.next_observations.tolist() for chunk in log.chunks()], log.remarks
    ([[[1.0], [2.0]]], ('1 row dropped: the last of the log',))
    """
    check_episode_end(episode_end)
    values = (observations, reward, next_observations, terminated, truncated, weight, action, propensity, episode)
    named = zip((*Chunk._fields[:8], "episode"), values, strict=True)
    part = _MemoryPart({name: value for name, value in named if value is not None})
    return PartsLog([part], in_thread=False, episode_end=episode_end)


class _MemoryPart(Part):
    where = "the arrays"
    has_names = False

    def __init__(self, values: Mapping[str, ArrayLike]) -> None:
        arrays = {}
        for name, value in values.items():
            try:
                array = np.asarray(value)
            except (TypeError, ValueError) as error:
                raise DataError(f"{name} must be an array", error, "pass rows of one length") from None
            if array.ndim == 0:
                raise DataError(f"{name} must have one entry a row", f"{array.dtype} without rows", "pass an array")
            arrays[name] = array
        names: dict[str, Any] = {name: name for name in arrays}
        self.columns = Columns(**names)
        self.n_rows = len(arrays["observations"])
        self._block = make_block(arrays, Piece("", self.columns.by_field, 0, self.n_rows), Encoder())
        observations = self._block.observations
        if observations.ndim > 1:
            self.space = ObservationSpace("features")
        else:
            self.space = ObservationSpace("states" if observations.dtype.kind in "iu" else "columns")

    def blocks(self, encoder: Encoder) -> Generator[Block, None, None]:  # noqa: ARG002
        yield self._block


def npz_part(path: Path, wanted: Columns, missing: Missing) -> Part:
    return _StoredPart(path, wanted, missing, _open_npz, None)


def hdf5_part(path: Path, wanted: Columns, missing: Missing) -> Part:
    """Read an HDF5 file with one array per column, as D4RL keeps its data, or with one per episode, as d3rlpy does."""
    with translate_errors(str(path)), hdf5_library().File(path, "r") as file:
        is_by_episode = "num_episodes" in file and "observations_0" in file
    if is_by_episode:
        return D3rlpyPart(path, wanted, missing)
    return _StoredPart(path, wanted, missing, _open_hdf5, HDF5_UNVERIFIED)


class _StoredPart(ColumnPart):
    """A file of arrays, which are read in step, some rows of each at a time."""

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
                    must = f"the columns of {path} must have one entry a row"
                    what = f"{shape[0]} entries of {name} and {self.n_rows} of {names[0]}"
                    raise DataError(must, what, "write arrays of one length")
            content = None if stored is None else stored[0 : stored.shape[0]].tobytes()
            self.space = unpack_space(content, self.columns, self.kinds, missing, self.where)
            row_bytes = sum(np.dtype((arrays[name].dtype, arrays[name].shape[1:])).itemsize for name in names)
        self._step = rows_per_block(row_bytes)

    def _find_types(self, arrays: Mapping[str, StoredArray]) -> dict[str, ColumnType]:
        """Return what the columns hold; text may be a category of the observations or actions, or name episodes."""
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
                    must = f"{self.where}, column {name}, must hold numbers, one entry a row"
                    raise DataError(must, f"dtype {dtype}, shape {shape}", "convert it first")
        return found

    def rows(self) -> Generator[tuple[Piece, Values], None, None]:
        with translate_errors(self.where), self._open(self._path) as arrays:
            for start in range(0, self.n_rows, self._step):
                stop = min(self.n_rows, start + self._step)
                rows = {name: arrays[name][start:stop] for name in self.kinds}
                rows |= {name: _to_text(rows[name]) for name, kind in self.kinds.items() if kind.is_category}
                yield Piece(self.where, self.columns.by_field, start, stop - start), rows


def _is_text(dtype: np.dtype[Any]) -> bool:
    """Return whether entries are text: of NumPy, or of any length as h5py describes it."""
    metadata: Mapping[str, Any] = dtype.metadata or {}
    return dtype.kind in "US" or metadata.get("vlen") in (str, bytes)


def _to_text(entries: NDArray[Any]) -> Any:
    pyarrow = library()
    return pyarrow.array(entries).cast(pyarrow.string())


@contextmanager
def _open_hdf5(path: Path) -> Iterator[Mapping[str, StoredArray]]:
    """Open the arrays at the top of the file."""
    h5py = hdf5_library()
    with h5py.File(path, "r") as file:
        if not all(isinstance(name, str) for name in file):
            raise DataError(f"the names in {path} must be text", "bytes", "the file is damaged: write it again")
        yield {name: item for name, item in file.items() if isinstance(item, h5py.Dataset)}


@contextmanager
def _open_npz(path: Path) -> Iterator[Mapping[str, StoredArray]]:
    """Open all members, so that a damaged name is noticed."""
    with ExitStack() as stack:
        archive = stack.enter_context(ZipFile(path))
        names = archive.namelist()
        files = {name: stack.enter_context(archive.open(name)) for name in names}
        # A damaged list of members can hide some of them. The end of an archive, before a comment, says how many
        # there are, or 0xFFFF where another place does: for more than that, and for archives beyond 4 GiB.
        with path.open("rb") as file:
            file.seek(-22 - len(archive.comment), 2)
            n_members = int.from_bytes(file.read(12)[10:], "little")
        if n_members not in (len(names), 0xFFFF):
            what = f"{len(names)} for {n_members}"
            raise DataError(f"{path} must list all of its members", what, "the file is damaged: write it again")
        yield {
            name[:-4]: _Member(file, f"{path}, column {name[:-4]},")
            for name, file in files.items()
            if name.endswith(".npy")
        }


class _Member:
    """An array of an npz file, the rows of which are asked for in order.

    It is never in memory as a whole unless it is stored by columns. Its checksum is verified when its last row has been
    read.
    """

    def __init__(self, file: IO[bytes], where: str) -> None:
        self._file, self._where = file, where
        self._whole: NDArray[Any] | None = None
        read = npy.read_array_header_1_0 if npy.read_magic(file) == (1, 0) else npy.read_array_header_2_0
        self.shape, self._is_by_columns, self.dtype = read(file)
        if self.dtype.hasobject:  # a pickle, which is refused when the column is needed
            self.shape, self.dtype = (), np.dtype(np.object_)

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        if self._is_by_columns and len(self.shape) > 1:
            if self._whole is None:
                self._whole = self._read(self.shape, "F")
            array = self._whole[rows]
        else:
            array = self._read((rows.stop - rows.start, *self.shape[1:]), "C")
        if rows.stop == self.shape[0] and self._file.read(1):  # at the end the archive compares checksums
            must = f"{self._where} must end with its last row"
            raise DataError(must, "more bytes", "the file is damaged: write it again")
        return array

    def _read(self, shape: tuple[int, ...], order: Literal["C", "F"]) -> NDArray[Any]:
        array = np.empty(shape, self.dtype, order=order)
        flat = array.reshape(-1, order="A").view(np.uint8).data
        filled = 0
        while filled < len(flat):
            n = self._file.readinto(flat[filled : filled + 2**24])  # type: ignore[attr-defined]
            if not n:
                raise DataError(f"{self._where} must be whole", "a member that is cut short", "write the file again")
            filled += n
        return array
