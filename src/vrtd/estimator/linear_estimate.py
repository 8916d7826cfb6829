"""What a run with O(d) work per row estimates: theta, what is left of the start, and how far blocks of rows move it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.algorithms import VRTD
from vrtd.arrays import Floats
from vrtd.errors import DivergenceError
from vrtd.estimator.linear_state import FIRST_BLOCK, LinearFit, Loops, mean_over, with_mean
from vrtd.estimator.rows import loop_columns
from vrtd.estimator.sample_inverse import SampleInverse, whitened_products
from vrtd.kernels.random import ALGORITHM, make_streams

LEAST_BLOCKS = 20  # for an interval
_LEAST_TO_DROP = 8  # blocks from which on the first ones are left out
_LEAST_SEEN = 5  # blocks in which a feature must not be 0, for an interval


class Inverse:
    """Q: an approximate -A^-1 from the rows that are kept."""

    def __init__(self, fit: LinearFit) -> None:
        assert fit.reservoir.rows is not None
        self._fit, self.rows = fit, fit.reservoir.rows.as_float64()
        self.of_sample = SampleInverse(self.rows)

    def __call__(self, vectors: Floats) -> Floats:
        """Return Q v for each row v."""
        if not isinstance(self._fit.algorithm, VRTD):
            return self.of_sample(vectors)
        found = [self._run_inner_loop(self._fit.algorithm, v) for v in vectors]
        means, left = (np.array(part) for part in zip(*found, strict=True))
        return np.asarray(means + self.of_sample(left))

    def _run_inner_loop(self, algorithm: VRTD, v: Floats) -> tuple[Floats, Floats]:
        """Return the mean of the inner loop's iterates that start at 0, and the mean of their gradients."""
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
                f"the step size must let the inner loop of vrtd stay finite; got {algorithm.step_size:g}, with which "
                "it did not; lower it, or take algorithm='richardson_td'"
            )
        return state[:d], state[d : 2 * d] / (algorithm.step_size * n)

    def find_excess(self, gradients: Floats, theta: Floats, n_rows: NDArray[np.int64]) -> Floats:
        """Return for each mean gradient v of n rows what the correction w = Q v leaves of it, beside its noise.

        It is v' S^-1 v' / k, with v' = v + A w the gradient after the correction, k the number of directions, and S the
        covariance of v: about E[phi phi^T] times the mean squared TD error, over n. The squared error of theta exceeds
        that of least squares by about this share. Q is of one half of the rows and A of the other, and both ways are
        multiplied with each other: so the noise of either half adds no bias. Where little is left, it is 0 or below.
        """
        rows, left = self.rows, []
        halves = [rows.take(np.arange(k, len(rows), 2)) for k in (0, 1)]
        for half, other in (halves, halves[::-1]):
            w = SampleInverse(half)(gradients)
            left.append(gradients + (other.psi @ w.T).T @ other.left / len(other))
        noise = float(np.square(rows.reward + rows.psi @ theta).mean())
        products, n_directions = whitened_products(rows.left, *left)
        return np.asarray(n_rows * products / (noise * n_directions)) if noise > 0.0 else np.zeros(len(gradients))


class LinearPoint(NamedTuple):
    """An estimate, and how it was found."""

    theta: Floats  # (d,)
    excess: float  # by what share the squared error exceeds the noise: what is left of the start
    n_dropped: int  # of the first blocks
    inverse: Inverse


class LinearEstimate(NamedTuple):
    """What the rows so far tell."""

    theta: Floats  # (d,)
    influence: Floats  # (B, d) estimates of blocks less theta, enlarged by the excess
    block: int  # rows of a block
    n_before: int  # blocks of this size before the first one
    n_rows: int  # that the estimate is made of
    excess: float  # by what share the squared error exceeds the noise: what is left of the start
    mean_phi: Floats  # (d,) mean features of all rows
    phi: Floats  # (n_before + B, d) mean features of blocks, those before the first one included
    unseen: NDArray[np.intp]  # features that were 0 on every row
    rare: NDArray[np.intp]  # features that were not 0 in too few blocks for their noise to be known

    @property
    def why_no_interval(self) -> str | None:
        """Why the noise of theta is not known, or None if it is."""
        if len(self.influence) >= LEAST_BLOCKS:
            return None
        return f"the rows are too few; it needs about {FIRST_BLOCK * (LEAST_BLOCKS + 1):,}"


def _choose_blocks(fit: LinearFit, inverse: Inverse) -> tuple[int, float]:
    """Choose how many of the first blocks to leave out, whose iterates are too far away: return it with the excess."""
    n = len(fit.blocks)
    if n < _LEAST_TO_DROP:
        return 0, 0.0
    most = max(1, n - LEAST_BLOCKS)  # those that are left must suffice for an interval
    counts = np.array(sorted({1, *(min(max(1, n // k), most) for k in (8, 4, 2))}))
    means, n_rows = zip(*(mean_over(fit, int(k)) for k in counts), strict=True)
    iterates, gradients, _ = np.array(means).transpose(1, 0, 2)
    theta = iterates[-1] + inverse.of_sample(gradients[-1])
    excess = np.maximum(inverse.find_excess(gradients, theta, np.array(n_rows)), 0.0)
    best = int(np.argmin((1.0 + excess) / np.array(n_rows)))
    return int(counts[best]), float(excess[best])


def estimate_point(fit: LinearFit) -> LinearPoint:
    """Return the estimate from the rows so far, without its noise, which costs VRTD an inner loop per block."""
    inverse, scale = Inverse(fit), 1.0 if fit.scale is None else fit.scale
    n_dropped, excess = _choose_blocks(fit, inverse)
    (iterate, gradient, _), _ = mean_over(fit, n_dropped)
    return LinearPoint((iterate + inverse(gradient[None])[0]) / scale, excess, n_dropped, inverse)


def estimate_linearly(fit: LinearFit, point: LinearPoint | None = None) -> LinearEstimate:
    """Return what the rows so far tell; `point` if it is known."""
    theta, excess, n_dropped, inverse = point or estimate_point(fit)
    scale, d, n = 1.0 if fit.scale is None else fit.scale, fit.n_features, fit.n_rows - n_dropped * fit.block
    blocks, influence = fit.blocks[n_dropped:], np.empty((0, d))
    block, first, every = fit.block, n_dropped, fit.blocks
    if isinstance(fit.algorithm, VRTD) and len(blocks) > 2 * LEAST_BLOCKS:  # each costs an inner loop
        first, block = -(-n_dropped // 2), 2 * fit.block
        every = tuple(a + b for a, b in zip(every[::2], every[1::2], strict=False))
        blocks = every[first:]
    if len(blocks) >= LEAST_BLOCKS:
        means = np.array(blocks) / block
        influence = (means[:, 0] + inverse(means[:, 1])) / scale - theta
    total = mean_over(fit, 0)[0]
    n_seen = np.sum([_is_seen(each) for each in fit.blocks], axis=0) if fit.blocks else _is_seen(total).astype(int)
    is_unseen = ~_is_seen(total)
    return LinearEstimate(
        theta, influence * np.sqrt(1.0 + excess), block, first, n, excess,
        fit.total_phi[0] * scale / fit.n_rows, np.array([each[2] for each in every]).reshape(-1, d) * scale / block,
        np.flatnonzero(is_unseen), np.flatnonzero(~is_unseen & (n_seen < _LEAST_SEEN)),
    )  # fmt: skip


def _is_seen(sums: Floats) -> NDArray[np.bool_]:
    """Return which features were not 0 on every row, as far as sums of pseudo-gradients and of features tell."""
    return np.asarray((sums[1] != 0.0) | (sums[2] != 0.0))
