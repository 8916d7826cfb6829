"""Draw the three pictures of docs/why.md, each with its data beside it.

Run ``python examples/why.py [FOLDER]``. It takes a few seconds.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import vrtd
from vrtd.tables import write_csv

BATCH_SIZES = (50, 500, 2000)
TD_COLOUR, VRTD_COLOUR, MEAN_COLOUR = "#c44e52", "#4c72b0", "#222222"


def draw_noise(folder: Path) -> None:
    """Draw the pseudo-gradients at the fixed point, and where TD goes from there."""
    problem = vrtd.problems.random_mdp(seed=0, n_features=2)
    rows = vrtd.record(problem, 600, seed=1)
    errors = rows.reward + rows.discount * (rows.phi_next @ problem.theta_star) - rows.phi @ problem.theta_star
    gradients = errors[:, None] * rows.phi
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 4.8), layout="constrained")
    left.scatter(*gradients.T, s=8, alpha=0.5, color=TD_COLOUR, label="600 single pseudo-gradients")
    left.plot(0, 0, "*", color=MEAN_COLOUR, markersize=14, label="their exact mean: zero")
    left.set(title="At the fixed point, each pseudo-gradient is noise", xlabel="component 1", ylabel="component 2")
    for algorithm, colour in ((vrtd.TD(0.1), TD_COLOUR), (vrtd.VRTD(0.1, 2000), VRTD_COLOUR)):
        result = vrtd.simulate(
            problem, algorithm, sampling="iid", n_runs=600, n_gradients=80_000, theta_0=problem.theta_star
        )
        name = "TD" if algorithm.name == "td" else "VRTD, batches of 2,000"
        right.scatter(
            *result.theta.T, s=8, alpha=0.5, color=colour, label=f"{name}: 600 runs after 80,000 pseudo-gradients"
        )
    right.plot(*problem.theta_star, "*", color=MEAN_COLOUR, markersize=14, label="fixed point, where all runs began")
    right.set(title="TD wanders away; VRTD stays close", xlabel="theta 1", ylabel="theta 2")
    for axes in (left, right):
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), fontsize="small", frameon=False)
    figure.savefig(folder / "why-noise.png", dpi=120)
    write_csv({"component_1": gradients[:, 0], "component_2": gradients[:, 1]}, folder / "why-noise.csv")


def draw_correction(folder: Path) -> None:
    """Draw the noise of one update against the distance between theta and the anchor."""
    problem = vrtd.problems.random_mdp(seed=0)
    rows = vrtd.record(problem, 200_000, seed=2, sampling="iid")
    differences = rows.discount[:, None] * rows.phi_next - rows.phi
    rng = np.random.default_rng(0)
    direction = rng.normal(size=problem.n_features)
    direction /= np.linalg.norm(direction)
    distances = np.geomspace(0.01, 10.0, 40)
    at_anchor = (rows.reward + differences @ problem.theta_star)[:, None] * rows.phi

    def spread(vectors: np.ndarray) -> float:
        return float(np.sqrt(vectors.var(axis=0).sum()))

    moved = (differences @ direction)[:, None] * rows.phi  # A_x (theta - anchor) for a distance of 1
    plain = [spread(at_anchor + distance * moved) for distance in distances]
    corrected = [distance * spread(moved) for distance in distances]
    figure, axes = plt.subplots(figsize=(7.2, 4.4), layout="constrained")
    axes.loglog(distances, plain, color=TD_COLOUR, label="TD: $g_x(\\theta)$")
    axes.loglog(distances, corrected, color=VRTD_COLOUR, label="VRTD: $g_x(\\theta) - g_x(\\tilde\\theta) + g_m$")
    for batch_size, style in zip(BATCH_SIZES, (":", "-.", "--"), strict=True):
        level = spread(at_anchor) / np.sqrt(batch_size)
        axes.axhline(level, color="0.5", ls=style, lw=1, label=f"error of $g_m$ with a batch of {batch_size:,}")
    axes.set(
        title="The correction removes the noise near the anchor",
        xlabel="distance between theta and the anchor (the anchor is at theta_star)",
        ylabel="standard deviation of one update / step",
    )
    axes.legend(fontsize="small")
    figure.savefig(folder / "why-correction.png", dpi=120)
    table = {"distance": distances, "td": np.array(plain), "vrtd": np.array(corrected)}
    write_csv(table, folder / "why-correction.csv")


def draw_floors(folder: Path) -> None:
    """Draw the exact floor of VRTD against the batch size, beside the floor of TD."""
    problem = vrtd.problems.random_mdp(seed=0)
    batch_sizes = np.unique(np.geomspace(2, 20_000, 30).astype(int))
    figure, axes = plt.subplots(figsize=(7.2, 4.4), layout="constrained")
    table = {"batch_size": batch_sizes}
    for step, colour in ((0.1, VRTD_COLOUR), (0.02, "#55a868")):
        td = np.trace(vrtd.theory.stationary_second_moment(problem, step))
        floors = [np.trace(vrtd.theory.stationary_second_moment(problem, step, int(M))) for M in batch_sizes]
        axes.loglog(batch_sizes, floors, color=colour, label=f"VRTD, step {step}")
        axes.axhline(td, color=colour, ls="--", lw=1, label=f"TD, step {step}")
        table |= {f"vrtd_{step}": np.array(floors), f"td_{step}": np.full(len(batch_sizes), td)}
    axes.set(
        title="Larger batches, lower floor",
        xlabel="batch size M",
        ylabel="floor: mean squared error in the long run",
    )
    axes.legend(fontsize="small")
    figure.savefig(folder / "why-floor.png", dpi=120)
    write_csv(table, folder / "why-floor.csv")


def main(folder: Path) -> None:
    """Draw all three pictures."""
    plt.style.use({"axes.spines.top": False, "axes.spines.right": False})
    draw_noise(folder)
    draw_correction(folder)
    draw_floors(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
