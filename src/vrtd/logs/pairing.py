"""Pairing of rows with their successors.

Recorded next observations are kept. Otherwise row i + 1 is the successor of row i within an episode. A terminated row
needs no successor and gets zeros. The last row of an episode that did not terminate, or of the recording, has no
successor unless one was recorded. It is dropped and counted. The row before it bootstraps from its observation and is
marked as truncated, unless the log ends there and nothing follows. If requested, rows with missing values are dropped
in the same way, and the rows around them are not joined.

`episode_end` decides about the last row of an episode that no flag marks. Rows of different parts (files) are joined
only within an episode of an episode column, or if rows are sorted. A wrong join would be learned as a transition,
whereas a cut costs only one row, which is reported.

The first row of each episode is marked unless starts were recorded. A row after a gap is not a start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from enum import StrEnum
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrtd.logs import blocks as sizes
from vrtd.logs.blocks import Block
from vrtd.logs.columns import EpisodeEnd
from vrtd.logs.encoding import Encoder
from vrtd.logs.log import Chunk
from vrtd.sparse import is_sparse, part_of


class Reason(StrEnum):
    """Reason for which a row was dropped."""

    NO_FINAL = "truncated without a final observation"
    NO_NEXT_IN_EPISODE = "the last of an episode without a final observation"
    LAST_OF_FILE = "the last of a file"
    LAST_OF_LOG = "the last of the log"
    MISSING = "a value is missing"
    MISSING_NEXT = "the next observation is missing"


def keep_next(blocks: Iterable[Block], encoder: Encoder) -> Iterator[Chunk]:
    """Yield rows with their recorded successors, if nothing depends on the rows around them."""
    for block in blocks:
        _check_next(block, block.lacks_next, encoder)
        yield Chunk._make([*block[: Chunk._fields.index("locate")], partial(block.locate, None)])


def _check_next(block: Block, lacks_next: NDArray[np.bool_] | None, encoder: Encoder) -> None:
    """Raise for the first row that needs a next observation and lacks it."""
    if lacks_next is not None and lacks_next.any():
        field = "next_observations"
        raise encoder.refuse(field, block.locate(None, field, int(np.argmax(lacks_next))))


def pair(
    block: Block,
    others: Iterator[Block],
    episode_end: EpisodeEnd | None,
    dropped: Counter[Reason],
    encoder: Encoder,
) -> Iterator[Chunk]:
    """Pair each row with its recorded successor or with the row after it, and yield the transitions.

    Rows without a successor and rows to be left out are counted in `dropped`, by reason.
    """
    block = yield from pair_known(mark_starts(block, None), others, episode_end, dropped, encoder)
    yield from make_transitions(block, block.reward.size, Reason.LAST_OF_LOG, episode_end, dropped, encoder)


def pair_known(
    block: Block,
    others: Iterator[Block],
    episode_end: EpisodeEnd | None,
    dropped: Counter[Reason],
    encoder: Encoder,
) -> Generator[Chunk, None, Block]:
    """Yield the transitions of all rows but the last block, of which later rows decide; return this block.

    The last two rows of a block wait for the next one, which decides about the successor and whether that row is
    dropped itself.
    """
    for following in others:
        goes_on = is_continued(block, following)
        following = mark_starts(following, block if goes_on or episode_end is None else None)
        if not goes_on:
            yield from make_transitions(block, block.reward.size, Reason.LAST_OF_FILE, episode_end, dropped, encoder)
            block = following
            continue
        n_whole = block.reward.size - 2
        if n_whole > 0:
            yield from make_transitions(block, n_whole, None, episode_end, dropped, encoder)
            block = block.rows_from(n_whole)
        block = Block.join([block, following])
    return block


def is_continued(block: Block, following: Block) -> bool:
    """Return whether the rows of a block may be joined with those of the block after it.

    Without episodes or flags, a file may end anywhere in an episode. If successors were recorded, the end of a file
    need not end an episode.
    """
    if following.part == block.part:
        return True
    if block.episode is None or following.episode is None:
        return block.next_observations is not None
    return bool(block.episode[-1] == following.episode[0])


def mark_starts(block: Block, before: Block | None) -> Block:
    """Return the block with the first rows of its episodes marked, unless they were recorded.

    `before` is the preceding block. If it is None, the first row starts an episode.
    """
    if block.starts is not None:
        return block
    starts = np.append(before is None, block.terminated[:-1] | block.truncated[:-1])
    if before is not None:
        starts[0] = before.terminated[-1] or before.truncated[-1]
    if block.episode is not None:
        starts[1:] |= block.episode[1:] != block.episode[:-1]
        if before is not None and before.episode is not None:
            starts[0] |= block.episode[0] != before.episode[-1]
    return block._replace(starts=starts)


def make_transitions(
    block: Block,
    n: int,
    end: Reason | None,
    episode_end: EpisodeEnd | None,
    dropped: Counter[Reason],
    encoder: Encoder,
) -> Iterator[Chunk]:
    """Yield the transitions among the first n rows that have a successor.

    The last row of an episode is truncated if its successor was recorded, unless `episode_end` decides otherwise. `end`
    is the reason why nothing follows the block, whose n rows are then all used, or None if another row follows.
    """
    has_next, terminated = block.next_observations is not None, block.terminated
    is_flagged = terminated | block.truncated
    is_last = np.zeros(is_flagged.size, np.bool_)
    if block.starts is not None:
        is_last[:-1] = block.starts[1:]
    if block.episode is not None:
        is_last[:-1] |= block.episode[1:] != block.episode[:-1]
    is_last &= ~is_flagged
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
        rows = slice(start, stop) if kept[-1] == stop - 1 else kept  # a view if only rows at the end are dropped
        is_end = terminated[rows]
        if block.next_observations is not None:
            successors = _rows_of(block.next_observations, rows)
        elif isinstance(rows, slice) and not is_end.any():
            successors = part_of(block.observations, start + 1, stop + 1)
        else:
            successors = _take_next(block.observations, kept, is_end)
        optional = (block.weight, block.action, block.propensity, block.starts)
        columns: list[Any] = [
            _rows_of(block.observations, rows),
            block.reward[rows],
            successors,
            is_end,
            marks[rows],
        ]
        columns += [None if values is None else values[rows] for values in optional]
        yield Chunk._make([*columns, partial(block.locate, kept)])


def _rows_of(table: Any, rows: slice | NDArray[np.intp]) -> Any:
    """Return rows of a table, without a copy if they are consecutive."""
    return part_of(table, rows.start, rows.stop) if isinstance(rows, slice) else table[rows]


def _take_next(table: Any, rows: NDArray[np.intp], is_end: NDArray[np.bool_]) -> Any:
    """Return the rows that follow these; the successor of a terminated row is ignored."""
    if is_sparse(table):
        return table[np.minimum(rows + 1, table.shape[0] - 1)]
    successors = table.take(rows + 1, axis=0, mode="clip")
    successors[is_end] = 0
    return successors
