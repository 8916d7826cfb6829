"""Transitions of a finite chain: independent draws from its stationary distribution, or one trajectory.

A dense chain pads its rows to a power of two, so that the handle s << shift | s' can be decoded without a table. A
sparse chain, or one with several rewards per transition, uses the index of an edge as a handle.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import Floats, aligned_copy
from vrtd.kernels.jit import kernel
from vrtd.kernels.random import next_word
from vrtd.kernels.sampling import build_alias, pick
from vrtd.kernels.transition import Transition
from vrtd.problems import MarkovRewardProcess
from vrtd.sources.source import Source

_0, _1 = np.uint64(0), np.uint64(1)


class ChainData(NamedTuple):
    """Tables of a chain, indexed by handle. Those that its kind does not read are empty."""

    phi: Any
    start: Any  # alias cells of the distribution of s_0, or of every s if samples are independent
    cells: Any  # alias cells of the rows of P: row s at s << shift (dense), or at indptr[s]
    reward: Any
    discount: Any  # one number, or one per transition
    weight: Any
    indptr: Any
    origin: Any
    successor: Any
    n_states: Any
    shift: Any


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
def sparse_read(data, slots, lane, handle):
    return sparse_transition(data, handle, data.discount)


@kernel
def sparse_read_discounts(data, slots, lane, handle):
    return sparse_transition(data, handle, data.discount[handle])


@kernel
def general_read(data, slots, lane, handle):
    row, row_next = np.uint64(data.origin[handle]), np.uint64(data.successor[handle])
    discount = data.discount[handle]
    return Transition(data.phi, row, data.phi, row_next, data.reward[handle], discount, data.weight[handle], discount)


def chain_source(
    mrp: MarkovRewardProcess, phi: Floats, sampling: str, start: Floats, specialised: bool = True
) -> Source:
    """Return a source of transitions of a chain.

    Parameters
    ----------
    mrp : MarkovRewardProcess
        The chain.
    phi : ndarray of shape (S, d)
        Features, one row per state.
    sampling : {"iid", "markov"}
        Independent draws or one trajectory.
    start : ndarray of shape (S,)
        Distribution of every state ("iid") or of the first one ("markov").
    specialised : bool, default=True
        Use the tables of this kind of chain. If False, the source is of one kind for all chains, as it always is for
        chains with importance ratios.

    Returns
    -------
    Source
        The source.
    """
    phi, n, iid = aligned_copy(phi), mrp.n_states, sampling == "iid"
    edges = mrp.edges  # read-only arrays would make Numba compile again, so the source has copies
    cells = build_alias(edges.indptr.copy(), edges.probability.copy())
    start_cells = build_alias(np.array([0, start.size]), start.copy())
    constant = bool(np.all(edges.discount == edges.discount[0]))
    general = mrp.is_weighted or not specialised
    discount = edges.discount.copy()
    tables: Any
    if not general and _is_dense(mrp):
        shift = max(n - 1, 1).bit_length()
        cells, reward, discount = (_pad(table, n, shift) for table in (cells, edges.reward, discount))
        kind, tables = "dense", (*[np.empty(0)] * 4, np.uint64(n), np.uint64(shift))
        draw = dense_draw_iid if iid else dense_draw_markov
        read = dense_read if constant else dense_read_discounts
    else:
        reward = edges.reward.copy()
        weight, origin, successor = edges.weight.copy(), edges.origin.copy(), edges.successor.copy()
        kind = "general" if general else "sparse"
        tables = weight, edges.indptr.astype(np.uint64), origin, successor, _0, _0
        draw = sparse_draw_iid if iid else sparse_draw_markov
        read = general_read if general else sparse_read if constant else sparse_read_discounts
    discounts = float(discount[0]) if constant and not general else discount
    data = ChainData(phi, start_cells, cells, reward, discounts, *tables)
    return Source(f"{kind}_{sampling}", data, chain_reset, draw, read, phi.shape[1], n_handles=reward.size)


def _is_dense(mrp: MarkovRewardProcess) -> bool:
    """Return whether every state leads to every state exactly once. With 2**16 states, a handle still has 32 bits."""
    n, successor = mrp.n_states, mrp.edges.successor
    return n <= 2**16 and successor.size == n * n and bool(np.all(successor.reshape(n, n) == np.arange(n)))


def _pad(values: NDArray[Any], n_states: int, shift: int) -> NDArray[Any]:
    table = np.zeros((n_states, 1 << shift), values.dtype)
    table[:, :n_states] = values.reshape(n_states, n_states)
    return table.ravel()
