"""Threads over blocks of runs. The compiled loop releases the GIL, so that plain threads use every core."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from threading import Event, Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrtd.algorithms import Algorithm, Epoch
from vrtd.arrays import aligned_copy
from vrtd.engine.loop import LANES, Forms, Outputs, compile_loop
from vrtd.kernels.jit import short_vectors
from vrtd.metrics import QuadraticForm
from vrtd.result import EngineState
from vrtd.sources import Source
from vrtd.sources.source import make_slots

Progress = Callable[[float], None]  # takes the share of the work that is done

# One call of the compiled loop. It must be long compared with the cost of a call, but short enough for Ctrl-C.
_GRADIENTS_PER_CALL = 20_000_000
_BLOCKS_PER_THREAD = 8  # enough to keep every thread busy to the end


@dataclass(frozen=True)
class Job:
    """Work of one simulation: what to run, up to where, and when to record."""

    algorithm: Algorithm
    epoch: Epoch
    source: Source
    forms: Sequence[QuadraticForm]
    epoch_0: int  # epochs that are already closed; -1 if the runs have not begun
    epochs: NDArray[np.int64]  # (C,) closed epochs at each checkpoint
    specialised: bool = True

    @property
    def n_gradients(self) -> int:
        """Number of pseudo-gradients that each run will compute."""
        return self.gradients_between(self.epoch_0, int(self.epochs[-1]))

    @property
    def largest_batch(self) -> int:
        """Size of the largest batch among the epochs that are run."""
        batch_sizes, _ = warmup_shapes(self.epoch)
        return int(batch_sizes[: self.epochs[-1]].max(initial=batch_sizes[0]))

    def gradients_between(self, first: int, last: int) -> int:
        """Return the number of pseudo-gradients that one run computes between two counts of closed epochs."""
        return int(self.epoch.gradients_until(last) - self.epoch.gradients_until(max(first, 0)))


def prepare(job: Job, state: EngineState) -> Callable[..., Any]:
    """Return the loop for this job, compiled or loaded from the cache by a call without runs."""
    loop = compile_loop(job.algorithm, job.epoch, job.source, job.specialised)
    with short_vectors():
        loop(*_inputs(job, state.map(lambda array: array[:0].copy())), 0, job.epochs, 0, allocate_outputs(job, 0))
    return loop


def run_blocks(
    job: Job, loop: Callable[..., Any], state: EngineState, threads: int | None, progress: Progress | None
) -> Outputs:
    """Take all runs through all checkpoints, changing ``state`` in place."""
    n_runs, n_threads = len(state.workspaces), threads or available_threads()
    outputs = allocate_outputs(job, n_runs)
    # A block consists of whole groups and takes at most one call.
    n_blocks = _BLOCKS_PER_THREAD * n_threads if n_threads > 1 else 1
    even_share = -(-n_runs // LANES) // n_blocks * LANES
    block_size = max(LANES, min(runs_per_call(job), even_share))
    cancelled, lock, done = Event(), Lock(), 0

    def report(n_gradients: int) -> None:
        nonlocal done
        if progress is not None:
            with lock:  # one thread at a time
                done += n_gradients
                progress(done / max(n_runs * job.n_gradients, 1))

    def run_block(first: int) -> None:
        block = slice(first, min(first + block_size, n_runs))
        n = block.stop - block.start
        lanes = np.minimum(np.arange(n + -n % LANES), n - 1) + first  # copies of the last run fill its group
        part, written = state.map(lambda array: aligned_copy(array[lanes])), allocate_outputs(job, lanes.size)
        inputs = _inputs(job, part)
        position, limit = job.epoch_0, max(_gradients_per_call(job) // (job.epoch.n_gradients * n), 1)
        for targets, checkpoint in calls(job.epochs, position, lambda: limit):
            if cancelled.is_set():
                return
            loop(*inputs, position, targets, checkpoint, written)
            report(n * job.gradients_between(position, int(targets[-1])))
            position = int(targets[-1])
        for whole, piece in zip((*state, *outputs), (*part, *written), strict=True):
            whole[block] = piece[:n]

    if n_threads == 1:  # without the cost of starting a thread
        for first in range(0, n_runs, block_size):
            run_block(first)
        return outputs
    with ThreadPoolExecutor(n_threads) as pool:
        try:
            futures = [pool.submit(run_block, first) for first in range(0, n_runs, block_size)]
            finished, _ = wait(futures, return_when=FIRST_EXCEPTION)
        finally:  # after an error or Ctrl-C, running blocks end with their current call, and waiting ones never start
            cancelled.set()
            pool.shutdown(cancel_futures=True)
    for future in finished:
        future.result()
    return outputs


def runs_per_call(job: Job) -> int:
    """Return the number of runs, in whole groups, that one call of the loop takes to the end."""
    return max(_gradients_per_call(job) // max(job.n_gradients * LANES, 1), 1) * LANES


def _gradients_per_call(job: Job) -> int:
    return _GRADIENTS_PER_CALL // max(job.source.n_features // 16, 1)


def available_threads() -> int:
    """Return the number of cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return os.cpu_count() or 1


def _inputs(job: Job, state: EngineState) -> tuple[Any, ...]:
    """Return the arguments that stay the same from call to call."""
    slots = make_slots(job.source, LANES, job.largest_batch + 1, job.epoch.subset)
    batch = np.empty((job.largest_batch if job.epoch.inner_samples == "resample" else 0, LANES), np.uint32)
    return job.algorithm.params(), job.source.data, slots, batch, state, *warmup_shapes(job.epoch), make_forms(job)


def warmup_shapes(epoch: Epoch) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the batch sizes and the numbers of steps of the first epochs; the last ones are those of all others."""
    batch_sizes, step_counts = np.array([*epoch.warmup, (epoch.n_absorb, epoch.n_steps)], np.int64).T.copy()
    return batch_sizes, step_counts


def make_forms(job: Job) -> Forms:
    """Return the metrics as arrays."""
    d = job.source.n_features
    matrices = np.array([form.matrix for form in job.forms], float).reshape(-1, d, d)
    is_diagonal = np.array([np.array_equal(matrix, np.diag(matrix.diagonal())) for matrix in matrices], bool)
    centres = np.array([form.centre for form in job.forms], float).reshape(-1, d)
    return Forms(matrices, is_diagonal, centres, np.array([form.offset for form in job.forms], float))


def allocate_outputs(job: Job, n_runs: int) -> Outputs:
    """Return the arrays that the loop writes."""
    curves = np.empty((n_runs, job.epochs.size, len(job.forms)))
    return Outputs(curves, np.empty((n_runs, job.source.n_features)), np.full(n_runs, -1))


def calls(
    epochs: NDArray[np.int64], position: int, limit: Callable[[], int]
) -> Iterator[tuple[NDArray[np.int64], int]]:
    """Yield calls of at most ``limit()`` epochs: the epochs to stop at, and the checkpoint of the first stop or -1."""
    c = 0
    while c < epochs.size:
        reach = max(position, 0) + limit()
        if epochs[c] > reach:
            yield np.array([reach]), -1
            position = reach
        else:
            end = int(np.searchsorted(epochs, reach, side="right"))
            yield epochs[c:end], c
            position, c = int(epochs[end - 1]), end
