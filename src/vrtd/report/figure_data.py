"""The data of drawn figures, read from their axes, for the script that makes figures interactive.

A view is what one pair of axes shows, as plain values: axes with limits, series of points with intervals, and so on.
Whatever a function draws with Matplotlib is described here once, so that no figure needs a second description.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vrtd.plots import split_label
from vrtd.report.colours import as_css

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.lines import Line2D

View = dict[str, Any]  # plain values and arrays

_DIGITS = 7  # of a number on a page; readers see four of them
_DASHES = {"--": "6 4", ":": "1.5 3", "-.": "7 3 1.5 3"}
_POINTS = ("x", "y", "low", "high")
_N_COLOURS = 17  # of a colour map, between which the script interpolates


def read_axes(axes: Axes) -> View:
    """Return what the axes show.

    Series have a `name`. Those that belong to another series, and appear and disappear with it, have the name of that
    series in `of`; see `vrtd.plots.label_part`.
    """
    from matplotlib.container import BarContainer, ErrorbarContainer

    bands = _read_bands(axes)
    intervals = [each for each in axes.containers if isinstance(each, ErrorbarContainer)]
    caps = {id(line) for each in intervals for line in each[1]}
    by_line = {id(each[0]): each for each in intervals}
    series, lines = [], []
    for line in axes.lines:
        across = line.get_transform().contains_branch_seperately(axes.transData)
        if across == (True, True) and id(line) not in caps:
            one = _read_line(line, bands)
            series.append(one | _read_interval(by_line[id(line)]) if id(line) in by_line else one)
        elif across != (True, True):  # a line across the axes, at one number
            axis = "x" if across[0] else "y"
            at = float(np.asarray(line.get_xdata() if across[0] else line.get_ydata(), float)[0])
            lines.append({"axis": axis, "at": at, **_describe(line)})
    bars = [
        {"at": bar.get_y() + bar.get_height() / 2, "size": bar.get_height(), "value": bar.get_width(),
         "colour": _colour(bar.get_facecolor())}
        for container in axes.containers if isinstance(container, BarContainer) for bar in container
    ]  # fmt: skip
    view = {
        "x": _read_axis(axes.xaxis),
        "y": _read_axis(axes.yaxis),
        "series": series,
        "lines": lines,
        "bars": bars,
        "gaps": _read_gaps(axes),
        "map": _read_map(axes),
        "texts": [_read_text(text) for text in axes.texts if text.get_text()],
    }
    return {key: value for key, value in view.items() if value}


def pack(views: Mapping[Any, View], choices: Sequence[str] = (), shown: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the views of a figure as plain JSON, in which equal arrays and equal styles are stored once.

    Parameters
    ----------
    views : mapping of tuple of str to dict
        The views, by the options that the reader chooses, which are empty for a single view.
    choices : sequence of str, default=()
        What each option of the keys is a choice of.
    shown : sequence of str, optional
        Names of the series that are visible at first. By default all are.

    Returns
    -------
    dict
        The figure; arrays are replaced by their places in the list ``arrays``, and names and styles of series by
        their places in the list ``styles``.
    """
    arrays: dict[str, tuple[int, Any]] = {}
    styles: dict[str, tuple[int, Any]] = {}

    def replace(part: Any) -> Any:
        if isinstance(part, np.ndarray):
            return _place(arrays, as_plain(part))
        if isinstance(part, Mapping):
            return {key: replace(value) for key, value in part.items()}
        if isinstance(part, list | tuple):
            return [replace(each) for each in part]
        return as_plain([part])[0] if isinstance(part, float) else part

    packed = [{"options": list(key), **replace(view)} for key, view in views.items()]
    for view in packed:
        for series in view.get("series", ()):
            style = {key: series.pop(key) for key in [*series] if key not in _POINTS}
            series["style"] = _place(styles, style)
    figure: dict[str, Any] = {"views": packed, "arrays": _values(arrays), "styles": _values(styles)}
    if choices:
        figure["choices"] = list(choices)
    if shown is not None:
        figure["shown"] = list(shown)
    return figure


def _place(kept: dict[str, tuple[int, Any]], value: Any) -> int:
    """Return the place of a value among those that are kept; a new one comes last."""
    return kept.setdefault(str(value), (len(kept), value))[0]


def _values(kept: Mapping[str, tuple[int, Any]]) -> list[Any]:
    return [value for _, value in kept.values()]


def as_plain(values: Iterable[Any]) -> list[Any]:
    """Return numbers with the digits that a page needs, text as it is, and None for what is not finite.

    >>> as_plain([1.0, 0.123456789, float("nan"), "a"])
    [1, 0.1234568, None, 'a']
    """
    plain = values.tolist() if isinstance(values, np.ndarray) else values
    return [_shorten(value) if isinstance(value, int | float) else value for value in plain]


def _shorten(value: float) -> float | None:
    if not math.isfinite(value):
        return None
    near = float(f"{value:.{_DIGITS}g}")
    return int(near) if near == int(near) and abs(near) < 1e15 else near


def _read_axis(axis: Axis) -> dict[str, Any]:
    from matplotlib.category import StrCategoryFormatter
    from matplotlib.ticker import FixedLocator, FuncFormatter

    low, high = axis.get_view_interval()
    found = {"label": _plain(axis.get_label_text()), "log": axis.get_scale() == "log", "limits": [low, high]}
    locator, formatter = axis.get_major_locator(), axis.get_major_formatter()
    places = np.asarray(locator() if isinstance(locator, FixedLocator) else axis.get_majorticklocs()).tolist()
    has_names = isinstance(locator, FixedLocator) and isinstance(formatter, FuncFormatter)  # as `set_ticks` makes them
    if has_names or isinstance(formatter, StrCategoryFormatter):
        found["ticks"] = list(zip(as_plain(places), map(_plain, formatter.format_ticks(places)), strict=True))
    elif not places:
        found["ticks"] = []
    return found


def _describe(line: Line2D) -> dict[str, Any]:
    """Return the name and the style of a line."""
    of, name = split_label(str(line.get_label()))
    style, marker = line.get_linestyle(), str(line.get_marker())
    found: dict[str, Any] = {"name": _plain(name), "of": _plain(of), "colour": _colour(line.get_color())}
    found |= {"dash": _DASHES[style]} if style in _DASHES else {}
    found |= {"width": float(line.get_linewidth())} if style not in ("None", "") else {}
    if marker not in ("None", ""):
        found |= {"marker": marker, "size": float(line.get_markersize())}
        found |= {"hollow": True} if line.get_fillstyle() == "none" else {}
    found |= {"alpha": line.get_alpha()} if line.get_alpha() is not None else {}
    return {key: value for key, value in found.items() if value != ""}


def _read_line(line: Line2D, bands: Mapping[str, dict[float, tuple[float, float]]]) -> dict[str, Any]:
    x, y = (np.asarray(numbers, np.float64) for numbers in (line.get_xdata(orig=False), line.get_ydata(orig=False)))
    found = _describe(line) | {"x": x, "y": y}
    ends = bands.get(str(line.get_label()))
    if ends is not None:
        low, high = np.array([ends.get(place, (np.nan, np.nan)) for place in x.tolist()]).T
        found |= {"low": low, "high": high}
    return found


def _read_interval(container: Any) -> dict[str, Any]:
    """Return the ends of the intervals of points, along the axis on which they lie."""
    of, name = split_label(str(container.get_label()))
    found: dict[str, Any] = {"of": _plain(of)} if of else {"name": _plain(name)}
    for which, bars in zip(("x",) * container.has_xerr + ("y",) * container.has_yerr, container[2], strict=True):
        axis, unknown = 0 if which == "x" else 1, [np.nan, np.nan]  # Matplotlib leaves out ends that are not finite
        parts = [np.asarray(part) for part in bars.get_segments()]
        ends = np.array([part[:, axis] if len(part) == 2 else unknown for part in parts]).reshape(-1, 2)
        found |= {"low": ends[:, 0], "high": ends[:, 1], "bars": which}
    return found


def _read_bands(axes: Axes) -> dict[str, dict[float, tuple[float, float]]]:
    """Return the ends of each band over each place, by the name of its series."""
    bands: dict[str, dict[float, tuple[float, float]]] = {}
    for area in axes.collections:
        of, _ = split_label(str(area.get_label()))
        if of:
            ends = bands.setdefault(of, {})
            for x, y in np.concatenate([path.vertices for path in area.get_paths()] or [np.empty((0, 2))]).tolist():
                low, high = ends.get(x, (y, y))
                ends[x] = min(low, y), max(high, y)
    return bands


def _read_gaps(axes: Axes) -> list[list[float]]:
    """Return the hatched ranges of the horizontal axis."""
    areas = [path for area in axes.collections if area.get_hatch() for path in area.get_paths()]
    return [[float(area.get_extents().x0), float(area.get_extents().x1)] for area in areas]


def _read_map(axes: Axes) -> dict[str, Any]:
    from matplotlib.colors import to_hex

    if not axes.images:
        return {}
    (image,) = axes.images
    values = np.ma.filled(np.ma.asarray(image.get_array(), np.float64), np.nan)
    left, right, bottom, top = image.get_extent()
    ends = (bottom, top) if image.origin == "lower" else (top, bottom)
    colours = [to_hex(colour) for colour in image.get_cmap()(np.linspace(0.0, 1.0, _N_COLOURS))]
    low, high = image.get_clim()
    label = image.colorbar.ax.get_ylabel() if image.colorbar is not None else ""
    return {
        "x": [float(left), float(right)], "y": [float(end) for end in ends], "shape": list(values.shape),
        "values": values.ravel(), "colours": colours, "range": [low, high], "label": label,
        "equal": axes.get_aspect() == 1.0,
    }  # fmt: skip


def _read_text(text: Any) -> dict[str, Any]:
    """Return a text and its place: in data, with an offset in points."""
    x, y = getattr(text, "xy", text.get_position())
    dx, dy = text.get_position() if hasattr(text, "xy") else (0.0, 0.0)
    by_share = getattr(text, "xycoords", "data") != "data"
    return {
        "x": float(x), "y": float(y), "dx": float(dx), "dy": float(dy), "text": _plain(text.get_text()),
        "size": float(text.get_fontsize()), "colour": _colour(text.get_color()), "middle": text.get_ha() == "center",
        "align": text.get_va(), "share": by_share,
    }  # fmt: skip


def _colour(colour: Any) -> str:
    from matplotlib.colors import to_hex

    return as_css(to_hex(colour))


def _plain(text: str) -> str:
    return text.replace(r"\$", "$")
