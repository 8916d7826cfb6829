"""The share of the value function that features explain."""

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import vrtd
from tests.helpers.statistics import z_limit
from vrtd.errors import InvalidInputError
from vrtd.problems import Transitions
from vrtd.theory.explained import value_explained


def truth(problem: vrtd.LinearProblem) -> tuple[float, float]:
    """Exact share, and rms misfit of phi.theta_star."""
    mu, values = problem.mrp.stationary, problem.mrp.values
    square = float(mu @ (problem.phi @ problem.theta_star - values) ** 2)
    return 1.0 - square / float(mu @ values**2 - (mu @ values) ** 2), square**0.5


def steps(problem: vrtd.LinearProblem, n: int, seed: int) -> tuple[Transitions, Any, Any]:
    """Transitions of a trajectory, and its states before and after."""
    phi, index = problem.phi, np.arange(1.0, problem.mrp.n_states + 1.0)[:, None]
    drawn = vrtd.record(vrtd.LinearProblem(problem.mrp, index), n, seed=seed, shuffle=False)
    now, then = (rows[:, 0].astype(int) - 1 for rows in (drawn.phi, drawn.phi_next))
    return Transitions(phi[now], drawn.reward, phi[then], drawn.discount), now, then


def waves(n_features: int) -> vrtd.LinearProblem:
    """A random chain whose values vary, with a constant and some random features."""
    rng = np.random.default_rng(3)
    P = rng.dirichlet(np.full(20, 0.3), size=20)
    mrp = vrtd.MarkovRewardProcess(P, 3.0 * rng.normal(size=20), 0.8)
    return vrtd.LinearProblem(mrp, np.column_stack([np.ones(20), rng.normal(size=(20, n_features - 1))]))


@pytest.mark.parametrize("n_features", [2, 6, 12])
def test_the_share_of_a_chain(n_features: int) -> None:
    problem = waves(n_features)
    share, misfit = truth(problem)
    assert 0.05 < share < 0.95
    star = problem.theta_star
    found = value_explained(steps(problem, 20_000, seed=1)[0], star)
    assert found.exact
    assert found.n_cells == 20
    assert abs(found.share - share) < z_limit(12) * found.share_error < 0.5
    assert abs(found.misfit - misfit) < z_limit(12) * found.misfit_error
    own = value_explained(steps(problem, 20_000, seed=2)[0])
    assert abs(own.share - share) < z_limit(12) * own.share_error


def test_standard_errors_are_those_of_repetitions() -> None:
    problem = waves(6)
    star = problem.theta_star
    found = [value_explained(steps(problem, 4000, seed=i)[0], star) for i in range(60)]
    for value, error in ((0, 1), (2, 3)):
        spread = np.std([f[value] for f in found], ddof=1)
        typical = np.median([f[error] for f in found])
        assert 0.6 < typical / spread < 1.6
    assert (
        abs(np.mean([f.share for f in found]) - truth(problem)[0])
        < z_limit(1) * np.std([f.share for f in found]) / 60**0.5
    )


@pytest.mark.parametrize("name", ["boyan_chain", "random_walk"])
def test_features_that_hold_the_values_explain_all(name: str) -> None:
    problem = vrtd.problems.LIBRARY[name]()
    star = problem.theta_star
    found = value_explained(vrtd.record(problem, 5000, seed=1, shuffle=False), star)
    assert found.share + z_limit(2) * found.share_error >= 1.0
    assert found.share > 0.9
    assert value_explained(vrtd.record(problem, 5000, seed=1, shuffle=False)).share > 0.99


def test_observations_tell_apart_what_features_do_not() -> None:
    """19 states in five groups: from the features alone nothing is missing; with the states it shows."""
    groups = np.repeat(np.eye(5), 4, axis=0)[:19]
    problem = vrtd.LinearProblem(vrtd.problems.random_walk(n_states=19).mrp, groups)
    star = problem.theta_star
    rows, now, then = steps(problem, 20_000, seed=1)
    share, misfit = truth(problem)
    blind, seeing = value_explained(rows), value_explained(rows, star, observations=now, next_observations=then)
    assert "equal features count as one" in blind.remark
    assert blind.share > 0.99
    assert abs(seeing.share - share) < z_limit(2) * seeing.share_error
    assert abs(seeing.misfit - misfit) < z_limit(2) * seeing.misfit_error
    assert seeing.share + 2.0 * seeing.share_error < 0.99


def test_continuous_observations_are_clustered() -> None:
    rng = np.random.default_rng(0)
    x = np.zeros(6001)
    for t in range(6000):
        x[t + 1] = 0.7 * x[t] + 0.7 * rng.normal()
    place = (np.clip(x, -4.0, 4.0) + 4.0) / 8.0
    shares = []
    for k in (2, 8):
        phi = np.cos(np.pi * place[:, None] * np.arange(k))
        rows = Transitions(phi[:-1], np.sin(2.0 * x[:-1]), phi[1:], 0.8)
        found = value_explained(rows, observations=x[:-1], next_observations=x[1:])
        assert not found.exact
        assert "clusters" in found.remark
        shares.append(found.share)
    assert shares[0] < 0.7 < 0.98 < shares[1]


def test_sparse_observations_are_compared_like_dense_ones() -> None:
    rows, now, then = steps(waves(6), 3000, seed=1)
    seen, seen_next = np.eye(20)[now], np.eye(20)[then]
    dense = value_explained(rows, observations=seen, next_observations=seen_next)
    assert value_explained(rows, observations=csr_array(seen), next_observations=csr_array(seen_next)) == dense


def test_values_that_do_not_vary_have_no_share() -> None:
    flat = Transitions(np.ones((500, 1)), np.random.default_rng(1).normal(size=500), np.ones((500, 1)), 0.5)
    found = value_explained(flat)
    assert np.isnan(found.share)
    assert "V is constant" in found.remark


def test_a_theta_far_off_explains_nothing() -> None:
    problem = vrtd.problems.boyan_chain()
    found = value_explained(vrtd.record(problem, 5000, seed=1, shuffle=False), [100.0, -100.0, 100.0, -100.0])
    assert (found.share, found.share_error) == (0.0, 0.0)
    assert "the misfit is larger than the variation of V" in found.remark


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: value_explained(3), "sample must be"),  # type: ignore[arg-type]
        (lambda s: value_explained(s, [1.0]), r"theta must have the shape"),
        (lambda s: value_explained(s, observations=np.ones(100)), "must be passed together"),
        (
            lambda s: value_explained(s, observations=np.ones(9), next_observations=np.ones(100)),
            "observations must have 100",
        ),
    ],
)
def test_callers_errors(call: Any, message: str) -> None:
    problem = vrtd.problems.random_mdp()
    with pytest.raises(InvalidInputError, match=message):
        call(vrtd.record(problem, 100, shuffle=False))
