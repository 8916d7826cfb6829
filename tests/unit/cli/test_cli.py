"""The command line: what it prints, what it writes, what it refuses, how it ends."""

import csv
import io
import json
import os
import shlex
import subprocess
import sys
from dataclasses import fields
from inspect import signature
from pathlib import Path

import numpy as np
import pytest

import vrtd
import vrtd.engine
from tests.helpers.screens import Screen
from vrtd.algorithms import REGISTRY
from vrtd.cli import main, make_parser, terminal
from vrtd.problems import LIBRARY

ROOT = Path(__file__).parents[3]
# One combination of options for all runs: each new one compiles a loop.
NO_MEMORY = "There is not enough memory, or the system starts no more threads."
LESS = "Close other programs, raise the limit (ulimit), or use less: fewer runs, features, checkpoints or threads."
SMALL = shlex.split("simulate --runs 4 --gradients 2000 --batch-size 50 --checkpoints 5")
DIVERGING = [*SMALL, "--problem", "boyan_chain", "--step-size", "50", "--checkpoints", "2", "--gradients", "20000"]


def library(**options):
    algorithm = vrtd.VRTD(batch_size=50)
    return vrtd.simulate(vrtd.problems.random_mdp(), algorithm, n_runs=4, n_gradients=2000, checkpoints=5, **options)


def never(monkeypatch):
    """Fail if a run begins."""
    monkeypatch.setattr(vrtd.engine, "simulate", lambda *_, **__: pytest.fail("the run began"))


# Help


@pytest.mark.parametrize(
    "arguments", [["--help"], ["help"], ["-V"], ["--oops"], ["simulat"], ["doctor", "--help"], ["reproduce", "--oops"]]
)
def test_help_version_and_bad_usage_load_no_library(arguments):
    code = (
        "import sys; from vrtd.cli import main; main(sys.argv[1:]);"
        "print(sorted(set(sys.modules) & {'numpy', 'scipy', 'numba', 'matplotlib'}))"
    )
    command = [sys.executable, "-c", code, *arguments]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1] == "[]"


def test_help_and_version(capsys):
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert "doctor" in shown
    assert "simulate" in shown
    assert "3 diverged" in shown
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"vrtd {vrtd.__version__}\n"
    module = subprocess.run([sys.executable, "-m", "vrtd", "--version"], capture_output=True, text=True, check=True)
    assert module.stdout == f"vrtd {vrtd.__version__}\n"


def test_help_names_what_the_library_has(capsys):
    main(["simulate", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    for names in (LIBRARY, REGISTRY, vrtd.metrics.METRICS):
        assert f"{{{','.join(names)}}}" in shown
    for name, kind in REGISTRY.items():
        for field in fields(kind):
            option = field.name.removeprefix("n_").replace("_", "-")
            described = shown.split(f" --{option} ")[1].split(" --")[0]
            assert name in described
            if field.default not in (None, False):
                assert f"{name} {field.default}" in described
    for option, name in {"runs": "n_runs", "gradients": "n_gradients", "checkpoints": "checkpoints"}.items():
        described = shown.split(f" --{option} ")[1].split(" --")[0]
        assert f"(default: {signature(vrtd.simulate).parameters[name].default})" in described


def test_documented_commands_parse_and_codes_agree():
    page = (ROOT / "docs" / "command-line.md").read_text()
    commands = [line.removeprefix("$ vrtd ") for line in page.splitlines() if line.startswith("$ vrtd ")]
    for command in commands:
        arguments = shlex.split(command.split(" | ")[0])
        if not {"-V", "help"} & set(arguments):
            make_parser(arguments).parse_args(arguments)
    assert len(commands) >= 4
    for code in (0, 1, 2, 3, 130, 141):
        assert f"| {code} |" in page
        assert f"{code} " in terminal.EXIT_CODES


# Simulate


def test_the_text_shows_settings_and_statistics(capsys):
    assert main([*SMALL, "--metric", "squared_error", "--metric", "neu", "--metric", "neu"]) == 0
    shown, noise = capsys.readouterr()
    assert noise == ""
    for words in (
        "random_mdp, seed 0, n_states 50, n_features 4",
        "vrtd, step_size 0.1, batch_size 50",
        "4, markov sampling, seed 0",
        "per second",
    ):
        assert words in shown
    summary = library().summary()
    last = [line.split() for line in shown.splitlines() if line.strip().startswith("2000 ")]
    assert len(last) == 2  # one table a metric
    assert last[0] == [
        "2000", "1000", f"{summary.mean[-1]:.4g}", "+-", f"{summary.standard_error[-1]:.4g}",
        f"{summary.quantiles[2, -1]:.4g}", "0",
    ]  # fmt: skip


def test_json_equals_the_library(capsys):
    assert main([*SMALL, "--json", "--seed", "3", "--initial", "2", "--threads", "1"]) == 0
    shown = json.loads(capsys.readouterr().out)
    result = library(seed=3, initial=2)
    summary = result.summary()
    columns = shown["metrics"]["squared_error"]
    assert columns["n_gradients"] == result.n_gradients.tolist()
    assert columns["n_samples"] == result.n_samples.tolist()
    assert columns["mean"] == summary.mean.tolist()
    assert columns["standard_error"] == summary.standard_error.tolist()
    assert [columns[q] for q in ("q05", "q25", "q50", "q75", "q95")] == summary.quantiles.tolist()
    assert columns["n_diverged"] == [0] * 5
    assert shown["n_diverged"] == 0
    assert shown["problem"] == {
        "name": "random_mdp", "seed": 0, "n_states": 50, "n_features": 4, "gamma": 0.95,
        "normalize": False, "laziness": 0.0, "digest": result.provenance["problem"],
    }  # fmt: skip
    for key in ("algorithm", "sampling", "seed", "n_runs", "versions"):
        assert shown[key] == result.provenance[key]
    assert shown["gradients_per_second"] > 0
    assert shown["files"] == {}


@pytest.mark.parametrize("flag", ["--normalise", "--normalize"])
def test_both_spellings_of_an_option(capsys, flag):
    assert main([*SMALL, "--json", flag]) == 0
    assert json.loads(capsys.readouterr().out)["problem"]["normalize"] is True


def test_options_of_problem_and_algorithm_arrive(capsys, monkeypatch):
    seen = []

    def stop(problem, algorithm, **options):
        seen.append((problem, algorithm, options))
        raise KeyboardInterrupt

    monkeypatch.setattr(vrtd.engine, "simulate", stop)
    main(
        shlex.split(
            "simulate --problem garnet --problem-seed 7 --states 30 --features 3 --algorithm td --average --radius 9"
        )
    )
    main(shlex.split("simulate --output last --inner fresh --step-size 0.5 --sampling iid --quiet"))
    (problem, algorithm, options), other = seen
    assert problem.digest == vrtd.problems.garnet(seed=7, n_states=30, n_features=3).digest
    assert algorithm == vrtd.TD(average=True, radius=9.0)
    assert set(options) == {"progress"}
    assert other[1] == vrtd.VRTD(output="last", inner="fresh", step_size=0.5)
    assert other[2] == {"sampling": "iid", "progress": False}


@pytest.mark.parametrize(
    ("given", "theta_0"), [("--theta-0 1,2,3,4", [1.0, 2.0, 3.0, 4.0]), ("--theta-0=-0.5", [-0.5] * 4)]
)
def test_theta_0_is_passed_on(capsys, given, theta_0):
    assert main([*SMALL, "--json", *shlex.split(given)]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["theta_0"] == theta_0
    assert shown["metrics"]["squared_error"]["mean"] == library(theta_0=theta_0).summary().mean.tolist()


def test_td_on_bairds_star_grows_and_is_warned_of(capsys):
    star = "simulate --problem baird --algorithm td --step-size 0.01 --metric value_error --theta-0 1,1,1,1,1,1,10,1"
    assert main([*shlex.split(star), "--runs", "4", "--gradients", "2000", "--checkpoints", "2", "--json"]) == 0
    shown, noise = capsys.readouterr()
    first, last = json.loads(shown)["metrics"]["value_error"]["mean"]
    assert first == pytest.approx((6 * 3.0**2 + 12.0**2) / 7)
    assert last > 1e4 * first
    assert "--step-size 0.01 is unstable" in noise


def test_the_standard_error_of_one_run_is_null(capsys):
    assert main([*SMALL, "--json", "--runs", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"]["squared_error"]["standard_error"] == [None] * 5
    assert main([*SMALL, "--runs", "1"]) == 0
    assert " +- - " in capsys.readouterr().out


def test_figure_data_and_result_hold_what_the_library_gives(capsys, tmp_path):
    figure, out = tmp_path / "curve.png", tmp_path / "run.npz"
    assert (
        main([*SMALL, "--metric", "squared_error", "--metric", "neu", "--figure", str(figure), "--out", str(out)]) == 0
    )
    shown, noise = capsys.readouterr()
    assert f"wrote {out}, {figure}, {tmp_path / 'curve.csv'}" in shown
    assert noise == ""
    assert {path.name for path in tmp_path.iterdir()} == {"curve.png", "curve.csv", "run.npz"}
    assert figure.read_bytes().startswith(b"\x89PNG")
    (tmp_path / "plain").touch()
    assert figure.stat().st_mode == (tmp_path / "curve.csv").stat().st_mode == (tmp_path / "plain").stat().st_mode

    result = library(metrics=("squared_error", "neu"))
    assert np.array_equal(vrtd.load(out).curves, result.curves)
    rows = list(csv.DictReader(io.StringIO((tmp_path / "curve.csv").read_text())))
    assert len(rows) == 10
    for metric in result.metrics:
        summary = result.summary(metric)
        mine = [row for row in rows if row["metric"] == metric]
        assert [int(row["n_gradients"]) for row in mine] == result.n_gradients.tolist()
        assert [float(row["mean"]) for row in mine] == summary.mean.tolist()
        assert [float(row["q95"]) for row in mine] == summary.quantiles[-1].tolist()
        assert [int(row["n_diverged"]) for row in mine] == [0] * 5


@pytest.mark.parametrize(("suffix", "start"), [("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_other_figures_and_named_data(capsys, tmp_path, suffix, start):
    figure, data = tmp_path / f"curve.{suffix}", tmp_path / "numbers.csv"
    assert main([*SMALL, "--json", "--figure", str(figure), "--data", str(data)]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == {"data": str(data), "figure": str(figure)}
    assert figure.read_bytes().startswith(start)
    assert data.exists()
    assert not (tmp_path / "curve.csv").exists()


def test_csv_beside_a_figure_replaces_only_its_own_kind(capsys, tmp_path, monkeypatch):
    arguments = [*SMALL, "--figure", str(tmp_path / "curve.png")]
    assert main(arguments) == 0
    assert main(arguments) == 0
    (tmp_path / "curve.csv").write_text("name,grade\n")
    never(monkeypatch)
    assert main(arguments) == 2
    assert "holds something else. Name another file with --data." in capsys.readouterr().err
    assert (tmp_path / "curve.csv").read_text() == "name,grade\n"


def test_diverged_runs_are_counted_and_warned_of(capsys):
    assert main([*DIVERGING, "--json"]) == 3
    shown, noise = capsys.readouterr()
    columns = json.loads(shown)["metrics"]["squared_error"]
    assert json.loads(shown)["n_diverged"] == 4
    assert columns["n_diverged"] == [0, 4]
    assert columns["mean"][0] == pytest.approx(24.0**2 + 16**2 + 8**2)
    assert columns["mean"][1] is None
    first, second = noise.splitlines()
    assert first.startswith("vrtd: warning: --step-size 50 is unstable")
    assert second.startswith("vrtd: warning: 4 of 4 runs diverged")
    assert second.endswith("from the statistics afterwards. Lower --step-size, or set --radius.")


@pytest.mark.parametrize(
    ("algorithm", "advice"),
    [("gtd2 --step-size 50", " Lower --step-size or --step-size-w."), ("lstd --theta-0 1e308", "")],
)
def test_the_advice_for_diverged_runs_names_the_step_sizes_of_the_algorithm(capsys, algorithm, advice):
    small = "--runs 4 --gradients 20000 --checkpoints 2 --quiet"
    assert main(["simulate", "--algorithm", *shlex.split(f"{algorithm} {small}")]) == 3
    assert (
        capsys.readouterr()
        .err.splitlines()[-1]
        .endswith(f"diverged and are excluded from the statistics afterwards.{advice}")
    )


# What goes wrong


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("simulate --problem baird", "phi must have full column rank 8"),
        (
            "simulate --problem baird",
            'dependent features, or use the metrics "value_error", "neu" and "mspbe".\n',
        ),
        ("simulate --runs many", "--runs must be a whole number, but got 'many'. See: vrtd simulate --help"),
        ("simulate --step 1", "unknown option --step. Did you mean --steps? See: vrtd simulate --help"),
        (
            "simulate --algorithm td --batch-size 5",
            "--batch-size belongs to vrtd or batching_svrg or scsg or growing_scsg, but got --algorithm td. Drop it",
        ),
        ("simulate --average", "--average belongs to td, but got --algorithm vrtd. Drop it, or change --algorithm"),
        (
            "simulate --problem boyan_chain --states 5",
            "--states belongs to random_mdp or garnet or random_walk or off_policy_garnet, but got",
        ),
        (
            "simulate --problem random_walk --gamma 0.5",
            "--gamma belongs to random_mdp or garnet or off_policy_garnet or frozen_lake or mountain_car, but got",
        ),
        ("simulate --theta-0 1,b", "--theta-0 must be numbers, separated by commas, but got '1,b'. See: vrtd"),
        ("simulate --theta-0 1,2", "--theta-0 must have the shape (4,), but got (2,). Pass one number per feature"),
        ("simulate --theta-0 inf", "--theta-0 must be finite, but got inf at index (0,)"),
        (
            "simulate --step-size -1",
            "--step-size must be a positive, finite number, but got -1.0. Pass a number above 0",
        ),
        ("simulate --states 3", "--features must be at most --states 3, but is 4. Lower --features."),
        ("simulate --gradients 10", "--gradients must be at least 1000, the length of one epoch, but got 10"),
        (
            "simulate --figure curve.jpg",
            "--figure must be a .png or .svg or .pdf file, but got curve.jpg. Change the name",
        ),
        ("simulate --figure no/curve.png", "--figure must be in an existing, writable folder, but no is not. Create"),
        ("simulate --out run.csv", "--out must be a .npz file, but got run.csv. Change the name"),
        ("simulate --data run", "--data must be a .csv file, but got run. Change the name"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(capsys, arguments, message):
    assert main(shlex.split(arguments)) == 2
    shown, noise = capsys.readouterr()
    assert shown == ""
    assert len(noise.splitlines()) == 1
    assert noise.startswith("vrtd: error: ")
    assert message in noise


def test_missing_matplotlib_is_told_before_the_run(capsys, tmp_path, monkeypatch):
    for name in ("matplotlib", "matplotlib.figure", "matplotlib.backends.backend_agg"):
        monkeypatch.setitem(sys.modules, name, None)
    never(monkeypatch)
    assert main([*SMALL, "--figure", str(tmp_path / "curve.png")]) == 2
    assert "pip install 'vrtd[plot]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (KeyboardInterrupt(), 130, "vrtd: interrupted\n"),
        (MemoryError(), 2, f"vrtd: error: {NO_MEMORY} {LESS}\n"),
        (RuntimeError("can't start new thread"), 2, f"vrtd: error: {NO_MEMORY} (can't start new thread) {LESS}\n"),
        (
            PermissionError(13, "Permission denied", "a.npz"),
            2,
            "vrtd: error: a.npz: Permission denied. Change its permissions, or name another file.\n",
        ),
        (
            OSError(5, "Input/output error"),
            2,
            "vrtd: error: Input/output error. Check the disk or the network drive.\n",
        ),
        (OSError("odd"), 2, "vrtd: error: odd.\n"),
        (MemoryError("Unable to allocate 8 TiB"), 2, f"vrtd: error: {NO_MEMORY} (Unable to allocate 8 TiB) {LESS}\n"),
        (vrtd.errors.AccuracyError("too far off"), 2, "vrtd: error: too far off\n"),
    ],
)
def test_a_run_that_stops_leaves_nothing(capsys, tmp_path, monkeypatch, error, code, message):
    def stop(*_, **__):
        raise error

    monkeypatch.setattr(vrtd.engine, "simulate", stop)
    assert main([*SMALL, "--figure", str(tmp_path / "a.png"), "--out", str(tmp_path / "a.npz")]) == code
    assert capsys.readouterr() == ("", message)
    assert not list(tmp_path.iterdir())


def test_a_file_that_fails_is_not_half_written_and_the_numbers_are_still_printed(capsys, tmp_path, monkeypatch):
    class Full:
        def savefig(self, file, **options):
            file.write(b"half")
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("vrtd.cli.simulate.draw", lambda *_: Full())
    assert main([*SMALL, "--json", "--figure", str(tmp_path / "a.png")]) == 2
    shown, noise = capsys.readouterr()
    assert "metrics" in json.loads(shown)
    assert noise == (f"vrtd: error: {tmp_path}/a.png: No space left on device. Free space, then run it again.\n")
    assert {path.name for path in tmp_path.iterdir()} == {"a.csv"}


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_closed_streams_are_like_the_null_device(capsys, monkeypatch, closed):
    """As after `>&-` or `2>&-`, where Python has None."""
    for arguments, code in (([arg for arg in SMALL if arg != "--quiet"], 0), ([*SMALL, "--runs", "x"], 2)):
        monkeypatch.setattr(sys, closed, None)
        assert main(arguments) == code
        getattr(sys, closed).close()
    monkeypatch.undo()
    shown, noise = capsys.readouterr()
    assert ("squared_error" in shown) == (closed == "stderr")
    assert ("--runs must be a whole number" in noise) == (closed == "stdout")


def test_names_cannot_send_codes_to_the_terminal(capsys, tmp_path, monkeypatch):
    name = "a\x1b[2J\x9bx.parquet"
    assert main(["evaluate", "--data", str(tmp_path / name), "--discount", "0.5"]) == 2
    assert "a\\x1b[2J\\x9bx.parquet" in capsys.readouterr().err
    assert terminal.in_ascii("a\x1b[2J\nb") == "a\\x1b[2J\nb"


@pytest.mark.parametrize("variable", ["NUMBA_DISABLE_JIT=1", "NUMBA_NUM_THREADS=0"])
def test_a_library_that_cannot_be_loaded_is_an_error_in_one_line(variable):
    name, _, value = variable.partition("=")
    done = subprocess.run(
        [sys.executable, "-m", "vrtd", *SMALL], env=os.environ | {name: value}, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "NUMBA_" in done.stderr


def test_a_figure_that_cannot_be_drawn_says_why_and_the_numbers_are_still_printed(capsys, tmp_path, monkeypatch):
    class Unable:
        def savefig(self, *_, **__):
            raise RuntimeError("latex could not be found")

    monkeypatch.setattr("vrtd.cli.simulate.draw", lambda *_: Unable())
    assert main([*SMALL, "--json", "--figure", str(tmp_path / "a.png")]) == 2
    shown, noise = capsys.readouterr()
    assert "metrics" in json.loads(shown)
    assert "a.png could not be drawn: RuntimeError: latex could not be found. Check the settings" in noise


def test_a_closed_pipe_is_no_error():
    command = [sys.executable, "-m", "vrtd", *SMALL, "--json", "--checkpoints", "2000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == terminal.BROKEN_PIPE


# Colour


def test_colour_on_a_terminal_only_and_not_with_no_color(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stderr", Screen())
    terminal.tell("careful", "warning")
    monkeypatch.setenv("NO_COLOR", "1")
    terminal.tell("broken", "error")
    assert sys.stderr.getvalue() == "\r\x1b[Kvrtd: \x1b[33mwarning:\x1b[0m careful\n\r\x1b[Kvrtd: error: broken\n"
