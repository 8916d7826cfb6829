"""Kill workers of Dask and Ray, and sweeps, at random moments, and check that every result has the same bits.

    python benchmarks/kills.py [--what dask ray sweep] [--kills 10] [--seed 0] [--quick]

With workers, tasks run until all kills have happened. Each leaves a file when it begins and one when it ends, so that
tasks that were computed again are counted: a kill interrupts at most one, and results that are still on the worker are
lost. Then one call of `vrtd.simulate` goes through the same number of kills.

A sweep runs in a process of its own, which is killed twice as often and started again with the same folder. Each cell
adds a line to a file when it begins and one when it ends. A kill interrupts at most one cell per thread. The other
cells of their groups, which take about a second, are computed again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import psutil

import vrtd
from vrtd.executors import run_tasks
from vrtd.sweeps import cell

N_WORKERS = 2
PROBLEM, ALGORITHM = vrtd.problems.random_mdp(), vrtd.TD(0.1)
MARKS = {"dask": "spawn_main", "ray": "ray::"}  # in the command lines of workers


def measure(folder: Path, seed: int, n_gradients: int) -> Any:
    name = f"{seed}-{os.getpid()}-{time.monotonic_ns()}"
    (folder / f"{name}.begun").touch()
    theta = vrtd.simulate(PROBLEM, ALGORITHM, n_runs=10, n_gradients=n_gradients, seed=seed, threads=1).theta
    (folder / f"{name}.ended").touch()
    return theta


@contextmanager
def opened(name: str) -> Iterator[Executor]:
    if name == "ray":
        with vrtd.executors.ray(N_WORKERS) as executor:
            yield executor
        return
    import dask
    from distributed import Client, LocalCluster

    with (
        # As on the command line. By default, a task fails when it was on its way to four workers that ended.
        dask.config.set({"distributed.scheduler.allowed-failures": 10}),
        LocalCluster(
            n_workers=N_WORKERS, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0"
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client.get_executor(pure=False)


class Killer(Thread):
    """Kills a random worker process every now and then."""

    def __init__(self, name: str, n_kills: int, seed: int) -> None:
        super().__init__(daemon=True)
        self.name, self.left, self.random, self.stopped = name, n_kills, random.Random(seed), Event()

    def _workers(self) -> list[psutil.Process]:
        return [
            process
            for process in psutil.Process().children(recursive=True)
            if MARKS[self.name] in " ".join(process.cmdline()) and process.cpu_times().user > 0.5
        ]

    def run(self) -> None:
        """Kill until none is left or the work is done."""
        while self.left and not self.stopped.wait(self.random.uniform(0.5, 2.5)):
            try:
                self.random.choice(self._workers()).send_signal(signal.SIGKILL)
                self.left -= 1
            except (IndexError, psutil.Error):  # a worker has just ended, or has not begun
                pass


def kill_during_tasks(name: str, executor: Executor, n_kills: int, seed: int, n_gradients: int) -> dict[str, Any]:
    killer, made = Killer(name, n_kills, seed), 0

    def tasks() -> Iterator[tuple[int, int]]:
        nonlocal made
        while killer.is_alive():
            made += 1
            yield made - 1, n_gradients

    with tempfile.TemporaryDirectory() as folder:
        killer.start()
        results = list(run_tasks(executor, measure, Path(folder), tasks(), lambda i: f"task {i}"))
        counts = {end: Counter(path.name.split("-")[0] for path in Path(folder).glob(f"*.{end}")) for end in ENDS}
    wrong = 0
    for i, theta in results:
        local = vrtd.simulate(PROBLEM, ALGORITHM, n_runs=10, n_gradients=n_gradients, seed=i).theta
        wrong += not np.array_equal(theta, local)
    return {
        "kills": n_kills - killer.left,
        "tasks": made,
        "results": len(results),
        "missing": made - len({i for i, _ in results}),
        "wrong": wrong,
        "interrupted": sum((counts["begun"] - counts["ended"]).values()),
        "ended_twice": sum(count - 1 for count in counts["ended"].values()),
    }


ENDS = ("begun", "ended")


def kill_during_simulation(name: str, executor: Executor, n_kills: int, seed: int, n_gradients: int) -> dict[str, Any]:
    options: dict[str, Any] = {"n_runs": 2000, "n_gradients": n_gradients}
    killer = Killer(name, n_kills, seed)
    killer.start()
    clock = time.perf_counter()
    ours = vrtd.simulate(PROBLEM, vrtd.VRTD(0.1, 100), executor=executor, **options)
    seconds = time.perf_counter() - clock
    killer.stopped.set()
    killer.join()
    local = vrtd.simulate(PROBLEM, vrtd.VRTD(0.1, 100), **options)
    pairs = zip((ours.curves, ours.theta, *ours.state), (local.curves, local.theta, *local.state), strict=True)
    same = all(np.array_equal(one, other) for one, other in pairs)
    return {"kills": n_kills - killer.left, "same_bits": same, "seconds": seconds}


def sweep(out: Path | None, n_cells: int) -> Any:
    grid = {"step_size": np.linspace(1e-3, 0.1, n_cells)}
    return vrtd.sweep(PROBLEM, "td", grid, out=out, threads=N_WORKERS, n_gradients=50_000, exact=False)


def run_and_note(folder: Path, n_cells: int) -> None:
    """Run or continue the sweep in a folder, and note each cell that begins or ends."""
    measure_cell, notes = cell._measure_cell, os.open(folder / "notes", os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def note_and_measure(design: Any, i: int, *rest: Any) -> Any:
        os.write(notes, f"begun {i}\n".encode())
        measured = measure_cell(design, i, *rest)
        os.write(notes, f"ended {i}\n".encode())
        return measured

    cell._measure_cell = note_and_measure
    sweep(folder / "out", n_cells)


def kill_sweeps(n_kills: int, seed: int, n_cells: int) -> dict[str, Any]:
    whole, pause, killed = sweep(None, n_cells), random.Random(seed), 0
    with tempfile.TemporaryDirectory() as name:
        notes = Path(name, "notes")
        command = [sys.executable, __file__, "--continue-sweep", name, str(n_cells)]
        while True:
            n_before = notes.stat().st_size if notes.exists() else 0
            process = subprocess.Popen(command)
            while process.poll() is None and (not notes.exists() or notes.stat().st_size == n_before):
                time.sleep(0.01)
            if killed < n_kills:
                time.sleep(pause.uniform(0.0, 1.5))
                process.send_signal(signal.SIGKILL)
            if process.wait() != -signal.SIGKILL:
                break
            killed += 1
        begun, ended = (Counter(line[6:] for line in notes.read_text().splitlines() if line[:5] == end) for end in ENDS)
        found = sweep(Path(name, "out"), n_cells)
        same_bits = all(found.table[name].tobytes() == column.tobytes() for name, column in whole.table.items())
    return {
        "kills": killed,
        "cells": n_cells,
        "missing": found.timing.n_computed,  # by the last call, after one that was not killed
        "same_bits": same_bits,
        "interrupted": sum((begun - ended).values()),
        "ended_twice": sum(count - 1 for count in ended.values()),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--what", nargs="+", choices=(*MARKS, "sweep"), default=[*MARKS, "sweep"])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="one kill and short tasks")
    parser.add_argument("--continue-sweep", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.continue_sweep is not None:
        folder, n_cells = arguments.continue_sweep
        run_and_note(Path(folder), int(n_cells))
        return 0
    n_kills, n_gradients = (1, 500_000) if arguments.quick else (arguments.kills, 2_000_000)
    failed = False
    for name in arguments.what:
        if name == "sweep":
            found = kill_sweeps(2 * n_kills, arguments.seed, 200 * n_kills)
            print(json.dumps({"sweep": found}), flush=True)
            failed |= bool(found["missing"] or not found["same_bits"])
            continue
        with opened(name) as executor:
            tasks = kill_during_tasks(name, executor, n_kills, arguments.seed, n_gradients)
            simulation = kill_during_simulation(name, executor, n_kills, arguments.seed, n_gradients)
        print(json.dumps({"executor": name, "tasks": tasks, "simulation": simulation}), flush=True)
        failed |= bool(tasks["missing"] or tasks["wrong"] or tasks["results"] != tasks["tasks"])
        failed |= not simulation["same_bits"]
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
