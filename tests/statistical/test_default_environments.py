"""Well-known environments with no setting but the discount: the answer holds the value that was computed without vrtd.

A family of its own: an interval of the mean value for each of six environments.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers.known_environments import blackjack_mean, cart_pole_mean, pendulum_mean, tabular_answer
from tests.helpers.statistics import FAMILY_RATE, z_limit
from vrtd.logs import from_env

gymnasium = pytest.importorskip("gymnasium")

LEVEL = 1.0 - FAMILY_RATE / 6
N_SAMPLES = {"Taxi-v4": 60_000, "CartPole-v1": 20_000, "Pendulum-v1": 20_000, "Blackjack-v1": 40_000}


def fit(name: str) -> vrtd.Evaluator:
    return vrtd.Evaluator(discount=0.95).fit(from_env(name, "random", N_SAMPLES.get(name, 30_000)))


def check_mean(evaluator: vrtd.Evaluator, exact: float, allowed: float = 0.0) -> None:
    """Check that a wide interval holds the value and that the usual one is not useless."""
    assert evaluator.diagnostics_.converged is True, evaluator.diagnostics_.text
    _, low, high = evaluator.mean_value(LEVEL)
    assert low - allowed <= exact <= high + allowed
    _, low, high = evaluator.mean_value(0.95)
    assert high - low < 0.7 * abs(exact)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["FrozenLake-v1", "CliffWalking-v1", "Taxi-v4"])
def test_a_table_of_states_holds_the_exact_value(name: str) -> None:
    evaluator, env = fit(name), gymnasium.make(name)
    values, share = tabular_answer(env, 0.95, env.spec.max_episode_steps)
    check_mean(evaluator, float(values @ share))
    found = evaluator.predict(np.arange(len(values)), return_interval=0.95)
    is_known = np.isfinite(found.high) & (share * N_SAMPLES.get(name, 30_000) > 100)
    inside = (found.low <= values) & (values <= found.high)
    assert is_known.sum() > 5
    assert inside[is_known].mean() > 0.85


@pytest.mark.slow
def test_blackjack_is_a_table_of_its_three_numbers() -> None:
    evaluator = fit("Blackjack-v1")
    assert isinstance(evaluator.features, vrtd.features.Tabular)
    check_mean(evaluator, blackjack_mean(0.95))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "simulate"), [("CartPole-v1", cart_pole_mean), ("Pendulum-v1", pendulum_mean)])
def test_a_box_holds_the_simulated_value_up_to_the_misfit_of_its_features(name: str, simulate: Any) -> None:
    evaluator = fit(name)
    mean, error = simulate(0.95, 20_000 if name == "CartPole-v1" else 2_000, np.random.default_rng(0))
    misfit = evaluator.diagnostics_.errors["features"]
    assert misfit < 0.1 * abs(mean)
    check_mean(evaluator, mean, misfit + z_limit(6) * error)
