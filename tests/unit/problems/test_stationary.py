"""Closed classes, periods and stationary distributions, small and large."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.chains import TWO, birth_death, chain
from vrtd.errors import AccuracyError, ReducibleChainError
from vrtd.problems import MarkovRewardProcess, garnet
from vrtd.problems.stationary import gth, large_stationary


def test_transient_states_have_no_mass():
    mrp = chain([[0.5, 0.25, 0.25, 0.0], [0.0, 0.7, 0.3, 0.0], [0.0, 0.4, 0.6, 0.0], [0.3, 0.3, 0.0, 0.4]])
    assert mrp.recurrent_class.tolist() == [1, 2]
    assert mrp.stationary[[0, 3]].tolist() == [0.0, 0.0]
    assert mrp.stationary[[1, 2]] == pytest.approx([4 / 7, 3 / 7], abs=1e-15)


def test_several_closed_classes_are_refused_by_what_needs_one():
    mrp = chain([[0.5, 0.25, 0.25], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    assert mrp.values == pytest.approx([10.0, 10.0, 10.0])  # needs no stationary distribution
    for name in ("stationary", "recurrent_class", "period", "mixing_rate", "mixing_constant"):
        with pytest.raises(
            ReducibleChainError, match=r"one closed class, but it has 2, which contain the states 1, 2\. "
        ):
            getattr(mrp, name)
    with pytest.raises(ReducibleChainError, match=r"it has 7, which contain the states 0, 1, 2, 3, 4, \.\.\.\."):
        _ = chain(np.eye(7)).stationary


@pytest.mark.parametrize(("jumps", "expected"), [((1,), 6), ((1, 4), 3), ((1, 3), 2), ((1, 2), 1), ((0, 1), 1)])
def test_period(jumps, expected):
    ring = sum(np.roll(np.eye(6), k, axis=1) for k in jumps) / len(jumps)
    with_transient = np.block([[np.eye(1) * 0.5, np.full((1, 6), 0.5 / 6)], [np.zeros((6, 1)), ring]])
    mrp = chain(with_transient)
    assert mrp.period == expected
    assert mrp.stationary == pytest.approx([0.0] + [1 / 6] * 6)


@given(st.integers(1, 12), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_stationary_agrees_with_the_eigenvector(n, seed):
    rng = np.random.default_rng(seed)
    P = rng.random((n, n)) * (rng.random((n, n)) < 0.5) + np.roll(np.eye(n), 1, axis=1)  # irreducible
    P /= P.sum(axis=1, keepdims=True)
    values, vectors = np.linalg.eig(P.T)
    mu = vectors[:, np.abs(values - 1).argmin()].real
    assert chain(P).stationary == pytest.approx(mu / mu.sum(), abs=1e-10)
    if n > 1:
        assert large_stationary(sp.csr_array(P)) == pytest.approx(mu / mu.sum(), abs=1e-10)


@pytest.mark.parametrize("block", [1, 3, 64])
def test_gth_is_accurate_entry_by_entry(block):
    P, mu = birth_death(np.full(150, 0.1), np.full(150, 0.8))  # masses down to 1e-134
    assert np.abs(gth(P.toarray(), block) / mu - 1).max() < 1e-12
    P, mu = birth_death(np.full(400, 0.9), np.full(400, 0.1))  # ratios beyond the range of a float
    computed = gth(P.toarray(), block)
    assert np.abs(computed - mu).sum() < 1e-12


def test_gth_reports_what_it_missed(monkeypatch):
    monkeypatch.setattr("vrtd.problems.stationary.RESIDUAL_LIMIT", -1.0)
    with pytest.raises(AccuracyError, match=r"L1 residual \|mu P - mu\| = \S+, but at most -1 is accepted"):
        gth(TWO)


def test_large_fast_mixing_chain():
    mrp = garnet(seed=1, n_states=10_000).mrp
    mu = mrp.stationary
    assert mu.min() >= 0
    assert abs(mu.sum() - 1) < 1e-12
    assert np.abs(mrp.P.T @ mu - mu).sum() <= 1e-12
    assert np.abs(mrp.mean_reward + mrp.discounted_P @ mrp.values - mrp.values).max() < 1e-11


@pytest.mark.parametrize("kind", ["symmetric", "random environment", "drift"])
def test_large_slow_chains_against_detailed_balance(kind):
    n, rng = 5_000, np.random.default_rng(3)
    rates = {
        "symmetric": (np.full(n, 0.5), np.full(n, 0.5)),
        "random environment": (0.3 + 0.2 * rng.random(n), 0.3 + 0.2 * rng.random(n)),
        "drift": (np.full(n, 0.5), np.full(n, 0.4)),
    }
    P, mu = birth_death(*rates[kind])
    computed = MarkovRewardProcess(P, np.zeros(n), 0.9).stationary
    assert np.abs(computed - mu).sum() < 1e-7  # relaxation of the random environment takes more than 1e8 steps
    heavy = mu > 1e-100
    assert np.abs(computed[heavy] / mu[heavy] - 1).max() < 1e-6
    assert computed.min() >= 0
    assert np.abs(P.T @ computed - computed).sum() <= 1e-12


def test_large_nearly_cyclic_chain():
    n, rng = 10_000, np.random.default_rng(0)
    stay, skip, s = 0.5 * rng.random(n), 1e-3 * rng.random(n), np.arange(n)
    columns = [s, (s + 1) % n, (s + 2) % n]
    data = [stay, 1.0 - stay - skip, skip]
    P = sp.csr_array((np.concatenate(data), (np.tile(s, 3), np.concatenate(columns))), shape=(n, n))
    mu = MarkovRewardProcess(P, np.zeros(n), 0.9).stationary
    assert np.abs(P.T @ mu - mu).sum() <= 1e-12
    assert abs(mu.sum() - 1) < 1e-12
    assert mu.min() > 0


def test_laziness_does_not_slow_a_large_chain():
    P = garnet(n_states=3_000).mrp.P
    lazy = sp.csr_array(0.9999 * sp.eye_array(3_000) + 0.0001 * P)
    fast, slow = (MarkovRewardProcess(M, np.zeros(3_000), 0.9).stationary for M in (P, lazy))
    assert np.abs(fast - slow).sum() < 1e-10
