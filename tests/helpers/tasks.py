"""Tasks for workers of executors, in a module that they can import, and an executor that finishes in another order."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from threading import Condition, Thread
from typing import Any

from threadpoolctl import threadpool_info


def begin_and_end(folder: Path, number: int, seconds: float) -> int:
    """Leave a file when the task begins and another one when it ends, both named after the task and the process."""
    name = f"{number}-{os.getpid()}-{time.monotonic_ns()}"
    (folder / f"{name}.begun").touch()
    time.sleep(seconds)
    (folder / f"{name}.ended").touch()
    return number * number


def running(folder: Path) -> list[int]:
    """Return the processes that are in a task now, or were killed in one."""
    ended = {path.stem for path in folder.glob("*.ended")}
    return [int(path.stem.split("-")[1]) for path in folder.glob("*.begun") if path.stem not in ended]


def count_threads(shared: Any, number: int) -> int:
    """Return the number of threads that linear algebra may use."""
    time.sleep(0.01 * (number % 3))
    return max(each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas")


class Shuffled(Executor):
    """Executor with one thread, which takes calls in random order."""

    def __init__(self, seed: int) -> None:
        self._random, self._calls = random.Random(seed), list[Any]()
        self._condition, self._is_open = Condition(), True
        self.order: list[int] = []  # of the calls, in which they were run
        self._thread = Thread(target=self._serve)
        self._thread.start()
        self._n_calls = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        with self._condition:
            self._calls.append((self._n_calls, future, lambda: fn(*args, **kwargs)))
            self._n_calls += 1
            self._condition.notify()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        with self._condition:
            self._is_open = False
            self._condition.notify()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._calls or not self._is_open)
                if not self._calls:
                    return
            time.sleep(0.005)  # while more calls come
            with self._condition:
                number, future, call = self._calls.pop(self._random.randrange(len(self._calls)))
            if future.set_running_or_notify_cancel():
                self.order.append(number)
                try:
                    future.set_result(call())
                except Exception as error:
                    future.set_exception(error)
