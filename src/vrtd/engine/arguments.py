"""The arguments of `simulate`: each is checked once, and turned into what the engine works with."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrtd.algorithms import Algorithm, Sampling
from vrtd.arrays import Floats, check_probabilities
from vrtd.checks import check_choice, check_count, check_exact_count, require
from vrtd.errors import AccuracyError, InvalidInputError, StabilityWarning
from vrtd.metrics import QuadraticForm
from vrtd.problems import LinearProblem, MarkovRewardProcess, Simulator, Transitions
from vrtd.problems.cone_radius import RADIUS_TOLERANCE
from vrtd.result import EngineState, Result
from vrtd.sources import Source, chain_source, data_set_source, simulator_source

# Arnoldi's iteration takes hundreds of products of O(d^3): beyond this many features it would be felt.
_MOST_FEATURES_FOR_RADIUS = 64


def check_arguments(
    algorithm: Any, sampling: Any, n_runs: Any, n_gradients: Any, seed: Any, threads: Any, metrics: Any, start: Any
) -> None:
    is_algorithm, do = isinstance(algorithm, Algorithm), "pass vrtd.TD(...) or vrtd.VRTD(...)"
    require(is_algorithm, "algorithm must be an Algorithm", repr(algorithm), do)
    if sampling is not None:
        check_choice("sampling", sampling, ("iid", "markov", "dataset"))
    check_count("n_runs", n_runs)
    check_exact_count("n_gradients", n_gradients)
    check_count("seed", seed, least=0)
    if threads is not None:
        check_count("threads", threads)
    if isinstance(metrics, str) or not isinstance(metrics, Sequence):  # forms are slow to print
        raise InvalidInputError("metrics must be a tuple of names or forms", repr(metrics), "pass e.g. ('neu',)")
    names = [metric.name if isinstance(metric, QuadraticForm) else str(metric) for metric in metrics]
    require(len(set(names)) == len(names), "metrics must have different names", names, "drop or rename one")
    if not isinstance(start, Result | None):
        raise InvalidInputError("start must be a Result", repr(start), "pass vrtd.load(path) for a file")


def choose_sampling(problem: Any, sampling: Sampling | None) -> Sampling:
    """Return `sampling`, or the default of the problem for None; check that the problem offers it."""
    must = "problem must be a LinearProblem, a Simulator or Transitions"
    do = "build LinearProblem(mrp, phi)" if isinstance(problem, MarkovRewardProcess) else "build one"
    require(isinstance(problem, LinearProblem | Simulator | Transitions), must, repr(problem), do)
    if sampling is None:
        return problem.samplings[0]  # type: ignore[no-any-return]
    must = f"sampling of a {type(problem).__name__} must be {' or '.join(map(repr, problem.samplings))}"
    do = "draw rows first: vrtd.record(problem, n_rows)" if sampling == "dataset" else "drop it, or pass that"
    require(sampling in problem.samplings, must, repr(sampling), do)
    return sampling


def bind_problem(
    problem: LinearProblem | Simulator | Transitions, sampling: Sampling, initial: Any, specialise: bool = True
) -> Source:
    """Return the source of the problem's transitions."""
    if isinstance(problem, LinearProblem):
        start = start_distribution(problem, sampling, initial)
        return chain_source(problem.mrp, np.array(problem.phi), sampling, start, specialise)
    must = f"a {type(problem).__name__} has its own start"
    require(_is_default(initial), must, f"initial {initial!r}", "drop initial")
    return simulator_source(problem) if isinstance(problem, Simulator) else data_set_source(problem)


def _is_default(initial: Any) -> bool:
    return isinstance(initial, str) and initial == "stationary"


def start_distribution(problem: LinearProblem, sampling: Sampling, initial: Any) -> Floats:
    """Return the distribution of every state (i.i.d.) or of the first one (Markov)."""
    n = problem.mrp.n_states
    must = "a trajectory visits states as its chain does, so state_distribution must be stationary"
    got, do = "a problem with another state_distribution", 'build LinearProblem(mrp, phi), or use sampling="iid"'
    require(sampling != "markov" or problem.is_stationary, must, got, do)
    if isinstance(initial, str):
        check_choice("initial", initial, ("stationary",))
        return problem.state_distribution if sampling == "iid" else problem.mrp.stationary
    must, do = "initial must be left out when samples are independent", 'drop it, or use sampling="markov"'
    require(sampling == "markov", must, initial, do)
    if np.ndim(initial) == 0:
        state = check_count("initial", initial, least=0)
        require(state < n, f"initial must be a state in 0 .. {n - 1}", initial, "states are counted from 0")
        return np.eye(1, n, state).ravel()
    return check_probabilities("initial", initial, (n,), ("state",))


def check_start(start: Result, identity: dict[str, Any], theta_0: Any, initial: Any) -> None:
    must = "theta_0 and initial must be left out when start is given"
    require(theta_0 is None and _is_default(initial), must, (theta_0, initial), "the start has its own")
    for key, value in identity.items():
        before = start.provenance.get(key)
        require(before == value, f"start must come from the same {key}, {value}", before, "repeat the first call's")


def check_state(state: EngineState, fresh: EngineState, problem: Any) -> None:
    """A state may come from a file: what does not fit would read and write beyond the tables."""
    for name, ours, expected in zip(state._fields, state, fresh, strict=True):
        must = f"{name} of the start must be {expected.dtype} of shape {expected.shape}"
        same, got = (ours.dtype, ours.shape) == (expected.dtype, expected.shape), f"{ours.dtype} of shape {ours.shape}"
        require(same, must, got, "repeat the first call, or run it again")
    if isinstance(problem, Simulator):  # its cursor is its state, which indexes nothing
        return
    is_chain = isinstance(problem, LinearProblem)
    name, limit = ("n_states", problem.mrp.n_states) if is_chain else ("n_rows", problem.n_rows)
    largest = state.cursors.max()
    require(largest < limit, f"cursors of the start must be below {name}, {limit}", largest, "run it again")


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
    holds = axis.ndim == 1 and axis.dtype.kind in "iu" and bool(np.all((first <= axis) & (axis <= last)))
    must = f"checkpoints must be whole numbers of pseudo-gradients in {first} .. {last}"
    require(holds, must, axis, "drop those outside the budget")
    return np.union1d(axis.astype(np.int64), [last])


def check_memory(n_runs: int, checkpoints: Any, n_gradients: int, n_metrics: int, workspace_size: int) -> None:
    """Refuse what cannot fit: the system would hand the memory out and end the process when it is used."""
    n_checkpoints = np.size(checkpoints) if np.ndim(checkpoints) else min(int(checkpoints), n_gradients + 1)
    needed = 8 * n_runs * (n_checkpoints * n_metrics + 2 * workspace_size + 8)
    try:
        physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not on this system
        return
    must = f"curves and states of all runs must fit in half of the memory, {physical / 2**31:.1f} GiB"
    got = f"{n_runs} runs x {n_checkpoints} checkpoints x {n_metrics} metrics, {needed / 2**30:.3g} GiB"
    require(needed <= physical / 2, must, got, "record fewer checkpoints, or split the runs by seed")
