"""The one run loop: every algorithm on every source, a few runs at a time.

`advance` is a template: the names below are bound to the kernels of one algorithm and one source before it is compiled.
Runs are taken in groups of `LANES`, one step of each in turn, so that the latency of one hides behind the others. Run i
always sits in lane i mod LANES: the compiler may order the arithmetic of two lanes differently, and the bits of a run
must not depend on how runs are cut into blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from vrtd.algorithms import Algorithm, Epoch
from vrtd.errors import InvalidInputError
from vrtd.kernels.jit import borrow, carray, kernel, specialise, stack_words, with_width
from vrtd.kernels.linalg import quadratic_form, squared_norm
from vrtd.kernels.random import uniform_index
from vrtd.kernels.transitions import Transition
from vrtd.sources import Source

# Up to SMALL features the dimension is a constant, everything is unrolled and the workspace lives in registers; beyond,
# unrolling costs more than it gains (measured with benchmarks/throughput.py).
SMALL = 20
LOCAL = 512  # numbers; a larger workspace stays on the heap
LANES = 2

_unbound: Any = None
views = absorb = begin = step = close = output = length = reset = draw = gather = choose = read = _unbound
FEATURES = WORDS = CURSOR = N_WORDS = N_CURSOR = N_STREAM = 1
ABSORBS = RESAMPLES = RAMPS = FOLLOWS = CHOOSES = VARIES = IS_SMALL = IS_LOCAL = True
OPTIONS: Any = ()
CURSOR_DTYPE = np.uint64


@kernel
def known(x, d):
    """The transition, with what the compiler should know of its table."""
    phi, phi_next = with_width(x.phi, d), with_width(x.phi_next, d)
    return Transition(phi, x.row, phi_next, x.row_next, x.reward, x.discount, x.weight, x.carry)


def advance(
    params, data, slots, batch, workspaces, cursors, environment, algorithm, n_features, ramp, n_absorb, n_steps,
    matrices, is_diagonal, centres, offsets, epoch_0, epochs, checkpoint, values, thetas, left,
):  # fmt: skip
    """Advance all runs from `epoch_0` epochs through the counts in `epochs`, and write what they return at each.

    `values` gets the metrics from column `checkpoint` on, `thetas` the last output, `left` the first checkpoint at
    which a run is not finite. With `checkpoint` -1 nothing is written but the state.
    """
    params, data, slots, workspaces = borrow(params), borrow(data), borrow(slots), borrow(workspaces)
    batch = with_width(batch, LANES)
    d = FEATURES if IS_SMALL else n_features
    if IS_LOCAL:
        local = carray(stack_words(N_WORDS), (LANES, WORDS), np.float64)
    cursor = carray(stack_words(N_CURSOR), (LANES, CURSOR), CURSOR_DTYPE)
    stream = carray(stack_words(N_STREAM), (2, LANES, 2), np.uint64)
    if VARIES:
        lengths = carray(stack_words(LANES), (LANES,), np.int64)
    for first in range(0, workspaces.shape[0], LANES):
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
                reset(data, slots, k, cursor[k], stream[0, k])
        done = max(epoch_0, 0)
        for c in range(epochs.size):
            for epoch in range(done, epochs[c]):
                size = ramp[epoch] if RAMPS and epoch < ramp.size else n_absorb
                steps = n_steps * size // n_absorb if FOLLOWS else n_steps
                if VARIES:  # each run has its own steps, and 0 if its next epoch would end after the checkpoint
                    steps = 0
                    for k in range(LANES):
                        state = views(workspace[k], d)
                        lengths[k] = length(params, OPTIONS, state, stream[1, k], size, epochs[c])
                        steps = max(steps, lengths[k])
                    if steps == 0:
                        break
                if ABSORBS:
                    for i in range(size):
                        for k in range(LANES):
                            if VARIES and lengths[k] == 0:
                                continue
                            if CHOOSES:
                                handle = choose(data, slots, k, i, size, stream[0, k])
                            else:
                                handle = gather(data, slots, k, i, cursor[k], stream[0, k])
                            if RESAMPLES:
                                batch[i, k] = handle
                            absorb(params, OPTIONS, views(workspace[k], d), known(read(data, slots, k, handle), d))
                    for k in range(LANES):
                        if VARIES and lengths[k] == 0:
                            continue
                        begin(params, OPTIONS, views(workspace[k], d), stream[1, k])
                for t in range(steps if ABSORBS else 1):
                    for k in range(LANES):
                        if VARIES and t >= lengths[k]:
                            continue
                        if RESAMPLES:
                            handle = np.uint64(batch[uniform_index(stream[1, k], size), k])
                        else:
                            handle = draw(data, slots, k, n_absorb, cursor[k], stream[0, k])
                        step(params, OPTIONS, views(workspace[k], d), known(read(data, slots, k, handle), d), t, epoch)
                if ABSORBS:
                    for k in range(LANES):
                        if VARIES and lengths[k] == 0:
                            continue
                        close(params, OPTIONS, views(workspace[k], d))
            done = max(done, epochs[c])
            if IS_LOCAL:  # nothing but the hot kernels may touch the stack, or the compiler keeps it in memory
                for k in range(LANES):
                    for i in range(WORDS):
                        workspaces[first + k, i] = workspace[k, i]
            for k in range(LANES if checkpoint >= 0 else 0):
                theta = thetas[first + k]
                output(params, OPTIONS, views(workspaces[first + k], d), done, theta)
                size = squared_norm(theta)
                for q in range(offsets.size):
                    value = offsets[q] + quadratic_form(matrices[q], is_diagonal[q], centres[q], theta)
                    values[first + k, checkpoint + c, q] = value
                    size += abs(value)
                if not np.isfinite(size) and left[first + k] < 0:
                    left[first + k] = checkpoint + c
        for k in range(LANES):
            for i in range(CURSOR):
                cursors[first + k, i] = cursor[k, i]
            environment[first + k, 0] = stream[0, k, 0]
            algorithm[first + k, 0] = stream[1, k, 0]


@cache
def _compile(name: str, bindings: tuple[tuple[str, Any], ...]) -> Callable[..., Any]:
    return specialise(advance, name, dict(bindings))


def compile_loop(algorithm: Algorithm, epoch: Epoch, source: Source, specialised: bool) -> Callable[..., Any]:
    """The loop of one algorithm on one source; compiled at its first call, and then cached on disk.

    Not `specialised`, it is the same for any number of features.
    """
    resamples, ramps = epoch.inner == "resample", len(epoch.ramp) > 0
    absorbs = ramps or epoch.n_absorb > 0
    if not absorbs and (epoch.n_steps != 1 or epoch.inner != "fresh"):
        raise InvalidInputError(
            "an epoch that absorbs nothing must be one step on a fresh sample", epoch, "absorb a batch, or step once"
        )
    d = source.n_features
    small = d <= SMALL and specialised
    words = algorithm.workspace_size(d, source.n_rows)
    # Of a size that the number of rows does not change: each would be a loop of its own.
    local = small and words <= LOCAL and words == algorithm.workspace_size(d)
    kernels = algorithm.kernels
    size = (f"d{d}" if small else "d") + ("" if local or not small else "_far")
    options = algorithm.options()
    inner = epoch.inner if absorbs else "online"
    kind = "_".join(map(str, ("", *options)))
    ramp = ("_ramp" if ramps else "") + ("_follows" if epoch.follows else "")
    name = f"advance_{algorithm.name}{kind}_{inner}{ramp}_{source.name}_{size}"
    bindings: dict[str, Any] = {
        "views": kernels.views, "absorb": kernels.absorb, "begin": kernels.begin, "step": kernels.step,
        "close": kernels.close, "output": kernels.output, "length": kernels.length,
        "reset": source.reset, "draw": source.draw, "gather": source.gather or source.draw, "choose": source.choose,
        "read": source.read, "FEATURES": d if small else 0,
        "WORDS": words if local else 1, "CURSOR": source.cursor_size, "N_WORDS": LANES * words if local else 1,
        "N_CURSOR": LANES * source.cursor_size,
        "N_STREAM": 4 * LANES, "ABSORBS": absorbs, "RESAMPLES": resamples, "RAMPS": ramps, "FOLLOWS": epoch.follows,
        "CHOOSES": epoch.subset, "VARIES": epoch.random_length,
        "IS_SMALL": small, "IS_LOCAL": local,
        "CURSOR_DTYPE": source.cursor_dtype, "OPTIONS": options,
    }  # fmt: skip
    return _compile(name, tuple(bindings.items()))
