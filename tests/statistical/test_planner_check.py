"""How the planner checks an approximation by simulation, with a simulation that says what the test wants; and how it
makes an interval of bootstrap replicates, with replicates that the test chooses."""

from functools import cache
from math import inf, log
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import norm

import vrtd
from tests.helpers.statistics import z_limit
from vrtd.theory import exact_curve, plan, planner
from vrtd.theory.predictions import Prediction

PROBLEM = vrtd.problems.random_mdp()
SMALL = vrtd.problems.random_mdp(n_states=10, n_features=2)
THETA_0 = np.array([0.5, -0.5, 0.0, 1.0])


def fake_simulation(seen, accepts):
    """A simulation whose mean is the predicted error times what `accepts` says of (call, step, batch)."""

    def simulate(problem, algorithm, *, n_runs, n_gradients, theta_0, checkpoints, seed):
        named = {"n_gradients": n_gradients, "theta_0": theta_0, "checkpoints": checkpoints, "method": "approximate"}
        predicted = exact_curve(problem, algorithm, **named).values("squared_error")[0, -1]
        seen.append(SimpleNamespace(algorithm=algorithm, n_runs=n_runs, n_gradients=n_gradients, seed=seed))
        seen[-1].theta_0, seen[-1].error = np.array(theta_0), predicted
        factor, standard_error = accepts(len(seen), algorithm)
        summary = SimpleNamespace(mean=[predicted * factor], standard_error=[predicted * standard_error])
        return SimpleNamespace(summary=lambda: summary)

    return simulate


@pytest.mark.parametrize(
    ("error", "standard_error", "accepted"),
    [
        (1.029, 0.0, True),
        (1.031, 0.0, False),
        (0.5, 0.0, True),  # better than the target is no reason to refuse
        (1.009, 0.01, True),
        (1.011, 0.01, False),
    ],
)
def test_a_plan_is_accepted_by_its_target(monkeypatch, error, standard_error, accepted):
    """The simulated error, with two standard errors on top, may exceed the target by 3 %; it is the reported error."""
    seen = []

    def accepts(n, _):
        scale = 1.0 / seen[-1].error  # the target is 1
        return (error * scale, standard_error * scale) if n == 1 else (0.9 * scale, 0.0)

    monkeypatch.setattr(planner, "simulate", fake_simulation(seen, accepts))
    monkeypatch.setattr(planner, "_MOST_CHECK_GRADIENTS", 0.0)  # one look at each plan
    found = plan(PROBLEM, target_error=1.0, theta_0=THETA_0, seed=7).vrtd
    assert (len(seen) == 1) == accepted
    last = seen[-1]
    assert (last.theta_0 == THETA_0).all()
    assert last.seed == 7
    assert last.n_gradients == found.n_gradients
    assert found.check == (
        pytest.approx(error if accepted else 0.9), pytest.approx(standard_error if accepted else 0.0), last.n_runs
    )  # fmt: skip
    assert found.error == found.check.error


def test_an_undecided_check_is_repeated_with_more_runs(monkeypatch):
    seen = []
    looks = {1: (1.0, 0.1), 2: (1.02, 0.05), 3: (1.0, 0.01)}
    simulation = fake_simulation(seen, lambda n, _: tuple(x / seen[-1].error for x in looks[n]))
    monkeypatch.setattr(planner, "simulate", simulation)
    found = plan(PROBLEM, target_error=1.0).vrtd
    assert [one.n_runs / seen[0].n_runs for one in seen] == [1.0, 4.0, 16.0]
    assert len({one.algorithm for one in seen}) == 1
    assert found.check.n_runs == seen[-1].n_runs


def test_after_a_small_miss_the_aim_is_lowered(monkeypatch):
    """The next plan is predicted to end lower by what the first one missed and 3 % more, at a higher cost."""
    seen = []
    monkeypatch.setattr(planner, "simulate", fake_simulation(seen, lambda n, _: (1.13 if n == 1 else 1.0, 0.0)))
    found = plan(PROBLEM, target_error=1.0).vrtd
    assert len(seen) == 2
    aim = seen[0].error / (1.13 * seen[0].error / 1.03 * 1.03)
    assert 0.98 * aim < seen[1].error <= aim * (1.0 + 1e-9)
    assert seen[1].n_gradients > seen[0].n_gradients
    assert found.error <= 1.0


def test_within_a_budget_a_prediction_must_not_be_refuted(monkeypatch):
    """The reported error is the simulated one; there is no target that noise could miss."""
    for factor, standard_error, accepted in ((1.04, 0.01, True), (1.06, 0.01, False), (0.5, 0.0, True)):
        seen = []
        looks = lambda n, _, first=(factor, standard_error): first if n == 1 else (1.0, 0.0)  # noqa: E731
        monkeypatch.setattr(planner, "simulate", fake_simulation(seen, looks))
        monkeypatch.setattr(planner, "_MOST_CHECK_GRADIENTS", 0.0)
        found = plan(PROBLEM, budget=2000).vrtd
        assert (len(seen) == 1) == accepted
        assert found.error == found.check.error == pytest.approx(seen[-1].error * (factor if accepted else 1.0))


@pytest.mark.parametrize("only", ["smaller steps", "larger batches"])
def test_after_a_miss_smaller_steps_and_larger_batches_are_tried(monkeypatch, only):
    seen = []

    def accepts(_, algorithm):
        first = seen[0].algorithm
        smaller = algorithm.step_size <= first.step_size / 2.0 * (1.0 + 1e-9)
        larger = algorithm.batch_size >= 2 * first.batch_size
        assert algorithm == first or smaller or larger  # what has been refuted is not looked at again
        good = smaller and not larger if only == "smaller steps" else larger and not smaller
        return (1.0 if good else 2.0), 0.0

    monkeypatch.setattr(planner, "simulate", fake_simulation(seen, accepts))
    assert plan(SMALL, target_error=0.1).vrtd is not None
    assert len(seen) > 1
    costs = [one.n_gradients for one in seen]
    assert costs[0] == min(costs)


def test_within_a_budget_the_least_error_is_tried_first(monkeypatch):
    seen = []
    monkeypatch.setattr(planner, "simulate", fake_simulation(seen, lambda n, _: (1.0 if n == 5 else 2.0, 0.0)))
    found = plan(PROBLEM, budget=2000).vrtd
    errors = [one.error for one in seen]
    assert errors[0] == min(errors)
    assert found.error == pytest.approx(errors[-1], rel=1e-9)
    assert len(seen) == 5


def test_what_no_simulation_bears_out_is_no_choice(monkeypatch):
    seen = []
    monkeypatch.setattr(planner, "simulate", fake_simulation(seen, lambda *_: (2.0, 0.0)))
    assert plan(SMALL, target_error=0.1).vrtd is None
    assert len(seen) == 16


def test_a_plan_too_long_to_simulate_is_not_checked(monkeypatch):
    monkeypatch.setattr(planner, "simulate", lambda *_, **__: pytest.fail("simulated"))
    monkeypatch.setattr(planner, "_UNCHECKED_GRADIENTS", 10.0)
    found = plan(PROBLEM, target_error=1.0).vrtd
    assert found.check is None
    assert found.prediction is Prediction.ALGORITHM_2


# Intervals


class Constant:
    def __init__(self, error):
        self._error = error

    def error(self, _):
        return self._error


def with_replicates(monkeypatch, errors, seen=None):
    """Bootstrap replicates that predict these errors, whatever the plan."""
    left = iter(errors)

    def predictor(increments, theta_0, output, largest_step):
        error = next(left)
        if seen is not None:
            seen.append((np.array(theta_0), output))
        return SimpleNamespace(by_step=lambda _: lambda _: Constant(error))

    monkeypatch.setattr(planner, "bootstrap_increments", lambda *_: iter(errors))
    monkeypatch.setattr(planner, "MomentPredictor", predictor)


@cache
def sample(sampling):
    return vrtd.record(PROBLEM, 20_000, sampling=sampling, seed=1, shuffle=False)


Z = norm.ppf((np.arange(200) + 0.5) / 200)


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95])
@pytest.mark.parametrize("shift", [0.0, 0.5, -0.5])
def test_an_interval_holds_the_percentiles_and_the_log_normal_interval(monkeypatch, confidence, shift):
    seen = []
    with_replicates(monkeypatch, np.exp(np.log(0.3) + shift + 0.2 * Z), seen)
    named = {"sampling": "iid", "confidence": confidence, "output": "last", "theta_0": THETA_0}
    found = plan(sample("iid"), target_error=0.3, **named)
    half = norm.isf((1.0 - confidence) / 2.0) * 0.2
    for choice in (found.td, found.vrtd):
        low, high = (log(end / 0.3) for end in choice.interval)
        centre = log(choice.error / 0.3)
        assert low == pytest.approx(min(centre, shift) - half, abs=0.03)
        assert high == pytest.approx(max(centre, shift) + half, abs=0.03)
    assert len(seen) == 200
    assert all((theta_0 == THETA_0).all() and output == "last" for theta_0, output in seen)


def test_an_interval_on_a_trajectory_allows_for_terms_of_second_order(monkeypatch):
    """Replicates without spread: what is left is 2.5 times the step as a share of the limit over the correlation."""
    shares = []
    for target in (0.2, 0.5):
        with_replicates(monkeypatch, [target] * 200)
        found = plan(sample("markov"), target_error=target).td
        low, high = found.interval
        assert log(high / target) == pytest.approx(-log(low / target), abs=1e-2)
        shares.append(log(high / target) / found.algorithm.step_size)
    assert shares[0] == pytest.approx(shares[1], rel=0.05)
    tau, limit = 128 / 342, 1.14  # of the chain
    assert shares[0] == pytest.approx(2.5 / (limit * tau), rel=0.2)


def test_a_plan_that_one_replicate_leaves_unstable_is_refused(monkeypatch):
    with_replicates(monkeypatch, [inf] + [0.3] * 199)
    with pytest.raises(vrtd.errors.InvalidInputError, match="The plan is unstable on 1 of 200 bootstrap samples"):
        plan(sample("iid"), target_error=0.3, sampling="iid")


def test_a_confidence_is_only_of_intervals():
    assert plan(PROBLEM, budget=100, sampling="iid").confidence is None


# Against simulations


def sticky(seed, q, tabular, share):
    """A chain that stays where it is with probability 1 - q, features, and a share of the initial error as target."""
    rng = np.random.default_rng(seed)
    n = 6 if tabular else 8
    P = rng.random((n, n))
    P = (1.0 - q) * np.eye(n) + q * P / P.sum(axis=1, keepdims=True)
    phi = np.eye(n) if tabular else rng.normal(size=(n, 3))
    problem = vrtd.LinearProblem(vrtd.MarkovRewardProcess(P, rng.normal(size=n), 0.9), phi)
    return problem, share * float((problem.theta_star**2).sum())


STICKY = [(0, 0.1, False, 0.1), (6, 0.1, True, 0.1), (7, 1.0, False, 0.1)]


def simulated_anew(problem, found):
    return vrtd.simulate(
        problem, found.algorithm, n_gradients=found.n_gradients, n_runs=8000, checkpoints=1, seed=1000
    ).summary()


@pytest.mark.parametrize("case", STICKY)
@pytest.mark.statistical
@pytest.mark.slow
def test_a_plan_on_a_sticky_chain_meets_its_target(case):
    """Simulated anew: at most 3 % above the target, and in agreement with the check that is reported."""
    problem, target = sticky(*case)
    found = plan(problem, target_error=target).vrtd
    check = found.check
    assert check.error + 2.0 * check.standard_error <= 1.03 * target
    summary, limit = simulated_anew(problem, found), z_limit(2 * len(STICKY))
    assert summary.mean[-1] <= 1.03 * target + limit * summary.standard_error[-1]
    noise = np.hypot(summary.standard_error[-1], check.standard_error)
    assert abs(summary.mean[-1] - found.error) <= limit * noise


@pytest.mark.statistical
@pytest.mark.slow
def test_without_the_check_a_plan_would_miss_its_target(monkeypatch):
    """The bug that the test above would find: 15 % above the target."""
    problem, target = sticky(*STICKY[1])
    monkeypatch.setattr(planner, "_CHECK_TOLERANCE", inf)
    summary = simulated_anew(problem, plan(problem, target_error=target).vrtd)
    assert summary.mean[-1] > 1.03 * target + z_limit(2 * len(STICKY)) * summary.standard_error[-1]
