"""The search over settings: that it follows better predictions, and finds what a fine grid finds."""

from math import log

import numpy as np
import pytest

import vrtd
from vrtd.theory import plan, stability_limit
from vrtd.theory.increments import independent_increments
from vrtd.theory.moments import epoch_maps
from vrtd.theory.orbits import Errors, TDOrbits, epoch_orbit
from vrtd.theory.predictions import EpochPredictor, Prediction, exact_predictor
from vrtd.theory.search import Goal, Search, _follow

PROBLEM = vrtd.problems.random_mdp()


def test_steps_of_vrtd_may_pass_the_limit_of_td():
    predictor = exact_predictor(PROBLEM, "iid", np.zeros(4), "random")
    assert predictor.largest_vrtd_step == pytest.approx(2.0 * stability_limit(PROBLEM))


def test_following_a_minimum_that_lies_outside():
    step, best = _follow(lambda s: abs(log(s / 20.0)), 1.0)
    assert step == pytest.approx(20.0, rel=0.1)
    assert best < 0.1


class Halving(Errors):
    """Errors that start at 1 and shrink by the step, if the step is small enough."""

    def __init__(self, step, largest):
        self._step = step if step <= largest else 0.0
        self.early = np.ones(1)

    def error(self, k):
        return (1.0 - self._step) ** k


class HalvingPredictor(EpochPredictor):
    """TD, predicted to converge with steps up to `largest`; a cheap prediction allows steps up to 0.9."""

    largest_step = largest_vrtd_step = 0.9

    def __init__(self, largest):
        self._largest = largest
        self.cheap_td = lambda step: Halving(step, 0.9)

    def errors(self, step, sizes):
        return {M: Halving(step, self._largest) for M in sizes}

    def prediction(self, step, batch_size):
        return Prediction.EXACT


def test_a_better_prediction_that_needs_far_smaller_steps_is_followed_there():
    found = Search(HalvingPredictor(1e-4)).td(Goal(target=0.5))
    assert found is not None
    assert 0.5e-4 < found.step_size <= 1e-4
    assert found.error <= 0.5
    assert Search(HalvingPredictor(0.0)).td(Goal(target=0.5)) is None


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


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
@pytest.mark.parametrize(("gamma", "share"), [(0.5, 1e-2), (0.8, 1e-5), (0.95, 1e-5)])
def test_a_target_is_reached_nearly_as_cheaply_as_on_a_grid(gamma, share):
    """Few long epochs, for which the best step is flat and far below the largest."""
    mrp = vrtd.MarkovRewardProcess(np.full((2, 2), 0.5), np.array([0.9, -1.0]), gamma)
    problem, theta_0 = vrtd.LinearProblem(mrp, np.array([[1.0], [0.9]])), np.ones(1)
    target = share * float(((theta_0 - problem.theta_star) ** 2).sum())
    predictor = exact_predictor(problem, "iid", theta_0, "random")
    td, vrtd_ = Search(predictor).td(Goal(target)), Search(predictor).vrtd(Goal(target))
    assert max(td.error, vrtd_.error) <= target
    steps = predictor.largest_vrtd_step * np.geomspace(1e-7, 1.0, 150)
    assert predictor.grid(steps / 2.0, [(1, int(0.99 * td.cost))]).min() > target
    epochs = [1, 2, 3, 4, 5, 7, 10, int(0.99 * vrtd_.cost / 4.0)]
    assert predictor.grid(steps, [(int(0.99 * vrtd_.cost / (2 * n)), n) for n in epochs]).min() > target
