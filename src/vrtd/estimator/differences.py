"""The difference between the values of two policies."""

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
    """Compute the difference between the values of two policies, with an interval.

    Parameters
    ----------
    a, b : Evaluator
        Fitted evaluators with the same discount. Fit them to two independent logs, or to the same log with different
        targets, or with and without a target.
    level : float, default=0.95
        Confidence level.
    observations : array_like of shape (n, ...), or table, default=None
        States at which values are compared. By default, the values of the policies are compared, each averaged over the
        first states of its log's episodes.

    Returns
    -------
    Interval or Intervals
        The value of ``a`` minus that of ``b``: one interval, or one per row of ``observations``.

    Raises
    ------
    InvalidInputError
        If one of the evaluators is not fitted, or the discounts differ.

    Notes
    -----
    Whether both were fitted to the same log is checked by its rows. In the same log the noise of both is correlated,
    which usually makes the interval of the difference shorter.

    Examples
    --------
    >>> import numpy as np
    >>> import vrtd
    >>> def record(seed, price):  # customers come again until they leave
    ...     draws = np.random.default_rng(seed).random((2, 4000))
    ...     return {"state": [0] * 4000, "reward": price * (draws[0] < 0.5), "terminated": draws[1] < 0.1 * price}
    >>> low, high = (vrtd.Evaluator(discount=1.0).fit(record(seed, price)) for seed, price in [(0, 1.0), (1, 2.0)])
    >>> interval = vrtd.difference(high, low)  # customers pay twice as much and leave twice as early
    >>> interval.low < 0.0 < interval.high
    True
    """
    level = check_level(level)
    for evaluator in (a, b):
        if not isinstance(evaluator, Evaluator):
            raise InvalidInputError(
                f"a and b must be fitted Evaluators, but one of them is {type(evaluator).__name__}.",
                "Fit one Evaluator for each policy.",
            )
        if not evaluator.n_rows_:
            raise InvalidInputError(
                "a and b must be fitted Evaluators, but one of them has no rows.", "Call fit first."
            )
    if a.discount != b.discount:
        problem = f"a and b must have the same discount, but have {a.discount:g} and {b.discount:g}."
        raise InvalidInputError(problem, "Fit one of them again.")
    are_joint = a.has_same_rows(b)
    if observations is None:
        return subtract(a.policy_estimate(), b.policy_estimate(), are_joint=are_joint).intervals(level).first
    found = subtract(a.estimate(observations), b.estimate(observations), are_joint=are_joint)
    return found.intervals(level)
