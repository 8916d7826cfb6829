"""What is in a cell of the tournament, and in the tables, page and text that are made of cells."""

from __future__ import annotations

import copy
import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

import vrtd
from tests.unit.tournament.test_comparison import SIZE, cell, invented, loaded, some, some_cells
from vrtd.cli.compare import _as_text
from vrtd.engine.loop import LANES
from vrtd.errors import InvalidInputError
from vrtd.tables import rows_where
from vrtd.tournament import ENTRANTS, PROBLEMS
from vrtd.tournament import cell as cell_module
from vrtd.tournament.cell import LOST
from vrtd.tournament.cell import _run as run_cell
from vrtd.tournament.comparison import Comparison
from vrtd.tournament.figures import _draw_sensitivity
from vrtd.tournament.page import page
from vrtd.tournament.standings import Advice, Standing, advise, tuned, untuned
from vrtd.tournament.tables import curve_table, tuning_table
from vrtd.tournament.worker import cell_settings

# One cell


def test_trials_are_judged_on_the_tuning_seed_alone() -> None:
    found, here = cell("random-mdp", "td"), loaded("random-mdp")
    for aim, form in here.forms.items():
        mine = found["aims"][aim]
        settings = dict(found["trials"][mine["chosen"]]["settings"])
        settings.pop("name")
        finals = vrtd.simulate(
            here.problem, vrtd.TD(**settings), n_runs=2, n_gradients=300, seed=SIZE.tuning_seed,
            metrics=(form,), specialise=False, checkpoints=[1],
        ).values(form.name)[:, -1]  # fmt: skip
        assert mine["trials"][mine["chosen"]]["error"] == finals.mean()


def test_a_cell_has_the_spread_of_its_runs_and_nothing_lost_at_the_start() -> None:
    for aim in ("equation", "values"):
        mine = cell("baird", "td")["aims"][aim]
        finals = np.array(mine["finals"])
        assert mine["standard_error"][-1] == pytest.approx(finals.std(ddof=1) / 2.0)  # 4 runs
        assert mine["n_diverged"][0] == 0  # a run is lost at a hundred times the error of the start, not before
        assert mine["n_diverged"][-1] == (finals >= LOST * mine["initial_error"]).sum()


@pytest.mark.parametrize("entrant", ["td", "vrtd", "ctd", "lstd"])
def test_a_stream_is_used_up_but_for_an_epoch(entrant: str) -> None:
    here, size = loaded("random-mdp"), dataclasses.replace(SIZE, n_samples=1000)
    algorithm = ENTRANTS[entrant].algorithm(**ENTRANTS[entrant].fixed)
    if entrant in ("vrtd", "ctd"):
        algorithm = dataclasses.replace(algorithm, batch_size=16)
    found = run_cell(here, ENTRANTS[entrant], algorithm, size, 2, 0, 3)
    assert 1000 - 16 < found.n_samples[-1] <= 1000


def test_runs_on_one_data_set_draw_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    here = loaded("random-mdp")
    data, own = cell_module._data_set(here, SIZE.n_samples, 0, 0)
    monkeypatch.setattr(cell_module, "_data_set", lambda *_: (data, own))
    found = run_cell(here, ENTRANTS["saga"], vrtd.SAGA(0.1, 0.1), SIZE, 3, 0, 2)
    assert len(set(found.errors["equation"][:, -1])) == 3


@pytest.mark.parametrize(("entrant", "seconds"), [("td", 6.0 / 4), ("saga", 6.0 / LANES)])
def test_seconds_are_those_of_one_run_in_full_lanes(
    entrant: str, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    def timed(*arguments: Any, **rest: Any) -> vrtd.Result:
        result = vrtd.simulate(*arguments, **rest)
        return dataclasses.replace(result, provenance={**result.provenance, "seconds": 6.0})

    monkeypatch.setattr(cell_module, "simulate", timed)
    found = run_cell(loaded("random-mdp"), ENTRANTS[entrant], ENTRANTS[entrant].algorithm(), SIZE, 4, 0, 2)
    assert found.seconds_per_gradient * found.n_gradients[-1] == pytest.approx(seconds)


def test_named_variants_are_what_their_names_say() -> None:
    made = {name: ENTRANTS[name].algorithm(**ENTRANTS[name].fixed) for name in ("td_averaged", "ctd")}
    assert made["td_averaged"] == vrtd.TD(average=True)
    assert made["ctd"] == vrtd.VRTD(inner="resample", output="average")


def test_aims_are_what_they_say_and_the_star_starts_where_it_is_usual() -> None:
    for name in ("random-mdp", "baird"):
        assert [form.name for form in loaded(name).forms.values()] == ["mspbe", "value_error"]
    assert loaded("baird").theta_0.tolist() == [1, 1, 1, 1, 1, 1, 10, 1]


def test_the_digest_of_a_cell_knows_size_problem_and_algorithm() -> None:
    ours = cell_settings(SIZE, (PROBLEMS["baird"], ENTRANTS["td"]))
    assert ours == {**dataclasses.asdict(SIZE), "problem": "baird", "entrant": "TD()"}
    assert len({entrant.identity for entrant in ENTRANTS.values()}) == len(ENTRANTS)


# Advice


def test_no_tuning_does_not_look_at_the_problem_itself() -> None:
    cells = invented({"random-mdp": [1.0, 3.0], "garnet": [9.0, 1.0]})
    found = {each.entrant: each.n_wins for each in untuned(cells, "equation", ["random-mdp", "garnet"], ["td", "vrtd"])}
    assert found == {"td": 1, "vrtd": 1}  # 3 with the garnet's choice, 9 with the chain's; the other has 5


def test_every_situation_has_its_problems_and_its_algorithms() -> None:
    names, cells = ["td", "recursive_lstd", "svrg"], some_cells()
    advice = advise(cells, some(PROBLEMS, "random-mdp", "baird"), some(ENTRANTS, *names))
    found = {each.situation: each.standings for each in advice}
    for situation, where in (("d² work a sample", "random-mdp"), ("Another policy's data, d² work", "baird")):
        for aim in ("equation", "values"):
            assert found[situation][aim] == tuned(cells, aim, [where], names[:2])


# Tables


def test_curves_know_what_they_took() -> None:
    found = cell("random-mdp", "svrg")
    mine = found["aims"]["equation"]
    drawn = rows_where(curve_table({("random-mdp", "svrg"): found}), aim="equation")
    assert drawn["n_samples"].tolist() == mine["n_samples"]
    assert drawn["n_gradients"].tolist() == mine["n_gradients"]
    assert drawn["standard_error"].tolist() == mine["standard_error"]
    np.testing.assert_allclose(drawn["seconds"], np.array(mine["n_gradients"]) * found["seconds_per_gradient"])


def test_sensitivity_shows_the_main_field_alone() -> None:
    found = cell("random-mdp", "svrg")
    mine = {**found["aims"]["values"], "chosen": 0}
    tried = [{**trial, "combination": i} for trial, i in zip(found["trials"], (0, 0, 1), strict=False)]
    made = {**found, "trials": tried, "aims": {"values": {**mine, "trials": mine["trials"][:3]}}}
    assert tuning_table({("p", "svrg"): made})["is_shown"].tolist() == [True, True, False]


def test_the_ring_is_around_the_chosen_setting() -> None:
    tuning = rows_where(tuning_table({("random-mdp", "td"): cell("random-mdp", "td")}), aim="values")
    axes = Figure().add_subplot()
    _draw_sensitivity({"td": {"label": "td", "color": "#000000"}}, axes, {"tuning": tuning})
    ring = next(line for line in axes.lines if line.get_marker() == "o")
    assert np.asarray(ring.get_xdata()).tolist() == tuning["main"][tuning["is_chosen"]].tolist()


# Page and text


def cells_of(text: str, start: str) -> tuple[list[str], list[list[str]]]:
    """Heads and rows of the first table behind `start`."""
    table = text[text.index("<table>", text.index(start)) :].split("</table>")[0]
    heads = re.findall(r'<th scope="col">(.*?)</th>', table)
    lines = re.findall(r'<tr><th scope="row">.*?</tr>', table)
    return heads, [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", line) for line in lines]


def test_the_page_has_its_numbers_under_their_heads() -> None:
    names, cells = ["td", "recursive_lstd", "svrg"], some_cells()
    overall = {"values": tuned(cells, "values", ["baird"], names)}
    text = page([], overall, cells, {}, some(PROBLEMS, "baird"), some(ENTRANTS, *names), SIZE, {})
    heads, lines = cells_of(text, "<h3>To know the values</h3>")
    assert heads == ["Algorithm", "Needs", "Mean rank", "Baird&#x27;s star"]
    shown = {line[0].split("<")[0]: line[1:] for line in lines}
    assert [shown[name][0] for name in names] == ["stream, d", "stream, d²", "data set, d"]
    assert [line[0].split(">")[2].split("<")[0] for line in lines if line[0].startswith("td")] == ["TD()"]
    for name in names:
        mine = cells["baird", name]["aims"]["values"]
        share = mine["mean"][-1] / mine["initial_error"]
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
        if cells["baird", name]["trials"][cells["baird", name]["aims"]["equation"]["chosen"]]["main"]
        in {pick(trial["main"] for trial in cells["baird", name]["trials"]) for pick in (min, max)}
    ]


def test_losses_are_told_on_the_page_and_in_the_text() -> None:
    cells = copy.deepcopy(some_cells())
    cells["baird", "td"]["aims"]["values"]["n_diverged"][-1] = 3
    names = ["td", "recursive_lstd"]
    overall = {"values": [each._replace(n_lost=7) for each in tuned(cells, "values", ["baird"], names)]}
    advice = [Advice("Some", "reason", {"values": 1}, overall)]
    text = page(advice, overall, cells, {}, some(PROBLEMS, "baird"), some(ENTRANTS, *names), SIZE, {})
    assert "✗ 3 of 4" in text
    assert text.count(" ✗7") == 2
    assert _as_text(Comparison(Path("c"), tuple(advice), overall, {}, {})).count("lost on 7") == 2


@pytest.mark.parametrize(
    ("lost", "told", "words"),
    [
        ((0, 0), (True, True), "not told from it: vrtd"),
        ((0, 1), (True, True), "what is not told from it was lost more often"),
        ((0, 0), (True, False), "ahead of all others"),
    ],
)
def test_the_answer_says_whom_it_is_ahead_of(lost: Any, told: Any, words: str) -> None:
    made = [
        Standing(name, 1.5, 1.0, 2.0, 1, n_lost, is_best)
        for name, n_lost, is_best in zip(("td", "vrtd"), lost, told, strict=True)
    ]
    advice = [Advice("Some", "reason", {"values": 3}, {"values": made})]
    assert words in page(advice, {"values": made}, {}, {}, {}, some(ENTRANTS, "td", "vrtd"), SIZE, {})
    assert words in _as_text(Comparison(Path("c"), tuple(advice), {"values": made}, {}, {}))


# Size


def test_a_size_is_a_size() -> None:
    with pytest.raises(InvalidInputError, match=r"size must be a vrtd.tournament.TournamentSize; got \{'n_runs': 3\}"):
        vrtd.compare(size={"n_runs": 3})  # type: ignore[arg-type]
