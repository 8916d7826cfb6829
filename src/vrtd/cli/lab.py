"""The command `vrtd lab`: a page on which settings are moved and the errors follow."""

from __future__ import annotations

import argparse
from pathlib import Path

from vrtd.cli.interrupts import raise_when_safe
from vrtd.cli.parser import Parser
from vrtd.cli.terminal import OK, tell

HELP = "open a page on which settings are moved and the errors follow"
USAGE = "[OPTIONS]"
DESCRIPTION = (
    "Open a page in the browser on which the settings of TD and VRTD can be moved. 1,000 runs, the exact mean, the "
    "bounds and a map of the error follow at once. The page is reachable from this computer only. Ctrl-C ends it."
)
EPILOG = """\
examples:
  vrtd lab
  vrtd lab --problem problem.npz --no-browser"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    text = "Problem of your own, with the arrays P, R, gamma and phi. (default: only the named problems)"
    parser.add_argument("--problem", type=Path, metavar="FILE.npz", help=text)
    parser.add_argument("--port", type=int, default=0, metavar="N")
    text = "Print the address of the page and leave opening it to you."
    parser.add_argument("--no-browser", dest="open_browser", action="store_false", help=text)
    parser.set_defaults(command=_lab)


def describe_options(parser: Parser) -> None:
    """Complete the help texts of the options."""
    from vrtd.lab import serve

    parser.take_help((serve,), {})


def _lab(arguments: argparse.Namespace) -> int:
    from vrtd.lab import serve

    raise_when_safe()
    try:
        serve(
            arguments.problem, port=arguments.port, open_browser=arguments.open_browser,
            announce=lambda address: print(f"The lab is at {address}\nCtrl-C ends it.", flush=True),
        )  # fmt: skip
    except KeyboardInterrupt:  # how the lab is meant to end
        tell("the lab has ended")
    return OK
