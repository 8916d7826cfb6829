"""Compare the bounds of Theorem 1 with the exact error of VRTD on the paper's chain, without simulation.

Run `python examples/bounds.py [FOLDER]`; it writes bounds.png and bounds.csv into the folder. Samples are independent.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import vrtd
from vrtd.plots import METRIC_LABELS, new_panels
from vrtd.theory import vrtd_iid_bound, vrtd_iid_moments

BATCH_SIZE, EPOCHS = 1_000_000, 12
FORMS = {"as printed": "printed", "corrected": "corrected", "sharpened": "sharp"}


def main(folder: Path) -> None:
    """Draw the bounds and the exact error over epochs."""
    problem, theta_0 = vrtd.problems.random_mdp(seed=0, normalize=True), np.zeros(4)
    step_size = problem.lambda_A / (32 * 1.95**2)  # half of the largest step that the corrected theorem allows
    truth = vrtd_iid_moments(problem, step_size, BATCH_SIZE, EPOCHS, theta_0).squared_error

    (axes,) = new_panels(1)
    axes.plot(truth, "o-", color="black", markersize=4, label="exact error")
    columns = [np.arange(EPOCHS + 1), truth]
    for (name, form), style in zip(FORMS.items(), ("--", "-", "-."), strict=True):
        bound = vrtd_iid_bound(problem, step_size, BATCH_SIZE, theta_0, form=form)
        curve = bound.curve(EPOCHS)
        axes.plot(curve, style, linewidth=1.8, label=f"Theorem 1, {name}{' (false)' if (curve < truth).any() else ''}")
        columns.append(curve)
        print(f"Theorem 1, {name:<12} floor {bound.floor:9.3g}, exact {truth[-1]:.3g}")
    axes.set_yscale("log")
    axes.set_xlabel(f"epochs with batches of {BATCH_SIZE:,}")
    axes.set_ylabel(METRIC_LABELS["squared_error"])
    axes.set_title("The printed bound falls below the error that it bounds", fontsize="medium")
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, fontsize="small", loc="center right")
    axes.figure.savefig(folder / "bounds.png", dpi=120)
    header = "epoch,exact," + ",".join(FORMS)
    np.savetxt(folder / "bounds.csv", np.column_stack(columns), delimiter=",", header=header, comments="", fmt="%.10g")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
