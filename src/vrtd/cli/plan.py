"""The command `vrtd plan`: settings of TD and VRTD for a target or a budget, and a map of the error around them."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from vrtd.checks import check_count
from vrtd.cli.interrupts import raise_when_safe
from vrtd.cli.options import add_choice, build_problem, problem_options
from vrtd.cli.outputs import JSON_HELP, QUIET_HELP, add_file_options, check_files, deliver, save_figure
from vrtd.cli.parser import Parser, one_of
from vrtd.cli.plan_formats import PlanAnswer, as_json, as_text, draw
from vrtd.cli.terminal import OK
from vrtd.errors import FeatureScaleError, InvalidInputError

if TYPE_CHECKING:
    from vrtd.problems import LinearProblem

_PLAN = ("target_error", "budget", "sampling", "objective", "radius", "output", "confidence", "seed")
_TRANSITIONS = 20_000
# First columns of the two tables that the command writes.
_CURVES, _MAP = "algorithm,n_", "step_size,batch_size,squared_error,"


HELP = "choose step size, batch size and epochs for a target or a budget"
USAGE = "(--target-error X | --budget N) [OPTIONS]"
DESCRIPTION = (
    "Find the settings of TD and VRTD that reach a target error at the lowest cost, or the lowest error within a "
    "budget, on a named problem, and choose between the two algorithms."
)
EPILOG = """\
examples:
  vrtd plan --target-error 0.025
  vrtd plan --problem boyan_chain --budget 100_000 --map --figure map.png"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options; those of problems are built from the library, which also has the texts."""
    parser.argument_default = argparse.SUPPRESS  # the library has the defaults
    # Planning multiplies many small matrices, which threads would slow down. NumPy reads this when it is loaded.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # --normalise applies to every problem, so the option normalize of one problem is left out.
    table = problem_options(without=("normalize",))
    parser.set_defaults(
        command=_plan, tables={"problem": table}, problem="random_mdp", sampling="markov", mode="exact", seed=0,
        normalise=False, map=False, json=False, quiet=False,
    )  # fmt: skip
    group = add_choice(parser, "problem", table, "random_mdp")
    text = "Divide the features by their largest norm, as the theorems assume (Assumption 2)."
    group.add_argument("--normalise", "--normalize", action="store_true", help=text)

    goal = parser.add_argument_group("goal", "one of them is required").add_mutually_exclusive_group(required=True)
    goal.add_argument("--target-error", type=float, metavar="X")
    goal.add_argument("--budget", type=int, metavar="N")

    add = parser.add_argument_group("plan").add_argument
    add("--sampling", **one_of(("markov", "iid")))
    add("--objective", **one_of(("gradients", "samples")))
    # The problem is always a chain here: --mode estimated draws the sample that the library would be given.
    text = "Plan with the moments of the chain, with proven bounds, or from a sample of transitions. (default: exact)"
    add("--mode", **one_of(("exact", "guaranteed", "estimated")), help=text)
    text = f"Number of transitions to draw for --mode estimated. (default: {_TRANSITIONS})"
    add("--transitions", type=int, metavar="N", help=text)
    add("--confidence", type=float, metavar="X")
    add("--radius", type=float, metavar="X")
    add("--output", **one_of(("random", "last", "average")))
    text = "Seed of the transitions and the bootstrap of --mode estimated, and of the simulations that check a plan."
    add("--seed", type=int, metavar="N", help=f"{text} (default: 0)")

    add = parser.add_argument_group("output").add_argument
    add("--map", action="store_true", help="Also map the error at --budget over step and batch sizes.")
    add("--json", action="store_true", help=JSON_HELP)
    add_file_options(add, "the curves or the map")
    add("--quiet", action="store_true", help=QUIET_HELP)


def describe_options(parser: Parser) -> None:
    """Complete the help texts of the options."""
    from vrtd.theory import plan

    parser.take_help((plan,), {"radius": "(default: only where bounds need it)"})


def _plan(arguments: argparse.Namespace) -> int:
    given = vars(arguments)
    _check(given)
    files = check_files(given, _MAP if arguments.map else _CURVES)

    from vrtd.engine import record
    from vrtd.plots import new_panels
    from vrtd.theory import instance_optimal, phase_diagram, plan
    from vrtd.theory.checks import check_problem

    # Create the figure first, so that a missing library is found before the work.
    panel = new_panels(1)[0] if "figure" in files else None
    options = {option: given[option] for option in _PLAN if option in given}
    sample = limit = diagram = None
    raise_when_safe()
    with _note("planning ...", arguments.quiet):
        problem, description = build_problem(given)
        check_problem(problem)
        if arguments.normalise:
            problem, description["features_divided_by"] = _normalised(problem)
        if arguments.mode == "estimated":
            n_transitions = given.get("transitions", _TRANSITIONS)
            check_count("transitions", n_transitions)
            sample = record(problem, n_transitions, sampling=arguments.sampling, seed=arguments.seed, shuffle=False)
            found = plan(sample, **options)
        else:
            try:
                found = plan(problem, mode=arguments.mode, **options)
            except FeatureScaleError as error:
                raise InvalidInputError(
                    error.problem, "Add --normalise, which does this, or use --mode exact."
                ) from None
            limit = instance_optimal(problem, arguments.sampling)
        if arguments.map:
            output = {"output": arguments.output} if "output" in given else {}
            diagram = phase_diagram(problem, budget=arguments.budget, sampling=arguments.sampling, **output)

    answer = PlanAnswer(description, found, diagram, limit, None if sample is None else len(sample), arguments.seed)
    shown = json.dumps(as_json(answer, files), allow_nan=False) if arguments.json else as_text(answer)
    writers = {
        "data": (found if diagram is None else diagram).to_csv,
        "figure": lambda path: save_figure(draw(panel, answer), path),
    }
    deliver(files, writers, shown, announce=not arguments.json)
    return OK


def _check(given: Mapping[str, Any]) -> None:
    """Refuse options that cannot be combined."""
    if given["mode"] != "estimated":
        for option in ("transitions", "confidence"):
            if option in given:
                raise InvalidInputError(
                    f"--{option} belongs to --mode estimated, but got --mode {given['mode']}.",
                    "Drop it, or change --mode.",
                )
    if given["map"]:
        conflicts = (
            ("--map needs a --budget", "target_error" in given, "--target-error"),
            ("--map needs the chain itself", given["mode"] == "estimated", "--mode estimated"),
            ("--map counts pseudo-gradients", given.get("objective") == "samples", "--objective samples"),
        )
        for rule, is_broken, option in conflicts:
            if is_broken:
                raise InvalidInputError(f"{rule}, but got {option}.", f"Drop {option.split()[0]} or --map.")


def _normalised(problem: LinearProblem) -> tuple[LinearProblem, float]:
    """Return the problem with features of norm at most 1, and the divisor."""
    from numpy.linalg import norm

    from vrtd.problems import LinearProblem

    largest = float(norm(problem.phi, axis=1).max())
    return LinearProblem(problem.mrp, problem.phi / largest), largest


@contextmanager
def _note(text: str, quiet: bool) -> Iterator[None]:
    """Show a line on a terminal during the work."""
    shown = sys.stderr.isatty() and not quiet
    if shown:
        print(text, end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        if shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
