"""TD with a target: a second parameter, which follows theta more slowly, gives the value of the next state.

With delta = r + gamma phi'.target - phi.theta and rho the importance ratio, all from before the update::

    average:   theta <- theta + alpha rho delta phi,    target <- target + alpha mix (theta - target)
    periodic:  theta <- theta + alpha rho delta phi,    target <- theta, after every period updates

D. Lee and N. He (2019), Target-based temporal-difference learning, ICML: their averaging and periodic TD. Both
parameters begin at theta_0. The updates are derived here from the idea; their fixed point, that of TD, is tested.
Double TD, which updates both parameters in the same way and pulls them together, is left out: from one starting point
they stay equal, so it is TD.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from vrtd.algorithms._base.algorithm import STEP_SIZES, Algorithm, Kernels, Tuned
from vrtd.algorithms._base.schedules import Schedule, as_schedule, schedule_kind, schedule_params, step_size_at
from vrtd.arrays import Floats
from vrtd.checks import check_choice, check_count, check_positive, require
from vrtd.kernels.jit import kernel

_AVERAGE, _PERIODIC = range(2)
_UPDATES = {"average": _AVERAGE, "periodic": _PERIODIC}
_DEFAULTS = {"mix": 1.0, "period": 100}


class TargetTDParams(NamedTuple):
    schedule: Any
    mix: float
    period: int


class TargetTDOptions(NamedTuple):
    schedule: int
    update: int


class TargetTDState(NamedTuple):
    theta: Floats
    target: Floats  # set to theta before the first update


@kernel
def target_td_views(workspace, d):
    return TargetTDState(workspace[:d], workspace[d : 2 * d])


@kernel
def target_td_step(params, options, state, x, t, epoch):
    theta, target = state.theta, state.target
    if epoch == 0:
        for i in range(theta.size):
            target[i] = theta[i]
    delta = x.reward
    for i in range(theta.size):
        delta += x.discount * x.phi_next[x.row_next, i] * target[i] - x.phi[x.row, i] * theta[i]
    step = step_size_at(params.schedule, options.schedule, epoch)
    factor = step * x.weight * delta
    if options.update == _AVERAGE:
        for i in range(theta.size):
            target[i] += step * params.mix * (theta[i] - target[i])
    for i in range(theta.size):
        theta[i] += factor * x.phi[x.row, i]
    if options.update == _PERIODIC and (epoch + 1) % params.period == 0:
        for i in range(theta.size):
            target[i] = theta[i]


@dataclass(frozen=True)
class TargetTD(Algorithm):
    """TD that bootstraps from a target, with averaging or periodic updates.

    Parameters
    ----------
    step_size : float or Schedule, default=0.1
        Step size alpha.
    update : {"average", "periodic"}, default="average"
        Update rule of the target. It is either a moving average of theta or a copy made at fixed intervals.
    mix : float or None, default=None
        Step size of the target as a multiple of alpha, for averaging updates. None means 1.
    period : int or None, default=None
        Number of updates between two copies, for periodic updates. None means 100.

    Examples
    --------
    >>> TargetTD(update="periodic")
    TargetTD(step_size=0.1, update='periodic', mix=None, period=100)
    """

    step_size: float | Schedule = 0.1
    update: Literal["average", "periodic"] = "average"
    mix: float | None = None
    period: int | None = None

    name = "target_td"
    kernels = Kernels(target_td_views, target_td_step)
    n_vectors = 2
    step_size_fields = ("step_size",)
    tuned = {"step_size": STEP_SIZES, "mix": Tuned((0.3, 1.0, 3.0), power=2)}

    def __post_init__(self) -> None:
        as_schedule(self.step_size)
        check_choice("update", self.update, tuple(_UPDATES))
        used, unused = ("mix", "period") if self.update == "average" else ("period", "mix")
        problem = f"{unused} has no effect with update={self.update!r}, but got {getattr(self, unused)}."
        require(getattr(self, unused) is None, problem, "Drop it, or change update.")
        if getattr(self, used) is None:
            object.__setattr__(self, used, _DEFAULTS[used])
        check_positive("mix", 1.0 if self.mix is None else self.mix)
        check_count("period", 1 if self.period is None else self.period)

    def params(self) -> TargetTDParams:
        return TargetTDParams(schedule_params(self.step_size), float(self.mix or 0.0), int(self.period or 1))

    def options(self) -> TargetTDOptions:
        return TargetTDOptions(schedule_kind(self.step_size), _UPDATES[self.update])
