"""`vrtd plan`: what it writes and what it refuses."""

import csv
import io
import json
import os
import shlex
import sys
from dataclasses import replace

import pytest

import vrtd
import vrtd.theory
from tests.helpers.plan_command import SMALL, run
from vrtd.cli import main, outputs, plan_formats
from vrtd.errors import InvalidInputError
from vrtd.plots import new_panels
from vrtd.theory import phase_diagram
from vrtd.theory.predictions import Prediction


@pytest.fixture(scope="module")
def walk():
    return vrtd.problems.random_walk()


@pytest.fixture
def never(monkeypatch):
    """Fail if planning begins."""
    monkeypatch.setattr(vrtd.theory, "plan", lambda *_, **__: pytest.fail("planning began"))


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
    plan = vrtd.plan(walk, budget=2000, sampling="iid")
    diagram = phase_diagram(walk, budget=2000, sampling="iid", n_steps=4)
    problem = {"name": "random_walk", "seed": 0, "features_divided_by": 2.0}
    for shown, expected in (
        (None, "the lowest squared error with 2,000 pseudo-gradients; iid sampling, exact mode"),
        (diagram, "iid sampling, exact"),
        (
            replace(diagram, prediction=Prediction.FIRST_ORDER),
            f"iid sampling, VRTD by {Prediction.FIRST_ORDER.describe()}",
        ),
    ):
        figure = plan_formats.draw(new_panels(1)[0], plan_formats.PlanAnswer(problem, plan, shown, None, None, 0))
        assert figure.get_suptitle() == f"random_walk, seed 0, features divided by 2\n{expected}"


def test_csv_beside_a_figure_replaces_only_its_own_kind(capsys, tmp_path, monkeypatch):
    command = [*SMALL, "--figure", str(tmp_path / "a.png")]
    run(capsys, command)
    run(capsys, command)
    monkeypatch.setattr(vrtd.theory, "plan", lambda *_, **__: pytest.fail("planning began"))
    assert main([*command, "--map"]) == 2  # the table of curves is not one of a map
    assert "holds something else. Name another file with --data." in capsys.readouterr().err
    (tmp_path / "a.csv").write_text("step_size,batch_size,squared_error,stable\n")
    assert main(command) == 2
    assert "holds something else. Name another file with --data." in capsys.readouterr().err


def test_a_file_that_fails_is_not_half_written_and_the_numbers_are_still_printed(capsys, tmp_path, monkeypatch):
    class Full:
        def savefig(self, file, **options):
            file.write(b"half")
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("vrtd.cli.plan.draw", lambda *_: Full())
    assert main([*SMALL, "--json", "--figure", str(tmp_path / "a.png")]) == 2
    shown, noise = capsys.readouterr()
    assert "td" in json.loads(shown)
    assert noise == f"vrtd: error: {tmp_path}/a.png: No space left on device. Free space, then run it again.\n"
    assert {path.name for path in tmp_path.iterdir()} == {"a.csv"}


# What goes wrong

OFF_POLICY = "importance ratios of up to 7, but the theory covers on-policy chains only. Simulate instead"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "one of the arguments --target-error --budget is required. See: vrtd plan --help"),
        ("--map", "one of the arguments --target-error --budget is required. See: vrtd plan --help"),
        ("--budget 9 --target-error 1", "--target-error not allowed with argument --budget. See: vrtd plan --help"),
        ("--budget many", "--budget must be a whole number, but got 'many'. See: vrtd plan --help"),
        ("--budget 9 --mode sure", "--mode must be one of exact, guaranteed, estimated, but got 'sure'"),
        ("--target-error 1 --map", "--map needs a --budget, but got --target-error. Drop --target-error or --map"),
        (
            "--budget 9 --mode estimated --map",
            "--map needs the chain itself, but got --mode estimated. Drop --mode or",
        ),
        ("--budget 9 --objective samples --map", "--map counts pseudo-gradients, but got --objective samples. Drop"),
        (
            "--budget 9 --transitions 100",
            "--transitions belongs to --mode estimated, but got --mode exact. Drop it, or",
        ),
        ("--budget 9 --mode guaranteed --confidence 0.9", "--confidence belongs to --mode estimated, but got --mode"),
        (
            "--budget 9 --problem boyan_chain --states 5",
            "--states belongs to random_mdp or garnet or random_walk or off_policy_garnet, but got",
        ),
        (
            "--budget 9 --figure plan.jpg",
            "--figure must be a .png or .svg or .pdf file, but got plan.jpg. Change the name",
        ),
        ("--budget 9 --figure no/plan.png", "--figure must be in an existing, writable folder, but no is not. Create"),
        ("--budget 9 --data run", "--data must be a .csv file, but got run. Change the name"),
    ],
)
@pytest.mark.usefixtures("never")
def test_errors_before_planning(capsys, arguments, message):
    assert main(["plan", *shlex.split(arguments)]) == 2
    refused(capsys, message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--budget 1", "--budget must be at least 4, which is one epoch of VRTD with a batch of two,"),
        ("--target-error -1", "--target-error must be a positive, finite number, but got -1.0. Pass a number above 0"),
        (
            "--target-error 1000",
            "--target-error must be below the initial error, 1.52778, but is 1000.0. Lower the target;",
        ),
        (
            "--budget 9 --radius 0.1",
            "--radius must be at least |theta_star| = 1.23603, but is 0.1, which keeps the squared error",
        ),
        ("--budget 9 --seed -1", "--seed must be a whole number of at least 0, but got -1. Pass an integer >= 0"),
        (
            "--budget 9 --mode estimated --transitions 0",
            "--transitions must be a whole number of at least 1, but got 0",
        ),
        (
            "--budget 9 --mode estimated --transitions 3",
            "phi must have full column rank 5 on the sample, but has",
        ),
        ("--budget 9 --mode estimated --confidence 2", "--confidence must lie in (0, 1)"),
        (
            "--budget 99 --mode guaranteed --output last",
            '--output must be "random" or "average" for the bounds',
        ),
        (
            "--problem baird --budget 9",
            OFF_POLICY,
        ),
        (
            "--problem baird --budget 9 --map",
            OFF_POLICY,
        ),
        (
            "--problem baird --budget 9 --mode guaranteed",
            OFF_POLICY,
        ),
        (
            "--problem baird --budget 9 --mode estimated",
            OFF_POLICY,
        ),
    ],
)
def test_errors_of_the_library(capsys, arguments, message):
    assert main(["plan", "--problem", "random_walk", *shlex.split(arguments)]) == 2
    refused(capsys, message)


def test_features_that_are_too_large_for_the_bounds_lead_to_the_option(capsys):
    assert main(shlex.split("plan --budget 10_000 --mode guaranteed")) == 2
    refused(
        capsys,
        "The condition that |phi(s)| <= 1 in every state (Assumption 2) fails: the largest norm is 1.59588; divide the "
        "features by 1.59588, which multiplies theta_star by the same factor. Add --normalise, which does this, or use "
        "--mode exact.\n",
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


def test_planning_leaves_linear_algebra_to_one_thread(monkeypatch, capsys):
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    main(["plan", "--help"])
    assert os.environ["OPENBLAS_NUM_THREADS"] == "1"
    capsys.readouterr()


def test_a_folder_that_cannot_be_written_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(outputs.os, "access", lambda _, mode: not mode & os.W_OK)
    with pytest.raises(InvalidInputError, match="--data must be in an existing, writable folder"):
        outputs.check_files({"data": tmp_path / "a.csv"}, "")


def test_a_folder_is_no_file(tmp_path):
    (tmp_path / "a.csv").mkdir()
    with pytest.raises(InvalidInputError, match=r"--data must be a \.csv file"):
        outputs.check_files({"data": tmp_path / "a.csv"}, "")
