"""Drawing of curves with bands and of maps on Matplotlib axes."""

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

#: Colours of Okabe and Ito (2008), which are distinguishable for all common kinds of colour vision.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")

#: Axis labels of the two counts.
AXIS_LABELS = {"n_gradients": "pseudo-gradients", "n_samples": "samples"}
#: Axis labels of the metrics.
METRIC_LABELS = {
    "squared_error": "squared error ‖θ − θ*‖²",  # noqa: RUF001 - plain text is searchable and faster to draw
    "value_error": "value error E(φᵀθ − V)²",  # noqa: RUF001
    "neu": "NEU ‖Aθ + b‖²",
    "mspbe": "MSPBE (Aθ + b)ᵀC⁻¹(Aθ + b)",
}


Grid = Literal["both", "x", "y"]

# A mean above this comes from diverging runs; the curve then leaves the figure.
_OFF_THE_CHART = 1e30


@dataclass(frozen=True)
class Figure:
    """Figure of a report.

    Parameters
    ----------
    name : str
        The name of the figure and of its files.
    caption : str
        The caption, which explains the bands and marks.
    table : str
        The name of the table with the data.
    draw : callable
        A function of the axes and the tables that draws the figure.
    """

    name: str
    caption: str
    table: str
    draw: Callable[[Axes, Tables], None]


def new_panels(n_panels: int) -> list[Axes]:
    """Create a figure with panels below each other.

    The figure is not registered with pyplot, so no window opens and the figure is freed with its last reference.

    Parameters
    ----------
    n_panels : int
        The number of panels.

    Returns
    -------
    list of matplotlib.axes.Axes
        The axes of the panels, from top to bottom.

    Raises
    ------
    MissingExtraError
        If Matplotlib is not installed.

    Examples
    --------
    >>> len(new_panels(2))
    2
    """
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


def label_part(series: str, name: str = "") -> str:
    """Return the label of a line or a band that belongs to a series, and is not in the legend.

    Interactive figures show and hide it with the series.

    Parameters
    ----------
    series : str
        The label of the series.
    name : str, default=""
        What the part shows.

    Returns
    -------
    str
        The label.

    Examples
    --------
    >>> label_part("TD", "exact")
    '_TD|exact'
    """
    return f"_{series}|{name}"


def split_label(label: str) -> tuple[str, str]:
    """Return the series to which a label belongs, empty if it is that of a series, and the name.

    Parameters
    ----------
    label : str
        A label of a line or a band.

    Returns
    -------
    tuple of (str, str)
        The label of the series and the name of the part. The name is empty if Matplotlib made the label.

    Examples
    --------
    >>> split_label("_TD|exact"), split_label("TD"), split_label("_child2")
    (('TD', 'exact'), ('', 'TD'), ('', ''))
    """
    if not label.startswith("_"):
        return "", label
    series, bar, name = label[1:].rpartition("|")
    return (series, name) if bar else ("", "")


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
    """Draw a curve with its band on a logarithmic axis.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
        The axes to draw on.
    x : ndarray of shape (n,)
        The positions on the horizontal axis.
    centre : ndarray of shape (n,)
        The curve.
    low, high : ndarray of shape (n,)
        The ends of the band. The lower end is drawn at no less than a tenth of the curve.
    label : str
        The name of the curve in the legend.
    x_label : str
        The label of the horizontal axis.
    metric : str
        The metric that the curve shows, such as "squared_error", or another label of the vertical axis.

    Examples
    --------
    >>> (axes,) = new_panels(1)
    >>> error = np.array([1.0, 0.1, 0.01])
    >>> x = np.array([0, 100, 200])
    >>> draw_curve(axes, x, error, 0.9 * error, 1.1 * error, label="td", x_label="updates", metric="squared_error")
    >>> axes.get_yscale()
    'log'
    """
    middle, bottom, top = (np.minimum(curve, _OFF_THE_CHART) for curve in (centre, np.maximum(low, centre / 10), high))
    (line,) = axes.plot(x, middle, label=label, linewidth=1.5)
    axes.fill_between(x, bottom, top, color=line.get_color(), alpha=0.2, linewidth=0, label=label_part(label))
    if np.any(centre > 0):
        axes.set_yscale("log")
    seen = centre[np.isfinite(centre)]
    if seen.size and seen.min() < _OFF_THE_CHART / 1e6 and seen.max() > _OFF_THE_CHART:
        axes.set_ylim(top=_OFF_THE_CHART / 1e3)
    finish_axes(axes, x_label, METRIC_LABELS.get(metric, metric))


def finish_axes(
    axes: Axes, x_label: str, y_label: str, *, is_log: bool = False, grid: Grid = "both", legend: float | str = "medium"
) -> None:
    """Label the axes, and add a light grid and a legend.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
        The axes to finish.
    x_label, y_label : str
        The labels of the axes.
    is_log : bool, default=False
        Whether both axes are logarithmic. Otherwise their scales are kept.
    grid : {"both", "x", "y"}, default="both"
        The axes whose ticks have grid lines.
    legend : float or str, default="medium"
        The font size of the legend. No legend is drawn if it is empty.

    Examples
    --------
    >>> (axes,) = new_panels(1)
    >>> finish_axes(axes, "rows", "value", legend="")
    >>> axes.get_xlabel()
    'rows'
    """
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
    """Draw positive values as colours on logarithmic axes, with hatched regions.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
        The axes to draw on.
    x : ndarray of shape (n,)
        The positions on the horizontal axis.
    y : ndarray of shape (m,)
        The positions on the vertical axis.
    values : ndarray of shape (m, n)
        The values. Values that are not finite are shown like the ceiling.
    ceiling : float
        The value above which all values have the same colour.
    x_label, y_label, colour_label : str
        The labels of the axes and of the colour bar.
    regions : mapping of str to ndarray of bool
        The names of at most two regions and the cells (m, n) inside them.

    Returns
    -------
    list of matplotlib.patches.Patch
        One legend entry per region.

    Examples
    --------
    >>> (axes,) = new_panels(1)
    >>> x, y = np.array([0.01, 0.1, 1.0]), np.array([1.0, 10.0])
    >>> labels = {"x_label": "step size", "y_label": "batch size", "colour_label": "error"}
    >>> draw_map(axes, x, y, np.outer(y, x), ceiling=5.0, **labels, regions={})
    []
    """
    from matplotlib.colors import LogNorm
    from matplotlib.patches import Patch

    # The ceiling is 0 if the initial error is 0, and values are 0 without noise, but colours need a positive range.
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
            keys.append(Patch(facecolor="none", edgecolor="none", label=f"{name}: applies nowhere"))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(sides[0], sides[-1])
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    bar = axes.figure.colorbar(mesh, ax=axes, extend="max")
    bar.set_label(colour_label)
    return keys


def _log_edges(centres: NDArray[Any]) -> Floats:
    """Return the edges of cells around centres on a logarithmic axis; the first cell is wide enough to be seen."""
    at = np.log(centres)
    middles = (at[1:] + at[:-1]) / 2.0
    first, last = at[0] - max(middles[0] - at[0], np.log(2.0)), 2.0 * at[-1] - middles[-1]
    edges: Floats = np.exp(np.concatenate([[first], middles, [last]]))
    return edges
