"""The spectral radius of a linear map that preserves a cone, such as that of the positive-semidefinite matrices."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import numpy as np

from vrtd.arrays import Floats
from vrtd.errors import AccuracyError

# Arnoldi iteration (ARPACK): size of the basis, number of restarts, relative accuracy.
RADIUS_BASIS, RADIUS_RESTARTS, RADIUS_TOLERANCE = 60, 1000, 1e-9


def cone_radius(product: Callable[[Floats], Floats], start: Floats) -> float:
    """Return the spectral radius of the linear map ``product`` to 1e-9, or inf if it overflows.

    The radius of a map that preserves a cone is its rightmost eigenvalue. ``start``, a vector inside the cone, is never
    orthogonal to the eigenvector.

    >>> round(cone_radius(lambda x: x / [1.0, 2.0, 3.0, 4.0], np.ones(4)), 9)
    1.0
    """
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigs

    n = len(start)

    def finite_product(x: Floats) -> Floats:
        with np.errstate(over="ignore", invalid="ignore"):
            image = product(x)
        if not np.isfinite(image).all():
            raise OverflowError
        return image

    try:
        if n <= 2:  # too small for the iteration
            dense = np.stack([finite_product(unit) for unit in np.eye(n)], axis=1)
            return float(np.abs(np.linalg.eigvals(dense)).max())
        A, m = LinearOperator((n, n), finite_product, dtype=np.float64), min(n, RADIUS_BASIS)
        values = eigs(
            A, 1, which="LR", v0=start, ncv=m, maxiter=RADIUS_RESTARTS, tol=RADIUS_TOLERANCE, return_eigenvectors=False
        )
        return float(np.abs(values[0]))
    except OverflowError:
        return inf
    except ArpackNoConvergence:
        raise AccuracyError(
            f"The mean-square radius did not converge to a relative accuracy of {RADIUS_TOLERANCE:g}. "
            "Use another step size, or fewer features."
        ) from None
