"""A process that measures cells: `main` is told what to do by a pickled object on its input.

It prints a line for each share of its work that is done. Cells are files, so whatever ends it, what is finished stays.
"""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from vrtd import store
from vrtd.tournament.cell import TournamentSize, measure_cell
from vrtd.tournament.entrants import Entrant
from vrtd.tournament.problems import TournamentProblem

Pair = tuple[TournamentProblem, Entrant]  # what a cell is measured of


def cell_path(folder: Path, pair: Pair) -> Path:
    problem, entrant = pair
    return folder / f"{problem.name}-{entrant.name}.json"


def cell_settings(size: TournamentSize, pair: Pair) -> dict[str, Any]:
    """Return all that decides a cell, beside the code of this package."""
    problem, entrant = pair
    return {**vars(size), "problem": problem.identity or problem.name, "entrant": entrant.identity}


def work(
    size: TournamentSize, pairs: Iterable[tuple[Pair, str]], folder: Path, tell: Callable[[str, str, float], None]
) -> None:
    """Measure cells, each with the digest of its settings, and keep each as soon as it is finished."""
    loaded: dict[str, Any] = {}
    for (problem, entrant), digest in pairs:
        if problem.name not in loaded:
            loaded[problem.name] = problem.load()
        cell = measure_cell(loaded[problem.name], entrant, size, partial(tell, problem.name, entrant.name))
        settings = cell_settings(size, (problem, entrant))
        record = {"digest": digest, "settings": settings, "cell": asdict(cell)}
        store.write_record(record, cell_path(folder, (problem, entrant)))


def main() -> None:
    def tell(problem: str, entrant: str, share: float) -> None:
        print(json.dumps([problem, entrant, share]), flush=True)

    try:
        size, pairs, folder = pickle.load(sys.stdin.buffer)  # noqa: S301 - from the process that started this one
    except (EOFError, pickle.UnpicklingError):
        sys.exit(130)  # the process that waits for this one was interrupted before it had told all
    try:
        work(size, pairs, folder, tell)
    except (KeyboardInterrupt, BrokenPipeError):  # the process that waits for this one is interrupted, or gone
        sys.exit(130)
