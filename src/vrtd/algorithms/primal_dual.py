"""Batch gradient method for the saddle point of a data set.

An epoch is a pass over all rows and one step, with theta and w on the right from before the step::

    theta <- theta - alpha A^T w,    w <- w + beta (A theta + b - C w)

The method draws no random numbers, so all runs are equal.

S. S. Du, J. Chen, L. Li, L. Xiao, D. Zhou (2017), Stochastic variance reduction methods for policy evaluation, ICML.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from vrtd.algorithms._base.algorithm import Epoch, Kernels, Sampling
from vrtd.algorithms._base.saddle import SaddleMethod, saddle_absorb
from vrtd.arrays import Floats
from vrtd.kernels.jit import kernel


class PrimalDualState(NamedTuple):
    theta: Floats
    w: Floats
    g_theta: Floats  # sums over the absorbed rows
    g_w: Floats
    counts: Floats  # one number: the absorbed rows


@kernel
def primal_dual_views(workspace, d):
    theta, w, g, g_w = workspace[:d], workspace[d : 2 * d], workspace[2 * d : 3 * d], workspace[3 * d : 4 * d]
    return PrimalDualState(theta, w, g, g_w, workspace[4 * d :])


@kernel
def primal_dual_step(params, options, state, x, t, epoch):
    """Do nothing: an epoch has no steps."""


@kernel
def primal_dual_close(params, options, state):
    scale, scale_w = params.step_size / state.counts[0], params.step_size_w / state.counts[0]
    for i in range(state.theta.size):
        state.theta[i] -= scale * state.g_theta[i]
        state.w[i] += scale_w * state.g_w[i]
        state.g_theta[i] = 0.0
        state.g_w[i] = 0.0
    state.counts[0] = 0.0


@dataclass(frozen=True)
class PrimalDual(SaddleMethod):
    """Batch gradient descent in theta and ascent in w, on a data set.

    It converges linearly to the least-squares solution of the data set.

    Parameters
    ----------
    step_size : float, default=0.1
        Step size alpha.
    step_size_w : float, default=0.1
        Step size beta of the second vector w.

    Examples
    --------
    >>> PrimalDual(step_size=0.1, step_size_w=0.5).epoch("dataset", n_rows=1000).n_gradients
    1000
    """

    name = "primal_dual"
    kernels = Kernels(primal_dual_views, primal_dual_step, absorb=saddle_absorb, close=primal_dual_close)
    n_vectors = 4
    n_scalars = 1

    def epoch(self, sampling: Sampling, n_rows: int = 0) -> Epoch:
        return Epoch(n_absorb=n_rows, n_steps=0, inner_samples="fresh")
