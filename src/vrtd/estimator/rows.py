"""Feature rows of a log before they reach an algorithm: buffers, and checks that all numbers are finite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import frozen
from vrtd.kernels.sparse import SparseRows
from vrtd.problems import Transitions
from vrtd.sparse import finite_rows, is_all_finite, is_sparse, join_tables

#: Stands for weights that are all 1 in compiled loops.
NO_WEIGHT = frozen(np.empty(0))


class NotFiniteError(Exception):
    """Raised when a number in a chunk, or computed from it, is not finite."""


def loop_columns(rows: Transitions) -> tuple[Any, ...]:
    """Return the columns as read-only views for compiled loops.

    Numba compiles separately for writable arrays, and two compilations may differ in the last bit.
    """
    weight = rows.weight if rows.is_weighted else NO_WEIGHT
    tables = [_read_only_rows(table) if is_sparse(table) else _read_only(table) for table in (rows.phi, rows.phi_next)]
    others = [_read_only(column) for column in (rows.reward, rows.discount, weight, rows.ends)]
    return tables[0], others[0], tables[1], *others[1:]


def _read_only(column: NDArray[Any]) -> NDArray[Any]:
    view = column[:]
    view.setflags(write=False)
    return view


def _read_only_rows(table: Any) -> SparseRows:
    return SparseRows(_read_only(table.data), _read_only(table.indices), _read_only(table.indptr))


def append(buffer: Transitions | None, n: int, rows: Transitions, size: int) -> Transitions:
    """Copy `rows` behind the first `n` rows of the buffer, and return the buffer.

    A state uses only the first n rows of a buffer, so it does not change when another state appends rows, provided that
    at most one state is derived from each. A buffer that is too small is replaced by one for `size` rows. Cached
    properties of a buffer must not be read, because its rows change.
    """
    last = n + len(rows)
    if rows.is_sparse:
        return rows.copy() if buffer is None or not n else join_rows([buffer.part(0, n), rows])
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
    phi, reward, phi_next, discount, ends = (join_tables([getattr(part, name) for part in parts]) for name in names)
    weight = np.concatenate([part.weight for part in parts]) if parts[0].is_weighted else None
    return Transitions.wrap(phi, reward, phi_next, discount, weight, ends)


def is_finite(rows: Transitions) -> bool:
    """Return whether every number of the rows is finite."""
    columns = (rows.phi, rows.phi_next, rows.reward, *((rows.weight,) if rows.is_weighted else ()))
    return all(map(is_all_finite, columns))


def clear_final(rows: Transitions, terminated: NDArray[np.bool_]) -> Transitions | None:
    """Replace non-finite successors of terminated rows by 0; return None if there are none."""
    idle = terminated & ~finite_rows(rows.phi_next)
    if not idle.any():
        return None
    phi_next = rows.phi_next.copy()
    if is_sparse(phi_next):
        phi_next.data[np.repeat(idle, np.diff(phi_next.indptr))] = 0.0
    else:
        phi_next[idle] = 0.0
    weight = rows.weight if rows.is_weighted else None
    return Transitions.wrap(rows.phi, rows.reward, phi_next, rows.discount, weight, rows.ends)


def first_not_finite(rows: Transitions) -> tuple[str, int] | None:
    """Return (field, row) of the first number that is not finite, or None."""
    first = None
    for field in ("phi", "phi_next", "reward", "weight"):
        values = getattr(rows, field)
        bad = np.flatnonzero(~finite_rows(values))
        if bad.size and (first is None or bad[0] < first[1]):
            first = field, int(bad[0])
    return first
