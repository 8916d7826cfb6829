"""Bounds of the expected squared error of TD and VRTD, by method and sampling.

Each bound has one or more forms: "printed" is the paper's statement, "corrected" is the statement with its proof
repaired, and "sharp" is a tighter bound from the constants of the chain. `td_markov_bound` has one form only.

Notation: u = theta - theta_star, a is the step size, M the batch size, lam = lambda_A, gamma the largest discount,
g2 = (1 + gamma)^2, R the radius, r = r_max, kappa and rho the mixing constants of the chain. A bound states
E|u_k|^2 <= rate^k |u_0|^2 + variance + bias for every k, where k counts epochs of VRTD or updates of TD. C1 and G are
different numbers in different bounds, so each bound has its own tuple of constants.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike

from vrtd.arrays import Floats
from vrtd.checks import check_choice
from vrtd.errors import InvalidInputError
from vrtd.problems import LinearProblem
from vrtd.theory.constants import (
    InstanceConstants,
    check_assumptions,
    check_parameter,
    check_setting,
    instance_constants,
    mixing,
    radius_of,
)
from vrtd.theory.statements import (
    CROSS_TERM,
    ONE_STEP_LATE,
    Bound,
    Condition,
    Form,
    compare,
    compare_batch,
    compare_norm,
    compare_step,
    compare_step_to_share,
    judge,
    ratio,
)

VRTDIidForm = Literal["printed", "corrected", "sharp"]
TDIidForm = Literal["printed", "sharp"]


class VRTDIidConstants(NamedTuple):
    """Constants of Theorem 1.

    C1 is the contraction per epoch. E|e|^2 <= (D1 |u|^2 + D2)/M, where e is the error of the batch gradient.
    """

    C1: float
    D1: float
    D2: float


class VRTDIidSharpConstants(NamedTuple):
    """Constants of the sharpened Theorem 1.

    C1 is the contraction per epoch, and C0 is the contraction with exact batch gradients. An epoch adds at most
    ``gain`` times E|e|^2 to E|u|^2. ``reach`` is an upper bound of |a sum_{j<M} B^j| with B = I + a A. The other
    constants are those of ``InstanceConstants``.
    """

    C1: float
    C0: float
    gain: float
    reach: float
    lambda_A: float  # noqa: N815
    eta: float
    nu: float
    sigma2: float


class VRTDMarkovConstants(NamedTuple):
    """Constants of Theorem 2.

    C1 is the contraction per epoch, C2 belongs to the bias, C3 and C4 to the variance. G is an upper bound of |g_x|.
    """

    C1: float
    C2: float
    C3: float
    C4: float
    G: float


class TDIidConstants(NamedTuple):
    """Constant of Appendix F.1: C5 = 2 E|g_x(theta_star)|^2."""

    C5: float


class TDMarkovConstants(NamedTuple):
    """Constants of Appendix F.2.

    G = r_max + 2 R is an upper bound of |g_x|. C6 and C7 are the factors of a/lambda_A and of a log(1/a)/lambda_A.
    """

    G: float
    C6: float
    C7: float


def vrtd_iid_bound(
    problem: LinearProblem,
    step_size: float,
    batch_size: int,
    theta_0: ArrayLike,
    radius: float | None = None,
    *,
    form: VRTDIidForm = "sharp",
) -> Bound[Any]:
    """Bound the error of VRTD on independent samples (Algorithm 1), as in Theorem 1 of the paper.

    The corrected and the sharp form hold for the outputs ``"random"`` and ``"average"``.

    Parameters
    ----------
    problem : LinearProblem
        Chain and features.
    step_size : float
        Step size.
    batch_size : int
        Transitions per batch.
    theta_0 : array_like of shape (n_features,)
        Start.
    radius : float, default=None
        Radius R of a ball that contains theta_star. By default it is ``|theta_star|``. The sharp form has no radius.
    form : {"printed", "corrected", "sharp"}, default="sharp"
        The statement of the paper, the statement with its proof repaired, or a tighter bound from the constants of the
        chain.

    Returns
    -------
    Bound
        The bound per epoch, with its conditions.

    Notes
    -----
    Let ``u = theta - theta_star``, ``e`` the error of the batch gradient, ``a`` the step size, ``M`` the batch size,
    ``lam = lambda_A``, ``g2 = (1 + gamma)^2``, ``r = r_max``, ``D1 = 2 g2`` and ``D2 = 4 (g2 R^2 + r^2)``.

    The printed form is false: it is violated on actual chains. With ``den = lam - 4 a g2`` it states::

        C1 = (4 a g2 + (4 g2 a^2 + 1)/(a M))/den,  floor = 2 D2 a/((1 - C1) den M)

    The corrected form includes the cross term that the printed proof drops, by
    ``2a<u, e> <= (a lam/2)|u|^2 + (2a/lam)|e|^2``. With ``den = lam/2 - 4 a g2`` it states::

        C1 = (1/(a M) + 4 a g2 + (2a + 2/lam) D1/M)/den,  floor = (2a + 2/lam) D2/((1 - C1) den M)

    The sharp form uses the constants lam, eta, nu and sigma2 of ``instance_constants``. It needs no assumption on the
    features, and it holds for any batch size. With ``den = lam - a (eta + nu)``, ``b^2 = 1 - a lam + a^2 eta``,
    ``c = a den``, ``lag`` the mean of ``1 - (1 - c)^t`` over ``t = 1, ..., M``, ``w = (1 - (1 - c)^M)/(c M)`` and
    ``reach = a sum_{j<M} b^j`` it states::

        1 - C0 = lag (1 - a nu/den) - 2 a nu w (reach - 2a),  gain = lag (2 reach - a)/den,  p = nu gain/M,
        C1 = C0 + sqrt(p (1 - C0)),  floor = sigma2 gain/(M (sqrt(1 - C0) - sqrt(p))^2)

    provided that ``C0 + p < 1``. The proof is in ``docs/what-holds.md``.

    Examples
    --------
    >>> from vrtd.problems import MarkovRewardProcess
    >>> problem = LinearProblem(MarkovRewardProcess([[0.5, 0.5], [0.5, 0.5]], [1.0, -1.0], 0.5), [[1.0], [1.0]])
    >>> bound = vrtd_iid_bound(problem, 0.02, 2000, [0.0])  # the exact error is 0.0019
    >>> bound.valid, round(bound.rate, 4), round(bound.floor, 4)
    (True, 0.0246, 0.002)
    >>> bound = vrtd_iid_bound(problem, 0.02, 2000, [0.0], form="corrected")
    >>> bound.valid, round(bound.rate, 3), round(bound.floor, 4)
    (True, 0.655, 0.037)
    >>> vrtd_iid_bound(problem, 0.02, 2000, [0.0], form="printed").valid
    False
    """
    check_choice("form", form, get_args(VRTDIidForm))
    _, u0 = _check_start(problem, theta_0)
    a, M, lam, g2 = check_setting(problem, step_size, batch_size)
    if form == "sharp":
        if radius is not None:
            raise InvalidInputError(
                f'radius must be left out with form="sharp", but is {radius}.', "Drop it, or change the form."
            )
        return _vrtd_iid_sharp(problem, a, M, u0)
    R, found = radius_of(problem, radius), check_assumptions(problem)
    D1, D2 = 2.0 * g2, 4.0 * (g2 * R**2 + problem.mrp.r_max**2)
    conditions = [found.solvable, found.bounded_features, compare_norm("theta_star", problem.theta_star, R)]
    if form == "printed":
        statement, reason, share, den = "Theorem 1 as printed", CROSS_TERM, 8, lam - 4.0 * a * g2
        C1 = ratio(4.0 * a * g2 + (4.0 * g2 * a**2 + 1.0) / (a * M), den)
        floor = ratio(2.0 * D2 * a, (1.0 - C1) * den * M)
        batch = compare_batch(M, 4.0 * g2 * a**2 + 1.0, a * (lam - 8.0 * a * g2))
        conditions.insert(2, found.ergodic)
    else:
        statement, reason, share, den = "Theorem 1 corrected", "", 16, 0.5 * lam - 4.0 * a * g2
        reach = 2.0 * a + 2.0 / lam
        C1 = ratio(1.0 / (a * M) + 4.0 * a * g2 + reach * D1 / M, den)
        floor = ratio(reach * D2, (1.0 - C1) * den * M)
        batch = compare_batch(M, 1.0 / a + reach * D1, 0.5 * lam - 8.0 * a * g2)
    conditions += [compare_step_to_share(a, lam, g2, share), batch]
    constants = VRTDIidConstants(C1, D1, D2)
    return Bound(statement, "epoch", reason, tuple(conditions), constants, *_contract(C1, u0, floor))


def vrtd_markov_bound(
    problem: LinearProblem,
    step_size: float,
    batch_size: int,
    theta_0: ArrayLike,
    radius: float | None = None,
    *,
    form: Form = "corrected",
) -> Bound[VRTDMarkovConstants]:
    """Bound the error of VRTD on a trajectory (Algorithm 2), as in Theorem 2 of the paper.

    The corrected form holds for every start state, for the outputs ``"random"`` and ``"average"``, with projection
    onto ``|theta| <= R``.

    Parameters
    ----------
    problem : LinearProblem
        Chain and features.
    step_size : float
        Step size.
    batch_size : int
        Transitions per batch.
    theta_0 : array_like of shape (n_features,)
        Start.
    radius : float, default=None
        Radius R of the projection. By default it is the least one for which the ball contains theta_star and theta_0.
    form : {"printed", "corrected"}, default="corrected"
        The statement of the paper, or the statement with its proof repaired.

    Returns
    -------
    Bound
        The bound per epoch, with its conditions.

    Notes
    -----
    Let ``a`` be the step size, ``M`` the batch size, ``lam = lambda_A``, ``g2 = (1 + gamma)^2`` and ``r = r_max``. Both
    forms state, with ``den = lam/2 - 3 a g2``::

        C1 = (1/M + 3 a^2 g2)/(a den),  variance = 3 a C4/((1 - C1) den M),  bias = C2/(lam (1 - C1) den M)

    The proof of the printed form fails, because its Lemma 5 is false. The corrected form has the larger constants
    ``C2 = 16 (R^2 g2 + r^2)(1 + 2 kappa/(1 - rho))`` and ``C4 = G^2 (1 + 4 kappa/(1 - rho))``.

    Examples
    --------
    >>> from vrtd.problems import MarkovRewardProcess
    >>> problem = LinearProblem(MarkovRewardProcess([[0.7, 0.3], [0.4, 0.6]], [1.0, 2.0], 0.5), [[1.0], [0.5]])
    >>> bound = vrtd_markov_bound(problem, 0.01, 10_000, [0.0])
    >>> bound.valid, bound.bias > bound.variance
    (True, True)
    """
    check_choice("form", form, get_args(Form))
    start, u0 = _check_start(problem, theta_0)
    a, M, lam, g2 = check_setting(problem, step_size, batch_size)
    R = radius_of(problem, radius, start)
    kappa, rho = mixing(problem)
    G, scale = math.sqrt(g2) * R + problem.mrp.r_max, 16.0 * (R**2 * g2 + problem.mrp.r_max**2)
    if form == "printed":
        statement, reason = "Theorem 2 as printed", ONE_STEP_LATE
        C2 = ratio(scale * (1.0 + (kappa - 1.0) * rho), 1.0 - rho)
        C4 = G**2 + ratio(2.0 * rho * kappa * G**2, 1.0 - rho)
    else:
        statement, reason = "Theorem 2 corrected", ""
        C2 = scale + ratio(2.0 * kappa * scale, 1.0 - rho)
        C4 = G**2 + ratio(4.0 * kappa * G**2, 1.0 - rho)
    den = 0.5 * lam - 3.0 * a * g2
    C1 = ratio(1.0 / M + 3.0 * a**2 * g2, a * den)
    conditions = [
        *_markov_conditions(problem, start, R),
        compare_step_to_share(a, lam, g2, 12),
        compare_batch(M, 1.0, 0.5 * a * lam - 6.0 * a**2 * g2),
    ]
    share = (1.0 - C1) * den * M if C1 < 1.0 else 0.0
    constants = VRTDMarkovConstants(C1, C2, ratio(3.0 * a, den), C4, G)
    variance, bias = ratio(3.0 * a * C4, share), ratio(C2 / lam, share)
    return Bound(statement, "epoch", reason, tuple(conditions), constants, *_contract(C1, u0, variance), bias)


def td_iid_bound(
    problem: LinearProblem, step_size: float, theta_0: ArrayLike, *, form: TDIidForm = "sharp"
) -> Bound[Any]:
    """Bound the error of TD on independent samples, as in Appendix F.1 of the paper.

    Parameters
    ----------
    problem : LinearProblem
        Chain and features.
    step_size : float
        Step size.
    theta_0 : array_like of shape (n_features,)
        Start.
    form : {"printed", "sharp"}, default="sharp"
        The statement of the paper, or a tighter bound from the constants of the chain.

    Returns
    -------
    Bound
        The bound per update, with its conditions.

    Notes
    -----
    Let ``a`` be the step size, ``lam = lambda_A`` and ``g2 = (1 + gamma)^2``.

    The printed form is the bound of the appendix with its constant made explicit, ``C5 = 2 E|g_x(theta_star)|^2``. The
    rate is ``1 - a lam/2`` and the floor is ``2 a C5/lam``, for ``a <= lam/(4 g2)``.

    The sharp form uses the constants q and sigma2 of ``instance_constants`` and needs no assumption on the features.
    The rate is ``1 - a lam + a sqrt(a q lam)`` and the floor is ``a sigma2/(sqrt(lam) - sqrt(a q))^2``, for
    ``a < lam/q``.

    Examples
    --------
    >>> from vrtd.problems import MarkovRewardProcess
    >>> problem = LinearProblem(MarkovRewardProcess([[0.5, 0.5], [0.5, 0.5]], [1.0, -1.0], 0.5), [[1.0], [1.0]])
    >>> bound = td_iid_bound(problem, 0.01, [0.0])
    >>> bound.valid, bound.rate, round(bound.floor, 4)
    (True, 0.9905, 0.0111)
    >>> bound = td_iid_bound(problem, 0.1, [0.0], form="printed")
    >>> bound.valid, bound.rate, bound.floor
    (True, 0.95, 0.4)
    """
    check_choice("form", form, get_args(TDIidForm))
    _, u0 = _check_start(problem, theta_0)
    a, _, lam, g2 = check_setting(problem, step_size, 1)
    if form == "sharp":
        constants = instance_constants(problem)
        root = math.sqrt(lam) - math.sqrt(a * constants.q)
        rate = 1.0 - a * math.sqrt(lam) * root if root > 0.0 else math.inf
        floor = ratio(a * constants.sigma2, root**2)
        step = compare_step(a, lam / constants.q, "lambda_A/q")
        return Bound("TD, i.i.d., sharpened", "update", "", (step,), constants, *_contract(rate, u0, floor))
    C5, found = 2.0 * float(np.trace(problem.noise_covariance)), check_assumptions(problem)
    conditions = (found.solvable, found.bounded_features, compare_step_to_share(a, lam, g2, 4, strict=False))
    rate, floor = 1.0 - 0.5 * a * lam, 2.0 * a * C5 / lam
    return Bound("TD, i.i.d.", "update", "", conditions, TDIidConstants(C5), *_contract(rate, u0, floor))


def td_markov_bound(
    problem: LinearProblem, step_size: float, theta_0: ArrayLike, radius: float | None = None
) -> Bound[TDMarkovConstants]:
    """Bound the error of projected TD on a trajectory with a stationary first state, as in Appendix F.2 of the paper.

    Parameters
    ----------
    problem : LinearProblem
        Chain and features.
    step_size : float
        Step size.
    theta_0 : array_like of shape (n_features,)
        Start.
    radius : float, default=None
        Radius R of the projection. By default it is the least one for which the ball contains theta_star and theta_0.

    Returns
    -------
    Bound
        The bound per update, with its conditions.

    Notes
    -----
    Let ``a`` be the step size, ``lam = lambda_A`` and ``r = r_max``. For ``a <= 1/lam`` the bound states::

        G = r + 2 R,  C6 = G^2 (21 + 12 ln(max(kappa, 1))/ln(1/rho)),  C7 = 12 G^2/ln(1/rho),
        rate = 1 - a lam,  floor = a C6/lam + a C7 max(ln(1/a), 0)/lam

    The part ``a G^2/lam`` of the floor is the variance, which independent samples have as well. The rest is the bias
    of correlated samples.

    Examples
    --------
    >>> from vrtd.problems import MarkovRewardProcess
    >>> mrp = MarkovRewardProcess([[0.7, 0.3], [0.4, 0.6]], [1.0, 2.0], 0.5)
    >>> bound = td_markov_bound(LinearProblem(mrp, [[1.0], [0.5]]), 0.01, [0.0])
    >>> bound.valid, bound.bias > bound.variance
    (True, True)
    """
    start, u0 = _check_start(problem, theta_0)
    a, _, lam, _ = check_setting(problem, step_size, 1)
    R, mrp = radius_of(problem, radius, start), problem.mrp
    kappa, rho = mixing(problem)
    G, speed = mrp.r_max + 2.0 * R, -math.log(rho)
    C6 = 21.0 * G**2 + ratio(12.0 * math.log(max(kappa, 1.0)) * G**2, speed)
    C7 = ratio(12.0 * G**2, speed)
    step = compare_step(a, 1.0 / lam, "1/lambda_A", strict=False)
    conditions = (*_markov_conditions(problem, start, R), step)
    bias = a * (C6 - G**2 + (C7 * -math.log(a) if a < 1.0 else 0.0)) / lam
    constants = TDMarkovConstants(G, C6, C7)
    parts = _contract(1.0 - a * lam, u0, a * G**2 / lam)
    return Bound("TD, Markovian", "update", "", conditions, constants, *parts, bias)


def _vrtd_iid_sharp(problem: LinearProblem, a: float, M: int, u0: Floats) -> Bound[VRTDIidSharpConstants]:
    instance = instance_constants(problem)
    lam, eta, nu, _, sigma2 = instance
    den = lam - a * (eta + nu)
    gap, gain, reach = _exact_gradient_epoch(instance, a, M) if den > 0.0 else (-math.inf, math.inf, math.inf)
    p = nu * gain / M if nu else 0.0
    contracts = gap > p
    root = math.sqrt(gap) - math.sqrt(p) if contracts else 0.0
    C1 = 1.0 - math.sqrt(gap) * root if contracts else math.inf
    conditions = [
        compare_step(a, lam / (eta + nu), "lambda_A/(eta + nu)"),
        compare("C0 + p", 1.0 - gap + p, 1.0, "C0 + p < 1", "lower step_size or raise batch_size", strict=True),
    ]
    floor = ratio(sigma2 * gain, M * root**2)
    constants = VRTDIidSharpConstants(C1, 1.0 - gap, gain, reach, lam, eta, nu, sigma2)
    return Bound("Theorem 1 sharpened", "epoch", "", tuple(conditions), constants, *_contract(C1, u0, floor))


def _contract(rate: float, u0: Floats, variance: float) -> tuple[float, float, float]:
    """Return rate, |u_0|^2 and variance; rate and variance are inf without a contraction."""
    return (rate, float(u0 @ u0), variance) if 0.0 <= rate < 1.0 else (math.inf, float(u0 @ u0), math.inf)


def _exact_gradient_epoch(instance: InstanceConstants, a: float, M: int) -> tuple[float, float, float]:
    """Return 1 - C0, gain and reach of the sharp form, without cancellation for small steps."""
    lam, eta, nu, _, _ = instance
    den = lam - a * (eta + nu)
    c, log_b = a * den, 0.5 * math.log1p(max(-a * (lam - a * eta), 1e-15 - 1.0))  # rounding may make b 0
    reach = a * math.expm1(M * log_b) / math.expm1(log_b)
    loss, total, t = 0.0, 0.0, 0  # 1 - (1 - c)^t and its sum over 1..t, from the binary digits of M
    for digit in f"{M:b}":
        total, loss, t = total + (t * loss + (1.0 - loss) * total), loss * (2.0 - loss), 2 * t
        if digit == "1":
            loss, t = loss + (1.0 - loss) * c, t + 1
            total += loss
    lag = total / M
    gap = lag * (1.0 - a * nu / den) - 2.0 * a * nu * loss / (c * M) * (reach - 2.0 * a)
    return gap, lag * (2.0 * reach - a) / den, reach


def _check_start(problem: LinearProblem, theta_0: ArrayLike) -> tuple[Floats, Floats]:
    theta = check_parameter(problem, "theta_0", theta_0)
    return theta, theta - problem.theta_star


def _markov_conditions(problem: LinearProblem, theta_0: Floats, R: float) -> list[Condition]:
    found = check_assumptions(problem)
    distance = 0.5 * float(np.abs(problem.state_distribution - problem.mrp.stationary).sum())
    on_policy = judge(
        "A and b are means over the stationary distribution of the chain",
        distance <= 1e-8,
        f"total variation distance {distance:.3g}",
        "leave state_distribution out",
    )
    inside = [compare_norm("theta_star", problem.theta_star, R), compare_norm("theta_0", theta_0, R)]
    return [found.solvable, found.bounded_features, found.ergodic, on_policy, *inside]
