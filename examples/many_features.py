"""Draw the figure of docs/many-features.md from the table that ``benchmarks/many_features.py`` wrote.

Run ``python examples/many_features.py [FOLDER]``, with many-features.csv in the folder.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from pathlib import Path

import matplotlib.pyplot as plt

STYLES = {
    "NumPy TD loop": ("#999999", ":"),
    "NumPy LSTD": ("#999999", "-"),
    "SwiftTD": ("#dd8452", "-"),
    "vrtd VRTD": ("#4c72b0", "-"),
    "vrtd extrapolated TD": ("#55a868", "-"),
    "vrtd closed form": ("#222222", "--"),
}


def main(folder: Path) -> None:
    """Draw the error against rows and against seconds, with a column for each number of features."""
    curves: dict[tuple[int, str], list[tuple[float, float, float]]] = defaultdict(list)
    with (folder / "many-features.csv").open() as file:
        for row in csv.DictReader(file):
            numbers = float(row["rows"]), float(row["seconds"]), float(row["error"])
            curves[int(row["features"]), row["method"]].append(numbers)
    sizes = sorted({d for d, _ in curves})
    plt.style.use({"axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplots(
        2, len(sizes), figsize=(2.1 * len(sizes), 5.4), sharey="col", sharex="row", layout="constrained", squeeze=False
    )
    for column, d in enumerate(sizes):
        for name, (colour, line) in STYLES.items():
            points = curves.get((d, name), [])
            for at, panel in enumerate(axes[:, column]):
                panel.loglog([p[at] for p in points], [p[2] for p in points], color=colour, ls=line, marker=".", ms=4)
        axes[0, column].set_title(f"{d:,} features", fontsize="medium")
        axes[0, column].set_xlabel("rows")
        axes[1, column].set_xlabel("seconds")
    for panel in axes[:, 0]:
        panel.set_ylabel("error / root mean square of values")
    lines = [plt.Line2D([], [], color=colour, ls=line) for colour, line in STYLES.values()]
    figure.legend(lines, STYLES, loc="outside lower center", ncols=6, frameon=False, fontsize="small")
    figure.savefig(folder / "many-features.png", dpi=110)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
