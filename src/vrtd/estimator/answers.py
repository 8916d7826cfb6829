"""The estimates of an evaluation with their intervals, and the mean return of the episodes as a check, in words."""

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
    """Policy value or mean value, with its confidence interval.

    Attributes
    ----------
    value : float
        The estimate.
    low, high : float
        The ends of the interval; nan if no interval is available, infinite if the rows do not determine the value.
    level : float
        The confidence level of the interval.
    method : str
        "closed_form", or the name of the algorithm.
    quantity : {"policy_value", "mean_value"}
        What is estimated.
    estimand : str
        The states over which the value is averaged, in words.
    reason : str or None
        Why no interval is available.
    """

    value: float
    low: float
    high: float
    level: float
    method: str
    quantity: Quantity
    estimand: str
    reason: str | None = None

    @property
    def name(self) -> str:
        """The quantity in words."""
        return self.quantity.replace("_", " ")

    def __str__(self) -> str:
        if self.reason is not None:
            return number(self.value, 4)
        value, low, high = interval(self.value, self.low, self.high)
        return f"{value} [{low}, {high}]"

    @property
    def text(self) -> str:
        """The estimate with its interval, in words."""
        return describe_interval(Interval(self.value, self.low, self.high), self.level)

    @property
    def reservation(self) -> str:
        """Why the interval is missing or infinite; empty if it is neither."""
        if self.reason is not None:
            return f"No interval is available: {self.reason}."
        if isfinite(self.low) and isfinite(self.high):
            return ""
        return "The interval is infinite because the rows do not cover all states, or all actions of the target policy."


def answer(evaluator: Evaluator, quantity: Quantity, level: float, method: Method | None = None) -> Answer:
    """Return a quantity with its interval by this method, by default the evaluator's own method."""
    if quantity == "policy_value":
        found = evaluator.policy_value(level=level, method=method)
        estimand = f"averaged over the first states of {plural(evaluator.n_episodes_, 'episode')}"
    else:
        found = evaluator.mean_value(level, method=method)
        estimand = "averaged over the visited states, weighted by visit counts"
    name = method or (CLOSED_FORM if evaluator.algorithm_ is None else evaluator.algorithm_.name)
    return Answer(*found, level, name, quantity, estimand, evaluator.why_no_interval(method))


def describe_interval(found: Interval, level: float) -> str:
    """Return a number with its interval in words, or the number alone if no interval is known.

    >>> describe_interval(Interval(1.287, 1.207, 1.367), 0.95)
    '1.287 (95 % interval 1.207 to 1.367)'
    """
    if isnan(found.low):
        return number(found.value, 4)
    value, low, high = interval(*found)
    return f"{value} ({percent(level)} interval {low} to {high})"


def describe_returns(returns: ReturnCheck) -> str:
    """Return the mean return of the complete episodes, and whether it agrees with the values, in words."""
    agrees = "agrees" if returns.agrees else "does not agree"
    verdict = f"it {agrees} with the values of the first states"
    if not returns.n_complete:
        n = plural(returns.n_cut, "episode")
        return f"not known, because none of {n} terminated; with the value of each last state added, {verdict}"
    mean, n = describe_interval(returns.mean_return, RETURN_LEVEL), plural(returns.n_complete, "complete episode")
    cut = f" ({returns.n_cut:,} more did not terminate, so these may not be representative)" if returns.n_cut else ""
    return f"{mean}: averaged over {n}{cut}; {verdict}"
