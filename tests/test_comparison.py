"""The tournament: the same budget and the same transitions for all, whatever the processes; ranks and advice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vrtd
from vrtd.algorithms import REGISTRY
from vrtd.comparison import ENTRANTS, PROBLEMS, Plan, tournament
from vrtd.comparison.cell import LOST, measure_cell
from vrtd.comparison.cell import _run as run_cell
from vrtd.comparison.entrants import main_field, trials
from vrtd.comparison.standings import advise, standings, tuned, untuned
from vrtd.comparison.tables import curve_table, run_table, tuning_table
from vrtd.comparison.worker import cell_path, work
from vrtd.errors import InvalidInputError, VrtdError
from vrtd.experiments.tables import rows, rows_where

PLAN = Plan(n_samples=300, n_runs=4, n_trials=6, n_tuning_runs=2, n_passes=3)
CELLS = [(problem, entrant) for problem in ("random-mdp", "baird") for entrant in ("td", "recursive_lstd", "svrg")]


@cache
def loaded(problem: str) -> Any:
    return PROBLEMS[problem].load()


@cache
def cell(problem: str, entrant: str, seed: int = 0) -> Any:
    return measure_cell(loaded(problem), ENTRANTS[entrant], replace(PLAN, seed=seed), lambda share: None)


@cache
def some_cells() -> dict[tuple[str, str], Any]:
    return {pair: cell(*pair) for pair in CELLS}


def without_seconds(found: Any) -> str:
    return json.dumps({key: value for key, value in found.items() if key != "seconds_per_gradient"})


# Who takes part, and with what


def test_every_algorithm_takes_part() -> None:
    assert {entrant.algorithm for entrant in ENTRANTS.values()} == set(REGISTRY.values())
    assert set(REGISTRY) <= set(ENTRANTS)


@pytest.mark.parametrize("name", ENTRANTS)
@pytest.mark.parametrize("n_trials", [6, 18, 24])
def test_all_try_the_same_number_of_settings_in_the_same_units(name: str, n_trials: int) -> None:
    entrant = ENTRANTS[name]
    ours, others = (list(trials(entrant, n_trials, norm)) for norm in (1.0, 4.0))
    assert n_trials - 2 <= len(ours) <= n_trials
    assert len(set(map(repr, ours))) == len(ours)
    main = main_field(entrant)
    factor = 4.0 if main == "ridge" else 0.25
    for one, other in zip(ours, others, strict=True):
        assert getattr(other, main) == pytest.approx(factor * getattr(one, main), rel=1e-12)
        if "step_size_w" in one.settings:
            assert other.step_size_w == pytest.approx(factor * one.step_size_w, rel=1e-12)
        assert all(getattr(one, key) == value for key, value in entrant.fixed.items())


def test_settings_beyond_the_main_one_are_tried_while_they_leave_a_grid() -> None:
    sizes = {(t.batch_size, t.step_size_w / t.step_size) for t in trials(ENTRANTS["batching_svrg"], 24, 1.0)}
    assert sizes == {(100, 0.25), (100, 1.0), (100, 4.0)}
    assert len({t.trace_decay for t in trials(ENTRANTS["td_lambda"], 24, 1.0)}) == 3
    assert len({t.trace_decay for t in trials(ENTRANTS["td_lambda"], 6, 1.0)}) == 1


def test_kinds_are_told_apart() -> None:
    assert [name for name, each in ENTRANTS.items() if each.is_quadratic] == ["lstd", "recursive_lstd"]
    assert {name for name, each in ENTRANTS.items() if each.needs_data_set} == {
        "primal_dual", "svrg", "batching_svrg", "scsg", "saga",
    }  # fmt: skip


@pytest.mark.parametrize("name", [name for name in PROBLEMS if name != "mountain-car"])
def test_problems_start_with_an_error_and_know_their_units(name: str) -> None:
    problem, found = PROBLEMS[name], loaded(name)
    assert tuple(found.forms) == problem.aims
    assert all(form(found.theta_0) > 2 * form.offset for form in found.forms.values())
    assert found.squared_norm == (found.phi**2).sum(axis=1).max()
    assert found.problem.is_weighted == problem.is_off_policy


def test_mountain_car_is_judged_on_transitions_of_its_own() -> None:
    found = loaded("mountain-car")
    assert tuple(found.forms) == ("equation",)
    assert found.forms["equation"].name == "neu"
    assert found.forms["equation"](found.theta_0) > 10 * found.forms["equation"].offset


# One cell


def test_a_cell_is_what_simulate_says() -> None:
    found, here = cell("random-mdp", "td"), loaded("random-mdp")
    for aim, form in here.forms.items():
        mine = found["aims"][aim]
        settings = dict(found["settings"][mine["chosen"]])
        settings.pop("name")
        result = vrtd.simulate(
            here.problem, here.phi, vrtd.TD(**settings), n_runs=4, n_gradients=300, seed=0, metrics=(form,),
            specialise=False, checkpoints=mine["n_gradients"],
        )  # fmt: skip
        assert mine["finals"] == result.values(form.name)[:, -1].tolist()
        assert mine["mean"] == result.values(form.name).mean(axis=0).tolist()
        assert mine["n_samples"][-1] == 300
        assert mine["chosen"] == int(np.argmin([trial["error"] for trial in mine["trials"]]))


def test_a_data_set_has_the_transitions_that_the_others_see() -> None:
    """Many passes come to the solution of the data set."""
    here, plan = loaded("random-mdp"), replace(PLAN, n_passes=4000)
    step = 0.5 / here.squared_norm
    found = run_cell(here, ENTRANTS["svrg"], vrtd.SVRG(step, step), plan, 4, 0, 2)
    form = here.forms["equation"]
    exact = [form(vrtd.record(here.problem, here.phi, 300, seed=0, run=run).theta_star) for run in range(4)]
    np.testing.assert_allclose(found.errors["equation"][:, -1], exact, rtol=1e-6)
    assert set(found.n_samples) == {300}


def test_tuning_never_sees_the_reported_runs() -> None:
    seeds = [(plan.tuning_seed, plan.report_seed) for plan in (replace(PLAN, seed=seed) for seed in range(100))]
    assert {tuning for tuning, _ in seeds}.isdisjoint(report for _, report in seeds)
    assert len(set(seeds)) == 100


def test_td_loses_its_way_on_the_star_and_least_squares_does_not() -> None:
    plan = replace(PLAN, n_samples=3000)
    td, least_squares = (
        measure_cell(loaded("baird"), ENTRANTS[name], plan, lambda share: None)["aims"]["values"]
        for name in ("td", "recursive_lstd")
    )
    assert any(trial["n_diverged"] == 2 for trial in td["trials"])
    assert max(trial["error"] for trial in td["trials"]) == pytest.approx(LOST * td["initial_error"])
    assert least_squares["mean"][-1] < 1e-2 * td["mean"][-1]


@pytest.mark.parametrize("field", list(asdict(PLAN)))
def test_a_plan_is_checked(field: str) -> None:
    with pytest.raises(InvalidInputError, match=f"{field} must be a whole number"):
        replace(PLAN, **{field: -1})


# Ranks


def test_ranks_and_what_cannot_be_told() -> None:
    rng = np.random.default_rng(0)
    errors = {
        f"p{i}": {"good": 1 + rng.random(50), "same": 1 + rng.random(50), "bad": 3 + rng.random(50)} for i in range(8)
    }
    found = {each.entrant: each for each in standings(errors, dict.fromkeys(errors, 100.0))}
    assert [each.is_best for each in (found["good"], found["same"], found["bad"])] == [True, True, False]
    assert (found["bad"].mean_rank, found["bad"].low, found["bad"].high) == (3.0, 3.0, 3.0)
    assert sum(each.mean_rank for each in found.values()) == pytest.approx(6.0)
    assert found["good"].n_wins + found["same"].n_wins == 8
    assert all(1.0 <= each.low <= each.mean_rank <= each.high <= 2.0 for each in (found["good"], found["same"]))


def test_diverged_runs_are_counted_and_tie() -> None:
    lost = np.full(5, 100.0)
    found = standings({"p": {"a": lost, "b": lost.copy(), "c": np.ones(5)}}, {"p": 100.0})
    assert [(each.entrant, each.mean_rank, each.n_lost) for each in found] == [
        ("c", 1.0, 0),
        ("a", 2.5, 1),
        ("b", 2.5, 1),
    ]


def invented(errors: dict[str, list[float]]) -> dict[tuple[str, str], Any]:
    """Cells of two algorithms; `errors` of the first one's trials by problem, the other always has 5."""
    cells = {}
    for problem, tried in errors.items():
        for entrant, values in (("td", tried), ("vrtd", [5.0] * len(tried))):
            aim = {"trials": [{"error": value} for value in values], "finals": [min(values)], "initial_error": 10.0}
            cells[problem, entrant] = {"aims": {"equation": aim, "values": aim}}
    return cells


def test_without_tuning_the_settings_come_from_the_other_problems() -> None:
    cells = invented({"random-mdp": [1.0, 9.0], "garnet": [1.0, 9.0], "boyan-chain": [9.0, 1.0]})
    names = list(dict.fromkeys(problem for problem, _ in cells))
    found = {each.entrant: each.n_wins for each in untuned(cells, "equation", names, ["td", "vrtd"])}
    assert found == {"td": 0, "vrtd": 1} | {"td": 2}  # on Boyan's chain the others' choice is the wrong one
    assert tuned(cells, "equation", names, ["td", "vrtd"])[0].n_wins == 3


def test_advice_keeps_to_what_there_is() -> None:
    found = advise(some_cells(), ["random-mdp", "baird"], ["td", "recursive_lstd", "svrg"])
    assert [each.situation for each in found] == [
        "Few features", "A data set to go through often", "Another policy's data",
        "Another policy's data, many features", "No tuning",
    ]  # fmt: skip
    first = found[0].standings["equation"]
    assert {each.entrant for each in first} == {"td", "recursive_lstd"}
    assert found[0].n_problems == {"equation": 1, "values": 1}


# Tables


def test_tables_are_tidy() -> None:
    cells = some_cells()
    curves, tuning, runs = curve_table(cells), tuning_table(cells), run_table(cells)
    assert len(runs["error"]) == len(CELLS) * 2 * PLAN.n_runs
    for (problem, entrant), found in cells.items():
        for aim, mine in found["aims"].items():
            where = {"problem": problem, "aim": aim, "algorithm": entrant}
            assert rows_where(curves, **where)["mean"].tolist() == mine["mean"]
            assert rows_where(runs, **where)["error"].tolist() == mine["finals"]
            tried = rows_where(tuning, **where)
            assert tried["error"].argmin() == tried["is_chosen"].argmax() == mine["chosen"]
            assert rows_where(tried, is_chosen=1)["is_shown"].tolist() == [1]
    shown = rows(rows_where(tuning_table({("p", "svrg"): cell("random-mdp", "svrg")}), is_shown=1, aim="values"))
    ratios = {json.loads(row["settings"])["step_size_w"] / row["main"] for row in shown}
    assert max(ratios) == pytest.approx(min(ratios))


# All cells


def measure(folder: Path, plan: Plan = PLAN, processes: int = 2, cells: Any = CELLS) -> Any:
    folder.mkdir(exist_ok=True)
    return tournament.measure(plan, cells, folder, processes, None)


def test_processes_do_not_change_a_bit_and_what_is_there_is_kept(tmp_path: Path) -> None:
    shares: list[float] = []
    folder = tmp_path / "two"
    folder.mkdir()
    found = tournament.measure(PLAN, CELLS, folder, 2, lambda share, what: shares.append(share))
    assert shares[-1] == 1.0
    assert shares == sorted(shares)
    for pair, expected in some_cells().items():
        assert without_seconds(found[pair]) == without_seconds(expected)
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    cell_path(folder, "baird", "td").write_text("damaged")
    again = measure(folder, processes=1)
    after = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert [path.name for path in before if before[path] != after[path]] == ["baird-td.json"]
    assert {pair: without_seconds(each) for pair, each in again.items()} == {
        pair: without_seconds(each) for pair, each in found.items()
    }
    assert tournament.cells_in(replace(PLAN, seed=1), CELLS, folder) == {}


def test_a_process_that_fails_is_an_error(tmp_path: Path, capfd: Any) -> None:
    with pytest.raises(VrtdError, match="every process of the comparison must end well; got exit code 1"):
        measure(tmp_path, cells=[("nowhere", "td")])
    assert "KeyError: 'nowhere'" in capfd.readouterr().err


def test_work_is_told_and_kept_cell_by_cell(tmp_path: Path) -> None:
    told: list[Any] = []

    def stop(*what: Any) -> None:
        told.append(what)
        if what[:2] == ("random-mdp", "vrtd"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work(PLAN, [("random-mdp", "td", "x"), ("random-mdp", "vrtd", "x")], tmp_path, stop)
    assert told[-2:] == [("random-mdp", "td", 1.0), ("random-mdp", "vrtd", pytest.approx(2 / 20))]
    assert [path.name for path in tmp_path.iterdir()] == ["random-mdp-td.json"]


def test_an_interrupted_comparison_goes_on(tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "vrtd", "compare", "--problems", "random-mdp", "--algorithms", "td", "recursive_lstd",
        "--samples", "300", "--runs", "4", "--trials", "6", "--tuning-runs", "2", "--threads", "1", "--quiet",
        "--out", str(tmp_path / "c"),
    ]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while not (cells := tmp_path / "c" / "cells").exists() or not list(cells.glob("*.json")):
        assert process.poll() is None
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGINT)
    _, told = process.communicate()
    if process.returncode:  # unless it was finished first
        assert process.returncode == 130
        assert "the same command goes on from there" in told
    kept = {path: path.stat().st_mtime_ns for path in cells.glob("*.json")}
    assert subprocess.run(command, check=True, capture_output=True).returncode == 0
    assert all(path.stat().st_mtime_ns == when for path, when in kept.items())
    assert (tmp_path / "c" / "report.html").exists()
