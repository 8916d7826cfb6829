"""Finished cells on disk: segments that are written whole, with a checksum, and later merged into larger ones.

A segment has a magic number, the SHA-256 of everything after it, the number of cells, the size of a record, the keys
and the records. A segment that is damaged or of another sweep has no cell of this one; its cells are computed again.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrtd.files import write_at_once
from vrtd.store import read_content
from vrtd.sweeps.cell import Records
from vrtd.sweeps.design import KEY_BYTES, Keys

_MAGIC = b"vrtd-sweep-1\0\0\0\0"
_NAME = re.compile(r"(\d{8})\.cells")
_SHA_BYTES, _COUNT_BYTES = 32, 8
_PAUSE = 100.0  # between two segments, as a multiple of the time that the last one took to write
_MOST_SMALL = 256  # segments; as many are merged into one


class Segments:
    """Finished cells of a sweep in a folder.

    Parameters
    ----------
    folder : Path
        Folder of the segments.
    keys : ndarray of shape (n, 2)
        Keys of the cells of the sweep.
    """

    def __init__(self, folder: Path, keys: Keys) -> None:
        self._folder, self._keys = folder, keys
        self._waiting: list[tuple[NDArray[np.int64], Records]] = []
        self._small: list[Path] = []  # written by this call
        self._next_time = time.monotonic()
        names = (_NAME.fullmatch(path.name) for path in folder.iterdir())
        self._next = max((int(name[1]) for name in names if name), default=0) + 1

    def load(self, records: Records) -> NDArray[np.bool_]:
        """Fill in the records of finished cells, and return which cells are finished."""
        is_done = np.zeros(len(self._keys), bool)
        order = np.argsort(self._keys[:, 0], kind="stable")
        ordered = self._keys[order]
        for keys, stored in self._read_all(records.dtype):
            at = np.minimum(np.searchsorted(ordered[:, 0], keys[:, 0]), len(ordered) - 1)
            same = (ordered[at] == keys).all(axis=1)
            cells = order[at[same]]
            records[cells], is_done[cells] = stored[same], True
        return is_done

    def add(self, cells: NDArray[np.int64], records: Records) -> None:
        """Keep finished cells. They are written at once, unless writing would take too much of the time."""
        self._waiting.append((cells, records))
        if time.monotonic() >= self._next_time:
            self.flush()

    def flush(self) -> None:
        """Write the cells that wait."""
        if not self._waiting:
            return
        began = time.monotonic()
        cells, records = (np.concatenate(parts) for parts in zip(*self._waiting, strict=True))
        self._small.append(self._write(self._keys[cells].tobytes(), records.tobytes(), len(cells)))
        self._waiting.clear()
        if len(self._small) >= _MOST_SMALL:
            self._merge(records.dtype)
        now = time.monotonic()
        self._next_time = now + _PAUSE * (now - began)

    def _merge(self, kind: np.dtype[Any]) -> None:
        """Replace the small segments by one. A crash in between leaves cells twice, which does no harm."""
        parts = [part for part in (_read(path, kind) for path in self._small) if part is not None]
        keys, records = (b"".join(each.tobytes() for each in both) for both in zip(*parts, strict=True))
        self._write(keys, records, len(keys) // KEY_BYTES)
        for path in self._small:
            path.unlink(missing_ok=True)
        self._small.clear()

    def _write(self, keys: bytes, records: bytes, n: int) -> Path:
        content = _count(n) + _count(len(records) // n) + keys + records
        path = self._folder / f"{self._next:08}.cells"
        self._next += 1
        with write_at_once(path) as file:
            file.write(_MAGIC + hashlib.sha256(content).digest() + content)
        return path

    def _read_all(self, kind: np.dtype[Any]) -> Iterator[tuple[Keys, Records]]:
        for path in sorted(self._folder.iterdir()):
            if _NAME.fullmatch(path.name) and (part := _read(path, kind)) is not None:
                yield part


def _count(n: int) -> bytes:
    return n.to_bytes(_COUNT_BYTES, "little")


def _read(path: Path, kind: np.dtype[Any]) -> tuple[Keys, Records] | None:
    """Return the keys and records of a segment, or None if it is damaged or has other records."""
    content = read_content(path)
    start = len(_MAGIC) + _SHA_BYTES
    if content[: len(_MAGIC)] != _MAGIC or hashlib.sha256(content[start:]).digest() != content[len(_MAGIC) : start]:
        return None
    n, size = (int.from_bytes(content[at : at + _COUNT_BYTES], "little") for at in (start, start + _COUNT_BYTES))
    first = start + 2 * _COUNT_BYTES
    if size != kind.itemsize or len(content) != first + n * (KEY_BYTES + size):
        return None
    keys = np.frombuffer(content, np.uint64, 2 * n, first).reshape(n, 2)
    return keys, np.frombuffer(content, kind, n, first + n * KEY_BYTES)
