"""Compare two policies with the log of a third one: their values and their difference.

Run `python examples/two_policies.py [FOLDER]`; it writes two-policies.png, the picture of docs/two-policies.md, and
two-policies.csv into the folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import vrtd
from vrtd.estimator.answers import answer
from vrtd.estimator.comparison import compare_policies
from vrtd.estimator.comparison_figures import comparison_figures
from vrtd.tables import write_csv

CAREFUL = np.array([0, 3, 3, 3, 0, 0, 0, 0, 3, 1, 0, 0, 0, 2, 1, 0])  # an action for each state of the lake
HASTY = np.where(np.arange(16) == 8, 1, CAREFUL)


def main(folder: Path, n_samples: int = 20_000) -> None:
    """Evaluate both policies and draw the comparison."""
    log = vrtd.logs.from_env("FrozenLake-v1", "random", n_samples)
    a, b = (vrtd.Evaluator(discount=0.95, target=policy).fit(log) for policy in (CAREFUL, HASTY))
    comparison = compare_policies(a, b, ("careful", "hasty"), 0.95)
    drawn, tables = comparison_figures(answer(a, "policy_value", 0.95), comparison)

    picture = Figure(figsize=(10.0, 2.9), layout="constrained")
    for axes, figure in zip(picture.subplots(1, 2), drawn, strict=True):
        figure.draw(axes, tables)
    picture.savefig(folder / "two-policies.png", dpi=110)
    both = [tables[figure.table] for figure in drawn]
    write_csv({name: np.concatenate([table[name] for table in both]) for name in both[0]}, folder / "two-policies.csv")
    print(comparison.verdict)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
