"""Ranks with their intervals, and the advice that follows from them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from tests.helpers.tournament import (
    cell,
    invented,
    some,
    some_cells,
)
from vrtd.tournament import ENTRANTS, PROBLEMS
from vrtd.tournament.standings import Advice, advise, rank_algorithms, rank_tuned, rank_untuned


def ranked(errors: dict[str, list[float]], lost: dict[str, list[bool]] | None = None) -> dict[str, Any]:
    n = len(next(iter(errors.values())))
    none = dict.fromkeys(errors, [False] * n)
    return {each.algorithm: each for each in rank_algorithms({k: np.array(v) for k, v in errors.items()}, lost or none)}


def test_ranks_and_their_intervals() -> None:
    found = ranked({"good": [1.0, 1.0, 2.0, 1.0], "same": [2.0, 2.0, 1.0, 3.0], "bad": [3.0, 4.0, 5.0, 2.0]})
    assert list(found) == ["good", "same", "bad"]
    ranks = np.array([1.0, 1.0, 2.0, 1.0])
    half = stats.t.isf(0.025, 3) * ranks.std(ddof=1) / 2.0
    assert found["good"][1:5] == pytest.approx((1.25, 1.0, 1.25 + half, 3))
    assert [each.n_wins for each in found.values()] == [3, 1, 0]
    assert sum(each.mean_rank for each in found.values()) == pytest.approx(6.0)
    assert (found["bad"].low, found["bad"].high) == (pytest.approx(2.75 - half), 3.0)


def test_only_what_is_always_worse_is_told_from_the_best() -> None:
    rng = np.random.default_rng(0)
    errors = {name: list(rng.random(9)) for name in "abcd"} | {"bad": [10.0] * 9}
    found = ranked(errors)
    assert [name for name, each in found.items() if not each.is_best] == ["bad"]
    assert all(each.is_best for each in ranked({name: values[:2] for name, values in errors.items()}).values())


@pytest.mark.statistical
def test_equal_algorithms_are_seldom_told_apart() -> None:
    """Twelve that are equally good on eight problems: in a twentieth of all comparisons somebody is wrongly told from
    the best. Of 400, more than 60 would be seen once in 1e13 runs if that rate were 6 %."""
    rng = np.random.default_rng(1)
    wrong = 0
    for _ in range(400):
        table = rng.normal(size=(12, 8)) ** 2
        wrong += not all(each.is_best for each in ranked({str(i): list(row) for i, row in enumerate(table)}).values())
    assert wrong <= 60


def test_errors_that_are_equal_up_to_rounding_share_a_rank() -> None:
    found = ranked({"a": [1.0, 1e-20], "b": [1.0 + 1e-9, 1e-14], "c": [1.0 + 2e-9, 3e-13], "d": [1.1, 1e-3]})
    assert [each.mean_rank for each in found.values()] == [2.0, 2.0, 2.0, 4.0]
    assert [each.n_wins for each in found.values()] == [2, 2, 2, 0]


def test_without_tuning_the_settings_come_from_the_other_problems() -> None:
    cells = invented({"random-mdp": [1.0, 9.0], "garnet": [1.0, 9.0], "boyan-chain": [9.0, 1.0]}, diverged=1)
    names = list(dict.fromkeys(problem for problem, _ in cells))
    found = {each.algorithm: each for each in rank_untuned(cells, "equation", names, ["td", "vrtd"])}
    # On Boyan's chain the others' choice is the wrong one, and it diverges.
    assert {name: (each.n_wins, each.n_lost) for name, each in found.items()} == {"td": (2, 1), "vrtd": (1, 0)}
    best = rank_tuned(cells, "equation", names, ["td", "vrtd"])[0]
    assert (best.algorithm, best.n_wins, best.n_lost) == ("td", 3, 0)


def test_untuned_settings_do_not_depend_on_the_problem_itself() -> None:
    cells = invented({"random-mdp": [1.0, 3.0], "garnet": [9.0, 1.0]})
    found = {
        each.algorithm: each.n_wins
        for each in rank_untuned(cells, "equation", ["random-mdp", "garnet"], ["td", "vrtd"])
    }
    assert found == {"td": 1, "vrtd": 1}  # 3 with the garnet's choice, 9 with the chain's; the other has 5


def test_an_error_that_grows_counts_as_lost_and_makes_no_rival() -> None:
    cells = invented({"random-mdp": [20.0], "garnet": [1.0], "boyan-chain": [1.0], "baird": [20.0]})
    found = rank_tuned(cells, "equation", ["random-mdp", "garnet", "boyan-chain"], ["td", "vrtd"])
    assert {each.algorithm: each.n_lost for each in found} == {"td": 1, "vrtd": 0}
    assert found[0].algorithm == "td"  # on average, and not told from it
    advice = Advice("", "", {"equation": 3}, {"equation": found})
    assert advice.answer("equation").algorithm == "vrtd"
    assert advice.rivals("equation") == []
    alike = Advice("", "", {}, {"values": [each._replace(n_lost=0) for each in found]})
    assert alike.answer("values").algorithm == "td"
    assert [each.algorithm for each in alike.rivals("values")] == ["vrtd"]


def test_advice_leaves_out_situations_without_problems_or_algorithms() -> None:
    found = advise(some_cells(), some(PROBLEMS, "random-mdp", "baird"), some(ENTRANTS, "td", "recursive_lstd", "svrg"))
    assert [each.situation for each in found] == [
        "d² work a sample", "Another policy's data, d² work", "No tuning, d² work"
    ]  # fmt: skip
    first = found[0].standings["equation"]
    assert {each.algorithm for each in first} == {"td", "recursive_lstd"}
    assert found[0].n_problems == {"equation": 1, "values": 1}
    assert all(each.is_best for each in first)  # one problem tells nothing


def test_every_situation_has_its_problems_and_its_algorithms() -> None:
    names, cells = ["td", "recursive_lstd", "svrg"], some_cells()
    advice = advise(cells, some(PROBLEMS, "random-mdp", "baird"), some(ENTRANTS, *names))
    found = {each.situation: each.standings for each in advice}
    for situation, where in (("d² work a sample", "random-mdp"), ("Another policy's data, d² work", "baird")):
        for aim in ("equation", "values"):
            assert found[situation][aim] == rank_tuned(cells, aim, [where], names[:2])


def test_a_data_set_is_for_those_that_come_back_to_it() -> None:
    cells = {("random-mdp", entrant): cell("random-mdp", entrant) for entrant in ("td", "svrg", "saga")}
    found_advice = advise(cells, some(PROBLEMS, "random-mdp"), some(ENTRANTS, "td", "svrg", "saga"))
    advice = {each.situation: each for each in found_advice}
    found = advice["A data set to go through often"].standings
    assert list(found) == ["equation"]
    assert {each.algorithm for each in found["equation"]} == {"svrg", "saga"}
    own = cells["random-mdp", "saga"].aims["rows"]
    assert own.mean[0] == pytest.approx(1.0)
    assert own.mean[-1] < 1.0
