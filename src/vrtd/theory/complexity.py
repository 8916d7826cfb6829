"""Pseudo-gradients and samples for a target error, by the paper's corollaries as printed or corrected.

In the paper the batch size depends on C1, which depends on the batch size. The least consistent batch size is used. It
is found by bisection, because C1 falls as the batch grows.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, get_args

import numpy as np
from numpy.typing import ArrayLike

from vrtd.checks import check_choice, check_positive
from vrtd.errors import InvalidInputError
from vrtd.problems import LinearProblem
from vrtd.theory.bounds import VRTDMarkovConstants, td_iid_bound, td_markov_bound, vrtd_iid_bound, vrtd_markov_bound
from vrtd.theory.checks import check_problem
from vrtd.theory.constants import check_assumptions, growth
from vrtd.theory.statements import Bound, Condition, Form, Statement, compare

_LARGEST_BATCH = 2**53  # larger integers have no exact float
ORDER = "1/(eps lambda_A^2) log(1/eps)"


@dataclass(frozen=True)
class Complexity(Statement):
    """Settings and counts with which a corollary promises a target error.

    The target is guaranteed only if ``valid`` is true. For TD a batch is one transition and an epoch is one update.
    Algorithm 1 draws one sample per pseudo-gradient, ``2 * batch_size`` per epoch. Algorithm 2 draws half as many.

    Attributes
    ----------
    statement : str
        The corollary.
    target_error : float
        The target for ``E|theta - theta_star|^2``.
    step_size : float
        Step size.
    batch_size : int
        Transitions per batch; 1 for TD.
    n_epochs : int
        Epochs of VRTD, or updates of TD.
    n_gradients : int
        Pseudo-gradients in total.
    n_samples : int
        Samples in total.
    bound : Bound
        The bound for these settings.
    order : str
        Order of ``n_gradients`` in the target ``eps`` and ``lambda_A``.
    conditions : tuple of Condition
        The conditions of the bound, and further conditions of the corollary.
    reason : str
        Why the corollary is not proven; empty if it is proven.
    """

    statement: str
    target_error: float
    step_size: float
    batch_size: int
    n_epochs: int
    n_gradients: int
    n_samples: int
    bound: Bound[Any]
    order: str
    conditions: tuple[Condition, ...]
    reason: str


def vrtd_iid_complexity(
    problem: LinearProblem,
    target_error: float,
    theta_0: ArrayLike,
    radius: float | None = None,
    *,
    form: Form = "corrected",
) -> Complexity:
    """Return settings of VRTD on independent samples (Algorithm 1) for a target error, by Corollary 1 of the paper.

    Parameters
    ----------
    problem : LinearProblem
        Chain and features.
    target_error : float
        Target for ``E|theta - theta_star|^2``.
    theta_0 : array_like of shape (n_features,)
        Start.
    radius : float, default=None
        Radius R of a ball that contains theta_star. By default it is ``|theta_star|``.
    form : {"printed", "corrected"}, default="corrected"
        The statement of the paper, or the statement with its proof repaired.

    Returns
    -------
    Complexity
        Settings and counts.

    Raises
    ------
    InvalidInputError
        If the target would need batches of more than ``2**53`` transitions.

    Notes
    -----
    Let ``lam = lambda_A``, ``g2 = (1 + gamma)^2``, ``eps`` the target, ``a`` the step size and ``M`` the batch size.

    The printed form takes ``a = lam/(16 g2)`` and ``M = max(D2/(3 (1 - C1) eps), 33 g2/lam^2)``, rounded up. It is
    false: it depends on Theorem 1 as printed, and it misses its target.

    The corrected form takes ``a = lam/(32 g2)`` and the least ``M`` for which ``C1 <= 1/2`` and the floor is at most
    ``eps/2``. Then ``C1 - 1/3`` and the floor are of order ``1/(lam^2 M)``, so ``M`` is of order
    ``1/(lam^2 min(eps, 1))``. The number of epochs is at most ``log2(2 |u_0|^2/eps)``, rounded up.

    Examples
    --------
    >>> from vrtd.problems import MarkovRewardProcess
    >>> problem = LinearProblem(MarkovRewardProcess([[0.5, 0.5], [0.5, 0.5]], [1.0, -1.0], 0.5), [[1.0], [1.0]])
    >>> plan = vrtd_iid_complexity(problem, 0.01, [1.0])
    >>> plan.valid, plan.batch_size, plan.n_epochs
    (True, 6814, 6)
    """
    check_choice("form", form, get_args(Form))
    eps, lam, g2 = _arguments(problem, target_error)
    if form == "printed":
        statement, order, a = "Corollary 1 as printed", "max(1/eps, 1/lambda_A^2) log(1/eps)", lam / (16.0 * g2)
    else:
        statement, order, a = "Corollary 1 corrected", ORDER, lam / (32.0 * g2)

    def printed_batch(bound: Bound[Any]) -> float:
        D2: float = bound.constants.D2
        return max(D2 / (3.0 * (1.0 - bound.rate) * eps), 33.0 * g2 / lam**2)

    bound_of = partial(vrtd_iid_bound, problem, a, theta_0=theta_0, radius=radius, form=form)
    bound, M = _find_batch(problem, eps, bound_of, printed_batch if form == "printed" else None)
    return _count(statement, eps, a, bound, order, -math.log(bound.rate), M, samples=2)


def vrtd_markov_complexity(
    problem: LinearProblem,
    target_error: float,
    theta_0: ArrayLike,
    radius: float | None = None,
    *,
    form: Form = "corrected",
) -> Complexity:
    """Return settings of VRTD on a trajectory (Algorithm 2) for a target error, by Corollary 2 of the paper.

    Parameters
    ----------
    problem : LinearProblem
        Chain and features.
    target_error : float
        Target for ``E|theta - theta_star|^2``.
    theta_0 : array_like of shape (n_features,)
        Start.
    radius : float, default=None
        Radius R of the projection. By default it is the least one for which the ball contains theta_star and theta_0.
    form : {"printed", "corrected"}, default="corrected"
        The statement of the paper, or the statement with its proof repaired.

    Returns
    -------
    Complexity
        Settings and counts.

    Raises
    ------
    InvalidInputError
        If the chain is periodic, or if the target would need batches of more than ``2**53`` transitions.

    Notes
    -----
    Both forms take the step size ``a = lam/(24 g2)``, with ``lam = lambda_A`` and ``g2 = (1 + gamma)^2``.

    The printed form takes the batch size ``M = ((32 C2 + 4 C4)/(3 (1 - C1)) + 100 g2) max(1, 1/lam^2)/eps``, rounded
    up. Its proof fails, because it depends on that of Theorem 2 as printed. This M is certain to exceed
    ``96 g2/lam^2``, as the theorem demands, only for ``eps <= 100/96``.

    The corrected form takes the least ``M`` for which ``C1 <= 1/2`` and the floor is at most ``eps/2``.

    Examples
    --------
    >>> from vrtd.problems import MarkovRewardProcess
    >>> mrp = MarkovRewardProcess([[0.7, 0.3], [0.4, 0.6]], [1.0, 2.0], 0.5)
    >>> vrtd_markov_complexity(LinearProblem(mrp, [[1.0], [0.5]]), 0.5, [0.0]).valid
    True
    """
    check_choice("form", form, get_args(Form))
    eps, lam, g2 = _arguments(problem, target_error)
    _check_mixing(problem)
    a, further = lam / (24.0 * g2), []
    if form == "printed":
        statement, order = "Corollary 2 as printed", "max(1/eps, 1/(eps lambda_A^2)) log(1/eps)"
        remedy = "lower target_error to 100/96"
        further = [compare("target_error", eps, 100.0 / 96.0, "target_error <= 100/96", remedy)]
    else:
        statement, order = "Corollary 2 corrected", ORDER

    def printed_batch(bound: Bound[VRTDMarkovConstants]) -> float:
        C = bound.constants
        least = (32.0 * C.C2 + 4.0 * C.C4) / (3.0 * (1.0 - bound.rate)) + 100.0 * g2
        return least * max(1.0, 1.0 / lam**2) / eps

    bound_of = partial(vrtd_markov_bound, problem, a, theta_0=theta_0, radius=radius, form=form)
    bound, M = _find_batch(problem, eps, bound_of, printed_batch if form == "printed" else None)
    return _count(statement, eps, a, bound, order, -math.log(bound.rate), M, further=further)


def td_iid_complexity(problem: LinearProblem, target_error: float, theta_0: ArrayLike) -> Complexity:
    """Return settings of TD on independent samples for a target error, by Appendix F.1 of the paper.

    Parameters
    ----------
    problem : LinearProblem
        Chain and features.
    target_error : float
        Target for ``E|theta - theta_star|^2``.
    theta_0 : array_like of shape (n_features,)
        Start.

    Returns
    -------
    Complexity
        Settings and counts.

    Notes
    -----
    With ``lam = lambda_A`` and ``g2 = (1 + gamma)^2`` the step size is ``a = min(lam/(4 g2), 2/lam, eps lam/(4 C5))``,
    and the number of updates is ``2/(lam a) ln(2 |u_0|^2/eps)``, rounded up.

    Examples
    --------
    >>> from vrtd.problems import MarkovRewardProcess
    >>> problem = LinearProblem(MarkovRewardProcess([[0.5, 0.5], [0.5, 0.5]], [1.0, -1.0], 0.5), [[1.0], [1.0]])
    >>> plan = td_iid_complexity(problem, 0.01, [1.0])
    >>> plan.valid, plan.batch_size, plan.n_epochs == plan.n_gradients == plan.n_samples
    (True, 1, True)
    """
    eps, lam, g2 = _arguments(problem, target_error)
    C5 = 2.0 * float(np.trace(problem.noise_covariance))
    a = min(lam / (4.0 * g2), 2.0 / lam, eps * lam / (4.0 * C5) if C5 else math.inf)
    bound = td_iid_bound(problem, a, theta_0, form="printed")
    return _count("TD, i.i.d.", eps, a, bound, ORDER, 0.5 * lam * a)


def td_markov_complexity(
    problem: LinearProblem, target_error: float, theta_0: ArrayLike, radius: float | None = None
) -> Complexity:
    """Return settings of projected TD on a trajectory for a target error, by Appendix F.2 of the paper.

    Parameters
    ----------
    problem : LinearProblem
        Chain and features.
    target_error : float
        Target for ``E|theta - theta_star|^2``.
    theta_0 : array_like of shape (n_features,)
        Start.
    radius : float, default=None
        Radius R of the projection. By default it is the least one for which the ball contains theta_star and theta_0.

    Returns
    -------
    Complexity
        Settings and counts.

    Raises
    ------
    InvalidInputError
        If the chain is periodic.

    Notes
    -----
    With ``C8 = lam min(1/(3 C6), 1/(6 C7))`` the step size is ``a = min(C8 eps/ln(1/(C8 eps)), 1/lam)``, and the number
    of updates is ``2/(lam a) ln(3 |u_0|^2/eps)``, rounded up. With 1/C6 as printed, the three parts of the bound may
    add up to more than ``eps``. Each of them is at most a third of it only if ``C8 eps <= 1/e``.

    Examples
    --------
    >>> from vrtd.problems import MarkovRewardProcess
    >>> mrp = MarkovRewardProcess([[0.7, 0.3], [0.4, 0.6]], [1.0, 2.0], 0.5)
    >>> td_markov_complexity(LinearProblem(mrp, [[1.0], [0.5]]), 0.5, [0.0]).valid
    True
    """
    eps, lam, _ = _arguments(problem, target_error)
    _check_mixing(problem)
    _, C6, C7 = td_markov_bound(problem, 1.0, theta_0, radius).constants
    # With rewards of 0 and theta_0 = 0, C6 = C7 = 0 and theta_0 is already the solution.
    x = eps * lam * min(1.0 / (3.0 * C6), 1.0 / (6.0 * C7)) if C6 > 0.0 else 1.0 / math.e
    a = min(x / max(-math.log(x), 1.0), 1.0 / lam)
    bound = td_markov_bound(problem, a, theta_0, radius)
    remedy = f"lower target_error to {eps / (math.e * x):.6g}"
    small = compare("C8 target_error", x, 1.0 / math.e, "C8 target_error <= 1/e", remedy)
    order = "1/(eps lambda_A^2) log^2(1/eps)"
    return _count("TD, Markovian", eps, a, bound, order, 0.5 * lam * a, parts=3.0, further=[small])


def _arguments(problem: LinearProblem, target_error: float) -> tuple[float, float, float]:
    check_problem(problem)
    check_positive("target_error", target_error)
    return float(target_error), problem.lambda_A, growth(problem) ** 2


def _check_mixing(problem: LinearProblem) -> None:
    """Raise if the chain is periodic: the bounds on a trajectory are then infinite for every batch size."""
    if problem.mrp.period > 1:
        ergodic = check_assumptions(problem).ergodic
        raise InvalidInputError(
            f"The condition that {ergodic.statement} fails: {ergodic.detail}.",
            "Alternatively, use the complexity for independent samples.",
        )


def _find_batch(
    problem: LinearProblem,
    eps: float,
    bound_of: Callable[[int], Bound[Any]],
    printed_batch: Callable[[Bound[Any]], float] | None,
) -> tuple[Bound[Any], int]:
    """Return the least M that has a contraction and is at least `printed_batch`, and its bound.

    Without `printed_batch` it is the least M with C1 <= 1/2 and a floor of at most eps/2. Every larger M qualifies too.
    """

    def is_enough(M: int) -> bool:
        bound = bound_of(M)
        if not math.isfinite(bound.rate):
            return False
        if printed_batch is not None:
            return printed_batch(bound) <= M
        return bound.rate <= 0.5 and bound.floor <= 0.5 * eps

    M = 1 + bisect_left(range(1, _LARGEST_BATCH + 1), True, key=is_enough)
    if M > _LARGEST_BATCH:
        norm = float(np.linalg.norm(problem.theta_star))
        raise InvalidInputError(
            f"target_error {eps:.6g} needs batches of more than 2**53 transitions, with lambda_A = "
            f"{problem.lambda_A:.3g} and |theta_star| = {norm:.3g}.",
            "Raise target_error, or use features with a larger lambda_A.",
        )
    return bound_of(M), M


def _count(
    statement: str,
    eps: float,
    a: float,
    bound: Bound[Any],
    order: str,
    decay: float,
    M: int | None = None,
    *,
    samples: int = 1,
    parts: float = 2.0,
    further: Sequence[Condition] = (),
) -> Complexity:
    """Count the epochs until the initial error, which falls by a factor of e^-decay per epoch, is eps/parts.

    Without M, the epochs are updates of TD. `samples` is the number of samples per inner step of VRTD.
    """
    excess = parts * bound.initial / eps
    n_epochs = math.ceil(math.log(excess) / decay) if excess > 1.0 else 0
    updates, conditions = (M or 1) * n_epochs, (*bound.conditions, *further)
    n_gradients = 2 * updates if M else updates
    return Complexity(
        statement, eps, a, M or 1, n_epochs, n_gradients, samples * updates, bound, order, conditions, bound.reason
    )
