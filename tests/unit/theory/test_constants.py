"""Constants and assumptions: hand-computed values, brute force, and every way to fail."""

import numpy as np
import pytest

from tests.helpers.chains import TWO, birth_death, chain, distances
from vrtd.errors import InvalidInputError
from vrtd.problems import LinearProblem, MarkovRewardProcess, garnet, random_mdp
from vrtd.theory.constants import check_assumptions, dobrushin, instance_constants, lambda_A

# A_x = -1/2 on every transition and b_x = +-1: lambda_A = 1, theta_star = 0, sigma2 = 1.
COIN = LinearProblem(MarkovRewardProcess([[0.5, 0.5], [0.5, 0.5]], [1.0, -1.0], 0.5), [[1.0], [1.0]])


def test_the_two_definitions_of_lambda_A():
    assert lambda_A(COIN) == pytest.approx(1.0)
    assert lambda_A(COIN, "section 3.2") == pytest.approx(2.0)
    u = np.array([0.7])
    assert 2 * u @ COIN.A @ u == pytest.approx(-lambda_A(COIN) * u @ u)  # so the doubled one cannot be right


def test_lambda_A_refuses_other_definitions_and_off_policy_problems():
    with pytest.raises(InvalidInputError, match=r"definition must be one of 'appendix', .*, but got 'section 3'"):
        lambda_A(COIN, "section 3")
    off_policy = LinearProblem(chain([[0, 1], [0, 1]]), [[1.0], [2.0]], [0.9, 0.1])
    with pytest.raises(InvalidInputError, match=r"negative definite.*off-policy"):
        lambda_A(off_policy)


@pytest.mark.parametrize("seed", range(3))
def test_dobrushin_is_the_largest_distance_of_two_rows(seed):
    rng = np.random.default_rng(seed)
    P = rng.random((150, 150)) ** 4
    P /= P.sum(axis=1, keepdims=True)
    by_hand = max(0.5 * np.abs(P - row).sum(axis=1).max() for row in P)
    assert dobrushin(chain(P)) == pytest.approx(by_hand, rel=1e-12)


def test_dobrushin_gives_a_pair_of_assumption_3():
    P = random_mdp(n_states=12).mrp.P
    rho = dobrushin(chain(P))
    mu = chain(P).stationary
    assert (distances(P, mu, 20) <= rho ** np.arange(20) + 1e-15).all()


def test_dobrushin_at_its_ends():
    assert dobrushin(chain([[0.5, 0.5], [0.5, 0.5]])) == 0.0
    assert dobrushin(chain([[0.0, 1.0], [1.0, 0.0]])) == 1.0
    assert dobrushin(chain([[1.0]])) == 0.0
    assert dobrushin(garnet(n_states=3_000).mrp) == 1.0


def test_assumptions_that_hold_come_with_their_numbers():
    found = check_assumptions(COIN)
    assert found.hold
    assert found.solvable.detail == "condition number 1, smallest singular value 0.5"
    assert found.bounded_features.detail == "the largest norm is 1"
    assert found.ergodic.detail.startswith("period 1, 0 transient states, kappa 0.5, rho 1e-08")


def test_a_singular_system_is_reported():
    found = check_assumptions(LinearProblem(MarkovRewardProcess(TWO, [1.0, 2.0], np.ones((2, 2))), [[1.0], [1.0]]))
    assert not found.hold
    assert not found.solvable.holds
    assert "condition number inf, smallest singular value 0; change the features" in found.solvable.detail


def test_large_features_are_reported_with_the_factor():
    problem = random_mdp()
    found = check_assumptions(problem)
    norm = np.linalg.norm(problem.phi, axis=1).max()
    assert not found.bounded_features.holds
    assert f"divide the features by {norm:.6g}" in found.bounded_features.detail
    scaled = LinearProblem(problem.mrp, problem.phi / norm)
    assert check_assumptions(scaled).bounded_features.holds
    assert np.allclose(scaled.theta_star, norm * problem.theta_star)


@pytest.mark.parametrize(
    ("P", "detail"),
    [
        ([[0, 1], [1, 0]], "period 2, 0 transient states; make the chain lazy"),
        ([[0.5, 0.5], [0, 1]], "period 1, 1 transient states; leave the transient states out"),
    ],
)
def test_chains_that_are_not_ergodic_are_reported(P, detail):
    found = check_assumptions(LinearProblem(chain(P), [[1.0], [0.5]]))
    assert not found.ergodic.holds
    assert detail in found.ergodic.detail


def test_two_closed_classes_are_reported():
    found = check_assumptions(LinearProblem(chain(np.eye(2)), [[1.0], [0.5]], [0.5, 0.5]))
    assert not found.ergodic.holds
    assert "The chain must have one closed class, but it has 2" in found.ergodic.detail


def test_large_chains_are_checked_without_mixing_constants():
    n = 2_100
    P, _ = birth_death(np.full(n, 0.3), np.full(n, 0.3))
    found = check_assumptions(LinearProblem(MarkovRewardProcess(P, np.ones(n), 0.9), np.ones((n, 1))))
    assert found.ergodic.holds
    assert found.ergodic.detail == "period 1, 0 transient states"


@pytest.mark.parametrize("seed", range(5))
def test_instance_constants_against_all_transitions(seed):
    problem = garnet(seed, n_states=12, n_features=3)
    mrp, phi = problem.mrp, problem.phi
    e = mrp.edges
    p = mrp.stationary[e.origin] * e.probability
    A = np.einsum("ei,ej->eij", phi[e.origin], e.discount[:, None] * phi[e.successor] - phi[e.origin])
    h = A @ problem.theta_star + e.reward[:, None] * phi[e.origin]
    square = np.einsum("e,eji,ejk->ik", p, A, A)
    found = instance_constants(problem)
    assert found.lambda_A == problem.lambda_A
    assert found.eta == pytest.approx(np.linalg.eigvalsh(problem.A.T @ problem.A)[-1])
    assert found.q == pytest.approx(np.linalg.eigvalsh(square)[-1])
    assert found.nu == pytest.approx(np.linalg.eigvalsh(square - problem.A.T @ problem.A)[-1])
    assert found.sigma2 == pytest.approx(p @ (h**2).sum(axis=1))


def test_instance_constants_weigh_states_as_told():
    mrp = MarkovRewardProcess(TWO, [[1, 0], [0, 2]], 0.9)
    problem = LinearProblem(mrp, [[1.0, 0.2], [0.5, -1.0]], [0.5, 0.5])
    e, phi = mrp.edges, problem.phi
    p = 0.5 * e.probability
    A = np.einsum("ei,ej->eij", phi[e.origin], e.discount[:, None] * phi[e.successor] - phi[e.origin])
    square = np.einsum("e,eji,ejk->ik", p, A, A)
    found = instance_constants(problem)
    assert found.q == pytest.approx(np.linalg.eigvalsh(square)[-1])
    assert found.nu == pytest.approx(np.linalg.eigvalsh(square - problem.A.T @ problem.A)[-1])
