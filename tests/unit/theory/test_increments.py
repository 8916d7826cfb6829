"""Moments of transitions against sums over transitions, over lags and over all short paths."""

import itertools
from math import inf

import numpy as np
import pytest

from tests.helpers.chains import birth_death
from vrtd.errors import InvalidInputError
from vrtd.problems import LinearProblem, MarkovRewardProcess, random_mdp
from vrtd.theory.increments import correlated_increments, independent_increments, lag_operator
from vrtd.theory.symmetric import outer, pack, unpack

RNG = np.random.default_rng(0)
TWO = MarkovRewardProcess([[0.7, 0.3], [0.4, 0.6]], [[1, 0], [0, 2]], 0.9)
TABLE = [[1.0, 0.2], [0.5, -1.0]]
PROBLEMS = {
    "two states": LinearProblem(TWO, [[1.0], [0.5]]),
    "as many features": LinearProblem(TWO, TABLE),
    # Two ways from 1 to 2 and two from 3 to 3, state 0 is not come back to, every transition has its own discount.
    "parallel transitions": LinearProblem(
        MarkovRewardProcess.from_edges(
            4,
            origin=[0, 0, 1, 1, 1, 2, 2, 3, 3, 3],
            successor=[0, 1, 1, 2, 2, 1, 3, 3, 3, 1],
            probability=[0.6, 0.4, 0.5, 0.2, 0.3, 0.6, 0.4, 0.3, 0.1, 0.6],
            reward=[1.0, -1.0, 0.5, 2.0, -3.0, 1.0, 0.0, 4.0, -1.0, 2.0],
            discount=[0.9, 0.8, 0.9, 1.0, 0.0, 0.7, 0.9, 0.5, 0.6, 0.9],
        ),
        [[2.0, 1.0], [1.0, 0.3], [-0.4, 0.8], [0.6, 0.6]],
    ),
    "slow": LinearProblem(MarkovRewardProcess([[0.98, 0.02], [0.01, 0.99]], [[1, 0], [0, 2]], 0.9), [[1.0], [0.5]]),
    "periodic": LinearProblem(
        MarkovRewardProcess(np.roll(np.eye(3), 1, axis=1), RNG.random((3, 3)), 0.9), RNG.random((3, 2))
    ),
    "random": random_mdp(n_states=6, n_features=3),
}
by_problem = pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)


def transitions(problem):
    """Probability in the stationary chain and Z_x = (A_x, g_x(theta_star)) of every transition."""
    e, phi = problem.mrp.edges, problem.phi
    A = [np.outer(phi[i], g * phi[j] - phi[i]) for i, j, g in zip(e.origin, e.successor, e.discount, strict=True)]
    noise = [a @ problem.theta_star + r * phi[i] for a, r, i in zip(A, e.reward, e.origin, strict=True)]
    return problem.state_distribution[e.origin] * e.probability, np.concatenate(
        [A, np.array(noise)[:, :, None]], axis=2
    )


def expected_square(weights, Z, Y):
    return np.einsum("x,xip,pq,xjq->ij", weights, Z, Y, Z)


def some_symmetric(n):
    Y = RNG.normal(size=(n, n))
    return Y + Y.T


def apply(packed_map, Y):
    return unpack(packed_map @ pack(Y), len(Y) - 1)


def paths(problem, length):
    """Probability of every stationary path of so many transitions, and the transitions on it."""
    e = problem.mrp.edges
    first = problem.mrp.stationary[e.origin] * e.probability
    for path in itertools.product(range(e.origin.size), repeat=length):
        p = first[path[0]]
        for x, y in itertools.pairwise(path):
            p = p * (e.successor[x] == e.origin[y]) * e.probability[y]
        if p > 0.0:
            yield p, list(path)


def lagged(problem, k):
    """(d, d + 1, d, d + 1) C_k: covariances of the entries of Z_0 and Z_k."""
    e, P = problem.mrp.edges, problem.mrp.matrix(problem.mrp.edges.probability).toarray()
    weights, Z = transitions(problem)
    joint = weights[:, None] * np.linalg.matrix_power(P, k - 1)[np.ix_(e.successor, e.origin)] * e.probability
    mean = np.einsum("x,xip->ip", weights, Z)
    return np.einsum("xy,xip,yjq->ipjq", joint, Z, Z) - np.einsum("ip,jq->ipjq", mean, mean)


def nothing(problem):
    """An epoch that leaves nothing of the error it finds: only adjacent batches matter."""
    return np.zeros((problem.n_features, problem.n_features))


def matrix(C):
    d, n = C.shape[:2]
    return C.reshape(d * n, d * n)


@by_problem
def test_independent_moments_are_sums_over_transitions(problem):
    increments = independent_increments(problem)
    weights, Z = transitions(problem)
    Y = some_symmetric(problem.n_features + 1)
    mean = np.einsum("x,xip->ip", weights, Z)
    assert np.allclose(increments.mean, mean, atol=1e-13)
    assert np.allclose(increments.A, problem.A)
    assert np.allclose(apply(increments.square, Y), expected_square(weights, Z, Y))
    assert np.allclose(apply(increments.mean_square, Y), mean @ Y @ mean.T)
    assert np.allclose(increments.long_run_covariance(), problem.noise_covariance)
    theta = RNG.normal(size=problem.n_features)
    y = np.append(theta - problem.theta_star, 1.0)
    assert np.allclose(increments.start(theta), pack(np.outer(y, y)))


def test_off_policy_moments_weigh_states_as_told():
    problem = LinearProblem(TWO, [[1.0], [0.5]], [0.1, 0.9])
    weights, Z = transitions(problem)
    Y = some_symmetric(2)
    assert np.allclose(apply(independent_increments(problem).square, Y), expected_square(weights, Z, Y))


def test_many_transitions_are_added_up_in_pieces(monkeypatch):
    problem = PROBLEMS["random"]
    whole = independent_increments(problem).square
    monkeypatch.setattr("vrtd.theory.increments._PIECE", 50)  # 5 of the 36 transitions at a time
    assert np.allclose(independent_increments(problem).square, whole, rtol=1e-13)


@pytest.mark.parametrize("M", [1, 2, 3])
@pytest.mark.parametrize("name", ["two states", "parallel transitions", "periodic"])
def test_a_batch_has_the_second_moment_of_all_its_paths(name, M):
    problem = PROBLEMS[name]
    _, Z = transitions(problem)
    Y = some_symmetric(problem.n_features + 1)
    batches = list(paths(problem, M))
    weights = np.array([p for p, _ in batches])
    assert weights.sum() == pytest.approx(1.0)
    means = np.array([Z[path].mean(axis=0) for _, path in batches])
    found = apply(correlated_increments(problem).batch_square(M), Y)
    assert np.allclose(found, expected_square(weights, means, Y), atol=1e-12)


@pytest.mark.parametrize("M", [1, 2])
@pytest.mark.parametrize("name", ["two states", "parallel transitions", "periodic"])
def test_adjacent_batches_have_the_covariance_of_all_their_paths(name, M):
    problem = PROBLEMS[name]
    weights, Z = transitions(problem)
    mean = np.einsum("x,xip->ip", weights, Z)
    covariance = sum(
        p * np.einsum("ip,jq->ipjq", Z[path[:M]].mean(axis=0) - mean, Z[path[M:]].mean(axis=0) - mean)
        for p, path in paths(problem, 2 * M)
    )
    adjacent = correlated_increments(problem).correlation.between(M, nothing(problem))
    assert np.allclose(adjacent, M * M * matrix(covariance), atol=1e-12)


@by_problem
@pytest.mark.parametrize("M", [1, 2, 7, 11, 64, 101])
def test_sums_over_lags_are_sums_over_lags(problem, M):
    correlation = correlated_increments(problem).correlation
    C = {k: matrix(lagged(problem, k)) for k in range(1, 2 * M)}
    within = sum(((1 - k / M) * C[k] for k in range(1, M)), np.zeros_like(C[1]))
    adjacent = sum(min(k, 2 * M - k) * C[k] for k in range(1, 2 * M))
    assert np.allclose(correlation.within(M), within, atol=1e-10)
    assert np.allclose(correlation.between(M, nothing(problem)), adjacent, atol=1e-10)


@by_problem
@pytest.mark.parametrize("M", [1, 2, 5])
def test_batches_further_apart_are_added_with_what_epochs_leave(problem, M):
    d = problem.n_features
    decay = RNG.normal(size=(d, d))
    decay *= 0.8 / np.abs(np.linalg.eigvals(decay)).max()
    n_batches = 150  # 0.8^150 = 3e-15
    C = {k: lagged(problem, k) for k in range(1, (n_batches + 1) * M)}
    expected, power = np.zeros_like(C[1]), np.eye(d)
    for j in range(1, n_batches + 1):
        D = sum((M - abs(k - j * M)) * C[k] for k in range((j - 1) * M + 1, (j + 1) * M))
        expected, power = expected + np.tensordot(power, D, 1), power @ decay
    found = correlated_increments(problem).correlation.between(M, decay)
    assert np.allclose(found, matrix(expected), atol=1e-9)


@pytest.mark.parametrize("name", ["two states", "parallel transitions", "slow", "random"])
def test_the_long_run_covariance_sums_every_lag(name):
    problem = PROBLEMS[name]
    increments = correlated_increments(problem)
    C = sum(lagged(problem, k) for k in range(1, 1500))  # 0.97^1500 = 1e-20
    assert np.allclose(increments.correlation.within(inf), matrix(C), atol=1e-10)
    noise = C[:, -1, :, -1]
    expected = problem.noise_covariance + noise + noise.T
    assert not np.allclose(expected, problem.noise_covariance, rtol=0.05)
    assert np.allclose(increments.long_run_covariance(), expected, atol=1e-10)


@by_problem
def test_a_huge_batch_has_the_long_run_covariance(problem):
    increments = correlated_increments(problem)
    M = 10**7
    noise = unpack(M * increments.batch_square(M)[:, -1], problem.n_features)
    assert np.allclose(noise, increments.long_run_covariance(), rtol=1e-4, atol=1e-6)
    assert np.allclose(increments.batch_square(inf), increments.mean_square)


def test_with_a_feature_for_each_state_the_noise_is_a_martingale():
    """theta_star has a TD error of mean 0 in every state then, so nothing before it correlates with it."""
    problem = PROBLEMS["as many features"]
    assert np.allclose(correlated_increments(problem).long_run_covariance(), problem.noise_covariance, atol=1e-13)


def test_the_noise_of_a_deterministic_cycle_cancels():
    assert np.allclose(correlated_increments(PROBLEMS["periodic"]).long_run_covariance(), 0.0, atol=1e-12)


def test_lag_operator_adds_a_covariance_and_its_transpose():
    d = 2
    C, Y = RNG.normal(size=(d, d + 1, d, d + 1)), some_symmetric(d + 1)
    covariance = np.einsum("pq,ipjq->ij", Y, C)
    assert np.allclose(apply(lag_operator(matrix(C), d), Y), covariance + covariance.T)


def identical_rows(rewards, gamma, phi):
    return LinearProblem(MarkovRewardProcess(np.tile([0.2, 0.5, 0.3], (3, 1)), rewards, gamma), phi)


@pytest.mark.parametrize(
    "problem",
    [
        # What a transition does depends on its first state only,
        identical_rows([1.0, -2.0, 3.0], 0.0, [[1.0, 0.2], [0.5, -1.0], [0.1, 0.4]]),
        # or on its second only: no two transitions share a state that matters.
        identical_rows(np.tile([1.0, -2.0, 3.0], (3, 1)), 0.9, np.ones((3, 1))),
    ],
    ids=["first state", "second state"],
)
def test_identical_rows_leave_no_correlation_where_no_state_is_shared(problem):
    plain, chain = independent_increments(problem), correlated_increments(problem)
    for M in (1, 2, 10):
        assert np.allclose(chain.correlation.within(M), 0.0, atol=1e-13)
        assert np.allclose(chain.correlation.between(M, 0.9 * np.eye(problem.n_features)), 0.0, atol=1e-13)
        assert np.allclose(chain.batch_square(M), plain.batch_square(M), atol=1e-13)
    assert np.allclose(chain.long_run_covariance(), plain.long_run_covariance(), atol=1e-13)


def test_identical_rows_otherwise_correlate_neighbours_only():
    problem = identical_rows([1.0, -2.0, 3.0], 0.9, [[1.0, 0.2], [0.5, -1.0], [0.1, 0.4]])
    correlation, C = correlated_increments(problem).correlation, matrix(lagged(problem, 1))
    assert np.abs(C).max() > 0.1
    for M in (1, 2, 10):
        assert np.allclose(correlation.within(M), (1 - 1 / M) * C, atol=1e-13)
        assert np.allclose(correlation.between(M, 0.9 * np.eye(2)), C, atol=1e-13)


def test_batches_of_any_size_cost_no_more_than_their_digits():
    """P^M is forgotten once it has mixed: a batch of 2^52 is as good as an infinite one."""
    increments = correlated_increments(PROBLEMS["two states"])
    assert np.allclose(increments.correlation.within(2**52), increments.correlation.within(inf), rtol=1e-12)
    start = outer(np.array([0.0, 1.0]))
    assert np.abs(increments.batch_square(2**52) @ start).max() < 1e-14


def test_the_stationary_distribution_may_be_passed_by_hand():
    for seed in range(10):
        problem = random_mdp(seed=seed)
        by_hand = LinearProblem(problem.mrp, problem.phi, problem.mrp.stationary)
        assert np.allclose(
            correlated_increments(by_hand).long_run_covariance(),
            correlated_increments(problem).long_run_covariance(),
        )


def test_what_has_no_covariances_along_a_trajectory_is_refused():
    with pytest.raises(
        InvalidInputError, match="state_distribution that is not the stationary distribution of its chain"
    ):
        correlated_increments(LinearProblem(TWO, [[1.0], [0.5]], [0.1, 0.9]))
    n = 4001
    P, _ = birth_death(np.full(n, 0.3), np.full(n, 0.4))
    big = LinearProblem(MarkovRewardProcess(P, np.ones(n), 0.9), np.ones((n, 1)))
    with pytest.raises(InvalidInputError, match=r"limited to 4000 states, but there are 4001\. Simulate instead"):
        correlated_increments(big)
