"""200,000 short simulated runs against exact moments, with planted bugs to show that the tests have teeth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers.statistics import moment_scores, z_limit
from tests.helpers.table import two_states
from vrtd.engine import arguments
from vrtd.sources import chain_source
from vrtd.theory import td_iid_moments, vrtd_iid_moments

N_RUNS = 200_000
# The largest of the families below looks at 6 settings of 14 statistics; all four take its threshold.
LIMIT = z_limit(6 * 14)


def final_theta(problem: Any, algorithm: Any, n_gradients: int, seed: int = 11) -> Any:
    return vrtd.simulate(
        problem,
        algorithm,
        sampling="iid",
        n_runs=N_RUNS,
        n_gradients=n_gradients,
        seed=seed,
        metrics=(),
        checkpoints=1,
    ).theta


def worst_td_score(problem: Any, theta: Any, n_updates: int, step_size: float = 0.1) -> float:
    exact = td_iid_moments(problem, step_size, n_updates, np.zeros(problem.n_features))
    return float(abs(moment_scores(theta, problem.theta_star, exact.mean[-1], exact.second[-1])).max())


def with_wrong_discount(problem: vrtd.LinearProblem) -> vrtd.LinearProblem:
    reward = problem.mrp.edges.reward.reshape(50, 50)
    return vrtd.LinearProblem(vrtd.MarkovRewardProcess(problem.mrp.P, reward, 0.95 * 0.99), problem.phi)


def test_td_has_its_exact_moments() -> None:
    problem = vrtd.problems.random_mdp(seed=0)
    for n_updates in (20, 60):
        assert worst_td_score(problem, final_theta(problem, vrtd.TD(0.1), n_updates), n_updates) < LIMIT


@pytest.mark.parametrize("output", ["random", "last", "average"])
@pytest.mark.parametrize("batch_size", [3, 10])
def test_vrtd_algorithm_1_has_its_exact_moments(output: Any, batch_size: int) -> None:
    problem = vrtd.problems.random_mdp(seed=0)
    n_epochs = 60 // (2 * batch_size)
    theta = final_theta(problem, vrtd.VRTD(0.1, batch_size, output=output), 60)
    exact = vrtd_iid_moments(problem, 0.1, batch_size, n_epochs, np.zeros(4), output=output)
    assert abs(moment_scores(theta, problem.theta_star, exact.mean[-1], exact.second[-1])).max() < LIMIT


def test_vrtd_with_a_step_size_or_a_discount_off_by_one_percent_is_caught() -> None:
    right = vrtd.problems.random_mdp(seed=0)
    wrong = with_wrong_discount(right)
    for batch_size in (3, 10):
        exact = vrtd_iid_moments(right, 0.1, batch_size, 60 // (2 * batch_size), np.zeros(4))
        for problem, step_size in ((right, 0.101), (wrong, 0.1)):
            theta = final_theta(problem, vrtd.VRTD(step_size, batch_size), 60)
            assert abs(moment_scores(theta, right.theta_star, exact.mean[-1], exact.second[-1])).max() > LIMIT


def test_schedules_have_their_exact_moments() -> None:
    problem = vrtd.problems.random_mdp(seed=0)

    def worst(schedule: Any, simulated: Any) -> float:
        exact = td_iid_moments(problem, [schedule(t) for t in range(40)], 40, np.zeros(4))
        theta = final_theta(problem, vrtd.TD(simulated), 40)
        return float(abs(moment_scores(theta, problem.theta_star, exact.mean[-1], exact.second[-1])).max())

    harmonic, piecewise = vrtd.Harmonic(c=4.0, t0=20.0), vrtd.Piecewise((10, 20), (0.2, 0.1, 0.05))
    assert worst(harmonic, harmonic) < LIMIT
    assert worst(piecewise, piecewise) < LIMIT
    assert worst(harmonic, vrtd.Harmonic(c=4.0, t0=21.0)) > LIMIT  # off by one
    assert worst(piecewise, vrtd.Piecewise((9, 20), (0.2, 0.1, 0.05))) > LIMIT


def test_a_step_size_off_by_one_percent_is_caught() -> None:
    problem = vrtd.problems.random_mdp(seed=0)
    for n_updates in (20, 60):
        assert worst_td_score(problem, final_theta(problem, vrtd.TD(0.101), n_updates), n_updates) > LIMIT


def test_a_discount_off_by_one_percent_is_caught() -> None:
    problem = vrtd.problems.random_mdp(seed=0)
    wrong = with_wrong_discount(problem)
    for n_updates in (20, 60):
        assert worst_td_score(problem, final_theta(wrong, vrtd.TD(0.1), n_updates), n_updates) > LIMIT


def test_the_two_state_chain_has_its_exact_moments() -> None:
    problem = two_states()
    for n_updates in (20, 60):
        assert worst_td_score(problem, final_theta(problem, vrtd.TD(0.1), n_updates), n_updates) < LIMIT


def test_one_percent_of_next_states_from_another_row_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = two_states()
    mrp = problem.mrp
    wrong = vrtd.MarkovRewardProcess(0.99 * mrp.P + 0.01 * mrp.P[::-1], mrp.edges.reward.reshape(2, 2), 0.9)
    monkeypatch.setattr(arguments, "chain_source", lambda _, *rest: chain_source(wrong, *rest))
    scores = [worst_td_score(problem, final_theta(problem, vrtd.TD(0.1), n), n) for n in (20, 60)]
    assert max(scores) > LIMIT
