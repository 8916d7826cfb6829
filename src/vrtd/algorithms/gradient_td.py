"""Gradient TD, a family of three algorithms: GTD, GTD2 and TDC.

They keep a second vector w. Once w has converged, the mean update of theta follows a gradient, so small steps are
stable off-policy, too; TDC also needs steps of w that are large enough compared with those of theta. With delta the TD
error, rho the importance ratio, and theta and w on the right from before the update::

    GTD:   theta <- theta + alpha rho (phi - gamma phi') phi.w,           w <- w + beta (rho delta phi - w)
    GTD2:  theta <- theta + alpha rho (phi - gamma phi') phi.w,           w <- w + beta (rho delta - phi.w) phi
    TDC:   theta <- theta + alpha rho (delta phi - gamma phi' phi.w),     w <- w + beta (rho delta - phi.w) phi

GTD descends on ``|A theta + b|^2`` (R. S. Sutton, C. Szepesvari, H. R. Maei 2008, NIPS), the others on the projected
Bellman error (R. S. Sutton, H. R. Maei, D. Precup, S. Bhatnagar, D. Silver, C. Szepesvari, E. Wiewiora 2009, ICML). All
three solve A theta + b = 0. The updates are derived here from these objectives, and their fixed points are tested.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from vrtd.algorithms._base.algorithm import STEP_SIZES, Algorithm, Kernels, Tuned
from vrtd.algorithms._base.schedules import Schedule, as_schedule, schedule_kind, schedule_params, step_size_at
from vrtd.arrays import Floats
from vrtd.kernels.jit import kernel


class GradientTDParams(NamedTuple):
    schedule: Any
    schedule_w: Any


class GradientTDOptions(NamedTuple):
    averages: int
    corrects: int
    schedule: int
    schedule_w: int


class GradientTDState(NamedTuple):
    theta: Floats
    w: Floats


@kernel
def gradient_td_views(workspace, d):
    return GradientTDState(workspace[:d], workspace[d : 2 * d])


@kernel
def gradient_td_step(params, options, state, x, t, epoch):
    theta, w = state.theta, state.w
    delta, overlap = x.reward, 0.0
    for i in range(theta.size):
        delta += (x.discount * x.phi_next[x.row_next, i] - x.phi[x.row, i]) * theta[i]
        overlap += x.phi[x.row, i] * w[i]
    alpha = x.weight * step_size_at(params.schedule, options.schedule, epoch)
    beta = step_size_at(params.schedule_w, options.schedule_w, epoch)
    here = alpha * (delta if options.corrects else overlap)
    beyond = alpha * x.discount * overlap
    kept = 1.0 - beta if options.averages else 1.0
    change = beta * (x.weight * delta - (0.0 if options.averages else overlap))
    for i in range(theta.size):
        theta[i] += here * x.phi[x.row, i] - beyond * x.phi_next[x.row_next, i]
        w[i] = kept * w[i] + change * x.phi[x.row, i]


@dataclass(frozen=True)
class GradientTD(Algorithm):
    """Base of the three algorithms, which differ in two constants.

    Parameters
    ----------
    step_size : float or Schedule, default=0.1
        Step size alpha.
    step_size_w : float or Schedule, default=0.1
        Step size beta of the second vector w.
    """

    step_size: float | Schedule = 0.1
    step_size_w: float | Schedule = 0.1

    kernels = Kernels(gradient_td_views, gradient_td_step)
    n_vectors = 2
    step_size_fields = ("step_size", "step_size_w")
    tuned = {"step_size": STEP_SIZES, "step_size_w": Tuned((0.25, 1.0, 4.0), power=-2)}
    averages = False  # whether w is a moving average of rho delta phi; if not, its regression on phi
    corrects = False  # whether theta takes the step of TD with a correction; if not, a gradient step

    def __post_init__(self) -> None:
        as_schedule(self.step_size)
        as_schedule(self.step_size_w, "step_size_w")

    def params(self) -> GradientTDParams:
        return GradientTDParams(schedule_params(self.step_size), schedule_params(self.step_size_w))

    def options(self) -> GradientTDOptions:
        kinds = schedule_kind(self.step_size), schedule_kind(self.step_size_w)
        return GradientTDOptions(int(self.averages), int(self.corrects), *kinds)


@dataclass(frozen=True)
class GTD(GradientTD):
    """Gradient TD (Sutton, Szepesvari and Maei 2008).

    GTD is stable off-policy with small step sizes. It descends on the squared norm of the expected TD update.

    Parameters
    ----------
    step_size : float or Schedule, default=0.1
        Step size alpha.
    step_size_w : float or Schedule, default=0.1
        Step size beta of the second vector w.

    Examples
    --------
    >>> GTD(step_size=0.1, step_size_w=0.05).epoch("iid").n_gradients
    1
    """

    name = "gtd"
    tuned = {"step_size": STEP_SIZES._replace(power=-4), "step_size_w": Tuned((0.25, 1.0, 4.0))}
    averages = True


@dataclass(frozen=True)
class GTD2(GradientTD):
    """Gradient TD, second version (Sutton et al. 2009).

    GTD2 is stable off-policy with small step sizes. It descends on the mean squared projected Bellman error.

    Parameters
    ----------
    step_size : float or Schedule, default=0.1
        Step size alpha.
    step_size_w : float or Schedule, default=0.1
        Step size beta of the second vector w.

    Examples
    --------
    >>> GTD2(step_size=0.1, step_size_w=0.05)
    GTD2(step_size=0.1, step_size_w=0.05)
    """

    name = "gtd2"


@dataclass(frozen=True)
class TDC(GradientTD):
    """TD with gradient correction (Sutton et al. 2009).

    TDC is stable off-policy if step sizes are small and ``step_size_w`` is large enough compared with ``step_size``.

    Parameters
    ----------
    step_size : float or Schedule, default=0.1
        Step size alpha.
    step_size_w : float or Schedule, default=0.1
        Step size beta of the second vector w.

    Examples
    --------
    >>> TDC(step_size=0.01, step_size_w=0.1)
    TDC(step_size=0.01, step_size_w=0.1)
    """

    name = "tdc"
    corrects = True
