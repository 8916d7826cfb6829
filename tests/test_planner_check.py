"""How the planner checks an approximation by simulation, with a simulation that says what the test wants; and how it
makes an interval of bootstrap replicates, with replicates that the test chooses."""

from math import inf, log
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import norm

import vrtd
from vrtd.theory import TransitionSample, exact_curve, plan, planner

MRP, PHI = vrtd.problems.random_mdp()
SMALL = vrtd.problems.random_mdp(n_states=10, n_features=2)
THETA_0 = np.array([0.5, -0.5, 0.0, 1.0])


def fake_simulation(seen, accepts):
    """A simulation whose mean is the predicted error times what `accepts` says of (call, step, batch)."""

    def simulate(mrp, phi, algorithm, *, n_runs, n_gradients, theta_0, checkpoints, seed):
        named = {"n_gradients": n_gradients, "theta_0": theta_0, "checkpoints": checkpoints, "method": "approximate"}
        predicted = exact_curve(mrp, phi, algorithm, **named).values("squared_error")[0, -1]
        seen.append(SimpleNamespace(algorithm=algorithm, n_runs=n_runs, n_gradients=n_gradients, seed=seed))
        seen[-1].theta_0, seen[-1].error = np.array(theta_0), predicted
        factor, standard_error = accepts(len(seen), algorithm)
        summary = SimpleNamespace(mean=[predicted * factor], standard_error=[predicted * standard_error])
        return SimpleNamespace(summary=lambda: summary)

    return simulate


@pytest.mark.parametrize(
    ("miss", "standard_error", "accepted"),
    [
        (0.039, 0.0, True),
        (-0.039, 0.0, True),
        (0.041, 0.0, False),
        (-0.041, 0.0, False),
        (0.069, 0.01, True),
        (0.071, 0.01, False),
    ],
)
def test_a_prediction_may_miss_by_four_percent_and_three_standard_errors(monkeypatch, miss, standard_error, accepted):
    seen = []
    first = fake_simulation(seen, lambda n, _: (1.0 + miss, standard_error) if n == 1 else (1.0, 0.0))
    monkeypatch.setattr(planner, "simulate", first)
    found = plan(MRP, PHI, target_error=1.0, theta_0=THETA_0, seed=7).vrtd
    assert (len(seen) == 1) == accepted
    last = seen[-1]
    assert (last.theta_0 == THETA_0).all()
    assert last.seed == 7
    assert last.error == pytest.approx(found.error, rel=1e-9)
    assert last.n_gradients == found.n_gradients
    factor = 1.0 + miss if accepted else 1.0
    assert found.check == (last.error * factor, last.error * standard_error * accepted, last.n_runs)


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
    assert plan(*SMALL, target_error=0.1).vrtd is not None
    assert len(seen) > 1
    costs = [one.n_gradients for one in seen]
    assert costs[0] == min(costs)


def test_within_a_budget_the_least_error_is_tried_first(monkeypatch):
    seen = []
    monkeypatch.setattr(planner, "simulate", fake_simulation(seen, lambda n, _: (1.0 if n == 5 else 2.0, 0.0)))
    found = plan(MRP, PHI, budget=2000).vrtd
    errors = [one.error for one in seen]
    assert errors[0] == min(errors)
    assert found.error == pytest.approx(errors[-1], rel=1e-9)
    assert len(seen) == 5


def test_what_no_simulation_bears_out_is_no_choice(monkeypatch):
    seen = []
    monkeypatch.setattr(planner, "simulate", fake_simulation(seen, lambda *_: (2.0, 0.0)))
    assert plan(*SMALL, target_error=0.1).vrtd is None
    assert len(seen) == 16


def test_a_plan_too_long_to_simulate_is_not_checked(monkeypatch):
    monkeypatch.setattr(planner, "simulate", lambda *_, **__: pytest.fail("simulated"))
    monkeypatch.setattr(planner, "_MOST_CHECK_GRADIENTS", 10.0)
    found = plan(MRP, PHI, target_error=1.0).vrtd
    assert found.check is None
    assert found.method.startswith("approximation: ")


# Intervals


class Constant:
    def __init__(self, error):
        self._error = error

    def error(self, _):
        return self._error


def with_replicates(monkeypatch, errors, seen=None):
    """Bootstrap replicates that predict these errors, whatever the plan."""
    left = iter(errors)

    def predictions(increments, theta_0, output, largest_step):
        error = next(left)
        if seen is not None:
            seen.append((np.array(theta_0), output))
        return SimpleNamespace(
            td_polish=lambda _: Constant(error), vrtd=lambda _, sizes: {M: Constant(error) for M in sizes}
        )

    monkeypatch.setattr(planner, "bootstrap_increments", lambda *_: iter(errors))
    monkeypatch.setattr(planner, "moment_predictions", predictions)


SAMPLES = {
    sampling: TransitionSample.draw(MRP, PHI, 20_000, sampling=sampling, seed=1) for sampling in ("iid", "markov")
}
Z = norm.ppf((np.arange(200) + 0.5) / 200)


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95])
@pytest.mark.parametrize("shift", [0.0, 0.5, -0.5])
def test_an_interval_holds_the_percentiles_and_the_log_normal_interval(monkeypatch, confidence, shift):
    seen = []
    with_replicates(monkeypatch, np.exp(np.log(0.3) + shift + 0.2 * Z), seen)
    named = {"sampling": "iid", "confidence": confidence, "output": "last", "theta_0": THETA_0}
    found = plan(SAMPLES["iid"], target_error=0.3, **named)
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
        found = plan(SAMPLES["markov"], target_error=target).td
        low, high = found.interval
        assert log(high / target) == pytest.approx(-log(low / target), abs=1e-2)
        shares.append(log(high / target) / found.algorithm.step_size)
    assert shares[0] == pytest.approx(shares[1], rel=0.05)
    tau, limit = 128 / 342, 1.14  # of the chain
    assert shares[0] == pytest.approx(2.5 / (limit * tau), rel=0.2)


def test_a_plan_that_one_replicate_leaves_unstable_is_refused(monkeypatch):
    with_replicates(monkeypatch, [inf] + [0.3] * 199)
    with pytest.raises(vrtd.errors.InvalidInputError, match="must leave the plan stable when it is drawn again"):
        plan(SAMPLES["iid"], target_error=0.3, sampling="iid")


def test_a_confidence_is_only_of_intervals():
    assert plan(MRP, PHI, budget=100, sampling="iid").confidence is None
