"""Episodes that come back after another one: their rows are not in order, or two episodes have one name.

Memory is bounded: of many names, only those with the smallest hashes are remembered.
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
    """The names of the episodes of one reading."""

    def __init__(self, columns: Columns, has_names: bool) -> None:
        self._columns, self._has_names = columns, has_names
        self._names: dict[int, Any] = {}  # by their hashes
        self._largest = 2**64 - 1  # of the hashes that are remembered
        self._last: NDArray[Any] | None = None  # the name in the last row

    def check(self, block: Block) -> None:
        """Raise if an episode begins in this block whose name was seen before."""
        names = block.episode
        if names is None:
            return
        starts = np.flatnonzero(names[1:] != names[:-1]) + 1
        if self._last is None or (names[:1] != self._last).any():
            starts = np.append(0, starts)
        self._last = names[-1:].copy()
        for first in range(0, starts.size, _MOST_NAMES):  # arrays come in one block
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
        shown = ", ".join(f"{column}={text}" for column, text in zip(columns, texts, strict=False))
        do = "sort the rows by episode and time, or give different episodes different names"
        if self._has_names:
            in_order = "if rows are not in order, sort them: order_by='...', the column of time"
            do = f"{in_order}; if different episodes have one name, {say_how_to_tell_apart(self._columns)}"
        must = "the rows of an episode must follow each other"
        return DataError(must, f"{shown} again after another episode, at {place}", do)


def say_how_to_tell_apart(columns: Columns) -> str:
    """Say what helps if different episodes have one name.

    >>> say_how_to_tell_apart(Columns(episode="session"))
    "tell them apart by a further column in episode=... beside 'session', such as 'file'"
    """
    names = " and ".join(map(repr, columns.by_field.get("episode", ())))
    beside, file = f" beside {names}" if names else "", "" if columns.is_by_file else f", such as {FILE!r}"
    return f"tell them apart by a further column in episode=...{beside}{file}"


def hash_keys(keys: NDArray[Any]) -> NDArray[np.uint64]:
    """Return a hash of each entry, the same in every process."""
    hashes = np.zeros(len(keys), np.uint64)
    for column in split_keys(keys):
        hashes = _scramble(hashes * np.uint64(31) + _to_words(column))
    return hashes


def _to_words(column: NDArray[Any]) -> NDArray[np.uint64]:
    """Return a whole number for each entry, equal where the entries are."""
    match column.dtype.kind:
        case "b" | "u":
            return column.astype(np.uint64)
        case "i" | "m" | "M":
            return column.astype(np.int64).view(np.uint64)
        case "f":
            return (column.astype(np.float64) + 0.0).view(np.uint64)  # without a negative zero
    texts = map(str, column.tolist())
    return np.array([crc32(text.encode(errors="surrogatepass")) for text in texts], np.uint64)


def _scramble(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Spread the bits of each word over all of its bits (the last step of SplitMix64)."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
    return words ^ (words >> np.uint64(31))
