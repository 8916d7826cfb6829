"""The command `vrtd evaluate`: the values of a policy from an environment or a log, with a report."""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vrtd.cli.cluster import add_executor_options, opened_executor
from vrtd.cli.interrupts import answer_with, raise_when_safe
from vrtd.cli.messages import to_shell
from vrtd.cli.outputs import JSON_HELP, QUIET_HELP, folder
from vrtd.cli.parser import Parser, one_of, or_auto, parse_number, parse_whole
from vrtd.cli.terminal import OK, in_ascii, tell
from vrtd.errors import DataWarning, InvalidInputError
from vrtd.progress import RowProgressBar

if TYPE_CHECKING:
    from vrtd.estimator import Evaluation

# Columns of a log: whether there may be several, and an example of the option.
_COLUMNS = {
    "observations": (True, "price 'x_*'"),
    "next_observations": (True, "'next_x_*'"),
    "reward": (False, "revenue"),
    "terminated": (False, "purchased"),
    "truncated": (False, "timeout"),
    "action": (True, "'a_*'"),
    "propensity": (False, "p"),
    "weight": (False, "rho"),
    "episode": (True, "user day"),
    "order_by": (True, "event_time"),
}
# Options that belong to one of the two kinds of sources, by their parameters.
_READING = (*_COLUMNS, "episode_end", "missing", "text", "format")
_OF_DATA = {name: f"--{name.replace('_', '-')}" for name in (*_READING, "against")}
_OF_ENV = {
    "policy": "--policy",
    "n_samples": "--samples",
    "n_envs": "--n-envs",
    "clip_actions": "--clip-actions",
    "record": "--record",
}
_METHOD = (
    "target",
    "against_target",
    "features",
    "discount",
    "algorithm",
    "step_size",
    "batch_size",
    "cost",
    "pilot_rows",
    "n_passes",
    "seed",
)
_OUTPUT = ("out", "level", "names")
# What the default of the library, which is None, stands for.
_DEFAULTS = {
    "n_envs": "(default: one that is not a vector environment)",
    "episode_end": "(default: truncated)",
    "format": "(default: by suffix)",
    "pilot_rows": "(default: 5000, or 1000 with --cost linear, or a quarter of the rows if that is less)",
    "names": "(default: the names of the columns)",
}


HELP = "estimate the values of a policy from an environment or a log, with intervals"
USAGE = "(--env ID | --data PATH ...) --discount X [OPTIONS]"
DESCRIPTION = (
    "Learn the values of a policy in one pass over its transitions, and write a report with intervals, the model and "
    "the values into a folder. With --target, evaluate another policy from the same transitions. With --against or "
    "--against-target, compare two policies."
)
EPILOG = """\
examples:
  vrtd evaluate --env FrozenLake-v1 --discount 0.99
  vrtd evaluate --env CartPole-v1 --policy mypackage.policies:balance --discount 0.99 --samples 1e6
  vrtd evaluate --data before.parquet --against after.parquet --discount 0.9
  vrtd evaluate --data log.parquet --action a --target new.npy --against-target old.npy --discount 0.9
  vrtd evaluate --data 'events-*.parquet' --discount 0.95 --observations n_items segment --reward revenue \\
      --episode session_id --order-by event_time --episode-end terminated --out values"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options. Those without a text take it from the library."""
    parser.argument_default = argparse.SUPPRESS  # the library has the defaults
    parser.set_defaults(command=_evaluate, seed=0, out=Path("evaluation"), json=False, quiet=False)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--env", metavar="ID", help="A Gymnasium environment, such as MountainCar-v0.")
    source.add_argument(
        "--data", nargs="+", metavar="PATH", help="Files, folders or patterns: Parquet, CSV, npz, HDF5, Minari."
    )

    add = parser.add_argument_group("with --env").add_argument
    # The library also takes objects as policies. Here a policy is a name, and this says which.
    text = (
        "The policy that acts: random, a .npy or .npz file of (S, A) probabilities or (S,) actions, or "
        "package.module:function of installed code. (default: random)"
    )
    add("--policy", metavar="P", help=text)
    add("--samples", dest="n_samples", type=int, metavar="N")
    add("--n-envs", type=int, metavar="K")
    add("--clip-actions", action="store_true")
    add("--record", type=Path, metavar="FILE")

    add = parser.add_argument_group("which policy").add_argument
    text = (
        "The policy to evaluate, if another policy generated the rows. It is given as for --policy; a function takes "
        "a batch of observations."
    )
    add("--target", metavar="P", help=text)
    add("--against-target", metavar="Q")
    add("--against", nargs="+", metavar="PATH", help="Files of another policy to compare with, with --data.")

    add = parser.add_argument_group(
        "with --data", "columns by name or pattern; the usual names are tried for columns that are not named"
    ).add_argument
    for column, (is_list, _) in _COLUMNS.items():
        add(_OF_DATA[column], metavar="COLUMN", nargs="+" if is_list else None)
    add("--episode-end", **one_of(("terminated", "truncated", "drop")))
    add("--missing", **one_of(("error", "drop", "indicator")))
    add("--text", **one_of(("category", "hash")))
    add("--format", **one_of(("parquet", "csv", "npz", "hdf5", "minari")))

    method = parser.add_argument_group("method")
    add = method.add_argument
    add("--features", metavar="F")
    add("--discount", type=float, metavar="X", required=True)
    add("--algorithm", metavar="NAME")
    add("--step-size", type=or_auto(parse_number, "a number"), metavar="X")
    add("--batch-size", type=or_auto(parse_whole, "a whole number"), metavar="N")
    add("--cost", **one_of(("auto", "linear", "quadratic")))
    add("--pilot-rows", type=int, metavar="N")
    add("--passes", dest="n_passes", type=int, metavar="N")
    add("--seed", type=int, metavar="N")
    # The library takes an executor object.
    text = "Number of workers that --executor starts. (default: one per processor)"
    add("--threads", type=int, metavar="N", help=text)
    add_executor_options(method)

    add = parser.add_argument_group("output").add_argument
    add("--out", type=folder, metavar="DIR")
    add("--level", type=float, metavar="X")
    add("--names", type=lambda names: names.split(","), metavar="A,B")
    add("--json", action="store_true", help=JSON_HELP)
    add("--quiet", action="store_true", help=QUIET_HELP)


def describe_options(parser: Parser) -> None:
    """Complete the help texts of the options."""
    from vrtd.estimator import evaluate
    from vrtd.logs import read

    examples = {column: f"Example: {_OF_DATA[column]} {example}" for column, (_, example) in _COLUMNS.items()}
    parser.take_help((evaluate, read), _DEFAULTS | examples)


class _Bar(RowProgressBar):
    """Progress bar that also sets the answer to Ctrl-C.

    While rows are read, Ctrl-C writes the results so far. Before and after that, it stops at once.
    """

    def __call__(self, done: int, total: int | None) -> None:
        answer_with("finishing: writing the results so far")
        super().__call__(done, total)

    def announce(self, task: str) -> None:
        answer_with("stopping")
        super().announce(task)


def _evaluate(arguments: argparse.Namespace) -> int:
    given = vars(arguments)
    _check_source(given)
    if "threads" in given and arguments.executor is None:
        raise InvalidInputError("--threads belongs to --executor, but got none.", "Add --executor, or drop --threads.")
    from vrtd.estimator import EvaluationInterrupted, ReportError, evaluate
    from vrtd.logs.reading import describe_start
    from vrtd.plots import new_panels

    new_panels(1)  # load Matplotlib while Ctrl-C still ends the process at once
    options = {name: given[name] for name in ("against", *_METHOD, *_OUTPUT, *_OF_ENV) if name in given}
    try:
        raise_when_safe("stopping")
        warnings.simplefilter("ignore", DataWarning)  # the printed answer includes them
        source = given["env"] if "env" in given else given["data"]
        columns = _columns(given)
        with open(os.devnull, "w") as nowhere:
            bar = _Bar(nowhere if arguments.quiet else sys.stderr, describe_start(columns))
            with opened_executor(arguments) as executor, closing(bar):
                evaluation = evaluate(source, executor=executor, progress=bar, **options, **columns)
    except EvaluationInterrupted as stop:
        files = {kind: path for kind, path in stop.evaluation.files.items() if path.exists()}
        with suppress(OSError):  # the terminal is gone
            _show(stop.evaluation, arguments, files)
        tell(f"the results from {stop.evaluation.diagnostics.n_rows:,} rows are in {arguments.out}")
        raise
    except ReportError as stop:
        files = {kind: path for kind, path in stop.evaluation.files.items() if path.name in stop.kept}
        _show(stop.evaluation, arguments, files)
        raise
    _show(evaluation, arguments, evaluation.files)
    return OK


def _check_source(given: dict[str, Any]) -> None:
    source, other, flags = ("--env", "--data", _OF_DATA) if "env" in given else ("--data", "--env", _OF_ENV)
    for option, flag in flags.items():
        if option in given:
            raise InvalidInputError(f"{flag} belongs to {other}, but got {source}.", f"Drop it, or give {other}.")


def _columns(given: dict[str, Any]) -> Any:
    """Return how to read the log: the only column of a list by its name, several as a list."""
    columns = {option: given[option] for option in _READING if option in given}
    return {
        option: names[0] if isinstance(names, list) and len(names) == 1 else names for option, names in columns.items()
    }


def _show(evaluation: Evaluation, arguments: argparse.Namespace, files: Mapping[str, Path]) -> None:
    if arguments.json:
        written = {"files": {kind: str(path) for kind, path in files.items()}}
        print(json.dumps(evaluation.as_dict() | written, allow_nan=False))
    else:
        print(_as_text(evaluation, arguments.flags, files))


def _as_text(evaluation: Evaluation, flags: Mapping[str, str], files: Mapping[str, Path]) -> str:
    """Return the answer, whether to trust it, and the names of the files."""
    from vrtd.estimator.answers import describe_returns
    from vrtd.estimator.page import MEANING, describe_actions, describe_roles

    answer, d = evaluation.answer, evaluation.diagnostics
    lines = [(answer.name, f"{answer.text}: {answer.estimand}")]
    if evaluation.comparison is not None:
        name, other, value = evaluation.comparison.name, evaluation.comparison.other, evaluation.comparison.policy_value
        lines = [
            ("difference", evaluation.comparison.verdict),
            (answer.name, f"{answer.text}: {name}, {answer.estimand}"),
            ("", f"{value.text}: {other}, {value.estimand}"),
        ]
    lines += [("warning", to_shell(warning, flags)) for warning in evaluation.warnings]
    if answer.reservation:
        lines.append(("", to_shell(answer.reservation, flags)))
    if evaluation.interrupted:
        lines.append(("stopped", f"interrupted after {d.n_rows:,} rows"))
    if evaluation.policy_value is not None:
        lines.append((evaluation.mean_value.name, f"{evaluation.mean_value.text}: {evaluation.mean_value.estimand}"))
    if evaluation.returns is not None:
        lines.append(("mean return", describe_returns(evaluation.returns)))
    lines.append(("diagnosis", f"{d.verdict}. {d.explanation}".rstrip()))
    if evaluation.closed_form is not None:
        lines.append(("compare", f"the closed form (least squares) gives {evaluation.closed_form}"))
    settings = {key: value for key, value in d.settings.items() if key != "name" and value is not None}
    lines.append(("method", ", ".join([str(d.settings["name"]), *(f"{k} {_short(v)}" for k, v in settings.items())])))
    if evaluation.target is not None:
        words = describe_actions(evaluation)
        lines.append(("target", f"{evaluation.target}; actions {words}" if words else evaluation.target))
    if d.overlap is not None:
        lines.append(("overlap", "; ".join(f"{name.lower()} {text}" for name, text in d.overlap.describe().items())))
    if evaluation.roles:
        lines.append(("columns", describe_roles(evaluation.roles)))
    condition = "" if d.condition_number is None else f", condition number {_short(d.condition_number)}"
    features = f"{evaluation.features}{condition}"
    if d.explained is not None and d.explained == d.explained:
        features += f"; they explain {100 * d.explained:.3g} % of the value's variance"
    lines += [("features", features), *(("remark", to_shell(remark, flags)) for remark in d.remarks)]
    wrote = [f"wrote {', '.join(map(str, files.values()))}"] if files else []
    return in_ascii("\n".join([*(f"{label:<13} {text}" for label, text in lines), "", MEANING, *wrote]))


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
