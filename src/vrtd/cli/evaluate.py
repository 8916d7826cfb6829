"""`vrtd evaluate`: the values of a policy, from an environment or from a log, with intervals and a report."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vrtd.cli.interrupts import raise_when_safe
from vrtd.cli.outputs import folder
from vrtd.cli.terminal import DIVERGED, OK, in_ascii, tell
from vrtd.errors import DivergenceError, InvalidInputError

if TYPE_CHECKING:
    from vrtd.estimator import Evaluation

_COLUMNS = ("observations", "next_observations", "reward", "terminated", "truncated", "weight", "episode")
# Options that only one of the two kinds of sources has, by the names that the library gives them.
_OF_DATA = {name: f"--{name.replace('_', '-')}" for name in (*_COLUMNS, "format")}
_OF_ENV = {"policy": "--policy", "n_samples": "--samples", "n_envs": "--n-envs", "record": "--record"}
_METHOD = ("features", "discount", "algorithm", "step_size", "batch_size", "pilot_rows", "n_passes", "seed")
_OUTPUT = ("out", "level", "names")


HELP = "the values of a policy, from an environment or a log, with intervals"
USAGE = "(--env ID | --data PATH ...) --discount X [OPTIONS]"
DESCRIPTION = (
    "Learn the values of a policy from transitions that were made under it, in one pass, and write a report "
    "with intervals, the model and the values into a folder."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.argument_default = argparse.SUPPRESS  # the library has the defaults; the help names them
    parser.set_defaults(command=_evaluate, seed=0, out=Path("evaluation"), json=False, quiet=False)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--env", metavar="ID", help="a Gymnasium environment, such as MountainCar-v0")
    source.add_argument(
        "--data", nargs="+", metavar="PATH", help="files, folders or patterns: Parquet, CSV, npz, HDF5, Minari"
    )

    add = parser.add_argument_group("with --env").add_argument
    add("--policy", metavar="P", help="random, or a .npy or .npz file of (S, A) probabilities or (S,) actions")
    add("--samples", dest="n_samples", type=int, metavar="N", help="transitions to make (default 100000)")
    add("--n-envs", type=int, metavar="K", help="number of environments that run side by side (default: one)")
    add("--record", type=Path, metavar="FILE", help="keep the rows as .parquet, .npz or .csv, for --data")

    add = parser.add_argument_group(
        "with --data", "columns by name or pattern; those that are not named are found by convention"
    ).add_argument
    for column in _COLUMNS:
        add(_OF_DATA[column], metavar="COLUMN", nargs="+" if column.endswith("observations") else None)
    add("--format", help="parquet, csv, npz, hdf5 or minari, where suffixes do not tell")

    add = parser.add_argument_group("method").add_argument
    add("--features", metavar="F", help="such as rbf:20, tabular, fourier:5 (default: tabular for states, else none)")
    add("--discount", type=float, metavar="X", required=True, help="gamma")
    text = "an algorithm that learns from a log, such as vrtd, td or lstd, or closed_form (default vrtd)"
    add("--algorithm", metavar="NAME", help=text)
    add("--step-size", type=_or_auto(float), metavar="X", help="a number or auto (default)")
    add("--batch-size", type=_or_auto(int), metavar="N", help="of vrtd; a number or auto (default)")
    text = "rows from which auto decides (default 5000, or a quarter of the rows)"
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


def _or_auto(kind: type[int] | type[float]) -> Callable[[str], Any]:
    def read(text: str) -> float | Literal["auto"]:
        return "auto" if text == "auto" else kind(text)

    read.__name__ = f"{kind.__name__} or auto"  # argparse names it in its message
    return read


def _evaluate(arguments: argparse.Namespace) -> int:
    given = vars(arguments)
    _check_source(given)
    from vrtd.estimator import EvaluationInterrupted, evaluate
    from vrtd.logs import read
    from vrtd.plots import new_panels

    new_panels(1)  # load Matplotlib while Ctrl-C still ends the process at once
    options = {name: given[name] for name in (*_METHOD, *_OUTPUT, *_OF_ENV) if name in given}
    try:
        raise_when_safe()
        source = given["env"] if "env" in given else read(given["data"], **_columns(given))
        title = None if "env" in given else f"Value of the policy in {', '.join(given['data'])}"
        found = evaluate(source, title=title, progress=not arguments.quiet, **options)
    except EvaluationInterrupted as stop:
        _show(stop.evaluation, arguments.json)
        tell(f"what was learned from {stop.evaluation.diagnostics.n_rows:,} rows is in {arguments.out}")
        raise
    except DivergenceError as error:
        tell(f"{error}", "error")
        return DIVERGED
    _show(found, arguments.json)
    return OK


def _check_source(given: dict[str, Any]) -> None:
    mine, other, flags = ("--env", "--data", _OF_DATA) if "env" in given else ("--data", "--env", _OF_ENV)
    for option, flag in flags.items():
        if option in given:
            raise InvalidInputError(f"{flag} belongs to {other}", mine, f"drop it, or give {other}")


def _columns(given: dict[str, Any]) -> dict[str, Any]:
    """Return the columns that were named: one is taken as it is, several are put together."""
    columns = {option: given[option] for option in _OF_DATA if option in given}
    return {
        option: names[0] if isinstance(names, list) and len(names) == 1 else names for option, names in columns.items()
    }


def _show(found: Evaluation, as_json: bool) -> None:
    print(json.dumps(found.as_dict(), allow_nan=False) if as_json else _as_text(found))


def _as_text(found: Evaluation) -> str:
    """The answer, whether to trust it, and where the rest is."""
    from vrtd.estimator.page import MEANING, describe_roles
    from vrtd.report.numbers import interval

    answer, d = found.answer, found.diagnostics
    shown = f"{answer}"
    if answer.reason is None:
        value, low, high = interval(answer.value, answer.low, answer.high)
        shown = f"{value} ({answer.level:.4g} interval {low} to {high})"
    lines = [f"value      {shown}: {answer.estimand}"]
    lines += [f"warning    {warning}" for warning in d.warnings]
    if answer.reservation:
        lines.append(f"           {answer.reservation}")
    if found.interrupted:
        lines.append(f"stopped    interrupted after {d.n_rows:,} rows")
    lines.append(f"diagnosis  {d.verdict}. {d.explanation}".rstrip())
    if found.closed_form is not None:
        lines.append(f"compare    the closed form (least squares) gives {found.closed_form}")
    settings = ", ".join(
        [str(d.settings["name"]), *(f"{k} {_short(v)}" for k, v in d.settings.items() if k != "name" and v is not None)]
    )
    lines.append(f"method     {settings}")
    if found.roles:
        lines.append(f"columns    {describe_roles(found.roles)}")
    features = f"{found.features}, rank {d.rank} of {d.n_features}, condition number {_short(d.condition_number)}"
    if d.explained is not None and d.explained == d.explained:
        features += f"; they explain {100 * d.explained:.3g} % of the value's variance"
    lines += [f"features   {features}", *(f"remark     {remark}" for remark in d.remarks), "", MEANING]
    wrote = ", ".join(str(path) for path in found.files.values())
    return in_ascii("\n".join([*lines, f"wrote {wrote}"]))


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
