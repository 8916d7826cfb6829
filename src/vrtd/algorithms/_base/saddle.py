"""What the methods for a fixed data set share: the saddle point that they look for, and its gradients.

With A, b, C the means over the rows of rho phi psi^T, rho r phi, phi phi^T, psi = discount phi' - phi, the mean squared
projected Bellman error is a maximum over w,

    1/2 |A theta + b|^2 in the norm of C^{-1}  =  max_w  w.(A theta + b) - 1/2 w.C w,

so the least-squares solution is half of a saddle point, the other half of which is w = 0. One row has the gradients

    in theta:  rho (phi.w) psi                        in w:  (rho delta(theta) - phi.w) phi,

and a method descends in theta with the step alpha, ascends in w with the step beta. `vrtd.theory.saddle_steps` finds
steps that are proven to converge.

S. S. Du, J. Chen, L. Li, L. Xiao, D. Zhou (2017), Stochastic variance reduction methods for policy evaluation, ICML.
The gradients, and the updates of all methods, are derived here from the saddle point, and their fixed point is tested.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple

from vrtd.algorithms._base.algorithm import STEP_SIZES, Algorithm, Tuned
from vrtd.checks import check_positive
from vrtd.kernels.jit import kernel
from vrtd.kernels.transition import td_error


class SaddleParams(NamedTuple):
    step_size: float
    step_size_w: float
    steps_per_row: int  # at most, where the number of inner steps is random


@kernel
def value_of(w, x):
    """phi.w"""
    total = 0.0
    for i in range(w.size):
        total += x.phi[x.row, i] * w[i]
    return total


@kernel
def move_along_row(theta, w, scale, scale_w, x):
    """theta += scale psi, w += scale_w phi: the directions of every gradient of row x."""
    for i in range(theta.size):
        phi = x.phi[x.row, i]
        theta[i] += scale * (x.discount * x.phi_next[x.row_next, i] - phi)
        w[i] += scale_w * phi


@kernel
def saddle_absorb(params, options, state, x):
    """Add the gradients of row x at (theta, w) to the sums, for any state that has these."""
    along = value_of(state.w, x)
    error = x.weight * td_error(state.theta, x)
    move_along_row(state.g_theta, state.g_w, x.weight * along, error - along, x)
    state.counts[0] += 1.0


@dataclass(frozen=True)
class SaddleMethod(Algorithm):
    """Base of the methods for a data set."""

    step_size: Annotated[float, "alpha"] = 0.1
    step_size_w: Annotated[float, "beta, the step of w"] = 0.1

    needs_data_set = True
    step_size_fields = ("step_size", "step_size_w")
    tuned = {"step_size": STEP_SIZES, "step_size_w": Tuned((0.25, 1.0, 4.0), power=-2)}

    def __post_init__(self) -> None:
        check_positive("step_size", self.step_size)
        check_positive("step_size_w", self.step_size_w)

    def params(self) -> SaddleParams:
        return SaddleParams(float(self.step_size), float(self.step_size_w), steps_per_row=1)
