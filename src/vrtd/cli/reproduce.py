"""`vrtd reproduce`: the paper's figures and tables, and a verdict on each of its claims."""

from __future__ import annotations

import argparse
import json
from textwrap import shorten
from typing import TYPE_CHECKING

from vrtd.cli.resumable import add_common_options, resumable
from vrtd.cli.terminal import OK, in_ascii
from vrtd.paper.experiments import FIGURES, NAMES

if TYPE_CHECKING:
    from vrtd.paper.reproduction import Reproduction


HELP = "regenerate the paper's figures and judge its claims"
USAGE = "[NAME ...] [OPTIONS]"
DESCRIPTION = (
    "Regenerate the experiments of the paper, all of them without a NAME, and judge every claim that rests on "
    "them. What is finished in the output folder is kept, so that an interrupted reproduction goes on."
)
EPILOG = """\
examples:
  vrtd reproduce --quick
  vrtd reproduce figure-1 table-1 --out mine"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command=_reproduce)
    figures = {name: figure for figure, name in FIGURES.items()}
    text = ", ".join(f"{name} or {figures[name]}" if name in figures else name for name in NAMES)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{text}; figures by their printed numbers")
    size = parser.add_mutually_exclusive_group()
    text = "independent runs (default 1000)"
    size.add_argument("--runs", dest="n_runs", type=int, default=1000, metavar="N", help=text)
    size.add_argument("--quick", action="store_true", help="10 runs, for a first look; exact verdicts are the same")
    add_common_options(parser, "reproduction")


def _reproduce(arguments: argparse.Namespace) -> int:
    from vrtd.paper.reproduction import QUICK_RUNS, reproduce

    with resumable(arguments):
        found = reproduce(
            arguments.names,
            out=arguments.out,
            n_runs=QUICK_RUNS if arguments.quick else arguments.n_runs,
            seed=arguments.seed,
            threads=arguments.threads,
            progress=not arguments.quiet,
        )
    print(json.dumps(found.as_dict(), allow_nan=False) if arguments.json else _as_text(found))
    return OK


def _as_text(found: Reproduction) -> str:
    """A line for each claim, with the comparison on which it turns, and how many there are of each verdict."""
    from vrtd.paper.wording import condition, measured, totals

    lines = []
    for finding in found.findings:
        judged, claim = finding.decisive, finding.claim
        comparison = judged.comparison
        lines.append(
            f"{finding.verdict:<22}  {claim.name:<36}  {measured(judged)}, {condition(claim.kind, comparison)}"
        )
        lines.append(f"{'':<24}{shorten(f'{comparison.quantity} ({comparison.condition})', 96, placeholder=' ...')}")
    lines = [in_ascii(line) for line in lines]
    return "\n".join([*lines, "", totals(found.manifest["verdicts"]), f"wrote {found.report}"])
