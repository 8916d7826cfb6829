"""The command `vrtd reproduce`: the paper's figures and tables, and a verdict on each of its claims."""

from __future__ import annotations

import argparse
import json
from textwrap import shorten
from typing import TYPE_CHECKING

from vrtd.cli.cluster import add_device_option, opened_executor
from vrtd.cli.parser import Parser
from vrtd.cli.resumable import THREADS, add_common_options, resumable
from vrtd.cli.terminal import OK, in_ascii
from vrtd.paper.experiments import FIGURES, NAMES

if TYPE_CHECKING:
    from vrtd.paper.reproduction import Reproduction


HELP = "rerun the experiments of the paper and check its claims"
USAGE = "[NAME ...] [OPTIONS]"
DESCRIPTION = (
    "Rerun the named experiments of the paper (all by default) and check every claim that rests on them. Finished "
    "experiments are kept in the output folder, so an interrupted reproduction can be resumed."
)
EPILOG = """\
examples:
  vrtd reproduce --quick
  vrtd reproduce figure-1 table-1 --out mine"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options. Those without a text take it from the library."""
    parser.set_defaults(command=_reproduce)
    figures = {name: figure for figure, name in FIGURES.items()}
    text = ", ".join(f"{name} or {figures[name]}" if name in figures else name for name in NAMES)
    text = f"Experiments: {text}. Figures have the numbers that are printed in the paper."
    parser.add_argument("names", nargs="*", metavar="NAME", help=text)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--runs", dest="n_runs", type=int, default=1000, metavar="N")
    size.add_argument("--quick", action="store_true", help="Use 10 runs. Exact verdicts stay the same.")
    add_device_option(parser, "cpu")
    add_common_options(parser, "reproduction")


def describe_options(parser: Parser) -> None:
    """Complete the help texts of the options."""
    from vrtd.paper.reproduction import reproduce

    parser.take_help((reproduce,), {"threads": THREADS})


def _reproduce(arguments: argparse.Namespace) -> int:
    from vrtd.paper.reproduction import QUICK_RUNS, reproduce

    with resumable(arguments), opened_executor(arguments) as executor:
        reproduction = reproduce(
            arguments.names,
            out=arguments.out,
            n_runs=QUICK_RUNS if arguments.quick else arguments.n_runs,
            seed=arguments.seed,
            threads=arguments.threads if executor is None else None,
            executor=executor,
            device=arguments.device,
            progress=not arguments.quiet,
        )
    print(json.dumps(reproduction.as_dict(), allow_nan=False) if arguments.json else _as_text(reproduction))
    return OK


def _as_text(reproduction: Reproduction) -> str:
    """Return two lines per claim, with its decisive comparison, and the number of claims per verdict."""
    from vrtd.paper.wording import condition, measured, totals

    lines = []
    for finding in reproduction.findings:
        judged, claim = finding.decisive, finding.claim
        comparison = judged.comparison
        lines.append(
            f"{finding.verdict:<22}  {claim.name:<36}  {measured(judged)}, {condition(claim.kind, comparison)}"
        )
        lines.append(f"{'':<24}{shorten(f'{comparison.quantity} ({comparison.condition})', 96, placeholder=' ...')}")
    lines = [in_ascii(line) for line in lines]
    return "\n".join([*lines, "", totals(reproduction.manifest["verdicts"]), f"wrote {reproduction.report}"])
