"""Figures: curves with bands, and maps. Draws on the axes it is given and keeps no state of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import Floats
from vrtd.errors import MissingExtraError
from vrtd.tables import Tables

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito (2008): told apart by every common kind of colour vision.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")

AXIS_LABELS = {"n_gradients": "pseudo-gradients", "n_samples": "samples"}
METRIC_LABELS = {
    "squared_error": "squared error ‖θ − θ*‖²",  # noqa: RUF001 - as text: found in a figure, and faster to draw
    "value_error": "value error E(φᵀθ − V)²",  # noqa: RUF001
    "neu": "NEU ‖Aθ + b‖²",
    "mspbe": "MSPBE (Aθ + b)ᵀC⁻¹(Aθ + b)",
}


Grid = Literal["both", "x", "y"]

# A mean beyond this is of runs on their way to overflow: the curve leaves the figure.
_OFF_THE_CHART = 1e30


@dataclass(frozen=True)
class Figure:
    """One panel of a page: `draw` shows the data in `table`."""

    name: str
    caption: str  # what is shown, and what the bands and marks are
    table: str
    draw: Callable[[Axes, Tables], None]


def new_panels(n_panels: int) -> list[Axes]:
    """Axes below each other on a figure of their own, outside pyplot, so that nothing piles up and no window opens."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure as Drawing
    except ImportError:
        raise MissingExtraError("matplotlib", "plot") from None
    figure = Drawing(figsize=(6.4, 1.0 + 3.0 * n_panels), layout="constrained")
    FigureCanvasAgg(figure)
    panels: list[Axes] = figure.subplots(n_panels, squeeze=False).ravel().tolist()
    for axes in panels:
        axes.set_prop_cycle(color=list(PALETTE))
    return panels


def draw_curve(
    axes: Axes,
    x: NDArray[Any],
    centre: Floats,
    low: Floats,
    high: Floats,
    *,
    label: str,
    x_label: str,
    metric: str,
) -> None:
    """A curve with its band on a logarithmic axis of errors; a band that reaches below a tenth of them ends there."""
    middle, bottom, top = (np.minimum(curve, _OFF_THE_CHART) for curve in (centre, np.maximum(low, centre / 10), high))
    (line,) = axes.plot(x, middle, label=label, linewidth=1.5)
    axes.fill_between(x, bottom, top, color=line.get_color(), alpha=0.2, linewidth=0)
    if np.any(centre > 0):
        axes.set_yscale("log")
    seen = centre[np.isfinite(centre)]
    if seen.size and seen.min() < _OFF_THE_CHART / 1e6 and seen.max() > _OFF_THE_CHART:
        axes.set_ylim(top=_OFF_THE_CHART / 1e3)
    finish_axes(axes, x_label, METRIC_LABELS.get(metric, metric))


def finish_axes(
    axes: Axes, x_label: str, y_label: str, *, is_log: bool = False, grid: Grid = "both", legend: float | str = "medium"
) -> None:
    """Name the axes, and add a pale grid and a legend in this size without a frame, or none for ""."""
    if is_log:
        axes.set_xscale("log")
        axes.set_yscale("log")
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.grid(axis=grid, alpha=0.25)
    if legend:
        axes.legend(frameon=False, fontsize=legend)


def draw_map(
    axes: Axes,
    x: NDArray[Any],
    y: Floats,
    values: Floats,
    *,
    ceiling: float,
    x_label: str,
    y_label: str,
    colour_label: str,
    regions: Mapping[str, NDArray[np.bool_]],
) -> list[Any]:
    """Positive values (y, x) as colours, all on logarithmic scales, with hatched regions; what exceeds the ceiling has
    one colour. Returns the legend's keys of the regions."""
    from matplotlib.colors import LogNorm
    from matplotlib.patches import Patch

    # A start without error has no ceiling, a method without noise no floor: colours need a range all the same.
    seen = values[np.isfinite(values) & (values > 0.0)]
    top = ceiling if ceiling > 0.0 else min(seen.max(), 1e6 * seen.min()) if seen.size else 1.0
    shown = np.clip(np.where(np.isfinite(values), values, top), 1e-12 * top, top)
    norm = LogNorm(min(float(shown.min()), 0.5 * top), top)
    sides = _log_edges(x)
    mesh = axes.pcolormesh(sides, _log_edges(y), shown, norm=norm, cmap="viridis_r", rasterized=True)
    keys: list[Any] = []
    for (name, region), hatch in zip(regions.items(), ("//", "\\\\"), strict=False):
        if region.any():
            inside = axes.contourf(x, y, region.astype(float), levels=[0.5, 1.5], colors="none", hatches=[hatch])
            inside.set(edgecolor=(1.0, 1.0, 1.0, 0.45), linewidth=0.0)
            axes.contour(x, y, region.astype(float), levels=[0.5], colors="white", linewidths=0.8)
            keys.append(Patch(facecolor="none", edgecolor="white", hatch=2 * hatch, label=f"{name}: applies"))
        else:
            keys.append(Patch(facecolor="none", edgecolor="none", label=f"{name}: nowhere here"))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(sides[0], sides[-1])
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    bar = axes.figure.colorbar(mesh, ax=axes, extend="max")
    bar.set_label(colour_label)
    return keys


def _log_edges(centres: NDArray[Any]) -> Floats:
    """The sides of cells about these centres on a logarithmic axis; the first is wide enough to be seen."""
    at = np.log(centres)
    middles = (at[1:] + at[:-1]) / 2.0
    first, last = at[0] - max(middles[0] - at[0], np.log(2.0)), 2.0 * at[-1] - middles[-1]
    edges: Floats = np.exp(np.concatenate([[first], middles, [last]]))
    return edges
