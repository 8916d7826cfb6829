"""Chains that change their regime seldom: no answer of the estimator is wrong without a warning.

Warnings are counted over independent logs. The limits are binomial, with the rate of one family (tests/statistics.py).
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.signal import lfilter
from scipy.stats import binom

import vrtd
from tests.some_logs import DISCOUNT, chunk, split
from tests.statistics import FAMILY_RATE, z_limit
from vrtd.engine.stream import epochs_within
from vrtd.errors import AccuracyWarning, ConvergenceWarning, DivergenceError, NotFittedError
from vrtd.estimator import pilot as pilot_module
from vrtd.estimator.learner import Learner
from vrtd.estimator.least_squares import Solution
from vrtd.estimator.pilot import Pilot
from vrtd.estimator.rows import NO_WEIGHT, NotFiniteError, Rows
from vrtd.logs import Chunk, from_arrays
from vrtd.theory import settings
from vrtd.theory.rows import TransitionRows, block_correlation, block_means, long_run_covariance, statistics_of


def two_halves(seed: int, switch: float = 1e-3, scale: float = 2.5) -> tuple[Any, Any, Any]:
    """Two groups of five states with a small probability of a change; features are larger in the second."""
    rng, half = np.random.default_rng(seed), np.repeat([0.0, 1.0], 5)
    P = np.zeros((10, 10))
    P[:5, :5], P[5:, 5:] = rng.random((5, 5)), rng.random((5, 5))
    P *= (1.0 - switch) / P.sum(axis=1, keepdims=True)
    P[:5, 5] += switch
    P[5:, 0] += switch
    phi = np.c_[np.ones(10), half, rng.normal(size=10) * np.where(half, scale, 1.0)]
    return P, phi, half + 0.1 * rng.normal(size=10)


def walk(P: Any, n: int, rng: Any) -> Any:
    """n + 1 states of a trajectory from state 0."""
    cumulative, states, s = P.cumsum(axis=1), [0], 0
    last = len(P) - 1
    for u in rng.random(n).tolist():
        s = min(int(np.searchsorted(cumulative[s], u, side="right")), last)
        states.append(s)
    return np.array(states)


def rows_of(phi: Any, reward: Any, states: Any) -> Chunk:
    no = np.zeros(len(states) - 1, bool)
    return Chunk(phi[states[:-1]], reward[states[:-1]], phi[states[1:]], no, no)


def reported_log() -> tuple[Any, Any]:
    """A log on which the parameters once ended at 1e16 without a warning; its features."""
    rng = np.random.default_rng(2)
    P = np.zeros((10, 10))
    P[:5, :5] = rng.random((5, 5))
    P[5:, 5:] = rng.random((5, 5))
    P /= P.sum(axis=1, keepdims=True)
    P *= 0.999
    P[:5, 5] += 1e-3
    P[5:, 0] += 1e-3
    phi = np.c_[np.ones(10), np.repeat([0.0, 1.0], 5), rng.normal(size=10) * np.repeat([1.0, 2.5], 5)]
    reward = np.repeat([0.0, 1.0], 5) + 0.1 * rng.normal(size=10)
    rng, cumulative, states = np.random.default_rng(6), P.cumsum(axis=1), [0]
    for u in rng.random(10_000):
        row = cumulative[states[-1]]
        states.append(int(np.searchsorted(row, u * row[-1], side="right")))
    s = np.array(states)
    return from_arrays(phi[s[:-1]], reward[s[:-1]], phi[s[1:]]), phi


def test_the_default_warns_where_it_is_far_from_the_closed_form() -> None:
    log, phi = reported_log()
    evaluator = vrtd.Evaluator(discount=0.9, n_samples=10_000)
    with pytest.warns(ConvergenceWarning, match="not converged: values are .* away from the closed form"):
        evaluator.fit(log)
    with pytest.warns(ConvergenceWarning, match="not converged"):
        values = evaluator.predict(phi)
    assert np.abs(values).max() < 20.0  # the truth is 0 to 11
    closed = vrtd.Evaluator("lstd", discount=0.9).fit(log).predict(phi)
    assert 0.0 < closed.min() < closed.max() < 11.0


def largest_values(n_logs: int) -> Any:
    """Over logs of random two-regime chains, the largest value divided by the largest that the rewards allow."""
    largest = []
    for seed in range(n_logs):
        P, phi, reward = two_halves(seed, switch=3e-3, scale=4.0)
        rows = rows_of(phi, reward, walk(P, 1500, np.random.default_rng(seed)))
        evaluator = vrtd.Evaluator(discount=0.9, n_samples=1500, pilot_rows=400)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            try:
                value = np.abs(evaluator.fit(rows).predict(phi)).max()
            except DivergenceError:
                value = np.inf
        largest.append(value / (np.abs(reward).max() / 0.1))
    return np.array(largest)


def test_a_thousand_logs_of_two_regimes_stay_bounded() -> None:
    assert largest_values(1000).max() < 3.0


def test_without_the_guard_some_logs_of_two_regimes_diverge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Learner, "_within", lambda self, rows, first, n_epochs: (n_epochs, np.inf))
    monkeypatch.setattr(settings, "growth_ratio", lambda sample: 0.0)
    assert (largest_values(60) > 3.0).sum() >= 2


def scaled(rows: Chunk, scale: Any) -> Chunk:
    """Rows with features multiplied by a factor for each row."""
    each = np.asarray(scale)[:, None]
    return rows._replace(observations=rows.observations * each, next_observations=rows.next_observations * each)


def quiet(evaluator: Any, rows: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return evaluator.fit(rows)


def test_a_step_is_lowered_at_the_batch_that_needs_it(tmp_path: Path) -> None:
    """It does not depend on how rows are split, survives a file, and is said."""
    rows = scaled(chunk(0, 20_000), np.where(np.arange(20_000) >= 12_000, 20.0, 1.0))
    whole = quiet(vrtd.Evaluator(discount=DISCOUNT, n_samples=20_000), rows)
    legs = whole._run.learner.legs
    M = legs[0].algorithm.batch_size
    assert [leg.is_lowered for leg in legs][:2] == [False, True]
    assert legs[1].first_row == 12_000 // M * M
    used = slice(legs[1].first_row, legs[1].first_row + M)
    batch = TransitionRows(rows.observations[used], rows.rewards[used], rows.next_observations[used], DISCOUNT)
    np.testing.assert_allclose(legs[1].algorithm.step_size, 1.25 / settings.growth_ratio(batch))
    assert any("the step was lowered" in remark for remark in whole.diagnostics_.remarks)
    parts = vrtd.Evaluator(discount=DISCOUNT, n_samples=20_000)
    for k, (first, last) in enumerate(split(20_000, seed=3)):
        parts.partial_fit(Chunk(*(None if field is None else field[first:last] for field in rows[:5])))
        if k % 4 == 0:
            parts.save(tmp_path / "model.npz")
            parts = vrtd.Evaluator.load(tmp_path / "model.npz")
    assert np.array_equal(parts.theta_, whole.theta_)
    assert parts._run.learner.legs == legs


@pytest.mark.parametrize("algorithm", ["vrtd", "td"])
def test_the_planned_step_comes_back_after_an_outlier(algorithm: str) -> None:
    rows = scaled(chunk(0, 20_000), np.where(np.arange(20_000) == 6000, 100.0, 1.0))
    evaluator = quiet(vrtd.Evaluator(algorithm, discount=DISCOUNT, n_samples=20_000), rows)
    steps = [leg.algorithm.step_size for leg in evaluator._run.learner.legs]
    assert len(steps) == 3
    assert steps[0] == steps[2] > 2.0 * steps[1]


def test_steps_are_lowered_seldom_on_rows_that_grow() -> None:
    """Each time for twice as many epochs as before, so that legs do not grow with the log."""
    rows = scaled(chunk(0, 20_000), np.linspace(1.0, 50.0, 20_000))
    evaluator = quiet(vrtd.Evaluator("td", discount=DISCOUNT, n_samples=20_000), rows)
    assert len(evaluator._run.learner.legs) <= 2 * 15
    assert len(evaluator.diagnostics_.remarks) < 10


def epochs(algorithm: Any, phi: Any, n_epochs: int, discount: float, lowers_step: bool) -> Any:
    """|theta| after epochs on rows with reward 0, from |theta| = 1."""
    n = n_epochs * (algorithm.batch_size if isinstance(algorithm, vrtd.VRTD) else len(phi))
    phi = np.resize(phi, (n + 1, phi.shape[1]))
    no, start = np.zeros(n, bool), np.full(phi.shape[1], phi.shape[1] ** -0.5)
    learner = Learner(algorithm, None, discount, start, 0, False, lowers_step)
    learner.feed(Rows(phi[:-1], phi[1:], np.zeros(n), no, no, NO_WEIGHT).sealed())
    return np.linalg.norm(learner.theta)


def test_lowered_steps_contract_where_larger_ones_diverge() -> None:
    """Rows of norm 1 in 50 dimensions, which a step of 1 makes grow; a cycle of three rows in two for TD."""
    rng = np.random.default_rng(1)
    sphere = rng.standard_normal((20_000, 50))
    sphere /= np.linalg.norm(sphere, axis=1, keepdims=True)
    large = vrtd.VRTD(1.0001, 1000, output="average")
    assert epochs(large, sphere, 40, 0.999, False) > 10.0
    assert epochs(large, sphere, 40, 0.999, True) < 1e-3
    cycle = np.array([[1.0, 0.0], [-0.5, 0.75**0.5], [-0.5, -(0.75**0.5)]])
    assert epochs(vrtd.TD(1.5), cycle, 200, 0.95, False) > 1e3
    assert epochs(vrtd.TD(1.5), cycle, 200, 0.95, True) < 1e-3


def test_a_batch_that_raises_leaves_the_step_as_it_was() -> None:
    phi = np.ones((8, 1))
    rows = Rows(phi, phi, np.zeros(8), np.zeros(8, bool), np.zeros(8, bool), NO_WEIGHT)
    learner = Learner(vrtd.VRTD(0.5, 4), None, 0.5, np.zeros(1), 0, False, lowers_step=True)
    learner.feed(rows.sealed())
    large = rows._replace(phi=np.where(np.arange(8)[:, None] < 4, 3.0, np.nan)).sealed()
    with pytest.raises(NotFiniteError):
        learner.feed(large)
    assert [leg.algorithm.step_size for leg in learner.legs] == [0.5]
    learner.feed(large.part(0, 4))
    steps = [leg.algorithm.step_size for leg in learner.legs]
    np.testing.assert_allclose(steps, [0.5, 1.25 * (0.5 * 9.0 + 0.5 * 4.0 / 2.0) / (9.0 * 2.5**2)])


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_the_compiled_growth_ratio_is_that_of_the_rows(dtype: str, is_weighted: bool) -> None:
    rng = np.random.default_rng(0)
    phi, phi_next = rng.standard_normal((2, 60, 5)).astype(dtype)
    weight, ends = rng.gamma(2.0, 0.5, 60) if is_weighted else NO_WEIGHT, rng.random(60) < 0.1
    discount = np.where(ends, 0.0, 0.9)
    ratios = [
        settings.growth_ratio(
            TransitionRows(phi[k], np.zeros(20), phi_next[k], discount[k], weight[k] if is_weighted else None)
        )
        for k in (slice(0, 20), slice(20, 40), slice(40, 60))
    ]
    phi_next[ends] = np.nan  # nothing follows there
    for limit in (0.5 * min(ratios), np.mean(sorted(ratios)[:2]), 2.0 * max(ratios)):
        first = next((k for k, ratio in enumerate(ratios) if ratio > limit), 3)
        count, ratio = epochs_within()(phi, phi_next, ends, weight, 0.9, 0, 3, 20, limit)
        assert count == first
        np.testing.assert_allclose(ratio, limit if first == 3 else ratios[first], rtol=1e-6)


def test_the_growth_ratio_is_computed_in_double_precision() -> None:
    large, no = np.full((4, 1), 1e12, np.float32), np.zeros(4, bool)
    assert epochs_within()(large, large, no, NO_WEIGHT, 0.9, 0, 1, 4, 1.0)[0] == 0


def test_a_step_of_the_users_own_is_not_lowered() -> None:
    rows = chunk(0, 6000)
    large = rows._replace(observations=2.0 * rows.observations, next_observations=2.0 * rows.next_observations)
    evaluator = vrtd.Evaluator(vrtd.VRTD(0.05, 500), discount=DISCOUNT).fit(rows)
    evaluator.partial_fit(large)
    assert len(evaluator._run.learner.legs) == 1


def n_warned(P: Any, phi: Any, reward: Any, n_rows: int, n_logs: int, algorithm: str = "lstd") -> int:
    warned = 0
    for seed in range(n_logs):
        rows = rows_of(phi, reward, walk(P, n_rows, np.random.default_rng(seed)))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ConvergenceWarning)
            vrtd.Evaluator(algorithm, discount=0.9, n_samples=n_rows).fit(rows).predict(phi, return_interval=0.95)
        warned += bool(caught)
    return warned


def ten_regimes() -> tuple[Any, Any, Any]:
    P, phi, reward = two_halves(5, scale=1.0)
    phi[:, 1] = np.random.default_rng(0).normal(size=10)  # nothing but a mean shows the regime
    return P, phi, reward


@pytest.mark.parametrize("algorithm", ["lstd", "vrtd"])
def test_intervals_of_chains_with_ten_regimes_are_warned_of(algorithm: str) -> None:
    """At least 95 of 100 logs are to be warned of: fewer than the limit have probability below the rate."""
    limit = binom.ppf(FAMILY_RATE / 2, 40, 0.95)
    assert n_warned(*ten_regimes(), 10_000, 40, algorithm) >= limit > 20


def test_warnings_rest_on_the_correlation_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug: without it, intervals of these chains are not warned of."""
    monkeypatch.setattr(Pilot, "effective_blocks", 256.0)
    monkeypatch.setattr(Solution, "doubt", None)
    assert n_warned(*ten_regimes(), 10_000, 10) == 0


def test_intervals_of_ordinary_chains_are_seldom_warned_of() -> None:
    """At most 2 of 100 logs are to be warned of, although states last 50 rows."""
    rng = np.random.default_rng(43)
    P = rng.random((8, 8))
    P = 0.98 * np.eye(8) + 0.02 * P / P.sum(axis=1, keepdims=True)
    assert n_warned(P, np.eye(8), rng.standard_normal(8), 10_000, 60) <= binom.isf(FAMILY_RATE, 60, 0.02)


def test_block_correlation_of_an_autoregression() -> None:
    """Blocks of b rows of an AR(1) process have the correlation of its closed form, in whichever metric."""
    rng, decay, b, B = np.random.default_rng(1), 0.98, 50, 20_000
    x = rng.standard_normal(B * b)
    x[1:] *= np.sqrt(1.0 - decay**2)
    series = lfilter([1.0], [1.0, -decay], x)[:, None]
    k = np.arange(1, b)
    variance = b + 2.0 * ((b - k) * decay**k).sum()
    exact = (1.0 - decay**b) ** 2 * decay / (1.0 - decay) ** 2 / variance
    found = [block_correlation(block_means(series, B), np.array([[g]])) for g in (1.0, 7.0)]
    np.testing.assert_allclose(found, exact, atol=z_limit(2) / np.sqrt(B))


def test_noise_that_alternates_has_a_long_run_covariance() -> None:
    """A cycle of six states: lags up to the window sum to less than nothing, and block means take their place."""
    rng, n = np.random.default_rng(52), 6
    P = 0.98 * np.roll(np.eye(n), 1, axis=1) + 0.02 / n
    phi, reward = np.c_[np.ones(n), rng.standard_normal((n, 2))], rng.random(n)
    states = walk(P, 20_000, rng)
    rows = TransitionRows(phi[states[:-1]], reward[states[:-1]], phi[states[1:]], 0.9)
    statistics = statistics_of(rows, None)
    assert np.linalg.eigvalsh(long_run_covariance(statistics.noise, statistics.window, clip=False))[0] < 0.0
    system = vrtd.LinearSystem(vrtd.MarkovRewardProcess(P, np.repeat(reward[:, None], n, axis=1), 0.9), phi)
    exact = vrtd.theory.instance_optimal(system, sampling="markov")
    found = np.linalg.solve(statistics.A, np.linalg.solve(statistics.A, statistics.long_run).T)
    assert 0.5 < np.trace(found) / exact < 2.0
    values = vrtd.Evaluator(discount=0.9, n_samples=20_000).fit(rows_of(phi, reward, states)).predict(phi)
    np.testing.assert_allclose(values, phi @ system.theta_star, atol=0.05)


def test_the_interval_of_the_recursion_is_about_as_wide_as_that_of_the_closed_form() -> None:
    """On a chain with 120 regimes, lags up to the window miss most of the long-run covariance: it was half as wide."""
    P, phi, reward = two_halves(56, switch=3e-3, scale=1.0)
    phi[:, 1] = np.random.default_rng(1).normal(size=10)
    rows = rows_of(phi, reward, walk(P, 40_000, np.random.default_rng(3)))
    evaluator = vrtd.Evaluator(discount=0.9, n_samples=40_000, closed_form=True).fit(rows)
    own, closed = (
        evaluator.predict(phi, return_interval=0.95, method=method) for method in ("recursion", "closed form")
    )
    assert (own.high - own.low > 0.8 * (closed.high - closed.low)).all()


def test_a_log_shorter_than_the_pilot_is_learned_from() -> None:
    rows = chunk(0, 2000)
    evaluator = vrtd.Evaluator(discount=DISCOUNT).fit(rows)
    assert evaluator.algorithm_ is not None
    assert evaluator.n_waiting_ < 2000
    closed = vrtd.Evaluator("lstd", discount=DISCOUNT).fit(rows).predict(rows.observations)
    np.testing.assert_allclose(evaluator.predict(rows.observations), closed, atol=0.5)  # values are 2 to 7
    evaluator.partial_fit(chunk(2000, 6000))
    assert evaluator.n_rows_ == 6000


def test_fit_does_not_wait_for_rows_that_were_announced() -> None:
    evaluator = vrtd.Evaluator(discount=DISCOUNT, n_samples=1_000_000).fit(chunk(0, 2000))
    assert evaluator.n_waiting_ < 1000


def test_data_without_noise_and_an_exact_start_are_not_warned_of() -> None:
    rows, start = chunk(0, 6000), np.arange(1.0, 5.0)
    exact = rows._replace(rewards=rows.observations @ start - DISCOUNT * (rows.next_observations @ start))
    for algorithm in ("vrtd", "td"):
        evaluator = vrtd.Evaluator(algorithm, discount=DISCOUNT, theta_0=start, n_samples=6000).fit(exact)
        np.testing.assert_allclose(evaluator.theta_, start, rtol=1e-9)


@pytest.mark.parametrize("scale", [0.0, 1e65])
def test_rows_that_cannot_be_checked_are_learned_from(scale: float) -> None:
    rows = scaled(chunk(0, 2000), np.full(2000, scale))
    if scale:
        assert np.isfinite(vrtd.Evaluator("lstd", discount=DISCOUNT).fit(rows).predict(rows.observations)).all()
    else:
        evaluator = vrtd.Evaluator(vrtd.TD(0.1), discount=DISCOUNT).fit(rows)
        assert np.array_equal(evaluator.predict(rows.observations), np.zeros(2000))


def test_a_start_outside_of_the_span_counts() -> None:
    """State 2 is only ever a successor: its start is what the others are bootstrapped from."""
    states = np.arange(12_000) % 2
    truncated, reward = states == 1, 0.1 * np.random.default_rng(0).normal(size=12_000)
    rows = Chunk(np.eye(3)[states], reward, np.eye(3)[states + 1], np.zeros(12_000, bool), truncated)
    start = np.array([0.0, 0.0, 10.0])
    run, closed = (vrtd.Evaluator(name, discount=0.9, theta_0=start).fit(rows) for name in ("vrtd", "lstd"))
    np.testing.assert_allclose(run._run.pilot().theta_star, closed.theta_, atol=1e-8)
    np.testing.assert_allclose(run.theta_, [8.1, 9.0, 10.0], atol=0.5)


def test_before_the_pilot_rows_the_start_is_in_force() -> None:
    start = np.arange(4.0)
    evaluator = vrtd.Evaluator(discount=DISCOUNT, theta_0=start).partial_fit(chunk(0, 2000))
    observations = chunk(0, 3).observations
    np.testing.assert_array_equal(evaluator.predict(observations), observations @ start)
    scaled = vrtd.Evaluator(features="rbf:4", discount=DISCOUNT).partial_fit(chunk(0, 2000))
    with pytest.raises(NotFittedError, match="must have received its pilot rows; got 2,000 of 5,000"):
        scaled.predict(observations)


def test_a_short_log_with_features_of_the_users_own_is_loaded(tmp_path: Path) -> None:
    scaler = pytest.importorskip("sklearn.preprocessing").StandardScaler
    evaluator = vrtd.Evaluator(features=scaler(), discount=DISCOUNT).fit(chunk(0, 2000))
    evaluator.save(tmp_path / "model.npz")
    loaded = vrtd.Evaluator.load(tmp_path / "model.npz", features=scaler())
    observations = chunk(0, 3).observations
    np.testing.assert_array_equal(loaded.predict(observations), evaluator.predict(observations))


@pytest.mark.parametrize("scale", [1e-4, 1e-8])
def test_the_closed_form_takes_columns_of_very_different_scales(scale: float) -> None:
    rows = chunk(0, 20_000)
    sizes = np.array([scale, 1.0, 1.0 / scale, 1.0])
    scaled = rows._replace(observations=rows.observations * sizes, next_observations=rows.next_observations * sizes)
    plain, other = (vrtd.Evaluator("lstd", discount=DISCOUNT).fit(part) for part in (rows, scaled))
    np.testing.assert_allclose(other.theta_ * sizes, plain.theta_, rtol=1e-8)
    half = [np.subtract(*found.theta_interval()[:0:-1]) for found in (plain, other)]
    np.testing.assert_allclose(half[1] * sizes, half[0], rtol=1e-6)


def test_nearly_dependent_columns_are_warned_of() -> None:
    rows = chunk(0, 20_000)
    phi, phi_next = rows.observations.copy(), rows.next_observations.copy()
    for table in (phi, phi_next):
        table[:, 3] = table[:, 2] + 1e-6 * table[:, 3]
    log = rows._replace(observations=phi, next_observations=phi_next)
    evaluator = vrtd.Evaluator("lstd", discount=DISCOUNT).fit(log)
    with pytest.warns(AccuracyWarning, match="A has condition number"):
        evaluator.predict(phi[:3])
    data = vrtd.DataSet(phi, rows.rewards, phi_next, DISCOUNT)
    with pytest.warns(AccuracyWarning, match="A has condition number"):
        _ = data.theta_star


def test_the_check_of_predict_costs_little_in_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sample is looked at anew only when it has doubled."""
    made: list[int] = []
    original = pilot_module.Pilot.__init__

    def counted(self: Any, rows: Any, *others: Any) -> None:
        made.append(len(rows.reward))
        original(self, rows, *others)

    monkeypatch.setattr(pilot_module.Pilot, "__init__", counted)
    evaluator = vrtd.Evaluator(vrtd.TD(0.05), discount=DISCOUNT)
    for first in range(0, 6000, 100):
        evaluator.partial_fit(chunk(first, first + 100))
        evaluator.predict(chunk(0, 1).observations)
    assert len(made) <= 9
