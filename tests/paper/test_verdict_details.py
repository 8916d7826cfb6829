"""Details of verdicts, records and pages: what a small slip in them would change."""

import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import vrtd
from tests.helpers import small_experiments
from tests.helpers.claims import CLAIM, below, verdict
from tests.unit.report.test_report import Outline, _themes, claim, drawn, plain_page
from vrtd import store
from vrtd.errors import InvalidInputError
from vrtd.paper import changing_step, experiment, experiments, stored
from vrtd.paper.evidence import CONFIDENCE, NumberCheck, agrees, judge, paired_ratio, ratio
from vrtd.paper.experiment import Runner
from vrtd.paper.page import page
from vrtd.paper.wording import limits
from vrtd.plots import Figure
from vrtd.report.numbers import number, plural
from vrtd.report.svg import draw_svg
from vrtd.tables import table

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
    with pytest.raises(InvalidInputError, match="a claim must have a comparison that the paper states; got name"):
        verdict(below("a", 0.5, stated=False))
    with pytest.raises(InvalidInputError, match="a comparison must have a limit; got q"):
        NumberCheck("a", "q", 0.5)
    assert verdict(below("a", 0.5, math.inf, 10)).runs_needed is None


def test_what_is_open_decides_an_undecided_claim():
    assert verdict(below("a", 1.5), below("c", 0.9, 0.1, 100)).decisive.comparison.condition == "c"


def test_a_limit_is_not_reached():
    assert verdict(below("a", 1.0, 0.0, 50)).verdict == "does not hold"
    assert verdict(below("a", 1.0 - 1e-8)).verdict == "holds"
    assert verdict(below("a", 1.0 - 1e-10)).verdict == "undecided"


def test_agreement_is_relative_and_within_a_tenth():
    assert agrees("c", ROW | {"mean": 2.0, "standard_error": 0.1}).standard_error == 0.1
    near = ROW | {"basis": "approximation", "standard_error": 1e-4}
    assert verdict(agrees("c", near | {"mean": 1.098})).verdict == "holds"
    assert verdict(agrees("c", near | {"mean": 1.102})).verdict == "does not hold"


def test_ratios_have_positive_errors():
    assert ratio(-2.0, 0.1, 4.0, 0.4)[1] > 0
    x, y = np.array([1.0, 2.0, 4.0]), np.array([-2.0, -3.0, -4.0])
    estimate, se = paired_ratio(x, y)
    assert se == pytest.approx((x - estimate * y).std(ddof=1) / np.sqrt(3) / 3)


def test_the_tightest_is_so_in_units_of_its_limit():
    large = NumberCheck("large", "q", 90.0, below=100.0)
    assert verdict(large, below("small", 0.5)).decisive.comparison.condition == "large"


def test_one_failing_comparison_fails_its_condition_in_any_order():
    assert verdict(below("b", 0.9, 0.1, 100), below("b", 1.5)).verdict == "does not hold"


def test_not_a_number_asks_for_no_runs():
    assert verdict(below("a", math.nan, math.nan, 100)).runs_needed is None


def test_every_file_that_decides_numbers_is_in_the_digest(tmp_path, monkeypatch):
    package = tmp_path / "vrtd"
    shutil.copytree(Path(vrtd.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(store, "files", lambda name: package)

    def code_after(*changed):
        for part in changed:
            (package / part).write_bytes((package / part).read_bytes() + b"#")
        return store._code.__wrapped__()

    seen = {code_after()}
    for part in (
        "kernels/random.py",
        "engine/loop.py",
        "theory/moments.py",
        "paper/batch_sizes.py",
        "paper/table_1/floors.py",
        "problems/mountain_car.py",
        "problems/linear_problem.py",
    ):
        seen.add(code_after(part))
    assert len(seen) == 8
    assert code_after("report/html.py", "cli/plan.py") in seen


def test_costs_are_those_of_the_runner_and_are_kept(tmp_path, monkeypatch):
    small_experiments.install(monkeypatch)
    runner = Runner()
    runner.n_gradients, runner.seconds, runner.compile_seconds = 1, 2.0, 3.0
    still = replace(small_experiments.EXPERIMENTS["first"], measure=lambda settings, runner: {"t": {"x": np.arange(2)}})
    _, cost = stored.measure(still, {}, tmp_path, runner)
    assert cost == {"n_gradients": 1, "seconds": 2.0, "compile_seconds": 3.0}
    assert stored.load(still, {}, tmp_path)[1] == cost


def test_json_has_no_nan(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        store.write_json({"x": math.nan}, tmp_path / "x.json")


def random_claims(monkeypatch, estimate):
    """Claims with intervals, so that a verdict depends on how the confidence is shared."""
    c = NumberCheck("a", "q", estimate, 0.1, 50, below=1.0, basis="simulated")
    claims = tuple(replace(each, evidence=lambda _: [c]) for each in small_experiments.CLAIMS)
    monkeypatch.setattr("vrtd.paper.experiments.all_claims", lambda: claims)


def test_a_part_is_judged_as_it_is_in_the_whole(tmp_path, monkeypatch):
    small_experiments.install(monkeypatch)
    random_claims(monkeypatch, 0.5)
    part, whole = (vrtd.reproduce(names, out=tmp_path / str(len(names)), n_runs=4) for names in (["first"], []))
    assert part.findings[0].as_dict() == whole.findings[0].as_dict()


def test_runs_needed_are_those_of_the_reproduction(tmp_path, monkeypatch):
    small_experiments.install(monkeypatch)
    random_claims(monkeypatch, 0.95)
    few, many = (vrtd.reproduce(["first"], out=tmp_path / str(n), n_runs=n).findings[0].runs_needed for n in (4, 40))
    assert many == pytest.approx(10 * few, rel=0.02)


def test_threads_and_weights_are_used(tmp_path, monkeypatch):
    small_experiments.install(monkeypatch)
    monkeypatch.setitem(
        small_experiments.EXPERIMENTS, "second", replace(small_experiments.EXPERIMENTS["second"], weight=3.0)
    )
    told, simulate, seen = [], experiment.simulate, []

    def watched(*args, threads=None, **rest):
        seen.append(threads)
        return simulate(*args, threads=threads, **rest)

    monkeypatch.setattr(experiment, "simulate", watched)
    vrtd.reproduce(out=tmp_path, n_runs=4, threads=2, progress=lambda share, name: told.append((share, name)))
    assert seen == [2, 2]
    assert next(share for share, name in told if name == "second") == 0.25
    assert told[-1] == (1.0, "second")


def text_of(*comparisons, **rest):
    return Outline(page([judge(claim("c", *comparisons, **rest), {}, 1)], [], {"n_runs": 1, "seed": 0})).text


def test_words_of_a_claim():
    inside = NumberCheck("here", "D", 0.5, below=1.0)
    assert "✓ No exception found" in text_of(inside, kind="universal")
    proved = text_of(inside, kind="universal", proof="1. A section")
    assert "■ Proved" in proved
    assert "docs/what-holds.md, 1. A section" in proved
    seen = text_of(inside, kind="observation")
    assert "◇ Observation" in seen
    assert "0.500, observed if < 1" in seen
    assert "must be" not in seen
    assert "there (beyond the paper)" in text_of(inside, replace(inside, condition="there", stated=False))
    assert "✓ inside" in text_of(inside)
    assert "✗ outside" in text_of(replace(inside, estimate=2.0))
    assert "0.500, must be < 1" in text_of(inside)  # an exact number has no interval


def test_what_is_not_a_number_is_among_the_tightest():
    many = [NumberCheck(f"chain {i}", "D", 0.5, below=1.0) for i in range(60)]
    found = judge(claim("c", *many[:-1], replace(many[-1], estimate=math.nan)), {}, 1)
    assert '<th scope="row">chain 59</th>' in page([found], [], {"n_runs": 1, "seed": 0})


def test_a_long_list_is_behind_its_beginning():
    many = (NumberCheck(f"chain {i}", "D", 0.5, below=1.0) for i in range(60))
    text = page([judge(claim("all", *many, kind="universal"), {}, 1)], [], {"n_runs": 1, "seed": 0})
    assert "<summary>all that was tested: chain 0" in text


def test_a_section_has_the_badges_of_its_own_claims_and_a_claim_all_its_figures():
    text = plain_page()
    car = text[text.index('id="experiment-car"') :]
    assert [name for name in ("holds", "fails", "under", "open", "many") if f"#claim-{name}" in car] == ["fails"]
    fails = text[text.index('id="claim-fails"') : text.index('id="claim-under"')]
    assert "#experiment-lake" in fails
    assert "#experiment-car" in fails


def test_numbers_and_limits():
    assert limits(NumberCheck("a", "q", 0.0, above=-1.0 - 1e-9, below=1.005)) == "≥ \N{MINUS SIGN}1 and < 1.005"
    assert limits(NumberCheck("a", "q", 0.0, below=1.0000123)) == "< 1.0000123"
    assert [number(x, 3) for x in (0.000212, -math.inf)] == ["0.000212", "\N{MINUS SIGN}∞"]
    assert [plural(n, "run") for n in (0, 1, 2)] == ["0 runs", "1 run", "2 runs"]


@pytest.mark.parametrize(("low", "high", "shown"), [(1e-5, 1e2, ("10⁻³", "10⁰")), (0.15, 6.0, ("0.2", "0.5", "2"))])
def test_ticks(low, high, shown):
    def draw(axes, tables):
        axes.set_yscale("log")
        axes.set_ylim(high, low)  # from above to below: the order is the drawing's

    svg = draw_svg(Figure("f", "c", "t", draw), {})
    assert all(f">{tick}</text>" in svg for tick in shown), svg[-3000:]
    assert "10⁻¹<" not in svg or low < 1e-4


def test_light_is_light():
    light, dark = _themes(drawn("a curve").split("</style>", 1)[0])
    assert (light["--paper"], light["--ink"]) == ("#ffffff", "#111111")
    assert (dark["--paper"], dark["--ink"]) == ("#16191d", "#e6e8ea")


def test_faster_is_td_s_count_over_vrtd_s():
    grid = [0, 100, 200, 300]
    td = [
        {"method": "TD, W = 1", "basis": "exact", "n_gradients": n, "n_samples": n, "exact": e}
        for n, e in zip(grid, (8.0, 4.0, 2.6, 1.0), strict=True)
    ]
    vr = [
        {"method": "VRTD", "basis": "approximation", "n_gradients": n, "n_samples": n // 2, "exact": e}
        for n, e in zip(grid, (8.0, 2.0, 2.0, 2.0), strict=True)
    ]
    curves = table([{"start": "ones"} | row for row in td + vr])
    found = changing_step.vrtd_is_faster(curves, "n_gradients", 2.0)
    assert [(c.estimate, c.above, c.stated) for c in found] == [(3.0, 2.0, True), (2.0, 2.0, False), (1.0, 2.0, False)]
    assert found[0].quantity.endswith("to 1.1 times VRTD's final error: 300 against 100")
    assert [c.estimate for c in changing_step.vrtd_is_faster(curves, "n_samples", 1.0)] == [6.0, 4.0, 2.0]


def test_the_required_accuracy_is_vrtd_s_and_td_may_never_reach_it():
    rows = [
        {"start": "ones", "method": method, "basis": basis, "n_gradients": n, "n_samples": n, "exact": e}
        for method, basis, errors in (("TD, W = 1", "exact", (8.0, 4.0)), ("VRTD", "approximation", (8.0, 2.0)))
        for n, e in zip((0, 100), errors, strict=True)
    ]
    found = changing_step.vrtd_is_faster(table(rows), "n_gradients", 2.0)
    assert [c.estimate for c in found] == [math.inf, math.inf, 1.0]  # 4.0 is twice VRTD's final error
    assert found[0].quantity.endswith(": TD does not get there, VRTD after 100")
    assert [judge(claim("c", replace(c, stated=True)), {}, 1).verdict for c in found] == [
        "holds", "holds", "does not hold"
    ]  # fmt: skip


def test_there_are_at_most_so_many_halvings():
    settings = {"step_size": 1.0, "n_gradients": 10 * changing_step.STRIDE, "most_halvings": 3}
    _, times = changing_step.follow(lambda step: np.eye(1), np.ones(1), np.ones(1), lambda errors: True, settings)
    assert times == [40, 80, 120]


def test_agreement_is_at_the_end():
    curves = {
        "n_gradients": np.array([0, 10]),
        "method": np.array(["TD", "TD"]),
        "start": np.array(["ones"] * 2),
        "mean": np.array([1.0, 2.0]),
        "exact": np.array([4.0, 4.0]),
        "standard_error": np.ones(2),
        "n_runs": np.array([5, 5]),
        "basis": np.array(["exact"] * 2),
    }
    assert [c.estimate for c in changing_step.agreement(curves)] == [0.5]


PINNED = {
    "random-mdp-iid": {
        "sampling": "iid",
        "step_size": 0.1,
        "batch_sizes": [1, 50, 500, 1000, 2000],
        "n_gradients": 80_000,
        "last_updates": 10_000,
        "initial": "stationary",
    },
    "random-mdp-markov": {
        "sampling": "markov",
        "step_size": 0.1,
        "batch_sizes": [1, 50, 500, 1000, 2000],
        "n_gradients": 80_000,
        "last_updates": 10_000,
        "initial": "stationary",
        "radius": 100.0,
    },
    "frozen-lake": {
        "sampling": "markov",
        "step_size": 0.1,
        "batch_sizes": [1, 50, 500, 1000, 2000],
        "n_gradients": 120_000,
        "last_updates": 10_000,
        "initial": 0,
    },
    "mountain-car": {
        "n_features": 20,
        "gamma": 0.95,
        "step_size": 0.2,
        "n_gradients": 300_000,
        "every": 10_000,
        "n_test": 1000,
        "n_test_steps": 1_000_000,
        "last_gradients": 100_000,
    },
    "changing-step": {
        "problem": "frozen_lake",
        "initial": 0,
        "n_gradients": 120_000,
        "step_size": 0.1,
        "batch_size": 5000,
        "starts": {"ones": 1.0, "zeros": 0.0},
        "windows": [1000, 2000, 5000],
        "least_decrease": 0.05,
        "authors_halvings": [12_000, 20_000],
    },
}


@pytest.mark.parametrize("name", PINNED)
def test_the_settings_are_those_that_were_chosen(name):
    found = experiments.find(name).settings(1000, 7)
    assert {key: found[key] for key in PINNED[name]} == PINNED[name]
    assert found["seed"] == 7


def test_the_cells_are_those_that_were_chosen():
    def cells(name):
        return [(c["arguments"], c["theta_0"], c["n_runs"]) for c in experiments.find(name).settings(1000, 0)["cells"]]

    mdps = [({"seed": k, "normalize": n}, 0.0, 1000) for n in (False, True) for k in range(5)]
    assert cells("random-mdp-iid") == cells("random-mdp-markov") == mdps
    lazy = experiments.find("random-mdp-markov").settings(1000, 0)["lazy"]
    assert (lazy["arguments"], lazy["n_runs"]) == ({"seed": 0, "laziness": 0.9}, 1000)
    assert cells("frozen-lake") == [({"seed": k}, start, 200 if k else 1000) for start in (1.0, 0.0) for k in range(5)]
    variants = experiments.find("mountain-car").settings(1000, 0)["variants"]
    assert {(v["bandwidth"], v["feature_seed"], v["time_limit"]) for v in variants} == {
        (b, k, limit) for b in (1.0, 5.0, 20.0) for k in range(5) for limit in (None, 200)
    }
