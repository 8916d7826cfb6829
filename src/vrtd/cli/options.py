"""Options for problems and algorithms, built from the library: a new problem or algorithm needs no change here."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from vrtd.checks import check_count
from vrtd.cli.parser import one_of
from vrtd.docstrings import read_parameters
from vrtd.errors import InvalidInputError


class Option(NamedTuple):
    """One option of a problem or an algorithm."""

    kind: Any  # bool, int, float or a Literal, perhaps in a union with other types
    default: Any
    text: str


Options = Mapping[str, Mapping[str, Option]]  # of each name that may be chosen


def problem_options(without: Collection[str] = ()) -> Options:
    """Return the options of every named problem; the seed of a problem is not the seed of the command."""
    from vrtd.problems import LIBRARY

    def parameters(function: Any) -> Iterator[tuple[str, Option]]:
        hints, texts = get_type_hints(function), read_parameters(function)
        for name, parameter in inspect.signature(function).parameters.items():
            if name not in without:
                option = Option(hints[name], parameter.default, texts.get(name, ""))
                yield "problem_seed" if name == "seed" else name, option

    return {name: dict(parameters(function)) for name, function in LIBRARY.items()}


def algorithm_options() -> Options:
    """Return the options of every algorithm: the fields of its class."""
    from vrtd.algorithms import REGISTRY

    def hyperparameters(algorithm: Any) -> Iterator[tuple[str, Option]]:
        hints, texts = get_type_hints(algorithm), read_parameters(algorithm)
        for field in dataclasses.fields(algorithm):
            yield field.name, Option(hints[field.name], field.default, texts.get(field.name, ""))

    return {name: dict(hyperparameters(algorithm)) for name, algorithm in REGISTRY.items()}


def add_choice(parser: Any, kind: str, table: Options, default: str) -> Any:
    """Add the option --KIND and those of all names that may be chosen; return their group."""
    group = parser.add_argument_group(kind, f"in brackets: which {kind}s take the option, and their defaults")
    group.add_argument(f"--{kind}", **one_of(table), help=f"The {kind} by name. (default: {default})")
    for option in dict.fromkeys(option for options in table.values() for option in options):
        owners = {name: options[option] for name, options in table.items() if option in options}
        plain_kind = next(iter(owners.values())).kind
        text = " ".join(
            f"{words} [{', '.join(_owner(name, each) for name, each in owners.items() if each.text == words)}]".lstrip()
            for words in dict.fromkeys(each.text for each in owners.values())
        ).replace("%", "%%")
        kinds = (plain_kind, *get_args(plain_kind))
        plain = next(kind for kind in kinds if get_origin(kind) is Literal or kind in (bool, int, float))
        if plain is bool:
            group.add_argument(*_flags(option), dest=option, action="store_const", const=True, help=text)
        elif get_origin(plain) is Literal:
            group.add_argument(_flag(option), dest=option, **one_of(get_args(plain)), help=text)
        else:
            group.add_argument(_flag(option), dest=option, type=plain, metavar="N" if plain is int else "X", help=text)
    return group


def _owner(name: str, option: Option) -> str:
    return name if option.default is None or option.default is False else f"{name} {option.default}"


def chosen_options(kind: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the chosen problem or algorithm; refuse those of another one."""
    name, table = given[kind], given["tables"][kind]
    for option in given:
        others = [other for other, options in table.items() if option in options]
        if others and name not in others:
            raise InvalidInputError(
                f"{_flags(option)[0]} belongs to {' or '.join(others)}, but got --{kind} {name}.",
                f"Drop it, or change --{kind}.",
            )
    return {option: given[option] for option in table[name] if option in given}


def build_problem(given: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the named problem and the settings that describe it."""
    from vrtd.problems import LIBRARY, LinearProblem

    name, table = given["problem"], given["tables"]["problem"]
    settings = {option: default for option, (_, default, _) in table[name].items()} | chosen_options("problem", given)
    seed = check_count("problem_seed", settings.pop("problem_seed"), least=0)
    problem = LIBRARY[name](seed=seed, **settings)
    n_states = {"n_states": problem.mrp.n_states} if isinstance(problem, LinearProblem) else {}
    return problem, {"name": name, "seed": seed, **settings, **n_states, "n_features": problem.n_features}


def _flag(option: str) -> str:
    return "--" + option.removeprefix("n_").replace("_", "-")


def _flags(option: str) -> list[str]:
    """Return the spellings of an option, the British one first."""
    flag = _flag(option)
    return list(dict.fromkeys((flag.replace("normalize", "normalise"), flag)))
