"""The command `vrtd simulate`: many independent runs of an algorithm on a named problem."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vrtd.cli.cluster import add_device_option, add_executor_options, opened_executor
from vrtd.cli.formats import as_json, as_json_together, as_text, draw, header_of, write_together
from vrtd.cli.interrupts import raise_when_safe
from vrtd.cli.options import (
    add_choice,
    algorithm_options,
    build_problem,
    chosen_names,
    chosen_options,
    draw_data_set,
    problem_options,
)
from vrtd.cli.outputs import JSON_HELP, QUIET_HELP, add_file_options, check_files, deliver, save_figure
from vrtd.cli.parser import Parser, one_of, parse_numbers
from vrtd.cli.terminal import DIVERGED, OK, tell

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vrtd.algorithms import Algorithm
    from vrtd.result import Result

_RUNS = ("sampling", "n_runs", "n_gradients", "checkpoints", "metrics", "seed", "initial", "threads", "device")


HELP = "run algorithms many times on a named problem"
USAGE = "[OPTIONS]"
DESCRIPTION = "Run an algorithm many times on a named problem and print its error along the runs."
EPILOG = """\
examples:
  vrtd simulate --step-size 0.1 --batch-size 500 --figure vrtd.png
  vrtd simulate --algorithm td vrtd --step-size 0.1 --figure both.png
  vrtd simulate --algorithm svrg --sampling dataset --rows 2000"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options; those of problems and algorithms are built from the library, which also has the texts."""
    parser.argument_default = argparse.SUPPRESS  # the library has the defaults
    from vrtd.metrics import METRICS

    tables = {"problem": problem_options(), "algorithm": algorithm_options()}
    chosen = {"problem": "random_mdp", "algorithm": "vrtd"}
    parser.set_defaults(command=_simulate, tables=tables, **chosen, json=False, quiet=False)
    add_choice(parser, "problem", tables["problem"], chosen["problem"])
    add_choice(parser, "algorithm", tables["algorithm"], chosen["algorithm"], several=True)

    runs = parser.add_argument_group("runs")
    add = runs.add_argument
    # A named problem is a chain or a simulator, of which this command records the data set.
    text = "One trajectory per run, independent samples, or one data set for all runs. (default: markov)"
    add("--sampling", **one_of(("markov", "iid", "dataset")), help=text)
    text = "Number of rows of the data set, which is drawn with --seed. (default: 1000)"
    add("--rows", type=int, dest="n_rows", metavar="N", help=text)
    add("--runs", type=int, dest="n_runs", metavar="N")
    add("--gradients", type=int, dest="n_gradients", metavar="N")
    # The library also takes arrays and objects for these four.
    add("--checkpoints", type=int, metavar="N", help="Number of points of each curve. (default: 200)")
    text = (
        "Measure of the error; may be repeated. (default: squared_error; for a simulator neu, estimated from 100,000 "
        "transitions)"
    )
    add("--metric", **one_of(METRICS), action="append", dest="metrics", help=text)
    add("--seed", type=int, metavar="N")
    text = (
        "Initial parameters: one number for all features, or one per feature. Write a negative number as --theta-0=-1. "
        "(default: 0)"
    )
    add("--theta-0", type=parse_numbers, metavar="X[,X...]", help=text)
    text = "State where trajectories start. (default: drawn from the stationary distribution)"
    add("--initial", type=int, metavar="STATE", help=text)
    add("--threads", type=int, metavar="N")
    add_device_option(runs, argparse.SUPPRESS)
    add_executor_options(runs)

    add = parser.add_argument_group("output").add_argument
    add("--json", action="store_true", help=JSON_HELP)
    add_file_options(add, "the curves")
    text = "Write the whole result, which vrtd.load reads; of several algorithms one file each, as in FILE-td.npz."
    add("--out", type=Path, metavar="FILE.npz", help=text)
    add("--quiet", action="store_true", help=QUIET_HELP)


def describe_options(parser: Parser) -> None:
    """Complete the help texts of the options."""
    from vrtd.engine import simulate

    parser.take_help((simulate,), {"threads": "(default: one per processor)"})


def _simulate(arguments: argparse.Namespace) -> int:
    given = vars(arguments)
    names = chosen_names("algorithm", given)
    hyperparameters = {name: chosen_options("algorithm", given, name) for name in names}

    from vrtd.algorithms import REGISTRY
    from vrtd.engine import simulate
    from vrtd.plots import new_panels

    together = len(names) > 1
    files = check_files(given, header_of(together))
    options = {option: given[option] for option in _RUNS if option in given}
    if "metrics" in options:
        options["metrics"] = tuple(dict.fromkeys(options["metrics"]))
    # Create the figure first, so that a missing library is found before a long run.
    panels = new_panels(len(options.get("metrics", "1"))) if "figure" in files else []
    problem, description = build_problem(given)
    if "theta_0" in given:
        options["theta_0"] = given["theta_0"] * (problem.n_features if len(given["theta_0"]) == 1 else 1)
    algorithms = {name: REGISTRY[name](**hyperparameters[name]) for name in names}
    problem, description, options = draw_data_set(given, problem, description, options)
    if together:
        _check_all(problem, algorithms, options)
    raise_when_safe()
    with opened_executor(arguments) as executor:
        if executor is not None:
            options = {name: value for name, value in options.items() if name != "threads"} | {"executor": executor}
        results = {
            name: simulate(problem, algorithm, progress=not arguments.quiet, **options)
            for name, algorithm in algorithms.items()
        }

    first = results[names[0]]
    if together:
        stored = {name: _path_of(files["out"], name) for name in names} if "out" in files else {}
        writers = {
            "data": lambda path: write_together(results, path),
            "out": lambda _: _save_all(results, stored),
        }
        as_object = as_json_together(results, description, files, stored)
        text = "\n\n".join(as_text(result, description) for result in results.values())
    else:
        writers, as_object = {"out": first.save, "data": first.to_csv}, as_json(first, description, files)
        text = as_text(first, description)
    writers["figure"] = lambda path: save_figure(draw(panels, list(results.values()), description), path)
    shown = json.dumps(as_object, allow_nan=False) if arguments.json else text
    deliver(files, writers, shown, announce=not arguments.json)
    diverged = [_warn_if_diverged(algorithms[name], result, together) for name, result in results.items()]
    return DIVERGED if any(diverged) else OK


def _check_all(problem: Any, algorithms: Mapping[str, Algorithm], options: Mapping[str, Any]) -> None:
    """Refuse before the first run what one of several algorithms cannot do."""
    from vrtd.algorithms import check_sampling
    from vrtd.checks import check_exact_count
    from vrtd.engine.arguments import bind_problem, check_budget, choose_sampling

    sampling = choose_sampling(problem, options.get("sampling"))
    for algorithm in algorithms.values():
        check_sampling(algorithm, sampling)
        if "n_gradients" in options:
            n_gradients = check_exact_count("n_gradients", options["n_gradients"])
            n_rows = bind_problem(problem, sampling, "stationary").n_rows
            check_budget(algorithm.epoch(sampling, n_rows), n_gradients)


def _path_of(path: Path, name: str) -> Path:
    """Return the file of one of several algorithms."""
    return path.with_stem(f"{path.stem}-{name}")


def _save_all(results: Mapping[str, Result], stored: Mapping[str, Path]) -> None:
    for name, path in stored.items():
        results[name].save(path)


def _warn_if_diverged(algorithm: Algorithm, result: Result, together: bool) -> bool:
    n_diverged = int((result.diverged_at >= 0).sum())
    if n_diverged:
        flags = [f"--{name.replace('_', '-')}" for name in algorithm.step_size_fields]
        remedy = f" Lower {' or '.join(flags)}" if flags else ""
        remedy += ", or set --radius" if "radius" in algorithm.settings else ""
        of_which = f" of {algorithm.name}" if together else ""
        diverged = f"{n_diverged} of {result.n_runs} runs{of_which} diverged"
        tell(f"{diverged} and are excluded from the statistics afterwards.{remedy}{'.' if remedy else ''}", "warning")
    return n_diverged > 0
