"""Parts of the methods for a fixed data set: their saddle-point problem and its gradients.

With A, b, C the means over the rows of rho phi psi^T, rho r phi, phi phi^T, and psi = discount phi' - phi, half the
mean squared projected Bellman error is a maximum over w::

    1/2 |A theta + b|^2 in the norm of C^{-1}  =  max_w  w.(A theta + b) - 1/2 w.C w

So the least-squares solution and w = 0 form a saddle point. The gradients of one row are::

    in theta:  rho (phi.w) psi                        in w:  (rho delta(theta) - phi.w) phi

A method descends in theta with step size alpha and ascends in w with step size beta. `vrtd.theory.saddle_steps`
computes step sizes for which convergence is proven.

S. S. Du, J. Chen, L. Li, L. Xiao, D. Zhou (2017), Stochastic variance reduction methods for policy evaluation, ICML.
The gradients and the updates of all methods are derived here from the saddle point, and their fixed point is tested.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from vrtd.algorithms._base.algorithm import STEP_SIZES, Algorithm, Tuned
from vrtd.checks import check_positive
from vrtd.kernels.jit import kernel
from vrtd.kernels.transition import td_error


class SaddleParams(NamedTuple):
    step_size: float
    step_size_w: float
    steps_per_row: int  # largest number of inner steps per row, where their number is random


@kernel
def value_of(w, x):
    """Return phi.w."""
    total = 0.0
    for i in range(w.size):
        total += x.phi[x.row, i] * w[i]
    return total


@kernel
def move_along_row(theta, w, scale, scale_w, x):
    """Add scale psi to theta and scale_w phi to w, the directions of every gradient of row x."""
    for i in range(theta.size):
        phi = x.phi[x.row, i]
        theta[i] += scale * (x.discount * x.phi_next[x.row_next, i] - phi)
        w[i] += scale_w * phi


@kernel
def saddle_absorb(params, options, state, x):
    """Add the gradients of row x at (theta, w) to the sums of a state that has ``g_theta`` and ``g_w``."""
    along = value_of(state.w, x)
    error = x.weight * td_error(state.theta, x)
    move_along_row(state.g_theta, state.g_w, x.weight * along, error - along, x)
    state.counts[0] += 1.0


@dataclass(frozen=True)
class SaddleMethod(Algorithm):
    """Base of the methods for a data set.

    Parameters
    ----------
    step_size : float, default=0.1
        Step size alpha.
    step_size_w : float, default=0.1
        Step size beta of the second vector w.
    """

    step_size: float = 0.1
    step_size_w: float = 0.1

    needs_data_set = True
    step_size_fields = ("step_size", "step_size_w")
    tuned = {"step_size": STEP_SIZES, "step_size_w": Tuned((0.25, 1.0, 4.0), power=-2)}

    def __post_init__(self) -> None:
        check_positive("step_size", self.step_size)
        check_positive("step_size_w", self.step_size_w)

    def params(self) -> SaddleParams:
        return SaddleParams(float(self.step_size), float(self.step_size_w), steps_per_row=1)
