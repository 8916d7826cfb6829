"""Writing of logs to Parquet, CSV and npz files, from which the same rows are read back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import chain
from typing import IO, Any

import numpy as np
from numpy.typing import DTypeLike

from vrtd.checks import check_choice
from vrtd.errors import InvalidInputError
from vrtd.features import ObservationSpace
from vrtd.files import as_path, write_at_once
from vrtd.logs.columns import ALIASES, ANY_KIND
from vrtd.logs.log import Chunk, Log, check_log, checked_chunks
from vrtd.logs.stored_space import SPACE_KEY, pack_space
from vrtd.sparse import is_sparse
from vrtd.tables import library


def write(log: Log, path: str | os.PathLike[str]) -> None:
    """Write the transitions of a log to a Parquet, CSV or npz file.

    Parameters
    ----------
    log : Log
        Log to write.
    path : path
        File to write, with the suffix ``.parquet``, ``.csv`` or ``.npz``. It is written completely or not at all.

    Raises
    ------
    InvalidInputError
        If the suffix is another one, if a CSV file cannot hold the observations, or if they are sparse rows.

    See Also
    --------
    vrtd.logs.read : Read the file.

    Notes
    -----
    ``read`` returns the same rows bit for bit, except that the numbers of a CSV file become float64. It reads weights,
    actions and propensities only if they are named: ``weight='weight'``, ``action='action'`` (``action='action_*'`` for
    vectors in Parquet and CSV files) and ``propensity='propensity'``. The last row of each segment is marked as
    truncated in the file.

    Parquet and npz files also keep ``Log.space``, so that the same features are chosen. Parquet files have page
    checksums. Parquet and CSV files are written chunk by chunk, npz files from memory.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from vrtd.logs import from_arrays, read, write
    >>> path = Path(tempfile.mkdtemp()) / "log.npz"
    >>> write(from_arrays([[0.0], [1.0], [2.0]], [1.0, 2.0, 3.0]), path)
    >>> read(path).n_rows
    2
    """
    check_log(log)
    suffix = as_path("path", path).suffix.lower()
    writers = {".parquet": _write_parquet, ".csv": _write_csv, ".npz": _write_npz}
    check_choice("The suffix of path", suffix, writers)
    if suffix != ".npz":
        library()
    chunks = checked_chunks(log, is_over=False)
    first = next(chunks)  # before the file is created, so that a bad log leaves none behind
    if is_sparse(first.observations):
        raise InvalidInputError(
            f"A {suffix} file cannot hold sparse rows, but observations are rows of {first.observations.shape[1]:,} "
            "numbers.",
            "Store the matrices with scipy.sparse.save_npz.",
        )
    with write_at_once(path) as file:
        writers[suffix](first, chain([first], chunks), log.space, file)


def _write_parquet(first: Chunk, chunks: Iterator[Chunk], space: ObservationSpace | None, file: IO[bytes]) -> None:
    from pyarrow.parquet import ParquetWriter

    schema = _batch(first).schema
    if space is not None:
        names = [name for name in schema.names if name.startswith("obs")]
        schema = schema.with_metadata({SPACE_KEY: pack_space(space, names)})
    with ParquetWriter(file, schema, use_dictionary=False, write_page_checksum=True) as writer:
        for chunk in chunks:
            writer.write_batch(_batch(chunk), row_group_size=2**20)


def _write_csv(first: Chunk, chunks: Iterator[Chunk], _space: ObservationSpace | None, file: IO[bytes]) -> None:
    from pyarrow.csv import CSVWriter

    if first.observations.ndim > 2:
        raise InvalidInputError(
            f"A CSV file can hold only numbers and vectors, but observations have the shape "
            f"{first.observations.shape[1:]}.",
            "Write a Parquet or npz file.",
        )
    with CSVWriter(file, _batch(first, np.float64).schema) as writer:
        for chunk in chunks:
            writer.write_batch(_batch(chunk, np.float64))


def _write_npz(_first: Chunk, chunks: Iterator[Chunk], space: ObservationSpace | None, file: IO[bytes]) -> None:
    # The log may reuse the memory of a chunk for the next one.
    arrays: dict[str, Any] = _name_columns(Chunk.concatenate([chunk.copy() for chunk in chunks]))
    if space is not None:
        arrays[SPACE_KEY] = np.frombuffer(pack_space(space, ["observations"]), np.uint8)
    np.savez(file, allow_pickle=False, **arrays)


def _batch(chunk: Chunk, dtype: DTypeLike | None = None) -> Any:
    """Return a record batch: numbers as one column, vectors as numbered columns, larger arrays as nested lists.

    Observations are converted to `dtype` unless it is None.
    """
    pyarrow = library()
    columns: dict[str, Any] = {}
    for name, values in (("obs", chunk.observations), ("next_obs", chunk.next_observations), ("action", chunk.action)):
        if values is None:
            continue
        values = values if name == "action" else values.astype(dtype or values.dtype, copy=False)
        if values.ndim == 2:
            columns |= {f"{name}_{j}": np.ascontiguousarray(values[:, j]) for j in range(values.shape[1])}
            continue
        array = pyarrow.array(values.reshape(-1))
        for size in reversed(values.shape[1:]):
            array = pyarrow.FixedSizeListArray.from_arrays(array, size)
        columns[name] = array
    columns |= {name: values for name, values in _name_columns(chunk).items() if name not in ANY_KIND}
    return pyarrow.RecordBatch.from_pydict({name: pyarrow.array(values) for name, values in columns.items()})


def _name_columns(chunk: Chunk) -> dict[str, Any]:
    """Return the arrays of a chunk under names that `read` recognises."""
    return {ALIASES[name][0] if name == "starts" else name: values for name, values in chunk.columns.items()}
