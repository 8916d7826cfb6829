"""The spectral radius of a linear map of matrices that keeps the cone of the positive-semidefinite ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vrtd.arrays import Floats
from vrtd.errors import AccuracyError

# Arnoldi's iteration: size of a basis, number of restarts, accepted relative residual.
RADIUS_BASIS, RADIUS_RESTARTS, RADIUS_TOLERANCE = 40, 100, 1e-9


def cone_radius(image_of: Callable[[Floats], Floats], d: int) -> float:
    """Of a map of (d, d) matrices; inf where it overflows.

    The radius of such a map is its rightmost eigenvalue, and the identity, inside the cone, is never orthogonal to it.
    Arnoldi's iteration starts there (power iteration with memory: same products, far fewer) and restarts from the Ritz
    matrix until its relative residual is below 1e-9.

    >>> round(cone_radius(lambda S: 0.25 * S, 2), 12)
    0.25
    """
    size = min(d * (d + 1) // 2, RADIUS_BASIS)
    x = np.eye(d).ravel()
    for _ in range(RADIUS_RESTARTS):
        basis, H = np.zeros((size + 1, d * d)), np.zeros((size + 1, size))
        basis[0] = x / np.linalg.norm(x)
        for k in range(size):
            with np.errstate(over="ignore", invalid="ignore"):
                image = image_of(basis[k].reshape(d, d)).flatten()
                scale = float(np.linalg.norm(image))
            if not np.isfinite(scale):
                return float("inf")
            for _ in range(2):  # twice is enough for orthogonality
                part = basis[: k + 1] @ image
                H[: k + 1, k] += part
                image -= part @ basis[: k + 1]
            H[k + 1, k] = np.linalg.norm(image)
            if H[k + 1, k] <= 1e-13 * scale:  # the basis spans an invariant subspace
                break
            basis[k + 1] = image / H[k + 1, k]
        values, vectors = np.linalg.eig(H[: k + 1, : k + 1])
        i = int(values.real.argmax())
        x = vectors[:, i].real @ basis[: k + 1]
        radius = float(values[i].real)
        if H[k + 1, k] * abs(vectors[k, i]) <= RADIUS_TOLERANCE * max(abs(radius), 1e-12):
            return radius
    raise AccuracyError(
        f"the mean-square radius must be found to {RADIUS_TOLERANCE:g}; got no convergence at {radius:.9g}; "
        f"use fewer features"
    )
