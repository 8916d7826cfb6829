"""The planner: step size, batch size and number of epochs for a target error or a budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from numpy.typing import ArrayLike

from vrtd.algorithms import TD, VRTD, ChainSampling
from vrtd.algorithms.vrtd import Output
from vrtd.arrays import Floats, check_theta, frozen
from vrtd.checks import check_choice, check_count, check_level, check_positive, check_radius
from vrtd.engine import simulate
from vrtd.errors import InvalidInputError
from vrtd.problems import LinearProblem, Simulator, Transitions
from vrtd.theory.checks import check_problem, check_search
from vrtd.theory.estimation import bootstrap_increments, estimate_increments
from vrtd.theory.plans import Check, Choice, Mode, Objective, Plan
from vrtd.theory.predictions import BoundPredictor, EpochPredictor, MomentPredictor, exact_predictor, sample_predictor
from vrtd.theory.sample_noise import check_full_rank
from vrtd.theory.search import LEAST_BATCH, MOST_COST, Found, Goal, Search

_POINTS = 120  # points of a predicted curve
_REPLICATES = 200  # replicates of the bootstrap
# An approximation is checked by a simulation of about a second, with four times the runs while it is undecided.
_CHECK_GRADIENTS, _CHECK_RUNS, _MORE_RUNS, _MOST_CHECK_GRADIENTS = 1e8, (200, 4000), 4, 5e8
_UNCHECKED_GRADIENTS = 4e9  # beyond this the least number of runs would take too long
# The simulated error plus this number of standard errors may exceed the target by this share.
_CHECK_TOLERANCE, _CHECK_Z = 0.03, 2.0
# A plan that misses by at most this factor is replaced by one with a lower target; after a larger miss the search
# continues among smaller steps and larger batches.
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
    """Find the settings of TD and VRTD that reach a target error at the least cost, or are best within a budget.

    Steps and batch sizes are constant, and TD is not averaged. Pass either ``target_error`` or ``budget``.

    Parameters
    ----------
    problem : LinearProblem or Transitions
        Chain and features, or a sample of transitions.
    target_error : float, default=None
        Squared error ``E|theta - theta_star|^2`` to reach at the least cost.
    budget : int, default=None
        Cost within which the error is to be least.
    sampling : {"markov", "iid"}, default="markov"
        One trajectory, or independent samples.
    objective : {"gradients", "samples"}, default="gradients"
        What the cost counts: evaluations of pseudo-gradients, as in the paper, or samples.
    mode : {"exact", "guaranteed", "estimated"}, default=None
        How errors are predicted: by the exact moments of the chain, by proven bounds, or from a sample of transitions.
        By default it is "exact" for a ``LinearProblem`` and "estimated" for ``Transitions``.
    theta_0 : array_like of shape (n_features,), default=None
        Start. By default it is the zero vector.
    radius : float, default=None
        Radius of the projection. It must be at least ``|theta_star|``. The bounds on a trajectory need a radius, by
        default the least one for which the ball contains theta_star and theta_0. Other modes assume that theta never
        reaches it.
    output : {"random", "last", "average", "tail"}, default="random"
        Iterate that an epoch of VRTD returns.
    confidence : float, default=0.95
        Confidence level of the intervals in mode "estimated".
    seed : int, default=0
        Seed of the bootstrap in mode "estimated", and of the simulation that checks an approximation.

    Returns
    -------
    Plan
        The best settings of TD and of VRTD, and which of the two to use.

    Raises
    ------
    InvalidInputError
        If no settings reach the target, if the problem is too large, or if the sample is too short.

    Notes
    -----
    In mode "exact" the prediction for VRTD on a trajectory is the approximation of ``exact_curve``. A simulation must
    confirm that the error is at most 3 % above the target, and its mean is the reported error. In mode "guaranteed" the
    bounds are safe but far from tight, especially on a trajectory.

    Examples
    --------
    >>> import vrtd
    >>> problem = vrtd.problems.random_mdp(seed=0)
    >>> plan = vrtd.plan(problem, target_error=0.025, sampling="iid")
    >>> plan.best.algorithm.name, plan.td.n_gradients < plan.vrtd.n_gradients
    ('td', True)
    """
    mode = _check_mode(problem, mode)
    check_choice("sampling", sampling, get_args(ChainSampling))
    check_choice("objective", objective, get_args(Objective))
    check_choice("output", output, get_args(Output))
    check_radius(radius)
    check_level(confidence, "confidence")
    check_count("seed", seed, least=0)
    sample_cost = 1 if objective == "samples" and sampling == "markov" else 2
    goal = _check_goal(target_error, budget, LEAST_BATCH * sample_cost)
    theta = check_theta("theta_0", theta_0, problem.n_features)
    predictor = _find_predictor(problem, mode, sampling, theta, radius, output)
    radius = _check_radius_holds(problem, mode, sampling, theta, radius)
    task = _Task(problem, sampling, output, theta, radius, predictor, goal, sample_cost, seed)
    initial_error = float(((theta - problem.theta_star) ** 2).sum())
    if goal.target is not None and goal.target >= initial_error:
        raise InvalidInputError(
            f"target_error must be below the initial error, {initial_error:.6g}, but is {target_error}.",
            "Lower the target; theta_0 already meets this one.",
        )
    optimal = predictor.optimal or 0.0
    if goal.target is not None and goal.target * MOST_COST < optimal:
        raise task.explain_failure(optimal / MOST_COST)
    td, check = task.search().td(goal), None
    if mode == "exact" and sampling == "markov":
        vrtd, check = task.confirm_vrtd()
    else:
        vrtd = task.search().vrtd(goal)
    if mode == "guaranteed":  # a bound above the initial error is of no use
        td, vrtd = (found if found and found.error < initial_error else None for found in (td, vrtd))
    if td is None and vrtd is None:
        raise task.explain_failure()
    replicates = None
    if isinstance(problem, Transitions):
        replicates = [
            MomentPredictor(increments, theta, output, predictor.largest_step)
            for increments in bootstrap_increments(problem, sampling, _REPLICATES, seed)
        ]
    choices = [
        None if found is None else task.choose(found, simulated, replicates, confidence)
        for found, simulated in ((td, None), (vrtd, check))
    ]
    return Plan(
        mode=mode,
        sampling=sampling,
        objective=objective,
        target_error=goal.target,
        budget=goal.budget,
        initial_error=initial_error,
        confidence=None if replicates is None else confidence,
        td=choices[0],
        vrtd=choices[1],
    )


def _check_mode(problem: Any, mode: Mode | None) -> Mode:
    if isinstance(problem, Transitions):
        if mode not in (None, "estimated"):
            raise InvalidInputError(
                'mode must be "estimated" for a sample of transitions, because bounds and exact '
                f"moments need the chain, but is {mode!r}.",
                "Drop mode, or pass a LinearProblem.",
            )
        check_full_rank(problem)
        return "estimated"
    if not isinstance(problem, LinearProblem | Simulator):
        raise InvalidInputError(
            f"problem must be a LinearProblem or Transitions, but is of type {type(problem).__name__}.",
            "Build LinearProblem(mrp, phi).",
        )
    check_problem(problem)
    check_choice("mode", mode, (None, *get_args(Mode)))
    if mode == "estimated":
        raise InvalidInputError(
            'mode="estimated" needs a sample instead of a LinearProblem.',
            "Pass vrtd.record(problem, n_rows, shuffle=False), or vrtd.Transitions(...).",
        )
    return mode or "exact"


def _check_goal(target_error: Any, budget: Any, least_budget: int) -> Goal:
    if (target_error is None) == (budget is None):
        raise InvalidInputError(
            f"either target_error or budget must be passed, but they are {target_error} and {budget}.",
            "Pass exactly one of them.",
        )
    if target_error is not None:
        check_positive("target_error", target_error)
        return Goal(target=float(target_error))
    check_count("budget", budget)
    if budget < least_budget or budget > MOST_COST:
        raise InvalidInputError(
            f"budget must be at least {least_budget}, which is one epoch of VRTD with a batch of two, "
            f"and at most 1e15, but is {budget}.",
            "Change the budget.",
        )
    return Goal(budget=int(budget))


def _find_predictor(
    problem: LinearProblem | Transitions,
    mode: Mode,
    sampling: ChainSampling,
    theta_0: Floats,
    radius: float | None,
    output: Output,
) -> EpochPredictor:
    d = problem.n_features
    if isinstance(problem, Transitions):
        check_search(d)
        largest_norm = float((problem.phi**2).sum(axis=1).max())
        return sample_predictor(estimate_increments(problem, sampling), theta_0, output, largest_norm)
    if mode == "exact":
        check_search(d, problem.mrp.edges.origin.size if sampling == "markov" else None)
        return exact_predictor(problem, sampling, theta_0, output)
    if output not in ("random", "average"):
        raise InvalidInputError(
            f'output must be "random" or "average" for the bounds, but is {output!r}.', "Choose one of them."
        )
    return BoundPredictor(problem, sampling, theta_0, radius)


def _check_radius_holds(
    problem: LinearProblem | Transitions, mode: Mode, sampling: ChainSampling, theta_0: Floats, radius: float | None
) -> float | None:
    """Raise if the radius excludes theta_star, and return the radius of the projection."""
    norm = float(np.linalg.norm(problem.theta_star))
    if mode == "guaranteed":
        least = max(norm, float(np.linalg.norm(theta_0)))
        if radius is None:
            return least if sampling == "markov" else None
        if sampling == "iid":
            raise InvalidInputError(
                f"radius must not be set for the bounds with independent samples, but is {radius}.",
                "Drop the radius.",
            )
        if radius < least:
            raise InvalidInputError(
                f"radius must be at least {least:.6g} for the bounds, so that the ball contains theta_star and "
                f"theta_0, but is {radius}.",
                "Raise it.",
            )
    if radius is not None and radius < norm:
        raise InvalidInputError(
            f"radius must be at least |theta_star| = {norm:.6g}, but is {radius}, which keeps the squared error above "
            f"{(norm - radius) ** 2:.4g}.",
            "Raise or drop the radius.",
        )
    return radius


@dataclass(frozen=True)
class _Task:
    """A planning task: the problem, the goal, and the predictor of errors."""

    problem: LinearProblem | Transitions
    sampling: ChainSampling
    output: Output
    theta_0: Floats
    radius: float | None
    predictor: EpochPredictor
    goal: Goal
    sample_cost: int  # cost of VRTD per sample of a batch
    seed: int

    def search(self, largest_step: float | None = None, least_batch: int = LEAST_BATCH) -> Search:
        """Return a search, limited to these steps and batch sizes of VRTD."""
        return Search(self.predictor, self.sample_cost, largest_step, least_batch)

    def algorithm(self, found: Found) -> TD | VRTD:
        """Return the algorithm with the settings found."""
        if found.batch_size == 1:
            return TD(found.step_size, self.radius)
        return VRTD(found.step_size, found.batch_size, self.radius, self.output)

    def confirm_vrtd(self) -> tuple[Found | None, Check | None]:
        """Find the best plan for VRTD on a trajectory that a simulation confirms.

        The prediction is an approximation. For a target, the simulated error plus two standard errors must be at most
        3 % above the target. For a budget, the reported error is the simulated one, and the simulation must only not
        refute the prediction. The approximation is worst for large steps with small batches. So after a small miss the
        search is repeated with a lower target. After a larger miss it continues among smaller steps and among larger
        batches, with the most promising region first.
        """
        target = self.goal.target
        open_regions: list[tuple[float, Found, float, int]] = []

        def search(largest_step: float, least_batch: int, aim: float | None) -> None:
            found = self.search(largest_step, least_batch).vrtd(self.goal._replace(target=aim))
            if found is not None:
                score = found.error if aim is None else found.cost
                open_regions.append((score, found, largest_step, least_batch))

        search(self.predictor.largest_vrtd_step, LEAST_BATCH, target)
        for _ in range(_MOST_CHECKS):
            if not open_regions:
                break
            region = min(open_regions, key=lambda region: region[0])
            open_regions.remove(region)
            _, found, largest_step, least_batch = region
            limit = (1.0 + _CHECK_TOLERANCE) * (target or found.error)
            check = self._simulate(found, limit)
            if check is None:
                return found, None
            margin = _CHECK_Z * check.standard_error
            if check.error + (margin if target else -margin) <= limit:
                return found._replace(error=check.error), check
            miss = (check.error + margin) / limit
            if target is not None and miss <= _NEAR_MISS:
                search(largest_step, least_batch, found.error / (miss * (1.0 + _CHECK_TOLERANCE)))
            else:
                search(found.step_size / 2.0, least_batch, target)
                search(largest_step, 2 * found.batch_size, target)
        return None, None

    def _simulate(self, found: Found, limit: float) -> Check | None:
        """Simulate with more and more runs until the error is clearly on one side of the limit, or time is up."""
        algorithm = self.algorithm(found)
        n_gradients = found.n_epochs * algorithm.epoch("markov").n_gradients
        if n_gradients * _CHECK_RUNS[0] > _UNCHECKED_GRADIENTS:
            return None
        n_runs = int(np.clip(_CHECK_GRADIENTS / n_gradients, *_CHECK_RUNS))
        while True:
            summary = simulate(
                self.problem, algorithm,
                n_runs=n_runs, n_gradients=n_gradients, theta_0=self.theta_0, checkpoints=1, seed=self.seed,
            ).summary()  # fmt: skip
            check = Check(float(summary.mean[-1]), float(summary.standard_error[-1]), n_runs)
            decided = abs(check.error - limit) >= _CHECK_Z * check.standard_error
            if decided or _MORE_RUNS * n_runs * n_gradients > _MOST_CHECK_GRADIENTS:
                return check
            n_runs *= _MORE_RUNS

    def explain_failure(self, least: float | None = None) -> InvalidInputError:
        """Return the exception for a failed search; `least` is the least error at any cost, if it is known."""
        if self.goal.budget is not None:
            return InvalidInputError(
                f"budget {self.goal.budget} is too small: no bound is below the initial error.",
                'Raise it, or plan with mode="exact".',
            )
        if least is None:
            most = Goal(budget=MOST_COST)
            found = self.search().td(most), self.search().vrtd(most)
            least = min((each.error for each in found if each is not None), default=np.inf)
        return InvalidInputError(
            f"target_error {self.goal.target} is not reachable at a cost of {MOST_COST:.0e}, where the least error is "
            f"{least:.4g}: {self.predictor.limit}.",
            "Raise it.",
        )

    def choose(
        self, found: Found, check: Check | None, replicates: list[MomentPredictor] | None, confidence: float
    ) -> Choice:
        """Return the settings found, with their counts, predicted curve and interval."""
        algorithm, n = self.algorithm(found), found.n_epochs
        epoch = algorithm.epoch(self.sampling)
        spread = np.concatenate([np.linspace(0, n, _POINTS), np.geomspace(1, n, _POINTS)])
        curve_epochs = np.unique(spread.round().astype(np.int64))
        predicted = self.predictor.by_step(found.batch_size)(found.step_size)
        return Choice(
            algorithm=algorithm,
            n_epochs=n,
            n_gradients=n * epoch.n_gradients,
            n_samples=int(epoch.samples_at(np.array(n * epoch.n_gradients))),
            error=found.error,
            prediction=self.predictor.prediction(found.step_size, found.batch_size),
            interval=None if replicates is None else self._interval(found, replicates, confidence),
            check=check,
            curve_epochs=frozen(curve_epochs),
            curve_error=frozen(np.array([predicted.error(k) for k in curve_epochs.tolist()])),
        )

    def _interval(self, found: Found, replicates: list[MomentPredictor], confidence: float) -> tuple[float, float]:
        """Return the interval of the error of a plan from bootstrap replicates of the sample.

        It is the wider one of the percentile and the log-normal interval, plus an allowance for approximations.
        """
        from scipy.stats import norm

        assert isinstance(self.problem, Transitions)
        a, M, n = found[:3]
        errors = np.array([replicate.by_step(M)(a).error(n) for replicate in replicates])
        if np.isinf(errors).any():
            raise InvalidInputError(
                f"The plan is unstable on {np.isinf(errors).sum()} of {errors.size} bootstrap samples, so "
                f"{self.problem.n_rows} transitions are too few.",
                "Use more transitions.",
            )
        tiny, tail = np.finfo(np.float64).tiny, (1.0 - confidence) / 2.0
        logs, centre = np.log(np.maximum(errors, tiny)), np.log(max(found.error, tiny))
        low, high = np.quantile(logs, [tail, 1.0 - tail])
        spread, allowance = float(norm.isf(tail)) * logs.std(), self.predictor.relative_error * a
        ends = min(low, centre - spread) - allowance, max(high, centre + spread) + allowance
        return float(np.exp(ends[0])), float(np.exp(ends[1]))
