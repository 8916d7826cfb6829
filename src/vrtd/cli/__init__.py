"""The command line: one file per command. A command imports the library only when it needs it."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from io import TextIOWrapper

from vrtd import __version__
from vrtd.cli import compare, doctor, evaluate, interrupts, lab, plan, reproduce, simulate, sweep
from vrtd.cli.libraries import check_libraries
from vrtd.cli.messages import explain, to_shell
from vrtd.cli.parser import Parser, asks_for_help, one_of
from vrtd.cli.terminal import BAD_USAGE, BROKEN_PIPE, DIVERGED, EXIT_CODES, INTERRUPTED, OK, open_closed_streams, tell
from vrtd.errors import DivergenceError, StabilityWarning, VrtdError

__all__ = ["main", "make_parser"]


_COMMANDS = {
    "evaluate": evaluate,
    "simulate": simulate,
    "sweep": sweep,
    "plan": plan,
    "compare": compare,
    "reproduce": reproduce,
    "lab": lab,
    "doctor": doctor,
}
_EXAMPLES = """\
examples:
  vrtd doctor                                             show what is installed and which commands work
  vrtd evaluate --env FrozenLake-v1 --discount 0.99       estimate the values of the random policy
  vrtd evaluate --data log.parquet --discount 0.99        estimate the values of the policy in a log
  vrtd simulate --algorithm td --runs 100                 measure the error of an algorithm on a known problem

"""


def make_parser(argv: Sequence[str]) -> Parser:
    """Return the parser for this command line, with the options of the command that is called."""
    parser = Parser(
        "vrtd",
        description="Policy evaluation with variance-reduced temporal difference learning.",
        epilog=f"{_EXAMPLES}{EXIT_CODES}",
    )
    version = f"vrtd {__version__}"
    parser.add_argument("-V", "--version", action="version", version=version, help="Show the version and exit.")
    commands = parser.add_subparsers(
        metavar="COMMAND", title="commands", description="vrtd help COMMAND shows the options of a command"
    )
    for name, command in _COMMANDS.items():
        command_parser = commands.add_parser(
            name,
            help=command.HELP,
            usage=f"vrtd {name} {command.USAGE}",
            description=command.DESCRIPTION,
            epilog=command.EPILOG,
        )
        if argv[:1] == [name]:
            command.add_options(command_parser)
            if asks_for_help(argv):
                command.describe_options(command_parser)
            command_parser.set_defaults(name=name, flags=command_parser.name_flags())
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    open_closed_streams()
    if isinstance(sys.stdout, TextIOWrapper):  # so that a file name that the terminal cannot show is not an error
        sys.stdout.reconfigure(errors="backslashreplace")
    argv = list(sys.argv[1:] if argv is None else argv)
    try:
        return _run(argv)
    except ImportError:
        missing = doctor.describe_missing()
        if missing is None:
            raise
        tell(f"vrtd {argv[0]} {missing} (details: vrtd doctor)", "error")
        return BAD_USAGE


def _run(argv: list[str]) -> int:
    try:
        arguments = _parse(argv)
    except SystemExit as stop:  # help, version or bad usage: the parser has printed it
        return int(stop.code or OK)
    except KeyboardInterrupt:  # while the library is loaded for the options
        tell("interrupted")
        return INTERRUPTED
    except VrtdError as error:  # the library cannot be loaded
        tell(f"{error}", "error")
        return BAD_USAGE
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", StabilityWarning)
            warnings.showwarning = lambda message, *_, **__: tell(to_shell(f"{message}", arguments.flags), "warning")
            try:
                check_libraries(arguments.name, vars(arguments))
                code: int = arguments.command(arguments)
                sys.stdout.flush()
            finally:
                interrupts.end_at_once()
    except KeyboardInterrupt as stop:
        if type(stop) is KeyboardInterrupt and stop.args:  # what was kept
            tell(f"{stop}")
        tell("interrupted")
        return interrupts.exit_code()
    except BrokenPipeError:  # as with `vrtd ... | head`: discard the remaining output
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except VrtdError as error:
        tell(to_shell(f"{error}", arguments.flags), "error")
        return DIVERGED if isinstance(error, DivergenceError) else BAD_USAGE
    except Exception as error:
        message = explain(error)
        if message is None:
            raise
        tell(message, "error")
        return BAD_USAGE
    return code


def _parse(argv: list[str]) -> argparse.Namespace:
    """Return the options of the command; `help COMMAND` is the same as `COMMAND --help`."""
    if argv[:1] == ["help"]:
        argv = [*argv[1:2], "--help"]
    if argv and not argv[0].startswith("-"):
        try:
            argv[0] = one_of(_COMMANDS)["type"](argv[0])
        except argparse.ArgumentTypeError as error:
            make_parser(()).error(f"COMMAND {error}")
    parser = make_parser(argv)
    arguments = parser.parse_args(argv)
    if "command" not in arguments:
        parser.print_help()
        raise SystemExit(OK)
    return arguments
