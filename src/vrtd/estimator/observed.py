"""A log that remembers, while it is read, what a report tells of it."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrtd.logs import Chunk, Log
from vrtd.logs.log import WrappedLog

_MOST_POINTS = 512  # of the picture of where the log has been; beyond, every second one is dropped
_FIRST_ROWS, _FIRST_BYTES = 4096, 1 << 23
_MAPPED = 2  # numbers in an observation of which there are maps: only then its range is asked for


class Observed(WrappedLog):
    """The rows of another log, which are looked at when they are first read."""

    def __init__(self, log: Log) -> None:
        super().__init__(log)
        self._is_first = True
        self.n_terminated = self.n_truncated = self.n_seen = 0
        self.reward = 0.0  # the sum
        self.low: NDArray[Any] | None = None  # of the observations, where they are mapped
        self.high: NDArray[Any] | None = None
        self._first: list[NDArray[Any]] = []
        self._points: list[NDArray[Any]] = []
        self._stride = 1

    def chunks(self) -> Iterator[Chunk]:
        looks, self._is_first = self._is_first, False
        for chunk in self._log.chunks():
            if looks:
                self._look(chunk)
            yield chunk

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one observation."""
        return self._first[0].shape[1:]

    @property
    def size(self) -> int:
        """Numbers in an observation."""
        return prod(self.shape)

    @property
    def points(self) -> NDArray[Any]:
        """Observations at equal distances along the log."""
        return np.concatenate(self._points)

    def first(self, most: int) -> NDArray[Any]:
        """The first observations that are not the same, in order."""
        rows = np.concatenate(self._first)
        _, at = np.unique(rows.reshape(len(rows), -1), axis=0, return_index=True)
        return rows[np.sort(at)[:most]]

    def _look(self, chunk: Chunk) -> None:
        rows, n = chunk.observations, chunk.n_rows
        if not n:
            return
        held = sum(len(part) for part in self._first)
        room = min(_FIRST_ROWS, max(1, _FIRST_BYTES // rows[:1].nbytes)) - held
        if room > 0:
            self._first.append(rows[:room].copy())
        if self.size <= _MAPPED:
            self._look_around(rows.reshape(n, -1))
        self.n_seen += n
        self.n_terminated += int(chunk.terminated.sum())
        self.n_truncated += int((chunk.truncated & ~chunk.terminated).sum())
        self.reward += float(chunk.reward.sum())

    def _look_around(self, rows: NDArray[Any]) -> None:
        low, high = rows.min(axis=0), rows.max(axis=0)
        self.low = low if self.low is None else np.minimum(self.low, low)
        self.high = high if self.high is None else np.maximum(self.high, high)
        self._points.append(rows[-self.n_seen % self._stride :: self._stride].copy())
        if sum(map(len, self._points)) > _MOST_POINTS:
            points = np.concatenate(self._points)
            while len(points) > _MOST_POINTS:
                points, self._stride = points[::2], 2 * self._stride
            self._points = [points]
