"""One cell of a tournament: what is tuned and measured, on which transitions, and its tables."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers.tournament import (
    CELLS,
    SIZE,
    cell,
    loaded,
    some_cells,
)
from vrtd.engine.loop import LANES
from vrtd.errors import InvalidInputError
from vrtd.tables import rows, rows_where
from vrtd.tournament import ENTRANTS, PROBLEMS
from vrtd.tournament import cell as cell_module
from vrtd.tournament.cell import LOST, Cell, measure_cell
from vrtd.tournament.cell import _run as run_cell
from vrtd.tournament.entrants import list_trials
from vrtd.tournament.tables import curve_table, run_table, tuning_table
from vrtd.tournament.tournament import cell_settings


def test_a_cell_is_what_simulate_says() -> None:
    found, here = cell("random-mdp", "td"), loaded("random-mdp")
    for aim, form in here.forms.items():
        mine = found.aims[aim]
        settings = dict(found.settings[mine.chosen])
        settings.pop("name")
        result = vrtd.simulate(
            here.problem, vrtd.TD(**settings), n_runs=4, n_gradients=300, seed=0, metrics=(form,),
            specialise=False, checkpoints=mine.n_gradients,
        )  # fmt: skip
        assert mine.finals == result.values(form.name)[:, -1].tolist()
        assert mine.mean == result.values(form.name).mean(axis=0).tolist()
        assert mine.n_samples[-1] == 300
        assert mine.chosen == int(np.argmin(mine.trial_error))


def test_trials_are_judged_on_the_tuning_seed_alone() -> None:
    found, here = cell("random-mdp", "td"), loaded("random-mdp")
    for aim, form in here.forms.items():
        mine = found.aims[aim]
        settings = dict(found.settings[mine.chosen])
        settings.pop("name")
        finals = vrtd.simulate(
            here.problem, vrtd.TD(**settings), n_runs=2, n_gradients=300, seed=SIZE.tuning_seed,
            metrics=(form,), specialise=False, checkpoints=[1],
        ).values(form.name)[:, -1]  # fmt: skip
        assert mine.trial_error[mine.chosen] == finals.mean()


def test_a_cell_has_the_spread_of_its_runs_and_nothing_lost_at_the_start() -> None:
    for aim in ("equation", "values"):
        mine = cell("baird", "td").aims[aim]
        finals = np.array(mine.finals)
        assert mine.standard_error[-1] == pytest.approx(finals.std(ddof=1) / 2.0)  # 4 runs
        assert mine.n_diverged[0] == 0  # a run is lost at a hundred times the error of the start, not before
        assert mine.n_diverged[-1] == (finals >= LOST * mine.initial_error).sum()


def test_a_data_set_has_the_transitions_that_the_others_see() -> None:
    """Many passes come to the solution of the data set."""
    here, size = loaded("random-mdp"), replace(SIZE, n_passes=4000)
    step = 0.5 / here.squared_norm
    found = run_cell(here, ENTRANTS["svrg"], vrtd.SVRG(step, step), size, 4, 0, 2)
    form = here.forms["equation"]
    exact = [form(vrtd.record(here.problem, 300, seed=0, run=run).theta_star) for run in range(4)]
    np.testing.assert_allclose(found.errors["equation"][:, -1], exact, rtol=1e-6)
    assert set(found.n_samples) == {300}


@pytest.mark.parametrize("entrant", ["td", "vrtd", "ctd", "lstd"])
def test_a_stream_is_used_up_to_the_last_whole_epoch(entrant: str) -> None:
    here, size = loaded("random-mdp"), dataclasses.replace(SIZE, n_samples=1000)
    algorithm = ENTRANTS[entrant].algorithm(**ENTRANTS[entrant].fixed)
    if entrant in ("vrtd", "ctd"):
        algorithm = dataclasses.replace(algorithm, batch_size=16)
    found = run_cell(here, ENTRANTS[entrant], algorithm, size, 2, 0, 3)
    assert 1000 - 16 < found.n_samples[-1] <= 1000


def test_batches_that_grow_take_up_nearly_all_samples() -> None:
    here, size = loaded("random-mdp"), dataclasses.replace(SIZE, n_samples=1000)
    growing = next(list_trials(ENTRANTS["vrtd_growing"], 1, 1000, here.squared_norm)).algorithm
    found = run_cell(here, ENTRANTS["vrtd_growing"], growing, size, 2, 0, 3)
    assert found.n_samples[-1] == 13 * (1 + 8 + 64)
    assert found.n_gradients[-1] == found.n_samples[-1] + 13 + 8 * 13 + 200  # at most a fifth of 1,000 steps an epoch


def test_runs_on_one_data_set_have_different_draws(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_tuning_never_sees_the_reported_runs() -> None:
    seeds = [(size.tuning_seed, size.report_seed) for size in (replace(SIZE, seed=seed) for seed in range(100))]
    assert {tuning for tuning, _ in seeds}.isdisjoint(report for _, report in seeds)
    assert len(set(seeds)) == 100


def test_td_diverges_on_the_star_and_least_squares_does_not() -> None:
    size = replace(SIZE, n_samples=3000)
    td, least_squares = (
        measure_cell(loaded("baird"), ENTRANTS[name], size, lambda share: None).aims["values"]
        for name in ("td", "recursive_lstd")
    )
    assert 2 in td.trial_n_diverged
    assert max(td.trial_error) == pytest.approx(LOST * td.initial_error)
    assert least_squares.mean[-1] < 1e-2 * td.mean[-1]


def test_the_digest_of_a_cell_knows_size_problem_and_algorithm() -> None:
    ours = cell_settings(SIZE, (PROBLEMS["baird"], ENTRANTS["td"]))
    assert ours == {**dataclasses.asdict(SIZE), "problem": "baird", "entrant": "TD()"}
    assert cell_settings(SIZE, (PROBLEMS["baird"], ENTRANTS["td"]), "cuda") == {**ours, "device": "cuda"}
    on_data_set = PROBLEMS["baird"], ENTRANTS["svrg"]
    assert cell_settings(SIZE, on_data_set, "cuda") == cell_settings(SIZE, on_data_set)  # which the CPU measures
    assert len({entrant.identity for entrant in ENTRANTS.values()}) == len(ENTRANTS)


@pytest.mark.parametrize("field", list(asdict(SIZE)))
def test_every_number_of_a_size_is_checked(field: str) -> None:
    with pytest.raises(InvalidInputError, match=f"{field} must be a whole number"):
        replace(SIZE, **{field: -1})


def test_the_size_must_be_a_tournament_size() -> None:
    with pytest.raises(
        InvalidInputError, match=r"size must be a vrtd.tournament.TournamentSize, but got \{'n_runs': 3\}"
    ):
        vrtd.compare(size={"n_runs": 3})  # type: ignore[arg-type]


def test_tables_are_tidy() -> None:
    cells = some_cells()
    curves, tuning, runs = curve_table(cells), tuning_table(cells), run_table(cells)
    assert len(runs["error"]) == (len(CELLS) * 2 + 2) * SIZE.n_runs  # and the own equation of the data sets
    for (problem, entrant), found in cells.items():
        for aim, mine in found.aims.items():
            where = {"problem": problem, "aim": aim, "algorithm": entrant}
            assert rows_where(curves, **where)["mean"].tolist() == mine.mean
            assert rows_where(runs, **where)["error"].tolist() == mine.finals
            tried = rows_where(tuning, **where)
            assert tried["error"].argmin() == tried["is_chosen"].argmax() == mine.chosen
            assert rows_where(tried, is_chosen=1)["is_shown"].tolist() == [1]
    shown = rows(rows_where(tuning_table({("p", "svrg"): cell("random-mdp", "svrg")}), is_shown=1, aim="values"))
    ratios = {json.loads(row["settings"])["step_size_w"] / row["main"] for row in shown}
    assert max(ratios) == pytest.approx(min(ratios))


def test_the_curve_table_has_samples_gradients_and_seconds() -> None:
    found = cell("random-mdp", "svrg")
    mine = found.aims["equation"]
    drawn = rows_where(curve_table({("random-mdp", "svrg"): found}), aim="equation")
    assert drawn["n_samples"].tolist() == mine.n_samples
    assert drawn["n_gradients"].tolist() == mine.n_gradients
    assert drawn["standard_error"].tolist() == mine.standard_error
    np.testing.assert_allclose(drawn["seconds"], np.array(mine.n_gradients) * found.seconds_per_gradient)


def test_the_tuning_table_shows_trials_that_differ_in_the_main_field_alone() -> None:
    found = cell("random-mdp", "svrg")
    made = dataclasses.replace(
        found,
        settings=found.settings[:3],
        combination=[0, 0, 1],
        aims={"values": dataclasses.replace(found.aims["values"], chosen=0)},
    )
    assert tuning_table({("p", "svrg"): made})["is_shown"].tolist() == [True, True, False]


def test_a_cell_is_the_same_after_a_file() -> None:
    for name in ("td", "svrg"):
        found = cell("random-mdp", name)
        assert Cell.from_json(json.loads(json.dumps(dataclasses.asdict(found)))) == found
