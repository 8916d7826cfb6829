"""Detection of episodes that reappear after another one, because rows are unordered or names are reused.

Memory is bounded: if there are many names, only those with the smallest hashes are stored.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from vrtd.errors import DataError
from vrtd.logs.blocks import Block, split_keys
from vrtd.logs.columns import FILE, Columns

_MOST_NAMES, _MOST_SENT = 65_536, 1024
_LARGEST = 2**64 - 1


class SeenEpisodes:
    """Names of the episodes seen in one reading."""

    def __init__(self, columns: Columns, has_names: bool) -> None:
        self._columns, self._has_names = columns, has_names
        self._names: dict[int, Any] = {}  # hash -> name
        self._largest = _LARGEST  # largest hash that is stored
        self._first: NDArray[Any] | None = None  # name in the first row
        self._last: NDArray[Any] | None = None  # name in the last row

    def check(self, block: Block) -> None:
        """Raise if an episode with a known name begins in this block."""
        names = block.episode
        if names is None:
            return
        starts = np.flatnonzero(names[1:] != names[:-1]) + 1
        if self._last is None or (names[:1] != self._last).any():
            starts = np.append(0, starts)
        if self._first is None:
            self._first = names[:1].copy()
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
        self._forget(_MOST_NAMES)

    def summarise(self) -> SeenNames:
        """Return the names as plain data, of which only some are kept."""
        self._forget(_MOST_SENT)
        texts = {number: str(name) for number, name in self._names.items()}
        first, last = (None if name is None else str(name.tolist()[0]) for name in (self._first, self._last))
        return SeenNames(np.array([*texts], np.uint64), tuple(texts.values()), self._largest, first, last)

    def _forget(self, most: int) -> None:
        self._names, self._largest = _keep_smallest(self._names, self._largest, most)

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


class SeenNames(NamedTuple):
    """Names of the episodes in consecutive rows: all those with small hashes."""

    hashes: NDArray[np.uint64] = np.empty(0, np.uint64)
    names: tuple[str, ...] = ()
    largest: int = _LARGEST  # hash that is kept
    first: str | None = None  # name in the first row
    last: str | None = None  # name in the last row

    def join(self, others: SeenNames) -> SeenNames:
        """Return the names of these rows and of others that follow.

        An episode that appears in both is an error, unless it is the last one of these rows and goes on.
        """
        mine, its = (dict(zip(each.hashes.tolist(), each.names, strict=True)) for each in (self, others))
        for number in mine.keys() & its.keys():
            name = mine[number]
            if name == its[number] and not name == self.last == others.first:
                raise DataError(
                    f"The episode {name} appears again after another one, in a later part of the log.",
                    "Sort the rows by episode and time, or give different episodes different names.",
                )
        largest = min(self.largest, others.largest)
        names = _keep_smallest(mine | its, largest, _MOST_NAMES)
        first = others.first if self.first is None else self.first
        last = self.last if others.last is None else others.last
        return SeenNames(np.array([*names[0]], np.uint64), tuple(names[0].values()), names[1], first, last)


def _keep_smallest(names: dict[int, Any], largest: int, most: int) -> tuple[dict[int, Any], int]:
    """Return the names with the smallest hashes, at most `most`, and the largest hash that is kept."""
    names = {number: name for number, name in names.items() if number <= largest}
    while len(names) > most:
        largest //= 2
        names = {number: name for number, name in names.items() if number <= largest}
    return names, largest


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
