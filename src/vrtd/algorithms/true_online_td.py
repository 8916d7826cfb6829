"""True online TD(lambda): after each sample theta is what one would have, had every update so far been made with the
lambda-return up to this sample (the online forward view). With c and rho as in TD(lambda), and v = theta.phi as it was
valued on arrival, before the last update:

    e     <- rho (c lambda e + alpha (1 - rho c lambda e.phi) phi)
    theta <- theta + (r + gamma theta.phi' - v) e - alpha rho (theta.phi - v) phi

H. van Seijen, A. R. Mahmood, P. M. Pilarski, M. C. Machado, R. S. Sutton (2016), True online temporal-difference
learning, JMLR 17. Step sizes that change and importance ratios are derived here, from the forward view

    theta_{k+1} = theta_k + alpha_k rho_k (G_k - theta_k.phi_k) phi_k,
    G_k = r_k + gamma_k (v_{k+1} + lambda rho_{k+1} (G_{k+1} - v_{k+1})),   G = r + gamma v at the horizon,

to which the updates are equal off-policy, too. The limit of small steps is TD(lambda)'s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.algorithms._base.algorithm import Kernels
from vrtd.algorithms._base.schedules import step_size_at
from vrtd.algorithms._base.traces import TraceMethod
from vrtd.kernels.jit import kernel


class TrueOnlineTDState(NamedTuple):
    theta: NDArray[np.float64]
    e: NDArray[np.float64]
    before: NDArray[np.float64]  # of the sample before: c, and v, which cancels where the trace was cut


@kernel
def true_online_td_views(workspace, d):
    return TrueOnlineTDState(workspace[:d], workspace[d : 2 * d], workspace[2 * d :])


@kernel
def true_online_td_step(params, options, state, x, t, epoch):
    theta, e, v = state.theta, state.e, state.before[1]
    decay = params.trace_decay * state.before[0]
    value = value_next = overlap = 0.0
    for i in range(theta.size):
        value += theta[i] * x.phi[x.row, i]
        value_next += theta[i] * x.phi_next[x.row_next, i]
        overlap += e[i] * x.phi[x.row, i]
    step = step_size_at(params.schedule, options.schedule, epoch)
    error = x.reward + x.discount * value_next - v
    own, correction = step * (1.0 - x.weight * decay * overlap), step * x.weight * (value - v)
    for i in range(theta.size):
        e[i] = x.weight * (decay * e[i] + own * x.phi[x.row, i])
        theta[i] += error * e[i] - correction * x.phi[x.row, i]
    state.before[0], state.before[1] = x.carry, value_next


@dataclass(frozen=True)
class TrueOnlineTD(TraceMethod):
    """TD(lambda) that equals its online forward view; needs a trajectory.

    >>> TrueOnlineTD(step_size=0.05, trace_decay=0.9).epoch("markov").n_gradients
    1
    """

    name = "true_online_td"
    kernels = Kernels(true_online_td_views, true_online_td_step)
    n_vectors = 2
    n_scalars = 2
