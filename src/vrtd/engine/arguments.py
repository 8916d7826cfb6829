"""The doors of `simulate`: each argument is checked once, and turned into what the engine works with."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrtd.algorithms import Algorithm, Sampling
from vrtd.arrays import check_row_sums, real_array
from vrtd.checks import check_choice, check_count, check_exact_count
from vrtd.errors import AccuracyError, InvalidInputError, StabilityWarning
from vrtd.metrics import METRICS, QuadraticForm
from vrtd.problems import LinearProblem, MarkovRewardProcess, Simulator, Transitions
from vrtd.problems.cone_radius import RADIUS_TOLERANCE
from vrtd.result import EngineState, Result
from vrtd.sources import Source, chain_source, data_set_source, simulator_source

__all__ = [
    "as_form", "bind_problem", "check_arguments", "check_memory", "check_start", "check_state", "checkpoint_axis",
    "choose_sampling", "start_distribution", "warn_if_unstable",
]  # fmt: skip

# Arnoldi's iteration takes hundreds of products of O(d^3): beyond this many features it would be felt.
_MOST_FEATURES_FOR_RADIUS = 64


def check_arguments(
    algorithm: Any, sampling: Any, n_runs: Any, n_gradients: Any, seed: Any, threads: Any, metrics: Any, start: Any
) -> None:
    if not isinstance(algorithm, Algorithm):
        raise InvalidInputError(
            "algorithm must be an Algorithm", repr(algorithm), "pass vrtd.TD(...) or vrtd.VRTD(...)"
        )
    if sampling is not None:
        check_choice("sampling", sampling, ("iid", "markov", "dataset"))
    check_count("n_runs", n_runs)
    check_exact_count("n_gradients", n_gradients)
    check_count("seed", seed, least=0)
    if threads is not None:
        check_count("threads", threads)
    if isinstance(metrics, str) or not isinstance(metrics, Sequence):
        raise InvalidInputError("metrics must be a tuple of names or forms", repr(metrics), "pass e.g. ('neu',)")
    names = [metric.name if isinstance(metric, QuadraticForm) else str(metric) for metric in metrics]
    if len(set(names)) < len(names):
        raise InvalidInputError("metrics must have different names", names, "drop or rename one")
    if start is not None and not isinstance(start, Result):
        raise InvalidInputError("start must be a Result", repr(start), "pass vrtd.load(path) for a file")


def choose_sampling(problem: Any, sampling: Sampling | None) -> Sampling:
    """Return `sampling`, or the default of the problem for None; check that the problem offers it."""
    if not isinstance(problem, LinearProblem | Simulator | Transitions):
        raise InvalidInputError(
            "problem must be a LinearProblem, a Simulator or Transitions",
            repr(problem),
            "build LinearProblem(mrp, phi)" if isinstance(problem, MarkovRewardProcess) else "build one",
        )
    if sampling is None:
        return problem.samplings[0]
    if sampling not in problem.samplings:
        raise InvalidInputError(
            f"sampling of a {type(problem).__name__} must be {' or '.join(map(repr, problem.samplings))}",
            repr(sampling),
            "draw rows first: vrtd.record(problem, n_rows)" if sampling == "dataset" else "drop it, or pass that",
        )
    return sampling


def bind_problem(
    problem: LinearProblem | Simulator | Transitions, sampling: Sampling, initial: Any, specialise: bool = True
) -> Source:
    """Return the source of the problem's transitions."""
    if isinstance(problem, LinearProblem):
        start = start_distribution(problem, sampling, initial)
        return chain_source(problem.mrp, np.array(problem.phi), sampling, start, specialise)
    if not _is_default(initial):
        raise InvalidInputError(f"a {type(problem).__name__} has its own start", f"initial {initial!r}", "drop initial")
    return simulator_source(problem) if isinstance(problem, Simulator) else data_set_source(problem)


def _is_default(initial: Any) -> bool:
    return isinstance(initial, str) and initial == "stationary"


def start_distribution(problem: LinearProblem, sampling: Sampling, initial: Any) -> NDArray[np.float64]:
    """Return the distribution of every state (i.i.d.) or of the first one (Markov)."""
    mrp = problem.mrp
    if sampling == "markov" and not problem.is_stationary:
        raise InvalidInputError(
            "a trajectory visits states as its chain does, so state_distribution must be stationary",
            "a problem with another state_distribution",
            'build LinearProblem(mrp, phi), or use sampling="iid"',
        )
    if isinstance(initial, str):
        check_choice("initial", initial, ("stationary",))
        return problem.state_distribution if sampling == "iid" else mrp.stationary
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
            f"shape {distribution.shape}"
            if distribution.shape != (mrp.n_states,)
            else f"{distribution.min()} among them",
            "pass a state, or non-negative probabilities",
        )
    check_row_sums("initial", distribution.sum(keepdims=True), ("row",))
    distribution /= distribution.sum()
    return distribution


def as_form(metric: Any, problem: LinearProblem | Simulator | Transitions) -> QuadraticForm:
    if isinstance(metric, QuadraticForm):
        n_features = problem.n_features
        if metric.centre.size != n_features:
            raise InvalidInputError(
                f"metric {metric.name!r} must be for {n_features} features", metric.centre.size, "rebuild it for phi"
            )
        return metric
    check_choice("metrics", metric if isinstance(metric, str) else repr(metric), tuple(METRICS))
    if isinstance(problem, Simulator):
        raise InvalidInputError(
            "metrics of a simulator must be QuadraticForms, as its linear system is not known",
            repr(metric),
            "pass vrtd.metrics.QuadraticForm(...), or metrics=()",
        )
    return METRICS[metric](problem)


def check_start(start: Result, identity: dict[str, Any], theta_0: Any, initial: Any) -> None:
    if theta_0 is not None or not _is_default(initial):
        raise InvalidInputError(
            "theta_0 and initial must be left out when start is given", (theta_0, initial), "the start has its own"
        )
    for key, value in identity.items():
        if start.provenance.get(key) != value:
            raise InvalidInputError(
                f"start must come from the same {key}, {value}", start.provenance.get(key), "repeat the first call's"
            )


def check_state(state: EngineState, fresh: EngineState, problem: Any) -> None:
    """A state may come from a file: what does not fit would read and write beyond the tables."""
    for name, ours, expected in zip(state._fields, state, fresh, strict=True):
        if ours.shape != expected.shape or ours.dtype != expected.dtype:
            raise InvalidInputError(
                f"{name} of the start must be {expected.dtype} of shape {expected.shape}",
                f"{ours.dtype} of shape {ours.shape}",
                "repeat the first call, or run it again",
            )
    match problem:
        case LinearProblem():
            name, limit = "n_states", problem.mrp.n_states
        case Transitions():
            name, limit = "n_rows", problem.n_rows
        case _:  # a simulator's cursor is its state, which indexes nothing
            return
    if np.any(state.cursors >= limit):
        raise InvalidInputError(
            f"cursors of the start must be below {name}, {limit}", state.cursors.max(), "run it again"
        )


def warn_if_unstable(problem: LinearProblem, step_size: float) -> None:
    """A radius of the exact operator; of its first applications where the dimension makes that too long."""
    try:
        small = problem.n_features <= _MOST_FEATURES_FOR_RADIUS
        radius = problem.mean_square_radius(step_size) if small else problem.mean_square_growth(step_size)
    except AccuracyError:  # what cannot be told must not stop the work
        return
    if radius > 1 + RADIUS_TOLERANCE:
        warnings.warn(
            f"step_size {step_size:g} must not let the second moment of TD's error grow, with independent samples; "
            f"got a growth of {radius:.4g} an update; lower it, or expect errors without bound",
            StabilityWarning,
            stacklevel=3,
        )


def checkpoint_axis(checkpoints: Any, first: int, last: int) -> NDArray[np.int64]:
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


def check_memory(n_runs: int, checkpoints: Any, n_gradients: int, n_metrics: int, workspace_size: int) -> None:
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
