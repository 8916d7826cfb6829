"""Partitions of a log: consecutive rows that are read on their own, and the rows at their ends, which need each other.

The last two rows of a partition wait, because the rows that follow decide about their successors. Whether the first row
of a partition starts an episode is known only then, too. `bridge` turns these rows into transitions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from vrtd.logs.blocks import Block
from vrtd.logs.columns import Columns, EpisodeEnd
from vrtd.logs.encoding import Encoder
from vrtd.logs.log import Chunk
from vrtd.logs.pairing import Reason, is_continued, keep_next, make_transitions, mark_starts, pair_known
from vrtd.logs.part import Part, recorded_blocks
from vrtd.logs.repeats import SeenEpisodes, SeenNames

#: Least number of rows of a partition, and most partitions of a log whose number of rows is known.
PARTITION_ROWS, MOST_PARTITIONS = 1 << 17, 4096
_CONTEXT = 3  # rows that decide about the transition of the first one


class Counts(NamedTuple):
    """Counts of one reading of rows."""

    n_rows: int = 0
    dropped: Mapping[Reason, int] = {}
    unseen: Mapping[str, int] = {}
    lacking: Mapping[str, int] = {}
    is_divided: bool = False  # whether the rows show episodes or ends of episodes
    seen: SeenNames = SeenNames()

    def join(self, others: Counts) -> Counts:
        """Return the counts of these rows and of others that follow."""
        dropped, unseen = _add(self.dropped, others.dropped), _add(self.unseen, others.unseen)
        lacking = _add(self.lacking, others.lacking)
        is_divided, seen = self.is_divided or others.is_divided, self.seen.join(others.seen)
        return Counts(self.n_rows + others.n_rows, dropped, unseen, lacking, is_divided, seen)


def _add(counts: Mapping[Any, int], others: Mapping[Any, int]) -> dict[Any, int]:
    return dict(Counter(counts) + Counter(others))


class PartitionEdges(NamedTuple):
    """First and last rows of consecutive rows, which wait for the rows around them."""

    #: Rows of partitions with fewer than three rows, which come first.
    lead: tuple[Block, ...] = ()
    first: Block | None = None  # begins with the next row; None if there are no transitions between the edges
    is_whole: bool = False  # whether no row continues the rows of `first`, which are all not among the transitions yet
    last: Block | None = None  # at most two rows; None if nothing waits for the rows that follow

    def without_objects(self) -> PartitionEdges:
        """Return the edges as arrays that can be written without pickle."""
        first, last = (None if block is None else block.without_objects() for block in (self.first, self.last))
        return PartitionEdges(tuple(block.without_objects() for block in self.lead), first, self.is_whole, last)

    @property
    def is_lead(self) -> bool:
        """Whether all rows are in `lead`."""
        return bool(self.lead) and self.first is None


class Pairing(NamedTuple):
    """How rows become transitions: settings that all partitions of a log share."""

    encoder: Encoder  # not used yet
    episode_end: EpisodeEnd | None

    def bridge(
        self, last: Block | None, edges: PartitionEdges, dropped: Counter[Reason]
    ) -> Generator[Chunk, None, Block | None]:
        """Yield the transitions between `last`, the last rows of the rows before, and those between the edges.

        Return the last rows, which wait for the rows that follow. Dropped rows are counted in `dropped`.
        """
        for block in edges.lead:
            last = yield from self._join(last, block, None, dropped)
        if edges.first is None:
            return last
        whole = Reason.LAST_OF_FILE if edges.is_whole else None
        if edges.first.needs_no_pair:
            yield from keep_next([edges.first], self.encoder)
            return edges.last
        yield from self._join(last, edges.first, whole, dropped)
        return edges.last

    def _join(
        self, last: Block | None, block: Block, end: Reason | None, dropped: Counter[Reason]
    ) -> Generator[Chunk, None, Block | None]:
        """Yield the transitions of `last` and of a block, except those for which later rows are needed; return these.

        `end` is the reason if nothing follows the block.
        """
        if block.needs_no_pair:
            yield from keep_next([block], self.encoder)
            return None
        settings = self.episode_end, dropped, self.encoder
        goes_on = last is not None and is_continued(last, block)
        block = mark_starts(block, last if goes_on or self.episode_end is None else None)
        if last is not None and goes_on:
            block = Block.join([mark_starts(last, None), block])
        elif last is not None:
            yield from make_transitions(mark_starts(last, None), last.reward.size, Reason.LAST_OF_FILE, *settings)
        n = block.reward.size if end is not None else max(0, block.reward.size - 2)
        yield from make_transitions(block, n, end, *settings)
        return block.rows_from(n) if end is None else None

    def finish(self, last: Block | None, dropped: Counter[Reason]) -> Iterator[Chunk]:
        """Yield the transitions of the last rows of a log."""
        if last is not None:
            block = mark_starts(last, None)
            yield from make_transitions(
                block, block.reward.size, Reason.LAST_OF_LOG, self.episode_end, dropped, self.encoder
            )


class Partition:
    """Consecutive rows of a log. It is plain data, which another process can read.

    Parameters
    ----------
    parts : sequence of (int, Part)
        Files, or pieces of them, with the numbers of their files.
    columns : Columns
        Columns of the fields.
    pairing : Pairing
        Settings of the log.
    has_names : bool
        Whether the columns have names.
    """

    def __init__(self, parts: Sequence[tuple[int, Part]], columns: Columns, pairing: Pairing, has_names: bool) -> None:
        self._parts, self._columns, self.pairing, self._has_names = tuple(parts), columns, pairing, has_names
        #: PartitionEdges and counts of the last complete reading. `lead` and `first` are known with the first chunk.
        self.edges, self.counts = PartitionEdges(), Counts()

    def chunks(self) -> Iterator[Chunk]:
        """Read the rows and yield the transitions between the edges; then set `edges` and `counts`."""
        encoder, dropped = deepcopy(self.pairing.encoder), Counter[Reason]()
        seen, n_rows, is_divided = SeenEpisodes(self._columns, self._has_names), 0, False

        def read() -> Generator[Block, None, None]:
            nonlocal n_rows, is_divided
            for block in recorded_blocks(self._parts, encoder):
                seen.check(block)
                n_rows += block.reward.size
                is_divided = is_divided or block.shows_episodes
                yield block

        blocks = read()
        first = next(blocks, None)
        self.edges, self.counts = PartitionEdges(), Counts()
        if first is not None and first.needs_no_pair:
            self.edges = PartitionEdges(first=first.first_rows(1))
            has_ended = bool(first.terminated[0] or first.truncated[0])
            others = chain([first.rows_from(1)] if first.reward.size > 1 else [], blocks)
            yield from _with_start(keep_next(others, encoder), has_ended)
        elif first is not None:
            yield from self._pair(first, blocks, dropped, encoder)
        self.counts = Counts(n_rows, dropped, encoder.unseen, encoder.lacking, is_divided, seen.summarise())

    @property
    def is_in_memory(self) -> bool:
        """Whether its rows travel with it to another process."""
        return any(part.is_in_memory for _, part in self._parts)

    def load(self) -> Partition:
        """Return a partition that holds no more than its rows, to be sent to another process."""
        parts = [(i, part.load()) for i, part in self._parts]
        return Partition(parts, self._columns, self.pairing, self._has_names)

    def chunks_from_start(self) -> Iterator[Chunk]:
        """Do the same if no rows come before, so that only the last rows wait."""
        chunks, dropped = self.chunks(), Counter[Reason]()
        first = next(chunks, None)
        last = yield from self.pairing.bridge(None, self.edges._replace(last=None), dropped)
        if first is not None:
            yield first
            yield from chunks
        last = last if self.edges.first is None else self.edges.last
        self.edges, self.counts = PartitionEdges(last=last), self.counts.join(Counts(dropped=dropped))

    def _pair(
        self, block: Block, others: Iterator[Block], dropped: Counter[Reason], encoder: Encoder
    ) -> Iterator[Chunk]:
        following, episode_end, lead = None, self.pairing.episode_end, [block]
        while block.reward.size < _CONTEXT:
            following = next(others, None)
            if following is None:
                self.edges = PartitionEdges(tuple(lead))
                return
            if not is_continued(block, following):
                break
            lead.append(following)
            block, following = Block.join([block, following]), None
        if following is None:
            first, is_whole = block.first_rows(_CONTEXT), False
            block = mark_starts(block, None).rows_from(1)
        else:
            first, is_whole = block, True
            block = mark_starts(following, block if episode_end is None else None)
        first = first._replace(part=lead[0].part)  # decides whether rows before it continue
        self.edges = PartitionEdges((), first, is_whole)
        block = yield from pair_known(block, others, episode_end, dropped, encoder)
        n = max(0, block.reward.size - 2)
        yield from make_transitions(block, n, None, episode_end, dropped, encoder)
        self.edges = self.edges._replace(last=block.rows_from(n))


class ChunkPartition:
    """Consecutive transitions that are read elsewhere.

    Parameters
    ----------
    chunks : iterable of Chunk
        The transitions. The first chunk says which rows start an episode.
    """

    def __init__(self, chunks: Iterable[Chunk]) -> None:
        self._chunks = chunks
        self.edges, self.counts = PartitionEdges(), Counts()

    def chunks(self) -> Iterator[Chunk]:
        """Yield the transitions."""
        return iter(self._chunks)

    chunks_from_start = chunks

    def load(self) -> ChunkPartition:
        """Return a copy in memory, which another process can read."""
        return ChunkPartition([chunk.copy()._replace(locate=None) for chunk in self._chunks])


def cut(chunks: Iterable[Chunk], n_rows: int) -> Iterator[ChunkPartition]:
    """Divide chunks into partitions of exactly `n_rows` rows, except the last one.

    Each partition must be read, or loaded, before the next one.
    """
    others, has_ended = (chunk for chunk in chunks if chunk.n_rows), True
    following = next(others, None)

    def read() -> Iterator[Chunk]:
        nonlocal following, has_ended
        left, is_first = n_rows, True
        while left and following is not None:
            chunk = following.part(0, left)
            following = following.part(left, following.n_rows) if following.n_rows > left else next(others, None)
            left -= chunk.n_rows
            if is_first and chunk.starts is None:
                chunk = chunk._replace(starts=np.append(has_ended, chunk.ends[:-1]))
            is_first, has_ended = False, bool(chunk.ends[-1])
            yield chunk

    while following is not None:
        yield ChunkPartition(read())


def _with_start(chunks: Iterator[Chunk], is_start: bool) -> Iterator[Chunk]:
    """Yield the chunks; the first one says which rows start an episode."""
    for k, chunk in enumerate(chunks):
        yield chunk if k else chunk._replace(starts=np.append(is_start, chunk.ends[:-1]))
