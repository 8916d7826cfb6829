"""One run of an algorithm over a stream of rows, with its path.

A learner is immutable: `learn` returns the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.algorithms import Algorithm, Sampling, check_sparse_rows
from vrtd.arrays import Floats, aligned_copy, aligned_empty
from vrtd.engine.stream import compile_stream, epochs_within
from vrtd.estimator.rows import NotFiniteError, append, is_finite, loop_columns
from vrtd.kernels.jit import short_vectors
from vrtd.kernels.random import ALGORITHM, make_streams
from vrtd.problems import Transitions
from vrtd.theory.settings import MOST_GROWTH

_SAMPLING: Sampling = "markov"  # the rows of a log follow each other
_MOST_POINTS = 128  # of the path; when there are more, every second one is dropped
_FIRST_STRIDE, _NEVER = 1024, 1 << 62  # initial number of rows between two points
_ROUNDING = 1e-6  # relative difference between two sums of the same squares


class ThetaPath(NamedTuple):
    """theta along the run, at row counts that depend only on the batch sizes."""

    n_rows: tuple[int, ...]
    theta: tuple[Floats, ...]
    stride: int = _FIRST_STRIDE
    next: int = _FIRST_STRIDE

    def add(self, n_rows: int, theta: Floats) -> ThetaPath:
        """Return the path with one more point, at or after the row count `next`."""
        counts, thetas, stride = (*self.n_rows, n_rows), (*self.theta, theta.copy()), self.stride
        if len(counts) > _MOST_POINTS:
            counts, thetas, stride = counts[::2], thetas[::2], 2 * stride
        return ThetaPath(counts, thetas, stride, n_rows + stride)


class Phase(NamedTuple):
    """Part of the run with constant settings."""

    algorithm: Algorithm
    n_epochs: int | None  # None for a phase without end
    first_epoch: int
    is_lowered: bool = False  # whether the step was lowered for rows with large features


class Loop:
    """Compiled loop of an algorithm, with the arguments that depend only on its settings."""

    def __init__(self, algorithm: Algorithm, n_features: int, is_weighted: bool, is_sparse: bool = False) -> None:
        epoch = algorithm.epoch(_SAMPLING)
        self.algorithm, self.batch_rows = algorithm, batch_rows(algorithm)
        self.largest_step_size = algorithm.largest_step_size
        self.params, self.sizes = algorithm.params(), (n_features, epoch.n_absorb, epoch.n_steps)
        # The loop on sparse rows writes to the next state directly: a copy of a million numbers is not free.
        self.scratch = None if is_sparse else aligned_copy(np.zeros(algorithm.workspace_size(n_features)))
        self._compiled = compile_stream(algorithm, epoch, n_features, is_weighted, is_sparse)
        self.call: Callable[..., bool] = self

    def __call__(self, *arguments: Any) -> bool:
        """Compile the loop or load it from the cache, and run it; later, `call` is the compiled loop itself."""
        with short_vectors():
            is_finite = bool(self._compiled(*arguments))
        self.call = self._compiled
        return is_finite


class Learner(NamedTuple):
    """State of a run: workspace, random stream, open batch, and the phases so far.

    With `lowers_step`, a step a with a R > 5/4 is lowered to 5/4 / R before the batch is used. R is the growth ratio of
    the batch, tr E[A_x^T A_x] / -tr A over its rows. An update u + a A_x u satisfies
    E|u + a A_x u|^2 = |u|^2 + 2 a u^T A u + a^2 E|A_x u|^2.
    Averaged over directions, this grows if a > 2 / R, and the inner steps of VRTD add noise from the anchor. The rule
    is a heuristic, not a bound: some directions may be worse than the average.

    The planned step is restored after one batch. Each time it is lowered again, this number of batches doubles.
    """

    phases: tuple[Phase, ...]
    state: Floats
    stream: NDArray[np.uint64]
    theta: Floats
    path: ThetaPath
    lowers_step: bool
    n_epochs: int = 0
    n_rows: int = 0
    buffer: Transitions | None = None  # its first `n_waiting` rows are the open batch
    n_waiting: int = 0
    lowered_until: int | None = None  # the epoch at which the planned step is restored
    pause: int = 1  # number of epochs for which the step is lowered the next time
    loop: Loop | None = None  # compiled; not part of the state

    @property
    def algorithm(self) -> Algorithm:
        """Algorithm with its current settings."""
        return self.phases[-1].algorithm

    @property
    def rows_left(self) -> int | None:
        """Number of rows to the end of the phase; None if it has no end."""
        phase = self.phases[-1]
        if phase.n_epochs is None:
            return None
        n_epochs = phase.n_epochs - (self.n_epochs - phase.first_epoch)
        return n_epochs * batch_rows(phase.algorithm) - self.n_waiting


def batch_rows(algorithm: Algorithm) -> int:
    """Return the number of rows of one epoch."""
    epoch = algorithm.epoch(_SAMPLING)
    return epoch.n_absorb + epoch.n_steps * epoch.samples_per_step


def first_learner(
    algorithm: Algorithm,
    n_epochs: int | None,
    theta_0: Floats,
    seed: int,
    lowers_step: bool = False,
    is_sparse: bool = False,
) -> Learner:
    """Return a learner that has seen no rows.

    With sparse rows, the path has only its first point, because a point has d numbers.
    """
    if is_sparse:
        check_sparse_rows(algorithm)
    state = np.zeros(algorithm.workspace_size(theta_0.size, is_sparse=is_sparse))
    algorithm.theta_in(state, theta_0.size, is_sparse=is_sparse)[:] = theta_0
    path = ThetaPath((0,), (np.array(theta_0),))
    return Learner(
        (Phase(algorithm, n_epochs, 0),),
        state,
        make_streams(seed, np.arange(1), ALGORITHM)[0],
        np.array(theta_0),
        path._replace(next=_NEVER) if is_sparse else path,
        lowers_step,
    )


def next_phase(learner: Learner, algorithm: Algorithm, n_epochs: int | None) -> Learner:
    """Return the learner with a new phase of the same algorithm; the batch must be complete."""
    phase = Phase(algorithm, n_epochs, learner.n_epochs)
    return learner._replace(phases=(*learner.phases, phase), lowered_until=None, pause=1, buffer=None, loop=None)


def learn(learner: Learner, rows: Transitions) -> Learner:
    """Return the learner after these rows; rows of an incomplete batch wait.

    Raises NotFiniteError if a number in the rows or a parameter is not finite.
    """
    if learner.loop is None:
        loop = Loop(learner.algorithm, rows.n_features, rows.is_weighted, rows.is_sparse)
        learner = learner._replace(loop=loop)
    assert learner.loop is not None
    n, size, at = len(rows.reward), learner.loop.batch_rows, 0
    if learner.n_waiting:
        at = min(n, size - learner.n_waiting)
        first = rows.part(0, at)
        if learner.n_waiting + at < size and not is_finite(first):
            raise NotFiniteError
        buffer = append(learner.buffer, learner.n_waiting, first, size)
        if learner.n_waiting + at < size:
            return learner._replace(buffer=buffer, n_waiting=learner.n_waiting + at)
        learner = _run(learner._replace(buffer=None, n_waiting=0), buffer.part(0, size), 1)
    count = (n - at) // size
    if count:
        learner = _run(learner, rows.part(at, at + count * size), count)
        at += count * size
    if at < n:
        rest = rows.part(at, n)
        if not is_finite(rest):
            raise NotFiniteError
        learner = learner._replace(buffer=append(None, 0, rest, size), n_waiting=n - at)
    return learner


def _run(learner: Learner, rows: Transitions, count: int) -> Learner:
    """Run `count` complete epochs, and stop at each point of the path and where the step changes."""
    phases, before, stream, _, path, lowers_step, n_epochs, n_rows, buffer, n_waiting, until, pause, loop = learner
    assert loop is not None
    state, stream, theta = (
        aligned_empty(before.size) if rows.is_sparse else np.empty(before.size),
        stream.copy(),
        np.empty(learner.theta.size),
    )
    columns, first, size = loop_columns(rows), 0, loop.batch_rows
    while count:
        n = min(count, max(1, -(-(path.next - n_rows) // size)))
        if until is not None:
            if n_epochs == until:
                phases, until = _with_step(phases, _planned(phases), n_epochs, False), None
                loop = Loop(phases[-1].algorithm, theta.size, rows.is_weighted, rows.is_sparse)
            else:
                n = min(n, until - n_epochs)
        if lowers_step and loop.largest_step_size is not None:
            n, ratio = _within(columns, first, n, size, loop.largest_step_size)
            if n == 0:
                lowered = replace(_planned(phases), step_size=MOST_GROWTH / ratio)
                phases = _with_step(phases, lowered, n_epochs, True)
                loop = Loop(lowered, theta.size, rows.is_weighted)
                until, pause = n_epochs + pause, 2 * pause
                continue
        place, scratch = (first, n, n_epochs), state if loop.scratch is None else loop.scratch
        if not loop.call(loop.params, *columns, *place, before, scratch, state, stream, theta, *loop.sizes):
            raise NotFiniteError
        before = state
        n_epochs, n_rows, first, count = n_epochs + n, n_rows + n * size, first + n * size, count - n
        if n_rows >= path.next:
            path = path.add(n_rows, theta)
    return Learner(
        phases, state, stream, theta, path, lowers_step, n_epochs, n_rows, buffer, n_waiting, until, pause, loop
    )  # fmt: skip


def _within(columns: tuple[Any, ...], first: int, n_epochs: int, size: int, step: float) -> tuple[int, float]:
    """Return for how many epochs the step is small enough, and the growth ratio of the next epoch."""
    phi, _, phi_next, discount, weight, _ = columns
    limit = MOST_GROWTH * (1.0 + _ROUNDING) / step
    n, ratio = epochs_within()(phi, phi_next, discount, weight, first, n_epochs, size, limit)
    return int(n), float(ratio)


def _planned(phases: tuple[Phase, ...]) -> Any:
    """Return the algorithm with the planned step."""
    return next(phase.algorithm for phase in reversed(phases) if not phase.is_lowered)


def _with_step(phases: tuple[Phase, ...], algorithm: Algorithm, n_epochs: int, is_lowered: bool) -> tuple[Phase, ...]:
    """Return the phases with another step for the remaining batches."""
    last = phases[-1]
    n_left = None if last.n_epochs is None else last.n_epochs - (n_epochs - last.first_epoch)
    return (*phases, Phase(algorithm, n_left, n_epochs, is_lowered))
