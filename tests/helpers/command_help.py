"""The help texts of a command."""

from __future__ import annotations

from typing import Any

from vrtd.cli import make_parser


def help_of(command: str) -> dict[str, str]:
    """The text of every option, by the parameter that it sets."""
    parser: Any = make_parser([command, "--help"])
    options = parser._subparsers._group_actions[0].choices[command]._actions
    return {option.dest: (option.help or "").replace("%%", "%") for option in options}
