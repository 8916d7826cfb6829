"""The estimator with every algorithm of the registry: those that learn from a log, and those that do not."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers.some_logs import DISCOUNT, chunk
from vrtd.algorithms import REGISTRY
from vrtd.cli import main
from vrtd.cli.terminal import BAD_USAGE, OK
from vrtd.errors import AccuracyWarning, ConvergenceWarning, DataWarning, InvalidInputError
from vrtd.estimator import evaluate
from vrtd.logs import from_arrays
from vrtd.report.numbers import describe_settings
from vrtd.sklearn import ValueRegressor

N = 3000
ON_LOGS = [name for name, algorithm in REGISTRY.items() if algorithm().learns_from_log]
OTHERS = [name for name in REGISTRY if name not in ON_LOGS]
UNTUNED = [name for name in ON_LOGS if name not in ("td", "vrtd", "richardson_td")]


def fitted(name: str, **settings: Any) -> vrtd.Evaluator:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the defaults of a class are not made for these rows
        return vrtd.Evaluator(name, features=None, discount=DISCOUNT, pilot_rows=700, **settings).fit(chunk(0, N))


def test_the_registry_is_divided_by_what_algorithms_declare() -> None:
    assert {"td", "vrtd", "gtd2", "lstd", "true_online_td"} <= set(ON_LOGS)
    assert {"svrg", "saga", "scsg", "primal_dual"} <= set(OTHERS)


@pytest.mark.parametrize("name", ON_LOGS)
def test_every_algorithm_that_learns_from_a_log_is_stored_and_goes_on(name: str, tmp_path: Path) -> None:
    whole = vrtd.Evaluator(name, discount=DISCOUNT, pilot_rows=700).partial_fit(chunk(0, N))
    assert np.abs(whole.theta_).max() > 0.1
    assert isinstance(whole.algorithm_, REGISTRY[name])
    parts = vrtd.Evaluator(name, discount=DISCOUNT, pilot_rows=700)
    for first, last in ((0, 333), (333, 1501), (1501, N)):
        parts.partial_fit(chunk(first, last))
        parts.save(tmp_path / "model.npz")
        parts = vrtd.Evaluator.load(tmp_path / "model.npz")
    assert parts.theta_.tobytes() == whole.theta_.tobytes()
    assert parts.algorithm_ == whole.algorithm_
    assert parts.n_waiting_ == whole.n_waiting_
    assert parts.diagnostics_.as_dict() == whole.diagnostics_.as_dict()


@pytest.mark.parametrize("name", UNTUNED)
def test_an_algorithm_without_automatic_settings_has_those_of_its_class(name: str) -> None:
    evaluator = fitted(name)
    algorithm = REGISTRY[name]()
    assert evaluator.algorithm_ == algorithm
    remark = f"there are no automatic settings for {name}, so that the defaults are used"
    assert f"{remark}: {describe_settings(algorithm.settings)}" in evaluator.diagnostics_.remarks
    same = fitted(algorithm)  # type: ignore[arg-type]
    assert same.theta_.tobytes() == evaluator.theta_.tobytes()
    assert not any("automatic settings" in remark for remark in same.diagnostics_.remarks)


def test_settings_that_a_class_has_can_be_given() -> None:
    assert fitted("gtd2", step_size=0.01).algorithm_ == vrtd.GTD2(0.01)
    with pytest.raises(InvalidInputError, match=r"batch_size=5 has no effect on gtd2\. Drop batch_size"):
        fitted("gtd2", batch_size=5)
    with pytest.raises(InvalidInputError, match=r"step_size=0\.1 has no effect on lstd\. Drop step_size"):
        fitted("lstd", step_size=0.1)


@pytest.mark.parametrize("name", OTHERS)
def test_an_algorithm_that_needs_a_data_set_is_refused(name: str) -> None:
    message = (
        f"{name} cannot learn from a log, because it needs random access to the rows. Use another algorithm .or sim"
    )
    for algorithm in (name, REGISTRY[name]()):
        with pytest.raises(InvalidInputError, match=message):
            vrtd.Evaluator(algorithm, features=None, discount=0.9)


def test_lstd_is_the_algorithm_and_closed_form_the_solution_of_all_rows() -> None:
    """The ridge of LSTD is small: both solve nearly the same equations."""
    lstd, closed = fitted("lstd"), fitted("closed_form")
    assert isinstance(lstd.algorithm_, vrtd.LSTD)
    assert closed.algorithm_ is None
    np.testing.assert_allclose(lstd.theta_, closed.theta_, rtol=1e-2)
    assert lstd.theta_.tobytes() != closed.theta_.tobytes()


# Intervals


@pytest.mark.parametrize("name", UNTUNED)
def test_without_a_formula_there_is_no_interval_and_the_reason_is_said(name: str) -> None:
    evaluator = fitted(name)
    states = chunk(0, 5).observations
    reason = evaluator.why_no_interval()
    assert reason is not None
    assert f"none is known for {evaluator.algorithm_.name.upper()} with these settings" in reason
    for ask in (
        lambda: evaluator.predict(states, return_interval=0.9),
        lambda: evaluator.theta_interval(0.9),
        lambda: evaluator.mean_value(0.9),
    ):
        with pytest.warns(AccuracyWarning) as caught:
            found = ask()
        assert [str(warning.message) for warning in caught] == [f"No interval: {reason}."]
        assert np.isfinite(found.value).all()
        assert np.isnan(found.low).all()
        assert np.isnan(found.high).all()
    assert f"no interval: {reason}" in evaluator.diagnostics_.remarks
    assert evaluator.diagnostics_.converged is None


def test_the_interval_of_the_closed_form_is_there_for_methods_without_traces() -> None:
    closed = fitted("closed_form").predict(chunk(0, 5).observations, return_interval=0.9)
    evaluator = fitted("gtd2", closed_form=True)
    assert evaluator.why_no_interval("closed_form") is None
    found = evaluator.predict(chunk(0, 5).observations, return_interval=0.9, method="closed_form")
    for one, other in zip(found, closed, strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_files_of_an_evaluation_without_an_interval(tmp_path: Path) -> None:
    rows = chunk(0, N)
    log = from_arrays(rows.observations, rows.reward, rows.next_observations)
    done = evaluate(log, "gtd2", features=None, discount=DISCOUNT, out=tmp_path / "out")
    stored = json.loads((tmp_path / "out" / "diagnostics.json").read_text())
    for found in (stored, done.as_dict()):
        answer = found["mean_value"]
        assert answer["value"] == done.answer.value
        assert (answer["low"], answer["high"]) == (None, None)
        assert answer["reason"] == done.evaluator.why_no_interval()
        assert found["closed_form"]["reason"] is None
        assert found["closed_form"]["low"] < found["closed_form"]["value"] < found["closed_form"]["high"]
    assert "none is known for GTD2" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize(("features", "shape"), [("tabular:6", None), ("tabular:6", (2, 3)), (None, None)])
def test_the_figures_of_an_evaluation_without_an_interval(features: Any, shape: Any, tmp_path: Path) -> None:
    """Values are drawn without intervals; states that never came are not."""
    states = np.random.default_rng(0).integers(0, 5, 2001)  # of 6
    observations = states if features else states[:, None].astype(float)
    log = from_arrays(observations[:-1], states[:-1], observations[1:])
    options = {"features": features, "closed_form": False, "shape": shape}
    done = evaluate(log, "gtd2", discount=0.5, out=tmp_path / "out", **options)
    figures = {path.stem for path in (tmp_path / "out" / "figures").glob("*.svg")}
    assert figures == {"values", "convergence"}
    curve = done.as_dict()["diagnostics"]["curve"]
    assert curve["neu"][-1] < curve["neu"][0]
    assert curve["neu_floor"] is None
    if features:
        with pytest.warns(AccuracyWarning, match="No interval"):
            low = done.evaluator.predict(np.arange(6), return_interval=0.9).low
        assert np.isnan(low[:5]).all()
        assert low[5] == -np.inf
        caption = "The value of each state. A dash" if shape else "Values of the states. States whose values"
        assert caption in (tmp_path / "out" / "report.html").read_text()


# Command line and scikit-learn


LAKE = ["evaluate", "--env", "FrozenLake-v1", "--discount", "0.9", "--samples", "2000", "--quiet", "--algorithm"]


def test_the_command_takes_every_algorithm_that_learns_from_a_log(tmp_path: Path, capsys: Any) -> None:
    assert main([*LAKE, "gtd2", "--json", "--out", str(tmp_path / "json")]) == OK
    shown, noise = capsys.readouterr()
    assert noise == ""
    found = json.loads(shown)
    model = vrtd.Evaluator.load(tmp_path / "json" / "model.npz")
    assert model.algorithm_ == vrtd.GTD2()
    for quantity in ("policy_value", "mean_value"):
        answer = found[quantity]
        assert (answer["low"], answer["high"], answer["reason"]) == (None, None, model.why_no_interval())
    assert found["diagnostics"]["settings"]["name"] == "gtd2"
    assert main([*LAKE, "gtd2", "--out", str(tmp_path / "text")]) == OK
    shown, noise = capsys.readouterr()
    assert noise == ""
    assert shown.startswith("policy value  ")
    assert "nan" not in shown
    assert "none is known for GTD2" in shown


def test_the_command_refuses_what_needs_a_data_set(tmp_path: Path, capsys: Any) -> None:
    assert main([*LAKE, "svrg", "--out", str(tmp_path / "out")]) == BAD_USAGE
    assert "svrg cannot learn from a log" in capsys.readouterr().err
    assert main([*LAKE, "gtd3", "--out", str(tmp_path / "out")]) == BAD_USAGE
    assert "algorithm must be one of" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_scikit_learn_takes_them_too() -> None:
    rows = chunk(0, N)
    with pytest.warns(DataWarning, match="No combination of the features is constant"):
        model = ValueRegressor("gtd2", discount=DISCOUNT).fit(
            rows.observations, rows.reward, next_X=rows.next_observations
        )
    assert model.coef_.tobytes() == fitted("gtd2").theta_.tobytes()
    with pytest.raises(InvalidInputError, match="svrg cannot learn from a log"):
        ValueRegressor("svrg").fit(rows.observations, rows.reward)
