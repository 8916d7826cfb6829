"""Chains that change their regime seldom: intervals hold the truth, or are warned of.

Warnings are counted over independent logs. The limits are binomial, with the rate of one family
(tests/helpers/statistics.py).
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from scipy.signal import lfilter
from scipy.stats import binom

import vrtd
from tests.helpers.statistics import FAMILY_RATE, z_limit
from tests.helpers.two_regimes import rows_of, two_halves, walk
from vrtd.errors import ConvergenceWarning
from vrtd.estimator.least_squares import Solution
from vrtd.problems import Transitions
from vrtd.series import block_correlation, block_means, lag_covariance


def n_warned(P: Any, phi: Any, reward: Any, n_rows: int, n_logs: int, algorithm: str = "closed_form") -> int:
    warned = 0
    for seed in range(n_logs):
        rows = rows_of(phi, reward, walk(P, n_rows, np.random.default_rng(seed)))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ConvergenceWarning)
            vrtd.Evaluator(algorithm, features=None, discount=0.9, n_samples=n_rows).fit(rows).predict(
                phi, return_interval=0.95
            )
        warned += bool(caught)
    return warned


def ten_regimes() -> tuple[Any, Any, Any]:
    P, phi, reward = two_halves(5, scale=1.0)
    phi[:, 1] = np.random.default_rng(0).normal(size=10)  # nothing but a mean shows the regime
    return P, phi, reward


@pytest.mark.parametrize("algorithm", ["closed_form", "vrtd"])
def test_intervals_of_chains_with_ten_regimes_are_warned_of(algorithm: str) -> None:
    """At least 95 of 100 logs are to be warned of: fewer than the limit have probability below the rate."""
    limit = binom.ppf(FAMILY_RATE / 2, 40, 0.95)
    assert n_warned(*ten_regimes(), 10_000, 40, algorithm) >= limit > 20


def test_the_effective_sample_size_is_said() -> None:
    P, phi, reward = two_halves(5)  # features show the regime, rewards are what they explain
    rows = rows_of(phi, reward, walk(P, 10_000, np.random.default_rng(0)))
    evaluator = vrtd.Evaluator("closed_form", features=None, discount=0.9).fit(rows)
    with pytest.warns(ConvergenceWarning, match=r"the effective sample size of the 10,000 rows is only about \d+ in"):
        evaluator.predict(phi, return_interval=0.95)


def test_warnings_rest_on_the_correlation_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug: without it, intervals of these chains are not warned of."""
    monkeypatch.setattr(Transitions, "effective_blocks", 256.0)
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
    rng, decay, b, B = np.random.default_rng(1), 0.98, 50, 4_000
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
    rows = Transitions(phi[states[:-1]], reward[states[:-1]], phi[states[1:]], 0.9)
    assert rows.lag_window is not None
    assert np.linalg.eigvalsh(lag_covariance(rows.noise, rows.lag_window))[0] < 0.0
    problem = vrtd.LinearProblem(vrtd.MarkovRewardProcess(P, np.repeat(reward[:, None], n, axis=1), 0.9), phi)
    exact = vrtd.theory.instance_optimal(problem, sampling="markov")
    found = np.linalg.solve(rows.A, np.linalg.solve(rows.A, rows.long_run_covariance).T)
    assert 0.5 < np.trace(found) / exact < 2.0
    values = (
        vrtd.Evaluator("vrtd", features=None, discount=0.9, n_samples=20_000)
        .fit(rows_of(phi, reward, states))
        .predict(phi)
    )
    np.testing.assert_allclose(values, phi @ problem.theta_star, atol=0.05)


def test_the_interval_of_the_recursion_is_about_as_wide_as_that_of_the_closed_form() -> None:
    """On a chain with 120 regimes, lags up to the window miss most of the long-run covariance: it was half as wide."""
    P, phi, reward = two_halves(56, switch=3e-3, scale=1.0)
    phi[:, 1] = np.random.default_rng(1).normal(size=10)
    rows = rows_of(phi, reward, walk(P, 40_000, np.random.default_rng(3)))
    evaluator = vrtd.Evaluator("vrtd", features=None, discount=0.9, n_samples=40_000, closed_form=True).fit(rows)
    own, closed = (
        evaluator.predict(phi, return_interval=0.95, method=method) for method in ("recursion", "closed_form")
    )
    assert (own.high - own.low > 0.8 * (closed.high - closed.low)).all()
