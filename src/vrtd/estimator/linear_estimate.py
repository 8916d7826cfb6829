"""Estimates of a run with O(d) work per row: theta, its initial transient, and the influence of blocks of rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.algorithms import VRTD
from vrtd.arrays import Floats
from vrtd.errors import DivergenceError
from vrtd.estimator.estimates import equal_ends
from vrtd.estimator.linear_state import FIRST_BLOCK, LinearFit, Loops, mean_over, with_mean
from vrtd.estimator.rows import loop_columns
from vrtd.estimator.sample_inverse import SampleInverse, whitened_products
from vrtd.kernels.random import ALGORITHM, make_streams

LEAST_BLOCKS = 20  # for an interval
_LEAST_TO_DROP = 8  # with fewer blocks, none is dropped
_LEAST_SEEN = 5  # an interval needs this many blocks in which a feature is not 0


class Inverse:
    """Approximate inverse Q of -A, from the rows of the reservoir."""

    def __init__(self, fit: LinearFit) -> None:
        assert fit.reservoir.rows is not None
        self._fit, self.rows = fit, fit.reservoir.rows.astype(np.float64)
        self.of_sample = SampleInverse(self.rows)

    def __call__(self, vectors: Floats) -> Floats:
        """Return Q v for each row v."""
        if not isinstance(self._fit.algorithm, VRTD):
            return self.of_sample(vectors)
        found = [self._run_inner_loop(self._fit.algorithm, v) for v in vectors]
        means, left = (np.array(part) for part in zip(*found, strict=True))
        return np.asarray(means + self.of_sample(left))

    def _run_inner_loop(self, algorithm: VRTD, v: Floats) -> tuple[Floats, Floats]:
        """Run the inner loop from 0; return the mean of its iterates and the mean of their pseudo-gradients."""
        d, n = len(v), int(algorithm.n_steps or len(self.rows))
        loops = self._fit.loops or Loops(algorithm, d, self.rows.is_weighted)
        inner = with_mean(algorithm)
        state = np.zeros(algorithm.workspace_size(d))
        state[2 * d : 3 * d], state[4 * d + 1] = n * v, n  # as the sum over n rows
        loops.finish(
            inner.params(), *loop_columns(self.rows), n, state,
            make_streams(self._fit.seed, np.arange(1), ALGORITHM)[0], d,
        )  # fmt: skip
        if not np.isfinite(state).all():
            raise DivergenceError(
                f"The inner loop of vrtd diverged with the step size {algorithm.step_size:g}. Lower the step size, or "
                "use algorithm='richardson_td'."
            )
        return state[:d], state[d : 2 * d] / (algorithm.step_size * n)

    def find_excess(self, gradients: Floats, theta: Floats, n_rows: NDArray[np.int64]) -> Floats:
        """Return for each mean pseudo-gradient v of n rows the part that the correction w = Q v leaves, over its noise.

        This is v' S^-1 v' / k. Here v' = v + A w is the pseudo-gradient after the correction, k the number of
        directions, and S the covariance of v, about E[phi phi^T] times the mean squared TD error divided by n. The
        squared error of theta exceeds that of least squares by about this share. One v' uses Q from one half of the
        rows and A from the other, and the other v' the reverse, so that the noise of the halves causes no bias. If v'
        is small, the estimate may be negative.
        """
        left = []
        halves = [self.rows.take(np.arange(k, len(self.rows), 2)) for k in (0, 1)]
        for half, other in (halves, halves[::-1]):
            w = SampleInverse(half)(gradients)
            left.append(gradients + (other.psi @ w.T).T @ other.left / len(other))
        noise = float(np.square(self.rows.reward + self.rows.psi @ theta).mean())
        products, n_directions = whitened_products(self.rows.left, *left)
        return np.asarray(n_rows * products / (noise * n_directions)) if noise > 0.0 else np.zeros(len(gradients))


class LinearPoint(NamedTuple):
    """Point estimate of theta."""

    theta: Floats  # (d,)
    excess: float  # squared error beyond the noise, divided by the noise: the initial transient
    n_dropped: int  # number of first blocks that are left out
    inverse: Any


class LinearEstimate(NamedTuple):
    """Estimate of theta with the influence of blocks of rows."""

    theta: Floats  # (d,)
    influence: Floats  # (B, d) estimates of blocks minus theta, enlarged by the excess
    ends: NDArray[np.int64]  # (n_before + B,) rows of the log up to the end of each block
    n_before: int  # blocks that are left out before the first one
    n_rows: int  # rows that the estimate uses
    excess: float  # squared error beyond the noise, divided by the noise: the initial transient
    mean_phi: Floats  # (d,) mean features of all rows
    #: (n_before + B, d) sums of the features over blocks, including those that are left out; None with sparse rows
    total_phi: Floats | None
    n_rows_of: Floats  # (n_before + B,) rows of each block that were learned
    unseen: NDArray[np.intp]  # features that were 0 in every row
    rare: NDArray[np.intp]  # features that were not 0 in too few blocks to estimate their noise
    #: With sparse rows, for all blocks: sum of the values phi.anchor minus that of the mean features.
    values: Floats | None = None
    least_blocks: int = LEAST_BLOCKS
    block: int = FIRST_BLOCK  # rows per block

    @property
    def why_no_interval(self) -> str | None:
        """Reason why the noise of theta is not known, or None if it is."""
        if len(self.influence) >= self.least_blocks:
            return None
        return f"it needs about {self.block * (self.least_blocks + 1):,} rows"


def choose_blocks(fit: LinearFit, inverse: Inverse) -> tuple[int, float]:
    """Return how many first blocks to leave out because of the initial transient, and the excess that remains."""
    counts = _drop_blocks(len(fit.blocks)) if fit.runs is None else np.array([0])
    if counts is None:
        return 0, 0.0
    means, n_rows = zip(*(mean_over(fit, int(k)) for k in counts), strict=True)
    iterates, gradients, _ = np.array(means).transpose(1, 0, 2)
    theta = iterates[-1] + inverse.of_sample(gradients[-1])
    excess = np.maximum(inverse.find_excess(gradients, theta, np.array(n_rows)), 0.0)
    best = int(np.argmin((1.0 + excess) / np.array(n_rows)))
    return int(counts[best]), float(excess[best])


def _drop_blocks(n_blocks: int) -> NDArray[np.int64] | None:
    """Return the numbers of first blocks that may be left out, or None if there are too few blocks to leave any out."""
    if n_blocks < _LEAST_TO_DROP:
        return None
    most = max(1, n_blocks - LEAST_BLOCKS)  # the others must be enough for an interval
    return np.array(sorted({1, *(min(max(1, n_blocks // k), most) for k in (8, 4, 2))}))


def estimate_point(fit: LinearFit) -> LinearPoint:
    """Return the estimate from the rows so far, without its noise, which takes VRTD one inner loop per block."""
    inverse, scale = Inverse(fit), 1.0 if fit.scale is None else fit.scale
    n_dropped, excess = choose_blocks(fit, inverse)
    (iterate, gradient, _), _ = mean_over(fit, n_dropped)
    return LinearPoint((iterate + inverse(gradient[None])[0]) / scale, excess, n_dropped, inverse)


def estimate_linearly(fit: LinearFit, point: LinearPoint | None = None) -> LinearEstimate:
    """Return the estimate from the rows so far with its noise; `point` is the point estimate if it is known."""
    theta, excess, n_dropped, inverse = point or estimate_point(fit)
    scale = 1.0 if fit.scale is None else fit.scale
    sums, n_rows, ends, n_before = _blocks_of(fit, n_dropped)
    means = sums[n_before:] / n_rows[n_before:, None, None]
    influence = np.empty((0, fit.n_features))
    if len(means) >= LEAST_BLOCKS:
        shares = n_rows[n_before:] / n_rows[n_before:].mean()
        influence = shares[:, None] * ((means[:, 0] + inverse(means[:, 1])) / scale - theta)
    total, n = mean_over(fit, n_dropped)
    total = total if fit.runs is not None else mean_over(fit, 0)[0]
    blocks = fit.blocks if fit.runs is None else sums
    n_seen = np.sum([_is_seen(each) for each in blocks], axis=0) if len(blocks) else _is_seen(total).astype(int)
    is_unseen = ~_is_seen(total)
    return LinearEstimate(
        theta, influence * np.sqrt(1.0 + excess), ends, n_before, n, excess,
        fit.total_phi[0] * scale / fit.n_rows, sums[:, 2] * scale, n_rows,
        np.flatnonzero(is_unseen), np.flatnonzero(~is_unseen & (n_seen < _LEAST_SEEN)),
    )  # fmt: skip


def _blocks_of(fit: LinearFit, n_dropped: int) -> tuple[Floats, NDArray[np.float64], NDArray[np.int64], int]:
    """Return the sums (B, 3, d) of blocks, their numbers of rows, their ends, and how many first ones to leave out."""
    d = fit.n_features
    if fit.runs is not None:
        by_block, ends = fit.runs.by_block(fit.runs.ends.last)
        return by_block[:, :-1].reshape(-1, 3, d), by_block[:, -1], np.array(ends.rows), 0
    blocks, block = fit.blocks, fit.block
    if isinstance(fit.algorithm, VRTD) and len(blocks) - n_dropped > 2 * LEAST_BLOCKS:  # each takes an inner loop
        blocks = tuple(a + b for a, b in zip(blocks[::2], blocks[1::2], strict=False))
        n_dropped, block = -(-n_dropped // 2), 2 * block
    n = len(blocks)
    return np.array(blocks).reshape(-1, 3, d), np.full(n, float(block)), equal_ends(n, block), n_dropped


def _is_seen(sums: Floats) -> NDArray[np.bool_]:
    """Return which features were not 0 in every row, judged by sums of pseudo-gradients and of features."""
    return np.asarray((sums[1] != 0.0) | (sums[2] != 0.0))
