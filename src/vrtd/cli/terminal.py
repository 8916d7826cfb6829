"""Output of every command: exit codes, and messages on stderr."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from typing import Literal

OK, MISSING, BAD_USAGE, DIVERGED, INTERRUPTED, BROKEN_PIPE = 0, 1, 2, 3, 130, 141
EXIT_CODES = (
    "exit codes: 0 success; 1 doctor: a required library is missing; 2 bad usage or bad input; 3 diverged (simulate "
    "still prints and writes its results, evaluate does not); 130 interrupted (143 by SIGTERM, 129 by SIGHUP); 141 "
    "output pipe closed."
)

# ASCII replacements for characters that some terminals cannot show.
_SIGNS = dict(zip("−≤≥∞±⁻⁰¹²³⁴⁵⁶⁷⁸⁹", ("-", "<=", ">=", "inf", "+-", *"-0123456789"), strict=True))  # noqa: RUF001
_COLOURS = {"error": "31", "warning": "33"}
_CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
_ERASE_LINE = "\r\x1b[K"


def open_closed_streams() -> None:
    """Open stdout and stderr on the null device where the caller closed them, so that nobody has to check."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - until the process ends


def without_controls(text: str) -> str:
    """Return the text with escapes in place of control characters, which terminals interpret, but for line breaks."""
    return _CONTROLS.sub(lambda match: repr(match[0])[1:-1], text)


def in_ascii(text: str) -> str:
    """Return the text without control characters, and with ASCII in place of the signs of `vrtd.report.numbers`."""
    return without_controls(text).replace("\N{MULTIPLICATION SIGN}10", "e").translate(str.maketrans(_SIGNS))


def tell(message: str, kind: Literal["error", "warning"] | None = None) -> None:
    """Print one line on stderr; on a terminal it replaces a progress bar."""
    label = f"{kind}:" if kind else ""
    if kind and sys.stderr.isatty() and not os.environ.get("NO_COLOR"):
        label = f"\x1b[{_COLOURS[kind]}m{label}\x1b[0m"
    start = _ERASE_LINE if sys.stderr.isatty() else ""
    with suppress(OSError):  # the terminal is gone, or the disk of a log is full
        print(f"{start}vrtd: {label}{' ' if kind else ''}{without_controls(message)}", file=sys.stderr)
