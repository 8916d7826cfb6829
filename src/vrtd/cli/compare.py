"""`vrtd compare`: a tournament of algorithms, tuned alike, and which of them to use."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from vrtd.cli.resumable import add_common_options, resumable
from vrtd.cli.terminal import OK

if TYPE_CHECKING:
    from vrtd.tournament import Comparison

_SIZES = {  # fields of TournamentSize that are options
    "n_samples": "transitions of a run",
    "n_runs": "independent runs that are reported",
    "n_trials": "settings that may be tried",
    "n_tuning_runs": "runs of each of them, on other transitions",
    "n_passes": "pseudo-gradients for each row of a data set",
}


HELP = "let algorithms compete, tuned alike, and learn which to use"
USAGE = "[OPTIONS]"
DESCRIPTION = (
    "Let algorithms meet on standard problems: each tries the same number of settings on runs that are not the "
    "reported ones. What is finished in the output folder is kept, so that an interrupted comparison goes on."
)
EPILOG = """\
examples:
  vrtd compare --quick
  vrtd compare --algorithms td vrtd lstd --problems random-mdp garnet --runs 200 --out mine"""


def add_options(parser: argparse.ArgumentParser) -> None:
    from vrtd.tournament import ENTRANTS, PROBLEMS, TournamentSize

    parser.set_defaults(command=_compare)
    add = parser.add_argument
    add("--problems", nargs="+", default=[], metavar="NAME", help=f"(default all) {', '.join(PROBLEMS)}")
    add("--algorithms", nargs="+", default=[], metavar="NAME", help=f"(default all) {', '.join(ENTRANTS)}")
    size = parser.add_argument_group("size", "what every algorithm gets on every problem")
    size.add_argument(
        "--quick", action="store_true", help="a look within a minute: few samples and runs, seven problems"
    )
    for field, text in _SIZES.items():
        option, default = field.removeprefix("n_").replace("_", "-"), getattr(TournamentSize, field)
        size.add_argument(f"--{option}", dest=field, type=int, metavar="N", help=f"{text} (default {default})")
    add_common_options(parser, "comparison", "processes, one thread each")


def _compare(arguments: argparse.Namespace) -> int:
    from dataclasses import replace

    from vrtd.tournament import QUICK_PROBLEMS, QUICK_SIZE, TournamentSize, compare

    given = {field: value for field in _SIZES if (value := getattr(arguments, field)) is not None}
    size = replace(QUICK_SIZE if arguments.quick else TournamentSize(), seed=arguments.seed, **given)
    with resumable(arguments):
        found = compare(
            arguments.problems or (QUICK_PROBLEMS if arguments.quick else ()),
            arguments.algorithms,
            size=size,
            out=arguments.out,
            threads=arguments.threads,
            progress=not arguments.quiet,
        )
    print(json.dumps(found.as_dict(), allow_nan=False) if arguments.json else _as_text(found))
    return OK


def _as_text(found: Comparison) -> str:
    """Return what to use in each situation, and everybody's mean rank."""
    from vrtd.tournament.problems import AIMS

    lines = []
    for aim, overall in found.standings.items():
        lines.append(f"{AIMS[aim]}, use")
        for each in found.advice:
            if aim in each.standings:
                best, n = each.answer(aim), len(each.standings[aim])
                rivals = each.describe_rivals(aim, ", ".join(rival.algorithm for rival in each.rivals(aim)))
                situation = each.situation.replace("²", "^2")  # for every terminal
                lines.append(f"  {situation:<36}  {best.algorithm:<22}  {best.rank_text(4)} of {n}")
                lines.append(f"  {'':<36}  {rivals}")
        lines.append("  mean rank over all problems")
        for standing in overall:
            lost = f"  lost on {standing.n_lost}" if standing.n_lost else ""
            lines.append(f"    {standing.algorithm:<22}  {standing.rank_text(4)}{lost}")
        lines.append("")
    return "\n".join([*lines, f"wrote {found.report}"])
