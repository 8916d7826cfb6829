"""Small tournaments: their size, cells that are measured once, and cells that are made up."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import Any

from vrtd.tournament import ENTRANTS, PROBLEMS, TournamentProblem, TournamentSize
from vrtd.tournament.cell import AimResult, Cell, measure_cell
from vrtd.tournament.entrants import Entrant
from vrtd.tournament.problems import Loaded, _load_standard

SIZE = TournamentSize(n_samples=300, n_runs=4, n_trials=6, n_tuning_runs=2, n_passes=3)


CELLS = [(problem, entrant) for problem in ("random-mdp", "baird") for entrant in ("td", "recursive_lstd", "svrg")]


@cache
def loaded(problem: str) -> Loaded:
    return PROBLEMS[problem].load()


@cache
def cell(problem: str, entrant: str, seed: int = 0) -> Cell:
    return measure_cell(loaded(problem), ENTRANTS[entrant], replace(SIZE, seed=seed), lambda share: None)


@cache
def some_cells() -> dict[tuple[str, str], Cell]:
    return {pair: cell(*pair) for pair in CELLS}


def standard(*pairs: tuple[str, str]) -> list[tuple[TournamentProblem, Entrant]]:
    return [(PROBLEMS[problem], ENTRANTS[entrant]) for problem, entrant in pairs]


def some(table: Any, *names: str) -> dict[str, Any]:
    return {name: table[name] for name in names}


# Nowhere is not in the library.
NOWHERE = TournamentProblem("nowhere", "Nowhere", partial(_load_standard, "nowhere"), aims=("equation",))


def without_seconds(found: Cell) -> Cell:
    return replace(found, seconds_per_gradient=0.0)


def invented(errors: dict[str, list[float]], diverged: int = 0) -> dict[tuple[str, str], Cell]:
    """Cells of two algorithms; `errors` of the first one's trials by problem, the other always has 5."""
    cells = {}
    for problem, tried in errors.items():
        for entrant, values in (("td", tried), ("vrtd", [5.0] * len(tried))):
            n = len(values)
            aim = AimResult(
                metric="mspbe", initial_error=10.0, least_error=0.0, chosen=0, trial_error=values,
                trial_standard_error=[0.0] * n, trial_n_diverged=[diverged if x == 9.0 else 0 for x in values],
                n_samples=[0, 1], n_gradients=[0, 1], mean=[10.0, min(values)], standard_error=[0.0, 0.0],
                n_diverged=[0, 0], finals=[min(values)],
            )  # fmt: skip
            settings: list[dict[str, Any]] = [{}] * n
            cells[problem, entrant] = Cell("", [1.0] * n, [0] * n, settings, 1e-9, {"equation": aim, "values": aim})
    return cells
