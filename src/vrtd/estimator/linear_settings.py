"""Settings of a run with O(d) work per row, chosen from its pilot rows."""

from __future__ import annotations

import numpy as np

from vrtd.algorithms import VRTD, Algorithm, RichardsonTD
from vrtd.arrays import Floats
from vrtd.problems import Transitions
from vrtd.sparse import is_sparse, squared_norms
from vrtd.theory.settings import growth_ratio

# Largest step times the larger of max |phi|^2 and the growth ratio of the pilot rows; the stability limit is 2.
_STABLE = 1.0
_ALIKE, _LEAST_ALIKE = 50, 20  # rows per block for the persistence of the features, and the least number of blocks
_LEAST_COUNTED = 30  # nonzero values of a sparse feature from which its size is known; others count as usual ones
_UNEQUAL = 10.0  # features are divided by their sizes if these differ by a larger factor
#: Size of the first batch, and growth of the batches.
BATCH, GROWTH = 2048, 1.5
_STEPS, _INNER_STEP = 1500, 0.25  # number of inner steps of VRTD, and their size relative to the largest stable one
_FEW, _FAST_GROWTH = 512, 2.0  # with more features a new anchor takes more work, and fewer rows are kept
# The reservoir has a bounded number of entries, but not too few rows.
_MOST_KEPT, _LEAST_KEPT, _WORK_KEPT = 1800, 200, 350_000_000


def kept_rows(n_features: int) -> int:
    """Return the capacity of the reservoir."""
    if n_features <= _FEW:
        return _MOST_KEPT
    return max(_LEAST_KEPT, min(_MOST_KEPT, _WORK_KEPT // n_features**2))


def choose_algorithm(name: str, step_size: float | None, rows: Transitions) -> Algorithm:
    """Return VRTD or RichardsonTD with settings for these rows; `step_size` None: it is chosen, too."""
    largest = _STABLE / max(growth_ratio(rows), float(measure_sizes(rows).max()), 1e-300)
    if name == VRTD.name:
        growth = GROWTH if rows.n_features <= _FEW else _FAST_GROWTH
        return VRTD(step_size or _INNER_STEP * largest, BATCH, output="average", growth=growth, n_steps=_STEPS)
    a = step_size or largest / (RichardsonTD(1.0).largest_step_size * _persistence(rows))
    return RichardsonTD(a)


def _persistence(rows: Transitions) -> float:
    """Return about how many consecutive rows have similar features.

    The error of the extrapolation grows with the step times this number. It is the larger of two estimates: 1 / (1 - r)
    with the correlation r of phi and phi', and the variance of block means divided by that for independent rows. The
    second one matters if features change quickly, but their distribution changes slowly.
    """
    goes_on = rows.discount > 0.0
    phi, phi_next = rows.phi[goes_on], rows.phi_next[goes_on]
    if len(phi) < 2:
        return 1.0
    variance = float(phi.var(axis=0).sum())
    moved = float(np.square(phi_next - phi).sum(axis=1).mean()) / 2.0
    n_blocks = len(rows) // _ALIKE
    found = [1.0, variance / moved if moved > 0.0 else 1.0]
    if n_blocks >= _LEAST_ALIKE and variance > 0.0:
        means = rows.phi[: n_blocks * _ALIKE].reshape(n_blocks, _ALIKE, -1).mean(axis=1)
        found.append(_ALIKE * float(means.var(axis=0, ddof=1).sum()) / variance)
    return max(found)


def find_scale(rows: Transitions) -> Floats | None:
    """Return the root mean square of each feature over the rows where it is not 0; None if all are of similar size."""
    squares, counts = _squares_of(rows)
    is_seen = (squares > 0.0) & (counts >= (_LEAST_COUNTED if rows.is_sparse else 1))
    if not is_seen.any():
        return None
    sizes = np.sqrt(squares / np.maximum(counts, 1))
    usual = float(np.median(sizes[is_seen]))
    if sizes[is_seen].max() <= _UNEQUAL * sizes[is_seen].min():
        return None
    return np.where(is_seen, sizes, usual)


def _squares_of(rows: Transitions) -> tuple[Floats, Floats]:
    """Return the sum of squares of each feature, and the number of rows where it is not 0."""
    phi = rows.phi
    if is_sparse(phi):
        kept = phi.data != 0.0
        sums = [np.bincount(phi.indices[kept], each[kept], rows.n_features) for each in (phi.data**2, phi.data != 0.0)]
        return sums[0].astype(np.float64), sums[1].astype(np.float64)
    return np.square(phi).sum(axis=0), (phi != 0.0).sum(axis=0)


def measure_sizes(rows: Transitions) -> Floats:
    """Return |phi|^2 of each row, times its weight."""
    sizes = squared_norms(rows.phi)
    return np.asarray(sizes * rows.weight if rows.is_weighted else sizes)
