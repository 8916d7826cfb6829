"""The paper's lemmas and per-epoch inequalities: both sides computed, as printed or repaired.

The left sides are exact on the chain: largest values over its transitions, or over the states it may start from.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vrtd.checks import check_exact_count, check_flag, check_positive
from vrtd.linear_system import LinearSystem
from vrtd.theory.constants import SLACK, Condition, check_assumptions, largest_discount, mixing, parameter, radius_of
from vrtd.theory.on_policy import check_system
from vrtd.theory.statements import CROSS_TERM, EpochInequality, ball_holds, ratio, step_below

__all__ = [
    "Inequality",
    "epoch_inequality_iid",
    "epoch_inequality_markov",
    "lemma1",
    "lemma2",
    "lemma3",
    "lemma4",
    "lemma5",
]

Floats = NDArray[np.float64]

#: Transitions whose features are held at one time.
EDGES_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class Inequality:
    """left <= right, both sides computed; promised only where the conditions hold."""

    statement: str
    left: float
    right: float
    conditions: tuple[Condition, ...]

    @property
    def holds(self) -> bool:
        """Whether left <= right, up to rounding."""
        return self.left <= self.right * (1.0 + SLACK)


def lemma1(
    system: LinearSystem, batch_size: int, theta: ArrayLike, radius: float | None = None, printed: bool = False
) -> Inequality:
    """Lemma 1: the mean of xi_m(theta) = u^T (g_m(theta) - g(theta)) over a batch, from the worst start state.

    The right side is (lam/4)|u|^2 + 8 (R^2 g2 + r^2) F/(lam M). As printed, F = 1 + kappa rho/(1 - rho); that is
    true for a fixed theta, but the theorem needs E|g_m - g|^2 <= 8 (R^2 g2 + r^2) F/M, because its theta depends on
    the batch, and this is proven for F = 1 + 2 kappa/(1 - rho), the default.

    >>> from vrtd.problems import MarkovRewardProcess
    >>> system = LinearSystem(MarkovRewardProcess([[0.7, 0.3], [0.4, 0.6]], [1.0, 2.0], 0.5), [[1.0], [0.5]])
    >>> lemma1(system, 10, [0.0]).holds
    True
    """
    check_exact_count("batch_size", batch_size)
    check_flag("printed", printed)
    point = parameter(system, "theta", theta)
    u, R, mrp, M = point - system.theta_star, radius_of(system, radius, point), system.mrp, int(batch_size)
    v = system.phi @ point
    error = mrp.mean_reward + mrp.discounted_P @ v - v
    bias = (system.phi @ u) * error - u @ system.mean_update(point)  # u^T E[g_x - g | s]
    left = float(_mean_along_chain(_dense(system), bias, M).max())
    kappa, rho = mixing(system)
    factor = 1.0 + ratio(kappa * rho if printed else 2.0 * kappa, 1.0 - rho)
    scale = R**2 * (1.0 + largest_discount(system)) ** 2 + mrp.r_max**2
    right = 0.25 * system.lambda_A * float(u @ u) + 8.0 * factor * scale / (system.lambda_A * M)
    found = check_assumptions(system)
    conditions = (found.bounded_features, found.ergodic, ball_holds("theta", point, R))
    return Inequality("Lemma 1, " + _kind(printed), left, right, conditions)


def lemma2(system: LinearSystem) -> tuple[Inequality, Inequality]:
    """Lemma 2: |A_x| <= 1 + gamma and |b_x| <= r_max on every transition.

    >>> from vrtd.problems import random_walk
    >>> [inequality.holds for inequality in lemma2(LinearSystem(*random_walk()))]
    [True, True]
    """
    phi, psi = _norms(system)
    conditions = (check_assumptions(system).bounded_features,)
    mrp = system.mrp
    return (
        Inequality("Lemma 2, A", float((phi * psi).max()), 1.0 + largest_discount(system), conditions),
        Inequality("Lemma 2, b", float((phi * np.abs(mrp.edges.reward)).max()), mrp.r_max, conditions),
    )


def lemma3(system: LinearSystem, radius: float) -> Inequality:
    """Lemma 3: |g_x(theta)| <= G = (1 + gamma) R + r_max on every transition and for every |theta| <= R."""
    check_positive("radius", radius)
    phi, psi = _norms(system)
    left = float((phi * (radius * psi + np.abs(system.mrp.edges.reward))).max())
    G = (1.0 + largest_discount(system)) * radius + system.mrp.r_max
    return Inequality("Lemma 3", left, G, (check_assumptions(system).bounded_features,))


def lemma4(system: LinearSystem, theta: ArrayLike, radius: float | None = None) -> Inequality:
    """Lemma 4: |g_x(theta)|^2 <= D1 |u|^2 + D2 on every transition."""
    point = parameter(system, "theta", theta)
    u, R, edges = point - system.theta_star, radius_of(system, radius), system.mrp.edges
    v = system.phi @ point
    error = edges.reward + edges.discount * v[edges.successor] - v[edges.origin]
    left = float((np.linalg.norm(system.phi, axis=1)[edges.origin] * np.abs(error)).max()) ** 2
    g2 = (1.0 + largest_discount(system)) ** 2
    right = 2.0 * g2 * float(u @ u) + 4.0 * (g2 * R**2 + system.mrp.r_max**2)
    conditions = (check_assumptions(system).bounded_features, ball_holds("theta_star", system.theta_star, R))
    return Inequality("Lemma 4", left, right, conditions)


def lemma5(system: LinearSystem, lag: int, printed: bool = False) -> tuple[Inequality, Inequality]:
    """Lemma 5: how far the means of A_x and b_x, `lag` steps after a known transition, are from A and b.

    The known transition x_i ends in s_{i+1}, so s_{i+lag} is lag - 1 steps away: |E[A_{i+lag}|x_i] - A| (Frobenius)
    is at most 2 (1 + gamma) kappa rho^(lag-1), and that of b at most 2 r_max kappa rho^(lag-1). As printed, without
    the factor 2 and with rho^lag, both are false. The left sides are the largest over s_{i+1}.

    >>> from vrtd.problems import MarkovRewardProcess
    >>> system = LinearSystem(MarkovRewardProcess([[0.7, 0.3], [0.4, 0.6]], [1.0, -1.0], 0.5), [[1.0], [0.5]])
    >>> [i.holds for i in lemma5(system, 1)], [i.holds for i in lemma5(system, 1, printed=True)]
    ([True, True], [False, False])
    """
    check_exact_count("lag", lag)
    check_flag("printed", printed)
    mrp, phi = system.mrp, system.phi
    ahead = np.linalg.matrix_power(_dense(system), int(lag) - 1)
    mean_A = np.einsum("si,sj->sij", phi, mrp.discounted_P @ phi - phi).reshape(mrp.n_states, -1)
    mean_b = mrp.mean_reward[:, None] * phi
    kappa, rho = mixing(system)
    scale = kappa * (rho**lag if printed else 2.0 * rho ** (lag - 1))
    found = check_assumptions(system)
    conditions = (found.bounded_features, found.ergodic)
    return (
        Inequality(
            "Lemma 5, A, " + _kind(printed),
            float(np.linalg.norm(ahead @ mean_A - system.A.ravel(), axis=1).max()),
            (1.0 + largest_discount(system)) * scale,
            conditions,
        ),
        Inequality(
            "Lemma 5, b, " + _kind(printed),
            float(np.linalg.norm(ahead @ mean_b - system.b, axis=1).max()),
            mrp.r_max * scale,
            conditions,
        ),
    )


def epoch_inequality_iid(
    system: LinearSystem, step_size: float, batch_size: int, printed: bool = False
) -> EpochInequality:
    """The per-epoch inequality of Section 4.1, for Algorithm 1: corrected, or as printed, which is false.

    `right` takes |u_{m-1}|^2 and E|e_m|^2, e_m = g_m - g at theta_{m-1}.

    >>> from vrtd.problems import MarkovRewardProcess
    >>> system = LinearSystem(MarkovRewardProcess([[0.5, 0.5], [0.5, 0.5]], [1.0, -1.0], 0.5), [[1.0], [1.0]])
    >>> epoch_inequality_iid(system, 0.02, 2000).right(0.0, 1 / 2000) > 0.0019  # the exact value
    True
    """
    check_flag("printed", printed)
    a, M, lam, g2 = _epoch_arguments(system, step_size, batch_size)
    den, weight = (lam - 4.0 * a * g2, 2.0 * a) if printed else (0.5 * lam - 4.0 * a * g2, 2.0 * a + 2.0 / lam)
    step = step_below(a, lam / (4.0 if printed else 8.0) / g2, f"lambda_A/({4 if printed else 8} (1 + gamma)^2)")
    weights = ratio(1.0 / (a * M) + 4.0 * a * g2, den), ratio(weight, den), 0.0
    conditions = (check_assumptions(system).bounded_features, step)
    reason = CROSS_TERM if printed else ""
    return EpochInequality("Section 4.1, one epoch, " + _kind(printed), *weights, conditions, not printed, reason)


def epoch_inequality_markov(system: LinearSystem, step_size: float, batch_size: int) -> EpochInequality:
    """The per-epoch inequality of Section 4.2, for Algorithm 2 with a radius of at least |theta_star|, or without.

    `right` takes |u_{m-1}|^2, E|g_m(theta_star)|^2 and the mean over i = 0..M-1 of E[xi_m(theta_{m,i})].
    """
    a, M, lam, g2 = _epoch_arguments(system, step_size, batch_size)
    den = lam - 3.0 * a * g2
    step = step_below(a, lam / (3.0 * g2), "lambda_A/(3 (1 + gamma)^2)")
    weights = ratio(1.0 / (a * M) + 3.0 * a * g2, den), ratio(3.0 * a, den), ratio(2.0, den)
    conditions = (check_assumptions(system).bounded_features, step)
    return EpochInequality("Section 4.2, one epoch", *weights, conditions, True, "")


def _epoch_arguments(system: LinearSystem, step_size: float, batch_size: int) -> tuple[float, int, float, float]:
    check_system(system)
    check_positive("step_size", step_size)
    check_exact_count("batch_size", batch_size)
    return float(step_size), int(batch_size), system.lambda_A, (1.0 + largest_discount(system)) ** 2


def _kind(printed: bool) -> str:
    return "as printed" if printed else "repaired"


def _dense(system: LinearSystem) -> Floats:
    check_system(system)
    return np.asarray(system.mrp.matrix(system.mrp.edges.probability).toarray(), dtype=np.float64)


def _mean_along_chain(P: Floats, f: Floats, M: int) -> Floats:
    """(1/M) sum_{i<M} P^i f, by the binary digits of M: the sum over i < 2k is that over i < k plus P^k times it."""
    total, power = np.zeros_like(f), np.eye(len(P))
    for digit in f"{M:b}":
        total, power = total + power @ total, power @ power
        if digit == "1":
            total, power = f + P @ total, P @ power
    return total / M


def _norms(system: LinearSystem) -> tuple[Floats, Floats]:
    """|phi(s)| and |discount phi(s') - phi(s)| on each transition."""
    check_system(system)
    phi, edges = system.phi, system.mrp.edges
    psi = np.empty(edges.origin.size)
    for start in range(0, psi.size, EDGES_AT_ONCE):
        part = slice(start, start + EDGES_AT_ONCE)
        ahead = edges.discount[part, None] * phi[edges.successor[part]]
        psi[part] = np.linalg.norm(ahead - phi[edges.origin[part]], axis=1)
    return np.linalg.norm(phi, axis=1)[edges.origin], psi
