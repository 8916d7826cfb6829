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


@pytest.mark.filterwarnings("ignore:the values of first states")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.filterwarnings("ignore::vrtd.errors.AccuracyWarning", "ignore::vrtd.errors.ConvergenceWarning")
def test_every_output_has_the_same_number(source: str, method: str, capsys: Any) -> None:
    command = ["evaluate", *SOURCES[source], "--algorithm", method, "--quiet", "--out", "out"]
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert main(command) == 0
    lines = {line[:14].strip(): line for line in capsys.readouterr().out.splitlines()}
    expected = "closed_form" if method == "auto" else method
    assert found["diagnostics"]["settings"]["name"] == expected
    assert (found["policy_value"] is None) == (source == "table")  # which has no episodes

    stored = json.loads(Path("out/diagnostics.json").read_text())
    assert {key: stored[key] for key in ("policy_value", "mean_value", "closed_form", "returns")} == {
        key: found[key] for key in ("policy_value", "mean_value", "closed_form", "returns")
    }
    page = Outline(Path("out/report.html").read_text()).text
    model = vrtd.Evaluator.load("out/model.npz")
    of_model = {"mean_value": model.mean_value(0.95)}
    if source != "table":
        of_model["policy_value"] = model.policy_value(level=0.95)
    assert next(iter(lines)) == ("mean value" if source == "table" else "policy value")
    for quantity, (value, low, high) in of_model.items():
        answer = found[quantity]
        assert answer["method"] == expected
        assert answer["value"] == value
        has_interval = answer["low"] is not None
        if has_interval:
            assert (answer["low"], answer["high"]) == (low, high)
        for text in interval(value, low, high) if has_interval else (number(value, 4),):
            assert text.replace("−", "-") in lines[quantity.replace("_", " ")]  # noqa: RUF001
            assert text in page
    values = pq.read_table("out/values.parquet").to_pydict()
    columns = [name for name in values if name not in ("value", "low", "high", "n_rows", "visited")]
    states = np.array([values[name] for name in columns], dtype=float).T
    kind = model._state.observations
    assert kind is not None
    again = model.predict(states.astype(kind.dtype).reshape(len(states), *kind.shape[1:]), return_interval=0.95)
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
