"""Summaries for notebooks: well-formed, escaped, legible on light and dark, and without Matplotlib a table only."""

from __future__ import annotations

import re
import sys
import warnings
from typing import Any

import matplotlib
import pytest

from tests.helpers.notebooks import Shown, read_summary
from tests.helpers.pages import HOSTILE
from vrtd.report.notebook import build_summary
from vrtd.report.numbers import describe_settings


class Drawn:
    """Something that shows itself."""

    def __init__(self, text: str = "a curve") -> None:
        self.text = text

    def _repr_html_(self) -> str:
        return build_summary(self.text, {self.text: self.text, "nothing": ""}, self._draw)

    def _draw(self, axes: Any) -> None:
        warnings.warn("a poor figure", stacklevel=1)
        axes.plot([1, 2], [1, 3], label=self.text)
        axes.fill_between([1, 2], [1, 3], alpha=0.2)
        axes.grid(alpha=0.25)
        axes.legend(frameon=False)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_texts_are_escaped_and_empty_ones_left_out(hostile: str) -> None:
    assert read_summary(Drawn(hostile)) == Shown(hostile, {hostile: hostile}, True)


def test_without_matplotlib_there_is_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert read_summary(Drawn()) == Shown("a curve", {"a curve": "a curve"}, False)


def test_a_figure_follows_the_theme_of_the_notebook() -> None:
    """Text and axes have the colour of the notebook's text; no colour is fixed that could vanish."""
    text = Drawn()._repr_html_()
    style = re.search(r'<svg style="([^"]*)"', text)
    assert style is not None
    assert "fill: currentColor;" in style[1]
    variables = dict(re.findall(r"(--\w+): ([^;]+);", style[1]))
    assert (variables["--ink"], variables["--paper"]) == ("currentColor", "none")
    body = text.replace(style[0], "")
    assert set(re.findall(r"var\((--\w+)\)", body)) <= variables.keys()
    assert not re.findall(r"#[0-9a-f]{6}\b", body)


def test_the_reader_s_style_is_left_alone() -> None:
    with matplotlib.rc_context({"lines.linewidth": 9.0}):
        before = dict(matplotlib.rcParams)
        first = Drawn()._repr_html_()
        assert dict(matplotlib.rcParams) == before
    assert first == Drawn()._repr_html_()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"name": "td", "step_size": 0.1, "radius": None, "average": True}, "td, step_size 0.1, average"),
        ({"name": "td", "step_size": "Harmonic(1, 2)", "average": False}, "td, step_size Harmonic(1, 2)"),
        ({"name": "svrg", "step_size": 1 / 3, "n_steps": 12345}, "svrg, step_size 0.3333, n_steps 12,345"),
        ({}, ""),
    ],
)
def test_settings_in_words(settings: dict[str, Any], expected: str) -> None:
    assert describe_settings(settings) == expected
