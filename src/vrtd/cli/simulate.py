"""`vrtd simulate`: many independent runs of one algorithm on a named problem."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vrtd.cli.formats import CSV_HEADER, as_csv, as_json, as_text, draw, write_at_once
from vrtd.cli.terminal import DIVERGED, EXIT_CODES, OK, Progress, tell
from vrtd.errors import InvalidInputError

__all__ = ["ALGORITHMS", "METRICS", "PROBLEMS", "add_parser"]

Table = Mapping[str, tuple[str, ...]]

# The options of each name, written down so that help needs no heavy import; a test holds them against the library.
PROBLEMS: Table = {  # without baird, whose linear system is singular: there is no solution to measure errors from
    "random_mdp": ("problem_seed", "n_states", "n_features"),
    "garnet": ("problem_seed", "n_states", "n_features"),
    "boyan_chain": (),
    "random_walk": ("n_states",),
}
ALGORITHMS: Table = {
    "td": ("step_size", "radius", "average"),
    "vrtd": ("step_size", "batch_size", "radius", "output", "inner"),
}
METRICS = ("squared_error", "value_error", "neu", "mspbe")
_RUNS = ("sampling", "n_runs", "n_gradients", "checkpoints", "metrics", "seed", "initial", "threads")
_SUFFIXES = {"out": (".npz",), "data": (".csv",), "figure": (".png", ".svg", ".pdf")}


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "simulate",
        help="many independent runs of one algorithm on a named problem",
        usage="vrtd simulate [OPTIONS]",
        description="Run an algorithm many times on a named problem and print how its error falls.",
        epilog=EXIT_CODES,
        argument_default=argparse.SUPPRESS,  # what is not given is left to the library; the help names its defaults
        allow_abbrev=False,
    )
    parser.set_defaults(command=_simulate, problem="random_mdp", algorithm="vrtd", json=False, quiet=False)

    add = parser.add_argument_group("problem").add_argument
    add("--problem", choices=PROBLEMS, help="(default random_mdp)")
    add(
        "--problem-seed", type=int, metavar="SEED", help=f"draws the problem (default 0){_of('problem_seed', PROBLEMS)}"
    )
    add("--states", type=int, dest="n_states", metavar="N", help=f"how many{_of('n_states', PROBLEMS)}")
    add("--features", type=int, dest="n_features", metavar="D", help=f"how many{_of('n_features', PROBLEMS)}")

    add = parser.add_argument_group("algorithm").add_argument
    outputs, inners = ("random", "last", "average"), ("fresh", "resample")
    add("--algorithm", choices=ALGORITHMS, help="(default vrtd)")
    add("--step-size", type=float, metavar="ALPHA", help="(default 0.1)")
    add("--radius", type=float, metavar="R", help="project onto the ball of this radius (default: no projection)")
    add("--batch-size", type=int, metavar="M", help=f"samples a batch (default 500){_of('batch_size', ALGORITHMS)}")
    add("--output", choices=outputs, help=f"what an epoch returns (default random){_of('output', ALGORITHMS)}")
    inner_help = "where samples of inner steps come from (default: fresh if iid, else resample the batch)"
    add("--inner", choices=inners, help=inner_help + _of("inner", ALGORITHMS))
    average_help = f"return the mean of all iterates{_of('average', ALGORITHMS)}"
    add("--average", action="store_const", const=True, help=average_help)

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


def _of(option: str, table: Table) -> str:
    return f" [{', '.join(name for name, options in table.items() if option in options)}]"


def _simulate(arguments: argparse.Namespace) -> int:
    given = vars(arguments)
    problem_options = _options("problem", given, PROBLEMS)
    algorithm_options = _options("algorithm", given, ALGORITHMS)
    files = _check_files(given)

    from vrtd.algorithms import REGISTRY
    from vrtd.engine import simulate
    from vrtd.plots import new_axes
    from vrtd.problems import LIBRARY

    axes = new_axes() if "figure" in files else None  # now, so that a missing library does not cost a long run
    if "problem_seed" in PROBLEMS[arguments.problem]:
        problem_options = {"seed": problem_options.pop("problem_seed", 0), **problem_options}
    mrp, phi = LIBRARY[arguments.problem](**problem_options)
    problem = {"name": arguments.problem, **problem_options, "n_states": mrp.n_states, "n_features": phi.shape[1]}
    algorithm = REGISTRY[arguments.algorithm](**algorithm_options)
    options = {option: given[option] for option in _RUNS if option in given}
    if "metrics" in options:
        options["metrics"] = tuple(dict.fromkeys(options["metrics"]))
    progress = None if arguments.quiet else Progress(sys.stderr)
    result = simulate(mrp, phi, algorithm, progress=progress, **options)
    if progress is not None:
        progress.close()

    try:
        if "out" in files:
            result.save(files["out"])
        if "data" in files:
            with write_at_once(files["data"]) as file:
                file.write(as_csv(result).encode())
        if axes is not None:
            with write_at_once(files["figure"]) as file:
                draw(axes, result, problem, file, files["figure"].suffix[1:])
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


def _options(kind: str, given: Mapping[str, Any], table: Table) -> dict[str, Any]:
    """What was given for the chosen problem or algorithm; an option of another one is an error."""
    name = given[kind]
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
