"""Feature rows of a log before they reach an algorithm: buffers, and checks that all numbers are finite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import frozen
from vrtd.problems import Transitions

#: Stands for weights that are all 1 in compiled loops.
NO_WEIGHT = frozen(np.empty(0))


class NotFiniteError(Exception):
    """Raised when a number in a chunk, or computed from it, is not finite."""


def loop_columns(rows: Transitions) -> tuple[NDArray[Any], ...]:
    """Return the columns as read-only views for compiled loops.

    Numba compiles separately for writable arrays, and two compilations may differ in the last bit.
    """
    weight = rows.weight[:] if rows.is_weighted else NO_WEIGHT
    columns = rows.phi[:], rows.reward[:], rows.phi_next[:], rows.discount[:], weight, rows.ends[:]
    for column in columns:
        column.setflags(write=False)
    return columns


def append(buffer: Transitions | None, n: int, rows: Transitions, size: int) -> Transitions:
    """Copy `rows` behind the first `n` rows of the buffer, and return the buffer.

    A state uses only the first n rows of a buffer, so it does not change when another state appends rows, provided that
    at most one state is derived from each. A buffer that is too small is replaced by one for `size` rows. Cached
    properties of a buffer must not be read, because its rows change.
    """
    last = n + len(rows)
    if buffer is None or len(buffer) < last:
        old, d = buffer, rows.n_features
        buffer = Transitions.wrap(
            np.empty((size, d), rows.phi.dtype),
            np.empty(size),
            np.empty((size, d), rows.phi.dtype),
            np.empty(size),
            np.empty(size) if rows.is_weighted else None,
            np.empty(size, np.bool_),
        )
        if old is not None and n:
            append(buffer, 0, old.part(0, n), size)
    buffer.phi[n:last], buffer.reward[n:last], buffer.phi_next[n:last] = rows.phi, rows.reward, rows.phi_next
    buffer.discount[n:last], buffer.ends[n:last] = rows.discount, rows.ends
    if rows.is_weighted:
        buffer.weight[n:last] = rows.weight
    return buffer


def join_rows(parts: Sequence[Transitions]) -> Transitions:
    """Concatenate rows, with weights if the first part has them."""
    if len(parts) == 1:
        return parts[0]
    names = ("phi", "reward", "phi_next", "discount", "ends")
    phi, reward, phi_next, discount, ends = (np.concatenate([getattr(part, name) for part in parts]) for name in names)
    weight = np.concatenate([part.weight for part in parts]) if parts[0].is_weighted else None
    return Transitions.wrap(phi, reward, phi_next, discount, weight, ends)


def is_finite(rows: Transitions) -> bool:
    """Return whether every number of the rows is finite."""
    columns = (rows.phi, rows.phi_next, rows.reward, *((rows.weight,) if rows.is_weighted else ()))
    return all(np.isfinite(values).all() for values in columns)


def clear_final(rows: Transitions, terminated: NDArray[np.bool_]) -> Transitions | None:
    """Replace non-finite successors of terminated rows by 0; return None if there are none."""
    idle = terminated & ~np.isfinite(rows.phi_next).all(axis=1)
    if not idle.any():
        return None
    phi_next = rows.phi_next.copy()
    phi_next[idle] = 0.0
    weight = rows.weight if rows.is_weighted else None
    return Transitions.wrap(rows.phi, rows.reward, phi_next, rows.discount, weight, rows.ends)


def first_not_finite(rows: Transitions) -> tuple[str, int] | None:
    """Return (field, row) of the first number that is not finite, or None."""
    first = None
    for field in ("phi", "phi_next", "reward", "weight"):
        values = getattr(rows, field)
        bad = np.flatnonzero(~np.isfinite(values).reshape(len(values), -1).all(axis=1))
        if bad.size and (first is None or bad[0] < first[1]):
            first = field, int(bad[0])
    return first
