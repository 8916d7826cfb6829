"""Step and batch size from a pilot stretch of data, and the limit of a step that a user brings."""

from functools import cache
from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers.statistics import z_limit
from vrtd.errors import InvalidInputError
from vrtd.problems import Transitions
from vrtd.series import clip_negative, lag_covariance, lag_window
from vrtd.theory import stability_limit
from vrtd.theory.modal import Modes, find_modes, find_pairs, largest_stable_step, stretches
from vrtd.theory.predictions import Prediction
from vrtd.theory.sample_noise import MeanSquare
from vrtd.theory.settings import Settings, limit_step, settings_for

PROBLEM = vrtd.problems.random_mdp()


@cache
def sample() -> Transitions:
    return vrtd.record(PROBLEM, 5000, seed=1, shuffle=False)


def shift_chain(n: int = 8) -> Transitions:
    """A deterministic walk through n states, then again: A is one Jordan block on tabular features."""
    states = np.tile(np.arange(n), 100)
    discount = np.where(states == n - 1, 0.0, 0.9)
    reward = np.random.default_rng(0).normal(size=len(states))
    return Transitions(np.eye(n)[states], reward, np.eye(n)[(states + 1) % n], discount)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 100, 12345])
def test_stretches_sum_to_the_number_of_epochs(n: int) -> None:
    T = np.array([0.9 + 0.1j, 0.5])
    parts = list(stretches(T, n))
    lengths = [length for length, *_ in parts]
    assert sum(lengths) == n
    assert lengths[:2] == [1, 1][:n]
    for L, power, total, sums in parts:
        assert np.allclose(power, T**L)
        assert np.allclose(total, (1.0 - T**L) / (1.0 - T))
        assert np.allclose(sums, (L - total) / (1.0 - T))


@pytest.mark.parametrize("output", ["average", "last", "random"])
@pytest.mark.parametrize("step", [0.3, 1e-2, 1e-9])
def test_factors_of_modes_are_sums_over_the_inner_steps(output: Any, step: float) -> None:
    values = np.array([-1.0, -0.3 + 0.4j, -0.3 - 0.4j, -0.01])
    M = 7
    found = find_pairs(values, np.array(step), M, output)
    powers = (1.0 + step * values)[None, :] ** np.arange(1, M + 1)[:, None]  # q^t, t = 1..M
    gains = step * np.cumsum((1.0 + step * values)[None, :] ** np.arange(M)[:, None], axis=0)  # sum of a q^s, s < t

    def mean(x: Any) -> Any:
        return np.einsum("ti,tj->ij", x, x.conj()) / M

    squares = step**2 * np.cumsum((powers[0][:, None] * powers[0].conj())[None] ** np.arange(M)[:, None, None], axis=0)
    expected = {
        "average": (powers.mean(0), gains.mean(0), mean(gains) / M),
        "last": (powers[-1], gains[-1], squares[-1]),
        "random": (powers.mean(0), gains.mean(0), squares.mean(0)),
    }[output]
    T = np.outer(expected[0], expected[0].conj()) if output != "random" else mean(powers)
    K = np.outer(expected[1], expected[1].conj()) if output != "random" else mean(gains)
    assert np.allclose(found.T, T, rtol=1e-9)
    assert np.allclose(found.K, K, rtol=1e-6)
    assert np.allclose(found.R, expected[2], rtol=1e-6)
    assert np.allclose(found.means, expected[0], rtol=1e-9)


@pytest.mark.parametrize("name", ["random_mdp", "boyan_chain", "random_walk"])
def test_the_limit_of_stability_is_that_of_the_chain(name: str) -> None:
    problem = vrtd.problems.LIBRARY[name]()
    rows = vrtd.record(problem, 20_000, sampling="iid", seed=2, shuffle=False).reduce_rank()
    modes = find_modes(rows)
    assert isinstance(modes, Modes)
    exact = stability_limit(problem)
    assert abs(largest_stable_step(rows, modes) / exact - 1.0) < 0.1


@pytest.mark.statistical
def test_the_long_run_covariance_counts_every_lag() -> None:
    rng = np.random.default_rng(0)
    steps = rng.normal(size=(200_000, 2))
    moving = steps[1:] + 0.5 * steps[:-1]  # long-run variance 1.5^2, variance 1.25
    window = lag_window(moving)
    assert window is not None
    found = clip_negative(lag_covariance(moving, window))
    spread = 2.25 * np.sqrt(2.0 * (2 * window + 1) / len(moving))
    assert np.abs(found - 2.25 * np.eye(2)).max() < z_limit(4) * spread
    assert 1.25 + z_limit(4) * spread < 2.25  # without lags the test would fail
    assert lag_window(np.cumsum(steps, axis=0)) is None


@pytest.mark.parametrize("algorithm", ["vrtd", "td"])
@pytest.mark.parametrize("name", ["random_mdp", "boyan_chain"])
@pytest.mark.statistical
def test_what_is_predicted_comes_true(name: str, algorithm: Any) -> None:
    """From 50,000 rows, so that the estimate is the chain's to a few percent."""
    problem = vrtd.problems.LIBRARY[name]()
    found = settings_for(vrtd.record(problem, 50_000, seed=3, shuffle=False), 10_000, algorithm=algorithm)
    assert found.prediction is Prediction.MODES
    method = (
        vrtd.TD(found.step_size) if algorithm == "td" else vrtd.VRTD(found.step_size, found.batch_size, None, "average")
    )
    n_gradients = found.n_epochs * method.epoch("markov").n_gradients
    summary = vrtd.simulate(problem, method, n_runs=2000, n_gradients=n_gradients, checkpoints=1).summary()
    assert abs(summary.mean[-1] - found.error) < 0.15 * found.error + z_limit(4) * summary.standard_error[-1]


@pytest.mark.statistical
def test_no_neighbour_is_much_better() -> None:
    found = settings_for(sample(), 10_000)
    runs = {}
    for factor in (0.25, 1.0, 4.0):
        for batch in (100, found.batch_size, 10_000):
            method = vrtd.VRTD(min(factor * found.step_size, 0.9), batch, None, "average")
            n_gradients = 10_000 // batch * method.epoch("markov").n_gradients
            summary = vrtd.simulate(PROBLEM, method, n_runs=400, n_gradients=n_gradients, checkpoints=1).summary()
            runs[factor, batch] = float(summary.mean[-1])
    assert runs[1.0, found.batch_size] < 1.3 * min(runs.values())
    assert max(runs.values()) > 3.0 * min(runs.values())  # it matters


def test_budget_and_largest_batch_are_kept() -> None:
    for budget in (1, 2, 3, 17, 1000):
        found = settings_for(sample(), budget)
        assert 1 <= found.batch_size <= budget
        assert found.n_epochs == budget // found.batch_size
        assert 0.0 < found.step_size < found.largest_step
    small = settings_for(sample(), 100_000, largest_batch=64)
    assert small.batch_size <= 64
    assert settings_for(sample(), 1000, algorithm="td")[1:3] == (1, 1000)


def test_a_defective_system_is_no_obstacle() -> None:
    rows = shift_chain()
    assert np.linalg.cond(np.linalg.eig(rows.A)[1]) > 1e10
    found = settings_for(rows, 5000)
    assert found.prediction in (Prediction.MODES, Prediction.MODES_OF_VALUES)
    assert 0.0 < found.step_size < found.largest_step


def test_dimensions_that_are_not_reached_are_left_out() -> None:
    rows = sample()
    wide = np.column_stack([rows.phi, np.zeros(len(rows)), rows.phi[:, 0]])
    wide_next = np.column_stack([rows.phi_next, np.zeros(len(rows)), rows.phi_next[:, 0]])
    found = settings_for(Transitions(wide, rows.reward, wide_next, 0.95), 10_000, np.zeros(6))
    assert found.prediction is Prediction.MODES
    assert "4 of 6 dimensions" in found.remarks[0]


RNG = np.random.default_rng(4)
GROWING = np.exp(0.01 * np.arange(300))[:, None]


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (
            Transitions(RNG.normal(size=(20, 15)), RNG.normal(size=20), RNG.normal(size=(20, 15)), 0.9),
            "20 rows for 15",
        ),
        (Transitions(GROWING, np.ones(300), 2.0 * GROWING, 1.0), "A is not stable"),
        (Transitions(np.ones((300, 1)), np.zeros(300), np.ones((300, 1)), 0.9), "no noise"),
        (Transitions(np.ones((300, 1)), np.ones(300), np.ones((300, 1)), 0.9), "no noise"),
        (
            Transitions(np.ones((300, 1)), np.arange(300.0), np.ones((300, 1)), 0.9),
            "correlated over more than the sample",
        ),
        (Transitions(np.ones((300, 1)), np.ones(300), np.ones((300, 1)), 1.0), "singular"),
        (Transitions(np.zeros((300, 2)), np.ones(300), np.zeros((300, 2)), 0.9), "all features are 0"),
        (Transitions(np.ones((1, 1)), np.ones(1), np.ones((1, 1)), 0.9), "1 rows for 1"),
    ],
)
@pytest.mark.parametrize("algorithm", ["vrtd", "td"])
def test_poor_data_get_a_safe_step_and_a_reason(rows: Transitions, why: str, algorithm: Any) -> None:
    found = settings_for(rows, 1000, algorithm=algorithm)
    assert isinstance(found, Settings)
    assert found.prediction is Prediction.NONE
    assert why in found.reason
    assert found.method == f"fallback: {found.reason}"
    assert 0.0 < found.step_size < np.inf
    assert found.step_size * max((rows.phi**2).sum(axis=1).max(), 1e-9) <= 0.5
    assert found.n_epochs == 1000 // found.batch_size
    assert np.isnan(found.error)
    assert limit_step(rows, 1e-3).step_size > 0.0


def test_what_is_given_is_kept() -> None:
    step, batch = settings_for(sample(), 10_000, step_size=0.01), settings_for(sample(), 10_000, batch_size=300)
    assert step.step_size == 0.01
    assert batch.batch_size == 300
    assert batch.n_epochs == 33
    assert settings_for(sample(), 10_000, step_size=0.01, batch_size=300).error > batch.error


def test_what_the_budget_cannot_determine_is_judged_by_values() -> None:
    """Two features that are nearly one: their difference is not learned from 1000 rows, their sum is."""
    rows = sample()
    tilt, tilt_next = (np.column_stack([x, x[:, 0] + 1e-3 * x[:, 1] ** 2]) for x in (rows.phi, rows.phi_next))
    found = settings_for(Transitions(tilt, rows.reward, tilt_next, 0.95), 1000)
    assert found.prediction is Prediction.MODES_OF_VALUES
    assert "minimising the error of phi.theta" in found.method
    assert found.batch_size > 50


def test_a_step_that_would_diverge_is_lowered() -> None:
    limit = stability_limit(PROBLEM)
    kept, lowered = limit_step(sample(), 0.5 * limit), limit_step(sample(), 2.0 * limit)
    assert kept.step_size == 0.5 * limit
    assert not kept.diverges
    assert lowered.diverges
    assert lowered.step_size < 0.95 * limit
    assert lowered.remark is not None
    assert "would diverge" in lowered.remark


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: settings_for(sample(), 0), "budget must be a whole number of at least 1"),
        (lambda: settings_for(sample(), 100, algorithm="tdc"), "algorithm must be one of"),  # type: ignore[arg-type]
        (lambda: settings_for(sample(), 100, output="first"), "output must be one of"),  # type: ignore[arg-type]
        (lambda: settings_for(sample(), 100, largest_batch=0), "largest_batch must be"),
        (lambda: settings_for(sample(), 100, [1.0]), r"theta_0 must have the shape \(4,\)"),
        (
            lambda: settings_for(3, 100),
            "sample must be Transitions, but is of type int. Build them, or call vrtd.record",
        ),  # type: ignore[arg-type]
        (lambda: limit_step(sample(), -1.0), "step_size must be a positive"),
    ],
)
def test_callers_errors(call: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        call()


def test_weights_are_importance_ratios() -> None:
    """Weights of 2 double A, leave theta_star, and multiply E[A_x S A_x^T] by 4."""
    rows = sample()
    columns = rows.phi[:50], rows.reward[:50], rows.phi_next[:50], 0.95
    plain, weighted = Transitions(*columns), Transitions(*columns, np.full(50, 2.0))
    assert np.allclose(weighted.A, 2.0 * plain.A)
    assert np.allclose(weighted.theta_star, plain.theta_star)
    assert np.allclose(MeanSquare(weighted)(np.eye(4)), 4.0 * MeanSquare(plain)(np.eye(4)))
