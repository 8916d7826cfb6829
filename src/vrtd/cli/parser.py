"""The parser of every command: how options, names and numbers may be spelt, and what is said of others."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection
from decimal import Decimal, InvalidOperation
from itertools import takewhile
from typing import Any, NoReturn

from vrtd.checks import check_choice, find_nearest
from vrtd.cli.terminal import BAD_USAGE, tell
from vrtd.errors import InvalidInputError

_MOST_DIGITS = 18  # of a whole number, so that it fits into 64 bits


class _Formatter(argparse.HelpFormatter):
    """Help whose lines are wrapped, but for those that begin with a space, such as examples."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        fill = super()._fill_text
        return "\n".join(line if line[:1] == " " else fill(line, width, indent) for line in text.splitlines())


class Parser(argparse.ArgumentParser):
    """A parser that takes `_` for `-` in options, numbers like 1e3, and suggests what may have been meant."""

    def __init__(self, prog: str, **options: Any) -> None:
        super().__init__(prog, allow_abbrev=False, exit_on_error=False, formatter_class=_Formatter, **options)
        self.register("type", int, parse_whole)
        self.register("type", float, parse_number)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse all arguments; end with an error that names the command and the option."""
        arguments = [_spell(argument) for argument in args]
        unknown = self._find_unknown(arguments)  # before options that are missing: one of them may be misspelt
        if unknown:
            self.error(self._describe_unknown(unknown))
        try:
            found, unknown = super().parse_known_args(arguments, namespace)
        except argparse.ArgumentError as error:
            self.error(f"{error.argument_name or ''} {error.message}".lstrip())
        if unknown:
            self.error(self._describe_unknown(unknown))
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and where to read on, and end."""
        tell(f"{message}{' ' if message.endswith('?') else '; '}see: {self.prog} --help", "error")
        raise SystemExit(BAD_USAGE)

    def name_flags(self) -> dict[str, str]:
        """Return the option that sets each parameter: --runs for n_runs."""
        flags = [(action.dest, flag) for action in self._actions for flag in reversed(action.option_strings)]
        return {dest: flag for dest, flag in flags if flag.startswith("--")}

    def _find_unknown(self, arguments: list[str]) -> list[str]:
        """Return the options of a command that it does not have; none where help is asked for."""
        if self._subparsers is not None or not {"-h", "--help"}.isdisjoint(arguments):
            return []
        options = takewhile("--".__ne__, (argument for argument in arguments if argument.startswith("--")))
        return [option for option in options if option.partition("=")[0] not in self._option_string_actions]

    def _describe_unknown(self, unknown: list[str]) -> str:
        flag = unknown[0].partition("=")[0]
        if not flag.startswith("-"):
            return f"unrecognized arguments: {' '.join(unknown)}"
        near = find_nearest(flag, [name for action in self._actions for name in action.option_strings])
        return f"unknown option {flag}" + ("" if near is None else f"; did you mean {near}?")


def _spell(argument: str) -> str:
    """Return an option with `-` where the user wrote `_`; what is no option stays as it is."""
    flag, equals, value = argument.partition("=")
    return f"{flag.replace('_', '-')}{equals}{value}" if argument.startswith("--") else argument


def one_of(names: Collection[str]) -> dict[str, Any]:
    """Return the arguments of an option that takes one of these names, in which `-` and `_` are the same."""

    def choose(text: str) -> str:
        try:
            return str(check_choice("it", text, names))
        except InvalidInputError as error:
            must = f"must be one of {', '.join(names)}"
            raise argparse.ArgumentTypeError(f"{must}; got {error.got}; {error.do}") from None

    return {"type": choose, "metavar": f"{{{','.join(names)}}}"}


def or_auto(parse: Callable[[str], Any], kind: str) -> Callable[[str], Any]:
    """Return the type of an option that is a number of this kind, or "auto"."""

    def parse_or_auto(text: str) -> Any:
        try:
            return text if text == "auto" else parse(text)
        except argparse.ArgumentTypeError:
            raise argparse.ArgumentTypeError(f"must be {kind} or auto; got {text!r}") from None

    return parse_or_auto


def parse_whole(text: str) -> int:
    """Return a whole number, also one that is written like 1e3 or 1_000."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        number = Decimal("nan")
    if number.is_finite() and number.adjusted() >= _MOST_DIGITS:
        raise argparse.ArgumentTypeError(f"must be a number of at most {_MOST_DIGITS} digits; got {text!r}")
    if not number.is_finite() or int(number) != number:
        raise argparse.ArgumentTypeError(f"must be a whole number; got {text!r}")
    return int(number)


def parse_number(text: str) -> float:
    """Return a number."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number; got {text!r}") from None
