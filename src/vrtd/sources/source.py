"""The interface between sources of transitions and the engine: plain arrays and a few kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Slots(NamedTuple):
    """Storage of the interleaved runs, for transitions of simulators and for random subsets of rows.

    Arrays that a source does not use are empty.

    Attributes
    ----------
    phi : ndarray of shape (n_lanes, 2 n_slots, d)
        Features of the states before and after each transition.
    reward, discount : ndarray of shape (n_lanes, n_slots)
        Rewards and discounts.
    carry : ndarray of shape (n_lanes, n_slots)
        Discounts of traces, 0 where a transition ends an episode.
    order : ndarray of shape (n_lanes, n)
        The row numbers 0, 1, ..., n - 1 of the data set, between two batches.
    """

    phi: NDArray[np.float64]
    reward: NDArray[np.float64]
    discount: NDArray[np.float64]
    carry: NDArray[np.float64]
    order: NDArray[np.uint32]


@dataclass(frozen=True)
class Source:
    """Source of transitions: data and kernels.

    A transition is represented by a handle, an unsigned integer, so a batch is a list of handles for every source.

    Parameters
    ----------
    name : str
        Name of the kind of source, part of the names of compiled loops.
    data : NamedTuple
        Arrays and numbers that the kernels read.
    reset : callable
        ``reset(data, slots, lane, cursor, stream)`` sets the cursor to the start of a run.
    draw : callable
        ``draw(data, slots, lane, slot, cursor, stream) -> handle`` draws the next sample.
    read : callable
        ``read(data, slots, lane, handle) -> Transition`` returns the transition of a handle.
    n_features : int
        Number of features.
    cursor_size : int, default=1
        Number of entries of a cursor, which holds the position of one run.
    cursor_dtype : type, default=numpy.uint64
        Type of the entries of a cursor.
    uses_slots : bool, default=False
        Whether transitions are stored in `Slots`.
    draw_batch : callable or None, default=None
        ``draw_batch``, with the arguments of ``draw``, draws the next sample of a batch. None means ``draw``.
    choose : callable or None, default=None
        ``choose(data, slots, lane, slot, size, stream) -> handle`` draws the next row of a random subset of ``size``
        rows.
    n_rows : int, default=0
        Number of rows of a data set. 0 means that samples never end.
    n_handles : int, default=0
        Number of handles. 0 means that a handle is a slot.
    """

    name: str
    data: Any
    reset: Callable[..., Any]
    draw: Callable[..., Any]
    read: Callable[..., Any]
    n_features: int
    cursor_size: int = 1
    cursor_dtype: type[np.generic] = np.uint64
    uses_slots: bool = False
    draw_batch: Callable[..., Any] | None = None
    choose: Callable[..., Any] | None = None
    n_rows: int = 0
    n_handles: int = 0

    @property
    def is_chain(self) -> bool:
        """Whether features are those of states, in ``data.phi``."""
        return self.n_rows == 0 and not self.uses_slots


def make_slots(source: Source, n_lanes: int, n_slots: int, subset: bool = False) -> Slots:
    """Return the storage for ``n_lanes`` interleaved runs, empty where the source does not use it."""
    order = np.tile(np.arange(source.n_rows if subset else 0, dtype=np.uint32), (n_lanes, 1))
    if not source.uses_slots:
        n_lanes = n_slots = 0
    reward, discount, carry = np.zeros((3, n_lanes, n_slots))
    return Slots(np.zeros((n_lanes, 2 * n_slots, source.n_features)), reward, discount, carry, order)
