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
_DOUBT = 15.0  # nonzero values of a sparse feature that are as informative as the usual size, if values vary by 100 %
_TINY = 1e-150
_UNEQUAL = 10.0  # features are divided by their sizes if these differ by a larger factor
_USUAL = 1e6  # or if the usual size is larger than this, or smaller than its reciprocal
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
    """Return the root mean square of each feature over the rows where it is not 0; None if all are of similar size.

    A sparse feature may have few values. If the values of features vary, its size is drawn towards the usual one.
    """
    squares, counts = _powers_of(rows, 2), _powers_of(rows, 0)
    is_seen = squares > 0.0
    if not is_seen.any():
        return None
    means = squares[is_seen] / counts[is_seen]
    usual = float(np.median(means))
    if rows.is_sparse:
        fits = means > _TINY  # so that the square fits into float64
        n, fourths = counts[is_seen][fits], _powers_of(rows, 4)[is_seen][fits]
        spread = (fourths / means[fits] ** 2 - n).sum() / (n - 1.0).sum() if (n > 1.0).any() else 1.0
        doubt = _DOUBT * max(float(spread), 0.0)
        means = (squares[is_seen] + doubt * usual) / (counts[is_seen] + doubt)
    if means.max() <= _UNEQUAL**2 * means.min() and _USUAL**-2 <= usual <= _USUAL**2:
        return None
    sizes = np.full(rows.n_features, np.sqrt(usual))
    sizes[is_seen] = np.sqrt(means)
    return sizes


def _powers_of(rows: Transitions, k: int) -> Floats:
    """Return the sum of x^k over the nonzero values x of each feature."""
    phi = rows.phi
    if not is_sparse(phi):
        return np.asarray(np.where(phi != 0.0, phi**k, 0.0).sum(axis=0))
    kept = phi.data != 0.0
    return np.bincount(phi.indices[kept], phi.data[kept] ** k, rows.n_features).astype(np.float64)


def measure_sizes(rows: Transitions) -> Floats:
    """Return |phi|^2 of each row, times its weight."""
    sizes = squared_norms(rows.phi)
    return np.asarray(sizes * rows.weight if rows.is_weighted else sizes)
