"""Averaged TD whose bias from the constant step size is removed by Richardson-Romberg extrapolation.

K levels use the same samples with the step sizes a, 2a, 4a, ...::

    theta^m_{t+1} = theta^m_t + 2^m a g_{x_t}(theta^m_t),   m = 0, ..., K - 1
    output = sum_m h_m (mean of theta^m after the burn-in),   h_m = prod_{l != m} 2^l / (2^l - 2^m)

Along a trajectory, the mean of the iterates of TD tends to theta_star + a c_1 + a^2 c_2 + ... The weights h sum to 1
and cancel the first K - 1 terms. For K = 3 they are 8/3, -2 and 1/3. They amplify the initial transient, so the burn-in
must outlast it at the smallest step size. All levels begin at theta_0. The kernel keeps theta^0 and the differences
from it.

D. Huo, Y. Chen, Q. Xie (2023), Bias and extrapolation in Markovian linear stochastic approximation with constant
stepsizes, SIGMETRICS. I. Levin, A. Naumov, S. Samsonov (2026), AAAI, arXiv 2508.05570, for its error to leading order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from vrtd.algorithms._base.algorithm import STEP_SIZES, Algorithm, Epoch, Kernels, Sampling, Tuned
from vrtd.algorithms._base.schedules import Schedule, as_schedule, schedule_kind, schedule_params, step_size_at
from vrtd.arrays import Floats
from vrtd.checks import check_choice, check_exact_count
from vrtd.kernels.jit import kernel
from vrtd.kernels.sparse import entries, place, sparse_bootstrap_difference, sparse_td_error
from vrtd.kernels.transition import bootstrap_difference, td_error

_MOST_LEVELS = 4


class RichardsonTDParams(NamedTuple):
    schedule: Any
    weights: Floats  # (K,) h
    burn_in: int


class RichardsonTDOptions(NamedTuple):
    schedule: int
    levels: int


class RichardsonTDState(NamedTuple):
    theta: Floats  # theta^0
    total: Floats  # sum of sum_m h_m theta^m after the burn-in
    further: Floats  # theta^m - theta^0 for m = 1, 2, ..., concatenated


@kernel
def richardson_td_views(workspace, d):
    return RichardsonTDState(workspace[:d], workspace[d : 2 * d], workspace[2 * d : (1 + _MOST_LEVELS) * d])


@kernel
def richardson_td_step(params, options, state, x, t, epoch):
    theta, total, d = state.theta, state.total, state.theta.size
    counted = 1.0 if epoch >= params.burn_in else 0.0
    alpha = x.weight * step_size_at(params.schedule, options.schedule, epoch)
    delta = td_error(theta, x)
    for i in range(d):
        theta[i] += alpha * delta * x.phi[x.row, i]
        total[i] += counted * theta[i]
    scale = alpha
    for m in range(1, options.levels):
        u = state.further[(m - 1) * d : m * d]
        scale *= 2.0
        change = scale * (delta + bootstrap_difference(u, x)) - alpha * delta
        weight = counted * params.weights[m]
        for i in range(d):
            u[i] += change * x.phi[x.row, i]
            total[i] += weight * u[i]


@kernel
def richardson_td_output(params, options, state, epoch, out):
    n = epoch - params.burn_in
    for i in range(out.size):
        out[i] = state.total[i] / n if n > 0 else state.theta[i]


_FIELDS = 1 + _MOST_LEVELS


class SparseRichardsonTDState(NamedTuple):
    # For each coordinate: theta^0; the sum of its changes y_t - y_{t-1}, each times the number of y counted before it,
    # where y = sum_m h_m theta^m; theta^m - theta^0 for m = 1, 2, ...
    table: Floats


@kernel
def sparse_richardson_td_views(workspace, d):
    return SparseRichardsonTDState(workspace)


@kernel
def sparse_richardson_td_step(params, options, state, x, t, epoch):
    table, counted = state.table, max(epoch - params.burn_in, 0)
    first, last = entries(x.phi, x.row)
    alpha = x.weight * step_size_at(params.schedule, options.schedule, epoch)
    delta = sparse_td_error(table, _FIELDS, 0, x)
    total, scale = alpha * delta, alpha
    for m in range(1, options.levels):
        scale *= 2.0
        change = scale * (delta + sparse_bootstrap_difference(table, _FIELDS, 1 + m, x)) - alpha * delta
        total += params.weights[m] * change
        for e in range(first, last):
            table[place(x.phi.columns[e], _FIELDS, 1 + m)] += change * x.phi.values[e]
    for e in range(first, last):
        i, value = x.phi.columns[e], x.phi.values[e]
        table[place(i, _FIELDS, 0)] += alpha * delta * value
        table[place(i, _FIELDS, 1)] += counted * total * value


@kernel
def sparse_richardson_td_output(params, options, state, epoch, out):
    table, n = state.table, epoch - params.burn_in
    for i in range(out.size):
        y = table[place(i, _FIELDS, 0)]
        if n > 0:  # the mean of the counted y is the last one minus the sum of weighted changes over n
            for m in range(1, options.levels):
                y += params.weights[m] * table[place(i, _FIELDS, 1 + m)]
            y -= table[place(i, _FIELDS, 1)] / n
        out[i] = y


def extrapolation_weights(levels: int) -> Floats:
    """Return the weights h of the step sizes a, 2a, 4a, ...

    Examples
    --------
    >>> extrapolation_weights(2)
    array([ 2., -1.])
    """
    steps = 2.0 ** np.arange(levels)
    return np.array([np.prod([b / (b - a) for b in steps if b != a]) for a in steps])


@dataclass(frozen=True)
class RichardsonTD(Algorithm):
    """Averaged TD, extrapolated to step size 0 from several step sizes on the same samples.

    Level k has the step size ``2^k step_size``. Until the end of the burn-in, the output is the iterate of the smallest
    step size.

    Parameters
    ----------
    step_size : float or Schedule, default=0.1
        Smallest step size a.
    levels : int, default=3
        Number of step sizes K, from 2 to 4.
    burn_in : int, default=0
        Number of updates before averaging begins.

    Examples
    --------
    >>> RichardsonTD(step_size=0.05).epoch("markov").n_gradients
    3
    """

    step_size: float | Schedule = 0.1
    levels: int = 3
    burn_in: int = 0

    name = "richardson_td"
    kernels = Kernels(richardson_td_views, richardson_td_step, richardson_td_output)
    n_vectors = 1 + _MOST_LEVELS
    sparse_kernels = Kernels(sparse_richardson_td_views, sparse_richardson_td_step, sparse_richardson_td_output)
    n_sparse_vectors = _FIELDS
    step_size_fields = ("step_size",)
    tuned = {"step_size": STEP_SIZES, "burn_in": Tuned((0.1,), is_share=True)}

    def __post_init__(self) -> None:
        as_schedule(self.step_size)
        check_choice("levels", self.levels, tuple(range(2, _MOST_LEVELS + 1)))
        check_exact_count("burn_in", self.burn_in, least=0)

    def epoch(self, sampling: Sampling, n_rows: int = 0) -> Epoch:
        return Epoch(n_absorb=0, n_steps=1, inner_samples="fresh", gradients_per_step=int(self.levels))

    def params(self) -> RichardsonTDParams:
        return RichardsonTDParams(
            schedule_params(self.step_size), extrapolation_weights(self.levels), int(self.burn_in)
        )

    def options(self) -> RichardsonTDOptions:
        return RichardsonTDOptions(schedule_kind(self.step_size), int(self.levels))

    @property
    def largest_step_size(self) -> float:
        return as_schedule(self.step_size).largest * 2.0 ** (self.levels - 1)
