"""The verb: many independent runs of one algorithm on one problem."""

from __future__ import annotations

import hashlib
import os
import platform
import time
import warnings
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vrtd.algorithms import Algorithm
from vrtd.algorithms.algorithm import Sampling
from vrtd.arrays import check_row_sums, real_array
from vrtd.checks import check_choice, check_count
from vrtd.engine.blocks import Job, prepare, run_blocks
from vrtd.errors import AccuracyError, InvalidInputError, StabilityWarning
from vrtd.kernels.random import ALGORITHM, ENVIRONMENT, make_streams
from vrtd.linear_system import RADIUS_TOLERANCE, LinearSystem
from vrtd.metrics import METRICS, QuadraticForm
from vrtd.problems import MarkovRewardProcess
from vrtd.result import EngineState, Result
from vrtd.sources import Simulator, Source, chain_source, simulator_source

__all__ = ["simulate"]

# The check of mean-square stability costs O(d^3) an iteration: beyond this many features it would be felt.
_MOST_FEATURES_TO_CHECK = 64


def simulate(
    problem: MarkovRewardProcess | Simulator,
    phi: ArrayLike | None,
    algorithm: Algorithm,
    *,
    sampling: Sampling = "markov",
    n_runs: int = 1000,
    n_gradients: int = 100_000,
    seed: int = 0,
    theta_0: ArrayLike | None = None,
    initial: int | ArrayLike = "stationary",
    metrics: Sequence[str | QuadraticForm] = ("squared_error",),
    checkpoints: int | ArrayLike = 200,
    threads: int | None = None,
    start: Result | None = None,
    progress: Callable[[float], None] | None = None,
) -> Result:
    """Run `algorithm` on `problem` with features `phi`, `n_runs` times, for `n_gradients` pseudo-gradients each.

    - `sampling`: "iid" draws from the stationary distribution, "markov" follows one trajectory a run, from `initial`:
      "stationary", a state, or a distribution.
    - `checkpoints`: how many, from 0 to the end of the budget; or an array of pseudo-gradients, to which the end is
      added. A value there is that of the parameter the algorithm would return then.
    - `metrics`: names in `vrtd.metrics.METRICS`, or `QuadraticForm`s of your own.
    - `start`: a result of the same call; `n_gradients` more are added to it, as if it had never stopped.
    - `progress`: called with the share of the work that is done.

    The same seed gives the same bits, whatever the number of threads.

    >>> import vrtd
    >>> mrp, phi = vrtd.problems.random_mdp(seed=0)
    >>> result = vrtd.simulate(mrp, phi, vrtd.VRTD(step_size=0.1, batch_size=50), n_runs=4, n_gradients=10_000)
    >>> result.values("squared_error").shape
    (4, 200)
    """
    _check_arguments(algorithm, sampling, n_runs, n_gradients, seed, threads, metrics, start)
    n_runs, n_gradients = int(n_runs), int(n_gradients)
    system, source, problem_digest = _bind(problem, phi, sampling, initial)
    forms = [_as_form(metric, system, source.n_features) for metric in metrics]
    epoch = algorithm.epoch(sampling)
    if np.ndim(checkpoints) == 0:
        check_count("checkpoints", checkpoints)
    _check_memory(n_runs, checkpoints, n_gradients, len(forms), algorithm.workspace_size(source.n_features))
    identity = {
        "algorithm": algorithm.settings,
        "problem": problem_digest,
        "sampling": sampling,
        "seed": int(seed),
        "n_runs": n_runs,
    }
    if start is None:
        if n_gradients < epoch.n_gradients:
            raise InvalidInputError(
                f"n_gradients must be at least one epoch, which counts {epoch.n_gradients}",
                n_gradients,
                "raise the budget or lower the batch size",
            )
        done = 0
        state = _fresh_state(algorithm, source, n_runs, seed, _check_theta_0(theta_0, source.n_features))
    else:
        _check_start(start, identity, theta_0, initial)
        done = int(start.n_gradients[-1])
        state = start.state.map(np.copy)
        _check_state(state, _fresh_state(algorithm, source, n_runs, seed, np.zeros(source.n_features)), problem)
    if system is not None and source.n_features <= _MOST_FEATURES_TO_CHECK:
        _warn_if_unstable(system, algorithm.largest_step_size)

    axis = _axis(checkpoints, done, done + n_gradients)
    job = Job(
        algorithm, epoch, source, forms,
        epoch_0=-1 if start is None else done // epoch.n_gradients,
        epochs=axis // epoch.n_gradients,
    )  # fmt: skip
    clock = time.perf_counter()
    loop = prepare(job, state)
    prepared = time.perf_counter()
    curves, theta, left = run_blocks(job, loop, state, threads, progress)
    seconds = {"compile_seconds": prepared - clock, "seconds": time.perf_counter() - prepared}

    diverged_at = np.where(left >= 0, axis[left], -1)
    if start is not None:
        gone = start.diverged_at >= 0
        left, diverged_at = np.where(gone, 0, left), np.where(gone, start.diverged_at, diverged_at)
    for run in np.flatnonzero(left >= 0):
        curves[run, left[run] :] = np.nan
        theta[run] = state.workspaces[run] = np.nan  # so that a continued run stays diverged
    provenance = identity | seconds | {"versions": _versions()}
    names = tuple(form.name for form in forms)
    return Result(axis, epoch.samples_at(axis), names, curves, theta, diverged_at, provenance, state)


def _check_arguments(
    algorithm: Any, sampling: Any, n_runs: Any, n_gradients: Any, seed: Any, threads: Any, metrics: Any, start: Any
) -> None:
    if not isinstance(algorithm, Algorithm):
        raise InvalidInputError(
            "algorithm must be an Algorithm", repr(algorithm), "pass vrtd.TD(...) or vrtd.VRTD(...)"
        )
    check_choice("sampling", sampling, ("iid", "markov"))
    check_count("n_runs", n_runs)
    check_count("n_gradients", n_gradients)
    check_count("seed", seed, least=0)
    if threads is not None:
        check_count("threads", threads)
    if n_gradients > 2**53:
        raise InvalidInputError("n_gradients must be at most 2**53", n_gradients, "lower the budget")
    if isinstance(metrics, str) or not isinstance(metrics, Sequence):
        raise InvalidInputError("metrics must be a tuple of names or forms", repr(metrics), "pass e.g. ('neu',)")
    names = [metric.name if isinstance(metric, QuadraticForm) else metric for metric in metrics]
    if len(set(names)) < len(names):
        raise InvalidInputError("metrics must have different names", names, "drop or rename one")
    if start is not None and not isinstance(start, Result):
        raise InvalidInputError("start must be a Result", repr(start), "pass vrtd.load(path) for a file")


def _bind(
    problem: Any, phi: ArrayLike | None, sampling: Sampling, initial: Any
) -> tuple[LinearSystem | None, Source, str]:
    """The exact system where there is one, the source of transitions, and a digest of the problem."""
    if isinstance(problem, Simulator):
        if phi is not None or sampling != "markov" or not _is_default(initial):
            raise InvalidInputError(
                "a simulator brings its own features and start, and gives one trajectory",
                f"phi, initial or sampling={sampling!r} beside it",
                'pass phi=None, sampling="markov" and no initial',
            )
        return None, simulator_source(problem), problem.digest
    if not isinstance(problem, MarkovRewardProcess):
        raise InvalidInputError(
            "problem must be a MarkovRewardProcess or a Simulator", repr(problem), "build one from P, R and gamma"
        )
    if phi is None:
        raise InvalidInputError("a chain needs features phi", None, "pass an (S, d) array")
    system = LinearSystem(problem, phi)
    source = chain_source(problem, np.array(system.phi), sampling, _start_distribution(problem, sampling, initial))
    return system, source, hashlib.sha256(problem.digest.encode() + system.phi.tobytes()).hexdigest()


def _is_default(initial: Any) -> bool:
    return isinstance(initial, str) and initial == "stationary"


def _start_distribution(mrp: MarkovRewardProcess, sampling: Sampling, initial: Any) -> NDArray[np.float64]:
    if isinstance(initial, str):
        check_choice("initial", initial, ("stationary",))
        return mrp.stationary
    if sampling == "iid":
        raise InvalidInputError(
            'initial must be "stationary" when samples are independent', initial, 'drop it, or use sampling="markov"'
        )
    if np.ndim(initial) == 0:
        check_count("initial", initial, least=0)
        if initial >= mrp.n_states:
            raise InvalidInputError(
                f"initial must be a state in 0 .. {mrp.n_states - 1}", initial, "states are counted from 0"
            )
        return np.eye(1, mrp.n_states, int(initial)).ravel()
    distribution = real_array("initial", initial)
    if distribution.shape != (mrp.n_states,) or np.any(distribution < 0):
        raise InvalidInputError(
            f"initial must be {mrp.n_states} probabilities, one a state",
            f"shape {distribution.shape}, least {distribution.min()}",
            "pass a state, or non-negative probabilities",
        )
    check_row_sums("initial", distribution.sum(keepdims=True), ("row",))
    distribution /= distribution.sum()
    return distribution


def _as_form(metric: Any, system: LinearSystem | None, n_features: int) -> QuadraticForm:
    if isinstance(metric, QuadraticForm):
        if metric.centre.size != n_features:
            raise InvalidInputError(
                f"metric {metric.name!r} must be for {n_features} features", metric.centre.size, "rebuild it for phi"
            )
        return metric
    check_choice("metrics", metric, tuple(METRICS))
    if system is None:
        raise InvalidInputError(
            "metrics of a simulator must be QuadraticForms, as its linear system is not known",
            repr(metric),
            "pass vrtd.metrics.QuadraticForm(...), or metrics=()",
        )
    return METRICS[metric](system)


def _check_theta_0(theta_0: ArrayLike | None, n_features: int) -> NDArray[np.float64]:
    if theta_0 is None:
        return np.zeros(n_features)
    theta = real_array("theta_0", theta_0)
    if theta.shape != (n_features,):
        raise InvalidInputError(
            f"theta_0 must have the shape ({n_features},)", theta.shape, "match it to the columns of phi"
        )
    return theta


def _fresh_state(
    algorithm: Algorithm, source: Source, n_runs: int, seed: int, theta_0: NDArray[np.float64]
) -> EngineState:
    runs = np.arange(n_runs)
    workspaces = np.zeros((n_runs, algorithm.workspace_size(source.n_features)))
    workspaces[:, : theta_0.size] = theta_0
    return EngineState(
        workspaces,
        np.zeros((n_runs, source.cursor_size), source.cursor_dtype),
        make_streams(seed, runs, ENVIRONMENT),
        make_streams(seed, runs, ALGORITHM),
    )


def _check_start(start: Result, identity: dict[str, Any], theta_0: Any, initial: Any) -> None:
    if theta_0 is not None or not _is_default(initial):
        raise InvalidInputError(
            "theta_0 and initial must be left out when start is given", (theta_0, initial), "the start has its own"
        )
    for key, value in identity.items():
        if start.provenance.get(key) != value:
            raise InvalidInputError(
                f"start must come from the same {key}, {value}", start.provenance.get(key), "repeat the first call's"
            )


def _check_state(state: EngineState, fresh: EngineState, problem: Any) -> None:
    """A state may come from a file: what does not fit would read and write beyond the tables."""
    for name, ours, expected in zip(state._fields, state, fresh, strict=True):
        if ours.shape != expected.shape or ours.dtype != expected.dtype:
            raise InvalidInputError(
                f"{name} of the start must be {expected.dtype} of shape {expected.shape}",
                f"{ours.dtype} of shape {ours.shape}",
                "repeat the first call, or run it again",
            )
    if isinstance(problem, MarkovRewardProcess) and np.any(state.cursors >= problem.n_states):
        raise InvalidInputError(
            f"cursors of the start must be states below {problem.n_states}", state.cursors.max(), "run it again"
        )


def _warn_if_unstable(system: LinearSystem, step_size: float) -> None:
    try:
        radius = system.mean_square_radius(step_size)
    except AccuracyError:  # what cannot be told must not stop the work
        return
    if radius > 1 + RADIUS_TOLERANCE:
        warnings.warn(
            f"step_size {step_size:g} must not let the second moment of TD's error grow, with independent samples; "
            f"got a growth of {radius:.4g} an update; lower it, or expect errors without bound",
            StabilityWarning,
            stacklevel=3,
        )


def _axis(checkpoints: Any, first: int, last: int) -> NDArray[np.int64]:
    if np.ndim(checkpoints) == 0:
        count = min(int(checkpoints), last - first + 1)
        return np.unique(np.linspace(first if count > 1 else last, last, count).round().astype(np.int64))
    axis = np.asarray(checkpoints)
    if axis.ndim != 1 or axis.dtype.kind not in "iu" or np.any(axis < first) or np.any(axis > last):
        raise InvalidInputError(
            f"checkpoints must be whole numbers of pseudo-gradients in {first} .. {last}",
            axis,
            "drop those outside the budget",
        )
    return np.union1d(axis.astype(np.int64), [last])


def _check_memory(n_runs: int, checkpoints: Any, n_gradients: int, n_metrics: int, workspace_size: int) -> None:
    """Refuse what cannot fit: the system would hand the memory out and end the process when it is used."""
    n_checkpoints = np.size(checkpoints) if np.ndim(checkpoints) else min(int(checkpoints), n_gradients + 1)
    needed = 8 * n_runs * (n_checkpoints * n_metrics + 2 * workspace_size + 8)
    try:
        physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not on this system
        return
    if needed > physical / 2:
        raise InvalidInputError(
            f"curves and states of all runs must fit in half of the memory, {physical / 2**31:.1f} GiB",
            f"{n_runs} runs x {n_checkpoints} checkpoints x {n_metrics} metrics, {needed / 2**30:.3g} GiB",
            "record fewer checkpoints, or split the runs by seed",
        )


def _versions() -> dict[str, str]:
    from vrtd import __version__

    return {"vrtd": __version__, "python": platform.python_version()} | {
        name: version(name) for name in ("numpy", "scipy", "numba")
    }
