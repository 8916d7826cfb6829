"""Blocks of runs on an executor. The bits are those of threads in the calling process."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrtd.algorithms import Algorithm, Epoch, Sampling
from vrtd.engine.arguments import bind_problem
from vrtd.engine.blocks import Job, Progress, allocate_outputs, prepare, run_blocks, runs_per_call
from vrtd.engine.loop import Outputs
from vrtd.executors import run_tasks
from vrtd.lazy import cached_property
from vrtd.metrics import QuadraticForm
from vrtd.problems import LinearProblem, Simulator, Transitions
from vrtd.result import EngineState

Problem = LinearProblem | Simulator | Transitions


@dataclass(frozen=True)
class PortableJob:
    """Job as plain data. A worker binds the problem once, for all blocks of runs that it gets."""

    problem: Problem
    sampling: Sampling
    initial: Any
    algorithm: Algorithm
    epoch: Epoch
    forms: Sequence[QuadraticForm]
    epoch_0: int
    epochs: NDArray[np.int64]
    specialised: bool

    @cached_property
    def job(self) -> Job:
        """The job, with the source of the transitions."""
        source = bind_problem(self.problem, self.sampling, self.initial, self.specialised)
        return Job(self.algorithm, self.epoch, source, self.forms, self.epoch_0, self.epochs, self.specialised)


def distribute(
    executor: Executor,
    problem: Problem,
    sampling: Sampling,
    initial: Any,
    job: Job,
    state: EngineState,
    progress: Progress | None,
) -> tuple[Outputs, float]:
    """Take all runs through all checkpoints on an executor, changing ``state`` in place.

    Return the outputs, and the longest time that a worker took to compile the loop or to load it.
    """
    portable = PortableJob(
        problem, sampling, initial, job.algorithm, job.epoch, job.forms, job.epoch_0, job.epochs, job.specialised
    )
    n_runs, size = len(state.workspaces), runs_per_call(job)
    blocks = [slice(first, min(first + size, n_runs)) for first in range(0, n_runs, size)]

    def describe(i: int) -> str:
        return f"{job.algorithm!r} on {problem!r}, runs {blocks[i].start} to {blocks[i].stop - 1},"

    outputs, compile_seconds, done = allocate_outputs(job, n_runs), 0.0, 0
    tasks = [(state.map(itemgetter(block)),) for block in blocks]
    for i, (part, written, seconds) in run_tasks(executor, advance_runs, portable, tasks, describe):
        for whole, piece in zip((*state, *outputs), (*part, *written), strict=True):
            whole[blocks[i]] = piece
        compile_seconds = max(compile_seconds, seconds)
        done += blocks[i].stop - blocks[i].start
        if progress is not None:
            progress(done / n_runs)
    return outputs, compile_seconds


def advance_runs(portable: PortableJob, state: EngineState) -> tuple[EngineState, Outputs, float]:
    """Take a block of runs through all checkpoints in a worker; also return the seconds until the loop was ready."""
    clock = time.perf_counter()
    state = state.map(np.array)  # arrays from another process may be read-only
    loop = prepare(portable.job, state)
    seconds = time.perf_counter() - clock
    return state, run_blocks(portable.job, loop, state, 1, None), seconds
