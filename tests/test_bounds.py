"""Bounds against exact moments (no simulation, so no false alarms), hand-computed values and failing conditions."""

import math

import numpy as np
import pytest

from tests.chains import COIN, SIGNS, TWO_STATES
from vrtd.linear_system import LinearSystem
from vrtd.problems import MarkovRewardProcess, boyan_chain, garnet, random_mdp, random_walk
from vrtd.theory.bounds import (
    td_iid_bound,
    td_iid_sharp,
    td_markov_bound,
    theorem1,
    theorem1_corrected,
    theorem1_sharp,
    theorem2,
    theorem2_repaired,
)
from vrtd.theory.constants import instance_constants
from vrtd.theory.moments import td_iid_moments, vrtd_iid_moments
from vrtd.theory.stationary import stationary_second_moment


def normalised(mrp, phi):
    return LinearSystem(mrp, phi / np.linalg.norm(phi, axis=1).max())


def random_system(seed):
    """A small chain with features of norm at most 1: dense, peaked or lazy, with one feature or a few."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 9))
    d = int(rng.integers(1, min(n, 4) + 1))
    P = rng.random((n, n)) ** rng.choice([1, 3, 8])
    P /= P.sum(axis=1, keepdims=True)
    if seed % 3 == 0:
        P = 0.8 * np.eye(n) + 0.2 * P
    phi = rng.normal(size=(n, d)) if seed % 2 else rng.random((n, d))
    return normalised(MarkovRewardProcess(P, rng.normal(size=(n, n)), rng.choice([0.0, 0.5, 0.9, 0.99])), phi)


SYSTEMS = [random_system(seed) for seed in range(60)]
SYSTEMS += [COIN, TWO_STATES, normalised(*random_mdp()), normalised(*random_mdp(1)), normalised(*random_walk())]
SYSTEMS += [normalised(*boyan_chain()), normalised(*garnet(n_states=30, n_features=3))]
N_EPOCHS = 10


def starts(system):
    """Near theta_star and far from it."""
    direction = np.random.default_rng(7).normal(size=system.n_features)
    return [system.theta_star + size * direction for size in (0.1, 5.0)]


def excess(bound_of, system, a, M, outputs=("random", "average")):
    """The largest ratio of the exact error to the bound over epochs, starts and outputs; 0 where there is no bound."""
    largest = 0.0
    for theta_0 in starts(system):
        bound = bound_of(system, a, M, theta_0)
        if math.isfinite(bound.rate):
            for output in outputs:
                exact = vrtd_iid_moments(system, a, M, N_EPOCHS, theta_0, output).squared_error
                largest = max(largest, float((exact / bound.curve(N_EPOCHS)).max()))
    if math.isfinite(bound.rate):
        largest = max(largest, float(np.trace(stationary_second_moment(system, a, M))) / bound.floor)
    return largest


def corrected_settings(system):
    """Steps up to the limit, and for each the least batch size and larger ones."""
    limit = system.lambda_A / (16 * (1 + system.mrp.edges.discount.max()) ** 2)
    for share in (0.01, 0.5, 0.999):
        a = share * limit
        least = next(
            c for c in theorem1_corrected(system, a, 1, system.theta_star).conditions if "batch_size" in c.statement
        )
        M = int(least.detail.split("raise batch_size to ")[1])
        yield from ((a, M), (a, 20 * M))


def sharp_settings(system):
    instance = instance_constants(system)
    limit = instance.lambda_A / (instance.eta + instance.nu)
    for share in (1e-4, 0.03, 0.2, 0.5, 0.9):
        yield from ((share * limit, M) for M in (1, 2, 10, 100, 10_000))


def test_theorem1_corrected_is_never_violated():
    for system in SYSTEMS:
        for a, M in corrected_settings(system):
            bound = theorem1_corrected(system, a, M, system.theta_star)
            assert bound.valid, bound.reasons
            assert excess(theorem1_corrected, system, a, M) <= 1.0


def test_theorem1_sharp_is_never_violated():
    n_valid = 0
    for system in SYSTEMS:
        for a, M in sharp_settings(system):
            n_valid += theorem1_sharp(system, a, M, system.theta_star).valid
            assert excess(theorem1_sharp, system, a, M) <= 1.0 + 1e-9, (system, a, M)
    assert n_valid > 0.5 * len(SYSTEMS) * 25


def test_theorem1_sharp_next_to_its_limit_is_not_violated():
    """Steps just below and just above the one where the bound ceases to contract, by bisection."""
    for system in SYSTEMS[::4]:
        for M in (1, 5, 300):
            low, high = 0.0, 10.0 / system.lambda_A
            for _ in range(60):
                middle = 0.5 * (low + high)
                valid = theorem1_sharp(system, middle, M, system.theta_star).valid
                low, high = (middle, high) if valid else (low, middle)
            assert excess(theorem1_sharp, system, 0.999 * low, M) <= 1.0 + 1e-9
            assert not theorem1_sharp(system, 1.001 * high, M, system.theta_star).valid


def test_the_printed_theorem1_is_caught_by_the_same_test():
    """So the test above has teeth: with the printed bound in its place it fails, for most chains."""
    caught = 0
    for system in SYSTEMS:
        a = system.lambda_A / (16 * (1 + system.mrp.edges.discount.max()) ** 2)
        bound = theorem1(system, a, 1, system.theta_star)
        least = int(bound.conditions[-1].detail.split("raise batch_size to ")[1])
        caught += excess(theorem1, system, a, 50 * least) > 1.0
    assert caught >= len(SYSTEMS) // 4


def test_a_sharp_bound_that_is_a_tenth_too_small_is_caught():
    """With one feature and long epochs the bound is nearly attained, so little can be taken off it unseen."""
    exact = float(np.trace(stationary_second_moment(COIN, 1e-3, 100_000)))
    floor = theorem1_sharp(COIN, 1e-3, 100_000, [0.0]).floor
    assert 0.9 * floor < exact <= floor


def test_theorem1_sharp_is_below_theorem1_corrected():
    for system in SYSTEMS:
        for a, M in corrected_settings(system):
            sharp = theorem1_sharp(system, a, M, system.theta_star)
            corrected = theorem1_corrected(system, a, M, system.theta_star)
            assert sharp.valid
            assert sharp.rate <= corrected.rate
            assert sharp.floor <= corrected.floor


def test_td_bounds_are_never_violated():
    for system in SYSTEMS:
        q, lam = instance_constants(system).q, system.lambda_A
        limit = lam / (4 * (1 + system.mrp.edges.discount.max()) ** 2)
        settings = [(td_iid_bound, share * limit) for share in (0.01, 0.5, 1.0)]
        settings += [(td_iid_sharp, share * lam / q) for share in (1e-4, 0.01, 0.3, 0.9, 0.999)]
        for bound_of, a in settings:
            for theta_0 in starts(system):
                bound = bound_of(system, a, theta_0)
                assert bound.valid, bound.reasons
                exact = td_iid_moments(system, a, 200, theta_0).squared_error
                assert (exact <= bound.curve(200) * (1 + 1e-12)).all()
            assert np.trace(stationary_second_moment(system, a)) <= bound.floor * (1 + 1e-9)


def test_td_iid_sharp_is_below_td_iid_bound():
    for system in SYSTEMS:
        limit = system.lambda_A / (4 * (1 + system.mrp.edges.discount.max()) ** 2)
        for share in (0.01, 0.5, 1.0):
            sharp, plain = (f(system, share * limit, system.theta_star) for f in (td_iid_sharp, td_iid_bound))
            assert sharp.rate <= plain.rate * (1 + 1e-12)
            assert sharp.floor <= plain.floor * (1 + 1e-12)


def test_a_batch_of_one_is_td():
    """The sharp bounds agree on what M = 1 is, up to E[A_x^T A_x] <= (eta + nu) I."""
    for system in SYSTEMS[:20]:
        a = 0.5 * system.lambda_A / sum(instance_constants(system)[1:3])
        vrtd = theorem1_sharp(system, a, 1, system.theta_star)
        assert vrtd.constants.gain == pytest.approx(a**2)
        lam, eta = vrtd.constants.lambda_A, vrtd.constants.eta
        assert pytest.approx(1 - a * lam + a**2 * eta) == vrtd.constants.C0


def test_the_counter_example_to_theorem1():
    printed = theorem1(COIN, 0.02, 2_000, [0.0], radius=1.0)
    exact = float(np.trace(stationary_second_moment(COIN, 0.02, 2_000)))
    assert printed.floor == pytest.approx(4.2e-4, rel=0.01)
    assert exact == pytest.approx(1.9e-3, rel=0.02)
    assert all(condition.holds for condition in printed.conditions)
    assert not printed.valid
    assert "theta_{m,i} depends on the error e_m" in printed.reasons[0]


@pytest.mark.parametrize("factor", [2, 4, 8, 64])
def test_theorem1_is_violated_on_the_paper_s_random_mdp(factor):
    system = normalised(*random_mdp())
    a = system.lambda_A / (16 * 1.95**2)
    M = factor * 64_793  # the least batch size that Theorem 1 allows at this step
    printed = theorem1(system, a, M, np.zeros(4))
    assert all(condition.holds for condition in printed.conditions)
    assert 4 < np.trace(stationary_second_moment(system, a, M)) / printed.floor < 15
    sharp = theorem1_sharp(system, a, M, np.zeros(4))
    assert 1 < sharp.floor / np.trace(stationary_second_moment(system, a, M)) < 5


def test_hand_values_of_theorem1():
    bound = theorem1(COIN, 0.02, 2_000, [3.0], radius=1.0)
    C1 = (4 * 0.02 * 2.25 + (4 * 2.25 * 0.0004 + 1) / 40) / 0.82
    assert bound.constants == pytest.approx((C1, 4.5, 13.0))
    assert bound.rate == pytest.approx(C1)
    assert bound.initial == 9.0
    assert bound.variance == pytest.approx(2 * 13 * 0.02 / ((1 - C1) * 0.82 * 2_000))
    assert bound.bias == 0.0


def test_hand_values_of_theorem1_corrected():
    bound = theorem1_corrected(COIN, 0.02, 2_000, [3.0], radius=1.0)
    C1 = (1 / 40 + 0.18 + 2.04 * 4.5 / 2_000) / 0.32
    assert bound.constants == pytest.approx((C1, 4.5, 13.0))
    assert bound.floor == pytest.approx(2.04 * 13 / ((1 - C1) * 0.32 * 2_000))


def test_hand_values_of_theorem1_sharp():
    a, M = 0.1, 3
    lam, eta, nu, sigma2 = 2.0, 1.0, 0.25, 0.25
    den, b = 2 - 0.1 * 1.25, 0.9
    r = 1 - a * den
    lag = 1 - (r + r**2 + r**3) / 3
    h, reach = (1 + r + r**2) / 3, a * (1 + b + b**2)
    gap = lag * (1 - a * nu / den) - 2 * a * nu * h * (reach - 2 * a)
    gain = lag * (2 * reach - a) / den
    p = nu * gain / M
    C1 = 1 - gap + math.sqrt(p * gap)
    bound = theorem1_sharp(SIGNS, a, M, [0.0])
    assert bound.constants == pytest.approx((C1, 1 - gap, gain, reach, lam, eta, nu, sigma2))
    assert bound.initial == pytest.approx(1.0)
    assert bound.rate == pytest.approx(C1)
    assert bound.floor == pytest.approx(sigma2 * gain / M / (math.sqrt(gap) - math.sqrt(p)) ** 2)


@pytest.mark.parametrize(("function", "repaired"), [(theorem2, False), (theorem2_repaired, True)])
def test_hand_values_of_theorem2(function, repaired):
    system = LinearSystem(MarkovRewardProcess([[0.7, 0.3], [0.4, 0.6]], [1.0, 2.0], 0.5), [[1.0], [0.5]])
    a, M, R, lam = 0.01, 20_000, 3.0, system.lambda_A
    kappa, rho, g2 = system.mrp.mixing_constant, system.mrp.mixing_rate, 2.25
    assert (kappa, rho) == pytest.approx((4 / 7, 0.3), rel=1e-2)
    bound = function(system, a, M, [2.5], R)
    den = lam / 2 - 3 * a * g2
    C1 = (1 / M + 3 * a**2 * g2) / (a * den)
    C2 = 16 * (9 * g2 + 4) * ((1 + 2 * kappa / (1 - rho)) if repaired else (1 + (kappa - 1) * rho) / (1 - rho))
    G = 1.5 * R + 2
    C4 = G**2 * (1 + 4 * kappa / (1 - rho)) if repaired else G**2 + 2 * rho * kappa * G * G / (1 - rho)
    assert bound.constants == pytest.approx((C1, C2, 3 * a / den, C4, G))
    assert bound.variance == pytest.approx(3 * C4 * a / ((1 - C1) * den * M))
    assert bound.bias == pytest.approx(C2 / lam / ((1 - C1) * den * M))
    assert bound.floor == bound.variance + bound.bias
    assert bound.valid is repaired
    assert repaired or bound.reasons[0].startswith("Lemma 5 is false as printed")


def test_the_repair_of_theorem2_costs_something_and_the_floor_falls_with_the_batch():
    system = LinearSystem(MarkovRewardProcess([[0.7, 0.3], [0.4, 0.6]], [1.0, 2.0], 0.5), [[1.0], [0.5]])
    floors = [theorem2_repaired(system, 0.01, M, [0.0]).floor for M in (2_000, 4_000, 8_000, 10**6)]
    assert floors == sorted(floors, reverse=True)
    assert theorem2(system, 0.01, 4_000, [0.0]).floor < floors[1]


def test_hand_values_of_td():
    bound = td_iid_bound(COIN, 0.1, [2.0])
    assert (bound.constants.C5, bound.rate, bound.initial) == (2.0, 0.95, 4.0)
    assert bound.floor == pytest.approx(0.4)
    sharp = td_iid_sharp(COIN, 0.16, [2.0])  # sqrt(a q) = 0.2
    assert sharp.rate == pytest.approx(1 - 0.16 * 0.8)
    assert sharp.floor == pytest.approx(0.16 / 0.64)


@pytest.mark.parametrize("a", [0.01, 1.2])
def test_hand_values_of_td_markov(a):
    mrp = MarkovRewardProcess([[0.7, 0.3], [0.4, 0.6]], [1.0, 2.0], 0.5)
    system = LinearSystem(mrp, [[1.0], [0.5]])
    speed, lam = math.log(1 / mrp.mixing_rate), system.lambda_A
    bound = td_markov_bound(system, a, [0.0], radius=3.0)
    G, C6, C7 = bound.constants
    assert (8.0, 64 * 21.0, 12 * 64 / speed) == pytest.approx((G, C6, C7))  # kappa is below 1
    assert bound.rate == pytest.approx(1 - a * lam)
    assert bound.variance == pytest.approx(a * 64 / lam)
    assert bound.floor == pytest.approx(a * C6 / lam + a * C7 * max(math.log(1 / a), 0.0) / lam)
    assert bound.valid


def test_mixing_enters_c6_where_kappa_exceeds_1():
    P = np.diag(np.full(11, 0.8), 1) + np.diag(np.full(11, 0.2), -1)  # a drift to the right
    P[0, 0], P[-1, -1] = 0.2, 0.8
    mrp = MarkovRewardProcess(P, np.linspace(-1, 1, 12), 0.5)
    bound = td_markov_bound(LinearSystem(mrp, np.ones((12, 1))), 0.01, [0.0], radius=1.0)
    assert mrp.mixing_constant > 1.0
    expected = 9 * (21 + 12 * math.log(mrp.mixing_constant) / math.log(1 / mrp.mixing_rate))
    assert pytest.approx(expected) == bound.constants.C6
