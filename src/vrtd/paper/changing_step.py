"""Figure 5: TD with a step that is halved when the error stops decreasing, against VRTD with a constant step.

The paper does not say how to detect that the error has stopped decreasing. A rule on the error needs theta_star and
couples the runs. It is therefore applied to the exact error of TD, and the resulting halving times are simulated as a
fixed schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from math import inf
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from vrtd.algorithms import TD, VRTD, Algorithm, Piecewise
from vrtd.arrays import Floats
from vrtd.paper.curves import draw_means, make_curve_rows, make_log_grid
from vrtd.paper.evidence import NumberCheck, agrees
from vrtd.paper.experiment import ClaimTest, Runner, Settings, build_problem, make_experiment
from vrtd.plots import AXIS_LABELS
from vrtd.tables import Table, Tables, rows, rows_where, table
from vrtd.theory import exact_curve
from vrtd.theory.markov import MarkovTD
from vrtd.theory.symmetric import pack, powers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Axis = Literal["n_gradients", "n_samples"]
Rule = Callable[[Sequence[float]], bool]  # returns whether to halve the step now, given the errors up to now
STRIDE = 40  # updates between two exact errors
# The required accuracy is VRTD's final error, to within a tenth. Larger ones are tested beyond the paper.
REQUIRED = 1.1
WITHIN = (REQUIRED, 1.5, 2.0)
MUCH_FASTER = 2.0  # our criterion


def settings(n_runs: int, seed: int) -> Settings:
    """Return the settings of the experiment."""
    return {
        "problem": "frozen_lake",
        "arguments": {"seed": 0},
        "initial": 0,
        "n_gradients": 120_000,
        "step_size": 0.1,
        "batch_size": 5000,
        "starts": {"ones": 1.0, "zeros": 0.0},
        "windows": [1000, 2000, 5000],  # the mean errors of successive windows are compared
        "least_decrease": 0.05,  # a smaller relative decrease means that the error has stopped decreasing
        "most_halvings": 20,  # the step is then a million times smaller, and theta no longer moves
        "authors_halvings": [12_000, 20_000],  # from a remark in the paper's source
        "n_runs": n_runs,
        "seed": seed,
    }


def measure(settings: Settings, runner: Runner) -> dict[str, Table]:
    """Simulate VRTD and TD under each halving rule, beside the expected errors."""
    problem, step, end = build_problem(settings), settings["step_size"], settings["n_gradients"]
    recursion, initial, batch_size = MarkovTD(problem), settings["initial"], settings["batch_size"]
    runner.expect(settings["n_runs"] * end * len(settings["starts"]) * (len(settings["windows"]) + 2))
    axis = np.union1d(make_log_grid(end) // STRIDE * STRIDE, np.arange(0, end + 1, 1000))

    d, n_states = problem.n_features, problem.mrp.n_states
    trace = np.tile(pack(np.diag([*[1.0] * d, 0.0])), n_states)  # trace @ x is E|u|^2, for packed moments x by state

    @cache
    def stride(step_size: float) -> Floats:
        return powers(recursion.dense(step_size), [STRIDE])[STRIDE]

    curves, schedules = [], []
    for start, value in settings["starts"].items():
        theta_0 = np.full(d, value)
        rules = {f"TD, W = {W}": stops_decreasing(W, settings["least_decrease"]) for W in settings["windows"]}
        rules["TD, the authors' times"] = lambda errors: STRIDE * (len(errors) - 1) in settings["authors_halvings"]
        methods: dict[str, tuple[Algorithm, Floats, str]] = {}
        for label, rule in rules.items():
            first = pack(recursion.start(theta_0, np.eye(n_states)[initial])).ravel()
            errors, times = follow(stride, first, trace, rule, settings)
            schedules += [{"start": start, "method": label, "halved_at": t} for t in times]
            steps = Piecewise(tuple(times), tuple(step / 2**k for k in range(len(times) + 1))) if times else step
            methods[label] = TD(steps), errors[axis // STRIDE], "exact"
        vrtd = VRTD(step, batch_size)
        near = exact_curve(problem, vrtd, n_gradients=end, theta_0=theta_0, checkpoints=axis)
        methods[f"VRTD, M = {batch_size}"] = vrtd, near.values("squared_error")[0], "approximation"
        for label, (method, expected, basis) in methods.items():
            result = runner.simulate(
                problem, method, n_runs=settings["n_runs"], n_gradients=end, seed=settings["seed"],
                theta_0=theta_0, initial=initial, checkpoints=axis,
            )  # fmt: skip
            labels = {"start": start, "method": label, "basis": basis, "n_runs": result.n_runs}
            curves += make_curve_rows(labels, result, np.ones(axis.size, bool), expected)
    return {"curves": table(curves), "schedules": table(schedules)}


def follow(
    stride: Callable[[float], Floats], x: Floats, trace: Floats, rule: Rule, settings: Settings
) -> tuple[Floats, list[int]]:
    """Return the exact errors trace.x of TD, every STRIDE updates, and the times at which `rule` halves the step."""
    step, errors, times = settings["step_size"], [float(trace @ x)], list[int]()
    for t in range(STRIDE, settings["n_gradients"] + 1, STRIDE):
        x = stride(step) @ x
        errors.append(float(trace @ x))
        if len(times) < settings["most_halvings"] and rule(errors):
            times.append(t)
            step /= 2.0
    return np.array(errors), times


def stops_decreasing(window: int, least_decrease: float) -> Rule:
    """Return the rule that halves the step when the mean error of a window stops decreasing.

    The step is halved after a window whose mean error is not below that of the previous window by the share
    `least_decrease`. The comparison after a halving is skipped.
    """
    n, halved = window // STRIDE, False

    def rule(errors: Sequence[float]) -> bool:
        nonlocal halved
        if (len(errors) - 1) % n or len(errors) <= 2 * n:
            return False
        before, now = np.mean(errors[-2 * n : -n]), np.mean(errors[-n:])
        halved = bool(now > (1.0 - least_decrease) * before) and not halved
        return halved

    return rule


def _draw(start: str, x: Axis, axes: Axes, tables: Tables) -> None:
    curves = rows_where(tables["curves"], start=start)
    for label in dict.fromkeys(curves["method"].tolist()):
        draw_means(axes, rows_where(curves, method=label), label, x)


def vrtd_is_faster(curves: Table, x: Axis, above: float) -> list[NumberCheck]:
    """Check that TD needs more than `above` times as much as VRTD to reach WITHIN times VRTD's final error.

    The ratio is infinite if TD does not reach it within the run.
    """
    checks = []
    for start in dict.fromkeys(curves["start"].tolist()):
        part = rows_where(curves, start=start)
        vrtd = rows_where(part, basis="approximation")
        for label in dict.fromkeys(part["method"][part["basis"] == "exact"].tolist()):
            for factor in WITHIN:
                target = factor * vrtd["exact"][-1]
                td, ours = (_first(each, x, target) for each in (rows_where(part, method=label), vrtd))
                stated = factor == REQUIRED
                condition = f"{label.removeprefix('TD, ')}, from {start}"
                condition += "" if stated else f", to {factor:g} times VRTD's final error"
                counts = f"{td:,} against {ours:,}" if td < inf else f"TD does not get there, VRTD after {ours:,}"
                quantity = f"{AXIS_LABELS[x]} of TD / of VRTD to {factor:g} times VRTD's final error: {counts}"
                ratio = td / max(ours, 1)
                check = NumberCheck(condition, quantity, ratio, above=above, basis="approximation", stated=stated)
                checks.append(check)
    return checks


def _first(curve: Table, x: Axis, target: float) -> float:
    """Return where the expected error first is at most the target, or infinity if it never is."""
    return next(iter(curve[x][curve["exact"] <= target].tolist()), inf)


def samples_are_gradients(tables: Tables) -> list[NumberCheck]:
    """Check that the number of samples drawn equals the number of pseudo-gradients."""
    condition, what = "the two algorithms of the figure", "samples drawn / pseudo-gradients"
    return [
        NumberCheck(
            condition, f"{what}, {row['method']}", row["n_samples"] / row["n_gradients"], above=0.99, below=1.01
        )
        for row in _last_rows(tables["curves"])
        if row["start"] == "ones"
    ]


def agreement(curves: Table) -> list[NumberCheck]:
    """Check that simulated errors at the end of the budget agree with the expected ones."""
    return [agrees(f"{row['method']}, from {row['start']}", row) for row in _last_rows(curves)]


def _last_rows(curves: Table) -> list[dict[str, Any]]:
    return rows(rows_where(curves, n_gradients=curves["n_gradients"].max()))


def _test_speed(x: Axis, above: float) -> ClaimTest:
    return ClaimTest(
        lambda tables: vrtd_is_faster(tables["curves"], x, above),
        lambda tables: agreement(tables["curves"]),
    )


EXPERIMENT = make_experiment(
    "changing-step",
    settings,
    measure,
    weight=5.0,
    figures={
        ("ones-gradients", "curves"): partial(_draw, "ones", "n_gradients"),
        ("ones-samples", "curves"): partial(_draw, "ones", "n_samples"),
        ("zeros-gradients", "curves"): partial(_draw, "zeros", "n_gradients"),
        ("zeros-samples", "curves"): partial(_draw, "zeros", "n_samples"),
    },
    tests={
        "figure-5-much-faster": _test_speed("n_gradients", MUCH_FASTER),
        "figure-5-fewer-samples": _test_speed("n_samples", 1.0),
        "samples-are-gradients": ClaimTest(samples_are_gradients),
    },
    numbers={"required": REQUIRED, "much_faster": MUCH_FASTER},
)
