import pickle
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from vrtd.errors import AccuracyError, InvalidInputError, ReducibleChainError, SingularSystemError
from vrtd.problems import LIBRARY, MDP, MarkovRewardProcess, baird, boyan_chain, garnet, random_mdp, random_walk
from vrtd.problems.mixing import mixing_constants
from vrtd.problems.stationary import gth, large_stationary

TWO = np.array([[0.7, 0.3], [0.4, 0.6]])


def chain(P, gamma=0.9):
    P = np.asarray(P, dtype=float)
    return MarkovRewardProcess(P, np.ones(len(P)), gamma)


def birth_death(up, down):
    """CSR chain on a line, and its stationary distribution by detailed balance."""
    n = len(up)
    up, down = up.copy(), down.copy()
    up[-1] = down[0] = 0.0
    P = sp.diags_array([down[1:], 1.0 - up - down, up[:-1]], offsets=[-1, 0, 1], shape=(n, n)).tocsr()
    log_mu = np.concatenate([[0.0], np.cumsum(np.log(up[:-1]) - np.log(down[1:]))])
    mu = np.exp(log_mu - log_mu.max())
    return P, mu / mu.sum()


def distances(P, mu, n_times):
    power, d = np.eye(len(P)), []
    for _ in range(n_times):
        d.append(0.5 * np.abs(power - mu).sum(axis=1).max())
        power = power @ P
    return np.array(d)


# --- construction ----------------------------------------------------------------------------------------------------


def test_edges_of_a_dense_chain():
    mrp = MarkovRewardProcess([[0.0, 1.0], [0.4, 0.6]], [[9.0, 1.0], [2.0, -3.0]], gamma=0.9)
    edges = mrp.edges
    assert edges.indptr.tolist() == [0, 1, 3]
    assert edges.indptr.dtype == np.int64
    assert edges.origin.tolist() == [0, 1, 1]
    assert edges.origin.dtype == np.int32
    assert edges.successor.tolist() == [1, 0, 1]
    assert edges.successor.dtype == np.int32
    assert edges.probability.tolist() == [1.0, 0.4, 0.6]
    assert edges.reward.tolist() == [1.0, 2.0, -3.0]
    assert edges.discount.tolist() == [0.9] * 3
    assert mrp.r_max == 3.0  # the reward 9 belongs to an impossible transition
    assert mrp.mean_reward == pytest.approx([1.0, -1.0])
    assert mrp.n_states == 2
    assert not mrp.rewards_averaged
    assert isinstance(mrp.P, np.ndarray)
    assert mrp.P.tolist() == [[0.0, 1.0], [0.4, 0.6]]
    assert repr(mrp) == "MarkovRewardProcess(2 states, 3 transitions)"


@pytest.mark.parametrize("convert", [sp.csr_array, sp.coo_array, sp.csc_matrix, sp.lil_matrix])
def test_sparse_and_dense_are_one_process(convert):
    P = np.array([[0.0, 1.0, 0.0], [0.5, 0.0, 0.5], [0.2, 0.3, 0.5]])
    R = np.array([[0.0, 2.0, 0.0], [1.0, 0.0, 3.0], [4.0, 5.0, 6.0]])
    gamma = np.where(P > 0, 0.5, 0.0)
    dense, sparse = MarkovRewardProcess(P, R, gamma), MarkovRewardProcess(convert(P), convert(R), convert(gamma))
    assert dense.digest == sparse.digest
    assert len(dense.digest) == 64
    assert isinstance(sparse.P, sp.csr_array)
    assert np.array_equal(sparse.P.toarray(), P)
    assert dense.digest != MarkovRewardProcess(P, R, 0.4).digest


def test_a_sparse_reward_keeps_explicit_zeros():
    P = sp.csr_array(TWO)
    R = sp.csr_array((np.array([1.0, 0.0, 0.0, 2.0]), P.indices, P.indptr), shape=(2, 2))
    assert MarkovRewardProcess(P, R, 0.9).digest == MarkovRewardProcess(TWO, [[1, 0], [0, 2]], 0.9).digest
    with pytest.raises(InvalidInputError, match=r"stored entries of P.*2 stored entries against 4.*csr_array"):
        MarkovRewardProcess(P, sp.csr_array(np.array([[1.0, 0.0], [0.0, 2.0]])), 0.9)


def test_a_stored_zero_probability_is_part_of_the_pattern_but_not_an_edge():
    indices, indptr = np.array([0, 1, 0, 1]), np.array([0, 2, 4])
    P = sp.csr_array((np.array([0.0, 1.0, 1.0, 0.0]), indices, indptr), shape=(2, 2))
    R = sp.csr_array((np.array([5.0, 1.0, 2.0, 5.0]), indices, indptr), shape=(2, 2))
    mrp = MarkovRewardProcess(P, R, 0.5)
    assert mrp.edges.reward.tolist() == [1.0, 2.0]
    assert mrp.period == 2


def test_rows_are_normalised_within_the_tolerance():
    mrp = MarkovRewardProcess([[0.5, 0.5 + 5e-9], [1.0, 0.0]], [0.0, 0.0], 0.9)
    assert mrp.P.sum(axis=1) == pytest.approx([1.0, 1.0], abs=1e-15)


def test_the_callers_arrays_are_neither_changed_nor_shared():
    P, R, gamma = sp.csr_array(TWO), np.ones(2), sp.csr_array(np.full((2, 2), 0.9))
    before = [x.copy() for x in (P.data, P.indices, P.indptr, R, gamma.data)]
    mrp = MarkovRewardProcess(P, R, gamma)
    digest, values = mrp.digest, mrp.values.copy()
    for array, old in zip((P.data, P.indices, P.indptr, R, gamma.data), before, strict=True):
        assert np.array_equal(array, old)
        assert array.flags.writeable
    P.data[:] = 7.0
    R[:] = 7.0
    gamma.data[:] = 7.0
    again = MarkovRewardProcess(mrp.P, np.ones(2), 0.9)
    assert again.digest == digest
    assert np.array_equal(again.values, values)
    own = (*mrp.edges, mrp.P.data, mrp.P.indices, mrp.stationary, mrp.values, mrp.mean_reward, mrp.recurrent_class)
    for array in own:
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    dense = TWO.copy()
    exposed = chain(dense).P
    assert not np.shares_memory(exposed, dense)
    assert not exposed.flags.writeable
    assert dense.flags.writeable


def test_from_edges_sorts_and_keeps_parallel_transitions():
    edges = ([1, 0, 0], [0, 1, 1], [1.0, 0.25, 0.75], [0.0, 4.0, 0.0], [0.5, 0.5, 0.5])
    mrp = MarkovRewardProcess.from_edges(2, *edges)
    assert mrp.edges.origin.tolist() == [0, 0, 1]
    assert mrp.edges.reward.tolist() == [0.0, 4.0, 0.0]
    assert isinstance(mrp.P, sp.csr_array)
    assert mrp.P.toarray().tolist() == [[0.0, 1.0], [1.0, 0.0]]
    assert mrp.mean_reward.tolist() == [1.0, 0.0]
    swapped = MarkovRewardProcess.from_edges(2, *[np.array(x)[[2, 0, 1]] for x in edges])
    assert swapped.digest == mrp.digest
    assert MarkovRewardProcess.from_edges(2, *edges, rewards_averaged=True).rewards_averaged


def test_pickle_keeps_the_process():
    mrp, _ = garnet(n_states=20, n_features=3)
    assert pickle.loads(pickle.dumps(mrp)).digest == mrp.digest


SPARSE = sp.csr_array(TWO)


@pytest.mark.parametrize(
    ("P", "R", "gamma", "message"),
    [
        (np.ones((2, 3)), [0, 0], 0.9, r"P must be a square matrix; got the shape \(2, 3\)"),
        (np.ones(3), [0, 0], 0.9, r"square matrix; got the shape \(3,\)"),
        (np.ones((0, 0)), [0, 0], 0.9, "square matrix"),
        (sp.csr_array(np.ones((2, 3))), [0, 0], 0.9, "square matrix"),
        ([[0.5, 0.5], [0.5, 0.6]], [0, 0], 0.9, r"row of P must sum to 1 within 1e-08; got the sum 1\.1 at row 1"),
        (sp.csr_array(np.array([[1.0, 0], [0, 0]])), [0, 0], 0.9, r"the sum 0\.0 at row 1"),
        ([[1.5, -0.5], [0.5, 0.5]], [0, 0], 0.9, r"non-negative; got -0\.5 on the transition 0 -> 1"),
        ([[1.0, 0.0], [np.nan, 1.0]], [0, 0], 0.9, "probabilities must be finite.*got nan on the transition 1 -> 0"),
        ([[1.0, 0.0], [0.0, np.inf]], [0, 0], 0.9, "got inf on the transition 1 -> 1"),
        ("chain", [0, 0], 0.9, "P must be an array of real numbers; got str 'chain'"),
        (TWO * 1j, [0, 0], 0.9, "P must be an array of real numbers"),
        (sp.csr_array(TWO * 1j), [0, 0], 0.9, "P must be an array of real numbers; got dtype complex128"),
        (TWO, [[1, 2], [3]], 0.9, "R must be an array of real numbers"),
        (TWO, [0, 0, 0], 0.9, r"R must have the shape \(2,\) or \(2, 2\); got \(3,\)"),
        (SPARSE, [0, 0, 0], 0.9, r"R must have the shape \(2,\) or \(2, 2\); got \(3,\)"),
        (TWO, 1.0, 0.9, r"R must have the shape \(2,\) or \(2, 2\); got \(\)"),
        (TWO, [0, np.nan], 0.9, "rewards must be finite; got nan on the transition 1 -> 0"),
        (TWO, SPARSE, 0.9, "R must be dense when P is dense"),
        (SPARSE, TWO, 0.9, "R of transitions must be sparse when P is"),
        (SPARSE, sp.csr_array(np.ones((3, 3))), 0.9, r"R must have the shape of P, \(2, 2\); got \(3, 3\)"),
        (TWO, [0, 0], 1.0, r"gamma must lie in \[0, 1\); got 1\.0"),
        (TWO, [0, 0], -0.1, r"gamma must lie in \[0, 1\); got -0\.1"),
        (TWO, [0, 0], np.nan, r"gamma must lie in \[0, 1\); got nan"),
        (TWO, [0, 0], [0.9, 0.9], r"gamma must have the shape \(\) or \(2, 2\); got \(2,\)"),
        (TWO, [0, 0], [[0.9, 0.9], [0.9, 1.1]], r"discounts must lie in \[0, 1\]; got 1\.1 on the transition 1 -> 1"),
        (SPARSE, [0, 0], np.full((2, 2), 0.9), "gamma of transitions must be sparse"),
    ],
)
def test_bad_processes_are_refused(P, R, gamma, message):
    with pytest.raises(InvalidInputError, match=message):
        MarkovRewardProcess(P, R, gamma)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_states": 0}, "n_states must be a whole number of at least 1; got 0"),
        ({"origin": [0, 2]}, r"origin must hold states 0..1; got 2 at entry 1"),
        ({"successor": [-1, 0]}, r"successor must hold states 0..1; got -1 at entry 0"),
        ({"origin": [0.0, 1.0]}, "origin must hold integers; got dtype float64"),
        ({"reward": [1.0]}, r"vectors of one length; got the shapes \(2,\), \(2,\), \(2,\), \(1,\), \(2,\)"),
        ({"probability": [1.0, 0.5]}, r"the sum 0\.5 at row 1"),
        ({"discount": [1.0, 2.0]}, r"discounts must lie in \[0, 1\]; got 2\.0 on the transition 1 -> 0"),
    ],
)
def test_bad_edges_are_refused(change, message):
    good = {
        "n_states": 2,
        "origin": [0, 1],
        "successor": [1, 0],
        "probability": [1.0, 1.0],
        "reward": [0.0, 0.0],
        "discount": [0.9, 0.9],
    }
    with pytest.raises(InvalidInputError, match=message):
        MarkovRewardProcess.from_edges(**{**good, **change})


# --- classes, period, stationary distribution ------------------------------------------------------------------------


def test_transient_states_have_no_mass():
    mrp = chain([[0.5, 0.25, 0.25, 0.0], [0.0, 0.7, 0.3, 0.0], [0.0, 0.4, 0.6, 0.0], [0.3, 0.3, 0.0, 0.4]])
    assert mrp.recurrent_class.tolist() == [1, 2]
    assert mrp.stationary[[0, 3]].tolist() == [0.0, 0.0]
    assert mrp.stationary[[1, 2]] == pytest.approx([4 / 7, 3 / 7], abs=1e-15)


def test_several_closed_classes_are_refused_by_what_needs_one():
    mrp = chain([[0.5, 0.25, 0.25], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    assert mrp.values == pytest.approx([10.0, 10.0, 10.0])  # needs no stationary distribution
    for name in ("stationary", "recurrent_class", "period", "mixing_rate", "mixing_constant"):
        with pytest.raises(ReducibleChainError, match="one closed class; got 2 of them, holding the states 1, 2;"):
            getattr(mrp, name)
    with pytest.raises(ReducibleChainError, match=r"got 7 of them, holding the states 0, 1, 2, 3, 4, \.\.\.;"):
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
    with pytest.raises(AccuracyError, match=r"L1 residual \|mu P - mu\| of at most -1; got"):
        gth(TWO)


def test_large_fast_mixing_chain():
    mrp, _ = garnet(seed=1, n_states=10_000)
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
    P = garnet(n_states=3_000)[0].P
    lazy = sp.csr_array(0.9999 * sp.eye_array(3_000) + 0.0001 * P)
    fast, slow = (MarkovRewardProcess(M, np.zeros(3_000), 0.9).stationary for M in (P, lazy))
    assert np.abs(fast - slow).sum() < 1e-10


# --- values ----------------------------------------------------------------------------------------------------------


def test_values_with_discounts_of_transitions():
    mrp = MarkovRewardProcess([[0.5, 0.5], [1.0, 0.0]], [[1.0, 2.0], [3.0, 0.0]], [[1.0, 0.5], [0.0, 0.0]])
    assert mrp.values == pytest.approx([4.5, 3.0])  # v0 = 1.5 + 0.5 v0 + 0.25 v1


def test_undiscounted_chains_have_no_values():
    mrp = MarkovRewardProcess([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]], np.ones(3), np.ones((3, 3)))
    with pytest.raises(SingularSystemError, match="discount 1 on all transitions of the class of state 1"):
        _ = mrp.values


@pytest.mark.parametrize("discount", [0.95, 0.9999])  # by iteration, by sparse LU
def test_large_values(discount):
    n = 2_500
    P, _ = birth_death(np.full(n, 0.3), np.full(n, 0.3))
    r = np.sin(np.arange(n))
    mrp = MarkovRewardProcess(P, r, discount)
    assert np.abs(mrp.values - (r + discount * (P @ mrp.values))).max() < 1e-9 * max(1, np.abs(mrp.values).max())


def test_values_report_what_they_missed(monkeypatch):
    monkeypatch.setattr(np.linalg, "solve", lambda A, b: b + 1.0)
    with pytest.raises(AccuracyError, match=r"values must be known to a millionth; got an error of up to"):
        _ = chain(TWO).values


# --- mixing ----------------------------------------------------------------------------------------------------------

LAZY = 0.99 * np.eye(50) + 0.01 * random_mdp()[0].P
RING = 0.9 * np.roll(np.eye(11), 1, axis=1) + 0.1 * np.roll(np.eye(11), 2, axis=1)
WITH_TRANSIENT = np.array([[0.9, 0.1, 0.0], [0.0, 0.5, 0.5], [0.0, 0.2, 0.8]])
JORDAN = np.array([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]])  # d(t) is not purely geometric


@pytest.mark.parametrize(
    ("P", "slack"),
    [
        (TWO, 1.01),
        (LAZY, 1.01),
        (RING, 1.01),
        (WITH_TRANSIENT, 1.01),
        (JORDAN, 1.01),
        (random_mdp()[0].P, 1.01),
        (garnet(n_states=40)[0].P.toarray(), 1.01),
        (boyan_chain()[0].P.toarray(), 1.01),
        (0.9995 * np.eye(6) + 0.0005 * random_mdp(n_states=6)[0].P, 1.06),  # beyond the exact times
    ],
)
def test_mixing_constants_bound_the_distance_and_nearly_minimise(P, slack):
    mrp = chain(P)
    kappa, rho = mrp.mixing_constant, mrp.mixing_rate
    d = distances(mrp.P, mrp.stationary, 30_000 if rho > 0.999 else 3_000)
    t = np.arange(d.size)
    reliable = d > 1e-12
    assert (d[reliable] <= kappa * rho ** t[reliable]).all()
    second = np.sort(np.abs(np.linalg.eigvals(P)))[-2]
    assert second < rho < 1.0
    grid = 1.0 - (1.0 - second) * np.geomspace(1e-3, 1.0 - 1e-4, 2_000)
    best = min((d[reliable] / r ** t[reliable]).max() / (1.0 - r) for r in grid)
    assert kappa / (1.0 - rho) <= slack * best


@pytest.mark.parametrize("P", [np.full((4, 4), 0.25), np.tile([0.1, 0.2, 0.7], (3, 1))])
def test_mixing_constants_of_identical_rows(P):
    mrp = chain(P)
    assert 0.0 < mrp.mixing_rate <= 1e-7
    assert mrp.mixing_constant == pytest.approx(1.0 - mrp.stationary.min(), abs=1e-8)


def test_mixing_constants_of_a_single_state():
    mrp = chain([[1.0]])
    assert 0.0 < mrp.mixing_constant < 1e-200
    assert 0.0 < mrp.mixing_rate < 1.0


def test_mixing_constants_are_refused_where_they_do_not_exist():
    ring = chain(np.roll(np.eye(4), 1, axis=1))
    assert ring.stationary == pytest.approx([0.25] * 4)
    for name in ("mixing_constant", "mixing_rate"):
        with pytest.raises(InvalidInputError, match="aperiodic chain; got period 4"):
            getattr(ring, name)
        with pytest.raises(InvalidInputError, match="at most 2000 states; got 2001"):
            getattr(MarkovRewardProcess(sp.eye_array(2001), np.zeros(2001), 0.5), name)


def test_a_chain_that_never_mixes_is_reported():
    with pytest.raises(AccuracyError, match=r"close to its stationary distribution; got a distance of 0\.5"):
        mixing_constants(np.eye(2), np.full(2, 0.5))


def test_the_coarse_grid_of_large_chains_is_still_a_bound():
    P = 0.7 * np.eye(520) + 0.3 * np.roll(np.eye(520), 1, axis=1)
    P[:, 0] += 0.002
    P /= P.sum(axis=1, keepdims=True)
    mrp = chain(P)
    kappa, rho = mrp.mixing_constant, mrp.mixing_rate
    d = distances(mrp.P, mrp.stationary, 400)
    assert (d <= kappa * rho ** np.arange(400)).all()


# --- decision processes ----------------------------------------------------------------------------------------------

STAY_SWAP = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]])


def test_chain_of_a_stochastic_policy_keeps_rewards_apart():
    P = np.array([TWO, TWO])
    mdp = MDP(P, [[1.0, 5.0], [3.0, 5.0]], 0.9)
    mrp = mdp.chain([[0.25, 0.75], [0.5, 0.5]])
    assert mrp.edges.origin.tolist() == [0, 0, 0, 0, 1, 1]  # equal rewards of state 1 are merged
    assert mrp.edges.reward.tolist() == [1.0, 3.0, 1.0, 3.0, 5.0, 5.0]
    assert mrp.edges.probability == pytest.approx([0.175, 0.525, 0.075, 0.225, 0.4, 0.6])
    averaged = mdp.chain([[0.25, 0.75], [0.5, 0.5]], average_rewards=True)
    assert averaged.rewards_averaged
    assert not mrp.rewards_averaged
    assert averaged.edges.reward == pytest.approx([2.5, 2.5, 5.0, 5.0])
    assert averaged.values == pytest.approx(mrp.values)


def test_averaging_keeps_discounts_apart():
    gamma = np.array([0.0, 0.9])[:, None, None]
    mrp = MDP([TWO, TWO], [[1.0, 1.0], [3.0, 3.0]], gamma).chain(np.full((2, 2), 0.5), average_rewards=True)
    assert mrp.edges.discount.tolist() == [0.0, 0.9] * 4
    assert mrp.edges.reward == pytest.approx([1.0, 3.0] * 4)


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 3, 3)])
def test_chain_against_the_sum_over_actions(shape):
    rng = np.random.default_rng(5)
    P = rng.random((2, 3, 3))
    P /= P.sum(axis=2, keepdims=True)
    R, pi = rng.random(shape), rng.dirichlet([1.0, 1.0], size=3)
    full = np.broadcast_to(R if R.ndim == 3 else R[..., None], (2, 3, 3))
    mrp = MDP(P, R, 0.8).chain(pi)
    for s in range(3):
        assert mrp.P.toarray()[s] == pytest.approx(sum(pi[s, a] * P[a, s] for a in range(2)))
        assert mrp.mean_reward[s] == pytest.approx(sum(pi[s, a] * P[a, s] @ full[a, s] for a in range(2)))
    actions = np.array([1, 0, 1])
    fixed = MDP(P, R, 0.8).chain(actions)
    assert np.allclose(fixed.P.toarray(), P[actions, np.arange(3)])


def test_mdp_leaves_its_arguments_alone():
    P, R, pi = STAY_SWAP.copy(), np.ones(2), np.full((2, 2), 0.5)
    mdp = MDP(P, R, 0.5)
    digest = mdp.chain(pi).digest
    P[:] = R[:] = 9.0
    assert mdp.chain(pi).digest == digest
    assert (pi == 0.5).all()
    assert pi.flags.writeable
    assert (mdp.n_actions, mdp.n_states) == (2, 2)


@pytest.mark.parametrize(
    ("P", "R", "gamma", "message"),
    [
        (TWO, [0, 0], 0.9, r"P must have the shape \(A, S, S\); got \(2, 2\)"),
        (-STAY_SWAP, [0, 0], 0.9, r"P must be non-negative; got -1\.0 at action 0, 0 -> 0"),
        (STAY_SWAP * [[[1.0]], [[2.0]]], [0, 0], 0.9, r"row of P must sum to 1.*got the sum 2\.0 at action 1, state 0"),
        (STAY_SWAP, [0, 0, 0], 0.9, r"R must have the shape \(2,\), \(2, 2\) or \(2, 2, 2\); got \(3,\)"),
        (STAY_SWAP, [0, np.inf], 0.9, r"R must be finite; got inf at index \(1,\)"),
        (STAY_SWAP, [0, 0], 1.0, r"gamma must be a number in \[0, 1\).*got 1\.0"),
        (STAY_SWAP, [0, 0], np.full((2, 2), 1.5), r"discounts in \[0, 1\]; got 1\.5"),
        (STAY_SWAP, [0, 0], [1.0, -0.5], r"discounts in \[0, 1\]; got -0\.5"),
        (
            STAY_SWAP,
            [0, 0],
            np.full(3, 0.5),
            r"gamma must broadcast to \(A, S, S\) = \(2, 2, 2\); got the shape \(3,\)",
        ),
    ],
)
def test_bad_mdps_are_refused(P, R, gamma, message):
    with pytest.raises(InvalidInputError, match=message):
        MDP(P, R, gamma)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ([0, 2], r"actions must lie in 0..1; got 2 at state 1"),
        ([0.0, 1.0], r"policy of shape \(S,\) must hold integers; got dtype float64"),
        ([0, 1, 0], r"policy must have the shape \(S, A\) = \(2, 2\) or \(S,\) = \(2,\); got \(3,\)"),
        ([[0.5, 0.6], [1, 0]], r"row of policy must sum to 1.*got the sum 1\.1 at state 0"),
        ([[1.0, 0.0], [1.5, -0.5]], r"policy must be non-negative; got -0\.5 at state 1, action 1"),
        ([[1.0, 0.0], [np.nan, 0.0]], r"policy must be finite; got nan at index \(1, 0\)"),
    ],
)
def test_bad_policies_are_refused(policy, message):
    with pytest.raises(InvalidInputError, match=message):
        MDP(STAY_SWAP, [0, 0], 0.5).chain(policy)


# --- library ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LIBRARY)
def test_library_problems_are_valid_and_deterministic(name):
    mrp, phi = LIBRARY[name](seed=3)
    again, phi_again = LIBRARY[name](seed=3)
    assert mrp.digest == again.digest
    assert np.array_equal(phi, phi_again)
    assert phi.dtype == np.float64
    assert phi.shape[0] == mrp.n_states
    assert mrp.stationary.sum() == pytest.approx(1.0)
    assert np.isfinite(mrp.values).all()
    with pytest.raises(InvalidInputError, match="seed must be a whole number of at least 0; got -1"):
        LIBRARY[name](seed=-1)


def test_random_mdp_draws_in_the_stated_order():
    rng = np.random.default_rng(7)
    P = rng.random((50, 50))
    P /= P.sum(axis=1, keepdims=True)
    R, phi = rng.random((50, 50)), rng.random((50, 4))
    mrp, features = random_mdp(seed=7)
    assert np.allclose(mrp.P, P, atol=1e-16)
    assert np.array_equal(features, phi)
    assert np.array_equal(mrp.edges.reward, R.ravel())
    normalised = random_mdp(seed=7, normalize=True)[1]
    assert np.linalg.norm(normalised, axis=1).max() == pytest.approx(1.0)
    assert np.allclose(normalised / phi, (normalised / phi)[0, 0])


def test_garnet_has_the_stated_form():
    mrp, phi = garnet(seed=2, n_states=60, branching=3, n_features=5, gamma=0.8)
    assert (np.diff(mrp.edges.indptr) == 3).all()
    assert isinstance(mrp.P, sp.csr_array)
    assert np.linalg.matrix_rank(phi[mrp.recurrent_class]) == 5
    assert (mrp.edges.discount == 0.8).all()


def test_boyan_chain_values():
    mrp, phi = boyan_chain()
    assert mrp.values == pytest.approx(-2.0 * np.arange(13), abs=1e-12)
    assert phi @ [-24.0, -16.0, -8.0, 0.0] == pytest.approx(mrp.values, abs=1e-12)
    assert phi.sum(axis=1).tolist() == [1.0] * 13
    assert mrp.period == 1


@pytest.mark.parametrize(("n", "values"), [(5, np.arange(1, 6) / 6), (19, np.arange(-9, 10) / 10), (3, [-0.5, 0, 0.5])])
def test_random_walk_values(n, values):
    mrp, phi = random_walk(n_states=n)
    assert mrp.values == pytest.approx(values, abs=1e-12)
    assert np.array_equal(phi, np.eye(n))
    assert mrp.period == (1 if (n + 1) // 2 % 2 else 2)
    shifted = random_walk(n_states=n, left_reward=1.0)[0]
    assert shifted.values == pytest.approx(np.ones(n))


def test_baird_is_the_star():
    mrp, phi = baird()
    assert mrp.recurrent_class.tolist() == [6]
    assert (mrp.values == 0).all()
    assert np.linalg.matrix_rank(phi) == 7
    assert phi.shape == (7, 8)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: random_mdp(n_states=1), "n_states must be a whole number of at least 2; got 1"),
        (lambda: random_mdp(n_features=0), "n_features must be a whole number of at least 1; got 0"),
        (lambda: random_mdp(n_states=3), "n_features must be at most n_states; got 4 for 3 states"),
        (lambda: random_mdp(gamma=1.0), r"gamma must lie in \[0, 1\); got 1\.0"),
        (lambda: garnet(branching=0), "branching must be a whole number of at least 1; got 0"),
        (lambda: garnet(n_states=4, n_features=2), "branching must be at most n_states; got 5 for 4 states"),
        (lambda: garnet(n_states=40, branching=1, n_features=40), "none in 1000 draws with branching 1, 40 states"),
        (lambda: random_walk(n_states=6), "n_states must be odd.*got 6; pass 5 or 7"),
        (lambda: random_walk(n_states=1), "n_states must be a whole number of at least 3; got 1"),
        (lambda: random_walk(left_reward=np.nan), "rewards must be finite; got nan on the transition 0 -> 2"),
    ],
)
def test_bad_library_arguments_are_refused(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()


def test_importing_the_problems_stays_light():
    code = "import sys, vrtd.problems; print(sorted({'scipy', 'numba', 'matplotlib'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
