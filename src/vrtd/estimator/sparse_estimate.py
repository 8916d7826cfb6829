"""Estimates of a run on sparse rows: theta, its initial transient, and the influence of blocks of rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import Floats
from vrtd.estimator.estimates import equal_ends
from vrtd.estimator.linear_estimate import LinearEstimate, LinearPoint, drop_blocks, excess_of
from vrtd.estimator.sample_inverse import whitened_products
from vrtd.estimator.sparse_fit import MANY_ROUNDS, SparseFit, SparseInverse, multiply_by_mean

_LEAST_BLOCKS = 12  # for an interval; there are 16 to 32 blocks, of which the first may be left out
_LEAST_SEEN = 4  # blocks in which the pseudo-gradient of a feature is not 0, for an interval


def estimate_sparse_point(fit: SparseFit) -> LinearPoint:
    """Return the estimate from the rows so far, without its noise."""
    rows, scale, n = fit.reservoir.rows, 1.0 if fit.scale is None else fit.scale, len(fit.blocks)
    assert rows is not None
    inverse = SparseInverse(fit, rows)
    counts = drop_blocks(n, _LEAST_BLOCKS)
    best, excess = 0, 0.0
    if counts is not None:
        best = _choose_blocks(fit, inverse, counts)
    iterate, gradient, n_used = fit.mean_over(best)
    theta = inverse(gradient, MANY_ROUNDS)
    theta += iterate
    del iterate
    if counts is not None:
        excess = _find_excess(fit, inverse, gradient, theta, n_used)
    theta /= scale
    return LinearPoint(theta, excess, best, inverse)


def _choose_blocks(fit: SparseFit, inverse: SparseInverse, counts: NDArray[np.int64]) -> int:
    """Return how many first blocks to leave out, decided with a cheaper inverse."""
    theta, gradient, _ = fit.mean_over(int(counts[-1]))
    theta += inverse.of_sample(gradient)
    losses = []
    for count in counts:
        _, gradient, n_rows = fit.mean_over(int(count))
        (excess,) = excess_of(inverse.some, gradient[None], theta, np.array([n_rows]))
        losses.append((1.0 + max(float(excess), 0.0)) / n_rows)
    return int(counts[int(np.argmin(losses))])


def _find_excess(fit: SparseFit, inverse: SparseInverse, gradient: Floats, theta: Floats, n_rows: int) -> float:
    """Return what `linear_estimate.Inverse.find_excess` describes, with Q from halves of all kept rows."""
    rows, some, left = inverse.rows, inverse.some, []
    for k in (0, 1):
        w = SparseInverse(fit, rows.take(np.arange(k, len(rows), 2)).as_float64())(gradient, MANY_ROUNDS)
        left.append(multiply_by_mean(rows, w, slice(1 - k, None, 2)))  # with the other half
        left[k] += gradient
    noise = float(np.square(some.reward + some.psi @ theta).mean())
    products, n_directions = whitened_products(some.left, left[0][None], left[1][None])
    return max(float(n_rows * products[0] / (noise * n_directions)), 0.0) if noise > 0.0 else 0.0


def estimate_sparsely(fit: SparseFit, point: LinearPoint) -> LinearEstimate:
    """Return the estimate from the rows so far with its noise, from one inner loop per block."""
    theta, excess, n_before, inverse = point
    scale, blocks, d = 1.0 if fit.scale is None else fit.scale, fit.blocks[point.n_dropped :], fit.n_features
    influence: Any = np.empty((0, d), np.float32)
    if len(blocks) >= _LEAST_BLOCKS:
        influence = np.empty((len(blocks), d), np.float32)
        for k, block in enumerate(blocks):
            own = inverse(block.gradient.astype(np.float64) / fit.block)
            own += fit.mean_anchor(block.counts)
            own /= scale
            own -= theta
            own *= np.sqrt(1.0 + excess)
            influence[k] = own
    n_seen = np.zeros(d, np.int8)
    for block in fit.blocks:
        n_seen += block.gradient != 0.0
    is_unseen = (fit.total_phi == 0.0) & (n_seen == 0)
    is_rare = ~is_unseen & (n_seen < _LEAST_SEEN)
    mean_phi, size = np.asarray(fit.total_phi * scale / fit.n_rows), np.full(len(fit.blocks), float(fit.block))
    values = np.array([block.value - fit.block * float(mean_in(fit, block.counts)) for block in fit.blocks])
    return LinearEstimate(
        theta, influence, equal_ends(len(fit.blocks), fit.block), n_before, fit.n_rows - n_before * fit.block,
        excess, mean_phi, None, size, np.flatnonzero(is_unseen), np.flatnonzero(is_rare), values, _LEAST_BLOCKS,
    )  # fmt: skip


def mean_in(fit: SparseFit, counts: Mapping[int, int]) -> float:
    """Return the mean value of all states with the mean anchor of a block."""
    return float(fit.total_phi @ fit.mean_anchor(counts)) / fit.n_rows
