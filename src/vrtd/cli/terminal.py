"""Output of every command: exit codes, and messages on stderr."""

from __future__ import annotations

import os
import sys
from typing import Literal

OK, MISSING, BAD_USAGE, DIVERGED, INTERRUPTED, BROKEN_PIPE = 0, 1, 2, 3, 130, 141
EXIT_CODES = (
    "exit codes: 0 success; 1 doctor: a required library is missing; 2 bad usage or bad input; 3 diverged (simulate "
    "still prints and writes its results, evaluate does not); 130 interrupted; 141 output pipe closed."
)

# ASCII replacements for characters that some terminals cannot show.
_SIGNS = dict(zip("−≤≥∞±⁻⁰¹²³⁴⁵⁶⁷⁸⁹", ("-", "<=", ">=", "inf", "+-", *"-0123456789"), strict=True))  # noqa: RUF001
_COLOURS = {"error": "31", "warning": "33"}
_ERASE_LINE = "\r\x1b[K"


def in_ascii(text: str) -> str:
    """Return the text with ASCII characters in place of the signs of `vrtd.report.numbers`."""
    return text.replace("\N{MULTIPLICATION SIGN}10", "e").translate(str.maketrans(_SIGNS))


def tell(message: str, kind: Literal["error", "warning"] | None = None) -> None:
    """Print one line on stderr; on a terminal it replaces a progress bar."""
    label = f"{kind}:" if kind else ""
    if kind and sys.stderr.isatty() and not os.environ.get("NO_COLOR"):
        label = f"\x1b[{_COLOURS[kind]}m{label}\x1b[0m"
    start = _ERASE_LINE if sys.stderr.isatty() else ""
    print(f"{start}vrtd: {label}{' ' if kind else ''}{message}", file=sys.stderr)
