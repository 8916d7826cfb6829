"""Measure the overhead of sweeps on two processes, and the time to resume a finished one.

    python benchmarks/sweep.py [--quick]

`ratio` is the duration of a sweep divided by the pure compute time of the same sweep: the seconds inside compiled loops
divided by the number of workers. Expected errors are not computed, as they are work of their own. A small sweep before
each measurement starts the workers and compiles the loop. `asked` is the largest ratio, or time, required.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import vrtd
from vrtd.executors import ProcessExecutor

N_WORKERS = 2
TRIAL_CELLS, TRIAL_GRADIENTS = 20, 20_000
CASES = ((10_000, 0.01, 1.3), (1000, 0.1, 1.1))  # cells, seconds of one, and the ratio asked for
RESUMED_CELLS, RESUMED_SECONDS = 100_000, 5.0


def run(n_cells: int, n_gradients: int, n_runs: int, executor: ProcessExecutor, out: Path | None = None) -> Any:
    """Return a sweep of TD over step sizes, and its duration."""
    grid = {"step_size": np.linspace(1e-3, 0.1, n_cells)}
    size = {"n_runs": n_runs, "n_gradients": n_gradients, "sampling": "iid", "exact": False}
    began = time.perf_counter()
    result = vrtd.sweep("random_mdp", "td", grid, executor=executor, out=out, **size)
    return result, time.perf_counter() - began


def measure_overhead(n_cells: int, seconds: float, executor: ProcessExecutor, out: Path) -> dict[str, Any]:
    run(TRIAL_CELLS, 100, 100, executor)
    trial, _ = run(TRIAL_CELLS, TRIAL_GRADIENTS, 100, executor)
    n_gradients = round(TRIAL_GRADIENTS * TRIAL_CELLS * seconds / trial.timing.loop_seconds)
    report: dict[str, Any] = {"n_cells": n_cells}
    for name, folder in (("ratio", None), ("ratio_kept_in_a_folder", out)):
        result, duration = run(n_cells, n_gradients, 100, executor, folder)
        report |= {"milliseconds_per_cell": 1e3 * result.timing.loop_seconds / n_cells}
        report[name] = duration / (result.timing.loop_seconds / N_WORKERS)
    return report


def measure_resumption(n_cells: int, executor: ProcessExecutor, out: Path) -> dict[str, Any]:
    run(n_cells, 10, 2, executor, out)
    result, duration = run(n_cells, 10, 2, executor, out)
    assert result.timing.n_computed == 0
    n_bytes = sum(path.stat().st_size for path in (out / "cells").iterdir())
    return {
        "n_cells": n_cells,
        "seconds": duration,
        "asked": RESUMED_SECONDS,
        "n_segments": len(list((out / "cells").iterdir())),
        "bytes_per_cell": n_bytes / n_cells,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a hundredth of the cells")
    share = 100 if parser.parse_args().quick else 1
    report: dict[str, Any] = {"n_workers": N_WORKERS, "overhead": []}
    with tempfile.TemporaryDirectory() as folder, ProcessExecutor(N_WORKERS) as executor:
        for n_cells, seconds, asked in CASES:
            measured = measure_overhead(n_cells // share, seconds, executor, Path(folder) / f"{n_cells}")
            report["overhead"].append(measured | {"asked": asked})
        report["resumption"] = measure_resumption(RESUMED_CELLS // share, executor, Path(folder) / "resumed")
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
