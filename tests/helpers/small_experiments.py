"""Two experiments that take no time, with a claim on each."""

from __future__ import annotations

from typing import Any

import numpy as np

import vrtd
from vrtd.paper.evidence import Claim, NumberCheck
from vrtd.paper.experiment import Experiment, Runner
from vrtd.plots import Figure

measured: list[str] = []  # names, in the order in which they were measured


def _experiment(name: str) -> Experiment:
    def measure(settings: Any, runner: Runner) -> Any:
        runner.expect(settings["n_runs"] * 100)
        problem = vrtd.problems.random_mdp(seed=0)
        result = runner.simulate(
            problem, vrtd.TD(0.1), n_runs=settings["n_runs"], n_gradients=100, seed=settings["seed"], checkpoints=5
        )
        measured.append(name)
        return {"curve": {"n_gradients": result.n_gradients, "mean": result.summary().mean}}

    def draw(axes: Any, tables: Any) -> None:
        axes.plot(tables["curve"]["n_gradients"], tables["curve"]["mean"])

    return Experiment(
        name, f"Title of {name}", "a place", "a question", "a method", 1.0,
        lambda n_runs, seed: {"n_runs": n_runs, "seed": seed}, measure, [Figure("panel", "a caption", "curve", draw)],
    )  # fmt: skip


EXPERIMENTS = {name: _experiment(name) for name in ("first", "second")}


def _claim(*needs: str) -> Claim:
    def evidence(tables: Any) -> list[NumberCheck]:
        fall = [float(tables[name]["curve"]["mean"][-1] / tables[name]["curve"]["mean"][0]) for name in needs]
        return [NumberCheck("100 updates", "last / first error", max(fall), below=1.0)]

    return Claim("-and-".join(needs), "a place", "errors fall", "ends", needs, evidence)


CLAIMS = (_claim("first"), _claim("second"), _claim("first", "second"))


def install(monkeypatch: Any) -> None:
    """In the place of the paper's experiments."""
    measured.clear()
    monkeypatch.setattr("vrtd.paper.experiments.NAMES", tuple(EXPERIMENTS))
    monkeypatch.setattr("vrtd.paper.experiments.find", EXPERIMENTS.__getitem__)
    monkeypatch.setattr("vrtd.paper.experiments.all_claims", lambda: CLAIMS)


def tables_of(folder: Any) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "data").glob("*.csv"))}


def is_whole(folder: Any) -> bool:
    names = {path.name for path in folder.iterdir()}
    return names == {"report.html", "claims.json", "manifest.json", "data", "figures"} and np.all(
        [not path.name.endswith(".tmp") for path in folder.rglob("*")]
    )
