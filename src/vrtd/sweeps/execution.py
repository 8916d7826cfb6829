"""The function `sweep`: an algorithm with every combination of settings on every problem."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vrtd import store
from vrtd.algorithms import Algorithm, Sampling
from vrtd.checks import check_count, check_flag
from vrtd.engine import arguments
from vrtd.engine.blocks import available_threads
from vrtd.engine.device import DeviceName, choose_device
from vrtd.executors import check_executor, run_tasks
from vrtd.metrics import QuadraticForm
from vrtd.problems import LinearProblem, Simulator, Transitions
from vrtd.progress import ProgressBar, show_progress
from vrtd.report.folder import opened
from vrtd.report.numbers import plural
from vrtd.sweeps.cell import MeasuredCells, Records, measure, record_type
from vrtd.sweeps.design import Design, check_metrics, default_metrics, first_parameters, samplings_of
from vrtd.sweeps.grid import check_grid, choose_algorithm, choose_problems
from vrtd.sweeps.groups import Groups
from vrtd.sweeps.local import measure_here, measure_one_by_one
from vrtd.sweeps.segments import Segments
from vrtd.sweeps.sweep_result import SweepResult, Timing, make_result

_FORMAT = "vrtd-sweep-1"
_FEW = 4  # cells per thread, below which threads share the runs of a cell

Problem = LinearProblem | Simulator | Transitions


def sweep(
    problems: str | Problem | Sequence[str | Problem] | Mapping[str, str | Problem],
    algorithm_class: type[Algorithm] | str,
    grid: Mapping[str, Sequence[Any]],
    *,
    sampling: Sampling | None = None,
    n_runs: int = 100,
    n_gradients: int = 100_000,
    seed: int = 0,
    theta_0: ArrayLike | None = None,
    initial: int | ArrayLike = "stationary",
    metrics: Sequence[str | QuadraticForm] | None = None,
    checkpoints: int | ArrayLike = 1,
    exact: bool | None = None,
    executor: Executor | None = None,
    threads: int | None = None,
    device: DeviceName = "cpu",
    out: str | os.PathLike[str] | None = None,
    progress: Callable[[float, str], None] | bool | None = None,
) -> SweepResult:
    """Simulate an algorithm with every combination of settings on every problem.

    Each cell, a problem with a setting, has the numbers that `vrtd.simulate` gives for it. All cells use the same seed,
    so run i sees the same random numbers in each. The numbers do not depend on the executor, the threads, or the
    order in which cells are computed. Unlike ``simulate``, it does not warn of unstable step sizes, because a sweep
    often includes some; the column ``n_diverged`` counts the runs that diverged.

    Parameters
    ----------
    problems : problem, name, or sequence or mapping of these
        Problems that supply the transitions. Names are those of ``vrtd.problems.LIBRARY``. Objects in a sequence are
        called "problem-1", "problem-2", ...; a mapping gives each problem a name of your choice.
    algorithm_class : type or str
        Class of the algorithm, such as ``vrtd.VRTD``, or its name.
    grid : mapping of str to sequence
        Values of each hyperparameter to try, such as ``{"step_size": [0.01, 0.1]}``. Hyperparameters that are not in
        the grid have their defaults. A single value fixes a hyperparameter.
    sampling : {"markov", "iid", "dataset"} or None, default=None
        Kind of samples, as in ``simulate``. None means the default of each problem.
    n_runs : int, default=100
        Number of runs per cell.
    n_gradients : int, default=100_000
        Number of pseudo-gradients per run.
    seed : int, default=0
        Seed of the random streams of all cells.
    theta_0 : float, array_like of shape (d,) or None, default=None
        Initial parameter, or one number for all features. None means zeros.
    initial : "stationary", int or array_like of shape (S,), default="stationary"
        State in which trajectories begin, or its distribution.
    metrics : sequence of str or QuadraticForm, or None, default=None
        Error metrics to record, as in ``simulate``.
    checkpoints : int or array_like of int, default=1
        Number of checkpoints, or the checkpoints as numbers of pseudo-gradients. With 1, only the end is recorded.
    exact : bool or None, default=None
        Whether to compute expected errors beside the simulated ones, where `vrtd.theory` knows them. None means where
        this is predicted to cost less than a quarter of the simulation.
    executor : concurrent.futures.Executor or None, default=None
        Executor that computes the cells, such as ``vrtd.executors.ProcessExecutor(8)``. None means threads of this
        process.
    threads : int or None, default=None
        Number of threads without an executor. None means one per available core.
    device : {"cpu", "cuda", "auto"}, default="cpu"
        Device that computes the cells: the CPU, an NVIDIA GPU ("cuda"), or the GPU if it helps ("auto"), as in
        ``simulate``. On a GPU, ``threads`` is the number of cells that are computed at the same time, so that small
        cells also fill the GPU.
    out : path or None, default=None
        Folder that keeps finished cells, for a call that continues this one, and receives the table. It must be new,
        empty or that of an earlier sweep.
    progress : bool, callable or None, default=None
        Show a progress bar on stderr. A function is called with the share of the cells that is done and a text.

    Returns
    -------
    SweepResult
        Table with a row per cell, metric and checkpoint.

    Raises
    ------
    InvalidInputError
        If an argument or a combination of settings is invalid, or the folder holds something else.
    WorkerError
        If a cell fails, or a worker ends. The message names the cells.

    Examples
    --------
    >>> import vrtd
    >>> problem = vrtd.problems.random_mdp(seed=0)
    >>> grid = {"step_size": [0.01, 0.1], "batch_size": [50, 500]}
    >>> result = vrtd.sweep(problem, vrtd.VRTD, grid, n_runs=10, n_gradients=10_000)
    >>> result.best()["problem-1"].setting
    {'step_size': 0.1, 'batch_size': 500}
    """
    algorithm, where = choose_algorithm(algorithm_class), choose_problems(problems)
    values = check_grid(algorithm, grid)
    first = algorithm(**{name: each[0] for name, each in values.items()})
    metrics = default_metrics(where) if metrics is None else metrics
    arguments.check_arguments(first, sampling, n_runs, n_gradients, seed, metrics, None)
    check_executor(executor, threads)
    choose_device(device, int(n_runs), int(n_gradients), 1, executor)  # refuse it before any cell is computed
    chosen = check_metrics(metrics)
    if exact is not None:
        check_flag("exact", exact)
    if np.ndim(checkpoints) == 0:
        check_count("checkpoints", checkpoints)
    axis = arguments.checkpoint_axis(checkpoints, 0, int(n_gradients))
    design = Design(
        where,
        algorithm,
        values,
        int(n_runs),
        int(n_gradients),
        samplings_of(where, sampling),
        int(seed),
        first_parameters(where, theta_0),
        initial,
        chosen,
        axis,
        exact,
        device,
    )
    loops = design.check_settings()
    with ExitStack() as stack:
        folder = None
        if out is not None:
            folder = stack.enter_context(opened(Path(out), _FORMAT, "sweep", ("cells",)))
        report = stack.enter_context(show_progress(progress, ProgressBar))
        records = np.zeros(design.n_cells, record_type(len(chosen), len(axis)))
        timing = _fill(design, records, loops, executor, threads or available_threads(), folder, report)
        result = make_result(design, records, timing, None if out is None else Path(out))
        if folder is not None:
            result.to_csv(folder / "sweep.csv")
            store.write_json(result.manifest, folder / "manifest.json")
    return result


def _fill(
    design: Design,
    records: Records,
    loops: NDArray[np.int64],
    executor: Executor | None,
    n_threads: int,
    folder: Path | None,
    report: Callable[[float, str], None] | None,
) -> Timing:
    """Fill in the records of all cells, those that are already finished from the folder."""
    segments = None if folder is None else Segments(folder / "cells", design.keys())
    is_done = np.zeros(len(records), bool) if segments is None else segments.load(records)
    missing = np.flatnonzero(~is_done)
    n_done, n_cells = len(records) - len(missing), len(records)

    def tell(in_progress: float) -> None:
        if report is not None:
            report((n_done + in_progress) / n_cells, f"{n_done:,} of {plural(n_cells, 'cell')}")

    groups = Groups(missing, loops, design.n_runs * design.n_gradients)
    loop_seconds = compile_seconds = 0.0
    tell(0.0)
    measured: Generator[MeasuredCells]
    if executor is not None:
        measured = _measure_elsewhere(design, groups, executor)
    elif n_threads > 1 and len(missing) >= _FEW * n_threads:
        measured = measure_here(design, groups, n_threads, tell)
    else:
        measured = measure_one_by_one(design, groups, n_threads, tell)
    try:
        with closing(measured):  # after an error or Ctrl-C, cells that have not begun never start
            for each in measured:
                records[each.cells] = each.records
                n_done += len(each.cells)
                groups.add_times(each)
                if segments is not None:
                    segments.add(each.cells, each.records)
                loop_seconds += each.loop_seconds
                compile_seconds += each.compile_seconds
                tell(0.0)
    finally:
        if segments is not None:
            segments.flush()
    return Timing(len(missing), loop_seconds, compile_seconds)


def _measure_elsewhere(design: Design, groups: Groups, executor: Executor) -> Generator[MeasuredCells]:
    """Yield the cells of each group as a worker returns them."""
    sent: list[NDArray[np.int64]] = []

    def tasks() -> Iterator[tuple[NDArray[np.int64]]]:
        for group in groups:
            sent.append(group)
            yield (group,)

    def describe(i: int) -> str:
        return f"A group of {plural(len(sent[i]), 'cell')}, from {design.describe(int(sent[i][0]))},"

    results = run_tasks(executor, measure, design, tasks(), describe)
    try:
        for _, measured in results:
            yield measured
    finally:
        results.close()  # type: ignore[attr-defined]
