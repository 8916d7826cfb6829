"""Data sets that keep every episode by itself: Minari's and d3rlpy's."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from vrtd.errors import DataError
from vrtd.logs.blocks import CHUNK_BYTES, CHUNK_ROWS, Block, Origin, Piece, join, make_block, observed, readable
from vrtd.logs.columns import Columns

_COLUMNS = Columns("observations", "rewards", terminated="terminations", truncated="truncations")


class Rows(Protocol):
    """An array, in memory or in a file, of which rows can be taken."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __getitem__(self, rows: slice, /) -> Any: ...


class Episode(NamedTuple):
    """T steps. Observations are one array or several, which are laid side by side, T + 1 with the final one."""

    where: str
    observations: Sequence[tuple[str, Rows]]  # name, rows
    rewards: Rows
    terminations: Rows
    truncations: Rows
    has_final: bool


def episode_blocks(episodes: Generator[Episode, None, None]) -> Generator[Block, None, None]:
    """Blocks of several short episodes, or of a part of a long one."""
    waiting: list[Block] = []
    first: Block | None = None
    with closing(episodes):
        for episode in episodes:
            for block in _pieces(episode):
                first = first or block
                kind, wanted = (f"{one.observations.dtype} {one.observations.shape[1:]}" for one in (block, first))
                if kind != wanted:
                    raise DataError(
                        f"the observations of {episode.where} must be like the first episode's, {wanted}",
                        kind,
                        "keep data of different spaces apart",
                    )
                waiting.append(block)
                rows = sum(block.reward.size for block in waiting)
                if rows >= CHUNK_ROWS or sum(block.observations.nbytes for block in waiting) >= CHUNK_BYTES:
                    yield join(waiting)
                    waiting = []
    if waiting:
        yield join(waiting)


def _pieces(episode: Episode) -> Iterator[Block]:
    with readable(episode.where):
        steps = episode.rewards.shape[0] if episode.rewards.shape else 0
        wanted = steps + episode.has_final
        for name, rows in episode.observations:
            if rows.shape[:1] != (wanted,):
                raise DataError(
                    f"{episode.where}, {name}, must have {wanted} entries for {steps} rewards",
                    f"shape {rows.shape}",
                    "the episode is incomplete: record it again or remove it",
                )
        width = sum(int(np.prod(rows.shape[1:], dtype=np.int64)) for _, rows in episode.observations)
        step = int(min(CHUNK_ROWS, max(64, CHUNK_BYTES // (8 * max(width, 1)))))
    for start in range(0, steps, step):
        stop = min(steps, start + step)
        with readable(episode.where):
            observations, names = _observations(episode, start, stop + episode.has_final)
            small = {name: np.asarray(getattr(episode, name)[start:stop]) for name in _COLUMNS.all[1:]}
        fields = _COLUMNS.by_field | {"observations": names, "next_observations": names}
        origin = Origin(episode.where, fields, successors_at=1)
        arrays = {"observations": observations[: stop - start], **small}
        block = make_block(arrays, _COLUMNS, Piece(origin, start, stop - start))
        yield block._replace(next_observations=observations[1:] if episode.has_final else None)


def _observations(episode: Episode, start: int, stop: int) -> tuple[NDArray[Any], tuple[str, ...]]:
    if len(episode.observations) == 1:
        name, rows = episode.observations[0]
        return observed(np.asarray(rows[start:stop]), f"{episode.where}, {name},"), (name,)
    columns, names = [], []
    for name, rows in episode.observations:
        values = observed(np.asarray(rows[start:stop]), f"{episode.where}, {name},").reshape(stop - start, -1)
        columns.append(values)
        names += [f"{name}[{j}]" for j in range(values.shape[1])]
    return np.ascontiguousarray(np.concatenate(columns, axis=1)), tuple(names)
