"""Estimates of quantities that are linear in theta: standard errors, intervals and differences."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from vrtd.arrays import Floats

_LEAST_COMMON = 2  # blocks from which the noise of a difference is estimated


class Interval(NamedTuple):
    """Estimate with a confidence interval.

    Attributes
    ----------
    value : float
        The estimate.
    low, high : float
        Bounds of the interval. They are infinite if the log does not determine the value, and nan if no interval is
        known for the algorithm.
    """

    value: float
    low: float
    high: float


class Intervals(NamedTuple):
    """Estimates with confidence intervals.

    Attributes
    ----------
    value : ndarray of shape (n,)
        The estimates.
    low, high : ndarray of shape (n,)
        Bounds of the intervals. They are infinite where the log does not determine the value, and nan if no interval is
        known for the algorithm.
    """

    value: Floats
    low: Floats
    high: Floats

    @property
    def first(self) -> Interval:
        """Estimate and interval in the first row."""
        return Interval(float(self.value[0]), float(self.low[0]), float(self.high[0]))


class Parts(NamedTuple):
    """Influence of each block of rows on some estimates.

    To first order, the error of an estimate is the mean of its influence over the blocks.
    """

    by_block: Floats  # (B,) of one estimate, or (B, m)
    ends: NDArray[np.int64]  # (B,) rows of the log up to the end of each block

    def merge(self, ends: NDArray[np.int64]) -> Parts:
        """Return the parts of longer blocks, which end at some of the same rows; later rows are dropped."""
        last = np.searchsorted(self.ends, ends)
        before = np.concatenate([np.zeros_like(self.by_block[:1]), np.add.accumulate(self.by_block, axis=0)])
        totals = np.diff(before[np.append(0, last + 1)], axis=0)
        is_same = np.diff(last, prepend=-1) == 1
        totals[is_same] = self.by_block[last[is_same]]  # without rounding
        return Parts(totals * (_mean_rows(self.ends) / _mean_rows(ends)), ends)


def _mean_rows(ends: NDArray[np.int64]) -> float:
    return float(ends[-1]) / len(ends) if len(ends) else np.nan


def align(one: Parts, other: Parts) -> tuple[Parts, Parts]:
    """Return the parts of the longest common blocks; there may be none."""
    ends = np.intersect1d(one.ends, other.ends)
    return one.merge(ends), other.merge(ends)


def equal_ends(n_blocks: int, block: int) -> NDArray[np.int64]:
    """Return the ends of blocks of equal length."""
    return np.arange(1, n_blocks + 1) * block


class Estimates(NamedTuple):
    """Estimates with their standard errors.

    Attributes
    ----------
    value : ndarray of shape (m,)
        The estimates.
    error : ndarray of shape (m,)
        Standard errors; infinite where the rows do not determine the value.
    degrees : ndarray of shape (m,)
        Degrees of freedom of Student's t distribution; infinite for the normal distribution.
    bias : ndarray of shape (m,)
        Bounds on the absolute bias.
    parts : Parts or None
        Influence of each block of rows; None if it is not known which rows the noise comes from.
    """

    value: Floats
    error: Floats
    degrees: Floats
    bias: Floats
    parts: Parts | None = None

    def intervals(self, level: float) -> Intervals:
        """Compute the intervals.

        Parameters
        ----------
        level : float
            Confidence level.

        Returns
        -------
        Intervals
            The estimates with the bounds of their intervals.
        """
        quantile = -stdtrit(self.degrees, (1.0 - level) / 2.0)  # scipy.stats.t.ppf, but scipy.stats is slow to import
        half = quantile * self.error + self.bias
        return Intervals(self.value, self.value - half, self.value + half)

    def widen(self, variance: Floats | float, degrees: float = np.inf) -> Estimates:
        """Add independent noise.

        Parameters
        ----------
        variance : ndarray of shape (m,) or float
            Variance of the noise.
        degrees : float, default=inf
            Degrees of freedom of the estimate of this variance.

        Returns
        -------
        Estimates
            Estimates with larger standard errors.
        """
        more = np.zeros_like(self.error) + np.maximum(variance, 0.0)
        degrees_of = _add_degrees(np.square(self.error), self.degrees, more, np.zeros_like(more) + degrees)
        return self._replace(error=np.sqrt(np.square(self.error) + variance), degrees=degrees_of)


def _add_degrees(one: Floats, its: Floats, other: Floats, others: Floats) -> Floats:
    """Return the degrees of freedom of a sum of two variances (Welch-Satterthwaite)."""
    total = one + other
    with np.errstate(invalid="ignore", divide="ignore"):
        degrees = total**2 / (one**2 / its + other**2 / others)
    return np.where(np.isfinite(total) & (total > 0.0), degrees, np.minimum(its, others))


def estimate_from_parts(value: Floats, parts: Parts) -> Estimates:
    """Return estimates whose standard errors are from the means of consecutive blocks (batch means)."""
    return estimate_from_blocks(value, parts.by_block.reshape(len(parts.by_block), -1))._replace(parts=parts)


def estimate_from_blocks(value: Floats, by_block: Floats) -> Estimates:
    """Return estimates (m,) whose standard errors are from the means (B, m) of blocks of any rows."""
    n = len(by_block)
    centred = by_block - by_block.mean(axis=0)
    own = np.square(centred).sum(axis=0)
    between = 2.0 * (centred[1:] * centred[:-1]).sum(axis=0)
    # Blocks may be shorter than the correlation time: positive covariances of adjacent blocks are added.
    variance = (own + np.maximum(between, 0.0)) / (n * (n - 1))
    return Estimates(value, np.sqrt(variance), block_degrees(centred), np.zeros_like(value))


def block_degrees(centred: Floats) -> Floats:
    """Return the degrees of freedom of variances from block means, which are few if few blocks dominate.

    `centred` (B, m) are the block means minus their mean.
    """
    squares = np.square(centred)
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = 3.0 * squares.sum(axis=0) ** 2 / np.square(squares).sum(axis=0) - 1.0
    most = float(len(centred) - 1)
    return np.asarray(np.clip(np.nan_to_num(spread, nan=most), 1.0, most))


def subtract(one: Estimates, other: Estimates, *, are_joint: bool) -> Estimates:
    """Return one - other; with `are_joint` both come from the same rows, so that their noise is correlated.

    If it is not known which rows the noise comes from, the standard errors are added, which is the worst case.
    """
    value, bias = one.value - other.value, one.bias + other.bias
    if not are_joint:
        mine, its = np.square(one.error), np.square(other.error)
        return Estimates(value, np.sqrt(mine + its), _add_degrees(mine, one.degrees, its, other.degrees), bias)
    common = None if one.parts is None or other.parts is None else align(one.parts, other.parts)
    if common is None or len(common[0].ends) < _LEAST_COMMON:
        return Estimates(value, one.error + other.error, np.minimum(one.degrees, other.degrees), bias)
    difference = Parts(common[0].by_block - common[1].by_block, common[0].ends)
    found = estimate_from_parts(value, difference)
    is_known = np.isfinite(one.error) & np.isfinite(other.error)
    return found._replace(error=np.where(is_known, found.error, np.inf), bias=bias)
