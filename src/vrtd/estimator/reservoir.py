"""Reservoir sampling: a uniform sample of bounded size of the rows of a stream (A. G. Waterman; J. S. Vitter 1985)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.estimator.rows import append, join_rows
from vrtd.kernels.random import RESERVOIR, make_streams, words_of
from vrtd.problems import Transitions


class Reservoir(NamedTuple):
    """Sample that contains each row so far with the same probability; `add` returns the next one."""

    capacity: int
    stream: NDArray[np.uint64]  # one word for each row
    n_seen: int = 0
    buffer: Transitions | None = None  # its first `n_kept` rows are in use

    @property
    def n_kept(self) -> int:
        """Number of rows in the sample."""
        return min(self.n_seen, self.capacity)

    @property
    def rows(self) -> Transitions | None:
        """Rows in the sample, None if there are none."""
        return None if self.buffer is None else self.buffer.part(0, self.n_kept)


def empty_reservoir(capacity: int, seed: int) -> Reservoir:
    """Return an empty reservoir."""
    return Reservoir(capacity, make_streams(seed, np.arange(1), RESERVOIR)[0])


def thin(reservoir: Reservoir, n_kept: int) -> Reservoir:
    """Return the reservoir with at most `n_kept` rows, the first ones of its random order."""
    if reservoir.buffer is None or reservoir.n_kept <= n_kept:
        return reservoir
    return reservoir._replace(capacity=n_kept, buffer=reservoir.buffer.part(0, n_kept).copy())


def join(reservoir: Reservoir, other: Reservoir, most: int) -> Reservoir:
    """Return at most `most` rows of two reservoirs, of each in proportion to the rows that it has seen.

    No more rows can be added.
    """
    if reservoir.buffer is None or other.buffer is None:
        return other if reservoir.buffer is None else reservoir
    n, share = reservoir.n_seen + other.n_seen, most / (reservoir.n_seen + other.n_seen)
    share = min(share, *(each.n_kept / each.n_seen for each in (reservoir, other)))
    parts = [each.buffer.part(0, max(1, int(share * each.n_seen))) for each in (reservoir, other) if each.buffer]
    buffer = join_rows(parts)
    return Reservoir(len(buffer), reservoir.stream, n, buffer)


def add(reservoir: Reservoir, rows: Transitions) -> Reservoir:
    """Return the reservoir after these rows.

    Row i, counted from 0, is put at a random one of i + 1 places, and dropped if this is beyond the capacity.
    """
    n, capacity, seen = len(rows), reservoir.capacity, reservoir.n_seen
    buffer, first = reservoir.buffer, min(n, capacity - reservoir.n_kept)
    if first:
        buffer = append(buffer, reservoir.n_kept, rows.part(0, first), capacity)
    counts = np.arange(seen + first, seen + n)
    uniforms = (words_of(reservoir.stream, counts) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    places = (uniforms * (counts + 1)).astype(np.int64)
    chosen = np.flatnonzero(places < capacity)
    if chosen.size:
        assert buffer is not None
        places = places[chosen]
        _, last = np.unique(places[::-1], return_index=True)  # the last one of the rows at the same place is kept
        at = places.size - 1 - last
        buffer = buffer.copy()  # an earlier state may refer to it
        for name in ("phi", "reward", "phi_next", "discount", "ends", *(["weight"] if rows.is_weighted else [])):
            getattr(buffer, name)[places[at]] = getattr(rows, name)[first + chosen[at]]
    return Reservoir(capacity, reservoir.stream, seen + n, buffer)
