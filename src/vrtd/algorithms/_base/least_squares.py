"""Parts of the least-squares methods: hyperparameters, the trace of a transition, and a dense linear system."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from vrtd.algorithms._base.algorithm import Algorithm, Tuned
from vrtd.checks import check_fraction, check_positive
from vrtd.kernels.jit import kernel


class LeastSquaresParams(NamedTuple):
    trace_decay: float
    ridge: float


@kernel
def update_trace(z, psi, memory, trace_decay, x):
    """Set z <- rho (c lambda z + phi) and psi <- phi - gamma phi'; return whether this sample set the scale.

    ``memory`` holds c, of the previous sample on entry and of this one on exit, and the scale. The scale is
    ``|phi|^2 + |gamma phi'|^2`` of the first sample for which it is not 0.
    """
    decay, scale = memory[0] * trace_decay, 0.0
    for i in range(z.size):
        phi, following = x.phi[x.row, i], x.discount * x.phi_next[x.row_next, i]
        z[i] = x.weight * (decay * z[i] + phi)
        psi[i] = phi - following
        scale += phi * phi + following * following
    memory[0] = x.carry
    decides = memory[1] == 0.0 and scale > 0.0
    if decides:
        memory[1] = scale
    return decides


@kernel
def solve_in_place(matrix, vector):
    """Solve a linear system by elimination with partial pivoting, overwriting ``vector`` and the flat ``matrix``.

    If a pivot is 0, there is no solution: the vector becomes NaN, and the matrix stays finite.
    """
    d = vector.size
    for k in range(d):
        pivot = k
        for i in range(k + 1, d):
            if abs(matrix[i * d + k]) > abs(matrix[pivot * d + k]):
                pivot = i
        if matrix[pivot * d + k] == 0.0:
            for i in range(d):
                vector[i] = np.nan
            break
        if pivot != k:
            vector[k], vector[pivot] = vector[pivot], vector[k]
            for j in range(k, d):
                matrix[k * d + j], matrix[pivot * d + j] = matrix[pivot * d + j], matrix[k * d + j]
        for i in range(k + 1, d):
            factor = matrix[i * d + k] / matrix[k * d + k]
            vector[i] -= factor * vector[k]
            for j in range(k + 1, d):
                matrix[i * d + j] -= factor * matrix[k * d + j]
    for k in range(d - 1, -1, -1):
        for j in range(k + 1, d):
            vector[k] -= matrix[k * d + j] * vector[j]
        vector[k] /= matrix[k * d + k]


@dataclass(frozen=True)
class LeastSquaresMethod(Algorithm):
    """Base of the least-squares methods, which keep a matrix and need no step size.

    Parameters
    ----------
    trace_decay : float, default=0.0
        Trace decay lambda.
    ridge : float, default=1e-3
        Ridge parameter, relative to the squared norms of the first features.
    """

    trace_decay: float = 0.0
    ridge: float = 1e-3

    n_scalars = 2
    cost = "quadratic"
    tuned = {"ridge": Tuned((1e-4, 1e3)), "trace_decay": Tuned((0.0, 0.5, 0.9))}

    def __post_init__(self) -> None:
        check_fraction("trace_decay", self.trace_decay)
        check_positive("ridge", self.ridge)

    @property
    def needs_trajectory(self) -> bool:
        return self.trace_decay > 0

    def params(self) -> LeastSquaresParams:
        return LeastSquaresParams(float(self.trace_decay), float(self.ridge))
