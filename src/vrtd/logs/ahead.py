"""A thread that reads ahead, so that decoding and learning overlap."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from threading import Semaphore, Thread
from typing import TypeVar

Item = TypeVar("Item")


def ahead(items: Iterator[Item]) -> Generator[Item, None, None]:
    """The same items; the next ones, two at most, are made in a thread while the consumer is busy.

    An error of the producer is raised where its item would have come. When this iterator is closed, or forgotten, the
    thread ends after the item it is at, and `items` is closed there.
    """
    made: deque[tuple[Item | None, BaseException | None, bool]] = deque()
    room, ready = Semaphore(1), Semaphore(0)
    stopped = False

    def produce() -> None:
        error: BaseException | None = None
        try:
            for item in items:
                made.append((item, None, False))
                ready.release()
                room.acquire()
                if stopped:
                    break
        except BaseException as raised:  # carried over to the consumer, whatever it is
            error = raised
        finally:
            if isinstance(items, Generator):
                items.close()
            made.append((None, error, True))
            ready.release()

    thread = Thread(target=produce, name="vrtd-read-ahead", daemon=True)
    thread.start()
    try:
        while True:
            ready.acquire()
            item, error, last = made.popleft()
            if error is not None:
                raise error
            if last:
                return
            room.release()  # the next one may be made while this one is in use
            yield item  # type: ignore[misc]  # only the last is None
            del item
    finally:
        stopped = True
        room.release()
        thread.join()
