"""Kernels of SVRG and its variants: steps from an anchor towards the saddle point of a data set."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vrtd.algorithms._base.algorithm import Kernels
from vrtd.algorithms._base.saddle import SaddleMethod, move_along_row, saddle_absorb, value_of
from vrtd.arrays import Floats
from vrtd.kernels.jit import kernel
from vrtd.kernels.random import uniform_index
from vrtd.kernels.transition import bootstrap_difference


class SVRGOptions(NamedTuple):
    stops: int  # whether an epoch stops after a random number of steps


class SVRGState(NamedTuple):
    theta: Floats  # the anchor
    w: Floats
    g_theta: Floats  # sum of gradients at the anchor while absorbing, then the step along their mean
    g_w: Floats
    u: Floats  # theta - theta_anchor: differences of gradients depend only on differences of parameters
    v: Floats  # w - w_anchor
    counts: Floats  # rows absorbed, steps to take, pseudo-gradients of all epochs (the last two only if random)


@kernel
def svrg_views(workspace, d):
    theta, w, g, g_w = workspace[:d], workspace[d : 2 * d], workspace[2 * d : 3 * d], workspace[3 * d : 4 * d]
    return SVRGState(theta, w, g, g_w, workspace[4 * d : 5 * d], workspace[5 * d : 6 * d], workspace[6 * d :])


@kernel
def svrg_begin(params, options, state, stream):
    scale, scale_w = params.step_size / state.counts[0], params.step_size_w / state.counts[0]
    for i in range(state.u.size):
        state.g_theta[i] *= -scale
        state.g_w[i] *= scale_w
        state.u[i] = 0.0
        state.v[i] = 0.0
    if options.stops:
        state.counts[1] = 1.0 + uniform_index(stream, np.int64(state.counts[0]) * params.steps_per_row)
    state.counts[0] = 0.0


@kernel
def svrg_step(params, options, state, x, t, epoch):
    if not options.stops or t < state.counts[1]:
        along = value_of(state.v, x)
        error = x.weight * bootstrap_difference(state.u, x)
        scale, scale_w = -params.step_size * x.weight * along, params.step_size_w * (error - along)
        move_along_row(state.u, state.v, scale, scale_w, x)
        for i in range(state.u.size):
            state.u[i] += state.g_theta[i]
            state.v[i] += state.g_w[i]


@kernel
def svrg_close(params, options, state):
    for i in range(state.u.size):
        state.theta[i] += state.u[i]
        state.w[i] += state.v[i]
        state.g_theta[i] = 0.0
        state.g_w[i] = 0.0


class AnchoredMethod(SaddleMethod):
    """Base of SVRG and its variants, which define the length of an epoch and whether it stops at random."""

    kernels = Kernels(svrg_views, svrg_step, absorb=saddle_absorb, begin=svrg_begin, close=svrg_close)
    n_vectors = 6
    n_scalars = 3
    stops = False

    def options(self) -> SVRGOptions:
        return SVRGOptions(int(self.stops))
