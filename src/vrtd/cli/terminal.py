"""What a person or a script sees of every command: exit codes, lines on stderr, progress."""

from __future__ import annotations

import os
import sys
import time
from typing import Literal, TextIO

OK, MISSING, BAD_USAGE, DIVERGED, INTERRUPTED, BROKEN_PIPE = 0, 1, 2, 3, 130, 141
EXIT_CODES = (
    "exit codes: 0 fine; 1 doctor found something missing; 2 bad usage or bad input; 3 some runs diverged (the results "
    "are printed and written all the same; evaluate has none then); 130 interrupted; 141 the output pipe was closed."
)

# What every terminal has, in the place of signs that not all have.
_SIGNS = dict(zip("−≤≥∞±⁻⁰¹²³⁴⁵⁶⁷⁸⁹", ("-", "<=", ">=", "inf", "+-", *"-0123456789"), strict=True))  # noqa: RUF001
_COLOURS = {"error": "31", "warning": "33"}
_ERASE_LINE = "\r\x1b[K"
_WIDTH = 30
_SECONDS_BETWEEN_BARS = 0.1
_SECONDS_BETWEEN_LINES = 10.0


def in_ascii(text: str) -> str:
    """With plain characters for the signs of `vrtd.report.numbers`."""
    return text.replace("\N{MULTIPLICATION SIGN}10", "e").translate(str.maketrans(_SIGNS))


def tell(message: str, kind: Literal["error", "warning"] | None = None) -> None:
    """One line on stderr, in place of a progress bar that may stand there."""
    label = f"{kind}:" if kind else ""
    if kind and sys.stderr.isatty() and not os.environ.get("NO_COLOR"):
        label = f"\x1b[{_COLOURS[kind]}m{label}\x1b[0m"
    start = _ERASE_LINE if sys.stderr.isatty() else ""
    print(f"{start}vrtd: {label}{' ' if kind else ''}{message}", file=sys.stderr)


class Progress:
    """A bar on a terminal, elsewhere a line now and then; called with the share that is done, in [0, 1], or with None
    where only the task can be told."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._is_terminal = stream, stream.isatty()
        self._told = time.monotonic()
        self._first: tuple[float, float] | None = None  # when the first share came, after compilation; and that share
        if self._is_terminal:
            self._write(f"{_bar(0.0)}, getting the compiled loop ready")

    def __call__(self, share: float | None, task: str = "") -> None:
        now = time.monotonic()
        if self._first is None:
            self._first = now, share or 0.0
        if now - self._told < (_SECONDS_BETWEEN_BARS if self._is_terminal else _SECONDS_BETWEEN_LINES):
            return
        self._told = now
        if share is None:
            self._write(task if self._is_terminal else f"vrtd: {task}")
            return
        began, done = self._first
        left = f", {_clock((1 - share) * (now - began) / (share - done))} left" if share > done else ""
        now_at = f", {task}" if task else ""
        self._write(f"{_bar(share) if self._is_terminal else f'vrtd: {share:.0%} done'}{left}{now_at}")

    def close(self) -> None:
        if self._is_terminal:
            self._write("")

    def _write(self, text: str) -> None:
        self._stream.write(f"{_ERASE_LINE}{text}" if self._is_terminal else f"{text}\n")
        self._stream.flush()


def _bar(share: float) -> str:
    return f"[{'#' * int(share * _WIDTH):.<{_WIDTH}}] {share:4.0%}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
