"""The door for files: paths, folders and patterns become parts of one log."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from glob import glob, has_magic
from pathlib import Path

from vrtd.checks import check_choice
from vrtd.errors import DataError, InvalidInputError
from vrtd.files import check_regular
from vrtd.logs.columns import Wanted
from vrtd.logs.csv import CsvPart
from vrtd.logs.hdf5 import hdf5_part
from vrtd.logs.log import Log
from vrtd.logs.minari import from_minari, is_minari
from vrtd.logs.npz import NpzPart
from vrtd.logs.parquet import ParquetPart
from vrtd.logs.parts import FilePart, PartsLog

PathLike = str | os.PathLike[str]

#: Suffix -> format
_SUFFIXES = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".npz": "npz", ".hdf5": "hdf5", ".h5": "hdf5"}
_PARTS: dict[str, Callable[[Path, Wanted], FilePart]] = {
    "parquet": ParquetPart,
    "csv": CsvPart,
    "npz": NpzPart,
    "hdf5": hdf5_part,
}
FORMATS = (*_PARTS, "minari")


def read(
    paths: PathLike | Sequence[PathLike],
    *,
    observations: str | Sequence[str] | None = None,
    next_observations: str | Sequence[str] | None = None,
    reward: str | None = None,
    terminated: str | None = None,
    truncated: str | None = None,
    weight: str | None = None,
    episode: str | None = None,
    format: str | None = None,  # noqa: A002 - what it is called everywhere
) -> Log:
    """A log from files: Parquet, CSV, npz or HDF5 by their suffix, or a Minari data set.

    `paths` is a file, a folder (all files of one format in it, and in its folders), a pattern such as 'logs/*.parquet',
    or a list of these; files are read in the order of their names, a list in its own. Columns are names, patterns
    ('x_*') or lists of names; those that are not named are found by convention. `format` decides where suffixes do not.
    """
    if format is not None:
        check_choice("format", format, FORMATS)
    wanted = Wanted(observations, next_observations, reward, terminated, truncated, weight, episode)
    several = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not several or not all(isinstance(path, str | os.PathLike) for path in several):
        raise InvalidInputError(
            "paths must be a path, a pattern or a list of them", repr(paths), "name at least one file"
        )
    if format == "minari" or (format is None and len(several) == 1 and is_minari(Path(several[0]))):
        return _minari(several, wanted)
    files = [file for path in several for file in _files(os.fspath(path), format)]
    for file in files:
        check_regular(file)
    kinds = Counter(format or _format_of(file) for file in files)
    if len(kinds) > 1:
        raise DataError("the parts of a log must be of one format", _counted(kinds), "pass format=, or fewer files")
    return _log(files, next(iter(kinds)), wanted)


def _log(files: Sequence[Path], kind: str, wanted: Wanted) -> Log:
    parts = [_PARTS[kind](file, wanted) for file in files]
    first = parts[0]
    for other in parts[1:]:
        if (other.columns, other.kinds) != (first.columns, first.kinds):
            raise DataError(
                "all parts of a log must have the same columns",
                _difference(first.kinds, other.kinds, first.where, other.where),
                "convert the parts, or read them apart",
            )
    return PartsLog(parts, in_thread=kind != "parquet")  # which reads ahead by itself


def _difference(one: dict[str, str], other: dict[str, str], where: str, other_where: str) -> str:
    for name in [*one, *other]:
        if one.get(name) != other.get(name):
            kinds = [f"{kinds[name]} {name!r}" if name in kinds else f"no {name!r}" for kinds in (one, other)]
            return f"{kinds[0]} in {where} and {kinds[1]} in {other_where}"
    return f"the columns {', '.join(one)} in another order in {other_where} than in {where}"


def _files(path: str, kind: str | None) -> list[Path]:
    place = Path(path)
    if place.is_dir():
        return _inside(place, kind)
    if place.exists() or not has_magic(path):
        if not place.exists():
            raise DataError(f"{path} must be there", "no such file or folder", "check the path")
        return [place]
    matches = [Path(match) for match in sorted(glob(path, recursive=True))]
    files = [match for match in matches if match.exists() and not match.is_dir()]
    if not files:
        raise DataError(f"the pattern {path} must match a file", "none", "check it, and the folder it starts from")
    return files


def _inside(folder: Path, kind: str | None) -> list[Path]:
    """The files of one format; what begins with . or _ is bookkeeping of whoever wrote the folder."""
    found: dict[str, list[Path]] = {}
    for file in sorted(folder.rglob("*")):
        hidden = any(part.startswith((".", "_")) for part in file.relative_to(folder).parts)
        if not hidden and file.suffix.lower() in _SUFFIXES and file.exists() and not file.is_dir():
            found.setdefault(_SUFFIXES[file.suffix.lower()], []).append(file)
    if kind is not None and kind in found:
        return found[kind]
    if len(found) != 1:
        held = _counted(Counter({name: len(files) for name, files in found.items()})) or "none"
        raise DataError(
            f"{folder} must hold files of one format ({', '.join(_SUFFIXES)})", held, "pass format=, or name the files"
        )
    return next(iter(found.values()))


def _format_of(file: Path) -> str:
    kind = _SUFFIXES.get(file.suffix.lower())
    if kind is None:
        raise DataError(
            f"the suffix of {file} must be one of {', '.join(_SUFFIXES)}",
            repr(file.suffix),
            "rename it or pass format=",
        )
    return kind


def _counted(kinds: Counter[str]) -> str:
    return ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items()))


def _minari(paths: Iterable[PathLike], wanted: Wanted) -> Log:
    named = [field for field, name in wanted._asdict().items() if name is not None]
    several = list(paths)
    if named or len(several) != 1:
        what = f"{named[0]} named" if named else f"{len(several)} paths"
        raise InvalidInputError(
            "a Minari data set must be read alone, its columns are known", what, "pass its path only"
        )
    return from_minari(several[0])
