"""Sweep VRTD over step sizes and batch sizes, and draw the errors with what the theory expects.

Run `python examples/sweep.py [FOLDER]`; it writes sweep.png, the picture of the page on sweeps, and sweep.csv.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import vrtd
from vrtd.plots import new_panels

GRID = {"step_size": np.geomspace(0.002, 0.7, 14).round(4), "batch_size": [50, 200, 800, 3200]}


def main(folder: Path) -> None:
    """Simulate 200 runs per cell, and draw one curve per batch size above the map of all cells."""
    result = vrtd.sweep("random_mdp", vrtd.VRTD, GRID, sampling="iid", n_runs=200, n_gradients=100_000)
    above, below = new_panels(2)
    result.plot(above, x="step_size")
    result.plot(below)
    above.set_title("VRTD on independent samples, mean over 200 runs", fontsize="medium")
    result.to_csv(folder / "sweep.csv")
    print(result)
    above.figure.savefig(folder / "sweep.png", dpi=120)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
