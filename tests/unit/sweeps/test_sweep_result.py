"""The table of a sweep and its views, the best settings, expected errors and figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pyarrow
import pyarrow.parquet
import pytest
from matplotlib.colors import to_rgb

import vrtd
from tests.helpers.notebooks import check_repr, read_summary
from vrtd.errors import InvalidInputError
from vrtd.plots import new_panels
from vrtd.sweeps.sweep_result import SweepResult
from vrtd.tables import parse_csv
from vrtd.theory import approximation_limit, exact_curve, stationary_second_moment

GRID = {"step_size": [0.01, 0.1, 50.0], "batch_size": [20, 50]}
SIZE: dict[str, Any] = {"n_runs": 5, "n_gradients": 6000}
RANDOM = vrtd.problems.random_mdp(n_states=10)


@pytest.fixture(scope="module")
def result() -> SweepResult:
    return vrtd.sweep({"boyan": "boyan_chain", "random": RANDOM}, vrtd.VRTD, GRID, **SIZE)


def with_numbers(mean: Any, error: Any, diverged: Any, n_runs: int = 100) -> SweepResult:
    """Return the result of a sweep over step sizes with these numbers."""
    steps = [0.1 * 2**k for k in range(len(mean))]
    whole = vrtd.sweep("boyan_chain", "td", {"step_size": steps}, n_runs=2, n_gradients=10)
    table = whole.table | {"mean": np.array(mean), "standard_error": np.array(error), "n_diverged": np.array(diverged)}
    return replace(whole, table=table | {"n_runs": np.full(len(mean), n_runs)})


def test_every_view_has_the_same_table(result: SweepResult, tmp_path: Path) -> None:
    expected = pandas.DataFrame(dict(result.table))
    pandas.testing.assert_frame_equal(result.to_pandas(), expected)
    arrow = result.to_arrow()
    assert arrow.column_names == list(result.table)
    assert pyarrow.table(result)["step_size"].equals(arrow["step_size"])
    assert pyarrow.table(result).schema.equals(arrow.schema)
    assert polars.DataFrame(result).equals(result.to_polars(), null_equal=True)
    assert result.to_polars()["mean"].to_numpy().tobytes() == result.table["mean"].tobytes()
    result.to_csv(tmp_path / "t.csv")
    result.to_parquet(tmp_path / "t.parquet")
    read = parse_csv((tmp_path / "t.csv").read_bytes())
    for name, column in result.table.items():
        assert np.array_equal(read[name], column, equal_nan=column.dtype.kind == "f"), name
    assert (
        pyarrow.parquet.read_table(tmp_path / "t.parquet")["mean"].to_numpy().tobytes()
        == result.table["mean"].tobytes()
    )


def test_columns_of_a_grid_have_the_types_of_its_values() -> None:
    grid = {
        "step_size": [0.1, vrtd.Harmonic(1.0, 10.0)],
        "radius": [None, 5],
        "average": [True],
    }
    table = vrtd.sweep("boyan_chain", "td", grid, n_runs=2, n_gradients=50).table
    assert table["step_size"].tolist()[::2] == ["0.1", str(vrtd.Harmonic(1.0, 10.0))]
    assert np.array_equal(table["radius"], [np.nan, 5.0, np.nan, 5.0], equal_nan=True)
    assert table["average"].tolist() == [True] * 4


def test_final_is_an_array_over_the_grid(result: SweepResult) -> None:
    mean = result.final("mean", "random")
    assert mean.shape == (3, 2)
    alone = vrtd.simulate(RANDOM, vrtd.VRTD(0.1, 50), **SIZE).summary().mean[-1]
    assert mean[1, 1] == alone
    with pytest.raises(InvalidInputError, match="column must be one of"):
        result.final("means", "random")
    with pytest.raises(InvalidInputError, match="problem must be one of 'boyan', 'random'"):
        result.final("mean", "rand")


def test_the_best_setting_has_the_smallest_mean_error_without_diverged_runs() -> None:
    whole = with_numbers([0.5, 0.2, 0.21, 0.01], [0.01, 0.01, 0.01, 0.001], [0, 0, 0, 1])
    best = whole.best()["boyan_chain"]
    assert (best.setting, best.mean, best.n_diverged) == ({"step_size": 0.2}, 0.2, 0)
    assert best.tied == ({"step_size": 0.4},)
    assert best.n_unstable == 1


def test_if_runs_diverged_everywhere_the_best_setting_says_so() -> None:
    whole = with_numbers([0.5, 0.2, np.nan], [0.01, 0.01, np.nan], [1, 2, 5])
    best = whole.best()["boyan_chain"]
    assert (best.setting, best.n_diverged, best.tied, best.n_unstable) == ({"step_size": 0.1}, 1, (), 3)
    assert "(1 run diverged)" in repr(whole)
    assert "3 with diverged runs" in repr(whole)


def test_settings_of_one_run_are_all_tied() -> None:
    whole = with_numbers([0.5, 0.2], [np.nan, np.nan], [0, 0], n_runs=1)
    assert len(whole.best()["boyan_chain"].tied) == 1


def test_a_setting_that_is_about_to_diverge_is_not_tied() -> None:
    whole = with_numbers([0.5, 1e200], [0.1, np.inf], [0, 0])
    assert whole.best()["boyan_chain"].tied == ()


def test_the_comparison_with_the_best_takes_account_of_the_number_of_settings() -> None:
    """A difference of 2.5 standard errors is significant for two settings, but not among forty."""
    errors = [0.01 / np.sqrt(2)] * 40
    few = with_numbers([0.2, 0.225], errors[:2], [0] * 2).best()["boyan_chain"]
    many = with_numbers([0.2, 0.225, *[9.0] * 38], errors, [0] * 40).best()["boyan_chain"]
    assert (len(few.tied), len(many.tied)) == (0, 1)


@pytest.mark.parametrize(("sampling", "method"), [("iid", "exact"), ("markov", "rough approximation")])
def test_expected_errors_are_those_of_the_theory(sampling: Any, method: str) -> None:
    grid = {"step_size": [0.05], "batch_size": [20]}
    size = {"n_gradients": 2000, "sampling": sampling, "checkpoints": 3, "metrics": ("squared_error", "mspbe")}
    whole = vrtd.sweep(RANDOM, vrtd.VRTD, grid, n_runs=2, exact=True, **size)
    expected = exact_curve(RANDOM, vrtd.VRTD(0.05, 20), method="approximate", **size)
    assert np.array_equal(whole.table["exact"], expected.curves[0].T.ravel())
    moment = stationary_second_moment(RANDOM, 0.05, 20, sampling=sampling, method="approximate")
    assert whole.table["floor"][0] == pytest.approx(np.trace(moment), rel=1e-12)
    form = vrtd.metrics.METRICS["mspbe"](RANDOM)
    assert whole.table["floor"][-1] == pytest.approx(np.sum(form.matrix * moment), rel=1e-12)
    assert set(whole.table["method"]) == {method}


def test_an_approximation_is_rough_beyond_its_limit() -> None:
    limit = approximation_limit(RANDOM)
    grid = {"step_size": [0.5 * limit, 2.0 * limit], "batch_size": [20]}
    whole = vrtd.sweep(RANDOM, vrtd.VRTD, grid, n_runs=2, n_gradients=100, exact=True)
    assert whole.table["method"].tolist() == ["approximation", "rough approximation"]


def test_td_on_a_trajectory_is_exact() -> None:
    whole = vrtd.sweep("random_walk", vrtd.TD, {"step_size": [0.1]}, n_runs=2, n_gradients=500, exact=True)
    walk = vrtd.problems.random_walk()
    assert whole.table["exact"][0] == exact_curve(walk, vrtd.TD(0.1), n_gradients=500).values("squared_error")[0, -1]
    assert whole.table["floor"][0] == np.trace(stationary_second_moment(walk, 0.1, sampling="markov"))
    assert whole.table["method"].tolist() == ["exact"]


@pytest.mark.parametrize(
    "algorithm", [vrtd.TD(vrtd.Harmonic(1.0, 10.0)), vrtd.TD(0.1, average=True), vrtd.VRTD(0.1, 20, growth=2.0)]
)
def test_without_a_constant_floor_the_curve_is_exact(algorithm: Any) -> None:
    values = {name: [value] for name, value in vars(algorithm).items()}
    size = {"sampling": "iid", "n_gradients": 300, "checkpoints": 1}
    whole = vrtd.sweep(RANDOM, type(algorithm), values, n_runs=2, exact=True, **size)
    assert whole.table["exact"][0] == exact_curve(RANDOM, algorithm, **size).values("squared_error")[0, -1]
    assert np.isnan(whole.table["floor"][0])
    assert whole.table["method"].tolist() == ["exact"]


def test_an_unstable_step_has_an_infinite_floor() -> None:
    whole = vrtd.sweep(RANDOM, vrtd.TD, {"step_size": [0.1, 3.0]}, sampling="iid", n_runs=2, n_gradients=50, exact=True)
    assert np.isfinite(whole.table["floor"]).tolist() == [True, False]
    assert whole.table["floor"][1] == np.inf


@pytest.mark.parametrize(
    ("algorithm", "grid", "exact", "method"),
    [
        ("td", {"radius": [1.0]}, True, ""),
        ("tdc", {"step_size": [0.1]}, True, ""),
        ("td", {"average": [True]}, None, "skipped"),
        ("td", {"step_size": [0.1]}, False, ""),
        ("td", {"step_size": [0.1]}, None, "skipped"),
    ],
)
def test_what_is_not_computed_is_marked(algorithm: str, grid: Any, exact: bool | None, method: str) -> None:
    size = {"n_runs": 2, "n_gradients": 4000}
    table = vrtd.sweep("boyan_chain", algorithm, grid, exact=exact, **size).table
    assert np.isnan(table["exact"]).all()
    assert np.isnan(table["floor"]).all()
    assert table["method"].tolist() == [method]


def test_moments_of_many_features_are_not_known() -> None:
    wide = vrtd.problems.LIBRARY["garnet"](n_features=40)
    table = vrtd.sweep(wide, "vrtd", {"batch_size": [20]}, sampling="iid", n_runs=2, n_gradients=40, exact=True).table
    assert np.isnan([table["exact"][0], table["floor"][0]]).all()
    assert table["method"].tolist() == [""]


def test_the_prediction_of_the_cost_decides_by_the_size_of_a_cell_only() -> None:
    grid = {"step_size": [0.05]}
    few, many = (
        vrtd.sweep("random_walk", "td", grid, sampling="iid", n_runs=2, n_gradients=n).table for n in (5000, 5_000_000)
    )
    assert few["method"].tolist() == ["skipped"]
    assert many["method"].tolist() == ["exact"]
    assert many["exact"][0] == pytest.approx(many["floor"][0])


def test_curves_show_expected_errors_and_diverged_runs(result: SweepResult) -> None:
    axes = result.plot(problem="random", x="step_size")
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["batch size 20", "batch size 50", "some runs diverged"]
    assert axes.lines[0].get_xdata().tolist() == GRID["step_size"]
    assert axes.get_xscale() == "log"
    crosses = [line for line in axes.lines if line.get_marker() == "x" and len(line.get_xdata())]
    assert all(line.get_xdata().tolist() == [50.0] for line in crosses)
    exact = vrtd.sweep(RANDOM, "td", {"step_size": [0.05, 0.1]}, sampling="iid", n_runs=3, n_gradients=50, exact=True)
    labels = [text.get_text() for text in exact.plot().get_legend().get_texts()]
    assert labels == ["td", "expected", "floor"]


def test_two_numeric_fields_make_a_map_with_the_best_setting(result: SweepResult) -> None:
    axes = result.plot(problem="boyan")
    (star,) = [line for line in axes.lines if line.get_marker() == "*"]
    best = result.best()["boyan"].setting
    assert (star.get_xdata()[0], star.get_ydata()[0]) == (best["step_size"], best["batch_size"])
    (crosses,) = [line for line in axes.lines if line.get_marker() == "x"]
    assert set(crosses.get_xdata()) == {50.0}
    mesh = axes.collections[0].get_array()
    mean = result.final("mean", "boyan").T
    assert np.allclose(mesh[:, :2], np.minimum(mean[:, :2], mesh.max()), rtol=1e-12)
    assert to_rgb(crosses.get_color())


def test_a_new_figure_has_a_second_map_of_the_floors() -> None:
    grid = {"step_size": [0.05, 0.1], "batch_size": [10, 20]}
    swept = vrtd.sweep(RANDOM, "vrtd", grid, sampling="iid", n_runs=3, n_gradients=50, exact=True)
    above, below = (axes for axes in swept.plot().figure.axes if axes.get_xlabel())
    assert above.get_legend() is not None
    floor = swept.final("floor", "problem-1").T
    mesh = below.collections[0].get_array()
    assert np.allclose(mesh, np.minimum(floor, mesh.max()), rtol=1e-12)
    (axes,) = new_panels(1)
    assert swept.plot(axes) is axes


def test_one_cell_is_drawn_as_a_point() -> None:
    one = vrtd.sweep(RANDOM, "td", {"step_size": [0.1]}, sampling="iid", n_runs=3, n_gradients=50, exact=True)
    marks = {line.get_marker(): line.get_ydata().tolist() for line in one.plot().lines if len(line.get_xdata())}
    assert marks["o"] == one.table["mean"].tolist()
    assert marks["_"] == one.table["floor"].tolist()


def test_a_map_has_the_same_cells_whatever_the_order_of_the_values(result: SweepResult) -> None:
    turned = {"batch_size": [50, 20], "step_size": [50.0, 0.01, 0.1]}
    other = vrtd.sweep({"boyan": "boyan_chain"}, vrtd.VRTD, turned, **SIZE)
    mesh = other.plot().collections[0].get_array()
    assert np.array_equal(mesh, result.plot(problem="boyan").collections[0].get_array().T)


def test_figures_that_cannot_be_drawn(result: SweepResult) -> None:
    text = vrtd.sweep("boyan_chain", "td", {"average": [True, False]}, n_runs=2, n_gradients=10)
    with pytest.raises(InvalidInputError, match="A figure needs a field with numbers, but the grid has average"):
        text.plot()
    with pytest.raises(InvalidInputError, match="x must be one of 'step_size', 'batch_size', but got 'size'"):
        result.plot(x="size")
    many = vrtd.sweep("boyan_chain", "td", {"step_size": [0.1], "radius": np.arange(1, 9)}, n_runs=2, n_gradients=10)
    with pytest.raises(InvalidInputError, match="A figure shows at most 7 curves, but the sweep has 8"):
        many.plot(x="step_size")


def test_a_notebook_shows_the_best_settings_and_a_figure(result: SweepResult) -> None:
    assert "12 cells of 5 runs: vrtd on 2 problems" in check_repr(result, 400, 3)
    summary = read_summary(result)
    assert summary.title == "SweepResult"
    assert summary.has_figure
    assert summary.entries["boyan"].startswith("step_size 0.1, batch_size")


def test_as_dict_is_plain_json(result: SweepResult) -> None:
    import json

    plain = json.loads(json.dumps(result.as_dict(), allow_nan=False))
    assert plain["table"]["exact"] == [None] * 12
    assert plain["best"]["squared_error"]["random"]["setting"] == result.best()["random"].setting
    assert plain["out"] is None
