"""Counts of logged actions in cells of similar states.

Features extrapolate: a line fitted to the rows of an action gives values for states in which the action was never
taken. Cells do not extrapolate. They are made by splitting the states repeatedly at the median of one of their numbers,
namely the one whose two halves differ most in the logged actions.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import Floats
from vrtd.features.features import as_rows

# These sizes gave no false warning on logs with good overlap: 1,000 to 20,000 rows, states of 1 to 8 numbers, and the
# target's action in at least 5 % of the rows in every state.
_LEAST_ROWS = 200  # of a cell, per action
_MOST_HALVINGS = 5
_MOST_NUMBERS = 64  # of an observation; single numbers of larger ones, such as pixels, are not informative
_QUARTERS = (0.25, 0.5, 0.75)


@dataclass(frozen=True, eq=False)
class Cells:
    """Cells of the states of a log, with counts of the actions taken in them."""

    cell: NDArray[np.int64]  # (n,) cell of each row
    visits: Floats  # (k, cells, A) number of rows, for each of the k numbers in an action
    edges: Floats | None = None  # (k, 3) edges between the four ranges of a continuous action

    def count(self, rows: NDArray[np.int64], actions: NDArray[Any]) -> Floats:
        """Return the number of logged rows with this action in the cell of each row; for vectors, the least count."""
        kinds = _number_actions(actions, self.edges)
        counts = self.visits[np.arange(len(kinds))[:, None], self.cell[rows], kinds]
        return np.asarray(counts.min(axis=0))


def make_cells(observations: NDArray[Any], actions: NDArray[Any], n_actions: int) -> Cells | None:
    """Return cells of the states of a log; None if there are too few rows or too many numbers per state.

    Parameters
    ----------
    observations : array of shape (n, ...)
        The states.
    actions : array of shape (n,) or (n, k)
        The actions of the log.
    n_actions : int
        The number of discrete actions; 0 for continuous ones.

    Returns
    -------
    Cells or None
        The cells.
    """
    n_kinds = n_actions or len(_QUARTERS) + 1
    least = _LEAST_ROWS * n_kinds
    if len(observations) < least or prod(observations.shape[1:]) > _MOST_NUMBERS:
        return None
    edges = None if n_actions else np.quantile(_columns(actions), _QUARTERS, axis=1).T
    kinds = _number_actions(actions, edges)
    cell = _halve(as_rows(observations), np.concatenate(np.eye(n_kinds)[kinds], axis=1), least)
    return Cells(cell, _count_visits(cell, kinds, n_kinds), edges)


def make_cells_of_table(states: NDArray[np.int64], actions: NDArray[Any], n_actions: int) -> Cells | None:
    """Return one cell per numbered state (n,); None if there are too few rows for the actions."""
    if len(states) < _LEAST_ROWS * n_actions:
        return None
    cell = np.unique(states, return_inverse=True)[1].reshape(-1)
    return Cells(cell, _count_visits(cell, _number_actions(actions, None), n_actions))


def _count_visits(cell: NDArray[np.int64], kinds: NDArray[np.int64], n_kinds: int) -> Floats:
    n_cells = int(cell.max()) + 1
    counts = [np.bincount(cell * n_kinds + kind, minlength=n_cells * n_kinds) for kind in kinds]
    return np.array(counts, np.float64).reshape(len(kinds), n_cells, n_kinds)


def _number_actions(actions: NDArray[Any], edges: Floats | None) -> NDArray[np.int64]:
    """Return discrete actions as (1, n), or the range of each number in continuous actions as (k, n)."""
    columns = _columns(actions)
    if edges is None:
        return columns.astype(np.int64)
    return np.array([np.searchsorted(edge, column, side="right") for edge, column in zip(edges, columns, strict=True)])


def _columns(actions: NDArray[Any]) -> NDArray[Any]:
    """Return actions (n,) or (n, k) as (k, n)."""
    return actions.reshape(len(actions), -1).T


def _halve(states: NDArray[np.floating[Any]], taken: Floats, least: int) -> NDArray[np.int64]:
    """Return the cell (n,) of each state; `taken` (n, m) is 1 for the actions that were taken."""
    cells = [np.arange(len(states))]
    for _ in range(_MOST_HALVINGS):
        cells = [part for rows in cells for part in _halve_cell(states[rows], taken[rows], rows, least)]
    cell = np.empty(len(states), np.int64)
    for number, rows in enumerate(cells):
        cell[rows] = number
    return cell


def _halve_cell(
    states: NDArray[np.floating[Any]], taken: Floats, rows: NDArray[np.int64], least: int
) -> list[NDArray[np.int64]]:
    """Split the rows into two parts; return one part if no number of the states has enough rows on both sides."""
    parts, largest = [rows], -1.0
    if len(rows) < 2 * least:
        return parts
    for number in states.T:
        middle = np.median(number)
        for is_above in (number > middle, number >= middle):  # many states may be at the median
            n_above = int(is_above.sum())
            if not least <= n_above <= len(rows) - least:
                continue
            differs = float(np.abs(taken[is_above].mean(axis=0) - taken[~is_above].mean(axis=0)).sum())
            if differs > largest:
                parts, largest = [rows[~is_above], rows[is_above]], differs
    return parts
