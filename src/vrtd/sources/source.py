"""What every source of transitions gives to the engine: plain arrays and a few kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Slots(NamedTuple):
    """Room for each interleaved run: for what a simulator computes, and for random subsets of rows; else empty."""

    phi: NDArray[np.float64]  # (n_lanes, 2 n_slots, d): the states before and after each transition
    reward: NDArray[np.float64]  # (n_lanes, n_slots)
    discount: NDArray[np.float64]  # (n_lanes, n_slots)
    carry: NDArray[np.float64]  # (n_lanes, n_slots)
    order: NDArray[np.uint32]  # (n_lanes, n_rows): 0, 1, ..., n_rows - 1 between two batches


@dataclass(frozen=True)
class Source:
    """Data and kernels of one source.

    A transition is known by a handle, an unsigned integer that `draw` returns and `read` turns into a `Transition`; so
    a batch is a list of handles, whatever the source.

    - ``reset(data, slots, lane, cursor, stream)`` puts the cursor at the start of a run;
    - ``draw(data, slots, lane, slot, cursor, stream) -> handle`` takes the next sample;
    - ``draw_batch``, with the arguments of `draw`, takes the next one of a batch, where that is another thing;
    - ``choose(data, slots, lane, slot, size, stream) -> handle`` takes the next one of a random subset of `size` rows;
    - ``read(data, slots, lane, handle) -> Transition`` looks it up.
    """

    name: str  # tells compiled loops apart
    data: Any  # a NamedTuple of arrays and scalars
    reset: Callable[..., Any]
    draw: Callable[..., Any]
    read: Callable[..., Any]
    n_features: int
    cursor_size: int = 1
    cursor_dtype: type[np.generic] = np.uint64
    uses_slots: bool = False
    draw_batch: Callable[..., Any] | None = None
    choose: Callable[..., Any] | None = None
    n_rows: int = 0  # of a data set; 0: samples never end


def make_slots(source: Source, n_lanes: int, n_slots: int, subset: bool = False) -> Slots:
    order = np.tile(np.arange(source.n_rows if subset else 0, dtype=np.uint32), (n_lanes, 1))
    if not source.uses_slots:
        n_lanes = n_slots = 0
    reward, discount, carry = np.zeros((3, n_lanes, n_slots))
    return Slots(np.zeros((n_lanes, 2 * n_slots, source.n_features)), reward, discount, carry, order)
