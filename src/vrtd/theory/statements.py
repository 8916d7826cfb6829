"""Statements of the theory: their numbers, the conditions under which they hold, and whether they are proven."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

import numpy as np

from vrtd.arrays import Floats, frozen
from vrtd.checks import check_count

Constants = TypeVar("Constants", bound=tuple[float, ...])
Form = Literal["printed", "corrected"]  # as in the paper, or with its proof repaired

#: Relative tolerance for rounding when a norm is compared with its limit.
SLACK = 1e-12

CROSS_TERM = (
    "the proof drops the cross term 2a<theta_{m,i} - theta_star, e_m>. But theta_{m,i} depends on the error e_m of the "
    "batch gradient, so the mean of this term is not 0, and the floor is of order 1/M instead of a/M. "
    'Use form="corrected"'
)
ONE_STEP_LATE = (
    "Lemma 5 is false as printed. x_j determines the state s_{j+1}, so the distance after i - j steps is of order "
    "rho^(i-j-1), and an integral against |dP - dmu| can be twice the total variation distance. "
    'Use form="corrected"'
)


@dataclass(frozen=True)
class Condition:
    """Condition of a statement, checked on a chain.

    Attributes
    ----------
    statement : str
        The condition.
    holds : bool
        Whether it holds.
    detail : str
        The numbers that were compared and, if the condition fails, a remedy.
    """

    statement: str
    holds: bool
    detail: str


def judge(statement: str, holds: bool, detail: str, remedy: str) -> Condition:
    """Return a condition; the remedy is added to the detail if the condition fails."""
    return Condition(statement, holds, detail if holds else f"{detail}; {remedy}")


class Statement:
    """Base of the theorems and lemmas: conditions, and the reasons why the numbers cannot be used."""

    conditions: tuple[Condition, ...]
    reason: str  # why the statement is not proven; "" if it is

    @property
    def proven(self) -> bool:
        """Whether the statement is proven."""
        return not self.reason

    @property
    def valid(self) -> bool:
        """Whether the statement is proven and every condition holds."""
        return not self.reasons

    @property
    def reasons(self) -> tuple[str, ...]:
        """The missing proof and the conditions that fail; empty if the statement is valid."""
        failed = tuple(f"{c.statement}: {c.detail}" for c in self.conditions if not c.holds)
        return (self.reason, *failed) if self.reason else failed


@dataclass(frozen=True)
class Bound(Statement, Generic[Constants]):
    """Bound ``E|u_k|^2 <= rate^k initial + variance + bias`` of the squared error, ``u = theta - theta_star``.

    It holds only if ``valid`` is true.

    Attributes
    ----------
    statement : str
        The theorem.
    unit : str
        What ``k`` counts: ``"epoch"`` for VRTD, ``"update"`` for TD.
    reason : str
        Why the statement is not proven; empty if it is proven.
    conditions : tuple of Condition
        The conditions of the theorem, checked on the chain.
    constants : tuple
        The constants of this theorem. ``C1`` and ``G`` are different numbers in different theorems.
    rate : float
        Contraction per epoch or update; inf without a contraction.
    initial : float
        ``|theta_0 - theta_star|^2``.
    variance : float
        The part of the floor that comes from noise; inf without a contraction.
    bias : float
        The part of the floor that comes from correlated samples; 0 for independent ones.
    """

    statement: str
    unit: str
    reason: str
    conditions: tuple[Condition, ...]
    constants: Constants
    rate: float
    initial: float
    variance: float
    bias: float = 0.0

    @property
    def floor(self) -> float:
        """The limit of the bound as ``k`` grows."""
        return self.variance + self.bias

    def curve(self, n: int) -> Floats:
        """Return the bound at ``k = 0, ..., n``.

        Parameters
        ----------
        n : int
            Last epoch or update.

        Returns
        -------
        ndarray of shape (n + 1,)
            The bound of the squared error.

        Examples
        --------
        >>> Bound("an example", "update", "", (), (), 0.5, 8.0, 1.0).curve(3)
        array([9., 5., 3., 2.])
        """
        check_count("n", n, least=0)
        if math.isfinite(self.rate):
            return frozen(np.float64(self.initial) * self.rate ** np.arange(int(n) + 1) + self.floor)
        return frozen(np.array([self.initial, *[math.inf] * int(n)]))


@dataclass(frozen=True)
class EpochInequality(Statement):
    """Inequality for one epoch of VRTD, with ``u_m = theta_anchor - theta_star`` after epoch ``m``.

    It states ``E|u_m|^2 <= contraction |u_{m-1}|^2 + variance_weight E|e|^2 + bias_weight bias``, where ``e`` is a
    gradient error. It holds only if ``valid`` is true.

    Attributes
    ----------
    statement : str
        The section of the paper, and the form.
    contraction : float
        Factor of the error at the previous anchor; inf if the step size is too large.
    variance_weight : float
        Factor of the expected squared gradient error.
    bias_weight : float
        Factor of the mean bias; 0 for independent samples.
    conditions : tuple of Condition
        The conditions of the inequality, checked on the chain.
    reason : str
        Why the inequality is not proven; empty if it is proven.
    """

    statement: str
    contraction: float
    variance_weight: float
    bias_weight: float
    conditions: tuple[Condition, ...]
    reason: str = ""

    def right(self, previous_error: float, gradient_error: float, bias: float = 0.0) -> float:
        """Return the right-hand side of the inequality.

        Parameters
        ----------
        previous_error : float
            ``|u_{m-1}|^2``.
        gradient_error : float
            ``E|e|^2``, the expected squared gradient error.
        bias : float, default=0.0
            Mean bias of the batch gradient.

        Returns
        -------
        float
            Bound of ``E|u_m|^2``; inf without a contraction.
        """
        if not math.isfinite(self.contraction):
            return math.inf
        return self.contraction * previous_error + self.variance_weight * gradient_error + self.bias_weight * bias


def compare(what: str, value: float, limit: float, statement: str, remedy: str, strict: bool = False) -> Condition:
    """Return the condition that ``value`` is at most ``limit``, or below it if ``strict``."""
    holds = value < limit if strict else value <= limit * (1.0 + SLACK)
    return judge(statement, bool(holds), f"{what} is {value:.6g}, the limit is {limit:.6g}", remedy)


def compare_norm(what: str, theta: Floats, R: float) -> Condition:
    """Return the condition that theta lies in the ball of radius R."""
    norm = float(np.linalg.norm(theta))
    return compare(f"|{what}|", norm, R, f"|{what}| <= radius", f"raise radius to {norm:.6g}")


def compare_step(a: float, limit: float, formula: str, strict: bool = True) -> Condition:
    """Return the condition that the step ``a`` is below ``limit``, or at most ``limit`` if not ``strict``."""
    sign, below = ("<", "below ") if strict else ("<=", "")
    remedy = f"lower step_size to {below}{limit:.6g}"
    return compare("step_size", a, limit, f"step_size {sign} {formula}", remedy, strict)


def compare_step_to_share(a: float, lam: float, g2: float, share: int, strict: bool = True) -> Condition:
    """Return the condition that the step ``a`` is below lambda_A/(share (1 + gamma)^2), or at most that value."""
    return compare_step(a, lam / (share * g2), f"lambda_A/({share} (1 + gamma)^2)", strict)


def compare_batch(M: int, numerator: float, denominator: float) -> Condition:
    """Return the condition that the batch size ``M`` is above the quotient."""
    least = ratio(numerator, denominator)
    remedy = "lower step_size first" if math.isinf(least) else f"raise batch_size to {math.floor(least) + 1}"
    detail = f"batch_size is {M}, the lower limit is {least:.6g}"
    return judge("batch_size is large enough for C1 < 1", least < M, detail, remedy)


def ratio(numerator: float, denominator: float) -> float:
    """Return the quotient, or inf if the denominator is not positive."""
    return numerator / denominator if denominator > 0.0 else math.inf
