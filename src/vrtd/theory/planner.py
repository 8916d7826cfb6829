"""The planner: which step size, batch size and number of epochs reach a target, or are best within a budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike

from vrtd.algorithms import TD, VRTD, ChainSampling
from vrtd.arrays import Floats, check_theta, frozen
from vrtd.checks import check_choice, check_count, check_radius
from vrtd.engine import simulate
from vrtd.errors import InvalidInputError
from vrtd.problems import LinearProblem, Transitions
from vrtd.theory.checks import check_search
from vrtd.theory.estimation import bootstrap_increments, check_confidence, estimate_increments
from vrtd.theory.moments import Output
from vrtd.theory.plan_arguments import check_goal, check_mode
from vrtd.theory.plans import Check, Choice, Mode, Objective, Plan
from vrtd.theory.predictions import (
    Predictions,
    capped,
    estimated_predictions,
    exact_predictions,
    guaranteed_predictions,
    moment_predictions,
)
from vrtd.theory.sample_noise import check_full_rank
from vrtd.theory.search import (
    MOST_COST,
    Errors,
    Found,
    least_cost_td,
    least_cost_vrtd,
    least_error_td,
    least_error_vrtd,
)

_POINTS = 120  # of a predicted curve
_REPLICATES = 200  # of the bootstrap
_LEAST_BATCH = 2  # of VRTD: a batch of one is TD
# The check of an approximation by simulation: about a second of work, four times the runs while it is undecided.
_CHECK_GRADIENTS, _CHECK_RUNS, _MORE_RUNS, _MOST_CHECK_GRADIENTS = 1e8, (200, 4000), 4, 5e8
_UNCHECKED_GRADIENTS = 4e9  # beyond this the least number of runs would take too long
# By how much the simulated error, with so many standard errors on top, may exceed the target.
_CHECK_TOLERANCE, _CHECK_Z = 0.03, 2.0
# A plan that misses by at most this factor is mended by a lower aim, else by smaller steps or larger batches.
_NEAR_MISS = 1.25
_MOST_CHECKS = 16


def plan(
    problem: LinearProblem | Transitions,
    *,
    target_error: float | None = None,
    budget: int | None = None,
    sampling: ChainSampling = "markov",
    objective: Objective = "gradients",
    mode: Mode | None = None,
    theta_0: ArrayLike | None = None,
    radius: float | None = None,
    output: Output = "random",
    confidence: float = 0.95,
    seed: int = 0,
) -> Plan:
    """The settings that reach E|theta - theta_star|^2 <= `target_error` at the least cost, or the least error within
    a `budget`, for TD and for VRTD, and which of the two to use.

    - `objective`: what costs, "gradients" (pseudo-gradient evaluations as the paper counts them) or "samples".
    - `mode`: "exact" by the moments of the chain (for VRTD on a trajectory the approximation of `exact_curve`; a
      simulation from `seed` must confirm the target to 3 %, and its mean is the reported error); "guaranteed" by
      proven bounds, which are safe and far from tight, on a trajectory above all; "estimated" from a
      `Transitions` in place of the chain, with an interval for the error at this `confidence`, whose random part
      is drawn from `seed`. The default is "exact" for a `LinearProblem` and "estimated" for a sample.
    - `radius`: R_theta of the projection, which must hold theta_star. The bounds on a trajectory need one (default: the
      least that holds theta_star and theta_0); other predictions take it as never reached.
    - `output`: what an epoch of VRTD returns.

    >>> import vrtd
    >>> problem = vrtd.problems.random_mdp(seed=0)
    >>> found = vrtd.plan(problem, target_error=0.025, sampling="iid")
    >>> found.best.algorithm.name, found.td.n_gradients < found.vrtd.n_gradients
    ('td', True)
    """
    mode = check_mode(problem, mode)
    check_choice("sampling", sampling, get_args(ChainSampling))
    check_choice("objective", objective, get_args(Objective))
    check_choice("output", output, get_args(Output))
    check_radius(radius)
    check_confidence(confidence)
    check_count("seed", seed, least=0)
    sample_cost = 1 if objective == "samples" and sampling == "markov" else 2
    check_goal(target_error, budget, _LEAST_BATCH * sample_cost)

    view = _look(problem, mode, sampling, theta_0, radius, output)
    if target_error is not None and target_error >= view.initial_error:
        raise InvalidInputError(
            f"target_error must be below the error of theta_0, {view.initial_error:.6g}",
            target_error,
            "nothing is to be done: theta_0 is good enough; or lower the target",
        )
    goal = _Goal(target_error, budget, sample_cost)
    if target_error is not None and target_error * MOST_COST < view.predictions.optimal:
        raise _unreachable(view.predictions, goal, view.predictions.optimal / MOST_COST)
    td = _td(view.predictions, goal)
    if mode == "exact" and sampling == "markov":
        vrtd, check = _confirmed(problem, view, goal, output, seed)
    else:
        vrtd, check = _vrtd(view.predictions, goal), None
    if mode == "guaranteed":  # a bound above where theta_0 is says nothing
        td, vrtd = (found if found and found.error < view.initial_error else None for found in (td, vrtd))
    if td is None and vrtd is None:
        raise _unreachable(view.predictions, goal)
    interval = None
    if isinstance(problem, Transitions):
        interval = _bootstrap(problem, view, sampling, output, confidence, seed)
    return Plan(
        mode=mode,
        sampling=sampling,
        objective=objective,
        target_error=None if target_error is None else float(target_error),
        budget=None if budget is None else int(budget),
        initial_error=view.initial_error,
        confidence=confidence if interval is not None else None,
        td=_choice(td, view, sampling, output, interval, None),
        vrtd=_choice(vrtd, view, sampling, output, interval, check),
    )


class _View(NamedTuple):
    """A problem as a mode sees it."""

    predictions: Predictions
    theta_0: Floats
    theta_star: Floats
    radius: float | None

    @property
    def initial_error(self) -> float:
        return float(((self.theta_0 - self.theta_star) ** 2).sum())


def _look(
    problem: LinearProblem | Transitions,
    mode: Mode,
    sampling: ChainSampling,
    theta_0: ArrayLike | None,
    radius: float | None,
    output: Output,
) -> _View:
    if isinstance(problem, Transitions):
        check_full_rank(problem)
        theta = check_theta("theta_0", theta_0, problem.n_features)
        check_search(problem.n_features)
        increments = estimate_increments(problem, sampling)
        largest_norm = float((problem.phi**2).sum(axis=1).max())
        predictions = estimated_predictions(increments, theta, output, largest_norm)
        theta_star = increments.theta_star
    else:
        theta, theta_star = check_theta("theta_0", theta_0, problem.n_features), problem.theta_star
        if mode == "exact":
            check_search(problem.n_features, problem.mrp.edges.origin.size if sampling == "markov" else None)
            predictions = exact_predictions(problem, sampling, theta, output)
        else:
            if output == "last":
                raise InvalidInputError(
                    'the bounds are for the outputs "random" and "average"', repr(output), "choose one of them"
                )
            least_radius = float(max(np.linalg.norm(theta_star), np.linalg.norm(theta)))
            if radius is not None and sampling == "iid":
                raise InvalidInputError(
                    "the bounds for independent samples are of methods without projection",
                    f"radius {radius}",
                    "drop the radius",
                )
            if radius is not None and radius < least_radius:
                raise InvalidInputError(
                    f"the bounds need a radius that holds theta_star and theta_0, {least_radius:.6g}",
                    radius,
                    "raise it",
                )
            predictions = guaranteed_predictions(problem, sampling, theta, radius)
            if sampling == "markov" and radius is None:
                radius = least_radius
    norm = float(np.linalg.norm(theta_star))
    if radius is not None and radius < norm:
        raise InvalidInputError(
            f"radius must be at least |theta_star| = {norm:.6g}, else no target is reachable",
            f"{radius}, which keeps the squared error above {(norm - radius) ** 2:.4g}",
            "raise or drop the radius",
        )
    return _View(predictions, theta, theta_star, radius)


class _Goal(NamedTuple):
    target: float | None
    budget: int | None
    sample_cost: int  # of VRTD, for each sample of a batch


def _td(p: Predictions, goal: _Goal) -> Found | None:
    if goal.target is not None:
        return least_cost_td(p.td, p.td_polish, p.largest_step, goal.target)
    assert goal.budget is not None
    found = least_error_td(p.td, p.td_polish, p.largest_step, goal.budget)
    return found if np.isfinite(found.error) else None


def _vrtd(p: Predictions, goal: _Goal, largest_step: float | None = None, least_batch: int = 2) -> Found | None:
    p = capped(p, largest_step or p.largest_vrtd_step, least_batch)
    if goal.target is not None:
        largest_batch = p.largest_batch(goal.target)
        return least_cost_vrtd(p.vrtd, p.largest_vrtd_step, goal.target, goal.sample_cost, largest_batch)
    assert goal.budget is not None
    if goal.budget < least_batch * goal.sample_cost:
        return None
    found = least_error_vrtd(p.vrtd, p.largest_vrtd_step, goal.budget, goal.sample_cost)
    return found if np.isfinite(found.error) else None


def _confirmed(problem: Any, view: _View, goal: _Goal, output: Output, seed: int) -> tuple[Found | None, Check | None]:
    """The best plan for VRTD on a trajectory, whose prediction is an approximation, that a simulation confirms.

    For a target the simulated error and two standard errors must be within 3 % of the target. Within a budget, where
    the reported error is the simulated one, the prediction must not be refuted: it only chose the settings. The
    approximation is worst for large steps with small batches. So a plan that misses by a little is sought again with a
    lower aim; after a larger miss the search goes on among smaller steps and among larger batches, the most promising
    first.
    """
    p = view.predictions
    open_regions: list[tuple[float, Found, float, int]] = []

    def search(largest_step: float, least_batch: int, aim: float | None) -> None:
        found = _vrtd(p, goal._replace(target=aim), largest_step, least_batch)
        if found is not None:
            score = found.error if aim is None else found.cost
            open_regions.append((score, found, largest_step, least_batch))

    search(p.largest_vrtd_step, _LEAST_BATCH, goal.target)
    for _ in range(_MOST_CHECKS):
        if not open_regions:
            break
        region = min(open_regions, key=lambda region: region[0])
        open_regions.remove(region)
        _, found, largest_step, least_batch = region
        algorithm = VRTD(found.step_size, found.batch_size, view.radius, output)
        n_gradients = found.n_epochs * algorithm.epoch("markov").n_gradients
        if n_gradients * _CHECK_RUNS[0] > _UNCHECKED_GRADIENTS:
            return found, None
        limit = (1.0 + _CHECK_TOLERANCE) * (goal.target or found.error)
        check = _simulated(problem, algorithm, n_gradients, view.theta_0, limit, seed)
        margin = _CHECK_Z * check.standard_error
        if check.error + (margin if goal.target else -margin) <= limit:
            return found._replace(error=check.error), check
        miss = (check.error + margin) / limit
        if goal.target is not None and miss <= _NEAR_MISS:
            search(largest_step, least_batch, found.error / (miss * (1.0 + _CHECK_TOLERANCE)))
        else:
            search(found.step_size / 2.0, least_batch, goal.target)
            search(largest_step, 2 * found.batch_size, goal.target)
    return None, None


def _simulated(problem: Any, algorithm: VRTD, n_gradients: int, theta_0: Floats, limit: float, seed: int) -> Check:
    """The error by simulation, with more runs until it is clearly on one side of the limit or that takes too long."""
    n_runs = int(np.clip(_CHECK_GRADIENTS / n_gradients, *_CHECK_RUNS))
    while True:
        summary = simulate(
            problem, algorithm,
            n_runs=n_runs, n_gradients=n_gradients, theta_0=theta_0, checkpoints=1, seed=seed,
        ).summary()  # fmt: skip
        check = Check(float(summary.mean[-1]), float(summary.standard_error[-1]), n_runs)
        decided = abs(check.error - limit) >= _CHECK_Z * check.standard_error
        if decided or _MORE_RUNS * n_runs * n_gradients > _MOST_CHECK_GRADIENTS:
            return check
        n_runs *= _MORE_RUNS


def _unreachable(p: Predictions, goal: _Goal, least: float | None = None) -> InvalidInputError:
    if goal.budget is not None:
        return InvalidInputError(
            "budget must be large enough for a bound to say something",
            goal.budget,
            'raise it, or plan with mode="exact"',
        )
    if least is None:
        most = goal._replace(target=None, budget=MOST_COST)
        least = min((found.error for found in (_td(p, most), _vrtd(p, most)) if found is not None), default=np.inf)
    return InvalidInputError(
        f"target_error must be reachable at a cost of {MOST_COST:.0e}, where the least error is {least:.4g}",
        goal.target,
        f"raise it: {p.limit}",
    )


def _errors(predictions: Predictions, found: Found) -> Errors:
    """The predicted errors of what was found."""
    a, M = found.step_size, found.batch_size
    return predictions.td_polish(a) if M == 1 else predictions.vrtd(a, [M])[M]


def _bootstrap(
    sample: Transitions, view: _View, sampling: ChainSampling, output: Output, confidence: float, seed: int
) -> Callable[[Found], tuple[float, float]]:
    """The interval of a plan's error: what it would be if the sample had come out differently."""
    from scipy.stats import norm

    replicates = [
        moment_predictions(increments, view.theta_0, output, view.predictions.largest_step)
        for increments in bootstrap_increments(sample, sampling, _REPLICATES, seed)
    ]
    tail = (1.0 - confidence) / 2.0
    half_width = float(norm.isf(tail))

    def interval(found: Found) -> tuple[float, float]:
        """The wider of the percentiles and the log-normal interval, and an allowance for approximations."""
        errors = np.array([_errors(predictions, found).error(found.n_epochs) for predictions in replicates])
        if np.isinf(errors).any():
            raise InvalidInputError(
                "a sample must leave the plan stable when it is drawn again",
                f"{len(sample)} transitions, of which {np.isinf(errors).mean():.0%} of the draws do not",
                "bring more of them",
            )
        logs = np.log(np.maximum(errors, np.finfo(np.float64).tiny))
        low, high = np.quantile(logs, [tail, 1.0 - tail])
        spread, allowance = half_width * logs.std(), view.predictions.allowance(found.step_size)
        centre = np.log(max(found.error, np.finfo(np.float64).tiny))
        ends = min(low, centre - spread) - allowance, max(high, centre + spread) + allowance
        return float(np.exp(ends[0])), float(np.exp(ends[1]))

    return interval


def _choice(
    found: Found | None,
    view: _View,
    sampling: ChainSampling,
    output: Output,
    interval: Callable[[Found], tuple[float, float]] | None,
    check: Check | None,
) -> Choice | None:
    if found is None:
        return None
    a, M, n = found.step_size, found.batch_size, found.n_epochs
    algorithm = TD(a, view.radius) if M == 1 else VRTD(a, M, view.radius, output)
    method = view.predictions.td_method(a) if M == 1 else view.predictions.vrtd_method
    if view.radius is not None and not method.startswith("bound"):
        method += f"{';' if ':' in method else ':'} if the radius is never reached"
    epoch = algorithm.epoch(sampling)
    n_gradients = n * epoch.n_gradients
    spread = np.concatenate([np.linspace(0, n, _POINTS), np.geomspace(1, n, _POINTS)])
    curve_epochs = np.unique(spread.round().astype(np.int64))
    predicted = _errors(view.predictions, found)
    return Choice(
        algorithm=algorithm,
        n_epochs=n,
        n_gradients=n_gradients,
        n_samples=int(epoch.samples_at(np.array(n_gradients))),
        error=found.error,
        method=method if interval is None else f"estimate: {method}",
        interval=None if interval is None else interval(found),
        check=check,
        curve_epochs=frozen(curve_epochs),
        curve_error=frozen(np.array([predicted.error(k) for k in curve_epochs.tolist()])),
    )
