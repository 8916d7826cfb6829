"""Learning with O(d) work per row: extrapolated TD, or VRTD with growing batches.

Both keep two sums over blocks of consecutive rows: of the iterates at which pseudo-gradients were evaluated, and of
these pseudo-gradients. With Q an approximate inverse of -A, the estimate of a block is (mean of its iterates) + Q (mean
of its pseudo-gradients), and theta is the mean over blocks. The error of theta has two parts: the error of least
squares on the same rows, and (I + Q A) times the distance of the iterates from theta_star, which is the initial
transient in slow directions. The number of first blocks that are left out minimises the sum of both.

- RichardsonTD: the iterates are theta^m of the levels m, combined with the weights h. Their pseudo-gradients need no
  extra work, because they sum to the change of theta^m divided by its step. Q is a `SampleInverse`.
- VRTD: the iterate is the anchor. Q v is the mean of an inner loop that starts from the pseudo-gradient v, on rows
  drawn from the reservoir. The `SampleInverse` corrects the transient of this loop.

The run starts from theta_0 plus a correction with the `SampleInverse` of the pilot rows. Batches grow, and after each
batch the run continues from the current estimate, so that the initial transient falls with every batch. The reservoir
is a uniform sample of the rows. Blocks double in length as rows come. The estimate is therefore usable at any time, and
the number of rows need not be known.
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

_MOST_BLOCKS = 64  # then blocks are merged in pairs
_MOST_LARGE = 1.0  # limit of the step times |phi|^2 of a row; beyond, the step is lowered permanently
# Factor of the step each time blocks double, so that the error of the extrapolation falls faster than the noise.
_DECAY = 2.0**-0.25
# The work of a new estimate at the end of a batch is at most this multiple of the work of all rows before. Products of
# matrices are faster than a pass over rows by about the second factor (measured).
_MOST_WORK, _SPEED = 2.0, 10.0


def first_linear_fit(
    algorithm: Algorithm | str, step_size: float | None, pilot: Transitions, theta_0: Floats, seed: int
) -> LinearFit:
    """Return a run with a starting point and settings from the pilot rows.

    Parameters
    ----------
    algorithm : Algorithm or str
        RichardsonTD or VRTD with growth, or the name of one of them.
    step_size : float or None
        Step size of an algorithm that is passed by name. With None it is chosen from the pilot rows, and lowered as
        rows come.
    pilot : Transitions
        The first rows.
    theta_0 : array of shape (d,)
        Parameters from which the starting point is computed.
    seed : int
        Seed of the random draws of rows.
    """
    is_auto, pilot = isinstance(algorithm, str) and step_size is None, pilot.astype(np.float64)
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


@np.errstate(over="ignore", invalid="ignore")  # numbers that are not finite raise NotFiniteError
def learn_linearly(fit: LinearFit, rows: Transitions) -> LinearFit:
    """Return the run after these rows.

    Raises NotFiniteError if a number in the rows or a parameter is not finite.
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
    """Add the rows one by one, so that the sum does not depend on how they are split."""
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
        if fit.lowers_step and not isinstance(fit.algorithm, VRTD):  # VRTD has no extrapolation error
            fit = _lower_step(fit, _DECAY)
    return fit._replace(blocks=blocks, open=np.zeros_like(fit.open))


def _lower_step(fit: LinearFit, factor: float) -> LinearFit:
    algorithm: Any = fit.algorithm
    return fit._replace(algorithm=replace(algorithm, step_size=algorithm.step_size * factor))


def _close_batch(fit: LinearFit) -> LinearFit:
    """Continue from the current estimate; RichardsonTD does this only if it is cheap."""
    algorithm, d, state = fit.algorithm, fit.n_features, fit.state.copy()
    growth = float(algorithm.growth or 1.0) if isinstance(algorithm, VRTD) else GROWTH
    batch_end = fit.n_rows + int((fit.n_rows - fit.batch) * growth)
    work = SampleInverse.count_work(fit.reservoir.n_kept, d) / _SPEED
    if isinstance(algorithm, VRTD) or work <= _MOST_WORK * fit.n_rows * 24 * d:
        (iterate, gradient, _), _ = mean_over(fit, len(fit.blocks) // 4)
        theta = iterate + Inverse(fit)(gradient[None])[0]
        if np.isfinite(theta).all():
            state[:d] = theta
            # VRTD: the sum of pseudo-gradients at the anchor. RichardsonTD: the differences of its levels.
            first = 2 * d
            state[first : 3 * d if isinstance(algorithm, VRTD) else None] = 0.0
    return fit._replace(state=state, mark=state, batch=fit.n_rows, batch_end=batch_end)
