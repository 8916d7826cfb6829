"""Verdicts follow from comparisons, and from nothing else."""

import json
import math
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from scipy import stats

from tests.helpers.claims import CLAIM, below, verdict
from tests.helpers.statistics import FAMILY_RATE
from vrtd.errors import InvalidInputError
from vrtd.paper.evidence import (
    CONFIDENCE,
    NumberCheck,
    Verdict,
    agrees,
    count_verdicts,
    paired_ratio,
    ratio,
)

UNIVERSAL = replace(CLAIM, kind="universal")
PROVED = replace(UNIVERSAL, proof="1. A section")


def test_exact_numbers_decide():
    assert verdict(below("a", 0.5), below("b", 0.9)).verdict == "holds"
    failed = verdict(below("a", 1.5), below("b", 1.1))
    assert (failed.verdict, failed.decisive.comparison.condition) == ("does not hold", "a")
    assert verdict(below("a", 1.0)).verdict == "undecided"  # equal up to rounding


def test_conditions_are_judged_one_by_one():
    found = verdict(below("a", 0.5), below("b", 1.5), below("b", 0.5))
    assert (found.verdict, found.where) == ("holds under conditions", "a; not under b (1 of 2 comparisons hold)")
    assert found.decisive.comparison.estimate == 1.5
    assert found.supporting.comparison.condition == "a"  # not the comparison of b that is inside: b fails
    assert verdict(below("a", 0.5), below("b", 1.5), below("c", 0.7)).supporting.comparison.condition == "c"
    assert verdict(below("a", 0.5)).supporting is None


def test_what_goes_beyond_the_paper_does_not_change_its_verdict():
    beyond = below("elsewhere", 1.5, stated=False)
    found = verdict(below("a", 0.5), beyond)
    assert (found.verdict, found.where) == ("holds", "beyond what is stated, not under elsewhere")
    found = verdict(below("a", 1.5), replace(beyond, estimate=0.5))
    assert (found.verdict, found.where) == ("does not hold", "though it does under elsewhere")
    assert verdict(below("a", 0.5), replace(beyond, estimate=0.5)).verdict == "holds"


def test_a_universal_claim_is_refuted_by_one_exception_and_never_proven():
    assert verdict(below("a", 0.5), below("b", 1.5), claim=UNIVERSAL).verdict == "does not hold"
    found = verdict(below("a", 0.5), below("b", 0.6), claim=UNIVERSAL)
    assert (found.verdict, found.where) == ("no exception found", "all that was tested: a; b")
    assert found.decisive.comparison.estimate == 0.6
    assert verdict(below("a", 0.5), below("b", 0.9, 0.2, 100), claim=UNIVERSAL).verdict == "undecided"


def test_a_proof_needs_numbers_without_exception():
    """What is open, or not a number, is not proved either."""
    assert verdict(below("a", 0.5), claim=PROVED).verdict == "proved"
    assert verdict(below("a", 0.5), below("b", 1.5), claim=PROVED).verdict == "does not hold"
    assert verdict(below("a", 0.5), below("b", np.nan), claim=PROVED).verdict == "undecided"
    found = verdict(below("a", 0.5), below("b", 1.5, stated=False), claim=PROVED)
    assert (found.verdict, found.where) == ("proved", "all that was tested: a; beyond what is stated, not under b")
    row = {"mean": 1.2, "standard_error": 0.01, "exact": 1.0, "n_runs": 1000, "basis": "exact"}
    broken = replace(PROVED, agreement=lambda _: [agrees("cell", row)])
    assert verdict(below("a", 0.5), claim=broken).verdict == "undecided"
    for kind in ("finite", "observation"):
        with pytest.raises(InvalidInputError, match=rf"The claim 'name' is {kind} and has a proof\. Leave proof out\."):
            replace(PROVED, kind=kind)
    with pytest.raises(InvalidInputError, match=r"kind must be one of 'finite', 'universal'.*, but got 'exact'"):
        replace(CLAIM, kind="exact")


def test_an_observation_has_no_other_verdict_and_says_where_it_was_made():
    seen, open_ = replace(CLAIM, kind="observation"), below("c", 0.9, 0.1, 100)
    found = verdict(below("a", 0.5), below("b", 1.5), open_, claim=seen)
    assert found.verdict == "observation"
    assert found.where == "observed under a; not observed under b; undecided under c"
    row = {"mean": 1.2, "standard_error": 0.01, "exact": 1.0, "n_runs": 1000, "basis": "exact"}
    found = verdict(below("a", 0.5), claim=replace(seen, agreement=lambda _: [agrees("cell", row)]))
    assert found.verdict == "observation"
    assert "the simulation contradicts the recursion" in found.where


def test_verdicts_are_counted_once_for_all():
    kinds = {"proved": PROVED, "no exception found": UNIVERSAL, "holds": CLAIM}
    seen = replace(CLAIM, kind="observation")
    found = [verdict(below("a", 0.5), claim=claim) for claim in (*kinds.values(), seen, seen)]
    found += [verdict(below("a", 0.5), below("b", 1.5)), verdict(below("a", 1.5)), verdict(below("a", np.nan))]
    assert count_verdicts(found) == dict.fromkeys(get_args(Verdict), 1) | {"observation": 2}
    assert list(count_verdicts([])) == list(get_args(Verdict))


def test_an_interval_that_contains_the_limit_decides_nothing_and_says_how_many_runs_would():
    found = verdict(below("a", 0.9, 0.1, 100))
    factor = np.exp(stats.t.isf((1 - CONFIDENCE) / 2, 99) * 0.1 / 0.9)
    assert found.verdict == "undecided"
    assert (found.judged[0].low, found.judged[0].high) == pytest.approx((0.9 / factor, 0.9 * factor))
    more = found.runs_needed / 2000  # times the runs; this comparison had 100 of the 2,000
    reach = 0.1 / 0.9 / np.sqrt(more) * stats.t.isf((1 - CONFIDENCE) / 2, 100 * more - 1)
    assert reach == pytest.approx(-np.log(0.9), rel=1e-3)
    decided = verdict(below("a", 0.9, 0.1 / np.sqrt(1.02 * more), int(1.02 * more * 100)))
    assert (decided.verdict, decided.runs_needed) == ("holds", None)


def test_undecided_conditions_do_not_hide_decided_ones():
    open_ = below("c", 0.9, 0.1, 100)
    assert verdict(below("a", 0.5), open_).verdict == "undecided"
    assert verdict(below("a", 1.5), open_).verdict == "undecided"
    assert verdict(below("a", 0.5), below("b", 1.5), open_).where == "a; not under b; undecided under c"


def test_the_confidence_is_shared_among_claims_and_comparisons():
    one, many = verdict(below("a", 0.5, 0.1, 50)), verdict(*[below("a", 0.5, 0.1, 50)] * 4, n_claims=25)
    expected = stats.t.isf((1 - CONFIDENCE) / 2 / 100, 49) * 0.1 / 0.5
    assert many.judged[0].high == pytest.approx(0.5 * np.exp(expected))
    assert one.judged[0].high < many.judged[0].high


def test_two_sided_limits_and_infinities():
    inside = NumberCheck("a", "q", 1.0, above=0.9, below=1.1)
    assert verdict(inside).verdict == "holds"
    assert verdict(replace(inside, estimate=0.8)).verdict == "does not hold"
    assert verdict(replace(inside, estimate=np.inf)).verdict == "does not hold"
    assert verdict(replace(inside, estimate=np.nan)).verdict == "undecided"
    for basis in ("exact", "approximation"):
        never = NumberCheck("a", "q", np.inf, above=2.0, basis=basis)
        assert verdict(never).verdict == "holds"
        assert verdict(replace(never, above=-np.inf, below=2.0)).verdict == "does not hold"


def test_a_simulation_that_contradicts_the_recursion_decides_nothing():
    row = {"mean": 1.2, "standard_error": 0.01, "exact": 1.0, "n_runs": 1000, "basis": "exact"}
    claim = replace(CLAIM, agreement=lambda _: [agrees("cell", row)])
    found = verdict(below("a", 0.5), claim=claim)
    assert found.verdict == "undecided"
    assert "the simulation contradicts the recursion" in found.where
    row["mean"] = 1.01
    assert verdict(below("a", 0.5), claim=claim).verdict == "holds"


def test_an_approximation_may_be_off_by_a_tenth_and_an_exact_value_may_not():
    row = {"mean": 1.08, "standard_error": 1e-4, "exact": 1.0, "n_runs": 1000, "basis": "approximation"}
    assert verdict(agrees("cell", row)).verdict == "holds"
    assert verdict(agrees("cell", {**row, "basis": "exact"})).verdict == "does not hold"
    assert verdict(agrees("cell", {**row, "mean": 1.12})).verdict == "does not hold"


@pytest.mark.statistical
def test_intervals_cover_at_their_rate():
    """The share of 4,000 intervals of 99 % that miss the truth, at the suite's rate of false alarms."""
    rng, n = np.random.default_rng(0), 40
    samples = rng.normal(2.0, 1.0, (4000, n))
    means, errors = samples.mean(axis=1), samples.std(axis=1, ddof=1) / np.sqrt(n)
    judged = [verdict(below("a", m, e, n)).judged[0] for m, e in zip(means.tolist(), errors.tolist(), strict=True)]
    missed = sum(not each.low < 2.0 < each.high for each in judged)
    assert stats.binom.sf(missed - 1, 4000, 1 - CONFIDENCE) > FAMILY_RATE / 2
    assert stats.binom.cdf(missed, 4000, 1 - CONFIDENCE) > FAMILY_RATE / 2
    planted = sum(not each.low < 2.2 < each.high for each in judged)
    assert stats.binom.sf(planted - 1, 4000, 1 - CONFIDENCE) < FAMILY_RATE / 2


def test_an_approximation_has_an_interval_of_its_own():
    near = NumberCheck("a", "q", 0.95, below=1.0, basis="approximation")
    assert verdict(near).verdict == "undecided"
    assert verdict(replace(near, estimate=0.9)).verdict == "holds"
    assert verdict(replace(near, uncertainty=0.04)).verdict == "holds"
    assert verdict(near).runs_needed is None


def test_what_fails_beyond_the_statement_does_not_refute_it():
    found = verdict(below("a", 0.5), below("b", 1.5, stated=False), claim=UNIVERSAL)
    assert (found.verdict, found.where) == (
        "no exception found", "all that was tested: a; beyond what is stated, not under b"
    )  # fmt: skip
    assert found.decisive.comparison.condition == "a"


def test_what_is_open_says_so_and_how_many_runs_it_needs():
    open_ = below("c", 0.95, 0.1, 100)
    assert verdict(below("a", 1.5), open_).where == "fails under a; undecided under c"
    found = verdict(below("a", 0.5), below("b", 1.5), open_)
    assert found.verdict == "holds under conditions"
    assert found.runs_needed > verdict(open_).runs_needed > 2000  # three comparisons share the confidence


def test_a_quantity_that_is_not_positive_has_a_plain_interval():
    found = verdict(NumberCheck("a", "q", -0.5, 0.1, 50, below=0.0))
    half = stats.t.isf((1 - CONFIDENCE) / 2, 49) * 0.1
    assert (found.judged[0].low, found.judged[0].high) == pytest.approx((-0.5 - half, -0.5 + half))


def test_ratio_has_the_standard_error_of_the_delta_method():
    estimate, se = ratio(2.0, 0.1, 4.0, 0.4)
    assert (estimate, se) == pytest.approx((0.5, 0.5 * np.hypot(0.05, 0.1)))


def test_plain_json():
    found = verdict(below("a", 0.5), below("b", np.inf)).as_dict()
    assert found["statistic"]["estimate"] == found["statistic"]["high"] == "inf"
    assert found["comparisons"][0]["above"] is None
    assert found["comparisons"][0]["outcome"] is True
    assert (found["verdict"], found["kind"], found["proof"]) == ("holds under conditions", "finite", "")
    assert found["supporting"]["condition"] == "a"
    assert verdict(below("a", np.nan)).as_dict()["statistic"]["estimate"] is None
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["confidence"] == CONFIDENCE


ROW = {"mean": 1.0, "standard_error": 0.01, "exact": 1.0, "n_runs": 50, "basis": "exact"}


def test_agreement_takes_its_share_of_the_confidence():
    found = verdict(below("a", 0.5, 0.1, 50), claim=replace(CLAIM, agreement=lambda _: [agrees("cell", ROW)] * 3))
    factor = math.exp(stats.t.isf((1 - CONFIDENCE) / 2 / 4, 49) * 0.1 / 0.5)
    assert found.judged[0].high == pytest.approx(0.5 * factor)


def test_the_worst_contradiction_is_shown():
    rows = [ROW | {"mean": mean, "standard_error": 0.01 * mean} for mean in (2.0, 5.0, 3.0)]
    found = verdict(below("a", 0.5), claim=replace(CLAIM, agreement=lambda _: [agrees("cell", row) for row in rows]))
    assert found.decisive.comparison.estimate == 5.0


def test_the_hardest_open_comparison_says_how_many_runs():
    easy, hard = below("a", 0.9, 0.1, 100), below("b", 0.98, 0.1, 100)
    assert verdict(easy, hard).runs_needed == verdict(hard, hard).runs_needed > verdict(easy, easy).runs_needed
    assert verdict(hard).as_dict()["runs_needed"] == verdict(hard).runs_needed


def test_runs_that_diverged_agree_with_nothing():
    for gone in ({"mean": math.nan, "standard_error": math.nan}, {"mean": 1e200, "standard_error": math.inf}):
        found = verdict(below("a", 0.5), claim=replace(CLAIM, agreement=lambda _, row=ROW | gone: [agrees("c", row)]))
        assert found.verdict == "undecided"
        assert "the simulation contradicts the recursion" in found.where


def test_a_claim_needs_comparisons_and_they_need_limits():
    with pytest.raises(InvalidInputError, match=r"The claim 'name' has no comparison that the paper states\."):
        verdict(below("a", 0.5, stated=False))
    with pytest.raises(InvalidInputError, match=r"The comparison of q has no limit\."):
        NumberCheck("a", "q", 0.5)
    assert verdict(below("a", 0.5, math.inf, 10)).runs_needed is None


def test_what_is_open_decides_an_undecided_claim():
    assert verdict(below("a", 1.5), below("c", 0.9, 0.1, 100)).decisive.comparison.condition == "c"


def test_a_value_at_the_limit_is_outside():
    assert verdict(below("a", 1.0, 0.0, 50)).verdict == "does not hold"
    assert verdict(below("a", 1.0 - 1e-8)).verdict == "holds"
    assert verdict(below("a", 1.0 - 1e-10)).verdict == "undecided"


def test_agreement_is_relative_and_allows_an_approximation_a_tenth():
    assert agrees("c", ROW | {"mean": 2.0, "standard_error": 0.1}).standard_error == 0.1
    near = ROW | {"basis": "approximation", "standard_error": 1e-4}
    assert verdict(agrees("c", near | {"mean": 1.098})).verdict == "holds"
    assert verdict(agrees("c", near | {"mean": 1.102})).verdict == "does not hold"


def test_ratios_have_positive_errors():
    assert ratio(-2.0, 0.1, 4.0, 0.4)[1] > 0
    x, y = np.array([1.0, 2.0, 4.0]), np.array([-2.0, -3.0, -4.0])
    estimate, se = paired_ratio(x, y)
    assert se == pytest.approx((x - estimate * y).std(ddof=1) / np.sqrt(3) / 3)


def test_the_tightest_comparison_is_measured_in_units_of_its_limit():
    large = NumberCheck("large", "q", 90.0, below=100.0)
    assert verdict(large, below("small", 0.5)).decisive.comparison.condition == "large"


def test_one_failing_comparison_fails_its_condition_in_any_order():
    assert verdict(below("b", 0.9, 0.1, 100), below("b", 1.5)).verdict == "does not hold"


def test_nan_asks_for_no_more_runs():
    assert verdict(below("a", math.nan, math.nan, 100)).runs_needed is None
