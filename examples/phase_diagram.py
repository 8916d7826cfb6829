"""Simulate VRTD on the paper's chain in 64 x 64 cells of step size and batch size, 10,000 runs each, on a GPU.

    python examples/phase_diagram.py measure [FOLDER] [--device cuda] [--threads 16]
    python examples/phase_diagram.py draw [FOLDER]

The first command writes phase-diagram.csv: the mean squared error after 100,000 pseudo-gradients in each cell, with its
standard error, and the exact expectation. The second one draws it, phase-diagram.png.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path

import numpy as np

import vrtd

STEP_SIZES = np.geomspace(0.01, 1.0, 64).round(5)
BATCH_SIZES = np.geomspace(10, 4000, 64).round().astype(int)
COLUMNS = ("mean", "standard_error", "exact", "n_diverged")
N_RUNS, N_GRADIENTS = 10_000, 100_000


def measure(folder: Path, device: str, threads: int | None) -> None:
    """Simulate all cells, and write the table."""
    problem = vrtd.problems.random_mdp(seed=0)
    grid = {"step_size": STEP_SIZES.tolist(), "batch_size": BATCH_SIZES.tolist()}
    clock = time.perf_counter()
    result = vrtd.sweep(
        problem, vrtd.VRTD, grid, sampling="iid", n_runs=N_RUNS, n_gradients=N_GRADIENTS, exact=True,
        device=device, threads=threads, progress=True,
    )  # fmt: skip
    seconds = time.perf_counter() - clock
    rate = result.n_cells * N_RUNS * N_GRADIENTS / seconds
    print(f"{seconds:.0f} s, {rate / 1e9:.1f} billion pseudo-gradients per second")
    columns = [result.final(name, "problem-1") for name in COLUMNS]
    with (folder / "phase-diagram.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow((*grid, *COLUMNS))
        for i, step_size in enumerate(grid["step_size"]):
            for j, batch_size in enumerate(grid["batch_size"]):
                writer.writerow((step_size, batch_size, *(f"{each[i, j]:.4g}" for each in columns)))


def draw(folder: Path) -> None:
    """Draw the simulated errors, and their ratio to the expected ones."""
    from matplotlib import pyplot as plt
    from matplotlib.colors import LogNorm

    with (folder / "phase-diagram.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    shape = len(STEP_SIZES), len(BATCH_SIZES)
    mean, exact, n_diverged = (
        np.array([float(row[name]) for row in rows]).reshape(shape) for name in ("mean", "exact", "n_diverged")
    )
    mean[n_diverged > 0] = np.nan
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 4), sharey=True, layout="constrained")
    for axis, values, norm, colours, label in (
        (left, mean, LogNorm(3e-2, 1e2), "viridis", "mean squared error"),
        (right, mean / exact, LogNorm(0.5, 2.0), "RdBu_r", "simulated / expected"),
    ):
        drawn = axis.pcolormesh(BATCH_SIZES, STEP_SIZES, values, norm=norm, cmap=colours, shading="nearest")
        bar = figure.colorbar(drawn, ax=axis, label=label, extend="both")
        axis.set(xscale="log", yscale="log", xlabel="batch size", facecolor="0.8")
    bar.set_ticks([0.5, 0.7, 1.0, 1.4, 2.0], labels=["0.5", "0.7", "1", "1.4", "2"])
    bar.minorticks_off()
    left.set(ylabel="step size", title="simulated, 10,000 runs per cell")
    right.set(title="divided by the exact expectation")
    figure.savefig(folder / "phase-diagram.png", dpi=100)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("measure", "draw"))
    parser.add_argument("folder", nargs="?", type=Path, default=Path("."))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--threads", type=int, help="cells that are computed at the same time")
    options = parser.parse_args()
    if options.part == "measure":
        measure(options.folder, options.device, options.threads)
    else:
        draw(options.folder)
