"""The doors of `simulate`: each argument is checked once, and turned into what the engine works with."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vrtd.algorithms import Algorithm, Sampling, check_sampling
from vrtd.arrays import check_row_sums, real_array
from vrtd.checks import check_choice, check_count, check_exact_count
from vrtd.cone_radius import RADIUS_TOLERANCE
from vrtd.errors import AccuracyError, InvalidInputError, StabilityWarning
from vrtd.linear_system import LinearSystem
from vrtd.metrics import METRICS, QuadraticForm
from vrtd.problems import DataSet, MarkovRewardProcess
from vrtd.result import EngineState, Result
from vrtd.sources import Simulator, Source, chain_source, data_set_source, simulator_source

__all__ = [
    "as_form", "bind_problem", "check_arguments", "check_memory", "check_start", "check_state", "check_theta_0",
    "checkpoint_axis", "start_distribution", "warn_if_unstable",
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
    check_choice("sampling", sampling, ("iid", "markov", "dataset"))
    check_sampling(algorithm, sampling)
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


def bind_problem(
    problem: Any, phi: ArrayLike | None, sampling: Sampling, initial: Any, specialise: bool = True
) -> tuple[LinearSystem | DataSet | None, Source, str]:
    """The exact system where there is one, the source of transitions, and a digest of the problem."""
    if isinstance(problem, Simulator):
        if phi is not None or sampling != "markov" or not _is_default(initial):
            raise InvalidInputError(
                "a simulator brings its own features and start, and gives one trajectory",
                f"phi, initial or sampling={sampling!r} beside it",
                'pass phi=None, sampling="markov" and no initial',
            )
        return None, simulator_source(problem), problem.digest
    if isinstance(problem, DataSet):
        if phi is not None or sampling != "dataset" or not _is_default(initial):
            raise InvalidInputError(
                "a data set brings its own features and rows",
                f"phi, initial or sampling={sampling!r} beside it",
                'pass phi=None, sampling="dataset" and no initial',
            )
        return problem, data_set_source(problem), problem.digest
    if not isinstance(problem, MarkovRewardProcess):
        raise InvalidInputError(
            "problem must be a MarkovRewardProcess, a Simulator or a DataSet",
            repr(problem),
            "build one from P, R and gamma",
        )
    if sampling == "dataset":
        raise InvalidInputError(
            'sampling="dataset" must come with a DataSet', repr(problem), "draw one: vrtd.record(mrp, phi, n_rows)"
        )
    if phi is None:
        raise InvalidInputError("a chain needs features phi", None, "pass an (S, d) array")
    system = LinearSystem(problem, phi)
    start = start_distribution(problem, sampling, initial)
    source = chain_source(problem, np.array(system.phi), sampling, start, specialise)
    return system, source, hashlib.sha256(problem.digest.encode() + system.phi.tobytes()).hexdigest()


def _is_default(initial: Any) -> bool:
    return isinstance(initial, str) and initial == "stationary"


def start_distribution(mrp: MarkovRewardProcess, sampling: Sampling, initial: Any) -> NDArray[np.float64]:
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
            f"shape {distribution.shape}"
            if distribution.shape != (mrp.n_states,)
            else f"{distribution.min()} among them",
            "pass a state, or non-negative probabilities",
        )
    check_row_sums("initial", distribution.sum(keepdims=True), ("row",))
    distribution /= distribution.sum()
    return distribution


def as_form(metric: Any, system: LinearSystem | DataSet | None, n_features: int) -> QuadraticForm:
    if isinstance(metric, QuadraticForm):
        if metric.centre.size != n_features:
            raise InvalidInputError(
                f"metric {metric.name!r} must be for {n_features} features", metric.centre.size, "rebuild it for phi"
            )
        return metric
    check_choice("metrics", metric if isinstance(metric, str) else repr(metric), tuple(METRICS))
    if system is None:
        raise InvalidInputError(
            "metrics of a simulator must be QuadraticForms, as its linear system is not known",
            repr(metric),
            "pass vrtd.metrics.QuadraticForm(...), or metrics=()",
        )
    return METRICS[metric](system)


def check_theta_0(theta_0: ArrayLike | None, n_features: int) -> NDArray[np.float64]:
    if theta_0 is None:
        return np.zeros(n_features)
    theta = real_array("theta_0", theta_0)
    if theta.shape != (n_features,):
        raise InvalidInputError(
            f"theta_0 must have the shape ({n_features},)", theta.shape, "match it to the columns of phi"
        )
    return theta


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
    limit = {MarkovRewardProcess: "n_states", DataSet: "n_rows"}.get(type(problem))
    if limit is not None and np.any(state.cursors >= getattr(problem, limit)):
        raise InvalidInputError(
            f"cursors of the start must be below {limit}, {getattr(problem, limit)}",
            state.cursors.max(),
            "run it again",
        )


def warn_if_unstable(system: LinearSystem, step_size: float) -> None:
    """A radius of the exact operator; of its first applications where the dimension makes that too long."""
    try:
        small = system.n_features <= _MOST_FEATURES_FOR_RADIUS
        radius = system.mean_square_radius(step_size) if small else system.mean_square_growth(step_size)
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
