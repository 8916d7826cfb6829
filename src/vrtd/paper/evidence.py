"""Verdicts on claims, computed from comparisons of intervals with limits.

A comparison states that a quantity, in a condition, must lie between two limits if the claim is true. It holds if the
interval of the quantity lies inside the limits, fails if it lies outside, and is undecided if it contains a limit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from scipy.special import stdtrit

from vrtd.arrays import Floats
from vrtd.checks import check_choice
from vrtd.errors import InvalidInputError
from vrtd.result import Result
from vrtd.tables import Tables
from vrtd.theory import Condition
from vrtd.theory.curves import EXACT

# Probability with which all intervals of all claims cover their quantities together.
CONFIDENCE = 0.99
# Relative accuracy of exact numbers.
ROUNDING = 1e-9
# Limit of inequalities that are not strict, with an allowance for rounding.
AT_MOST_1 = 1.0 + 1e-8
# Largest difference at which two exact numbers count as equal.
SAME = 1e-6
# Relative accuracy of approximate errors of VRTD on a trajectory, up to moderate steps.
APPROXIMATION = 0.1

Basis = Literal["exact", "approximation", "simulated"]
# "finite": a claim on the paper's own experiments. "universal": a claim on every chain, which one exception refutes and
# no number of instances proves. "observation": something seen here that the paper does not claim.
Kind = Literal["finite", "universal", "observation"]
Verdict = Literal[
    "proved", "holds", "no exception found", "holds under conditions", "does not hold", "undecided", "observation"
]


@dataclass(frozen=True)
class NumberCheck:
    """Condition, quantity and limits: if the claim is true then above < quantity < below in this condition."""

    condition: str  # conditions are judged separately, with all comparisons of a condition together
    quantity: str  # in words or symbols, e.g. "error at M = 500 / error at M = 50"
    estimate: float
    standard_error: float = 0.0  # of a mean over runs; 0 for exact values
    n_runs: int = 0  # independent runs behind the estimate; 0 for exact values
    above: float = -math.inf
    below: float = math.inf
    basis: Basis = "exact"
    stated: bool = True  # whether the paper makes the claim for this condition; if not, it is tested beyond the paper
    uncertainty: float | None = None  # largest error of an approximation; None: the share APPROXIMATION of the estimate

    def __post_init__(self) -> None:
        if not (math.isfinite(self.above) or math.isfinite(self.below)):
            raise InvalidInputError(f"The comparison of {self.quantity} has no limit.", "Give above, below or both.")


@dataclass(frozen=True)
class Claim:
    """Statement that can be checked: one of the paper, or our own for an observation."""

    name: str
    place: str
    statement: str  # in our own words
    test: str  # describes the comparisons
    needs: tuple[str, ...]  # names of experiments
    evidence: Callable[[Mapping[str, Tables]], Sequence[NumberCheck]]
    agreement: Callable[[Mapping[str, Tables]], Sequence[NumberCheck]] | None = None  # of simulations with recursions
    kind: Kind = "finite"
    proof: str = ""  # of a universal claim: the heading of docs/what-holds.md under which it is proved
    note: str = ""  # how to interpret the verdict, or what replaces the statement

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, get_args(Kind))
        if self.proof and self.kind != "universal":
            raise InvalidInputError(f"The claim {self.name!r} is {self.kind} and has a proof.", "Leave proof out.")


@dataclass(frozen=True)
class Judged:
    """Comparison with its interval and outcome: True, False, or None if the interval contains a limit."""

    comparison: NumberCheck
    low: float
    high: float
    outcome: bool | None
    more: float | None = None  # factor by which the runs must grow to decide it, if the estimate is right

    @property
    def margin(self) -> float:
        """Distance of the interval from the nearest limit, in units of the limit; negative if it is not inside."""
        c = self.comparison
        gaps = [(c.below - self.high, c.below), (self.low - c.above, c.above)]
        margin = min(gap / (abs(limit) or 1.0) for gap, limit in gaps if math.isfinite(limit))
        return -math.inf if math.isnan(margin) else margin

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON; infinities are strings that `float` reads, and NaN is null."""
        c = self.comparison
        numbers = {"estimate": c.estimate, "standard_error": c.standard_error, "low": self.low, "high": self.high}
        plain = {name: str(x) if math.isinf(x) else None if math.isnan(x) else x for name, x in numbers.items()}
        limits = {"above": c.above, "below": c.below}
        plain |= {name: limit if math.isfinite(limit) else None for name, limit in limits.items()}
        return vars(c) | plain | {"outcome": self.outcome}


@dataclass(frozen=True)
class Finding:
    """Claim with its verdict."""

    claim: Claim
    verdict: Verdict
    where: str  # the conditions under which it holds, fails or was observed, or the reason why it is undecided
    judged: tuple[Judged, ...]
    decisive: Judged  # the comparison that decides the verdict
    runs_needed: int | None  # n_runs of a reproduction that would decide the undecided comparisons

    @property
    def supporting(self) -> Judged | None:
        """Tightest comparison among the conditions under which the claim holds; the decisive one fails.

        None if the verdict does not depend on conditions.
        """
        if self.verdict != "holds under conditions":
            return None
        stated = [each for each in self.judged if each.comparison.stated]
        not_held = {each.comparison.condition for each in stated if not each.outcome}
        return min((e for e in stated if e.comparison.condition not in not_held), key=lambda each: each.margin)

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON."""
        claim, supporting = self.claim, self.supporting
        return {
            "name": claim.name,
            "place": claim.place,
            "statement": claim.statement,
            "test": claim.test,
            "experiments": list(claim.needs),
            "kind": claim.kind,
            "proof": claim.proof,
            "verdict": self.verdict,
            "where": self.where,
            "statistic": self.decisive.as_dict(),
            "supporting": None if supporting is None else supporting.as_dict(),
            "basis": sorted({judged.comparison.basis for judged in self.judged}),
            "confidence": CONFIDENCE,
            "runs_needed": self.runs_needed,
            "note": claim.note,
            "comparisons": [judged.as_dict() for judged in self.judged],
        }


def judge(claim: Claim, tables: Mapping[str, Tables], n_claims: int, n_runs: int = 1000) -> Finding:
    """Judge one of `n_claims` claims, whose intervals hold together with probability CONFIDENCE.

    `n_runs` is the number of runs of the reproduction; a comparison may use only a part of them.
    """
    evidence = list(claim.evidence(tables))
    if not any(comparison.stated for comparison in evidence):
        raise InvalidInputError(
            f"The claim {claim.name!r} has no comparison that the paper states.", "Correct its evidence."
        )
    agreement = list(claim.agreement(tables)) if claim.agreement is not None else []
    level = (1.0 - CONFIDENCE) / n_claims / (len(evidence) + len(agreement))
    judged = tuple(_judge_check(comparison, level) for comparison in evidence)
    # Runs that diverged have no finite error, so they contradict the recursion.
    contradicted = [
        each
        for each in (_judge_check(comparison, level) for comparison in agreement)
        if each.outcome is False or not math.isfinite(each.high - each.low)
    ]
    if contradicted:
        worst = min(contradicted, key=lambda each: each.margin)
        why = f"the simulation contradicts the recursion: {worst.comparison.quantity}, {worst.comparison.condition}"
        return Finding(claim, "observation" if claim.kind == "observation" else "undecided", why, judged, worst, None)
    verdict, where, pool = _observation(judged) if claim.kind == "observation" else _verdict(claim, judged)
    decisive = min(pool, key=lambda each: each.margin)
    open_ = [each.more for each in judged if each.comparison.stated and each.more is not None]
    needed = math.ceil(max(open_) * n_runs) if open_ and verdict != "does not hold" else None
    return Finding(claim, verdict, where, judged, decisive, needed)


def count_verdicts(findings: Iterable[Finding]) -> dict[Verdict, int]:
    """Count the findings with each verdict, in the order of `Verdict`; observations are the last entry.

    >>> list(count_verdicts([]))[-1]
    'observation'
    """
    counts = Counter(finding.verdict for finding in findings)
    return {verdict: counts[verdict] for verdict in get_args(Verdict)}


def _observation(judged: Sequence[Judged]) -> tuple[Verdict, str, Sequence[Judged]]:
    """Return the verdict "observation", the conditions under which it was made, and all comparisons."""
    groups = _by_outcome(judged)
    words = {True: "observed under", False: "not observed under", None: "undecided under"}
    return "observation", _join(*(_list(words[outcome], names) for outcome, names in groups.items())), judged


def _verdict(claim: Claim, judged: Sequence[Judged]) -> tuple[Verdict, str, Sequence[Judged]]:
    """Return the verdict, its conditions, and the comparisons that contain the decisive one."""
    ours = [each for each in judged if each.comparison.stated]
    stated, beyond = _by_outcome(ours), _by_outcome([each for each in judged if not each.comparison.stated])
    fails, open_ = ([each for each in ours if each.outcome is outcome] for outcome in (False, None))
    elsewhere = _list("beyond what is stated, not under", beyond[False])
    failing, rest = _list("fails under", stated[False]), _list("undecided under", stated[None])
    if claim.kind == "universal" and stated[False]:
        return "does not hold", failing, fails
    if not stated[False] and not stated[None]:
        if claim.kind == "universal":
            tested = _list("all that was tested:", [*stated[True], *beyond[True]])
            return "proved" if claim.proof else "no exception found", _join(tested, elsewhere), ours
        return "holds", elsewhere, ours
    if stated[True] and stated[False]:
        return "holds under conditions", _join(*stated[True], _list("not under", stated[False]), rest), fails
    if stated[False] and not stated[None]:
        return "does not hold", _list("though it does under", beyond[True]), fails
    return "undecided", _join(failing, rest), open_


def _by_outcome(judged: Sequence[Judged]) -> dict[bool | None, list[str]]:
    """Group conditions by the outcome of their comparisons; one that fails in part says how many hold."""
    groups: dict[str, list[bool | None]] = {}
    for each in judged:
        groups.setdefault(each.comparison.condition, []).append(each.outcome)
    result: dict[bool | None, list[str]] = {True: [], False: [], None: []}
    for name, outcomes in groups.items():
        held = outcomes.count(True)
        share = f" ({held} of {len(outcomes)} comparisons hold)" if held else ""
        if False in outcomes:
            result[False].append(f"{name}{share}")
        else:
            result[None if None in outcomes else True].append(name)
    return result


def _list(words: str, conditions: Sequence[str]) -> str:
    return f"{words} {_join(*conditions)}" if conditions else ""


def _join(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def _judge_check(c: NumberCheck, level: float) -> Judged:
    low, high = _interval(c, level)
    if math.isnan(low):
        return Judged(c, low, high, None)
    bounded = [(low - c.above, high - c.above)] if c.above > -math.inf else []  # infinite limits are not checked
    bounded += [(c.below - high, c.below - low)] if c.below < math.inf else []
    if all(least > 0.0 for least, _ in bounded):
        return Judged(c, low, high, True)
    if any(most <= 0.0 for _, most in bounded):
        return Judged(c, low, high, False)
    return Judged(c, low, high, None, _more(c, level))


def _interval(c: NumberCheck, level: float) -> tuple[float, float]:
    if math.isinf(c.estimate):  # the time to an event that never happens
        return c.estimate, c.estimate
    if c.n_runs and c.estimate > 0.0:
        # Means of skewed positive quantities, and their ratios. With few runs an interval for the logarithm has its
        # nominal coverage; one for the mean does not, because a low mean comes with a low standard error.
        factor = math.exp(min(_student(c.n_runs, level) * c.standard_error / c.estimate, 700.0))
        return c.estimate / factor, c.estimate * factor
    if c.n_runs:
        half = _student(c.n_runs, level) * c.standard_error
    elif c.basis == "approximation":
        half = APPROXIMATION * abs(c.estimate) if c.uncertainty is None else c.uncertainty
    else:
        half = ROUNDING * abs(c.estimate)
    return c.estimate - half, c.estimate + half


def _more(c: NumberCheck, level: float) -> float | None:
    """Return the factor by which the runs must grow so that the interval no longer contains the limit.

    The estimate is assumed to be right.
    """
    if c.n_runs == 0 or c.estimate <= 0.0 or not 0.0 < c.standard_error < math.inf:
        return None
    distance = min(abs(math.log(limit / c.estimate)) for limit in (c.above, c.below) if 0.0 < limit < math.inf)
    if distance == 0.0:
        return None

    def is_too_long(more: float) -> bool:
        return _student(more * c.n_runs, level) * c.standard_error / c.estimate > distance * math.sqrt(more)

    few, enough = 1.0, 2.0
    while is_too_long(enough):
        few, enough = enough, 2.0 * enough
    for _ in range(30):
        middle = 0.5 * (few + enough)
        few, enough = (middle, enough) if is_too_long(middle) else (few, middle)
    return enough


def _student(n_runs: float, level: float) -> float:
    return -float(stdtrit(n_runs - 1.0, level / 2.0))


def agrees(condition: str, row: Mapping[str, Any]) -> NumberCheck:
    """Compare the `mean` of a row with its `exact` value, given `n_runs` runs and a `standard_error`.

    If the `basis` of the exact value is an approximation, they may differ by the share APPROXIMATION.
    """
    tolerance = APPROXIMATION if row["basis"] == "approximation" else ROUNDING
    return NumberCheck(
        condition, "simulated / expected error", row["mean"] / row["exact"], row["standard_error"] / row["exact"],
        row["n_runs"], 1.0 - tolerance, 1.0 + tolerance, "simulated",
    )  # fmt: skip


def average_runs(values: Floats) -> dict[str, float]:
    """Return the mean of one value per run and its standard error; both are NaN if a run has diverged.

    >>> average_runs(np.array([1.0, 2.0, 3.0, 2.0]))["mean"]
    2.0
    """
    return {"mean": float(values.mean()), "standard_error": float(values.std(ddof=1) / np.sqrt(values.size))}


def paired_ratio(x: Floats, y: Floats) -> tuple[float, float]:
    """Return the ratio of the means of x and y over the same runs, and its standard error to first order.

    >>> paired_ratio(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 6.0]))
    (0.5, 0.0)
    """
    estimate = float(x.mean() / y.mean())
    return estimate, float((x - estimate * y).std(ddof=1) / np.sqrt(x.size) / abs(y.mean()))


def find_basis(expected: Result) -> Basis:
    """Return whether an expected curve is exact."""
    return "exact" if expected.provenance["method"] == EXACT else "approximation"


def are_met(conditions: Iterable[Condition]) -> Literal["yes", "no"]:
    """Say in a table whether all conditions of a statement hold."""
    return "yes" if all(condition.holds for condition in conditions) else "no"


def ratio(x: float, se_x: float, y: float, se_y: float) -> tuple[float, float]:
    """Return x/y and its standard error (to first order, as if x and y were independent)."""
    return x / y, abs(x / y) * math.hypot(se_x / x, se_y / y)
