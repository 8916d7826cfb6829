"""An executor that completes calls in a random order."""

from __future__ import annotations

from concurrent.futures import Executor, Future
from random import Random
from threading import Event, Lock, Thread
from typing import Any


class ShuffledExecutor(Executor):
    """Runs the calls one by one in a thread, each time a random one of those that wait."""

    def __init__(self, seed: int) -> None:
        self.order: list[int] = []  # the numbers of the calls, as they were completed
        self._waiting: list[tuple[int, Future[Any], Any]] = []
        self._random, self._lock, self._event, self._n = Random(seed), Lock(), Event(), 0
        self._ends = False
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        with self._lock:
            self._waiting.append((self._n, future, lambda: fn(*args, **kwargs)))
            self._n += 1
        self._event.set()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._ends = True
        self._event.set()
        if wait:
            self._thread.join()

    def _run(self) -> None:
        while True:
            self._event.wait()
            with self._lock:
                if not self._waiting:
                    if self._ends:
                        return
                    self._event.clear()
                    continue
                i, future, call = self._waiting.pop(self._random.randrange(len(self._waiting)))
            if future.set_running_or_notify_cancel():
                self.order.append(i)
                try:
                    future.set_result(call())
                except Exception as error:
                    future.set_exception(error)
