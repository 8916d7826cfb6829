"""Figures of Table 1: lines for exact values, dashed lines for approximate ones, marks for simulated ones."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from vrtd.paper.curves import finish_axes
from vrtd.paper.experiment import Draw
from vrtd.paper.table_1.floors import LARGE_STEPS
from vrtd.paper.table_1.settings import GAMMAS, MIXED, RANDOM, STICKY, TWO_STATES
from vrtd.plots import label_part
from vrtd.tables import Table, Tables, rows_where

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ALPHA, _EPSILON, _LAMBDA, _XI = "\N{GREEK SMALL LETTER ALPHA}", "ε", "λ", "ξ"
_SAMPLING = {"iid": "i.i.d.", "markov": "trajectory"}


def _draw_floors_over_steps(sampling: str, axes: Axes, tables: Tables) -> None:
    exact = rows_where(tables["floors"], problem=RANDOM, sampling=sampling, against="alpha")
    marks = rows_where(tables["simulated"], kind="floor", sampling=sampling)
    for M in np.unique(rows_where(exact, range=LARGE_STEPS)["batch_size"]):  # the theorems' steps are too small to show
        part, seen = rows_where(exact, batch_size=M), rows_where(marks, batch_size=M)
        _draw_line(axes, part["step_size"], part["floor"], "TD" if M == 1 else f"VRTD, M = {M:,}", part["basis"][0])
        _draw_marks(axes, seen["step_size"], seen)
    finish_axes(axes, f"step size {_ALPHA}", "stationary squared error")


def _draw_floors_over_batches(axes: Axes, tables: Tables) -> None:
    step = rows_where(tables["floors"], problem=RANDOM, against="M")["step_size"].max()  # the other is the theorems'
    for sampling, name in _SAMPLING.items():
        where: dict[str, Any] = {"problem": RANDOM, "sampling": sampling, "method": "VRTD", "step_size": step}
        part, marks = rows_where(tables["floors"], **where), rows_where(tables["simulated"], kind="floor", **where)
        _draw_line(axes, part["batch_size"], part["floor"], f"VRTD, {name}", part["basis"][0])
        _draw_marks(axes, marks["batch_size"], marks)
    finish_axes(axes, "batch size M", "stationary squared error")


def _draw_biases(against: str, column: str, label: str, axes: Axes, tables: Tables) -> None:
    whole = rows_where(tables["biases"], against=against)
    for problem in (RANDOM, STICKY, TWO_STATES):
        for quantity, line in (("E xi", f"|E {_XI}|"), ("|E u|", "|E u|")):
            for method in ("TD", "VRTD"):
                part = rows_where(whole, problem=problem, quantity=quantity, method=method)
                if part["value"].size:
                    _draw_line(axes, part[column], np.abs(part["value"]), f"{line}, {method}, {problem}", "exact")
    finish_axes(axes, label, "bias")


def _draw_costs_over_targets(axes: Axes, tables: Tables) -> None:
    for sampling, name in _SAMPLING.items():
        for method in ("TD", "VRTD"):
            part = rows_where(tables["costs"], family=RANDOM, sampling=sampling, method=method)
            scaled = part["cost"] * part["target"]
            _draw_line(axes, part["target"], scaled, f"{method}, {name}", part["basis"][0], marker=".")
    _finish_targets(axes, f"pseudo-gradients times {_EPSILON}")


def _draw_costs_over_lambda(axes: Axes, tables: Tables) -> None:
    iid = rows_where(tables["costs"], sampling="iid")
    for family, target in ((GAMMAS, 1e-5), (GAMMAS, 1e-3), (MIXED, 1e-3)):
        for method in ("TD", "VRTD"):
            part = rows_where(iid, family=family, target=target, method=method)
            label = f"{method}, {family}, {_EPSILON} = {target:g}"
            _draw_line(axes, part["lambda_A"], part["cost"], label, "exact", marker=".")
            if (method, family, target) == ("VRTD", GAMMAS, 1e-5):
                order = np.maximum(1.0 / target, part["lambda_A"] ** -2.0)
                claimed = part["cost"][0] * order / order[0]
                axes.plot(part["lambda_A"], claimed, ":", color="black", label="the same, order of Table 1")
    finish_axes(axes, f"{_LAMBDA}_A", "pseudo-gradients")
    axes.invert_xaxis()


def _draw_ratios(axes: Axes, tables: Tables) -> None:
    for sampling, name in _SAMPLING.items():
        td, vrtd = (
            rows_where(tables["costs"], family=RANDOM, sampling=sampling, method=method) for method in ("TD", "VRTD")
        )
        _draw_line(axes, td["target"], td["cost"] / vrtd["cost"], f"{RANDOM}, {name}", vrtd["basis"][0], marker=".")
    axes.axhline(1.0, color="black", linewidth=0.8)
    _finish_targets(axes, "cost of TD / cost of VRTD")


def _finish_targets(axes: Axes, y_label: str) -> None:
    finish_axes(axes, f"target {_EPSILON}, as a share of the initial error", y_label, log="x")
    axes.set_ylim(bottom=0.0)
    axes.invert_xaxis()


def _draw_line(axes: Axes, x: Any, y: Any, label: str, basis: str, marker: str = "") -> None:
    order = np.argsort(x)
    style = "-" if basis == "exact" else "--"
    axes.plot(np.asarray(x)[order], np.asarray(y)[order], style, marker=marker, linewidth=1.5, label=label)


def _draw_marks(axes: Axes, x: Any, simulated: Table) -> None:
    """Draw simulated means in the colour of the last line."""
    line = axes.lines[-1]
    axes.errorbar(
        x, simulated["mean"], 2 * simulated["standard_error"], fmt="o", markersize=4, capsize=2,
        color=line.get_color(), label=label_part(str(line.get_label()), "simulated"),
    )  # fmt: skip


FIGURES: dict[tuple[str, str], Draw] = {
    ("floors-alpha-iid", "floors"): partial(_draw_floors_over_steps, "iid"),
    ("floors-alpha-markov", "floors"): partial(_draw_floors_over_steps, "markov"),
    ("floors-m", "floors"): _draw_floors_over_batches,
    ("bias-alpha", "biases"): partial(_draw_biases, "alpha", "step_size", f"step size {_ALPHA}"),
    ("bias-m", "biases"): partial(_draw_biases, "M", "batch_size", "batch size M"),
    ("cost-eps", "costs"): _draw_costs_over_targets,
    ("cost-lambda", "costs"): _draw_costs_over_lambda,
    ("ratio", "costs"): _draw_ratios,
}
