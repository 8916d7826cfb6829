"""The figures of an evaluation: values with their intervals, convergence, what limits it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vrtd.estimator.diagnostics import Diagnostics
from vrtd.estimator.state_values import StateValues
from vrtd.plots import METRIC_LABELS, PALETTE, Figure, finish_axes
from vrtd.report.numbers import number
from vrtd.tables import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Names that any evaluation may give to its figures.
FIGURES = ("values", "half-widths", "intervals", "convergence", "errors")

_BLUE, _VERMILION, _INK = PALETTE[0], PALETTE[1], PALETTE[6]
_MOST_WHISKERS, _MOST_RANKS, _MOST_CELLS, _MOST_MARKS = 128, 40, 144, 20
_ROUNDING = 1e-9  # of the largest error: less is none
# On colours that are the same in light and dark; the theme of a figure knows neither.
_BRIGHT, _DARK = "#fefefe", "#010101"

Draw = Callable[["Axes", Table], None]


def figures_of(
    valued: StateValues,
    diagnostics: Diagnostics,
    level: float,
    visited: NDArray[Any] | None,
    shape: tuple[int, int] | None,
) -> tuple[list[Figure], dict[str, Table]]:
    """The figures that there is something to show on, and the tables behind them."""
    made = [
        *_value_figures(valued, f"{level:.6g}", visited, shape),
        _interval_figure(valued, f"{level:.6g}"),
        _convergence_figure(diagnostics),
        _error_figure(diagnostics),
    ]
    there = [each for each in made if each is not None]
    return [figure for figure, _ in there], {figure.table: table for figure, table in there}


# Values


def _value_figures(
    valued: StateValues, level: str, visited: NDArray[Any] | None, shape: tuple[int, int] | None
) -> list[tuple[Figure, Table]]:
    table = valued.table
    has_intervals = not np.isnan(valued.half_width).any()
    intervals = f", with their {level} intervals" if has_intervals else ""
    if valued.kind == "map":
        dots = "Dots: where the log has been."
        known = table | {"value": np.where(_is_known(valued.half_width), table["value"], np.nan)}
        halves = {name: table[name] for name in valued.names} | {"half_width": valued.half_width}
        sure = f"How sure they are: half the width of each {level} interval. {dots}"
        shown = [_figure("values", f"The values over the observed range. {dots}", known, partial(_draw_map, visited))]
        return [*shown, _figure("half-widths", sure, halves, partial(_draw_map, visited))] if has_intervals else shown
    if valued.kind == "curve":
        caption = f"The values over the observed range{intervals}. Ticks: where the log has been."
        return [_figure("values", caption, table, partial(_draw_curve, visited))]
    if valued.kind == "table" and shape is not None:
        half = f", and half the width of its {level} interval" if has_intervals else ""
        caption = f"The value of each state{half}. A dash: it is not known."
        return [_figure("values", caption, table, partial(_draw_board, shape))]
    if valued.kind == "table":
        caption = f"The values of states{intervals}; states that the rows say nothing of are left out."
        return [_figure("values", caption, table, _draw_whiskers)]
    return []


def _is_known(half_width: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether the rows say something of a state: its interval is not infinite. It is nan where none is known for the
    algorithm."""
    return ~np.isinf(half_width)


def _draw_map(visited: NDArray[Any] | None, axes: Axes, table: Table) -> None:
    x_name, y_name, column = list(table)[:3]
    x, y = np.unique(table[x_name]), np.unique(table[y_name])
    cells = np.where(np.isfinite(table[column]), table[column], np.nan).reshape(len(x), len(y))
    extent, colours = (*_edges(x), *_edges(y)), "viridis" if column == "value" else "cividis"
    image = axes.imshow(cells.T, origin="lower", extent=extent, aspect="auto", interpolation="none", cmap=colours)
    if visited is not None:
        axes.plot(*visited.T, ".", color=_BRIGHT, markersize=2.8, alpha=0.6, markeredgewidth=0)
    axes.set_xlim(extent[:2])
    axes.set_ylim(extent[2:])
    axes.set_xlabel(_words(x_name))
    axes.set_ylabel(_words(y_name))
    _draw_bar(axes, image, column.replace("_", "-"))


def _words(name: str) -> str:
    return name.replace("_", " ")


def _draw_bar(axes: Axes, image: Any, label: str) -> None:
    solids = axes.figure.colorbar(image, ax=axes, label=label).solids
    if solids is not None:
        solids.set_rasterized(True)  # one picture in place of hundreds of bars with gaps


def _edges(centres: NDArray[Any]) -> tuple[float, float]:
    """Where the first and the last cell about these centres end."""
    half = float(centres[1] - centres[0]) / 2.0 if len(centres) > 1 else 0.5
    return float(centres[0]) - half, float(centres[-1]) + half


def _draw_curve(visited: NDArray[Any] | None, axes: Axes, table: Table) -> None:
    name = next(iter(table))
    x, value, low, high = (table[column].astype(np.float64) for column in (name, "value", "low", "high"))
    known = np.isfinite(high - low)
    axes.plot(x, np.where(_is_known(high - low), value, np.nan), color=_BLUE, linewidth=1.6, label="value")
    if known.any():
        axes.fill_between(x, low, high, where=known.tolist(), color=_BLUE, alpha=0.22, linewidth=0, label="interval")
    if visited is not None:
        axes.plot(
            visited[:, 0], np.full(len(visited), 0.015), "|", color=_INK, markersize=5, markeredgewidth=0.6, alpha=0.5,
            transform=axes.get_xaxis_transform(), label="visited",
        )  # fmt: skip
    finish_axes(axes, _words(name), "value")


def _draw_board(shape: tuple[int, int], axes: Axes, table: Table) -> None:
    half = (table["high"] - table["low"]) / 2.0
    known = _is_known(half)
    cells = np.where(known, table["value"], np.nan).reshape(shape)
    is_wide = shape[1] > 2 * shape[0]  # square cells would be too small for their text
    image = axes.imshow(cells, interpolation="none", cmap="viridis", aspect="auto" if is_wide else "equal")
    if cells.size <= _MOST_CELLS:
        size = min(9.0, 80.0 / shape[1])
        middle = (np.nanmin(cells) + np.nanmax(cells)) / 2.0 if known.any() else 0.0
        for s in range(cells.size):
            row, column = divmod(s, shape[1])
            text = number(table["value"][s], 3) if known[s] else "–"  # noqa: RUF001
            text += f"\n± {number(half[s], 2)}" if np.isfinite(half[s]) else ""
            colour = _INK if not known[s] else _DARK if table["value"][s] > middle else _BRIGHT
            axes.text(column, row, text, ha="center", va="center", fontsize=size, color=colour)
    axes.set_xticks([])
    axes.set_yticks([])
    _draw_bar(axes, image, "value")


# Intervals


def _interval_figure(valued: StateValues, level: str) -> tuple[Figure, Table] | None:
    """Show the intervals of states, ordered by value, as many as the figure can tell apart."""
    table, known = valued.table, np.flatnonzero(np.isfinite(valued.half_width))
    if not known.size:
        return None
    order = known[np.argsort(table["value"][known], kind="stable")]
    order = order[np.unique(np.linspace(0, len(order) - 1, min(_MOST_RANKS, len(order))).round().astype(int))]
    shown = {"rank": np.arange(1, len(order) + 1)} | {name: column[order] for name, column in table.items()}
    share = "all" if len(order) == len(table["value"]) else f"{len(order)} of {len(table['value']):,}"
    caption = f"States from the least value to the largest ({share}), with their {level} intervals."
    return _figure("intervals", caption, shown, _draw_ranks)


def _draw_ranks(axes: Axes, table: Table) -> None:
    _draw_whiskers(axes, table)
    axes.set_xlabel("states, sorted by value")
    axes.set_xticks([])


def _draw_whiskers(axes: Axes, table: Table) -> None:
    """Draw values with their intervals over the first column."""
    name = next(iter(table))
    half = (table["high"] - table["low"]) / 2.0
    known = _is_known(half)
    x, value, half = table[name][known], table["value"][known], half[known]
    if len(x) <= _MOST_WHISKERS:
        size = 4.5 if len(x) <= _MOST_RANKS else 3.0
        axes.errorbar(x, value, half, fmt="o", color=_BLUE, markersize=size, elinewidth=1.2, capsize=size / 2.0)
    else:
        axes.plot(x, value, ".", color=_BLUE, markersize=2.5)
        axes.fill_between(x, value - half, value + half, color=_BLUE, alpha=0.22, linewidth=0, step="mid")
    finish_axes(axes, _words(name), "value", grid="y", legend="")


# The run


def _convergence_figure(diagnostics: Diagnostics) -> tuple[Figure, Table] | None:
    curve = diagnostics.curve
    if curve is None or len(curve.n_rows) < 2 or not (curve.neu > 0.0).any():
        return None
    table = {"n_rows": curve.n_rows, "neu": curve.neu, "floor": np.full(len(curve.neu), curve.neu_floor)}
    caption = "How far the parameters are from where the mean update is zero, on the pilot rows."
    if curve.neu_floor > 0.0:
        caption += " Below the floor those rows cannot tell the parameters from the right ones."
    return _figure("convergence", caption, table, _draw_convergence)


def _draw_convergence(axes: Axes, table: Table) -> None:
    n_rows, neu, floor = table["n_rows"], table["neu"], float(table["floor"][0])
    marks = "o-" if len(n_rows) <= _MOST_MARKS else "-"
    axes.plot(n_rows, np.where(neu > 0.0, neu, np.nan), marks, color=_BLUE, linewidth=1.6, markersize=4, label="NEU")
    if floor > 0.0:
        axes.axhline(floor, color=_INK, linestyle="--", linewidth=1.0, label="its floor")
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.locator_params(axis="x", nbins=5)
    finish_axes(axes, "rows", METRIC_LABELS["neu"])


def _error_figure(diagnostics: Diagnostics) -> tuple[Figure, Table] | None:
    if not diagnostics.errors:
        return None
    table = {"part": np.array(list(diagnostics.errors)), "error": np.array(list(diagnostics.errors.values()))}
    caption = (
        "What the error consists of, root mean squares in units of value. Transient: what is left of the start. "
        "Bias: of the step size. Variance: noise beyond what the rows make unavoidable. Budget: noise that they do. "
        "Features: what they cannot represent."
    )
    return _figure("errors", caption, table, partial(_draw_errors, diagnostics.limit))


def _draw_errors(limit: str | None, axes: Axes, table: Table) -> None:
    parts, errors = table["part"], table["error"]
    shown = np.where(np.isfinite(errors), errors, 0.0)
    colours = [_VERMILION if part == limit else _BLUE for part in parts]
    axes.barh(np.arange(len(parts)), shown, color=colours, height=0.62)
    most = float(shown.max()) or 1.0
    for at, error in enumerate(errors.tolist()):
        text = number(0.0 if abs(error) < _ROUNDING * most else error, 2)
        axes.annotate(text, (shown[at], at), xytext=(5, 0), textcoords="offset points", va="center")
    axes.set_yticks(
        np.arange(len(parts)), [f"{part} (the limit)" if part == limit else part for part in parts.tolist()]
    )
    axes.invert_yaxis()
    axes.set_xlim(0.0, 1.22 * most)
    axes.spines[["top", "right"]].set_visible(False)
    finish_axes(axes, "error, in units of value", "", grid="x", legend="")
    axes.set_axisbelow(True)


def _figure(name: str, caption: str, table: Table, draw: Draw) -> tuple[Figure, Table]:
    return Figure(name, caption, name, lambda axes, tables: draw(axes, tables[name])), table
