"""An approximate inverse of A from kept sparse rows: epochs of VRTD, whose only memory is one workspace."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.algorithms import VRTD
from vrtd.algorithms.vrtd import SparseVRTDState, sparse_vrtd_settle, sparse_vrtd_step
from vrtd.arrays import Floats, aligned_empty, dot
from vrtd.engine.stream import row_of
from vrtd.errors import DivergenceError
from vrtd.estimator.rows import loop_columns
from vrtd.kernels.jit import borrow, specialise
from vrtd.kernels.sparse import add_row, entries, fetch, sparse_bootstrap_difference, sparse_td_error
from vrtd.problems import Transitions
from vrtd.sparse import part_of

FEW_EPOCHS = 2  # for a new anchor
_MOST_EPOCHS = 24  # for an estimate
_LEAST_STEPS = 1500  # inner steps of an epoch, of which there are as many as rows unless the algorithm says so
_LEAST_TESTED, _MOST_TESTED = 64, 4000  # kept rows from which the number of epochs is chosen
_SOLVED = 1e-3  # share of the pseudo-gradient that may be left
_LEAST_ENDED = 0.1  # sum of 1 - discount over rows from which a constant error is known; without any end it is not
_SLOW = 0.4  # mean of 1 - discount from which a constant error decays as fast as others
_MOST_VARIED = 0.1  # mean squared relative deviation of phi.c over rows, for a constant c


class SparseInverse:
    """Approximate inverse Q of -A: Q v is the w of VRTD for the system A w + v = 0, with A from some rows.

    A feature that is in none of these rows moves as in one pass over them.

    Parameters
    ----------
    algorithm : VRTD
        The step size, and the number of inner steps if it is limited.
    rows : Transitions
        Sparse rows in random order.
    n_epochs : int
        Number of epochs.
    """

    def __init__(self, algorithm: VRTD, rows: Transitions, n_epochs: int) -> None:
        self.rows, self._algorithm, self._n_epochs = rows, algorithm, n_epochs
        self._constant = find_constant(rows)

    def __call__(self, vector: Floats) -> Floats:
        """Return Q v."""
        epochs = _Epochs(self._algorithm, self.rows, vector, self._constant)
        for _ in islice(epochs, self._n_epochs):
            pass
        w = np.multiply(epochs.w, epochs.size, dtype=np.float64)
        return np.multiply(vector, self._algorithm.step_size * len(self.rows), out=w, where=epochs.is_new)


class EpochChoice(NamedTuple):
    """Number of epochs for Q v, and the error that is left."""

    n_epochs: int
    error: float = 0.0  # mean square of the error of phi.w over kept rows, as far as w and some more epochs show it
    rest: float = 0.0  # mean of the squares of v + A w, each divided by the mean square of its feature


def choose_epochs(algorithm: VRTD, rows: Transitions, vector: Floats) -> EpochChoice:
    """Return the number of epochs of `SparseInverse` for which Q v is most accurate.

    With too few epochs, Q v is not yet the solution; with too many, it follows the noise of the rows. The variance of
    w follows from the difference between the solutions of two halves of the rows. Its bias is the distance of their
    mean from that after the last epoch, less what the variance explains. If all epochs are too short, this bias is too
    small, but v + A w is still large, for each feature or in the direction of w. There, w and A come from different
    halves, so that their noise causes no bias.
    """
    if len(rows) < _LEAST_TESTED:
        return EpochChoice(FEW_EPOCHS)
    phi, best, errors = part_of(rows.phi, 0, _MOST_TESTED), 1, np.zeros(1)
    constant = find_constant(rows)
    halves = [_Epochs(algorithm, rows, vector, constant, first, 2) for first in (0, 1)]
    found: list[Any] = []
    for _ in islice(zip(*halves, strict=False), _MOST_EPOCHS):
        found.append([phi @ half.w for half in halves])
        one, other = np.array(found, dtype=np.float64).transpose(1, 0, 2)
        mean, noise = (one + other) / 2.0, (one - other) / 2.0
        bias = np.square(mean - mean[-1]).mean(axis=1) - np.square(noise - noise[-1]).mean(axis=1)
        errors = np.maximum(bias, 0.0) + np.square(noise).mean(axis=1)
        best = 1 + int(np.argmin(errors))
        if len(found) >= 2 * best + 2:
            break
    if not found:  # there is nothing left to correct
        return EpochChoice(best)
    squares = np.zeros(len(vector))
    specialise(_add_squares, "add_squares", {})(loop_columns(rows)[0], squares)
    is_known = ~(halves[0].is_new | halves[1].is_new) & (squares > 0.0)
    left, share = [], 1.0  # of w, by which w is too short
    for half, other in (halves, halves[::-1]):
        left.append(half.gradient_on(other)[is_known].astype(np.float64))
        w = half.w[is_known]
        rest, whole = (dot(x, w) for x in (left[-1], vector[is_known] / half.size))
        share *= max(rest, 0.0) / (whole - rest) if whole > rest else 1.0
    error = max(float(errors[best - 1]), share * float(np.square(mean[-1]).mean()))
    products = left[0] * left[1] / squares[is_known]
    rest = len(rows) * float(products.mean()) if len(products) else 0.0
    scale = halves[0].size ** 2
    return EpochChoice(best, error * scale, max(rest, 0.0) * scale)


def find_constant(rows: Transitions) -> NDArray[np.float32] | None:
    """Return parameters c with about the same phi.c in all rows, or None.

    They are those of features with only one value that is not 0, such as tiles, categories and a column of ones.
    """
    values = np.zeros(rows.n_features, np.float32)
    specialise(_find_values, "find_values", {})(loop_columns(rows)[0], values)
    c = np.divide(1.0, values, out=np.zeros_like(values), where=np.isfinite(values) & (values != 0.0))
    sums = np.asarray(rows.phi @ c, dtype=np.float64)
    mean = float(sums.mean())
    if not mean > 0.0 or np.square(sums / mean - 1.0).mean() > _MOST_VARIED:
        return None
    c /= mean
    return c


def td_errors(rows: Transitions, theta: Floats) -> Floats:
    """Return the TD error of each row, times its weight."""
    suffix, bindings = _of_weights(rows)
    out = np.empty(len(rows))
    specialise(_td_errors, f"td_errors{suffix}", bindings)(*loop_columns(rows), theta, out)
    return out


def _of_weights(rows: Transitions) -> tuple[str, dict[str, Any]]:
    return "_weighted" if rows.is_weighted else "", {"IS_WEIGHTED": rows.is_weighted}


class _Epochs:
    """Epochs of VRTD for the system A w + v = 0, from w = 0, with A from every `stride`-th row from `first` on.

    The batch of each epoch consists of all these rows, and the inner loop goes through them one after the other,
    `stride` times. For each coordinate, the table has w so far, the pseudo-gradient v + A w, and two numbers for the
    inner loop, in single precision and divided by the size of v.

    With a discount near 1, a constant error of all values decays slowly, so before each inner loop a multiple of a
    constant c is added to w, such that c.(v + A w) = 0.
    """

    def __init__(
        self, algorithm: VRTD, rows: Transitions, vector: Floats, constant: Any, first: int = 0, stride: int = 1
    ) -> None:
        self._algorithm, self._vector = replace(algorithm, output="tail", growth=algorithm.growth or 2.0), vector
        self._columns, self._rows = loop_columns(rows), (first, stride, len(range(first, len(rows), stride)))
        self._n_steps = int(algorithm.n_steps or max(_LEAST_STEPS, len(rows)))
        self.size = sqrt(dot(vector, vector))
        self._table = aligned_empty((len(vector), 4), np.float32)
        self._table[...] = 0.0
        suffix, bindings = _of_weights(rows)
        self._add_product = specialise(_add_product, f"add_product{suffix}", bindings)
        bindings |= {"OPTIONS": self._algorithm.options()}
        self._run_inner_loop = specialise(_run_inner_loop, f"run_inner_loop{suffix}", bindings)
        self.is_new = np.ones(len(vector), np.bool_)  # features that are in none of the rows
        specialise(_find_features, "find_features", {})(self._columns[0], *self._rows, self.is_new)
        self._constant, self._slope = constant, 0.0
        if constant is not None:
            self._table[:, 0] = constant
            self._add_product(*self._columns, *self._rows, self._table.ravel())
            self._constant_product = self._table[:, 1].copy()
            self._slope = dot(constant, self._constant_product)
            self._table[...] = 0.0

    @property
    def w(self) -> NDArray[np.float32]:
        """The solution so far, divided by the size of v, as a view."""
        return self._table[:, 0]

    def gradient_on(self, other: _Epochs) -> NDArray[np.float32]:
        """Return v + A w, divided by the size of v, with A from the rows of another one, as a view."""
        gradient, table = self._table[:, 1], self._table.ravel()
        np.divide(self._vector, self.size, out=gradient, casting="same_kind")
        self._add_product(*self._columns, *other._rows, table)
        return gradient

    def __iter__(self) -> Iterator[None]:
        """Yield after each epoch, until the pseudo-gradient is small."""
        gradient, table, first = self._table[:, 1], self._table.ravel(), None
        while self.size > 0.0:
            np.divide(self._vector, self.size, out=gradient, casting="same_kind")
            gradient[self.is_new] = 0.0
            if first is None:
                first = sqrt(dot(gradient, gradient))
            else:
                self._add_product(*self._columns, *self._rows, table)
            if _LEAST_ENDED / self._rows[2] < -self._slope < _SLOW:
                share = -dot(self._constant, gradient) / self._slope
                self.w[...] += np.float32(share) * self._constant
                gradient += np.float32(share) * self._constant_product
            rest = sqrt(dot(gradient, gradient))
            if not np.isfinite(rest):
                raise DivergenceError(
                    f"The inner loop of vrtd diverged with the step size {self._algorithm.step_size:g}. Lower the "
                    "step size."
                )
            if rest <= _SOLVED * first:
                return
            self._run_inner_loop(self._algorithm.params(), *self._columns, *self._rows, self._n_steps, table)
            yield


IS_WEIGHTED: Any = True
OPTIONS: Any = ()


def _run_inner_loop(params, phi, reward, phi_next, discount, weight, ends, first, stride, n_rows, n_steps, table):  # type: ignore[no-untyped-def]
    """Make the inner steps of an epoch, and add its move to w."""
    params, phi, phi_next = borrow(params), borrow(phi), borrow(phi_next)
    reward, discount, ends, weight = borrow(reward), borrow(discount), borrow(ends), borrow(weight)
    state = SparseVRTDState(table, np.zeros(4))
    state.numbers[0], state.numbers[3] = n_steps - 1, params.step_size
    for t in range(n_steps):
        i = first + stride * (t % n_rows)
        fetch(table, 4, phi, phi_next, i + stride)
        x = row_of(phi, phi_next, reward, discount, weight, ends, IS_WEIGHTED, i)
        sparse_vrtd_step(params, OPTIONS, state, x, t, 0)
    for i in range(table.size // 4):
        sparse_vrtd_settle(params, OPTIONS, state, i)


def _add_product(phi, reward, phi_next, discount, weight, ends, first, stride, n_rows, table):  # type: ignore[no-untyped-def]
    """Add A w to the pseudo-gradient."""
    phi, phi_next = borrow(phi), borrow(phi_next)
    reward, discount, ends, weight = borrow(reward), borrow(discount), borrow(ends), borrow(weight)
    for j in range(n_rows):
        fetch(table, 4, phi, phi_next, first + stride * (j + 1))
        x = row_of(phi, phi_next, reward, discount, weight, ends, IS_WEIGHTED, first + stride * j)
        add_row(table, 4, 1, x.weight * sparse_bootstrap_difference(table, 4, 0, x) / n_rows, x)


def _add_squares(phi, squares):  # type: ignore[no-untyped-def]
    """Add up the squares of each feature."""
    for e in range(phi.values.size):
        squares[phi.columns[e]] += np.float64(phi.values[e]) ** 2


def _find_values(phi, values):  # type: ignore[no-untyped-def]
    """Set the value of each feature that is not 0, nan if there are several values."""
    for e in range(phi.values.size):
        x, k = np.float32(phi.values[e]), phi.columns[e]
        if x != 0.0:
            values[k] = x if values[k] == 0.0 or values[k] == x else np.float32(np.nan)


def _find_features(phi, first, stride, n_rows, is_new):  # type: ignore[no-untyped-def]
    """Mark the features of some rows as not new."""
    for j in range(n_rows):
        begin, end = entries(phi, np.uint64(first + stride * j))
        for e in range(begin, end):
            is_new[phi.columns[e]] = False


def _td_errors(phi, reward, phi_next, discount, weight, ends, theta, out):  # type: ignore[no-untyped-def]
    for j in range(reward.size):
        fetch(theta, 1, phi, phi_next, j + 1)
        x = row_of(phi, phi_next, reward, discount, weight, ends, IS_WEIGHTED, j)
        out[j] = x.weight * sparse_td_error(theta, 1, 0, x)
