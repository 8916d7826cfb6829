"""The closed form: its solution, its blocks, and what they say of its spread."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers.statistics import FAMILY_RATE
from tests.helpers.streams import GAMMA, some_rows, with_columns
from vrtd.errors import SingularSystemError
from vrtd.estimator.least_squares import add, most_blocks, no_sums, solve
from vrtd.problems import Transitions
from vrtd.series import block_covariances


def solved(rows: Transitions, pieces: Any = None, theta_0: Any = None) -> Any:
    d = rows.n_features
    sums = no_sums(d)
    for first, last in itertools.pairwise([0, *sorted(pieces or ()), len(rows)]):
        sums = add(sums, rows.part(first, last))
    return solve(sums, np.zeros(d) if theta_0 is None else theta_0, rows.phi)


def covariance(found: Any) -> Any:
    """Return that of theta, from batch means."""
    return block_covariances(found.influence)[0]


def naive(rows: Transitions) -> Any:
    d = rows.n_features
    A, b = np.zeros((d, d)), np.zeros(d)
    for k in range(len(rows)):
        phi, phi_next = rows.phi[k].astype(float), rows.phi_next[k].astype(float)
        A += rows.weight[k] * np.outer(phi, rows.discount[k] * phi_next - phi)
        b += rows.weight[k] * rows.reward[k] * phi
    return -np.linalg.solve(A, b)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("weighted", [False, True])
def test_solution_equals_the_plain_sums(dtype: str, weighted: bool) -> None:
    rows = some_rows(1111, 5, dtype, weighted)
    np.testing.assert_allclose(solved(rows).theta, naive(rows), rtol=1e-10)


def sparse_rows(n: int, d: int, weighted: bool = False) -> Transitions:
    rng = np.random.default_rng(2)
    states = rng.integers(0, d, n + 1)
    weight = rng.uniform(0.5, 1.5, n) if weighted else None
    reward, terminated = rng.normal(size=n), rng.random(n) < 0.05
    return Transitions(np.eye(d)[states[:-1]], reward, np.eye(d)[states[1:]], np.where(terminated, 0.0, GAMMA), weight)


@pytest.mark.parametrize("weighted", [False, True])
def test_zeros_are_skipped_without_a_difference(weighted: bool) -> None:
    rows = sparse_rows(4000, 30, weighted)
    np.testing.assert_allclose(solved(rows).theta, naive(rows), rtol=1e-10)


@pytest.mark.parametrize("rows", [some_rows(9000, 5), sparse_rows(9000, 30)], ids=["dense", "sparse"])
def test_splits_do_not_change_a_bit(rows: Transitions) -> None:
    whole = solved(rows)
    for seed in range(3):
        cuts = np.random.default_rng(seed).integers(1, 9000, 40).tolist()
        parts = solved(rows, cuts)
        assert parts.theta.tobytes() == whole.theta.tobytes()
        assert parts.influence.tobytes() == whole.influence.tobytes()
        assert parts.degrees == whole.degrees


def test_sums_are_a_value() -> None:
    """Adding rows leaves the sums before as they were."""
    rows = some_rows(9000, 5)
    before = add(no_sums(5), rows.part(0, 4000))
    theta = solve(before, np.zeros(5), rows.phi).theta
    first, other, again = (
        solve(add(before, part), np.zeros(5), rows.phi).theta
        for part in (rows.part(4000, 9000), rows, rows.part(4000, 9000))
    )
    assert first.tobytes() == again.tobytes() == solved(rows).theta.tobytes() != other.tobytes()
    assert solve(before, np.zeros(5), rows.phi).theta.tobytes() == theta.tobytes()


def test_any_order_gives_the_same_solution() -> None:
    rows = some_rows(5000, 6)
    order = np.random.default_rng(1).permutation(5000)
    shuffled = Transitions(rows.phi[order], rows.reward[order], rows.phi_next[order], rows.discount[order])
    np.testing.assert_allclose(solved(shuffled).theta, solved(rows).theta, rtol=1e-10)


def test_blocks_are_equal_stretches_of_the_rows() -> None:
    """The influence of block k is -A^-1 times the mean of g over its rows, rows counted from the first on."""
    rows = some_rows(5000, 3)
    found = solved(rows)
    n_blocks = len(found.influence)
    assert found.degrees == n_blocks - 1
    length = 5000 // n_blocks
    length = 1 << (length.bit_length() - 1) if 5000 // (1 << length.bit_length()) < n_blocks else length
    psi = rows.discount[:, None] * rows.phi_next - rows.phi
    A = rows.phi.T @ psi / 5000
    g = rows.phi * (rows.reward + psi @ found.theta)[:, None]
    for k in (0, 1, n_blocks - 1):
        mean = g[k * length : (k + 1) * length].mean(axis=0)
        np.testing.assert_allclose(found.influence[k], -np.linalg.solve(A, mean), rtol=1e-8, atol=1e-12)


def test_features_that_were_never_seen_keep_their_start() -> None:
    rows = sparse_rows(3000, 8)
    phi, phi_next = rows.phi.copy(), rows.phi_next.copy()
    phi[:, 3] = phi_next[:, 3] = 0.0
    found = solved(with_columns(rows, phi=phi, phi_next=phi_next), theta_0=np.full(8, 7.0))
    assert found.theta[3] == 7.0
    assert found.seen.tolist() == [i != 3 for i in range(8)]
    assert np.all(covariance(found)[3] == 0.0)


def test_dependent_features_have_the_values_of_independent_ones() -> None:
    """Columns that are combinations of others change theta, but not the value of a state or its noise."""
    rows, start = some_rows(1000, 3), np.array([1.0, -2.0, 0.5, 3.0, 0.0])
    mix = np.array([[1.0, 0.0, 0.0, 2.0, 1.0], [0.0, 1.0, 0.0, 0.0, 1.0], [0.0, 0.0, 1.0, 0.0, -1.0]])
    found = solved(with_columns(rows, phi=rows.phi @ mix, phi_next=rows.phi_next @ mix), theta_0=start)
    plain = solved(rows)
    phi = np.random.default_rng(3).normal(size=(20, 3))
    np.testing.assert_allclose(phi @ mix @ found.theta, phi @ plain.theta, rtol=1e-9)
    noise, plain_noise = mix @ covariance(found) @ mix.T, covariance(plain)
    np.testing.assert_allclose(noise, plain_noise, rtol=1e-7, atol=1e-12)
    assert found.open.shape == (5, 2)
    assert found.spans(phi @ mix).all()
    assert not found.spans(np.eye(5)).any()
    assert plain.spans(np.eye(3)).all()
    # In the directions that stay open theta is theta_0, in units of the sizes of the features.
    np.testing.assert_allclose((found.theta - start) * found.size @ found.open, 0.0, atol=1e-9)


def test_more_features_than_rows_reproduce_the_rows() -> None:
    """Without bootstrapping the solution of least norm passes through every reward."""
    rows = some_rows(6, 9)
    rows = with_columns(rows, discount=np.zeros(6))
    np.testing.assert_allclose(rows.phi @ solved(rows).theta, rows.reward, rtol=1e-9)


def test_a_singular_system_of_independent_features_is_an_error() -> None:
    """A state that leads to itself without discount has no value."""
    phi = np.eye(2)[np.arange(200) % 2]
    rows = Transitions(phi, np.ones(200), phi, 1.0)
    with pytest.raises(SingularSystemError, match="The rows do not determine the parameters"):
        solved(rows)
    half = Transitions(phi, np.ones(200), phi, np.where(phi[:, 0] == 1.0, 1.0, 0.5))
    with pytest.raises(SingularSystemError, match="The rows do not determine the parameters"):
        solved(half)
    with pytest.raises(SingularSystemError, match="All features are 0 in every row"):
        solved(with_columns(some_rows(100, 3), phi=np.zeros((100, 3))))


def test_features_that_only_rows_of_weight_0_have_are_unseen() -> None:
    rows = some_rows(400, 3)
    last = np.arange(400) % 2 * rows.phi[:, 2]
    phi = np.column_stack([rows.phi[:, :2], last])
    found = solved(with_columns(rows, phi=phi, weight=np.where(last != 0.0, 0.0, 1.0)))
    assert found.seen.tolist() == [True, True, False]
    assert found.spans(np.eye(3)).tolist() == [True, True, False]


def test_too_few_rows_have_no_interval() -> None:
    found = solved(some_rows(19 * 16 + 15, 3))
    assert found.why_no_interval == "it needs 320 rows, but there are only 319"
    assert found.influence is None
    assert solved(some_rows(20 * 16, 3)).influence.shape == (20, 3)


def test_half_of_the_blocks_suffice_for_an_interval() -> None:
    """Blocks are merged in pairs when they are full: an interval must not vanish then."""
    kept = [most_blocks(d) for d in range(1, 1000)]
    assert all(most % 2 == 0 and most // 2 >= 20 for most in kept)
    assert kept[0] == 64
    assert kept[899] == 40  # matrices
    assert kept[998] == 64  # vectors


def test_covariance_is_that_of_the_solution() -> None:
    """Against the exact long-run covariance of a chain; a family of its own. Blocks of 1024 rows are about as good as
    independent; relative errors of a variance from 31 to 63 of them are chi-square."""
    from scipy.stats import chi2

    problem = vrtd.problems.random_mdp(seed=0)
    increments = vrtd.theory.increments.correlated_increments(problem)
    half = np.linalg.solve(problem.A, increments.long_run_covariance())
    exact = np.linalg.solve(problem.A, half.T)
    found = solved(vrtd.record(problem, 50_000, seed=4, shuffle=False))
    ratios = np.diag(covariance(found)) / np.diag(exact) * 50_000 * found.degrees
    limit = FAMILY_RATE / 8
    low, high = chi2.ppf(limit, found.degrees), chi2.isf(limit, found.degrees)
    assert np.all((low < ratios) & (ratios < high))
    # Rows taken as independent would be seen: they overstate two variances by more than these limits allow.
    independent = np.linalg.solve(problem.A, np.linalg.solve(problem.A, problem.noise_covariance).T)
    assert np.any(np.diag(independent) / np.diag(exact) > high / found.degrees)


def test_features_of_successors_only_bootstrap_from_their_start() -> None:
    """Feature 1 is never left: it keeps its start, and what is bootstrapped from it is that."""
    phi, phi_next = np.tile([1.0, 0.0], (40, 1)), np.tile([0.0, 1.0], (40, 1))
    sums = add(no_sums(2), Transitions(phi, np.ones(40), phi_next, 0.5))
    np.testing.assert_allclose(solve(sums, np.array([0.0, 8.0]), phi).theta, [1.0 + 0.5 * 8.0, 8.0], rtol=1e-14)


def test_a_feature_that_only_waiting_rows_have_is_seen() -> None:
    phi = np.vstack([np.tile([1.0, 0.0], (16, 1)), [[0.0, 1.0]]])
    sums = add(no_sums(2), Transitions(phi, np.arange(17.0), np.zeros((17, 2)), 0.0))
    assert solve(sums, np.zeros(2), phi).theta.tolist() == [7.5, 16.0]
