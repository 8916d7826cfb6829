"""What a person or a script sees of every command: exit codes, lines on stderr."""

from __future__ import annotations

import os
import sys
from typing import Literal

OK, MISSING, BAD_USAGE, DIVERGED, INTERRUPTED, BROKEN_PIPE = 0, 1, 2, 3, 130, 141
EXIT_CODES = (
    "exit codes: 0 fine; 1 doctor found something missing; 2 bad usage or bad input; 3 some runs diverged (the results "
    "are printed and written all the same; evaluate has none then); 130 interrupted; 141 the output pipe was closed."
)

# What every terminal has, in the place of signs that not all have.
_SIGNS = dict(zip("−≤≥∞±⁻⁰¹²³⁴⁵⁶⁷⁸⁹", ("-", "<=", ">=", "inf", "+-", *"-0123456789"), strict=True))  # noqa: RUF001
_COLOURS = {"error": "31", "warning": "33"}
_ERASE_LINE = "\r\x1b[K"


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
