"""Sparse rows for tests, and the same rows as dense ones."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from tests.helpers.streams import with_columns
from vrtd.problems import Transitions


def thin_out(rows: Transitions, seed: int = 0) -> Transitions:
    """Return dense rows with about two thirds of the features set to 0."""
    rng = np.random.default_rng(seed)
    phi, phi_next = (table * (rng.random(table.shape) < 1 / 3) for table in (rows.phi, rows.phi_next))
    return with_columns(rows, phi=phi, phi_next=phi_next)


def as_sparse(rows: Transitions) -> Transitions:
    """Return dense rows as sparse ones."""
    return with_columns(rows, phi=csr_array(rows.phi), phi_next=csr_array(rows.phi_next))


def random_rows(n: int, d: int, k: int, seed: int = 0) -> tuple[csr_array, np.ndarray]:
    """Return n sparse rows with k numbers in d columns, and the values of a linear function of them."""
    rng = np.random.default_rng(seed)
    columns = np.arange(k) + k * rng.integers(0, d // k, (n, k))  # with different remainders, so that they differ
    columns = np.sort(columns, axis=1).astype(np.int32)
    starts = np.arange(0, n * k + 1, k, dtype=np.int32)
    rows = csr_array((np.full(n * k, k**-0.5), columns.ravel(), starts), shape=(n, d))
    return rows, rows @ rng.normal(size=d)
