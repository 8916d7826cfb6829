"""Shared parts of commands that can be interrupted and resumed: their common options, and the answer to Ctrl-C."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vrtd.cli.cluster import add_executor_options
from vrtd.cli.interrupts import raise_when_safe
from vrtd.cli.outputs import JSON_HELP, QUIET_HELP, folder
from vrtd.cli.terminal import tell

THREADS = "(default: one per processor)"  # what None, the default of the library, stands for


def add_common_options(parser: argparse.ArgumentParser, out: str) -> None:
    """Add the options that these commands share; `out` is the default output folder."""
    add = parser.add_argument
    add("--seed", type=int, default=0, metavar="N")
    add("--threads", type=int, metavar="N")
    add_executor_options(parser)
    add("--out", type=folder, default=Path(out), metavar="DIR")
    add("--json", action="store_true", help=JSON_HELP)
    add("--quiet", action="store_true", help=QUIET_HELP)


@contextmanager
def resumable(arguments: argparse.Namespace) -> Iterator[None]:
    """Run the work inside; after Ctrl-C, print how to resume it."""
    try:
        raise_when_safe()
        yield
    except KeyboardInterrupt:
        if arguments.out.exists():
            tell(f"finished parts are kept in {arguments.out}. Run the same command to continue.")
        raise
