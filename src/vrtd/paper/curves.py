"""Error curves of simulations and their expected values: as rows of a table, and as drawings for all figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vrtd.arrays import Floats
from vrtd.plots import AXIS_LABELS, draw_curve, label_part
from vrtd.result import Result
from vrtd.tables import Table, rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FIRST_SHOWN = 100  # pseudo-gradients or samples


def make_log_grid(end: int) -> NDArray[np.int64]:
    """Return the checkpoints of a curve: 0, and points evenly spaced on a logarithmic axis."""
    return np.unique(np.r_[0, np.geomspace(10, end, 120).astype(np.int64)])


def make_curve_rows(
    labels: dict[str, Any], result: Result, shown: NDArray[np.bool_], expected: Floats | None = None
) -> list[dict[str, Any]]:
    """Make a row per checkpoint shown: mean over runs, standard error and, if known, the expected error."""
    summary = result.summary()
    columns = {
        "n_gradients": result.n_gradients,
        "n_samples": result.n_samples,
        "mean": summary.mean,
        "standard_error": summary.standard_error,
        "n_diverged": summary.n_diverged,
    } | ({} if expected is None else {"exact": expected})
    return [labels | row for row in rows({name: column[shown] for name, column in columns.items()})]


def draw_band(axes: Axes, part: Table, label: str, x: str = "n_gradients", metric: str = "squared_error") -> None:
    """Draw the mean over runs with a band of two standard errors."""
    mean, se = part["mean"], part["standard_error"]
    draw_curve(axes, part[x], mean, mean - 2 * se, mean + 2 * se, label=label, x_label=AXIS_LABELS[x], metric=metric)


def draw_means(axes: Axes, part: Table, label: str, x: str = "n_gradients") -> None:
    """Draw one curve on logarithmic axes: the mean over runs with a band of two standard errors.

    The expected error is black: dashed if it is exact, dotted if it is approximate.
    """
    gone = int(part["n_diverged"][-1])
    label = f"{label}, {gone} runs diverged and left out" if gone else label
    draw_band(axes, part, label, x)
    basis, dashes = ("exact", "--") if part["basis"][0] == "exact" else ("approximation", ":")
    name = label_part(label, basis)
    axes.plot(part[x], part["exact"], color="black", linewidth=0.8, linestyle=dashes, label=name)
    axes.set_xscale("log")
    axes.set_xlim(left=_FIRST_SHOWN)


def draw_marks(axes: Axes, x: ArrayLike, mean: Floats, standard_error: Floats, label: str) -> None:
    """Draw means with intervals of two standard errors."""
    axes.errorbar(x, mean, 2 * standard_error, fmt="o", markersize=3, capsize=2, label=label)


def finish_axes(
    axes: Axes,
    x_label: str,
    y_label: str,
    log: str = "xy",
    small: bool = True,
    n_columns: int = 1,
    place: Literal["best", "upper right", "upper center"] = "best",
    ticks: Sequence[str] | None = None,
) -> None:
    """Label the axes, and the ticks of x if `ticks` names them; set logarithmic scales; add a grid and a legend."""
    if "x" in log:
        axes.set_xscale("log")
    if "y" in log:
        axes.set_yscale("log")
    if ticks is not None:
        axes.set_xticks(np.arange(len(ticks)), ticks)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, fontsize="small" if small else None, ncols=n_columns, loc=place)
