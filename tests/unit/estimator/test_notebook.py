"""How an evaluator shows itself: short, without warnings or errors, without a change, and quickly."""

from __future__ import annotations

import subprocess
import sys
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers.fits import N, whole_fit
from tests.helpers.notebooks import check_repr, read_summary
from tests.helpers.some_logs import DISCOUNT, chunk
from vrtd.logs import from_arrays


def test_before_any_row_the_parameters_are_shown() -> None:
    evaluator = vrtd.Evaluator("vrtd", features="rbf:20", discount=0.9, step_size=0.1)
    assert check_repr(evaluator).startswith("Evaluator(vrtd, step_size 0.1, not fitted; features rbf; disc")
    shown = read_summary(evaluator)
    assert (shown.title, shown.has_figure, shown.entries["rows"]) == ("Evaluator", False, "not fitted")
    given = vrtd.Evaluator(vrtd.VRTD(0.05, 500), discount=0.9)
    assert check_repr(given).startswith("Evaluator(vrtd, step_size 0.05, batch_size 500, not fitted; ")


def test_rows_that_wait_for_the_pilot() -> None:
    evaluator = vrtd.Evaluator("vrtd", discount=DISCOUNT, pilot_rows=2000).partial_fit(chunk(0, 1000))
    assert ", 1,000 rows of 2,000 pilot rows; " in check_repr(evaluator)
    assert not read_summary(evaluator).has_figure
    begun = vrtd.Evaluator(vrtd.VRTD(0.05, 500), discount=DISCOUNT).partial_fit(chunk(0, 100))
    assert ", 100 rows (100 waiting), 4 features)" in check_repr(begun)


def test_the_closed_form_shows_its_mean_value() -> None:
    evaluator = whole_fit("closed_form")
    mean = evaluator.mean_value(0.95)
    text = f"{mean.value:.4g} [{mean.low:.4g}, {mean.high:.4g}]"
    assert check_repr(evaluator) == f"Evaluator(closed form, {N:,} rows, 4 features; mean value {text}; converged)"
    shown = read_summary(evaluator)
    assert shown.has_figure
    assert shown.entries["mean value"] == f"{text}, 95% interval"
    assert shown.entries["converged"] == "yes"
    assert evaluator.diagnostics_.converged is True


def test_an_algorithm_shows_its_settings_and_no_number_without_an_interval() -> None:
    evaluator = whole_fit("given")
    waiting = evaluator.n_waiting_
    assert check_repr(evaluator) == (
        f"Evaluator(vrtd, step_size 0.02, batch_size 777, {N:,} rows ({waiting:,} waiting), 4 features)"
    )
    shown = read_summary(evaluator)
    assert shown.has_figure
    assert "mean value" not in shown.entries


def test_an_interval_in_doubt_is_not_converged_and_warns_nobody() -> None:
    """Rows that hardly change: the mean is known from one regime only."""
    x = np.repeat([[1.0, 0.0], [0.0, 1.0]], 500, axis=0)
    evaluator = vrtd.Evaluator("closed_form", discount=0.5).fit(from_arrays(x, x[:, 0] + np.arange(1000) % 2))
    assert check_repr(evaluator).endswith("; not converged)")
    assert read_summary(evaluator).entries["converged"].startswith("no: the effective sample size")


@pytest.mark.parametrize("scale", [0.0, 1e200], ids=["zeros", "huge"])
def test_rows_without_an_answer_are_no_error(scale: float) -> None:
    rows = chunk(0, 1000)
    log = from_arrays(scale * rows.observations, 1e150 * rows.reward, scale * rows.next_observations)
    evaluator = vrtd.Evaluator("closed_form", features="identity", discount=DISCOUNT).partial_fit(log)
    assert check_repr(evaluator) == "Evaluator(closed form, 1,000 rows, 4 features)"
    assert "mean value" not in read_summary(evaluator).entries


def test_many_features_are_shown_without_what_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was computed before is shown: by fit the parameters, by mean_value the interval."""
    whole = whole_fit("closed_form")
    full, summary = repr(whole), read_summary(whole)
    monkeypatch.setattr("vrtd.estimator.notebook._MOST_FEATURES", 3)
    evaluator = vrtd.Evaluator("closed_form", discount=DISCOUNT).partial_fit(chunk(0, N))
    assert check_repr(evaluator) == f"Evaluator(closed form, {N:,} rows, 4 features)"
    assert not read_summary(evaluator).has_figure
    theta = evaluator.theta_
    assert check_repr(evaluator) == f"{full.partition(' [')[0]})"
    shown = read_summary(evaluator)
    assert shown.has_figure
    assert shown.entries["mean value"] == summary.entries["mean value"].partition(" [")[0]
    assert "converged" not in shown.entries
    evaluator.mean_value()
    assert repr(evaluator) == full
    assert read_summary(evaluator).entries == summary.entries
    np.testing.assert_array_equal(evaluator.theta_, theta)


def test_a_model_from_a_file_is_shown_as_before(tmp_path: Path) -> None:
    for name in ("closed_form", "given"):
        evaluator = whole_fit(name)
        evaluator.save(tmp_path / "model.npz")
        loaded = vrtd.Evaluator.load(tmp_path / "model.npz")
        assert repr(loaded) == repr(evaluator)
        assert read_summary(loaded) == read_summary(evaluator)


@pytest.mark.parametrize("name", ["closed_form", "given"])
def test_nothing_is_changed(name: str) -> None:
    evaluator = copy(whole_fit(name))
    before = dict(vars(evaluator))
    repr(evaluator), evaluator._repr_html_()
    assert vars(evaluator).keys() == before.keys()
    assert all(vars(evaluator)[key] is value for key, value in before.items())


def test_remarks_and_names_are_escaped() -> None:
    class Hostile:
        def __repr__(self) -> str:
            return "<script>"

        def __call__(self, observations: Any) -> Any:
            return observations

    evaluator = vrtd.Evaluator("closed_form", features=Hostile(), discount=DISCOUNT)
    assert "<script>" in read_summary(evaluator).entries["features"]


def test_repr_loads_no_library() -> None:
    code = """
import sys, numpy as np, vrtd
x = np.random.default_rng(0).normal(size=(1000, 4))
evaluator = vrtd.Evaluator("closed_form", discount=0.5).fit(vrtd.logs.from_arrays(x, x[:, 0]))
before = set(sys.modules)
assert "mean value" in repr(evaluator)
print(sorted({name.partition(".")[0] for name in set(sys.modules) - before} - {"vrtd"}))
print(sorted(set(sys.modules) & {"scipy.stats", "matplotlib"}))
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown == "[]\n[]\n"
