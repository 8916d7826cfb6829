"""`vrtd evaluate`: the values of a policy, from an environment or from a log, with intervals and a report."""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vrtd.cli.interrupts import answer_with, raise_when_safe
from vrtd.cli.messages import to_shell
from vrtd.cli.outputs import folder
from vrtd.cli.parser import one_of, or_auto, parse_number, parse_whole
from vrtd.cli.terminal import OK, in_ascii, tell
from vrtd.errors import DataWarning, InvalidInputError
from vrtd.progress import RowProgressBar

if TYPE_CHECKING:
    from vrtd.estimator import Evaluation

# Columns of a log: whether there may be several, and the help.
_COLUMNS = {
    "observations": (True, "what V depends on: names or patterns, such as --observations price 'x_*'"),
    "next_observations": (True, "the same after the step, where it was recorded: --next-observations 'next_x_*'"),
    "reward": (False, "the reward of a step: --reward revenue"),
    "terminated": (False, "true where an episode ends for good, and V is 0 after it: --terminated purchased"),
    "truncated": (False, "true where the recording of an episode stops, but not the episode: --truncated timeout"),
    "action": (True, "the action that was taken, for --target: --action price, or several numbers: --action 'a_*'"),
    "propensity": (False, "probability with which it was taken, to weight rows by importance ratios: --propensity p"),
    "weight": (False, "importance ratio of a row, used only if it is named: --weight rho"),
    "episode": (True, "what rows of one episode have in common: --episode session_id, or --episode user day"),
    "order_by": (True, "sort the rows of an episode by this, where they are not in order: --order-by event_time"),
}
# Options that only one of the two kinds of sources has, by the names that the library gives them.
_READING = (*_COLUMNS, "episode_end", "missing", "format")
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


HELP = "the values of a policy, from an environment or a log, with intervals"
USAGE = "(--env ID | --data PATH ...) --discount X [OPTIONS]"
DESCRIPTION = (
    "Learn the values of a policy from transitions that were made under it, or of a target policy, in one pass, and "
    "write a report with intervals, the model and the values into a folder. Compare it with another policy if one is "
    "named."
)
EPILOG = """\
examples:
  vrtd evaluate --env FrozenLake-v1 --discount 0.99
  vrtd evaluate --env CartPole-v1 --policy mypackage.policies:balance --discount 0.99 --samples 1e6
  vrtd evaluate --data before.parquet --against after.parquet --discount 0.9
  vrtd evaluate --data log.parquet --action a --target new.npy --against-target old.npy --discount 0.9
  vrtd evaluate --data 'events-*.parquet' --discount 0.95 --observations n_items segment --reward revenue \\
      --terminated purchased --episode session_id --order-by event_time --out values"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.argument_default = argparse.SUPPRESS  # the library has the defaults; the help names them
    parser.set_defaults(command=_evaluate, seed=0, out=Path("evaluation"), json=False, quiet=False)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--env", metavar="ID", help="a Gymnasium environment, such as MountainCar-v0")
    source.add_argument(
        "--data", nargs="+", metavar="PATH", help="files, folders or patterns: Parquet, CSV, npz, HDF5, Minari"
    )

    add = parser.add_argument_group("with --env").add_argument
    text = (
        "random (default); a .npy or .npz file of (S, A) probabilities or (S,) actions; or package.module:function, "
        "which is imported from installed code"
    )
    add("--policy", metavar="P", help=text)
    add("--samples", dest="n_samples", type=int, metavar="N", help="transitions to make (default 100000)")
    add("--n-envs", type=int, metavar="K", help="number of environments that run side by side (default: one)")
    add("--clip-actions", action="store_true", help="clip actions to the bounds of their space")
    add("--record", type=Path, metavar="FILE", help="keep the rows as .parquet, .npz or .csv, for --data")

    add = parser.add_argument_group("which policy").add_argument
    text = "value this policy, whatever made the rows, as for --policy; functions take a batch of observations"
    add("--target", metavar="P", help=text)
    add("--against-target", metavar="Q", help="compare with this policy, on the same rows")
    add("--against", nargs="+", metavar="PATH", help="compare with the policy of these files, with --data")

    add = parser.add_argument_group(
        "with --data", "columns by name or pattern; those that are not named are found by convention"
    ).add_argument
    for column, (is_list, text) in _COLUMNS.items():
        add(_OF_DATA[column], metavar="COLUMN", nargs="+" if is_list else None, help=text)
    text = "what the last row of an episode is where no column tells"
    add("--episode-end", **one_of(("terminated", "truncated", "drop")), help=text)
    text = (
        "missing values: refuse them (default), drop their rows, or fill them in and mark them with a further feature"
    )
    add("--missing", **one_of(("error", "drop", "indicator")), help=text)
    add("--format", **one_of(("parquet", "csv", "npz", "hdf5", "minari")), help="where suffixes do not tell")

    add = parser.add_argument_group("method").add_argument
    text = "such as tabular, rbf:20, fourier:5, rff:100 or identity (default auto: by the kind of observations)"
    add("--features", metavar="F", help=text)
    add("--discount", type=float, metavar="X", required=True, help="gamma")
    text = (
        "closed_form, or an algorithm that learns from a log, such as vrtd, td or lstd (default auto: the closed form "
        "unless there are many features)"
    )
    add("--algorithm", metavar="NAME", help=text)
    add("--step-size", type=or_auto(parse_number, "a number"), metavar="X", help="a number or auto (default)")
    add(
        "--batch-size",
        type=or_auto(parse_whole, "a whole number"),
        metavar="N",
        help="of vrtd; a number or auto (default)",
    )
    text = "work per row that is allowed, in the number of features (default auto: quadratic while there are few)"
    add("--cost", **one_of(("auto", "linear", "quadratic")), help=text)
    text = "rows from which auto decides (default 5000, 1000 with --cost linear, or a quarter of the rows)"
    add("--pilot-rows", type=int, metavar="N", help=text)
    add("--passes", dest="n_passes", type=int, metavar="N", help="over the rows (default 1)")
    add("--seed", type=int, metavar="N", help="of the environment, the policy and the algorithm (default 0)")

    add = parser.add_argument_group("output").add_argument
    add("--out", type=folder, metavar="DIR", help="where to write (default evaluation)")
    add("--level", type=float, metavar="X", help="of the intervals (default 0.95)")
    text = "names of the numbers of an observation, for figures and files"
    add("--names", type=lambda names: names.split(","), metavar="A,B", help=text)
    add("--json", action="store_true", help="print one JSON object")
    add("--quiet", action="store_true", help="show no progress")


class _Bar(RowProgressBar):
    """A bar that also says what Ctrl-C will do: what was learned is written, unless no row or every row was read."""

    def __call__(self, done: int, total: int | None) -> None:
        answer_with("finishing: writing what was learned so far")
        super().__call__(done, total)

    def announce(self, task: str) -> None:
        answer_with("stopping")
        super().announce(task)


def _evaluate(arguments: argparse.Namespace) -> int:
    given = vars(arguments)
    _check_source(given)
    from vrtd.estimator import EvaluationInterrupted, evaluate
    from vrtd.logs.reading import describe_start
    from vrtd.plots import new_panels

    new_panels(1)  # load Matplotlib while Ctrl-C still ends the process at once
    options = {name: given[name] for name in ("against", *_METHOD, *_OUTPUT, *_OF_ENV) if name in given}
    try:
        raise_when_safe("stopping")
        warnings.simplefilter("ignore", DataWarning)  # they stand beside the answer
        source = given["env"] if "env" in given else given["data"]
        columns = _columns(given)
        with open(os.devnull, "w") as nowhere:
            bar = _Bar(nowhere if arguments.quiet else sys.stderr, describe_start(columns))
            with closing(bar):
                found = evaluate(source, progress=bar, **options, **columns)
    except EvaluationInterrupted as stop:
        _show(stop.evaluation, arguments)
        tell(f"what was learned from {stop.evaluation.diagnostics.n_rows:,} rows is in {arguments.out}")
        raise
    _show(found, arguments)
    return OK


def _check_source(given: dict[str, Any]) -> None:
    mine, other, flags = ("--env", "--data", _OF_DATA) if "env" in given else ("--data", "--env", _OF_ENV)
    for option, flag in flags.items():
        if option in given:
            raise InvalidInputError(f"{flag} belongs to {other}", mine, f"drop it, or give {other}")


def _columns(given: dict[str, Any]) -> Any:
    """Return the columns that were named: one is taken as it is, several are put together."""
    columns = {option: given[option] for option in _READING if option in given}
    return {
        option: names[0] if isinstance(names, list) and len(names) == 1 else names for option, names in columns.items()
    }


def _show(found: Evaluation, arguments: argparse.Namespace) -> None:
    print(json.dumps(found.as_dict(), allow_nan=False) if arguments.json else _as_text(found, arguments.flags))


def _as_text(found: Evaluation, flags: Mapping[str, str]) -> str:
    """The answer, whether to trust it, and where the rest is."""
    from vrtd.estimator.answers import describe_returns
    from vrtd.estimator.page import MEANING, describe_actions, describe_roles

    answer, d = found.answer, found.diagnostics
    lines = [(answer.name, f"{answer.text}: {answer.estimand}")]
    if found.comparison is not None:
        name, other, value = found.comparison.name, found.comparison.other, found.comparison.policy_value
        lines = [
            ("difference", found.comparison.verdict),
            (answer.name, f"{answer.text}: {name}, {answer.estimand}"),
            ("", f"{value.text}: {other}, {value.estimand}"),
        ]
    lines += [("warning", to_shell(warning, flags)) for warning in found.warnings]
    if answer.reservation:
        lines.append(("", to_shell(answer.reservation, flags)))
    if found.interrupted:
        lines.append(("stopped", f"interrupted after {d.n_rows:,} rows"))
    if found.policy_value is not None:
        lines.append((found.mean_value.name, f"{found.mean_value.text}: {found.mean_value.estimand}"))
    if found.returns is not None:
        lines.append(("mean return", describe_returns(found.returns)))
    lines.append(("diagnosis", f"{d.verdict}. {d.explanation}".rstrip()))
    if found.closed_form is not None:
        lines.append(("compare", f"the closed form (least squares) gives {found.closed_form}"))
    settings = {key: value for key, value in d.settings.items() if key != "name" and value is not None}
    lines.append(("method", ", ".join([str(d.settings["name"]), *(f"{k} {_short(v)}" for k, v in settings.items())])))
    if found.target is not None:
        words = describe_actions(found)
        lines.append(("target", f"{found.target}; actions {words}" if words else found.target))
    if d.overlap is not None:
        lines.append(("overlap", "; ".join(f"{name.lower()} {text}" for name, text in d.overlap.describe().items())))
    if found.roles:
        lines.append(("columns", describe_roles(found.roles)))
    condition = "" if d.condition_number is None else f", condition number {_short(d.condition_number)}"
    features = f"{found.features}{condition}"
    if d.explained is not None and d.explained == d.explained:
        features += f"; they explain {100 * d.explained:.3g} % of the value's variance"
    lines += [("features", features), *(("remark", to_shell(remark, flags)) for remark in d.remarks)]
    wrote = ", ".join(str(path) for path in found.files.values())
    return in_ascii("\n".join([*(f"{label:<13} {text}" for label, text in lines), "", MEANING, f"wrote {wrote}"]))


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
