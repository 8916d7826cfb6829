"""SAGA for the saddle point of a data set.

Each sample makes one step, corrected by the gradients of its row from the last time the row was drawn. The first epoch
begins with a pass over all rows, which stores their gradients at the starting point.

Each row i stores two numbers, s_i = rho phi.w and e_i = rho delta(theta) - phi.w, with theta and w from the last time
it was drawn. Its gradients were then s_i psi_i and e_i phi_i, so no vectors are stored. Let g_theta be the mean of
s_i psi_i and g_w the mean of e_i phi_i over all rows, and s, e the current numbers of the row i that is drawn::

    theta <- theta - alpha ((s - s_i) psi_i + g_theta),    w <- w + beta ((e - e_i) phi_i + g_w)
    g_theta <- g_theta + (s - s_i) psi_i / n,    g_w <- g_w + (e - e_i) phi_i / n,    s_i <- s,    e_i <- e

The means are only updated, never recomputed, so rounding errors stay: about 1e-16 of the largest gradients so far. If
the last digits matter, start near the solution or use SVRG.

A. Defazio, F. Bach, S. Lacoste-Julien (2014), SAGA: a fast incremental gradient method, NeurIPS. S. S. Du, J. Chen,
L. Li, L. Xiao, D. Zhou (2017), Stochastic variance reduction methods for policy evaluation, ICML.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from vrtd.algorithms._base.algorithm import Epoch, Kernels, Sampling
from vrtd.algorithms._base.saddle import SaddleMethod, move_along_row, value_of
from vrtd.arrays import Floats
from vrtd.kernels.jit import kernel
from vrtd.kernels.transition import td_error


class SAGAState(NamedTuple):
    theta: Floats
    w: Floats
    g_theta: Floats
    g_w: Floats
    memory: Floats  # s_0, e_0, s_1, e_1, ...


@kernel
def saga_views(workspace, d):
    theta, w, g, g_w = workspace[:d], workspace[d : 2 * d], workspace[2 * d : 3 * d], workspace[3 * d : 4 * d]
    return SAGAState(theta, w, g, g_w, workspace[4 * d :])


@kernel
def remember(state, x):
    """Store s and e of row x at (theta, w), and return their changes."""
    place = x.row + x.row
    along = value_of(state.w, x)
    s, e = x.weight * along, x.weight * td_error(state.theta, x) - along
    s_change, e_change = s - state.memory[place], e - state.memory[place + np.uint64(1)]
    state.memory[place], state.memory[place + np.uint64(1)] = s, e
    return s_change, e_change


@kernel
def saga_absorb(params, options, state, x):
    share = 1.0 / x.phi.shape[0]
    s, e = remember(state, x)  # the changes are the numbers themselves: they were zero
    move_along_row(state.g_theta, state.g_w, share * s, share * e, x)


@kernel
def saga_step(params, options, state, x, t, epoch):
    share = 1.0 / x.phi.shape[0]
    s_change, e_change = remember(state, x)
    alpha, beta = params.step_size, params.step_size_w
    for i in range(state.theta.size):
        phi = x.phi[x.row, i]
        move, move_w = s_change * (x.discount * x.phi_next[x.row_next, i] - phi), e_change * phi
        state.theta[i] -= alpha * (move + state.g_theta[i])
        state.w[i] += beta * (move_w + state.g_w[i])
        state.g_theta[i] += share * move
        state.g_w[i] += share * move_w


@dataclass(frozen=True)
class SAGA(SaddleMethod):
    """SAGA on a data set: one pass over all rows, then one step per sample, with two stored numbers per row.

    It converges linearly to the least-squares solution of the data set.

    Parameters
    ----------
    step_size : float, default=0.1
        Step size alpha.
    step_size_w : float, default=0.1
        Step size beta of the second vector w.

    Examples
    --------
    >>> SAGA().epoch("dataset", n_rows=1000).gradients_until(2), SAGA().workspace_size(4, n_rows=1000)
    (array(1002), 2016)
    """

    name = "saga"
    kernels = Kernels(saga_views, saga_step, absorb=saga_absorb)
    n_vectors = 4
    n_per_row = 2

    def epoch(self, sampling: Sampling, n_rows: int = 0) -> Epoch:
        return Epoch(n_absorb=0, n_steps=1, inner_samples="fresh", warmup=((n_rows, 1),))
