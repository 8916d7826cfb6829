"""Sparse rows as compiled loops see them, and their pseudo-gradients.

A `Transition` on a log of sparse rows has `SparseRows` as its two tables. The vectors of an algorithm are interleaved
in one array: the numbers of coordinate i are next to each other, from ``n_vectors i`` on, so that a nonzero feature
touches one or two cache lines however many vectors there are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from vrtd.kernels.jit import kernel, prefetch

CACHED = 1 << 17  # numbers; a smaller table is in the cache anyway


class SparseRows(NamedTuple):
    """Rows of a table in CSR form.

    Attributes
    ----------
    values, columns : ndarray
        Numbers of all rows that are stored, and their columns.
    starts : ndarray of int, shape (n + 1,)
        Row i has the entries from ``starts[i]`` to ``starts[i + 1]`` - 1.
    """

    values: Any
    columns: Any
    starts: Any


@kernel
def entries(rows, i):
    """Return the first entry of row i, and one more than its last entry."""
    return rows.starts[i], rows.starts[i + np.uint64(1)]


@kernel
def place(column, n_vectors, k):
    """Return the index of vector k at a column in the interleaved vectors; unsigned indices need no check."""
    return np.uint64(column) * np.uint64(n_vectors) + np.uint64(k)


@kernel
def fetch(table, n_vectors, phi, phi_next, i):
    """Load the coordinates of row i of a log, which comes next, into the cache; there may be no such row.

    With many features, most of the time of a step is waiting for memory, and this saves about a third of it.
    """
    if i < phi.starts.size - 1 and table.size > CACHED:
        fetch_row(table, n_vectors, phi, np.uint64(i))
        fetch_row(table, n_vectors, phi_next, np.uint64(i))


@kernel
def fetch_row(table, n_vectors, rows, i):
    """Load the coordinates of one row into the cache."""
    first, last = entries(rows, i)
    for e in range(first, last):
        prefetch(table, place(rows.columns[e], n_vectors, 0))


@kernel
def dot(table, n_vectors, k, rows, i):
    """Return the product of row i with vector k."""
    first, last = entries(rows, i)
    total = 0.0
    for e in range(first, last):
        total += rows.values[e] * table[place(rows.columns[e], n_vectors, k)]
    return total


@kernel
def sparse_bootstrap_difference(table, n_vectors, k, x):
    """Return (gamma phi' - phi).theta for the vector k, theta."""
    ahead = dot(table, n_vectors, k, x.phi_next, x.row_next) if x.discount != 0.0 else 0.0
    return x.discount * ahead - dot(table, n_vectors, k, x.phi, x.row)


@kernel
def sparse_td_error(table, n_vectors, k, x):
    """Return the TD error delta = r + gamma phi'.theta - phi.theta for the vector k, theta."""
    return x.reward + sparse_bootstrap_difference(table, n_vectors, k, x)


@kernel
def add_row(table, n_vectors, k, factor, x):
    """Add factor * phi to vector k."""
    first, last = entries(x.phi, x.row)
    for e in range(first, last):
        table[place(x.phi.columns[e], n_vectors, k)] += factor * x.phi.values[e]


@kernel
def set_bit(table, n_vectors, k, bit, x):
    """Set a bit in the whole numbers of vector k, at the features of the state that are not 0."""
    first, last = entries(x.phi, x.row)
    for e in range(first, last):
        if x.phi.values[e] != 0.0:
            at = place(x.phi.columns[e], n_vectors, k)
            table[at] = np.float64(np.int64(table[at]) | bit)
