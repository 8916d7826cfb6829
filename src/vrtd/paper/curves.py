"""Error curves of simulations beside the expected ones: as rows of a table, and drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vrtd.plots import AXIS_LABELS, draw_curve
from vrtd.result import Result
from vrtd.tables import Table, rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FIRST_SHOWN = 100  # pseudo-gradients or samples


def log_grid(end: int) -> NDArray[np.int64]:
    """Where a curve is looked at: at 0, and evenly on a logarithmic axis."""
    return np.unique(np.r_[0, np.geomspace(10, end, 120).astype(np.int64)])


def curve_rows(
    labels: dict[str, Any], result: Result, shown: NDArray[np.bool_], expected: NDArray[np.float64] | None = None
) -> list[dict[str, Any]]:
    """A row for each checkpoint that is shown: mean over runs, standard error and, if known, the expected error."""
    summary = result.summary()
    columns = {
        "n_gradients": result.n_gradients,
        "n_samples": result.n_samples,
        "mean": summary.mean,
        "standard_error": summary.standard_error,
        "n_diverged": summary.n_diverged,
    } | ({} if expected is None else {"exact": expected})
    return [labels | row for row in rows({name: column[shown] for name, column in columns.items()})]


def draw_means(axes: Axes, part: Table, label: str, x: str = "n_gradients") -> None:
    """One curve on logarithmic axes: the mean with a band of two standard errors; the expected error in black, dashed
    where it is exact, dotted where it is approximate."""
    mean, se = part["mean"], part["standard_error"]
    gone = int(part["n_diverged"][-1])
    draw_curve(
        axes, part[x], mean, mean - 2 * se, mean + 2 * se, x_label=AXIS_LABELS[x], metric="squared_error",
        label=f"{label}, {gone} runs diverged and left out" if gone else label,
    )  # fmt: skip
    dashes = "--" if part["basis"][0] == "exact" else ":"
    axes.plot(part[x], part["exact"], color="black", linewidth=0.8, linestyle=dashes)
    axes.set_xscale("log")
    axes.set_xlim(left=_FIRST_SHOWN)
