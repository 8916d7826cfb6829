"""`vrtd plan`: settings of TD and VRTD for a target or a budget on a named problem, and the map around them."""

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
from vrtd.cli.outputs import add_file_options, check_files, deliver, save_figure
from vrtd.cli.parser import one_of
from vrtd.cli.plan_formats import PlanAnswer, as_json, as_text, draw
from vrtd.cli.terminal import OK
from vrtd.errors import FeatureScaleError, InvalidInputError

if TYPE_CHECKING:
    from vrtd.problems import LinearProblem

_PLAN = ("target_error", "budget", "sampling", "objective", "radius", "output", "confidence", "seed")
_TRANSITIONS = 20_000
# How the tables that it writes begin.
_CURVES, _MAP = "algorithm,n_", "step_size,batch_size,squared_error,"


HELP = "step size, batch size and epochs for a target or a budget"
USAGE = "(--target-error X | --budget N) [OPTIONS]"
DESCRIPTION = (
    "Find the settings of TD and VRTD that reach a target at the least cost, or are best within a "
    "budget, on a named problem, and say which of the two to use."
)
EPILOG = """\
examples:
  vrtd plan --target-error 0.025
  vrtd plan --problem boyan_chain --budget 100_000 --map --figure map.png"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options; those of problems are read off the library."""
    parser.argument_default = argparse.SUPPRESS  # the library has the defaults; the help names them
    # Products of many small matrices: threads inside each would cost more than they give. Read when NumPy is loaded.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # --normalise serves every problem, so the option of the one problem that has its own is left out.
    table = problem_options(without=("normalize",))
    parser.set_defaults(
        command=_plan, tables={"problem": table}, problem="random_mdp", sampling="markov", mode="exact", seed=0,
        normalise=False, map=False, json=False, quiet=False,
    )  # fmt: skip
    group = add_choice(parser, "problem", table, "random_mdp")
    text = "divide the features by their largest norm, as the theorems assume (Assumption 2)"
    group.add_argument("--normalise", "--normalize", action="store_true", help=text)

    goal = parser.add_argument_group("goal", "one of them must be given").add_mutually_exclusive_group(required=True)
    text = "reach this expected squared error at the least cost"
    goal.add_argument("--target-error", type=float, metavar="X", help=text)
    goal.add_argument("--budget", type=int, metavar="N", help="end with the least error within this cost")

    add = parser.add_argument_group("plan").add_argument
    add("--sampling", **one_of(("markov", "iid")), help="one trajectory, or independent samples (default markov)")
    add("--objective", **one_of(("gradients", "samples")), help="what costs: pseudo-gradients (default) or samples")
    modes = "by the chain's moments (default), by proven bounds, or from a sample of transitions alone"
    add("--mode", **one_of(("exact", "guaranteed", "estimated")), help=modes)
    text = f"how many are drawn for --mode estimated (default {_TRANSITIONS})"
    add("--transitions", type=int, metavar="N", help=text)
    add("--confidence", type=float, metavar="X", help="of the intervals of --mode estimated (default 0.95)")
    add("--radius", type=float, metavar="X", help="project parameters onto a ball (default: only where bounds need it)")
    add("--output", **one_of(("random", "last", "average")), help="of an epoch of VRTD (default random)")
    add("--seed", type=int, metavar="N", help="draws transitions and simulations that check a plan (default 0)")

    add = parser.add_argument_group("output").add_argument
    add("--map", action="store_true", help="the error over step and batch sizes at --budget, beside the plan")
    add("--json", action="store_true", help="print one JSON object")
    add_file_options(add, "the curves or the map")
    add("--quiet", action="store_true", help="show no progress")


def _plan(arguments: argparse.Namespace) -> int:
    given = vars(arguments)
    _check(given)
    files = check_files(given, _MAP if arguments.map else _CURVES)

    from vrtd.engine import record
    from vrtd.plots import new_panels
    from vrtd.theory import instance_optimal, phase_diagram, plan
    from vrtd.theory.checks import check_problem

    # The figure is begun now, so that a missing library is told before the work.
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
                do = "give --normalise, which does it, or plan with --mode exact"
                raise InvalidInputError(error.must, error.got, do) from None
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
    """Options that do not go together."""
    if given["mode"] != "estimated":
        for option in ("transitions", "confidence"):
            if option in given:
                raise InvalidInputError(
                    f"--{option} belongs to --mode estimated", f"--mode {given['mode']}", "drop it, or change --mode"
                )
    if given["map"]:
        wrong = (
            ("--map needs a --budget", "target_error" in given, "--target-error"),
            ("--map needs the chain itself", given["mode"] == "estimated", "--mode estimated"),
            ("--map counts pseudo-gradients", given.get("objective") == "samples", "--objective samples"),
        )
        for must, is_wrong, got in wrong:
            if is_wrong:
                raise InvalidInputError(must, got, f"drop {got.split()[0]}, or --map")


def _normalised(problem: LinearProblem) -> tuple[LinearProblem, float]:
    from numpy.linalg import norm

    from vrtd.problems import LinearProblem

    largest = float(norm(problem.phi, axis=1).max())
    return LinearProblem(problem.mrp, problem.phi / largest), largest


@contextmanager
def _note(text: str, quiet: bool) -> Iterator[None]:
    """A line on a terminal while the work goes on."""
    shown = sys.stderr.isatty() and not quiet
    if shown:
        print(text, end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        if shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
