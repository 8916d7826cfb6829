"""`compare`: run a tournament of algorithms on problems and write a page that says which to use."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from vrtd import store
from vrtd.algorithms import Algorithm
from vrtd.checks import check_count
from vrtd.engine.blocks import available_threads
from vrtd.errors import InvalidInputError
from vrtd.plots import new_panels
from vrtd.problems import LinearProblem, Simulator
from vrtd.progress import ProgressBar, show_progress
from vrtd.report.folder import opened, write_text
from vrtd.report.html import Panel
from vrtd.report.notebook import build_summary
from vrtd.report.numbers import plural
from vrtd.report.svg import draw_panel
from vrtd.tables import Table, library, write_csv, write_parquet
from vrtd.tournament.cell import Cells, TournamentSize
from vrtd.tournament.entrants import Entrant
from vrtd.tournament.figures import figures_of
from vrtd.tournament.page import build_page
from vrtd.tournament.problems import AIMS, TournamentProblem
from vrtd.tournament.selection import choose_entrants, choose_problems
from vrtd.tournament.standings import Advice, Standing, advise, rank_tuned
from vrtd.tournament.tables import make_tables
from vrtd.tournament.tournament import measure

QUICK_SIZE = TournamentSize(n_samples=2000, n_runs=10, n_trials=18, n_tuning_runs=3, n_passes=10)
QUICK_PROBLEMS = (
    "random-mdp", "boyan-chain", "random-walk-5", "garnet", "garnet-off-policy-1", "garnet-off-policy-2", "baird",
)  # fmt: skip
_FORMAT = "vrtd-comparison-1"
_N_LEADERS = 3  # in the summary for a notebook


@dataclass(frozen=True)
class Comparison:
    """What a tournament found, and where it wrote it."""

    out: Path | None
    size: TournamentSize
    problems: Mapping[str, TournamentProblem]
    entrants: Mapping[str, Entrant]
    cells: Cells = field(repr=False)  # by the names of problem and algorithm
    advice: tuple[Advice, ...]
    standings: Mapping[str, list[Standing]]  # for each aim, over all problems, with tuned settings
    tables: Mapping[str, Table] = field(repr=False)
    manifest: dict[str, Any]

    @property
    def report(self) -> Path | None:
        return None if self.out is None else self.out / "report.html"

    def as_dict(self) -> dict[str, Any]:
        """Return what was found as plain JSON."""
        return {
            "report": None if self.out is None else str(self.report),
            "advice": [{**each._asdict(), "standings": _as_rows(each.standings)} for each in self.advice],
            "standings": _as_rows(self.standings),
            "tables": {name: str(self.out / f"{name}.parquet") for name in self.tables if self.out is not None},
            "manifest": self.manifest,
        }

    def __repr__(self) -> str:
        return "\n  ".join([f"Comparison({self._size})", *(f"{aim}: {text}" for aim, text in self._leaders.items())])

    def _repr_html_(self) -> str:
        entries = {"size": self._size, **self._leaders, "report": "" if self.report is None else str(self.report)}
        _, figure, tables = next(figures_of(self.tables, self.problems))  # the ranks come first
        return build_summary("Comparison", entries, lambda axes: figure.draw(axes, tables))

    @property
    def _size(self) -> str:
        algorithms, problems = plural(len(self.entrants), "algorithm"), plural(len(self.problems), "problem")
        return f"{algorithms} on {problems}, {self.size.n_samples:,} samples"

    @property
    def _leaders(self) -> dict[str, str]:
        """The first few for each aim, with their mean ranks."""
        return {
            AIMS[aim]: ", ".join(f"{each.algorithm} {each.rank_text()}" for each in standings[:_N_LEADERS])
            + f" of {len(standings)}"
            for aim, standings in self.standings.items()
        }


def compare(
    problems: Sequence[str | LinearProblem | Simulator] | Mapping[str, str | LinearProblem | Simulator] = (),
    algorithms: Sequence[str | Algorithm] | Mapping[str, str | Algorithm] = (),
    *,
    size: TournamentSize | None = None,
    out: str | os.PathLike[str] | None = "comparison",
    threads: int | None = None,
    progress: Callable[[float, str], None] | bool | None = None,
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
    out : path or None, optional
        The output folder. With None nothing is written or kept, and neither matplotlib nor pyarrow is needed.
    threads : int, optional
        The number of processes that share the work, one per processor by default. A `Simulator`, and an algorithm whose
        class is not in the registry, run in the calling process, because their code cannot be sent to another one.
    progress : bool or callable, optional
        True shows a bar on stderr. A function is called with the share of the work that is done and what is being done.

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
    manifest = {
        "format": _FORMAT,
        "size": dict(vars(size)),
        "problems": list(where),
        "algorithms": list(entrants),
        # What the names of the caller's stand for: digests of problems, algorithms with their settings.
        "objects": {name: problem.identity for name, problem in where.items() if problem.identity}
        | {name: entrant.identity for name, entrant in entrants.items() if entrant.given is not None},
        **store.describe_system(),
    }
    pairs = [(problem, entrant) for problem in where.values() for entrant in entrants.values()]
    with ExitStack() as stack:
        if out is None:
            folder = cell_folder = Path(stack.enter_context(TemporaryDirectory()))
        else:
            new_panels(1), library()  # what is missing must not cost a long measurement
            parts = ("cells", "data", "figures")
            folder = stack.enter_context(opened(Path(out), _FORMAT, "comparison", parts))
            cell_folder = folder / "cells"
        report = stack.enter_context(show_progress(progress, ProgressBar))
        cells = measure(size, pairs, cell_folder, threads or available_threads(), report)
        by_aim = {aim: [name for name, problem in where.items() if aim in problem.aims] for aim in AIMS}
        overall = {aim: rank_tuned(cells, aim, names, list(entrants)) for aim, names in by_aim.items() if names}
        path, advice = None if out is None else folder, tuple(advise(cells, where, entrants))
        tables = make_tables(cells, overall, entrants)
        found = Comparison(path, size, where, entrants, cells, advice, overall, tables, manifest)
        if out is not None:
            for name, each in tables.items():
                write_parquet(each, folder / f"{name}.parquet")
            page = build_page(found, _draw_panels(folder, found))
            write_text(page.html, folder / "report.html")
            store.write_json(manifest, folder / "manifest.json")
    return found


def _as_rows(standings: Mapping[str, list[Standing]]) -> dict[str, list[dict[str, Any]]]:
    return {aim: [standing._asdict() for standing in found] for aim, found in standings.items()}


def _draw_panels(folder: Path, found: Comparison) -> dict[str, list[Panel]]:
    """Return figures by problem, and those of all under ""; figures of another comparison in this folder go."""
    panels: dict[str, list[Panel]] = {}
    for problem, figure, behind in figures_of(found.tables, found.problems):
        panel = draw_panel(folder, figure, behind, f"figures/{figure.name}.svg", f"data/{figure.name}.csv")
        write_csv(behind[figure.table], folder / panel.data)
        panels.setdefault(problem, []).append(panel)
    written = {folder / name for some in panels.values() for panel in some for name in (panel.file, panel.data)}
    for part in ("figures", "data"):
        for path in set((folder / part).iterdir()) - written:
            path.unlink()
    return panels
