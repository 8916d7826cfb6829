"""`reproduce`: measure what is missing, judge every claim, draw every figure and write one page."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vrtd import store
from vrtd.checks import check_count
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
    """What a reproduction found, and where it wrote it."""

    out: Path
    findings: tuple[Finding, ...]
    manifest: dict[str, Any]

    @property
    def report(self) -> Path:
        return self.out / "report.html"

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON."""
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
    progress: Callable[[float, str], None] | bool | None = None,
) -> Reproduction:
    """Regenerate experiments of the paper, all by default, and judge the claims that rest on them.

    Write `report.html`, `figures/`, `data/`, `claims.json` and `manifest.json` into the folder `out`. What is finished
    there with the same settings is kept and shown on the page; what was measured with other settings is measured again
    or removed. Ctrl-C keeps what is finished and reports on it. `progress=True` shows a bar on stderr; a
    function is called with the share of the work that is done and the name of the experiment.
    """
    names = tuple(experiments.check_name(name) for name in ((names,) if isinstance(names, str) else names))
    check_count("n_runs", n_runs, least=2)
    check_count("seed", seed, least=0)
    if threads is not None:
        check_count("threads", threads)
    new_panels(1)  # a missing library must not cost a long measurement
    with (
        opened(Path(out), _FORMAT, "reproduction", ("data", "figures")) as folder,
        show_progress(progress, ProgressBar) as report,
    ):
        found: dict[str, stored.Measured] = {}
        missing: list[tuple[Experiment, Settings]] = []
        for name in experiments.NAMES:
            experiment = experiments.find(name)
            settings = experiment.settings(int(n_runs), int(seed))
            kept = stored.load(experiment, settings, folder / "data")
            if kept is not None:
                found[name] = kept
            elif name in names or not names:
                missing.append((experiment, settings))
        n_wanted, n_kept = len(found) + len(missing), len(found)
        total, done = sum(experiment.weight for experiment, _ in missing), 0.0
        try:
            for experiment, settings in missing:

                def tell(share: float, begun: float = done, now: Experiment = experiment) -> None:
                    if report is not None:
                        report((begun + now.weight * share) / total, now.name)

                tell(0.0)
                found[experiment.name] = stored.measure(experiment, settings, folder / "data", Runner(tell, threads))
                tell(1.0)
                done += experiment.weight
        except KeyboardInterrupt:
            if len(found) > n_kept:
                _report(folder, found, n_wanted, int(n_runs), int(seed))
            raise
        result = _report(folder, found, n_wanted, int(n_runs), int(seed))
        for name in experiments.NAMES:  # one folder, one setting: what is not on the page goes
            if name not in found:
                experiment = experiments.find(name)
                stored.remove(experiment, folder / "data")
                for figure in experiment.figures:
                    (folder / _figure_file(experiment, figure)).unlink(missing_ok=True)
    return result


def _report(folder: Path, found: dict[str, stored.Measured], n_wanted: int, n_runs: int, seed: int) -> Reproduction:
    ordered = [found[name] for name in experiments.NAMES if name in found]
    tables = {each.experiment.name: each.tables for each in ordered}
    claims = experiments.all_claims()
    judged = [claim for claim in claims if set(claim.needs) <= set(tables)]
    findings = tuple(judge(claim, tables, len(claims), n_runs) for claim in judged)
    manifest = {
        "format": _FORMAT,
        "n_runs": n_runs,
        "seed": seed,
        "confidence": CONFIDENCE,
        "n_statements": len(claims),  # claims and observations, which share the confidence
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
