"""A uniform sample of the sparse rows of a stream: those with the smallest random numbers, as many as memory allows.

Rows cannot replace each other in place, as in `vrtd.estimator.reservoir`, because they differ in length. So candidates
are collected, and the sample is rebuilt when there are too many: the work per row does not depend on the capacity.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from vrtd.kernels.random import RESERVOIR, make_streams, words_of
from vrtd.problems import Transitions
from vrtd.sparse import take_rows

_MOST_PARTS = 64
MOST_CANDIDATES = 1.25  # relative to the capacity
_LARGEST = (1 << 64) - 1
_COLUMN_BYTES = 40  # of a row, beside its features


class SparseReservoir(NamedTuple):
    """Sample that contains each row so far with the same probability; `add_sparse` returns the next one."""

    capacity: int  # rows
    most_bytes: int
    stream: NDArray[np.uint64]
    n_seen: int = 0
    parts: tuple[Transitions, ...] = ()  # candidates
    keys: tuple[NDArray[np.uint64], ...] = ()  # their random numbers
    limit: int = _LARGEST  # later candidates have smaller numbers

    @property
    def rows(self) -> Transitions | None:
        """Rows in the sample in random order, None if there are none."""
        compact = self.compact()
        return compact.parts[0] if compact.parts else None

    def compact(self) -> SparseReservoir:
        """Return the same sample without further candidates, in the order of the random numbers."""
        if not self.parts:
            return self
        keys = np.concatenate(self.keys)
        at = np.argsort(keys, kind="stable")
        n_bytes = np.cumsum(np.concatenate([_bytes_of_rows(part) for part in self.parts])[at])
        n = max(1, min(self.capacity, int(np.searchsorted(n_bytes, self.most_bytes, side="right"))))
        # A row that is left out now would be left out of every later sample, too.
        limit = min(self.limit, int(keys[at[n]])) if n < len(at) else self.limit
        if len(self.parts) == 1 and np.array_equal(at[:n], np.arange(len(keys))):
            return self
        return self._replace(parts=(_take(self.parts, at[:n]),), keys=(keys[at[:n]],), limit=limit)


def _bytes_of_rows(rows: Transitions) -> NDArray[np.int64]:
    n_numbers = sum(np.diff(table.indptr).astype(np.int64) for table in (rows.phi, rows.phi_next))
    return np.asarray(_COLUMN_BYTES + n_numbers * _bytes_per_number(rows))


def _count_bytes(rows: Transitions) -> int:
    return int(_COLUMN_BYTES * len(rows) + (rows.phi.nnz + rows.phi_next.nnz) * _bytes_per_number(rows))


def _bytes_per_number(rows: Transitions) -> int:
    return int(rows.phi.data.itemsize + rows.phi.indices.itemsize)


def _take(parts: Sequence[Transitions], at: NDArray[np.intp]) -> Transitions:
    """Return rows of several parts by their numbers, see `vrtd.sparse.take_rows`."""
    phi, phi_next = (take_rows([getattr(part, name) for part in parts], at) for name in ("phi", "phi_next"))
    names = ("reward", "discount", "ends", *(("weight",) if parts[0].is_weighted else ()))
    others = {name: np.concatenate([getattr(part, name) for part in parts])[at] for name in names}
    return Transitions.wrap(phi, others["reward"], phi_next, others["discount"], others.get("weight"), others["ends"])


def empty_sparse_reservoir(capacity: int, seed: int, most_bytes: int = 1 << 24) -> SparseReservoir:
    """Return an empty reservoir for so many rows in so many bytes; candidates may take a quarter more."""
    return SparseReservoir(capacity, most_bytes, make_streams(seed, np.arange(1), RESERVOIR)[0])


def add_sparse(
    reservoir: SparseReservoir, rows: Transitions, at: NDArray[np.intp] | None = None, dtype: DTypeLike | None = None
) -> SparseReservoir:
    """Return the reservoir after these rows, or some of them; `dtype` is that of their kept features."""
    n = len(rows) if at is None else len(at)
    keys = words_of(reservoir.stream, np.arange(reservoir.n_seen, reservoir.n_seen + n))
    chosen = np.flatnonzero(keys <= np.uint64(reservoir.limit))
    reservoir = reservoir._replace(n_seen=reservoir.n_seen + n)
    if not chosen.size:
        return reservoir
    part = rows.take(chosen if at is None else at[chosen])
    if dtype is not None:
        part = part.astype(dtype)
    reservoir = reservoir._replace(parts=(*reservoir.parts, part), keys=(*reservoir.keys, keys[chosen]))
    n_parts, n_rows = len(reservoir.parts), sum(map(len, reservoir.keys))
    n_bytes = sum(map(_count_bytes, reservoir.parts))
    is_large = n_rows > MOST_CANDIDATES * reservoir.capacity or n_bytes > MOST_CANDIDATES * reservoir.most_bytes
    return reservoir.compact() if is_large or n_parts > _MOST_PARTS else reservoir
