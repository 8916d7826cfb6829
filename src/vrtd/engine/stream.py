"""One run over the rows of a log, with the same kernels as the loop of many runs.

``consume`` is a template like `vrtd.engine.loop.advance`. It reads one state and writes another, and only if the new
one is finite: a row with NaN or a step that diverges writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from vrtd.algorithms import Algorithm, Epoch, check_sampling, check_sparse_rows
from vrtd.algorithms._base.algorithm import ignore
from vrtd.checks import require
from vrtd.engine.loop import with_fixed_width
from vrtd.kernels.jit import UNBOUND, borrow, kernel, specialise, stack_array
from vrtd.kernels.linalg import squared_norm
from vrtd.kernels.random import uniform_index
from vrtd.kernels.sparse import entries, fetch
from vrtd.kernels.transition import Transition

# A single run cannot hide its latency behind others. Above this number of features, a vector loop is faster than
# unrolled code (measured on rows in the cache, in both precisions).
SMALL = 8
MOST = float(np.finfo(np.float64).max)

# Placeholders of the template: `compile_stream` binds each to a kernel or to a constant.
views = absorb = begin = step = close = settle = output = UNBOUND
FEATURES = WORDS = VECTORS = 1
ABSORBS = RESAMPLES = IS_SMALL = IS_WEIGHTED = IS_SPARSE = SETTLES = True
OPTIONS: Any = ()


@kernel
def row_of(phi, phi_next, reward, discount, weight, ends, is_weighted, i):
    """Return row i of a log. Traces stop at rows that end an episode or a segment."""
    i = np.uint64(i)  # avoids the check for negative indices
    carry = 0.0 if ends[i] else discount[i]
    return Transition(phi, i, phi_next, i, reward[i], discount[i], weight[i] if is_weighted else 1.0, carry)


def consume(
    params, phi, reward, phi_next, discount, weight, ends, first, n_epochs, epoch_0,
    state, scratch, new_state, stream, theta, n_features, n_absorb, n_steps,
):  # fmt: skip
    """Run ``n_epochs`` epochs on the rows from ``first`` on, and return whether the result is finite.

    If it is, write new_state (which may be ``state``), stream and theta.
    """
    params, phi, phi_next, scratch = borrow(params), borrow(phi), borrow(phi_next), borrow(scratch)
    reward, discount, ends, weight = borrow(reward), borrow(discount), borrow(ends), borrow(weight)
    d = FEATURES if IS_SMALL else n_features
    if IS_SMALL:
        workspace = stack_array((WORDS,), np.float64)
    else:
        workspace = scratch
    for i in range(state.size):
        workspace[i] = state[i]
    random = stack_array((2,), np.uint64)
    random[0], random[1] = stream[0], stream[1]
    ahead = stack_array((2,), np.uint64)
    rows = n_absorb if RESAMPLES else n_absorb + n_steps
    for epoch in range(epoch_0, epoch_0 + n_epochs):
        if ABSORBS:
            for i in range(first, first + n_absorb):
                if IS_SPARSE:
                    fetch(workspace, VECTORS, phi, phi_next, i + 1)
                x = row_of(phi, phi_next, reward, discount, weight, ends, IS_WEIGHTED, i)
                absorb(params, OPTIONS, views(workspace, d), with_fixed_width(x, d))
            begin(params, OPTIONS, views(workspace, d), random)
        for t in range(n_steps if ABSORBS else 1):
            if RESAMPLES:
                i = first + np.int64(uniform_index(random, n_absorb))
            else:
                i = first + n_absorb + t
            if IS_SPARSE and RESAMPLES:  # the next row is that of the next random number
                ahead[0], ahead[1] = random[0], random[1]
                fetch(workspace, VECTORS, phi, phi_next, first + np.int64(uniform_index(ahead, n_absorb)))
            elif IS_SPARSE:
                fetch(workspace, VECTORS, phi, phi_next, i + 1)
            x = row_of(phi, phi_next, reward, discount, weight, ends, IS_WEIGHTED, i)
            step(params, OPTIONS, views(workspace, d), with_fixed_width(x, d), t, epoch)
        if SETTLES:
            for j in range(first, first + rows):
                begin_entry, end_entry = entries(phi, np.uint64(j))
                for e in range(begin_entry, end_entry):
                    settle(params, OPTIONS, views(workspace, d), phi.columns[e])
        if ABSORBS:
            close(params, OPTIONS, views(workspace, d))
        first += rows
    if not squared_norm(workspace) <= MOST:  # also if it is NaN
        return False
    for i in range(state.size):
        new_state[i] = workspace[i]
    stream[0] = random[0]
    output(params, OPTIONS, views(new_state, d), epoch_0 + n_epochs, theta)
    return True


def absorb_rows(params, phi, reward, phi_next, discount, weight, ends, first, last, state, new_state, n_features):
    """Absorb rows first, ..., last - 1 into the open batch of an epoch that does not fit in memory.

    Write new_state if the result is finite, and return whether it is.
    """
    params, phi, phi_next = borrow(params), borrow(phi), borrow(phi_next)
    reward, discount, ends, weight = borrow(reward), borrow(discount), borrow(ends), borrow(weight)
    for i in range(state.size):
        new_state[i] = state[i]
    for i in range(first, last):
        if IS_SPARSE:
            fetch(new_state, VECTORS, phi, phi_next, i + 1)
        x = row_of(phi, phi_next, reward, discount, weight, ends, IS_WEIGHTED, i)
        absorb(params, OPTIONS, views(new_state, n_features), x)
    return squared_norm(new_state) <= MOST


def finish_epoch(params, phi, reward, phi_next, discount, weight, ends, n_steps, state, stream, n_features):
    """Make the steps of an epoch after its batch, on rows drawn from these, and change the state in place."""
    params, phi, phi_next = borrow(params), borrow(phi), borrow(phi_next)
    reward, discount, ends, weight = borrow(reward), borrow(discount), borrow(ends), borrow(weight)
    begin(params, OPTIONS, views(state, n_features), stream)
    for t in range(n_steps):
        i = np.int64(uniform_index(stream, reward.size))
        x = row_of(phi, phi_next, reward, discount, weight, ends, IS_WEIGHTED, i)
        step(params, OPTIONS, views(state, n_features), x, t, 0)
    close(params, OPTIONS, views(state, n_features))


def _epochs_within(phi, phi_next, discount, weight, first, n_epochs, size, limit):
    """Count the epochs of ``size`` rows from ``first`` on whose growth ratio is at most ``limit``.

    Return the count and the ratio of the next epoch (`vrtd.theory.settings.growth_ratio`). The loop handles numbers
    that are not finite.
    """
    for epoch in range(n_epochs):
        growth = decay = 0.0
        for i in range(first, first + size):
            now = then = both = 0.0
            for j in range(phi.shape[1]):
                x, y = np.float64(phi[i, j]), np.float64(phi_next[i, j])
                now += x * x
                then += y * y
                both += x * y
            gamma = discount[i]
            w = weight[i] if weight.size else 1.0
            if gamma == 0.0:  # the next features need not be finite
                growth += w * w * now * now
                decay += w * now
            else:
                growth += w * w * now * (now - 2.0 * gamma * both + gamma * gamma * then)
                decay += w * ((1.0 - gamma) * now + gamma * (now - 2.0 * both + then) / 2.0)
        if limit * decay < growth <= MOST:
            return epoch, growth / decay
        first += size
    return n_epochs, limit


def epochs_within() -> Callable[..., Any]:
    """Return the compiled form of ``_epochs_within``."""
    return specialise(_epochs_within, "epochs_within", {})


def kernels_for(algorithm: Algorithm, is_sparse: bool) -> tuple[dict[str, Any], str]:
    """Return the kernels for dense or sparse rows as bindings of a template, and a suffix for the name of a loop."""
    if not is_sparse:
        return {**vars(algorithm.kernels), "SETTLES": False, "IS_SPARSE": False}, ""
    check_sparse_rows(algorithm)
    kernels: Any = algorithm.sparse_kernels
    bindings = {**vars(kernels), "SETTLES": kernels.settle is not ignore, "with_fixed_width": as_it_is}
    return bindings | {"IS_SPARSE": True, "VECTORS": algorithm.n_sparse_vectors}, "_sparse"


@kernel
def as_it_is(x, d):  # noqa: ARG001
    """Return the transition, whose rows are sparse and have no width."""
    return x


def compile_epoch(
    algorithm: Algorithm, is_weighted: bool, is_sparse: bool = False
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the loops ``absorb_rows`` and ``finish_epoch`` of one algorithm, for any number of features."""
    options = algorithm.options()
    kernels, suffix = kernels_for(algorithm, is_sparse)
    kind = "_".join(map(str, (algorithm.name, *options))) + ("_weighted" if is_weighted else "") + suffix
    bindings = kernels | {"IS_WEIGHTED": is_weighted, "OPTIONS": options}
    return (
        specialise(absorb_rows, f"absorb_rows_{kind}", bindings),
        specialise(finish_epoch, f"finish_epoch_{kind}", bindings),
    )


def compile_stream(
    algorithm: Algorithm, epoch: Epoch, n_features: int, is_weighted: bool, is_sparse: bool = False
) -> Callable[..., Any]:
    """Return the loop of one algorithm over a log, compiled at its first call per dtype of rows and cached on disk."""
    check_sampling(algorithm, "markov")
    problem = f"All epochs on a log must have the same length, but got {epoch}."
    require(algorithm.learns_from_log, problem, "Use an algorithm whose epochs have one length.")
    options, small = algorithm.options(), n_features <= SMALL and not is_sparse
    kernels, suffix = kernels_for(algorithm, is_sparse)
    absorbs, size = epoch.n_absorb > 0, f"d{n_features}" if small else "d"
    kind = "_".join(map(str, (algorithm.name, *options, epoch.inner_samples if absorbs else "online")))
    bindings = kernels | {
        "FEATURES": n_features if small else 0,
        "WORDS": algorithm.workspace_size(n_features) if small else 1,
        "ABSORBS": absorbs,
        "RESAMPLES": epoch.inner_samples == "resample",
        "IS_SMALL": small,
        "IS_WEIGHTED": is_weighted,
        "OPTIONS": options,
    }
    return specialise(consume, f"consume_{kind}{'_weighted' if is_weighted else ''}_{size}{suffix}", bindings)
