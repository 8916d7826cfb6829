"""Logs from tables and from files, folders and patterns of files."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from glob import glob, has_magic
from pathlib import Path
from typing import Any, TypedDict, TypeVar, get_args

from vrtd.checks import check_choice, find_nearest
from vrtd.errors import DataError, InvalidInputError
from vrtd.features import ObservationSpace
from vrtd.files import check_regular
from vrtd.logs.arrays import hdf5_part, npz_part
from vrtd.logs.arrow import CsvPart, ParquetPart, TablePart
from vrtd.logs.arrow_values import ArrowStream
from vrtd.logs.columns import Columns, EpisodeEnd, Missing, Text, check_episode_end
from vrtd.logs.episodes import MinariPart, find_data_folder
from vrtd.logs.log import Chunk, Log
from vrtd.logs.part import Part
from vrtd.logs.parts import PartsLog
from vrtd.logs.remote import RemoteFile, find_remote, hide_secrets, is_address, to_local
from vrtd.tables import library

PathLike = str | os.PathLike[str]
File = TypeVar("File", Path, RemoteFile)

#: Suffix -> format
_SUFFIXES = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".npz": "npz", ".hdf5": "hdf5", ".h5": "hdf5"}
_PARTS: dict[str, Callable[[Any, Columns, Missing], Part]] = {
    "parquet": ParquetPart,
    "csv": CsvPart,
    "npz": npz_part,
    "hdf5": hdf5_part,
    "minari": MinariPart,
}


class ReadOptions(TypedDict, total=False):
    """Keyword arguments of `read`, for functions that pass them on."""

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
    text: Text
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
    text: Text = "category",
    format: str | None = None,  # noqa: A002 - the usual name
    space: ObservationSpace | None = None,
) -> Log:
    """Create a log from files or from a table.

    Parameters
    ----------
    data : path, sequence of paths, or table
        Files or a table. Files may be Parquet, CSV, npz or HDF5, as their suffix says: a file, a folder (all files of
        one format in it and its subfolders), a pattern such as ``'logs/*.parquet'``, the folder of a Minari data set,
        or a list of these. A list is read in its order, the files of a folder or pattern in the order of their names.
        Parquet and CSV files may also have addresses such as ``'s3://bucket/logs/*.parquet'``, which Arrow or fsspec
        opens.
        A table must provide the Arrow C stream, as those of polars, pandas, DuckDB and pyarrow do. A
        RecordBatchReader can be read only once.
    observations : str or sequence of str, optional
        Columns of the observations. Pass a name, a pattern such as ``'x_*'`` or a list of names. If omitted, the usual
        names are tried, as for ``next_observations``, ``reward``, ``terminated``, ``truncated`` and ``episode``.
    next_observations : str or sequence of str, optional
        Columns of the next observations. Pass a name, a pattern or a list of names.
    reward : str, optional
        Column of rewards.
    terminated : str, optional
        Column of flags of rows that end their episode for good.
    truncated : str, optional
        Column of flags of rows after which the episode stops without termination.
    weight : str, optional
        Column of importance ratios. It is never guessed: if omitted, all rows have weight 1.
    action : str or sequence of str, optional
        Column of actions. Discrete actions are whole numbers from 0 on, or words; continuous actions are floats or
        vectors. Several columns form a vector. Words are sorted and numbered, and the first 5,000 rows must contain
        all of them. The column is never guessed: if omitted, the log has no actions.
    propensity : str, optional
        Column of the probabilities with which the actions were chosen. For continuous actions, these are densities.
        The column is never guessed.
    episode : str or sequence of str, optional
        Columns that change where a new episode begins. The name ``'file'`` stands for the file of a row, unless a
        column has this name.
    order_by : str or sequence of str, optional
        Columns that give the order of the rows of an episode, such as a time or a step. The rows are sorted by
        episode, by these columns, by file and by row. The sort needs DuckDB and writes a temporary file, which is
        removed with the log. Without an episode column all rows are one trajectory. If omitted, the rows must be in
        order.
    episode_end : {'terminated', 'truncated', 'drop'}, optional
        Treatment of the last row of an episode that no flag marks. 'terminated' keeps it without bootstrapping.
        'truncated' keeps it if its next observation was recorded and is not null; otherwise the row is dropped and
        serves only as the successor of the row before. 'drop' drops it. None is the same as 'truncated'. If many rows
        are dropped, ``Log.warnings`` says so, except with 'drop'.
    missing : {'error', 'drop', 'indicator'}, default='error'
        Treatment of missing values (null or NaN). 'error' raises an error. 'drop' drops the rows that need the value,
        without joining the rows around them. 'indicator' replaces a missing number of an observation by the mean of
        the first 5,000 rows and adds a number that is 1 there and 0 elsewhere; a missing category counts as 'other'.
    text : {'category', 'hash'}, default='category'
        Treatment of text in observations. 'category' makes a number of 0 or 1 of each text in the first 5,000 rows, of
        which a column may have 1,000. 'hash' makes one number of all texts, for ``features='hash:20'``, with which
        `vrtd.Evaluator` and `vrtd.evaluate` read tables and files in this way.
    format : {'parquet', 'csv', 'npz', 'hdf5', 'minari'}, optional
        Format of the files. If omitted, their suffix decides.
    space : ObservationSpace, optional
        ``Log.space`` of an earlier log, so that categories, words of actions and missing values are encoded alike. If
        omitted, the first 5,000 rows decide.

    Returns
    -------
    Log
        The transitions in the order in which they were recorded.

    Raises
    ------
    DataError
        If a file is missing or damaged, if a column is not found, or if the rows cannot be used. Errors in the rows are
        raised when the log is read.

    Examples
    --------
    >>> import pyarrow
    >>> from vrtd.logs import read
    >>> log = read(pyarrow.table({"state": [0, 1, 2], "reward": [1.0, 2.0, 3.0]}), episode_end="terminated")
    >>> [chunk.next_observations.tolist() for chunk in log.chunks()]
    [[1, 2, 0]]
    """
    if format is not None:
        check_choice("format", format, _PARTS)
    check_episode_end(episode_end)
    check_choice("missing", missing, get_args(Missing))
    check_choice("text", text, get_args(Text))
    wanted = Columns(observations, reward, next_observations, terminated, truncated, weight, episode, order_by)
    wanted = wanted._replace(action=action, propensity=propensity)
    if isinstance(data, ArrowStream):
        return PartsLog([TablePart(data, wanted, missing)], False, episode_end, space, text)
    paths = list(data) if isinstance(data, Iterable) and not isinstance(data, str) else [data]
    if not paths or not all(isinstance(path, str | os.PathLike) for path in paths):
        raise InvalidInputError(
            "data must be a path, a pattern, a list of them, or a table with the Arrow C stream "
            f"(__arrow_c_stream__), but is the {type(data).__name__} {' '.join(repr(data).split()):.60}.",
            "Name files, or pass a table of polars, pandas >= 2.2, DuckDB or pyarrow "
            "(for arrays use vrtd.logs.from_arrays).",
        )
    files = [file for path in paths for file in _find_files(os.fspath(path), format)]
    for file in files:
        if isinstance(file, Path):
            check_regular(file)
    kinds = Counter(format or _format_of(file) for file in files)
    if len(kinds) > 1:
        raise DataError(
            f"The files of a log must have one format, but include {_count(kinds)}.", "Pass format=... or fewer files."
        )
    (kind,) = kinds
    if kind not in ("parquet", "csv"):
        for file in files:
            if isinstance(file, RemoteFile):
                raise DataError(
                    f"A file at an address must have the format parquet or csv, but {file} has {kind}.",
                    "Copy it to a local disk, or write it as Parquet.",
                )
    parts = [_PARTS[kind](file, wanted, missing) for file in files]
    for part in parts[1:]:
        _check_same_columns(parts[0], part)
    CsvPart.share_order([part for part in parts if isinstance(part, CsvPart)])
    in_thread = kind != "parquet"  # Parquet parts read ahead themselves
    return PartsLog(parts, in_thread, episode_end, space, text)


def _check_same_columns(one: Part, other: Part) -> None:
    """Raise unless the parts have the same columns with the same types, in any order."""
    for name in [*one.kinds, *other.kinds]:
        kinds = [f"of type {part.kinds[name].words}" if name in part.kinds else "missing" for part in (one, other)]
        if kinds[0] != kinds[1]:
            raise DataError(
                "All files of a log must have the same columns, "
                f"but column {name!r} is {kinds[0]} in {one.where} and {kinds[1]} in {other.where}.",
                "Convert the files, or read them separately.",
            )


def _find_files(path: str, kind: str | None) -> Sequence[Path | RemoteFile]:
    path = to_local(path)
    if is_address(path):
        library()  # with the file systems
        remote, is_folder = find_remote(path)
        return _of_one_format(path, remote, kind) if is_folder else remote
    place = Path(path)
    if (kind == "minari" and place.exists()) or (kind is None and find_data_folder(place) is not None):
        return [place]
    if place.is_dir():
        return _find_inside(place, kind)
    if place.exists():
        return [place]
    if not has_magic(path):
        is_word = not place.suffix and os.sep not in path
        hint = " (for an environment use vrtd.logs.from_env)" if is_word else ""
        raise DataError(f"{path} does not exist.", f"Check the path{hint}.")
    files = [Path(match) for match in sorted(glob(path, recursive=True)) if _is_file(Path(match))]
    if not files:
        raise DataError(
            f"The pattern {path} matches no file.", "Check the pattern and the folder from which it starts."
        )
    return files


def _find_inside(folder: Path, kind: str | None) -> Sequence[Path]:
    """Return the files of one format. Names that begin with . or _ are skipped: they hold bookkeeping of writers."""
    files = []
    for file in sorted(folder.rglob("*")):
        is_hidden = any(part.startswith((".", "_")) for part in file.relative_to(folder).parts)
        if not is_hidden and _is_file(file):
            files.append(file)
    return _of_one_format(str(folder), files, kind)


def _of_one_format(folder: str, files: Sequence[File], kind: str | None) -> list[File]:
    """Return the files of a folder that have the format, which may be omitted if there is only one."""
    kinds = Counter(_SUFFIXES[file.suffix.lower()] for file in files if file.suffix.lower() in _SUFFIXES)
    if kind not in kinds:
        if len(kinds) != 1:
            raise DataError(
                f"{hide_secrets(folder)} must hold files of one format ({', '.join(_SUFFIXES)}), "
                f"but holds {_count(kinds) or 'no such files'}.",
                "Pass format=... or name the files.",
            )
        (kind,) = kinds
    return [file for file in files if _SUFFIXES.get(file.suffix.lower()) == kind]


def _is_file(path: Path) -> bool:
    return path.exists() and not path.is_dir()


def _format_of(file: Path | RemoteFile) -> str:
    if isinstance(file, Path) and file.is_dir():
        return "minari"
    suffix = file.suffix.lower()
    if suffix not in _SUFFIXES:
        raise DataError(
            f"The suffix of {file} must be one of {', '.join(_SUFFIXES)}, but is {file.suffix!r}.",
            "Rename the file or pass format=...",
        )
    return _SUFFIXES[suffix]


def _count(kinds: Counter[str]) -> str:
    return ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items()))


def check_options(columns: Mapping[str, Any], others: Collection[str] = ()) -> None:
    """Raise if a keyword is not in `ReadOptions`; suggest one of those or of the caller's `others`."""
    for name in columns:
        if name not in ReadOptions.__annotations__:
            near = find_nearest(name, (*ReadOptions.__annotations__, *others))
            remedy = "See vrtd.logs.read." if near is None else f"Did you mean {near!r}?"
            raise InvalidInputError(f"There is no keyword argument {name!r}.", remedy)


def as_log(
    data: Any, columns: ReadOptions, space: ObservationSpace | None = None, text: Text | None = None
) -> Log | Chunk:
    """Return a log or a chunk unchanged; create a log from a table, named arrays or files.

    `text` is the treatment of text unless the columns say another one.
    """
    check_options(columns)
    if isinstance(data, Mapping):
        try:
            data = library().table(dict(data))
        except (TypeError, ValueError) as error:  # single numbers, columns of different lengths, vectors
            raise DataError(
                "A dict of data must hold columns of equal length with one number or word per row, "
                f"but cannot be converted to a table: {error}.",
                "Correct the columns, or use vrtd.logs.from_arrays for arrays of vectors.",
            ) from None
    if isinstance(data, str) and not is_file_name(data) and not os.path.lexists(data):
        raise DataError(
            f"{data} does not exist.",
            "Check the path (for an environment use vrtd.logs.from_env or vrtd.evaluate).",
        )
    if not isinstance(data, Log | Chunk):
        options: ReadOptions = columns if text is None or "text" in columns else {**columns, "text": text}
        return read(data, **options, space=space)
    for name in columns:
        raise InvalidInputError(
            f"{name} is only for tables and files, but the data are a {type(data).__name__}.", f"Drop {name}."
        )
    return data


def describe_start(columns: ReadOptions) -> str:
    """Return the text of a progress bar before the first rows arrive."""
    return "starting" if columns.get("order_by") is None else "sorting the rows"


def is_file_name(text: str) -> bool:
    """Return whether text names files: an address, a suffix, a pattern, or an existing path with a separator.

    A single word may be the id of an environment, even if a folder has this name.
    """
    if is_address(text) or Path(text).suffix.lower() in _SUFFIXES or has_magic(text):
        return True
    return os.sep in text and os.path.lexists(text)
