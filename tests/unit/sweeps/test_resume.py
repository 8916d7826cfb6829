"""Continuation of a sweep: after kill -9, after Ctrl-C, with a larger grid, and with damaged segments."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers.sweep_driver import GRID, SIZE
from vrtd.errors import InvalidInputError, WorkerError
from vrtd.executors import ProcessExecutor
from vrtd.sweeps import groups, segments
from vrtd.sweeps.design import Design
from vrtd.sweeps.segments import Segments

ROOT = Path(__file__).parents[3]
N_CELLS = 80
SMALL: dict[str, Any] = {"n_runs": 3, "n_gradients": 200, "threads": 1}
STEPS = {"step_size": [0.01, 0.02, 0.03]}


def start(folder: Path, seconds: float) -> subprocess.Popen[bytes]:
    driver = [sys.executable, str(ROOT / "tests/helpers/sweep_driver.py")]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    arguments = [str(folder / "out"), str(folder / "log"), str(seconds)]
    return subprocess.Popen([*driver, *arguments], env=os.environ | {"PYTHONPATH": path})


def computed(folder: Path) -> list[int]:
    return [int(line) for line in (folder / "log").read_text().split()] if (folder / "log").exists() else []


def files_of(out: Path) -> dict[str, str]:
    return {name: hashlib.sha256((out / name).read_bytes()).hexdigest() for name in ("sweep.csv", "manifest.json")}


def kill_and_resume(folder: Path, n_kills: int, random: Random) -> None:
    """Kill a sweep at random moments, and compare its files with those of one that ran without interruption."""
    vrtd.sweep("boyan_chain", "td", GRID, out=folder / "whole", **SIZE)
    n_killed = 0
    for _ in range(n_kills):
        process = start(folder, 0.02)
        before, pause = len(computed(folder)), random.uniform(0.0, 0.1)
        while len(computed(folder)) == before and process.poll() is None:
            time.sleep(0.01)
        time.sleep(pause)
        process.send_signal(signal.SIGKILL)
        n_killed += process.wait() == -signal.SIGKILL
    assert n_killed == n_kills
    assert start(folder, 0.0).wait() == 0
    assert files_of(folder / "out") == files_of(folder / "whole")
    cells = computed(folder)
    assert set(cells) == set(range(N_CELLS))
    # One group of one cell is in flight at a kill, and a cell that is finished but not yet written is the other.
    assert len(cells) - N_CELLS <= 2 * n_killed


@pytest.mark.slow
def test_a_killed_sweep_continues(tmp_path: Path) -> None:
    """`benchmarks/kills.py` does the same with 20 kills, and on Dask and Ray."""
    kill_and_resume(tmp_path, 5, Random(1))


def test_a_finished_sweep_computes_nothing_again(tmp_path: Path) -> None:
    first = vrtd.sweep("boyan_chain", "td", STEPS, out=tmp_path, **SMALL)
    files = files_of(tmp_path)
    second = vrtd.sweep("boyan_chain", "td", STEPS, out=tmp_path, **SMALL)
    assert (first.timing.n_computed, second.timing.n_computed) == (3, 0)
    assert files_of(tmp_path) == files


@pytest.mark.slow
def test_a_larger_grid_keeps_finished_cells(tmp_path: Path) -> None:
    vrtd.sweep("boyan_chain", "td", STEPS, out=tmp_path, **SMALL)
    larger = {"average": [False, True], "step_size": [0.005, 0.03, 0.02, 0.01]}
    result = vrtd.sweep(["boyan_chain", "random_walk"], "td", larger, out=tmp_path, **SMALL)
    assert (result.timing.n_computed, result.n_cells) == (13, 16)
    fresh = vrtd.sweep(["boyan_chain", "random_walk"], "td", larger, **SMALL)
    assert all(result.table[name].tobytes() == column.tobytes() for name, column in fresh.table.items())


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1}, {"n_runs": 4}, {"n_gradients": 201}, {"metrics": ("neu",)}, {"checkpoints": 2},
        {"sampling": "iid"}, {"theta_0": 1.0}, {"initial": 2}, {"exact": False},
    ],
)  # fmt: skip
def test_a_change_of_an_argument_computes_all_cells(tmp_path: Path, change: dict[str, Any]) -> None:
    vrtd.sweep("boyan_chain", "td", STEPS, out=tmp_path, **SMALL)
    assert vrtd.sweep("boyan_chain", "td", STEPS, out=tmp_path, **SMALL | change).timing.n_computed == 3
    assert vrtd.sweep("boyan_chain", "td", STEPS, out=tmp_path, **SMALL).timing.n_computed == 0


def test_a_change_of_code_or_problem_computes_all_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = vrtd.problems.boyan_chain()
    vrtd.sweep({"it": problem}, "td", STEPS, out=tmp_path, **SMALL)
    assert vrtd.sweep({"renamed": problem}, "td", STEPS, out=tmp_path, **SMALL).timing.n_computed == 0
    other = vrtd.problems.random_walk()
    assert vrtd.sweep({"it": other}, "td", STEPS, out=tmp_path, **SMALL).timing.n_computed == 3
    monkeypatch.setattr("vrtd.store._code", lambda: "other code")
    assert vrtd.sweep({"it": problem}, "td", STEPS, out=tmp_path, **SMALL).timing.n_computed == 3


def flip_bit(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


DAMAGE = {
    "flipped": flip_bit,
    "truncated": lambda content: content[:-5],
    "empty": lambda content: b"",
    "foreign": lambda content: b"something else",
    "longer": lambda content: content + b"0",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_the_cells_of_a_damaged_segment_are_computed_again(tmp_path: Path, damage: str) -> None:
    vrtd.sweep("boyan_chain", "td", STEPS, out=tmp_path, **SMALL)
    files = files_of(tmp_path)
    damaged = {path: DAMAGE[damage](path.read_bytes()) for path in (tmp_path / "cells").iterdir()}
    for path, content in damaged.items():
        path.write_bytes(content)
    assert vrtd.sweep("boyan_chain", "td", STEPS, out=tmp_path, **SMALL).timing.n_computed == 3
    assert files_of(tmp_path) == files
    assert all(path.read_bytes() == content for path, content in damaged.items())


def test_a_segment_with_records_of_another_size_has_no_cells(tmp_path: Path) -> None:
    """Its checksum is right and its keys are those of this sweep."""
    vrtd.sweep("boyan_chain", "td", STEPS, out=tmp_path, **SMALL)
    for path in (tmp_path / "cells").iterdir():
        n = int.from_bytes(path.read_bytes()[48:56], "little")
        keys = path.read_bytes()[64 : 64 + n * 16]
        content = n.to_bytes(8, "little") + (8).to_bytes(8, "little") + keys + bytes(8 * n)
        path.write_bytes(path.read_bytes()[:16] + hashlib.sha256(content).digest() + content)
    assert vrtd.sweep("boyan_chain", "td", STEPS, out=tmp_path, **SMALL).timing.n_computed == 3


def test_an_interrupted_sweep_keeps_what_is_finished(tmp_path: Path) -> None:
    def interrupt(share: float, _: str) -> None:
        if share > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        vrtd.sweep("boyan_chain", "td", STEPS, out=tmp_path, progress=interrupt, **SMALL)
    assert not (tmp_path / "sweep.csv").exists()
    assert vrtd.sweep("boyan_chain", "td", STEPS, out=tmp_path, **SMALL).timing.n_computed < 3


def test_ctrl_c_keeps_what_is_finished(tmp_path: Path) -> None:
    process = start(tmp_path, 0.05)
    while len(computed(tmp_path)) < 5:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait() != 0
    n_started = len(computed(tmp_path))
    result = vrtd.sweep("boyan_chain", "td", GRID, out=tmp_path / "out", **SIZE)
    assert N_CELLS - result.timing.n_computed in (n_started - 1, n_started)


def test_a_broken_pool_is_an_error_and_the_same_call_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_SECONDS", "_LEAST_SECONDS", "_FIRST_SECONDS"):
        monkeypatch.setattr(groups, name, 1e-9)  # groups of one cell
    options = {"out": tmp_path, "n_runs": 3, "n_gradients": 200}

    def kill(share: float, _: str) -> None:
        if share > 0.1:
            os.kill(executor._processes[0].pid, signal.SIGKILL)

    with ProcessExecutor(1) as executor, pytest.raises(WorkerError, match=r"ended unexpectedly .* Run the same call"):
        vrtd.sweep("boyan_chain", "td", GRID, executor=executor, progress=kill, **options)
    with ProcessExecutor(1) as executor:
        result = vrtd.sweep("boyan_chain", "td", GRID, executor=executor, **options)
    assert 1 <= N_CELLS - result.timing.n_computed < N_CELLS


def test_a_folder_with_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InvalidInputError, match="holds something else"):
        vrtd.sweep("boyan_chain", "td", STEPS, out=tmp_path, **SMALL)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_bad_input_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError):
        vrtd.sweep("boyan_chain", "td", {"step_size": [0.1, -1.0]}, out=tmp_path / "out", **SMALL)
    assert not (tmp_path / "out").exists()


def test_the_manifest_says_what_the_sweep_was(tmp_path: Path) -> None:
    result = vrtd.sweep("boyan_chain", "td", STEPS, out=tmp_path, **SMALL)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest == result.manifest
    assert (manifest["algorithm"], manifest["grid"], manifest["seed"]) == ("td", STEPS, 0)
    assert manifest["problems"] == {"boyan_chain": vrtd.problems.boyan_chain().digest}


def test_small_segments_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "_MOST_SMALL", 4)
    monkeypatch.setattr(segments, "_PAUSE", 0.0)
    kind = np.dtype([("mean", "<f8")])
    keys = np.random.default_rng(0).integers(0, 2**64, (11, 2), np.uint64)
    records = np.arange(11.0).astype(kind)
    written = Segments(tmp_path, keys)
    for i in range(11):
        written.add(np.array([i]), records[i : i + 1])
    assert len(list(tmp_path.iterdir())) == 2 + 3
    again = np.zeros(11, kind)
    assert Segments(tmp_path, keys).load(again).all()
    assert again.tobytes() == records.tobytes()


def test_finished_cells_are_written_at_once_unless_writing_is_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = np.dtype([("mean", "<f8")])
    keys = np.random.default_rng(0).integers(0, 2**64, (40, 2), np.uint64)
    records, now = np.zeros(40, kind), [0.0]
    monkeypatch.setattr(segments, "time", SimpleNamespace(monotonic=lambda: now[0]))
    write = Segments._write

    def slowly(self: Segments, *content: Any) -> Path:
        now[0] += 0.5
        return write(self, *content)

    monkeypatch.setattr(Segments, "_write", slowly)
    written, n_files = Segments(tmp_path, keys), []
    for i in range(40):
        written.add(np.array([i]), records[i : i + 1])
        n_files.append(len(list(tmp_path.iterdir())))
        now[0] += 2.5
    assert n_files[0] == 1
    assert n_files[19:21] == [1, 2]  # a write of half a second is followed by a pause of fifty
    written.flush()
    assert Segments(tmp_path, keys).load(records).all()


def test_keys_differ_between_cells_and_do_not_depend_on_the_order_of_the_grid() -> None:
    def keys(grid: Any) -> Any:
        designs: list[Design] = []
        original = Design.check_settings

        def keep(self: Design) -> Any:
            designs.append(self)
            return original(self)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Design, "check_settings", keep)
            vrtd.sweep(["boyan_chain", "random_walk"], "vrtd", grid, **SMALL)
        return designs[0].keys().reshape(2, *designs[0].shape, 2)

    first = keys({"step_size": [0.1, 0.2], "batch_size": [10, 20, 30]})
    second = keys({"batch_size": [10, 20, 30], "step_size": [0.1, 0.2]})
    assert np.array_equal(first, second.transpose(0, 2, 1, 3))
    assert len(np.unique(first.reshape(-1, 2), axis=0)) == 12
