"""A tournament of the caller's own problems and algorithms, beside the standard ones."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest

import vrtd
from tests.helpers.notebooks import check_repr, read_summary
from tests.helpers.tournament import SIZE, cell, invented, loaded, without_seconds
from tests.helpers.toy_simulator import ring
from vrtd.errors import InvalidInputError
from vrtd.problems import LinearProblem, MarkovRewardProcess, random_mdp
from vrtd.tournament import ENTRANTS, Comparison, tournament
from vrtd.tournament.cell import Cell, measure_cell
from vrtd.tournament.entrants import make_entrant
from vrtd.tournament.page import build_page
from vrtd.tournament.problems import make_problem
from vrtd.tournament.selection import choose_entrants, choose_problems
from vrtd.tournament.tournament import cell_settings

TD, VRTD = vrtd.TD(0.05), vrtd.VRTD(0.1, 20)


@cache
def toy() -> vrtd.Simulator:
    return ring(np.random.default_rng(4).random((5, 3)))


def stored(folder: Path, name: str) -> Cell:
    return Cell.from_json(json.loads((folder / "cells" / f"{name}.json").read_text())["cell"])


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: Any) -> Comparison:
    """A named problem and the same as an object; an algorithm that is tuned and two that are not."""
    out = tmp_path_factory.mktemp("c") / "comparison"
    return vrtd.compare([random_mdp(), "random-mdp"], [TD, VRTD, "td"], size=SIZE, out=out)


@pytest.mark.slow
def test_objects_have_names_and_are_on_record(mixed: Comparison) -> None:
    assert mixed.manifest["problems"] == ["random-mdp", "problem-1"]
    assert mixed.manifest["algorithms"] == ["td", "td_1", "vrtd_1"]
    assert mixed.manifest["objects"] == {
        "problem-1": random_mdp().digest, "td_1": f"{TD!r}, not tuned", "vrtd_1": f"{VRTD!r}, not tuned",
    }  # fmt: skip


def test_a_problem_object_is_measured_as_the_same_problem_by_name(mixed: Comparison) -> None:
    for name in ("td", "td_1", "vrtd_1"):
        named, given = (stored(mixed.out, f"{problem}-{name}") for problem in ("random-mdp", "problem-1"))
        assert without_seconds(given) == without_seconds(named)
    assert without_seconds(named) != without_seconds(stored(mixed.out, "problem-1-td"))
    assert without_seconds(stored(mixed.out, "problem-1-td")) == without_seconds(cell("random-mdp", "td"))


def test_an_algorithm_object_has_its_own_settings(mixed: Comparison) -> None:
    found, here = stored(mixed.out, "problem-1-td_1"), loaded("random-mdp")
    assert found.settings == [TD.settings]
    form = here.forms["values"]
    result = vrtd.simulate(
        here.problem, TD, n_runs=4, n_gradients=300, seed=0, metrics=(form,), specialise=False,
        checkpoints=found.aims["values"].n_gradients,
    )  # fmt: skip
    assert found.aims["values"].finals == result.values(form.name)[:, -1].tolist()


def test_page_and_tables_say_what_was_not_tuned(mixed: Comparison) -> None:
    text = mixed.report.read_text()
    assert "Not tuned, because they were given with their settings: td_1, vrtd_1." in text
    assert "<td>step_size 0.0500, average False (not tuned)</td>" in text
    ranks = pyarrow.parquet.read_table(mixed.out / "ranks.parquet").to_pydict()
    assert dict(zip(ranks["algorithm"], ranks["is_tuned"], strict=True)) == {"td": True, "td_1": False, "vrtd_1": False}
    tuning = pyarrow.parquet.read_table(mixed.out / "tuning.parquet").to_pandas()
    assert set(tuning[tuning.is_shown].algorithm) == {"td"}  # one setting has no sensitivity to show
    assert (tuning[tuning.algorithm == "vrtd_1"].groupby(["problem", "aim"]).size() == 1).all()


def test_a_standard_algorithm_under_another_name_is_tuned_and_not_an_object() -> None:
    found = vrtd.compare(["random-mdp"], {"one": "td", "two": "recursive_lstd"}, size=SIZE, out=None)
    assert "Not tuned" not in build_page(found, []).html
    assert found.manifest["objects"] == {}
    assert without_seconds(found.cells["random-mdp", "one"]) == without_seconds(cell("random-mdp", "td"))


def test_a_finished_cell_is_kept_and_another_problem_of_its_name_is_not_mixed_up(tmp_path: Path) -> None:
    """With algorithms of the test's own, so that no process must be started."""

    def measured(problem: Any, *steps: float) -> tuple[dict[str, int], list[float]]:
        entrants = choose_entrants({name: HalfTD(step) for name, step in zip("ab", steps, strict=True)}, SIZE)
        pairs = [
            (each, entrant) for each in choose_problems({"mine": problem}).values() for entrant in entrants.values()
        ]
        cells = tournament.measure(SIZE, pairs, tmp_path, None, 1, None)
        return {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}, cells["mine", "a"].aims[
            "values"
        ].finals

    first, finals = measured(random_mdp(), 0.05, 0.2)
    assert measured(random_mdp(), 0.05, 0.2) == (first, finals)
    third, others = measured(random_mdp(), 0.1, 0.2)
    assert [name for name in first if first[name] != third[name]] == ["mine-a.json"]
    assert others != finals
    fourth, again = measured(random_mdp(seed=1), 0.1, 0.2)
    assert all(third[name] != fourth[name] for name in third)
    assert again != others
    assert len(measured("random-walk-5", 0.1, 0.2)[1]) == 4
    assert measured("boyan-chain", 0.1, 0.2)[1] != measured("random-walk-5", 0.1, 0.2)[1]


def test_without_a_folder_nothing_is_written_and_no_library_for_reports_is_needed(
    mixed: Comparison, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for library in ("matplotlib", "matplotlib.figure", "pyarrow"):
        monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.chdir(tmp_path)
    found = vrtd.compare(["random-mdp"], [HalfTD(0.1), HalfTD(0.2)], size=SIZE, out=None)
    assert list(tmp_path.iterdir()) == []
    assert (found.out, found.report) == (None, None)
    assert [len(found.tables[name]["algorithm"]) for name in ("runs", "ranks")] == [2 * 2 * SIZE.n_runs, 4]
    plain = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert (plain["report"], plain["tables"]) == (None, {})
    assert set(plain["manifest"]) == set(mixed.manifest)


def test_the_name_of_a_standard_problem_does_not_hide_what_it_stands_for() -> None:
    chosen = choose_problems({"garnet": "baird", "baird": random_mdp(), "x": "garnet"})
    assert [problem.identity for problem in chosen.values()] == ["baird", random_mdp().digest, "garnet"]
    assert chosen["garnet"].load().theta_0.tolist() == [1, 1, 1, 1, 1, 1, 10, 1]
    assert cell_settings(SIZE, (chosen["garnet"], ENTRANTS["td"]))["problem"] == "baird"


def test_a_simulator_runs_in_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tournament, "ProcessExecutor", lambda *_: pytest.fail("a process began"))
    shares: list[float] = []
    found = vrtd.compare(
        [toy()], [TD, "svrg"], size=SIZE, out=tmp_path / "c", progress=lambda share, what: shares.append(share)
    )
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    test = vrtd.record(toy(), 100_000, run=2**62, shuffle=False)
    form = vrtd.metrics.METRICS["neu"](test)
    result = vrtd.simulate(toy(), TD, n_runs=4, n_gradients=300, metrics=(form,), specialise=False)
    mine = stored(found.out, "problem-1-td_1").aims["equation"]
    assert mine.finals == result.values("neu")[:, -1].tolist()
    assert mine.initial_error == form(np.zeros(3))
    assert make_problem("x", toy()).load().squared_norm == (test.phi**2).sum(axis=1).max()
    assert list(found.standings) == ["equation"]  # its values are not known


@dataclass(frozen=True)
class HalfTD(vrtd.TD):
    """An algorithm of the caller's, which another process does not have."""

    name = "half_td"

    def params(self) -> Any:
        return vrtd.TD(0.5 * self.step_size, self.radius, self.average).params()


def test_an_algorithm_of_ones_own_runs_in_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tournament, "ProcessExecutor", lambda *_: pytest.fail("a process began"))
    found = vrtd.compare([random_mdp()], [HalfTD(0.1), HalfTD(0.2)], size=SIZE, out=tmp_path / "c")
    assert found.manifest["algorithms"] == ["half_td_1", "half_td_2"]
    mine = stored(found.out, "problem-1-half_td_1").aims["values"].finals
    td = measure_cell(loaded("random-mdp"), make_entrant("td", TD), SIZE, lambda share: None)
    assert mine == pytest.approx(td.aims["values"].finals, rel=1e-12)
    assert not list((found.out / "figures").glob("*step-size*"))  # nobody was tuned


def test_the_code_of_ones_own_algorithm_is_part_of_its_identity() -> None:
    def other(self: Any) -> Any:
        return vrtd.TD(0.25 * self.step_size).params()

    edited = dataclass(frozen=True)(type("HalfTD", (HalfTD,), {"params": other}))
    ours, theirs, same = (make_entrant("x", each).identity for each in (HalfTD(0.1), edited(0.1), HalfTD(0.1)))
    assert ours == same
    assert ours.split("not tuned")[1] != theirs.split("not tuned")[1]


@pytest.mark.slow
def test_both_kinds_of_processes_in_one_tournament(tmp_path: Path) -> None:
    found = vrtd.compare(
        {"ring": toy(), "chain": random_mdp()}, {"own": HalfTD(0.1), "td": TD}, size=SIZE, out=tmp_path / "c"
    )
    assert {path.stem for path in (found.out / "cells").iterdir()} == {"ring-own", "ring-td", "chain-own", "chain-td"}
    assert [each.algorithm for each in found.standings["values"]] == ["own", "td"]
    chain = {name: stored(found.out, f"chain-{name}").aims["values"] for name in ("own", "td")}
    assert chain["own"].finals == pytest.approx(chain["td"].finals, rel=1e-12)


def rows() -> vrtd.Transitions:
    return vrtd.record(random_mdp(), 50)


@pytest.mark.parametrize(
    ("problems", "message"),
    [
        (
            lambda: [rows()],
            "A problem of a comparison must be a name, a LinearProblem or a Simulator, but problem-1 is of type "
            "Transitions. Pass the problem from which transitions are drawn",
        ),
        (lambda: rows(), "problem-1 is of type Transitions"),
        (lambda: {"mine": random_mdp().mrp}, "mine is of type MarkovRewardProcess"),
        (lambda: ["nowhere"], "name of a problem must be one of 'random-mdp'"),
        (lambda: {"mine": "nowhere"}, "name of a problem must be one of 'random-mdp'"),
        (lambda: {"../mine": random_mdp()}, "The name of a problem must consist of letters, digits, '_', '.' and '-'"),
        (lambda: {3: random_mdp()}, "must consist of letters, .*, but got 3. Rename it"),
        (
            lambda: {"mine": LinearProblem(random_mdp().mrp, random_mdp().phi, np.full(50, 0.02))},
            "The state_distribution of a problem must be the stationary one, but mine has another. Build it with",
        ),
        (
            lambda: {"mine": LinearProblem(MarkovRewardProcess(np.full((2, 2), 0.5), [0, 0], 0.9), [[1.0], [2.0]])},
            "Runs start at theta = 0, where an error of mine is already minimal",
        ),
    ],
)
def test_problems_that_are_refused(problems: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        choose_problems(problems())


@pytest.mark.parametrize(
    ("algorithms", "message"),
    [
        (["td", vrtd.TD], "An algorithm of a comparison must be a name or an Algorithm, but got <class 'vrtd"),
        (["td", "nobody"], "name of an algorithm must be one of 'td'"),
        ([TD], r"A comparison needs at least two algorithms, but got td_1. Add another one"),
        ({"a-b": TD, "c": VRTD}, "The name of an algorithm must consist of letters, digits and '_', but got 'a-b'"),
        (
            ["td", vrtd.VRTD(0.1, 400)],
            r"One epoch of VRTD\(.*\) needs 400 samples, but a run has 300. Use a smaller batch",
        ),
    ],
)
def test_algorithms_that_are_refused(algorithms: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        choose_entrants(algorithms, SIZE)


def test_nothing_is_written_for_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="must be a name, a LinearProblem or a Simulator"):
        vrtd.compare([rows()], out=tmp_path / "c")  # type: ignore[list-item]
    assert not (tmp_path / "c").exists()


def test_a_comparison_is_shown_on_three_lines_and_in_notebooks(monkeypatch: Any) -> None:
    cells = invented({"random-mdp": [1.0, 2.0], "baird": [7.0, 9.0]})
    monkeypatch.setattr("vrtd.tournament.comparison.measure", lambda *arguments: cells)
    found = vrtd.compare(["random-mdp", "baird"], ["td", "vrtd"], size=SIZE, out=None)
    assert check_repr(found, 300, 4).splitlines() == [
        "Comparison(2 algorithms on 2 problems, 300 samples)",
        "  To solve the TD equation: td 1.5 [1.0, 2.0], vrtd 1.5 [1.0, 2.0] of 2",
        "  To know the values: td 1.5 [1.0, 2.0], vrtd 1.5 [1.0, 2.0] of 2",
    ]
    shown = read_summary(found)
    assert (shown.title, shown.has_figure) == ("Comparison", True)
    assert list(shown.entries) == ["size", "To solve the TD equation", "To know the values"]
