"""Estimates of a run on sparse rows: theta, its initial transient, and the influence of blocks of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from vrtd.arrays import Floats, dot
from vrtd.estimator.estimates import equal_ends
from vrtd.estimator.linear_estimate import LinearEstimate, LinearPoint
from vrtd.estimator.sparse_fit import SparseFit, weigh
from vrtd.estimator.sparse_inverse import SparseInverse, choose_epochs, td_errors
from vrtd.problems import Transitions

_LEAST_BLOCKS = 11  # for an interval; there are 12 to 24 blocks, of which the first one is left out
_PRECISION = 1e-4  # of values, relative to their root mean square; if there is no noise, smaller errors do not matter
_LEAST_SEEN = 4  # blocks in which a feature is not 0, for an interval


def estimate_sparse_point(fit: SparseFit) -> LinearPoint:
    """Return the estimate from the rows so far, without its noise."""
    rows = fit.reservoir.rows
    assert rows is not None
    gradient, counts, n_rows = fit.mean_over(fit.weigh_anchors(rows))
    choice = choose_epochs(fit.algorithm, rows, gradient)
    inverse = SparseInverse(fit.algorithm, rows, choice.n_epochs)
    theta = fit.add_mean_anchor(counts, inverse(gradient))
    del gradient
    errors = td_errors(rows, theta)
    square = float(np.square(errors).mean())
    noise = _measure_noise(rows, errors, n_rows, inverse)
    least = _PRECISION**2 * float(np.square(rows.phi @ theta.astype(np.float32)).mean(dtype=np.float64))
    excess = max(_divide(choice.error, noise, least), _divide(choice.rest, square / n_rows, least))
    if fit.scale is not None:
        theta /= fit.scale
    return LinearPoint(theta, excess, fit.n_dropped, inverse)


def _divide(error: float, noise: float, least: float) -> float:
    return error / noise if noise > 0.0 and error > least else 0.0


def _measure_noise(rows: Transitions, errors: Floats, n_rows: float, inverse: SparseInverse) -> float:
    """Return the mean square of phi.w over kept rows, where w is the noise of theta from so many independent rows.

    The noise is Q times a mean pseudo-gradient whose mean is 0, because half of the kept rows have the sign minus.
    """
    errors[1::2] *= -1.0
    vector = rows.phi.T @ errors.astype(np.float32)
    w = inverse(vector.astype(np.float64) / np.sqrt(len(rows) * n_rows))
    return float(np.square(rows.phi @ w.astype(np.float32)).mean(dtype=np.float64))


def estimate_sparsely(fit: SparseFit, point: LinearPoint) -> LinearEstimate:
    """Return the estimate from the rows so far with its noise, from one solution per block."""
    theta, excess, n_before, inverse = point
    blocks, d = fit.blocks[n_before:], fit.n_features
    weights = fit.weigh_anchors(inverse.rows)
    shares = np.array([weigh(block.counts, weights) for block in blocks])
    influence: Any = np.empty((0, d), np.float32)
    if len(blocks) >= _LEAST_BLOCKS:
        influence = np.empty((len(blocks), d), np.float32)
        for k, block in enumerate(blocks):
            own = fit.add_mean_anchor(block.counts, inverse(np.divide(block.gradient, fit.block, dtype=np.float64)))
            if fit.scale is not None:
                own /= fit.scale
            own -= theta
            own *= np.sqrt(1.0 + excess) * shares[k] / shares.mean()
            influence[k] = own
    is_unseen = fit.is_unseen
    is_rare = ~is_unseen & (fit.n_seen < _LEAST_SEEN)
    mean_phi = fit.total_phi / fit.n_rows
    value_of = _mean_values(fit, mean_phi)
    of_blocks = [sum(count * value_of[number] for number, count in block.counts.items()) for block in fit.blocks]
    values = np.array([block.value for block in fit.blocks]) - of_blocks
    if fit.scale is not None:
        mean_phi *= fit.scale
    return LinearEstimate(
        theta, influence, equal_ends(len(fit.blocks), fit.block), n_before, fit.n_rows - n_before * fit.block,
        excess, mean_phi, None, np.full(len(fit.blocks), float(fit.block)), np.flatnonzero(is_unseen),
        np.flatnonzero(is_rare), values, _LEAST_BLOCKS, fit.block,
    )  # fmt: skip


def _mean_values(fit: SparseFit, mean_phi: Floats) -> dict[int, float]:
    """Return the mean value of all states with each anchor."""
    value_of = {fit.anchor: dot(mean_phi, fit.theta_anchor)}
    for number in sorted(fit.moves, reverse=True):
        value_of[number] = value_of[number + 1] - dot(mean_phi, fit.moves[number])
    return value_of
