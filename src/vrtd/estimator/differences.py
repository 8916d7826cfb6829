"""By how much one policy is better than another."""

from __future__ import annotations

from typing import Any, overload

from vrtd.checks import check_level
from vrtd.errors import InvalidInputError
from vrtd.estimator.estimates import Interval, Intervals, subtract
from vrtd.estimator.evaluator import Evaluator


@overload
def difference(a: Evaluator, b: Evaluator, level: float = 0.95, *, observations: None = None) -> Interval: ...


@overload
def difference(a: Evaluator, b: Evaluator, level: float = 0.95, *, observations: Any) -> Intervals: ...


def difference(a: Evaluator, b: Evaluator, level: float = 0.95, *, observations: Any = None) -> Interval | Intervals:
    """Return by how much the policy of `a` is better than that of `b`, with an interval.

    Parameters
    ----------
    a, b : Evaluator
        Fitted, with the same discount: to two independent logs, or to the same log with different targets, or with a
        target and without one. In the same log the noise of both is correlated, which mostly makes the interval of the
        difference shorter; it is found from the rows themselves whether the logs are the same.
    level : float, default 0.95
        Confidence level.
    observations : array of shape (n, ...), or table, optional
        States at which values are compared. Default: the values of the policies, each averaged over the first states of
        its log's episodes.

    Returns
    -------
    Interval, or Intervals if there are observations
        The value of `a` less that of `b`.

    Examples
    --------
    >>> import numpy as np
    >>> import vrtd
    >>> def record(seed, price):  # customers come again until they leave
    ...     draws = np.random.default_rng(seed).random((2, 4000))
    ...     return {"state": [0] * 4000, "reward": price * (draws[0] < 0.5), "terminated": draws[1] < 0.1 * price}
    >>> low, high = (vrtd.Evaluator(discount=1.0).fit(record(seed, price)) for seed, price in [(0, 1.0), (1, 2.0)])
    >>> found = vrtd.difference(high, low)  # half the time at twice the price
    >>> found.low < 0.0 < found.high
    True
    """
    level = check_level(level)
    for evaluator in (a, b):
        if not isinstance(evaluator, Evaluator):
            raise InvalidInputError("a and b must be fitted Evaluators", type(evaluator).__name__, "fit one for each")
        if not evaluator.n_rows_:
            raise InvalidInputError("a and b must be fitted Evaluators", "one without rows", "call fit first")
    if a.discount != b.discount:
        got = f"{a.discount:g} and {b.discount:g}"
        raise InvalidInputError("values to compare must have the same discount", got, "fit one of them again")
    are_joint = a.has_same_rows(b)
    if observations is None:
        return subtract(a.policy_estimate(), b.policy_estimate(), are_joint=are_joint).intervals(level).first
    found = subtract(a.estimate(observations), b.estimate(observations), are_joint=are_joint)
    return found.intervals(level)
