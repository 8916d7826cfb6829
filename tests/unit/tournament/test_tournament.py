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
from vrtd.errors import VrtdError
from vrtd.tournament import ENTRANTS, TournamentSize, tournament
from vrtd.tournament.tournament import cell_path, work


def measure(folder: Path, size: TournamentSize = SIZE, processes: int = 2, cells: Any = CELLS) -> Any:
    folder.mkdir(exist_ok=True)
    return tournament.measure(size, standard(*cells), folder, processes, None)


@pytest.mark.slow
def test_processes_do_not_change_a_bit_and_what_is_there_is_kept(tmp_path: Path) -> None:
    shares: list[float] = []
    folder = tmp_path / "two"
    folder.mkdir()
    found = tournament.measure(SIZE, standard(*CELLS), folder, 2, lambda share, what: shares.append(share))
    assert shares[-1] == 1.0
    assert shares == sorted(shares)
    for pair, expected in some_cells().items():
        assert without_seconds(found[pair]) == without_seconds(expected)
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    cell_path(folder, *standard(("baird", "td"))).write_text("damaged")
    again = measure(folder, processes=1)
    after = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert [path.name for path in before if before[path] != after[path]] == ["baird-td.json"]
    assert {pair: without_seconds(each) for pair, each in again.items()} == {
        pair: without_seconds(each) for pair, each in found.items()
    }
    assert tournament.load_cells(replace(SIZE, seed=1), standard(*CELLS), folder) == {}


def test_a_process_that_fails_is_an_error(tmp_path: Path, capfd: Any) -> None:
    with pytest.raises(VrtdError, match="A worker process failed with exit code 1"):
        tournament.measure(SIZE, [(NOWHERE, ENTRANTS["td"])], tmp_path, 2, None)
    assert "KeyError: 'nowhere'" in capfd.readouterr().err


def test_work_is_told_and_kept_cell_by_cell(tmp_path: Path) -> None:
    told: list[Any] = []

    def stop(*what: Any) -> None:
        told.append(what)
        if what[:2] == ("random-mdp", "vrtd"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work(SIZE, [(each, "x") for each in standard(("random-mdp", "td"), ("random-mdp", "vrtd"))], tmp_path, stop)
    assert told[-2:] == [("random-mdp", "td", 1.0), ("random-mdp", "vrtd", pytest.approx(0.8 / 6))]
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
def test_an_interruption_ends_the_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started, start = [], tournament._start

    def remember(*arguments: Any) -> Any:
        started.append(start(*arguments))
        return started[-1]

    def stop(share: float, what: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tournament, "_start", remember)
    cells = standard(("garnet", "td"), ("garnet", "recursive_lstd"))
    with pytest.raises(KeyboardInterrupt):  # or whatever else comes out of the progress
        tournament.measure(TournamentSize(n_samples=300), cells, tmp_path, 2, stop)
    assert [worker.returncode for worker in started] == [-15, -15]
    assert not list(tmp_path.iterdir())


def test_one_that_fails_ends_the_others(tmp_path: Path, capfd: Any) -> None:
    began = time.monotonic()
    cells = [*standard(("garnet", "td")), (NOWHERE, ENTRANTS["recursive_lstd"])]
    with pytest.raises(VrtdError, match="failed with exit code 1"):
        tournament.measure(TournamentSize(n_samples=10**9), cells, tmp_path, 2, None)
    assert time.monotonic() - began < 120.0  # the other one would take days
    assert "KeyError: 'nowhere'" in capfd.readouterr().err
