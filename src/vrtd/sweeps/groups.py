"""Groups of cells that take about a second each, from the times of the groups that are finished."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from vrtd.sweeps.cell import MeasuredCells

_SECONDS = 1.0  # of a group
_LEAST_SECONDS = 0.1  # of the last groups, so that all workers end together
_SHARE_OF_REST = 1 / 16
# Seconds of a cell before any has been timed: per cell and per pseudo-gradient. Until a loop has been timed, its groups
# are short.
_GUESS, _GUESS_PER_GRADIENT, _FIRST_SECONDS = 1e-3, 2e-8, 0.25


class Groups:
    """Groups of cells in the order of their compiled loops.

    Parameters
    ----------
    cells : ndarray of int
        Numbers of the cells.
    loops : ndarray of int
        Number of the compiled loop of every cell of the sweep.
    n_gradients : int
        Pseudo-gradients of one cell, those of all runs together.
    """

    def __init__(self, cells: NDArray[np.int64], loops: NDArray[np.int64], n_gradients: int) -> None:
        self._cells = cells[np.argsort(loops[cells], kind="stable")]
        self._loops = loops
        self._guess = _GUESS + _GUESS_PER_GRADIENT * n_gradients
        self._times: dict[int, tuple[int, float]] = {}  # cells and seconds of each loop

    def add_times(self, measured: MeasuredCells) -> None:
        """Take account of the time of a finished group."""
        loop = int(self._loops[measured.cells[0]])
        n, seconds = self._times.get(loop, (0, 0.0))
        self._times[loop] = n + len(measured.cells), seconds + measured.seconds

    def __iter__(self) -> Iterator[NDArray[np.int64]]:
        """Yield groups; a group has one compiled loop."""
        ordered = self._loops[self._cells]
        ends = np.append(np.flatnonzero(np.diff(ordered)) + 1, len(ordered))
        first = 0
        while first < len(ordered):
            end = int(ends[np.searchsorted(ends, first, side="right")])
            loop = int(ordered[first])
            seconds = self._cell_seconds(loop)
            rest = (len(ordered) - first) * seconds
            longest = _SECONDS if loop in self._times else _FIRST_SECONDS
            target = min(longest, max(_SHARE_OF_REST * rest, _LEAST_SECONDS))
            last = min(first + max(round(target / seconds), 1), end)
            yield self._cells[first:last]
            first = last

    def _cell_seconds(self, loop: int) -> float:
        n, seconds = self._times.get(loop, (0, 0.0))
        if not n:  # other loops are a better guess than none
            n, seconds = (sum(each) for each in zip((0, 0.0), *self._times.values(), strict=True))
        return max(seconds / n, 1e-6) if n else self._guess
