"""Estimates of numbers that are linear in theta: their standard errors, their intervals, and their differences."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from vrtd.arrays import Floats


class Interval(NamedTuple):
    """An estimate with the ends of its interval: infinite where nothing was learned, nan where no formula is known."""

    value: float
    low: float
    high: float


class Intervals(NamedTuple):
    """Estimates with the ends of their intervals, like `Interval`."""

    value: Floats
    low: Floats
    high: Floats

    @property
    def first(self) -> Interval:
        return Interval(float(self.value[0]), float(self.low[0]), float(self.high[0]))


class Parts(NamedTuple):
    """By how much each block of rows moves some estimates, which is their mean over the blocks to first order."""

    by_block: Floats  # (B,) of one estimate, or (B, m)
    block: int  # rows of a block

    def merge(self, block: int) -> Parts:
        """Return the parts of blocks that are a multiple as long; what is left at the end is dropped."""
        k = block // self.block
        n = len(self.by_block) // k
        return Parts(self.by_block[: n * k].reshape(n, k, *self.by_block.shape[1:]).mean(axis=1), block)


class Estimates(NamedTuple):
    """Some numbers, and what is known of their errors."""

    value: Floats  # (m,)
    error: Floats  # (m,) standard errors; infinite where the rows do not determine the number
    degrees: Floats  # (m,) of freedom of Student's t; inf: normal
    bias: Floats  # (m,) at most, in absolute value
    parts: Parts | None = None  # None: it is not known which rows the noise comes from

    def intervals(self, level: float) -> Intervals:
        quantile = -stdtrit(self.degrees, (1.0 - level) / 2.0)  # as scipy.stats.t has it, which loads slowly
        half = quantile * self.error + self.bias
        return Intervals(self.value, self.value - half, self.value + half)

    def widen(self, variance: Floats | float, degrees: float = np.inf) -> Estimates:
        """Return the same with further noise, which is independent: its variance, known with so many degrees."""
        more = np.zeros_like(self.error) + np.maximum(variance, 0.0)
        degrees_of = _add_degrees(np.square(self.error), self.degrees, more, np.zeros_like(more) + degrees)
        return self._replace(error=np.sqrt(np.square(self.error) + variance), degrees=degrees_of)


def _add_degrees(one: Floats, its: Floats, other: Floats, others: Floats) -> Floats:
    """Return the degrees of freedom of a sum of two variances (Welch, Satterthwaite)."""
    total = one + other
    with np.errstate(invalid="ignore", divide="ignore"):
        degrees = total**2 / (one**2 / its + other**2 / others)
    return np.where(np.isfinite(total) & (total > 0.0), degrees, np.minimum(its, others))


def estimate_from_parts(value: Floats, parts: Parts) -> Estimates:
    """Return estimates whose noise is that of the mean of blocks (batch means)."""
    return estimate_from_blocks(value, parts.by_block.reshape(len(parts.by_block), -1))._replace(parts=parts)


def estimate_from_blocks(value: Floats, by_block: Floats) -> Estimates:
    """Return estimates (m,) whose noise is that of the mean of blocks (B, m), of any rows."""
    n = len(by_block)
    centred = by_block - by_block.mean(axis=0)
    own = np.square(centred).sum(axis=0)
    between = 2.0 * (centred[1:] * centred[:-1]).sum(axis=0)
    # Blocks may be shorter than the correlation, so that covariances of adjacent ones count where they are positive.
    variance = (own + np.maximum(between, 0.0)) / (n * (n - 1))
    return Estimates(value, np.sqrt(variance), block_degrees(centred), np.zeros_like(value))


def block_degrees(centred: Floats) -> Floats:
    """Return the degrees of freedom of variances from block means: fewer than there are blocks if they rest on few.

    `centred` (B, m) are the block means less their mean.
    """
    squares = np.square(centred)
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = 3.0 * squares.sum(axis=0) ** 2 / np.square(squares).sum(axis=0) - 1.0
    most = float(len(centred) - 1)
    return np.asarray(np.clip(np.nan_to_num(spread, nan=most), 1.0, most))


def subtract(one: Estimates, other: Estimates, *, are_joint: bool) -> Estimates:
    """Return one - other.

    `are_joint`: they come from the same rows, so that their noise is correlated. Where it is not known which rows the
    noise comes from, the standard errors are added, which is the worst case.
    """
    value, bias = one.value - other.value, one.bias + other.bias
    if not are_joint:
        mine, its = np.square(one.error), np.square(other.error)
        return Estimates(value, np.sqrt(mine + its), _add_degrees(mine, one.degrees, its, other.degrees), bias)
    if one.parts is None or other.parts is None:
        return Estimates(value, one.error + other.error, np.minimum(one.degrees, other.degrees), bias)
    block = max(one.parts.block, other.parts.block)
    mine, its = one.parts.merge(block).by_block, other.parts.merge(block).by_block
    n = min(len(mine), len(its))
    found = estimate_from_parts(value, Parts(mine[:n] - its[:n], block))
    is_known = np.isfinite(one.error) & np.isfinite(other.error)
    return found._replace(error=np.where(is_known, found.error, np.inf), bias=bias)
