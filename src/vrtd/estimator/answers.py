"""The answers of an evaluation: what a policy is worth, and what the episodes of the log returned, as a check."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, isnan
from typing import Literal

from vrtd.estimator.auto_settings import CLOSED_FORM
from vrtd.estimator.estimates import Interval
from vrtd.estimator.evaluator import Evaluator
from vrtd.estimator.means import RETURN_LEVEL, ReturnCheck
from vrtd.estimator.summary import Method
from vrtd.report.numbers import interval, number, percent, plural

Quantity = Literal["policy_value", "mean_value"]


@dataclass(frozen=True)
class Answer:
    """The value of the policy or the mean value, with the ends of its interval."""

    value: float
    low: float
    high: float
    level: float
    method: str  # "closed_form", or the name of an algorithm
    quantity: Quantity
    estimand: str  # over which states the mean is
    reason: str | None = None  # why there is no interval; its ends are nan then

    @property
    def name(self) -> str:
        return self.quantity.replace("_", " ")

    def __str__(self) -> str:
        if self.reason is not None:
            return number(self.value, 4)
        value, low, high = interval(self.value, self.low, self.high)
        return f"{value} [{low}, {high}]"

    @property
    def text(self) -> str:
        """The value with its interval, in words."""
        return describe_interval(Interval(self.value, self.low, self.high), self.level)

    @property
    def reservation(self) -> str:
        """Why the interval is infinite or missing, where it is."""
        if self.reason is not None:
            return f"There is no interval: {self.reason}."
        if isfinite(self.low) and isfinite(self.high):
            return ""
        return (
            "The interval is infinite: the rows on which it rests do not show all states, or all actions of the target."
        )


def answer(evaluator: Evaluator, quantity: Quantity, level: float, method: Method | None = None) -> Answer:
    """Return a quantity with its interval from this method, by default the evaluator's own."""
    if quantity == "policy_value":
        found = evaluator.policy_value(level=level, method=method)
        estimand = f"mean over the first states of {plural(evaluator.n_episodes_, 'episode')}"
    else:
        found = evaluator.mean_value(level, method=method)
        estimand = "mean over the states of the log"
    name = method or (CLOSED_FORM if evaluator.algorithm_ is None else evaluator.algorithm_.name)
    return Answer(*found, level, name, quantity, estimand, evaluator.why_no_interval(method))


def describe_interval(found: Interval, level: float) -> str:
    """Return a number with its interval in words; the number alone where no interval is known.

    >>> describe_interval(Interval(1.287, 1.207, 1.367), 0.95)
    '1.287 (95 % interval 1.207 to 1.367)'
    """
    if isnan(found.low):
        return number(found.value, 4)
    value, low, high = interval(*found)
    return f"{value} ({percent(level)} interval {low} to {high})"


def describe_returns(returns: ReturnCheck) -> str:
    """Return what the complete episodes returned, and whether it agrees with the values, in words."""
    agrees = "agrees" if returns.agrees else "does not agree"
    verdict = f"it {agrees} with the values of the first states"
    if not returns.n_complete:
        n = plural(returns.n_cut, "episode")
        return (
            f"not known, because {n} were cut and none is complete; with the value of each last state added, {verdict}"
        )
    mean, n = describe_interval(returns.mean_return, RETURN_LEVEL), plural(returns.n_complete, "complete episode")
    cut = f" ({returns.n_cut:,} more were cut, so that these may not be typical)" if returns.n_cut else ""
    return f"{mean}: mean over {n}{cut}; {verdict}"
