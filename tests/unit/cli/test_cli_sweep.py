"""`vrtd sweep`, and `vrtd simulate` with several algorithms: what they print and write, and what they refuse."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vrtd
from vrtd.cli import main
from vrtd.cli.terminal import BAD_USAGE, DIVERGED, OK
from vrtd.result import CSV_HEADER
from vrtd.tables import parse_csv

SMALL = "--runs 4 --gradients 2000 --quiet"
SWEEP = f"sweep {SMALL} --problem boyan_chain random_walk --step-size 0.05,0.1 --batch-size 20,50"
BOTH = f"simulate --algorithm td vrtd {SMALL} --batch-size 50 --checkpoints 3 --problem boyan_chain"


def library() -> Any:
    grid = {"step_size": [0.05, 0.1], "batch_size": [20, 50]}
    return vrtd.sweep(["boyan_chain", "random_walk"], "vrtd", grid, n_runs=4, n_gradients=2000)


def test_a_sweep_prints_the_best_settings(capsys: Any) -> None:
    assert main(shlex.split(SWEEP)) == OK
    shown, told = capsys.readouterr()
    assert told == ""
    assert "cells      8, each of 4 runs and 2,000 pseudo-gradients" in shown
    for name in ("boyan_chain", "random_walk"):
        best = library().best()[name]
        block = shown.split(f"squared_error at the end on {name}\n")[1].splitlines()
        assert block[1].split()[:3] == [f"{each}" for each in (*best.setting.values(), f"{best.mean:.4g}")]
        assert block[1].endswith(" *")
    shown.encode("ascii")  # for every terminal


def test_a_sweep_writes_its_files_and_json(tmp_path: Path, capsys: Any) -> None:
    line = f"{SWEEP} --json --out {tmp_path / 'out'} --data {tmp_path / 'table.csv'}"
    assert main(shlex.split(line)) == OK
    shown = json.loads(capsys.readouterr().out)
    expected = library()
    assert shown["best"]["squared_error"]["random_walk"]["setting"] == expected.best()["random_walk"].setting
    assert shown["table"]["mean"] == expected.table["mean"].tolist()
    assert shown["files"] == {"data": str(tmp_path / "table.csv")}
    assert (tmp_path / "table.csv").read_bytes() == (tmp_path / "out" / "sweep.csv").read_bytes()
    assert np.array_equal(parse_csv((tmp_path / "table.csv").read_bytes())["mean"], expected.table["mean"])


def test_a_sweep_draws_a_figure_beside_its_table(tmp_path: Path, capsys: Any) -> None:
    line = f"sweep {SMALL} --problem boyan_chain --step-size 0.05,0.1 --batch-size 50 --figure {tmp_path / 'a.svg'}"
    assert main(shlex.split(line)) == OK
    assert "step size" in (tmp_path / "a.svg").read_text()
    assert (tmp_path / "a.csv").read_text().startswith("problem,step_size,batch_size,metric,")
    assert capsys.readouterr().out.endswith(f"wrote {tmp_path / 'a.svg'}, {tmp_path / 'a.csv'}\n")
    assert main(shlex.split(line)) == OK  # replaces a table of its own


def test_values_of_every_kind(capsys: Any) -> None:
    line = f"sweep {SMALL} --algorithm td --step-size 1e-2 --radius none,10 --average false --json --exact never"
    assert main(shlex.split(line)) == OK
    table = json.loads(capsys.readouterr().out)["table"]
    assert table["radius"] == [None, 10.0]
    assert table["average"] == [False, False]
    assert table["method"] == ["", ""]


def test_a_data_set_and_other_options_are_those_of_simulate(capsys: Any) -> None:
    line = f"sweep {SMALL} --algorithm svrg --sampling dataset --rows 50 --step-size 0.1 --theta-0 1 --json --seed 2"
    assert main(shlex.split(line)) == OK
    table = json.loads(capsys.readouterr().out)["table"]
    rows = vrtd.record(vrtd.problems.random_mdp(), 50, seed=2)
    result = vrtd.simulate(
        rows, vrtd.SVRG(0.1), n_runs=4, n_gradients=2000, theta_0=np.ones(4), checkpoints=1, seed=2
    )  # fmt: skip
    assert table["mean"] == result.summary().mean.tolist()


def test_diverged_runs_are_told(capsys: Any) -> None:
    line = f"sweep {SMALL} --algorithm td --problem boyan_chain --gradients 20000 --step-size"
    assert main(shlex.split(f"{line} 0.1,50")) == OK
    shown, told = capsys.readouterr()
    assert "Runs diverged with some settings." in told
    assert "1 setting with diverged runs" in shown
    assert main(shlex.split(f"{line} 50")) == DIVERGED


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "sweep",
            "A sweep needs values of at least one setting of vrtd, but got none. Add an option",
        ),
        ("sweep --step-size 0.1,x", "--step-size must be a number, but got 'x'"),
        ("sweep --step-size 0.1,", "--step-size must be a number, but got ''"),
        ("sweep --step-size none", "--step-size must be a number, but got 'none'"),
        ("sweep --batch-size 0.5", "--batch-size must be a whole number, but got '0.5'"),
        ("sweep --output last,lost", "--output must be one of random, last, average, tail, but got 'lost'"),
        ("sweep --algorithm td --average yes", "--average must be one of true, false, but got 'yes'"),
        ("sweep --step-size 0.1,-1", "--step-size must be a positive, finite number, but got -1.0"),
        ("sweep --step-size 0.1,0.1", "grid must not repeat --step-size 0.1. Drop one of them."),
        ("sweep --algorithm td --batch-size 5", "--batch-size belongs to vrtd"),
        ("sweep --problem boyan_chain --states 9 --step-size 1", "--states belongs to random_mdp"),
        ("sweep --problem boyan --step-size 1", "Did you mean 'boyan_chain'?"),
        ("sweep --step-size 1 --rows 5", "--rows belongs to --sampling dataset, but got --sampling markov"),
        ("sweep --step-size 1 --runs 0", "--runs must be a whole number of at least 1"),
        ("sweep --step-size 1 --gradients 10", "--gradients must be at least 1000, the length of one epoch"),
        ("sweep --step-size 1 --figure a.txt", "--figure must be a .png or .svg or .pdf file"),
        ("sweep --step-size 1 --out ''", "--out must be the name of a folder"),
        ("simulate --algorithm td svrg", "svrg needs a data set"),
        ("simulate --algorithm td lstd --batch-size 5", "--batch-size belongs to vrtd"),
        ("simulate --algorithm td vrtd --gradients 10", "--gradients must be at least 1000, the length of one epoch"),
    ],
)
def test_bad_usage(capsys: Any, line: str, message: str) -> None:
    assert main(shlex.split(line)) == BAD_USAGE
    shown, told = capsys.readouterr()
    assert message in told
    assert shown == ""


def test_several_algorithms_are_those_of_single_calls(tmp_path: Path, capsys: Any) -> None:
    files = f"--figure {tmp_path / 'both.svg'} --out {tmp_path / 'runs.npz'}"
    assert main(shlex.split(f"{BOTH} --step-size 0.05 --json {files}")) == OK
    shown = json.loads(capsys.readouterr().out)
    assert list(shown["algorithms"]) == ["td", "vrtd"]
    problem = vrtd.problems.boyan_chain()
    lines = [f"algorithm,{CSV_HEADER}"]
    for algorithm in (vrtd.TD(0.05), vrtd.VRTD(0.05, 50)):
        entry = shown["algorithms"][algorithm.name]
        result = vrtd.simulate(problem, algorithm, n_runs=4, n_gradients=2000, checkpoints=3)
        assert entry["metrics"]["squared_error"] == result.columns()
        assert entry["files"] == {"out": str(tmp_path / f"runs-{algorithm.name}.npz")}
        assert vrtd.load(entry["files"]["out"]).curves.tobytes() == result.curves.tobytes()
        lines += [f"{algorithm.name},{line}" for line in result.csv_lines()]
    assert (tmp_path / "both.csv").read_text().splitlines() == lines
    drawn = (tmp_path / "both.svg").read_text()
    assert "td, step_size 0.05" in drawn
    assert "vrtd, step_size 0.05, batch_size 50" in drawn
    assert shown["files"] == {kind: str(tmp_path / f"both.{suffix}") for kind, suffix in
                              (("figure", "svg"), ("data", "csv"))}  # fmt: skip


def test_several_algorithms_are_printed_one_after_the_other(capsys: Any) -> None:
    assert main(shlex.split(f"{BOTH} --algorithm td vrtd td")) == OK
    shown = capsys.readouterr().out
    assert [line.split()[1] for line in shown.splitlines() if line.startswith("algorithm ")] == ["td,", "vrtd,"]


def test_the_algorithm_that_diverged_is_named(capsys: Any) -> None:
    line = f"{BOTH} --step-size 50 --gradients 20000"
    assert main(shlex.split(line)) == DIVERGED
    told = capsys.readouterr().err
    assert "runs of td diverged" in told
    assert "runs of vrtd diverged" in told
