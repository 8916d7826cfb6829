"""The command `vrtd sweep`: an algorithm with every combination of settings on named problems."""

from __future__ import annotations

import argparse
import json
from contextlib import nullcontext
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vrtd.cli.cluster import add_device_option, add_executor_options, opened_executor
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
from vrtd.cli.outputs import JSON_HELP, QUIET_HELP, add_file_options, check_files, deliver, folder, save_figure
from vrtd.cli.parser import Parser, one_of, parse_numbers
from vrtd.cli.resumable import THREADS, resumable
from vrtd.cli.terminal import DIVERGED, OK, in_ascii, tell
from vrtd.errors import InvalidInputError

if TYPE_CHECKING:
    from vrtd.sweeps import SweepResult

_RUNS = ("sampling", "n_runs", "n_gradients", "checkpoints", "metrics", "seed", "initial", "threads", "device", "out")
_EXACT = {"auto": None, "always": True, "never": False}
_SHOWN = 10  # settings per problem and metric


HELP = "run an algorithm with every combination of settings"
USAGE = "[OPTIONS]"
DESCRIPTION = (
    "Run an algorithm with every combination of settings on named problems, and print the settings with the smallest "
    "errors. With --out, finished cells are kept, so an interrupted sweep can be resumed."
)
EPILOG = """\
examples:
  vrtd sweep --step-size 0.01,0.03,0.1,0.3 --batch-size 50,500 --figure map.png
  vrtd sweep --algorithm td --step-size 0.01,0.1 --problem random_mdp boyan_chain --out steps"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options; those of problems and algorithms are built from the library, which also has the texts."""
    parser.argument_default = argparse.SUPPRESS  # the library has the defaults
    from vrtd.metrics import METRICS

    tables = {"problem": problem_options(), "algorithm": algorithm_options()}
    chosen = {"problem": "random_mdp", "algorithm": "vrtd"}
    parser.set_defaults(command=_sweep, tables=tables, **chosen, exact="auto", json=False, quiet=False)
    add_choice(parser, "problem", tables["problem"], chosen["problem"], several=True)
    add_choice(parser, "algorithm", tables["algorithm"], chosen["algorithm"], lists=True)

    runs = parser.add_argument_group("runs")
    add = runs.add_argument
    text = "One trajectory per run, independent samples, or one data set for all runs. (default: markov)"
    add("--sampling", **one_of(("markov", "iid", "dataset")), help=text)
    text = "Number of rows of the data set, which is drawn with --seed. (default: 1000)"
    add("--rows", type=int, dest="n_rows", metavar="N", help=text)
    add("--runs", type=int, dest="n_runs", metavar="N")
    add("--gradients", type=int, dest="n_gradients", metavar="N")
    # The library also takes arrays and objects for these four.
    add("--checkpoints", type=int, metavar="N", help="Number of checkpoints in the table. (default: 1, the end)")
    text = "Measure of the error; may be repeated. (default: squared_error; for a simulator neu)"
    add("--metric", **one_of(METRICS), action="append", dest="metrics", help=text)
    add("--seed", type=int, metavar="N")
    text = (
        "Initial parameters: one number for all features, or one per feature. Write a negative number as --theta-0=-1. "
        "(default: 0)"
    )
    add("--theta-0", type=parse_numbers, metavar="X[,X...]", help=text)
    text = "State where trajectories start. (default: drawn from the stationary distribution)"
    add("--initial", type=int, metavar="STATE", help=text)
    text = "When to compute expected errors beside the simulated ones. (default: auto, where they cost little)"
    add("--exact", **one_of(_EXACT), help=text)
    add("--threads", type=int, metavar="N")
    add_device_option(runs, argparse.SUPPRESS)
    add_executor_options(runs)

    add = parser.add_argument_group("output").add_argument
    add("--json", action="store_true", help=JSON_HELP)
    add_file_options(add, "the sweep")
    text = "Folder that keeps finished cells and receives the table. (default: none)"
    add("--out", type=folder, metavar="DIR", help=text)
    add("--quiet", action="store_true", help=QUIET_HELP)


def describe_options(parser: Parser) -> None:
    """Complete the help texts of the options."""
    from vrtd.sweeps import sweep

    parser.take_help((sweep,), {"threads": THREADS})


def _sweep(arguments: argparse.Namespace) -> int:
    given = vars(arguments)
    grid = chosen_options("algorithm", given)
    if not grid:
        raise InvalidInputError(
            f"A sweep needs values of at least one setting of {arguments.algorithm}, but got none.",
            "Add an option such as --step-size 0.01,0.1.",
        )

    from vrtd.sweeps import sweep

    header = ",".join(("problem", *grid, "metric"))
    files = check_files({kind: given[kind] for kind in ("figure", "data") if kind in given}, header)
    options = {option: given[option] for option in _RUNS if option in given}
    if "metrics" in options:
        options["metrics"] = tuple(dict.fromkeys(options["metrics"]))
    if "theta_0" in given:
        options["theta_0"] = given["theta_0"][0] if len(given["theta_0"]) == 1 else given["theta_0"]
    problems, rest = {}, options
    for name in chosen_names("problem", given):
        problem, _ = build_problem(given, name)
        problems[name], _, rest = draw_data_set(given, problem, {}, options)
    raise_when_safe()
    with resumable(arguments) if "out" in given else nullcontext(), opened_executor(arguments) as executor:
        if executor is not None:
            rest = {name: value for name, value in rest.items() if name != "threads"}
        result = sweep(
            problems,
            arguments.algorithm,
            grid,
            exact=_EXACT[arguments.exact],
            executor=executor,
            progress=not arguments.quiet,
            **rest,
        )

    def draw(path: Path) -> None:
        save_figure(result.plot().figure, path)

    as_object = result.as_dict() | {"files": {kind: str(path) for kind, path in files.items()}}
    shown = json.dumps(as_object, allow_nan=False) if arguments.json else in_ascii(_as_text(result))
    deliver(files, {"data": result.to_csv, "figure": draw}, shown, announce=not arguments.json)
    best = [each for metric in result.metrics for each in result.best(metric).values()]
    n_unstable = max(each.n_unstable for each in best)
    if n_unstable:
        tell("Runs diverged with some settings. They are excluded from the means and counted beside them.", "warning")
    return DIVERGED if any(each.n_diverged for each in best) else OK


def _as_text(result: SweepResult) -> str:
    """Return what was run, and the best settings on each problem."""
    import numpy as np

    from vrtd.report.numbers import plural

    manifest = result.manifest
    sampling = ", ".join(dict.fromkeys(manifest["sampling"].values()))
    n_cells, n_runs, n_gradients = result.n_cells, manifest["n_runs"], manifest["n_gradients"]
    lines = [
        f"algorithm  {manifest['algorithm']}",
        f"cells      {n_cells:,}, each of {n_runs:,} runs and {n_gradients:,} pseudo-gradients",
        f"runs       {sampling} sampling, seed {manifest['seed']}",
    ]
    heads = "".join(f"{name:>16}" for name in result.grid)
    heads = f"{heads}{'mean +- standard error':>27}{'expected':>12}{'floor':>12}{'diverged':>10}"
    for metric in result.metrics:
        for problem, best in result.best(metric).items():
            names = ("mean", "standard_error", "exact", "floor", "n_diverged")
            columns = [result.final(name, problem, metric).ravel() for name in names]
            order = np.lexsort((np.nan_to_num(columns[0], nan=np.inf), columns[-1]))
            n_settings = len(order)
            shown = min(n_settings, max(_SHOWN, 1))
            first = f", the best {shown} of {n_settings:,} settings" if shown < n_settings else ""
            lines += ["", f"{metric} at the end on {problem}{first}", heads]
            for i in order[:shown].tolist():
                mean, error, exact, floor, diverged = (column[i] for column in columns)
                setting = result.setting(i)
                words = "".join(f"{_cell(value):>16}" for value in setting.values())
                spread = f"{_cell(mean):>13} +- {_cell(error):<10}"
                mark = " *" if setting == best.setting or setting in best.tied else ""
                lines.append(f"{words}{spread:>27}{_cell(exact):>12}{_cell(floor):>12}{diverged:>10}{mark}")
            lines.append(f"* {_count_tied(len(best.tied))}")
            methods = dict.fromkeys(result.final("method", problem, metric).ravel().tolist())
            texts = {"": "not known", "skipped": "skipped (pass --exact always)"}
            told = ", ".join(texts.get(f"{method}", f"{method}") for method in methods)
            lines.append(f"expected errors: {told}; {plural(best.n_unstable, 'setting')} with diverged runs")
    if result.out is not None:
        lines += ["", f"kept in {result.out}"]
    return "\n".join(lines)


def _count_tied(n: int) -> str:
    return f"best, and statistically tied with it: {n:,}" if n else "best"


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return "-" if isnan(value) else f"{value:.4g}"
    return "none" if value is None else str(value)
