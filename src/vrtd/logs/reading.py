"""Logs from files and tables: paths, folders and patterns become parts of one log."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from glob import glob, has_magic
from pathlib import Path
from typing import Any, TypedDict, get_args

from vrtd.checks import check_choice, find_nearest
from vrtd.errors import DataError, InvalidInputError
from vrtd.features import ObservationSpace
from vrtd.files import check_regular
from vrtd.logs.arrays import hdf5_part, npz_part
from vrtd.logs.arrow import CsvPart, ParquetPart, TablePart
from vrtd.logs.arrow_values import ArrowStream
from vrtd.logs.columns import Columns, EpisodeEnd, Missing, check_episode_end
from vrtd.logs.episodes import MinariPart, find_data_folder
from vrtd.logs.log import Chunk, Log
from vrtd.logs.parts import Part, PartsLog
from vrtd.tables import library

PathLike = str | os.PathLike[str]

#: Suffix -> format
_SUFFIXES = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".npz": "npz", ".hdf5": "hdf5", ".h5": "hdf5"}
_PARTS: dict[str, Callable[[Path, Columns, Missing], Part]] = {
    "parquet": ParquetPart,
    "csv": CsvPart,
    "npz": npz_part,
    "hdf5": hdf5_part,
    "minari": MinariPart,
}


class ReadOptions(TypedDict, total=False):
    """The keywords of `read`, for functions that pass them on."""

    observations: str | Sequence[str] | None
    next_observations: str | Sequence[str] | None
    reward: str | None
    terminated: str | None
    truncated: str | None
    weight: str | None
    action: str | Sequence[str] | None
    propensity: str | None
    episode: str | Sequence[str] | None
    order_by: str | Sequence[str] | None
    episode_end: EpisodeEnd | None
    missing: Missing
    format: str | None


def read(
    data: PathLike | Iterable[PathLike] | ArrowStream,
    *,
    observations: str | Sequence[str] | None = None,
    next_observations: str | Sequence[str] | None = None,
    reward: str | None = None,
    terminated: str | None = None,
    truncated: str | None = None,
    weight: str | None = None,
    action: str | Sequence[str] | None = None,
    propensity: str | None = None,
    episode: str | Sequence[str] | None = None,
    order_by: str | Sequence[str] | None = None,
    episode_end: EpisodeEnd | None = None,
    missing: Missing = "error",
    format: str | None = None,  # noqa: A002 - what it is called everywhere
    space: ObservationSpace | None = None,
) -> Log:
    """Make a log of files or of a table.

    Parameters
    ----------
    data : path, sequence of paths, or table
        Parquet, CSV, npz or HDF5 files by their suffix: a file, a folder (all files of one format in it, and in its
        folders), a pattern such as 'logs/*.parquet', the folder of a Minari data set, or a list of these. Files are
        read in the order of their names, a list in its own. Or a table that speaks the Arrow C stream: of polars,
        pandas, DuckDB or pyarrow. A RecordBatchReader can be read once; everything else as often as wanted.
    observations, next_observations : str or sequence of str, optional
        Columns: a name, a pattern ('x_*') or a list of names. Columns that are not named are found by convention.
    reward, terminated, truncated : str, optional
        One column each.
    weight : str, optional
        The column of importance ratios. Without it all rows have weight 1, whatever columns there are.
    action : str or sequence of str, optional
        The column of actions. Discrete ones are whole numbers 0, 1, ... or words, continuous ones floats or vectors.
        Several columns, a list or a pattern, make a vector. Words are sorted and numbered; the first 5,000 rows must
        show all of them. Without it the log has no actions, whatever columns there are.
    propensity : str, optional
        The column of the probabilities with which the actions were chosen, or densities of continuous ones. Without it
        the log has none.
    episode : str or sequence of str, optional
        Columns that change where another episode begins. 'file' stands for the file that a row comes from, where no
        column has this name.
    order_by : str or sequence of str, optional
        Columns that say in which order the rows of an episode were recorded, such as a time or a step. Rows are sorted
        by episode, these columns, file and row, in a temporary file that is made at the first reading and removed with
        the log. Without an episode column all rows are one trajectory. Needs DuckDB. None: rows are in order.
    episode_end : {'terminated', 'truncated', 'drop'}, optional
        What the last row of an episode is where no flag tells. 'terminated': it is kept, and nothing is bootstrapped.
        'truncated': it is kept where its successor was recorded and is not null; elsewhere it is only the successor of
        the row before. 'drop': it is left out. None is 'truncated'. Many rows that are lost are a warning, but for
        'drop'.
    missing : {'error', 'drop', 'indicator'}
        What is done where a value is missing (null or NaN). 'drop' leaves out the rows that need it; the rows around
        them are not joined. 'indicator' puts the mean of the first 5,000 rows in the place of a missing number of an
        observation, and adds a number that is 1 there and 0 elsewhere; a missing category counts as 'other'.
    format : str, optional
        Decides where suffixes do not: 'parquet', 'csv', 'npz', 'hdf5' or 'minari'.
    space : ObservationSpace, optional
        `Log.space` of an earlier log: categories, words of actions and missing values become the same numbers as there.
        Default: what the first 5,000 rows show.

    Returns
    -------
    Log
        The transitions, in the order in which they were recorded.
    """
    if format is not None:
        check_choice("format", format, _PARTS)
    check_episode_end(episode_end)
    check_choice("missing", missing, get_args(Missing))
    wanted = Columns(observations, reward, next_observations, terminated, truncated, weight, episode, order_by)
    wanted = wanted._replace(action=action, propensity=propensity)
    if isinstance(data, ArrowStream):
        return PartsLog([TablePart(data, wanted, missing)], in_thread=False, episode_end=episode_end, space=space)
    paths = list(data) if isinstance(data, Iterable) and not isinstance(data, str) else [data]
    if not paths or not all(isinstance(path, str | os.PathLike) for path in paths):
        raise InvalidInputError(
            "data must be a path, a pattern, a list of them, or a table with the Arrow C stream (__arrow_c_stream__)",
            f"{type(data).__name__} {' '.join(repr(data).split()):.60}",
            "name files, or pass a table of polars, pandas >= 2.2, DuckDB or pyarrow; arrays go to from_arrays",
        )
    files = [file for path in paths for file in _find_files(os.fspath(path), format)]
    for file in files:
        check_regular(file)
    kinds = Counter(format or _format_of(file) for file in files)
    if len(kinds) > 1:
        raise DataError("the parts of a log must be of one format", _count(kinds), "pass format=, or fewer files")
    (kind,) = kinds
    parts = [_PARTS[kind](file, wanted, missing) for file in files]
    for part in parts[1:]:
        _check_same_columns(parts[0], part)
    CsvPart.share_order([part for part in parts if isinstance(part, CsvPart)])
    in_thread = kind != "parquet"  # which reads ahead by itself
    return PartsLog(parts, in_thread, episode_end, space)


def _check_same_columns(one: Part, other: Part) -> None:
    """Raise unless the parts have the same columns of the same types. The names decide what each of them holds."""
    for name in [*one.kinds, *other.kinds]:
        words = [part.kinds[name].words if name in part.kinds else "no" for part in (one, other)]
        if words[0] != words[1]:
            kinds = [f"{word} {name!r}" for word in words]
            what = f"{kinds[0]} in {one.where} and {kinds[1]} in {other.where}"
            do = "convert the parts, or read them apart"
            raise DataError("all parts of a log must have the same columns", what, do)


def _find_files(path: str, kind: str | None) -> list[Path]:
    place = Path(path)
    if (kind == "minari" and place.exists()) or (kind is None and find_data_folder(place) is not None):
        return [place]
    if place.is_dir():
        return _find_inside(place, kind)
    if place.exists():
        return [place]
    if not has_magic(path):
        is_word = not place.suffix and os.sep not in path
        of_env = " (vrtd.logs.from_env makes a log of an environment)" if is_word else ""
        raise DataError(f"{path} must be there", "no such file or folder", f"check the path{of_env}")
    files = [Path(match) for match in sorted(glob(path, recursive=True)) if _is_file(Path(match))]
    if not files:
        raise DataError(f"the pattern {path} must match a file", "none", "check it, and the folder it starts from")
    return files


def _find_inside(folder: Path, kind: str | None) -> list[Path]:
    """Return the files of one format; what begins with . or _ is bookkeeping of whoever wrote the folder."""
    files = []
    for file in sorted(folder.rglob("*")):
        is_hidden = any(part.startswith((".", "_")) for part in file.relative_to(folder).parts)
        if not is_hidden and file.suffix.lower() in _SUFFIXES and _is_file(file):
            files.append(file)
    kinds = Counter(map(_format_of, files))
    if kind not in kinds:
        if len(kinds) != 1:
            must = f"{folder} must hold files of one format ({', '.join(_SUFFIXES)})"
            raise DataError(must, _count(kinds) or "none", "pass format=, or name the files")
        (kind,) = kinds
    return [file for file in files if _format_of(file) == kind]


def _is_file(path: Path) -> bool:
    return path.exists() and not path.is_dir()


def _format_of(file: Path) -> str:
    if file.is_dir():
        return "minari"
    suffix = file.suffix.lower()
    if suffix not in _SUFFIXES:
        must = f"the suffix of {file} must be one of {', '.join(_SUFFIXES)}"
        raise DataError(must, repr(file.suffix), "rename it or pass format=")
    return _SUFFIXES[suffix]


def _count(kinds: Counter[str]) -> str:
    return ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items()))


def check_options(columns: Mapping[str, Any], others: Collection[str] = ()) -> None:
    """Raise if a keyword is none of `ReadOptions`; suggest one of them, or of the `others` that the caller has."""
    for name in columns:
        if name not in ReadOptions.__annotations__:
            near = find_nearest(name, (*ReadOptions.__annotations__, *others))
            do = "see vrtd.logs.read" if near is None else f"did you mean {near!r}?"
            raise InvalidInputError("keywords must be arguments of this function", repr(name), do)


def as_log(data: Any, columns: ReadOptions, space: ObservationSpace | None = None) -> Log | Chunk:
    """Return a log or a chunk as it is, and make a log of a table, arrays by name or files with these columns and this
    space."""
    check_options(columns)
    if isinstance(data, Mapping):
        try:
            data = library().table(dict(data))
        except (TypeError, ValueError) as error:  # single numbers, columns of different lengths, vectors
            must = "a dict of data must hold columns of the same length, with one number or word in each row"
            raise DataError(must, error, "repair it; arrays of vectors go to vrtd.logs.from_arrays") from None
    if isinstance(data, str) and not is_file_name(data) and not os.path.lexists(data):
        do = "check the path; an environment goes to vrtd.logs.from_env, or to vrtd.evaluate"
        raise DataError(f"{data} must be there", "no such file or folder", do)
    if not isinstance(data, Log | Chunk):
        return read(data, **columns, space=space)
    for name in columns:
        kind = type(data).__name__
        raise InvalidInputError(f"{name} is for tables and files", f"a {kind}", f"drop {name}")
    return data


def describe_start(columns: ReadOptions) -> str:
    """Return what a progress bar says until the first rows come."""
    return "starting" if columns.get("order_by") is None else "sorting the rows"


def is_file_name(text: str) -> bool:
    """Return whether text names files: it has the suffix of one, is a pattern, or is a path with folders that exists.

    A single word may be the id of an environment, even if a folder has this name.
    """
    return Path(text).suffix.lower() in _SUFFIXES or has_magic(text) or (os.sep in text and os.path.lexists(text))
