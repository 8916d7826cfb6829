"""Draw the value map of a report: Mountain Car, pushed in the direction of its velocity.

Run `python examples/evaluate.py [FOLDER]`; it writes evaluate.png, the picture of docs/command-line.md, and
evaluate.csv into the folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import vrtd
from vrtd.estimator.figures import figures_of
from vrtd.estimator.state_values import LogSummary, value_states
from vrtd.logs.environment import from_env
from vrtd.problems.mountain_car import push_with_velocity

LOW, HIGH = (-1.2, -0.07), (0.6, 0.07)  # bounds of position and velocity


def main(folder: Path, n_samples: int = 100_000) -> None:
    """Evaluate the policy and draw its values with the widths of their intervals."""
    features = vrtd.features.Fourier(5, low=LOW, high=HIGH)
    evaluator = vrtd.Evaluator(features=features, discount=0.99)
    log = LogSummary(from_env("MountainCar-v0", push_with_velocity, n_samples), ("position", "velocity"))
    evaluator.fit(log)
    valued = value_states(evaluator, log, 0.95, None)
    drawn, tables = figures_of(valued, (), evaluator.diagnostics_, 0.95, None)

    picture = Figure(figsize=(10.0, 3.9), layout="constrained")
    titles = ("Values (hatched: no row of the log is near)", "Half the width of their 0.95 intervals")
    for axes, figure, title in zip(picture.subplots(1, 2), drawn, titles, strict=False):
        figure.draw(axes, tables)
        axes.set_title(title, fontsize="medium")
    picture.savefig(folder / "evaluate.png", dpi=110)
    columns = np.column_stack(list(valued.table.values()))
    np.savetxt(folder / "evaluate.csv", columns, "%.5g", ",", header=",".join(valued.table), comments="")
    print(evaluator.mean_value(), evaluator.diagnostics_.text)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
