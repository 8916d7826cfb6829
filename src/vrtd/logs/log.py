"""What a log of transitions is: chunks of rows, in order, as often as they are asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["SEGMENT", "Chunk", "Log", "WrappedLog"]

#: Steps of one environment before the next one's come, in the log of several; batches that are chosen keep them whole.
SEGMENT = 64


class Chunk(NamedTuple):
    """n consecutive transitions. A terminated one does not bootstrap: its successor is not looked at. A truncated one
    bootstraps from its successor, the last observation before the reset."""

    observations: NDArray[Any]  # (n, ...) C-contiguous
    rewards: NDArray[np.float64]  # (n,)
    next_observations: NDArray[Any]  # (n, ...) C-contiguous, of the dtype of the observations
    terminated: NDArray[np.bool_]  # (n,)
    truncated: NDArray[np.bool_]  # (n,) the end of an episode or of the recording that is no termination
    weight: NDArray[np.float64] | None = None  # (n,) importance ratios; None: all 1
    #: Where row i of the field `name` of this chunk comes from, in words: file, column, row.
    locate: Callable[[str, int], str] | None = None


class Log(ABC):
    """A source of chunks that can be read again from the beginning. The arrays of a chunk may be the caller's own, or
    views of each other: they are read, never written to."""

    @abstractmethod
    def chunks(self) -> Iterator[Chunk]:
        """All chunks from the first on."""

    @property
    @abstractmethod
    def n_rows(self) -> int | None:
        """How many transitions there are at most, or None while that is not known; for progress and plans."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a reader should know: rows that were dropped and why, integrity that cannot be verified. Complete after
        a whole reading, and about that reading only."""
        return ()

    @property
    def segment(self) -> int | None:
        """Rows come in stretches of this many consecutive steps of one environment of several; None: one trajectory."""
        return None


class WrappedLog(Log):
    """Another log, all but its chunks."""

    def __init__(self, log: Log) -> None:
        self._log = log

    @property
    def n_rows(self) -> int | None:
        return self._log.n_rows

    @property
    def remarks(self) -> tuple[str, ...]:
        return self._log.remarks

    @property
    def segment(self) -> int | None:
        return self._log.segment
