"""Linear maps of symmetric matrices as matrices on their upper triangles, and powers of them by repeated squaring."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import Floats

Indices = NDArray[np.int64]


@lru_cache(maxsize=64)
def _upper(n: int) -> tuple[Indices, Indices]:
    rows, columns = np.triu_indices(n)
    return rows, columns


@lru_cache(maxsize=64)
def corner(n: int, d: int) -> Indices:
    """Return the indices in the triangle of an (n, n) matrix that form the triangle of its leading (d, d) block."""
    return np.flatnonzero(_upper(n)[1] < d)


def triangle(n: int) -> int:
    """Return the size of the upper triangle of an (n, n) matrix."""
    return n * (n + 1) // 2


def pack(X: Floats) -> Floats:
    """Return the upper triangle of (..., n, n) as (..., n (n + 1) / 2)."""
    rows, columns = _upper(X.shape[-1])
    return np.asarray(X[..., rows, columns])


def unpack(x: Floats, n: int) -> Floats:
    """Return the symmetric (..., n, n) matrix with this upper triangle.

    Examples
    --------
    >>> unpack(np.array([1.0, 2.0, 3.0]), 2)
    array([[1., 2.],
           [2., 3.]])
    """
    rows, columns = _upper(n)
    X = np.empty((*x.shape[:-1], n, n))
    X[..., rows, columns] = x
    X[..., columns, rows] = x
    return X


def outer(rows: Floats) -> Floats:
    """Return pack(v v^T) for each row v."""
    i, j = _upper(rows.shape[-1])
    return np.asarray(rows[..., i] * rows[..., j])


def quadratic(rows: Floats) -> Floats:
    """Return, for each row v, the weights with weights . pack(X) = v^T X v."""
    i, j = _upper(rows.shape[-1])
    return np.asarray(outer(rows) * np.where(i == j, 1.0, 2.0))


def operator(function: Callable[[Floats], Floats], n: int) -> Floats:
    """Return the matrix of a linear map of symmetric (n, n) matrices; ``function`` maps a stack (k, n, n) at once."""
    return np.ascontiguousarray(pack(function(unpack(np.eye(triangle(n)), n))).T)


def powers(T: Floats, exponents: Iterable[int]) -> dict[int, Floats]:
    """Return T^k for each k, by repeated squaring; the squares are shared."""
    wanted = sorted(set(exponents))
    result = {k: np.eye(len(T)) for k in wanted}
    square, bit = T, 1
    with np.errstate(over="ignore", invalid="ignore"):  # unstable maps overflow, which callers check
        while wanted and bit <= wanted[-1]:
            for k in wanted:
                if k & bit:
                    result[k] = square if k & (bit - 1) == 0 else result[k] @ square
            bit *= 2
            if bit <= wanted[-1]:
                square = square @ square
    return result


def orbit(T: Floats, x: Floats, counts: NDArray[np.int64]) -> Floats:
    """Return T^k x for each k in the increasing ``counts``, (len(counts), len(x))."""
    gaps = np.diff(counts, prepend=0)
    jumps = powers(T, gaps.tolist())
    path = np.empty((len(counts), len(x)))
    with np.errstate(over="ignore", invalid="ignore"):
        for i, gap in enumerate(gaps.tolist()):
            x = jumps[gap] @ x
            path[i] = x
    return path
