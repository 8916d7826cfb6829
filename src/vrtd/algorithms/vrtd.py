"""Variance-reduced temporal difference learning (Algorithms 1 and 2):

    g_m = (1/M) sum_{x in B_m} g_x(theta_anchor),  theta_{m,0} = theta_anchor                          lines 2-4 (2-3)
    theta_{m,t+1} = Pi_R( theta_{m,t} + alpha (g_x(theta_{m,t}) - g_x(theta_anchor) + g_m) )           lines 5-8 (4-7)
    theta_anchor <- theta_{m,t}, t uniform on {1, ..., M}                                              line 10 (9)

Algorithm 1 (i.i.d. samples) takes a fresh x for each inner step, Algorithm 2 (one trajectory) draws it from the batch.

T. Xu, Z. Wang, Y. Zhou, Y. Liang (2020), Reanalysis of variance reduced temporal difference learning, ICLR. Algorithm 2
is CTD of N. Korda and L. A. Prashanth (2015), ICML, who average the iterates: output="average" and a radius.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from vrtd.algorithms._base.algorithm import STEP_SIZES, Algorithm, Epoch, Inner, Kernels, Sampling, Tuned
from vrtd.arrays import Floats
from vrtd.checks import check_choice, check_count, check_positive, check_radius
from vrtd.kernels.jit import kernel
from vrtd.kernels.linalg import shrinkage, squared_norm_of_sum
from vrtd.kernels.random import uniform_index
from vrtd.kernels.transition import add_pseudo_gradient, bootstrap_difference

_RANDOM, _LAST, _AVERAGE = range(3)
_OUTPUTS = {"random": _RANDOM, "last": _LAST, "average": _AVERAGE}


class VRTDParams(NamedTuple):
    step_size: float
    batch_size: int
    radius: float


class VRTDOptions(NamedTuple):
    projects: int
    output: int


class VRTDState(NamedTuple):
    theta_anchor: Floats
    w: Floats  # theta - theta_anchor: g_x(theta) - g_x(theta_anchor) = phi (gamma phi' - phi).w
    g_anchor: Floats  # while absorbing the sum of g_x(theta_anchor), then alpha g_m
    chosen: Floats  # the w that the epoch returns, or their sum
    chosen_step: Floats  # one number: the random t, counted from 0


@kernel
def vrtd_views(workspace, d):
    anchor, w, g, chosen = workspace[:d], workspace[d : 2 * d], workspace[2 * d : 3 * d], workspace[3 * d : 4 * d]
    return VRTDState(anchor, w, g, chosen, workspace[4 * d :])


@kernel
def vrtd_absorb(params, options, state, x):  # the sum of line 4 (3)
    add_pseudo_gradient(state.g_anchor, 1.0, state.theta_anchor, x)


@kernel
def vrtd_begin(params, options, state, stream):  # alpha g_m, and theta_{m,0} = theta_anchor: line 2
    for i in range(state.w.size):
        state.g_anchor[i] *= params.step_size / params.batch_size
        state.w[i] = 0.0
        state.chosen[i] = 0.0
    last = params.batch_size - 1
    state.chosen_step[0] = uniform_index(stream, last + 1) if options.output == _RANDOM else last


@kernel
def vrtd_step(params, options, state, x, t, epoch):  # lines 7-8 (6-7)
    w, anchor = state.w, state.theta_anchor
    factor = params.step_size * x.weight * bootstrap_difference(w, x)
    for i in range(w.size):
        w[i] += factor * x.phi[x.row, i] + state.g_anchor[i]
    if options.projects:
        shrink = shrinkage(squared_norm_of_sum(anchor, w), params.radius)
        if shrink < 1.0:
            for i in range(w.size):
                w[i] = shrink * (anchor[i] + w[i]) - anchor[i]
    if options.output == _AVERAGE:
        for i in range(w.size):
            state.chosen[i] += w[i] / params.batch_size
    elif t == state.chosen_step[0]:
        for i in range(w.size):
            state.chosen[i] = w[i]


@kernel
def vrtd_close(params, options, state):  # line 10 (9)
    for i in range(state.w.size):
        state.theta_anchor[i] += state.chosen[i]
        state.g_anchor[i] = 0.0


@kernel
def vrtd_output(params, options, state, epoch, out):
    for i in range(out.size):
        out[i] = state.theta_anchor[i]


@dataclass(frozen=True)
class VRTD(Algorithm):
    """Variance-reduced TD: Algorithm 1 under "iid" sampling, Algorithm 2 under "markov".

    `inner` forces the other, for comparison. A batch of one is TD: nothing to correct, no inner sample, one count.

    >>> VRTD(step_size=0.1, batch_size=500).epoch("markov").n_gradients
    1000
    """

    step_size: Annotated[float, "alpha"] = 0.1
    batch_size: Annotated[int, "M, the samples of a batch and the steps of an epoch"] = 500
    radius: Annotated[float | None, "project onto the ball of this radius"] = None
    output: Annotated[Literal["random", "last", "average"], "which iterate an epoch returns"] = "random"
    inner: Annotated[Inner | None, "where inner steps take their samples"] = None

    name = "vrtd"
    kernels = Kernels(vrtd_views, vrtd_step, vrtd_output, vrtd_absorb, vrtd_begin, vrtd_close)
    n_vectors, n_scalars = 4, 1
    step_size_fields = ("step_size",)
    tuned = {"step_size": STEP_SIZES, "batch_size": Tuned((16, 64, 256))}

    def __post_init__(self) -> None:
        check_positive("step_size", self.step_size)
        check_count("batch_size", self.batch_size)
        check_radius(self.radius)
        check_choice("output", self.output, tuple(_OUTPUTS))
        check_choice("inner", self.inner, (None, "fresh", "resample"))

    def epoch(self, sampling: Sampling, n_rows: int = 0) -> Epoch:
        if self.batch_size == 1:
            return Epoch(n_absorb=1, n_steps=1, inner_samples="resample", gradients_per_step=0)
        default: Inner = "fresh" if sampling == "iid" else "resample"
        return Epoch(int(self.batch_size), int(self.batch_size), self.inner or default)

    def params(self) -> VRTDParams:
        return VRTDParams(float(self.step_size), int(self.batch_size), float(self.radius or 0.0))

    def options(self) -> VRTDOptions:
        return VRTDOptions(int(self.radius is not None), _OUTPUTS[self.output])

    @property
    def largest_step_size(self) -> float:
        return float(self.step_size)
