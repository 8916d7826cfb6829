"""Selection of the problems and algorithms of a tournament: standard ones by name, and objects of the caller."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from vrtd.algorithms import Algorithm
from vrtd.checks import check_choice
from vrtd.errors import InvalidInputError
from vrtd.tournament.cell import TournamentSize
from vrtd.tournament.entrants import ENTRANTS, Entrant, make_entrant
from vrtd.tournament.problems import PROBLEMS, TournamentProblem, make_problem


def choose_problems(chosen: Any) -> dict[str, TournamentProblem]:
    """Return the chosen problems by name, by default all standard ones."""
    problems = {}
    for name, each in _by_name("a problem", chosen, tuple(PROBLEMS)).items():
        _check_name("a problem", name, r"\w[\w.-]*", "letters, digits, '_', '.' and '-'")
        if not isinstance(each, str):
            problems[name] = make_problem(name, each)
        elif name == each:
            problems[name] = PROBLEMS[each]
        else:
            problems[name] = replace(PROBLEMS[each], name=name, title=name, identity=each)
    return problems


def choose_entrants(chosen: Any, size: TournamentSize) -> dict[str, Entrant]:
    """Return the chosen algorithms by name, by default all standard ones."""
    entrants = {}
    for name, each in _by_name("an algorithm", chosen, tuple(ENTRANTS)).items():
        entrants[name] = replace(ENTRANTS[each], name=name) if isinstance(each, str) else make_entrant(name, each)
        # Without '-', which separates the two names in the file name of a cell.
        _check_name("an algorithm", name, r"\w+", "letters, digits and '_'")
        _check_epoch(entrants[name], size)
    if len(entrants) < 2:
        raise InvalidInputError(
            f"A comparison needs at least two algorithms, but got {', '.join(entrants)}.", "Add another one."
        )
    return entrants


def _by_name(kind: str, chosen: Any, standard: tuple[str, ...]) -> dict[Any, Any]:
    """Return names with the standard names or objects that they stand for; standard ones come first."""
    if isinstance(chosen, Mapping):
        items = tuple(chosen.values())
    else:
        items = tuple(chosen) if isinstance(chosen, Iterable) and not isinstance(chosen, str) else (chosen,)
    items = tuple(check_choice(f"name of {kind}", each, standard) if isinstance(each, str) else each for each in items)
    if isinstance(chosen, Mapping) and chosen:
        return dict(zip(chosen, items, strict=True))
    if not items:
        return {name: name for name in standard}
    asked = {each for each in items if isinstance(each, str)}
    named: dict[Any, Any] = {name: name for name in standard if name in asked}
    counts: Counter[str] = Counter()
    for each in items:
        if not isinstance(each, str):
            prefix = f"{each.name}_" if isinstance(each, Algorithm) else "problem-"
            counts[prefix] += 1
            named[f"{prefix}{counts[prefix]}"] = each
    return named


def _check_name(kind: str, name: Any, pattern: str, letters: str) -> None:
    """Refuse a name that cannot be part of a file name."""
    if not isinstance(name, str) or re.fullmatch(pattern, name) is None:
        raise InvalidInputError(f"The name of {kind} must consist of {letters}, but got {name!r}.", "Rename it.")


def _check_epoch(entrant: Entrant, size: TournamentSize) -> None:
    """Refuse an object whose first epoch needs more samples than a run has."""
    if entrant.given is None or entrant.uses_data_set:
        return
    epoch = entrant.given.epoch("markov", size.n_samples)
    needed = int(epoch.samples_at(np.array(epoch.least_gradients)))
    if needed > size.n_samples:
        raise InvalidInputError(
            f"One epoch of {entrant.given!r} needs {needed:,} samples, but a run has {size.n_samples:,}.",
            "Use a smaller batch or a larger n_samples.",
        )
