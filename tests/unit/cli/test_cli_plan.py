"""`vrtd plan`: what it prints in every mode, and with the map."""

import csv
import io
import json
import shlex
import subprocess
import sys
from dataclasses import replace
from inspect import signature

import numpy as np
import pytest

import vrtd
import vrtd.theory
from tests.helpers.command_help import help_of
from tests.helpers.plan_command import SMALL, WALK, run
from vrtd.cli import main, plan_formats
from vrtd.problems import LIBRARY
from vrtd.theory import instance_optimal, phase_diagram
from vrtd.theory.predictions import Prediction


@pytest.fixture(scope="module")
def walk():
    return vrtd.problems.random_walk()


def table(shown):
    """The cells of the rows of TD and VRTD."""
    lines = shown.splitlines()
    head = next(i for i, line in enumerate(lines) if line.split()[:2] == ["step", "size"])
    return [line.split() for line in lines[head + 1 : head + 3]]


def cells(name, choice):
    batch = [f"{choice.algorithm.batch_size:,}", f"{choice.n_epochs:,}"] if name == "VRTD" else ["-", "-"]
    counts = [f"{choice.n_gradients:,}", f"{choice.n_samples:,}"]
    return [name, f"{choice.algorithm.step_size:.4g}", *batch, *counts, f"{choice.error:.4g}"]


# Help


def test_help_of_vrtd_names_it_and_loads_no_library():
    code = (
        "import sys; from vrtd.cli import main; main(['--help']);"
        "print(sorted(set(sys.modules) & {'numpy', 'scipy', 'numba', 'matplotlib'}))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "choose step size, batch size and epochs for a target or a budget" in " ".join(shown.split())
    assert shown.splitlines()[-1] == "[]"


def test_help_names_options_and_defaults(capsys):
    shown = " ".join(run(capsys, "plan --help").split())
    assert "vrtd plan (--target-error X | --budget N) [OPTIONS]" in shown
    assert f"{{{','.join(LIBRARY)}}}" in shown
    texts, defaults = help_of("plan"), signature(vrtd.plan).parameters
    assert "(default: random_mdp)" in texts["problem"]
    for problem in ("random_mdp 50", "garnet 100", "random_walk 5"):
        assert problem in texts["n_states"]
    for option, default in {
        "sampling": defaults["sampling"].default,
        "objective": "gradients",
        "mode": "exact",
        "transitions": 20000,
        "confidence": defaults["confidence"].default,
        "output": defaults["output"].default,
        "seed": defaults["seed"].default,
    }.items():
        assert f"(default: {default})" in texts[option]
    for option in ("target-error", "budget", "radius", "normalise", "map", "figure", "data", "json", "quiet"):
        assert f" --{option}" in shown


# Every mode, as text


def test_exact_text_for_a_target(capsys, walk):
    shown = run(capsys, WALK, "--target-error", "0.01")
    plan = vrtd.plan(walk, target_error=0.01, sampling="iid")
    for line in (
        "problem    random_walk, seed 0, n_states 5, n_features 5",
        "goal       squared error 0.01 with the fewest pseudo-gradients; iid sampling, exact mode",
        f"start      squared error {plan.initial_error:.4g}",
        "TD     exact",
        "VRTD   exact",
        plan.advice,
    ):
        assert line in shown.splitlines()
    assert table(shown) == [cells("TD", plan.td), cells("VRTD", plan.vrtd)]
    optimal = instance_optimal(walk, "iid")
    need = int(np.ceil(optimal / 0.01))
    last = f"The error of the closed form (LSTD) tends to {optimal:.4g} / n for n samples"
    assert shown.splitlines()[-1] == f"{last}: {need:,} samples for this target."


def test_exact_text_for_a_budget_on_a_trajectory_names_the_simulated_check(capsys, walk):
    shown = run(capsys, "plan --problem random_walk --budget 2_000 --seed 3")
    plan = vrtd.plan(walk, budget=2000, seed=3)
    assert "the lowest squared error with 2,000 pseudo-gradients; markov sampling, exact mode" in shown
    assert table(shown) == [cells("TD", plan.td), cells("VRTD", plan.vrtd)]
    check = plan.vrtd.check
    simulated = f"{check.n_runs:,} simulated runs gave {check.error:.4g} +- {check.standard_error:.2g}"
    assert f"VRTD   {plan.vrtd.method}; {simulated}" in shown.splitlines()
    optimal = instance_optimal(walk)
    assert f"{optimal:.4g} / n for n samples: {optimal / 2000:.4g} after 2,000." in shown


def test_guaranteed_text(capsys, walk):
    shown = run(capsys, SMALL, *shlex.split("--mode guaranteed --objective samples --output average"))
    options = {"mode": "guaranteed", "objective": "samples", "output": "average"}
    plan = vrtd.plan(walk, budget=2000, sampling="iid", **options)
    assert "with 2,000 samples; iid sampling, guaranteed mode, output average" in shown
    assert f"TD     {plan.td.method}" in shown.splitlines()
    assert plan.td.method.startswith("bound: ")
    assert "is at most" in plan.advice
    assert plan.advice in shown.splitlines()


def test_estimated_text_says_that_nothing_but_the_sample_is_known(capsys, walk):
    shown = run(capsys, SMALL, *shlex.split("--mode estimated --transitions 3_000 --seed 5 --confidence 0.9"))
    sample = vrtd.record(walk, 3000, sampling="iid", seed=5, shuffle=False)
    plan = vrtd.plan(sample, budget=2000, sampling="iid", confidence=0.9, seed=5)
    line = "sample     3,000 transitions drawn independently, seed 5; the plan uses nothing else"
    assert line in shown.splitlines()
    low, high = plan.td.interval
    assert f"TD     {plan.td.method}; {low:.4g} to {high:.4g} with confidence 0.9" in shown.splitlines()
    assert table(shown) == [cells("TD", plan.td), cells("VRTD", plan.vrtd)]
    assert shown.splitlines()[-1] == plan.advice  # the limit of all methods is not known


def test_what_cannot_be_done_or_was_not_checked_is_said(walk):
    plan = vrtd.plan(walk, budget=2000, sampling="iid")
    unchecked = replace(plan.td, prediction=Prediction.FIRST_ORDER)
    answer = plan_formats.PlanAnswer({"name": "a chain"}, replace(plan, td=unchecked, vrtd=None), None, None, None, 0)
    shown = plan_formats.as_text(answer)
    assert table(shown)[1] == ["VRTD", *"------"]
    assert "VRTD   cannot reach the goal" in shown.splitlines()
    assert "TD     approximation: to first order in the step; not simulated" in shown.splitlines()


# JSON, and what reaches the library


def test_json_equals_the_library(capsys, walk):
    shown = json.loads(run(capsys, SMALL, "--json", "--output", "average", "--radius", "9"))
    plan = vrtd.plan(walk, budget=2000, sampling="iid", output="average", radius=9.0)
    assert shown == plan.as_dict() | {
        "problem": {"name": "random_walk", "seed": 0, "left_reward": None, "n_states": 5, "n_features": 5},
        "seed": 0,
        "n_transitions": None,
        "instance_optimal": instance_optimal(walk, "iid"),
        "map": None,
        "files": {},
    }
    assert shown["vrtd"]["algorithm"]["output"] == "average"


def test_json_of_a_sample(capsys, walk):
    shown = json.loads(run(capsys, "plan --problem random_walk --target-error 0.1 --mode estimated --seed 2 --json"))
    sample = vrtd.record(walk, 20_000, seed=2, shuffle=False)
    assert {key: shown[key] for key in ("mode", "td", "vrtd", "advice")} == {
        key: value
        for key, value in vrtd.plan(sample, target_error=0.1, seed=2).as_dict().items()
        if key in ("mode", "td", "vrtd", "advice")
    }
    assert shown["n_transitions"] == 20_000
    assert shown["instance_optimal"] is None
    assert shown["seed"] == 2


@pytest.mark.parametrize("flag", ["--normalise", "--normalize"])
def test_normalised_features(capsys, flag):
    problem = vrtd.problems.random_mdp(seed=1, n_states=10)
    factor = float(np.linalg.norm(problem.phi, axis=1).max())
    command = f"plan --problem-seed 1 --states 10 --budget 1_000_000_000 --mode guaranteed {flag}"
    shown = json.loads(run(capsys, f"{command} --json"))
    assert shown["problem"] == {
        "name": "random_mdp", "seed": 1, "n_states": 10, "n_features": 4, "gamma": 0.95, "laziness": 0.0,
        "features_divided_by": factor,
    }  # fmt: skip
    scaled = vrtd.LinearProblem(problem.mrp, problem.phi / factor)
    plan = vrtd.plan(scaled, budget=10**9, mode="guaranteed")
    assert shown["vrtd"] == plan.vrtd.as_dict()
    assert f"gamma 0.95, laziness 0.0, features divided by {factor:.6g}\n" in run(capsys, command)


def test_options_arrive(monkeypatch):
    seen = []

    def stop(problem, **options):
        seen.append((problem, options))
        raise KeyboardInterrupt

    monkeypatch.setattr(vrtd.theory, "plan", stop)
    main(shlex.split("plan --problem garnet --problem-seed 7 --states 30 --features 3 --target-error 0.5"))
    main(
        shlex.split(
            "plan --budget 9 --sampling iid --objective samples --mode guaranteed --radius 4 --output last --seed 3"
        )
    )
    main(shlex.split("plan --budget 9 --mode estimated --confidence 0.5 --transitions 50"))
    (problem, options), (_, second), (sample, third) = seen
    assert problem.digest == vrtd.problems.garnet(seed=7, n_states=30, n_features=3).digest
    assert options == {"target_error": 0.5, "sampling": "markov", "mode": "exact", "seed": 0}
    assert second == {
        "budget": 9, "sampling": "iid", "objective": "samples", "mode": "guaranteed", "radius": 4.0, "output": "last",
        "seed": 3,
    }  # fmt: skip
    assert len(sample) == 50
    assert third == {"budget": 9, "sampling": "markov", "confidence": 0.5, "seed": 0}


# The map


def test_map(capsys, tmp_path, walk):
    figure = tmp_path / "map.png"
    shown = run(capsys, SMALL, "--map", "--figure", str(figure))
    diagram = phase_diagram(walk, budget=2000, sampling="iid")
    plan = vrtd.plan(walk, budget=2000, sampling="iid")
    step, batch, error = diagram.best
    assert batch == 1
    assert f"best cell  TD with step {step:.4g}: squared error {error:.4g}" in shown.splitlines()
    limits = diagram.stability
    assert (
        f"stability  TD below step {limits[0]:.3g}, VRTD with batch {diagram.batch_sizes[-1]:,} below {limits[-1]:.3g}"
        in shown
    )
    assert "theory     Theorem 1, corrected applies nowhere on this map" in shown.splitlines()
    mask = diagram.admissible["Theorem 1, sharpened"]
    largest = diagram.step_sizes[mask.any(axis=1)].max()
    where = f"in {mask[:, 1:].mean():.0%} of VRTD's cells, steps up to {largest:.3g}, batches from 2"
    assert f"theory     Theorem 1, sharpened applies {where}" in shown.splitlines()
    assert plan.advice in shown.splitlines()
    assert f"wrote {figure}, {tmp_path / 'map.csv'}" in shown
    assert figure.read_bytes().startswith(b"\x89PNG")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "map.csv").read_text())))
    assert len(rows) == diagram.error.size
    assert float(rows[0]["squared_error"]) == diagram.error[0, 0]


@pytest.mark.slow
def test_map_on_a_trajectory_as_json(capsys, walk, monkeypatch):
    small = phase_diagram(walk, budget=500, output="last", n_steps=4)
    seen = []
    monkeypatch.setattr(vrtd.theory, "phase_diagram", lambda *_, **options: seen.append(options) or small)
    command = "plan --problem random_walk --budget 500 --output last --map"
    shown = json.loads(run(capsys, f"{command} --json"))
    assert shown["map"] == small.as_dict()
    assert shown["budget"] == 500
    assert seen == [{"budget": 500, "sampling": "markov", "output": "last"}]
    text = run(capsys, command)
    assert f"trust      VRTD's approximation to about 5 % up to step {small.trusted:.3g}" in text.splitlines()


def test_best_cell_of_vrtd(walk):
    diagram = phase_diagram(walk, budget=2000, sampling="iid", n_steps=4)
    error = np.ones_like(diagram.error)
    error[1, 2] = 0.5
    plan = vrtd.plan(walk, budget=2000, sampling="iid")
    answer = plan_formats.PlanAnswer({"name": "a chain"}, plan, replace(diagram, error=error), None, None, 0)
    best = f"VRTD with step {diagram.step_sizes[1]:.4g} and batch {diagram.batch_sizes[2]:,}: squared error 0.5"
    assert f"best cell  {best}" in plan_formats.as_text(answer).splitlines()
