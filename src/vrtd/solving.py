"""Small dense linear systems: solution with scaled columns, and errors and warnings for ill-conditioned ones."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from vrtd.arrays import Floats
from vrtd.errors import AccuracyWarning, SingularSystemError

_EPSILON = float(np.finfo(np.float64).eps)
_ILL_CONDITIONED = 1e12  # a solution may then have only four correct digits
_MARGIN = 10.0  # for the error of an estimated condition number
_HARMLESS = 1e9  # smaller condition numbers cause neither a warning nor an error


def check_invertible(condition: float, n: int, problem: str, remedy: str, stacklevel: int) -> None:
    """Raise SingularSystemError if an n x n matrix is singular to rounding, and warn if it is nearly singular."""
    if not condition * n * _EPSILON < 1.0:
        raise SingularSystemError(problem, remedy)
    if condition > _ILL_CONDITIONED:
        warnings.warn(
            f"A has condition number {condition:.2g}, so the relative error of the fixed point may be as large as "
            f"{condition * _EPSILON:.1g}. Remove nearly dependent features, or bring their columns to the same "
            "scale.",
            AccuracyWarning,
            stacklevel=stacklevel + 1,
        )


def condition_number(A: Floats) -> float:
    """Return the condition number of A in the spectral norm, or an upper bound of it below 1e9.

    The condition number in the 1-norm costs a fraction of a singular value decomposition and is at least 1/d of the
    spectral condition number.

    >>> condition_number(np.diag([1.0, 2.0])) < 1e9, condition_number(np.diag([1.0, 1e-10])) > 9e9
    (True, True)
    """
    try:
        bound = len(A) * float(np.linalg.norm(A, 1) * np.linalg.norm(np.linalg.inv(A), 1))
    except np.linalg.LinAlgError:
        return np.inf
    return bound if bound < _HARMLESS else float(np.linalg.cond(A))


def solve_scaled(A: Floats, b: Floats, size: Floats) -> Floats:
    """Solve A x = b for columns b, with rows and columns of A divided by the sizes of the features.

    Features of very different sizes then do not make A look singular.
    """
    across = size.reshape(-1, *(1,) * (b.ndim - 1))
    return np.asarray(np.linalg.solve(A / np.outer(size, size), b / across) / across)


class LeastNormSolver(NamedTuple):
    """Solver of A x = b in the directions that A determines. In the other directions, x is 0."""

    solve: Callable[[Floats], Floats]  # for A with rows and columns divided by `size`
    null: Floats  # (n, n - r) directions that A does not determine
    size: Floats  # (n,)

    def __call__(self, b: Floats) -> Floats:
        """Return the solution for a vector b, or for the columns of a matrix b."""
        across = self.size.reshape(-1, *(1,) * (b.ndim - 1))
        return np.asarray(self.solve(b / across) / across)


def least_norm_solver(A: Floats, size: Floats) -> LeastNormSolver | None:
    """Return a solver of A x = b, or None if A is 0 or not finite.

    Rows and columns of A are divided by the sizes of the features. Singular values below 1e-12 of the largest one count
    as 0. They are computed only if there may be any.

    >>> solver = least_norm_solver(np.array([[2.0, 2.0], [2.0, 2.0]]), np.ones(2))
    >>> solver(np.array([4.0, 4.0])).round(12).tolist()
    [1.0, 1.0]
    """
    scaled = A / np.outer(size, size)
    if not np.isfinite(scaled).all():
        return None
    factors = _factorise(scaled)
    if factors is not None:
        return LeastNormSolver(factors, np.zeros((len(size), 0)), size)
    left, singular, right = np.linalg.svd(scaled)
    rank = int((singular > singular[0] / _ILL_CONDITIONED).sum())
    if rank == 0:
        return None

    def solve(b: Floats) -> Floats:
        return np.asarray(right[:rank].T @ ((left[:, :rank].T @ b).T / singular[:rank]).T)

    return LeastNormSolver(solve, right[rank:].T, size)


def _factorise(A: Floats) -> Callable[[Floats], Floats] | None:
    """Return a solver of A x = b by LU factors, which is much faster, or None unless A is clearly invertible."""
    from scipy.linalg import lapack

    lu, pivots, status = lapack.dgetrf(A)
    if status != 0:
        return None
    reciprocal, status = lapack.dgecon(lu, np.linalg.norm(A, 1))  # of the estimated condition number in the 1-norm
    if status != 0 or not reciprocal * _ILL_CONDITIONED > _MARGIN * len(A):
        return None
    return lambda b: np.asarray(lapack.dgetrs(lu, pivots, b)[0])
