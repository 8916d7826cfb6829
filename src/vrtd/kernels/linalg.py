"""Small vector operations."""

from __future__ import annotations

import math

from vrtd.kernels.jit import kernel


@kernel
def squared_norm(vector):
    """Return the squared Euclidean norm of a vector."""
    total = 0.0
    for i in range(vector.size):
        total += vector[i] * vector[i]
    return total


@kernel
def squared_norm_of_sum(left, right):
    """Return the squared Euclidean norm of ``left + right``."""
    total = 0.0
    for i in range(left.size):
        total += (left[i] + right[i]) * (left[i] + right[i])
    return total


@kernel
def shrinkage(squared_norm, radius):
    """Return the factor in (0, 1] that projects a vector with this squared norm onto the ball of this radius."""
    return radius / math.sqrt(squared_norm) if squared_norm > radius * radius else 1.0


@kernel
def quadratic_form(matrix, is_diagonal, centre, vector):
    """Return (vector - centre)^T matrix (vector - centre)."""
    total = 0.0
    for i in range(centre.size):
        if is_diagonal:
            row = matrix[i, i] * (vector[i] - centre[i])
        else:
            row = 0.0
            for j in range(centre.size):
                row += matrix[i, j] * (vector[j] - centre[j])
        total += row * (vector[i] - centre[i])
    return total
