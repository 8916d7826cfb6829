"""The figures of a comparison: ranks, and for each problem the error against its cost and against the step size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from vrtd.plots import METRIC_LABELS, PALETTE, Figure, finish_axes
from vrtd.tables import Table, Tables, rows, rows_where
from vrtd.tournament.cell import LOST
from vrtd.tournament.problems import AIMS, TournamentProblem

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_AXES = {"n_samples": "samples", "n_gradients": "pseudo-gradients", "seconds": "seconds of one core, for one run"}
_OTHERS = {"color": "#b0b0b0", "linewidth": 0.7}
_MOST_COLOURS = len(PALETTE)
_ALWAYS = ("td", "vrtd")  # always shown in colour


def figures_of(
    tables: Mapping[str, Table], problems: Mapping[str, TournamentProblem]
) -> Iterator[tuple[str, Figure, Tables]]:
    """Yield each figure with the name of its problem, "" for all, and with the tables behind it."""
    for aim in dict.fromkeys(tables["ranks"]["aim"].tolist()):
        caption = (
            f"{AIMS[aim]}: mean rank over the problems (1 is the best), with 95 % intervals. Blue: statistically tied "
            "with the best."
        )
        yield "", Figure(f"ranks-{aim}", caption, "ranks", _draw_ranks), {"ranks": rows_where(tables["ranks"], aim=aim)}
    for problem, about in problems.items():
        for aim in about.aims:
            curves = rows_where(tables["curves"], problem=problem, aim=aim)
            coloured = _coloured(rows_where(tables["ranks"], aim=aim))
            title = f"{about.title}, {AIMS[aim][0].lower()}{AIMS[aim][1:]}"
            for axis, label in _AXES.items():
                if aim != "equation" and axis != "n_samples":
                    continue
                caption = f"{title}: mean error against {label}, with a band of two standard errors. Grey: the others."
                if axis == "n_samples":
                    caption += " Square: on a data set of all samples. Dotted: the smallest error of any parameters."
                name = f"{problem}-{aim}-{axis.removeprefix('n_')}"
                yield problem, Figure(name, caption, "curves", partial(_draw, axis, coloured)), {"curves": curves}
            tuning = rows_where(tables["tuning"], problem=problem, aim=aim, is_shown=True)
            if not tuning["main"].size:  # no algorithm was tuned
                continue
            caption = (
                f"{title}: mean error of the tuning runs against the step size (for least squares: the ridge), with "
                "the other settings as chosen. Ring: the chosen value. Cross: some runs diverged."
            )
            figure = Figure(f"{problem}-{aim}-step-size", caption, "tuning", partial(_draw_sensitivity, coloured))
            yield problem, figure, {"tuning": tuning}
        curves = rows_where(tables["curves"], problem=problem, aim="rows")
        if curves["mean"].size:
            caption = (
                f"{about.title}, the equation of the data set: mean squared projected Bellman error, relative to the "
                "initial error, against pseudo-gradients, with a band of two standard errors."
            )
            names = np.array(list(dict.fromkeys(curves["algorithm"].tolist())))
            draw = partial(_draw, "n_gradients", _coloured({"algorithm": names}))
            yield problem, Figure(f"{problem}-rows-gradients", caption, "curves", draw), {"curves": curves}


def _coloured(ranks: Table) -> dict[str, dict[str, Any]]:
    """Return the line styles, the same in all figures of an aim, of the best few and of `_ALWAYS`."""
    names = ranks["algorithm"].tolist()
    always = [name for name in _ALWAYS if name in names]
    best = [name for name in names if name not in always]
    shown = best[: _MOST_COLOURS - len(always)] + always
    return {
        name: {"color": colour, "linestyle": "--" if i % 2 else "-", "linewidth": 1.5, "label": name}
        for i, (name, colour) in enumerate(zip(shown, PALETTE, strict=False))
    }


def _draw_ranks(axes: Axes, tables: Tables) -> None:
    ranks = rows(tables["ranks"])
    for i, each in enumerate(ranks):
        colour = PALETTE[0] if each["is_best"] else PALETTE[6]
        axes.plot([each["low"], each["high"]], [i, i], color=colour, linewidth=1.5)
        axes.plot(each["mean_rank"], i, marker="o", markersize=5, color=colour)
    axes.set_yticks(range(len(ranks)), [each["algorithm"] for each in ranks], fontsize=8)
    axes.set_ylim(len(ranks) - 0.5, -0.5)
    finish_axes(axes, "mean rank", "", grid="x", legend="")


def _draw(axis: str, coloured: Mapping[str, Mapping[str, Any]], axes: Axes, tables: Tables) -> None:
    curves = tables["curves"]
    limit = LOST * curves["initial_error"][0]
    for name in sorted(dict.fromkeys(curves["algorithm"]), key=lambda name: name in coloured):  # coloured curves on top
        part = rows_where(curves, algorithm=name)
        x, mean, se = part[axis], part["mean"], part["standard_error"]
        keep = x > 0
        style = coloured.get(name, _OTHERS)
        if axis == "n_samples" and np.all(x == x[0]):  # an algorithm on a data set
            axes.plot(x[-1:], mean[-1:], marker="s", markersize=4, **style)
            continue
        axes.plot(x[keep], mean[keep], **style)
        if name in coloured:
            low, high = np.maximum(mean - 2 * se, mean / 10), mean + 2 * se
            axes.fill_between(x[keep], low[keep], high[keep], color=style["color"], alpha=0.2, linewidth=0)
        if mean[-1] >= limit:
            axes.plot(x[-1:], mean[-1:], marker="x", markersize=6, color=style["color"])
    least = curves["least_error"][0]
    if least > 1e-9 * curves["initial_error"][0]:
        axes.axhline(least, color=PALETTE[6], linestyle=":", linewidth=1.0)
    metric = curves["metric"][0]
    finish_axes(axes, _AXES[axis], METRIC_LABELS.get(metric, metric), is_log=True, legend=8)


def _draw_sensitivity(coloured: Mapping[str, Mapping[str, Any]], axes: Axes, tables: Tables) -> None:
    tuning = tables["tuning"]
    for name in sorted(dict.fromkeys(tuning["algorithm"]), key=lambda name: name in coloured):
        part = rows_where(tuning, algorithm=name)
        order = np.argsort(part["main"])
        x, error, chosen, diverged = (part[column][order] for column in ("main", "error", "is_chosen", "n_diverged"))
        style = coloured.get(name, _OTHERS)
        axes.plot(x, error, marker=".", markersize=4, **style)
        axes.plot(x[diverged > 0], error[diverged > 0], marker="x", linestyle="", markersize=5, color=style["color"])
        axes.plot(x[chosen], error[chosen], marker="o", fillstyle="none", markersize=8, color=style["color"])
    finish_axes(axes, "step size, or ridge", "error at the end", is_log=True, legend=8)
