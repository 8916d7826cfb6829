"""Details of plans, samples and curves: labels, ties, degrees of freedom, what is refused."""

import math
from dataclasses import replace
from math import log

import numpy as np
import pytest
from scipy.stats import binomtest, chi2

import vrtd
from tests.helpers.statistics import FAMILY_RATE
from vrtd.errors import InvalidInputError
from vrtd.problems import LinearProblem, MarkovRewardProcess, Transitions
from vrtd.theory import (
    autocorrelation_time,
    exact_curve,
    plan,
    stability_limit,
)
from vrtd.theory.increments import correlated_increments, independent_increments
from vrtd.theory.markov import MarkovTD
from vrtd.theory.moments import epoch_maps
from vrtd.theory.orbits import TDOrbits, epoch_orbit
from vrtd.theory.predictions import exact_predictions
from vrtd.theory.search import _follow, least_cost_td

PROBLEM = vrtd.problems.random_mdp()
TWO = MarkovRewardProcess([[0.7, 0.3], [0.4, 0.6]], [[1, 0], [0, 2]], 0.9)
SMALL = vrtd.problems.random_mdp(n_states=10, n_features=2, normalize=True)


@pytest.mark.parametrize("sampling", ["iid", "markov"])
def test_estimates_say_what_they_are(sampling):
    sample = vrtd.record(PROBLEM, 20_000, sampling=sampling, seed=1, shuffle=False)
    found = plan(sample, target_error=0.3, sampling=sampling)
    td, own = (
        ("approximation: to first order in the step", "approximation: inner samples")
        if sampling == "markov"
        else ("exact", "exact")
    )
    assert found.td.method == f"estimate: {td}"
    assert found.vrtd.method.startswith(f"estimate: {own}")


def test_one_epoch_is_one():
    found = plan(PROBLEM, budget=4, sampling="iid").vrtd
    assert (found.n_epochs, found.algorithm.batch_size) == (1, 2)
    assert found.settings.endswith("batch 2, 1 epoch")


def test_steps_of_vrtd_may_pass_the_limit_of_td():
    predictions = exact_predictions(PROBLEM, "iid", np.zeros(4), "random")
    assert predictions.largest_vrtd_step == pytest.approx(2.0 * stability_limit(PROBLEM))


def test_a_radius_that_just_misses_theta_star_is_refused():
    norm = float(np.linalg.norm(PROBLEM.theta_star))
    with pytest.raises(InvalidInputError, match=r"radius must be at least \|theta_star\|"):
        plan(PROBLEM, budget=100, sampling="iid", radius=0.999 * norm)
    found = plan(PROBLEM, budget=100, sampling="iid", radius=1.001 * norm)
    assert found.td.algorithm.radius == found.vrtd.algorithm.radius == 1.001 * norm


def test_which_to_use_depends_on_what_costs():
    """On a trajectory VRTD evaluates two pseudo-gradients a sample, TD one: the same plan, half the price."""
    by_gradients, by_samples = (plan(SMALL, target_error=0.05, objective=o) for o in ("gradients", "samples"))
    assert by_gradients.vrtd.n_gradients == by_gradients.vrtd.cost("gradients") == 2 * by_gradients.vrtd.cost("samples")
    assert by_samples.td.cost("samples") == by_samples.td.cost("gradients")
    ratio = [p.vrtd.cost(p.objective) / p.td.cost(p.objective) for p in (by_gradients, by_samples)]
    assert ratio[1] == pytest.approx(ratio[0] / 2.0, rel=0.1)
    found = plan(SMALL, budget=500, objective="samples")
    assert found._curve(found.vrtd)[0][-1] == found.vrtd.n_samples


def test_following_a_minimum_that_lies_outside():
    step, best = _follow(lambda s: abs(log(s / 20.0)), 1.0)
    assert step == pytest.approx(20.0, rel=0.1)
    assert best < 0.1


def test_a_trajectory_begins_in_a_stationary_state():
    mrp = MarkovRewardProcess([[0.25, 0.75], [1.0, 0.0]], [[1.0, -2.0], [3.0, 0.0]], 0.9)
    problem = LinearProblem(mrp, [[1.0], [0.5]])
    firsts = [vrtd.record(problem, 1, seed=seed, shuffle=False).phi[0, 0] == 1.0 for seed in range(2000)]
    assert binomtest(sum(firsts), 2000, 4 / 7).pvalue > FAMILY_RATE


@pytest.mark.parametrize(("scale", "n_directions"), [(1.0, 2), (0.01, 1)])
def test_degrees_of_freedom_count_the_directions_of_the_noise(scale, n_directions):
    """Noise of two independent, equal coordinates, or with all of it in one."""
    fair = MarkovRewardProcess([[0.5, 0.5], [0.5, 0.5]], [[1.0, -1.0], [-1.0, 1.0]], 0.0)
    sample = vrtd.record(LinearProblem(fair, np.diag([1.0, scale])), 40_000, seed=1, shuffle=False)
    found = autocorrelation_time(sample, confidence=0.9)
    degrees = n_directions * (40_000 // found.block - 1)
    assert found.low == pytest.approx(found.tau * degrees / chi2.ppf(0.95, degrees), rel=0.01)
    assert found.high == pytest.approx(found.tau * degrees / chi2.ppf(0.05, degrees), rel=0.01)


def test_a_distribution_that_is_nearly_stationary_is_not():
    with pytest.raises(InvalidInputError, match="own stationary distribution"):
        correlated_increments(LinearProblem(TWO, [[1.0], [0.5]], [4 / 7 + 1e-6, 3 / 7 - 1e-6]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: exact_curve(PROBLEM, vrtd.VRTD(0.1, 5), initial=3),
            "a first state that is stationary; got initial 3",
        ),
        (lambda: exact_curve(PROBLEM, vrtd.VRTD(0.1, 2, inner="resample"), sampling="iid"), "got inner='resample'"),
    ],
)
def test_what_has_no_curve_is_refused(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()


def test_a_mean_is_not_shown_where_the_error_has_overflowed():
    named = {"sampling": "iid", "n_gradients": 20_000, "checkpoints": np.arange(0, 20_001)}
    gone = int(exact_curve(PROBLEM, vrtd.TD(1.3), **named).diverged_at[0])
    curve = exact_curve(PROBLEM, vrtd.TD(1.3), **named | {"n_gradients": gone, "checkpoints": [gone]})
    assert curve.diverged_at[0] == gone
    assert np.isnan(curve.theta).all()


def test_the_longest_curve_of_a_large_chain_does_not_drift():
    curve = exact_curve(PROBLEM, vrtd.TD(0.1), n_gradients=2**53, checkpoints=2)
    limit = MarkovTD(PROBLEM).stationary(0.1).trace()
    assert curve.values("squared_error")[0, -1] == pytest.approx(limit, rel=1e-9)


def test_td_is_used_when_they_tie():
    found = plan(PROBLEM, target_error=0.5, sampling="iid")
    tied = replace(found, vrtd=replace(found.vrtd, n_gradients=found.td.n_gradients))
    assert tied.best is tied.td
    found = plan(PROBLEM, budget=500, sampling="iid")
    assert replace(found, vrtd=replace(found.vrtd, error=found.td.error)).best is found.td
    dearer = replace(found, vrtd=replace(found.vrtd, error=0.5 * found.td.error))
    assert dearer.best is dearer.vrtd
    assert dearer.advice.startswith("Use VRTD with")
    assert f"TD's is {found.td.error:.4g} at best" in dearer.advice


class Halving:
    """Errors that start at 1 and shrink by the step to a floor, if the step is small enough."""

    def __init__(self, step, largest):
        self._step = step if step <= largest else 0.0

    def error(self, k):
        return (1.0 - self._step) ** k

    def first_below(self, target, most):
        if not self._step:
            return None
        n = math.ceil(math.log(target) / math.log(1.0 - self._step))
        return n if n <= most else None


def test_a_better_prediction_that_needs_far_smaller_steps_is_followed_there():
    found = least_cost_td(lambda a: Halving(a, 0.9), lambda a: Halving(a, 1e-4), 0.9, 0.5)
    assert found is not None
    assert 0.5e-4 < found.step_size <= 1e-4
    assert found.error <= 0.5
    assert least_cost_td(lambda a: Halving(a, 0.9), lambda a: Halving(a, 0.0), 0.9, 0.5) is None


def test_td_that_cannot_be_followed_is_an_approximation(monkeypatch):
    monkeypatch.setattr("vrtd.theory.markov.MarkovTD.until_slow", lambda *_: None)
    monkeypatch.setattr("vrtd.theory.orbits.Followed.reach", 5)
    assert plan(PROBLEM, budget=2000).td.method == "approximation: to first order in the step"


def test_curves_are_drawn_in_steps_where_every_epoch_is_a_point():
    few, many = (plan(PROBLEM, budget=n, sampling="iid").plot().get_lines()[0] for n in (50, 50_000))
    assert (few.get_drawstyle(), many.get_drawstyle()) == ("steps-post", "default")


def test_a_negative_discount_is_refused():
    with pytest.raises(InvalidInputError, match=r"discount must be in \[0, 1\]; got -0.1 in row 0"):
        Transitions(np.eye(2), [1.0, 2.0], np.eye(2), -0.1)


def test_a_prediction_that_leaves_the_projection_out_says_so():
    norm = float(np.linalg.norm(PROBLEM.theta_star))
    near = plan(PROBLEM, budget=50, sampling="iid", radius=1.0001 * norm)
    assert near.td.method == near.vrtd.method == "exact: if the radius is never reached"
    checked = plan(PROBLEM, target_error=1.0, radius=20.0)
    assert checked.td.method == "exact: if the radius is never reached"
    assert checked.vrtd.method.endswith("; if the radius is never reached")
    assert checked.vrtd.algorithm.radius == 20.0
    assert checked.vrtd.check is not None


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
@pytest.mark.parametrize("budget", [60, 1001, 30_000])
@pytest.mark.parametrize("seed", range(3))
def test_a_budget_is_spent_nearly_as_well_as_on_a_grid(seed, budget):
    problem = vrtd.problems.random_mdp(seed=seed, n_states=10, n_features=2, normalize=True)
    increments, zero, limit = independent_increments(problem), np.zeros(2), stability_limit(problem)
    found = plan(problem, budget=budget, sampling="iid")
    td = TDOrbits(increments, zero)
    assert found.td.error <= 1.001 * min(td(a).error(budget) for a in limit * np.geomspace(1e-4, 1.0, 400))
    sizes = sorted({budget // (2 * n) for n in np.unique(np.geomspace(1, budget // 4, 60).astype(int)).tolist()})
    best = np.inf
    for a in 2.0 * limit * np.geomspace(1e-4, 1.0, 80):
        for M, epoch in epoch_maps(increments, float(a), sizes, "random").items():
            best = min(best, epoch_orbit(increments, epoch, zero).error(budget // (2 * M)))
    assert found.vrtd.error <= 1.02 * best


def test_a_given_radius_is_that_of_both_bounds():
    normalised = LinearProblem(PROBLEM.mrp, PROBLEM.phi / np.linalg.norm(PROBLEM.phi, axis=1).max())
    near, far = (plan(normalised, target_error=1.0, mode="guaranteed", radius=radius) for radius in (9.0, 20.0))
    for name in ("td", "vrtd"):
        assert getattr(far, name).n_gradients > 2 * getattr(near, name).n_gradients


@pytest.mark.parametrize("goal", [{"target_error": 7.5}, {"budget": 4}])
def test_large_steps_on_a_trajectory_are_followed_update_by_update(goal):
    """Near the stability limit there is no slow subspace, and a first-order prediction would be far off."""
    found = plan(PROBLEM, **goal).td
    curve = exact_curve(PROBLEM, found.algorithm, n_gradients=found.n_gradients, checkpoints=1)
    assert found.error == pytest.approx(curve.values("squared_error")[0, -1], rel=1e-8)
    assert found.method == "exact"
    assert found.algorithm.step_size < stability_limit(PROBLEM, "markov")
