"""The figures of an evaluation: what they leave out, how their axes are named and marked, and the data beside them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Drawing

import vrtd
from tests.helpers.pages import Outline
from vrtd.estimator import evaluate
from vrtd.estimator.effects import Effect
from vrtd.estimator.figures import figures_of
from vrtd.estimator.state_values import LogSummary, StateValues, value_states
from vrtd.features import Column, ObservationSpace
from vrtd.logs import Chunk, Log, from_arrays
from vrtd.logs.log import WrappedLog
from vrtd.tables import parse_csv

N = 2000


class Columns(WrappedLog):
    """A log whose numbers come from columns with these names."""

    def __init__(self, log: Log, *names: str) -> None:
        super().__init__(log)
        self._space = ObservationSpace("columns", tuple(map(Column, names)))

    @property
    def space(self) -> ObservationSpace:
        return self._space

    def chunks(self) -> Iterator[Chunk]:
        return self._log.chunks()


def log_of(x: Any, *names: str) -> Log:
    noise = np.random.default_rng(5).normal(size=len(x))
    return Columns(from_arrays(x, x[:, 0] + noise, np.roll(x, -1, axis=0)), *names)


def uniform(k: int, n: int = N) -> Any:
    return np.random.default_rng(6).random((n, k))


def two_clusters(k: int) -> Any:
    """Observations near 0 and near 10 in each number, and none between."""
    return 10.0 * np.random.default_rng(7).integers(0, 2, (N, 1)) + uniform(k)


def draw(log: Log, features: Any, name: str = "values", states: Any = None) -> tuple[Any, Any, Any]:
    """The axes and the table of a figure, and the values of all states."""
    summary = LogSummary(log)
    evaluator = vrtd.Evaluator("closed_form", features=features, discount=0.5, pilot_rows=500).fit(summary)
    valued = value_states(evaluator, summary, 0.95, states)
    figures, tables = figures_of(valued, (), evaluator.diagnostics_, 0.95, None)
    (figure,) = (each for each in figures if each.name == name)
    axes = Drawing().subplots()
    figure.draw(axes, tables)
    return axes, tables[name], valued


# Where the log has been


@pytest.mark.parametrize("name", ["values", "half-widths"])
def test_a_map_shows_only_what_was_visited(name: str) -> None:
    axes, table, _ = draw(log_of(two_clusters(2), "a", "b"), "polynomial:1", name)
    x, y = np.unique(table["a"]), np.unique(table["b"])
    is_masked = np.ma.getmaskarray(axes.images[0].get_array()).T  # (x, y)
    for i, j, is_empty in ((0, 0, False), (-1, -1, False), (0, -1, True), (len(x) // 2, len(y) // 2, True)):
        assert is_masked[i, j] == is_empty
    assert np.array_equal(is_masked.ravel(), table["n_rows"] == 0)
    assert axes.patch.get_hatch() == "////"
    seen = np.where(table["n_rows"] > 0, table["value" if name == "values" else "half_width"], np.nan)
    assert axes.images[0].get_clim() == (np.nanmin(seen), np.nanmax(seen))  # others do not stretch the colours


def test_a_curve_shows_only_what_was_visited() -> None:
    axes, table, _ = draw(log_of(two_clusters(1), "a"), "polynomial:1")
    line, is_far = axes.lines[0].get_ydata(), (table["a"] > 2.0) & (table["a"] < 9.0)
    assert np.isnan(line[is_far]).all()
    assert np.isfinite(line[(table["a"] < 1.0) | (table["a"] > 10.0)]).all()
    assert (table["n_rows"][is_far] == 0).all()
    assert any(each.get_hatch() == "////" for each in axes.collections)


def test_few_rows_of_many_are_not_a_visit() -> None:
    x = uniform(1, 300_000)
    x[1000] = 2.0
    axes, table, valued = draw(log_of(x, "a"), "polynomial:1")
    assert valued.least_rows == 3
    assert (table["n_rows"][-1], axes.lines[0].get_ydata()[-1]) == (1, pytest.approx(np.nan, nan_ok=True))
    assert np.isfinite(axes.lines[0].get_ydata()[0])


def test_intervals_are_of_states_that_were_visited() -> None:
    _, table, valued = draw(log_of(two_clusters(1), "a"), "polynomial:1", "intervals")
    assert (table["n_rows"] > 0).all()
    assert (valued.table["n_rows"] == 0).any()


def test_states_that_are_asked_for_are_shown() -> None:
    _, table, _ = draw(log_of(two_clusters(1), "a"), "polynomial:1", "intervals", states=[[0.5], [5.0]])
    assert table["a"].tolist() == [0.5, 5.0]
    assert (table["n_rows"] > 0).tolist() == [True, False]


def test_the_captions_say_so(tmp_path: Path) -> None:
    done = evaluate(
        log_of(two_clusters(2), "a", "b"), "closed_form", features="polynomial:1", discount=0.5, out=tmp_path
    )
    text = " ".join(Outline(done.report.read_text()).text.split())
    assert "Hatched: no row of the log is near (within 5.0 % of the range), so values would be extrapolated." in text
    log = log_of(np.arange(N)[:, None] % 5, "a")
    done = evaluate(log, "closed_form", features="polynomial:1", discount=0.5, out=tmp_path)
    assert "no row of the log is near" not in done.report.read_text()


# Axes


def test_a_number_with_two_values_makes_two_lines() -> None:
    x = np.column_stack([uniform(1), np.arange(N) % 2])
    axes, table, _ = draw(log_of(x, "price", "coupon"), "polynomial:1")
    assert np.unique(table["coupon"]).tolist() == [0.0, 1.0]
    assert not axes.images
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["coupon = 0", "coupon = 1"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("price", "value")
    for line, level in zip(axes.lines, (0.0, 1.0), strict=True):
        assert np.array_equal(line.get_ydata(), table["value"][table["coupon"] == level])


def test_whole_numbers_are_points_with_whole_ticks() -> None:
    x = np.random.default_rng(8).choice([0.0, 1.0, 2.0, 5.0], (N, 1))
    axes, table, _ = draw(log_of(x, "n_items"), "polynomial:1")
    assert table["n_items"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert axes.get_xticks().tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert axes.lines[0].get_xdata().tolist() == [0.0, 1.0, 2.0, 5.0]  # the others were never seen
    assert axes.get_xlabel() == "n_items"


@pytest.mark.parametrize("dtype", [bool, np.int8, np.float32])
def test_two_numbers_with_two_values_each_are_four_points(dtype: Any) -> None:
    x = np.random.default_rng(10).integers(0, 2, (N, 2)).astype(dtype)
    x[x[:, 0] > x[:, 1], 0] = 0  # (1, 0) is never seen
    axes, table, _ = draw(log_of(x, "a", "b"), "polynomial:1")
    # each with two lines of caps
    assert [line.get_xdata().round().tolist() for line in axes.lines[::3]] == [[0.0], [0.0, 1.0]]
    assert axes.get_xticks().tolist() == [0.0, 1.0]
    assert axes.get_xlim() == (-0.5, 1.5)
    assert (table["n_rows"] > 0).tolist() == [True, True, False, True]


def test_a_single_observation_is_a_point() -> None:
    axes, _, _ = draw(log_of(np.full((N, 1), 0.25), "a"), vrtd.features.Polynomial(0, low=0, high=1))
    assert axes.lines[0].get_xdata().tolist() == [0.25]


def test_a_map_of_whole_numbers_has_equal_cells_and_whole_ticks() -> None:
    x = np.random.default_rng(9).integers(0, (100, 5), (20_000, 2))
    axes, table, _ = draw(log_of(x, "a", "b"), "polynomial:1")
    sides = np.unique(table["a"]), np.unique(table["b"])
    assert np.unique(np.diff(sides[0])).tolist() == [2]
    assert sides[1].tolist() == axes.get_yticks().tolist() == [0, 1, 2, 3, 4]
    assert (axes.get_xticks() == np.round(axes.get_xticks())).all()


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (("n_items", "coupon"), ("n_items", "coupon")),
        (("value", "low"), ("observation_value", "observation_low")),
        (("value", "observation_value"), ("observation_0", "observation_1")),
        (("only one",), ("observation_0", "observation_1")),
    ],
)
def test_columns_are_named_after_those_of_the_log(names: Any, shown: Any) -> None:
    axes, _, valued = draw(log_of(uniform(2), *names), "polynomial:1")
    assert valued.names == shown
    assert (axes.get_xlabel(), axes.get_ylabel()) == shown


def test_a_name_is_no_formula() -> None:
    axes, _, _ = draw(log_of(uniform(1), r"$\nothing$"), "polynomial:1")
    FigureCanvasAgg(axes.figure).draw()
    assert axes.xaxis.label.get_text() == r"\$\nothing\$"  # which is drawn without the backslashes


@pytest.mark.parametrize("most", [0.00117, 0.0313, 123456.0])
def test_ticks_of_the_errors_do_not_touch(most: float, done: Any) -> None:
    errors = dict.fromkeys(done.diagnostics.errors, most / 3.0) | {"budget": most}
    one = {name: np.ones(1) for name in ("a", "value", "low", "high")}
    valued = StateValues("list", ("a",), one)
    figures, tables = figures_of(valued, (), replace(done.diagnostics, errors=errors), 0.95, None)
    drawing = Drawing(figsize=(5.6, 3.8), layout="constrained")
    canvas, axes = FigureCanvasAgg(drawing), drawing.subplots()
    figures[-1].draw(axes, tables)
    canvas.draw()
    boxes = [label.get_window_extent() for label in axes.get_xticklabels()]
    assert len(boxes) >= 3
    assert all(one.x1 + 4.0 < other.x0 for one, other in pairwise(boxes))


@pytest.mark.parametrize(("names", "rotation"), [(("w0", "w1", "w2"), 0.0), (("a long complaint", *"bcdef"), 30.0)])
def test_names_on_an_axis_do_not_touch(names: tuple[str, ...], rotation: float, done: Any) -> None:
    """One long name is enough to turn them; each then ends below its tick."""
    numbers = {name: np.ones(len(names)) for name in ("value", "low", "high", "n_rows")}
    valued = StateValues("list", ("a",), {"a": np.array(names)} | numbers)
    figures, tables = figures_of(valued, [Effect("a", valued.table)], done.diagnostics, 0.95, None)
    axes = Drawing().subplots()
    figures[0].draw(axes, tables)
    labels = axes.get_xticklabels()
    assert [label.get_text() for label in labels] == [*names]
    assert {label.get_rotation() for label in labels} == {rotation}
    assert {label.get_horizontalalignment() for label in labels} == {"right" if rotation else "center"}


# Boards, and the files


@pytest.fixture(scope="module")
def done(tmp_path_factory: Any) -> Any:
    log = log_of(uniform(3), "a", "b", "c")
    return evaluate(log, "closed_form", features="polynomial:1", discount=0.5, out=tmp_path_factory.mktemp("three"))


@pytest.mark.parametrize(
    ("env", "corners"),
    [("FrozenLake-v1", ("0 S", "5 H", "6 F", "15 G")), ("CliffWalking-v1", ("36 S", "37 C", "46 C", "47 G", "35  "))],
)
def test_a_board_says_what_its_cells_are(env: str, corners: tuple[str, ...], tmp_path: Path) -> None:
    evaluate(env, "closed_form", discount=0.9, n_samples=2000, out=tmp_path)
    svg = (tmp_path / "figures" / "values.svg").read_text()
    for corner in corners:
        assert f">{corner}<" in svg
    assert "the number of the state, S start, " in (tmp_path / "report.html").read_text()


def test_data_beside_the_figures_are_those_of_the_values(done: Any) -> None:
    values = pyarrow.parquet.read_table(done.out / "values.parquet")
    names = [path.stem for path in sorted((done.out / "figures").glob("*.csv"))]
    assert names == ["effect-1", "effect-2", "effect-3", "errors", "extremes", "intervals"]
    for name in ("extremes", "intervals"):
        table = parse_csv((done.out / "figures" / f"{name}.csv").read_bytes())
        columns = ["a", "b", "c", "value", "low", "high"]
        rows = set(zip(*(values[column].to_pylist() for column in columns), strict=True))
        assert set(zip(*(table[column].tolist() for column in columns), strict=True)) <= rows
    assert list(parse_csv((done.out / "figures" / "effect-1.csv").read_bytes())) == [
        "a",
        "value",
        "low",
        "high",
        "n_rows",
    ]


def test_the_page_names_the_best_and_worst_states(done: Any) -> None:
    outline = Outline(done.report.read_text())
    assert [tag for tag, _ in outline.tags].count("tr") == 11
    text = " ".join(outline.text.split())
    assert "States with the largest and the smallest values" in text
    assert "Mean value by a with 95 % intervals" in text
