"""Rows of a live environment that are kept in a file, and learned from there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from vrtd.logs import Chunk, Log, read, write

__all__ = ["record"]


def record(log: Log, path: Path, progress: Callable[[int, int | None], None] | None) -> Log:
    """Write the rows and read them back. Ctrl-C ends the recording: what was made until then is kept and can be read,
    and then it is raised again."""
    live = _Live(log, progress)
    write(live, path)
    return _Cut(read(path)) if live.is_cut else read(path)


class _Live(Log):
    """Ends where it is interrupted, if there is a row."""

    def __init__(self, log: Log, progress: Callable[[int, int | None], None] | None) -> None:
        self._log, self._progress, self.is_cut = log, progress, False

    @property
    def n_rows(self) -> int | None:
        return self._log.n_rows

    @property
    def segment(self) -> int | None:
        return self._log.segment

    def chunks(self) -> Iterator[Chunk]:
        done = 0
        try:
            for chunk in self._log.chunks():
                yield chunk
                done += len(chunk.rewards)
                if self._progress is not None:
                    self._progress(done, self.n_rows)
        except KeyboardInterrupt:
            if not done:
                raise
            self.is_cut = True


class _Cut(Log):
    """The rows of a log, and then the interruption that ended its recording."""

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

    def chunks(self) -> Iterator[Chunk]:
        yield from self._log.chunks()
        raise KeyboardInterrupt
