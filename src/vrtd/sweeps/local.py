"""Measurement of cells in this process, with threads."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from threading import Event

import numpy as np
from numpy.typing import NDArray

from vrtd.executors import one_thread_for_linear_algebra
from vrtd.sweeps.cell import MeasuredCells, measure
from vrtd.sweeps.design import Design

_SECONDS_BETWEEN_REPORTS = 0.1
_AHEAD = 2  # groups per thread that are submitted


class _StoppedError(BaseException):
    """Raised in a thread whose result is no longer needed. It is not an error of the cell."""


def measure_here(
    design: Design, groups: Iterable[NDArray[np.int64]], n_threads: int, tell: Callable[[float], None]
) -> Generator[MeasuredCells]:
    """Yield the cells of each group as they are finished; each thread takes a group of its own.

    Parameters
    ----------
    design : Design
        Design of the sweep.
    groups : iterable of ndarray
        Numbers of the cells of each group. The next group is taken when a thread can take it.
    n_threads : int
        Number of threads.
    tell : callable
        Function of the number of cells that are done in unfinished groups, such as 0.5.
    """
    stopped = Event()
    parts: dict[int, float] = {}  # of the running cells, by group

    def watch(group: int, share: float) -> None:
        if stopped.is_set():
            raise _StoppedError
        parts[group] = share

    waiting: dict[Future[MeasuredCells], int] = {}
    numbered = enumerate(groups)
    with one_thread_for_linear_algebra(), ThreadPoolExecutor(n_threads) as pool:
        try:
            while True:
                while len(waiting) < _AHEAD * n_threads and (each := next(numbered, None)):
                    future = pool.submit(measure, design, each[1], 1, partial(watch, each[0]))
                    waiting[future] = each[0]
                if not waiting:
                    return
                finished, _ = wait(waiting, _SECONDS_BETWEEN_REPORTS, FIRST_COMPLETED)
                for future in finished:
                    parts.pop(waiting.pop(future), None)
                    yield future.result()
                tell(sum(list(parts.values())))
        finally:
            stopped.set()
            pool.shutdown(cancel_futures=True)


def measure_one_by_one(
    design: Design, groups: Iterable[NDArray[np.int64]], n_threads: int, tell: Callable[[float], None]
) -> Generator[MeasuredCells]:
    """Yield the cells of each group; the threads share the runs of one cell. The parameters are as above."""
    with one_thread_for_linear_algebra():
        for group in groups:
            for i in range(len(group)):
                yield measure(design, group[i : i + 1], n_threads, tell)
