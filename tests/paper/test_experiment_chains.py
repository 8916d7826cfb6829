"""The experiments on finite chains: simulated errors are the exact ones, and verdicts notice what is broken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers.broken_vrtd import BrokenVRTD
from tests.helpers.statistics import z_limit
from vrtd.paper import batch_sizes, changing_step, experiment, experiments, random_mdp_markov
from vrtd.paper.curves import draw_means, make_curve_rows
from vrtd.paper.evidence import judge
from vrtd.paper.experiment import Runner
from vrtd.plots import new_panels
from vrtd.tables import rows_where, table
from vrtd.theory import exact_curve

N_CLAIMS = 40
# Cells of the family below: 30 with independent samples, 10 and 10 of TD on trajectories, 24 of schedules. Squared
# errors are skewed, which multiplies the rate of false alarms at this many runs by less than ten: the limit is that of
# ten times as many statistics.
N_RUNS, LIMIT = 5_000, z_limit(10 * (30 + 10 + 10 + 24))


def measured(name: str, n_runs: int, **changes: Any) -> Any:
    found = experiments.find(name)
    return found.measure({**found.settings(n_runs, 0), **changes}, Runner())


def scores(table: Any) -> Any:
    exact = rows_where(table, basis="exact")
    return (exact["mean"] - exact["exact"]) / exact["standard_error"]


@pytest.fixture(scope="module")
def short() -> dict[str, Any]:
    """Every cell, with few updates and many runs."""
    short = {"n_gradients": 4000, "last_updates": 2000}
    few = {"batch_sizes": [1, 500, 2000]}
    lazy = experiments.find("random-mdp-markov").settings(2, 0)["lazy"]  # two runs of what is not looked at here
    changes = {
        "random-mdp-iid": short | {"batch_sizes": [1, 50, 500]},
        "random-mdp-markov": short | few | {"n_same": 4000, "lazy": lazy},
        "frozen-lake": short | few,
    }
    tables = {name: measured(name, N_RUNS, **change)["floors"] for name, change in changes.items()}
    halving = {"n_gradients": 6000, "batch_size": 1500, "windows": [400, 1000, 2400]}
    curves = measured("changing-step", N_RUNS, **halving)["curves"]
    return tables | {"changing-step": {key: column[curves["n_gradients"] > 0] for key, column in curves.items()}}


@pytest.mark.slow
@pytest.mark.statistical
def test_simulated_errors_are_the_exact_ones_in_every_cell(short: dict[str, Any]) -> None:
    found = {name: scores(short[name]) for name in ("random-mdp-iid", "random-mdp-markov", "frozen-lake")}
    found["changing-step"] = np.concatenate(
        [scores(rows_where(short["changing-step"], n_gradients=at)) for at in (1000, 3000, 6000)]
    )
    assert {name: each.size for name, each in found.items()} == {
        "random-mdp-iid": 30,
        "random-mdp-markov": 10,
        "frozen-lake": 10,
        "changing-step": 24,
    }
    assert max(abs(each).max() for each in found.values()) < LIMIT


@pytest.mark.statistical
def test_a_step_that_is_a_tenth_too_large_would_be_seen(monkeypatch: Any) -> None:
    monkeypatch.setattr(batch_sizes, "exact_curve", lambda problem, method, **rest: exact_curve(
        problem, type(method)(1.1 * 0.1, *([method.batch_size] if method.name == "vrtd" else [])), **rest
    ))  # fmt: skip
    settings = experiments.find("random-mdp-iid").settings(N_RUNS, 0)
    few = {"n_gradients": 4000, "last_updates": 2000, "batch_sizes": [1, 50, 500], "cells": settings["cells"][:1]}
    tables = measured("random-mdp-iid", N_RUNS, **few)
    assert abs(scores(tables["floors"])).max() > LIMIT


@pytest.mark.statistical
def test_approximate_errors_are_near_the_simulated_ones(short: dict[str, Any]) -> None:
    """Within a tenth: what the claims allow. The noise is a hundredth."""
    for name in ("random-mdp-markov", "frozen-lake"):
        part = rows_where(short[name], basis="approximation")
        keep = part["n_runs"] == N_RUNS
        assert abs(part["mean"] / part["exact"] - 1.0)[keep].max() < 0.1


@pytest.fixture(scope="module")
def figure_1() -> dict[int, Any]:
    """Figure 1 as it is, by number of runs."""
    return {n_runs: measured("random-mdp-iid", n_runs) for n_runs in (2, 20)}


def test_the_paper_s_floors_of_the_random_mdp(figure_1: dict[int, Any]) -> None:
    floors = figure_1[2]["floors"]
    exact = rows_where(floors, mdp_seed=0, features="raw")["exact"]
    assert exact.round(3).tolist() == [1.669, 1.056, 0.576, 0.346, 0.187]
    td = rows_where(floors, batch_size=1, features="raw")["reach"]
    largest = rows_where(floors, batch_size=2000, features="raw")["reach"]
    assert td.max() < 240
    assert largest.min() >= 4000


def test_the_averaged_window_has_whole_epochs_of_the_last_updates() -> None:
    settings = experiments.find("random-mdp-iid").settings(2, 0)
    for M in settings["batch_sizes"]:
        window, grid = batch_sizes.choose_checkpoints(settings, M)
        assert window[-1] == grid[-1] == 80_000
        if M > 1:
            assert window.size * M == 10_000
            assert (window % (2 * M) == 0).all()
        else:
            assert (window.size * 50, window[0]) == (10_000, 70_050)


def verdicts(tables: dict[str, Any], *names: str) -> dict[str, str]:
    wanted = [claim for claim in experiments.all_claims() if claim.name in names]
    return {claim.name: judge(claim, tables, N_CLAIMS).verdict for claim in wanted}


def test_exact_verdicts_do_not_depend_on_the_runs(figure_1: dict[int, Any]) -> None:
    names = ("figure-1-error-falls", "figure-1-not-much-slower")
    expected = {"figure-1-error-falls": "holds", "figure-1-not-much-slower": "holds"}
    for tables in figure_1.values():
        assert verdicts({"random-mdp-iid": tables}, *names) == expected


@pytest.mark.slow
def test_a_broken_algorithm_changes_the_verdicts(monkeypatch: Any) -> None:
    names = (
        "figure-1-error-falls", "figure-1-substantially-reduced", "figure-1-not-much-slower", "figure-2-error-falls",
        "figure-2-not-much-slower", "iid-error-below-markov",
    )  # fmt: skip

    def judged() -> dict[str, str]:
        few = {"cells": experiments.find("random-mdp-markov").settings(200, 0)["cells"][:1], "n_same": 4000}
        tables = {name: measured(name, 200, **few) for name in ("random-mdp-iid", "random-mdp-markov")}
        return verdicts(tables, *names)

    sound = judged()
    assert sound == {
        "figure-1-error-falls": "holds",
        "figure-1-substantially-reduced": "holds",
        "figure-1-not-much-slower": "holds",
        "figure-2-error-falls": "holds",
        "figure-2-not-much-slower": "holds",
        "iid-error-below-markov": "does not hold",
    }
    monkeypatch.setattr(experiment, "VRTD", BrokenVRTD)
    broken = judged()
    assert all(broken[name] != sound[name] for name in names), broken


@pytest.fixture(scope="module")
def halved() -> dict[str, Any]:
    """Figure 5 with two runs."""
    return measured("changing-step", 2)


def test_halving_follows_the_rule_step_by_step(halved: dict[str, Any]) -> None:
    """Against a transcription of the rule on the exact curve of the schedule that came out."""
    tables, settings = halved, experiments.find("changing-step").settings(2, 0)
    lake = vrtd.problems.frozen_lake(seed=0)
    for start, W in (("ones", 2000), ("zeros", 5000)):
        part = rows_where(tables["schedules"], start=start, method=f"TD, W = {W}")
        times = part["halved_at"].tolist()
        values = tuple(0.1 / 2**k for k in range(len(times) + 1))
        stride = changing_step.STRIDE
        curve = exact_curve(
            lake, vrtd.TD(vrtd.Piecewise(tuple(times), values)), n_gradients=120_000,
            theta_0=np.full(4, settings["starts"][start]), initial=0, checkpoints=np.arange(0, 120_001, stride),
        )  # fmt: skip
        errors = curve.values("squared_error")[0, 1:].reshape(-1, W // stride).mean(axis=1)
        expected, skip = [], False
        for k in range(1, len(errors)):
            stops = errors[k] > 0.95 * errors[k - 1] and not skip
            skip = stops
            if stops and len(expected) < 20:
                expected.append((k + 1) * W)
        assert times == [t for t in expected if t <= 120_000]
        shown = rows_where(tables["curves"], start=start, method=f"TD, W = {W}")
        at = np.searchsorted(curve.n_gradients, shown["n_gradients"])
        np.testing.assert_allclose(shown["exact"], curve.values("squared_error")[0, at], rtol=1e-9)


def test_the_authors_times_are_two_halvings(halved: dict[str, Any]) -> None:
    part = rows_where(halved["schedules"], start="ones", method="TD, the authors' times")
    assert part["halved_at"].tolist() == [12_000, 20_000]


def test_no_run_is_projected_and_a_batch_of_one_is_td(monkeypatch: Any) -> None:
    settings = experiments.find("random-mdp-markov").settings(20, 0)
    few = {"cells": settings["cells"][:1], "n_same": 8000}
    found = measured("random-mdp-markov", 20, **few)["identities"]
    assert found["batch_size"].tolist() == [1, 50, 500, 1000, 2000]
    assert found["n_different"].tolist() == [0] * 5
    found = measured("random-mdp-markov", 20, **few, radius=1.0)["identities"]
    assert found["n_different"].tolist() == [0, 20, 20, 20, 20]


def test_a_curve_names_the_runs_that_diverged() -> None:
    problem = vrtd.problems.random_mdp(seed=0)
    with pytest.warns(vrtd.errors.StabilityWarning):
        result = vrtd.simulate(problem, vrtd.TD(30.0), n_runs=3, n_gradients=2000, checkpoints=[0, 2000])
    part = table(make_curve_rows({"basis": "exact"}, result, np.ones(2, bool), np.ones(2)))
    assert part["n_diverged"].tolist() == [0, 3]
    axes = new_panels(1)[0]
    draw_means(axes, part, "TD")
    assert axes.get_legend().get_texts()[0].get_text() == "TD, 3 runs diverged and left out"


def test_samples_are_counted(halved: dict[str, Any]) -> None:
    found = changing_step.samples_are_gradients(halved)
    assert [each.estimate for each in found] == [1.0] * 4 + [0.5]
    assert found[-1].quantity == "samples drawn / pseudo-gradients, VRTD, M = 5000"
    assert {each.condition for each in found} == {"the two algorithms of the figure"}


ROW = {"mdp_seed": 0, "features": "raw", "theta_0": 1.0, "basis": "exact", "n_runs": 50}


def floors(**columns):
    return table(
        [
            ROW | {"batch_size": M} | {key: column[k] for key, column in columns.items()}
            for k, M in enumerate((1, 50, 500))
        ]
    )


def test_much_slower_is_more_than_a_fifth_of_the_run():
    found = batch_sizes.slows(floors(reach=[100, 299, 301], n_gradients=[1000] * 3))
    stated = [(each.estimate, each.below) for each in found if each.stated]
    assert stated == [(0.199, 0.2), (0.201, 0.2)]
    assert [(each.estimate, each.below) for each in found if not each.stated] == [(0.199, 0.1), (0.201, 0.1)]
    assert "299 against 100" in found[0].quantity  # the counts are shown with the share
    never = batch_sizes.slows(floors(reach=[100, -1, 150], n_gradients=[1000] * 3))[0]
    assert never.estimate == np.inf
    assert "never" in never.quantity
    assert batch_sizes.slows(floors(reach=[0, 50, 100], n_gradients=[1000] * 3)) == []


def test_a_substantial_reduction_is_that_of_the_largest_batch():
    whole = floors(to_td=[1.0, 0.7, 0.3], to_td_standard_error=[0.0, 0.01, 0.02])
    found = batch_sizes.reduces(whole, "simulated")
    assert [(c.condition, c.estimate, c.stated) for c in found] == [("M = 50", 0.7, False), ("M = 500", 0.3, True)]
    for claim in experiments.all_claims():
        if claim.name.endswith(("much-smaller", "substantially-reduced", "slower", "much-faster")):
            assert "The criterion is ours" in claim.test


@pytest.mark.slow
def test_a_figure_5_with_a_broken_algorithm_is_not_judged(halved: dict[str, Any], monkeypatch: Any) -> None:
    names = ("figure-5-much-faster", "figure-5-fewer-samples")
    assert verdicts({"changing-step": halved}, *names) == dict.fromkeys(names, "holds under conditions")
    monkeypatch.setattr(changing_step, "VRTD", BrokenVRTD)
    broken = measured("changing-step", 200, starts={"ones": 1.0}, windows=[5000])
    assert verdicts({"changing-step": broken}, *names) == dict.fromkeys(names, "undecided")


def test_the_required_accuracy_decides_figure_5(halved: dict[str, Any]) -> None:
    """With the authors' halvings TD stops above VRTD's final error; halved on, it gets below it sooner than VRTD."""
    stated = [each for each in changing_step.vrtd_is_faster(halved["curves"], "n_gradients", 2.0) if each.stated]
    authors = {each.condition: each.estimate for each in stated if "authors" in each.condition}
    assert authors == {f"the authors' times, from {start}": np.inf for start in ("ones", "zeros")}
    others = [each.estimate for each in stated if "authors" not in each.condition]
    assert len(others) == 6
    assert 0.25 < min(others) < 0.35 < 1.0 < max(others) < 1.6


def test_much_smaller_is_half_of_td_and_smaller_is_below_the_batch_before():
    whole = floors(
        to_td=[1.0, 0.4, 0.3],
        to_td_standard_error=[0.0, 0.01, 0.02],
        to_smaller=[1.0, 0.7, 0.8],
        to_smaller_standard_error=[0.0, 0.03, 0.04],
    )
    found = batch_sizes.improves(whole, "simulated")
    assert [(c.estimate, c.standard_error, c.below) for c in found] == [(0.4, 0.01, 0.5), (0.3, 0.02, 0.5)]
    found = batch_sizes.falls(whole, "simulated")
    assert [(c.estimate, c.standard_error, c.below) for c in found] == [(0.7, 0.03, 1.0), (0.8, 0.04, 1.0)]


def test_the_columns_of_a_cell():
    settings = experiments.find("frozen-lake").settings(3, 0)
    found = measured("frozen-lake", 3, cells=settings["cells"][:1], n_gradients=20_000)["floors"]
    mean = found["mean"]
    assert found["to_td"] == pytest.approx(mean / mean[0])
    assert found["to_smaller"] == pytest.approx(np.r_[1.0, mean[1:] / mean[:-1]])
    lake = vrtd.problems.frozen_lake(seed=0)
    curve = exact_curve(
        lake, vrtd.TD(0.1), n_gradients=20_000, theta_0=np.ones(4), initial=0, checkpoints=np.arange(4001)
    )
    errors = curve.values("squared_error")[0]
    assert found["reach"][0] == curve.n_gradients[np.flatnonzero(errors <= 2 * found["exact"][0])[0]]
    vr = exact_curve(
        lake, vrtd.VRTD(0.1, 500), n_gradients=20_000, theta_0=np.ones(4), checkpoints=np.arange(0, 20_001, 1000)
    )
    errors = vr.values("squared_error")[0]
    assert found["reach"][2] == vr.n_gradients[np.flatnonzero(errors <= 2 * found["exact"][0])[0]]
    end = exact_curve(
        lake,
        vrtd.TD(0.1),
        n_gradients=20_000,
        theta_0=np.ones(4),
        initial=0,
        checkpoints=np.arange(10_050, 20_001, 50),
    )
    assert found["exact"][0] == pytest.approx(end.values("squared_error")[0].mean(), rel=1e-12)


def test_the_lazy_chain_is_beyond_the_paper_and_one_different_run_refutes():
    whole = {
        "mdp_seed": np.zeros(2, int),
        "features": np.array(["raw", random_mdp_markov.LAZY]),
        "batch_size": np.array([50, 50]),
        "n_runs": np.array([9, 9]),
        "mean": np.ones(2),
        "standard_error": np.ones(2),
        "iid": np.array([2.0, 0.5]),
    }
    found = random_mdp_markov.is_above_iid({"samplings": whole})
    assert [(c.estimate, c.above, c.stated) for c in found] == [(0.5, 1.0, True), (2.0, 1.0, False)]
    one = {"batch_size": np.array([1]), "n_runs": np.array([20]), "n_different": np.array([1])}
    (claim,) = (each for each in random_mdp_markov.EXPERIMENT.claims if each.name == "batch-of-one-is-td")
    assert judge(claim, {"random-mdp-markov": {"identities": one}}, 1).verdict == "does not hold"
