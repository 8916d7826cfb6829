"""TD(0) with linear features, the baseline of the paper (equation 1).

The update is::

    theta_{t+1} = Pi_R( theta_t + alpha_t g_{x_t}(theta_t) )

R. S. Sutton (1988), Learning to predict by the methods of temporal differences, Machine Learning 3. With ``average``,
the output is the mean of theta_1, ..., theta_t (Polyak and Ruppert); with a constant step size this is the method of
C. Lakshminarayanan and C. Szepesvari (2018), AISTATS. With independent samples its mean squared error falls as 1/t.
Along a trajectory, where successive A_x are correlated, it tends to a point whose distance from theta_star is
proportional to the step size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from vrtd.algorithms._base.algorithm import STEP_SIZES, Algorithm, Kernels
from vrtd.algorithms._base.schedules import Schedule, as_schedule, schedule_kind, schedule_params, step_size_at
from vrtd.arrays import Floats
from vrtd.checks import check_flag, check_radius
from vrtd.kernels.jit import kernel
from vrtd.kernels.linalg import shrinkage, squared_norm
from vrtd.kernels.sparse import entries, place, sparse_td_error
from vrtd.kernels.transition import add_pseudo_gradient


class TDParams(NamedTuple):
    schedule: Any
    radius: float


class TDOptions(NamedTuple):
    schedule: int
    projects: int
    averages: int


class TDState(NamedTuple):
    theta: Floats
    total: Floats  # theta_1 + ... + theta_t


@kernel
def td_views(workspace, d):
    return TDState(workspace[:d], workspace[d : 2 * d])


@kernel
def td_step(params, options, state, x, t, epoch):
    theta = state.theta
    # Equation (1). The projection and the average are additions to the paper.
    add_pseudo_gradient(theta, step_size_at(params.schedule, options.schedule, epoch), theta, x)
    if options.projects:
        factor = shrinkage(squared_norm(theta), params.radius)
        for i in range(theta.size):
            theta[i] *= factor
    if options.averages:
        for i in range(theta.size):
            state.total[i] += theta[i]


@kernel
def td_output(params, options, state, epoch, out):
    averaged = options.averages and epoch > 0
    for i in range(out.size):
        out[i] = state.total[i] / epoch if averaged else state.theta[i]


class SparseTDState(NamedTuple):
    table: Floats  # for each coordinate theta, and the sum of (t - 1) (theta_t - theta_{t-1}) over its changes


@kernel
def sparse_td_views(workspace, d):
    return SparseTDState(workspace)


@kernel
def sparse_td_step(params, options, state, x, t, epoch):
    table = state.table
    factor = step_size_at(params.schedule, options.schedule, epoch) * x.weight * sparse_td_error(table, 2, 0, x)
    first, last = entries(x.phi, x.row)
    for e in range(first, last):
        i, change = x.phi.columns[e], factor * x.phi.values[e]
        table[place(i, 2, 0)] += change
        if options.averages:
            table[place(i, 2, 1)] += epoch * change


@kernel
def sparse_td_output(params, options, state, epoch, out):
    averaged = options.averages and epoch > 0
    for i in range(out.size):  # theta_1 + ... + theta_t = t theta_t - sum of (s - 1) (theta_s - theta_{s-1})
        theta = state.table[place(i, 2, 0)]
        out[i] = theta - state.table[place(i, 2, 1)] / epoch if averaged else theta


@dataclass(frozen=True)
class TD(Algorithm):
    """Temporal difference learning, TD(0).

    Parameters
    ----------
    step_size : float or Schedule, default=0.1
        Step size alpha.
    radius : float or None, default=None
        Radius of the ball onto which iterates are projected. None means no projection.
    average : bool, default=False
        Return the mean of all iterates.

    Examples
    --------
    >>> TD(step_size=0.1).epoch("markov").n_gradients
    1
    """

    step_size: float | Schedule = 0.1
    radius: float | None = None
    average: bool = False

    name = "td"
    kernels = Kernels(td_views, td_step, td_output)
    n_vectors = 2
    sparse_kernels = Kernels(sparse_td_views, sparse_td_step, sparse_td_output)
    n_sparse_vectors = 2
    step_size_fields = ("step_size",)
    tuned = {"step_size": STEP_SIZES}

    def __post_init__(self) -> None:
        as_schedule(self.step_size)
        check_radius(self.radius)
        check_flag("average", self.average)

    def params(self) -> TDParams:
        return TDParams(schedule_params(self.step_size), float(self.radius or 0.0))

    def options(self) -> TDOptions:
        return TDOptions(schedule_kind(self.step_size), int(self.radius is not None), int(self.average))

    @property
    def learns_from_sparse_rows(self) -> bool:
        return self.radius is None

    @property
    def largest_step_size(self) -> float:
        return as_schedule(self.step_size).largest
