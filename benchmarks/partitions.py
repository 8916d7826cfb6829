"""Closed form from Parquet files: without partitions, in partitions, and on one and two processes.

Each way reads the same files and computes the same sums. Times exclude the start of processes and compilation. CPU time
is that of all processes: two processes that share caches and memory need more of it than one for the same work.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pyarrow
from pyarrow.parquet import write_table

import vrtd
from vrtd.executors import ProcessExecutor

COLUMNS = [f"x_{j}" for j in range(20)]


def write_log(folder: Path, n_rows: int, n_files: int) -> list[Path]:
    rng, paths = np.random.default_rng(0), []
    for i in range(n_files):
        n = n_rows // n_files
        columns = {name: rng.standard_normal(n) for name in COLUMNS}
        columns |= {"reward": rng.standard_normal(n), "session": i * n + np.arange(n) // 50}
        paths.append(folder / f"{i}.parquet")
        write_table(pyarrow.table(columns), paths[-1], row_group_size=1 << 18)
    return paths


def measure(function: Callable[[], object]) -> tuple[float, float]:
    """Return seconds, and CPU seconds of this process and its workers."""
    processes = psutil.Process(), *psutil.Process().children()
    cpu = sum(sum(process.cpu_times()[:2]) for process in processes)
    began = time.perf_counter()
    function()
    seconds = time.perf_counter() - began
    return seconds, sum(sum(process.cpu_times()[:2]) for process in processes) - cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="Use few rows, to check that everything runs.")
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--features", default="rff:100", help="Features, as in vrtd evaluate.")
    arguments = parser.parse_args()
    n_rows = 600_000 if arguments.quick else arguments.rows
    options = {"observations": "x_*", "reward": "reward", "episode": "session", "episode_end": "terminated"}
    with tempfile.TemporaryDirectory() as folder, ProcessExecutor(1) as one, ProcessExecutor(2) as two:
        paths = write_log(Path(folder), n_rows, 4)

        def evaluator() -> vrtd.Evaluator:
            return vrtd.Evaluator("closed_form", features=arguments.features, discount=0.9)

        ways: dict[str, Callable[[], object]] = {
            "rows in order": lambda: evaluator().partial_fit(paths, **options),
            "partitions": lambda: evaluator().fit(paths, **options),
            "1 process": lambda: evaluator().fit(paths, executor=one, **options),
            "2 processes": lambda: evaluator().fit(paths, executor=two, **options),
        }
        for way in ways.values():  # compile, and start everything
            way()
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for _ in range(1 if arguments.quick else 3):
            for name, way in ways.items():
                times[name].append(measure(way))
    best = {name: min(each) for name, each in times.items()}
    print(f"{n_rows:,} rows, {arguments.features}")
    for name, (seconds, cpu) in best.items():
        print(f"{name:<14} {seconds:7.2f} s, {n_rows / seconds / 1e6:5.2f} million rows/s, {cpu:6.2f} s of CPU")
    print(f"partitions / rows in order: {best['rows in order'][0] / best['partitions'][0]:.2f} times as fast")
    print(f"2 processes / 1 process:    {best['1 process'][0] / best['2 processes'][0]:.2f} times as fast")
    seconds, cpu = best["2 processes"]
    print(f"2 processes use {cpu / 2 / seconds:.2f} of two cores")


if __name__ == "__main__":
    main()
