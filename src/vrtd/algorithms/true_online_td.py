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
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.algorithms.algorithm import Algorithm, Epoch, Kernels, Sampling, need_trajectory
from vrtd.algorithms.schedules import Schedule, as_schedule, schedule_kind, schedule_params, step_size_at
from vrtd.checks import check_fraction
from vrtd.kernels.jit import kernel

__all__ = ["TrueOnlineTD"]


class TrueOnlineTDParams(NamedTuple):
    schedule: Any
    trace_decay: float


class TrueOnlineTDOptions(NamedTuple):
    schedule: int


class TrueOnlineTDState(NamedTuple):
    theta: NDArray[np.float64]
    carried: NDArray[np.float64]  # c lambda e: what the next sample finds
    arrival: NDArray[np.float64]  # one number, v; where the trace was cut it cancels


@kernel
def true_online_td_views(workspace, d):
    return TrueOnlineTDState(workspace[:d], workspace[d : 2 * d], workspace[2 * d :])


@kernel
def true_online_td_step(params, options, state, x, t, epoch):
    theta, carried, v = state.theta, state.carried, state.arrival[0]
    value = value_next = overlap = 0.0
    for i in range(theta.size):
        value += theta[i] * x.phi[x.row, i]
        value_next += theta[i] * x.phi_next[x.row_next, i]
        overlap += carried[i] * x.phi[x.row, i]
    step = step_size_at(params.schedule, options.schedule, epoch)
    error = x.reward + x.discount * value_next - v
    own, correction = step * (1.0 - x.weight * overlap), step * x.weight * (value - v)
    kept = params.trace_decay * x.carry
    for i in range(theta.size):
        e = x.weight * (carried[i] + own * x.phi[x.row, i])
        theta[i] += error * e - correction * x.phi[x.row, i]
        carried[i] = kept * e
    state.arrival[0] = value_next


@kernel
def true_online_td_output(params, options, state, epoch, out):
    for i in range(out.size):
        out[i] = state.theta[i]


@dataclass(frozen=True)
class TrueOnlineTD(Algorithm):
    """TD(lambda) that equals its online forward view; needs a trajectory.

    >>> TrueOnlineTD(step_size=0.05, trace_decay=0.9).epoch("markov").n_gradients
    1
    """

    step_size: Annotated[float | Schedule, "alpha"] = 0.1
    trace_decay: Annotated[float, "lambda: 0 is TD, 1 counts on rewards alone"] = 0.8

    name: ClassVar[str] = "true_online_td"
    kernels: ClassVar[Kernels] = Kernels(true_online_td_views, true_online_td_step, true_online_td_output)

    def __post_init__(self) -> None:
        as_schedule(self.step_size)
        check_fraction("trace_decay", self.trace_decay)

    def epoch(self, sampling: Sampling, n_rows: int = 0) -> Epoch:
        need_trajectory(self.name, sampling)
        return Epoch(n_absorb=0, n_steps=1, inner="fresh")

    def params(self) -> TrueOnlineTDParams:
        return TrueOnlineTDParams(schedule_params(as_schedule(self.step_size)), float(self.trace_decay))

    def options(self) -> TrueOnlineTDOptions:
        return TrueOnlineTDOptions(schedule_kind(as_schedule(self.step_size)))

    def workspace_size(self, n_features: int, n_rows: int = 0) -> int:
        return 2 * n_features + 8  # one number, but a whole cache line: the next run's vectors stay aligned

    @property
    def largest_step_size(self) -> None:
        return None
