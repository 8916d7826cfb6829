"""The planner: which step size, batch size and number of epochs reach a target, or are best within a budget."""

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

_POINTS = 120  # of a predicted curve
_REPLICATES = 200  # of the bootstrap
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
            f"target_error must be below the error at the start, {initial_error:.6g}",
            target_error,
            "nothing is to be done: the start is good enough; or lower the target",
        )
    optimal = predictor.optimal or 0.0
    if goal.target is not None and goal.target * MOST_COST < optimal:
        raise task.explain_failure(optimal / MOST_COST)
    td, check = task.search().td(goal), None
    if mode == "exact" and sampling == "markov":
        vrtd, check = task.confirm_vrtd()
    else:
        vrtd = task.search().vrtd(goal)
    if mode == "guaranteed":  # a bound above where theta_0 is says nothing
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
                'a sample of transitions allows mode="estimated" only: bounds and exact moments need the chain',
                repr(mode),
                "drop the mode, or pass a LinearProblem",
            )
        check_full_rank(problem)
        return "estimated"
    if not isinstance(problem, LinearProblem | Simulator):
        raise InvalidInputError(
            "problem must be a LinearProblem or Transitions", type(problem).__name__, "build LinearProblem(mrp, phi)"
        )
    check_problem(problem)
    check_choice("mode", mode, (None, *get_args(Mode)))
    if mode == "estimated":
        raise InvalidInputError(
            'mode="estimated" needs a sample in place of the chain',
            "a LinearProblem",
            "pass vrtd.record(problem, n_rows, shuffle=False), or vrtd.Transitions(...)",
        )
    return mode or "exact"


def _check_goal(target_error: Any, budget: Any, least_budget: int) -> Goal:
    if (target_error is None) == (budget is None):
        raise InvalidInputError(
            "either target_error or budget must be given", f"{target_error} and {budget}", "pass one of them"
        )
    if target_error is not None:
        check_positive("target_error", target_error)
        return Goal(target=float(target_error))
    check_count("budget", budget)
    if budget < least_budget or budget > MOST_COST:
        raise InvalidInputError(
            f"budget must be at least one epoch of VRTD with a batch of two, {least_budget}, and at most 1e15",
            budget,
            "change the budget",
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
            'the bounds are for the outputs "random" and "average"', repr(output), "choose one of them"
        )
    return BoundPredictor(problem, sampling, theta_0, radius)


def _check_radius_holds(
    problem: LinearProblem | Transitions, mode: Mode, sampling: ChainSampling, theta_0: Floats, radius: float | None
) -> float | None:
    """Refuse a radius that misses theta_star; return the one to project with, which the bounds on a trajectory need."""
    norm = float(np.linalg.norm(problem.theta_star))
    if mode == "guaranteed":
        least = max(norm, float(np.linalg.norm(theta_0)))
        if radius is None:
            return least if sampling == "markov" else None
        if sampling == "iid":
            raise InvalidInputError(
                "the bounds for independent samples are of methods without projection",
                f"radius {radius}",
                "drop the radius",
            )
        if radius < least:
            raise InvalidInputError(
                f"the bounds need a radius that holds theta_star and theta_0, {least:.6g}", radius, "raise it"
            )
    if radius is not None and radius < norm:
        raise InvalidInputError(
            f"radius must be at least |theta_star| = {norm:.6g}, else no target is reachable",
            f"{radius}, which keeps the squared error above {(norm - radius) ** 2:.4g}",
            "raise or drop the radius",
        )
    return radius


@dataclass(frozen=True)
class _Task:
    """What is to be planned, and how errors are predicted."""

    problem: LinearProblem | Transitions
    sampling: ChainSampling
    output: Output
    theta_0: Floats
    radius: float | None
    predictor: EpochPredictor
    goal: Goal
    sample_cost: int  # of VRTD, for each sample of a batch
    seed: int

    def search(self, largest_step: float | None = None, least_batch: int = LEAST_BATCH) -> Search:
        return Search(self.predictor, self.sample_cost, largest_step, least_batch)

    def algorithm(self, found: Found) -> TD | VRTD:
        if found.batch_size == 1:
            return TD(found.step_size, self.radius)
        return VRTD(found.step_size, found.batch_size, self.radius, self.output)

    def confirm_vrtd(self) -> tuple[Found | None, Check | None]:
        """Find the best plan for VRTD on a trajectory that a simulation confirms: its prediction is an approximation.

        For a target the simulated error and two standard errors must be within 3 % of the target. Within a budget,
        where the reported error is the simulated one, the prediction must not be refuted: it only chose the settings.
        The approximation is worst for large steps with small batches. So a plan that misses by a little is sought again
        with a lower aim; after a larger miss the search goes on among smaller steps and among larger batches, the most
        promising first.
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
        """Simulate with more runs until the error is clearly on one side of the limit or that takes too long."""
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
        """Return the error that says why nothing was found; `least` is the least error at any cost, if it is known."""
        if self.goal.budget is not None:
            return InvalidInputError(
                "budget must be large enough for a bound to say something",
                self.goal.budget,
                'raise it, or plan with mode="exact"',
            )
        if least is None:
            most = Goal(budget=MOST_COST)
            found = self.search().td(most), self.search().vrtd(most)
            least = min((each.error for each in found if each is not None), default=np.inf)
        return InvalidInputError(
            f"target_error must be reachable at a cost of {MOST_COST:.0e}, where the least error is {least:.4g}",
            self.goal.target,
            f"raise it: {self.predictor.limit}",
        )

    def choose(
        self, found: Found, check: Check | None, replicates: list[MomentPredictor] | None, confidence: float
    ) -> Choice:
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
        """Return the interval of a plan's error, by what it would be if the sample had come out differently.

        It is the wider of the percentiles and the log-normal interval, with an allowance for approximations.
        """
        from scipy.stats import norm

        assert isinstance(self.problem, Transitions)
        a, M, n = found[:3]
        errors = np.array([replicate.by_step(M)(a).error(n) for replicate in replicates])
        if np.isinf(errors).any():
            raise InvalidInputError(
                "a sample must leave the plan stable when it is drawn again",
                f"{self.problem.n_rows} transitions, of which {np.isinf(errors).mean():.0%} of the draws do not",
                "bring more of them",
            )
        tiny, tail = np.finfo(np.float64).tiny, (1.0 - confidence) / 2.0
        logs, centre = np.log(np.maximum(errors, tiny)), np.log(max(found.error, tiny))
        low, high = np.quantile(logs, [tail, 1.0 - tail])
        spread, allowance = float(norm.isf(tail)) * logs.std(), self.predictor.relative_error * a
        ends = min(low, centre - spread) - allowance, max(high, centre + spread) + allowance
        return float(np.exp(ends[0])), float(np.exp(ends[1]))
