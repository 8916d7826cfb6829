"""Transitions of a finite chain: independent draws from its stationary distribution, or one trajectory.

A dense chain pads its rows to a power of two, so that the handle s << shift | s' needs no table to be read back. A
sparse chain, or one with several rewards for a transition, hands out the index of an edge.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.kernels.jit import kernel
from vrtd.kernels.memory import aligned_copy
from vrtd.kernels.random import next_word
from vrtd.kernels.sampling import build_alias, pick
from vrtd.kernels.transitions import Transition
from vrtd.problems import MarkovRewardProcess
from vrtd.sources.source import Source

_0, _1 = np.uint64(0), np.uint64(1)


class DenseChain(NamedTuple):
    phi: Any
    start: Any  # alias cells: the distribution of s_0, or of every s when samples are independent
    cells: Any  # alias cells of the rows of P, at s << shift
    reward: Any
    discount: Any  # one number, or one for each transition
    n_states: Any
    shift: Any


class SparseChain(NamedTuple):
    phi: Any
    start: Any
    cells: Any  # alias cells, row s at indptr[s]
    reward: Any
    discount: Any
    indptr: Any
    origin: Any
    successor: Any


class GeneralChain(NamedTuple):
    phi: Any
    start: Any
    cells: Any
    reward: Any
    discount: Any
    weight: Any
    indptr: Any
    origin: Any
    successor: Any


@kernel
def chain_reset(data, slots, lane, cursor, stream):
    cursor[0] = pick(data.start, _0, np.uint64(data.start.size), next_word(stream))


@kernel
def dense_draw_iid(data, slots, lane, slot, cursor, stream):
    state = pick(data.start, _0, data.n_states, next_word(stream))
    return (state << data.shift) | pick(data.cells, state << data.shift, data.n_states, next_word(stream))


@kernel
def dense_draw_markov(data, slots, lane, slot, cursor, stream):
    base = cursor[0] << data.shift
    successor = pick(data.cells, base, data.n_states, next_word(stream))
    cursor[0] = successor
    return base | successor


@kernel
def dense_transition(data, handle, discount):
    row, row_next = handle >> data.shift, handle & ((_1 << data.shift) - _1)
    return Transition(data.phi, row, data.phi, row_next, data.reward[handle], discount, 1.0, discount)


@kernel
def dense_read(data, slots, lane, handle):
    return dense_transition(data, handle, data.discount)


@kernel
def dense_read_discounts(data, slots, lane, handle):
    return dense_transition(data, handle, data.discount[handle])


@kernel
def sparse_pick(data, state, stream):
    base = data.indptr[state]
    return base + pick(data.cells, base, data.indptr[state + _1] - base, next_word(stream))


@kernel
def sparse_draw_iid(data, slots, lane, slot, cursor, stream):
    state = pick(data.start, _0, np.uint64(data.start.size), next_word(stream))
    return sparse_pick(data, state, stream)


@kernel
def sparse_draw_markov(data, slots, lane, slot, cursor, stream):
    edge = sparse_pick(data, cursor[0], stream)
    cursor[0] = np.uint64(data.successor[edge])
    return edge


@kernel
def sparse_transition(data, handle, discount):
    row, row_next = np.uint64(data.origin[handle]), np.uint64(data.successor[handle])
    return Transition(data.phi, row, data.phi, row_next, data.reward[handle], discount, 1.0, discount)


@kernel
def general_read(data, slots, lane, handle):
    row, row_next = np.uint64(data.origin[handle]), np.uint64(data.successor[handle])
    discount = data.discount[handle]
    return Transition(data.phi, row, data.phi, row_next, data.reward[handle], discount, data.weight[handle], discount)


@kernel
def sparse_read(data, slots, lane, handle):
    return sparse_transition(data, handle, data.discount)


@kernel
def sparse_read_discounts(data, slots, lane, handle):
    return sparse_transition(data, handle, data.discount[handle])


def chain_source(
    mrp: MarkovRewardProcess,
    phi: NDArray[np.float64],
    sampling: str,
    start: NDArray[np.float64],
    specialised: bool = True,
) -> Source:
    """The source for `sampling` "iid" or "markov"; `start` is the distribution of s (i.i.d.) or of s_0 (Markov).

    Not `specialised`, it is of one kind for all chains, as it is for those with importance ratios.
    """
    phi = aligned_copy(phi)
    edges = mrp.edges  # read-only, and Numba compiles anew for that: the source has copies
    cells = build_alias(edges.indptr.copy(), edges.probability.copy())
    start_cells = build_alias(np.array([0, start.size]), start.copy())
    constant = bool(np.all(edges.discount == edges.discount[0]))
    sparse_draw = sparse_draw_iid if sampling == "iid" else sparse_draw_markov
    indptr = edges.indptr.astype(np.uint64)
    if mrp.is_weighted or not specialised:
        kind = "general"
        data: Any = GeneralChain(
            phi,
            start_cells,
            cells,
            edges.reward.copy(),
            edges.discount.copy(),
            edges.weight.copy(),
            indptr,
            edges.origin.copy(),
            edges.successor.copy(),
        )
        draw, read = sparse_draw, general_read
    elif _is_dense(mrp):
        kind, n = "dense", mrp.n_states
        shift = max(n - 1, 1).bit_length()
        data = DenseChain(
            phi,
            start_cells,
            _padded(cells, n, shift),
            _padded(edges.reward, n, shift),
            float(edges.discount[0]) if constant else _padded(edges.discount, n, shift),
            np.uint64(n),
            np.uint64(shift),
        )
        draw = dense_draw_iid if sampling == "iid" else dense_draw_markov
        read = dense_read if constant else dense_read_discounts
    else:
        kind = "sparse"
        data = SparseChain(
            phi,
            start_cells,
            cells,
            edges.reward.copy(),
            float(edges.discount[0]) if constant else edges.discount.copy(),
            indptr,
            edges.origin.copy(),
            edges.successor.copy(),
        )
        draw = sparse_draw
        read = sparse_read if constant else sparse_read_discounts
    return Source(f"{kind}_{sampling}", data, chain_reset, draw, read, phi.shape[1])


def _is_dense(mrp: MarkovRewardProcess) -> bool:
    """Whether every state leads to every state, once; 2**16 states keep a handle within 32 bits."""
    n, successor = mrp.n_states, mrp.edges.successor
    return n <= 2**16 and successor.size == n * n and bool(np.all(successor.reshape(n, n) == np.arange(n)))


def _padded(values: NDArray[Any], n_states: int, shift: int) -> NDArray[Any]:
    table = np.zeros((n_states, 1 << shift), values.dtype)
    table[:, :n_states] = values.reshape(n_states, n_states)
    return table.ravel()
