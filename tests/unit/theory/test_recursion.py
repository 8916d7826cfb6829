"""Plug-in moments of the recursions: against exact ones, against runs, and as intervals."""

from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import stats

import vrtd
from tests.helpers.statistics import FAMILY_RATE
from vrtd.errors import InvalidInputError
from vrtd.problems import Transitions
from vrtd.theory.increments import correlated_increments
from vrtd.theory.moments import epoch_maps
from vrtd.theory.recursion import recursion_moments
from vrtd.theory.symmetric import unpack

PROBLEM = vrtd.problems.random_mdp()


@cache
def long_sample(name: str = "random_mdp") -> Transitions:
    return vrtd.record(vrtd.problems.LIBRARY[name](), 40_000, seed=1, shuffle=False)


@pytest.mark.parametrize("output", ["average", "random", "last"])
@pytest.mark.parametrize(("step", "M", "n"), [(0.02, 200, 60), (0.05, 500, 12), (0.01, 1000, 10)])
def test_epochs_are_near_the_map_of_the_chain(step: float, M: int, n: int, output: Any) -> None:
    increments = correlated_increments(PROBLEM)
    path = epoch_maps(increments, step, [M], output)[M].orbit(increments.start(np.zeros(4)), np.array([n]))
    Y = unpack(path[0], 5)
    covariance = Y[:4, :4] - np.outer(Y[:4, 4], Y[:4, 4])
    found = recursion_moments(long_sample(), [(step, M, n)], None, output)
    assert np.abs(np.sqrt(np.diag(found.covariance) / np.diag(covariance)) - 1.0).max() < 0.08
    assert np.linalg.norm(found.mean - Y[:4, 4]) < 0.1 * np.sqrt(np.trace(covariance)) + 0.05 * np.linalg.norm(Y[:4, 4])


@pytest.mark.parametrize("name", ["random_mdp", "boyan_chain"])
@pytest.mark.parametrize(
    ("step", "M", "n", "output"),
    [
        (0.05, 1, 4000, "average"),
        (0.1, 50, 80, "average"),
        (0.02, 500, 20, "average"),
        (0.1, 2000, 1, "average"),
        (0.05, 200, 40, "last"),
        (0.05, 200, 40, "random"),
    ],
)
@pytest.mark.statistical
@pytest.mark.slow
def test_standard_deviations_are_those_of_runs(name: str, step: float, M: int, n: int, output: Any) -> None:
    """To 12 %: 4 % of noise in the plug-in and in 1500 runs, the rest for what the recursion leaves out."""
    problem = vrtd.problems.LIBRARY[name]()
    found = recursion_moments(long_sample(name), [(step, M, n)], None, output)
    method = vrtd.TD(step) if M == 1 else vrtd.VRTD(step, M, None, output)
    n_gradients = n * method.epoch("markov").n_gradients
    runs = vrtd.simulate(problem, method, n_runs=1500, n_gradients=n_gradients, checkpoints=1, seed=5).theta
    spread = runs.std(axis=0, ddof=1)
    assert np.abs(np.sqrt(np.diag(found.covariance)) / spread - 1.0).max() < 0.12
    bias = runs.mean(axis=0) - problem.theta_star
    assert np.abs(found.mean - bias).max() < 0.2 * spread.max()


def test_legs_follow_each_other() -> None:
    whole = recursion_moments(long_sample(), [(0.02, 500, 8)])
    parts = recursion_moments(
        long_sample(), [(0.02, 500, 1), (0.02, 500, 0), (0.02, 500, 1), (0.02, 500, 2), (0.02, 500, 4)]
    )
    assert np.allclose(whole.mean, parts.mean)
    assert np.allclose(whole.covariance, parts.covariance, rtol=0.02, atol=1e-4)
    none = recursion_moments(long_sample(), [])
    assert np.allclose(none.mean, -none.theta_star)
    assert np.abs(none.covariance).max() < 1e-9
    changed = recursion_moments(long_sample(), [(0.1, 50, 40), (0.01, 2000, 4)])
    assert np.trace(changed.covariance) < 0.5 * np.trace(recursion_moments(long_sample(), [(0.1, 50, 40)]).covariance)


@pytest.mark.statistical
@pytest.mark.slow
def test_many_features_take_the_short_cut() -> None:
    """60 features: the noise that grows with the error has the right trace and the shape of C; runs agree to 20 %."""
    problem = vrtd.problems.random_mdp(seed=2, n_states=100, n_features=60, normalize=True)
    found = recursion_moments(vrtd.record(problem, 20_000, seed=1, shuffle=False), [(0.5, 500, 10)])
    method = vrtd.VRTD(0.5, 500, None, "average")
    runs = vrtd.simulate(problem, method, n_runs=300, n_gradients=10_000, checkpoints=1).theta
    assert abs(np.trace(found.covariance) / runs.var(axis=0, ddof=1).sum() - 1.0) < 0.2


def test_optimal_is_the_covariance_of_the_closed_form() -> None:
    from vrtd.theory import instance_optimal

    assert abs(np.trace(recursion_moments(long_sample(), []).optimal) / instance_optimal(PROBLEM) - 1.0) < 0.1


def intervals(problem: vrtd.LinearProblem, n_replicates: int, shrink: float) -> int:
    """In how many replicates the interval of phi.theta_star at the first state covers, from each one's own pilot."""
    star, row = problem.theta_star, problem.phi[0]
    covered = 0
    for i in range(n_replicates):
        sample = vrtd.record(problem, 3000, seed=i, shuffle=False)
        found = recursion_moments(sample, [(0.05, 1000, 5)])
        method = vrtd.VRTD(0.05, 1000, None, "average")
        theta = vrtd.simulate(problem, method, n_runs=1, n_gradients=10_000, checkpoints=1, seed=900 + i).theta[0]
        half = stats.norm.isf(0.025) * np.sqrt(row @ found.covariance @ row) * shrink + abs(row @ found.mean)
        covered += bool(abs(row @ (theta - star)) <= half)
    return covered


@pytest.mark.statistical
def test_intervals_cover() -> None:
    covered = intervals(PROBLEM, 60, shrink=1.0)
    assert stats.binom.cdf(covered, 60, 0.93) > FAMILY_RATE  # 95 %, less what a pilot of 3000 rows may cost
    assert stats.binom.cdf(intervals(PROBLEM, 60, shrink=0.25), 60, 0.93) < FAMILY_RATE  # a planted error is seen


def test_directions_that_are_not_reached_have_no_variance() -> None:
    rows = long_sample()
    wide, wide_next = (np.column_stack([x, np.zeros(len(rows))]) for x in (rows.phi, rows.phi_next))
    found = recursion_moments(
        Transitions(wide, rows.reward, wide_next, 0.95), [(0.02, 500, 8)], [0.0, 0.0, 0.0, 0.0, 3.0]
    )
    plain = recursion_moments(long_sample(), [(0.02, 500, 8)])
    assert np.allclose(found.covariance[:4, :4], plain.covariance, rtol=1e-6, atol=1e-9)
    assert np.abs(found.covariance[4]).max() < 1e-12
    assert found.theta_star[4] == 3.0


def test_a_sample_that_cannot_tell_says_so() -> None:
    rng = np.random.default_rng(0)
    few = Transitions(rng.normal(size=(6, 5)), rng.normal(size=6), rng.normal(size=(6, 5)), 0.9)
    found = recursion_moments(few, [(0.1, 10, 5)])
    assert np.isnan(found.covariance).all()
    assert found.remark is not None
    assert "6 rows for 5" in found.remark
    slow = Transitions(np.ones((300, 1)), np.arange(300.0), np.ones((300, 1)), 0.9)
    remark = recursion_moments(slow, [(0.1, 10, 5)]).remark
    assert remark is not None
    assert "correlated over more than the sample" in remark


@pytest.mark.parametrize(
    ("legs", "output", "message"),
    [
        ([(0.1, 10)], "average", "each leg must be"),
        ([(0.0, 10, 1)], "average", "step_size must be"),
        ([(0.1, 0, 1)], "average", "batch_size must be"),
        ([(0.1, 10, -1)], "average", "n_epochs must be"),
        ([(0.1, 10, 1)], "first", "output must be one of"),
    ],
)
def test_callers_errors(legs: Any, output: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        recursion_moments(long_sample(), legs, None, output)
