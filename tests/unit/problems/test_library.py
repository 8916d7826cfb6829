"""The named problems against their closed forms."""

import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

from vrtd.engine import record
from vrtd.errors import InvalidInputError
from vrtd.problems import (
    LIBRARY,
    LinearProblem,
    Simulator,
    baird,
    boyan_chain,
    frozen_lake,
    garnet,
    off_policy_garnet,
    random_mdp,
    random_walk,
)


@pytest.mark.parametrize("name", LIBRARY)
def test_library_problems_are_valid_and_deterministic(name):
    problem, again = LIBRARY[name](seed=3), LIBRARY[name](seed=3)
    assert problem.digest == again.digest
    assert problem.n_features == again.n_features > 0
    if isinstance(problem, LinearProblem):
        assert np.array_equal(problem.phi, again.phi)
        assert problem.phi.dtype == np.float64
        assert problem.phi.shape[0] == problem.mrp.n_states
        assert problem.mrp.stationary.sum() == pytest.approx(1.0)
        assert np.isfinite(problem.mrp.values).all()
    else:
        assert isinstance(problem, Simulator)
    with pytest.raises(InvalidInputError, match="seed must be a whole number of at least 0, but got -1"):
        LIBRARY[name](seed=-1)


def test_random_mdp_draws_in_the_stated_order():
    rng = np.random.default_rng(7)
    P = rng.random((50, 50))
    P /= P.sum(axis=1, keepdims=True)
    R, phi = rng.random((50, 50)), rng.random((50, 4))
    problem = random_mdp(seed=7)
    mrp, features = problem.mrp, problem.phi
    assert np.allclose(mrp.P, P, atol=1e-16)
    assert np.array_equal(features, phi)
    assert np.array_equal(mrp.edges.reward, R.ravel())
    normalised = random_mdp(seed=7, normalize=True).phi
    assert np.linalg.norm(normalised, axis=1).max() == pytest.approx(1.0)
    assert np.allclose(normalised / phi, (normalised / phi)[0, 0])


def test_garnet_has_the_stated_form():
    problem = garnet(seed=2, n_states=60, branching=3, n_features=5, gamma=0.8)
    mrp, phi = problem.mrp, problem.phi
    assert (np.diff(mrp.edges.indptr) == 3).all()
    assert isinstance(mrp.P, sp.csr_array)
    assert np.linalg.matrix_rank(phi[mrp.recurrent_class]) == 5
    assert (mrp.edges.discount == 0.8).all()


def test_an_off_policy_garnet_has_the_stated_law():
    """Branches, rewards, policy and features in their order; this seed's first draw has one closed class."""
    n, k, A, d = 40, 3, 3, 5
    rng = np.random.default_rng(2)
    successor = np.array([np.sort(rng.choice(n, size=k, replace=False)) for _ in range(A * n)]).reshape(A, n, k)
    probability = np.diff(np.sort(rng.random((A * n, k - 1))), prepend=0.0, append=1.0).reshape(A, n, k)
    reward = rng.random((A, n, k))
    drawn = np.diff(np.sort(rng.random((n, A - 1))), prepend=0.0, append=1.0)
    features = rng.random((n, d))
    problem = off_policy_garnet(2, n, k, d, 0.8, A, difference=0.25)
    mrp, phi = problem.mrp, problem.phi
    policy = 0.75 / A + 0.25 * drawn
    P, r = np.zeros((n, n)), np.zeros(n)
    for a in range(A):
        for s in range(n):
            P[s, successor[a, s]] += policy[s, a] * probability[a, s]
            r[s] += policy[s, a] * probability[a, s] @ reward[a, s]
    assert np.array_equal(phi, features)
    assert np.allclose(mrp.discounted_P.toarray(), 0.8 * P, atol=1e-15)
    assert mrp.mean_reward == pytest.approx(r)
    assert mrp.edges.origin.size == n * k * A
    assert 0.75 < mrp.edges.weight.min() < 1.0 < mrp.edges.weight.max() < 0.75 + 0.25 * A
    assert not off_policy_garnet(2, difference=0.0).mrp.is_weighted


def test_boyan_chain_values():
    problem = boyan_chain()
    mrp, phi = problem.mrp, problem.phi
    assert mrp.values == pytest.approx(-2.0 * np.arange(13), abs=1e-12)
    assert phi @ [-24.0, -16.0, -8.0, 0.0] == pytest.approx(mrp.values, abs=1e-12)
    assert phi.sum(axis=1).tolist() == [1.0] * 13
    assert mrp.period == 1


@pytest.mark.parametrize(("n", "values"), [(5, np.arange(1, 6) / 6), (19, np.arange(-9, 10) / 10), (3, [-0.5, 0, 0.5])])
def test_random_walk_values(n, values):
    problem = random_walk(n_states=n)
    mrp, phi = problem.mrp, problem.phi
    assert mrp.values == pytest.approx(values, abs=1e-12)
    assert np.array_equal(phi, np.eye(n))
    assert mrp.period == (1 if (n + 1) // 2 % 2 else 2)
    shifted = random_walk(n_states=n, left_reward=1.0).mrp
    assert shifted.values == pytest.approx(np.ones(n))


def test_baird_is_the_star():
    problem = baird()
    mrp, phi = problem.mrp, problem.phi
    edges = mrp.edges
    assert np.array_equal(edges.successor.reshape(7, 7), np.tile(np.arange(7), (7, 1)))
    assert edges.probability == pytest.approx(np.full(49, 1 / 7), rel=1e-15)
    assert edges.weight == pytest.approx(np.where(edges.successor == 6, 7.0, 0.0), rel=1e-15)
    assert (edges.discount == 0.99).all()
    assert mrp.stationary == pytest.approx(np.full(7, 1 / 7), rel=1e-14)
    assert mrp.discounted_P.toarray() == pytest.approx(np.tile([0.0] * 6 + [0.99], (7, 1)), rel=1e-14)
    assert (mrp.values == 0).all()
    assert np.linalg.matrix_rank(phi) == 7
    assert phi.shape == (7, 8)


def test_frozen_lake_has_the_discount_that_is_given():
    assert set(frozen_lake(gamma=0.8).mrp.edges.discount.tolist()) == {0.8}


def test_frozen_lake_is_the_map():
    """Where one can go from each cell, what it pays, and that probabilities are drawn cell by cell, features last."""
    problem = frozen_lake(seed=3)
    mrp, phi = problem.mrp, problem.phi
    lake, rng, P = "SFFFFHFHFFFHHFFG", np.random.default_rng(3), np.zeros((16, 16))
    for s in range(16):
        if lake[s] in "HG":
            P[s, 0] = 1.0
        else:
            moves = {"up": s - 4 if s > 3 else None, "down": s + 4 if s < 12 else None}
            moves |= {"left": s - 1 if s % 4 else None, "right": s + 1 if s % 4 < 3 else None}
            near = [to for to in moves.values() if to is not None]
            P[s, near] = rng.random(len(near))
    P /= P.sum(axis=1, keepdims=True)
    assert np.allclose(mrp.P.toarray(), P, rtol=1e-15, atol=0)
    assert np.array_equal(phi, rng.random((16, 4)))
    edges = mrp.edges
    assert np.array_equal(edges.reward, (edges.successor == 15).astype(float))
    assert set(edges.discount.tolist()) == {0.95}
    assert mrp.recurrent_class.size == 16


def test_a_lazy_chain_stays_and_else_moves_as_before():
    problem, lazy = random_mdp(seed=1), random_mdp(seed=1, laziness=0.9)
    assert np.array_equal(problem.phi, lazy.phi)
    assert np.allclose(lazy.mrp.P, 0.9 * np.eye(50) + 0.1 * problem.mrp.P, rtol=1e-14)
    assert np.array_equal(lazy.mrp.edges.reward, problem.mrp.edges.reward)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: random_mdp(laziness=1.0), r"laziness must lie in \[0, 1\), but got 1\.0. Pass a number such as 0.8"),
        (lambda: random_mdp(laziness=-0.1), r"laziness must lie in \[0, 1\), but got -0.1"),
        (lambda: frozen_lake(n_features=17), "n_features must be at most n_states=16, but is 17. Lower n_features"),
        (lambda: random_mdp(n_states=1), "n_states must be a whole number of at least 2, but got 1"),
        (lambda: random_mdp(n_features=0), "n_features must be a whole number of at least 1, but got 0"),
        (lambda: random_mdp(n_states=3), "n_features must be at most n_states=3, but is 4. Lower n_features"),
        (lambda: random_mdp(gamma=1.0), r"gamma must lie in \[0, 1\), but got 1\.0"),
        (lambda: garnet(branching=0), "branching must be a whole number of at least 1, but got 0"),
        (lambda: garnet(n_states=4, n_features=2), "branching must be at most n_states=4, but is 5. Lower branching"),
        (lambda: garnet(n_states=40, branching=1, n_features=40), "None of 1000 draws with branching 1, 40 states"),
        (lambda: off_policy_garnet(n_actions=1), "n_actions must be a whole number of at least 2, but got 1"),
        (
            lambda: off_policy_garnet(difference=1.5),
            r"difference must lie in \[0, 1\], but got 1\.5. Pass a number such as",
        ),
        (lambda: off_policy_garnet(gamma=1.0), r"gamma must lie in \[0, 1\), but got 1\.0. Pass a number such as"),
        (lambda: off_policy_garnet(n_states=4, n_features=2), "branching must be at most n_states=4, but is 5"),
        (lambda: random_walk(n_states=6), "n_states must be odd, but is 6. Pass 5 or 7"),
        (lambda: random_walk(n_states=1), "n_states must be a whole number of at least 3, but got 1"),
        (lambda: random_walk(left_reward=np.nan), "rewards must be finite, but got nan on the transition 0 -> 2"),
    ],
)
def test_bad_library_arguments_are_refused(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()


def test_what_does_not_fit_into_memory_is_refused():
    with pytest.raises(InvalidInputError, match=r"n_states=1000000000, .* GiB, must fit in half of the memory"):
        random_mdp(n_states=10**9)
    with pytest.raises(InvalidInputError, match=r"n_rows=1000000000000000 .* must fit .* Record fewer rows"):
        record(random_mdp(), 10**15)


def test_importing_the_problems_stays_light():
    code = "import sys, vrtd.problems; print(sorted({'scipy', 'numba', 'matplotlib'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
