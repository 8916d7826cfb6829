"""Reward processes: construction, what is refused, values."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp

from tests.helpers.chains import TWO, birth_death, chain
from vrtd.errors import AccuracyError, InvalidInputError, SingularSystemError
from vrtd.problems import MarkovRewardProcess, garnet


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
    with pytest.raises(InvalidInputError, match=r"same stored entries as P.*2 stored entries and P has 4.*csr_array"):
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
    mrp = garnet(n_states=20, n_features=3).mrp
    assert pickle.loads(pickle.dumps(mrp)).digest == mrp.digest


SPARSE = sp.csr_array(TWO)


@pytest.mark.parametrize(
    ("P", "R", "gamma", "message"),
    [
        (np.ones((2, 3)), [0, 0], 0.9, r"P must be a square matrix, but has the shape \(2, 3\)"),
        (np.ones(3), [0, 0], 0.9, r"square matrix, but has the shape \(3,\)"),
        (np.ones((0, 0)), [0, 0], 0.9, "square matrix"),
        (sp.csr_array(np.ones((2, 3))), [0, 0], 0.9, "square matrix"),
        ([[0.5, 0.5], [0.5, 0.6]], [0, 0], 0.9, r"row of P must sum to 1 within 1e-08, but got the sum 1\.1 at row 1"),
        (sp.csr_array(np.array([[1.0, 0], [0, 0]])), [0, 0], 0.9, r"the sum 0\.0 at row 1"),
        ([[1.5, -0.5], [0.5, 0.5]], [0, 0], 0.9, r"non-negative, but got -0\.5 on the transition 0 -> 1"),
        ([[1.0, 0.0], [np.nan, 1.0]], [0, 0], 0.9, "probabilities must be finite.*got nan on the transition 1 -> 0"),
        ([[1.0, 0.0], [0.0, np.inf]], [0, 0], 0.9, "got inf on the transition 1 -> 1"),
        ("chain", [0, 0], 0.9, "P must be an array of real numbers, but got str 'chain'"),
        (TWO * 1j, [0, 0], 0.9, "P must be an array of real numbers"),
        (sp.csr_array(TWO * 1j), [0, 0], 0.9, "P must be an array of real numbers, but got dtype complex128"),
        (TWO, [[1, 2], [3]], 0.9, "R must be an array of real numbers"),
        (TWO, [0, 0, 0], 0.9, r"R must have the shape \(2,\) or \(2, 2\), but got \(3,\)"),
        (SPARSE, [0, 0, 0], 0.9, r"R must have the shape \(2,\) or \(2, 2\), but got \(3,\)"),
        (TWO, 1.0, 0.9, r"R must have the shape \(2,\) or \(2, 2\), but got \(\)"),
        (TWO, [0, np.nan], 0.9, "rewards must be finite, but got nan on the transition 1 -> 0"),
        (TWO, [0, -1e308], 0.9, r"rewards must be at most 1e\+100 in size, but got -1e\+308 on the transition 1 -> 0"),
        (TWO, SPARSE, 0.9, r"R of transitions is sparse, but P is dense\. Use \.toarray\(\)"),
        (SPARSE, TWO, 0.9, r"R of transitions is dense, but P is sparse\. Pass a csr_array"),
        (SPARSE, sp.csr_array(np.ones((3, 3))), 0.9, r"R must have the shape \(2,\) or \(2, 2\), but got \(3, 3\)"),
        (TWO, [0, 0], 1.0, r"gamma must lie in \[0, 1\), but got 1\.0"),
        (TWO, [0, 0], -0.1, r"gamma must lie in \[0, 1\), but got -0\.1"),
        (TWO, [0, 0], np.nan, r"gamma must lie in \[0, 1\), but got nan"),
        (TWO, [0, 0], [0.9, 0.9], r"gamma must have the shape \(\) or \(2, 2\), but got \(2,\)"),
        (
            TWO,
            [0, 0],
            [[0.9, 0.9], [0.9, 1.1]],
            r"discounts must lie in \[0, 1\], but got 1\.1 on the transition 1 -> 1",
        ),
        (SPARSE, [0, 0], np.full((2, 2), 0.9), "gamma of transitions is dense, but P is sparse"),
    ],
)
def test_bad_processes_are_refused(P, R, gamma, message):
    with pytest.raises(InvalidInputError, match=message):
        MarkovRewardProcess(P, R, gamma)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_states": 0}, "n_states must be a whole number of at least 1, but got 0"),
        ({"origin": [0, 2]}, r"origin must hold states 0..1, but got 2 at entry 1"),
        ({"successor": [-1, 0]}, r"successor must hold states 0..1, but got -1 at entry 0"),
        ({"origin": [0.0, 1.0]}, "origin must hold integers, but got dtype float64"),
        ({"reward": [1.0]}, r"vectors of the same length, but their shapes are \(2,\), \(2,\), \(2,\), \(1,\), \(2,\)"),
        ({"probability": [1.0, 0.5]}, r"the sum 0\.5 at row 1"),
        ({"discount": [1.0, 2.0]}, r"discounts must lie in \[0, 1\], but got 2\.0 on the transition 1 -> 0"),
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


def test_values_with_discounts_of_transitions():
    mrp = MarkovRewardProcess([[0.5, 0.5], [1.0, 0.0]], [[1.0, 2.0], [3.0, 0.0]], [[1.0, 0.5], [0.0, 0.0]])
    assert mrp.values == pytest.approx([4.5, 3.0])  # v0 = 1.5 + 0.5 v0 + 0.25 v1


def test_undiscounted_chains_have_no_values():
    mrp = MarkovRewardProcess([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]], np.ones(3), np.ones((3, 3)))
    with pytest.raises(SingularSystemError, match="the class of state 1 has discount 1 on all transitions"):
        _ = mrp.values


@pytest.mark.parametrize("discount", [0.95, 0.9999])  # by iteration, by sparse LU
def test_large_values(discount):
    n = 2_500
    P, _ = birth_death(np.full(n, 0.3), np.full(n, 0.3))
    r = np.sin(np.arange(n))
    mrp = MarkovRewardProcess(P, r, discount)
    assert np.abs(mrp.values - (r + discount * (P @ mrp.values))).max() < 1e-9 * max(1, np.abs(mrp.values).max())


@pytest.mark.parametrize("distance", [1e-12, 1e-15])
def test_values_that_rounding_makes_unknowable_are_refused(distance):
    """The residual is at rounding level, and yet the values may be far off: 1 - discount is all that holds them."""
    with pytest.raises(AccuracyError, match=r"relative residual .* and a relative error of up to \S+ \(at most 1e-6\)"):
        _ = MarkovRewardProcess(TWO, [[1.0, 0.0], [0.0, 2.0]], 1.0 - distance).values
    assert MarkovRewardProcess(TWO, np.ones(2), 1.0 - 1e-6).values == pytest.approx(1e6, rel=1e-6)


def test_values_report_what_they_missed(monkeypatch):
    monkeypatch.setattr(np.linalg, "solve", lambda A, b: b + 1.0)
    with pytest.raises(AccuracyError, match=r"values have the relative residual \S+ \(at most 1e-10 is accepted\)"):
        _ = chain(TWO).values
