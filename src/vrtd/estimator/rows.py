"""Feature rows of transitions, and whole batches cut from them however they come."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import frozen

__all__ = [
    "NO_WEIGHT",
    "Batches",
    "NotFiniteError",
    "Rows",
    "first_not_finite",
    "is_finite",
    "read_only",
    "without_final",
]

NO_WEIGHT = frozen(np.empty(0))


class Rows(NamedTuple):
    """n transitions as an algorithm sees them.

    What a compiled loop gets is `sealed`: Numba compiles it anew for arrays that can be written, and two compilations
    may differ in the last bit.
    """

    phi: NDArray[Any]  # (n, d) float32 or float64, C-contiguous
    phi_next: NDArray[Any]
    reward: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    ends: NDArray[np.bool_]  # where the next row does not go on from this one; may be `terminated` itself
    weight: NDArray[np.float64]  # (n,), or empty: all 1

    @classmethod
    def stored(cls, tree: Mapping[str, Any], n_features: int) -> Self:
        """From arrays of a file, checked: compiled loops trust them."""
        # Files of versions without the column are of algorithms without traces.
        tree = {"ends": tree["terminated"], **tree}
        rows = cls(*(np.ascontiguousarray(tree[name]) for name in cls._fields))
        n, kinds = len(rows.reward), ("f", "f", "f", "b", "b", "f")
        if (
            rows.phi.shape != (n, n_features)
            or rows.phi_next.shape != rows.phi.shape
            or rows.phi.dtype not in (np.float32, np.float64)
            or rows.phi_next.dtype != rows.phi.dtype
            or not rows.terminated.shape == rows.ends.shape == (n,)
            or rows.weight.shape not in ((n,), (0,))
            or any(values.dtype.kind != kind for values, kind in zip(rows, kinds, strict=True))
            or {rows.reward.dtype, rows.weight.dtype} != {np.dtype(np.float64)}
        ):
            raise ValueError("rows whose shapes or types do not agree")
        return rows

    def sealed(self) -> Self:
        """The same rows, read-only."""
        return type(self)(*(read_only(values) for values in self))

    def part(self, first: int, last: int) -> Self:
        """Rows first..last - 1, not copied."""
        if first == 0 and last >= len(self.reward):
            return self
        weight = self.weight[first:last] if self.weight.size else self.weight
        return self._replace(
            phi=self.phi[first:last],
            phi_next=self.phi_next[first:last],
            reward=self.reward[first:last],
            terminated=self.terminated[first:last],
            ends=self.ends[first:last],
            weight=weight,
        )

    def empty_like(self, n: int) -> Self:
        """Room for n rows of the same kind."""
        d = self.phi.shape[1]
        return self._replace(
            phi=np.empty((n, d), self.phi.dtype),
            phi_next=np.empty((n, d), self.phi.dtype),
            reward=np.empty(n),
            terminated=np.empty(n, np.bool_),
            ends=np.empty(n, np.bool_),
            weight=np.empty(n) if self.weight.size else NO_WEIGHT,
        )

    def put(self, at: int, rows: Rows) -> None:
        """Copy rows into this room from `at` on."""
        n = len(rows.reward)
        for room, new in zip(self, rows, strict=True):
            if room.size:
                room[at : at + n] = new


class Batches:
    """Cuts a stream of rows into whole batches, the same ones however the stream is split.

    Batches that lie inside a piece are handed on without being copied; only what waits for the rest of its batch is.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.n_waiting = 0
        self._room: Rows | None = None

    def cut(self, rows: Rows) -> Iterator[tuple[Rows, int]]:
        """Rows, and how many whole batches they are. Whoever stops listening finds what waits as it was before."""
        n, at, waiting = len(rows.reward), 0, self.n_waiting
        if waiting and waiting + n >= self.size:
            at = self.size - waiting
            room = self._reserve(rows)
            room.put(waiting, rows.part(0, at))
            yield room.sealed(), 1
            waiting = 0
        count = (n - at) // self.size
        if count:
            yield rows.part(at, at + count * self.size), count
            at += count * self.size
        if at < n:
            rest = rows.part(at, n)
            if not is_finite(rest):
                raise NotFiniteError
            self._reserve(rows).put(waiting, rest)
            waiting += n - at
        self.n_waiting = waiting

    @property
    def waiting(self) -> Rows | None:
        """The rows of the open batch."""
        return None if self._room is None or not self.n_waiting else self._room.part(0, self.n_waiting).sealed()

    def wait_again(self, rows: Rows) -> None:
        """Take up rows that waited when a model was stored."""
        if len(rows.reward) >= self.size:
            raise ValueError("more rows that wait than a batch has")
        self._reserve(rows).put(0, rows)
        self.n_waiting = len(rows.reward)

    def _reserve(self, rows: Rows) -> Rows:
        if self._room is None:
            self._room = rows.empty_like(self.size)
        return self._room


def read_only(values: NDArray[Any]) -> NDArray[Any]:
    """A view that cannot be written."""
    values = values[:]
    values.setflags(write=False)
    return values


class NotFiniteError(Exception):
    """Some number of a piece, or what was made of it, is not finite: `explained` says which."""


def is_finite(rows: Rows) -> bool:
    return all(np.isfinite(values).all() for values in (rows.phi, rows.phi_next, rows.reward, rows.weight))


def without_final(rows: Rows) -> Rows | None:
    """The rows with 0 for successors that are not finite where they terminate; None if there is none such."""
    idle = rows.terminated & ~np.isfinite(rows.phi_next).all(axis=1)
    if not idle.any():
        return None
    phi_next = rows.phi_next.copy()
    phi_next[idle] = 0.0
    return rows._replace(phi_next=phi_next).sealed()


def first_not_finite(rows: Rows) -> tuple[str, int] | None:
    """(field, row) of the first row with a number that is not finite."""
    first = None
    for field in ("phi", "phi_next", "reward", "weight"):
        values = getattr(rows, field)
        if not values.size:
            continue
        bad = np.flatnonzero(~np.isfinite(values).reshape(len(values), -1).all(axis=1))
        if bad.size and (first is None or bad[0] < first[1]):
            first = field, int(bad[0])
    return first
