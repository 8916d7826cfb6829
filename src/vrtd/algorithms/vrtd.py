"""Variance-reduced temporal difference learning, Algorithms 1 and 2 of the paper.

Algorithm 1 is for i.i.d. samples: each inner step takes a fresh x. Algorithm 2 is for one trajectory: each inner step
draws x from the batch. The lines of Algorithm 1, with those of Algorithm 2 in brackets::

    g_m = (1/M) sum_{x in B_m} g_x(theta_anchor),  theta_{m,0} = theta_anchor                          lines 2-4 (2-3)
    theta_{m,t+1} = Pi_R( theta_{m,t} + alpha (g_x(theta_{m,t}) - g_x(theta_anchor) + g_m) )           lines 5-8 (4-7)
    theta_anchor <- theta_{m,t}, t uniform on {1, ..., M}                                              line 10 (9)

With ``growth``, each batch is that many times larger than the previous one. An epoch makes at most ``n_steps`` inner
steps and returns the mean of the second half of its iterates. Its error is then that of the mean over its batch, and
the last batch holds most of the samples: with growth 8, seven of eight. The inner steps must be enough to contract;
more of them gain nothing. This is the recentred scheme of K. Khamaru, A. Pananjady, F. Ruan, M. J. Wainwright, M. I.
Jordan (2021), Is temporal difference learning optimal? An instance-dependent analysis, SIAM J. Math. Data Sci. 3, which
is for tables and independent samples.

T. Xu, Z. Wang, Y. Zhou, Y. Liang (2020), Reanalysis of variance reduced temporal difference learning, ICLR. Algorithm 2
is CTD of N. Korda and L. A. Prashanth (2015), ICML, who average the iterates: output="average" and a radius.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, cast

import numpy as np

from vrtd.algorithms._base.algorithm import STEP_SIZES, Algorithm, Epoch, Inner, Kernels, Sampling, Tuned
from vrtd.algorithms._base.batches import grow_batches
from vrtd.arrays import Floats
from vrtd.checks import check_choice, check_count, check_exact_count, check_positive, check_radius, require
from vrtd.kernels.jit import kernel
from vrtd.kernels.linalg import shrinkage, squared_norm_of_sum
from vrtd.kernels.random import uniform_index
from vrtd.kernels.sparse import add_row, entries, place, sparse_td_error
from vrtd.kernels.transition import add_pseudo_gradient, bootstrap_difference

Output = Literal["random", "last", "average", "tail"]

_RANDOM, _LAST, _AVERAGE, _TAIL = range(4)
_OUTPUTS = {"random": _RANDOM, "last": _LAST, "average": _AVERAGE, "tail": _TAIL}
_LEAST_GROWTH = 1.01
_LARGEST_BATCH = 1 << 40  # batches stop growing here


class VRTDParams(NamedTuple):
    step_size: float
    batch_size: int
    radius: float
    n_steps: int


class VRTDOptions(NamedTuple):
    projects: int
    output: int
    counts: int  # whether samples and steps are counted at run time, because not all counts are batch_size


class VRTDState(NamedTuple):
    theta_anchor: Floats
    w: Floats  # theta - theta_anchor: g_x(theta) - g_x(theta_anchor) = phi (gamma phi' - phi).w
    g_anchor: Floats  # sum of g_x(theta_anchor) while absorbing, then alpha g_m
    chosen: Floats  # the w that the epoch returns, or their sum
    numbers: Floats  # t of the output, from 0; samples absorbed and number of steps, where they are counted


@kernel
def vrtd_views(workspace, d):
    anchor, w, g, chosen = workspace[:d], workspace[d : 2 * d], workspace[2 * d : 3 * d], workspace[3 * d : 4 * d]
    return VRTDState(anchor, w, g, chosen, workspace[4 * d :])


@kernel
def vrtd_absorb(params, options, state, x):  # the sum of line 4 (3)
    add_pseudo_gradient(state.g_anchor, 1.0, state.theta_anchor, x)
    if options.counts:
        state.numbers[1] += 1.0


@kernel
def vrtd_begin(params, options, state, stream):  # alpha g_m, and theta_{m,0} = theta_anchor: line 2
    size = n_steps = params.batch_size
    if options.counts:
        size = np.int64(state.numbers[1])
        n_steps = min(size, params.n_steps)
        state.numbers[1], state.numbers[2] = 0.0, n_steps
    for i in range(state.w.size):
        state.g_anchor[i] *= params.step_size / size
        state.w[i] = 0.0
        state.chosen[i] = 0.0
    last = n_steps - 1
    state.numbers[0] = uniform_index(stream, last + 1) if options.output == _RANDOM else last


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
    if options.output == _AVERAGE or options.output == _TAIL:
        n_steps = np.int64(state.numbers[2]) if options.counts else params.batch_size
        skipped = n_steps // 2 if options.output == _TAIL else 0
        if t >= skipped:
            for i in range(w.size):
                state.chosen[i] += w[i] / (n_steps - skipped)
    elif t == state.numbers[0]:
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


# On sparse rows, the term alpha g_m of line 8 is not added to every coordinate in every step. After t steps
# w = v + t alpha g_m, where v changes only at nonzero features. The sum of w over steps follows from v and from the sum
# of its changes multiplied by t: both are closed forms, so that no coordinate has to catch up.


class SparseVRTDState(NamedTuple):
    table: (
        Floats  # for each coordinate theta_anchor, the sum of g_x(theta_anchor), v, and the sum of t times its changes
    )
    numbers: Floats  # as in VRTDState, and alpha divided by the size of the batch


@kernel
def sparse_vrtd_views(workspace, d):
    return SparseVRTDState(workspace, workspace[4 * d :])


@kernel
def sparse_vrtd_absorb(params, options, state, x):
    add_row(state.table, 4, 1, x.weight * sparse_td_error(state.table, 4, 0, x), x)
    if options.counts:
        state.numbers[1] += 1.0


@kernel
def sparse_vrtd_begin(params, options, state, stream):
    size = n_steps = params.batch_size
    if options.counts:
        size = np.int64(state.numbers[1])
        n_steps = min(size, params.n_steps)
        state.numbers[1], state.numbers[2] = 0.0, n_steps
    last = n_steps - 1
    state.numbers[0] = uniform_index(stream, last + 1) if options.output == _RANDOM else last
    state.numbers[3] = params.step_size / size


@kernel
def sparse_value_of_w(table, drift, rows, row):
    first, last = entries(rows, row)
    total = 0.0
    for e in range(first, last):
        i = rows.columns[e]
        total += rows.values[e] * (table[place(i, 4, 2)] + drift * table[place(i, 4, 1)])
    return total


@kernel
def sparse_vrtd_step(params, options, state, x, t, epoch):
    if t <= state.numbers[0]:  # steps after the output have no effect
        table, drift = state.table, t * state.numbers[3]
        ahead = sparse_value_of_w(table, drift, x.phi_next, x.row_next) if x.discount != 0.0 else 0.0
        difference = x.discount * ahead - sparse_value_of_w(table, drift, x.phi, x.row)
        factor = params.step_size * x.weight * difference
        skipped = (np.int64(state.numbers[0]) + 1) // 2 if options.output == _TAIL else 0
        later = max(t - skipped, 0)
        first, last = entries(x.phi, x.row)
        for e in range(first, last):
            i, change = x.phi.columns[e], factor * x.phi.values[e]
            table[place(i, 4, 2)] += change
            if options.output == _AVERAGE or options.output == _TAIL:
                table[place(i, 4, 3)] += later * change


@kernel
def sparse_vrtd_settle(params, options, state, i):  # line 10 (9)
    table, n = state.table, np.int64(state.numbers[0]) + 1
    drift = state.numbers[3] * table[place(i, 4, 1)]
    w = table[place(i, 4, 2)]
    if options.output == _AVERAGE or options.output == _TAIL:
        skipped = n // 2 if options.output == _TAIL else 0
        w -= table[place(i, 4, 3)] / (n - skipped)
        drift *= 0.5 * (n * (n + 1) - skipped * (skipped + 1)) / (n - skipped)
    else:
        drift *= n
    table[place(i, 4, 0)] += w + drift
    for k in range(1, 4):
        table[place(i, 4, k)] = 0.0


@kernel
def sparse_vrtd_output(params, options, state, epoch, out):
    for i in range(out.size):
        out[i] = state.table[place(i, 4, 0)]


@dataclass(frozen=True)
class VRTD(Algorithm):
    """Variance-reduced TD: Algorithm 1 with "iid" sampling, Algorithm 2 with "markov".

    A batch of one sample gives TD: there is nothing to correct, no inner sample, and one pseudo-gradient per epoch.

    Parameters
    ----------
    step_size : float, default=0.1
        Step size alpha.
    batch_size : int, default=500
        Batch size M, which is also the number of inner steps. If batches grow, the size of the first one.
    radius : float or None, default=None
        Radius of the ball onto which iterates are projected. None means no projection.
    output : {"random", "last", "average", "tail"} or None, default=None
        Output of an epoch: a random iterate, the last one, or the mean of all ("average") or of the second half
        ("tail"). None means "random", or "tail" if batches grow.
    inner : {"fresh", "resample"} or None, default=None
        Source of the samples of inner steps: new samples ("fresh") or the batch ("resample"). None means "fresh" with
        independent samples and "resample" otherwise.
    growth : float or None, default=None
        Growth factor of the batch from epoch to epoch. None means batches of one size.
    n_steps : int or None, default=None
        Largest number of inner steps per epoch. None means the size of the batch.

    Examples
    --------
    >>> VRTD(step_size=0.1, batch_size=500).epoch("markov").n_gradients
    1000
    >>> growing = VRTD(step_size=0.1, batch_size=500, growth=8.0, n_steps=1000).epoch("markov")
    >>> growing.gradients_until(3)  # batches of 500, 4,000 and 32,000, with 500, 1,000 and 1,000 steps
    array(39000)
    """

    step_size: float = 0.1
    batch_size: int = 500
    radius: float | None = None
    output: Output | None = None
    inner: Inner | None = None
    growth: float | None = None
    n_steps: int | None = None

    name = "vrtd"
    kernels = Kernels(vrtd_views, vrtd_step, vrtd_output, vrtd_absorb, vrtd_begin, vrtd_close)
    n_vectors, n_scalars = 4, 4
    sparse_kernels = Kernels(
        sparse_vrtd_views, sparse_vrtd_step, sparse_vrtd_output, sparse_vrtd_absorb, sparse_vrtd_begin,
        settle=sparse_vrtd_settle,
    )  # fmt: skip
    n_sparse_vectors = 4
    step_size_fields = ("step_size",)
    tuned = {"step_size": STEP_SIZES, "batch_size": Tuned((0.002, 0.05, 0.5), is_share=True)}

    def __post_init__(self) -> None:
        check_positive("step_size", self.step_size)
        check_count("batch_size", self.batch_size)
        check_radius(self.radius)
        check_choice("output", self.output, (None, *_OUTPUTS))
        check_choice("inner", self.inner, (None, "fresh", "resample"))
        if self.growth is not None:
            check_positive("growth", self.growth)
            problem = f"growth must be at least {_LEAST_GROWTH}, but got {self.growth}."
            require(self.growth >= _LEAST_GROWTH, problem, "Pass a factor such as 8.")
        check_exact_count("n_steps", 1 if self.n_steps is None else self.n_steps)

    def epoch(self, sampling: Sampling, n_rows: int = 0) -> Epoch:
        size, default = int(self.batch_size), "fresh" if sampling == "iid" else "resample"
        if size == 1 and not self.grows:
            return Epoch(n_absorb=1, n_steps=1, inner_samples="resample", gradients_per_step=0)
        sizes: tuple[int, ...] = ()
        if self.growth is not None:
            largest = n_rows or _LARGEST_BATCH
            sizes, size = grow_batches(size, self.growth, largest), max(size, largest)
        shapes = [(each, min(each, self.n_steps or each)) for each in (*sizes, size)]
        return Epoch(*shapes[-1], self.inner or cast("Inner", default), warmup=tuple(shapes[:-1]))

    @property
    def grows(self) -> bool:
        """Whether batches grow from epoch to epoch."""
        return self.growth is not None

    @property
    def returned(self) -> Output:
        """Kind of output of an epoch: ``output``, or its default if it is None."""
        return self.output or ("tail" if self.grows else "random")

    def params(self) -> VRTDParams:
        size = int(self.batch_size)
        n_steps = int(self.n_steps or (_LARGEST_BATCH if self.grows else size))
        return VRTDParams(float(self.step_size), size, float(self.radius or 0.0), n_steps)

    def options(self) -> VRTDOptions:
        counts = self.grows or (self.n_steps or self.batch_size) < self.batch_size
        return VRTDOptions(int(self.radius is not None), _OUTPUTS[self.returned], int(counts))

    @property
    def learns_from_sparse_rows(self) -> bool:
        return self.radius is None

    @property
    def largest_step_size(self) -> float:
        return float(self.step_size)
