"""The page, the figures and the text of a comparison."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from tests.helpers.tournament import (
    SIZE,
    cell,
    some,
    some_cells,
)
from vrtd.cli.compare import _as_text
from vrtd.tables import rows_where
from vrtd.tournament import ENTRANTS, PROBLEMS
from vrtd.tournament.comparison import Comparison
from vrtd.tournament.figures import _draw_sensitivity
from vrtd.tournament.page import build_page
from vrtd.tournament.standings import Advice, Standing, rank_tuned
from vrtd.tournament.tables import tuning_table


def test_the_ring_is_around_the_chosen_setting() -> None:
    tuning = rows_where(tuning_table({("random-mdp", "td"): cell("random-mdp", "td")}), aim="values")
    axes = Figure().add_subplot()
    _draw_sensitivity({"td": {"label": "td", "color": "#000000"}}, axes, {"tuning": tuning})
    ring = next(line for line in axes.lines if line.get_marker() == "o")
    assert np.asarray(ring.get_xdata()).tolist() == tuning["main"][tuning["is_chosen"]].tolist()


def cells_of(text: str, start: str) -> tuple[list[str], list[list[str]]]:
    """Heads and rows of the first table behind `start`."""
    table = text[text.index("<table>", text.index(start)) :].split("</table>")[0]
    heads = re.findall(r'<th scope="col">(.*?)</th>', table)
    lines = re.findall(r'<tr><th scope="row">.*?</tr>', table, re.DOTALL)
    return heads, [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", line, re.DOTALL) for line in lines]


def comparison(
    overall: dict[str, list[Standing]], cells: Any, problems: tuple[str, ...], names: Sequence[str], *advice: Advice
) -> Comparison:
    return Comparison(
        out=Path("c"), size=SIZE, problems=some(PROBLEMS, *problems), entrants=some(ENTRANTS, *names), cells=cells,
        advice=advice, standings=overall, tables={}, manifest={},
    )  # fmt: skip


def test_the_page_has_its_numbers_under_their_heads() -> None:
    names, cells = ["td", "recursive_lstd", "svrg"], some_cells()
    overall = {"values": rank_tuned(cells, "values", ["baird"], names)}
    text = build_page(comparison(overall, cells, ("baird",), names), {}).html
    heads, lines = cells_of(text, "<h3>To know the values</h3>")
    assert heads == ["Algorithm", "Needs", "Mean rank", "Baird&#x27;s star"]
    shown = {line[0].split("<")[0]: line[1:] for line in lines}
    assert [shown[name][0] for name in names] == ["stream, d", "stream, d²", "data set, d"]
    assert [line[0].split(">")[2].split("<")[0] for line in lines if line[0].startswith("td")] == ["TD()"]
    for name in names:
        mine = cells["baird", name].aims["values"]
        share = mine.mean[-1] / mine.initial_error
        assert shown[name][2].startswith("✗") == (share > 1.0)
        if 0.01 < share < 1.0:
            assert float(shown[name][2]) == pytest.approx(share, rel=0.06)
    heads, lines = cells_of(text, "Errors, settings and costs of all 3")
    assert heads == ["Algorithm", "Settings that were best", "Error at the end", "Diverged", "ns a pseudo-gradient"]
    for line in lines:
        assert line[1].startswith(("step_size", "trace_decay", "ridge"))
        assert "±" in line[2]
        assert line[3].endswith("of 4")
    at_edges = [line[0] for line in lines if "edge of the grid" in line[1]]
    assert at_edges == [
        name
        for name in (line[0] for line in lines)
        if cells["baird", name].main[cells["baird", name].aims["equation"].chosen]
        in {pick(cells["baird", name].main) for pick in (min, max)}
    ]


def test_lost_problems_are_marked_on_the_page_and_in_the_text() -> None:
    cells = copy.deepcopy(some_cells())
    cells["baird", "td"].aims["values"].n_diverged[-1] = 3
    names = ["td", "recursive_lstd"]
    overall = {"values": [each._replace(n_lost=7) for each in rank_tuned(cells, "values", ["baird"], names)]}
    found = comparison(overall, cells, ("baird",), names, Advice("Some", "reason", {"values": 1}, overall))
    text = build_page(found, {}).html
    assert "✗ 3 of 4" in text
    assert text.count(" ✗7") == 2
    assert _as_text(found).count("diverged on 7") == 2


@pytest.mark.parametrize(
    ("lost", "told", "words"),
    [
        ((0, 0), (True, True), "statistically tied: vrtd"),
        ((0, 1), (True, True), "all statistically tied algorithms diverged on more problems"),
        ((0, 0), (True, False), "ahead of all others"),
    ],
)
def test_the_answer_says_how_it_stands_to_its_rivals(lost: Any, told: Any, words: str) -> None:
    made = [
        Standing(name, 1.5, 1.0, 2.0, 1, n_lost, is_best)
        for name, n_lost, is_best in zip(("td", "vrtd"), lost, told, strict=True)
    ]
    advice = Advice("Some", "reason", {"values": 3}, {"values": made})
    found = comparison({"values": made}, {}, (), ("td", "vrtd"), advice)
    assert words in build_page(found, {}).html
    assert words in _as_text(found)
