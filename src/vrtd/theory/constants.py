"""The assumptions of the paper, checked on a chain, and the constants of a chain that the bounds use."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike

from vrtd.arrays import Floats, check_theta
from vrtd.checks import check_choice, check_exact_count, check_positive, check_radius
from vrtd.errors import InvalidInputError, ReducibleChainError
from vrtd.problems import LinearProblem, MarkovRewardProcess
from vrtd.problems.stationary import DENSE_LIMIT
from vrtd.theory.checks import check_problem
from vrtd.theory.statements import SLACK, Condition, judge

Definition = Literal["appendix", "section 3.2"]


class InstanceConstants(NamedTuple):
    """Constants of a chain in the sharp bounds.

    Attributes
    ----------
    lambda_A : float
        ``|lambda_max(A + A^T)|``, the rate of contraction.
    eta : float
        ``|A|^2``, with the spectral norm.
    nu : float
        ``lambda_max(E[A_x^T A_x] - A^T A)``, the multiplicative noise.
    q : float
        ``lambda_max(E[A_x^T A_x])``.
    sigma2 : float
        ``E|g_x(theta_star)|^2``, the additive noise.
    """

    lambda_A: float  # noqa: N815
    eta: float
    nu: float
    q: float
    sigma2: float


@dataclass(frozen=True)
class Assumptions:
    """The three assumptions of the paper, checked on a chain.

    Attributes
    ----------
    solvable : Condition
        Assumption 1: A is non-singular.
    bounded_features : Condition
        Assumption 2: ``|phi(s)| <= 1`` in every state.
    ergodic : Condition
        Assumption 3: the chain is irreducible and aperiodic.
    """

    solvable: Condition
    bounded_features: Condition
    ergodic: Condition

    @property
    def hold(self) -> bool:
        """Whether all three assumptions hold."""
        return self.solvable.holds and self.bounded_features.holds and self.ergodic.holds


def lambda_A(problem: LinearProblem, definition: Definition = "appendix") -> float:
    """Return lambda_A, the contraction constant of the paper.

    Parameters
    ----------
    problem : LinearProblem
        Chain and features.
    definition : {"appendix", "section 3.2"}, default="appendix"
        Which of the two definitions in the paper to use.

    Returns
    -------
    float
        ``|lambda_max(A + A^T)|`` for the appendix, twice that value for Section 3.2.

    Notes
    -----
    The proofs are valid for the definition in the appendix only. They use
    ``2 u^T A u = u^T (A + A^T) u <= -lambda_A |u|^2``. With one feature this is an equality for the definition in the
    appendix, so it is false for the other one.

    Examples
    --------
    >>> from vrtd.problems import random_walk
    >>> problem = random_walk()
    >>> round(lambda_A(problem), 6), round(lambda_A(problem, "section 3.2"), 6)
    (0.042563, 0.085126)
    """
    check_problem(problem)
    check_choice("definition", definition, get_args(Definition))
    return problem.lambda_A * (1.0 if definition == "appendix" else 2.0)


def dobrushin(mrp: MarkovRewardProcess) -> float:
    """Return the Dobrushin coefficient of a chain.

    Parameters
    ----------
    mrp : MarkovRewardProcess
        Markov reward process.

    Returns
    -------
    float
        The largest total variation distance between two rows of P, in [0, 1].

    Notes
    -----
    If the coefficient is below 1, Assumption 3 (geometric ergodicity) holds with kappa = 1 and rho equal to the
    coefficient. These constants are often loose, because they require mixing in a single step.
    ``mrp.mixing_constant`` and ``mrp.mixing_rate`` are the tight pair.

    Examples
    --------
    >>> round(dobrushin(MarkovRewardProcess([[0.7, 0.3], [0.4, 0.6]], [1.0, 2.0], 0.9)), 12)
    0.3
    """
    if not isinstance(mrp, MarkovRewardProcess):
        raise InvalidInputError(
            f"mrp must be a MarkovRewardProcess, but is of type {type(mrp).__name__}.", "Pass problem.mrp."
        )
    from scipy.spatial.distance import pdist

    P = mrp.matrix(mrp.edges.probability).toarray()
    support = (P > 0.0).astype(np.float32)
    if (support @ support.T).min() == 0.0:
        return 1.0  # two rows without a common successor
    return min(0.5 * float(pdist(P, "cityblock").max(initial=0.0)), 1.0)


def check_assumptions(problem: LinearProblem) -> Assumptions:
    """Check Assumptions 1 to 3 of the paper on a chain.

    Parameters
    ----------
    problem : LinearProblem
        Chain and features.

    Returns
    -------
    Assumptions
        One condition per assumption, with the numbers and, if it fails, a remedy.

    Examples
    --------
    >>> from vrtd.problems import random_mdp
    >>> assumptions = check_assumptions(random_mdp())
    >>> assumptions.hold
    False
    >>> print(assumptions.bounded_features.detail)
    the largest norm is 1.59588; divide the features by 1.59588, which multiplies theta_star by the same factor
    """
    check_problem(problem)
    return _assumptions(problem)


@lru_cache(maxsize=16)  # problems are immutable, and many bounds of one problem are evaluated in a row
def _assumptions(problem: LinearProblem) -> Assumptions:
    smallest = float(np.linalg.svd(problem.A, compute_uv=False)[-1])
    norm = float(np.linalg.norm(problem.phi, axis=1).max())
    return Assumptions(
        judge(
            "A is non-singular (Assumption 1)",
            bool(problem.condition_number * problem.n_features * np.finfo(np.float64).eps < 1.0),
            f"condition number {problem.condition_number:.6g}, smallest singular value {smallest:.6g}",
            "change the features, the discount or the state distribution",
        ),
        judge(
            "|phi(s)| <= 1 in every state (Assumption 2)",
            norm <= 1.0 + SLACK,
            f"the largest norm is {norm:.6g}",
            f"divide the features by {norm:.6g}, which multiplies theta_star by the same factor",
        ),
        _ergodic(problem.mrp),
    )


def instance_constants(problem: LinearProblem) -> InstanceConstants:
    """Return the constants of a chain that the sharp bounds use.

    Parameters
    ----------
    problem : LinearProblem
        Chain and features.

    Returns
    -------
    InstanceConstants
        The constants, exact for the chain.

    Examples
    --------
    >>> problem = LinearProblem(MarkovRewardProcess([[0.5, 0.5], [0.5, 0.5]], [1.0, -1.0], 0.5), [[1.0], [1.0]])
    >>> instance_constants(problem)
    InstanceConstants(lambda_A=1.0, eta=0.25, nu=0.0, q=0.25, sigma2=1.0)
    """
    check_problem(problem)
    return _instance_constants(problem)


@lru_cache(maxsize=16)
def _instance_constants(problem: LinearProblem) -> InstanceConstants:
    mrp, phi, A = problem.mrp, problem.phi, problem.A
    weight = problem.state_distribution * (phi**2).sum(axis=1)
    carried = mrp.matrix(mrp.edges.probability * mrp.edges.discount**2).T @ weight
    cross = (weight[:, None] * (mrp.discounted_P @ phi)).T @ phi
    square = (phi * (weight + carried)[:, None]).T @ phi - cross - cross.T  # E[A_x^T A_x] = E[|phi|^2 psi psi^T]
    return InstanceConstants(
        lambda_A=problem.lambda_A,
        eta=float(np.linalg.norm(A, 2)) ** 2,
        nu=max(float(np.linalg.eigvalsh(square - A.T @ A)[-1]), 0.0),
        q=float(np.linalg.eigvalsh(square)[-1]),
        sigma2=float(np.trace(problem.noise_covariance)),
    )


def growth(problem: LinearProblem) -> float:
    """Return 1 + gamma for the largest discount gamma, an upper bound of |A_x| if |phi| <= 1."""
    check_problem(problem)
    return 1.0 + float(problem.mrp.edges.discount.max())


def check_setting(problem: LinearProblem, step_size: float, batch_size: int) -> tuple[float, int, float, float]:
    """Check the arguments of a statement and return a, M, lambda_A and (1 + gamma)^2."""
    check_positive("step_size", step_size)
    check_exact_count("batch_size", batch_size)
    g2 = growth(problem) ** 2
    return float(step_size), int(batch_size), problem.lambda_A, g2


def mixing(problem: LinearProblem) -> tuple[float, float]:
    """Return kappa and rho of the chain; inf and 1 for a periodic chain, which does not mix."""
    mrp = problem.mrp
    return (mrp.mixing_constant, mrp.mixing_rate) if mrp.period == 1 else (math.inf, 1.0)


def check_parameter(problem: LinearProblem, name: str, value: ArrayLike) -> Floats:
    """Check the problem and return ``value`` as a parameter vector."""
    check_problem(problem)
    return check_theta(name, value, problem.n_features)


def radius_of(problem: LinearProblem, radius: float | None, *inside: Floats) -> float:
    """Return ``radius``, or the least one for which the ball contains theta_star and the points ``inside``."""
    check_radius(radius)
    if radius is not None:
        return float(radius)
    return max(float(np.linalg.norm(theta)) for theta in (problem.theta_star, *inside))


def _ergodic(mrp: MarkovRewardProcess) -> Condition:
    statement = "the chain is irreducible and aperiodic (Assumption 3)"
    try:
        n_transient = mrp.n_states - mrp.recurrent_class.size
    except ReducibleChainError as error:
        return Condition(statement, False, str(error))
    detail = f"period {mrp.period}, {n_transient} transient states"
    holds = mrp.period == 1 and n_transient == 0
    if holds and mrp.n_states <= DENSE_LIMIT:
        detail += f", kappa {mrp.mixing_constant:.6g}, rho {mrp.mixing_rate:.6g}"
    remedy = "leave the transient states out" if mrp.period == 1 else "make the chain lazy, e.g. 0.9 P + 0.1 I"
    return judge(statement, holds, detail, remedy)
