"""The figures of a comparison: ranks, and one figure of all errors in which the reader chooses what is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vrtd.plots import METRIC_LABELS, PALETTE, Figure, finish_axes, label_part
from vrtd.tables import Table, Tables, rows, rows_where
from vrtd.tournament.cell import LOST
from vrtd.tournament.problems import AIMS, TournamentProblem
from vrtd.tournament.standings import Standing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Style = dict[str, Any]  # of the lines of an algorithm

#: What the reader of the figure of errors chooses.
CHOICES = ("Problem", "Aim", "Against")
_AXES = {"n_samples": "samples", "n_gradients": "pseudo-gradients", "seconds": "seconds of a core or GPU, for one run"}
_STEP_SIZE = "step size, or ridge"
_ROWS = "To solve the equation of the data set"  # aim "rows" of the curves
_DASHES = ("-", "--", ":", "-.")
_FIRST = ("td", "vrtd")  # algorithms with the first colours


class View(NamedTuple):
    """What the figure of errors shows for one choice of problem, aim and horizontal axis."""

    choice: tuple[str, str, str]
    table: Table
    draw: Callable[[Axes, Tables], None]

    def draw_table(self, axes: Axes) -> None:
        """Draw the whole table."""
        self.draw(axes, {"errors": self.table})


def choose_styles(standings: Mapping[str, Sequence[Standing]]) -> dict[str, Style]:
    """Return the style of each algorithm, the same wherever it is shown.

    TD and VRTD have the first colours, and the best of each aim the next ones, so that the algorithms that are shown
    first differ in colour, not in dashes only.
    """
    by_rank = [each.algorithm for places in zip(*standings.values(), strict=True) for each in places]
    names = dict.fromkeys([name for name in _FIRST if name in by_rank] + by_rank)
    n = len(PALETTE)
    return {
        name: {"color": PALETTE[i % n], "linestyle": _DASHES[i // n % len(_DASHES)], "label": name}
        for i, name in enumerate(names)
    }


def first_shown(styles: Mapping[str, Style]) -> list[str]:
    """Return the names of the algorithms that are shown at first."""
    return list(styles)[: len(PALETTE)]


def rank_figures(tables: Mapping[str, Table], styles: Mapping[str, Style]) -> Iterator[tuple[Figure, Tables]]:
    """Yield a figure of the mean ranks for each aim, with the table behind it."""
    for aim in dict.fromkeys(tables["ranks"]["aim"].tolist()):
        caption = (
            f"{AIMS[aim]}: mean rank over the problems (1 is the best), with 95 % intervals. Hollow: significantly "
            "worse than the best."
        )
        ranks = {"ranks": rows_where(tables["ranks"], aim=aim)}
        yield Figure(f"ranks-{aim}", caption, "ranks", partial(_draw_ranks, styles)), ranks


def error_views(
    tables: Mapping[str, Table], problems: Mapping[str, TournamentProblem], styles: Mapping[str, Style]
) -> Iterator[View]:
    """Yield all views of the figure of errors."""
    for problem, about in problems.items():
        for aim in (*about.aims, "rows"):
            curves = rows_where(tables["curves"], problem=problem, aim=aim)
            title = AIMS.get(aim, _ROWS)
            for axis, label in _AXES.items():
                if curves["mean"].size and (aim != "rows" or axis == "n_gradients"):
                    yield View((about.title, title, label), curves, partial(_draw_errors, axis, styles))
            tuning = rows_where(tables["tuning"], problem=problem, aim=aim, is_shown=True)
            if tuning["main"].size and aim != "rows":
                yield View((about.title, title, _STEP_SIZE), tuning, partial(_draw_sensitivity, styles))


def error_figure(view: View, shown: Sequence[str]) -> tuple[Figure, Tables]:
    """Return the figure of one view, with the algorithms that are shown at first, and the table behind it."""
    caption = (
        "Mean error over the runs, with a band of two standard errors. Square: an algorithm that goes through all "
        "samples as a data set. Dotted line: the smallest error of any parameters. Cross: the error grew a "
        "hundredfold. Against the step size: errors of the tuning runs, with the other settings as chosen; a ring "
        "marks the chosen value, a cross a value with which some runs diverged."
    )
    table = {name: column[np.isin(view.table["algorithm"], shown)] for name, column in view.table.items()}
    return Figure("errors", caption, "errors", view.draw), {"errors": table}


def _draw_ranks(styles: Mapping[str, Style], axes: Axes, tables: Tables) -> None:
    ranks = rows(tables["ranks"])
    for i, each in enumerate(ranks):
        name, half = each["algorithm"], [[each["mean_rank"] - each["low"]], [each["high"] - each["mean_rank"]]]
        axes.errorbar(
            [each["mean_rank"]], [i], xerr=half, fmt="o", color=styles[name]["color"],
            fillstyle="full" if each["is_best"] else "none", markersize=6, elinewidth=1.5,
        )  # fmt: skip
    axes.set_yticks(range(len(ranks)), [each["algorithm"] for each in ranks], fontsize=8)
    axes.set_ylim(len(ranks) - 0.5, -0.5)
    finish_axes(axes, "mean rank", "", grid="x", legend="")


def _draw_errors(axis: str, styles: Mapping[str, Style], axes: Axes, tables: Tables) -> None:
    curves = tables["errors"]
    limit = LOST * curves["initial_error"][0]
    for name in _in_order(curves, styles):
        part, style = rows_where(curves, algorithm=name), styles[name] | {"linewidth": 1.5}
        x, mean, se = part[axis], part["mean"], part["standard_error"]
        keep = x > 0
        if axis == "n_samples" and np.all(x == x[0]):  # an algorithm on a data set
            axes.plot(x[-1:], mean[-1:], marker="s", markersize=6, **style | {"linestyle": ""})
            continue
        axes.plot(x[keep], mean[keep], **style)
        low, high = np.maximum(mean - 2 * se, mean / 10), mean + 2 * se
        ends, colour = (low[keep], high[keep]), style["color"]
        axes.fill_between(x[keep], *ends, color=colour, alpha=0.2, linewidth=0, label=label_part(name))
        if mean[-1] >= limit:
            axes.plot(x[-1:], mean[-1:], "x", markersize=7, color=colour, label=label_part(name, "grew"))
    least = curves["least_error"][0]
    if least > 1e-9 * curves["initial_error"][0]:
        axes.axhline(least, color=PALETTE[6], linestyle=":", linewidth=1.0)
    metric = curves["metric"][0]
    finish_axes(axes, _AXES[axis], METRIC_LABELS.get(metric, metric), is_log=True, legend=8)


def _draw_sensitivity(styles: Mapping[str, Style], axes: Axes, tables: Tables) -> None:
    tuning = tables["errors"]
    for name in _in_order(tuning, styles):
        part = rows_where(tuning, algorithm=name)
        order = np.argsort(part["main"])
        x, error, chosen, diverged = (part[column][order] for column in ("main", "error", "is_chosen", "n_diverged"))
        style, colour = styles[name] | {"linewidth": 1.5}, styles[name]["color"]
        axes.plot(x, error, marker=".", markersize=4, **style)
        lost = {"markersize": 6, "color": colour, "label": label_part(name, "some runs diverged")}
        axes.plot(x[diverged > 0], error[diverged > 0], "x", **lost)
        best = {"fillstyle": "none", "markersize": 9, "color": colour, "label": label_part(name, "chosen")}
        axes.plot(x[chosen], error[chosen], "o", **best)
    finish_axes(axes, _STEP_SIZE, "error at the end", is_log=True, legend=8)


def _in_order(table: Table, styles: Mapping[str, Style]) -> list[str]:
    """Return the algorithms of a table in the order of the styles."""
    return [name for name in styles if name in set(table["algorithm"].tolist())]
