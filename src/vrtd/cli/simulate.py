"""`vrtd simulate`: many independent runs of one algorithm on a named problem."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from vrtd.cli.formats import as_json, as_text, draw
from vrtd.cli.interrupts import raise_when_safe
from vrtd.cli.options import add_choice, algorithm_options, build_problem, chosen_options, problem_options
from vrtd.cli.outputs import add_file_options, check_files, deliver, save_figure
from vrtd.cli.parser import one_of
from vrtd.cli.terminal import DIVERGED, OK, tell
from vrtd.errors import InvalidInputError

_RUNS = ("sampling", "n_runs", "n_gradients", "checkpoints", "metrics", "seed", "initial", "threads")


HELP = "many independent runs of one algorithm on a named problem"
USAGE = "[OPTIONS]"
DESCRIPTION = "Run an algorithm many times on a named problem and print how its error falls."
EPILOG = """\
examples:
  vrtd simulate --step-size 0.1 --batch-size 500 --figure vrtd.png
  vrtd simulate --algorithm svrg --sampling dataset --rows 2000"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options, read off the library: a new algorithm or problem brings its own."""
    parser.argument_default = argparse.SUPPRESS  # the library has the defaults; the help names them
    from vrtd.metrics import METRICS

    tables = {"problem": problem_options(), "algorithm": algorithm_options()}
    chosen = {"problem": "random_mdp", "algorithm": "vrtd"}
    parser.set_defaults(command=_simulate, tables=tables, **chosen, json=False, quiet=False)
    for kind, table in tables.items():
        add_choice(parser, kind, table, chosen[kind])

    add = parser.add_argument_group("runs").add_argument
    samplings = "one trajectory a run, independent samples, or one data set for all runs (default markov)"
    add("--sampling", **one_of(("markov", "iid", "dataset")), help=samplings)
    add("--rows", type=int, dest="n_rows", metavar="N", help="of the data set, drawn with the seed (default 1000)")
    add("--runs", type=int, dest="n_runs", metavar="N", help="independent runs (default 1000)")
    add("--gradients", type=int, dest="n_gradients", metavar="N", help="pseudo-gradients a run (default 100000)")
    add("--checkpoints", type=int, metavar="N", help="points of a curve (default 200)")
    metrics = "repeatable (default squared_error; for a simulator neu, estimated from 100,000 transitions)"
    add("--metric", **one_of(METRICS), action="append", dest="metrics", help=metrics)
    add("--seed", type=int, metavar="N", help="draws the runs (default 0)")
    start = "where parameters start: one number for all features, or one each (default 0); if negative, --theta-0=-1"
    add("--theta-0", type=_numbers, metavar="X[,X...]", help=start)
    add("--initial", type=int, metavar="STATE", help="where trajectories start (default: stationary distribution)")
    add("--threads", type=int, metavar="N", help="(default: one for each processor)")

    add = parser.add_argument_group("output").add_argument
    add("--json", action="store_true", help="print one JSON object")
    add_file_options(add, "the curves")
    add("--out", type=Path, metavar="FILE.npz", help="the whole result, to be read with vrtd.load")
    add("--quiet", action="store_true", help="show no progress")


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be numbers, separated by commas; got {text!r}") from None


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
    # The figure is begun now, so that a missing library does not cost a long run.
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
        got = f"--sampling {options.get('sampling', 'markov')}"
        raise InvalidInputError("--rows belongs to --sampling dataset", got, "drop it, or change --sampling")
    raise_when_safe()
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
        remedies = [f"lower --{name.replace('_', '-')}" for name in algorithm.step_size_fields]
        remedies += ["give a --radius"] if "radius" in algorithm.settings else []
        told = f"{n_diverged} of {result.n_runs} runs diverged and are left out of the statistics from there on"
        tell(f"{told}; {' or '.join(remedies)}" if remedies else told, "warning")
    return DIVERGED if n_diverged else OK
