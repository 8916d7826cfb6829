"""The Mountain Car experiment: its metric, its pairing, its tables, its figures and what it says for the claim."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import vrtd
from vrtd.kernels.random import ENVIRONMENT, make_streams
from vrtd.paper.evidence import judge
from vrtd.paper.experiment import Runner
from vrtd.paper.mountain_car import EXPERIMENT, MAIN, draw_states, has_smaller_neu, make_car, make_neu, settings
from vrtd.plots import new_panels
from vrtd.problems import mountain_car
from vrtd.problems.mountain_car import features_at
from vrtd.tables import rows_where

FULL = settings(1000, 0)


@pytest.fixture(scope="module")
def small() -> dict[str, Any]:
    """The main variant and two others, briefly."""
    shared = settings(6, seed=3)
    chosen = [variant for variant in shared["variants"] if variant["bandwidth"] == 5.0]
    variants = [
        variant | {"batch_sizes": variant["batch_sizes"][:2], "n_runs": max(variant["n_runs"], 4)}
        for variant in (*chosen[:2], chosen[5])
    ]
    return {**shared, "n_gradients": 20_000, "last_gradients": 10_000, "every": 2000, "variants": variants}


@pytest.fixture(scope="module")
def tables(small: dict[str, Any]) -> dict[str, Any]:
    return EXPERIMENT.measure(small, Runner())


def test_the_settings_are_plain_data() -> None:
    assert json.loads(json.dumps(FULL)) == FULL
    assert len(FULL["variants"]) == 30
    (main,) = (variant for variant in FULL["variants"] if MAIN.items() <= variant.items())
    assert (main["n_runs"], main["batch_sizes"]) == (1000, [1, 1000, 5000, 10_000])
    others = {(variant["time_limit"], variant["n_runs"]) for variant in FULL["variants"] if variant != main}
    assert others == {(None, 100), (200, 50)}
    assert {variant["n_runs"] for variant in settings(20, 0)["variants"]} == {20, 2}


def test_the_window_sees_every_step_of_an_episode() -> None:
    window = np.arange(FULL["n_gradients"], FULL["n_gradients"] - FULL["last_gradients"], -FULL["stride"])
    assert np.unique(window % 200).size == 200


def test_the_form_is_the_norm_of_the_mean_update_for_every_variant() -> None:
    rng = np.random.default_rng(0)
    states: dict[Any, Any] = {}
    for variant in FULL["variants"]:
        car = make_car(FULL, variant)
        states.setdefault(variant["time_limit"], draw_states(FULL, car))
        before, after = states[variant["time_limit"]]
        assert len(before) == 1000
        form = make_neu(car, before, after)
        phi, phi_next = features_at(car, before), features_at(car, after)
        # Anywhere, and near the solution, where the form cancels most: at what the methods come to, and closer.
        thetas = [scale * rng.normal(size=20) for scale in (0.0, 1.0, 30.0)]
        thetas += [form.centre * (1 + scale * rng.normal(size=20)) for scale in (0.1, 0.01)]
        for theta in thetas:
            deltas = -1.0 + 0.95 * phi_next @ theta - phi @ theta
            assert form(theta) == pytest.approx(np.sum((deltas @ phi / 1000) ** 2), rel=1e-8)


def test_test_transitions_are_distinct_steps_of_one_trajectory() -> None:
    car = make_car(FULL, FULL["variants"][0])
    few = {**FULL, "n_test": 300, "n_test_steps": 300}
    before, after = draw_states(few, car)
    assert (before[1:] == after[:-1]).all()  # all of its steps, in their order


def test_the_tables_are_what_the_runs_say(small: dict[str, Any], tables: dict[str, Any]) -> None:
    assert {len(column) for column in tables["curves"].values()} == {2 * 11}
    assert len(tables["floors"]["mean"]) == 6
    variant = small["variants"][2]
    assert variant["time_limit"] == 200
    car = make_car(small, variant)
    form = make_neu(car, *draw_states(small, car))
    td, vr = (
        vrtd.simulate(
            car, method, n_runs=4, n_gradients=20_000, seed=3, metrics=(form,),
            checkpoints=np.arange(20_000, 10_000, -499)[::-1],
        ).values("neu").mean(axis=1)
        for method in (vrtd.TD(0.2), vrtd.VRTD(0.2, 1000))
    )  # fmt: skip
    row = rows_where(tables["floors"], limit="limit 200", batch_size=1000)
    assert row["n_runs"] == 4
    assert row["mean"] == pytest.approx(vr.mean(), rel=1e-12)
    assert row["standard_error"] == pytest.approx(vr.std(ddof=1) / 2, rel=1e-12)
    assert row["ratio"] == pytest.approx(vr.mean() / td.mean(), rel=1e-12)
    # The delta method, written with the covariance of the paired runs.
    relative = [vr / vr.mean(), td / td.mean()]
    (a, c), (_, b) = np.cov(relative)
    expected = vr.mean() / td.mean() * np.sqrt((a + b - 2 * c) / 4)
    assert row["ratio_standard_error"] == pytest.approx(expected, rel=1e-9)
    of_td = rows_where(tables["floors"], batch_size=1)
    assert of_td["ratio"].tolist() == [1.0] * 3
    assert of_td["ratio_standard_error"].tolist() == [0.0] * 3


def test_equal_settings_give_equal_bits(small: dict[str, Any], tables: dict[str, Any]) -> None:
    again = EXPERIMENT.measure(small, Runner(threads=1))
    for name, table in tables.items():
        assert {key: column.tobytes() for key, column in table.items()} == {
            key: column.tobytes() for key, column in again[name].items()
        }


def test_comparisons_are_by_bandwidth_and_limit(tables: dict[str, Any]) -> None:
    found = has_smaller_neu(tables)
    assert [comparison.condition for comparison in found] == [
        "g = 5, no limit, draw 0, as in the figure", "g = 5, no limit", "g = 5, limit 200",
    ]  # fmt: skip
    assert [comparison.n_runs for comparison in found] == [6, 4, 4]
    assert all(comparison.stated and comparison.below == 1.0 for comparison in found)


def test_the_verdict_is_by_condition_and_larger_batches_are_beyond_the_paper(tables: dict[str, Any]) -> None:
    floors = {name: column.copy() for name, column in tables["floors"].items()}
    floors["n_runs"][:] = 50
    floors["ratio_standard_error"][:] = 0.01
    floors["ratio"] = np.where(floors["limit"] == "no limit", 1.5, 0.5)
    finding = judge(EXPERIMENT.claims[0], {"mountain-car": {"floors": floors}}, n_claims=10)
    assert finding.verdict == "holds under conditions"
    assert finding.where == "g = 5, limit 200; not under g = 5, no limit, draw 0, as in the figure; g = 5, no limit"

    floors["ratio"][:] = 1.5
    floors["ratio"][floors["feature_seed"] == 1] = 0.5
    floors["batch_size"][floors["feature_seed"] == 1] = [1, 10_000]
    finding = judge(EXPERIMENT.claims[0], {"mountain-car": {"floors": floors}}, n_claims=10)
    assert finding.verdict == "does not hold"
    assert finding.where == "though it does under g = 5, no limit, M = 10000"


def test_figures_draw_what_they_name_and_say_how_many_runs(tables: dict[str, Any]) -> None:
    for figure in EXPERIMENT.figures:
        assert figure.table in tables
        axes = new_panels(1)[0]
        figure.draw(axes, tables)
        axes.figure.draw_without_rendering()
        assert axes.get_xlabel()
        assert axes.get_ylabel()
        legend = axes.get_legend()
        assert legend is not None
        labels = {text.get_text() for text in legend.get_texts()}
        if figure.name == "variants":
            assert labels == {"no limit, 4 runs", "limit 200, 4 runs", "Figure 4, 6 runs"}
        else:
            assert labels == {"TD", "VRTD, M = 1000"}


def test_the_runner_is_told_what_to_expect(small: dict[str, Any]) -> None:
    shares: list[float] = []
    runner = Runner(shares.append)
    EXPERIMENT.measure(small, runner)
    assert runner.n_gradients == 2 * (6 + 4 + 4) * 20_000
    assert shares[-1] == 1.0
    assert shares == sorted(shares)


def test_beyond_the_goal_and_moving_left_is_not_the_goal():
    car, state = mountain_car(), np.array([0.58, -0.02, 3.0])
    car.transition(car.params, state, make_streams(0, np.zeros(1, np.int64), ENVIRONMENT)[0])
    assert 0.5 < state[0] < 0.58
    assert state[2] == 4.0


def test_test_transitions_do_not_depend_on_the_runs_seed():
    one, other = (settings(2, seed) for seed in (0, 9))
    car = make_car(one, one["variants"][0])
    assert np.array_equal(draw_states(one, car), draw_states(other, car))


def test_diverged_runs_are_counted():
    small = settings(3, 0)
    variant = small["variants"][0] | {"batch_sizes": [1], "n_runs": 3}
    car = {**small, "step_size": 1e3, "n_gradients": 2000, "last_gradients": 1000, "every": 500, "variants": [variant]}
    floors = EXPERIMENT.measure({**car, "variants": [variant | {"bandwidth": 5.0}]}, Runner())["floors"]
    assert floors["n_diverged"].tolist() == [3]
    assert np.isnan(floors["mean"]).all()
