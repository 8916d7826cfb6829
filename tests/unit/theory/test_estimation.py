"""Moments estimated from a sample, and the autocorrelation time of its noise."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

import vrtd
from tests.helpers.statistics import FAMILY_RATE
from vrtd.errors import InvalidInputError
from vrtd.problems import Transitions
from vrtd.theory import autocorrelation_time, instance_optimal
from vrtd.theory.estimation import _LagSums, bootstrap_increments, estimate_increments
from vrtd.theory.increments import correlated_increments, independent_increments
from vrtd.theory.limits import optimal_error

PROBLEM = vrtd.problems.random_mdp()
# Transition probabilities in quarters and a stationary distribution in sevenths: a sample can hold all of it exactly.
QUARTERS = vrtd.MarkovRewardProcess([[0.25, 0.75], [1.0, 0.0]], [[1.0, -2.0], [3.0, 0.0]], 0.9)
PLANE = np.array([[1.0, 0.3], [-0.5, 1.0]])


def whole_population() -> Transitions:
    """Every transition as often as it occurs in 7 x 100 independent draws."""
    edges = QUARTERS.edges
    counts = (QUARTERS.stationary[edges.origin] * edges.probability * 700).round().astype(int)
    assert counts.sum() == 700
    rows = np.repeat(np.arange(len(counts)), counts)
    rows = np.random.default_rng(0).permutation(rows)
    return Transitions(PLANE[edges.origin[rows]], edges.reward[rows], PLANE[edges.successor[rows]], 0.9)


def test_a_sample_that_is_the_population_gives_its_moments() -> None:
    exact = independent_increments(vrtd.LinearProblem(QUARTERS, PLANE))
    estimate = estimate_increments(whole_population(), "iid")
    assert np.allclose(estimate.theta_star, exact.theta_star, atol=1e-12)
    assert np.allclose(estimate.mean, exact.mean, atol=1e-12)
    assert np.allclose(estimate.square, exact.square, atol=1e-11)
    assert estimate.correlation is None


def test_lag_covariances_are_those_of_the_rows() -> None:
    sample = vrtd.record(vrtd.LinearProblem(PROBLEM.mrp, PROBLEM.phi[:, :2]), 4000, seed=3, shuffle=False)
    estimate = estimate_increments(sample, "markov")
    psi = sample.discount[:, None] * sample.phi_next - sample.phi
    zeta = np.column_stack([psi, sample.reward + psi @ estimate.theta_star])
    Z = np.einsum("ni,nj->nij", sample.phi, zeta).reshape(len(sample), -1)
    lags = estimate.correlation._lags  # type: ignore[union-attr]
    assert len(lags) >= 5
    for k, lag in enumerate(lags, start=1):
        direct = Z[:-k].T @ Z[k:] / len(Z) - np.outer(Z.mean(axis=0), Z.mean(axis=0))
        assert np.allclose(lag, direct, atol=1e-10)


@pytest.mark.parametrize("M", [1, 2, 3, 7, 20])
def test_sums_over_lags(M: int) -> None:
    rng = np.random.default_rng(1)
    lags, decay = rng.normal(size=(6, 6, 6)), 0.5 * rng.normal(size=(2, 2))
    sums = _LagSums(lags)
    by_lag = dict(enumerate(lags, start=1))
    zero = np.zeros((6, 6))
    within = sum(((1 - k / M) * by_lag.get(k, zero) for k in range(1, M)), zero)
    assert np.allclose(sums.within(M), within)
    assert np.allclose(sums.within(np.inf), lags.sum(axis=0))
    between = zero
    for j in range(1, 8):
        common = sum(((M - abs(k - j * M)) * by_lag.get(k, zero) for k in range(j * M - M + 1, j * M + M)), zero)
        between = between + (np.linalg.matrix_power(decay, j - 1) @ common.reshape(2, -1)).reshape(6, 6)
    assert np.allclose(sums.between(M, decay), between)


@pytest.mark.parametrize("sampling", ["iid", "markov"])
def test_a_long_sample_comes_close(sampling: Any) -> None:
    exact = independent_increments(PROBLEM) if sampling == "iid" else correlated_increments(PROBLEM)
    sample = vrtd.record(PROBLEM, 200_000, sampling=sampling, seed=5, shuffle=False)
    estimate = estimate_increments(sample, sampling)
    replicates = np.array([optimal_error(again) for again in bootstrap_increments(sample, sampling, 100, seed=0)])
    spread = replicates.std()
    assert spread < 0.03 * optimal_error(exact)
    assert abs(optimal_error(estimate) - optimal_error(exact)) < 6.0 * spread
    assert abs(replicates.mean() - optimal_error(estimate)) < spread


def test_the_bootstrap_repeats_itself() -> None:
    sample = vrtd.record(PROBLEM, 2000, seed=5, shuffle=False)
    one, two, other = (next(bootstrap_increments(sample, "markov", 1, seed)).theta_star.tolist() for seed in (3, 3, 4))
    assert one == two != other


@pytest.mark.statistical
def test_the_autocorrelation_time_covers() -> None:
    """At 90 %, over 60 samples: so few misses are expected that fewer covered would be a false alarm of the suite."""
    mrp = PROBLEM.mrp
    lazy = vrtd.MarkovRewardProcess(0.8 * np.eye(50) + 0.2 * mrp.P, mrp.mean_reward, 0.95)
    for problem in (PROBLEM, vrtd.LinearProblem(lazy, PROBLEM.phi)):
        truth = instance_optimal(problem, "markov") / instance_optimal(problem, "iid")
        covered = 0
        for seed in range(30):
            found = autocorrelation_time(vrtd.record(problem, 10_000, seed=seed, shuffle=False), confidence=0.9)
            assert found.low < found.tau < found.high < 3.0 * found.low
            covered += found.low <= truth <= found.high
        assert stats.binom.cdf(covered, 30, 0.9) > FAMILY_RATE / 2
    assert "proxy" in found.proxy


@pytest.mark.statistical
def test_a_drawn_sample_is_of_the_chain() -> None:
    problem = vrtd.LinearProblem(QUARTERS, np.eye(2))
    for sampling in ("iid", "markov"):
        sample = vrtd.record(problem, 40_000, sampling=sampling, seed=2, shuffle=False)  # type: ignore[arg-type]
        s, t = sample.phi.argmax(axis=1), sample.phi_next.argmax(axis=1)
        assert not ((s == 1) & (t == 1)).any()
        assert (sample.reward == np.array([[1.0, -2.0], [3.0, 0.0]])[s, t]).all()
        if sampling == "markov":
            assert (s[1:] == t[:-1]).all()
        count = int(((s == 0) & (t == 0)).sum())
        n = int((s == 0).sum())
        assert stats.binomtest(count, n, 0.25).pvalue > FAMILY_RATE / 4
        if sampling == "iid":
            assert stats.binomtest(n, 40_000, 4 / 7).pvalue > FAMILY_RATE / 4


def test_samples_are_frozen_and_repeat() -> None:
    one, two = (vrtd.record(PROBLEM, 100, seed=7, shuffle=False) for _ in range(2))
    assert (one.phi == two.phi).all()
    assert len(one) == 100
    for array in (one.phi, one.reward, one.phi_next, one.discount):
        assert not np.asarray(array).flags.writeable


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Transitions([1.0], [1.0], [1.0], 0.9), r"phi must have the shape \(n, d\), but got \(1,\)"),
        (lambda: Transitions(np.eye(2), [1.0], np.eye(2), 0.9), r"reward must have the shape \(2,\), but got \(1,\)"),
        (lambda: Transitions(np.eye(2), [1.0, 2.0], np.eye(2), [0.9]), r"discount must have the shape \(2,\)"),
        (
            lambda: Transitions(np.eye(2), [1.0, 2.0], np.eye(2), 1.5),
            r"discount must lie in \[0, 1\], but got 1.5 in row 0",
        ),
        (lambda: Transitions(np.eye(2), [1.0, np.nan], np.eye(2), 0.5), "reward must be finite, but got nan"),
        (
            lambda: autocorrelation_time(Transitions(np.ones((3, 2)), np.ones(3), np.ones((3, 2)), 0.5)),
            "phi must have full column rank 2 on the sample, but has rank 1. Remove dependent features, or use more",
        ),
        (lambda: vrtd.record(PROBLEM, 0, shuffle=False), "n_rows must be a whole number of at least 1, but got 0"),
        (lambda: vrtd.record(PROBLEM, 9, sampling="both", shuffle=False), "sampling must be one of"),
        (
            lambda: autocorrelation_time(vrtd.record(PROBLEM, 50, shuffle=False)),
            "at least 20 nearly independent blocks, but has 50 trans",
        ),
        (lambda: autocorrelation_time(vrtd.record(PROBLEM, 5000, shuffle=False), 1.0), "confidence must lie in"),
        (lambda: autocorrelation_time(vrtd.record(PROBLEM, 5000, shuffle=False), -1), "confidence must lie in"),
        (
            lambda: autocorrelation_time(Transitions(np.ones((9, 1)), np.ones(9), 2 * np.ones((9, 1)), 0.9)),
            "A of the sample must have .*negative real parts, but the largest real part is 0.8. Use more transitions",
        ),
    ],
)
def test_bad_samples_are_refused(call: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        call()
