"""Who did best, and how sure that is: ranks by the error at the end, with intervals over problems and runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.comparison.cell import LOST
from vrtd.comparison.entrants import ENTRANTS, Entrant
from vrtd.comparison.problems import AIMS, PROBLEMS

__all__ = ["Advice", "Standing", "advise", "standings", "tuned", "untuned"]

Floats = NDArray[np.float64]
Cells = Mapping[tuple[str, str], Mapping[str, Any]]

_RESAMPLES = 2000
_TAILS = (2.5, 97.5)  # percent


class Standing(NamedTuple):
    """An entrant's mean rank over problems, 1 the best, and the interval that holds 95 % of its resamples."""

    entrant: str
    mean_rank: float
    low: float
    high: float
    n_wins: int  # problems on which its mean error is the least
    n_lost: int  # problems on which some run diverged
    is_best: bool  # or not to be told from it: the interval of the difference of their ranks has 0 in it


class Advice(NamedTuple):
    """The answer for one situation: for each aim, who did how well on how many problems, the best first."""

    situation: str
    why: str
    n_problems: Mapping[str, int]
    standings: Mapping[str, list[Standing]]


def standings(errors: Mapping[str, Mapping[str, Floats]], limits: Mapping[str, float]) -> list[Standing]:
    """From `errors[problem][entrant]`, one a run; run i of all entrants saw the same transitions.

    Problems are resampled, and runs within them, all entrants' together. `limits` are the errors of diverged runs.

    >>> found = standings({"p": {"a": np.array([1.0, 2.0]), "b": np.array([3.0, 4.0])}}, {"p": 100.0})
    >>> [(each.entrant, each.mean_rank) for each in found]
    [('a', 1.0), ('b', 2.0)]
    """
    from scipy.stats import rankdata

    rng = np.random.default_rng(0)
    entrants = list(next(iter(errors.values())))
    tables = [np.array([each[entrant] for entrant in entrants]) for each in errors.values()]  # (entrant, run) each
    ranks = np.array([rankdata(runs.mean(axis=1)) for runs in tables])
    resampled = []
    for runs in tables:
        picks = rng.integers(runs.shape[1], size=(_RESAMPLES, runs.shape[1]))
        resampled.append(rankdata(runs[:, picks].mean(axis=2).T, axis=1))
    chosen = rng.integers(len(tables), size=(_RESAMPLES, len(tables)))
    means = np.array(resampled)[chosen, np.arange(_RESAMPLES)[:, None]].mean(axis=1)  # (resample, entrant)
    best = int(ranks.mean(axis=0).argmin())
    low, high = np.percentile(means, _TAILS, axis=0)
    behind, _ = np.percentile(means - means[:, best : best + 1], _TAILS, axis=0)
    lost = np.array([(runs >= limit).any(axis=1) for runs, limit in zip(tables, limits.values(), strict=True)])
    found = [
        Standing(
            entrant, float(ranks[:, i].mean()), float(low[i]), float(high[i]), int((ranks[:, i] == 1).sum()),
            int(lost[:, i].sum()), bool(i == best or behind[i] <= 0.0),
        )
        for i, entrant in enumerate(entrants)
    ]  # fmt: skip
    return sorted(found, key=lambda each: each.mean_rank)


def tuned(cells: Cells, aim: str, problems: Sequence[str], entrants: Sequence[str]) -> list[Standing]:
    """Each with the settings that were best on the problem."""
    errors = {p: {e: np.array(cells[p, e]["aims"][aim]["finals"]) for e in entrants} for p in problems}
    return standings(errors, _limits(cells, aim, problems, entrants))


def untuned(cells: Cells, aim: str, problems: Sequence[str], entrants: Sequence[str]) -> list[Standing]:
    """Each with the settings that were best on the other problems, in units that are common to all problems."""
    errors: dict[str, dict[str, Floats]] = {p: {} for p in problems}
    for entrant in entrants:
        tried = np.array([[trial["error"] for trial in cells[p, entrant]["aims"][aim]["trials"]] for p in problems])
        logs = np.log(np.maximum(tried, np.finfo(float).tiny))
        logs -= logs.min(axis=1, keepdims=True)
        for i, problem in enumerate(problems):
            elsewhere = np.delete(logs, i, axis=0).mean(axis=0)
            errors[problem][entrant] = tried[i, [elsewhere.argmin()]]  # the mean over the runs of the tuning
    return standings(errors, _limits(cells, aim, problems, entrants))


def advise(cells: Cells, problems: Sequence[str], entrants: Sequence[str]) -> list[Advice]:
    """What to use, by situation; a situation that nothing here is about is left out."""
    on_policy = [p for p in problems if not PROBLEMS[p].is_off_policy]
    off_policy = [p for p in problems if PROBLEMS[p].is_off_policy]
    linear, stream = _are(entrants, lambda e: not e.is_quadratic), _are(entrants, lambda e: not e.needs_data_set)
    cases: list[tuple[str, str, Callable[..., list[Standing]], list[str], list[str]]] = [
        ("Few features", "d² work a sample is affordable; one pass", tuned, on_policy, stream),
        ("Many features", "work and memory in proportion to d; one pass", tuned, on_policy, _both(linear, stream)),
        ("A data set to go through often", "work in proportion to d; many passes", tuned, on_policy, linear),
        ("Another policy's data", "importance ratios, any method", tuned, off_policy, list(entrants)),
        ("Another policy's data, many features", "work and memory in proportion to d", tuned, off_policy, linear),
        ("No tuning", "settings from other problems; one pass, any work", untuned, list(problems), stream),
        ("No tuning, many features", "the same, in proportion to d", untuned, list(problems), _both(linear, stream)),
    ]
    advice = []
    for situation, why, rank, where, who in cases:
        with_aim = {aim: [p for p in where if aim in PROBLEMS[p].aims] for aim in AIMS}
        found = {
            aim: rank(cells, aim, some, who)
            for aim, some in with_aim.items()
            if len(who) > 1 and len(some) > (rank is untuned)
        }
        if found:
            advice.append(Advice(situation, why, {aim: len(with_aim[aim]) for aim in found}, found))
    return advice


def _limits(cells: Cells, aim: str, problems: Sequence[str], entrants: Sequence[str]) -> dict[str, float]:
    return {p: LOST * cells[p, entrants[0]]["aims"][aim]["initial_error"] for p in problems}


def _are(entrants: Sequence[str], holds: Callable[[Entrant], bool]) -> list[str]:
    return [name for name in entrants if holds(ENTRANTS[name])]


def _both(left: Sequence[str], right: Sequence[str]) -> list[str]:
    return [name for name in left if name in right]
