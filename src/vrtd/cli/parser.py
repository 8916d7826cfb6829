"""The argument parser: options, names and numbers as users may write them, suggestions, and help texts."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable, Collection, Mapping
from decimal import Decimal, InvalidOperation
from itertools import takewhile
from pathlib import PurePath
from typing import Any, NoReturn

from vrtd.checks import check_choice, find_nearest
from vrtd.cli.messages import to_shell
from vrtd.cli.terminal import BAD_USAGE, tell
from vrtd.docstrings import read_parameters
from vrtd.errors import InvalidInputError

_MOST_DIGITS = 18  # of a whole number, so that it fits into 64 bits
_HELP = {"-h", "--help"}


class _Formatter(argparse.HelpFormatter):
    """Help formatter that wraps all lines except those that begin with a space, such as examples."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        fill = super()._fill_text
        return "\n".join(line if line[:1] == " " else fill(line, width, indent) for line in text.splitlines())


class Parser(argparse.ArgumentParser):
    """Argument parser that accepts `_` for `-` in options and numbers such as 1e3, and suggests similar names."""

    def __init__(self, prog: str, **options: Any) -> None:
        options |= {"allow_abbrev": False, "exit_on_error": False, "add_help": False, "formatter_class": _Formatter}
        super().__init__(prog, **options)
        self.add_argument("-h", "--help", action="help", help="Show this help and exit.")
        self.register("type", int, parse_whole)
        self.register("type", float, parse_number)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse all arguments; exit with an error that names the command and the option."""
        arguments = [_spell(argument) for argument in args]
        unknown = self._find_unknown(arguments)  # before options that are missing: one of them may be misspelt
        if unknown:
            self.error(self._describe_unknown(unknown))
        try:
            namespace, unknown = super().parse_known_args(arguments, namespace)
        except argparse.ArgumentError as error:
            self.error(f"{error.argument_name or ''} {error.message}".lstrip())
        if unknown:
            self.error(self._describe_unknown(unknown))
        return namespace, unknown

    def error(self, message: str) -> NoReturn:
        """Print the message and where to find help, and exit."""
        tell(f"{message}{'' if message.endswith(('.', '?')) else '.'} See: {self.prog} --help", "error")
        raise SystemExit(BAD_USAGE)

    def name_flags(self) -> dict[str, str]:
        """Return the option that sets each parameter, such as --runs for n_runs."""
        flags = [(action.dest, flag) for action in self._actions for flag in reversed(action.option_strings)]
        return {dest: flag for dest, flag in flags if flag.startswith("--")}

    def take_help(self, documented: Collection[Any], additions: Mapping[str, str]) -> None:
        """Complete the help texts of options from the docstrings of the library.

        An option without a text gets the one of the parameter that it sets, with its default. Additions to a text are
        given by parameter. Parameters that a text mentions become options.
        """
        texts: dict[str, str] = {}
        defaults: dict[str, Any] = {}
        for each in documented:
            texts = read_parameters(each) | texts
            defaults = {name: p.default for name, p in inspect.signature(each).parameters.items()} | defaults
        flags = self.name_flags()
        for action in self._actions:
            if action.help is None and action.dest in texts:
                unset = action.default is None or action.default == argparse.SUPPRESS
                default = defaults.get(action.dest) if unset else action.default
                action.help = f"{texts[action.dest]}{_describe_default(default)}".replace("%", "%%")
            if action.dest in additions:
                action.help = f"{action.help or ''} {additions[action.dest]}".lstrip()
            if action.help is not None:
                action.help = to_shell(action.help, flags)

    def _find_unknown(self, arguments: list[str]) -> list[str]:
        """Return the options that the command does not have; none if help is asked for."""
        if self._subparsers is not None or asks_for_help(arguments):
            return []
        options = takewhile("--".__ne__, (argument for argument in arguments if argument.startswith("--")))
        return [option for option in options if option.partition("=")[0] not in self._option_string_actions]

    def _describe_unknown(self, unknown: list[str]) -> str:
        flag = unknown[0].partition("=")[0]
        if not flag.startswith("-"):
            return f"unrecognized arguments: {' '.join(unknown)}"
        near = find_nearest(flag, [name for action in self._actions for name in action.option_strings])
        return f"unknown option {flag}." + ("" if near is None else f" Did you mean {near}?")


def asks_for_help(arguments: Collection[str]) -> bool:
    """Return whether the help of a command is to be shown."""
    return not _HELP.isdisjoint(arguments)


def _describe_default(default: Any) -> str:
    """Return a default in brackets; nothing for switches and for what has no short name."""
    is_short = isinstance(default, int | float | str | PurePath) and not isinstance(default, bool)
    return f" (default: {default})" if is_short else ""


def _spell(argument: str) -> str:
    """Return an option with `-` where the user wrote `_`; other arguments are returned unchanged."""
    flag, equals, value = argument.partition("=")
    return f"{flag.replace('_', '-')}{equals}{value}" if argument.startswith("--") else argument


def one_of(names: Collection[str]) -> dict[str, Any]:
    """Return the arguments of an option that takes one of these names, in which `-` and `_` are the same."""

    def choose(text: str) -> str:
        try:
            return str(check_choice("it", text, names))
        except InvalidInputError as error:
            problem = f"must be one of {', '.join(names)}, but got {text!r}."
            raise argparse.ArgumentTypeError(f"{problem} {error.remedy}") from None

    return {"type": choose, "metavar": f"{{{','.join(names)}}}"}


def or_auto(parse: Callable[[str], Any], kind: str) -> Callable[[str], Any]:
    """Return the type of an option that is a number of this kind, or "auto"."""

    def parse_or_auto(text: str) -> Any:
        try:
            return text if text == "auto" else parse(text)
        except argparse.ArgumentTypeError:
            raise argparse.ArgumentTypeError(f"must be {kind} or auto, but got {text!r}.") from None

    return parse_or_auto


def parse_whole(text: str) -> int:
    """Return a whole number, which may be written like 1e3 or 1_000."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        number = Decimal("nan")
    if number.is_finite() and number.adjusted() >= _MOST_DIGITS:
        raise argparse.ArgumentTypeError(f"must be a number of at most {_MOST_DIGITS} digits, but got {text!r}.")
    if not number.is_finite() or int(number) != number:
        raise argparse.ArgumentTypeError(f"must be a whole number, but got {text!r}.")
    return int(number)


def parse_number(text: str) -> float:
    """Return a number."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, but got {text!r}.") from None


def parse_numbers(text: str) -> list[float]:
    """Return numbers that are separated by commas."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be numbers, separated by commas, but got {text!r}.") from None
