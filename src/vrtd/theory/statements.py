"""What a statement of the theory is: numbers, the conditions under which they hold, and whether it is proven."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

import numpy as np

from vrtd.arrays import Floats, frozen
from vrtd.checks import check_count
from vrtd.theory.constants import SLACK, Condition

Constants = TypeVar("Constants", bound=tuple[float, ...])
Form = Literal["printed", "corrected"]  # as in the paper, or with its proof repaired


CROSS_TERM = (
    "the proof drops the cross term 2a<theta_{m,i} - theta_star, e_m>, but theta_{m,i} depends on the error e_m of the "
    'batch gradient, so its mean is not 0: the floor is of order 1/M, not a/M; use form="corrected"'
)
ONE_STEP_LATE = (
    "Lemma 5 is false as printed: x_j reveals the state s_{j+1}, so the distance after i - j steps is of order "
    'rho^(i-j-1), and an integral against |dP - dmu| is up to twice the total variation; use form="corrected"'
)


@dataclass(frozen=True)
class Bound(Generic[Constants]):
    """E|u_k|^2 <= rate^k initial + variance + bias, k counting in `unit`s; believe it only where `valid`.

    Where the statement gives no contraction, rate and floor are inf. `reason` says why a statement is not proven.
    """

    statement: str
    unit: str
    proven: bool
    reason: str
    conditions: tuple[Condition, ...]
    constants: Constants
    rate: float
    initial: float
    variance: float
    bias: float

    @property
    def valid(self) -> bool:
        """Whether the statement is proven and every condition holds."""
        return not self.reasons

    @property
    def reasons(self) -> tuple[str, ...]:
        """Everything that speaks against the bound; empty when it is valid."""
        return failures(self.proven, self.reason, self.conditions)

    @property
    def floor(self) -> float:
        """What is left as k grows."""
        return self.variance + self.bias

    def curve(self, n: int) -> Floats:
        """(n+1,) the bound at k = 0..n.

        >>> Bound("an example", "update", True, "", (), (), 0.5, 8.0, 1.0, 0.0).curve(3)
        array([9., 5., 3., 2.])
        """
        check_count("n", n, least=0)
        curve = np.full(int(n) + 1, np.inf)
        if math.isfinite(self.rate):
            curve[:] = self.initial * self.rate ** np.arange(int(n) + 1) + self.floor
        else:
            curve[0] = self.initial
        return frozen(curve)


@dataclass(frozen=True)
class EpochInequality:
    """E|u_m|^2 <= contraction |u_{m-1}|^2 + variance_weight E|e|^2 + bias_weight bias, u at the end of an epoch."""

    statement: str
    contraction: float
    variance_weight: float
    bias_weight: float
    conditions: tuple[Condition, ...]
    proven: bool
    reason: str

    @property
    def valid(self) -> bool:
        """Whether the statement is proven and every condition holds."""
        return not self.reasons

    @property
    def reasons(self) -> tuple[str, ...]:
        """Everything that speaks against the inequality; empty when it is valid."""
        return failures(self.proven, self.reason, self.conditions)

    def right(self, previous_error: float, gradient_error: float, bias: float = 0.0) -> float:
        """The right-hand side, from |u_{m-1}|^2, the expected squared gradient error and the mean bias."""
        if not math.isfinite(self.contraction):
            return math.inf
        return self.contraction * previous_error + self.variance_weight * gradient_error + self.bias_weight * bias


def failures(proven: bool, reason: str, conditions: Iterable[Condition]) -> tuple[str, ...]:
    failed = tuple(f"{c.statement}: {c.detail}" for c in conditions if not c.holds)
    return failed if proven else (reason, *failed)


def at_most(what: str, value: float, limit: float, statement: str, do: str, strict: bool = False) -> Condition:
    """`value` must not exceed `limit`, or must stay below it."""
    holds = value < limit if strict else value <= limit * (1.0 + SLACK)
    return Condition(statement, bool(holds), f"{what} {value:.6g} against {limit:.6g}" + ("" if holds else f"; {do}"))


def ball_holds(what: str, theta: Floats, R: float) -> Condition:
    norm = float(np.linalg.norm(theta))
    return at_most(f"|{what}| is", norm, R, f"|{what}| <= radius", f"raise radius to {norm:.6g}")


def step_below(a: float, limit: float, formula: str) -> Condition:
    return at_most(
        "step_size is", a, limit, f"step_size < {formula}", f"lower step_size to below {limit:.6g}", strict=True
    )


def batch_above(M: int, numerator: float, denominator: float) -> Condition:
    least = ratio(numerator, denominator)
    detail = f"batch_size is {M} against {least:.6g}"
    if least >= M:
        detail += "; lower step_size first" if math.isinf(least) else f"; raise batch_size to {math.floor(least) + 1}"
    return Condition("batch_size is large enough for C1 < 1", least < M, detail)


def ratio(numerator: float, denominator: float) -> float:
    """The quotient; inf where the denominator is not positive."""
    return numerator / denominator if denominator > 0.0 else math.inf
