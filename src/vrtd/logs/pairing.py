"""Every row is given the observation that follows it.

Where next observations were recorded, rows are handed on as they are. Elsewhere row i + 1 follows row i within an
episode. A terminated row needs no successor and gets zeros. A row at the end of an episode that did not terminate, or
at the end of the recording, has no successor: it is dropped and counted, and the row before it, which bootstraps from
the dropped row's observation, is marked as truncated, unless the log ends there and nothing follows anyway. Rows with
missing values are dropped in the same way where that was asked for: the rows around them are not joined.

`episode_end` says what the last row of an episode is where no flag tells. Rows of different parts (files) follow each
other only where an episode column says so, or where rows are sorted: a wrong join would be learned as a transition, a
cut costs one row, which is reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from functools import partial
from typing import Any

import numpy as np

from vrtd.logs import blocks as sizes
from vrtd.logs.blocks import Block
from vrtd.logs.columns import EpisodeEnd
from vrtd.logs.log import Chunk


class Reason(StrEnum):
    """Why a row was dropped."""

    NO_FINAL = "truncated without a final observation"
    NO_NEXT_IN_EPISODE = "the last of an episode without a final observation"
    LAST_OF_FILE = "the last of a file"
    LAST_OF_LOG = "the last of the log"
    MISSING = "a value is missing"
    MISSING_NEXT = "the next observation is missing"


def keep_next(
    block: Block | None, others: Iterator[Block], episode_end: EpisodeEnd | None, dropped: Counter[Reason]
) -> Iterator[Chunk]:
    """Yield rows with the successors that were recorded; those before a change of the episode are truncated, or
    terminated if `episode_end` says so.

    Rows with missing values are dropped, and those before them are truncated. A block waits for the next one where that
    tells whether its last row continues.
    """
    while block is not None:
        following, rows = None, None
        terminated, truncated = block.terminated, block.truncated
        if block.episode is not None or block.is_unusable is not None:
            following = next(others, None)
        if block.episode is not None:
            is_last = np.zeros(truncated.size, np.bool_)
            is_last[:-1] = block.episode[1:] != block.episode[:-1]
            if following is None:
                is_last[-1] = episode_end == "terminated"  # at the end of the log, truncation needs no mark
            else:
                assert following.episode is not None
                is_last[-1] = block.episode[-1] != following.episode[0]
            is_last &= ~(terminated | truncated)
            if episode_end == "terminated":
                terminated = terminated | is_last
            else:
                truncated = truncated | is_last
        if block.is_unusable is not None:
            dropped[Reason.MISSING] += int(block.is_unusable.sum())
            rows = np.flatnonzero(~block.is_unusable)
            is_before = following is not None and following.is_unusable is not None and following.is_unusable[0]
            truncated = truncated | (np.append(block.is_unusable[1:], is_before) & ~terminated)
        # The columns of a block are those of a chunk, in the same order.
        columns = block._replace(terminated=terminated, truncated=truncated)[:6]
        chunk = Chunk._make([*columns, partial(block.locate, rows)])
        if rows is not None and rows.size < block.reward.size:
            kept: dict[str, Any] = {name: values[rows] for name, values in chunk.columns.items()}
            chunk = chunk._replace(**kept)
        if chunk.n_rows:
            yield chunk
        block = following or next(others, None)


def pair(
    block: Block, others: Iterator[Block], episode_end: EpisodeEnd | None, dropped: Counter[Reason]
) -> Iterator[Chunk]:
    """Yield rows with the row after them as successor, or with the recorded one; those without one, and those that are
    to be left out, are counted in `dropped`, by reason.

    Two rows wait for the next block: a row's successor, and whether that one will be dropped in its turn.
    """
    for following in others:
        goes_on = following.part == block.part or (
            block.episode is not None and following.episode is not None and block.episode[-1] == following.episode[0]
        )
        if not goes_on:
            yield from _transitions(block, block.reward.size, Reason.LAST_OF_FILE, episode_end, dropped)
            block = following
            continue
        n_whole = block.reward.size - 2
        if n_whole > 0:
            yield from _transitions(block, n_whole, None, episode_end, dropped)
            block = block.rows_from(n_whole)
        block = Block.join([block, following])
    yield from _transitions(block, block.reward.size, Reason.LAST_OF_LOG, episode_end, dropped)


def _transitions(
    block: Block, n: int, end: Reason | None, episode_end: EpisodeEnd | None, dropped: Counter[Reason]
) -> Iterator[Chunk]:
    """Yield those of the first n rows that have a successor.

    `end` says why nothing follows the last row of the block, all rows of which are then asked for; None: something
    follows it.
    """
    has_next, terminated = block.next_observations is not None, block.terminated
    is_flagged = terminated | block.truncated
    is_last = np.zeros(is_flagged.size, np.bool_)
    if block.episode is not None:
        is_last[:-1] = (block.episode[1:] != block.episode[:-1]) & ~is_flagged[:-1]
    # Where successors were recorded, the end of a file tells nothing of episodes.
    is_cut = end is not None and not is_flagged[-1] and not (has_next and block.episode is None)
    missing = np.zeros(is_flagged.size, np.bool_)
    if episode_end == "terminated":
        is_last[-1] |= is_cut
        terminated, is_cut = terminated | is_last, False
    else:
        dropped[Reason.NO_NEXT_IN_EPISODE] += int(is_last[:n].sum())
        missing |= is_last
    if not has_next:
        no_final = block.truncated & ~terminated
        dropped[Reason.NO_FINAL] += int(no_final[:n].sum())
        missing |= no_final
    if end is not None and is_cut:
        dropped[end] += 1
    missing[-1] |= is_cut and end is Reason.LAST_OF_FILE
    if block.is_unusable is not None and block.is_unobserved is not None:
        is_counted = missing.copy()
        is_counted[-1] |= is_cut
        lacking = block.is_unusable & ~is_counted
        dropped[Reason.MISSING] += int(lacking[:n].sum())
        missing |= lacking
        if not has_next:
            lacking = np.append(block.is_unobserved[1:], False) & ~(terminated | is_counted | missing)
            dropped[Reason.MISSING_NEXT] += int(lacking[:n].sum())
            missing |= lacking
    marks = np.append(missing[1:], False) & ~terminated
    if has_next:
        marks |= block.truncated
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
