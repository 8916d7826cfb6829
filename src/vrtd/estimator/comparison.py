"""Comparison of two policies, from two logs or as two targets of one log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import isinf, isnan
from typing import Any

from vrtd.errors import InvalidInputError
from vrtd.estimator.answers import Answer, answer, describe_interval
from vrtd.estimator.diagnostics import Diagnostics, to_json
from vrtd.estimator.differences import difference
from vrtd.estimator.estimates import Interval
from vrtd.estimator.evaluator import Evaluator


@dataclass(frozen=True)
class PolicyComparison:
    """Comparison of the evaluated policy with another one.

    Attributes
    ----------
    name : str
        The name of the evaluated policy.
    other : str
        The name of the other policy.
    policy_value, mean_value : Answer
        The estimates for the other policy.
    diagnostics : Diagnostics
        The diagnostics for the other policy.
    evaluator : Evaluator
        The fitted evaluator of the other policy.
    difference : Interval
        The value of the evaluated policy minus the value of the other one.
    level : float
        The confidence level of the intervals.
    is_joint : bool
        Whether both policies are evaluated on the same rows, so that their errors are correlated.
    """

    name: str
    other: str
    policy_value: Answer
    mean_value: Answer
    diagnostics: Diagnostics
    evaluator: Evaluator
    difference: Interval
    level: float
    is_joint: bool

    @property
    def verdict(self) -> str:
        """Which policy is better and by how much, in words."""
        (value, low, high), text = self.difference, describe_interval(self.difference, self.level)
        if isnan(low):
            return f"{self.name} minus {self.other} is {text}, but no interval is available"
        if isinf(low) or isinf(high):
            return f"{self.name} and {self.other} cannot be compared, because the rows do not determine both values"
        if low <= 0.0 <= high:
            tied = f"{self.name} and {self.other} are statistically tied"
            return f"{tied}: the difference is {text}; the interval contains 0"
        word, size = ("better", self.difference) if value > 0.0 else ("worse", Interval(-value, -high, -low))
        return f"{self.name} is {word} than {self.other} by {describe_interval(size, self.level)}"

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons to doubt the result for the other policy."""
        d = self.diagnostics
        doubts = (f"{d.verdict.lower()}. {d.explanation}".rstrip(" ."),) if d.converged is False else ()
        return (*doubts, *d.warnings)

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison as plain values that can be written as JSON.

        Returns
        -------
        dict
            The estimates for the other policy under "against", and the difference.
        """
        d = self.diagnostics
        context = {"level": self.level, "joint": self.is_joint, "text": self.verdict}
        return {
            "against": {
                "name": self.other,
                "policy_value": to_json(asdict(self.policy_value)),
                "mean_value": to_json(asdict(self.mean_value)),
                "n_rows": d.n_rows,
                "converged": d.converged,
                "warnings": list(d.warnings),
            },
            "difference": to_json(self.difference._asdict()) | context,
        }


def compare_policies(evaluator: Evaluator, other: Evaluator, names: Sequence[str], level: float) -> PolicyComparison:
    """Compare two policies by their policy values, each averaged over the first states of the episodes of its log."""
    name, other_name = names
    return PolicyComparison(
        name,
        other_name,
        answer(other, "policy_value", level),
        answer(other, "mean_value", level),
        other.diagnostics_,
        other,
        difference(evaluator, other, level),
        level,
        evaluator.has_same_rows(other),
    )


def check_episodes(evaluator: Evaluator, name: str) -> None:
    """Raise unless the log of this policy has the two episodes that a comparison needs."""
    if not evaluator.has_policy_value:
        raise InvalidInputError(
            f"The log of {name} must have at least two episodes, because policies are compared by the values of the "
            f"first states of episodes, but has {evaluator.n_episodes_}.",
            "Name the columns that separate episodes: episode=..., or terminated=... "
            "(or compare at states of your choice with vrtd.difference(a, b, observations=...)).",
        )
