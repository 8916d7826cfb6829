"""Learning with O(d) work per row: extrapolated TD, or VRTD with batches that grow.

Both keep two sums over blocks of consecutive rows: of the iterates at which pseudo-gradients were evaluated, and of
these pseudo-gradients. With Q an approximate -A^-1, the estimate of a block is (mean of its iterates) + Q (mean of its
gradients), and theta is the mean over blocks. Its error is that of least squares on the same rows, and (I + Q A) times
what the iterates are away from theta_star: what is left of the start in slow directions. As many of the first blocks
are left out as make both together least.

- RichardsonTD: the iterates are theta^m of the levels m, combined with the weights h. Their gradients need no extra
  work, because they sum up to the movement of theta^m divided by its step. Q is that of a `SampleInverse`.
- VRTD: the iterate is the anchor. Q v is the mean of the inner loop that starts from the gradient v, on rows that are
  drawn from the kept ones, corrected with the `SampleInverse` by what the loop leaves of its own start.

The run starts where a `SampleInverse` of the pilot rows leads from theta_0. After a batch, and batches grow, it goes on
from the estimate so far, so that what is left of the start falls again and again. Kept is a uniform sample of the rows.
Blocks double in length as rows come. So the estimate is good at any time, and the number of rows need not be known.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.algorithms import VRTD, Algorithm, RichardsonTD
from vrtd.algorithms.richardson_td import extrapolation_weights
from vrtd.arrays import Floats
from vrtd.engine.stream import compile_epoch
from vrtd.errors import DivergenceError
from vrtd.estimator.learner import Loop
from vrtd.estimator.reservoir import Reservoir, add, empty_reservoir
from vrtd.estimator.rows import NotFiniteError, loop_columns
from vrtd.estimator.sample_inverse import SampleInverse, whitened_products
from vrtd.kernels.jit import compiled
from vrtd.kernels.random import ALGORITHM, make_streams
from vrtd.problems import Transitions
from vrtd.theory.settings import growth_ratio

_FIRST_BLOCK, _MOST_BLOCKS, _LEAST_BLOCKS = 32, 64, 20
_LEAST_TO_DROP = 8  # blocks from which on the first ones are left out
_LEAST_SEEN = 5  # blocks in which a feature must not be 0, for an interval
# The largest step of an update times max |phi|^2 of the pilot rows, or their growth ratio: 2 is the limit of stability.
_STABLE = 1.0
_MOST_LARGE = 1.0  # the same for a later row: beyond, the step is lowered for good
# By how much the step falls whenever blocks double: the error of the extrapolation falls faster than the noise.
_DECAY = 2.0**-0.25
_ALIKE = 50  # rows of a block of the pilot, whose means show whether features stay alike
_UNEQUAL = 10.0  # features are divided by their sizes if these differ by more
# The first batch, and its growth. Inner steps of VRTD, and their size beside the largest stable one.
_BATCH, _GROWTH, _STEPS, _INNER_STEP = 2048, 1.5, 1500, 0.25
_FEW, _FAST_GROWTH = 512, 2.0  # with more features a new anchor costs more
# The rows that are kept: a bounded number of numbers, but not too few rows.
_MOST_KEPT, _LEAST_KEPT, _WORK_KEPT = 1800, 200, 350_000_000
# A new estimate when a batch ends may cost this multiple of the work of all rows before. Products of matrices are about
# this much faster than a pass over rows (measured).
_MOST_WORK, _SPEED = 2.0, 10.0


class LinearFit(NamedTuple):
    """How a run stands. `learn_linearly` returns the next one."""

    algorithm: Algorithm  # with the step that is in use
    lowers_step: bool
    scale: Floats | None  # (d,) features are divided by these; None: they are used as they are
    state: Floats  # the workspace
    seed: int
    reservoir: Reservoir
    mark: Floats  # the workspace after the first `n_marked` rows
    open: Floats  # (3, d) sums of iterates, gradients and features over the open block, up to the mark
    total_phi: Floats  # (2, d) sums of the features of all rows, and of those up to the mark
    batch_end: int  # the row before which the open batch ends; 0: never
    n_marked: int = 0
    n_rows: int = 0
    block: int = _FIRST_BLOCK  # rows of a block
    blocks: tuple[Floats, ...] = ()  # (3, d) sums over each block
    batch: int = 0  # the first row of the open batch
    loops: _Loops | None = None  # compiled; no part of the state

    @property
    def n_features(self) -> int:
        return len(self.open[0])

    @property
    def largest_step(self) -> float:
        return float(self.algorithm.largest_step_size or 0.0)

    @property
    def rows_left(self) -> int:
        """Rows to the next stop: the end of a block, or of a batch."""
        to_block = self.block - self.n_rows % self.block
        return min(to_block, self.batch_end - self.n_rows) if self.batch_end else to_block


class LinearPoint(NamedTuple):
    """An estimate, and how it was found."""

    theta: Floats  # (d,)
    excess: float  # by what share the squared error exceeds the noise: what is left of the start
    n_dropped: int  # of the first blocks
    inverse: _Inverse


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
        if len(self.influence) >= _LEAST_BLOCKS:
            return None
        return f"the rows are too few; it needs about {_FIRST_BLOCK * (_LEAST_BLOCKS + 1):,}"


def first_linear_fit(
    algorithm: Algorithm | str, step_size: float | None, pilot: Transitions, theta_0: Floats, seed: int
) -> LinearFit:
    """Return a run that starts where the pilot rows lead to, with settings that they suggest.

    Parameters
    ----------
    algorithm : Algorithm or str
        RichardsonTD or VRTD with growth, or the name of one of them.
    step_size : float, optional
        Of an algorithm that is given by its name. Default: from the pilot rows, and lower as rows come.
    pilot : Transitions
        The first rows.
    theta_0 : array of shape (d,)
        Where to start from.
    seed : int
        Of the draws of rows.
    """
    is_auto, pilot = isinstance(algorithm, str) and step_size is None, pilot.as_float64()
    scale = _find_scale(pilot) if is_auto else None
    rows = pilot if scale is None else pilot.divide(scale)
    chosen = algorithm if isinstance(algorithm, Algorithm) else _choose(algorithm, step_size, rows)
    start = theta_0 if scale is None else theta_0 * scale
    theta = start + SampleInverse(rows, caution=1.0)(_mean_gradient(rows, start))
    d = len(theta)
    state = np.zeros(chosen.workspace_size(d))
    state[:d] = theta if np.isfinite(theta).all() else start
    reservoir = empty_reservoir(kept_rows(d), seed)
    batch_end = int(chosen.batch_size) if isinstance(chosen, VRTD) else (_BATCH if isinstance(algorithm, str) else 0)
    return LinearFit(
        chosen, is_auto, scale, state, seed, reservoir, state, np.zeros((3, d)), np.zeros((2, d)), batch_end
    )


def kept_rows(n_features: int) -> int:
    """Return how many rows are kept at most."""
    return max(_LEAST_KEPT, min(_MOST_KEPT, _WORK_KEPT // n_features**2))


def _choose(name: str, step_size: float | None, rows: Transitions) -> Algorithm:
    largest = _STABLE / max(growth_ratio(rows), float(_sizes(rows).max()), 1e-300)
    if name == VRTD.name:
        growth = _GROWTH if rows.n_features <= _FEW else _FAST_GROWTH
        return VRTD(step_size or _INNER_STEP * largest, _BATCH, output="average", growth=growth, n_steps=_STEPS)
    a = step_size or largest / (RichardsonTD(1.0).largest_step_size * _persistence(rows))
    return RichardsonTD(a)


def _persistence(rows: Transitions) -> float:
    """Return about how many consecutive rows have alike features. The error of the extrapolation grows with the step
    times this number.

    It is the larger of two estimates: 1 / (1 - r), r the correlation of phi and phi', and by how much means over blocks
    of rows vary more than those of independent rows: features may change at once, but their distribution slowly.
    """
    goes_on = rows.discount > 0.0
    phi, phi_next = rows.phi[goes_on], rows.phi_next[goes_on]
    if len(phi) < 2:
        return 1.0
    variance = float(phi.var(axis=0).sum())
    moved = float(np.square(phi_next - phi).sum(axis=1).mean()) / 2.0
    n_blocks = len(rows) // _ALIKE
    found = [1.0, variance / moved if moved > 0.0 else 1.0]
    if n_blocks >= _LEAST_BLOCKS and variance > 0.0:
        means = rows.phi[: n_blocks * _ALIKE].reshape(n_blocks, _ALIKE, -1).mean(axis=1)
        found.append(_ALIKE * float(means.var(axis=0, ddof=1).sum()) / variance)
    return max(found)


def _find_scale(rows: Transitions) -> Floats | None:
    """Return the size of each feature, a root mean square over the rows where it is not 0; None if they are alike."""
    squares, counts = np.square(rows.phi).sum(axis=0), (rows.phi != 0.0).sum(axis=0)
    is_seen = squares > 0.0
    if not is_seen.any():
        return None
    sizes = np.sqrt(squares / np.maximum(counts, 1))
    usual = float(np.median(sizes[is_seen]))
    if sizes[is_seen].max() <= _UNEQUAL * sizes[is_seen].min():
        return None
    return np.where(is_seen, sizes, usual)


def _sizes(rows: Transitions) -> Floats:
    """Return |phi|^2 of each row, times its weight."""
    sizes = np.einsum("ni,ni->n", rows.phi, rows.phi, dtype=np.float64)
    return np.asarray(sizes * rows.weight if rows.is_weighted else sizes)


def _mean_gradient(rows: Transitions, theta: Floats) -> Floats:
    return np.asarray(rows.left.T @ (rows.reward + rows.psi @ theta) / len(rows))


@np.errstate(over="ignore", invalid="ignore")  # what is not finite is refused
def learn_linearly(fit: LinearFit, rows: Transitions) -> LinearFit:
    """Return the run after these rows.

    Raises NotFiniteError if a number is not finite, or becomes so.
    """
    if fit.loops is None:
        fit = fit._replace(loops=_Loops(fit.algorithm, fit.n_features, rows.is_weighted))
    if fit.scale is not None:
        rows = rows.divide(fit.scale)
    sizes = _sizes(rows) if fit.lowers_step else np.zeros(len(rows))
    at, n_sampled, n = 0, 0, len(rows)
    while at < n:
        last = min(n, at + fit.rows_left)
        large = np.flatnonzero(sizes[at:last] * fit.largest_step > _MOST_LARGE)
        if large.size and large[0] == 0:
            fit = _lower_step(_set_mark(fit), 0.999 * _MOST_LARGE / float(sizes[at] * fit.largest_step))
            continue
        last = at + int(large[0]) if large.size else last
        fit = _run(fit, rows.part(at, last))
        at = last
        if fit.n_rows % fit.block == 0:
            fit = _close_block(_set_mark(fit))
        if at == n or fit.n_rows == fit.batch_end:
            fit, n_sampled = fit._replace(reservoir=add(fit.reservoir, rows.part(n_sampled, at))), at
        if fit.n_rows == fit.batch_end:
            fit = _close_batch(_set_mark(fit))
    return fit


class _Loops:
    """The compiled loops of an algorithm."""

    def __init__(self, algorithm: Algorithm, n_features: int, is_weighted: bool) -> None:
        self.is_weighted = is_weighted
        if isinstance(algorithm, VRTD):
            self.absorb, self.finish = compile_epoch(_with_mean(algorithm), is_weighted)
        else:
            self.online = Loop(algorithm, n_features, is_weighted)


def _with_mean(algorithm: VRTD) -> VRTD:
    """Return the algorithm with the output whose gradients sum up to what its iterates move by: the mean of all."""
    return replace(algorithm, output="average")


def _run(fit: LinearFit, rows: Transitions) -> LinearFit:
    """Return the run after these rows, between two stops."""
    columns, n, d, state = loop_columns(rows), len(rows), fit.n_features, np.empty_like(fit.state)
    algorithm, loops = fit.algorithm, fit.loops
    assert loops is not None
    if isinstance(algorithm, VRTD):
        is_finite = loops.absorb(algorithm.params(), *columns, 0, n, fit.state, state, d)
    else:
        scratch, unused = loops.online.scratch, (make_streams(0, np.arange(1), ALGORITHM)[0], np.empty(d))
        is_finite = loops.online.call(
            algorithm.params(), *columns, 0, n, fit.n_rows, fit.state, scratch, state, *unused, d, 0, 1
        )
    if not is_finite:
        raise NotFiniteError
    total_phi = fit.total_phi.copy()
    _add_rows(columns[0], total_phi[0])
    return fit._replace(state=state, total_phi=total_phi, n_rows=fit.n_rows + n)


@compiled
def _add_rows(phi: NDArray[Any], total: Floats) -> None:
    """Add the rows one after another: the bits do not depend on how they are split."""
    for i in range(phi.shape[0]):
        for j in range(total.size):
            total[j] += phi[i, j]


def _sums_since(fit: LinearFit) -> Floats:
    """Return the sums (3, d) of iterates, gradients and features since the mark."""
    algorithm, d, n = fit.algorithm, fit.n_features, fit.n_rows - fit.n_marked
    before, now, phi = fit.mark, fit.state, fit.total_phi[0] - fit.total_phi[1]
    if isinstance(algorithm, VRTD):
        return np.stack([n * now[:d], now[2 * d : 3 * d] - before[2 * d : 3 * d], phi])
    assert isinstance(algorithm, RichardsonTD)
    moved = now - before
    weights = extrapolation_weights(algorithm.levels)
    gradients = moved[:d] * weights[0]
    for m in range(1, algorithm.levels):
        gradients += (weights[m] / 2.0**m) * (moved[:d] + moved[(m + 1) * d : (m + 2) * d])
    return np.stack([moved[d : 2 * d], gradients * (2.0 ** (algorithm.levels - 1) / fit.largest_step), phi])


def _set_mark(fit: LinearFit) -> LinearFit:
    total_phi = np.stack([fit.total_phi[0], fit.total_phi[0]])
    return fit._replace(open=fit.open + _sums_since(fit), mark=fit.state, total_phi=total_phi, n_marked=fit.n_rows)


def _close_block(fit: LinearFit) -> LinearFit:
    blocks, is_full = (*fit.blocks, fit.open), len(fit.blocks) + 1 == _MOST_BLOCKS
    if is_full:
        blocks = tuple(a + b for a, b in zip(blocks[::2], blocks[1::2], strict=True))
        fit = fit._replace(block=2 * fit.block)
        if fit.lowers_step and not isinstance(fit.algorithm, VRTD):  # the mean of VRTD's inner loop has no such error
            fit = _lower_step(fit, _DECAY)
    return fit._replace(blocks=blocks, open=np.zeros_like(fit.open))


def _lower_step(fit: LinearFit, factor: float) -> LinearFit:
    algorithm: Any = fit.algorithm
    return fit._replace(algorithm=replace(algorithm, step_size=algorithm.step_size * factor))


def _close_batch(fit: LinearFit) -> LinearFit:
    """Go on from the estimate so far; with RichardsonTD, which goes on anyway, only if that costs little."""
    algorithm, d, state = fit.algorithm, fit.n_features, fit.state.copy()
    growth = float(algorithm.growth or 1.0) if isinstance(algorithm, VRTD) else _GROWTH
    batch_end = fit.n_rows + int((fit.n_rows - fit.batch) * growth)
    work = SampleInverse.count_work(fit.reservoir.n_kept, d) / _SPEED
    if isinstance(algorithm, VRTD) or work <= _MOST_WORK * fit.n_rows * 24 * d:
        (iterate, gradient, _), _ = _mean_over(fit, len(fit.blocks) // 4)
        theta = iterate + _Inverse(fit)(gradient[None])[0]
        if np.isfinite(theta).all():
            state[:d] = theta
            first = 2 * d  # of VRTD the sum of gradients at the anchor, of RichardsonTD the differences of its levels
            state[first : 3 * d if isinstance(algorithm, VRTD) else None] = 0.0
    return fit._replace(state=state, mark=state, batch=fit.n_rows, batch_end=batch_end)


class _Inverse:
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
        loops = self._fit.loops or _Loops(algorithm, d, self.rows.is_weighted)
        inner = _with_mean(algorithm)
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


def _choose_blocks(fit: LinearFit, inverse: _Inverse) -> tuple[int, float]:
    """Choose how many of the first blocks to leave out, whose iterates are too far away: return it with the excess."""
    n = len(fit.blocks)
    if n < _LEAST_TO_DROP:
        return 0, 0.0
    most = max(1, n - _LEAST_BLOCKS)  # those that are left must suffice for an interval
    counts = np.array(sorted({1, *(min(max(1, n // k), most) for k in (8, 4, 2))}))
    means, n_rows = zip(*(_mean_over(fit, int(k)) for k in counts), strict=True)
    iterates, gradients, _ = np.array(means).transpose(1, 0, 2)
    theta = iterates[-1] + inverse.of_sample(gradients[-1])
    excess = np.maximum(inverse.find_excess(gradients, theta, np.array(n_rows)), 0.0)
    best = int(np.argmin((1.0 + excess) / np.array(n_rows)))
    return int(counts[best]), float(excess[best])


def _mean_over(fit: LinearFit, n_dropped: int) -> tuple[Floats, int]:
    """Return the means (3, d) over the blocks that count and the open one, and the number of their rows."""
    total = fit.open + _sums_since(fit)
    for block in fit.blocks[n_dropped:]:
        total = total + block
    n = fit.n_rows - n_dropped * fit.block
    return total / n, n


def _is_seen(sums: Floats) -> NDArray[np.bool_]:
    """Return which features were not 0 on every row, as far as sums of pseudo-gradients and of features tell."""
    return np.asarray((sums[1] != 0.0) | (sums[2] != 0.0))


def estimate_point(fit: LinearFit) -> LinearPoint:
    """Return the estimate from the rows so far, without its noise, which costs VRTD an inner loop per block."""
    inverse, scale = _Inverse(fit), 1.0 if fit.scale is None else fit.scale
    n_dropped, excess = _choose_blocks(fit, inverse)
    (iterate, gradient, _), _ = _mean_over(fit, n_dropped)
    return LinearPoint((iterate + inverse(gradient[None])[0]) / scale, excess, n_dropped, inverse)


def estimate_linearly(fit: LinearFit, point: LinearPoint | None = None) -> LinearEstimate:
    """Return what the rows so far tell; `point` if it is known."""
    theta, excess, n_dropped, inverse = point or estimate_point(fit)
    scale, d, n = 1.0 if fit.scale is None else fit.scale, fit.n_features, fit.n_rows - n_dropped * fit.block
    blocks, influence = fit.blocks[n_dropped:], np.empty((0, d))
    block, first, every = fit.block, n_dropped, fit.blocks
    if isinstance(fit.algorithm, VRTD) and len(blocks) > 2 * _LEAST_BLOCKS:  # each costs an inner loop
        first, block = -(-n_dropped // 2), 2 * fit.block
        every = tuple(a + b for a, b in zip(every[::2], every[1::2], strict=False))
        blocks = every[first:]
    if len(blocks) >= _LEAST_BLOCKS:
        means = np.array(blocks) / block
        influence = (means[:, 0] + inverse(means[:, 1])) / scale - theta
    total = _mean_over(fit, 0)[0]
    n_seen = np.sum([_is_seen(each) for each in fit.blocks], axis=0) if fit.blocks else _is_seen(total).astype(int)
    is_unseen = ~_is_seen(total)
    return LinearEstimate(
        theta, influence * np.sqrt(1.0 + excess), block, first, n, excess,
        fit.total_phi[0] * scale / fit.n_rows, np.array([each[2] for each in every]).reshape(-1, d) * scale / block,
        np.flatnonzero(is_unseen), np.flatnonzero(~is_unseen & (n_seen < _LEAST_SEEN)),
    )  # fmt: skip
