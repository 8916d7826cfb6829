"""Estimates from the rows of a trajectory: the drift of TD, E[A_x S A_x^T], and whether the rows suffice."""

from __future__ import annotations

import numpy as np

from vrtd.arrays import Floats
from vrtd.errors import InvalidInputError, SingularSystemError
from vrtd.problems import Transitions
from vrtd.theory.symmetric import outer, pack, quadratic, triangle, unpack

# Size of the arrays that are computed at once.
_PIECE = 1 << 21
# Up to this many features E[A_x S A_x^T] is stored as a matrix on packed S.
_MOST_MAPPED = 24


def check_rows(rows: Transitions) -> None:
    """Raise unless ``rows`` are Transitions."""
    if not isinstance(rows, Transitions):
        raise InvalidInputError(
            f"sample must be Transitions, but is of type {type(rows).__name__}.", "Build them, or call vrtd.record."
        )


def check_full_rank(rows: Transitions) -> None:
    """Raise unless the features of the rows are linearly independent."""
    check_rows(rows)
    if rows.rank < rows.n_features:
        raise InvalidInputError(
            f"phi must have full column rank {rows.n_features} on the sample, but has rank {rows.rank}.",
            "Remove dependent features, or use more transitions.",
        )


def why_unstable(rows: Transitions) -> str | None:
    """Return why the rows do not determine a stable system, or None if they do; the features must have full rank."""
    n, r = len(rows), rows.n_features
    if r == 0:
        return "all features are 0"
    if n < 2 * r:
        return f"there are only {n} rows for {r} independent features"
    try:
        rows.theta_star  # noqa: B018 - raises if A is singular
    except SingularSystemError:
        return "A is singular on the sample"
    values = np.linalg.eigvals(rows.A).real
    if values.max() >= 0.0:
        return f"A is not stable on the sample: it has an eigenvalue with real part {values.max():.3g}"
    return None


def drift(rows: Transitions) -> Floats:
    """Return (d,) the sum over lags k >= 1 of E[(A_k - A) g_0(theta_star)].

    Each update is correlated with the rows that follow it. So the mean of TD converges to -step A^-1 drift instead of
    to 0.
    """
    n = len(rows)
    sums = np.concatenate([np.zeros((1, rows.n_features)), np.cumsum(rows.noise, axis=0)])
    before = sums[:-1] - sums[np.maximum(np.arange(n) - rows.summed_lags, 0)]
    total: Floats = rows.left.T @ np.einsum("ni,ni->n", rows.psi, before) / n - rows.A @ before.mean(axis=0)
    return total


class MeanSquare:
    """The map S -> E[A_x S A_x^T] over rows, or over every ``stride``-th of them."""

    def __init__(self, rows: Transitions, stride: int = 1) -> None:
        self._left, self._psi = rows.left[::stride], rows.psi[::stride]
        self._map: Floats | None = None  # with few features the map is evaluated hundreds of times
        if stride == 1 and rows.n_features <= _MOST_MAPPED:
            size = triangle(rows.n_features)
            self._map = np.zeros((size, size))
            piece = max(1, _PIECE // size)
            for first in range(0, len(rows), piece):
                some = slice(first, first + piece)
                self._map += outer(self._left[some]).T @ quadratic(self._psi[some])
            self._map /= len(rows)

    def __call__(self, S: Floats) -> Floats:
        """Return E[A_x S A_x^T]."""
        if self._map is not None:
            return unpack(self._map @ pack((S + S.T) / 2.0), len(S))
        form = np.einsum("ni,ni->n", self._psi @ S, self._psi)
        product: Floats = (self._left * (form / len(form))[:, None]).T @ self._left
        return product
