"""Progress bars, for ``progress=True`` in Python and for the command line."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from math import inf
from typing import Any, TextIO

from vrtd.errors import InvalidInputError

_WIDTH = 30
_SECONDS_BETWEEN_BARS = 0.1
_SECONDS_BETWEEN_LINES = 10.0
_SECONDS_OF_A_PAUSE = 1.0


class _Pace:
    """Speed of a task. The longest pause, such as the compilation of a loop, does not count."""

    def __init__(self) -> None:
        self._first: tuple[float, float] | None = None  # time and amount at the first report
        self._last = self._pause = (0.0, 0.0)  # the longest pause, and the amount done in it

    def add(self, now: float, done: float) -> None:
        """Record how much is done. If it is less than at the first report, a new task has begun."""
        if self._first is None or done < self._first[1]:
            self._first, self._pause = (now, done), (0.0, 0.0)
        elif now - self._last[0] > self._pause[0]:
            self._pause = now - self._last[0], done - self._last[1]
        self._last = now, done

    @property
    def speed(self) -> float | None:
        """Amount done per second, or None while it is unknown."""
        if self._first is None:
            return None
        seconds, done = self._last[0] - self._first[0], self._last[1] - self._first[1]
        pause, done_then = self._pause
        if pause > max(_SECONDS_OF_A_PAUSE, seconds / 2) and done > done_then:
            seconds, done = seconds - pause, done - done_then
        return done / seconds if done > 0 and seconds > 0 else None


class ProgressBar:
    """Progress bar on a terminal or in a notebook; elsewhere, an occasional line of text.

    It is called with the share that is done, in [0, 1], or with None if only the task is known.
    """

    def __init__(self, stream: TextIO, first: str = "starting") -> None:
        self._stream, self._goes_back = stream, _goes_back(stream)
        self._length = 0  # of the text shown
        self._last_shown = time.monotonic()
        self._pace, self._share = _Pace(), 0.0
        self.announce(first)

    def announce(self, task: str) -> None:
        """Show the current task on the bar, if there is one."""
        if self._goes_back:
            self._write(f"{_bar(self._share)}, {task}")

    def __call__(self, share: float | None, task: str = "") -> None:
        """Show the share that is done and the current task, unless something was shown a moment ago."""
        now = time.monotonic()
        if share is not None:
            self._share = share
            self._pace.add(now, share)
        if now - self._last_shown < (_SECONDS_BETWEEN_BARS if self._goes_back else _SECONDS_BETWEEN_LINES):
            return
        self._last_shown = now
        if share is None:
            self._write(task if self._goes_back else f"vrtd: {task}")
            return
        speed = self._pace.speed
        left = "" if speed is None else f", {_clock((1 - share) / speed)} left"
        now_at = f", {task}" if task else ""
        self._write(f"{_bar(share) if self._goes_back else f'vrtd: {share:.0%} done'}{left}{now_at}")

    def close(self) -> None:
        """Remove the bar."""
        if self._goes_back:
            self._write("")
            self._write("")

    def _write(self, text: str) -> None:
        # Blanks cover the rest of a longer text, because notebooks ignore the terminal code that erases a line.
        self._stream.write(f"\r{text:<{self._length}}" if self._goes_back else f"{text}\n")
        self._stream.flush()
        self._length = len(text)


class RowProgressBar:
    """Progress bar that is called with the rows done and the total number of rows, or None if it is unknown."""

    def __init__(self, stream: TextIO, first: str = "starting") -> None:
        self._bar, self._pace = ProgressBar(stream, first), _Pace()
        self._total = inf  # while it is unknown

    def __call__(self, done: int, total: int | None) -> None:
        """Show the number of rows done and their speed, and the share if the total is known.

        If the rows are used again after all are done, show how often, because the number of repetitions is not known.
        """
        self._total = self._total if total is None else total
        if total is None and done > self._total:
            self._bar(None, f"all rows used {done / self._total:,.0f} times")
            return
        self._pace.add(time.monotonic(), done)
        speed = self._pace.speed
        share = None if total is None else min(done / total, 1.0)
        self._bar(share, f"{done:,} rows" + ("" if speed is None else f", {speed:,.0f} per second"))

    def announce(self, task: str) -> None:
        """Show the current task while no rows are read."""
        self._bar.announce(task)

    def close(self) -> None:
        """Remove the bar."""
        self._bar.close()


def show_progress(
    progress: Callable[..., None] | bool | None,
    bar: type[ProgressBar] | type[RowProgressBar],
    first: str = "starting",
) -> AbstractContextManager[Any]:
    """Return a context whose value reports progress. For True, it is a bar on stderr, which is removed at the end.

    The bar shows the text ``first`` until something is done.
    """
    if progress is None or callable(progress):
        return nullcontext(progress)
    if not isinstance(progress, bool):
        raise InvalidInputError(
            f"progress must be True, False or a function, but got {progress!r}.", "Pass True for a bar."
        )
    if not progress or sys.stderr is None:  # a program without a console
        return nullcontext()
    return closing(bar(sys.stderr, first))


def _goes_back(stream: TextIO) -> bool:
    """Return whether a carriage return moves to the start of the line, as on a terminal and in a notebook."""
    return stream.isatty() or type(stream).__module__.startswith("ipykernel.")


def _bar(share: float) -> str:
    return f"[{'#' * int(share * _WIDTH):.<{_WIDTH}}] {share:4.0%}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
