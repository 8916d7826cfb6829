"""HDF5 files with one array a column, as D4RL keeps its data, and with one array an episode, as d3rlpy does."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrtd.errors import DataError, InvalidInputError, MissingExtraError
from vrtd.logs.blocks import Block, readable
from vrtd.logs.columns import Columns, Wanted
from vrtd.logs.episodes import Episode, episode_blocks
from vrtd.logs.named import Header, NamedPart
from vrtd.logs.parts import FilePart

_UNVERIFIED = "is HDF5 without checksums"


def library() -> Any:
    try:
        import h5py
    except ImportError:
        raise MissingExtraError("h5py", "minari") from None
    return h5py


def hdf5_part(path: Path, wanted: Wanted) -> FilePart:
    with readable(str(path)), library().File(path, "r") as file:
        by_episode = "num_episodes" in file and "observations_0" in file
    return _D3rlpyPart(path, wanted) if by_episode else _Hdf5Part(path, wanted)


class _Hdf5Part(NamedPart):
    """The arrays at the top of the file."""

    unverified = _UNVERIFIED

    def headers(self) -> Mapping[str, Header]:
        h5py = library()
        with h5py.File(self._path, "r") as file:
            if not all(isinstance(name, str) for name in file):
                raise DataError(
                    f"the names in {self.where} must be text", "bytes", "the file is damaged: write it again"
                )
            arrays = {name: item for name, item in file.items() if isinstance(item, h5py.Dataset)}
            return {name: Header(tuple(array.shape or ()), np.dtype(array.dtype)) for name, array in arrays.items()}

    @contextmanager
    def readers(self) -> Iterator[Mapping[str, Callable[[int, int], NDArray[Any]]]]:
        with library().File(self._path, "r") as file:
            yield {name: partial(_rows, file[name]) for name in self.columns.all}


def _rows(array: Any, start: int, stop: int) -> NDArray[Any]:
    rows: NDArray[Any] = array[start:stop]
    return rows


class _D3rlpyPart(FilePart):
    """observations_0, rewards_0, terminated_0 and so on. The final observation of an episode is not kept."""

    unverified = _UNVERIFIED
    columns = Columns("observations", "rewards", terminated="terminated")

    def __init__(self, path: Path, wanted: Wanted) -> None:
        self.where, self._path = str(path), path
        named = [field for field, name in wanted._asdict().items() if name is not None]
        if named:
            raise InvalidInputError(
                f"the columns of {path}, which d3rlpy wrote, are known", f"{named[0]} named", "omit it"
            )
        with readable(self.where), library().File(path, "r") as file:
            self._numbers = sorted(int(name[8:]) for name in file if re.fullmatch(r"rewards_\d+", name))
            if len(self._numbers) != int(file["num_episodes"][()]):
                what = f"{len(self._numbers)} for {file['num_episodes'][()]}"
                raise DataError(f"{path} must hold all of its episodes", what, "the file is damaged: write it again")
            self._n_rows = sum(int(file[f"rewards_{k}"].shape[0]) for k in self._numbers)
            first = file["observations_0"]
            self.kinds = {"observations": f"{first.dtype} {first.shape[1:]}"}

    @property
    def n_rows(self) -> int:
        return self._n_rows

    def blocks(self) -> Generator[Block, None, None]:
        yield from episode_blocks(self._episodes())

    def _episodes(self) -> Generator[Episode, None, None]:
        with readable(self.where), library().File(self._path, "r") as file:
            for k in self._numbers:
                rewards = file[f"rewards_{k}"]
                over, last = np.zeros(rewards.shape[0], dtype=np.bool_), bool(file[f"terminated_{k}"][()])
                over[-1:] = True
                observations = [(f"observations_{k}", file[f"observations_{k}"])]
                yield Episode(
                    f"{self.where}, episode {k}", observations, rewards, over & last, over & (not last), False
                )
