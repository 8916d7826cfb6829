"""The run loop: every algorithm on every source, on the CPU and on a GPU.

``advance`` is a template: the names below are bound to the kernels of one algorithm and one source before compilation.
On the CPU, runs are taken in groups of ``LANES``, one step of each in turn, which hides the latency of one run behind
the others. Run i always uses lane i mod ``LANES``: the compiler may order the arithmetic of two lanes differently, and
the bits of a run must not depend on how runs are divided into blocks. On a GPU, each run has a thread of its own:
`vrtd.engine.device` binds other functions for memory and for the runs that a thread takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.algorithms import Algorithm, Epoch
from vrtd.arrays import Floats
from vrtd.checks import require
from vrtd.kernels.jit import UNBOUND, borrow, kernel, specialise, stack_array, with_width
from vrtd.kernels.linalg import quadratic_form, squared_norm
from vrtd.kernels.random import uniform_index
from vrtd.kernels.transition import Transition
from vrtd.sources import Source

# Up to SMALL features, the dimension is a constant, everything is unrolled and the workspace is kept in registers. With
# more features, unrolling costs more than it gains (measured with benchmarks/throughput.py).
SMALL = 20
LOCAL = 512  # numbers; a larger workspace stays on the heap
LANES = 2

# Placeholders of the template: `compile_loop` binds each to a kernel or to a constant.
views = absorb = begin = step = close = output = length = reset = draw = draw_batch = choose = read = UNBOUND
FEATURES = WORDS = CURSOR = 1
ABSORBS = RESAMPLES = WARMS_UP = CHOOSES = VARIES = IS_SMALL = IS_LOCAL = True
OPTIONS: Any = ()
CURSOR_DTYPE = np.uint64


class Forms(NamedTuple):
    """The m metrics, each of the form offset + (theta - centre)^T matrix (theta - centre)."""

    matrices: Floats  # (m, d, d)
    is_diagonal: NDArray[np.bool_]  # (m,)
    centres: Floats  # (m, d)
    offsets: Floats  # (m,)


class Outputs(NamedTuple):
    """Outputs of the loop other than the state."""

    curves: Floats  # (n_runs, C, m)
    theta: Floats  # (n_runs, d)
    diverged_checkpoint: NDArray[np.int64]  # (n_runs,) where divergence of a run is first seen, or -1


@kernel
def stage(data):
    """Return the data of the source for use in the loop."""
    return borrow(data)


@kernel
def first_group():
    """Return the first run of the first group that this thread takes."""
    return 0


@kernel
def group_stride():
    """Return the distance in runs between the groups that this thread takes."""
    return LANES


@kernel
def n_columns(batch):
    """Return the number of columns of the batch, one for each run of a group."""
    return LANES


@kernel
def own_column(first, lane):
    """Return which column of the batch and which slots belong to a run: the place in its group, or the run itself."""
    return lane


@kernel
def all_columns(batch):
    """Return the number of columns of the batch of a device, one for each run: ``n_columns`` there."""
    return batch.shape[1]


@kernel
def run_itself(first, lane):
    """Return the run, which has a column and slots of its own on a device: ``own_column`` there."""
    return first


LANE_PER_RUN = {"LANES": 1, "n_columns": all_columns, "own_column": run_itself}  # bindings of the loop of a device


@kernel
def with_fixed_width(x, d):
    """Return the transition with a number of features that is known to the compiler."""
    phi, phi_next = with_width(x.phi, d), with_width(x.phi_next, d)
    return Transition(phi, x.row, phi_next, x.row_next, x.reward, x.discount, x.weight, x.carry)


def advance(params, data, slots, batch, state, batch_sizes, step_counts, forms, epoch_0, epochs, checkpoint, outputs):
    """Advance all runs from ``epoch_0`` closed epochs to each count in ``epochs``, and write what they return there.

    ``batch_sizes`` and ``step_counts`` belong to the first epochs; their last entries apply to all later epochs. The
    metrics are written to the curves from column ``checkpoint`` on. With ``checkpoint`` -1, only the state is written.
    """
    params, data, slots = borrow(params), stage(data), borrow(slots)
    workspaces, cursors, environment, algorithm = borrow(state)
    matrices, is_diagonal, centres, offsets = borrow(forms)
    curves, thetas, diverged_checkpoint = borrow(outputs)
    batch = with_width(batch, n_columns(batch))
    n_warmup = batch_sizes.size - 1
    n_absorb, n_steps = batch_sizes[n_warmup], step_counts[n_warmup]
    d = FEATURES if IS_SMALL else thetas.shape[1]
    if IS_LOCAL:
        local = stack_array((LANES, WORDS), np.float64)
    cursor = stack_array((LANES, CURSOR), CURSOR_DTYPE)
    stream = stack_array((2, LANES, 2), np.uint64)
    if VARIES:
        lengths = stack_array((LANES,), np.int64)
    for first in range(first_group(), workspaces.shape[0], group_stride()):
        if IS_LOCAL:
            workspace = local
            for k in range(LANES):
                for i in range(WORDS):
                    workspace[k, i] = workspaces[first + k, i]
        else:
            workspace = workspaces[first : first + LANES]
        for k in range(LANES):
            for i in range(CURSOR):
                cursor[k, i] = cursors[first + k, i]
            for i in range(2):
                stream[0, k, i] = environment[first + k, i]
                stream[1, k, i] = algorithm[first + k, i]
        if epoch_0 < 0:
            for k in range(LANES):
                reset(data, slots, own_column(first, k), cursor[k], stream[0, k])
        done = max(epoch_0, 0)
        for c in range(epochs.size):
            for epoch in range(done, epochs[c]):
                size = batch_sizes[epoch] if WARMS_UP and epoch < n_warmup else n_absorb
                steps = step_counts[epoch] if WARMS_UP and epoch < n_warmup else n_steps
                if VARIES:  # each run has its own length, 0 if its next epoch would end after the checkpoint
                    steps = 0
                    for k in range(LANES):
                        lengths[k] = length(params, OPTIONS, views(workspace[k], d), stream[1, k], size, epochs[c])
                        steps = max(steps, lengths[k])
                    if steps == 0:
                        break
                if ABSORBS:
                    for i in range(size):
                        for k in range(LANES):
                            if VARIES and lengths[k] == 0:
                                continue
                            own = own_column(first, k)
                            if CHOOSES:
                                handle = choose(data, slots, own, i, size, stream[0, k])
                            else:
                                handle = draw_batch(data, slots, own, i, cursor[k], stream[0, k])
                            if RESAMPLES:
                                batch[i, own] = handle
                            run = views(workspace[k], d)
                            absorb(params, OPTIONS, run, with_fixed_width(read(data, slots, own, handle), d))
                    for k in range(LANES):
                        if VARIES and lengths[k] == 0:
                            continue
                        begin(params, OPTIONS, views(workspace[k], d), stream[1, k])
                for t in range(steps if ABSORBS else 1):
                    for k in range(LANES):
                        if VARIES and t >= lengths[k]:
                            continue
                        own = own_column(first, k)
                        if RESAMPLES:
                            handle = np.uint64(batch[uniform_index(stream[1, k], size), own])
                        else:
                            handle = draw(data, slots, own, size, cursor[k], stream[0, k])
                        run = views(workspace[k], d)  # before reading the sample: the order affects the last bit
                        step(params, OPTIONS, run, with_fixed_width(read(data, slots, own, handle), d), t, epoch)
                if ABSORBS:
                    for k in range(LANES):
                        if VARIES and lengths[k] == 0:
                            continue
                        close(params, OPTIONS, views(workspace[k], d))
            done = max(done, epochs[c])
            if IS_LOCAL:  # other code must not use the stack workspace, or the compiler keeps it in memory
                for k in range(LANES):
                    for i in range(WORDS):
                        workspaces[first + k, i] = workspace[k, i]
            for k in range(LANES if checkpoint >= 0 else 0):
                theta = thetas[first + k]
                output(params, OPTIONS, views(workspaces[first + k], d), done, theta)
                size = squared_norm(theta)
                for q in range(offsets.size):
                    value = offsets[q] + quadratic_form(matrices[q], is_diagonal[q], centres[q], theta)
                    curves[first + k, checkpoint + c, q] = value
                    size += abs(value)
                if not math.isfinite(size) and diverged_checkpoint[first + k] < 0:
                    diverged_checkpoint[first + k] = checkpoint + c
        for k in range(LANES):
            for i in range(CURSOR):
                cursors[first + k, i] = cursor[k, i]
            environment[first + k, 0] = stream[0, k, 0]
            algorithm[first + k, 0] = stream[1, k, 0]


def compile_loop(algorithm: Algorithm, epoch: Epoch, source: Source, specialised: bool) -> Callable[..., Any]:
    """Return the loop of one algorithm on one source, compiled at its first call and then cached on disk.

    Unless ``specialised``, it is the same for any number of features.
    """
    name = name_loop(algorithm, epoch, source, specialised)
    return specialise(advance, name, bind_loop(algorithm, epoch, source, specialised))


def bind_loop(algorithm: Algorithm, epoch: Epoch, source: Source, specialised: bool) -> dict[str, Any]:
    """Return what the names in the template stand for, on any device."""
    absorbs, small, words, local = _layout(algorithm, epoch, source, specialised)
    is_one_step = epoch.n_steps == 1 and epoch.inner_samples == "fresh"
    problem = f"An epoch without a batch must be one step on a fresh sample, but got {epoch}."
    require(absorbs or is_one_step, problem, "Absorb a batch, or make one step.")
    return vars(algorithm.kernels) | {
        "reset": source.reset,
        "draw": source.draw,
        "draw_batch": source.draw_batch or source.draw,
        "choose": source.choose,
        "read": source.read,
        "FEATURES": source.n_features if small else 0,
        "WORDS": words if local else 1,
        "CURSOR": source.cursor_size,
        "CURSOR_DTYPE": source.cursor_dtype,
        "ABSORBS": absorbs,
        "RESAMPLES": epoch.inner_samples == "resample",
        "WARMS_UP": len(epoch.warmup) > 0,
        "CHOOSES": epoch.subset,
        "VARIES": epoch.random_length,
        "IS_SMALL": small,
        "IS_LOCAL": local,
        "OPTIONS": algorithm.options(),
    }


def is_local(algorithm: Algorithm, epoch: Epoch, source: Source, specialised: bool) -> bool:
    """Return whether the loop works on a copy of the workspace of a run, on the stack or in registers."""
    return _layout(algorithm, epoch, source, specialised)[-1]


def name_loop(algorithm: Algorithm, epoch: Epoch, source: Source, specialised: bool) -> str:
    """Return the name of the loop of one algorithm on one source. Simulations with other names compile other loops."""
    absorbs, small, _, local = _layout(algorithm, epoch, source, specialised)
    size = (f"d{source.n_features}" if small else "d") + ("" if local or not small else "_far")
    kind = "_".join(map(str, (algorithm.name, *algorithm.options(), epoch.inner_samples if absorbs else "online")))
    warmup = "_warmup" if epoch.warmup else ""
    return f"advance_{kind}{warmup}_{source.name}_{size}"


def _layout(algorithm: Algorithm, epoch: Epoch, source: Source, specialised: bool) -> tuple[bool, bool, int, bool]:
    """Return whether epochs absorb, whether d is a constant, the size of a workspace, and whether it is local."""
    absorbs = len(epoch.warmup) > 0 or epoch.n_absorb > 0
    small = source.n_features <= SMALL and specialised
    words = algorithm.workspace_size(source.n_features, source.n_rows)
    # A workspace that grows with the number of rows stays on the heap, or each number would compile another loop.
    local = small and words <= LOCAL and words == algorithm.workspace_size(source.n_features)
    return absorbs, small, words, local
