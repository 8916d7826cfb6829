"""Table 1: floors, biases and costs over the step, the batch size, the target and lambda_A."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from vrtd.paper.experiment import Experiment, Runner, Settings
from vrtd.paper.table_1.claims import CLAIMS as CLAIMS
from vrtd.paper.table_1.costs import costs
from vrtd.paper.table_1.floors import (
    LARGE_STEPS,
    arrivals,
    biases,
    build,
    enumerated,
    floors,
    rates,
    simulated,
    td_limit,
    variances,
)
from vrtd.paper.table_1.slopes import slopes
from vrtd.paper.table_1.sweep import GAMMAS, MIXED, RANDOM, STICKY, TWO_STATES, settings
from vrtd.plots import Figure
from vrtd.tables import Table, Tables, rows_where, table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SAMPLING = {"iid": "i.i.d.", "markov": "trajectory"}
_WORDS = {"iid": "independent samples", "markov": "one trajectory"}
_TARGET = r"target $\varepsilon$, as a share of the initial error"


def measure(settings: Settings, runner: Runner) -> dict[str, Table]:
    """Everything but `simulated`, and the slopes fitted to it, is the same for any number of runs."""
    problems = {name: build(spec) for name, spec in settings["problems"].items()}
    grid = settings["floors"]
    limits = {(name, step): td_limit(problems[name], step) for name in grid["problems"] for step in grid["step_sizes"]}
    batches = enumerated(settings, problems[TWO_STATES])
    found = {
        "floors": floors(settings, problems, limits, batches),
        "variances": variances(settings, problems),
        "biases": biases(settings, problems, limits, batches),
        "rates": rates(settings, problems),
        "arrivals": arrivals(settings, problems),
        "costs": costs(settings),
    }
    found["simulated"] = simulated(settings, problems, found["costs"], runner)
    parts = ("floors", "variances", "biases", "arrivals", "costs", "simulated")
    found["slopes"] = slopes(*(found[name] for name in parts))
    return {name: table(rows) for name, rows in found.items()}


# Figures: exact values are lines, approximate ones dashed, simulated ones marks with two standard errors.


def _draw_floors_over_steps(sampling: str, axes: Axes, tables: Tables) -> None:
    exact = rows_where(tables["floors"], problem=RANDOM, sampling=sampling, against="alpha")
    marks = rows_where(tables["simulated"], kind="floor", sampling=sampling)
    for M in np.unique(rows_where(exact, range=LARGE_STEPS)["batch_size"]):  # the theorems' steps are too small to show
        part, seen = rows_where(exact, batch_size=M), rows_where(marks, batch_size=M)
        _line(axes, part["step_size"], part["floor"], "TD" if M == 1 else f"VRTD, M = {M:,}", part["basis"][0])
        _marks(axes, seen["step_size"], seen)
    _finish(axes, r"step size $\alpha$", "stationary squared error")


def _draw_floors_over_batches(axes: Axes, tables: Tables) -> None:
    step = rows_where(tables["floors"], problem=RANDOM, against="M")["step_size"].max()  # the other is the theorems'
    for sampling, name in _SAMPLING.items():
        where: dict[str, Any] = {"problem": RANDOM, "sampling": sampling, "method": "VRTD", "step_size": step}
        part, marks = rows_where(tables["floors"], **where), rows_where(tables["simulated"], kind="floor", **where)
        _line(axes, part["batch_size"], part["floor"], f"VRTD, {name}", part["basis"][0])
        _marks(axes, marks["batch_size"], marks)
    _finish(axes, "batch size M", "stationary squared error")


def _draw_biases(against: str, column: str, label: str, axes: Axes, tables: Tables) -> None:
    whole = rows_where(tables["biases"], against=against)
    for problem in (RANDOM, STICKY, TWO_STATES):
        for quantity, line in (("E xi", r"$|E\,\xi|$"), ("|E u|", r"$|E\,u|$")):
            for method in ("TD", "VRTD"):
                part = rows_where(whole, problem=problem, quantity=quantity, method=method)
                if part["value"].size:
                    _line(axes, part[column], np.abs(part["value"]), f"{line}, {method}, {problem}", "exact")
    _finish(axes, label, "bias")


def _draw_costs_over_targets(axes: Axes, tables: Tables) -> None:
    for sampling, name in _SAMPLING.items():
        for method in ("TD", "VRTD"):
            part = rows_where(tables["costs"], family=RANDOM, sampling=sampling, method=method)
            scaled = part["cost"] * part["target"]
            _line(axes, part["target"], scaled, f"{method}, {name}", part["basis"][0], marker=".")
    _finish(axes, _TARGET, r"pseudo-gradients times $\varepsilon$", y_scale="linear")
    axes.set_ylim(bottom=0.0)
    axes.invert_xaxis()


def _draw_costs_over_lambda(axes: Axes, tables: Tables) -> None:
    iid = rows_where(tables["costs"], sampling="iid")
    for family, target in ((GAMMAS, 1e-5), (GAMMAS, 1e-3), (MIXED, 1e-3)):
        for method in ("TD", "VRTD"):
            part = rows_where(iid, family=family, target=target, method=method)
            label = rf"{method}, {family}, $\varepsilon$ = {target:g}"
            _line(axes, part["lambda_A"], part["cost"], label, "exact", marker=".")
            if (method, family, target) == ("VRTD", GAMMAS, 1e-5):
                order = np.maximum(1.0 / target, part["lambda_A"] ** -2.0)
                claimed = part["cost"][0] * order / order[0]
                axes.plot(part["lambda_A"], claimed, ":", color="black", label="the same, order of Table 1")
    _finish(axes, r"$\lambda_A$", "pseudo-gradients")
    axes.invert_xaxis()


def _draw_ratios(axes: Axes, tables: Tables) -> None:
    for sampling, name in _SAMPLING.items():
        td, vrtd = (
            rows_where(tables["costs"], family=RANDOM, sampling=sampling, method=method) for method in ("TD", "VRTD")
        )
        _line(axes, td["target"], td["cost"] / vrtd["cost"], f"{RANDOM}, {name}", vrtd["basis"][0], marker=".")
    axes.axhline(1.0, color="black", linewidth=0.8)
    _finish(
        axes, r"target $\varepsilon$, as a share of the initial error", "cost of TD / cost of VRTD", y_scale="linear"
    )
    axes.set_ylim(bottom=0.0)
    axes.invert_xaxis()


def _line(axes: Axes, x: Any, y: Any, label: str, basis: str, marker: str = "") -> None:
    order = np.argsort(x)
    style = "-" if basis == "exact" else "--"
    axes.plot(np.asarray(x)[order], np.asarray(y)[order], style, marker=marker, linewidth=1.5, label=label)


def _marks(axes: Axes, x: Any, simulated: Table) -> None:
    """In the colour of the line drawn last."""
    axes.errorbar(
        x, simulated["mean"], 2 * simulated["standard_error"],
        fmt="o", markersize=4, capsize=2, color=axes.lines[-1].get_color(),
    )  # fmt: skip


def _finish(axes: Axes, x_label: str, y_label: str, y_scale: str = "log") -> None:
    axes.set_xscale("log")
    axes.set_yscale(y_scale)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, fontsize="small")


_MARKS = "Lines are exact, dashed ones an approximation; marks are simulated, with two standard errors."

EXPERIMENT = Experiment(
    name="table-1",
    title="The orders of Table 1, with numbers",
    place="Table 1, Theorems 1 and 2, Corollaries 1 and 2",
    question=(
        "TD with a constant step has a variance error of order alpha, and on a trajectory a bias of the same order; "
        "VRTD brings them down to alpha/M and 1/M, and so needs fewer pseudo-gradients: on a trajectory by a factor "
        "log(1/eps), with independent samples if lambda_A is small."
    ),
    method=(
        "Errors in the long run, biases and costs are computed: exactly, for Algorithm 2 on larger chains by an "
        "approximation; some of them are simulated as well. Orders are slopes on logarithmic scales. Costs are those "
        "of the best constant step for TD and of the best step and batch size for VRTD, to within a few percent. "
        "Chosen here: random MDP 0 with normalised features (other norms give the same in other units), two states "
        "that are seldom left, and for costs two families along which lambda_A falls: features that become alike, and "
        "two states whose discount goes to 1 while theta_star, theta_0 and the rewards stay."
    ),
    weight=5.0,
    settings=settings,
    measure=measure,
    figures=[
        *(
            Figure(
                f"floors-alpha-{sampling}",
                f"Error in the long run over the step, {RANDOM}, {_WORDS[sampling]}. {_MARKS}",
                "floors",
                partial(_draw_floors_over_steps, sampling),
            )
            for sampling in _SAMPLING
        ),
        Figure(
            "floors-m",
            f"Error in the long run over the batch size, {RANDOM}, step 0.25: flat while epochs are short, of order "
            f"1/M when they are long. {_MARKS}",
            "floors",
            _draw_floors_over_batches,
        ),
        Figure(
            "bias-alpha",
            "Bias on a trajectory over the step, exact: u is the error of theta and xi = u.(g_x(theta) - g(theta)); "
            "VRTD with M = 8.",
            "biases",
            partial(_draw_biases, "alpha", "step_size", r"step size $\alpha$"),
        ),
        Figure(
            "bias-m",
            "Bias of VRTD on a trajectory over the batch size, exact: of a batch from the worst state at a fixed theta "
            "(Lemma 1), and of the estimate at step 2.",
            "biases",
            partial(_draw_biases, "M", "batch_size", "batch size M"),
        ),
        Figure(
            "cost-eps",
            f"Pseudo-gradients of the best settings to a target, times the target, {RANDOM}. A line that rises evenly "
            "is of order log(1/eps)/eps, a flat one of order 1/eps. Dashed: by an approximation.",
            "costs",
            _draw_costs_over_targets,
        ),
        Figure(
            "cost-lambda",
            "Pseudo-gradients of the best settings as λ_A falls, independent samples, exact. Dotted: how VRTD's would "
            "grow by the order of Table 1, from its first point at ε = 1e-05.",
            "costs",
            _draw_costs_over_lambda,
        ),
        Figure(
            "ratio",
            f"Cost of TD over that of VRTD, each with its best settings, {RANDOM}: above 1 VRTD is cheaper. Dashed: "
            "by an approximation.",
            "costs",
            _draw_ratios,
        ),
    ],
)
