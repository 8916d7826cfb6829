"""How a policy compares with another one: of two logs, or of two targets of one log."""

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
    """By how much a policy is better than another one, and what is known of the other one."""

    name: str  # of the policy
    other: str  # of the other policy, to which the answers and the diagnostics belong
    policy_value: Answer
    mean_value: Answer
    diagnostics: Diagnostics
    evaluator: Evaluator
    difference: Interval  # value of the policy less that of the other one
    level: float
    is_joint: bool  # both are from the same rows, so that their errors are correlated

    @property
    def verdict(self) -> str:
        """Which policy is better, and by how much."""
        (value, low, high), text = self.difference, describe_interval(self.difference, self.level)
        if isnan(low):
            return f"{self.name} less {self.other} is {text}, and no interval is known"
        if isinf(low) or isinf(high):
            return (
                f"it is not known which is better, {self.name} or {self.other}: the rows do not determine both values"
            )
        if low <= 0.0 <= high:
            tied = f"{self.name} and {self.other} are statistically tied"
            return f"{tied}: the difference is {text}; the interval contains 0"
        word, size = ("better", self.difference) if value > 0.0 else ("worse", Interval(-value, -high, -low))
        return f"{self.name} is {word} than {self.other} by {describe_interval(size, self.level)}"

    @property
    def warnings(self) -> tuple[str, ...]:
        """What makes the answer for the other policy doubtful."""
        d = self.diagnostics
        doubts = (f"{d.verdict.lower()}. {d.explanation}".rstrip(" ."),) if d.converged is False else ()
        return (*doubts, *d.warnings)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        d = self.diagnostics
        found = {"level": self.level, "joint": self.is_joint, "text": self.verdict}
        return {
            "against": {
                "name": self.other,
                "policy_value": to_json(asdict(self.policy_value)),
                "mean_value": to_json(asdict(self.mean_value)),
                "n_rows": d.n_rows,
                "converged": d.converged,
                "warnings": list(d.warnings),
            },
            "difference": to_json(self.difference._asdict()) | found,
        }


def compare_policies(evaluator: Evaluator, other: Evaluator, names: Sequence[str], level: float) -> PolicyComparison:
    """Compare two policies, each by the first states of the episodes of its log."""
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
    """Raise unless the log of this policy has the episodes that a comparison needs."""
    if not evaluator.has_policy_value:
        raise InvalidInputError(
            "policies are compared by the first states of episodes, of which a log must have two or more",
            f"{evaluator.n_episodes_} in the log of {name}",
            "name the columns that tell episodes apart: episode=..., or terminated=... (or compare at states of your "
            "choice: vrtd.difference(a, b, observations=...))",
        )
