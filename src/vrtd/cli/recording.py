"""Rows of a live environment that are kept in a file, and learned from there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from vrtd.logs import Chunk, Log, read, write
from vrtd.logs.log import WrappedLog


def record(log: Log, path: Path, progress: Callable[[int, int | None], None] | None) -> Log:
    """Write the rows and read them back. Ctrl-C ends the recording: what was made until then is kept and can be read,
    and then it is raised again."""
    live = _Live(log, progress)
    write(live, path)
    return _Cut(read(path)) if live.is_cut else read(path)


class _Live(WrappedLog):
    """Ends where it is interrupted, if there is a row."""

    def __init__(self, log: Log, progress: Callable[[int, int | None], None] | None) -> None:
        super().__init__(log)
        self._progress, self.is_cut = progress, False

    def chunks(self) -> Iterator[Chunk]:
        done = 0
        try:
            for chunk in self._log.chunks():
                yield chunk
                done += chunk.n_rows
                if self._progress is not None:
                    self._progress(done, self.n_rows)
        except KeyboardInterrupt:
            if not done:
                raise
            self.is_cut = True


class _Cut(WrappedLog):
    """The rows of a log, and then the interruption that ended its recording."""

    def chunks(self) -> Iterator[Chunk]:
        yield from self._log.chunks()
        raise KeyboardInterrupt
