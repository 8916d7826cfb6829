"""TD(lambda), a family of two algorithms that step along a trace: TD(lambda) and true online TD(lambda).

With delta the TD error, rho the importance ratio of this sample, and c the discount of the previous sample, or 0 if
that ended an episode::

    TD(lambda), accumulating traces:
        z     <- rho (c lambda z + phi)
        theta <- theta + alpha delta z
    true online TD(lambda), with v the value theta.phi on arrival, before the last update:
        e     <- rho (c lambda e + alpha (1 - rho c lambda e.phi) phi)
        theta <- theta + (r + gamma theta.phi' - v) e - alpha rho (theta.phi - v) phi

R. S. Sutton (1988), Learning to predict by the methods of temporal differences, Machine Learning 3; with importance
ratios D. Precup, R. S. Sutton, S. Singh (2000), Eligibility traces for off-policy policy evaluation, ICML. The limit
differs from that of TD: it solves the system with traces, A = E[z (gamma phi' - phi)^T], b = E[r z]. The update is
derived here from the forward view, with a ratio and a discount per sample; its fixed point is tested.

H. van Seijen, A. R. Mahmood, P. M. Pilarski, M. C. Machado, R. S. Sutton (2016), True online temporal-difference
learning, JMLR 17. After each sample, theta is what it would be if every update so far had been made with the
lambda-return up to this sample. Changing step sizes and importance ratios are derived here from the forward view::

    theta_{k+1} = theta_k + alpha_k rho_k (G_k - theta_k.phi_k) phi_k
    G_k = r_k + gamma_k (v_{k+1} + lambda rho_{k+1} (G_{k+1} - v_{k+1})),   G = r + gamma v at the horizon

The updates equal it off-policy, too. The limit for small step sizes is that of TD(lambda).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from vrtd.algorithms._base.algorithm import STEP_SIZES, Algorithm, Kernels, Tuned
from vrtd.algorithms._base.schedules import Schedule, as_schedule, schedule_kind, schedule_params, step_size_at
from vrtd.arrays import Floats
from vrtd.checks import check_fraction
from vrtd.kernels.jit import kernel
from vrtd.kernels.sparse import entries, place, sparse_td_error
from vrtd.kernels.transition import td_error


class TraceParams(NamedTuple):
    schedule: Any
    trace_decay: float


class TraceOptions(NamedTuple):
    schedule: int


class TDLambdaState(NamedTuple):
    theta: Floats
    z: Floats
    carry: Floats  # one number, c


class TrueOnlineTDState(NamedTuple):
    theta: Floats
    e: Floats
    before: Floats  # c and v of the previous sample; v cancels where the trace was cut


@kernel
def td_lambda_views(workspace, d):
    return TDLambdaState(workspace[:d], workspace[d : 2 * d], workspace[2 * d :])


@kernel
def td_lambda_step(params, options, state, x, t, epoch):
    theta, z = state.theta, state.z
    factor = step_size_at(params.schedule, options.schedule, epoch) * td_error(theta, x)
    # z and c are stored, not their product c lambda z: the compiler may fuse a product with the next sum or not,
    # depending on how the rows of a log are split over calls, which would change the last bit.
    decay = params.trace_decay * state.carry[0]
    for i in range(theta.size):
        z[i] = x.weight * (decay * z[i] + x.phi[x.row, i])
        theta[i] += factor * z[i]
    state.carry[0] = x.carry


_TINY = 1e-300
_CUT = 1e-15  # an entry of a sparse trace below this multiple of the largest feature is dropped


class SparseTDLambdaState(NamedTuple):
    table: Floats  # for each coordinate theta and z; as third number, the list of coordinates whose z is not 0
    numbers: Floats  # c, the length of the list, and the largest feature so far


@kernel
def sparse_td_lambda_views(workspace, d):
    return SparseTDLambdaState(workspace, workspace[3 * d :])


@kernel
def sparse_td_lambda_step(params, options, state, x, t, epoch):
    table, numbers = state.table, state.numbers
    factor = step_size_at(params.schedule, options.schedule, epoch) * sparse_td_error(table, 3, 0, x)
    decay, k, n = params.trace_decay * numbers[0] * x.weight, 0, np.int64(numbers[1])
    while k < n:
        i = np.int64(table[place(k, 3, 2)])
        z = decay * table[place(i, 3, 1)]
        if abs(z) > _CUT * numbers[2]:
            table[place(i, 3, 1)] = z
            table[place(i, 3, 0)] += factor * z
            k += 1
        else:
            table[place(i, 3, 1)] = 0.0
            n -= 1
            table[place(k, 3, 2)] = table[place(n, 3, 2)]
    first, last = entries(x.phi, x.row)
    for e in range(first, last):
        i, added = x.phi.columns[e], x.weight * x.phi.values[e]
        if added != 0.0:
            z = table[place(i, 3, 1)]
            if z == 0.0:
                table[place(n, 3, 2)] = i
                n += 1
            z += added
            table[place(i, 3, 1)] = z if z != 0.0 else _TINY  # entries of the list are not 0
            table[place(i, 3, 0)] += factor * added
            numbers[2] = max(numbers[2], abs(added))
    numbers[0], numbers[1] = x.carry, n


@kernel
def sparse_td_lambda_output(params, options, state, epoch, out):
    for i in range(out.size):
        out[i] = state.table[place(i, 3, 0)]


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
    gain, correction = step * (1.0 - x.weight * decay * overlap), step * x.weight * (value - v)
    for i in range(theta.size):
        e[i] = x.weight * (decay * e[i] + gain * x.phi[x.row, i])
        theta[i] += error * e[i] - correction * x.phi[x.row, i]
    state.before[0], state.before[1] = x.carry, value_next


@dataclass(frozen=True)
class TraceMethod(Algorithm):
    """Base of the two algorithms, which have the same hyperparameters.

    Parameters
    ----------
    step_size : float or Schedule, default=0.1
        Step size alpha.
    trace_decay : float, default=0.8
        Trace decay lambda. TD(0) has 0, Monte Carlo has 1.
    """

    step_size: float | Schedule = 0.1
    trace_decay: float = 0.8

    needs_trajectory = True
    step_size_fields = ("step_size",)
    tuned = {"step_size": STEP_SIZES, "trace_decay": Tuned((0.0, 0.5, 0.9))}

    def __post_init__(self) -> None:
        as_schedule(self.step_size)
        check_fraction("trace_decay", self.trace_decay)

    def params(self) -> TraceParams:
        return TraceParams(schedule_params(self.step_size), float(self.trace_decay))

    def options(self) -> TraceOptions:
        return TraceOptions(schedule_kind(self.step_size))


@dataclass(frozen=True)
class TDLambda(TraceMethod):
    """TD(lambda) with accumulating traces. It needs a trajectory.

    Parameters
    ----------
    step_size : float or Schedule, default=0.1
        Step size alpha.
    trace_decay : float, default=0.8
        Trace decay lambda. TD(0) has 0, Monte Carlo has 1.

    Examples
    --------
    >>> TDLambda(step_size=0.05, trace_decay=0.9).epoch("markov").n_gradients
    1
    """

    name = "td_lambda"
    kernels = Kernels(td_lambda_views, td_lambda_step)
    n_vectors = 2
    n_scalars = 3
    sparse_kernels = Kernels(sparse_td_lambda_views, sparse_td_lambda_step, sparse_td_lambda_output)
    n_sparse_vectors = 3


@dataclass(frozen=True)
class TrueOnlineTD(TraceMethod):
    """True online TD(lambda), which equals its online forward view. It needs a trajectory.

    Parameters
    ----------
    step_size : float or Schedule, default=0.1
        Step size alpha.
    trace_decay : float, default=0.8
        Trace decay lambda. TD(0) has 0, Monte Carlo has 1.

    Examples
    --------
    >>> TrueOnlineTD(step_size=0.05, trace_decay=0.9).epoch("markov").n_gradients
    1
    """

    name = "true_online_td"
    kernels = Kernels(true_online_td_views, true_online_td_step)
    n_vectors = 2
    n_scalars = 2
