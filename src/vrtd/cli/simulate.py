"""The command `vrtd simulate`: many independent runs of an algorithm on a named problem."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from vrtd.cli.cluster import add_executor_options, opened_executor
from vrtd.cli.formats import as_json, as_text, draw
from vrtd.cli.interrupts import raise_when_safe
from vrtd.cli.options import add_choice, algorithm_options, build_problem, chosen_options, problem_options
from vrtd.cli.outputs import JSON_HELP, QUIET_HELP, add_file_options, check_files, deliver, save_figure
from vrtd.cli.parser import Parser, one_of
from vrtd.cli.terminal import DIVERGED, OK, tell
from vrtd.errors import InvalidInputError

_RUNS = ("sampling", "n_runs", "n_gradients", "checkpoints", "metrics", "seed", "initial", "threads")


HELP = "run an algorithm many times on a named problem"
USAGE = "[OPTIONS]"
DESCRIPTION = "Run an algorithm many times on a named problem and print its error along the runs."
EPILOG = """\
examples:
  vrtd simulate --step-size 0.1 --batch-size 500 --figure vrtd.png
  vrtd simulate --algorithm svrg --sampling dataset --rows 2000"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options; those of problems and algorithms are built from the library, which also has the texts."""
    parser.argument_default = argparse.SUPPRESS  # the library has the defaults
    from vrtd.metrics import METRICS

    tables = {"problem": problem_options(), "algorithm": algorithm_options()}
    chosen = {"problem": "random_mdp", "algorithm": "vrtd"}
    parser.set_defaults(command=_simulate, tables=tables, **chosen, json=False, quiet=False)
    for kind, table in tables.items():
        add_choice(parser, kind, table, chosen[kind])

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
    add("--theta-0", type=_numbers, metavar="X[,X...]", help=text)
    text = "State where trajectories start. (default: drawn from the stationary distribution)"
    add("--initial", type=int, metavar="STATE", help=text)
    add("--threads", type=int, metavar="N")
    add_executor_options(runs)

    add = parser.add_argument_group("output").add_argument
    add("--json", action="store_true", help=JSON_HELP)
    add_file_options(add, "the curves")
    add("--out", type=Path, metavar="FILE.npz", help="Write the whole result, which vrtd.load reads.")
    add("--quiet", action="store_true", help=QUIET_HELP)


def describe_options(parser: Parser) -> None:
    """Complete the help texts of the options."""
    from vrtd.engine import simulate

    parser.take_help((simulate,), {"threads": "(default: one per processor)"})


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be numbers, separated by commas, but got {text!r}.") from None


def _simulate(arguments: argparse.Namespace) -> int:
    given = vars(arguments)
    hyperparameters = chosen_options("algorithm", given)

    from vrtd.algorithms import REGISTRY
    from vrtd.engine import record, simulate
    from vrtd.plots import new_panels
    from vrtd.result import CSV_HEADER

    files = check_files(given, CSV_HEADER)
    options = {option: given[option] for option in _RUNS if option in given}
    if "metrics" in options:
        options["metrics"] = tuple(dict.fromkeys(options["metrics"]))
    # Create the figure first, so that a missing library is found before a long run.
    panels = new_panels(len(options.get("metrics", "1"))) if "figure" in files else []
    problem, description = build_problem(given)
    if "theta_0" in given:
        options["theta_0"] = given["theta_0"] * (problem.n_features if len(given["theta_0"]) == 1 else 1)
    algorithm = REGISTRY[arguments.algorithm](**hyperparameters)
    if options.get("sampling") == "dataset":
        n_rows = given.get("n_rows", 1000)
        drawn = {option: options[option] for option in ("seed", "initial") if option in options}
        options.pop("initial", None)
        problem, description["n_rows"] = record(problem, n_rows, **drawn), n_rows
    elif "n_rows" in given:
        sampling = options.get("sampling", "markov")
        raise InvalidInputError(
            f"--rows belongs to --sampling dataset, but got --sampling {sampling}.", "Drop it, or change --sampling."
        )
    raise_when_safe()
    with opened_executor(arguments) as executor:
        if executor is not None:
            options = {name: value for name, value in options.items() if name != "threads"} | {"executor": executor}
        result = simulate(problem, algorithm, progress=not arguments.quiet, **options)

    writers = {
        "out": result.save,
        "data": result.to_csv,
        "figure": lambda path: save_figure(draw(panels, result, description), path),
    }
    as_object = as_json(result, description, files)
    shown = json.dumps(as_object, allow_nan=False) if arguments.json else as_text(result, description)
    deliver(files, writers, shown, announce=not arguments.json)
    n_diverged = int((result.diverged_at >= 0).sum())
    if n_diverged:
        flags = [f"--{name.replace('_', '-')}" for name in algorithm.step_size_fields]
        remedy = f" Lower {' or '.join(flags)}" if flags else ""
        remedy += ", or set --radius" if "radius" in algorithm.settings else ""
        problem_text = f"{n_diverged} of {result.n_runs} runs diverged and are excluded from the statistics afterwards."
        tell(f"{problem_text}{remedy}{'.' if remedy else ''}", "warning")
    return DIVERGED if n_diverged else OK
