"""The function `reproduce`: measure missing experiments, judge every claim, draw every figure and write one page."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vrtd import store
from vrtd.checks import check_count
from vrtd.engine.device import DeviceName, choose_device
from vrtd.executors import check_executor
from vrtd.paper import experiments, stored
from vrtd.paper.evidence import CONFIDENCE, Finding, count_verdicts, judge
from vrtd.paper.experiment import Experiment, Runner, Settings
from vrtd.paper.page import Section, build_page
from vrtd.paper.wording import totals
from vrtd.plots import Figure, new_panels
from vrtd.progress import ProgressBar, show_progress
from vrtd.report.folder import opened, write_text
from vrtd.report.notebook import build_summary
from vrtd.report.numbers import plural
from vrtd.report.svg import draw_panel

QUICK_RUNS = 10
_FORMAT = "vrtd-reproduction-1"


@dataclass(frozen=True)
class Reproduction:
    """Result of a reproduction.

    Attributes
    ----------
    out : Path
        Folder of the reproduction.
    findings : tuple of Finding
        Claims with their verdicts.
    manifest : dict
        Settings, seeds, versions, machine and cost, as plain JSON.
    """

    out: Path
    findings: tuple[Finding, ...]
    manifest: dict[str, Any]

    @property
    def report(self) -> Path:
        """Path of the HTML page."""
        return self.out / "report.html"

    def as_dict(self) -> dict[str, Any]:
        """Return the path of the page, the findings and the manifest as plain JSON.

        Returns
        -------
        dict
            Entries ``report``, ``claims`` and ``manifest``.
        """
        return {
            "report": str(self.report),
            "claims": [finding.as_dict() for finding in self.findings],
            "manifest": self.manifest,
        }

    def __repr__(self) -> str:
        return f"Reproduction({'; '.join(self._entries.values())})"

    def _repr_html_(self) -> str:
        return build_summary("Reproduction", self._entries)

    @property
    def _entries(self) -> dict[str, str]:
        experiments = plural(len(self.manifest["experiments"]), "experiment")
        return {
            "size": f"{experiments}, {plural(self.manifest['n_runs'], 'run')}, seed {self.manifest['seed']}",
            "claims": totals(self.manifest["verdicts"]),
            "report": str(self.report),
        }


def reproduce(
    names: Sequence[str] = (),
    *,
    out: str | os.PathLike[str] = "reproduction",
    n_runs: int = 1000,
    seed: int = 0,
    threads: int | None = None,
    executor: Executor | None = None,
    device: DeviceName = "cpu",
    progress: Callable[[float, str], None] | bool | None = None,
) -> Reproduction:
    """Regenerate experiments of the paper and judge the claims that they test.

    The paper is Xu, Wang, Zhou and Liang (ICLR 2020). The function writes ``report.html``, ``figures/``, ``data/``,
    ``claims.json`` and ``manifest.json`` into a folder. Finished experiments in that folder are kept if their settings
    are the same; others are measured again or removed. Ctrl-C keeps the finished experiments and writes a page on them.

    Parameters
    ----------
    names : sequence of str or str, default=()
        Experiments to run, by name (``"random-mdp-iid"``) or by figure (``"figure-1"``). An empty sequence runs all of
        them. Figures have the numbers that are printed in the paper, 1 to 5.
    out : str or path-like, default="reproduction"
        Folder for the page, the figures and the data. It must be new, empty or that of an earlier reproduction.
    n_runs : int, default=1000
        Number of independent runs, at least 2. With 10 runs all experiments take about a minute the first time, because
        loops are compiled, and less than half a minute afterwards. Claims that depend on simulations may then be
        undecided; verdicts that depend only on exact numbers are the same for any number of runs. Frozen Lake's draws 1
        to 4 and Mountain Car's variants use fewer runs.
    seed : int, default=0
        Seed of the random numbers. Equal settings and seeds give equal tables, to the bit.
    threads : int, optional
        Number of threads. It does not change the results.
    executor : concurrent.futures.Executor, optional
        Executor that computes the simulations, in place of threads, as in ``vrtd.simulate``. It stays open, and does
        not change the results.
    device : {"cpu", "cuda", "auto"}, default="cpu"
        Device that computes the simulations: the CPU, an NVIDIA GPU ("cuda"), or the GPU if it helps ("auto"), as in
        ``vrtd.simulate``. A GPU changes numbers by rounding, so experiments from another device are measured again. It
        helps from about 16,384 runs on.
    progress : callable or bool, optional
        Whether to show a progress bar on stderr. A function is called with the completed share of the work and the name
        of the experiment.

    Returns
    -------
    Reproduction
        The claims with their verdicts (``findings``), the ``manifest`` and the path of the page (``report``).

    Raises
    ------
    InvalidInputError
        If an argument is invalid, or if ``out`` contains other files or is in use by another process.
    WorkerError
        If a task fails on a worker of the executor, or the executor loses its workers. Finished experiments are kept.
    MissingExtraError
        If Matplotlib is not installed.

    Examples
    --------
    >>> import tempfile
    >>> import vrtd
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     reproduction = vrtd.reproduce("bounds", out=folder)
    ...     finding = next(each for each in reproduction.findings if each.claim.name == "lemma-5")
    >>> finding.verdict
    'does not hold'
    """
    names = tuple(experiments.check_name(name) for name in ((names,) if isinstance(names, str) else names))
    check_count("n_runs", n_runs, least=2)
    check_count("seed", seed, least=0)
    check_executor(executor, threads)
    choose_device(device, int(n_runs), 1, 1, executor)  # refuse it before the measurements
    new_panels(1)  # fail before the measurements if Matplotlib is missing
    with (
        opened(Path(out), _FORMAT, "reproduction", ("data", "figures")) as folder,
        show_progress(progress, ProgressBar) as report,
    ):
        measured: dict[str, stored.Measured] = {}
        missing: list[tuple[Experiment, Settings]] = []
        for name in experiments.NAMES:
            experiment = experiments.find(name)
            settings = experiment.settings(int(n_runs), int(seed))
            if device != "cpu":
                settings = {**settings, "device": device}
            kept = stored.load(experiment, settings, folder / "data")
            if kept is not None:
                measured[name] = kept
            elif name in names or not names:
                missing.append((experiment, settings))
        n_wanted, n_kept = len(measured) + len(missing), len(measured)
        total, done = sum(experiment.weight for experiment, _ in missing), 0.0
        try:
            for experiment, settings in missing:

                def tell(share: float, begun: float = done, now: Experiment = experiment) -> None:
                    if report is not None:
                        report((begun + now.weight * share) / total, now.name)

                tell(0.0)
                runner = Runner(tell, threads, executor, device)
                measured[experiment.name] = stored.measure(experiment, settings, folder / "data", runner)
                tell(1.0)
                done += experiment.weight
        except KeyboardInterrupt:
            if len(measured) > n_kept:
                _report(folder, measured, n_wanted, int(n_runs), int(seed))
            raise
        result = _report(folder, measured, n_wanted, int(n_runs), int(seed))
        for name in experiments.NAMES:  # all experiments in a folder have the same settings, so remove others
            if name not in measured:
                experiment = experiments.find(name)
                stored.remove(experiment, folder / "data")
                for figure in experiment.figures:
                    (folder / _figure_file(experiment, figure)).unlink(missing_ok=True)
    return result


def _report(folder: Path, measured: dict[str, stored.Measured], n_wanted: int, n_runs: int, seed: int) -> Reproduction:
    ordered = [measured[name] for name in experiments.NAMES if name in measured]
    tables = {each.experiment.name: each.tables for each in ordered}
    claims = experiments.all_claims()
    judged = [claim for claim in claims if set(claim.needs) <= set(tables)]
    findings = tuple(judge(claim, tables, len(claims), n_runs) for claim in judged)
    manifest = {
        "format": _FORMAT,
        "n_runs": n_runs,
        "seed": seed,
        "confidence": CONFIDENCE,
        "n_statements": len(claims),  # claims and observations; together they have the confidence above
        "verdicts": count_verdicts(findings),
        "is_complete": len(ordered) == n_wanted,
        **store.describe_system(),
        "experiments": {
            each.experiment.name: {"digest": store.digest(each.settings), "settings": each.settings, "cost": each.cost}
            for each in ordered
        },
    }
    sections = []
    for each in ordered:
        panels = []
        for figure in each.experiment.figures:
            data = f"data/{stored.file_name(each.experiment, figure.table)}"
            panels.append(draw_panel(folder, figure, each.tables, _figure_file(each.experiment, figure), data))
        sections.append(Section(each.experiment, each.settings, panels))
    write_text(build_page(findings, sections, manifest).html, folder / "report.html")
    store.write_json([finding.as_dict() for finding in findings], folder / "claims.json")
    store.write_json(manifest, folder / "manifest.json")
    return Reproduction(folder, findings, manifest)


def _figure_file(experiment: Experiment, figure: Figure) -> str:
    return f"figures/{experiment.name}-{figure.name}.svg"
