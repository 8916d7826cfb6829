"""Sums of pseudo-gradients over blocks of rows, for the closed form if the matrices of blocks do not fit into memory.

Each block has the sum of g_x at an anchor, which is the solution of earlier rows. At another theta the sum is
sum g_x(anchor) + sum A_x (theta - anchor). Here the A_x are replaced by the mean of all rows, so that the error is the
product of two small differences.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vrtd.arrays import Floats
from vrtd.problems import Transitions

_RIDGE = 1e-8  # relative to the mean squares of the features; an anchor need only be near the solution


class BlockGradients(NamedTuple):
    """Sums of g_x at one theta over all rows, and their values at the end of each block."""

    anchor: Floats  # (d,)
    total: Floats  # (d,)
    marks: tuple[Floats, ...] = ()  # (d,)

    def add(self, rows: Transitions) -> BlockGradients:
        """Return the sums after these rows."""
        return self._replace(total=self.total + sum_gradients(rows, self.anchor))

    def mark(self) -> BlockGradients:
        """Return the sums after the end of a block."""
        return self._replace(marks=(*self.marks, self.total))

    def move(self, theta: Floats, A: Floats, block: int) -> BlockGradients:
        """Return the sums at another theta for blocks of `block` rows; A (d, d) is the mean of A_x."""
        change = A @ (theta - self.anchor)
        marks = tuple(mark + (k + 1) * block * change for k, mark in enumerate(self.marks))
        return BlockGradients(theta, self.total + len(marks) * block * change, marks)

    def by_block(self) -> Floats:
        """Return the sums (B, d) over each block."""
        return np.diff(np.array([np.zeros_like(self.total), *self.marks]), axis=0)


def start_gradients(rows: Transitions, block: int, anchor: Floats) -> BlockGradients:
    """Return the sums over rows whose number is a multiple of `block`."""
    marks = np.add.accumulate(gradients_by_block(rows, block, anchor), axis=0)
    return BlockGradients(anchor, marks[-1], tuple(marks))


def gradients_by_block(rows: Transitions, block: int, theta: Floats) -> Floats:
    """Return the sums (B, d) of g_x at theta over each complete block."""
    ends = range(block, len(rows) + 1, block)
    return np.array([sum_gradients(rows.part(end - block, end), theta) for end in ends])


def sum_gradients(rows: Transitions, theta: Floats) -> Floats:
    """Return the sum (d,) of g_x at theta."""
    phi = rows.phi.astype(np.float64)
    td_error = rows.reward + rows.discount * (rows.phi_next.astype(np.float64) @ theta) - phi @ theta
    return np.asarray((td_error * rows.weight if rows.is_weighted else td_error) @ phi)


def find_anchor(total: Floats, squares: Floats) -> Floats | None:
    """Return the solution for some rows from their sums of (A_x, b_x) and of phi^2; None if it is not finite."""
    size = np.sqrt(np.where(squares > 0.0, squares, 1.0))
    scaled = total[:, :-1] / np.outer(size, size)
    scaled[np.diag_indices(len(size))] -= np.where(squares > 0.0, _RIDGE, 1.0)
    try:
        theta = -np.linalg.solve(scaled, total[:, -1] / size) / size
    except np.linalg.LinAlgError:
        return None
    return theta if np.isfinite(theta).all() else None
