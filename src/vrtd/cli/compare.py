"""The command `vrtd compare`: a tournament of algorithms, tuned with the same budget."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from vrtd.cli.cluster import add_device_option, opened_executor
from vrtd.cli.parser import Parser
from vrtd.cli.resumable import THREADS, add_common_options, resumable
from vrtd.cli.terminal import OK

if TYPE_CHECKING:
    from vrtd.tournament import Comparison

_SIZES = ("n_samples", "n_runs", "n_trials", "n_tuning_runs", "n_passes")  # fields of TournamentSize that are options


HELP = "compare algorithms, each with the same tuning budget"
USAGE = "[OPTIONS]"
DESCRIPTION = (
    "Compare algorithms on standard problems. Each algorithm tries the same number of settings, on runs that are not "
    "reported. Finished parts are kept in the output folder, so an interrupted comparison can be resumed."
)
EPILOG = """\
examples:
  vrtd compare --quick
  vrtd compare --algorithms td vrtd lstd --problems random-mdp garnet --runs 200 --out mine"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options. Those without a text take it from the library."""
    from vrtd.tournament import ENTRANTS, PROBLEMS

    parser.set_defaults(command=_compare)
    add = parser.add_argument
    # The library also takes objects. Here problems and algorithms are names, and these texts list them.
    add("--problems", nargs="+", default=[], metavar="NAME", help=f"Problems (default: all): {', '.join(PROBLEMS)}.")
    names = ", ".join(ENTRANTS)
    add("--algorithms", nargs="+", default=[], metavar="NAME", help=f"Algorithms (default: all): {names}.")
    size = parser.add_argument_group("size", "the same for every algorithm on every problem")
    text = "Run a small comparison in about a minute: few samples and runs, seven problems."
    size.add_argument("--quick", action="store_true", help=text)
    for field in _SIZES:
        size.add_argument(f"--{field.removeprefix('n_').replace('_', '-')}", dest=field, type=int, metavar="N")
    add_device_option(parser, "cpu")
    add_common_options(parser, "comparison")


def describe_options(parser: Parser) -> None:
    """Complete the help texts of the options."""
    from vrtd.tournament import TournamentSize, compare

    parser.take_help((compare, TournamentSize), {"threads": THREADS})


def _compare(arguments: argparse.Namespace) -> int:
    from dataclasses import replace

    from vrtd.tournament import QUICK_PROBLEMS, QUICK_SIZE, TournamentSize, compare

    sizes = {field: value for field in _SIZES if (value := getattr(arguments, field)) is not None}
    size = replace(QUICK_SIZE if arguments.quick else TournamentSize(), seed=arguments.seed, **sizes)
    with resumable(arguments), opened_executor(arguments) as executor:
        comparison = compare(
            arguments.problems or (QUICK_PROBLEMS if arguments.quick else ()),
            arguments.algorithms,
            size=size,
            out=arguments.out,
            threads=arguments.threads if executor is None else None,
            executor=executor,
            device=arguments.device,
            progress=not arguments.quiet,
        )
    print(json.dumps(comparison.as_dict(), allow_nan=False) if arguments.json else _as_text(comparison))
    return OK


def _as_text(comparison: Comparison) -> str:
    """Return the recommended algorithm for each situation, and the mean ranks of all algorithms."""
    from vrtd.tournament.problems import AIMS

    lines = []
    for aim, overall in comparison.standings.items():
        lines.append(f"{AIMS[aim]}, use")
        for each in comparison.advice:
            if aim in each.standings:
                best, n = each.answer(aim), len(each.standings[aim])
                rivals = each.describe_rivals(aim, ", ".join(rival.algorithm for rival in each.rivals(aim)))
                situation = each.situation.replace("²", "^2")  # some terminals cannot show it
                lines.append(f"  {situation:<36}  {best.algorithm:<22}  {best.rank_text(4)} of {n}")
                lines += [f"  {'':<36}  {note}" for note in (rivals, each.describe_choice(aim)) if note]
        lines.append("  mean rank over all problems")
        for standing in overall:
            failures = f"  diverged on {standing.n_lost}" if standing.n_lost else ""
            lines.append(f"    {standing.algorithm:<22}  {standing.rank_text(4)}{failures}")
        lines.append("")
    return "\n".join([*lines, f"wrote {comparison.report}"])
