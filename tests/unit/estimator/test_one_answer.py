"""The headline, the JSON, the files, the figures and the model of an evaluation hold one estimate from one method."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers.pages import Outline
from vrtd.cli import main
from vrtd.report.numbers import interval, number

pq = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("gymnasium")

SOURCES = {
    "FrozenLake": ["--env", "FrozenLake-v1", "--discount", "0.9", "--samples", "4000"],
    "CartPole": ["--env", "CartPole-v1", "--discount", "0.9", "--samples", "4000", "--features", "polynomial:1"],
    "table": ["--data", "log.parquet", "--observations", "x", "--reward", "gain", "--discount", "0.5"],
}
METHODS = ["auto", "closed_form", "vrtd", "td", "lstd"]


@pytest.fixture(autouse=True)
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of its own in the current folder, from which VRTD learns nothing at its default size."""
    pyarrow = pytest.importorskip("pyarrow")
    x = np.cumsum(np.random.default_rng(0).normal(size=1500)) / 30.0
    pq.write_table(pyarrow.table({"x": x, "gain": np.sin(x) + 2.0}), tmp_path / "log.parquet")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.filterwarnings("ignore::vrtd.errors.AccuracyWarning", "ignore::vrtd.errors.ConvergenceWarning")
def test_every_output_has_the_same_number(source: str, method: str, capsys: Any) -> None:
    command = ["evaluate", *SOURCES[source], "--algorithm", method, "--quiet", "--out", "out"]
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert main(command) == 0
    headline = capsys.readouterr().out.splitlines()[0]
    expected = "closed_form" if method == "auto" else method
    assert found["method"] == found["diagnostics"]["settings"]["name"] == expected
    assert found["estimand"] == "mean value over the states of the log"

    stored = json.loads(Path("out/diagnostics.json").read_text())
    answer = {key: found[key] for key in ("value", "low", "high", "level", "method", "estimand")}
    assert {key: stored[key] for key in answer} == answer
    ends = [np.nan if found[key] is None else found[key] for key in ("low", "high")]
    shown = interval(found["value"], *ends) if found["low"] is not None else (number(found["value"], 4),)
    page = Outline(Path("out/report.html").read_text()).text
    for text in shown:
        assert text.replace("−", "-") in headline  # noqa: RUF001
        assert text in page

    model = vrtd.Evaluator.load("out/model.npz")
    mean = model.mean_value(found["level"])
    assert mean.value == found["value"]
    if found["low"] is not None:
        assert (mean.low, mean.high) == (found["low"], found["high"])
    values = pq.read_table("out/values.parquet").to_pydict()
    columns = [name for name in values if name not in ("value", "low", "high", "n_rows", "visited")]
    states = np.array([values[name] for name in columns], dtype=float).T
    kind = model._state.observations
    assert kind is not None
    again = model.predict(
        states.astype(kind.dtype).reshape(len(states), *kind.shape[1:]), return_interval=found["level"]
    )
    for name, ours in zip(("value", "low", "high"), again, strict=True):
        np.testing.assert_array_equal(ours, values[name])
    for figure in ("values", "intervals"):
        path = Path(f"out/figures/{figure}.csv")
        if path.exists():
            drawn = list(csv.DictReader(path.read_text().splitlines()))
            known = dict(zip(map(tuple, states.round(9)), values["value"], strict=True))
            for row in drawn:
                if row["value"] not in ("", "nan"):
                    state = tuple(np.array([row[name] for name in columns], dtype=float).round(9))
                    assert float(row["value"]) == pytest.approx(known[state], rel=1e-12)
