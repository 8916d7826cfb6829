"""TD and VRTD with several batch sizes on finite chains: what Figures 1, 1.5 and 2 of the paper share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vrtd.algorithms import TD, VRTD, Algorithm
from vrtd.paper.curves import curve_rows, draw_means, log_grid
from vrtd.paper.evidence import Basis, Claim, NumberCheck, agrees, over_runs, paired_ratio
from vrtd.paper.experiment import Runner, Settings
from vrtd.problems import LIBRARY
from vrtd.tables import Table, Tables, rows, rows_where, table
from vrtd.theory import exact_curve
from vrtd.theory.curves import EXACT

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = dict[str, Any]
Compare = Callable[[Table], list[NumberCheck]]

_TD_CLOSELY = 4000  # so many of TD's first updates are looked at one by one
_TD_STRIDE = 50  # the last updates of TD are looked at every so many
# Criteria of ours. "Much" slower, as a share of the whole run that a batch size needs beyond TD; how it would be with a
# stricter one is looked at beyond the paper.
MUCH_SLOWER, STRICTER = 0.2, 0.1
# "Much" smaller, and "substantially" reduced, as a share of TD's error.
MUCH_SMALLER = 0.5
_START = {0.0: "zeros", 1.0: "ones"}


def measure(settings: Settings, runner: Runner, also: int = 0) -> dict[str, Table]:
    """`curves` over pseudo-gradients and `floors`, the errors averaged over the last updates, of every cell.

    `also` are pseudo-gradients that the caller will simulate.
    """
    n_gradients, sizes = settings["n_gradients"], settings["batch_sizes"]
    runner.expect(n_gradients * len(sizes) * sum(cell["n_runs"] for cell in settings["cells"]) + also)
    curves: list[dict[str, Any]] = []
    floors: list[dict[str, Any]] = []
    for cell in settings["cells"]:
        problem = LIBRARY[cell["problem"]](**cell["arguments"])
        theta_0 = np.full(problem.n_features, cell["theta_0"])
        td_floor, smaller = np.nan, list[NDArray[np.float64]]()  # errors with the smaller batches, TD's first
        for M in sizes:
            method = algorithm(settings["step_size"], M)
            window, grid = checkpoints(settings, M)
            axis = np.union1d(window, grid)
            options = {"sampling": settings["sampling"], "n_gradients": n_gradients, "theta_0": theta_0}
            result = runner.simulate(
                problem, method, n_runs=cell["n_runs"], seed=settings["seed"], initial=settings["initial"],
                checkpoints=axis, **options,
            )  # fmt: skip
            # The approximation of VRTD on a trajectory is for a stationary first state; TD's recursion for any.
            first = settings["initial"] if M == 1 else "stationary"
            every = np.arange(_TD_CLOSELY + 1) if M == 1 else np.arange(0, n_gradients + 1, 2 * M)
            exact = exact_curve(problem, method, checkpoints=np.union1d(axis, every), initial=first, **options)
            errors = exact.values("squared_error")[0]
            expected, inside = errors[np.isin(exact.n_gradients, axis)], np.isin(axis, window)
            td_floor = float(expected[inside].mean()) if M == 1 else td_floor
            per_run = result.values("squared_error")[:, inside].mean(axis=1)
            smaller = smaller or [per_run]
            (to_td, se_td), (to_smaller, se_smaller) = (paired_ratio(per_run, smaller[k]) for k in (0, -1))
            smaller.append(per_run)
            common = {
                **cell["labels"],
                "theta_0": cell["theta_0"],
                "batch_size": M,
                "basis": "exact" if exact.provenance["method"] == EXACT else "approximation",
            }
            floors.append(
                common
                | {"n_runs": result.n_runs}
                | over_runs(per_run)
                | {
                    "exact": float(expected[inside].mean()),
                    "to_td": to_td,
                    "to_td_standard_error": se_td,
                    "to_smaller": to_smaller,
                    "to_smaller_standard_error": se_smaller,
                    "n_diverged": int((result.diverged_at >= 0).sum()),
                    "reach": next(iter(exact.n_gradients[errors <= 2.0 * td_floor].tolist()), -1),
                    "n_gradients": n_gradients,
                }
            )
            curves += curve_rows(common, result, np.isin(axis, grid), expected)
    return {"curves": table(curves), "floors": table(floors)}


def algorithm(step_size: float, batch_size: int) -> Algorithm:
    return TD(step_size) if batch_size == 1 else VRTD(step_size, batch_size)


def checkpoints(settings: Settings, batch_size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where the last updates are averaged, and where the curve is drawn.

    With t uniform, the mean error over the inner updates of an epoch is the mean error of what it returns, so the ends
    of the epochs are enough.
    """
    end, last = settings["n_gradients"], settings["last_updates"]
    window = (
        np.arange(end - last + _TD_STRIDE, end + 1, _TD_STRIDE)
        if batch_size == 1
        else np.arange(end - 2 * last + 2 * batch_size, end + 1, 2 * batch_size)
    )
    return window, log_grid(end)


# Figures


def convergence(axes: Axes, curves: Table, **where: Any) -> None:
    """A curve for each batch size."""
    for M in np.unique(curves["batch_size"]):
        part = rows_where(curves, batch_size=M, **where)
        draw_means(axes, part, "TD" if M == 1 else f"VRTD, M = {M}")


def bars(axes: Axes, floors: Table, series: Sequence[tuple[str, dict[str, Any]]]) -> None:
    """Errors averaged over the last updates by batch size: for each of the series a mark with its interval, and the
    expected value as a bar across."""
    sizes = np.unique(floors["batch_size"])
    places = np.arange(sizes.size)
    for k, (label, where) in enumerate(series):
        part = rows_where(floors, **where)
        x = places + 0.7 * ((k + 0.5) / len(series) - 0.5)
        axes.errorbar(x, part["mean"], 2 * part["standard_error"], fmt="o", markersize=3, capsize=2, label=label)
        axes.plot(x, part["exact"], linestyle="", marker="_", markersize=10, color="black", markeredgewidth=0.8)
    axes.set_yscale("log")
    axes.set_xticks(places, ["1 (TD)" if M == 1 else str(M) for M in sizes])
    axes.set_xlabel("batch size M")
    axes.set_ylabel(r"squared error, mean of the last updates")
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)


# Comparisons


def falls(floors: Table, basis: Basis) -> list[NumberCheck]:
    """Each batch size has a smaller error than the one before it."""
    found = []
    for small, large in pairwise(np.unique(floors["batch_size"])):
        for row, before in _pairs(rows_where(floors, batch_size=large), rows_where(floors, batch_size=small)):
            condition, quantity = _condition(row), f"error at M = {large} / error at M = {small}"
            found.append(_error_ratio(basis, condition, quantity, row, before, "to_smaller", 1.0))
    return found


def improves(floors: Table, basis: Basis) -> list[NumberCheck]:
    """Each batch size has at most MUCH_SMALLER of TD's error."""
    return [
        _error_ratio(
            basis, f"M = {M}", f"error of VRTD / error of TD ({_condition(row)})", row, td, "to_td", MUCH_SMALLER
        )
        for M in np.unique(floors["batch_size"])[1:]
        for row, td in _pairs(rows_where(floors, batch_size=M), rows_where(floors, batch_size=1))
    ]


def _error_ratio(
    basis: Basis, condition: str, quantity: str, row: Row, other: Row, column: str, below: float
) -> NumberCheck:
    """Of a row to another, exact, or simulated and then in a column of the row."""
    if basis == "exact":
        return NumberCheck(condition, quantity, row["exact"] / other["exact"], below=below)
    estimate, se = row[column], row[f"{column}_standard_error"]
    return NumberCheck(condition, quantity, estimate, se, row["n_runs"], below=below, basis="simulated")


def reduces(floors: Table, basis: Basis) -> list[NumberCheck]:
    """The largest batch size has at most MUCH_SMALLER of TD's error; the others are looked at beyond that."""
    largest = f"M = {floors['batch_size'].max()}"
    return [replace(each, stated=each.condition == largest) for each in improves(floors, basis)]


def slows(floors: Table) -> list[NumberCheck]:
    """Until the error is twice TD's floor, a batch size needs at most MUCH_SLOWER of the whole run beyond TD; STRICTER
    is beyond what is stated."""
    found = []
    for M in np.unique(floors["batch_size"])[1:]:
        for row, td in _pairs(rows_where(floors, batch_size=M), rows_where(floors, batch_size=1)):
            if td["reach"] <= 0:  # the error begins there, so there is nothing to reach
                continue
            later = (row["reach"] - td["reach"]) / row["n_gradients"] if row["reach"] > 0 else np.inf
            counts = f"{row['reach']:,} against {td['reach']:,}" if row["reach"] > 0 else "never"
            basis: Any = row["basis"]
            quantity = f"pseudo-gradients to twice the error of TD: {counts}, as a share of the run ({_condition(row)})"
            strict = f"M = {M}, with {STRICTER:g} of the run"
            found += [
                NumberCheck(f"M = {M}", quantity, float(later), below=MUCH_SLOWER, basis=basis),
                NumberCheck(strict, quantity, float(later), below=STRICTER, basis=basis, stated=False),
            ]
    return found


def agreement(floors: Table) -> list[NumberCheck]:
    """Simulated errors are the expected ones, or near the approximate ones."""
    return [agrees(f"{_condition(row)}, M = {row['batch_size']}", row) for row in rows(floors)]


def _pairs(left: Table, right: Table) -> list[tuple[Row, Row]]:
    return list(zip(rows(left), rows(right), strict=True))


def _condition(row: dict[str, Any]) -> str:
    return f"draw {row['mdp_seed']}, {row['features']} features, from {_START[row['theta_0']]}"


# Claims


def claims(
    experiment: str,
    figure: str,
    words: str,
    basis: Basis,
    floors: Callable[[Mapping[str, Tables]], Table],
    judged: Callable[[Compare, Table], list[NumberCheck]] = lambda compare, table: compare(table),
) -> tuple[Claim, ...]:
    """What the paper says of each of these figures: batches reduce the error, substantially, and are not much slower.

    `judged` applies a comparison of floors to those that the paper speaks of, and to others beyond it.
    """
    shared: dict[str, Any] = {"needs": (experiment,), "agreement": lambda tables: agreement(floors(tables))}
    place = f"Figure {figure}; the text on it"
    return (
        Claim(
            name=f"figure-{figure}-error-falls",
            place=place,
            statement=f"{words} the error at which VRTD settles falls as the batch size grows.",
            test=f"The {basis} error averaged over the last 10,000 updates, at each batch size against the one before.",
            evidence=lambda tables: judged(partial(falls, basis=basis), floors(tables)),
            **shared,
        ),
        Claim(
            name=f"figure-{figure}-substantially-reduced",
            place=place,
            statement=f"{words} a larger batch reduces the error substantially.",
            test=(
                f"The {basis} error averaged over the last 10,000 updates, of the largest batch against M = 1, which "
                f"is TD. The criterion is ours: at most {MUCH_SMALLER:g} of it is a substantial reduction. Smaller "
                "batches are looked at beyond the paper."
            ),
            evidence=lambda tables: judged(partial(reduces, basis=basis), floors(tables)),
            **shared,
        ),
        Claim(
            name=f"figure-{figure}-not-much-slower",
            place=place,
            statement=f"{words} larger batches do not slow the convergence down much.",
            test=(
                "Pseudo-gradients until the expected error is twice the one at which TD settles, VRTD's less TD's, as "
                f"a share of the whole run. The criterion is ours: more than {MUCH_SLOWER:g} of the run is much "
                f"slower; {STRICTER:g} is looked at beyond it. Where the error begins below that it is not asked."
            ),
            evidence=lambda tables: slows(floors(tables)),
            note=(
                "VRTD returns a result only every 2M pseudo-gradients. So it is late by a small share of the run, and "
                "by a large multiple of TD's own count; both counts stand beside the share."
            ),
            **shared,
        ),
    )
