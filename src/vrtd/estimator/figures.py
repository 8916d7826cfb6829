"""Figures of an evaluation: values with their intervals, convergence and the parts of the error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vrtd.estimator.diagnostics import Diagnostics
from vrtd.estimator.effects import MOST_EFFECTS, Effect
from vrtd.estimator.state_values import CELLS, Board, StateValues, known_states
from vrtd.plots import METRIC_LABELS, PALETTE, Figure, finish_axes, label_part
from vrtd.report.numbers import number, percent
from vrtd.tables import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

_EFFECTS = tuple(f"effect-{i + 1}" for i in range(MOST_EFFECTS))
#: Names of all figures that an evaluation may have.
FIGURES = ("values", "half-widths", *_EFFECTS, "intervals", "convergence", "errors")

_BLUE, _VERMILION, _INK = PALETTE[0], PALETTE[1], PALETTE[6]
_GRID = "#b0b0b0"  # for grids, and for hatched regions without rows
_MOST_WHISKERS, _MOST_RANKS, _MOST_CELLS, _MOST_MARKS, _MOST_TICKS, _MOST_LETTERS = 128, 40, 144, 20, 12, 16
_MOST_LINES = 3  # a number with at most this many different values gives lines instead of an axis of a map
_ROUNDING = 1e-9  # errors below this share of the largest one are shown as 0
# Text colours on a colour map, which is the same in the light and the dark theme.
_BRIGHT, _DARK = "#fefefe", "#010101"

Draw = Callable[["Axes", Table], None]


def figures_of(
    valued: StateValues, effects: Sequence[Effect], diagnostics: Diagnostics, level: float, board: Board | None
) -> tuple[list[Figure], dict[str, Table]]:
    """Return the figures that have something to show, and their tables."""
    candidates = [
        *_value_figures(valued, percent(level), board),
        *_effect_figures(effects, percent(level)),
        _interval_figure(valued, percent(level)),
        _convergence_figure(diagnostics),
        _error_figure(diagnostics),
    ]
    drawn = [each for each in candidates if each is not None]
    return [figure for figure, _ in drawn], {figure.table: table for figure, table in drawn}


# Values


def _value_figures(valued: StateValues, level: str, board: Board | None) -> list[tuple[Figure, Table]]:
    table, least, names = valued.table, valued.least_rows, valued.names
    has_intervals = not np.isnan(valued.half_width).any()
    intervals = f" with {level} intervals" if has_intervals else ""
    if valued.kind in ("curve", "map"):
        # A number with few different values, preferably the last one, gives one line per value.
        by = next((n for n in names[::-1] if len(names) == 2 and len(np.unique(table[n])) <= _MOST_LINES), None)
        if valued.kind == "curve" or by is not None:
            (x,) = (n for n in names if n != by)
            word = "Left out" if _has_few(np.unique(table[x])) else "Hatched" if by is None else "Hatched or left out"
            caption = f"Values over the observed range{intervals}.{_describe_gaps(valued, word)}"
            return [_figure("values", caption, table, partial(_draw_lines, x, by, least))]
        gaps = _describe_gaps(valued, "Hatched")
        values = _figure("values", f"Values over the observed range.{gaps}", table, partial(_draw_map, least))
        if not has_intervals:
            return [values]
        halves = {n: table[n] for n in names} | {"half_width": valued.half_width, "n_rows": table["n_rows"]}
        caption = f"Half-widths of the {level} intervals over the observed range.{gaps}"
        return [values, _figure("half-widths", caption, halves, partial(_draw_map, least))]
    if valued.kind == "table" and board is not None:
        half = f" with the half-width of its {level} interval" if has_intervals else ""
        cells = "".join(f", {letter} {word}" for letter, word in CELLS.items() if letter in board.letters)
        caption = (
            f"The value of each state{half}. A dash marks an unknown value. Corner: the number of the state{cells}."
        )
        return [_figure("values", caption, table, partial(_draw_board, board, least))]
    if valued.kind == "table":
        caption = f"Values of the states{intervals}. States whose values are unknown are left out."
        return [_figure("values", caption, table, partial(_draw_whiskers, least))]
    return []


def _describe_gaps(valued: StateValues, word: str) -> str:
    """Return why states are missing in a figure; empty if none are."""
    if valued.is_known.all():
        return ""
    least = valued.least_rows
    rows = "no row of the log is" if least <= 1 else f"fewer than {least:,} rows of the log are"
    return f" {word}: {rows} near (within {100 * valued.near:.1f} % of the range), so values would be extrapolated."


def _draw_map(least_rows: int, axes: Axes, table: Table) -> None:
    x_name, y_name, column = list(table)[:3]
    x, y = np.unique(table[x_name]), np.unique(table[y_name])
    is_shown = np.isfinite(table[column]) & (table["n_rows"] >= least_rows)
    if column == "value":
        is_shown &= known_states(table, least_rows)
    cells = np.where(is_shown, table[column], np.nan).reshape(len(x), len(y))
    extent, colours = (*_edges(x), *_edges(y)), "viridis" if column == "value" else "cividis"
    axes.patch.set(hatch="////", edgecolor=_GRID, linewidth=0.0)  # visible where cells are empty
    image = axes.imshow(cells.T, origin="lower", extent=extent, aspect="auto", interpolation="none", cmap=colours)
    axes.set_xlim(extent[:2])
    axes.set_ylim(extent[2:])
    axes.locator_params(axis="x", nbins=6)  # leaves space for long numbers
    _set_ticks(axes.xaxis, x)
    _set_ticks(axes.yaxis, y)
    axes.set_xlabel(_as_text(x_name))
    axes.set_ylabel(_as_text(y_name))
    _draw_bar(axes, image, column.replace("_", "-"))


def _as_text(name: str) -> str:
    """Return a name that Matplotlib does not read as a formula."""
    return name.replace("$", r"\$")


def _set_ticks(axis: Axis, numbers: NDArray[Any]) -> None:
    """Set the ticks of an axis of whole numbers or of names."""
    if numbers.dtype.kind == "U":
        shorter = [name if len(name) <= _MOST_LETTERS else f"{name[:_MOST_LETTERS]}…" for name in numbers.tolist()]
        is_wide = len(shorter) * max(map(len, shorter)) > 3 * _MOST_LETTERS
        turned: dict[str, Any] = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if is_wide else {}
        axis.set_ticks(np.arange(len(shorter)), list(map(_as_text, shorter)), **turned)
    elif _are_whole(numbers):
        if len(numbers) <= _MOST_TICKS:
            axis.set_ticks(numbers.astype(np.float64))
        else:
            axis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg]


def _draw_bar(axes: Axes, image: Any, label: str) -> None:
    solids = axes.figure.colorbar(image, ax=axes, label=label).solids
    if solids is not None:
        solids.set_rasterized(True)  # otherwise hundreds of bars with visible gaps


def _edges(centres: NDArray[Any]) -> tuple[float, float]:
    """Return the outer edges of the first and the last cell around these centres."""
    centres = centres.astype(np.float64)
    half = float(centres[1] - centres[0]) / 2.0 if len(centres) > 1 else 0.5
    return float(centres[0]) - half, float(centres[-1]) + half


def _draw_lines(x_name: str, by: str | None, least_rows: int, axes: Axes, table: Table) -> None:
    """Draw values with their intervals over one column, with one line per value of the column `by`."""
    levels = [None] if by is None else np.unique(table[by]).tolist()
    parts = [table if level is None else _select(table, table[str(by)] == level) for level in levels]
    for i, (part, level, colour) in enumerate(zip(parts, levels, PALETTE, strict=False)):
        label = "value" if level is None else _as_text(f"{by} = {level:g}")
        _draw_line(axes, part, x_name, least_rows, label, colour, (i - (len(parts) - 1) / 2.0) / 8.0)
    is_empty = ~np.logical_or.reduce([known_states(part, least_rows) for part in parts])
    if not _has_few(parts[0][x_name]) and is_empty.any():
        axes.fill_between(
            parts[0][x_name], 0.0, 1.0, where=is_empty.tolist(), transform=axes.get_xaxis_transform(),
            facecolor="none", edgecolor=_GRID, hatch="////", linewidth=0.0, zorder=0,
        )  # fmt: skip
    finish_axes(axes, _as_text(x_name), "value", legend="medium" if by is not None else "")


def _select(table: Table, rows: NDArray[np.bool_]) -> Table:
    return {name: column[rows] for name, column in table.items()}


def _has_few(numbers: NDArray[Any]) -> bool:
    """Return whether these are names, few whole numbers or a single number, so that no curve connects them."""
    return numbers.dtype.kind == "U" or len(numbers) == 1 or (len(numbers) <= _MOST_RANKS and _are_whole(numbers))


def _are_whole(numbers: NDArray[Any]) -> bool:
    return numbers.dtype.kind in "biu" or bool((numbers == np.round(numbers)).all())


def _draw_line(
    axes: Axes, table: Table, name: str, least_rows: int, label: str, colour: str, shift: float = 0.0
) -> None:
    """Draw values with their intervals: as a curve with a band, or as points with bars if `_has_few` holds."""
    is_known, has_few = known_states(table, least_rows), _has_few(table[name])
    is_text = table[name].dtype.kind == "U"
    x = (np.arange(len(table[name])) if is_text else table[name]).astype(np.float64)
    value, half = table["value"], (table["high"] - table["low"]) / 2.0
    if has_few:
        axes.set_xlim(x[0] - 0.5, x[-1] + 0.5)
        x, value, half = (x + shift)[is_known], value[is_known], half[is_known]
        axes.errorbar(x, value, half, fmt="o", color=colour, markersize=4.5, elinewidth=1.2, capsize=2.3, label=label)
    else:
        axes.plot(x, np.where(is_known, value, np.nan), color=colour, linewidth=1.6, label=label)
        is_banded = is_known & np.isfinite(half)
        if is_banded.any():
            low, high = table["low"], table["high"]
            axes.fill_between(
                x, low, high, where=is_banded.tolist(), color=colour, alpha=0.22, linewidth=0, label=label_part(label)
            )
    _set_ticks(axes.xaxis, table[name])


def _draw_board(board: Board, least_rows: int, axes: Axes, table: Table) -> None:
    shape = board.shape
    half = (table["high"] - table["low"]) / 2.0
    known = known_states(table, least_rows)
    cells = np.where(known, table["value"], np.nan).reshape(shape)
    is_wide = shape[1] > 2 * shape[0]  # square cells of a wide board would be too small for text
    image = axes.imshow(cells, interpolation="none", cmap="viridis", aspect="auto" if is_wide else "equal")
    if cells.size <= _MOST_CELLS:
        size = min(9.0, 80.0 / shape[1])
        middle = (np.nanmin(cells) + np.nanmax(cells)) / 2.0 if known.any() else 0.0
        for s in range(cells.size):
            row, column = divmod(s, shape[1])
            text = number(table["value"][s], 3) if known[s] else "–"  # noqa: RUF001
            text += f"\n± {number(half[s], 2)}" if known[s] and np.isfinite(half[s]) else ""
            colour = _INK if not known[s] else _DARK if table["value"][s] > middle else _BRIGHT
            axes.text(column, row, text, ha="center", va="center", fontsize=size, color=colour)
            corner = f"{s} {board.letters[s]}" if board.letters else f"{s}"
            axes.text(column - 0.46, row - 0.46, corner, va="top", fontsize=0.75 * size, color=colour)
    axes.set_xticks([])
    axes.set_yticks([])
    _draw_bar(axes, image, "value")


# Effects


def _effect_figures(effects: Sequence[Effect], level: str) -> list[tuple[Figure, Table]]:
    """Return one figure per variable, all with the same scale, of the mean value over that variable."""
    if not effects:
        return []
    ends = np.concatenate([effect.table[name] for effect in effects for name in ("value", "low", "high")])
    ends = ends[np.isfinite(ends)]
    margin = 0.05 * float(np.ptp(ends)) or 0.5
    limits = float(ends.min()) - margin, float(ends.max()) + margin
    drawn = []
    for figure_name, effect in zip(_EFFECTS, effects, strict=False):
        bands = f" with {level} intervals" if np.isfinite(effect.table["high"]).any() else ""
        caption = (
            f"Mean value by {effect.name}{bands}. Each mean is taken over those of the first "
            f"{effect.table['n_rows'].sum():,} observations that have the same or a similar {effect.name}. Their other "
            "variables vary, too."
        )
        drawn.append(_figure(figure_name, caption, effect.table, partial(_draw_effect, effect.name, limits)))
    return drawn


def _draw_effect(name: str, limits: tuple[float, float], axes: Axes, table: Table) -> None:
    _draw_line(axes, table, name, 0, "value", _BLUE)
    axes.set_ylim(limits)
    finish_axes(axes, _as_text(name), "mean value", legend="")


# Intervals


def _interval_figure(valued: StateValues, level: str) -> tuple[Figure, Table] | None:
    """Return the figure of the intervals of states, sorted by value and thinned out to a readable number."""
    table, known = valued.table, np.flatnonzero(np.isfinite(valued.half_width) & valued.is_known)
    if not known.size:
        return None
    order = known[np.argsort(table["value"][known], kind="stable")]
    order = order[np.unique(np.linspace(0, len(order) - 1, min(_MOST_RANKS, len(order))).round().astype(int))]
    shown = {"rank": np.arange(1, len(order) + 1)} | {name: column[order] for name, column in table.items()}
    share = "all" if len(order) == len(known) else f"{len(order)} of {len(known):,}"
    which = "" if len(known) == len(table["value"]) else " that were visited"
    caption = f"States{which}, sorted by value ({share} shown), with {level} intervals."
    return _figure("intervals", caption, shown, _draw_ranks)


def _draw_ranks(axes: Axes, table: Table) -> None:
    _draw_whiskers(0, axes, table)
    axes.set_xlabel("states, sorted by value")
    axes.set_xticks([])


def _draw_whiskers(least_rows: int, axes: Axes, table: Table) -> None:
    """Draw values with their intervals over the first column."""
    name = next(iter(table))
    known = known_states(table, least_rows)
    x, value, half = table[name][known], table["value"][known], ((table["high"] - table["low"]) / 2.0)[known]
    if len(x) <= _MOST_WHISKERS:
        size = 4.5 if len(x) <= _MOST_RANKS else 3.0
        axes.errorbar(x, value, half, fmt="o", color=_BLUE, markersize=size, elinewidth=1.2, capsize=size / 2.0)
    else:
        axes.plot(x, value, ".", color=_BLUE, markersize=2.5, label="value")
        band = label_part("value")
        axes.fill_between(x, value - half, value + half, color=_BLUE, alpha=0.22, linewidth=0, label=band)
    _set_ticks(axes.xaxis, table[name])
    finish_axes(axes, _as_text(name), "value", grid="y", legend="")


# Convergence and errors


def _convergence_figure(diagnostics: Diagnostics) -> tuple[Figure, Table] | None:
    curve = diagnostics.curve
    if curve is None or len(curve.n_rows) < 2 or not (curve.neu > 0.0).any():
        return None
    table = {"n_rows": curve.n_rows, "neu": curve.neu, "floor": np.full(len(curve.neu), curve.neu_floor)}
    caption = "Squared norm of the expected update (NEU), estimated on the pilot rows. It is 0 at the solution."
    if curve.neu_floor > 0.0:
        caption += " Below the floor, these rows cannot distinguish the parameters from the solution."
    return _figure("convergence", caption, table, _draw_convergence)


def _draw_convergence(axes: Axes, table: Table) -> None:
    n_rows, neu, floor = table["n_rows"], table["neu"], float(table["floor"][0])
    marks = "o-" if len(n_rows) <= _MOST_MARKS else "-"
    axes.plot(n_rows, np.where(neu > 0.0, neu, np.nan), marks, color=_BLUE, linewidth=1.6, markersize=4, label="NEU")
    if floor > 0.0:
        axes.axhline(floor, color=_INK, linestyle="--", linewidth=1.0, label="floor")
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.locator_params(axis="x", nbins=5)
    finish_axes(axes, "rows", METRIC_LABELS["neu"])


def _error_figure(diagnostics: Diagnostics) -> tuple[Figure, Table] | None:
    if not diagnostics.errors:
        return None
    table = {"part": np.array(list(diagnostics.errors)), "error": np.array(list(diagnostics.errors.values()))}
    caption = (
        "Parts of the error (root mean square, in units of value). Transient: what remains of the initial parameters. "
        "Bias: effect of the constant step size. Variance: noise that other settings avoid. Budget: noise that no "
        "method avoids with these rows. Features: what they cannot represent of V."
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
        np.arange(len(parts)), [f"{part} (main source)" if part == limit else part for part in parts.tolist()]
    )
    axes.invert_yaxis()
    axes.set_xlim(0.0, 1.22 * most)
    axes.locator_params(axis="x", nbins=4)  # leaves space for long numbers
    axes.spines[["top", "right"]].set_visible(False)
    finish_axes(axes, "error, in units of value", "", grid="x", legend="")
    axes.set_axisbelow(True)


def _figure(name: str, caption: str, table: Table, draw: Draw) -> tuple[Figure, Table]:
    return Figure(name, caption, name, lambda axes, tables: draw(axes, tables[name])), table
