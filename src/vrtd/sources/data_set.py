"""The rows of a data set as a source of transitions.

A batch is a random subset of the rows, or consecutive rows from a random one on, in cyclic order. A fresh sample is a
row drawn uniformly.
"""

from __future__ import annotations

import numpy as np

from vrtd.arrays import aligned_copy
from vrtd.kernels.jit import kernel
from vrtd.kernels.random import uniform_index
from vrtd.kernels.transition import Transition
from vrtd.problems import Transitions
from vrtd.sources.source import Source

_0, _1 = np.uint64(0), np.uint64(1)


# `data` is the tuple (phi, phi_next, reward, discount, weight) of arrays.


@kernel
def data_set_reset(data, slots, lane, cursor, stream):
    cursor[0] = uniform_index(stream, data[2].size)


@kernel
def data_set_draw(data, slots, lane, slot, cursor, stream):
    return np.uint64(uniform_index(stream, data[2].size))


@kernel
def data_set_draw_batch(data, slots, lane, slot, cursor, stream):
    row = cursor[0]
    cursor[0] = _0 if row + _1 == np.uint64(data[2].size) else row + _1
    return row


@kernel
def data_set_choose(data, slots, lane, slot, size, stream):
    """Return row ``slot`` of a random subset of ``size`` rows, by the first steps of a Fisher-Yates shuffle.

    The last call undoes the shuffle: entries that were swapped out of the subset are restored from the numbers in it.
    A subset of all rows is taken in order.
    """
    n, order, row = data[2].size, slots.order[lane], np.uint64(slot)
    if size < n:
        other = slot + np.int64(uniform_index(stream, n - slot))
        row = np.uint64(order[other])
        order[other] = order[slot]
        order[slot] = row
        if slot + 1 == size:
            for i in range(size):
                if order[i] >= size:
                    order[order[i]] = order[i]
                order[i] = i
    return row


@kernel
def data_set_read(data, slots, lane, handle):
    phi, phi_next, reward, discount, weight = data
    return Transition(phi, handle, phi_next, handle, reward[handle], discount[handle], weight[handle], 0.0)


def data_set_source(data: Transitions) -> Source:
    """Return a source of the rows of a data set.

    Parameters
    ----------
    data : Transitions
        The data set.

    Returns
    -------
    Source
        The source.
    """
    data.check_dense()
    phi, phi_next = aligned_copy(data.phi), aligned_copy(data.phi_next)
    rows = phi, phi_next, data.reward.copy(), data.discount.copy(), np.array(data.weight)
    return Source(
        "data_set", rows, data_set_reset, data_set_draw, data_set_read, data.n_features,
        draw_batch=data_set_draw_batch, choose=data_set_choose, n_rows=data.n_rows, n_handles=data.n_rows,
    )  # fmt: skip
