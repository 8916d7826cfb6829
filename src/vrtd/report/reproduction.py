"""The verb: measure what is not there yet, draw, judge, and write one page."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from vrtd import experiments
from vrtd.checks import check_choice, check_count
from vrtd.errors import InvalidInputError
from vrtd.experiments import store
from vrtd.experiments.evidence import CONFIDENCE, Finding, judge
from vrtd.experiments.experiment import Experiment, Figure, Runner, Settings, Tables
from vrtd.files import write_at_once
from vrtd.plots import new_panels
from vrtd.report.page import Panel, Section, page
from vrtd.report.svg import draw_svg

__all__ = ["QUICK_RUNS", "Reproduction", "reproduce"]

QUICK_RUNS = 20
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


def reproduce(
    names: Sequence[str] = (),
    *,
    out: str | os.PathLike[str] = "reproduction",
    n_runs: int = 1000,
    seed: int = 0,
    threads: int | None = None,
    progress: Callable[[float, str], None] | None = None,
) -> Reproduction:
    """Regenerate the experiments of these names, all without any, and judge the claims that rest on what is there.

    Writes `report.html`, `figures/`, `data/`, `claims.json` and `manifest.json` into the folder `out`. What is finished
    there with the same settings is kept; what was measured with others is measured anew. Ctrl-C keeps what is finished
    and reports on it. `progress` is called with the share of the work that is done and the name of the experiment.
    """
    for name in names:
        check_choice("name of an experiment", name, experiments.NAMES)
    check_count("n_runs", n_runs, least=2)
    check_count("seed", seed, least=0)
    if threads is not None:
        check_count("threads", threads)
    new_panels(1)  # a missing library must not cost a long measurement
    folder = _open(Path(out))
    chosen = [name for name in experiments.NAMES if name in names or not names]
    found: dict[str, Measured] = {}
    # Figures are drawn beside the next measurement, which spends its time in compiled code.
    with ThreadPoolExecutor(1) as artist:
        missing: list[tuple[Experiment, Settings]] = []
        for name in experiments.NAMES:
            experiment = experiments.find(name)
            settings = experiment.settings(int(n_runs), int(seed))
            kept = store.load(experiment, settings, folder / "data")
            if kept is not None:
                found[name] = Measured(*kept, artist.submit(_section, folder, experiment, settings, kept[0]))
            elif name in chosen:
                missing.append((experiment, settings))
        total, done = sum(experiment.weight for experiment, _ in missing), 0.0
        try:
            for experiment, settings in missing:

                def tell(share: float, begun: float = done, now: Experiment = experiment) -> None:
                    if progress is not None:
                        progress((begun + now.weight * share) / total, now.name)

                tell(0.0)
                tables, cost = store.measure(experiment, settings, folder / "data", Runner(tell, threads))
                drawn = artist.submit(_section, folder, experiment, settings, tables)
                found[experiment.name] = Measured(tables, cost, drawn)
                tell(1.0)
                done += experiment.weight
        finally:  # also after Ctrl-C
            result = _report(folder, {name: found[name] for name in experiments.NAMES if name in found}, n_runs, seed)
    return result


class Measured(NamedTuple):
    tables: Tables
    cost: dict[str, Any]
    section: Future[Section]


def _report(folder: Path, found: dict[str, Measured], n_runs: int, seed: int) -> Reproduction:
    tables = {name: each.tables for name, each in found.items()}
    claims = experiments.all_claims()
    judged = [claim for claim in claims if set(claim.needs) <= set(tables)]
    findings = tuple(judge(claim, tables, len(claims), int(n_runs)) for claim in judged)
    sections = [each.section.result() for each in found.values()]
    manifest = {
        "format": _FORMAT,
        "n_runs": int(n_runs),
        "seed": int(seed),
        "confidence": CONFIDENCE,
        "n_claims": len(claims),
        "versions": dict(store.versions()),
        "machine": {"system": platform.system(), "architecture": platform.machine(), "processors": os.cpu_count()},
        "experiments": {
            section.experiment.name: {
                "digest": store.digest(section.settings),
                "settings": section.settings,
                "cost": found[section.experiment.name].cost,
            }
            for section in sections
        },
    }
    _write(page(findings, sections, manifest), folder / "report.html")
    store.write_json([finding.as_dict() for finding in findings], folder / "claims.json")
    store.write_json(manifest, folder / "manifest.json")
    return Reproduction(folder, findings, manifest)


def _section(folder: Path, experiment: Experiment, settings: Settings, tables: Tables) -> Section:
    return Section(experiment, settings, [_panel(folder, experiment, figure, tables) for figure in experiment.figures])


def _panel(folder: Path, experiment: Experiment, figure: Figure, tables: Tables) -> Panel:
    svg, file = draw_svg(figure, tables), f"figures/{experiment.name}-{figure.name}.svg"
    _write(svg, folder / file)
    return Panel(figure, svg, file, f"data/{store.file_name(experiment, figure.table)}")


def _write(text: str, path: Path) -> None:
    with write_at_once(path) as file:
        file.write(text.encode())


def _open(folder: Path) -> Path:
    """A folder that is new, empty, or an earlier reproduction's."""
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not _is_ours(folder))):
        raise InvalidInputError(
            "the output folder must be new, empty or that of an earlier reproduction",
            f"{folder}, which holds something else",
            "name another",
        )
    for part in ("data", "figures"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    if not _is_ours(folder):
        store.write_json({"format": _FORMAT}, folder / "manifest.json")
    return folder


def _is_ours(folder: Path) -> bool:
    try:
        return bool(json.loads((folder / "manifest.json").read_bytes())["format"] == _FORMAT)
    except (OSError, ValueError, KeyError, TypeError):
        return False
