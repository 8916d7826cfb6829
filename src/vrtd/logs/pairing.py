"""From rows to transitions: every row needs the observation that follows it.

Where next observations were recorded, rows are handed on as they are. Elsewhere row i + 1 follows row i within an
episode. A terminated row needs no successor and gets zeros. A row at the end of an episode that did not terminate, or
at the end of the recording, has no successor: it is dropped and counted, and the row before it, which bootstraps from
the dropped row's observation, is marked as truncated, unless the log ends there and nothing follows anyway.

Rows of different parts (files) follow each other only where an episode column says so: a wrong join would be learned
as a transition, a cut costs one row, which is reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrtd.logs.blocks import CHUNK_ROWS, Block, join, locate, rows_from
from vrtd.logs.log import Chunk

NO_FINAL = "truncated without a final observation"
NO_NEXT_IN_EPISODE = "the last of an episode without a final observation"
LAST_OF_FILE = "the last of a file"
LAST_OF_LOG = "the last of the log"


def with_recorded(block: Block, others: Iterator[Block]) -> Iterator[Chunk]:
    """Rows with the successors that were recorded.

    A block waits for the next one where that tells whether its last episode continues.
    """
    while (episode := block.episode) is not None:
        goes_on = ~_flags(block.terminated, block)
        truncated = _flags(block.truncated, block).copy()
        truncated[:-1] |= (episode[1:] != episode[:-1]) & goes_on[:-1]
        block = block._replace(truncated=truncated)
        following = next(others, None)
        if following is None:
            break
        assert following.episode is not None
        truncated[-1] |= following.episode[0] != episode[-1] and goes_on[-1]
        yield _chunk(block)
        block = following
    else:
        yield _chunk(block)
        for block in others:
            yield _chunk(block)
        return
    yield _chunk(block)


def _chunk(block: Block) -> Chunk:
    assert block.next_observations is not None
    fields = {"observations": block.observations, "next_observations": block.next_observations}
    return Chunk(
        block.observations,
        block.reward,
        block.next_observations,
        _flags(block.terminated, block),
        _flags(block.truncated, block),
        block.weight,
        partial(locate, block.pieces, 0, None, False, fields),
    )


def with_next(block: Block, others: Iterator[Block], dropped: Counter[str]) -> Iterator[Chunk]:
    """Rows with the row after them as successor; those without one are counted in `dropped`, by reason.

    Two rows wait for the next block: a row's successor, and whether that one will be dropped in its turn.
    """
    for following in others:
        if following.part != block.part and not _goes_on(block, following):
            yield from _cut(block, block.reward.size, LAST_OF_FILE, dropped)
            block = following
            continue
        whole = block.reward.size - 2
        if whole > 0:
            yield from _cut(block, whole, None, dropped)
            block = rows_from(block, whole)
        block = join([block, following])
    yield from _cut(block, block.reward.size, LAST_OF_LOG, dropped)


def _goes_on(block: Block, following: Block) -> bool:
    return block.episode is not None and following.episode is not None and block.episode[-1] == following.episode[0]


def _cut(block: Block, stop: int, end: str | None, dropped: Counter[str]) -> Iterator[Chunk]:
    """The first `stop` rows. `end`: why nothing follows the last row of the block, or None when something will."""
    for start in range(0, stop, CHUNK_ROWS):
        here = min(stop, start + CHUNK_ROWS)
        chunk = _transitions(block, start, here, end, dropped)
        if chunk.n_rows:
            yield chunk


def _transitions(block: Block, start: int, stop: int, end: str | None, dropped: Counter[str]) -> Chunk:
    """The rows from `start` to `stop` that have a successor. Looks at up to two rows beyond."""
    n = stop - start
    seen = slice(start, stop + 1)  # with the row that may be dropped after the last one
    terminated, truncated = _flags(block.terminated, block, seen), _flags(block.truncated, block, seen)
    changes = np.zeros(terminated.size, dtype=np.bool_)
    if block.episode is not None:
        labels = block.episode[start : stop + 2]
        differ = labels[1:] != labels[:-1]
        changes[: differ.size] = differ[: changes.size]
    missing = (truncated | changes) & ~terminated
    dropped[NO_FINAL] += int((truncated & ~terminated)[:n].sum())
    dropped[NO_NEXT_IN_EPISODE] += int((missing & ~truncated)[:n].sum())
    last = len(block.observations) - 1 - start
    nothing_follows = end is not None and last < missing.size and not (missing[last] or terminated[last])
    if nothing_follows and end == LAST_OF_FILE:
        missing[last] = True
    marks = np.zeros(n, dtype=np.bool_)
    follows = missing[1 : n + 1]
    marks[: follows.size] = follows & ~terminated[: follows.size]
    if nothing_follows and end is not None and last < n:
        missing[last] = True
        dropped[end] += 1
    missing, over = missing[:n], terminated[:n]
    observations = block.observations[start:stop]
    successors = block.observations[start + 1 : stop + 1]
    kept: NDArray[np.intp] | None = None
    if missing.any():
        kept = np.flatnonzero(~missing)
        marks, over = marks[kept], over[kept]
        if kept.size == 0 or kept[-1] == kept.size - 1:  # only rows at the end are dropped: views will do
            observations, successors = observations[: kept.size], successors[: kept.size]
        else:
            observations = observations[kept]
            successors = block.observations[np.minimum(start + kept + 1, start + last)]
            successors[over] = 0
    if (kept is None or successors.base is not None) and over.any():
        successors = _with_zeros(successors, over)
    fields = {"observations": observations, "next_observations": successors}
    where = slice(start, stop) if kept is None else start + kept
    return Chunk(
        observations,
        block.reward[where],
        successors,
        over,
        marks,
        None if block.weight is None else block.weight[where],
        partial(locate, block.pieces, start, kept, True, fields),
    )


def _with_zeros(successors: NDArray[Any], terminated: NDArray[np.bool_]) -> NDArray[Any]:
    """A copy, with zeros where nothing will look; the last row may be missing."""
    full = np.empty((terminated.size, *successors.shape[1:]), dtype=successors.dtype)
    full[: len(successors)] = successors
    full[terminated] = 0
    return full


def _flags(given: NDArray[np.bool_] | None, block: Block, rows: slice = slice(None)) -> NDArray[np.bool_]:
    return np.zeros(block.reward[rows].size, dtype=np.bool_) if given is None else given[rows]
