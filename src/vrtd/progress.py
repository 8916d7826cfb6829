"""A progress bar, for `progress=True` in Python and for the command line."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any, TextIO

from vrtd.errors import InvalidInputError

_WIDTH = 30
_SECONDS_BETWEEN_BARS = 0.1
_SECONDS_BETWEEN_LINES = 10.0


class ProgressBar:
    """A bar on a terminal or in a notebook, elsewhere a line now and then.

    It is called with the share that is done, in [0, 1], or with None where only the task is known.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._goes_back = stream, _goes_back(stream)
        self._length = 0  # of the text that stands there
        self._told = time.monotonic()
        self._first: tuple[float, float] | None = None  # when the first share came, after compilation; and that share
        if self._goes_back:
            self._write(f"{_bar(0.0)}, getting the compiled loop ready")

    def __call__(self, share: float | None, task: str = "") -> None:
        now = time.monotonic()
        if self._first is None:
            self._first = now, share or 0.0
        if now - self._told < (_SECONDS_BETWEEN_BARS if self._goes_back else _SECONDS_BETWEEN_LINES):
            return
        self._told = now
        if share is None:
            self._write(task if self._goes_back else f"vrtd: {task}")
            return
        began, done = self._first
        left = f", {_clock((1 - share) * (now - began) / (share - done))} left" if share > done else ""
        now_at = f", {task}" if task else ""
        self._write(f"{_bar(share) if self._goes_back else f'vrtd: {share:.0%} done'}{left}{now_at}")

    def close(self) -> None:
        """Remove the bar."""
        if self._goes_back:
            self._write("")
            self._write("")

    def _write(self, text: str) -> None:
        # Blanks cover the rest of a longer text: notebooks ignore the code of terminals that erases a line.
        self._stream.write(f"\r{text:<{self._length}}" if self._goes_back else f"{text}\n")
        self._stream.flush()
        self._length = len(text)


class RowProgressBar:
    """A bar that is called with the rows done and the rows in all, which are None where that is not known."""

    def __init__(self, stream: TextIO) -> None:
        self._bar = ProgressBar(stream)
        self._first: tuple[float, int] | None = None  # when the first rows were done, after compilation; how many

    def __call__(self, done: int, total: int | None) -> None:
        now = time.monotonic()
        if self._first is None or done < self._first[1]:
            self._first = now, done
        began, before = self._first
        speed = f", {(done - before) / (now - began):,.0f} a second" if done > before and now > began else ""
        share = None if total is None else min(done / total, 1.0)
        self._bar(share, f"{done:,} rows{speed}")

    def close(self) -> None:
        """Remove the bar."""
        self._bar.close()


def show_progress(
    progress: Callable[..., None] | bool | None, bar: type[ProgressBar] | type[RowProgressBar]
) -> AbstractContextManager[Any]:
    """Return a context whose value reports progress: for True a bar on stderr, which is removed at the end."""
    if progress is None or callable(progress):
        return nullcontext(progress)
    if not isinstance(progress, bool):
        raise InvalidInputError("progress must be True, False or a function", repr(progress), "pass True for a bar")
    if not progress or sys.stderr is None:  # a program without a console
        return nullcontext()
    return closing(bar(sys.stderr))


def _goes_back(stream: TextIO) -> bool:
    """Return whether a carriage return goes back to the start of the line, as on a terminal and in a notebook."""
    return stream.isatty() or type(stream).__module__.startswith("ipykernel.")


def _bar(share: float) -> str:
    return f"[{'#' * int(share * _WIDTH):.<{_WIDTH}}] {share:4.0%}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
