"""Mean values over the states of the log or over the first states of its episodes, and a comparison with returns.

The frequencies of states are estimates, too: a block of rows contributes to the error of a mean by its influence on
theta and by its own states.
"""

from __future__ import annotations

from math import nan, sqrt
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from vrtd.arrays import Floats, dot
from vrtd.estimator.block_totals import BlockTotals
from vrtd.estimator.estimates import Estimates, Interval, Parts, align, estimate_from_blocks, estimate_from_parts
from vrtd.estimator.sparse_reservoir import SparseReservoir
from vrtd.estimator.spread import MOST_OPEN, Spread
from vrtd.estimator.summary import FitSummary, Method
from vrtd.report.numbers import interval, percent
from vrtd.sparse import mean_of

_LEAST_EPISODES = 20  # for a comparison with their returns
RETURN_LEVEL, CHECK_LEVEL = 0.95, 0.9999  # of the intervals of a `ReturnCheck`
_ROUNDING = 1e-8  # relative to the values


class ReturnCheck(NamedTuple):
    """Comparison of the values of first states with the returns of their episodes.

    Attributes
    ----------
    n_complete : int
        Number of episodes that terminated and are known from their start on.
    n_cut : int
        Number of episodes that did not terminate.
    mean_return : Interval
        Mean return of the complete episodes, with a 95 % interval.
    difference : Interval
        Mean value of the first states minus the mean return, with a 99.99 % interval. For episodes that were cut, the
        discounted value of the last state is added to the return.
    """

    n_complete: int
    n_cut: int
    mean_return: Interval
    difference: Interval

    @property
    def agrees(self) -> bool:
        """Whether the interval of the difference contains 0, or is not known."""
        return not (self.difference.low > 0.0 or self.difference.high < 0.0)

    @property
    def doubt(self) -> str | None:
        """Reason why the values are unreliable, or None."""
        if self.agrees:
            return None
        value, low, high = interval(*self.difference)
        return (
            f"the values of first states minus the returns of their episodes are {value} on average "
            f"({percent(CHECK_LEVEL)} interval {low} to {high}). Noise does not explain this difference. Possible "
            "causes: the observations are not the whole state, the features cannot represent the values, or rows of "
            "different episodes were joined. Use richer observations or features, or check where episodes end"
        )


def mean_over_states(summary: FitSummary, method: Method | None) -> Estimates:
    """Return the mean value over the states of the log.

    With blocks of all rows, the frequencies of all visited states are estimated, too. Otherwise the mean is over the
    states of the sample, with fixed frequencies.
    """
    spread, state, n_rows = summary.aligned_spread(method), summary.state, summary.n_blocked(method)
    if spread.ends is None or n_rows is None:
        return spread.estimates(mean_of(summary.visited_phi)[None])
    if state.episodes is not None and state.episodes.states is not None:
        return _mean(spread, state.episodes.states, n_rows)
    if summary.is_linear(method):
        linear = summary.linear_estimate
        if linear.total_phi is not None:
            own = linear.total_phi @ linear.theta - linear.n_rows_of * (linear.mean_phi @ linear.theta)
        else:
            assert linear.values is not None
            own = linear.values
        return _combine(spread, linear.mean_phi, Parts(own / linear.n_rows_of.mean(), linear.ends))
    solution = summary.solution
    return _combine(spread, solution.mean_phi, Parts(solution.own, np.array(solution.ends.rows)))


def mean_over_starts(summary: FitSummary, method: Method | None) -> Estimates:
    """Return the mean value over the first states of the episodes."""
    spread, state = summary.aligned_spread(method), summary.state
    assert state.episodes is not None
    if state.episodes.first_rows is not None:
        return _mean_over_some_starts(spread, state.episodes.first_rows)
    starts = state.episodes.starts
    n_rows = summary.n_blocked(method)
    if spread.ends is not None and n_rows is not None:
        return _mean(spread, starts, n_rows)
    nu, own, n = _own_parts(starts, spread.theta, state.n_distinct)
    variance = np.square(estimate_from_parts(np.zeros(1), own).error)
    return spread.estimates(nu[None]).widen(variance + 2.0 * _covariance_with_starts(summary, spread, nu), n - 1.0)


def _mean_over_some_starts(spread: Spread, first_rows: SparseReservoir) -> Estimates:
    """Return the mean value over the kept first rows; their noise counts as independent of that of theta."""
    rows = first_rows.rows
    assert rows is not None
    n = len(rows)
    variance, nu = float(np.var(rows.phi @ spread.theta, ddof=1)) / n, mean_of(rows.phi)
    by_block = np.array([dot(row, nu) for row in spread.influence])
    return estimate_from_blocks(np.array([dot(nu, spread.theta)]), by_block[:, None]).widen(variance, n - 1.0)


def _mean(spread: Spread, totals: BlockTotals, n_rows: int) -> Estimates:
    return _combine(spread, *_own_parts(totals, spread.theta, n_rows))


def _own_parts(totals: BlockTotals, theta: Floats, n_rows: int) -> tuple[Floats, Parts, float]:
    """Return the mean features nu of some states, the influence of blocks on nu.theta, and the number of states."""
    by_block, ends = totals.by_block(n_rows)
    n = float(totals.total[-1])
    nu, count = totals.mean, by_block[:, -1]
    with np.errstate(invalid="ignore"):  # nan if no block has such a state
        parts = (by_block[:, :-1] - count[:, None] * nu) @ theta / count.mean()
    return nu, Parts(parts * np.sqrt(n / max(n - 1.0, 1.0)), np.array(ends.rows)), n


def _combine(spread: Spread, nu: Floats, own: Parts, n_own: float = np.inf) -> Estimates:
    """Return nu.theta with the noise of both nu and theta, from the same blocks of rows.

    `own` is the influence of blocks on nu.theta through nu. The number `n_own` of states in the mean limits the degrees
    of freedom.
    """
    assert spread.ends is not None
    by_block = np.array([dot(row, nu) for row in spread.influence])
    influence, own = align(Parts(by_block, spread.ends), own)
    both = Parts(influence.by_block + own.by_block, own.ends)
    found = estimate_from_parts(np.array([dot(nu, spread.theta)]), both)
    # Features that are 0 in every row add to the bias, but must not make the mean over all states unknown.
    seen = nu.copy()
    seen[spread.unseen] = 0.0
    is_known = spread.spans(seen[None]) & (spread.open_share(nu[None]) <= MOST_OPEN)
    alone = estimate_from_parts(np.zeros(1), own).error
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.clip(np.nan_to_num(np.square(alone / found.error)), 0.0, 1.0)
        degrees = 1.0 / (share**2 / max(n_own - 1.0, 1.0) + (1.0 - share**2) / found.degrees)
    return found._replace(
        error=np.where(is_known, found.error, np.inf),
        degrees=np.minimum(found.degrees, degrees),
        bias=spread.estimates(nu[None]).bias,
    )


def _covariance_with_starts(summary: FitSummary, spread: Spread, nu: Floats) -> float:
    """Return the covariance of theta with the mean over the starts, from the sample, for all rows of the log."""
    state, B = summary.state, len(spread.influence)
    length = state.n_sampled // B
    if state.starts is None or not length:
        return 0.0
    at = np.flatnonzero(state.starts[: B * length])
    own, count = np.zeros(B), np.zeros(B)
    np.add.at(own, at // length, (summary.state_phi[at] - nu) @ spread.theta)
    np.add.at(count, at // length, 1.0)
    if not count.any():
        return 0.0
    influence = spread.influence @ nu
    product = (influence - influence.mean()) @ (own - own.mean()) / count.mean()
    return float(product / (B * (B - 1)) * state.n_sampled / max(state.n_distinct, 1))


def check_returns(summary: FitSummary) -> ReturnCheck | None:
    """Compare the values of first states with the returns of their episodes; None if there are too few episodes."""
    state = summary.state
    returns = None if state.episodes is None else state.episodes.returns
    if returns is None or returns.total[-4] < _LEAST_EPISODES or summary.why_no_interval(None) is not None:
        return None
    spread, d = summary.aligned_spread(None), len(returns.total) - 5
    theta = np.append(spread.theta, -1.0)  # for x and y: value minus return
    n_blocked = summary.n_blocked(None)
    is_all = spread.ends is not None and n_blocked is not None
    n_rows = n_blocked if is_all and n_blocked is not None else state.n_distinct
    reduced = BlockTotals(
        returns.total[: d + 2], returns.most, returns.ends, tuple(mark[: d + 2] for mark in returns.marks)
    )
    mean, own, n_episodes = _own_parts(reduced, theta, n_rows)
    value = np.array([mean @ theta])
    if is_all:
        found = _combine(spread, mean[:d], own, n_episodes)._replace(value=value)
    else:
        noise = np.square(estimate_from_parts(value, own).error)
        found = spread.estimates(mean[None, :d]).widen(noise)._replace(value=value)
    found = found._replace(bias=found.bias + _ROUNDING * np.abs(mean[:d] @ spread.theta))
    total, squares, n = (float(number) for number in returns.total[-3:])
    return ReturnCheck(
        int(n), int(returns.total[-4] - n), _interval_of_mean(total, squares, n), found.intervals(CHECK_LEVEL).first
    )


def _interval_of_mean(total: float, squares: float, n: float) -> Interval:
    """Return the mean of n independent numbers with its interval, from their sum and sum of squares."""
    if n < 2:
        return Interval(total / n if n else nan, nan, nan)
    mean = total / n
    half = -float(stdtrit(n - 1.0, (1.0 - RETURN_LEVEL) / 2.0)) * sqrt(max(squares / n - mean**2, 0.0) / (n - 1.0))
    return Interval(mean, mean - half, mean + half)
