"""Checks of the arguments of ``simulate``, and their conversion to what the engine works with."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrtd.algorithms import Algorithm, Epoch, Sampling
from vrtd.arrays import Floats, check_probabilities
from vrtd.checks import check_choice, check_count, check_exact_count, check_fits, require
from vrtd.errors import AccuracyError, InvalidInputError, StabilityWarning
from vrtd.metrics import QuadraticForm
from vrtd.problems import LinearProblem, MarkovRewardProcess, Simulator, Transitions
from vrtd.problems.cone_radius import RADIUS_TOLERANCE
from vrtd.result import EngineState, Result
from vrtd.sources import Source, chain_source, data_set_source, simulator_source

# Arnoldi's iteration takes hundreds of products of O(d^3), which would be noticeable beyond this number of features.
_MOST_FEATURES_FOR_RADIUS = 64


def check_arguments(
    algorithm: Any, sampling: Any, n_runs: Any, n_gradients: Any, seed: Any, metrics: Any, start: Any
) -> None:
    """Check the arguments whose validity does not depend on the problem."""
    remedy = "Pass an instance such as vrtd.TD(0.1) or vrtd.VRTD(0.1, 500)."
    require(isinstance(algorithm, Algorithm), f"algorithm must be an Algorithm, but got {algorithm!r}.", remedy)
    if sampling is not None:
        check_choice("sampling", sampling, ("iid", "markov", "dataset"))
    check_count("n_runs", n_runs)
    check_exact_count("n_gradients", n_gradients)
    check_count("seed", seed, least=0)
    if isinstance(metrics, str) or not isinstance(metrics, Sequence):  # forms are slow to print
        problem = f"metrics must be a tuple of names or forms, but got {metrics!r}."
        raise InvalidInputError(problem, "Pass a tuple such as ('neu',).")
    names = [metric.name if isinstance(metric, QuadraticForm) else str(metric) for metric in metrics]
    problem = f"metrics must have different names, but got {names}."
    require(len(set(names)) == len(names), problem, "Drop or rename one.")
    if not isinstance(start, Result | None):
        raise InvalidInputError(f"start must be a Result, but got {start!r}.", "Load a file with vrtd.load(path).")


def choose_sampling(problem: Any, sampling: Sampling | None) -> Sampling:
    """Return ``sampling``, or the default of the problem for None. Raise if the problem does not offer it."""
    wrong_type = f"problem must be a LinearProblem, a Simulator or Transitions, but got {problem!r}."
    remedy = "Build LinearProblem(mrp, phi)." if isinstance(problem, MarkovRewardProcess) else "Build one of these."
    require(isinstance(problem, LinearProblem | Simulator | Transitions), wrong_type, remedy)
    if sampling is None:
        return problem.samplings[0]  # type: ignore[no-any-return]
    choices, kind = " or ".join(map(repr, problem.samplings)), type(problem).__name__
    remedy = (
        "Draw rows first: vrtd.record(problem, n_rows)."
        if sampling == "dataset"
        else f"Drop sampling, or pass {choices}."
    )
    require(sampling in problem.samplings, f"sampling of a {kind} must be {choices}, but got {sampling!r}.", remedy)
    return sampling


def bind_problem(
    problem: LinearProblem | Simulator | Transitions, sampling: Sampling, initial: Any, specialise: bool = True
) -> Source:
    """Return the source of the transitions of a problem."""
    if isinstance(problem, LinearProblem):
        start = start_distribution(problem, sampling, initial)
        return chain_source(problem.mrp, np.array(problem.phi), sampling, start, specialise)
    has_own_start = f"initial has no effect on a {type(problem).__name__}, but got {initial!r}."
    require(_is_default(initial), has_own_start, "Drop initial.")
    return simulator_source(problem) if isinstance(problem, Simulator) else data_set_source(problem)


def _is_default(initial: Any) -> bool:
    return isinstance(initial, str) and initial == "stationary"


def start_distribution(problem: LinearProblem, sampling: Sampling, initial: Any) -> Floats:
    """Return the distribution of every state (i.i.d.) or of the first one (Markov)."""
    n = problem.mrp.n_states
    mismatch = "state_distribution must be stationary for a trajectory, but this problem has a different one."
    remedy = 'Build LinearProblem(mrp, phi), or use sampling="iid".'
    require(sampling != "markov" or problem.is_stationary, mismatch, remedy)
    if isinstance(initial, str):
        check_choice("initial", initial, ("stationary",))
        return problem.state_distribution if sampling == "iid" else problem.mrp.stationary
    has_no_effect = f"initial has no effect on independent samples, but got {initial}."
    require(sampling == "markov", has_no_effect, 'Drop initial, or use sampling="markov".')
    if np.ndim(initial) == 0:
        state = check_count("initial", initial, least=0)
        too_large = f"initial must be a state in 0 .. {n - 1}, but got {initial}."
        require(state < n, too_large, "Count states from 0.")
        return np.eye(1, n, state).ravel()
    return check_probabilities("initial", initial, (n,), ("state",))


def check_budget(epoch: Epoch, n_gradients: int) -> None:
    """Raise unless a run can close an epoch."""
    least = epoch.least_gradients
    too_short = f"n_gradients must be at least {least}, the length of one epoch, but got {n_gradients}."
    require(n_gradients >= least, too_short, "Increase the budget, or make epochs shorter.")


def check_start(start: Result, identity: dict[str, Any], theta_0: Any, initial: Any) -> None:
    """Raise unless the result to continue comes from a call with the same arguments."""
    problem = f"theta_0 and initial are already part of start, but got {theta_0} and {initial}."
    require(theta_0 is None and _is_default(initial), problem, "Drop them.")
    for key, value in identity.items():
        before = start.provenance.get(key)
        problem = f"start must come from the same {key}, {value}, but got {before}."
        require(before == value, problem, "Repeat the arguments of the first call.")


def check_state(state: EngineState, fresh: EngineState, problem: Any) -> None:
    """Raise unless the state fits. It may come from a file, and a wrong one would read and write beyond the tables."""
    for name, ours, expected in zip(state._fields, state, fresh, strict=True):
        same, kind = (ours.dtype, ours.shape) == (expected.dtype, expected.shape), f"{ours.dtype} of shape {ours.shape}"
        mismatch = f"{name} of the start must be {expected.dtype} of shape {expected.shape}, but got {kind}."
        require(same, mismatch, "Repeat the arguments of the first call, or run it again.")
    if isinstance(problem, Simulator):  # its cursor is a state, not an index
        return
    is_chain = isinstance(problem, LinearProblem)
    name, limit = ("n_states", problem.mrp.n_states) if is_chain else ("n_rows", problem.n_rows)
    largest = state.cursors.max()
    too_large = f"cursors of the start must be below {name}={limit}, but got {largest}."
    require(largest < limit, too_large, "Run the simulation again.")


def warn_if_unstable(problem: LinearProblem, step_size: float) -> None:
    """Warn if the mean squared error of TD grows.

    The growth is the spectral radius of the exact operator, or an estimate from a few applications if d is large.
    """
    try:
        small = problem.n_features <= _MOST_FEATURES_FOR_RADIUS
        radius = problem.mean_square_radius(step_size) if small else problem.mean_square_growth(step_size)
    except AccuracyError:  # an unknown limit must not stop the simulation
        return
    if radius > 1 + RADIUS_TOLERANCE:
        warnings.warn(
            f"step_size {step_size:g} is unstable: with independent samples, the mean squared error of TD grows by a "
            f"factor of {radius:.4g} per update. Use a smaller step size.",
            StabilityWarning,
            stacklevel=3,
        )


def checkpoint_axis(checkpoints: Any, first: int, last: int) -> NDArray[np.int64]:
    """Return the numbers of pseudo-gradients at which metrics are recorded."""
    if np.ndim(checkpoints) == 0:
        count = min(int(checkpoints), last - first + 1)
        return np.unique(np.linspace(first if count > 1 else last, last, count).round().astype(np.int64))
    axis = np.asarray(checkpoints)
    holds = axis.ndim == 1 and axis.dtype.kind in "iu" and bool(np.all((first <= axis) & (axis <= last)))
    problem = f"checkpoints must be whole numbers of pseudo-gradients in {first} .. {last}, but got {axis}."
    require(holds, problem, "Drop those outside the budget.")
    return np.union1d(axis.astype(np.int64), [last])


def check_memory(n_runs: int, checkpoints: Any, n_gradients: int, n_metrics: int, workspace_size: int) -> None:
    """Raise if the memory does not suffice."""
    n_checkpoints = np.size(checkpoints) if np.ndim(checkpoints) else min(int(checkpoints), n_gradients + 1)
    needed = 8 * n_runs * (n_checkpoints * n_metrics + 2 * workspace_size + 8)
    size = f"{n_runs} runs x {n_checkpoints} checkpoints x {n_metrics} metrics"
    check_fits(f"The curves and states of {size}", needed, "Record fewer checkpoints, or split the runs by seed.")
