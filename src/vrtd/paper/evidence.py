"""From numbers to verdicts: comparisons with intervals, and what follows from them for a claim.

A verdict is computed from comparisons alone. Each says: this quantity, in this condition, must lie between these limits
if the claim is true. Its interval either lies inside, or outside, or contains a limit, and then nothing is decided.
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

# That every interval of every claim covers its quantity.
CONFIDENCE = 0.99
# Exact numbers are right to about this, relative to themselves.
ROUNDING = 1e-9
# Inequalities are not strict, and exact numbers are right to 1e-9.
AT_MOST_1 = 1.0 + 1e-8
# Two exact numbers are the same up to this.
SAME = 1e-6
# Approximate errors of VRTD on a trajectory are within this of the true ones, up to moderate steps.
APPROXIMATION = 0.1

Basis = Literal["exact", "approximation", "simulated"]
# "finite": about the paper's own experiments; "universal": about every chain, so that one exception refutes it and no
# number of instances proves it; "observation": what was seen here and the paper does not say.
Kind = Literal["finite", "universal", "observation"]
Verdict = Literal[
    "proved", "holds", "no exception found", "holds under conditions", "does not hold", "undecided", "observation"
]


@dataclass(frozen=True)
class NumberCheck:
    """If the claim is true then, in this condition, above < quantity < below."""

    condition: str  # conditions are judged one by one; comparisons of one condition stand or fall together
    quantity: str  # in words or symbols, e.g. "error at M = 500 / error at M = 50"
    estimate: float
    standard_error: float = 0.0  # of a mean over runs; 0 for what is exact
    n_runs: int = 0  # independent runs behind it; 0 for what is exact
    above: float = -math.inf
    below: float = math.inf
    basis: Basis = "exact"
    stated: bool = True  # whether the paper makes the claim for this condition, or we ask beyond it
    uncertainty: float | None = None  # by how much an approximation may be off; APPROXIMATION of itself unless given

    def __post_init__(self) -> None:
        if not (math.isfinite(self.above) or math.isfinite(self.below)):
            raise InvalidInputError("a comparison must have a limit", self.quantity, "give above, below or both")


@dataclass(frozen=True)
class Claim:
    """A checkable statement: of the paper, or for an observation our own."""

    name: str
    place: str
    statement: str  # in our own words
    test: str  # what is compared with what
    needs: tuple[str, ...]  # experiments
    evidence: Callable[[Mapping[str, Tables]], Sequence[NumberCheck]]
    agreement: Callable[[Mapping[str, Tables]], Sequence[NumberCheck]] | None = None  # simulation against recursion
    kind: Kind = "finite"
    proof: str = ""  # of a universal claim: the heading of docs/what-holds.md under which it is proved
    note: str = ""  # what to make of it, or what takes its place

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, get_args(Kind))
        if self.proof and self.kind != "universal":
            raise InvalidInputError("only a universal claim can have a proof", self.name, "leave proof out")


@dataclass(frozen=True)
class Judged:
    """A comparison with its interval and what it says: True, False, or None where the interval contains a limit."""

    comparison: NumberCheck
    low: float
    high: float
    outcome: bool | None
    more: float | None = None  # so many times the runs would decide it, if the estimate is right

    @property
    def margin(self) -> float:
        """How far the interval is inside the limits, in units of the limit: negative when it is not."""
        c = self.comparison
        gaps = [(c.below - self.high, c.below), (self.low - c.above, c.above)]
        margin = min(gap / (abs(limit) or 1.0) for gap, limit in gaps if math.isfinite(limit))
        return -math.inf if math.isnan(margin) else margin

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON, which has neither NaN nor infinities; `float` reads the words."""
        c = self.comparison
        numbers = {"estimate": c.estimate, "standard_error": c.standard_error, "low": self.low, "high": self.high}
        plain = {name: str(x) if math.isinf(x) else None if math.isnan(x) else x for name, x in numbers.items()}
        limits = {"above": c.above, "below": c.below}
        plain |= {name: limit if math.isfinite(limit) else None for name, limit in limits.items()}
        return vars(c) | plain | {"outcome": self.outcome}


@dataclass(frozen=True)
class Finding:
    """A claim with its verdict."""

    claim: Claim
    verdict: Verdict
    where: str  # conditions: under which it holds, fails or was observed, or why nothing is decided
    judged: tuple[Judged, ...]
    decisive: Judged  # the comparison on which the verdict turns
    runs_needed: int | None  # of a reproduction, to decide what is open

    @property
    def supporting(self) -> Judged | None:
        """Beside the decisive comparison, which fails, the tightest one of the conditions under which the claim holds.

        None where the verdict does not depend on conditions.
        """
        if self.verdict != "holds under conditions":
            return None
        stated = [each for each in self.judged if each.comparison.stated]
        not_held = {each.comparison.condition for each in stated if not each.outcome}
        return min((e for e in stated if e.comparison.condition not in not_held), key=lambda each: each.margin)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON."""
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
    """The verdict on one claim out of `n_claims`, whose intervals hold together with probability CONFIDENCE.

    `n_runs` are those of the reproduction, of which a comparison may have had a share.
    """
    evidence = list(claim.evidence(tables))
    if not any(comparison.stated for comparison in evidence):
        raise InvalidInputError("a claim must have a comparison that the paper states", claim.name, "see its evidence")
    agreement = list(claim.agreement(tables)) if claim.agreement is not None else []
    level = (1.0 - CONFIDENCE) / n_claims / (len(evidence) + len(agreement))
    judged = tuple(_judge_check(comparison, level) for comparison in evidence)
    # Runs that diverged leave no number, and agree with nothing.
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
    """How many findings have each verdict, in the order of the vocabulary; observations are the last entry.

    >>> list(count_verdicts([]))[-1]
    'observation'
    """
    found = Counter(finding.verdict for finding in findings)
    return {verdict: found[verdict] for verdict in get_args(Verdict)}


def _observation(judged: Sequence[Judged]) -> tuple[Verdict, str, Sequence[Judged]]:
    """An observation is no claim of the paper: it has no other verdict, and the numbers say where it was made."""
    found = _by_outcome(judged)
    words = {True: "observed under", False: "not observed under", None: "undecided under"}
    return "observation", _join(*(_list(words[outcome], names) for outcome, names in found.items())), judged


def _verdict(claim: Claim, judged: Sequence[Judged]) -> tuple[Verdict, str, Sequence[Judged]]:
    """With the conditions it rests on, and the comparisons among which the decisive one is."""
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
    """Conditions by what their comparisons say together; one that fails in part says in which."""
    groups: dict[str, list[bool | None]] = {}
    for each in judged:
        groups.setdefault(each.comparison.condition, []).append(each.outcome)
    found: dict[bool | None, list[str]] = {True: [], False: [], None: []}
    for name, outcomes in groups.items():
        held = outcomes.count(True)
        share = f" ({held} of {len(outcomes)} comparisons hold)" if held else ""
        if False in outcomes:
            found[False].append(f"{name}{share}")
        else:
            found[None if None in outcomes else True].append(name)
    return found


def _list(words: str, conditions: Sequence[str]) -> str:
    return f"{words} {_join(*conditions)}" if conditions else ""


def _join(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def _judge_check(c: NumberCheck, level: float) -> Judged:
    low, high = _interval(c, level)
    if math.isnan(low):
        return Judged(c, low, high, None)
    bounded = [(low - c.above, high - c.above)] if c.above > -math.inf else []  # an infinite limit is none
    bounded += [(c.below - high, c.below - low)] if c.below < math.inf else []
    if all(least > 0.0 for least, _ in bounded):
        return Judged(c, low, high, True)
    if any(most <= 0.0 for _, most in bounded):
        return Judged(c, low, high, False)
    return Judged(c, low, high, None, _more(c, level))


def _interval(c: NumberCheck, level: float) -> tuple[float, float]:
    if math.isinf(c.estimate):  # what is never reached takes infinitely long
        return c.estimate, c.estimate
    if c.n_runs and c.estimate > 0.0:
        # Means of skewed positive quantities, and their ratios: an interval for the logarithm covers at its rate with
        # few runs too, as one about the mean does not, since a mean that is low comes with an error that is.
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
    """How many times the runs would make the interval too short to contain the limit, if the estimate is right."""
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
    """A row with the `mean` of `n_runs` runs, its `standard_error` and the `exact` value: are they the same?

    Where the `basis` of the exact value is an approximation, they may differ by APPROXIMATION.
    """
    tolerance = APPROXIMATION if row["basis"] == "approximation" else ROUNDING
    return NumberCheck(
        condition, "simulated / expected error", row["mean"] / row["exact"], row["standard_error"] / row["exact"],
        row["n_runs"], 1.0 - tolerance, 1.0 + tolerance, "simulated",
    )  # fmt: skip


def average_runs(values: Floats) -> dict[str, float]:
    """The mean of a value a run and its standard error; NaN where a run has diverged, so that it is not hidden.

    >>> average_runs(np.array([1.0, 2.0, 3.0, 2.0]))["mean"]
    2.0
    """
    return {"mean": float(values.mean()), "standard_error": float(values.std(ddof=1) / np.sqrt(values.size))}


def paired_ratio(x: Floats, y: Floats) -> tuple[float, float]:
    """Of the means of x and y over the same runs, and its standard error to first order.

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
    """x/y and its standard error (to first order, as if x and y were independent)."""
    return x / y, abs(x / y) * math.hypot(se_x / x, se_y / y)
