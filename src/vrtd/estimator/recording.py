"""Rows of a live environment that are kept in a file, and learned from there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from vrtd.errors import InvalidInputError
from vrtd.logs import Chunk, Log, read, write
from vrtd.logs.log import WrappedLog

_SUFFIXES = (".parquet", ".npz", ".csv")


def check_record(path: Path, out: Path) -> None:
    """Raise unless rows can be written to the file, which must not be in the folder of the report."""
    if path.suffix not in _SUFFIXES or path.is_dir():
        raise InvalidInputError(f"record must be a {', '.join(_SUFFIXES)} file", path, "change the name")
    if path.resolve().is_relative_to(out.resolve()) or not path.parent.is_dir():
        raise InvalidInputError("record must be in a folder that exists, and not in out", path.parent, "name another")


def record_rows(log: Log, path: Path, progress: Callable[[int, int | None], None] | None) -> Log:
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
