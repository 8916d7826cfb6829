"""Logs in memory."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vrtd.errors import DataError
from vrtd.logs.blocks import Block, Origin, Piece, make_block
from vrtd.logs.columns import Columns
from vrtd.logs.log import Log
from vrtd.logs.parts import Part, PartsLog


def from_arrays(
    observations: ArrayLike,
    reward: ArrayLike,
    next_observations: ArrayLike | None = None,
    terminated: ArrayLike | None = None,
    truncated: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    episode: ArrayLike | None = None,
) -> Log:
    """A log from NumPy arrays with one entry a step.

    Without `next_observations` row i + 1 follows row i within an episode; see `vrtd.logs.pairing`. C-contiguous
    observations in float32, float64 or integers are handed on as they are, without a copy: leave them alone while the
    log is in use.

    >>> log = from_arrays([[0.0], [1.0], [2.0]], reward=[1.0, 2.0, 3.0])
    >>> [chunk.next_observations.tolist() for chunk in log.chunks()], log.remarks
    ([[[1.0], [2.0]]], ('1 row dropped: the last of the log',))
    """
    given = {
        "observations": observations,
        "reward": reward,
        "next_observations": next_observations,
        "terminated": terminated,
        "truncated": truncated,
        "weight": weight,
        "episode": episode,
    }
    arrays = {field: _array(field, value) for field, value in given.items() if value is not None}
    columns = Columns(**{field: field for field in arrays})
    n = len(arrays["observations"])
    return PartsLog([_Arrays(make_block(arrays, columns, Piece(Origin("", columns.by_field), 0, n)))], in_thread=False)


class _Arrays(Part):
    where = "the arrays"

    def __init__(self, block: Block) -> None:
        self._block = block

    @property
    def n_rows(self) -> int:
        return self._block.reward.size

    def blocks(self) -> Generator[Block, None, None]:
        if self.n_rows:
            yield self._block


def _array(name: str, value: ArrayLike) -> NDArray[Any]:
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} must be an array", error, "pass rows of one length") from None
    if array.ndim == 0:
        raise DataError(f"{name} must have one entry a row", f"{array.dtype} without rows", "pass an array")
    return array
