"""Both sides of the lemmas against brute force, and the per-epoch inequalities against exact epochs."""

import itertools
import math

import numpy as np
import pytest

from vrtd.errors import InvalidInputError
from vrtd.problems import LinearProblem, MarkovRewardProcess, garnet, random_mdp
from vrtd.theory.curves import vrtd_iid_moments
from vrtd.theory.lemmas import (
    batch_bias_inequality,
    epoch_inequality_iid,
    epoch_inequality_markov,
    mixing_inequalities,
    pseudo_gradient_inequality,
    squared_pseudo_gradient_inequality,
    transition_inequalities,
)

COIN = LinearProblem(MarkovRewardProcess([[0.5, 0.5], [0.5, 0.5]], [1.0, -1.0], 0.5), [[1.0], [1.0]])
MIXING = LinearProblem(MarkovRewardProcess([[0.7, 0.3], [0.4, 0.6]], [1.0, -1.0], 0.5), [[1.0], [0.5]])
PLANE = LinearProblem(MarkovRewardProcess([[0.7, 0.3], [0.2, 0.8]], [[1, 0], [0, 2]], 0.9), [[0.9, 0.1], [0.4, -0.6]])


def normalised(problem):
    return LinearProblem(problem.mrp, problem.phi / np.linalg.norm(problem.phi, axis=1).max())


def slow(problem, laziness):
    P = laziness * np.eye(problem.mrp.n_states) + (1 - laziness) * np.asarray(problem.mrp.P)
    return LinearProblem(MarkovRewardProcess(P, problem.mrp.mean_reward, 0.9), problem.phi)


PROBLEMS = [COIN, MIXING, PLANE, normalised(random_mdp(n_states=20)), normalised(garnet(n_states=15, n_features=3))]
PROBLEMS += [slow(PLANE, 0.9), slow(PLANE, 0.99), normalised(garnet(3, n_states=40, branching=6, n_features=2))]
AT = (MIXING, PLANE)


def transitions(problem):
    """Origin, successor, probability given the origin, A_x and b_x of every transition."""
    e, phi = problem.mrp.edges, problem.phi
    A = np.einsum("ei,ej->eij", phi[e.origin], e.discount[:, None] * phi[e.successor] - phi[e.origin])
    return e.origin, e.successor, e.probability, A, e.reward[:, None] * phi[e.origin]


def paths(problem, start, length):
    """Every sequence of `length` transitions from a state, with its probability."""
    origin, successor, probability, _, _ = transitions(problem)
    found = [((), start, 1.0)]
    for _ in range(length):
        found = [
            ((*path, e), int(successor[e]), p * probability[e])
            for path, state, p in found
            for e in np.flatnonzero(origin == state)
        ]
    return [(list(path), p) for path, _, p in found]


@pytest.mark.parametrize("problem", AT)
@pytest.mark.parametrize("M", [1, 2, 3, 6])
def test_left_of_lemma1_is_the_mean_over_all_batches(problem, M):
    _, _, _, A, b = transitions(problem)
    theta = np.array([0.5, -2.0])[: problem.n_features]
    u = theta - problem.theta_star
    by_start = [
        sum(p * u @ (A[path].mean(axis=0) @ theta + b[path].mean(axis=0)) for path, p in paths(problem, s, M))
        - u @ (problem.A @ theta + problem.b)
        for s in (0, 1)
    ]
    assert batch_bias_inequality(problem, M, theta).left == pytest.approx(max(by_start), abs=1e-12)


@pytest.mark.parametrize("form", ["printed", "corrected"])
def test_right_of_lemma1_by_hand(form):
    kappa, rho, lam = MIXING.mrp.mixing_constant, MIXING.mrp.mixing_rate, MIXING.lambda_A
    u = 1.5 - MIXING.theta_star[0]
    factor = (1 + (kappa - 1) * rho) / (1 - rho) if form == "printed" else 1 + 2 * kappa / (1 - rho)
    expected = lam / 4 * u**2 + 8 * factor * (4 * 2.25 + 1) / (lam * 10)
    assert batch_bias_inequality(MIXING, 10, [1.5], radius=2.0, form=form).right == pytest.approx(expected)


@pytest.mark.parametrize("M", [1, 2, 7, 64, 1_000, 10**6])
def test_lemma1_holds_for_every_fixed_theta_even_as_printed(M):
    """The expectation over the batch makes it far easier than the second moment that Theorem 2 needs."""
    rng = np.random.default_rng(0)
    for problem in PROBLEMS:
        for size in (0.0, 0.1, 1.0, 10.0):
            theta = problem.theta_star + size * rng.normal(size=problem.n_features)
            for form in ("printed", "corrected"):
                found = batch_bias_inequality(problem, M, theta, form=form)
                assert all(c.holds for c in found.conditions)
                assert found.holds


@pytest.mark.parametrize("problem", [COIN, *AT, slow(PLANE, 0.9)])
@pytest.mark.parametrize("M", [1, 2, 5, 8])
def test_the_second_moment_behind_lemma1(problem, M):
    """E|A_m - A|_F^2 <= 4 (1 + gamma)^2 F/M and E|b_m - b|^2 <= 4 r_max^2 F/M with the corrected F, from any start."""
    _, _, _, A, b = transitions(problem)
    F = 1 + 2 * problem.mrp.mixing_constant / (1 - problem.mrp.mixing_rate)
    gamma = problem.mrp.edges.discount.max()
    for start in (0, 1):
        found = paths(problem, start, M)
        of_A = sum(p * ((A[path].mean(axis=0) - problem.A) ** 2).sum() for path, p in found)
        of_b = sum(p * ((b[path].mean(axis=0) - problem.b) ** 2).sum() for path, p in found)
        of_h = sum(
            p * ((A[path].mean(axis=0) @ problem.theta_star + b[path].mean(axis=0)) ** 2).sum() for path, p in found
        )
        assert of_A <= 4 * (1 + gamma) ** 2 * F / M
        assert of_b <= 4 * problem.mrp.r_max**2 * F / M
        G = (1 + gamma) * np.linalg.norm(problem.theta_star) + problem.mrp.r_max
        assert of_h <= G**2 * (1 + 4 * problem.mrp.mixing_constant / (1 - problem.mrp.mixing_rate)) / M


@pytest.mark.parametrize("problem", PROBLEMS)
def test_lemmas_2_to_4_against_all_transitions(problem):
    _, _, _, A, b = transitions(problem)
    gamma, r = problem.mrp.edges.discount.max(), problem.mrp.r_max
    of_A, of_b = transition_inequalities(problem)
    assert of_A.left == pytest.approx(np.linalg.norm(A, 2, axis=(1, 2)).max())
    assert of_b.left == pytest.approx(np.linalg.norm(b, axis=1).max())
    assert (of_A.right, of_b.right) == (1 + gamma, r)
    assert of_A.holds
    assert of_b.holds

    found = pseudo_gradient_inequality(problem, 2.5)
    worst = max(
        np.linalg.norm(A[e] @ (sign * 2.5 * direction) + b[e])
        for e in range(len(A))
        for direction in [np.linalg.svd(A[e])[2][0]]
        for sign in (-1, 1)
    )
    assert found.left == pytest.approx(worst)
    assert found.right == pytest.approx((1 + gamma) * 2.5 + r)
    assert found.holds

    theta = problem.theta_star + 0.7
    found = squared_pseudo_gradient_inequality(problem, theta, 3.0 + np.linalg.norm(problem.theta_star))
    assert found.left == pytest.approx((np.linalg.norm(A @ theta + b, axis=1) ** 2).max())
    u, R = theta - problem.theta_star, 3.0 + np.linalg.norm(problem.theta_star)
    assert found.right == pytest.approx(2 * (1 + gamma) ** 2 * u @ u + 4 * ((1 + gamma) ** 2 * R**2 + r**2))
    assert found.holds
    assert all(c.holds for c in found.conditions)


def test_norms_of_many_transitions_are_taken_in_parts():
    problem = normalised(random_mdp(n_states=300))  # 90,000 transitions, more than are held at once
    e, phi = problem.mrp.edges, problem.phi
    psi = np.linalg.norm(e.discount[:, None] * phi[e.successor] - phi[e.origin], axis=1)
    assert transition_inequalities(problem)[0].left == pytest.approx(
        (np.linalg.norm(phi, axis=1)[e.origin] * psi).max()
    )


@pytest.mark.parametrize("problem", AT)
@pytest.mark.parametrize("lag", [1, 2, 4])
def test_left_of_lemma5_is_the_worst_known_transition(problem, lag):
    _, successor, _, A, b = transitions(problem)
    worst_A = worst_b = 0.0
    for known in range(len(A)):
        later = [(path[-1], p) for path, p in paths(problem, int(successor[known]), lag)]
        worst_A = max(worst_A, np.linalg.norm(sum(p * A[e] for e, p in later) - problem.A))
        worst_b = max(worst_b, np.linalg.norm(sum(p * b[e] for e, p in later) - problem.b))
    of_A, of_b = mixing_inequalities(problem, lag)
    assert (of_A.left, of_b.left) == pytest.approx((worst_A, worst_b))


def test_right_of_lemma5_by_hand():
    kappa, rho = MIXING.mrp.mixing_constant, MIXING.mrp.mixing_rate
    assert mixing_inequalities(MIXING, 3)[0].right == pytest.approx(2 * 1.5 * kappa * rho**2)
    assert mixing_inequalities(MIXING, 3)[1].right == pytest.approx(2 * kappa * rho**2)
    assert mixing_inequalities(MIXING, 3, form="printed")[0].right == pytest.approx(1.5 * kappa * rho**3)
    assert mixing_inequalities(MIXING, 3, form="printed")[1].right == pytest.approx(kappa * rho**3)


@pytest.mark.parametrize("lag", [1, 2, 3, 10])
def test_lemma5_is_false_as_printed_and_true_when_repaired(lag):
    for problem in PROBLEMS:
        assert all(inequality.holds for inequality in mixing_inequalities(problem, lag))
    assert not any(inequality.holds for inequality in mixing_inequalities(MIXING, lag, form="printed"))


def gradient_error(problem, M, theta):
    """E|g_m(theta) - g(theta)|^2 for a batch of M independent transitions."""
    origin, _, probability, A, b = transitions(problem)
    p = problem.state_distribution[origin] * probability
    noise = A @ theta + b - (problem.A @ theta + problem.b)
    return float(p @ (noise**2).sum(axis=1)) / M


def test_the_epoch_inequality_of_independent_samples():
    violated = 0
    for problem in PROBLEMS:
        limit = problem.lambda_A / (8 * (1 + problem.mrp.edges.discount.max()) ** 2)
        for share, M, size in itertools.product((0.01, 0.9), (1, 10, 10**6), (0.0, 3.0)):
            theta = problem.theta_star + size
            exact = vrtd_iid_moments(problem, share * limit, M, 1, theta).squared_error
            error = gradient_error(problem, M, theta)
            corrected = epoch_inequality_iid(problem, share * limit, M)
            assert corrected.valid, corrected.reasons
            assert exact[1] <= corrected.right(exact[0], error)
            printed = epoch_inequality_iid(problem, share * limit, M, form="printed")
            assert not printed.valid
            violated += exact[1] > printed.right(exact[0], error)
    assert violated > 0.1 * len(PROBLEMS) * 12


def test_the_epoch_inequality_of_independent_samples_by_hand():
    found = epoch_inequality_iid(COIN, 0.02, 100)
    assert found.contraction == pytest.approx((0.5 + 0.18) / 0.32)
    assert (found.variance_weight, found.bias_weight) == pytest.approx((2.04 / 0.32, 0.0))
    printed = epoch_inequality_iid(COIN, 0.02, 100, form="printed")
    assert printed.contraction == pytest.approx((1 / 100 + 4 * 0.0004 * 2.25) / (0.02 - 4 * 0.0004 * 2.25))
    assert printed.variance_weight == pytest.approx(0.04 / 0.82)
    assert printed.right(2.0, 3.0) == pytest.approx(printed.contraction * 2 + printed.variance_weight * 3)
    assert "depends on the error e_m" in printed.reasons[0]


def markov_epoch(problem, a, M, start, theta_0, radius):
    """E|u_1|^2, E|g_m(theta_star)|^2 and the mean of E xi_m(theta_i), i < M, over all batches and inner indices."""
    _, _, _, A, b = transitions(problem)
    star, totals = problem.theta_star, np.zeros(3)
    for path, p in paths(problem, start, M):
        A_m, b_m = A[path].mean(axis=0), b[path].mean(axis=0)
        totals[1] += p * ((A_m @ star + b_m) ** 2).sum()
        G = A_m @ theta_0 + b_m
        for inner in itertools.product(path, repeat=M):
            theta = theta_0
            for x in inner:
                weight = p / M ** (M + 1)
                totals[2] += weight * (theta - star) @ ((A_m - problem.A) @ theta + b_m - problem.b)
                theta = theta + a * (A[x] @ (theta - theta_0) + G)
                theta = theta * min(1.0, radius / max(np.linalg.norm(theta), 1e-300))
                totals[0] += weight * ((theta - star) ** 2).sum()
    return totals


@pytest.mark.parametrize("problem", [COIN, *AT])
@pytest.mark.parametrize(("share", "M"), [(0.05, 1), (0.5, 2), (0.9, 3)])
@pytest.mark.parametrize("slack", [1.0, 1.05, 10.0])
def test_the_epoch_inequality_of_a_trajectory_against_all_epochs(problem, share, M, slack):
    """Also where the projection is at work, with theta_star on the edge of the ball."""
    a = share * problem.lambda_A / (3 * (1 + problem.mrp.edges.discount.max()) ** 2)
    radius = slack * max(np.linalg.norm(problem.theta_star), 0.1)
    found = epoch_inequality_markov(problem, a, M)
    assert found.valid, found.reasons
    for start, sign in itertools.product((0, 1), (-1.0, 0.3, 1.0)):
        theta_0 = np.full(problem.n_features, sign * radius / math.sqrt(problem.n_features))
        error, variance, bias = markov_epoch(problem, a, M, start, theta_0, radius)
        u0 = theta_0 - problem.theta_star
        assert error <= found.right(float(u0 @ u0), variance, bias)


def test_the_epoch_inequality_of_a_trajectory_by_hand():
    found = epoch_inequality_markov(COIN, 0.02, 100)
    assert found.contraction == pytest.approx((0.5 + 0.135) / 0.865)
    assert (found.variance_weight, found.bias_weight) == pytest.approx((0.06 / 0.865, 2 / 0.865))


def test_without_contraction_the_right_side_is_infinite():
    for found in (epoch_inequality_iid(COIN, 1.0, 10), epoch_inequality_markov(COIN, 1.0, 10)):
        assert found.right(0.0, 0.0) == math.inf
        assert any("lower step_size to below" in reason for reason in found.reasons)


def test_failing_conditions_are_reported():
    big = random_mdp(n_states=20)
    for found in (
        *transition_inequalities(big),
        pseudo_gradient_inequality(big, 1.0),
        squared_pseudo_gradient_inequality(big, np.zeros(4)),
        *mixing_inequalities(big, 1),
        batch_bias_inequality(big, 2, np.zeros(4)),
    ):
        assert "divide the features by" in found.conditions[0].detail
    assert not transition_inequalities(big)[0].holds
    assert "raise radius" in batch_bias_inequality(MIXING, 2, [3.0], radius=1.0).conditions[-1].detail
    assert "raise radius" in squared_pseudo_gradient_inequality(MIXING, [3.0], radius=0.01).conditions[-1].detail


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: batch_bias_inequality(COIN, 0, [0.0]), "batch_size must be a whole number of at least 1, but got 0"),
        (lambda: batch_bias_inequality(COIN, 2, [0.0, 1.0]), r"theta must have the shape \(1,\), but got \(2,\)"),
        (lambda: pseudo_gradient_inequality(COIN, -1.0), r"radius must be a positive, finite number, but got -1\.0"),
        (
            lambda: squared_pseudo_gradient_inequality(COIN, [0.0], 0.0),
            r"radius must be a positive, finite number, but got 0\.0",
        ),
        (lambda: mixing_inequalities(COIN, 0), "lag must be a whole number of at least 1, but got 0"),
        (lambda: epoch_inequality_iid(COIN, 0.0, 2), r"step_size must be a positive, finite number, but got 0\.0"),
        (lambda: epoch_inequality_markov(COIN, 0.1, -2), "batch_size must be a whole number of at least 1, but got -2"),
    ],
)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()


def test_transient_states_are_reported_by_the_lemmas_that_mix():
    transient = LinearProblem(
        MarkovRewardProcess([[0.5, 0.5, 0.0], [0.0, 0.6, 0.4], [0.0, 0.3, 0.7]], np.ones(3), 0.5),
        [[1.0], [0.5], [-0.5]],
    )
    for found in (batch_bias_inequality(transient, 2, [0.0]), *mixing_inequalities(transient, 1)):
        assert any("transient states" in c.detail and not c.holds for c in found.conditions)


@pytest.mark.parametrize(
    ("inequality", "share"),
    [
        (lambda a: epoch_inequality_iid(COIN, a, 10), 8.0),
        (lambda a: epoch_inequality_iid(COIN, a, 10, form="printed"), 4.0),
        (lambda a: epoch_inequality_markov(COIN, a, 10), 3.0),
    ],
)
def test_the_epoch_inequalities_hold_up_to_their_step(inequality, share):
    limit = COIN.lambda_A / (share * 1.5**2)
    assert inequality(0.999 * limit).conditions[-1].holds
    assert math.isfinite(inequality(0.999 * limit).contraction)
    assert not inequality(1.001 * limit).conditions[-1].holds


def test_the_left_of_lemma1_is_the_largest_value_not_the_largest_size():
    for sign in (-1.0, 1.0):
        problem = LinearProblem(MarkovRewardProcess([[0.9, 0.1], [0.3, 0.7]], [sign, -3.0 * sign], 0.0), [[1.0], [1.0]])
        theta = problem.theta_star[0] + 1.0  # u = 1 and g - mean = r - mean r
        deviations = np.array([sign, -3.0 * sign]) - problem.mrp.stationary @ [sign, -3.0 * sign]
        assert batch_bias_inequality(problem, 1, [theta]).left == pytest.approx(deviations.max())


def test_lemmas_of_a_trajectory_name_a_periodic_chain():
    periodic = LinearProblem(MarkovRewardProcess([[0, 1], [1, 0]], [1.0, 0.0], 0.5), [[1.0], [0.5]])
    for inequality in (batch_bias_inequality(periodic, 10, [0.0]), *mixing_inequalities(periodic, 3)):
        assert inequality.right == math.inf
        assert not all(condition.holds for condition in inequality.conditions)
