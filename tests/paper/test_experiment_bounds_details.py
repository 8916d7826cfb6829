"""Details of the audit of the theory: what a small slip in it would change."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

import vrtd
from tests.helpers import small_experiments
from tests.paper import test_experiment_counter_example as tce
from tests.paper.test_experiment_bounds import BOUNDS, CHAINS, SETTINGS, changed, verdict
from vrtd import store, theory
from vrtd.cli import main
from vrtd.paper.bounds import analysis, statements
from vrtd.paper.evidence import CONFIDENCE
from vrtd.paper.experiment import Runner
from vrtd.problems import frozen_lake
from vrtd.tables import rows, rows_where
from vrtd.theory import exact_curve


@pytest.fixture(scope="module")
def tables():
    return BOUNDS.measure(SETTINGS, Runner())


def test_steps_and_batches_are_those_of_the_corollaries(tables):
    case = statements.Case(CHAINS["two states"], SETTINGS)
    lam, g2, whole = case.lam, 1.5**2, rows_where(tables["statements"], chain="two states", variant="printed")
    sizes = [math.ceil(units * g2 / lam**2) for units in (40, 160, 2560)]
    expected = [f"a = {lam / (16 * g2):.2g}, M = {M:,}" for M in sizes]
    assert rows_where(whole, statement="Theorem 1")["parameters"].tolist() == expected
    expected = [f"a = {share * lam / (4 * g2):.2g}" for share in (0.05, 1.0)]
    assert rows_where(whole, statement="TD, i.i.d.")["parameters"].tolist() == expected
    assert case.wide == 2.0 * case.radius


def test_the_experiments_limits(tables):
    problem = vrtd.problems.random_mdp(seed=0)
    (row,) = rows(rows_where(tables["experiments"], problem="random MDP 0", features="raw"))
    assert (row["theorem1_limit"], row["theorem2_limit"]) == pytest.approx(
        (problem.lambda_A / 8 / 1.95**2, problem.lambda_A / 12 / 1.95**2)
    )
    found = [each.quantity for each in analysis._out_of_range({"bounds": tables}) if "lake 0" in each.quantity]
    assert found == ["largest |phi| (lake 0)", "step / limit of Theorem 2 (lake 0)"]


def test_lemma_1_is_tried_on_both_sides_of_theta_star(tables):
    case = statements.Case(CHAINS["two features"], SETTINGS)
    part = rows_where(tables["statements"], statement="Lemma 1", variant="printed", chain="two features")
    star, u = case.problem.theta_star, case.theta_0 - case.problem.theta_star
    expected = [
        theory.batch_bias_inequality(case.problem, M, star + s * u, case.wide).left
        for M in (1, 10, 1000)
        for s in (1, -1)
    ]
    assert part["left"] == pytest.approx(expected)
    assert part["parameters"].tolist() == [f"M = {M:,}, theta_star {s} u_0" for M in (1, 10, 1000) for s in "+-"]


def test_td_on_a_trajectory_is_exact(tables):
    case = statements.Case(CHAINS["small MDP 1"], SETTINGS)
    curve = exact_curve(
        case.problem,
        vrtd.TD(0.1),
        n_gradients=50,
        checkpoints=[10, 20, 30, 40, 50],
        theta_0=case.theta_0,
        initial="stationary",
    )
    (row,) = rows(rows_where(tables["statements"], statement="TD, trajectory", chain="small MDP 1"))
    assert min(abs(curve.values("squared_error")[0] / row["left"] - 1)) < 1e-9


def test_the_chains_are_all_there(tables):
    names = [
        "coin",
        "two states",
        "two features",
        "hop",
        "constant feature",
        *(f"random MDP {k}" for k in range(5)),
        "lazy MDP",
        *(f"small MDP {k}" for k in range(3)),
        "lake 0",
    ]
    assert list(dict.fromkeys(tables["statements"]["chain"].tolist())) == names


@pytest.mark.parametrize(("share", "expected"), [(0.6, "no exception found"), (0.4, "does not hold")])
def test_half_is_still_there(tables, share, expected):
    (claim,) = (claim for claim in analysis.CLAIMS if claim.name == "fixed-step-floor")
    assert "above 0.5, a criterion of ours" in claim.test
    assert {each.above for each in claim.evidence({"bounds": tables})} == {0.5}
    later = share * tables["floors"]["error"]
    assert verdict("fixed-step-floor", changed(tables, "floors", later_error=later)) == expected


def test_the_coin_s_standard_error_and_the_seed_of_the_batches():
    tables = tce.measured(6, seed=5)
    problem = tce.measurement.coin(0.5)
    per_run = (
        vrtd.simulate(
            problem,
            vrtd.VRTD(0.02, 2000),
            sampling="iid",
            n_runs=6,
            n_gradients=40_000,
            seed=5,
            theta_0=problem.theta_star,
            checkpoints=4000 * np.arange(1, 11),
        )
        .values("squared_error")
        .mean(axis=1)
    )
    assert tables["coin_floor"]["standard_error"][0] == pytest.approx(per_run.std(ddof=1) / 6**0.5)
    v = np.random.default_rng(5).uniform(-3, 3, (700, 3))
    assert np.allclose(tables["batches"]["mean"], v.mean(axis=1), atol=1e-14)


def test_a_fifth_above_is_a_violation_and_not_where_conditions_fail():
    tables = tce.measured(4)
    near = {**tables, "corollary1": {**tables["corollary1"], "error": 1.2 * tables["corollary1"]["target"]}}
    assert tce.finding("corollary-1", near).verdict == "does not hold"
    fine = tce.scaled(tables, 100.0, coin="printed", coin_floor="printed")
    excused = np.full(len(fine["theorem1"]["exact"]), "no")
    found = tce.finding("theorem-1", {**fine, "theorem1": {**fine["theorem1"], "conditions_hold": excused}})
    assert "random" not in found.where


def test_every_option_is_passed_on(tmp_path, monkeypatch):
    small_experiments.install(monkeypatch)
    seen = {}
    real = vrtd.reproduce
    monkeypatch.setattr(
        "vrtd.paper.reproduction.reproduce", lambda names, **rest: seen.update(rest, names=names) or real(names, **rest)
    )
    main(["reproduce", "first", "--runs", "4", "--seed", "3", "--threads", "1", "--quiet", "--out", str(tmp_path)])
    assert seen == {"names": ["first"], "n_runs": 4, "seed": 3, "threads": 1, "out": tmp_path, "progress": None}


def test_text_of_every_kind_and_counts(tmp_path, capsys, monkeypatch):
    small_experiments.install(monkeypatch)
    first, second, third = small_experiments.CLAIMS
    kinds = (replace(first, kind="universal"), second, replace(third, kind="observation"))
    monkeypatch.setattr("vrtd.paper.experiments.all_claims", lambda: kinds)
    main(["reproduce", "--runs", "4", "--quiet", "--out", str(tmp_path)])
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("no exception found      first ")
    assert shown[4].startswith("observation             first-and-second ")
    assert shown[4].endswith(", observed if < 1")
    assert shown[-2] == "2 claims: 1 holds, 1 no exception found; 1 observation"
    manifest = json.loads((tmp_path / "manifest.json").read_bytes())
    claims = json.loads((tmp_path / "claims.json").read_bytes())
    assert [claim["verdict"] for claim in claims] == ["no exception found", "holds", "observation"]
    assert {verdict: n for verdict, n in manifest["verdicts"].items() if n} == {
        "holds": 1, "no exception found": 1, "observation": 1
    }  # fmt: skip


def test_the_manifest_has_the_digest_of_the_record(tmp_path, monkeypatch):
    small_experiments.install(monkeypatch)
    manifest = vrtd.reproduce(out=tmp_path, n_runs=4).manifest
    for name in ("first", "second"):
        record = json.loads((tmp_path / "data" / f"{name}.json").read_bytes())
        assert manifest["experiments"][name]["digest"] == record["digest"] == store.digest({"n_runs": 4, "seed": 0})
        assert manifest["experiments"][name]["cost"] == record["cost"]
    assert manifest["confidence"] == CONFIDENCE


def test_the_lake_s_discount_is_the_one_given():
    assert set(frozen_lake(gamma=0.8).mrp.edges.discount.tolist()) == {0.8}
