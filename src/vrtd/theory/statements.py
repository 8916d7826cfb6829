"""Statements of the theory: numbers, the conditions under which they hold, and whether they are proven."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

import numpy as np

from vrtd.arrays import Floats, frozen
from vrtd.checks import check_count

Constants = TypeVar("Constants", bound=tuple[float, ...])
Form = Literal["printed", "corrected"]  # as in the paper, or with its proof repaired

#: Norms may exceed a limit by this much of it: rounding.
SLACK = 1e-12

CROSS_TERM = (
    "the proof drops the cross term 2a<theta_{m,i} - theta_star, e_m>, but theta_{m,i} depends on the error e_m of the "
    'batch gradient, so its mean is not 0: the floor is of order 1/M, not a/M; use form="corrected"'
)
ONE_STEP_LATE = (
    "Lemma 5 is false as printed: x_j reveals the state s_{j+1}, so the distance after i - j steps is of order "
    'rho^(i-j-1), and an integral against |dP - dmu| is up to twice the total variation; use form="corrected"'
)


@dataclass(frozen=True)
class Condition:
    """One thing that a statement needs: whether it holds, and the numbers; if not, what would mend it."""

    statement: str
    holds: bool
    detail: str


def judge(statement: str, holds: bool, detail: str, do: str) -> Condition:
    """Return a condition whose detail ends with what to do where it does not hold."""
    return Condition(statement, holds, detail if holds else f"{detail}; {do}")


class Statement:
    """A claim of the theory. Believe its numbers only where it is `valid`."""

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
        """Everything that speaks against the statement; empty when it is valid."""
        failed = tuple(f"{c.statement}: {c.detail}" for c in self.conditions if not c.holds)
        return (self.reason, *failed) if self.reason else failed


@dataclass(frozen=True)
class Bound(Statement, Generic[Constants]):
    """E|u_k|^2 <= rate^k initial + variance + bias, k counting in `unit`s; believe it only where `valid`.

    Where the statement gives no contraction, rate and floor are inf. `reason` says why a statement is not proven.
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
        """What is left as k grows."""
        return self.variance + self.bias

    def curve(self, n: int) -> Floats:
        """(n+1,) the bound at k = 0..n.

        >>> Bound("an example", "update", "", (), (), 0.5, 8.0, 1.0).curve(3)
        array([9., 5., 3., 2.])
        """
        check_count("n", n, least=0)
        if math.isfinite(self.rate):
            return frozen(np.float64(self.initial) * self.rate ** np.arange(int(n) + 1) + self.floor)
        return frozen(np.array([self.initial, *[math.inf] * int(n)]))


@dataclass(frozen=True)
class EpochInequality(Statement):
    """E|u_m|^2 <= contraction |u_{m-1}|^2 + variance_weight E|e|^2 + bias_weight bias, u at the end of an epoch."""

    statement: str
    contraction: float
    variance_weight: float
    bias_weight: float
    conditions: tuple[Condition, ...]
    reason: str = ""

    def right(self, previous_error: float, gradient_error: float, bias: float = 0.0) -> float:
        """Return the right-hand side, from |u_{m-1}|^2, the expected squared gradient error and the mean bias."""
        if not math.isfinite(self.contraction):
            return math.inf
        return self.contraction * previous_error + self.variance_weight * gradient_error + self.bias_weight * bias


def compare(what: str, value: float, limit: float, statement: str, do: str, strict: bool = False) -> Condition:
    """Return the condition that `value` does not exceed `limit`, or stays below it."""
    holds = value < limit if strict else value <= limit * (1.0 + SLACK)
    return judge(statement, bool(holds), f"{what} is {value:.6g} against {limit:.6g}", do)


def compare_norm(what: str, theta: Floats, R: float) -> Condition:
    """Return the condition that theta lies in the ball of radius R."""
    norm = float(np.linalg.norm(theta))
    return compare(f"|{what}|", norm, R, f"|{what}| <= radius", f"raise radius to {norm:.6g}")


def compare_step(a: float, limit: float, formula: str, strict: bool = True) -> Condition:
    """Return the condition that the step a is below `limit`, or at most that."""
    sign, below = ("<", "below ") if strict else ("<=", "")
    do = f"lower step_size to {below}{limit:.6g}"
    return compare("step_size", a, limit, f"step_size {sign} {formula}", do, strict)


def compare_step_to_share(a: float, lam: float, g2: float, share: int, strict: bool = True) -> Condition:
    """Return the condition that the step a is below lambda_A/(share (1 + gamma)^2), or at most that."""
    return compare_step(a, lam / (share * g2), f"lambda_A/({share} (1 + gamma)^2)", strict)


def compare_batch(M: int, numerator: float, denominator: float) -> Condition:
    """Return the condition that the batch size M is above the quotient."""
    least = ratio(numerator, denominator)
    do = "lower step_size first" if math.isinf(least) else f"raise batch_size to {math.floor(least) + 1}"
    detail = f"batch_size is {M} against {least:.6g}"
    return judge("batch_size is large enough for C1 < 1", least < M, detail, do)


def ratio(numerator: float, denominator: float) -> float:
    """Return the quotient; inf where the denominator is not positive."""
    return numerator / denominator if denominator > 0.0 else math.inf
