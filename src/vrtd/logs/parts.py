"""A log that consists of parts, each of which reads its rows; every row is given the observation that follows it.

Where next observations were recorded, rows keep them. Elsewhere row i + 1 follows row i within an episode. A terminated
row needs no successor and gets zeros. A row at the end of an episode that did not terminate, or at the end of the
recording, has no successor unless one was recorded: it is dropped and counted, and the row before it, which bootstraps
from the dropped row's observation, is marked as truncated, unless the log ends there and nothing follows anyway. Rows
with missing values are dropped in the same way where that was asked for: the rows around them are not joined.

`episode_end` says what the last row of an episode is where no flag tells. Rows of different parts (files) follow each
other only where an episode column says so, or where rows are sorted: a wrong join would be learned as a transition, a
cut costs one row, which is reported.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vrtd.errors import DataError
from vrtd.features import ObservationSpace
from vrtd.logs import blocks as sizes
from vrtd.logs.arrow_values import ColumnType
from vrtd.logs.blocks import Block, join_keys, split_keys
from vrtd.logs.columns import Columns, EpisodeEnd, Missing
from vrtd.logs.encoding import PILOT_ROWS, Encoder, Values
from vrtd.logs.log import Chunk, Log, shorten
from vrtd.logs.ordering import OrderedRows
from vrtd.logs.pilot import choose_space
from vrtd.logs.read_ahead import read_ahead
from vrtd.logs.repeats import SeenEpisodes

_MANY = 0.01  # a larger share of the rows is warned of


class Reason(StrEnum):
    """Why a row was dropped."""

    NO_FINAL = "truncated without a final observation"
    NO_NEXT_IN_EPISODE = "the last of an episode without a final observation"
    LAST_OF_FILE = "the last of a file"
    LAST_OF_LOG = "the last of the log"
    MISSING = "a value is missing"
    MISSING_NEXT = "the next observation is missing"


_SAY_WHAT_ENDS = "say what they are with episode_end='terminated' or 'truncated'"
#: What helps against reasons that are not of the user's choice and concern more than one row.
_REMEDIES = {
    Reason.NO_FINAL: "record the observations that follow them as next_observations, or accept it with "
    "episode_end='truncated'",
    Reason.NO_NEXT_IN_EPISODE: _SAY_WHAT_ENDS,
    Reason.LAST_OF_FILE: "name the columns that tell episodes apart with episode=..., or " + _SAY_WHAT_ENDS,
}


class Part(ABC):
    """A file, a table or arrays."""

    where: str
    n_rows: int | None  # with a successor or not; None when only a reading tells
    columns: Columns
    #: Columns and types must be the same in all parts of a log.
    kinds: Mapping[str, ColumnType] = {}
    missing: Missing = "error"
    #: Whether the columns have names of the user's.
    has_names: bool = True
    #: What the observations are; None: only the rows tell.
    space: ObservationSpace | None = None
    #: Why damage may go unnoticed, or None where checksums are verified.
    unverified: str | None = None

    @abstractmethod
    def blocks(self, encoder: Encoder) -> Generator[Block, None, None]:
        """Yield all rows, in order. Blocks have at least one row each and belong to whoever takes them."""

    def peek(self, n_rows: int) -> list[Values]:  # noqa: ARG002
        """Return the first rows, at least so many where there are, or none where columns have no names."""
        return []


class PartsLog(Log):
    """The parts one after another, paired into transitions.

    `in_thread`: read one block ahead. `space`: that of an earlier log, like which observations are encoded.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        in_thread: bool,
        episode_end: EpisodeEnd | None = None,
        space: ObservationSpace | None = None,
    ) -> None:
        self._parts, self._in_thread, self._episode_end = tuple(parts), in_thread, episode_end
        self._columns = self._parts[0].columns
        self._ordered: OrderedRows | None = None
        if self._columns.order_by is not None:
            self._ordered = OrderedRows([part.where for part in self._parts], self._columns)
        self._dropped: Counter[Reason] = Counter()  # by the last whole reading
        self._unseen: Counter[str] = Counter()  # by the last whole reading
        self._rows_before: int | None = None
        counts = [part.n_rows for part in self._parts]
        self._n_rows = sum(n for n in counts if n is not None) if None not in counts else None
        if self._n_rows == 0:
            raise self._empty("no rows")
        self._space = choose_space(self._parts, space)
        self._encoder = Encoder(self._space, self._parts[0].missing)

    @property
    def n_rows(self) -> int | None:
        return self._n_rows

    @property
    def roles(self) -> Mapping[str, tuple[str, ...]]:
        return self._columns.roles if self._parts[0].has_names else {}

    @property
    def space(self) -> ObservationSpace | None:
        return self._space

    @property
    def remarks(self) -> tuple[str, ...]:
        remarks = [f"{_rows(n)} dropped: {reason}" for reason, n in self._dropped.most_common() if n]
        remarks += self._describe_unseen(0.0)
        remarks += [remark for part in self._parts for remark in part.columns.remarks]
        if self._ordered is not None and self._ordered.remark is not None:
            remarks.append(self._ordered.remark)
        reasons: dict[str, list[str]] = {}
        for part in self._parts:
            if part.unverified is not None:
                reasons.setdefault(part.unverified, []).append(part.where)
        for reason, places in reasons.items():
            others = f" (and {len(places) - 1} more of {len(self._parts)} files)" if len(places) > 1 else ""
            remarks.append(f"{places[0]} {reason}{others}: integrity cannot be verified")
        return tuple(dict.fromkeys(remarks))

    @property
    def warnings(self) -> tuple[str, ...]:
        return (*self._describe_dropped(), *self._describe_unseen(_MANY))

    def _describe_dropped(self) -> tuple[str, ...]:
        """Describe many rows that were dropped for reasons that are not of the user's choice."""
        if self._episode_end is not None or not self._rows_before:
            return ()
        dropped = Counter({reason: n for reason, n in self._dropped.items() if reason in _REMEDIES})
        share = dropped.total() / self._rows_before
        if share <= _MANY:
            return ()
        ((reason, n_most),) = dropped.most_common(1)
        mostly = "" if n_most == dropped.total() else "mostly "
        what = f"{dropped.total():,} of {_rows(self._rows_before)} ({100 * share:.1f} %) were dropped"
        return (f"{what}: {mostly}{reason}; {_REMEDIES[reason]}",)

    def _describe_unseen(self, share: float) -> list[str]:
        """Describe the columns of which a larger share of rows had a value that is no level."""
        n_rows = self._rows_before or 0
        return [
            f"{n:,} of {n_rows:,} rows ({n / n_rows:.1%}) have a value in column {name!r} that the first "
            f"{PILOT_ROWS:,} rows do not show: these values count as one, 'other'"
            for name, n in self._unseen.items()
            if n > share * n_rows
        ]

    def chunks(self) -> Iterator[Chunk]:
        self._dropped, self._unseen = Counter(), Counter()
        dropped: Counter[Reason] = Counter()
        n_kept = 0
        blocks = self._blocks()
        try:
            for first in blocks:
                pairs = _pair(first, blocks, self._episode_end, dropped, self._encoder)
                if first.next_observations is not None and first.episode is None and first.is_unusable is None:
                    pairs = _keep_next(chain([first], blocks), self._encoder)
                for chunk in pairs:
                    n_kept += chunk.n_rows
                    yield chunk
        finally:
            blocks.close()
        n_read = n_kept + dropped.total()
        if n_kept == 0:
            raise self._empty(f"{_rows(n_read)}, none with a successor" if n_read else "no rows")
        if self._rows_before not in (None, n_read):
            raise DataError(
                f"{self._parts[0].where} must be the same at every reading",
                f"{_rows(n_read)} now and {_rows(self._rows_before or 0)} before",
                "pass what can be read again: a file, a table or arrays",
            )
        self._rows_before, self._dropped, self._unseen = n_read, dropped, self._encoder.unseen

    def _blocks(self) -> Generator[Block, None, None]:
        """Return the blocks of one reading, in order."""
        if self._ordered is None or not self._ordered.is_sorted:
            self._encoder = Encoder(self._space, self._parts[0].missing)
        if self._ordered is None:
            blocks = self._check_order()
            return read_ahead(blocks) if self._in_thread else blocks
        self._ordered.sort(self._recorded_blocks())
        return read_ahead(self._ordered.blocks())

    def _check_order(self) -> Generator[Block, None, None]:
        """Yield the blocks as they were recorded; raise where an episode comes back."""
        seen = SeenEpisodes(self._columns, self._parts[0].has_names)
        for block in self._recorded_blocks():
            seen.check(block)
            yield block

    def _recorded_blocks(self) -> Generator[Block, None, None]:
        shape: tuple[int, ...] | None = None
        for i, part in enumerate(self._parts):
            n_read = 0
            for block in part.blocks(self._encoder):
                n_read += block.reward.size
                row_shape = block.observations.shape[1:]
                shape = row_shape if shape is None else shape
                if row_shape != shape:
                    raise DataError(
                        f"the observations of {part.where} must have one shape",
                        f"{row_shape} a row from row {block.pieces[0].first_row} on and {shape} before",
                        "keep observations of different shapes apart",
                    )
                if part.columns.is_by_file:
                    file = np.full(block.reward.size, i)
                    keys = [] if block.episode is None else split_keys(block.episode)
                    block = block._replace(episode=join_keys([*keys, file]))
                yield block._replace(part=i)
            if part.n_rows not in (None, n_read):
                raise DataError(
                    f"{part.where} must hold the {_rows(part.n_rows or 0)} that it announces",
                    _rows(n_read),
                    "it is damaged or changed while it was read: write it again",
                )

    @property
    def origin(self) -> str:
        places = [part.where for part in self._parts]
        files = f"{len(places):,} files: {shorten([Path(place).name for place in places])}"
        return places[0] if len(places) == 1 else files

    def _empty(self, what: str) -> DataError:
        where = self._parts[0].where if len(self._parts) == 1 else f"the {len(self._parts)} parts of the log"
        return DataError(f"{where} must hold at least one transition", what, "pass a log with more rows")


def _keep_next(blocks: Iterable[Block], encoder: Encoder) -> Iterator[Chunk]:
    """Yield rows with the successors that were recorded, where nothing depends on the rows around them."""
    for block in blocks:
        _check_next(block, block.lacks_next, encoder)
        # The columns of a block are those of a chunk, in the same order.
        yield Chunk._make([*block[:6], partial(block.locate, None)])


def _check_next(block: Block, lacks_next: NDArray[np.bool_] | None, encoder: Encoder) -> None:
    """Raise for the first row that needs a next observation and has none."""
    if lacks_next is not None and lacks_next.any():
        field = "next_observations"
        raise encoder.refuse(field, block.locate(None, field, int(np.argmax(lacks_next))))


def _pair(
    block: Block,
    others: Iterator[Block],
    episode_end: EpisodeEnd | None,
    dropped: Counter[Reason],
    encoder: Encoder,
) -> Iterator[Chunk]:
    """Yield rows with the row after them as successor, or with the recorded one; those without one, and those that are
    to be left out, are counted in `dropped`, by reason.

    Two rows wait for the next block: a row's successor, and whether that one will be dropped in its turn.
    """
    for following in others:
        if block.episode is None or following.episode is None:
            # Where successors were recorded, the end of a file tells nothing of episodes.
            goes_on = following.part == block.part or block.next_observations is not None
        else:
            goes_on = following.part == block.part or block.episode[-1] == following.episode[0]
        if not goes_on:
            yield from _transitions(block, block.reward.size, Reason.LAST_OF_FILE, episode_end, dropped, encoder)
            block = following
            continue
        n_whole = block.reward.size - 2
        if n_whole > 0:
            yield from _transitions(block, n_whole, None, episode_end, dropped, encoder)
            block = block.rows_from(n_whole)
        block = Block.join([block, following])
    yield from _transitions(block, block.reward.size, Reason.LAST_OF_LOG, episode_end, dropped, encoder)


def _transitions(
    block: Block,
    n: int,
    end: Reason | None,
    episode_end: EpisodeEnd | None,
    dropped: Counter[Reason],
    encoder: Encoder,
) -> Iterator[Chunk]:
    """Yield those of the first n rows that have a successor. The last row of an episode whose successor was recorded is
    truncated, unless `episode_end` says something else.

    `end` says why nothing follows the last row of the block, all rows of which are then asked for; None: something
    follows it.
    """
    has_next, terminated = block.next_observations is not None, block.terminated
    is_flagged = terminated | block.truncated
    is_last = np.zeros(is_flagged.size, np.bool_)
    if block.episode is not None:
        is_last[:-1] = (block.episode[1:] != block.episode[:-1]) & ~is_flagged[:-1]
    is_cut = end is not None and not is_flagged[-1] and not (has_next and block.episode is None)
    missing = np.zeros(is_flagged.size, np.bool_)
    marks = block.truncated.copy() if has_next else missing.copy()
    lacks_next = missing if block.lacks_next is None else block.lacks_next
    if episode_end == "terminated":
        is_last[-1] |= is_cut
        terminated, is_cut = terminated | is_last, False
    else:
        if has_next and episode_end != "drop":
            marks |= is_last
            marks[-1] |= is_cut and end is Reason.LAST_OF_FILE
            is_last &= lacks_next
            is_cut = is_cut and bool(lacks_next[-1])
        dropped[Reason.NO_NEXT_IN_EPISODE] += int(is_last[:n].sum())
        missing |= is_last
    if not has_next:
        no_final = block.truncated & ~terminated
        dropped[Reason.NO_FINAL] += int(no_final[:n].sum())
        missing |= no_final
    if end is not None and is_cut:
        dropped[end] += 1
    missing[-1] |= is_cut and end is Reason.LAST_OF_FILE
    is_counted = missing.copy()
    is_counted[-1] |= is_cut
    lacks_next = lacks_next & ~(terminated | is_counted)
    if block.is_unusable is None or block.is_unobserved is None:
        _check_next(block, lacks_next[:n], encoder)
    else:
        lacking = (block.is_unusable & ~is_counted) | lacks_next
        dropped[Reason.MISSING] += int(lacking[:n].sum())
        missing |= lacking
        if not has_next:
            lacking = np.append(block.is_unobserved[1:], False) & ~(terminated | is_counted | missing)
            dropped[Reason.MISSING_NEXT] += int(lacking[:n].sum())
            missing |= lacking
    marks |= np.append(missing[1:], False) & ~terminated
    missing[-1] |= is_cut
    for start in range(0, n, sizes.CHUNK_ROWS):
        kept = start + np.flatnonzero(~missing[start : min(n, start + sizes.CHUNK_ROWS)])
        if not kept.size:
            continue
        stop = start + kept.size
        rows = slice(start, stop) if kept[-1] == stop - 1 else kept  # views, where at most rows at the end are dropped
        is_end = terminated[rows]
        if block.next_observations is not None:
            successors = block.next_observations[rows]
        elif isinstance(rows, slice) and not is_end.any():
            successors = block.observations[start + 1 : stop + 1]
        else:
            successors = block.observations.take(kept + 1, axis=0, mode="clip")
            successors[is_end] = 0
        yield Chunk(
            block.observations[rows],
            block.reward[rows],
            successors,
            is_end,
            marks[rows],
            None if block.weight is None else block.weight[rows],
            partial(block.locate, kept),
        )


def _rows(n: int) -> str:
    return f"{n:,} row" + ("" if n == 1 else "s")
