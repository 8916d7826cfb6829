"""`vrtd evaluate`: what it prints, writes and refuses, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pyarrow.parquet
import pytest

import vrtd
from vrtd import logs
from vrtd.cli import main
from vrtd.cli.terminal import BAD_USAGE, DIVERGED, INTERRUPTED, OK
from vrtd.estimator.page import MEANING
from vrtd.logs.environment import EnvironmentLog, from_env

FILES = {"report.html", "model.npz", "values.parquet", "diagnostics.json", "figures"}
LAKE = ["evaluate", "--env", "FrozenLake-v1", "--discount", "0.9", "--samples", "3000", "--quiet"]


def files_in(folder: Any) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: Any) -> Any:
    """A walk of two numbers, in columns that no convention knows."""
    rng = np.random.default_rng(5)
    x = np.empty((3001, 2))
    x[0] = 0.5
    for i, draw in enumerate(rng.random((3000, 2))):
        x[i + 1] = 0.5 * x[i] + 0.5 * draw
    columns = {"x_0": x[:-1, 0], "x_1": x[:-1, 1], "next_x_0": x[1:, 0], "next_x_1": x[1:, 1], "r": x[:-1, 0]}
    folder = tmp_path_factory.mktemp("logs")
    for part in range(2):
        half = {name: values[part * 1500 : (part + 1) * 1500] for name, values in columns.items()}
        pyarrow.parquet.write_table(pyarrow.table(half), folder / f"{part}.parquet", write_page_checksum=True)
    return folder


def from_files(folder: Any, *more: str) -> list[str]:
    return [
        "evaluate", "--data", f"{folder}/*.parquet", "--observations", "x_*", "--next-observations", "next_x_*",
        "--reward", "r", "--discount", "0.5", "--quiet", *more,
    ]  # fmt: skip


# What comes out


def test_an_environment_prints_a_summary_and_writes_a_folder(tmp_path: Any, capsys: Any) -> None:
    assert main([*LAKE, "--out", str(tmp_path / "out")]) == OK
    shown, noise = capsys.readouterr()
    assert noise == ""
    assert files_in(tmp_path / "out") == FILES
    lines = shown.splitlines()
    assert lines[0].startswith("policy value  0.0")
    assert " (95 % interval " in lines[0]
    labels = [line[:14].strip() for line in lines if line[:1].islower()]
    assert labels[:6] == ["policy value", "mean value", "mean return", "diagnosis", "method", "features"]
    assert "method        closed_form\n" in shown
    assert "features      tabular, 11 of 16 states visited" in shown
    assert MEANING in shown
    assert lines[-1].startswith(f"wrote {tmp_path / 'out' / 'report.html'}, ")
    shown.encode("ascii")
    model = vrtd.Evaluator.load(tmp_path / "out" / "model.npz")
    expected = vrtd.Evaluator(discount=0.9).fit(from_env("FrozenLake-v1", "random", 3000))
    assert np.array_equal(model.theta_, expected.theta_)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "FrozenLake-v1, policy random" in page
    assert "± " in (tmp_path / "out" / "figures" / "values.svg").read_text()  # the board


def test_the_library_writes_the_same_files(tmp_path: Any, capsys: Any) -> None:
    """Method, features, board and pilot rows are decisions of the library."""
    assert main([*LAKE, "--out", str(tmp_path / "command")]) == OK
    by_id = vrtd.evaluate("FrozenLake-v1", discount=0.9, n_samples=3000, out=tmp_path / "id")
    title = "FrozenLake-v1, policy random"
    with gymnasium.make("FrozenLake-v1") as env:
        by_object = vrtd.evaluate(env, discount=0.9, n_samples=3000, out=tmp_path / "object")
        log = from_env(env, "random", 3000)
        shape = {"shape": (4, 4), "title": title}
        by_log = vrtd.evaluate(log, discount=0.9, out=tmp_path / "log", **shape)
    paths = [path.relative_to(tmp_path / "command") for path in (tmp_path / "command").rglob("*.*")]
    assert len(paths) == 10
    for path in paths:
        has_letters = path.name in ("report.html", "values.svg")  # of the board, which a log does not know
        same = (by_id, by_object) if has_letters else (by_id, by_object, by_log)
        contents = {(evaluation.out / path).read_bytes() for evaluation in same}
        assert contents == {(tmp_path / "command" / path).read_bytes()}, path


def test_a_missing_interval_is_told_in_words_of_the_shell(tmp_path: Any, capsys: Any) -> None:
    assert main([*LAKE, "--algorithm", "td_lambda", "--out", str(tmp_path / "out")]) == OK
    shown = capsys.readouterr().out
    assert "No interval is available: none is known for " in shown
    assert "Use the closed form: --algorithm closed_form.\n" in shown
    assert "method=" not in shown
    assert "(step_size=" not in shown


def test_json_is_one_object(tmp_path: Any, capsys: Any) -> None:
    assert (
        main([*LAKE, "--out", str(tmp_path), "--json", "--algorithm", "closed_form", "--level", "0.5", "--seed", "2"])
        == OK
    )
    found = json.loads(capsys.readouterr().out)
    expected = vrtd.Evaluator("closed_form", features="tabular:16", discount=0.9).fit(
        from_env("FrozenLake-v1", "random", 3000, seed=2)
    )
    mean = expected.mean_value(0.5)
    assert [found["mean_value"][key] for key in ("value", "low", "high")] == list(mean)
    assert (found["mean_value"]["level"], found["closed_form"], found["interrupted"]) == (0.5, None, False)
    assert found["diagnostics"]["n_rows"] == 3000
    assert found["diagnostics"]["settings"] == {"name": "closed_form"}
    assert found["files"]["report"] == str(tmp_path / "report.html")


def test_files_with_columns_of_any_name(recorded: Any, tmp_path: Any, capsys: Any) -> None:
    options = ["--out", str(tmp_path), "--names", "left,right", "--step-size", "0.1", "--batch-size", "50", "--json"]
    assert main(from_files(recorded, "--features", "polynomial:1", "--algorithm", "vrtd", *options)) == OK
    found = json.loads(capsys.readouterr().out)
    assert found["diagnostics"]["n_rows"] == 3000
    assert found["diagnostics"]["settings"]["step_size"] == 0.1
    assert found["diagnostics"]["settings"]["batch_size"] == 50
    values = pyarrow.parquet.read_table(tmp_path / "values.parquet")
    assert values.column_names == ["left", "right", "value", "low", "high", "n_rows"]
    assert "<h1>Value of the policy in " in (tmp_path / "report.html").read_text()
    assert (tmp_path / "figures" / "half-widths.svg").exists()


def test_columns_are_standardised_and_their_roles_are_printed(recorded: Any, tmp_path: Any, capsys: Any) -> None:
    assert main(from_files(recorded, "--out", str(tmp_path), "--passes", "2")) == OK
    shown = capsys.readouterr().out
    assert "features      standardised, rank 3 of 3" in shown
    assert "columns       observations x_0, x_1; reward r; next observations next_x_0, next_x_1\n" in shown
    assert vrtd.Evaluator.load(tmp_path / "model.npz").n_rows_ == 6000


def test_a_recording_replays_to_the_same_bytes(tmp_path: Any, capsys: Any) -> None:
    record = tmp_path / "lake.parquet"
    lake = [*LAKE, "--features", "tabular:16"]
    assert main([*lake, "--out", str(tmp_path / "live")]) == OK
    assert main([*lake, "--out", str(tmp_path / "kept"), "--record", str(record)]) == OK
    replay = ["evaluate", "--data", str(record), "--features", "tabular:16", "--discount", "0.9", "--quiet"]
    assert main([*replay, "--out", str(tmp_path / "replay")]) == OK
    assert (tmp_path / "live" / "model.npz").read_bytes() == (tmp_path / "kept" / "model.npz").read_bytes()
    models = [vrtd.Evaluator.load(tmp_path / name / "model.npz") for name in ("live", "replay")]
    assert models[0].theta_.tobytes() == models[1].theta_.tobytes()


def test_a_policy_from_a_file(tmp_path: Any, capsys: Any) -> None:
    np.save(tmp_path / "right.npy", np.full(16, 2))
    np.savez(tmp_path / "right.npz", policy=np.eye(4)[np.full(16, 2)])
    values = []
    for name in ("right.npy", "right.npz"):
        out = tmp_path / name.replace(".", "-")
        arguments = [*LAKE, "--policy", str(tmp_path / name), "--algorithm", "closed_form", "--json", "--out", str(out)]
        assert main(arguments) == OK
        values.append(json.loads(capsys.readouterr().out)["mean_value"]["value"])
    expected = vrtd.Evaluator("closed_form", features="tabular:16", discount=0.9)
    expected.fit(from_env("FrozenLake-v1", np.full(16, 2), 3000))
    assert values == [expected.mean_value(0.95).value] * 2


def test_targets_are_compared_on_the_rows_of_an_environment(tmp_path: Any, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    for action, name in ((1, "down.npy"), (2, "right.npy")):
        np.save(name, np.full(16, action))
    options = ["--target", "down.npy", "--against-target", "right.npy", "--features", "tabular:16"]
    assert main([*LAKE, *options, "--record", "lake.parquet", "--json"]) == OK
    live = json.loads(capsys.readouterr().out)
    targets = (np.full(16, action) for action in (1, 2))
    log = from_env("FrozenLake-v1", "random", 3000)
    a, b = (vrtd.Evaluator(features="tabular:16", discount=0.9, target=target).fit(log) for target in targets)
    assert [live["difference"][end] for end in ("value", "low", "high")] == list(vrtd.difference(a, b))
    assert (live["target"], live["against"]["name"], live["difference"]["joint"]) == ("down.npy", "right.npy", True)
    page = (tmp_path / "evaluation" / "report.html").read_text()
    assert "<h1>Value of down.npy against right.npy, from rows of FrozenLake-v1, policy random</h1>" in page
    recorded = ["evaluate", "--data", "lake.parquet", "--action", "action", *options, "--discount", "0.9", "--quiet"]
    assert main(recorded) == OK
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("difference    down.npy ")
    assert shown[1].startswith("policy value  ")
    assert ": right.npy, averaged over the first states of " in shown[2]
    assert "target        down.npy" in shown
    assert any(line.startswith("columns ") and "action action" in line for line in shown)


def test_environments_side_by_side(tmp_path: Any, capsys: Any) -> None:
    assert main([*LAKE, "--n-envs", "3", "--algorithm", "closed_form", "--out", str(tmp_path)]) == OK
    env = gymnasium.make_vec("FrozenLake-v1", num_envs=3, vectorization_mode="sync")
    expected = vrtd.Evaluator("closed_form", features="tabular:16", discount=0.9).fit(from_env(env, "random", 3000))
    env.close()
    assert np.array_equal(vrtd.Evaluator.load(tmp_path / "model.npz").theta_, expected.theta_)
    assert "± " in (tmp_path / "figures" / "values.svg").read_text()


@pytest.mark.parametrize(
    ("env", "features", "n_numbers"),
    [("CartPole-v1", "fourier:1", 4), ("CartPole-v1", "auto", 4), ("Blackjack-v1", "standardised", 3)],
)
def test_boxes_and_tuples(tmp_path: Any, capsys: Any, env: str, features: str, n_numbers: int) -> None:
    arguments = f"evaluate --env {env} --discount 0.9 --samples 2000 --algorithm closed_form --quiet".split()
    assert main([*arguments, "--features", features, "--out", str(tmp_path / "out")]) == OK
    columns = pyarrow.parquet.read_table(tmp_path / "out" / "values.parquet").column_names
    assert columns[:n_numbers] == [f"observation_{j}" for j in range(n_numbers)]


# What goes wrong


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--discount", "0.9"], "one of the arguments --env --data is required"),
        (["--env", "FrozenLake-v1"], "arguments are required: --discount"),
        (["--env", "FrozenLake-v1", "--data", "a.csv", "--discount", "0.9"], "not allowed with argument"),
        ([*LAKE[1:], "--reward", "r"], "--reward belongs to --data, but got --env. Drop it, or give --data"),
        (
            ["--data", "a.csv", "--discount", "0.9", "--samples", "5"],
            "--samples belongs to --env, but got --data. Drop it",
        ),
        ([*LAKE[1:], "--against", "a.csv"], "--against belongs to --data, but got --env. Drop it, or give --data"),
        ([*LAKE[1:], "--target", "walk.py"], "--target must be a .npy or .npz file of (S, A) probabilities"),
        (["--data", "nowhere", "--discount", "0.9"], "nowhere does not exist. Check the path"),
        (["--env", "Nowhere-v0", "--discount", "0.9"], "--env must be an environment, or the id of one that Gymnasium"),
        (["--env", "Nowhere-v0", "--discount", "0.9"], ". Register it, or install the packages that it needs.\n"),
        (
            ["--env", "Nowhere-v0", "--discount", "0.9", "--n-envs", "2"],
            "--env must be an environment, or the id of one",
        ),
        (
            [*LAKE[1:], "--clip-actions"],
            "--clip-actions needs an action space that is a Box of floats, but the space is Discrete(4). Drop --clip",
        ),
        (["--data", "a.csv", "--discount", "0.9", "--clip-actions"], "--clip-actions belongs to --env, but got --data"),
        ([*LAKE[1:], "--n-envs", "0"], "--n-envs must be a whole number of at least 1, but got 0"),
        (
            ["--env", "CartPole-v1", "--discount", "0.9", "--features", "tabular"],
            "--features tabular do not fit the observations",
        ),
        (
            ["--env", "CartPole-v1", "--discount", "0.9", "--features", "rbf:5x5"],
            "--features rbf:5x5 do not fit the observations",
        ),
        ([*LAKE[1:], "--features", "tabular:4"], "--features tabular:4 do not fit the observations of FrozenLake-v1"),
        ([*LAKE[1:], "--features", "rbg:4"], "--features must be one of"),
        ([*LAKE[1:], "--discount", "2"], "--discount must lie in [0, 1], but got 2.0"),
        ([*LAKE[1:], "--level", "95"], "--level must lie in (0, 1), but got 95"),
        ([*LAKE[1:], "--step-size", "large"], "--step-size must be a number or auto, but got 'large'"),
        (
            [*LAKE[1:], "--algorithm", "td", "--batch-size", "5"],
            "--batch-size 5 has no effect on td. Drop --batch",
        ),
        ([*LAKE[1:], "--policy", "walk.py"], "--policy must be random, a .npy or .npz file"),
        ([*LAKE[1:], "--policy", "nowhere.npy"], "--policy nowhere.npy does not exist"),
        ([*LAKE[1:], "--record", "rows.txt"], "--record must be a .parquet, .npz or .csv file, but is rows.txt"),
        (
            [*LAKE[1:], "--record", "nowhere/rows.csv"],
            "--record must be in an existing folder outside that of the report",
        ),
        ([*LAKE[1:], "--names", "a,b"], "--names must be 1 different words, one for each number"),
        ([*LAKE[1:], "--names", "a,b"], "but is a, b. Change the names"),
        ([*LAKE[1:], "--passes", "0"], "--passes must be a whole number of at least 1, but got 0"),
        ([*LAKE[1:], "--samples", "0"], "--samples must be a whole number of at least 1, but got 0"),
        ([*LAKE[1:], "--out", ""], "--out must be the name of a folder, but got ''"),
    ],
)
def test_bad_usage(tmp_path: Any, capsys: Any, monkeypatch: Any, arguments: list[str], message: str) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(EnvironmentLog, "chunks", lambda _: pytest.fail("sampling began"))
    assert main(["evaluate", *arguments]) == BAD_USAGE
    shown, noise = capsys.readouterr()
    assert shown == ""
    assert message in noise
    assert noise.startswith("vrtd: error: ")
    assert list(tmp_path.iterdir()) == []


def test_a_policy_of_another_shape(tmp_path: Any, capsys: Any) -> None:
    np.save(tmp_path / "p.npy", np.zeros(5, int))
    assert main([*LAKE, "--policy", str(tmp_path / "p.npy"), "--out", str(tmp_path / "out")]) == BAD_USAGE
    assert "--policy must have the shape (S, A) = (16, 4)" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_policy_that_goes_beyond_the_bounds_is_clipped_on_request(
    tmp_path: Any, capsys: Any, monkeypatch: Any
) -> None:
    (tmp_path / "strong_policies.py").write_text("def turn(observation): return [-9.0 * observation[2]]")
    monkeypatch.syspath_prepend(tmp_path)
    arguments = ["evaluate", "--env", "Pendulum-v1", "--policy", "strong_policies:turn", "--discount", "0.9", "--quiet"]
    arguments += ["--samples", "300", "--features", "polynomial:1", "--out", str(tmp_path / "out")]
    assert main(arguments) == BAD_USAGE
    assert "within the bounds of the space, or pass --clip-actions to clip them" in capsys.readouterr().err
    assert main([*arguments, "--clip-actions"]) == OK


def test_a_recording_stays_out_of_the_report(tmp_path: Any, capsys: Any) -> None:
    arguments = [*LAKE, "--out", str(tmp_path), "--record", str(tmp_path / "rows.csv")]
    assert main(arguments) == BAD_USAGE
    assert "in an existing folder outside that of the report" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_another_folder_is_refused_before_the_work(tmp_path: Any, capsys: Any, monkeypatch: Any) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    monkeypatch.setattr(EnvironmentLog, "chunks", lambda _: pytest.fail("sampling began"))
    assert main([*LAKE, "--out", str(tmp_path)]) == BAD_USAGE
    assert "holds something else. Name another folder" in capsys.readouterr().err
    assert files_in(tmp_path) == {"thesis.tex"}


@pytest.mark.parametrize(
    ("module", "extra"), [("matplotlib.figure", "plot"), ("pyarrow", "data"), ("gymnasium", "gym")]
)
def test_missing_libraries_are_told_first(
    tmp_path: Any, capsys: Any, monkeypatch: Any, module: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr(EnvironmentLog, "chunks", lambda _: pytest.fail("sampling began"))
    assert main([*LAKE, "--out", str(tmp_path / "out")]) == BAD_USAGE
    assert f"pip install 'vrtd[{extra}]'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_bad_rows_name_their_place(recorded: Any, tmp_path: Any, capsys: Any) -> None:
    table = pyarrow.parquet.read_table(recorded / "1.parquet").to_pydict()
    table["r"][7] = float("nan")
    (tmp_path / "logs").mkdir()
    pyarrow.parquet.write_table(pyarrow.table(table), tmp_path / "logs" / "1.parquet")
    assert main(from_files(tmp_path / "logs", "--out", str(tmp_path / "out"))) == BAD_USAGE
    noise = capsys.readouterr().err
    assert "1.parquet" in noise
    assert "row 7" in noise
    assert not (tmp_path / "out").exists()


def test_divergence_has_its_own_code(recorded: Any, tmp_path: Any, capsys: Any) -> None:
    options = ["--features", "polynomial:1", "--step-size", "1e6", "--batch-size", "50", "--out", str(tmp_path / "out")]
    assert main(from_files(recorded, "--algorithm", "vrtd", *options)) == DIVERGED
    assert (
        "The parameters overflowed in rows 0 to 750 with the step size 1e+06. Lower the step size"
        in capsys.readouterr().err
    )
    assert not (tmp_path / "out").exists()


# Ctrl-C


class Stopping:
    """Ctrl-C in the step of that number."""

    def __init__(self, after: int) -> None:
        self._left = after

    def __call__(self, *_: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise KeyboardInterrupt
        return 1


def interrupt(monkeypatch: Any, after: int) -> None:
    stopping = Stopping(after)
    monkeypatch.setattr("vrtd.logs.environment.as_policy", lambda *_: lambda _seed: stopping)
    monkeypatch.setattr("vrtd.logs.environment._CHUNK_ROWS", 500)


def test_an_interruption_keeps_what_was_learned(tmp_path: Any, capsys: Any, monkeypatch: Any) -> None:
    interrupt(monkeypatch, 1800)
    assert main([*LAKE, "--out", str(tmp_path)]) == INTERRUPTED
    shown, noise = capsys.readouterr()
    assert "stopped       interrupted after 1,500 rows" in shown
    assert noise == f"vrtd: the results from 1,500 rows are in {tmp_path}\nvrtd: interrupted\n"
    assert files_in(tmp_path) == FILES
    assert vrtd.Evaluator.load(tmp_path / "model.npz").n_rows_ == 1500


def test_an_interruption_at_the_start_leaves_nothing(tmp_path: Any, capsys: Any, monkeypatch: Any) -> None:
    interrupt(monkeypatch, 100)
    assert main([*LAKE, "--out", str(tmp_path / "out"), "--record", str(tmp_path / "rows.npz")]) == INTERRUPTED
    assert capsys.readouterr() == ("", "vrtd: interrupted\n")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_recording_is_kept_and_learned_from(tmp_path: Any, capsys: Any, monkeypatch: Any) -> None:
    interrupt(monkeypatch, 1800)
    record = tmp_path / "rows.parquet"
    assert main([*LAKE, "--out", str(tmp_path / "out"), "--record", str(record), "--json"]) == INTERRUPTED
    found = json.loads(capsys.readouterr().out)
    assert found["interrupted"] is True
    assert found["diagnostics"]["n_rows"] == 1500
    assert sum(len(chunk.reward) for chunk in logs.read(record).chunks()) == 1500


# Help


@pytest.mark.parametrize(
    ("arguments", "libraries"),
    [
        (["evaluate", "--oops"], {"numpy", "scipy", "numba", "matplotlib", "pyarrow", "gymnasium"}),
        (["evaluate", "--help"], {"matplotlib", "pyarrow", "gymnasium", "duckdb", "h5py", "sklearn"}),
        (["help", "evaluate"], {"matplotlib", "pyarrow", "gymnasium", "duckdb", "h5py", "sklearn"}),
    ],
)
def test_bad_usage_loads_no_library_and_help_no_optional_one(arguments: list[str], libraries: set[str]) -> None:
    code = f"import sys; from vrtd.cli import main; main(sys.argv[1:]); print(sorted(set(sys.modules) & {libraries}))"
    command = [sys.executable, "-c", code, *arguments]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1] == "[]"
