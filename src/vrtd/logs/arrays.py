"""Logs in memory."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vrtd.errors import DataError
from vrtd.logs.blocks import Block, Origin, Piece, flags, labels, observed, reals, side_by_side
from vrtd.logs.columns import Columns
from vrtd.logs.log import Log
from vrtd.logs.parts import Part, PartsLog

__all__ = ["from_arrays", "make_block"]


def from_arrays(
    observations: ArrayLike,
    rewards: ArrayLike,
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

    >>> log = from_arrays([[0.0], [1.0], [2.0]], rewards=[1.0, 2.0, 3.0])
    >>> [chunk.next_observations.tolist() for chunk in log.chunks()], log.remarks
    ([[[1.0], [2.0]]], ('1 row dropped: the last of the log',))
    """
    given = {
        "observations": observations,
        "reward": rewards,
        "next_observations": next_observations,
        "terminated": terminated,
        "truncated": truncated,
        "weight": weight,
        "episode": episode,
    }
    arrays = {field: _array(field, value) for field, value in given.items() if value is not None}
    names = {field: (_ARGUMENT.get(field, field),) for field in arrays}
    columns = Columns(**{field: field for field in arrays})
    n = len(arrays["observations"])
    return PartsLog([_Arrays(make_block(arrays, columns, Piece(Origin("", names), 0, n)))], in_thread=False)


_ARGUMENT = {"reward": "rewards"}


class _Arrays(Part):
    where = "the arrays"

    def __init__(self, block: Block) -> None:
        self._block = block

    @property
    def n_rows(self) -> int:
        return self._block.rewards.size

    def blocks(self) -> Generator[Block, None, None]:
        if self.n_rows:
            yield self._block


def make_block(arrays: Mapping[str, NDArray[Any]], columns: Columns, piece: Piece) -> Block:
    """The block whose columns these arrays are, checked and converted. `arrays` goes from column to entries."""
    origin = piece.origin

    def called(field: str) -> str:
        names = origin.names[field]
        shown = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
        return f"{origin.where}, column {shown}," if origin.where else shown

    def vectors(field: str, name: str | tuple[str, ...]) -> NDArray[Any]:
        if isinstance(name, str):
            return observed(arrays[name], called(field))
        if len(name) == 1 and arrays[name[0]].ndim > 1:  # a list with the name of one column of vectors
            return observed(arrays[name[0]], called(field))
        return observed(side_by_side([arrays[part] for part in name], called(field)), called(field))

    def switch(field: str, name: str | None) -> NDArray[np.bool_] | None:
        if name is None:
            return None
        return flags(arrays[name], lambda row: origin.place(field, piece.first_row + row), called(field))

    observations = vectors("observations", columns.observations)
    successors = None
    if columns.next_observations is not None:
        successors = vectors("next_observations", columns.next_observations)
        if successors.shape[1:] != observations.shape[1:]:
            raise DataError(
                f"{called('next_observations')} must have the observations' shape, {observations.shape[1:]} a row",
                successors.shape[1:],
                "name or pass the matching ones",
            )
        if successors.dtype != observations.dtype:
            kind = np.result_type(successors, observations)
            observations, successors = observations.astype(kind, copy=False), successors.astype(kind, copy=False)
    truncated = switch("truncated", columns.truncated)
    terminated = switch("terminated", columns.terminated)
    if columns.done is not None:
        terminated = switch("done", columns.done)
        if truncated is not None and terminated is not None:
            terminated = terminated & ~truncated
    block = Block(
        observations,
        reals(arrays[columns.reward], called("reward")),
        successors,
        terminated,
        truncated,
        None if columns.weight is None else reals(arrays[columns.weight], called("weight")),
        None if columns.episode is None else labels(arrays[columns.episode], called("episode")),
        (piece,),
    )
    for field, array in zip(Block._fields[:7], block[:7], strict=True):
        if array is not None and len(array) != len(observations):
            raise DataError(
                f"{called({'rewards': 'reward'}.get(field, field))} must have one entry a row",
                f"{len(array)} entries for {len(observations)} observations",
                "pass arrays of one length",
            )
    return block


def _array(field: str, value: ArrayLike) -> NDArray[Any]:
    name = _ARGUMENT.get(field, field)
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} must be an array", error, "pass rows of one length") from None
    if array.ndim == 0:
        raise DataError(f"{name} must have one entry a row", f"{array.dtype} without rows", "pass an array")
    return array
