"""TD(lambda) with accumulating traces. With delta the TD error, rho the importance ratio of this sample and c the
discount of the one before, 0 where that ended an episode:

    z     <- rho (c lambda z + phi)
    theta <- theta + alpha delta z

R. S. Sutton (1988), Learning to predict by the methods of temporal differences, Machine Learning 3; with importance
ratios D. Precup, R. S. Sutton, S. Singh (2000), Eligibility traces for off-policy policy evaluation, ICML. Its limit is
not TD's but that of the system with traces: A = E[z (gamma phi' - phi)^T], b = E[r z]. The update is derived here from
the forward view, with ratios and discounts of each sample; its fixed point is tested.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.algorithms._base.algorithm import Kernels
from vrtd.algorithms._base.schedules import step_size_at
from vrtd.algorithms._base.traces import TraceMethod
from vrtd.kernels.bellman import td_error
from vrtd.kernels.jit import kernel


class TDLambdaState(NamedTuple):
    theta: NDArray[np.float64]
    z: NDArray[np.float64]
    carry: NDArray[np.float64]  # one number, c


@kernel
def td_lambda_views(workspace, d):
    return TDLambdaState(workspace[:d], workspace[d : 2 * d], workspace[2 * d :])


@kernel
def td_lambda_step(params, options, state, x, t, epoch):
    theta, z = state.theta, state.z
    factor = step_size_at(params.schedule, options.schedule, epoch) * td_error(theta, x)
    # Not c lambda z but z and c are kept: a product that one sample stores and the next one adds to could be fused or
    # not, depending on how the rows of a log are split over calls, and the last bit with it.
    decay = params.trace_decay * state.carry[0]
    for i in range(theta.size):
        z[i] = x.weight * (decay * z[i] + x.phi[x.row, i])
        theta[i] += factor * z[i]
    state.carry[0] = x.carry


@dataclass(frozen=True)
class TDLambda(TraceMethod):
    """Temporal difference learning with traces; needs a trajectory.

    >>> TDLambda(step_size=0.05, trace_decay=0.9).epoch("markov").n_gradients
    1
    """

    name = "td_lambda"
    kernels = Kernels(td_lambda_views, td_lambda_step)
    n_vectors = 2
    n_scalars = 1
