"""Figures of a comparison: the values of both policies, and their difference."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vrtd.estimator.answers import Answer
from vrtd.estimator.comparison import PolicyComparison
from vrtd.estimator.estimates import Interval
from vrtd.plots import PALETTE, Figure, finish_axes
from vrtd.report.numbers import interval, number, percent
from vrtd.tables import Table, Tables

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Names of the figures.
COMPARISON_FIGURES = ("policies", "difference")
_BLUE, _VERMILION, _GREEN, _INK = PALETTE[0], PALETTE[1], PALETTE[2], PALETTE[6]
_MOST_LETTERS = 40  # of a name in a figure


def comparison_figures(value: Answer, comparison: PolicyComparison) -> tuple[list[Figure], dict[str, Table]]:
    """Return the figures and their tables; `value` is the policy value of the evaluated policy."""
    level, other = percent(comparison.level), comparison.policy_value
    policies = _table(
        {
            comparison.name: Interval(value.value, value.low, value.high),
            comparison.other: Interval(other.value, other.low, other.high),
        }
    )
    difference = _table({f"{comparison.name} minus {comparison.other}": comparison.difference})
    joint = (
        " Both values come from the same rows; the interval takes the correlation of their errors into account."
        if comparison.is_joint
        else ""
    )
    figures = [
        Figure("policies", f"Policy values of both policies with {level} intervals.", "policies", _draw_policies),
        Figure(
            "difference", f"Difference of the policy values with its {level} interval. At the dashed line both "
            f"policies have the same value.{joint}", "difference", _draw_difference,
        ),
    ]  # fmt: skip
    return figures, {"policies": policies, "difference": difference}


def _table(intervals: dict[str, Interval]) -> Table:
    numbers = np.array(list(intervals.values()))
    return {"policy": np.array(list(intervals)), **dict(zip(("value", "low", "high"), numbers.T, strict=True))}


def _draw_policies(axes: Axes, tables: Tables) -> None:
    _draw(axes, tables["policies"], (_BLUE, _VERMILION))
    finish_axes(axes, "policy value", "", grid="x", legend="")


def _draw_difference(axes: Axes, tables: Tables) -> None:
    axes.axvline(0.0, color=_INK, linestyle="--", linewidth=1.0)
    _draw(axes, tables["difference"], (_GREEN,))
    finish_axes(axes, "difference of the policy values", "", grid="x", legend="")


def _draw(axes: Axes, table: Table, colours: tuple[str, ...]) -> None:
    """Draw each value with its interval on a line of its own, below its name."""
    n = len(table["value"])
    for at, colour in enumerate(colours):
        value, low, high = (float(table[name][at]) for name in ("value", "low", "high"))
        half = (high - low) / 2.0
        is_known = bool(np.isfinite(half))
        axes.errorbar(
            [value], [at], xerr=[half] if is_known else None, fmt="o", color=colour, markersize=6, elinewidth=1.6,
            capsize=4,
        )  # fmt: skip
        name = str(table["policy"][at])
        shorter = name if len(name) <= _MOST_LETTERS else f"…{name[-_MOST_LETTERS:]}"
        shown = (
            "{} [{}, {}]".format(*interval(value, low, high)) if is_known else f"{number(value, 4)}, no finite interval"
        )
        axes.annotate(
            f"{shorter}\n{shown}".replace("$", r"\$"), (0.5, at), xycoords=("axes fraction", "data"), xytext=(0, 10),
            textcoords="offset points", ha="center", va="bottom",
        )  # fmt: skip
    axes.set_ylim(n - 0.5, -0.75)
    axes.set_yticks([])
    axes.locator_params(axis="x", nbins=5)
    axes.margins(x=0.12)
    axes.spines[["top", "right", "left"]].set_visible(False)
