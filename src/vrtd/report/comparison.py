"""The verb: a tournament of algorithms on problems, and one page that says which to use."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vrtd.checks import check_choice, check_count
from vrtd.comparison import ENTRANTS, PROBLEMS, Plan
from vrtd.comparison.problems import AIMS
from vrtd.comparison.standings import Advice, Standing, advise, tuned
from vrtd.comparison.tables import curve_table, run_table, tuning_table
from vrtd.comparison.tournament import measure
from vrtd.engine.blocks import available_threads
from vrtd.errors import InvalidInputError
from vrtd.experiments import store
from vrtd.experiments.tables import Table, table, write_csv, write_parquet
from vrtd.logs.arrow import library
from vrtd.plots import new_panels
from vrtd.report.comparison_figures import figures_of
from vrtd.report.comparison_page import page
from vrtd.report.folder import opened, write_text
from vrtd.report.html import Panel
from vrtd.report.svg import draw_svg

__all__ = ["QUICK_PLAN", "QUICK_PROBLEMS", "Comparison", "compare"]

QUICK_PLAN = Plan(n_samples=2000, n_runs=10, n_trials=18, n_tuning_runs=3, n_passes=10)
QUICK_PROBLEMS = (
    "random-mdp", "boyan-chain", "random-walk-5", "garnet", "garnet-off-policy-1", "garnet-off-policy-2", "baird",
)  # fmt: skip
_FORMAT = "vrtd-comparison-1"


@dataclass(frozen=True)
class Comparison:
    """What a tournament found, and where it wrote it."""

    out: Path
    advice: tuple[Advice, ...]
    standings: Mapping[str, list[Standing]]  # for each aim, over all problems, with tuned settings
    tables: Mapping[str, Table]
    manifest: dict[str, Any]

    @property
    def report(self) -> Path:
        return self.out / "report.html"

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "report": str(self.report),
            "advice": [{**each._asdict(), "standings": _plain(each.standings)} for each in self.advice],
            "standings": _plain(self.standings),
            "tables": {name: str(self.out / f"{name}.parquet") for name in self.tables},
            "manifest": self.manifest,
        }


def compare(
    problems: Sequence[str] = (),
    algorithms: Sequence[str] = (),
    *,
    plan: Plan | None = None,
    out: str | os.PathLike[str] = "comparison",
    threads: int | None = None,
    progress: Callable[[float, str], None] | None = None,
) -> Comparison:
    """Let these algorithms meet on these problems, all without any, with the same budget for tuning.

    Writes `report.html`, `figures/`, `data/`, `manifest.json` and tidy tables as Parquet into the folder `out`. What is
    finished there with the same plan is kept, so that an interrupted comparison goes on. `progress` is called with the
    share of the work that is done and what is being done.
    """
    plan = Plan() if plan is None else plan
    if not isinstance(plan, Plan):
        raise InvalidInputError("plan must be a vrtd.comparison.Plan", repr(plan), "pass Plan(n_samples=...)")
    chosen = _chosen("problem", problems, tuple(PROBLEMS)), _chosen("algorithm", algorithms, tuple(ENTRANTS))
    if len(chosen[1]) < 2:
        raise InvalidInputError("a comparison must have two algorithms at least", chosen[1], "name another one")
    if threads is not None:
        check_count("threads", threads)
    new_panels(1), library()  # what is missing must not cost a long measurement
    with opened(Path(out), _FORMAT, "comparison", ("cells", "data", "figures")) as folder:
        pairs = [(problem, entrant) for problem in chosen[0] for entrant in chosen[1]]
        cells = measure(plan, pairs, folder / "cells", threads or available_threads(), progress)
        advice = tuple(advise(cells, *chosen))
        overall = {}
        for aim in AIMS:
            where = [problem for problem in chosen[0] if aim in PROBLEMS[problem].aims]
            if where:
                overall[aim] = tuned(cells, aim, where, chosen[1])
        tables = {
            "curves": curve_table(cells),
            "tuning": tuning_table(cells),
            "runs": run_table(cells),
            "ranks": table({"aim": aim} | row for aim, found in _plain(overall).items() for row in found),
        }
        for name, each in tables.items():
            write_parquet(each, folder / f"{name}.parquet")
        manifest = {
            "format": _FORMAT,
            "plan": dict(vars(plan)),
            "problems": list(chosen[0]),
            "algorithms": list(chosen[1]),
            "versions": dict(store.versions()),
            "machine": {"system": platform.system(), "architecture": platform.machine(), "processors": os.cpu_count()},
        }
        panels = _panels(folder, tables, chosen[0])
        write_text(page(advice, overall, cells, panels, plan, manifest), folder / "report.html")
        store.write_json(manifest, folder / "manifest.json")
    return Comparison(Path(out), advice, overall, tables, manifest)


def _row(standing: Standing) -> dict[str, Any]:
    """As in the other tables, under the name of the algorithm."""
    row = standing._asdict()
    return {"algorithm": row.pop("entrant"), **row}


def _plain(standings: Mapping[str, list[Standing]]) -> dict[str, list[dict[str, Any]]]:
    return {aim: [_row(each) for each in found] for aim, found in standings.items()}


def _panels(folder: Path, tables: Mapping[str, Table], problems: Sequence[str]) -> dict[str, list[Panel]]:
    """By problem, and "" for those of all; figures of another comparison in this folder go."""
    panels: dict[str, list[Panel]] = {}
    written = set()
    for problem, figure, behind in figures_of(tables, problems):
        svg, file, data = draw_svg(figure, behind), f"figures/{figure.name}.svg", f"data/{figure.name}.csv"
        write_text(svg, folder / file)
        write_csv(behind[figure.table], folder / data)
        panels.setdefault(problem, []).append(Panel(figure, svg, file, data))
        written |= {folder / file, folder / data}
    for part in ("figures", "data"):
        for path in (folder / part).iterdir():
            if path not in written:
                path.unlink()
    return panels


def _chosen(kind: str, names: Sequence[str], all_names: tuple[str, ...]) -> tuple[str, ...]:
    names = (names,) if isinstance(names, str) else tuple(names)
    for name in names:
        check_choice(f"name of {'an' if kind == 'algorithm' else 'a'} {kind}", name, all_names)
    return tuple(name for name in all_names if name in names) or all_names
