"""`vrtd simulate`: many independent runs of one algorithm on a named problem."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from vrtd.cli.formats import as_json, as_text, draw
from vrtd.cli.terminal import DIVERGED, EXIT_CODES, OK, Progress, tell
from vrtd.errors import InvalidInputError

__all__ = ["add_options", "add_parser"]

_RUNS = ("sampling", "n_runs", "n_gradients", "checkpoints", "metrics", "seed", "initial", "threads")
_SUFFIXES = {"out": (".npz",), "data": (".csv",), "figure": (".png", ".svg", ".pdf")}
_KINDS = (bool, int, float)


class Option(NamedTuple):
    kind: Any  # bool, int, float or a Literal, perhaps beside other types
    default: Any
    text: str


def add_parser(commands: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        "simulate",
        help="many independent runs of one algorithm on a named problem",
        usage="vrtd simulate [OPTIONS]",
        description="Run an algorithm many times on a named problem and print how its error falls.",
        epilog=EXIT_CODES,
        argument_default=argparse.SUPPRESS,  # what is not given is left to the library; the help names its defaults
        allow_abbrev=False,
    )
    return parser


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options, read off the library: a new algorithm or problem brings its own."""
    from vrtd.algorithms import REGISTRY
    from vrtd.metrics import METRICS
    from vrtd.problems import LIBRARY

    problems = {name: dict(_parameters(function)) for name, function in LIBRARY.items()}
    algorithms = {name: dict(_fields(algorithm)) for name, algorithm in REGISTRY.items()}
    parser.set_defaults(
        command=_simulate, problem="random_mdp", algorithm="vrtd", json=False, quiet=False,
        tables={"problem": problems, "algorithm": algorithms},
    )  # fmt: skip

    group = parser.add_argument_group("problem", "in brackets: which problems take the option, and their defaults")
    group.add_argument("--problem", choices=LIBRARY, help="(default random_mdp)")
    _add_from(group, problems)
    group = parser.add_argument_group("algorithm", "in brackets: which algorithms take the option, and their defaults")
    group.add_argument("--algorithm", choices=REGISTRY, help="(default vrtd)")
    _add_from(group, algorithms)

    add = parser.add_argument_group("runs").add_argument
    add("--sampling", choices=("markov", "iid"), help="one trajectory a run, or independent samples (default markov)")
    add("--runs", type=int, dest="n_runs", metavar="N", help="independent runs (default 1000)")
    add("--gradients", type=int, dest="n_gradients", metavar="N", help="pseudo-gradients a run (default 100000)")
    add("--checkpoints", type=int, metavar="N", help="points of a curve (default 200)")
    add("--metric", choices=METRICS, action="append", dest="metrics", help="repeatable (default squared_error)")
    add("--seed", type=int, help="draws the runs (default 0)")
    add("--initial", type=int, metavar="STATE", help="where trajectories start (default: stationary distribution)")
    add("--threads", type=int, metavar="N", help="(default: one for each processor)")

    add = parser.add_argument_group("output").add_argument
    add("--json", action="store_true", help="print one JSON object")
    add("--figure", type=Path, metavar="FILE", help="draw the curves into a .png, .svg or .pdf file")
    add("--data", type=Path, metavar="FILE.csv", help="the numbers of the curves (default: beside the figure)")
    add("--out", type=Path, metavar="FILE.npz", help="the whole result, to be read with vrtd.load")
    add("--quiet", action="store_true", help="show no progress")


def _parameters(function: Any) -> Iterator[tuple[str, Option]]:
    """The options of a named problem; its seed is not the seed of the runs."""
    hints = get_type_hints(function)
    for name, parameter in inspect.signature(function).parameters.items():
        yield "problem_seed" if name == "seed" else name, Option(hints[name], parameter.default, "")


def _fields(algorithm: Any) -> Iterator[tuple[str, Option]]:
    """The options of an algorithm, whose fields are annotated with what they are."""
    hints = get_type_hints(algorithm, include_extras=True)
    for field in dataclasses.fields(algorithm):
        kind, text = get_args(hints[field.name])
        yield field.name, Option(kind, field.default, text)


def _add_from(group: Any, table: Mapping[str, Mapping[str, Option]]) -> None:
    """One argument for each option that any name in the table has."""
    for option in dict.fromkeys(option for options in table.values() for option in options):
        owners = {name: options[option] for name, options in table.items() if option in options}
        kind, _, text = next(iter(owners.values()))
        whose = ", ".join(
            name if default is None or default is False else f"{name} {default}"
            for name, (_, default, _) in owners.items()
        )
        text = f"{text} [{whose}]".lstrip()
        flag = "--" + option.removeprefix("n_").replace("_", "-")
        plain = next(part for part in (kind, *get_args(kind)) if get_origin(part) is Literal or part in _KINDS)
        if plain is bool:
            group.add_argument(flag, dest=option, action="store_const", const=True, help=text)
        elif get_origin(plain) is Literal:
            group.add_argument(flag, dest=option, choices=get_args(plain), help=text)
        else:
            group.add_argument(flag, dest=option, type=plain, metavar="N" if plain is int else "X", help=text)


def _simulate(arguments: argparse.Namespace) -> int:
    given = vars(arguments)
    problem_options = _options("problem", given)
    algorithm_options = _options("algorithm", given)
    files = _check_files(given)

    from vrtd.algorithms import REGISTRY
    from vrtd.engine import simulate
    from vrtd.files import write_at_once
    from vrtd.plots import new_panels
    from vrtd.problems import LIBRARY

    options = {option: given[option] for option in _RUNS if option in given}
    if "metrics" in options:
        options["metrics"] = tuple(dict.fromkeys(options["metrics"]))
    # The figure is begun now, so that a missing library does not cost a long run.
    panels = new_panels(len(options.get("metrics", "1"))) if "figure" in files else []
    settings = {option: default for option, (_, default, _) in given["tables"]["problem"][arguments.problem].items()}
    settings |= problem_options
    mrp, phi = LIBRARY[arguments.problem](seed=settings.pop("problem_seed"), **settings)
    sizes = {"n_states": mrp.n_states, "n_features": phi.shape[1]}
    problem = {"name": arguments.problem, "seed": problem_options.get("problem_seed", 0), **settings, **sizes}
    algorithm = REGISTRY[arguments.algorithm](**algorithm_options)
    progress = None if arguments.quiet else Progress(sys.stderr)
    result = simulate(mrp, phi, algorithm, progress=progress, **options)
    if progress is not None:
        progress.close()

    try:
        if "out" in files:
            result.save(files["out"])
        if "data" in files:
            result.to_csv(files["data"])
        if panels:
            with write_at_once(files["figure"]) as file:
                draw(panels, result, problem).savefig(file, format=files["figure"].suffix[1:], dpi=150)
    finally:  # a full disk must not take the numbers too
        print(
            json.dumps(as_json(result, problem, files), allow_nan=False) if arguments.json else as_text(result, problem)
        )
    if files and not arguments.json:
        print(f"wrote {', '.join(map(str, files.values()))}")
    n_diverged = int((result.diverged_at >= 0).sum())
    if n_diverged:
        tell(
            f"{n_diverged} of {result.n_runs} runs diverged and are left out of the statistics from there on; "
            "lower --step-size or give a --radius",
            "warning",
        )
    return DIVERGED if n_diverged else OK


def _options(kind: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given for the chosen problem or algorithm; an option of another one is an error."""
    name, table = given[kind], given["tables"][kind]
    for option in given:
        others = [other for other, options in table.items() if option in options]
        if others and name not in others:
            flag = "--" + option.removeprefix("n_").replace("_", "-")
            raise InvalidInputError(
                f"{flag} belongs to {' or '.join(others)}", f"--{kind} {name}", f"drop it, or change --{kind}"
            )
    return {option: given[option] for option in table[name] if option in given}


def _check_files(given: Mapping[str, Any]) -> dict[str, Path]:
    """Where to write, checked before the run so that nothing is lost after it."""
    from vrtd.result import CSV_HEADER

    files: dict[str, Path] = {kind: given[kind] for kind in _SUFFIXES if kind in given}
    for kind, path in files.items():
        if path.suffix not in _SUFFIXES[kind] or path.is_dir():
            raise InvalidInputError(f"--{kind} must be a {' or '.join(_SUFFIXES[kind])} file", path, "change the name")
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise InvalidInputError(
                f"--{kind} must be in a folder that exists and can be written", path.parent, "create it, or use another"
            )
    if "figure" in files and "data" not in files:
        beside = files["figure"].with_suffix(".csv")
        if beside.exists() and not beside.read_bytes().startswith(CSV_HEADER.encode()):
            raise InvalidInputError(
                "the numbers of a figure go beside it", f"{beside}, which holds something else", "name a --data file"
            )
        files["data"] = beside
    return files
