"""The function `compare`: run a tournament of algorithms on problems and write a report."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from vrtd import store
from vrtd.algorithms import Algorithm
from vrtd.engine.blocks import available_threads
from vrtd.engine.device import DeviceName, choose_device
from vrtd.errors import InvalidInputError
from vrtd.executors import check_executor
from vrtd.files import as_path
from vrtd.lazy import cached_property
from vrtd.plots import new_panels
from vrtd.problems import LinearProblem, Simulator
from vrtd.progress import ProgressBar, show_progress
from vrtd.report.figure_data import pack
from vrtd.report.folder import opened, write_text
from vrtd.report.html import Panel
from vrtd.report.notebook import build_summary
from vrtd.report.numbers import plural
from vrtd.report.svg import draw_panel, read_view
from vrtd.tables import Table, library, write_csv, write_parquet
from vrtd.tournament.cell import Cells, TournamentSize
from vrtd.tournament.entrants import Entrant
from vrtd.tournament.figures import CHOICES, Style, choose_styles, error_figure, error_views, first_shown, rank_figures
from vrtd.tournament.page import build_page
from vrtd.tournament.problems import AIMS, TournamentProblem
from vrtd.tournament.selection import choose_entrants, choose_problems
from vrtd.tournament.standings import Advice, Standing, advise, rank_tuned
from vrtd.tournament.tables import make_tables
from vrtd.tournament.tournament import measure

#: Size of ``vrtd compare --quick``.
QUICK_SIZE = TournamentSize(n_samples=2000, n_runs=10, n_trials=18, n_tuning_runs=3, n_passes=10)
#: Names of the problems of ``vrtd compare --quick``.
QUICK_PROBLEMS = (
    "random-mdp", "boyan-chain", "random-walk-5", "garnet", "garnet-off-policy-1", "garnet-off-policy-2", "baird",
)  # fmt: skip
_FORMAT = "vrtd-comparison-1"
_FIGURE = re.compile(r"figures/[^/]+\.svg|data/[^/]+\.csv")
_N_LEADERS = 3  # in the summary for a notebook


@dataclass(frozen=True)
class Comparison:
    """Result of a tournament.

    Attributes
    ----------
    out : Path or None
        Output folder, None if nothing was written.
    size : TournamentSize
        Numbers of samples, runs and settings, and the seed.
    problems : mapping of str to TournamentProblem
        Problems by name.
    entrants : mapping of str to Entrant
        Algorithms by name.
    cells : mapping of (str, str) to Cell
        Measurements by the names of problem and algorithm.
    advice : tuple of Advice
        Recommended algorithms by situation.
    standings : mapping of str to list of Standing
        Ranks over all problems for each aim ("equation" or "values"), with tuned settings, best first.
    tables : mapping of str to table
        Tidy tables "curves", "tuning", "runs" and "ranks", as columns of arrays.
    manifest : dict
        Names, sizes, versions and machine, as plain JSON.
    """

    out: Path | None
    size: TournamentSize
    problems: Mapping[str, TournamentProblem]
    entrants: Mapping[str, Entrant]
    cells: Cells = field(repr=False)
    advice: tuple[Advice, ...]
    standings: Mapping[str, list[Standing]]
    tables: Mapping[str, Table] = field(repr=False)
    manifest: dict[str, Any]

    @property
    def report(self) -> Path | None:
        """Path of the report, None if nothing was written."""
        return None if self.out is None else self.out / "report.html"

    def as_dict(self) -> dict[str, Any]:
        """Return advice, ranks, the manifest and the names of the files as plain JSON.

        Returns
        -------
        dict
            The entries "report", "advice", "standings", "tables" and "manifest".
        """
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
        figure, tables = next(rank_figures(self.tables, self.styles))
        return build_summary("Comparison", entries, lambda axes: figure.draw(axes, tables))

    @cached_property
    def styles(self) -> dict[str, Style]:
        """Style of each algorithm in figures and tables, as arguments of Matplotlib's ``plot``."""
        return choose_styles(self.standings)

    @property
    def _size(self) -> str:
        algorithms, problems = plural(len(self.entrants), "algorithm"), plural(len(self.problems), "problem")
        return f"{algorithms} on {problems}, {self.size.n_samples:,} samples"

    @property
    def _leaders(self) -> dict[str, str]:
        """First few algorithms for each aim, with their mean ranks."""
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
    executor: Executor | None = None,
    device: DeviceName = "cpu",
    progress: Callable[[float, str], None] | bool | None = None,
) -> Comparison:
    """Compare algorithms on problems, each tuned with the same budget.

    The folder ``out`` receives ``report.html``, ``figures/``, ``data/``, ``manifest.json`` and tidy tables as Parquet
    files. Finished measurements are kept there, so an interrupted comparison continues with the same call.

    Parameters
    ----------
    problems : sequence or mapping, default=()
        Names of standard problems, or problem objects. The names are those of ``vrtd.tournament.PROBLEMS``; objects
        are of type ``LinearProblem`` or ``Simulator``, and are called "problem-1", "problem-2", ... A mapping gives
        each problem a name of your choice. By default all standard problems are used.
    algorithms : sequence or mapping, default=()
        Names of algorithms, which are tuned, or algorithm objects, which are not. The names are those of
        ``vrtd.tournament.ENTRANTS``; objects run with their own settings on every problem, and are called "vrtd_1",
        "vrtd_2", ... after their class. A mapping gives each algorithm a name of your choice. By default all standard
        algorithms are used.
    size : TournamentSize, optional
        Numbers of samples, runs and settings, and the seed. By default ``TournamentSize()``.
    out : path or None, default="comparison"
        Output folder, which must be new, empty or that of an earlier comparison. With None nothing is written, and
        neither Matplotlib nor pyarrow is needed.
    threads : int, optional
        Number of processes that share the work. By default one per processor. A ``Simulator``, and an algorithm whose
        class is not in the registry, run in the calling process, because their code cannot be sent to another one.
    executor : concurrent.futures.Executor, optional
        Executor that measures one algorithm on one problem per task, in place of the processes: the ``get_executor()``
        of a Dask client, ``vrtd.executors.ray()`` or any other. It stays open.
    device : {"cpu", "cuda", "auto"}, default="cpu"
        Device that computes the runs: the CPU, an NVIDIA GPU ("cuda"), or the GPU if it helps ("auto"), as in
        ``vrtd.simulate``. It helps from about 16,384 runs on. A GPU measures one algorithm on one problem at a time, in
        the calling process; algorithms on a data set stay on the CPU. It changes numbers by rounding, so measurements
        from another device are repeated.
    progress : bool or callable, optional
        Whether to show a progress bar on stderr. A callable receives the share of the work that is done and the name
        of the current task.

    Returns
    -------
    Comparison
        Advice, ranks, tables, and the path of the report.

    Raises
    ------
    InvalidInputError
        If a name is unknown, an object cannot take part, or the folder holds something else.
    WorkerError
        If a measurement fails, which the message names, or a process ends unexpectedly.
    DeviceError
        If ``device`` is "cuda" and there is no GPU that can be used.
    MissingExtraError
        If ``device`` is "cuda" and numba-cuda is not installed, or ``out`` is given and Matplotlib or pyarrow is not.

    Examples
    --------
    >>> import vrtd
    >>> size = vrtd.tournament.TournamentSize(n_samples=200, n_runs=2)
    >>> algorithms = {"small": vrtd.TD(0.01), "large": vrtd.TD(0.1)}
    >>> problem = vrtd.problems.random_mdp(n_states=10)
    >>> comparison = vrtd.compare([problem], algorithms, size=size, out=None, threads=1)
    >>> [standing.algorithm for standing in comparison.standings["equation"]]
    ['large', 'small']
    """
    size = TournamentSize() if size is None else size
    if not isinstance(size, TournamentSize):
        raise InvalidInputError(
            f"size must be a vrtd.tournament.TournamentSize, but got {size!r}.",
            "Pass vrtd.tournament.TournamentSize(...).",
        )
    check_executor(executor, threads)
    gpu = choose_device(device, size.n_runs, size.n_samples, 1, executor)
    device = "cpu" if gpu is None else device
    entrants, where = choose_entrants(algorithms, size), choose_problems(problems)
    manifest = {
        "format": _FORMAT,
        "size": dict(vars(size)),
        "problems": list(where),
        "algorithms": list(entrants),
        # Digests of problems and settings of algorithms that the caller named.
        "objects": {name: problem.identity for name, problem in where.items() if problem.identity}
        | {name: entrant.identity for name, entrant in entrants.items() if entrant.given is not None},
        **({} if gpu is None else {"device": gpu.name}),
        **store.describe_system(),
    }
    pairs = [(problem, entrant) for problem in where.values() for entrant in entrants.values()]
    with ExitStack() as stack:
        if out is None:
            folder = cell_folder = Path(stack.enter_context(TemporaryDirectory()))
        else:
            new_panels(1), library()  # raise before the long measurement if a library is missing
            parts = ("cells", "data", "figures")
            folder = stack.enter_context(opened(as_path("out", out), _FORMAT, "comparison", parts))
            cell_folder = folder / "cells"
        report = stack.enter_context(show_progress(progress, ProgressBar))
        cells = measure(size, pairs, cell_folder, executor, threads or available_threads(), report, device)
        by_aim = {aim: [name for name, problem in where.items() if aim in problem.aims] for aim in AIMS}
        overall = {aim: rank_tuned(cells, aim, names, list(entrants)) for aim, names in by_aim.items() if names}
        path, advice = None if out is None else folder, tuple(advise(cells, where, entrants))
        tables = make_tables(cells, overall, entrants)
        comparison = Comparison(path, size, where, entrants, cells, advice, overall, tables, manifest)
        if out is not None:
            for name, each in tables.items():
                write_parquet(each, folder / f"{name}.parquet")
            before = _list_figures(folder)
            panels = _draw_panels(folder, comparison)
            write_text(build_page(comparison, panels).html, folder / "report.html")
            names = {name for panel in panels for name in (panel.file, panel.data)}
            for name in before - names:  # of an earlier comparison
                (folder / name).unlink(missing_ok=True)
            store.write_json(manifest | {"figures": sorted(names)}, folder / "manifest.json")
    return comparison


def _as_rows(standings: Mapping[str, list[Standing]]) -> dict[str, list[dict[str, Any]]]:
    return {aim: [standing._asdict() for standing in ranked] for aim, ranked in standings.items()}


def _list_figures(folder: Path) -> set[str]:
    """Return the names of the figures that an earlier comparison wrote into the folder, and of the tables behind them.

    The manifest lists them. No other file is ever removed.
    """
    try:
        names = json.loads(store.read_content(folder / "manifest.json")).get("figures", [])
    except (ValueError, AttributeError, RecursionError):
        return set()
    return {name for name in names if isinstance(name, str) and _FIGURE.fullmatch(name)}


def _draw_panels(folder: Path, comparison: Comparison) -> list[Panel]:
    """Write the figures and return them: ranks, then errors."""
    styles, shown = comparison.styles, first_shown(comparison.styles)
    views = list(error_views(comparison.tables, comparison.problems, styles))
    figures = [*rank_figures(comparison.tables, styles), error_figure(views[0], shown)]
    panels = []
    for figure, behind in figures:
        panel = draw_panel(folder, figure, behind, f"figures/{figure.name}.svg", f"data/{figure.name}.csv")
        write_csv(behind[figure.table], folder / panel.data)
        panels.append(panel)
    plots = {view.choice: read_view(view.draw_table) for view in views}
    panels[-1] = replace(panels[-1], plot=pack(plots, CHOICES, shown))
    return panels
