"""The command line: one file per command. Nothing heavy is imported until a command runs, so help answers at once."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from io import TextIOWrapper
from typing import NoReturn

from vrtd import __version__
from vrtd.cli import compare, doctor, evaluate, interrupts, plan, reproduce, simulate
from vrtd.cli.terminal import BAD_USAGE, BROKEN_PIPE, EXIT_CODES, INTERRUPTED, OK, tell
from vrtd.errors import StabilityWarning, VrtdError

__all__ = ["main", "make_parser"]


_COMMANDS = {"evaluate": evaluate, "simulate": simulate, "plan": plan, "compare": compare, "reproduce": reproduce}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        tell(f"{message}; see: {self.prog} --help", "error")
        raise SystemExit(BAD_USAGE)


def make_parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """The parser for this command line: only the command that is called loads what its options need."""
    parser = _Parser(
        "vrtd",
        description="Policy evaluation with variance-reduced temporal difference learning.",
        epilog=EXIT_CODES,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"vrtd {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    doctor.add_parser(commands)
    for name, command in _COMMANDS.items():
        command_parser = commands.add_parser(
            name,
            help=command.HELP,
            usage=f"vrtd {name} {command.USAGE}",
            description=command.DESCRIPTION,
            epilog=EXIT_CODES,
            allow_abbrev=False,
        )
        if argv[:1] == [name]:
            command.add_options(command_parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    argv = sys.argv[1:] if argv is None else argv
    if isinstance(sys.stdout, TextIOWrapper):  # a file name that the terminal cannot show must not be an error
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        parser = make_parser(argv)
        arguments, unknown = parser.parse_known_args(argv)
        if unknown:
            parser.prog = "vrtd COMMAND"
            parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    except SystemExit as stop:  # help, version or bad usage: argparse has printed it
        return int(stop.code or OK)
    except KeyboardInterrupt:  # while options are read off the library
        tell("interrupted")
        return INTERRUPTED
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", StabilityWarning)
            warnings.showwarning = lambda message, *_, **__: tell(f"{message}", "warning")
            try:
                code: int = arguments.command(arguments)
                sys.stdout.flush()
            finally:
                interrupts.end_at_once()
    except KeyboardInterrupt:
        tell("interrupted")
        return INTERRUPTED
    except BrokenPipeError:  # as `vrtd ... | head` does; what is left to print goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except (VrtdError, OSError, MemoryError) as error:
        tell(f"{error}", "error")
        return BAD_USAGE
    return code
