"""The planner's answers and its refusals; that plans are good is in test_planner_quality.py."""

import json
from dataclasses import replace
from functools import cache
from math import inf
from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers.notebooks import check_repr, read_summary
from vrtd.errors import InvalidInputError
from vrtd.problems import Transitions
from vrtd.theory import exact_curve, instance_optimal, plan, stability_limit
from vrtd.theory.estimation import estimate_increments
from vrtd.theory.predictions import Prediction
from vrtd.theory.search import MOST_COST

PROBLEM = vrtd.problems.random_mdp()
NORMALISED = vrtd.LinearProblem(PROBLEM.mrp, PROBLEM.phi / np.linalg.norm(PROBLEM.phi, axis=1).max())
WALK = vrtd.problems.random_walk()
SMALL = vrtd.problems.random_mdp(n_states=10, n_features=2, normalize=True)


@cache
def sample(n: int = 5000, sampling: Any = "iid", seed: int = 1) -> Transitions:
    return vrtd.record(PROBLEM, n, sampling=sampling, seed=seed, shuffle=False)


@cache
def plan_problem(**options: Any) -> Any:
    """The plan for PROBLEM, shared by the tests that only look at it."""
    return plan(PROBLEM, **options)


def with_a_rare_feature(n: int) -> Transitions:
    """Rows of which one alone has the second feature: a replicate of the bootstrap lacks it with probability 0.37."""
    rng = np.random.default_rng(0)
    phi = np.column_stack([rng.normal(size=n), np.arange(n) == 7])
    return Transitions(phi, rng.normal(size=n), np.zeros((n, 2)), 0.9)


@pytest.mark.parametrize("sampling", ["iid", "markov"])
def test_the_predicted_curve_is_the_exact_one(sampling: Any) -> None:
    found = plan_problem(target_error=0.5, sampling=sampling)
    for choice in (found.td, found.vrtd):
        assert choice is not None
        per_epoch = choice.n_gradients // choice.n_epochs
        curve = exact_curve(
            PROBLEM, choice.algorithm,
            sampling=sampling, n_gradients=choice.n_gradients, checkpoints=choice.curve_epochs * per_epoch,
        )  # fmt: skip
        assert np.allclose(curve.values("squared_error")[0], choice.curve_error, rtol=1e-8)
        assert choice.curve_epochs[0] == 0
        assert choice.curve_epochs[-1] == choice.n_epochs
        assert choice.curve_error[-1] <= 0.5
        if choice.check is None:  # else the error is the simulated one
            assert choice.curve_error[-1] == pytest.approx(choice.error)


def test_fewer_epochs_do_not_reach_the_target() -> None:
    found = plan_problem(target_error=0.5, sampling="iid")
    for choice in (found.td, found.vrtd):
        assert choice is not None
        short = (choice.n_epochs - 1) * (choice.n_gradients // choice.n_epochs)
        curve = exact_curve(PROBLEM, choice.algorithm, sampling="iid", n_gradients=short, checkpoints=1)
        assert curve.values("squared_error")[0, -1] > 0.5


@pytest.mark.slow
def test_no_plan_beats_the_instance_optimal_error() -> None:
    for sampling in ("iid", "markov"):
        found = plan(PROBLEM, target_error=0.01, sampling=sampling)  # type: ignore[arg-type]
        assert found.best.n_samples > 0.9 * instance_optimal(PROBLEM, sampling) / 0.01  # type: ignore[arg-type]


def test_a_larger_budget_or_target_costs_more_or_less() -> None:
    errors = [plan(PROBLEM, budget=n, sampling="iid").best.error for n in (100, 1000, 10_000)]
    assert errors[0] > errors[1] > errors[2]
    costs = [plan_problem(target_error=t, sampling="iid").best.n_gradients for t in (1.0, 0.3, 0.1)]
    assert costs[0] < costs[1] < costs[2]


@pytest.mark.parametrize("sampling", ["iid", "markov"])
@pytest.mark.parametrize("objective", ["gradients", "samples"])
def test_a_budget_is_kept(sampling: Any, objective: Any) -> None:
    found = plan(PROBLEM, budget=1001, sampling=sampling, objective=objective)
    for choice in (found.td, found.vrtd):
        assert choice is not None
        assert 900 < choice.cost(objective) <= 1001
    samples_per_gradient = 0.5 if sampling == "markov" else 1.0
    assert found.vrtd is not None
    assert found.vrtd.n_samples == samples_per_gradient * found.vrtd.n_gradients


@pytest.mark.slow
def test_an_approximate_plan_is_checked_by_simulation() -> None:
    found = plan_problem(target_error=1.0, seed=3)
    assert found.td is not None
    assert found.td.prediction is Prediction.EXACT
    assert found.td.check is None
    assert found.vrtd is not None
    assert found.vrtd.prediction is Prediction.ALGORITHM_2
    check = found.vrtd.check
    assert check is not None
    assert found.vrtd.error == check.error <= 1.03 - 2.0 * check.standard_error
    again = plan(PROBLEM, target_error=1.0, seed=3).vrtd
    assert again is not None
    assert again.check == check
    other = plan(PROBLEM, target_error=1.0, seed=4).vrtd
    assert other is not None
    assert other.check != check


@pytest.mark.slow
def test_the_check_moves_a_plan_to_settings_that_meet_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many features as states: the approximation fails for large steps with small batches."""
    rng = np.random.default_rng(8)
    P = rng.random((4, 4))
    mrp = vrtd.MarkovRewardProcess(P / P.sum(axis=1, keepdims=True), rng.normal(size=(4, 4)), 0.9)
    problem = vrtd.LinearProblem(mrp, rng.normal(size=(4, 4)))
    target = 0.05 * (problem.theta_star**2).sum()
    found = plan(problem, target_error=target).vrtd
    monkeypatch.setattr("vrtd.theory.planner._CHECK_TOLERANCE", inf)
    unchecked = plan(problem, target_error=target).vrtd
    assert found is not None
    assert found.check is not None
    assert unchecked is not None
    assert unchecked.check is not None
    assert unchecked.check.error > 1.08 * target + 6.0 * unchecked.check.standard_error
    assert found.check.error <= 1.03 * target - 2.0 * found.check.standard_error
    assert found.n_gradients > unchecked.n_gradients


def test_an_outputs_plan_is_for_that_output() -> None:
    costs = {}
    for output in ("random", "last", "average"):
        choice = plan_problem(target_error=0.3, sampling="iid", output=output).vrtd
        assert choice is not None
        assert choice.algorithm.settings["output"] == output
        costs[output] = choice.n_gradients
    assert len(set(costs.values())) == 3


def test_theta_0_matters() -> None:
    near = plan(PROBLEM, target_error=0.1, sampling="iid", theta_0=PROBLEM.theta_star + 0.5)
    far = plan_problem(target_error=0.1, sampling="iid")
    assert near.best.n_gradients < far.best.n_gradients
    assert near.initial_error == pytest.approx(1.0)


def test_guaranteed_on_a_trajectory_projects() -> None:
    found = plan(NORMALISED, target_error=1.0, mode="guaranteed")
    norm = np.linalg.norm(NORMALISED.theta_star)
    for choice in (found.td, found.vrtd):
        assert choice is not None
        assert choice.algorithm.radius == pytest.approx(norm)
        assert choice.prediction.basis == "bound"
        assert choice.method.startswith("bound: ")
    assert plan(NORMALISED, target_error=1.0, mode="guaranteed", radius=20.0).best.algorithm.radius == 20.0


def test_a_bound_that_says_nothing_is_no_choice() -> None:
    found = plan(NORMALISED, budget=10**6, mode="guaranteed")
    assert found.vrtd is None
    assert found.best is found.td
    assert found.advice.endswith("VRTD has no suitable settings.")


@pytest.mark.parametrize("sampling", ["iid", "markov"])
def test_an_estimated_plan_comes_close_and_says_how_sure_it_is(sampling: Any) -> None:
    exact = plan_problem(target_error=0.3, sampling=sampling)
    found = plan(sample(50_000, sampling), target_error=0.3, sampling=sampling, confidence=0.8)
    assert found.mode == "estimated"
    assert found.confidence == 0.8
    for choice, truth in ((found.td, exact.td), (found.vrtd, exact.vrtd)):
        assert choice is not None
        assert truth is not None
        assert 0.7 < choice.n_gradients / truth.n_gradients < 2.5  # steps are kept small on a trajectory
        assert choice.basis == "estimate"
        assert choice.interval is not None
        assert choice.interval[0] < choice.error < choice.interval[1]
    wider = plan(sample(50_000, sampling), target_error=0.3, sampling=sampling, confidence=0.99)
    assert wider.td is not None
    assert wider.td.interval is not None
    assert found.td is not None
    assert found.td.interval is not None
    assert wider.td.interval[1] > found.td.interval[1]
    assert found.initial_error == pytest.approx(
        float((estimate_increments(sample(50_000, sampling), sampling).theta_star ** 2).sum())
    )


def test_advice_names_the_better_one() -> None:
    found = plan_problem(target_error=0.1, sampling="iid")
    assert found.best is found.td
    assert found.advice.startswith("Use TD with step 0.005")
    assert "times as many" in found.advice
    budgeted = plan(PROBLEM, budget=1000, sampling="iid", objective="samples")
    assert "after 1,000 samples" in budgeted.advice
    assert "needs about" in plan(sample(), target_error=0.5, sampling="iid").advice
    assert "is guaranteed to need at most" in plan(PROBLEM, target_error=1.0, sampling="iid", mode="guaranteed").advice


def test_a_plan_is_plain_data_and_a_picture(tmp_path: Any) -> None:
    for found in (
        plan(WALK, target_error=0.01),
        plan_problem(budget=500, sampling="iid"),
        plan(sample(), budget=500, sampling="iid"),
    ):
        read = json.loads(json.dumps(found.as_dict(), allow_nan=False))
        assert read["use"] in ("td", "vrtd")
        assert read["td"]["n_gradients"] == found.td.n_gradients  # type: ignore[union-attr]
        assert read["advice"] == found.advice
        axes = found.plot()
        labels = [text.get_text() for text in axes.get_legend().get_texts()]  # type: ignore[union-attr]
        assert any(label.startswith("TD with step") for label in labels)
        assert ("budget" if found.budget else "target") in labels
        found.to_csv(tmp_path / "plan.csv")
        lines = (tmp_path / "plan.csv").read_text().splitlines()
        assert lines[0] == "algorithm,n_gradients,squared_error"
        assert {line.split(",")[0] for line in lines[1:]} == {"td", "vrtd"}


def test_a_plan_is_shown_on_two_lines_and_in_notebooks() -> None:
    found = plan_problem(target_error=0.1, sampling="iid")
    head, advice = check_repr(found, 400, 2).splitlines()
    assert head == "Plan(exact, iid, target_error 0.1 with the fewest pseudo-gradients)"
    assert advice.strip() == found.advice
    shown = read_summary(found)
    assert (shown.title, shown.has_figure) == ("Plan", True)
    assert list(shown.entries) == ["goal", "how", "advice", "TD", "VRTD"]
    assert shown.entries["TD"].startswith(found.td.settings)
    best = check_repr(found.best)
    assert best.startswith("Choice(TD with step ")
    assert best.endswith(f"squared error {found.best.error:.4g} (exact))")
    budgeted = plan(sample(), budget=500, sampling="iid")
    assert "budget of 500 pseudo-gradients" in check_repr(budgeted, 400, 2)
    low, high = budgeted.best.interval  # type: ignore[misc]
    assert f" [{low:.4g}, {high:.4g}] (estimate)" in check_repr(budgeted.best, 300)


@pytest.mark.parametrize("sampling", ["iid", "markov"])
def test_estimates_say_what_they_are(sampling: Any) -> None:
    sample = vrtd.record(PROBLEM, 20_000, sampling=sampling, seed=1, shuffle=False)
    found = plan(sample, target_error=0.3, sampling=sampling)
    td, own = (
        ("approximation: to first order in the step", "approximation: inner samples")
        if sampling == "markov"
        else ("exact", "exact")
    )
    assert found.td.method == f"estimate: {td}"
    assert found.vrtd.method.startswith(f"estimate: {own}")


def test_one_epoch_is_one() -> None:
    found = plan(PROBLEM, budget=4, sampling="iid").vrtd
    assert (found.n_epochs, found.algorithm.batch_size) == (1, 2)
    assert found.settings.endswith("batch 2, 1 epoch")


def test_a_radius_that_just_misses_theta_star_is_refused() -> None:
    norm = float(np.linalg.norm(PROBLEM.theta_star))
    with pytest.raises(InvalidInputError, match=r"radius must be at least \|theta_star\|"):
        plan(PROBLEM, budget=100, sampling="iid", radius=0.999 * norm)
    found = plan(PROBLEM, budget=100, sampling="iid", radius=1.001 * norm)
    assert found.td.algorithm.radius == found.vrtd.algorithm.radius == 1.001 * norm


@pytest.mark.slow
def test_which_to_use_depends_on_what_costs() -> None:
    """On a trajectory VRTD evaluates two pseudo-gradients a sample, TD one: the same plan, half the price."""
    by_gradients, by_samples = (plan(SMALL, target_error=0.05, objective=o) for o in ("gradients", "samples"))
    assert by_gradients.vrtd.n_gradients == by_gradients.vrtd.cost("gradients") == 2 * by_gradients.vrtd.cost("samples")
    assert by_samples.td.cost("samples") == by_samples.td.cost("gradients")
    ratio = [p.vrtd.cost(p.objective) / p.td.cost(p.objective) for p in (by_gradients, by_samples)]
    assert ratio[1] == pytest.approx(ratio[0] / 2.0, rel=0.1)
    found = plan(SMALL, budget=500, objective="samples")
    assert found._curve(found.vrtd)[0][-1] == found.vrtd.n_samples


def test_td_is_used_when_they_tie() -> None:
    found = plan_problem(target_error=0.5, sampling="iid")
    tied = replace(found, vrtd=replace(found.vrtd, n_gradients=found.td.n_gradients))
    assert tied.best is tied.td
    found = plan_problem(budget=500, sampling="iid")
    assert replace(found, vrtd=replace(found.vrtd, error=found.td.error)).best is found.td
    dearer = replace(found, vrtd=replace(found.vrtd, error=0.5 * found.td.error))
    assert dearer.best is dearer.vrtd
    assert dearer.advice.startswith("Use VRTD with")
    assert f"TD's is {found.td.error:.4g} at best" in dearer.advice


def test_td_that_cannot_be_followed_is_an_approximation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vrtd.theory.markov.MarkovTD.until_slow", lambda *_: None)
    monkeypatch.setattr("vrtd.theory.orbits.Followed.reach", 5)
    assert plan(PROBLEM, budget=2000).td.prediction is Prediction.FIRST_ORDER


def test_curves_are_drawn_in_steps_where_every_epoch_is_a_point() -> None:
    few, many = (plan(PROBLEM, budget=n, sampling="iid").plot().get_lines()[0] for n in (50, 50_000))
    assert (few.get_drawstyle(), many.get_drawstyle()) == ("steps-post", "default")


def test_a_prediction_that_leaves_the_projection_out_says_so() -> None:
    norm = float(np.linalg.norm(PROBLEM.theta_star))
    near = plan(PROBLEM, budget=50, sampling="iid", radius=1.0001 * norm)
    assert near.td.method == near.vrtd.method == "exact: if the radius is never reached"
    checked = plan(PROBLEM, target_error=1.0, radius=20.0)
    assert checked.td.method == "exact: if the radius is never reached"
    assert checked.vrtd.method.endswith("; if the radius is never reached")
    assert checked.vrtd.algorithm.radius == 20.0
    assert checked.vrtd.check is not None


def test_a_given_radius_is_that_of_both_bounds() -> None:
    near, far = (plan(NORMALISED, target_error=1.0, mode="guaranteed", radius=radius) for radius in (9.0, 20.0))
    for name in ("td", "vrtd"):
        assert getattr(far, name).n_gradients > 2 * getattr(near, name).n_gradients


@pytest.mark.parametrize("goal", [{"target_error": 7.5}, {"budget": 4}])
def test_large_steps_on_a_trajectory_are_followed_update_by_update(goal: Any) -> None:
    """Near the stability limit there is no slow subspace, and a first-order prediction would be far off."""
    found = plan(PROBLEM, **goal).td
    curve = exact_curve(PROBLEM, found.algorithm, n_gradients=found.n_gradients, checkpoints=1)
    assert found.error == pytest.approx(curve.values("squared_error")[0, -1], rel=1e-8)
    assert found.prediction is Prediction.EXACT
    assert found.algorithm.step_size < stability_limit(PROBLEM, "markov")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plan(PROBLEM), "either target_error or budget must be passed, but they are None and None"),
        (lambda: plan(PROBLEM, target_error=0.1, budget=10), "either target_error or budget.*they are 0.1 and 10"),
        (lambda: plan(PROBLEM, target_error=-1), "target_error must be a positive, finite number, but got -1"),
        (
            lambda: plan(PROBLEM, target_error=float("nan")),
            "target_error must be a positive, finite number, but got nan",
        ),
        (lambda: plan(PROBLEM, budget=3.5), "budget must be a whole number"),
        (lambda: plan(PROBLEM, budget=3), "at least 4, which is one epoch of VRTD with a batch of two, .*is 3"),
        (
            lambda: plan(PROBLEM, budget=1, objective="samples"),
            "at least 2, which is one epoch of VRTD with a batch of two, .*is 1",
        ),
        (lambda: plan(PROBLEM, budget=MOST_COST + 1), "at most 1e15"),
        (
            lambda: plan(PROBLEM, target_error=30.0),
            "below the initial error, 24.96.*is 30.0. Lower the target; theta_0 already meets this one",
        ),
        (
            lambda: plan(PROBLEM, target_error=1e-15, sampling="iid"),
            "1e-15 is not reachable at a cost of 1e.15, where the least error is .*: "
            "in the long run no such method is below the instance-optimal error, 34.*Raise it",
        ),
        (lambda: plan(PROBLEM, target_error=0.1, sampling="both"), "sampling must be one of"),  # type: ignore[arg-type]
        (lambda: plan(PROBLEM, target_error=0.1, objective="time"), "objective must be one of"),  # type: ignore[arg-type]
        (lambda: plan(PROBLEM, target_error=0.1, mode="exakt"), "mode must be one of.*Did you mean 'exact'"),  # type: ignore[arg-type]
        (lambda: plan(PROBLEM, target_error=0.1, output="first"), "output must be one of"),  # type: ignore[arg-type]
        (lambda: plan(PROBLEM, target_error=0.1, seed=-1), "seed must be a whole number of at least 0"),
        (lambda: plan(PROBLEM, target_error=0.1, confidence=2.0), "confidence must lie in"),
        (
            lambda: plan(PROBLEM, target_error=0.1, radius=1.0),
            r"at least \|theta_star\| = 4.99.*, but is 1.0, .*above 15.97",
        ),
        (
            lambda: plan(PROBLEM, target_error=0.1, sampling="iid", mode="guaranteed", radius=9.0),
            "radius must not be set for the bounds with independent samples, but is 9.0. Drop the radius",
        ),
        (
            lambda: plan(NORMALISED, target_error=1.0, mode="guaranteed", radius=9.0, theta_0=[20.0, 0, 0, 0]),
            "radius must be at least 20 for the bounds, .*theta_star and theta_0, but is 9.0. Raise it",
        ),
        (lambda: plan(PROBLEM, target_error=0.1, theta_0=[1.0]), r"theta_0 must have the shape \(4,\)"),
        (
            lambda: plan(PROBLEM.mrp, target_error=0.1),
            "a LinearProblem or Transitions, but is of type MarkovRewardProcess",
        ),  # type: ignore[arg-type]
        (lambda: plan("chain", target_error=0.1), "problem must be .* or Transitions, but is of type str"),  # type: ignore[arg-type]
        (lambda: plan(PROBLEM, target_error=0.1, mode="estimated"), 'mode="estimated" needs a sample'),
        (
            lambda: plan(sample(), target_error=0.1, mode="guaranteed"),
            'mode must be "estimated" for a sample.*is .guaranteed',
        ),
        (
            lambda: plan(Transitions(np.ones((99, 2)), np.ones(99), np.ones((99, 2)), 0.9), target_error=0.1),
            "phi must have full column rank 2 on the sample, but has rank 1. Remove dependent features",
        ),
        (lambda: plan(sample(30, "markov"), target_error=0.1), "at least 20 nearly independent blocks"),
        (
            lambda: plan(PROBLEM, target_error=0.1, mode="guaranteed"),
            r"\|phi\(s\)\| <= 1 .*fails: the largest norm is 1.59588; divide the features by 1.59588",
        ),
        (
            lambda: plan(PROBLEM, target_error=0.1, sampling="iid", mode="guaranteed", output="last"),
            'output must be "random" or "average" for the bounds',
        ),
        (
            lambda: plan(NORMALISED, budget=1000, mode="guaranteed"),
            "budget 1000 is too small: no bound is below the initial error. Raise it, or plan with mode=.exact.",
        ),
        (
            lambda: plan(with_a_rare_feature(200), budget=1000, sampling="iid"),
            "A is singular on a bootstrap sample of the 200 transitions",
        ),
        (
            lambda: plan(NORMALISED, target_error=1e-9, mode="guaranteed"),
            "not reachable at a cost of 1e.15.*the bounds need larger batches",
        ),
    ],
)
def test_what_cannot_be_planned_is_refused(call: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        call()
