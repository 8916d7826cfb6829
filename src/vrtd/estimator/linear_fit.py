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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrtd.algorithms import VRTD, Algorithm
from vrtd.arrays import Floats
from vrtd.estimator.linear_estimate import Inverse
from vrtd.estimator.linear_settings import BATCH, GROWTH, choose_algorithm, find_scale, kept_rows, measure_sizes
from vrtd.estimator.linear_state import LinearFit, Loops, mean_over, sums_since
from vrtd.estimator.reservoir import add, empty_reservoir
from vrtd.estimator.rows import NotFiniteError, loop_columns
from vrtd.estimator.sample_inverse import SampleInverse
from vrtd.kernels.jit import compiled
from vrtd.problems import Transitions

_MOST_BLOCKS = 64  # when they are full, they become twice as long
_MOST_LARGE = 1.0  # the largest step times |phi|^2 of a row: beyond, the step is lowered for good
# By how much the step falls whenever blocks double: the error of the extrapolation falls faster than the noise.
_DECAY = 2.0**-0.25
# A new estimate when a batch ends may cost this multiple of the work of all rows before. Products of matrices are about
# this much faster than a pass over rows (measured).
_MOST_WORK, _SPEED = 2.0, 10.0


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
    scale = find_scale(pilot) if is_auto else None
    rows = pilot if scale is None else pilot.divide(scale)
    chosen = algorithm if isinstance(algorithm, Algorithm) else choose_algorithm(algorithm, step_size, rows)
    start = theta_0 if scale is None else theta_0 * scale
    theta = start + SampleInverse(rows, caution=1.0)(_mean_gradient(rows, start))
    d = len(theta)
    state = np.zeros(chosen.workspace_size(d))
    state[:d] = theta if np.isfinite(theta).all() else start
    reservoir = empty_reservoir(kept_rows(d), seed)
    batch_end = int(chosen.batch_size) if isinstance(chosen, VRTD) else (BATCH if isinstance(algorithm, str) else 0)
    return LinearFit(
        chosen, is_auto, scale, state, seed, reservoir, state, np.zeros((3, d)), np.zeros((2, d)), batch_end
    )


def _mean_gradient(rows: Transitions, theta: Floats) -> Floats:
    return np.asarray(rows.left.T @ (rows.reward + rows.psi @ theta) / len(rows))


@np.errstate(over="ignore", invalid="ignore")  # what is not finite is refused
def learn_linearly(fit: LinearFit, rows: Transitions) -> LinearFit:
    """Return the run after these rows.

    Raises NotFiniteError if a number is not finite, or becomes so.
    """
    if fit.loops is None:
        fit = fit._replace(loops=Loops(fit.algorithm, fit.n_features, rows.is_weighted))
    if fit.scale is not None:
        rows = rows.divide(fit.scale)
    sizes = measure_sizes(rows) if fit.lowers_step else np.zeros(len(rows))
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


def _run(fit: LinearFit, rows: Transitions) -> LinearFit:
    """Return the run after these rows, between two stops."""
    columns, n, d, state = loop_columns(rows), len(rows), fit.n_features, np.empty_like(fit.state)
    algorithm, loops = fit.algorithm, fit.loops
    assert loops is not None
    if isinstance(algorithm, VRTD):
        is_finite = loops.absorb(algorithm.params(), *columns, 0, n, fit.state, state, d)
    else:
        place = 0, n, fit.n_rows, fit.state, loops.online.scratch, state
        is_finite = loops.online.call(algorithm.params(), *columns, *place, *loops.unused, d, 0, 1)
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


def _set_mark(fit: LinearFit) -> LinearFit:
    total_phi = np.stack([fit.total_phi[0], fit.total_phi[0]])
    return fit._replace(open=fit.open + sums_since(fit), mark=fit.state, total_phi=total_phi, n_marked=fit.n_rows)


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
    growth = float(algorithm.growth or 1.0) if isinstance(algorithm, VRTD) else GROWTH
    batch_end = fit.n_rows + int((fit.n_rows - fit.batch) * growth)
    work = SampleInverse.count_work(fit.reservoir.n_kept, d) / _SPEED
    if isinstance(algorithm, VRTD) or work <= _MOST_WORK * fit.n_rows * 24 * d:
        (iterate, gradient, _), _ = mean_over(fit, len(fit.blocks) // 4)
        theta = iterate + Inverse(fit)(gradient[None])[0]
        if np.isfinite(theta).all():
            state[:d] = theta
            first = 2 * d  # of VRTD the sum of gradients at the anchor, of RichardsonTD the differences of its levels
            state[first : 3 * d if isinstance(algorithm, VRTD) else None] = 0.0
    return fit._replace(state=state, mark=state, batch=fit.n_rows, batch_end=batch_end)
