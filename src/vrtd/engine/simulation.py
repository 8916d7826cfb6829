"""The function ``simulate``, which runs an algorithm on a problem in many independent runs."""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence
from concurrent.futures import Executor
from functools import cache
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from vrtd.algorithms import Algorithm, Sampling, check_sampling
from vrtd.arrays import Floats, check_theta
from vrtd.checks import check_choice, check_count, check_flag, require
from vrtd.engine import arguments
from vrtd.engine.blocks import Job, Progress, prepare, run_blocks
from vrtd.engine.device import Device, DeviceName, choose_device, prepare_on_device, run_on_device
from vrtd.engine.distribution import distribute
from vrtd.engine.recording import record_test_rows
from vrtd.executors import check_executor
from vrtd.kernels.random import ALGORITHM, ENVIRONMENT, make_streams
from vrtd.metrics import METRICS, QuadraticForm
from vrtd.problems import LinearProblem, Simulator, Transitions
from vrtd.progress import ProgressBar, show_progress
from vrtd.result import EngineState, Result
from vrtd.sources import Source


def simulate(
    problem: LinearProblem | Simulator | Transitions,
    algorithm: Algorithm,
    *,
    sampling: Sampling | None = None,
    n_runs: int = 1000,
    n_gradients: int = 100_000,
    seed: int = 0,
    theta_0: ArrayLike | None = None,
    initial: int | ArrayLike = "stationary",
    metrics: Sequence[str | QuadraticForm] | None = None,
    checkpoints: int | ArrayLike = 200,
    threads: int | None = None,
    executor: Executor | None = None,
    device: DeviceName = "cpu",
    start: Result | None = None,
    specialise: bool = True,
    progress: Progress | bool | None = None,
) -> Result:
    """Run an algorithm on a problem in many independent runs.

    The same seed gives the same bits for any number of threads, and on the workers of any executor whose processors are
    of the same type. On a GPU, it gives the same transitions and the same numbers up to rounding.

    Parameters
    ----------
    problem : LinearProblem, Simulator or Transitions
        Problem that supplies the transitions.
    algorithm : Algorithm
        Algorithm with its hyperparameters, such as ``vrtd.TD(0.1)``.
    sampling : {"markov", "iid", "dataset"} or None, default=None
        Kind of samples: one trajectory per run ("markov"), independent draws from the state distribution ("iid"), or
        the rows of a data set, repeatedly ("dataset"). None means "dataset" for `Transitions` and "markov" otherwise.
    n_runs : int, default=1000
        Number of runs.
    n_gradients : int, default=100_000
        Number of pseudo-gradients per run.
    seed : int, default=0
        Seed of the random streams of all runs.
    theta_0 : array_like of shape (d,) or None, default=None
        Initial parameter. None means zeros.
    initial : "stationary", int or array_like of shape (S,), default="stationary"
        State in which trajectories begin, or its distribution.
    metrics : sequence of str or QuadraticForm, or None, default=None
        Error metrics to record: names in ``vrtd.metrics.METRICS``, or forms of your own. None means "squared_error",
        and "neu" for a `Simulator`, whose metrics are estimated from 100,000 transitions of a separate run.
    checkpoints : int or array_like of int, default=200
        Number of checkpoints, evenly spaced from 0 to the end of the budget. An array gives them as numbers of
        pseudo-gradients, to which the end is added. The value at a checkpoint is that of the parameter which the
        algorithm would return there.
    threads : int or None, default=None
        Number of threads. None means one per available core.
    executor : concurrent.futures.Executor or None, default=None
        Executor that computes blocks of runs, in place of threads: ``vrtd.executors.ProcessExecutor(n)``, the
        ``get_executor()`` of a Dask client, ``vrtd.executors.ray()`` or any other. It stays open.
    device : {"cpu", "cuda", "auto"}, default="cpu"
        Device that computes the runs: the CPU, an NVIDIA GPU ("cuda"), or the GPU if it helps ("auto"). A GPU needs
        ``pip install 'vrtd[cuda]'``. "auto" takes the GPU if there is one, if there are at least 16,384 runs, and if
        the CPU would need longer than the GPU's compiler.
    start : Result or None, default=None
        Result to continue, from a call with the same arguments. ``n_gradients`` more are then computed, as if the first
        call had not stopped.
    specialise : bool, default=True
        Compile a loop for this chain and this number of features. False takes one loop for all, which is slower but
        compiles less often.
    progress : bool, callable or None, default=None
        Show a progress bar on stderr. A function is called with the share of the work that is done.

    Returns
    -------
    Result
        Curves of the metrics, final parameters and status of all runs.

    Raises
    ------
    InvalidInputError
        If an argument is invalid, or the algorithm cannot use this kind of samples.
    DeviceError
        If ``device`` is "cuda" and there is no GPU that can be used.
    MissingExtraError
        If ``device`` is "cuda" and numba-cuda is not installed.
    WorkerError
        If a task fails on a worker of the executor, or the executor loses its workers.

    Warns
    -----
    StabilityWarning
        If the step size is beyond the mean-square stability limit of TD.

    Examples
    --------
    >>> import vrtd
    >>> problem = vrtd.problems.random_mdp(seed=0)
    >>> result = vrtd.simulate(problem, vrtd.VRTD(step_size=0.1, batch_size=50), n_runs=4, n_gradients=10_000)
    >>> result.values("squared_error").shape
    (4, 200)
    """
    if metrics is None:
        metrics = default_metrics(problem)
    arguments.check_arguments(algorithm, sampling, n_runs, n_gradients, seed, metrics, start)
    check_executor(executor, threads)
    check_flag("specialise", specialise)
    sampling = arguments.choose_sampling(problem, sampling)
    check_sampling(algorithm, sampling)
    bound = bind(problem, sampling, initial, metrics, specialise)
    if np.ndim(checkpoints) == 0:
        check_count("checkpoints", checkpoints)
    words = algorithm.workspace_size(bound.source.n_features, bound.source.n_rows)
    arguments.check_memory(int(n_runs), checkpoints, int(n_gradients), len(bound.forms), words)
    if start is None:
        arguments.check_budget(algorithm.epoch(sampling, bound.source.n_rows), int(n_gradients))
    else:
        identity = _identify(bound, algorithm, int(n_runs), int(seed))
        arguments.check_start(start, identity, theta_0, initial)
        fresh = _fresh_state(bound.source, int(n_runs), words, seed, np.zeros(bound.source.n_features))
        arguments.check_state(start.state, fresh, problem)
    theta_first = check_theta("theta_0", theta_0, bound.source.n_features)
    if isinstance(problem, LinearProblem) and algorithm.largest_step_size is not None:
        arguments.warn_if_unstable(problem, algorithm.largest_step_size)
    return run(
        bound,
        algorithm,
        n_runs=int(n_runs),
        n_gradients=int(n_gradients),
        seed=int(seed),
        theta_0=theta_first,
        checkpoints=checkpoints,
        threads=threads,
        executor=executor,
        device=choose_device(device, int(n_runs), int(n_gradients), bound.source.n_features, executor),
        start=start,
        progress=progress,
    )


class BoundProblem(NamedTuple):
    """Problem that is ready to be simulated: its source of transitions and the forms of its metrics."""

    problem: LinearProblem | Simulator | Transitions
    sampling: Sampling
    initial: int | ArrayLike
    source: Source
    forms: list[QuadraticForm]
    specialise: bool


def default_metrics(problem: LinearProblem | Simulator | Transitions) -> tuple[str, ...]:
    """Return the metrics that are recorded unless others are asked for."""
    return ("neu",) if isinstance(problem, Simulator) else ("squared_error",)


def bind(
    problem: LinearProblem | Simulator | Transitions,
    sampling: Sampling,
    initial: int | ArrayLike,
    metrics: Sequence[str | QuadraticForm],
    specialise: bool,
) -> BoundProblem:
    """Return a problem with its source of transitions and its metrics."""
    source = arguments.bind_problem(problem, sampling, initial, specialise)
    return BoundProblem(
        problem, sampling, initial, source, [make_form(metric, problem) for metric in metrics], specialise
    )


def run(
    bound: BoundProblem,
    algorithm: Algorithm,
    *,
    n_runs: int,
    n_gradients: int,
    seed: int,
    theta_0: Floats,
    checkpoints: int | ArrayLike,
    threads: int | None,
    executor: Executor | None = None,
    device: Device | None = None,
    start: Result | None,
    progress: Progress | bool | None,
) -> Result:
    """Run an algorithm on a bound problem, as ``simulate`` does after it has checked its arguments."""
    problem, sampling, initial, source, forms, specialise = bound
    epoch = algorithm.epoch(sampling, source.n_rows)
    if start is None:
        words = algorithm.workspace_size(source.n_features, source.n_rows)
        state, done = _fresh_state(source, n_runs, words, seed, theta_0), 0
        began = {"theta_0": theta_0.tolist(), "initial": np.asarray(initial).tolist()}
    else:
        state, done = start.state.map(np.copy), int(start.n_gradients[-1])
        began = {key: start.provenance[key] for key in ("theta_0", "initial")}
    axis = arguments.checkpoint_axis(checkpoints, done, done + n_gradients)
    epoch_0 = -1 if start is None else int(epoch.epochs_at(done))
    job = Job(algorithm, epoch, source, forms, epoch_0, epoch.epochs_at(axis), specialise)
    clock = time.perf_counter()
    with show_progress(progress, ProgressBar) as report:
        if device is not None:
            ready = prepare_on_device(job, state, device)
            compile_seconds = time.perf_counter() - clock
            curves, theta, diverged = run_on_device(ready, state, report)
        elif executor is None:
            loop = prepare(job, state)
            compile_seconds = time.perf_counter() - clock
            curves, theta, diverged = run_blocks(job, loop, state, threads, report)
        else:
            outputs, compile_seconds = distribute(executor, problem, sampling, initial, job, state, report)
            curves, theta, diverged = outputs
    seconds = {"compile_seconds": compile_seconds, "seconds": time.perf_counter() - clock - compile_seconds}

    diverged_at = np.where(diverged >= 0, axis[diverged], -1)
    if start is not None:
        before = start.diverged_at >= 0
        diverged, diverged_at = np.where(before, 0, diverged), np.where(before, start.diverged_at, diverged_at)
    for i in np.flatnonzero(diverged >= 0):
        curves[i, diverged[i] :] = np.nan
        theta[i] = state.workspaces[i] = np.nan  # so that a continued run stays diverged
    averaged = {"rewards_averaged": isinstance(problem, LinearProblem) and problem.mrp.rewards_averaged}
    identity = _identify(bound, algorithm, n_runs, seed)
    where = {"device": "cpu" if device is None else device.name, "versions": dict(_versions())}
    provenance = identity | began | averaged | seconds | where
    names = tuple(form.name for form in forms)
    return Result(axis, epoch.samples_at(axis), names, curves, theta, diverged_at, provenance, state)


def _identify(bound: BoundProblem, algorithm: Algorithm, n_runs: int, seed: int) -> dict[str, Any]:
    """Return what two calls must have in common, so that one continues the other."""
    identity = {"algorithm": algorithm.settings, "problem": bound.problem.digest, "sampling": bound.sampling}
    return identity | {"seed": seed, "n_runs": n_runs}


def make_form(metric: Any, problem: LinearProblem | Simulator | Transitions) -> QuadraticForm:
    """Return a metric, passed by its name or as a form, for this problem."""
    if isinstance(metric, QuadraticForm):
        d = metric.centre.size
        mismatch = f"metric {metric.name!r} is for {d} features, but the problem has {problem.n_features}."
        require(d == problem.n_features, mismatch, "Build it for this problem.")
        return metric
    name = check_choice("metrics", metric if isinstance(metric, str) else repr(metric), tuple(METRICS))
    return METRICS[name](record_test_rows(problem) if isinstance(problem, Simulator) else problem)


def _fresh_state(source: Source, n_runs: int, words: int, seed: int, theta_0: Floats) -> EngineState:
    workspaces = np.zeros((n_runs, words))
    workspaces[:, : theta_0.size] = theta_0
    cursors = np.zeros((n_runs, source.cursor_size), source.cursor_dtype)
    streams = (make_streams(seed, np.arange(n_runs), purpose) for purpose in (ENVIRONMENT, ALGORITHM))
    return EngineState(workspaces, cursors, *streams)


@cache  # looking them up takes milliseconds
def _versions() -> dict[str, str]:
    from vrtd import __version__

    return {"vrtd": __version__, "python": platform.python_version()} | {
        name: version(name) for name in ("numpy", "scipy", "numba")
    }
