"""Exact moments against full enumeration, the fixture and each other."""

import itertools

import numpy as np
import pytest

from vrtd.errors import InvalidInputError
from vrtd.problems import LinearProblem, MarkovRewardProcess, random_mdp
from vrtd.theory import Moments, stationary_second_moment, td_iid_moments, vrtd_iid_moments

TWO_STATES = MarkovRewardProcess([[0.7, 0.3], [0.4, 0.6]], [[1, 0], [0, 2]], 0.9)
SCALAR = LinearProblem(TWO_STATES, [[1.0], [0.5]])
PLANE = LinearProblem(TWO_STATES, [[1.0, 0.2], [0.5, -1.0]])
RANDOM = random_mdp()
OUTPUTS = ("random", "last", "average")


def samples(problem):
    """Probability, A_x and b_x of every transition."""
    e, phi = problem.mrp.edges, problem.phi
    p = problem.state_distribution[e.origin] * e.probability
    psi = e.discount[:, None] * phi[e.successor] - phi[e.origin]
    return p, np.einsum("ei,ej->eij", phi[e.origin], psi), e.reward[:, None] * phi[e.origin]


def epoch(problem, atoms, step_size, M, output):
    """Every outcome of one epoch of Algorithm 1, as the paper writes it, from every atom (probability, theta)."""
    p, A, b = samples(problem)
    weights, thetas = [], []
    weight, anchor = atoms
    for batch in itertools.product(range(p.size), repeat=M):
        G = np.mean([anchor @ A[x].T + b[x] for x in batch], axis=0)
        for inner in itertools.product(range(p.size), repeat=M):
            theta, path = anchor, []
            for x in inner:
                theta = theta + step_size * ((theta - anchor) @ A[x].T + G)
                path.append(theta)
            chosen = {"random": path, "last": path[-1:], "average": [np.mean(path, axis=0)]}[output]
            for theta in chosen:
                weights.append(weight * p[list(batch)].prod() * p[list(inner)].prod() / len(chosen))
                thetas.append(theta)
    return np.concatenate(weights), np.concatenate(thetas)


def moments_of(problem, atoms):
    weight, theta = atoms
    u = theta - problem.theta_star
    assert weight.sum() == pytest.approx(1.0)
    return weight @ theta, np.einsum("n,ni,nj->ij", weight, u, u)


@pytest.mark.parametrize("problem", [SCALAR, PLANE])
@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize(("M", "n_epochs"), [(1, 3), (2, 2), (3, 1)])
def test_vrtd_moments_against_all_sample_paths(problem, output, M, n_epochs):
    theta_0 = np.array([0.3, -0.7])[: problem.n_features]
    moments = vrtd_iid_moments(problem, 0.4, M, n_epochs, theta_0, output)
    atoms = np.ones(1), theta_0[None]
    for k in range(n_epochs):
        atoms = epoch(problem, atoms, 0.4, M, output)
        mean, second = moments_of(problem, atoms)
        assert np.allclose(moments.mean[k + 1], mean, atol=1e-12)
        assert np.allclose(moments.second[k + 1], second, atol=1e-11)


@pytest.mark.parametrize("problem", [SCALAR, PLANE])
def test_td_moments_against_all_sample_paths(problem):
    p, A, b = samples(problem)
    steps, theta_0 = np.array([0.5, 0.4, 0.1, 0.3]), np.full(problem.n_features, 0.7)
    moments = td_iid_moments(problem, steps, 4, theta_0)
    weight, theta = np.ones(1), theta_0[None]
    for k, a in enumerate(steps):
        theta = np.concatenate([theta + a * (theta @ A[x].T + b[x]) for x in range(p.size)])
        weight = np.concatenate([weight * p[x] for x in range(p.size)])
        mean, second = moments_of(problem, (weight, theta))
        assert np.allclose(moments.mean[k + 1], mean, atol=1e-12)
        assert np.allclose(moments.second[k + 1], second, atol=1e-11)


@pytest.mark.parametrize(
    ("M", "expected"), [(1, 1.2009842830), (2, 0.9953122705), (4, 0.8921480598), (8, 0.8387202057)]
)
def test_stationary_error_of_the_fixture(M, expected):
    assert stationary_second_moment(SCALAR, 0.1, M).trace() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("M", "expected"), [(1, 1.669), (50, 1.056), (500, 0.576), (1000, 0.346), (2000, 0.187)])
def test_stationary_error_of_the_random_mdp(M, expected):
    assert stationary_second_moment(RANDOM, 0.1, M).trace() == pytest.approx(expected, abs=5.1e-4)


@pytest.mark.parametrize("output", OUTPUTS)
def test_a_batch_of_one_is_td(output):
    td = td_iid_moments(RANDOM, 0.1, 30, np.ones(4))
    vrtd = vrtd_iid_moments(RANDOM, 0.1, 1, 30, np.ones(4), output)
    assert np.allclose(vrtd.mean, td.mean, atol=1e-12)
    assert np.allclose(vrtd.second, td.second, atol=1e-12)


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("M", [1, 20])
def test_runs_approach_the_stationary_moment(output, M):
    moments = vrtd_iid_moments(RANDOM, 0.1, M, 6_000 // M, np.zeros(4), output)
    assert np.allclose(moments.second[-1], stationary_second_moment(RANDOM, 0.1, M, output), atol=1e-8)
    assert np.allclose(moments.mean[-1], RANDOM.theta_star, atol=1e-8)


def test_small_steps_reach_the_limit_of_large_batches():
    inverse = np.linalg.inv(SCALAR.A)
    limit = (inverse @ SCALAR.noise_covariance @ inverse.T).trace()
    M = 20_000
    assert M * stationary_second_moment(SCALAR, 0.01, M, "last").trace() == pytest.approx(limit, rel=0.02)


def test_moments_start_at_theta_0_and_are_read_only():
    theta_0 = np.arange(4.0)
    moments = vrtd_iid_moments(RANDOM, 0.1, 5, 2, theta_0)
    assert isinstance(moments, Moments)
    assert moments.mean.shape == (3, 4)
    assert moments.second.shape == (3, 4, 4)
    assert np.allclose(moments.mean[0], theta_0)
    assert moments.squared_error[0] == pytest.approx(((theta_0 - RANDOM.theta_star) ** 2).sum())
    assert not moments.mean.flags.writeable
    assert not moments.second.flags.writeable
    assert theta_0.flags.writeable
    assert td_iid_moments(RANDOM, 0.1, 0, theta_0).second.shape == (1, 4, 4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: td_iid_moments(RANDOM, 0.1, -1, np.zeros(4)),
            "n_updates must be a whole number of at least 0, but got -1",
        ),
        (
            lambda: td_iid_moments(RANDOM, [0.1], 2, np.zeros(4)),
            r"a number or have the shape \(2,\), but has the shape \(1,\)",
        ),
        (lambda: td_iid_moments(RANDOM, [0.1, 0.0], 2, np.zeros(4)), r"be positive, but is 0\.0 at update 1"),
        (lambda: td_iid_moments(RANDOM, np.nan, 2, np.zeros(4)), "step_size must be finite, but got nan"),
        (lambda: td_iid_moments(RANDOM, 0.1, 2, np.zeros(3)), r"theta_0 must have the shape \(4,\), but got \(3,\)"),
        (lambda: vrtd_iid_moments(RANDOM, 0.1, 0, 2, np.zeros(4)), "batch_size must be a whole number of at least 1"),
        (lambda: vrtd_iid_moments(RANDOM, 0.1, 2, -2, np.zeros(4)), "n_epochs must be a whole number of at least 0"),
        (lambda: vrtd_iid_moments(RANDOM, -0.1, 2, 2, np.zeros(4)), r"positive, finite number, but got -0\.1"),
        (lambda: vrtd_iid_moments(RANDOM, 0.1, 2, 2, np.zeros(4), "mean"), "output must be one of .*got 'mean'"),
        (
            lambda: stationary_second_moment(RANDOM, 5.0),
            r"diverges with step_size 5\.0, batch_size 1: the spectral radius of its map is 4\.7",
        ),
    ],
)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()
