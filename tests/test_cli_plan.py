"""`vrtd plan`: what it prints in every mode, what it writes, what it refuses."""

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
from vrtd.cli import main, plan_formats
from vrtd.plots import new_panels
from vrtd.problems import LIBRARY
from vrtd.theory import TransitionSample, instance_optimal, phase_diagram

WALK = shlex.split("plan --problem random_walk --sampling iid")
SMALL = [*WALK, "--budget", "2000"]


@pytest.fixture(scope="module")
def walk():
    return vrtd.problems.random_walk()


@pytest.fixture
def never(monkeypatch):
    """Fail if planning begins."""
    monkeypatch.setattr(vrtd.theory, "plan", lambda *_, **__: pytest.fail("planning began"))


def run(capsys, arguments, *more):
    """What a command that goes well prints, with nothing on stderr."""
    assert main([*(shlex.split(arguments) if isinstance(arguments, str) else arguments), *more]) == 0
    shown, noise = capsys.readouterr()
    assert noise == ""
    return shown


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
    assert "step size, batch size and epochs for a target or a budget" in " ".join(shown.split())
    assert shown.splitlines()[-1] == "[]"


def test_help_names_options_and_defaults(capsys):
    shown = " ".join(run(capsys, "plan --help").split())
    assert "vrtd plan (--target-error X | --budget N) [OPTIONS]" in shown
    assert f"{{{','.join(LIBRARY)}}}" in shown
    defaults = signature(vrtd.plan).parameters
    for option, default in {
        "problem": "(default random_mdp)",
        "states": "random_mdp 50, garnet 100, random_walk 5",
        "sampling": f"(default {defaults['sampling'].default})",
        "objective": "pseudo-gradients (default)",
        "mode": "by the chain's moments (default)",
        "transitions": "(default 20000)",
        "confidence": f"(default {defaults['confidence'].default})",
        "output": f"(default {defaults['output'].default})",
        "seed": f"(default {defaults['seed'].default})",
    }.items():
        assert default in shown.split(f" --{option} ")[1][:130]
    for option in ("target-error", "budget", "radius", "normalise", "map", "figure", "data", "json", "quiet"):
        assert f" --{option}" in shown


# Every mode, as text


def test_exact_text_for_a_target(capsys, walk):
    shown = run(capsys, WALK, "--target-error", "0.01")
    plan = vrtd.plan(*walk, target_error=0.01, sampling="iid")
    for line in (
        "problem    random_walk, seed 0, n_states 5, n_features 5",
        "asked      squared error 0.01 with the fewest pseudo-gradients; iid sampling, exact mode",
        f"start      squared error {plan.initial_error:.4g}",
        "TD     exact",
        "VRTD   exact",
        plan.advice,
    ):
        assert line in shown.splitlines()
    assert table(shown) == [cells("TD", plan.td), cells("VRTD", plan.vrtd)]
    optimal = instance_optimal(vrtd.LinearSystem(*walk), "iid")
    need = int(np.ceil(optimal / 0.01))
    last = f"No method is below {optimal:.4g} / samples in the long run: {need:,} samples for this target."
    assert shown.splitlines()[-1] == last


def test_exact_text_for_a_budget_on_a_trajectory_names_the_simulated_check(capsys, walk):
    shown = run(capsys, "plan --problem random_walk --budget 2_000 --seed 3")
    plan = vrtd.plan(*walk, budget=2000, seed=3)
    assert "the least squared error with 2,000 pseudo-gradients; markov sampling, exact mode" in shown
    assert table(shown) == [cells("TD", plan.td), cells("VRTD", plan.vrtd)]
    check = plan.vrtd.check
    simulated = f"{check.n_runs:,} simulated runs gave {check.error:.4g} +- {check.standard_error:.2g}"
    assert f"VRTD   {plan.vrtd.method}; {simulated}" in shown.splitlines()
    optimal = instance_optimal(vrtd.LinearSystem(*walk))
    assert f"{optimal:.4g} / samples in the long run: {optimal / 2000:.4g} after 2,000." in shown


def test_guaranteed_text(capsys, walk):
    shown = run(capsys, SMALL, *shlex.split("--mode guaranteed --objective samples --output average --radius 2"))
    options = {"mode": "guaranteed", "objective": "samples", "output": "average", "radius": 2.0}
    plan = vrtd.plan(*walk, budget=2000, sampling="iid", **options)
    assert "with 2,000 samples; iid sampling, guaranteed mode, output average, radius 2" in shown
    assert f"TD     {plan.td.method}" in shown.splitlines()
    assert plan.td.method.startswith("bound: ")
    assert "is at most" in plan.advice
    assert plan.advice in shown.splitlines()


def test_estimated_text_says_that_nothing_but_the_sample_is_known(capsys, walk):
    shown = run(capsys, SMALL, *shlex.split("--mode estimated --transitions 3_000 --seed 5 --confidence 0.9"))
    sample = TransitionSample.draw(*walk, 3000, sampling="iid", seed=5)
    plan = vrtd.plan(sample, budget=2000, sampling="iid", confidence=0.9, seed=5)
    line = "sample     3,000 transitions drawn independently, seed 5; the plan knows nothing else of the problem"
    assert line in shown.splitlines()
    low, high = plan.td.interval
    assert f"TD     {plan.td.method}; {low:.4g} to {high:.4g} with confidence 0.9" in shown.splitlines()
    assert table(shown) == [cells("TD", plan.td), cells("VRTD", plan.vrtd)]
    assert shown.splitlines()[-1] == plan.advice  # the limit of all methods is not known


def test_what_cannot_be_done_or_was_not_checked_is_said(walk):
    plan = vrtd.plan(*walk, budget=2000, sampling="iid")
    unchecked = replace(plan.td, method="approximation: some")
    answer = plan_formats.Answer({"name": "a chain"}, replace(plan, td=unchecked, vrtd=None), None, None, None, 0)
    shown = plan_formats.as_text(answer)
    assert table(shown)[1] == ["VRTD", *"------"]
    assert "VRTD   cannot do it" in shown.splitlines()
    assert "TD     approximation: some; not simulated" in shown.splitlines()


# JSON, and what reaches the library


def test_json_equals_the_library(capsys, walk):
    shown = json.loads(run(capsys, SMALL, "--json", "--output", "average", "--radius", "9"))
    plan = vrtd.plan(*walk, budget=2000, sampling="iid", output="average", radius=9.0)
    assert shown == plan.as_dict() | {
        "problem": {"name": "random_walk", "seed": 0, "left_reward": None, "n_states": 5, "n_features": 5},
        "seed": 0,
        "n_transitions": None,
        "instance_optimal": instance_optimal(vrtd.LinearSystem(*walk), "iid"),
        "map": None,
        "files": {},
    }
    assert shown["vrtd"]["algorithm"]["output"] == "average"


def test_json_of_a_sample(capsys, walk):
    shown = json.loads(run(capsys, "plan --problem random_walk --target-error 0.1 --mode estimated --seed 2 --json"))
    sample = TransitionSample.draw(*walk, 20_000, seed=2)
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
    mrp, phi = vrtd.problems.random_mdp(seed=1, n_states=10)
    factor = float(np.linalg.norm(phi, axis=1).max())
    command = f"plan --problem-seed 1 --states 10 --budget 1_000_000_000 --mode guaranteed {flag}"
    shown = json.loads(run(capsys, f"{command} --json"))
    assert shown["problem"] == {
        "name": "random_mdp", "seed": 1, "n_states": 10, "n_features": 4, "gamma": 0.95, "features_divided_by": factor,
    }  # fmt: skip
    plan = vrtd.plan(mrp, phi / factor, budget=10**9, mode="guaranteed")
    assert shown["vrtd"] == plan.vrtd.as_dict()
    assert f"gamma 0.95, features divided by {factor:.6g}\n" in run(capsys, command)


def test_options_arrive(monkeypatch):
    seen = []

    def stop(*problem, **options):
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
    ((mrp, phi), options), (_, second), ((sample,), third) = seen
    assert mrp.digest == vrtd.problems.garnet(seed=7, n_states=30, n_features=3)[0].digest
    assert phi.shape == (30, 3)
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
    diagram = phase_diagram(*walk, budget=2000, sampling="iid")
    plan = vrtd.plan(*walk, budget=2000, sampling="iid")
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


def test_map_on_a_trajectory_as_json(capsys, walk, monkeypatch):
    small = phase_diagram(*walk, budget=500, output="last", n_steps=4)
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
    diagram = phase_diagram(*walk, budget=2000, sampling="iid", n_steps=4)
    error = np.ones_like(diagram.error)
    error[1, 2] = 0.5
    plan = vrtd.plan(*walk, budget=2000, sampling="iid")
    answer = plan_formats.Answer({"name": "a chain"}, plan, replace(diagram, error=error), None, None, 0)
    best = f"VRTD with step {diagram.step_sizes[1]:.4g} and batch {diagram.batch_sizes[2]:,}: squared error 0.5"
    assert f"best cell  {best}" in plan_formats.as_text(answer).splitlines()


# Files


@pytest.mark.parametrize(("suffix", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_figure_and_named_data(capsys, tmp_path, walk, suffix, start):
    figure, data = tmp_path / f"plan.{suffix}", tmp_path / "numbers.csv"
    shown = json.loads(run(capsys, SMALL, "--json", "--figure", str(figure), "--data", str(data)))
    assert shown["files"] == {"data": str(data), "figure": str(figure)}
    assert figure.read_bytes().startswith(start)
    assert {path.name for path in tmp_path.iterdir()} == {figure.name, "numbers.csv"}
    rows = list(csv.DictReader(io.StringIO(data.read_text())))
    last = [row for row in rows if row["algorithm"] == "td"][-1]
    assert int(last["n_gradients"]) == 2000
    assert float(last["squared_error"]) == pytest.approx(shown["td"]["error"])


def test_titles(walk):
    plan = vrtd.plan(*walk, budget=2000, sampling="iid")
    diagram = phase_diagram(*walk, budget=2000, sampling="iid", n_steps=4)
    problem = {"name": "random_walk", "seed": 0, "features_divided_by": 2.0}
    for shown, expected in (
        (None, "the least squared error with 2,000 pseudo-gradients; iid sampling, exact mode"),
        (diagram, "iid sampling, exact"),
        (replace(diagram, method="approximation: some"), "iid sampling, VRTD by approximation: some"),
    ):
        figure = plan_formats.draw(new_panels(1)[0], plan_formats.Answer(problem, plan, shown, None, None, 0))
        assert figure.get_suptitle() == f"random_walk, seed 0, features divided by 2\n{expected}"


def test_csv_beside_a_figure_replaces_only_its_own_kind(capsys, tmp_path, monkeypatch):
    command = [*SMALL, "--figure", str(tmp_path / "a.png")]
    run(capsys, command)
    run(capsys, command)
    monkeypatch.setattr(vrtd.theory, "plan", lambda *_, **__: pytest.fail("planning began"))
    assert main([*command, "--map"]) == 2  # the table of curves is not one of a map
    assert "holds something else; name a --data file" in capsys.readouterr().err
    (tmp_path / "a.csv").write_text("step_size,batch_size,squared_error,stable\n")
    assert main(command) == 2
    assert "holds something else; name a --data file" in capsys.readouterr().err


def test_a_file_that_fails_is_not_half_written_and_the_numbers_are_still_printed(capsys, tmp_path, monkeypatch):
    class Full:
        def savefig(self, file, **options):
            file.write(b"half")
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("vrtd.cli.plan.draw", lambda *_: Full())
    assert main([*SMALL, "--json", "--figure", str(tmp_path / "a.png")]) == 2
    shown, noise = capsys.readouterr()
    assert "td" in json.loads(shown)
    assert noise == "vrtd: error: [Errno 28] No space left on device\n"
    assert {path.name for path in tmp_path.iterdir()} == {"a.csv"}


# What goes wrong


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "one of the arguments --target-error --budget is required; see: vrtd plan --help"),
        ("--map", "one of the arguments --target-error --budget is required; see: vrtd plan --help"),
        ("--budget 9 --target-error 1", "--target-error: not allowed with argument --budget; see: vrtd plan --help"),
        ("--budget many", "argument --budget: invalid int value: 'many'; see: vrtd plan --help"),
        ("--budget 9 --mode sure", "argument --mode: invalid choice: 'sure'"),
        ("--target-error 1 --map", "--map needs a --budget; got --target-error; drop --target-error, or --map"),
        ("--budget 9 --mode estimated --map", "--map needs the chain itself; got --mode estimated; drop --mode, or"),
        ("--budget 9 --objective samples --map", "--map counts pseudo-gradients; got --objective samples; drop"),
        ("--budget 9 --transitions 100", "--transitions belongs to --mode estimated; got --mode exact; drop it, or"),
        ("--budget 9 --mode guaranteed --confidence 0.9", "--confidence belongs to --mode estimated; got --mode"),
        ("--budget 9 --problem boyan_chain --states 5", "--states belongs to random_mdp or garnet or random_walk; got"),
        ("--budget 9 --figure plan.jpg", "--figure must be a .png or .svg or .pdf file; got plan.jpg; change the name"),
        ("--budget 9 --figure no/plan.png", "--figure must be in a folder that exists and can be written; got no;"),
        ("--budget 9 --data run", "--data must be a .csv file; got run; change the name"),
    ],
)
@pytest.mark.usefixtures("never")
def test_errors_before_planning(capsys, arguments, message):
    assert main(["plan", *shlex.split(arguments)]) == 2
    refused(capsys, message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--budget 1", "budget must be at least one epoch of VRTD with a batch of two, 4,"),
        ("--target-error -1", "target_error must be a positive, finite number; got -1.0; pass a number above 0"),
        ("--target-error 1000", "target_error must be below the error of theta_0, 1.52778; got 1000.0; nothing is to"),
        ("--budget 9 --radius 0.1", "radius must be at least |theta_star| = 1.23603, else no target is reachable; got"),
        ("--budget 9 --seed -1", "seed must be a whole number of at least 0; got -1; pass an integer >= 0"),
        ("--budget 9 --mode estimated --transitions 0", "n_transitions must be a whole number of at least 1; got 0"),
        ("--budget 9 --mode estimated --transitions 3", "phi must have full column rank 5 on the sample; got rank"),
        ("--budget 9 --mode estimated --confidence 2", "confidence must be"),
        ("--budget 99 --mode guaranteed --output last", 'the bounds are for the outputs "random" and "average"; got'),
        ("--problem baird --budget 9", "phi must have full column rank 8"),
    ],
)
def test_errors_of_the_library(capsys, arguments, message):
    assert main(["plan", "--problem", "random_walk", *shlex.split(arguments)]) == 2
    refused(capsys, message)


def test_features_that_are_too_large_for_the_bounds_lead_to_the_option(capsys):
    assert main(shlex.split("plan --budget 10_000 --mode guaranteed")) == 2
    refused(
        capsys,
        "|phi(s)| <= 1 in every state (Assumption 2); got the largest norm is 1.59588; divide the features by 1.59588, "
        "which multiplies theta_star by as much; give --normalise, which does it, or plan with --mode exact\n",
    )


def refused(capsys, message):
    shown, noise = capsys.readouterr()
    assert shown == ""
    assert len(noise.splitlines()) == 1
    assert noise.startswith("vrtd: error: ")
    assert message in noise


@pytest.mark.usefixtures("never")
def test_missing_matplotlib_is_told_before_planning(capsys, tmp_path, monkeypatch):
    for name in ("matplotlib", "matplotlib.figure", "matplotlib.backends.backend_agg"):
        monkeypatch.setitem(sys.modules, name, None)
    assert main([*SMALL, "--figure", str(tmp_path / "a.png")]) == 2
    assert "pip install 'vrtd[plot]'" in capsys.readouterr().err


def test_an_interrupt_leaves_nothing(capsys, tmp_path, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(vrtd.theory, "phase_diagram", stop)
    assert main([*SMALL, "--map", "--figure", str(tmp_path / "a.png")]) == 130
    assert capsys.readouterr() == ("", "vrtd: interrupted\n")
    assert not list(tmp_path.iterdir())


# Progress


class Screen(io.StringIO):
    def isatty(self):
        return True


def test_a_note_on_a_terminal_that_is_not_quiet(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Screen())
    assert main(SMALL) == 0
    assert sys.stderr.getvalue() == "planning ...\r\x1b[K"
    monkeypatch.setattr(sys, "stderr", Screen())
    assert main([*SMALL, "--quiet"]) == 0
    assert sys.stderr.getvalue() == ""
