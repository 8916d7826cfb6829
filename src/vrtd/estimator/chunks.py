"""Chunks of a log as they arrive: checked, cut, copied, and rid of what terminations make irrelevant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrtd.errors import DataError
from vrtd.logs import Chunk, Log

__all__ = [
    "check_chunk",
    "chunks_of",
    "copied",
    "ended",
    "ends_of",
    "fields_of",
    "part_of",
    "seen_in",
    "without_final_states",
]

_FLOAT, _BOOL = np.dtype(np.float64), np.dtype(np.bool_)
_KINDS = {"rewards": np.float64, "terminated": np.bool_, "truncated": np.bool_, "weight": np.float64}


def check_chunk(chunk: Chunk) -> None:
    if _is_sound(chunk):
        return
    observations, rewards, next_observations, terminated, truncated, weight, _ = chunk
    for name, values in fields_of(chunk).items():
        kind = _KINDS.get(name)
        if not isinstance(values, np.ndarray) or (kind is not None and (values.dtype != kind or values.ndim != 1)):
            raise DataError(
                f"{name} of a chunk must be an array" + ("" if kind is None else f" of one {np.dtype(kind)} a row"),
                f"{values.dtype} of shape {values.shape}" if isinstance(values, np.ndarray) else type(values).__name__,
                "let vrtd.logs.from_arrays make the log",
            )
    n = len(rewards)
    if not (
        n == len(observations) == len(next_observations) == len(terminated) == len(truncated)
        and (weight is None or len(weight) == n)
    ):
        lengths = {name: len(values) for name, values in fields_of(chunk).items()}
        raise DataError("all fields of a chunk must be equally long", lengths, "repair the log")
    if next_observations.dtype != observations.dtype:
        raise DataError(
            f"next observations must be of the type of the observations, {observations.dtype}",
            next_observations.dtype,
            "convert them",
        )


def _is_sound(chunk: Chunk) -> bool:
    """Whether all is as it is nearly always: looked at first, because small chunks come often."""
    try:
        shape = chunk.rewards.shape
        return bool(
            len(shape) == 1
            and chunk.terminated.shape == chunk.truncated.shape == shape
            and len(chunk.observations) == len(chunk.next_observations) == shape[0]
            and chunk.rewards.dtype is _FLOAT
            and chunk.terminated.dtype is chunk.truncated.dtype is _BOOL
            and chunk.observations.dtype is chunk.next_observations.dtype
            and (chunk.weight is None or (chunk.weight.shape == shape and chunk.weight.dtype is _FLOAT))
        )
    except AttributeError:
        return False


def part_of(chunk: Chunk, first: int, last: int) -> Chunk:
    if first <= 0 and last >= len(chunk.rewards):
        return chunk
    locate = chunk.locate
    parts: dict[str, Any] = {name: values[first:last] for name, values in fields_of(chunk).items()}
    return Chunk(**parts, locate=None if locate is None else lambda field, row: locate(field, row + first))


def chunks_of(log: Log, is_over: bool) -> Iterator[Chunk]:
    """Of one reading. Rows from which nothing goes on are marked as truncated: the last of each segment, and of the
    log if it `is_over`, so that what comes next is not what came after it."""
    first, last = 0, None
    for chunk in log.chunks():
        check_chunk(chunk)
        n = len(chunk.rewards)
        if log.segment is not None:
            chunk = _cut(chunk, slice(log.segment - 1 - first % log.segment, None, log.segment))
            first += n
        if not is_over:
            yield chunk
        elif n:
            if last is not None:
                yield last
            if n > 1:
                yield part_of(chunk, 0, n - 1)
            last = copied(part_of(chunk, n - 1, n))  # the log may use the memory of a chunk for the next one
    if last is not None:
        yield ended(last)


def ended(chunk: Chunk) -> Chunk:
    """With nothing that goes on from its last row."""
    check_chunk(chunk)
    return _cut(chunk, slice(-1, None))


def _cut(chunk: Chunk, rows: slice) -> Chunk:
    truncated = chunk.truncated.copy()
    truncated[rows] = True
    return chunk._replace(truncated=truncated)


def ends_of(chunk: Chunk) -> NDArray[np.bool_]:
    """Where the next row does not go on from this one."""
    if not np.count_nonzero(chunk.truncated):  # sooner known than any(): small chunks come often
        return chunk.terminated
    return chunk.terminated | chunk.truncated


def copied(chunk: Chunk) -> Chunk:
    """The caller may change what it handed over."""
    return chunk._replace(**{name: value.copy() for name, value in fields_of(chunk).items()})


def fields_of(chunk: Chunk) -> dict[str, Any]:
    return {name: value for name, value in zip(chunk._fields[:6], chunk[:6], strict=True) if value is not None}


def without_final_states(chunk: Chunk) -> NDArray[Any]:
    """The successors, where a transition terminates the state that it left: nothing is said of what came then."""
    if not chunk.terminated.any():
        return chunk.next_observations
    successors = chunk.next_observations.copy()
    successors[chunk.terminated] = chunk.observations[chunk.terminated]
    return successors


def seen_in(chunks: Sequence[Chunk]) -> NDArray[Any]:
    """All observations, then all successors that are looked at: an order that no split changes."""
    successors = [chunk.next_observations[~chunk.terminated] for chunk in chunks]
    return np.concatenate([*(chunk.observations for chunk in chunks), *successors])
