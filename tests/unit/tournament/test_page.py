"""The page, the figures and the text of a comparison."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from tests.helpers.pages import Outline
from tests.helpers.tournament import (
    SIZE,
    cell,
    some,
    some_cells,
)
from vrtd.cli.compare import _as_text
from vrtd.report.figure_data import pack
from vrtd.report.svg import read_view
from vrtd.tables import rows_where
from vrtd.tournament import ENTRANTS, PROBLEMS
from vrtd.tournament.comparison import Comparison
from vrtd.tournament.figures import CHOICES, _draw_sensitivity, choose_styles, error_views, first_shown
from vrtd.tournament.page import build_page
from vrtd.tournament.standings import Advice, Standing, rank_tuned
from vrtd.tournament.tables import make_tables, tuning_table


def test_the_ring_is_around_the_chosen_setting() -> None:
    tuning = rows_where(tuning_table({("random-mdp", "td"): cell("random-mdp", "td")}), aim="values")
    axes = Figure().add_subplot()
    _draw_sensitivity({"td": {"label": "td", "color": "#000000", "linestyle": "-"}}, axes, {"errors": tuning})
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
    text = build_page(comparison(overall, cells, ("baird",), names), []).html
    heads, lines = cells_of(text, "<h3>To know the values</h3>")
    assert heads == ["Algorithm", "Needs", "Mean rank", "Baird&#x27;s star"]
    texts = [[re.sub("<.*?>", "", entry) for entry in line] for line in lines]
    shown = {line[0].split()[0]: line[1:] for line in texts}
    assert [shown[name][0] for name in names] == ["stream, d", "stream, d²", "data set, d"]
    assert [line[0].split() for line in texts if line[0].startswith("td")] == [["td", "TD()"]]
    for name in names:
        mine = cells["baird", name].aims["values"]
        share = mine.mean[-1] / mine.initial_error
        assert shown[name][2].startswith("✗") == (share > 1.0)
        if 0.01 < share < 1.0:
            assert float(shown[name][2]) == pytest.approx(share, rel=0.06)
    heads, lines = cells_of(text, '<h2 id="settings">')
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
    text = build_page(found, []).html
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
    assert words in build_page(found, []).html
    assert words in _as_text(found)


def test_a_choice_that_has_not_the_best_rank_gives_its_reason() -> None:
    made = [Standing("td", 1.2, 1.0, 2.0, 1, 2, True), Standing("vrtd", 1.8, 1.0, 2.0, 1, 0, True)]
    found = comparison(
        {"values": made}, {}, (), ("td", "vrtd"), Advice("Some", "reason", {"values": 3}, {"values": made})
    )
    reason = (
        "chosen because it diverged on 0 of 3 problems; tied algorithms with a better rank diverged on more: "
        "td (rank 1.2, on 2)"
    )
    text = Outline(build_page(found, []).html).text
    assert reason in text
    assert reason in _as_text(found)
    assert "Where VRTD stands by mean rank, to know the values: vrtd 2 of 2." in text
    assert found.advice[0]._replace(standings={"values": made[1:]}).describe_choice("values") == ""


def test_an_algorithm_has_one_style_and_the_first_ones_differ_in_colour() -> None:
    names = list(ENTRANTS)
    standings = {aim: [Standing(name, 1.0, 1.0, 1.0, 1, 0, True) for name in names[::step]] for aim, step in AIMS_STEPS}
    styles = choose_styles(standings)
    assert len({(style["color"], style["linestyle"]) for style in styles.values()}) == len(names) == len(styles)
    assert list(styles)[:2] == ["td", "vrtd"]
    assert len({styles[name]["color"] for name in first_shown(styles)}) == 7


AIMS_STEPS = (("equation", 1), ("values", -1))


def test_the_reader_chooses_among_all_views_of_one_figure() -> None:
    cells, names, problems = some_cells(), ["td", "recursive_lstd", "svrg"], ("random-mdp", "baird")
    overall = {aim: rank_tuned(cells, aim, problems, names) for aim in ("equation", "values")}
    tables, styles = make_tables(cells, overall, some(ENTRANTS, *names)), choose_styles(overall)
    views = list(error_views(tables, some(PROBLEMS, *problems), styles))
    assert len({view.choice for view in views}) == len(views)
    against = [choice[2] for choice in (view.choice for view in views) if choice[0] == "Baird's star"]
    assert against == [*(2 * ["samples", "pseudo-gradients", *SECONDS, "step size, or ridge"]), "pseudo-gradients"]
    plot = pack({view.choice: read_view(view.draw_table) for view in views}, CHOICES, ["td"])
    for view, packed in zip(views, plot["views"], strict=True):
        assert packed["options"] == list(view.choice)
        for series in packed["series"]:
            style = plot["styles"][series["style"]]
            if style.get("name") in names and not style.get("of") and view.choice[2] == "pseudo-gradients":
                part = rows_where(view.table, algorithm=style["name"])
                keep = part["n_gradients"] > 0
                assert plot["arrays"][series["x"]] == part["n_gradients"][keep].tolist()
                assert plot["arrays"][series["y"]] == pytest.approx(part["mean"][keep], rel=1e-6)
                high = (part["mean"] + 2 * part["standard_error"])[keep]
                assert plot["arrays"][series["high"]] == pytest.approx(high, rel=1e-6)
    assert len({json.dumps(array) for array in plot["arrays"]}) == len(plot["arrays"])  # each is stored once


SECONDS = ["seconds of a core or GPU, for one run"]
