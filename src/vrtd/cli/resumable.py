"""What commands share that fill a folder, keep what is finished there, and go on from it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vrtd.cli.interrupts import raise_when_safe
from vrtd.cli.outputs import folder
from vrtd.cli.terminal import tell


def add_common_options(parser: argparse.ArgumentParser, out: str, threads: str = "") -> None:
    """`out` is the folder's name unless another is given, `threads` what they are if not just that."""
    add = parser.add_argument
    add("--seed", type=int, default=0, metavar="N", help="draws the runs (default 0)")
    add("--threads", type=int, metavar="N", help=f"{threads} (default: one for each processor)".lstrip())
    add("--out", type=folder, default=Path(out), metavar="DIR", help=f"where to write (default {out})")
    add("--json", action="store_true", help="print one JSON object")
    add("--quiet", action="store_true", help="show no progress")


@contextmanager
def resumable(arguments: argparse.Namespace) -> Iterator[None]:
    """Do the work inside; Ctrl-C says where what is finished lies."""
    try:
        raise_when_safe()
        yield
    except KeyboardInterrupt:
        if arguments.out.exists():
            tell(f"what is finished is in {arguments.out}; the same command goes on from there")
        raise
