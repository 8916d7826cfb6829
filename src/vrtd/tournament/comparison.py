"""The verb: a tournament of algorithms on problems, and one page that says which to use."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vrtd import store
from vrtd.algorithms import Algorithm
from vrtd.checks import check_count
from vrtd.engine.blocks import available_threads
from vrtd.errors import InvalidInputError
from vrtd.plots import new_panels
from vrtd.problems import LinearProblem, Simulator
from vrtd.report.folder import opened, write_text
from vrtd.report.html import Panel
from vrtd.report.svg import draw_svg
from vrtd.tables import Table, library, table, write_csv, write_parquet
from vrtd.tournament.cell import TournamentSize
from vrtd.tournament.entrants import Entrant
from vrtd.tournament.figures import figures_of
from vrtd.tournament.page import page
from vrtd.tournament.problems import AIMS, TournamentProblem
from vrtd.tournament.selection import choose_entrants, choose_problems
from vrtd.tournament.standings import Advice, Standing, advise, tuned
from vrtd.tournament.tables import curve_table, run_table, tuning_table
from vrtd.tournament.tournament import measure

QUICK_SIZE = TournamentSize(n_samples=2000, n_runs=10, n_trials=18, n_tuning_runs=3, n_passes=10)
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
    problems: Sequence[str | LinearProblem | Simulator] | Mapping[str, str | LinearProblem | Simulator] = (),
    algorithms: Sequence[str | Algorithm] | Mapping[str, str | Algorithm] = (),
    *,
    size: TournamentSize | None = None,
    out: str | os.PathLike[str] = "comparison",
    threads: int | None = None,
    progress: Callable[[float, str], None] | None = None,
) -> Comparison:
    """Compare algorithms on problems, all standard ones by default, with the same budget for tuning.

    Write `report.html`, `figures/`, `data/`, `manifest.json` and tidy tables as Parquet into the folder `out`. What is
    finished there with the same problems, algorithms and size is kept, so that an interrupted comparison goes on.

    Parameters
    ----------
    problems : sequence or mapping, optional
        Names of standard problems (`vrtd.tournament.PROBLEMS`), `LinearProblem` and `Simulator` objects; or a mapping
        from names of your choice to these. Objects without a name are called "problem-1", "problem-2", ...
    algorithms : sequence or mapping, optional
        Names (`vrtd.tournament.ENTRANTS`), which are tuned on every problem, and `Algorithm` objects, which run with
        their own settings; or a mapping from names of your choice to these. Objects without a name are called
        "vrtd_1", "vrtd_2", ... after their class.
    size : TournamentSize, optional
        The numbers of samples, runs and settings, and the seed.
    out : path, optional
        The output folder.
    threads : int, optional
        The number of processes that share the work, one per processor by default. A `Simulator`, and an algorithm whose
        class is not in the registry, run in the calling process, because their code cannot be sent to another one.
    progress : callable, optional
        Called with the share of the work that is done and what is being done.

    Returns
    -------
    Comparison
        Advice, ranks, tables, and where the report is.
    """
    size = TournamentSize() if size is None else size
    if not isinstance(size, TournamentSize):
        raise InvalidInputError(
            "size must be a vrtd.tournament.TournamentSize", repr(size), "pass TournamentSize(n_samples=...)"
        )
    if threads is not None:
        check_count("threads", threads)
    entrants, where = choose_entrants(algorithms, size), choose_problems(problems)
    new_panels(1), library()  # what is missing must not cost a long measurement
    with opened(Path(out), _FORMAT, "comparison", ("cells", "data", "figures")) as folder:
        pairs = [(problem, entrant) for problem in where.values() for entrant in entrants.values()]
        cells = measure(size, pairs, folder / "cells", threads or available_threads(), progress)
        advice = tuple(advise(cells, where, entrants))
        overall = {}
        for aim in AIMS:
            some = [name for name, problem in where.items() if aim in problem.aims]
            if some:
                overall[aim] = tuned(cells, aim, some, list(entrants))
        tables = {
            "curves": curve_table(cells),
            "tuning": tuning_table(cells),
            "runs": run_table(cells),
            "ranks": table(
                {"aim": aim} | row | {"is_tuned": entrants[row["algorithm"]].given is None}
                for aim, found in _plain(overall).items()
                for row in found
            ),
        }
        for name, each in tables.items():
            write_parquet(each, folder / f"{name}.parquet")
        manifest = {
            "format": _FORMAT,
            "size": dict(vars(size)),
            "problems": list(where),
            "algorithms": list(entrants),
            "objects": _objects(where, entrants),
            "versions": dict(store.versions()),
            "machine": {"system": platform.system(), "architecture": platform.machine(), "processors": os.cpu_count()},
        }
        panels = _panels(folder, tables, where)
        write_text(page(advice, overall, cells, panels, where, entrants, size, manifest), folder / "report.html")
        store.write_json(manifest, folder / "manifest.json")
    return Comparison(Path(out), advice, overall, tables, manifest)


def _row(standing: Standing) -> dict[str, Any]:
    """As in the other tables, under the name of the algorithm."""
    row = standing._asdict()
    return {"algorithm": row.pop("entrant"), **row}


def _plain(standings: Mapping[str, list[Standing]]) -> dict[str, list[dict[str, Any]]]:
    return {aim: [_row(each) for each in found] for aim, found in standings.items()}


def _objects(problems: Mapping[str, TournamentProblem], entrants: Mapping[str, Entrant]) -> dict[str, str]:
    """What the names of the caller's stand for: digests of problems, algorithms with their settings."""
    found = {name: problem.identity for name, problem in problems.items() if problem.identity}
    return found | {name: entrant.identity for name, entrant in entrants.items() if entrant.given is not None}


def _panels(
    folder: Path, tables: Mapping[str, Table], problems: Mapping[str, TournamentProblem]
) -> dict[str, list[Panel]]:
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
