"""The lemmas of the paper as inequalities, with both sides computed on a chain, as printed or corrected.

The left sides are exact: they are the largest values over the transitions of the chain, or over its start states.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import numpy as np
from numpy.typing import ArrayLike

from vrtd.arrays import Floats
from vrtd.checks import check_choice, check_exact_count, check_positive
from vrtd.problems import LinearProblem
from vrtd.theory.checks import check_problem
from vrtd.theory.constants import check_assumptions, check_parameter, check_setting, growth, mixing, radius_of
from vrtd.theory.statements import (
    CROSS_TERM,
    SLACK,
    Condition,
    EpochInequality,
    Form,
    compare_norm,
    compare_step_to_share,
    ratio,
)

#: Number of transitions whose features are in memory at the same time.
EDGES_AT_ONCE = 1 << 16
_KINDS: dict[Form, str] = {"printed": "as printed", "corrected": "corrected"}


@dataclass(frozen=True)
class Inequality:
    """Inequality of the paper, with both sides computed on a chain.

    The paper states ``left <= right`` only if all conditions hold.

    Attributes
    ----------
    statement : str
        The lemma, and the form.
    left, right : float
        The two sides.
    conditions : tuple of Condition
        The conditions of the lemma, checked on the chain.
    """

    statement: str
    left: float
    right: float
    conditions: tuple[Condition, ...]

    @property
    def holds(self) -> bool:
        """Whether ``left <= right``, up to rounding."""
        return self.left <= self.right * (1.0 + SLACK)


def batch_bias_inequality(
    problem: LinearProblem,
    batch_size: int,
    theta: ArrayLike,
    radius: float | None = None,
    *,
    form: Form = "corrected",
) -> Inequality:
    """Compute both sides of Lemma 1, which bounds the mean bias of a batch.

    Parameters
    ----------
    problem : LinearProblem
        Chain and features.
    batch_size : int
        Transitions per batch.
    theta : array_like of shape (n_features,)
        The point at which the bias is evaluated.
    radius : float, default=None
        Radius R. By default it is the least one for which the ball contains theta_star and theta.
    form : {"printed", "corrected"}, default="corrected"
        The statement of the paper, or the statement with its proof repaired.

    Returns
    -------
    Inequality
        The left side is for the worst start state.

    Notes
    -----
    The bias is the mean of ``xi_m(theta) = u^T (g_m(theta) - g(theta))`` over a batch. Its bound is
    ``(lam/4)|u|^2 + 8 (R^2 g2 + r^2) F/(lam M)``, with ``F = 1 + kappa rho/(1 - rho)`` in the printed form. That is
    true for a fixed theta. But theta in the theorem depends on the batch, so the theorem needs
    ``E|g_m - g|^2 <= 8 (R^2 g2 + r^2) F/M``. This is proven for ``F = 1 + 2 kappa/(1 - rho)``, the corrected form.

    Examples
    --------
    >>> from vrtd.problems import MarkovRewardProcess
    >>> problem = LinearProblem(MarkovRewardProcess([[0.7, 0.3], [0.4, 0.6]], [1.0, 2.0], 0.5), [[1.0], [0.5]])
    >>> batch_bias_inequality(problem, 10, [0.0]).holds
    True
    """
    check_exact_count("batch_size", batch_size)
    check_choice("form", form, get_args(Form))
    point = check_parameter(problem, "theta", theta)
    u, R, mrp, M = point - problem.theta_star, radius_of(problem, radius, point), problem.mrp, int(batch_size)
    v = problem.phi @ point
    error = mrp.mean_reward + mrp.discounted_P @ v - v
    bias = (problem.phi @ u) * error - u @ problem.mean_update(point)  # u^T E[g_x - g | s]
    left = float(_mean_along_chain(_dense(problem), bias, M).max())
    kappa, rho = mixing(problem)
    factor = 1.0 + ratio(kappa * rho if form == "printed" else 2.0 * kappa, 1.0 - rho)
    scale = R**2 * growth(problem) ** 2 + mrp.r_max**2
    right = 0.25 * problem.lambda_A * float(u @ u) + 8.0 * factor * scale / (problem.lambda_A * M)
    found = check_assumptions(problem)
    conditions = (found.bounded_features, found.ergodic, compare_norm("theta", point, R))
    return Inequality("Lemma 1, " + _KINDS[form], left, right, conditions)


def transition_inequalities(problem: LinearProblem) -> tuple[Inequality, Inequality]:
    """Compute both sides of Lemma 2, which bounds A_x and b_x on every transition.

    Parameters
    ----------
    problem : LinearProblem
        Chain and features.

    Returns
    -------
    tuple of two Inequality
        ``|A_x| <= 1 + gamma`` and ``|b_x| <= r_max``.

    Examples
    --------
    >>> from vrtd.problems import random_walk
    >>> [inequality.holds for inequality in transition_inequalities(random_walk())]
    [True, True]
    """
    phi, psi = _norms(problem)
    conditions = (check_assumptions(problem).bounded_features,)
    mrp = problem.mrp
    return (
        Inequality("Lemma 2, A", float((phi * psi).max()), growth(problem), conditions),
        Inequality("Lemma 2, b", float((phi * np.abs(mrp.edges.reward)).max()), mrp.r_max, conditions),
    )


def pseudo_gradient_inequality(problem: LinearProblem, radius: float) -> Inequality:
    """Compute both sides of Lemma 3, which bounds the pseudo-gradient on every transition.

    Parameters
    ----------
    problem : LinearProblem
        Chain and features.
    radius : float
        Radius R of the ball of parameters.

    Returns
    -------
    Inequality
        ``|g_x(theta)| <= G`` for every ``|theta| <= R``, with ``G = (1 + gamma) R + r_max``.

    Examples
    --------
    >>> from vrtd.problems import random_walk
    >>> pseudo_gradient_inequality(random_walk(), 1.0).holds
    True
    """
    check_positive("radius", radius)
    phi, psi = _norms(problem)
    left = float((phi * (radius * psi + np.abs(problem.mrp.edges.reward))).max())
    G = growth(problem) * radius + problem.mrp.r_max
    return Inequality("Lemma 3", left, G, (check_assumptions(problem).bounded_features,))


def squared_pseudo_gradient_inequality(
    problem: LinearProblem, theta: ArrayLike, radius: float | None = None
) -> Inequality:
    """Compute both sides of Lemma 4, which bounds the squared pseudo-gradient on every transition.

    Parameters
    ----------
    problem : LinearProblem
        Chain and features.
    theta : array_like of shape (n_features,)
        The point at which the pseudo-gradient is evaluated.
    radius : float, default=None
        Radius R of a ball that contains theta_star. By default it is ``|theta_star|``.

    Returns
    -------
    Inequality
        ``|g_x(theta)|^2 <= D1 |u|^2 + D2``, with ``D1 = 2 (1 + gamma)^2`` and
        ``D2 = 4 ((1 + gamma)^2 R^2 + r_max^2)``.

    Examples
    --------
    >>> from vrtd.problems import random_walk
    >>> problem = random_walk()
    >>> squared_pseudo_gradient_inequality(problem, [0.0] * problem.n_features).holds
    True
    """
    point = check_parameter(problem, "theta", theta)
    u, R, edges = point - problem.theta_star, radius_of(problem, radius), problem.mrp.edges
    v = problem.phi @ point
    error = edges.reward + edges.discount * v[edges.successor] - v[edges.origin]
    left = float((np.linalg.norm(problem.phi, axis=1)[edges.origin] * np.abs(error)).max()) ** 2
    g2 = growth(problem) ** 2
    right = 2.0 * g2 * float(u @ u) + 4.0 * (g2 * R**2 + problem.mrp.r_max**2)
    conditions = (check_assumptions(problem).bounded_features, compare_norm("theta_star", problem.theta_star, R))
    return Inequality("Lemma 4", left, right, conditions)


def mixing_inequalities(problem: LinearProblem, lag: int, *, form: Form = "corrected") -> tuple[Inequality, Inequality]:
    """Compute both sides of Lemma 5, which bounds how far A_x and b_x are from their means after a known transition.

    Parameters
    ----------
    problem : LinearProblem
        Chain and features.
    lag : int
        Number of steps after the known transition.
    form : {"printed", "corrected"}, default="corrected"
        The statement of the paper, or the statement with its proof repaired.

    Returns
    -------
    tuple of two Inequality
        The inequality for A, in the Frobenius norm, and the one for b. The left sides are the largest over the last
        state of the known transition.

    Notes
    -----
    The known transition ``x_i`` ends in ``s_{i+1}``, so ``s_{i+lag}`` is ``lag - 1`` steps away. The distance
    ``|E[A_{i+lag}|x_i] - A|`` is at most ``2 (1 + gamma) kappa rho^(lag-1)``, and that of b is at most
    ``2 r_max kappa rho^(lag-1)``. The printed form has ``rho^lag`` and no factor 2; it is false for both.

    Examples
    --------
    >>> from vrtd.problems import MarkovRewardProcess
    >>> problem = LinearProblem(MarkovRewardProcess([[0.7, 0.3], [0.4, 0.6]], [1.0, -1.0], 0.5), [[1.0], [0.5]])
    >>> [inequality.holds for inequality in mixing_inequalities(problem, 1)]
    [True, True]
    >>> [inequality.holds for inequality in mixing_inequalities(problem, 1, form="printed")]
    [False, False]
    """
    check_exact_count("lag", lag)
    check_choice("form", form, get_args(Form))
    mrp, phi = problem.mrp, problem.phi
    ahead = np.linalg.matrix_power(_dense(problem), int(lag) - 1)
    mean_A = np.einsum("si,sj->sij", phi, mrp.discounted_P @ phi - phi).reshape(mrp.n_states, -1)
    mean_b = mrp.mean_reward[:, None] * phi
    kappa, rho = mixing(problem)
    scale = kappa * (rho**lag if form == "printed" else 2.0 * rho ** (lag - 1))
    found = check_assumptions(problem)
    conditions = (found.bounded_features, found.ergodic)

    def bound(name: str, mean: Floats, limit: Floats, largest: float) -> Inequality:
        left = float(np.linalg.norm(ahead @ mean - limit, axis=1).max())
        return Inequality(f"Lemma 5, {name}, {_KINDS[form]}", left, largest * scale, conditions)

    return bound("A", mean_A, problem.A.ravel(), growth(problem)), bound("b", mean_b, problem.b, mrp.r_max)


def epoch_inequality_iid(
    problem: LinearProblem, step_size: float, batch_size: int, *, form: Form = "corrected"
) -> EpochInequality:
    """Bound the error after one epoch of VRTD on independent samples (Algorithm 1), as in Section 4.1 of the paper.

    Parameters
    ----------
    problem : LinearProblem
        Chain and features.
    step_size : float
        Step size.
    batch_size : int
        Transitions per batch.
    form : {"printed", "corrected"}, default="corrected"
        The statement of the paper, which is false, or the statement with its proof repaired.

    Returns
    -------
    EpochInequality
        Its method ``right`` takes ``|u_{m-1}|^2`` and ``E|e_m|^2``, where ``e_m = g_m - g`` at the anchor of the epoch.

    Examples
    --------
    >>> from vrtd.problems import MarkovRewardProcess
    >>> problem = LinearProblem(MarkovRewardProcess([[0.5, 0.5], [0.5, 0.5]], [1.0, -1.0], 0.5), [[1.0], [1.0]])
    >>> epoch_inequality_iid(problem, 0.02, 2000).right(0.0, 1 / 2000) > 0.0019  # the exact value
    True
    """
    check_choice("form", form, get_args(Form))
    a, M, lam, g2 = check_setting(problem, step_size, batch_size)
    if form == "printed":
        den, weight, share, reason = lam - 4.0 * a * g2, 2.0 * a, 4, CROSS_TERM
    else:
        den, weight, share, reason = 0.5 * lam - 4.0 * a * g2, 2.0 * a + 2.0 / lam, 8, ""
    weights = ratio(1.0 / (a * M) + 4.0 * a * g2, den), ratio(weight, den), 0.0
    conditions = (check_assumptions(problem).bounded_features, compare_step_to_share(a, lam, g2, share))
    return EpochInequality("Section 4.1, one epoch, " + _KINDS[form], *weights, conditions, reason)


def epoch_inequality_markov(problem: LinearProblem, step_size: float, batch_size: int) -> EpochInequality:
    """Bound the error after one epoch of VRTD on a trajectory (Algorithm 2), as in Section 4.2 of the paper.

    The inequality holds without projection, and with projection onto a radius of at least ``|theta_star|``.

    Parameters
    ----------
    problem : LinearProblem
        Chain and features.
    step_size : float
        Step size.
    batch_size : int
        Transitions per batch.

    Returns
    -------
    EpochInequality
        Its method ``right`` takes ``|u_{m-1}|^2``, ``E|g_m(theta_star)|^2`` and the mean of ``E[xi_m(theta_{m,i})]``
        over ``i = 0, ..., M - 1``.

    Examples
    --------
    >>> from vrtd.problems import random_walk
    >>> inequality = epoch_inequality_markov(random_walk(), 0.001, 100_000)
    >>> inequality.valid, inequality.contraction < 1.0
    (True, True)
    """
    a, M, lam, g2 = check_setting(problem, step_size, batch_size)
    den = lam - 3.0 * a * g2
    weights = ratio(1.0 / (a * M) + 3.0 * a * g2, den), ratio(3.0 * a, den), ratio(2.0, den)
    conditions = (check_assumptions(problem).bounded_features, compare_step_to_share(a, lam, g2, 3))
    return EpochInequality("Section 4.2, one epoch", *weights, conditions)


def _dense(problem: LinearProblem) -> Floats:
    check_problem(problem)
    return np.asarray(problem.mrp.matrix(problem.mrp.edges.probability).toarray())


def _mean_along_chain(P: Floats, f: Floats, M: int) -> Floats:
    """Return (1/M) sum_{i<M} P^i f.

    The binary digits of M are used: the sum over i < 2k is the sum over i < k, plus P^k times that sum.
    """
    total, power = np.zeros_like(f), np.eye(len(P))
    for digit in f"{M:b}":
        total, power = total + power @ total, power @ power
        if digit == "1":
            total, power = f + P @ total, P @ power
    return total / M


def _norms(problem: LinearProblem) -> tuple[Floats, Floats]:
    """Return |phi(s)| and |discount phi(s') - phi(s)| for each transition."""
    check_problem(problem)
    phi, edges = problem.phi, problem.mrp.edges
    psi = np.empty(edges.origin.size)
    for start in range(0, psi.size, EDGES_AT_ONCE):
        part = slice(start, start + EDGES_AT_ONCE)
        ahead = edges.discount[part, None] * phi[edges.successor[part]]
        psi[part] = np.linalg.norm(ahead - phi[edges.origin[part]], axis=1)
    return np.linalg.norm(phi, axis=1)[edges.origin], psi
