"""Results: statistics, figures, files."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers.notebooks import check_repr, read_summary
from tests.helpers.pages import HOSTILE
from vrtd import plots
from vrtd.errors import InvalidInputError, MissingExtraError, ResultFileError
from vrtd.files import read_arrays, write_arrays

PROBLEM = vrtd.problems.random_mdp(seed=0)


@pytest.fixture(scope="module")
def result() -> vrtd.Result:
    return vrtd.simulate(
        PROBLEM, vrtd.TD(0.1), n_runs=20, n_gradients=500, checkpoints=6, metrics=("squared_error", "neu")
    )


def with_a_diverged_run(result: vrtd.Result, n_diverged: int) -> vrtd.Result:
    curves, diverged_at = result.curves.copy(), result.diverged_at.copy()
    curves[:n_diverged, 3:] = np.nan
    diverged_at[:n_diverged] = result.n_gradients[3]
    return vrtd.Result(
        result.n_gradients, result.n_samples, result.metrics, curves, result.theta, diverged_at, result.provenance,
        result.state,
    )  # fmt: skip


def test_summary_is_numpys(result: vrtd.Result) -> None:
    values, summary = result.values("neu"), result.summary("neu")
    np.testing.assert_allclose(summary.mean, values.mean(axis=0))
    np.testing.assert_allclose(summary.standard_error, values.std(axis=0, ddof=1) / np.sqrt(20), atol=1e-15)
    np.testing.assert_allclose(summary.quantiles, np.quantile(values, [0.05, 0.25, 0.5, 0.75, 0.95], axis=0))
    assert summary.n_diverged.tolist() == [0] * 6
    assert summary.n_runs == 20


def test_summary_leaves_diverged_runs_out_and_counts_them(result: vrtd.Result) -> None:
    summary = with_a_diverged_run(result, 2).summary()
    assert summary.n_diverged.tolist() == [0, 0, 0, 2, 2, 2]
    np.testing.assert_allclose(summary.mean[3:], result.values("squared_error")[2:, 3:].mean(axis=0))
    assert np.isnan(with_a_diverged_run(result, 20).summary().mean[3:]).all()
    assert np.isnan(with_a_diverged_run(result, 19).summary().standard_error[3:]).all()


def test_arrays_are_read_only(result: vrtd.Result) -> None:
    for array in (result.theta, result.curves, result.n_gradients, result.state.workspaces):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_an_unknown_metric_is_named(result: vrtd.Result) -> None:
    with pytest.raises(InvalidInputError, match="metric must be one of 'squared_error', 'neu', but got 'mspbe'"):
        result.values("mspbe")
    bare = vrtd.simulate(PROBLEM, vrtd.TD(0.1), n_runs=2, n_gradients=10, metrics=())
    with pytest.raises(InvalidInputError, match="No metric was recorded"):
        bare.summary()


def test_provenance_says_where_it_came_from(result: vrtd.Result) -> None:
    record = result.provenance
    assert record["algorithm"] == {"name": "td", "step_size": 0.1, "radius": None, "average": False}
    assert (record["sampling"], record["seed"], record["n_runs"]) == ("markov", 0, 20)
    assert set(record["versions"]) == {"vrtd", "python", "numpy", "scipy", "numba"}
    json.dumps(record)


def test_save_and_load_keep_every_bit(result: vrtd.Result, tmp_path: Path) -> None:
    result.save(tmp_path / "result.npz")
    loaded = vrtd.load(tmp_path / "result.npz")
    assert loaded.metrics == result.metrics
    assert loaded.provenance == result.provenance
    for name in ("n_gradients", "n_samples", "curves", "theta", "diverged_at"):
        assert getattr(loaded, name).tobytes() == getattr(result, name).tobytes()
    more = {"n_runs": 20, "n_gradients": 300, "checkpoints": 4}
    here = vrtd.simulate(PROBLEM, vrtd.TD(0.1), start=result, **more)
    there = vrtd.simulate(PROBLEM, vrtd.TD(0.1), start=loaded, **more)
    assert here.theta.tobytes() == there.theta.tobytes()
    assert [path.name for path in tmp_path.iterdir()] == ["result.npz"]


@pytest.mark.parametrize("initial", ["stationary", np.int64(3), np.full(50, 0.02)], ids=["name", "state", "law"])
def test_where_runs_began_is_on_record(initial: Any, tmp_path: Path) -> None:
    first = vrtd.simulate(PROBLEM, vrtd.TD(0.1), n_runs=2, n_gradients=10, initial=initial, theta_0=[0, 1, 2, 3])
    first.save(tmp_path / "x.npz")
    more = vrtd.simulate(PROBLEM, vrtd.TD(0.1), n_runs=2, n_gradients=10, start=vrtd.load(tmp_path / "x.npz"))
    assert more.provenance["theta_0"] == [0.0, 1.0, 2.0, 3.0]
    np.testing.assert_array_equal(more.provenance["initial"], initial)


def test_settings_with_schedules_survive_the_file(tmp_path: Path) -> None:
    algorithm = vrtd.TD(vrtd.Piecewise((10,), (np.float64(0.1), 0.05)))
    first = vrtd.simulate(PROBLEM, algorithm, n_runs=np.int64(2), n_gradients=20)
    first.save(tmp_path / "x.npz")
    vrtd.simulate(PROBLEM, algorithm, n_runs=2, n_gradients=20, start=vrtd.load(tmp_path / "x.npz"))


def test_a_failed_save_leaves_nothing_behind(
    result: vrtd.Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any, **named: Any) -> None:
        raise OSError("disk full")

    (tmp_path / "result.npz").write_text("old")
    monkeypatch.setattr(np, "savez_compressed", fail)
    with pytest.raises(OSError, match="disk full"):
        result.save(tmp_path / "result.npz")
    assert [path.name for path in tmp_path.iterdir()] == ["result.npz"]
    assert (tmp_path / "result.npz").read_text() == "old"


@pytest.mark.parametrize(
    "damage", ["text", "truncated", "flipped", "foreign", "other-format", "pickle", "no-metrics", "shapes"]
)
def test_a_damaged_file_is_a_typed_error(result: vrtd.Result, tmp_path: Path, damage: str) -> None:
    path = tmp_path / "result.npz"
    result.save(path)
    content = bytearray(path.read_bytes())
    if damage == "text":
        path.write_text("not a result")
    elif damage == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "flipped":
        with zipfile.ZipFile(path) as archive:
            info = archive.getinfo("curves.npy")
        content[info.header_offset + 200] ^= 0xFF
        path.write_bytes(content)
    elif damage == "foreign":
        np.savez(path, a=np.zeros(3))
    elif damage == "other-format":
        header = json.dumps({"format": "vrtd-result-99"}).encode()
        np.savez(path, header=np.frombuffer(header, np.uint8))
    elif damage == "pickle":
        np.savez(path, header=np.array([{"a": 1}], dtype=object))
    else:
        with np.load(path) as file:
            arrays = dict(file)
        header = json.loads(arrays["header"].tobytes())
        if damage == "no-metrics":
            del header["metrics"]
        else:
            arrays["curves"] = arrays["curves"][:3]
        np.savez(path, **(arrays | {"header": np.frombuffer(json.dumps(header).encode(), np.uint8)}))
    with pytest.raises(ResultFileError, match="is not a result of this version of vrtd"):
        vrtd.load(path)


def test_files_are_replaced_whole_and_keep_their_mode(result: vrtd.Result, tmp_path: Path) -> None:
    target, link = tmp_path / "a.csv", tmp_path / "link.csv"
    target.write_text("")
    target.chmod(0o600)
    link.symlink_to(target)
    result.to_csv(link)
    assert link.is_symlink()
    assert target.stat().st_mode & 0o777 == 0o600
    assert target.read_text().startswith("metric,n_gradients,n_samples,mean")
    with pytest.raises(FileNotFoundError, match=r"The folder .*nowhere does not exist. Create it"):
        result.to_csv(tmp_path / "nowhere" / "a.csv")


def test_errors_survive_the_way_back_from_a_worker() -> None:
    for error in (InvalidInputError("x must hold.", "Do this."), MissingExtraError("matplotlib", "plot")):
        assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize("load", [vrtd.load, vrtd.Evaluator.load])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere.npz", r"nowhere.npz does not exist. Check the path."),
        (".", r"could not be read: Is a directory. Name a file in this folder."),
        (None, r"path must be a path, but is None. Pass a str or a pathlib.Path."),
        (7, r"path must be a path, but is 7. Pass a str or a pathlib.Path."),
    ],
)
def test_what_cannot_be_loaded_is_named(tmp_path: Path, load: Any, name: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        load(tmp_path / name if isinstance(name, str) else name)


def test_plot_draws_the_mean_with_its_band(result: vrtd.Result, tmp_path: Path) -> None:
    axes = result.plot()
    (line,) = axes.get_lines()
    np.testing.assert_allclose(line.get_ydata(), result.summary().mean)
    np.testing.assert_array_equal(line.get_xdata(), result.n_gradients)
    assert axes.get_xlabel() == "pseudo-gradients"
    assert axes.get_yscale() == "log"
    assert axes.get_legend_handles_labels()[1] == ["td, step_size 0.1"]
    again = result.plot(axes, metric="squared_error", x="n_samples", label="again")
    assert again is axes
    assert len(axes.get_lines()) == 2
    axes.figure.savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 5000


def test_plot_says_how_many_runs_diverged(result: vrtd.Result) -> None:
    axes = with_a_diverged_run(result, 2).plot()
    assert axes.get_legend_handles_labels()[1] == ["td, step_size 0.1 (2 of 20 runs diverged and left out)"]
    with pytest.raises(InvalidInputError, match="x must be one of 'n_gradients', 'n_samples'"):
        result.plot(x="seconds")  # type: ignore[arg-type]


def test_a_label_says_what_differs(result: vrtd.Result) -> None:
    settings = result.provenance["algorithm"] | {"step_size": 0.2}
    axes = result.plot()
    replace(result, provenance={"algorithm": settings}).plot(axes)
    result.plot(axes, label="mine")
    assert axes.get_legend_handles_labels()[1] == ["td, step_size 0.1", "td, step_size 0.2", "mine"]


# Text and notebooks


def test_repr_is_one_line(result: vrtd.Result) -> None:
    first, last = result.summary().mean[[0, -1]]
    error = result.summary().standard_error[-1]
    fall = f"{first:.4g} -> {last:.4g} ± {error:.2g}"
    assert check_repr(result) == f"Result(td, step_size 0.1; 20 runs, markov; squared_error {fall})"
    assert check_repr(result.summary()) == f"Summary(20 runs, 6 checkpoints; mean {fall})"
    some = with_a_diverged_run(result, 2)
    assert "; 20 runs (2 diverged), markov; " in check_repr(some)
    assert check_repr(some.summary()).startswith("Summary(20 runs, 2 diverged, 6 checkpoints; ")
    assert check_repr(with_a_diverged_run(result, 20)).endswith(f"squared_error {first:.4g} -> nan)")


def test_repr_of_what_a_file_may_hold(result: vrtd.Result) -> None:
    bare = replace(result, metrics=(), curves=np.empty((20, 6, 0)), provenance={})
    assert check_repr(bare) == "Result(; 20 runs, unknown sampling)"
    assert not read_summary(bare).has_figure


def test_a_notebook_shows_every_metric_and_the_curve(result: vrtd.Result) -> None:
    shown = read_summary(result)
    assert (shown.title, shown.has_figure) == ("Result", True)
    assert list(shown.entries) == ["algorithm", "runs", "sampling", "length", "squared_error", "neu"]
    assert shown.entries["length"] == "500 pseudo-gradients, 500 samples"
    assert read_summary(with_a_diverged_run(result, 20)).has_figure


@pytest.mark.parametrize("hostile", HOSTILE)
def test_names_in_a_notebook_are_escaped(result: vrtd.Result, hostile: str) -> None:
    strange = replace(result, metrics=(hostile, "neu"), provenance={"algorithm": {"name": hostile}})
    assert read_summary(strange).entries["algorithm"] == hostile


def test_repr_loads_no_library(result: vrtd.Result, tmp_path: Path) -> None:
    result.save(tmp_path / "result.npz")
    code = (
        "import sys, vrtd; text = repr(vrtd.load(sys.argv[1]));"
        "print(sorted(set(sys.modules) & {'scipy', 'numba', 'matplotlib', 'pyarrow'}))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "result.npz")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"


def test_without_matplotlib_the_pip_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'vrtd\[plot\]'"):
        plots.new_panels(1)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("curves", lambda array: array.astype(np.complex128)),
        ("curves", lambda array: array.astype(np.str_)),
        ("n_gradients", lambda array: array.astype(np.float64)),
        ("state_environment", lambda array: array.astype(np.int64)),
    ],
)
def test_arrays_of_another_type_are_refused(result: vrtd.Result, tmp_path: Path, name: str, change: Any) -> None:
    path = tmp_path / "result.npz"
    result.save(path)
    header, arrays = read_arrays(path.read_bytes(), "vrtd-result-1")
    write_arrays(path, header, arrays | {name: change(arrays[name])})
    with pytest.raises(ResultFileError, match="an array has another type"):
        vrtd.load(path)


@pytest.mark.parametrize("provenance", [{}, {"theta_0": 1.0, "initial": 0}, {"theta_0": [0.0] * 4}])
def test_provenance_that_cannot_be_continued_is_refused(result: vrtd.Result, tmp_path: Path, provenance: Any) -> None:
    path = tmp_path / "result.npz"
    result.save(path)
    header, arrays = read_arrays(path.read_bytes(), "vrtd-result-1")
    write_arrays(path, header | {"provenance": provenance}, arrays)
    with pytest.raises(ResultFileError, match="is not a result of this version of vrtd"):
        vrtd.load(path)
