"""Production of items in a thread while the consumer uses earlier ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

Item = TypeVar("Item")


def read_ahead(items: Generator[Item, None, None]) -> Generator[Item, None, None]:
    """Yield the same items, while a thread prepares up to two further ones.

    An error of the producer is raised in place of its item. When this iterator is closed or deleted, the thread ends
    after its current item and closes `items`.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="vrtd-read-ahead") as thread:
        coming = deque(thread.submit(next, items, None) for _ in range(2))
        try:
            while (item := coming.popleft().result()) is not None:
                coming.append(thread.submit(next, items, None))
                yield item
                del item  # before the next one arrives
        finally:
            for future in coming:
                future.cancel()
            with suppress(RuntimeError):  # the interpreter is shutting down and accepts no tasks
                thread.submit(items.close)
