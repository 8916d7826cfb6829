"""Figures of a sweep: the error at the end over one or two fields of the grid."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from vrtd.checks import check_choice
from vrtd.errors import InvalidInputError
from vrtd.plots import METRIC_LABELS, draw_curve, draw_map, new_panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from vrtd.sweeps.sweep_result import SweepResult

_MOST_CURVES = 7  # as there are colours
_TOP = 0.97  # where crosses are, as a share of the height
_HIGHEST = 1e4  # end of the vertical axis, as a multiple of the smallest error
_CEILING = 10.0  # of a map, as a multiple of the median error


def draw_sweep(result: SweepResult, ax: Axes | None, metric: str, problem: str | None, x: str | None) -> Axes:
    """Draw curves or a map on the axes, or on new ones."""
    numeric = [name for name, values in result.grid.items() if _is_numeric(values)]
    varying = [name for name in numeric if len(result.grid[name]) > 1]
    if not numeric:
        fields = ", ".join(result.grid)
        raise InvalidInputError(f"A figure needs a field with numbers, but the grid has {fields}.", "Use the table.")
    others = [name for name, values in result.grid.items() if len(values) > 1 and name not in varying]
    if x is None and len(varying) == 2 and not others and (problem is not None or len(result.problems) == 1):
        return _draw_maps(result, ax, metric, problem or result.problems[0], varying[0], varying[1])
    axes = new_panels(1)[0] if ax is None else ax
    name = (varying or numeric)[0] if x is None else check_choice("x", x, numeric)
    problems = result.problems if problem is None else (problem,)
    _draw_curves(result, axes, metric, problems, name)
    return axes


def _is_numeric(values: tuple[Any, ...]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) and value > 0 for value in values)


def _draw_curves(result: SweepResult, axes: Axes, metric: str, problems: tuple[str, ...], x: str) -> None:
    """Draw one curve per problem and combination of the other fields."""
    names = list(result.grid)
    others = [name for name in names if name != x]
    combinations = list(product(*(range(len(result.grid[name])) for name in others)))
    n_curves = len(problems) * len(combinations)
    if n_curves > _MOST_CURVES:
        problem = f"A figure shows at most {_MOST_CURVES} curves, but the sweep has {n_curves}."
        raise InvalidInputError(problem, "Pass problem, or sweep fewer values.")
    values = np.array(result.grid[x])
    order = np.argsort(values)
    size, smallest = values[order], np.inf
    for where, chosen in product(problems, combinations):
        at = tuple(slice(None) if name == x else chosen[others.index(name)] for name in names)
        mean, error, exact, floor, diverged = (
            result.final(column, where, metric)[at][order]
            for column in ("mean", "standard_error", "exact", "floor", "n_diverged")
        )
        varied = [(name, k) for name, k in zip(others, chosen, strict=True) if len(result.grid[name]) > 1]
        words = [f"{_words(name)} {result.grid[name][k]}" for name, k in varied]
        label = ", ".join([*([where] if len(problems) > 1 else []), *words]) or str(result.manifest["algorithm"])
        curve = np.where(diverged > 0, np.nan, mean)
        low, high = curve - 2 * error, curve + 2 * error
        draw_curve(axes, size, curve, low, high, label=label, x_label=_words(x), metric=metric)
        colour = axes.lines[-1].get_color()
        if len(size) == 1:  # a line through one point is invisible
            axes.errorbar(size, curve, [np.minimum(2 * error, 0.9 * curve), 2 * error], fmt="o", color=colour)
        smallest = min(smallest, *curve[curve > 0], *floor[floor > 0], np.inf)
        for reference, style in ((exact, "--"), (floor, ":")):
            known = np.where(np.isfinite(reference), reference, np.nan)
            (line,) = axes.plot(size, known, style, color=colour, linewidth=1.0)
            if len(size) == 1:
                line.set(marker="_", markersize=20.0)
        gone = size[diverged > 0]
        axes.plot(gone, np.full(len(gone), _TOP), "x", color=colour, transform=axes.get_xaxis_transform())
    for style, text, column in (("--", "expected", "exact"), (":", "floor", "floor")):
        if any(np.isfinite(result.final(column, where, metric)).any() for where in problems):
            axes.plot([], [], style, color="grey", linewidth=1.0, label=text)
    if any(result.final("n_diverged", where, metric).any() for where in problems):
        axes.plot([], [], "x", color="grey", linestyle="", label="some runs diverged")
    axes.set_xscale("log")
    if np.isfinite(smallest):
        axes.set_ylim(smallest / 2.0, min(axes.get_ylim()[1], _HIGHEST * smallest))
    axes.set_ylabel(f"{METRIC_LABELS.get(metric, metric)} at the end")
    axes.legend(frameon=False, fontsize="small")


def _draw_maps(result: SweepResult, ax: Axes | None, metric: str, problem: str, x: str, y: str) -> Axes:
    """Draw a map of the errors and, in a new figure, one of the floors below it; return the axes of the errors."""
    names = list(result.grid)
    order_x, order_y = (np.argsort(np.array(result.grid[name])) for name in (x, y))
    xs, ys = np.array(result.grid[x])[order_x], np.array(result.grid[y], float)[order_y]

    def grid_of(column: str) -> Any:
        values = result.final(column, problem, metric)
        single = tuple(slice(None) if name in (x, y) else 0 for name in names)
        square = values[single] if names.index(y) < names.index(x) else values[single].T
        return square[order_y][:, order_x]

    mean, diverged, floor = grid_of("mean"), grid_of("n_diverged"), grid_of("floor")
    mean = np.where(diverged > 0, np.inf, mean)
    finite = mean[np.isfinite(mean)]
    ceiling = _CEILING * float(np.median(finite)) if finite.size else 1.0
    ceiling = min(ceiling, float(finite.max())) if finite.size else ceiling

    def draw(axes: Axes, values: Any, text: str) -> None:
        label = f"{METRIC_LABELS.get(metric, metric)} {text}"
        labels = {"x_label": _words(x), "y_label": _words(y), "colour_label": label}
        draw_map(axes, xs, ys, values, ceiling=ceiling, **labels, regions={})

    has_floor = ax is None and not np.isnan(floor).any()
    axes, *below = new_panels(1 + has_floor) if ax is None else [ax]
    draw(axes, mean, "at the end")
    for each in below:
        draw(each, floor, "in the long run (floor)")
    rows, columns = np.nonzero(diverged > 0)
    if len(rows):
        axes.plot(xs[columns], ys[rows], "x", color="#D55E00", label="some runs diverged")
    best = result.best(metric)[problem].setting
    axes.plot([best[x]], [best[y]], "*", color="white", markeredgecolor="black", markersize=12, label="smallest error")
    axes.legend(frameon=True, fontsize="small", loc="lower right")
    return axes


def _words(field: str) -> str:
    return field.replace("_", " ")
