"""The data of drawn figures: what was drawn is read back from the axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from vrtd.plots import draw_curve, label_part
from vrtd.report.figure_data import View, pack
from vrtd.report.svg import read_view

X = np.array([1.0, 10.0, 100.0])


def series_of(view: View) -> dict[str, Any]:
    return {each.get("name", ""): each for each in view["series"]}


def test_curves_have_their_bands_and_parts_their_curves() -> None:
    def draw(axes: Any) -> None:
        for name, factor in (("a", 1.0), ("b", 3.0)):
            draw_curve(axes, X, factor * X, factor * X - 0.5, factor * X + 2.0, label=name, x_label="n", metric="neu")
        axes.plot(X, 2 * X, ":", color="black", label=label_part("b", "exact"))
        axes.axhline(7.0)
        axes.axvline(3.0)

    view = read_view(draw)
    found = series_of(view)
    for name, factor in (("a", 1.0), ("b", 3.0)):
        assert found[name]["y"] == pytest.approx(factor * X)
        assert found[name]["low"] == pytest.approx(factor * X - 0.5)
        assert found[name]["high"] == pytest.approx(factor * X + 2.0)
    assert (found["exact"]["of"], found["exact"]["colour"], found["exact"]["dash"]) == ("b", "var(--ink)", "1.5 3")
    assert [found[name]["colour"] for name in "ab"] == ["var(--blue)", "var(--vermilion)"]
    assert [(line["axis"], line["at"]) for line in view["lines"]] == [("y", 7.0), ("x", 3.0)]
    assert (view["x"]["label"], view["x"]["log"], view["y"]["log"]) == ("n", False, True)


def test_intervals_of_points_lie_along_their_axis() -> None:
    def draw(axes: Any) -> None:
        axes.errorbar(X, 2 * X, [0.1, np.nan, 0.3], fmt="o", label="up")
        axes.errorbar([1.0], [5.0], xerr=[[0.25], [0.5]], fmt="s", fillstyle="none")
        axes.set_xticks([1.0, 10.0], ["one", r"\$10"])
        axes.set_yticks([])

    view = read_view(draw)
    up, across = view["series"]
    assert (up["name"], up["bars"], up["marker"], "width" in up) == ("up", "y", "o", False)
    assert up["low"] == pytest.approx([1.9, np.nan, 199.7], nan_ok=True)
    assert up["high"] == pytest.approx([2.1, np.nan, 200.3], nan_ok=True)
    assert (across["bars"], across["low"], across["high"], across["hollow"]) == ("x", [0.75], [1.5], True)
    assert view["x"]["ticks"] == [(1, "one"), (10, "$10")]
    assert view["y"]["ticks"] == []


def test_maps_bars_gaps_and_texts() -> None:
    values = np.array([[1.0, np.nan], [3.0, 4.0], [5.0, 6.0]])

    def draw_map(axes: Any) -> None:
        axes.imshow(values, origin="upper", extent=(0.0, 2.0, 0.0, 3.0))
        axes.text(0.5, 1.5, "a\nb", ha="center", va="top")

    shown = read_view(draw_map)["map"]
    assert (shown["shape"], shown["x"], shown["y"], shown["range"]) == ([3, 2], [0.0, 2.0], [3.0, 0.0], [1.0, 6.0])
    assert np.array_equal(shown["values"], values.ravel(), equal_nan=True)
    assert read_view(draw_map)["texts"][0]["text"] == "a\nb"

    def draw_bars(axes: Any) -> None:
        axes.barh(["x", "y"], [2.0, 3.0])
        axes.fill_between([0, 1, 2, 3], 0.0, 1.0, where=[True, True, False, False], facecolor="none", hatch="//")

    view = read_view(draw_bars)
    assert [(bar["at"], bar["value"]) for bar in view["bars"]] == [(0.0, 2.0), (1.0, 3.0)]
    assert view["y"]["ticks"] == [(0, "x"), (1, "y")]
    assert view["gaps"] == [[0.0, 1.0]]


def test_equal_arrays_are_stored_once_and_what_is_not_finite_is_null() -> None:
    views = {
        ("a",): {"series": [{"name": "s", "x": X, "y": X.copy()}]},
        ("b",): {"series": [{"name": "s", "x": np.array([np.inf]), "y": X}]},
    }
    packed = pack(views, ["letter"], ["s"])
    assert packed["arrays"] == [[1, 10, 100], [None]]
    assert [(each["options"], each["series"]) for each in packed["views"]] == [
        (["a"], [{"x": 0, "y": 0, "style": 0}]), (["b"], [{"x": 1, "y": 0, "style": 0}])
    ]  # fmt: skip
    assert (packed["choices"], packed["shown"], packed["styles"]) == (["letter"], ["s"], [{"name": "s"}])
