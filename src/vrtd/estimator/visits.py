"""Counts of visits to regions of the observation space, for observations of one or two numbers, in bounded memory."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import Floats

Integers = NDArray[np.int64]

_CELLS_LOG2 = 16  # of the number of cells; up to this many numbered states are counted one by one
_LEAST_POWER = -1074  # log2 of the smallest positive float
_DIGITS = 52  # bits of a cell index, so that no index is rounded


class VisitCounts:
    """Count observations in cells of a grid that covers all of them.

    The sides of a cell are powers of two, and its edges are multiples of them. When the observations leave the grid,
    cells are merged in pairs. Therefore the counts depend only on the rows, not on their order or on chunk sizes.
    """

    def __init__(self, n_numbers: int) -> None:
        self.n_rows = 0
        self.low: Floats = np.full(n_numbers, np.inf)
        self.high: Floats = np.full(n_numbers, -np.inf)
        self.is_whole: NDArray[np.bool_] = np.ones(n_numbers, bool)  # whether all of them are whole numbers
        self._n_side = 1 << _CELLS_LOG2 // n_numbers
        # The cell with index i is stored at i modulo the number of cells, so that the range can grow both ways.
        self._counts: Integers = np.zeros((self._n_side,) * n_numbers, np.int64)
        self._powers: Integers = np.full(n_numbers, _LEAST_POWER)  # log2 of the sides of a cell

    def add(self, observations: NDArray[Any]) -> None:
        """Count observations of shape (n, n_numbers). Chunks that are not finite are skipped; a fit refuses them."""
        rows = observations.astype(np.float64)
        low, high = np.minimum(self.low, rows.min(axis=0)), np.maximum(self.high, rows.max(axis=0))
        if not (np.isfinite(low) & np.isfinite(high)).all():
            return
        if (low < self.low).any() or (high > self.high).any():
            self._widen(low, high)
        self.is_whole &= (rows == np.rint(rows)).all(axis=0)
        cells = _cells(rows, self._powers).astype(np.int64) % self._n_side
        np.add.at(self._counts, tuple(cells.T), 1)
        self.n_rows += len(rows)

    def near(self, points: NDArray[Any], share: float) -> Integers:
        """Return the number of rows in cells within this share of the range of each number around each point.

        >>> visits = VisitCounts(1)
        >>> visits.add(np.array([[0.0], [0.5], [10.0]]))
        >>> visits.near(np.array([[0.0], [5.0], [10.0], [99.0]]), 0.1)
        array([2, 0, 1, 0])
        """
        first, last = (_cells(ends, self._powers).astype(np.int64) for ends in (self.low, self.high))
        sums = self._counts[np.ix_(*(np.arange(f, e + 1) % self._n_side for f, e in zip(first, last, strict=True)))]
        for axis in range(sums.ndim):
            sums = np.insert(sums.cumsum(axis=axis), 0, 0, axis=axis)
        with np.errstate(over="ignore", invalid="ignore"):  # points may be far away
            reach = np.floor(np.ldexp(share * (self.high - self.low), -self._powers))
            middle = _cells(points.astype(np.float64), self._powers) - first
            starts, stops = (
                np.clip(ends, 0, last - first + 1).astype(np.int64) for ends in (middle - reach, middle + reach + 1)
            )
        total = np.zeros(len(points), np.int64)
        for corner in product((False, True), repeat=sums.ndim):  # a box is a signed sum of boxes at the origin
            ends = np.where(corner, starts, stops)
            total += (-1) ** sum(corner) * sums[tuple(ends.T)]
        return total

    def _widen(self, low: Floats, high: Floats) -> None:
        """Merge cells until the grid covers this range."""
        most = np.maximum(np.abs(low), np.abs(high))
        powers = np.maximum(self._powers, np.where(most > 0.0, np.frexp(most)[1] - _DIGITS, _LEAST_POWER))
        while (is_wide := _cells(high, powers) - _cells(low, powers) >= self._n_side).any():
            powers += is_wide
        if self.n_rows and (powers > self._powers).any():
            first, shift = _cells(self.low, self._powers).astype(np.int64), np.minimum(powers - self._powers, 63)
            places = np.nonzero(self._counts)
            cells = (first + (np.stack(places, axis=-1) - first) % self._n_side) >> shift
            merged = np.zeros_like(self._counts)
            np.add.at(merged, tuple((cells % self._n_side).T), self._counts[places])
            self._counts = merged
        self.low, self.high, self._powers = low, high, powers


def _cells(numbers: Floats, powers: Integers) -> Floats:
    """Return the index of the cell of each number."""
    return np.floor(np.ldexp(numbers, -powers))
