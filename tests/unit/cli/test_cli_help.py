"""Help texts come from the docstrings of the library."""

from __future__ import annotations

import argparse
import inspect
import re
from typing import Any

import pytest

import vrtd
from tests.helpers.command_help import help_of
from vrtd.algorithms import REGISTRY
from vrtd.cli import _COMMANDS
from vrtd.cli.messages import to_shell
from vrtd.cli.parser import Parser
from vrtd.docstrings import read_parameters
from vrtd.problems import LIBRARY
from vrtd.tournament import TournamentSize

# What the options of a command set, and those that have a text of their own, because a shell has no objects.
DOCUMENTED: dict[str, tuple[Any, ...]] = {
    "evaluate": (vrtd.evaluate, vrtd.logs.read),
    "simulate": (vrtd.simulate,),
    "sweep": (vrtd.sweep,),
    "plan": (vrtd.plan,),
    "compare": (vrtd.compare, TournamentSize),
    "reproduce": (vrtd.reproduce,),
}
OWN = {
    "evaluate": {"data", "policy", "target", "against", "executor"},
    "simulate": {"problem", "algorithm", "checkpoints", "metrics", "theta_0", "initial", "sampling", "executor"},
    "sweep": {"checkpoints", "metrics", "theta_0", "initial", "sampling", "exact", "out", "executor"},
    "plan": {"problem", "mode", "seed"},
    "compare": {"problems", "algorithms", "executor"},
    "reproduce": {"names", "executor"},
}


@pytest.mark.parametrize("command", _COMMANDS)
def test_every_option_has_a_help_text(command: str) -> None:
    for parameter, text in help_of(command).items():
        assert text, parameter
        assert text[0].isupper(), text
        assert not re.search(r"None\W*$", text), text
        assert "`" not in text
        assert not re.search(r"\bn_[a-z]", text), text
        assert re.search(r"[.\])]$| Example: --[\w-]+ [^ ].*$", text), text


@pytest.mark.parametrize("command", DOCUMENTED)
def test_options_take_the_text_and_the_default_of_the_library(command: str) -> None:
    texts = help_of(command)
    sentences: dict[str, str] = {}
    defaults: dict[str, Any] = {}
    for each in reversed(DOCUMENTED[command]):
        sentences |= read_parameters(each)
        defaults |= {name: parameter.default for name, parameter in inspect.signature(each).parameters.items()}
    common = (texts.keys() & sentences.keys()) - OWN[command]
    assert len(common) >= 4
    flags = {name: f"--{name.removeprefix('n_').replace('_', '-')}" for name in texts} | {"n_envs": "--n-envs"}
    for name in common:
        assert texts[name].startswith(to_shell(sentences[name], flags)), name
        if isinstance(defaults[name], int | float | str) and not isinstance(defaults[name], bool):
            assert f"(default: {defaults[name]})" in texts[name]


@pytest.mark.parametrize(("kind", "library"), [("problem", LIBRARY), ("algorithm", REGISTRY)])
def test_hyperparameters_take_the_text_of_their_problem_or_algorithm(kind: str, library: Any) -> None:
    texts = help_of("simulate")
    for name, documented in library.items():
        sentences = read_parameters(documented)
        parameters = inspect.signature(documented).parameters
        assert sentences.keys() == parameters.keys()
        for parameter, sentence in sentences.items():
            option = f"{kind}_seed" if parameter == "seed" else parameter
            owners = re.search(rf"{re.escape(sentence)} \[([^\]]*)\]", texts[option])
            assert owners is not None, (name, parameter)
            default = parameters[parameter].default
            shown = name if default is None or default is False else f"{name} {default}"
            assert shown in owners[1].split(", "), (name, parameter)


def documented(size: int = 3, share: float | None = None, in_all: bool = False, out: str = "here") -> None:
    """Do it.

    Parameters
    ----------
    size : int, default=3
        Size, 50 % of ``n_all``. More.
    share : float, optional
        Share.
    in_all : bool, default=False
        Whether it is all.
    out : str, default="here"
        Folder.
    """


def test_how_a_text_is_completed() -> None:
    parser = Parser("x", argument_default=argparse.SUPPRESS)
    parser.set_defaults(out="there")
    for option in ("size", "share", "in-all", "out", "unknown"):
        parser.add_argument(f"--{option}")
    parser.add_argument("--all", dest="n_all", help="All of n_all.")
    parser.take_help((documented,), {"share": "(default: half)", "n_all": "Example: --all 5"})
    texts = {action.dest: action.help for action in parser._actions}
    assert texts == {
        "help": "Show this help and exit.",
        "size": "Size, 50 %% of --all. (default: 3)",
        "share": "Share. (default: half)",
        "in_all": "Whether it is all.",
        "out": "Folder. (default: there)",
        "unknown": None,
        "n_all": "All of --all. Example: --all 5",
    }
    assert "Size, 50 % of --all. (default: 3)" in parser.format_help()
