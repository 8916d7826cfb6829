"""Ranks of algorithms by their mean final errors, with intervals over problems, and the advice that follows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from vrtd.arrays import Floats
from vrtd.tournament.cell import Cells, standard_error
from vrtd.tournament.entrants import Entrant
from vrtd.tournament.problems import TournamentProblem

_LEVEL = 0.95
_FEWEST_PROBLEMS = 3  # for a test; with two problems, equal ranks would give an interval of length 0
# Errors are equal if they differ by less than _SAME relatively, or are below _NONE of the initial error, because
# rounding decides then.
_SAME, _NONE = 1e-6, 1e-12
_LOST_MORE = "all statistically tied algorithms diverged on more problems"
_N_PASSED = 3  # algorithms with a better rank that are named


class Standing(NamedTuple):
    """Mean rank of an algorithm over problems; rank 1 is the best.

    Attributes
    ----------
    algorithm : str
        Name of the algorithm.
    mean_rank, low, high : float
        Mean rank, and its 95 % interval (Student's t over problems).
    n_wins : int
        Number of problems on which no other algorithm is better.
    n_lost : int
        Number of problems on which a run diverged or the mean error grew.
    is_best : bool
        Whether it is the best, or statistically tied with the best (at 5 % for all pairs together).
    """

    algorithm: str
    mean_rank: float
    low: float
    high: float
    n_wins: int
    n_lost: int
    is_best: bool

    def rank_text(self, width: int = 1) -> str:
        """Return the mean rank and its interval as text."""
        return f"{self.mean_rank:{width}.1f} [{self.low:.1f}, {self.high:.1f}]"


class Advice(NamedTuple):
    """Recommended algorithm for one situation.

    Attributes
    ----------
    situation : str
        The situation.
    why : str
        The reason for it.
    n_problems : mapping of str to int
        Number of problems for each aim.
    standings : mapping of str to list of Standing
        Ranks for each aim, best first.
    """

    situation: str
    why: str
    n_problems: Mapping[str, int]
    standings: Mapping[str, list[Standing]]

    def _candidates(self, aim: str) -> list[Standing]:
        return [standing for standing in self.standings[aim] if standing.is_best]

    def answer(self, aim: str) -> Standing:
        """Return the algorithm with the fewest divergences among those statistically tied with the best."""
        return min(self._candidates(aim), key=lambda standing: standing.n_lost)

    def rivals(self, aim: str) -> list[Standing]:
        """Return the algorithms that are statistically tied with the answer and diverged no more often."""
        answer = self.answer(aim)
        return [each for each in self._candidates(aim) if each is not answer and each.n_lost <= answer.n_lost]

    def describe_choice(self, aim: str) -> str:
        """Return why the answer is not the algorithm with the best rank; empty if it is."""
        answer = self.answer(aim)
        passed = [each for each in self._candidates(aim) if each.mean_rank < answer.mean_rank]
        if not passed:
            return ""
        some = [f"{each.algorithm} (rank {each.mean_rank:.1f}, on {each.n_lost})" for each in passed[:_N_PASSED]]
        more = f" and {len(passed) - _N_PASSED} more" if len(passed) > _N_PASSED else ""
        return (
            f"chosen because it diverged on {answer.n_lost} of {self.n_problems[aim]} problems; tied algorithms with a "
            f"better rank diverged on more: {', '.join(some)}{more}"
        )

    def describe_rivals(self, aim: str, names: str) -> str:
        """Return how the answer compares with the others; `names` are those of its rivals."""
        if names:
            return f"statistically tied: {names}"
        return "ahead of all others" if len(self._candidates(aim)) == 1 else _LOST_MORE


def rank_algorithms(shares: Mapping[str, Floats], diverged: Mapping[str, Sequence[bool]]) -> list[Standing]:
    """Rank algorithms by their mean errors relative to the initial error, one per problem.

    `diverged` says on which problems a run diverged. Two algorithms differ if a t test of the difference of their ranks
    says so, with Bonferroni's correction for all pairs, because the best is selected from the same data. The problems
    are treated as a sample of possible problems.

    >>> shares = {"a": np.array([1.0, 2.0]), "b": np.array([3.0, 4.0])}
    >>> standings = rank_algorithms(shares, {"a": [False] * 2, "b": [False] * 2})
    >>> [(each.algorithm, each.mean_rank, each.is_best) for each in standings]
    [('a', 1.0, True), ('b', 2.0, True)]
    """
    from scipy.stats import t

    ranks = _ranks(np.array(list(shares.values())))
    n, p = ranks.shape
    mean = ranks.mean(axis=1)
    half = t.isf((1.0 - _LEVEL) / 2, p - 1) * standard_error(ranks) if p > 1 else np.full(n, np.inf)
    is_worse = np.zeros(n, bool)
    if p >= _FEWEST_PROBLEMS and n > 1:
        behind = ranks - ranks[mean.argmin()]
        is_worse = behind.mean(axis=1) > t.isf((1.0 - _LEVEL) / (n * (n - 1)), p - 1) * standard_error(behind)
    standings = [
        Standing(
            name,
            float(mean[i]),
            float(max(mean[i] - half[i], 1.0)),
            float(min(mean[i] + half[i], n)),
            int((ranks[i] == ranks.min(axis=0)).sum()),
            int((np.array(diverged[name]) | (share > 1.0)).sum()),
            not is_worse[i],
        )
        for i, (name, share) in enumerate(shares.items())
    ]
    return sorted(standings, key=lambda standing: standing.mean_rank)


def _ranks(errors: Floats) -> Floats:
    """Return ranks by entrant and problem; equal errors share the mean of their ranks."""
    from scipy.stats import rankdata

    logs = np.log(np.maximum(errors, _NONE))
    order = np.argsort(logs, axis=0)
    steps = np.diff(np.take_along_axis(logs, order, axis=0), axis=0) > _SAME
    levels = np.concatenate([np.zeros((1, errors.shape[1]), int), np.cumsum(steps, axis=0)])
    equal = np.empty_like(levels)
    np.put_along_axis(equal, order, levels, axis=0)
    return np.asarray(rankdata(equal, axis=0), float)


def rank_tuned(cells: Cells, aim: str, problems: Sequence[str], entrants: Sequence[str]) -> list[Standing]:
    """Rank algorithms by the reported runs, each with its best settings on the problem."""
    results = {e: [cells[p, e].aims[aim] for p in problems] for e in entrants}
    return rank_algorithms(
        {e: np.array([result.share for result in each]) for e, each in results.items()},
        {e: [result.n_diverged[-1] > 0 for result in each] for e, each in results.items()},
    )


def rank_untuned(cells: Cells, aim: str, problems: Sequence[str], entrants: Sequence[str]) -> list[Standing]:
    """Rank algorithms by the tuning runs, each with its best settings on the other problems."""
    shares, diverged = {}, {}
    for e in entrants:
        results = [cells[p, e].aims[aim] for p in problems]
        tried = np.array([np.array(result.trial_error) / result.initial_error for result in results])
        logs = np.log(np.maximum(tried, _NONE))
        chosen = [int(np.delete(logs, i, axis=0).mean(axis=0).argmin()) for i in range(len(problems))]
        shares[e] = tried[np.arange(len(problems)), chosen]
        diverged[e] = [result.trial_n_diverged[i] > 0 for result, i in zip(results, chosen, strict=True)]
    return rank_algorithms(shares, diverged)


def advise(cells: Cells, problems: Mapping[str, TournamentProblem], entrants: Mapping[str, Entrant]) -> list[Advice]:
    """Return the recommended algorithms by situation, without situations that no problem or algorithm represents."""
    on_policy, off_policy = ([p for p, each in problems.items() if each.is_off_policy is off] for off in (False, True))
    stream, on_rows = ([e for e, each in entrants.items() if each.uses_data_set is on] for on in (False, True))
    light = [e for e in stream if not entrants[e].is_quadratic]
    both = {"equation": "equation", "values": "values"}
    cases: list[tuple[str, str, Callable[..., list[Standing]], Mapping[str, str], list[str], list[str]]] = [
        ("d² work a sample", "few features; one pass", rank_tuned, both, on_policy, stream),
        ("d work a sample", "many features; one pass", rank_tuned, both, on_policy, light),
        ("A data set to go through often", "its own equation", rank_tuned, {"equation": "rows"}, on_policy, on_rows),
        ("Another policy's data, d² work", "importance ratios; one pass", rank_tuned, both, off_policy, stream),
        ("Another policy's data, d work", "importance ratios; one pass", rank_tuned, both, off_policy, light),
        ("No tuning, d² work", "settings from other problems; one pass", rank_untuned, both, list(problems), stream),
        ("No tuning, d work", "settings from other problems; one pass", rank_untuned, both, list(problems), light),
    ]  # fmt: skip
    advice = []
    for situation, why, rank, columns, where, who in cases:
        standings, counts = {}, {}
        for column, aim in columns.items():
            some = [p for p in where if column in problems[p].aims]
            if len(who) > 1 and len(some) > (rank is rank_untuned):
                standings[column], counts[column] = rank(cells, aim, some, who), len(some)
        if standings:
            advice.append(Advice(situation, why, counts, standings))
    return advice
