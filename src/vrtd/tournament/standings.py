"""Who did best, and how sure that is: ranks by the mean error at the end, with intervals over problems."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from vrtd.arrays import Floats
from vrtd.tournament.entrants import Entrant
from vrtd.tournament.problems import TournamentProblem

Cells = Mapping[tuple[str, str], Mapping[str, Any]]

_LEVEL = 0.95
_FEWEST_PROBLEMS = 3  # to tell any two apart: of two, equal ranks would look like certainty
# Errors are as good as equal within the first of each other, and below the second of the start's: rounding decides.
_SAME, _NONE = 1e-6, 1e-12


class Standing(NamedTuple):
    """An entrant's mean rank over problems, 1 the best, with its 95 % interval (Student's t over problems)."""

    entrant: str
    mean_rank: float
    low: float
    high: float
    n_wins: int  # problems on which no other is better
    n_lost: int  # problems on which some run diverged, or the mean error grew
    is_best: bool  # or not told from it, at 5 % for all pairs together


class Advice(NamedTuple):
    """The answer for one situation: for each aim, who did how well on how many problems, the best first."""

    situation: str
    why: str
    n_problems: Mapping[str, int]
    standings: Mapping[str, list[Standing]]

    def answer(self, aim: str) -> Standing:
        """Of those that are not told from the best, the one that was lost least often."""
        return min((each for each in self.standings[aim] if each.is_best), key=lambda each: each.n_lost)

    def rivals(self, aim: str) -> list[Standing]:
        """The others of these that were lost no more often."""
        answer = self.answer(aim)
        some = [each for each in self.standings[aim] if each.is_best and each.n_lost <= answer.n_lost]
        return [each for each in some if each is not answer]


def standings(errors: Mapping[str, Floats], lost: Mapping[str, Sequence[bool]]) -> list[Standing]:
    """From mean errors relative to the start's, and whether some run diverged: a row an entrant, a column a problem.

    Two entrants are told apart by the t statistic of the difference of their ranks, with Bonferroni's correction for
    all pairs, because the best is chosen by looking. Problems are taken as a sample of those that one might have.

    >>> found = standings({"a": np.array([1.0, 2.0]), "b": np.array([3.0, 4.0])}, {"a": [False] * 2, "b": [False] * 2})
    >>> [(each.entrant, each.mean_rank, each.is_best) for each in found]
    [('a', 1.0, True), ('b', 2.0, True)]
    """
    from scipy.stats import t

    names = list(errors)
    ranks = _ranks(np.array([errors[name] for name in names]))
    n, p = ranks.shape
    mean, best = ranks.mean(axis=1), int(ranks.mean(axis=1).argmin())
    spread = ranks.std(axis=1, ddof=1) / np.sqrt(p) if p > 1 else np.full(n, np.inf)
    half = t.isf((1.0 - _LEVEL) / 2, max(p - 1, 1)) * spread
    behind = ranks - ranks[best]
    if p >= _FEWEST_PROBLEMS and n > 1:
        least = t.isf((1.0 - _LEVEL) / (n * (n - 1)), p - 1) * behind.std(axis=1, ddof=1) / np.sqrt(p)
        told = behind.mean(axis=1) > least
    else:
        told = np.zeros(n, bool)
    found = [
        Standing(
            name,
            float(mean[i]),
            float(max(mean[i] - half[i], 1.0)),
            float(min(mean[i] + half[i], n)),
            int((ranks[i] == ranks.min(axis=0)).sum()),
            int(sum(lost[name])),
            not told[i],
        )
        for i, name in enumerate(names)
    ]
    return sorted(found, key=lambda each: each.mean_rank)


def _ranks(errors: Floats) -> Floats:
    """(entrant, problem) ranks; what is as good as equal shares the mean of its ranks."""
    from scipy.stats import rankdata

    logs = np.log(np.maximum(errors, _NONE))
    order = np.argsort(logs, axis=0)
    steps = np.diff(np.take_along_axis(logs, order, axis=0), axis=0) > _SAME
    levels = np.concatenate([np.zeros((1, errors.shape[1]), int), np.cumsum(steps, axis=0)])
    equal = np.empty_like(levels)
    np.put_along_axis(equal, order, levels, axis=0)
    return np.asarray(rankdata(equal, axis=0), float)


def tuned(cells: Cells, aim: str, problems: Sequence[str], entrants: Sequence[str]) -> list[Standing]:
    """Each with the settings that were best on the problem, on the reported runs."""
    errors, lost = {}, {}
    for e in entrants:
        found = [cells[p, e]["aims"][aim] for p in problems]
        errors[e] = np.array([each["mean"][-1] / each["initial_error"] for each in found])
        lost[e] = [each["n_diverged"][-1] > 0 or share > 1.0 for each, share in zip(found, errors[e], strict=True)]
    return standings(errors, lost)


def untuned(cells: Cells, aim: str, problems: Sequence[str], entrants: Sequence[str]) -> list[Standing]:
    """Each with the settings that were best on the other problems, on the runs of the tuning."""
    errors, lost = {}, {}
    for e in entrants:
        found = [cells[p, e]["aims"][aim] for p in problems]
        tried = np.array([[trial["error"] / each["initial_error"] for trial in each["trials"]] for each in found])
        logs = np.log(np.maximum(tried, _NONE))
        chosen = [int(np.delete(logs, i, axis=0).mean(axis=0).argmin()) for i in range(len(problems))]
        errors[e] = tried[np.arange(len(problems)), chosen]
        picked = [each["trials"][i]["n_diverged"] for each, i in zip(found, chosen, strict=True)]
        lost[e] = [n_diverged > 0 or share > 1.0 for n_diverged, share in zip(picked, errors[e], strict=True)]
    return standings(errors, lost)


def advise(cells: Cells, problems: Mapping[str, TournamentProblem], entrants: Mapping[str, Entrant]) -> list[Advice]:
    """What to use, by situation; a situation that nothing here is about is left out."""
    on_policy = [name for name, each in problems.items() if not each.is_off_policy]
    off_policy = [name for name, each in problems.items() if each.is_off_policy]
    linear = _are(entrants, lambda e: not e.is_quadratic)
    stream, on_rows = _are(entrants, lambda e: not e.uses_data_set), _are(entrants, lambda e: e.uses_data_set)
    light = [name for name in linear if name in stream]
    both = {"equation": "equation", "values": "values"}
    cases: list[tuple[str, str, Callable[..., list[Standing]], Mapping[str, str], list[str], list[str]]] = [
        ("d² work a sample", "few features; one pass", tuned, both, on_policy, stream),
        ("d work a sample", "many features; one pass", tuned, both, on_policy, light),
        ("A data set to go through often", "its own equation", tuned, {"equation": "rows"}, on_policy, on_rows),
        ("Another policy's data, d² work", "importance ratios; one pass", tuned, both, off_policy, stream),
        ("Another policy's data, d work", "importance ratios; one pass", tuned, both, off_policy, light),
        ("No tuning, d² work", "settings from other problems; one pass", untuned, both, list(problems), stream),
        ("No tuning, d work", "settings from other problems; one pass", untuned, both, list(problems), light),
    ]  # fmt: skip
    advice = []
    for situation, why, rank, columns, where, who in cases:
        found, counts = {}, {}
        for column, aim in columns.items():
            some = [p for p in where if column in problems[p].aims]
            if len(who) > 1 and len(some) > (rank is untuned):
                found[column], counts[column] = rank(cells, aim, some, who), len(some)
        if found:
            advice.append(Advice(situation, why, counts, found))
    return advice


def _are(entrants: Mapping[str, Entrant], holds: Callable[[Entrant], bool]) -> list[str]:
    return [name for name, each in entrants.items() if holds(each)]
