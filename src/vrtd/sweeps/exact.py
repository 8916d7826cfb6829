"""Exact errors beside simulated ones: where they are known, and only where they cost less than the simulation."""

from __future__ import annotations

from typing import Any

import numpy as np

from vrtd.algorithms import TD, VRTD, Algorithm, Constant, RichardsonTD, as_schedule
from vrtd.arrays import Floats
from vrtd.engine.simulation import BoundProblem
from vrtd.errors import AccuracyError, InvalidInputError, UnstableStepError
from vrtd.metrics import QuadraticForm
from vrtd.problems import LinearProblem
from vrtd.sweeps.design import Design
from vrtd.theory import exact_curve, stationary_second_moment

#: What the column "method" says about the columns "exact" and "floor".
METHODS = ("", "exact", "approximation", "rough approximation", "skipped")
_NONE, _EXACT, _APPROXIMATION, _ROUGH, _SKIPPED = range(len(METHODS))

# Seconds, measured with benchmarks/sweep.py and rounded up. They decide what is computed, so that the decision, and
# with it the table, does not depend on the machine.
_PER_CALL = 2e-3
# Per cubed number of moments: TD needs few products of matrices, VRTD several for each digit of its batch size.
_PER_PRODUCT_TD, _PER_PRODUCT_VRTD = 2e-8, 1.4e-7
_PER_STATE = 5e-5  # TD on a trajectory in the long run, per state and moment
_PER_UPDATE = 1e-8  # TD on a trajectory, per update, state and moment
_PER_GRADIENT = 2e-9  # of the simulation, per run and up to 4 features
_LARGEST_SHARE = 0.125  # of the simulation of a cell, for the curve and for the floor
_LIMIT_SHARE = 8.0  # of the above, for what is computed once per problem


def expect(design: Design, bound: BoundProblem, name: str, algorithm: Algorithm) -> tuple[Floats, Floats, int]:
    """Return the expected error per metric and checkpoint, the error in the long run per metric, and the method.

    Parameters
    ----------
    design : Design
        Design of the sweep.
    bound : BoundProblem
        Problem of the cell.
    name : str
        Its name.
    algorithm : Algorithm
        Algorithm of the cell.
    """
    curve = np.full((len(bound.forms), len(design.checkpoints)), np.nan)
    floor = np.full(len(bound.forms), np.nan)
    problem, sampling = bound.problem, bound.sampling
    if design.exact is False or not isinstance(problem, LinearProblem) or not _has_curve(algorithm, sampling):
        return curve, floor, _NONE
    has_floor = _has_floor(algorithm)
    # Of algorithms without a constant floor, the time is not predicted.
    needs = _predict_seconds(problem, algorithm, bound, design.n_gradients) if has_floor else (np.inf, np.inf)
    affordable = _LARGEST_SHARE * _PER_GRADIENT * design.n_runs * design.n_gradients * max(problem.n_features / 4, 1.0)
    does_curve, does_floor = (design.exact is True or seconds <= affordable for seconds in needs)
    if not does_curve and not does_floor:
        return curve, floor, _SKIPPED
    batch_size = algorithm.batch_size if isinstance(algorithm, VRTD) else 1
    is_approximate = sampling == "markov" and (batch_size > 1 or not has_floor) and isinstance(algorithm, VRTD)
    if does_curve:
        try:
            expected = exact_curve(
                problem,
                algorithm,
                sampling=sampling,  # type: ignore[arg-type]
                n_gradients=design.n_gradients,
                theta_0=design.theta_0[name],
                initial=bound.initial,
                metrics=bound.forms,
                checkpoints=design.checkpoints,
                method="approximate" if is_approximate else "exact",
            )
        except (InvalidInputError, AccuracyError):  # as for VRTD from a certain state, or with too many features
            return curve, floor, _NONE
        curve[:] = expected.curves[0].T
    if does_floor and has_floor:
        floor[:] = [_floor(problem, algorithm, batch_size, sampling, form) for form in bound.forms]
    if np.isnan(curve).all() and np.isnan(floor).all():
        return curve, floor, _NONE
    if not is_approximate:
        return curve, floor, _EXACT
    known = design.exact is True or _predict_limit_seconds(problem) <= _LIMIT_SHARE * affordable
    is_trusted = known and float(algorithm.largest_step_size or 0.0) <= design.approximation_limit(name)
    return curve, floor, _APPROXIMATION if is_trusted else _ROUGH


def _has_curve(algorithm: Algorithm, sampling: str) -> bool:
    """Return whether `exact_curve` knows the expected error: of methods without a projection."""
    match algorithm:
        case TD(_, None):
            return True
        case RichardsonTD():
            return True
        case VRTD(_, _, None, _, inner):
            return inner in (None, "fresh" if sampling == "iid" else "resample")
    return False


def _has_floor(algorithm: Algorithm) -> bool:
    """Return whether the error in the long run is known: for TD and VRTD with a constant step and fixed batches."""
    match algorithm:
        case TD(step_size, None, False):
            return isinstance(as_schedule(step_size), Constant)
        case VRTD(_, batch_size, None, _, _, None, n_steps):
            return n_steps in (None, batch_size)
    return False


def _predict_seconds(
    problem: LinearProblem, algorithm: Any, bound: BoundProblem, n_gradients: int
) -> tuple[float, float]:
    """Return upper estimates of the time for the curve and for the floor."""
    d = problem.n_features
    n_moments = (d + 1) * (d + 2) // 2
    by_epoch = _PER_CALL + (_PER_PRODUCT_VRTD if isinstance(algorithm, VRTD) else _PER_PRODUCT_TD) * n_moments**3
    if bound.sampling == "iid" or (isinstance(algorithm, VRTD) and algorithm.batch_size > 1):
        return by_epoch, by_epoch
    numbers = problem.mrp.n_states * n_moments
    return _PER_CALL + _PER_UPDATE * numbers * n_gradients, by_epoch + _PER_STATE * numbers


def _predict_limit_seconds(problem: LinearProblem) -> float:
    """Return an upper estimate of the time for the limit of the approximation, which each worker computes once."""
    n_moments = (problem.n_features + 1) * (problem.n_features + 2) // 2
    return _PER_CALL + _PER_PRODUCT_TD * n_moments**3 + _PER_STATE * problem.mrp.n_states * n_moments


def _floor(problem: LinearProblem, algorithm: Any, batch_size: int, sampling: Any, form: QuadraticForm) -> float:
    """Return the limit of the expected metric, infinite for an unstable step; NaN if it is not known."""
    if not np.array_equal(form.centre, problem.theta_star):  # the bias would be needed too
        return np.nan
    step = float(algorithm.largest_step_size)
    output = algorithm.returned if isinstance(algorithm, VRTD) else "random"
    try:
        moment = stationary_second_moment(problem, step, batch_size, output, sampling=sampling, method="approximate")
    except UnstableStepError:
        return np.inf
    except (InvalidInputError, AccuracyError):  # too large
        return np.nan
    return float(np.sum(form.matrix * moment)) + float(form.offset)
