"""Items that are made in a thread while others are used."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

Item = TypeVar("Item")


def read_ahead(items: Generator[Item, None, None]) -> Generator[Item, None, None]:
    """Yield the same items; the next ones, two at most, are made in a thread while the consumer is busy.

    An error of the producer is raised where its item would have come. When this iterator is closed, or forgotten, the
    thread ends after the item it is at, and `items` is closed there.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="vrtd-read-ahead") as thread:
        coming = deque(thread.submit(next, items, None) for _ in range(2))
        try:
            while (item := coming.popleft().result()) is not None:
                coming.append(thread.submit(next, items, None))
                yield item
                del item  # before the next one has come
        finally:
            for future in coming:
                future.cancel()
            with suppress(RuntimeError):  # the interpreter ends, and takes no more tasks
                thread.submit(items.close)
