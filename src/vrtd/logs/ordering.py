"""Sorting of rows by episode and time with DuckDB, into a temporary file.

DuckDB sorts more rows than fit into memory, by columns of any type, within a memory limit. It gets the keys of each
row, its number in the log, and everything else as one binary entry, so that all formats are treated alike and no bit
changes. The row number makes each key unique, so ties keep their order and the result depends only on the rows.

DuckDB holds whole groups of rows in memory. Wide rows would exceed its limit, so they are written to a second file as
they arrive and looked up there by their numbers.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.checks import import_extra
from vrtd.errors import DataError
from vrtd.logs.arrow_values import is_text
from vrtd.logs.blocks import Block, Origins, Piece, rows_per_block, split_keys
from vrtd.logs.columns import Columns
from vrtd.logs.text_order import TextOrder
from vrtd.tables import library

MEMORY, THREADS = "512MB", 4
_GROUP_BYTES, _GROUP_ROWS = 2**25, 2**17  # limits of a row group in the temporary file
_WIDE = 256  # bytes above which a row is stored separately
_NAME_ANOTHER = "Set the environment variable TMPDIR to a folder with more space."
_ARRAYS = Block._fields[: Block._fields.index("pieces")]


class _Sorted(NamedTuple):
    """Description of the temporary file."""

    path: Path
    packed: np.dtype[Any]  # type of a row without its keys
    apart: Path | None  # the file of the rows without keys, in recorded order; None: they are in the sorted file
    episodes: Sequence[str]  # columns of the sorted file that name the episode
    first: Sequence[int]  # number of the first row of each input file
    names: Mapping[str, Sequence[str]]  # field -> columns, one for each number of an observation
    remarks: Sequence[str]  # on the order


class OrderedRows:
    """Sorted rows of a log. They are sorted once; the file is removed with this object or when Python exits."""

    def __init__(self, files: Sequence[str], columns: Columns) -> None:
        library()
        import_extra("duckdb", "data")
        self._files, self._columns = tuple(files), columns
        self._sorted: _Sorted | None = None
        #: Rows after a terminated row of their episode in the last complete reading.
        self.n_after_end = 0
        #: Number of times an episode continues in another file in the last complete reading.
        self.n_file_changes = 0

    @property
    def is_sorted(self) -> bool:
        """Whether the rows have been sorted."""
        return self._sorted is not None

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks on the order and the temporary file, once the rows have been sorted."""
        if self._sorted is None:
            return ()
        roles = self._columns.roles
        within = f" within each {', '.join(roles['episode'])}" if "episode" in roles else ""
        folder = self._sorted.path.parent.parent
        remark = f"rows were sorted by {', '.join(roles['order_by'])}{within}, in a temporary file in {folder}"
        return (*self._sorted.remarks, remark)

    def sort(self, blocks: Generator[Block, None, None]) -> None:
        """Sort the rows of the blocks unless they are sorted already. An error or interrupt leaves no file behind."""
        with closing(blocks):
            first = next(blocks, None) if self._sorted is None else None
            if first is None:
                return
            folder = _make_folder()
            remove = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            try:
                self._sorted = _sort(first, blocks, folder, self._columns.roles["order_by"])
            except BaseException:
                remove()
                raise

    def blocks(self) -> Generator[Block, None, None]:
        """Yield the sorted rows."""
        if self._sorted is None:
            return
        from pyarrow.parquet import ParquetFile

        path, packed, apart, episodes, first, names, _ = self._sorted
        last: tuple[Any, ...] = ()  # the episode of the row before
        n_episodes, n_after_end, has_ended, n_file_changes, last_file = 0, 0, False, 0, 0
        with closing(ParquetFile(path, pre_buffer=False, buffer_size=2**18)) as file:
            for batch in file.iter_batches(rows_per_block(packed.itemsize)):
                n, numbers = batch.num_rows, batch.column("number").to_numpy()
                if apart is None:
                    found = _unpack(batch.column("rest"), packed)
                else:  # map the file for each block, so that memory holds the pages of one block only
                    found = np.memmap(apart, packed, "r")[numbers]
                arrays: dict[str, Any] = dict.fromkeys(_ARRAYS)
                arrays |= {name: np.ascontiguousarray(found[name]) for name in packed.names or ()}
                if episodes:
                    ids = [batch.column(name) for name in episodes]
                    starts = _find_starts(ids, last)
                    arrays["episode"] = n_episodes + np.cumsum(starts)
                    n_episodes += int(starts.sum())
                    n_after, has_ended = _count_after_end(arrays["terminated"], starts, has_ended)
                    n_after_end += n_after
                    in_file = np.searchsorted(first, numbers, side="right")
                    n_file_changes += int(((np.diff(in_file, prepend=last_file) != 0) & ~starts).sum())
                    last_file = int(in_file[-1])
                    last = tuple(column[n - 1].as_py() for column in ids)
                origins = Origins(self._files, first, numbers)
                yield Block(**arrays, pieces=(Piece("", names, 0, n, origins=origins),))
        self.n_after_end, self.n_file_changes = n_after_end, n_file_changes


def _make_folder() -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix="vrtd-"))
    except OSError as error:
        raise DataError(f"There is no folder for the temporary file of sorted rows: {error}.", _NAME_ANOTHER) from None


def _sort(first: Block, others: Iterator[Block], folder: Path, by: Sequence[str]) -> _Sorted:
    duckdb, pyarrow = import_extra("duckdb", "data"), library()
    packed = _packed_type(first)
    apart = folder / "rows" if packed.itemsize > _WIDE else None
    batch = _make_batch(first, 0, packed, None, apart)
    episodes, order = ([name for name in batch.schema.names if name.startswith(key)] for key in ("episode", "order"))
    path = folder / "rows.parquet"
    first_of_file = [0] * (first.part + 1)
    texts = {key: TextOrder(name) for key, name in zip(order, by, strict=True) if is_text(batch.schema.field(key).type)}
    failures: list[Exception] = []
    is_stopped = Event()

    def batches() -> Iterator[Any]:
        """Yield the batches to sort, and keep an error, because DuckDB would turn it into text."""
        n_rows, rows = 0, batch  # the first block must be written only once
        try:
            while True:
                for key, text in texts.items():
                    text.see(rows.column(key))
                yield rows
                n_rows += rows.num_rows
                block = next(others, None)
                if block is None or is_stopped.is_set():
                    break
                first_of_file.extend([n_rows] * (block.part + 1 - len(first_of_file)))
                rows = _make_batch(block, n_rows, packed, batch.schema, apart)
            for text in texts.values():
                text.check()
        except Exception as error:
            failures.append(error)
            raise

    columns = ", ".join(name for name in batch.schema.names if name not in order)
    keys = ", ".join([*episodes, *order, "number"])
    group = int(min(_GROUP_ROWS, max(2048, _GROUP_BYTES // ((packed.itemsize if apart is None else 0) + 64))))
    query = f"COPY (SELECT {columns} FROM recorded ORDER BY {keys}) TO '{_quote(path)}' "  # noqa: S608 - own names
    settings = {
        "memory_limit": MEMORY,
        "threads": min(THREADS, os.cpu_count() or 1),
        "temp_directory": str(folder / "unfinished"),
    }
    with duckdb.connect(config=settings) as connection, ThreadPoolExecutor(1, "vrtd-sort") as thread:
        try:
            connection.register("recorded", pyarrow.RecordBatchReader.from_batches(batch.schema, batches()))
            # In a thread, so that Ctrl-C raises here and not inside DuckDB.
            work = thread.submit(connection.execute, f"{query} (FORMAT parquet, ROW_GROUP_SIZE {group})")
            work.result()
        except duckdb.Error as error:
            if failures:
                raise failures[0] from None
            what = f"DuckDB: {' '.join(str(error).split()):.300}"
            columns = ", ".join(by)
            if isinstance(error, duckdb.OutOfMemoryException):
                raise DataError(
                    f"Sorting the keys of the rows needs more than {MEMORY} of memory: {what}.",
                    f"Shorten the values of {columns} and the names of episodes.",
                ) from None
            if isinstance(error, duckdb.IOException):
                raise _no_room(folder, what) from None
            raise DataError(f"The rows cannot be sorted by {columns}: {what}.", "Name other columns.") from None
        except BaseException:
            is_stopped.set()
            connection.interrupt()
            raise
    remarks = [text.remark for text in texts.values() if text.remark is not None]
    return _Sorted(path, packed, apart, episodes, first_of_file, first.pieces[0].names, remarks)


def _no_room(folder: Path, what: Any) -> DataError:
    free = shutil.disk_usage(folder).free / 2**30
    return DataError(
        f"{folder.parent} has too little space for the temporary file of sorted rows ({free:.1f} GiB free): {what}.",
        _NAME_ANOTHER,
    )


def _packed_type(block: Block) -> np.dtype[Any]:
    """Return the type of a row without its keys."""
    named = [(name, getattr(block, name)) for name in _ARRAYS if name != "episode"]
    return np.dtype([(name, array.dtype, array.shape[1:]) for name, array in named if array is not None])


def _make_batch(block: Block, n_before: int, packed: np.dtype[Any], schema: Any, apart: Path | None) -> Any:
    """Return a record batch with the keys, numbers and contents of the rows of a block.

    With `apart`, the contents are appended to that file instead. The first batch defines the schema.
    """
    pyarrow, n = library(), block.reward.size
    if _packed_type(block) != packed:
        raise DataError(
            f"All rows of a log must have the same type, but the type is {packed} at first and "
            f"{_packed_type(block)} from {block.locate(None, 'observations', 0)}.",
            "Convert the files.",
        )
    rows = np.empty(n, packed)
    for name in packed.names or ():
        rows[name] = getattr(block, name)
    keys = {f"episode_{k}": key for k, key in enumerate([] if block.episode is None else split_keys(block.episode))}
    keys |= {f"order_{k}": key for k, key in enumerate(block.order)}
    keys["number"] = np.arange(n_before, n_before + n)
    columns = {
        name: pyarrow.array(key, None if schema is None else schema.field(name).type) for name, key in keys.items()
    }
    if apart is not None:
        try:
            with apart.open("ab") as file:
                file.write(rows.view(np.uint8).data)
        except OSError as error:
            raise _no_room(apart.parent, error) from None
        return pyarrow.RecordBatch.from_pydict(columns, schema)
    kind = pyarrow.binary(packed.itemsize)
    columns["rest"] = pyarrow.FixedSizeBinaryArray.from_buffers(kind, n, [None, pyarrow.py_buffer(rows)])
    return pyarrow.RecordBatch.from_pydict(columns, schema)


def _unpack(column: Any, packed: np.dtype[Any]) -> NDArray[Any]:
    _, offsets, content = column.buffers()
    first = int(np.frombuffer(offsets, np.int32)[column.offset])
    return np.frombuffer(content, packed, len(column), first)


def _find_starts(ids: Sequence[Any], last: tuple[Any, ...]) -> NDArray[np.bool_]:
    """Return the rows in which one of the columns differs from the row before."""
    from pyarrow.compute import not_equal

    starts = np.empty(len(ids[0]), np.bool_)
    starts[0] = last != tuple(column[0].as_py() for column in ids)
    changes = [not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False) for column in ids]
    starts[1:] = np.logical_or.reduce(changes)
    return starts


def _count_after_end(terminated: NDArray[np.bool_], starts: NDArray[np.bool_], has_ended: bool) -> tuple[int, bool]:
    """Return the number of rows after a terminated row of their episode, and whether the last episode has terminated.

    `has_ended` says whether the episode of the row before these has terminated.
    """
    n_ends = np.cumsum(terminated)
    n_before: NDArray[np.int64] = n_ends - terminated
    n_at_start = np.maximum.accumulate(np.where(starts, n_before, -int(has_ended)))  # of each row's episode
    return int((n_before > n_at_start).sum()), bool(n_ends[-1] > n_at_start[-1])


def _quote(path: Path) -> str:
    return str(path).replace("'", "''")
