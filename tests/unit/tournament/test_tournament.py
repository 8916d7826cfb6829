"""The processes of a tournament: the same bits however many there are, and what becomes of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.tournament import CELLS, NOWHERE, SIZE, some_cells, standard, without_seconds
from vrtd.errors import WorkerError
from vrtd.executors import processes
from vrtd.tournament import ENTRANTS, TournamentSize, tournament
from vrtd.tournament.tournament import cell_path


@pytest.mark.slow
def test_processes_do_not_change_a_bit_and_what_is_there_is_kept(tmp_path: Path) -> None:
    shares: list[float] = []
    folder = tmp_path / "two"
    folder.mkdir()
    found = tournament.measure(SIZE, standard(*CELLS), folder, None, 2, lambda share, what: shares.append(share))
    assert shares[-1] == 1.0
    assert shares == sorted(shares)
    for pair, expected in some_cells().items():
        assert without_seconds(found[pair]) == without_seconds(expected)
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    cell_path(folder, *standard(("baird", "td"))).write_text("damaged")
    again = tournament.measure(SIZE, standard(*CELLS), folder, None, 1, None)
    after = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert [path.name for path in before if before[path] != after[path]] == ["baird-td.json"]
    assert {pair: without_seconds(each) for pair, each in again.items()} == {
        pair: without_seconds(each) for pair, each in found.items()
    }
    assert tournament.load_cells(replace(SIZE, seed=1), standard(*CELLS), folder) == {}


def test_a_cell_that_fails_is_named(tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match=r"^td on nowhere failed: KeyError: 'nowhere'\. Fix the cause"):
        tournament.measure(SIZE, [(NOWHERE, ENTRANTS["td"])], tmp_path, None, 2, None)


def test_a_finished_cell_is_written_before_the_next_one_is_reported(tmp_path: Path) -> None:
    told: list[Any] = []

    def stop(share: float, what: str) -> None:
        told.append((share, what))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tournament.measure(SIZE, standard(("random-mdp", "td"), ("random-mdp", "vrtd")), tmp_path, None, 1, stop)
    assert told == [(0.5, "td on random-mdp")]
    assert [path.name for path in tmp_path.iterdir()] == ["random-mdp-td.json"]


@pytest.mark.slow
def test_an_interrupted_comparison_goes_on(tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "vrtd", "compare", "--problems", "random-mdp", "--algorithms", "td", "recursive_lstd",
        "--samples", "300", "--runs", "4", "--trials", "6", "--tuning-runs", "2", "--threads", "1", "--quiet",
        "--out", str(tmp_path / "c"),
    ]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while not (cells := tmp_path / "c" / "cells").exists() or not list(cells.glob("*.json")):
        assert process.poll() is None
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGINT)
    _, told = process.communicate()
    if process.returncode:  # unless it was finished first
        assert process.returncode == 130
        assert "Run the same command to continue." in told
    kept = {path: path.stat().st_mtime_ns for path in cells.glob("*.json")}
    assert subprocess.run(command, check=True, capture_output=True).returncode == 0
    assert all(path.stat().st_mtime_ns == when for path, when in kept.items())
    assert (tmp_path / "c" / "report.html").exists()


@pytest.mark.slow
def test_one_that_fails_ends_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started, start = [], processes._start_process

    def remember() -> Any:
        started.append(start())
        return started[-1]

    monkeypatch.setattr(processes, "_start_process", remember)
    began = time.monotonic()
    cells = [*standard(("garnet", "td")), (NOWHERE, ENTRANTS["recursive_lstd"])]
    with pytest.raises(WorkerError, match="recursive_lstd on nowhere failed"):
        tournament.measure(TournamentSize(n_samples=10**9), cells, tmp_path, None, 2, None)
    assert time.monotonic() - began < 120.0  # the other one would take days
    assert [process.returncode for process in started] == [-15, -15]
    assert not list(tmp_path.iterdir())
