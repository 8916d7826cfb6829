"""How many pseudo-gradients and samples a target error takes, by the paper's corollaries as printed or corrected.

Where the paper's batch size depends on C1, which depends on the batch size, the least batch size that agrees with
itself is taken; C1 falls as the batch grows, so bisection finds it.
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

_LARGEST_BATCH = 2**53  # larger counts are no exact floats
ORDER = "1/(eps lambda_A^2) log(1/eps)"


@dataclass(frozen=True)
class Complexity(Statement):
    """What reaches the target error, if `valid`; of TD a batch is one transition and an epoch one update.

    Algorithm 1 draws a sample for each pseudo-gradient, 2 batch_size an epoch; Algorithm 2 draws half as many.
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
    conditions: tuple[Condition, ...]  # those of the bound and further ones
    reason: str


def vrtd_iid_complexity(
    problem: LinearProblem,
    target_error: float,
    theta_0: ArrayLike,
    radius: float | None = None,
    *,
    form: Form = "corrected",
) -> Complexity:
    """Count the epochs of VRTD on independent samples (Algorithm 1), the subject of the paper's Corollary 1.

    `form="printed"` is Corollary 1 as printed. It is not proven, because it rests on Theorem 1, and it misses its
    target. It takes a = lam/(16 g2) and M = max(D2/(3 (1 - C1) eps), 33 g2/lam^2), rounded up.

    `form="corrected"` rests on the corrected Theorem 1. It takes a = lam/(32 g2) and the least M for which C1 <= 1/2
    and the floor is at most eps/2. Then C1 - 1/3 and the floor are of the order 1/(lam^2 M), so M is of the order
    1/(lam^2 min(eps, 1)), and the number of epochs is at most log2(2 |u_0|^2/eps), rounded up.

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
    """Count the epochs of VRTD on a trajectory (Algorithm 2), the subject of the paper's Corollary 2.

    Both forms take a = lam/(24 g2). `form="printed"` is Corollary 2 as printed. It is not proven, because it rests on
    Theorem 2. It takes M = ((32 C2 + 4 C4)/(3 (1 - C1)) + 100 g2) max(1, 1/lam^2)/eps, rounded up. That this M exceeds
    the theorem's 96 g2/lam^2 is certain only for eps <= 100/96.

    `form="corrected"` rests on the corrected Theorem 2. It takes the least M for which C1 <= 1/2 and the floor is at
    most eps/2.
    """
    check_choice("form", form, get_args(Form))
    eps, lam, g2 = _arguments(problem, target_error)
    _check_mixing(problem)
    a, further = lam / (24.0 * g2), []
    if form == "printed":
        statement, order = "Corollary 2 as printed", "max(1/eps, 1/(eps lambda_A^2)) log(1/eps)"
        do = "lower target_error to 100/96"
        further = [compare("target_error", eps, 100.0 / 96.0, "target_error <= 100/96", do)]
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
    """Count the updates of TD on independent samples, as in Appendix F.1: a = min(lam/(4 g2), 2/lam, eps lam/(4 C5)).

    t = 2/(lam a) ln(2 |u_0|^2/eps) updates, rounded up.
    """
    eps, lam, g2 = _arguments(problem, target_error)
    C5 = 2.0 * float(np.trace(problem.noise_covariance))
    a = min(lam / (4.0 * g2), 2.0 / lam, eps * lam / (4.0 * C5) if C5 else math.inf)
    bound = td_iid_bound(problem, a, theta_0, form="printed")
    return _count("TD, i.i.d.", eps, a, bound, ORDER, 0.5 * lam * a)


def td_markov_complexity(
    problem: LinearProblem, target_error: float, theta_0: ArrayLike, radius: float | None = None
) -> Complexity:
    """Count the updates of projected TD on a trajectory, as in Appendix F.2, with C8 = lam min(1/(3 C6), 1/(6 C7)).

    a = min(C8 eps/ln(1/(C8 eps)), 1/lam) and t = 2/(lam a) ln(3 |u_0|^2/eps), rounded up. With the printed 1/C6 the
    three parts of the bound may add up to more than eps; they are a third each only if C8 eps <= 1/e.
    """
    eps, lam, _ = _arguments(problem, target_error)
    _check_mixing(problem)
    _, C6, C7 = td_markov_bound(problem, 1.0, theta_0, radius).constants
    # Without rewards and with theta_0 = 0 there is nothing to learn: C6 = C7 = 0.
    x = eps * lam * min(1.0 / (3.0 * C6), 1.0 / (6.0 * C7)) if C6 > 0.0 else 1.0 / math.e
    a = min(x / max(-math.log(x), 1.0), 1.0 / lam)
    bound = td_markov_bound(problem, a, theta_0, radius)
    do = f"lower target_error to {eps / (math.e * x):.6g}"
    small = compare("C8 target_error", x, 1.0 / math.e, "C8 target_error <= 1/e", do)
    order = "1/(eps lambda_A^2) log^2(1/eps)"
    return _count("TD, Markovian", eps, a, bound, order, 0.5 * lam * a, parts=3.0, further=[small])


def _arguments(problem: LinearProblem, target_error: float) -> tuple[float, float, float]:
    check_problem(problem)
    check_positive("target_error", target_error)
    return float(target_error), problem.lambda_A, growth(problem) ** 2


def _check_mixing(problem: LinearProblem) -> None:
    """On a periodic chain the bounds of a trajectory are infinite: no batch and no number of updates is enough."""
    if problem.mrp.period > 1:
        ergodic = check_assumptions(problem).ergodic
        raise InvalidInputError(ergodic.statement, ergodic.detail, "or count for independent samples")


def _find_batch(
    problem: LinearProblem,
    eps: float,
    bound_of: Callable[[int], Bound[Any]],
    printed_batch: Callable[[Bound[Any]], float] | None,
) -> tuple[Bound[Any], int]:
    """Return the least M that has a contraction and is at least `printed_batch`, and its bound.

    Without `printed_batch`, C1 is to be at most 1/2 and the floor eps/2. Once M is enough, so is every larger one.
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
            "target_error must be within the reach of batches of at most 2**53 transitions",
            f"{eps:.6g}, with lambda_A = {problem.lambda_A:.3g} and |theta_star| = {norm:.3g}",
            "raise target_error, or use features for which lambda_A is larger",
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
    """Count the epochs until the initial error, which falls by e^-decay an epoch, is eps/parts.

    Without M, the epochs are updates of TD. `samples` is the number of samples an inner step of VRTD takes.
    """
    excess = parts * bound.initial / eps
    n_epochs = math.ceil(math.log(excess) / decay) if excess > 1.0 else 0
    updates, conditions = (M or 1) * n_epochs, (*bound.conditions, *further)
    n_gradients = 2 * updates if M else updates
    return Complexity(
        statement, eps, a, M or 1, n_epochs, n_gradients, samples * updates, bound, order, conditions, bound.reason
    )
