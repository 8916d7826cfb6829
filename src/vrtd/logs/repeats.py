"""Detection of episodes that reappear after another one, because rows are unordered or names are reused.

Memory is bounded: if there are many names, only those with the smallest hashes are stored.
"""

from __future__ import annotations

from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from vrtd.errors import DataError
from vrtd.logs.blocks import Block, split_keys
from vrtd.logs.columns import FILE, Columns

_MOST_NAMES = 65_536


class SeenEpisodes:
    """Names of the episodes seen in one reading."""

    def __init__(self, columns: Columns, has_names: bool) -> None:
        self._columns, self._has_names = columns, has_names
        self._names: dict[int, Any] = {}  # hash -> name
        self._largest = 2**64 - 1  # largest hash that is stored
        self._last: NDArray[Any] | None = None  # name in the last row

    def check(self, block: Block) -> None:
        """Raise if an episode with a known name begins in this block."""
        names = block.episode
        if names is None:
            return
        starts = np.flatnonzero(names[1:] != names[:-1]) + 1
        if self._last is None or (names[:1] != self._last).any():
            starts = np.append(0, starts)
        self._last = names[-1:].copy()
        for first in range(0, starts.size, _MOST_NAMES):  # arrays are a single block
            self._remember(block, starts[first : first + _MOST_NAMES])

    def _remember(self, block: Block, starts: NDArray[np.intp]) -> None:
        assert block.episode is not None
        hashes = hash_keys(block.episode[starts])
        kept = hashes <= np.uint64(self._largest)
        rows, names = starts[kept], block.episode[starts[kept]]
        for row, number, name in zip(rows.tolist(), hashes[kept].tolist(), names.tolist(), strict=True):
            if number not in self._names:
                self._names[number] = name
            elif self._names[number] == name:
                raise self._error(block.locate(None, "episode", row), name)
        while len(self._names) > _MOST_NAMES:
            self._largest //= 2
            self._names = {number: name for number, name in self._names.items() if number <= self._largest}

    def _error(self, place: str, name: Any) -> DataError:
        columns = self._columns.by_field.get("episode", ())
        values = name if isinstance(name, tuple) else (name,)  # with the file after the columns
        texts = [repr(value) if isinstance(value, str) else str(value) for value in values]
        shown = " and ".join(f"{column} {text}" for column, text in zip(columns, texts, strict=False))
        remedy = "Sort the rows by episode and time, or give different episodes different names."
        if self._has_names:
            remedy = (
                "If the rows are not in order, sort them by the column of time with order_by='...'. "
                f"If different episodes share a name, {say_how_to_tell_apart(self._columns)}."
            )
        return DataError(f"The episode with {shown} appears again after another one, in {place}.", remedy)


def say_how_to_tell_apart(columns: Columns) -> str:
    """Return the remedy if different episodes share a name.

    >>> say_how_to_tell_apart(Columns(episode="session"))
    "add a column that distinguishes them to episode=... besides 'session', such as 'file'"
    """
    names = " and ".join(map(repr, columns.by_field.get("episode", ())))
    besides, file = f" besides {names}" if names else "", "" if columns.is_by_file else f", such as {FILE!r}"
    return f"add a column that distinguishes them to episode=...{besides}{file}"


def hash_keys(keys: NDArray[Any]) -> NDArray[np.uint64]:
    """Return a hash of each entry that is the same in every process."""
    hashes = np.zeros(len(keys), np.uint64)
    for column in split_keys(keys):
        hashes = _scramble(hashes * np.uint64(31) + _to_words(column))
    return hashes


def _to_words(column: NDArray[Any]) -> NDArray[np.uint64]:
    """Return an integer for each entry, equal for equal entries."""
    match column.dtype.kind:
        case "b" | "u":
            return column.astype(np.uint64)
        case "i" | "m" | "M":
            return column.astype(np.int64).view(np.uint64)
        case "f":
            return (column.astype(np.float64) + 0.0).view(np.uint64)  # + 0.0 turns -0.0 into 0.0
    texts = map(str, column.tolist())
    return np.array([crc32(text.encode(errors="surrogatepass")) for text in texts], np.uint64)


def _scramble(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix the bits of each word (the last step of SplitMix64)."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
    return words ^ (words >> np.uint64(31))
