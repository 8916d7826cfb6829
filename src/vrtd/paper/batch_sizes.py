"""TD and VRTD with several batch sizes on finite chains: the code that Figures 1, 2 and 3 of the paper share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import Floats
from vrtd.paper.curves import draw_marks, draw_means, finish_axes, make_curve_rows, make_log_grid
from vrtd.paper.evidence import Basis, Claim, NumberCheck, agrees, average_runs, find_basis, paired_ratio
from vrtd.paper.experiment import ClaimTest, Runner, Settings, build_problem, make_algorithm, make_claim, read_texts
from vrtd.plots import label_part
from vrtd.tables import Table, Tables, rows, rows_where, table
from vrtd.theory import exact_curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = dict[str, Any]
Compare = Callable[[Table], list[NumberCheck]]

_TD_CLOSELY = 4000  # the exact error is computed after each of TD's first 4000 updates
_TD_STRIDE = 50  # interval between checkpoints in TD's last updates
# Our criteria for "much slower": the extra pseudo-gradients that a batch size needs compared with TD, as a share of the
# run. The stricter one is tested beyond the paper.
MUCH_SLOWER, STRICTER = 0.2, 0.1
# Our criterion for "much smaller" and "substantially reduced", as a share of TD's error.
MUCH_SMALLER = 0.5
_START = {0.0: "zeros", 1.0: "ones"}


def measure(settings: Settings, runner: Runner, also: int = 0) -> dict[str, Table]:
    """Return the tables `curves` (error over pseudo-gradients) and `floors` (error averaged over the last updates).

    `also` is the number of pseudo-gradients that the caller will simulate in addition.
    """
    n_gradients, sizes = settings["n_gradients"], settings["batch_sizes"]
    runner.expect(n_gradients * len(sizes) * sum(cell["n_runs"] for cell in settings["cells"]) + also)
    curves: list[Row] = []
    floors: list[Row] = []
    for cell in settings["cells"]:
        problem = build_problem(cell)
        theta_0 = np.full(problem.n_features, cell["theta_0"])
        options = {"sampling": settings["sampling"], "n_gradients": n_gradients, "theta_0": theta_0}
        td_floor, smaller = np.nan, list[Floats]()  # errors with the smaller batches, starting with TD's
        for M in sizes:
            method = make_algorithm(settings["step_size"], M)
            window, grid = choose_checkpoints(settings, M)
            axis = np.union1d(window, grid)
            result = runner.simulate(
                problem, method, n_runs=cell["n_runs"], seed=settings["seed"], initial=settings["initial"],
                checkpoints=axis, **options,
            )  # fmt: skip
            # VRTD's approximation on a trajectory assumes a stationary first state; TD's recursion allows any.
            first = settings["initial"] if M == 1 else "stationary"
            every = np.arange(_TD_CLOSELY + 1) if M == 1 else np.arange(0, n_gradients + 1, 2 * M)
            exact = exact_curve(problem, method, checkpoints=np.union1d(axis, every), initial=first, **options)
            errors = exact.values("squared_error")[0]
            expected, inside = errors[np.isin(exact.n_gradients, axis)], np.isin(axis, window)
            floor = float(expected[inside].mean())
            td_floor = floor if M == 1 else td_floor
            per_run = result.values("squared_error")[:, inside].mean(axis=1)
            smaller = smaller or [per_run]
            (to_td, se_td), (to_smaller, se_smaller) = (paired_ratio(per_run, smaller[k]) for k in (0, -1))
            smaller.append(per_run)
            common = {
                **cell["labels"],
                "theta_0": cell["theta_0"],
                "batch_size": M,
                "basis": find_basis(exact),
            }
            curves += make_curve_rows(common, result, np.isin(axis, grid), expected)
            floors.append(
                {
                    **common, "n_runs": result.n_runs, **average_runs(per_run), "exact": floor,
                    "to_td": to_td, "to_td_standard_error": se_td,
                    "to_smaller": to_smaller, "to_smaller_standard_error": se_smaller,
                    "n_diverged": int((result.diverged_at >= 0).sum()),
                    "reach": next(iter(exact.n_gradients[errors <= 2.0 * td_floor].tolist()), -1),
                    "n_gradients": n_gradients,
                }
            )  # fmt: skip
    return {"curves": table(curves), "floors": table(floors)}


def choose_checkpoints(settings: Settings, batch_size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the checkpoints at which the last updates are averaged, and those at which the curve is drawn.

    With t uniform, the mean error over the inner updates of an epoch equals the mean error of its output, so the ends
    of the epochs are enough.
    """
    end, last = settings["n_gradients"], settings["last_updates"]
    counted, stride = (last, _TD_STRIDE) if batch_size == 1 else (2 * last, 2 * batch_size)
    return np.arange(end - counted + stride, end + 1, stride), make_log_grid(end)


# Figures


def draw_convergence(where: dict[str, Any], axes: Axes, tables: Tables) -> None:
    """Draw a curve for each batch size."""
    for M in np.unique(tables["curves"]["batch_size"]):
        part = rows_where(tables["curves"], batch_size=M, **where)
        draw_means(axes, part, "TD" if M == 1 else f"VRTD, M = {M}")


def draw_by_batch_size(axes: Axes, whole: Table, series: Sequence[tuple[str, dict[str, Any]]], y_label: str) -> None:
    """Draw a mark with its interval for each series and batch size, and the expected value as a horizontal bar."""
    sizes = np.unique(whole["batch_size"])
    for k, (label, where) in enumerate(series):
        part = rows_where(whole, **where)
        x = np.arange(sizes.size) + 0.7 * ((k + 0.5) / len(series) - 0.5)
        draw_marks(axes, x, part["mean"], part["standard_error"], label)
        if "exact" in part:
            name = label_part(label, "expected")
            axes.plot(x, part["exact"], "_", markersize=10, color="black", markeredgewidth=0.8, label=name)
    ticks = ["1 (TD)" if M == 1 else str(M) for M in sizes]
    finish_axes(axes, "batch size M", y_label, log="y", small=False, ticks=ticks)


def draw_floors(axes: Axes, floors: Table, series: Sequence[tuple[str, dict[str, Any]]]) -> None:
    """Draw the errors averaged over the last updates by batch size."""
    draw_by_batch_size(axes, floors, series, "squared error, mean of the last updates")


# Comparisons


def falls(floors: Table, basis: Basis) -> list[NumberCheck]:
    """Check that each batch size has a smaller error than the one before it."""
    checks = []
    for small, large in pairwise(np.unique(floors["batch_size"])):
        for row, before in _pairs(floors, large, small):
            words = _condition(row), f"error at M = {large} / error at M = {small}"
            checks.append(_compare(row, before, "to_smaller", basis, words, 1.0))
    return checks


def improves(floors: Table, basis: Basis) -> list[NumberCheck]:
    """Check that each batch size has at most MUCH_SMALLER of TD's error."""
    checks = []
    for M in np.unique(floors["batch_size"])[1:]:
        for row, td in _pairs(floors, M, 1):
            words = f"M = {M}", f"error of VRTD / error of TD ({_condition(row)})"
            checks.append(_compare(row, td, "to_td", basis, words, MUCH_SMALLER))
    return checks


def _compare(row: Row, other: Row, column: str, basis: Basis, words: tuple[str, str], below: float) -> NumberCheck:
    """Compare the ratio of two rows' errors with a limit; a simulated ratio is stored in a column of the first row."""
    if basis == "exact":
        return NumberCheck(*words, row["exact"] / other["exact"], below=below)
    standard_error, n_runs = row[f"{column}_standard_error"], row["n_runs"]
    return NumberCheck(*words, row[column], standard_error, n_runs, below=below, basis="simulated")


def reduces(floors: Table, basis: Basis) -> list[NumberCheck]:
    """Check that the largest batch size has at most MUCH_SMALLER of TD's error.

    The others are tested beyond the claim.
    """
    largest = f"M = {floors['batch_size'].max()}"
    return [replace(each, stated=each.condition == largest) for each in improves(floors, basis)]


def slows(floors: Table) -> list[NumberCheck]:
    """Check that larger batches reach twice TD's floor with a delay of at most MUCH_SLOWER of the whole run.

    The stricter criterion, STRICTER, is tested beyond the claim.
    """
    checks = []
    for M in np.unique(floors["batch_size"])[1:]:
        for row, td in _pairs(floors, M, 1):
            if td["reach"] <= 0:  # the initial error is already below the threshold
                continue
            later = (row["reach"] - td["reach"]) / row["n_gradients"] if row["reach"] > 0 else np.inf
            counts = f"{row['reach']:,} against {td['reach']:,}" if row["reach"] > 0 else "never"
            quantity = f"pseudo-gradients to twice the error of TD: {counts}, as a share of the run ({_condition(row)})"
            check = NumberCheck(f"M = {M}", quantity, float(later), below=MUCH_SLOWER, basis=row["basis"])
            strict = f"M = {M}, with {STRICTER:g} of the run"
            checks += [check, replace(check, condition=strict, below=STRICTER, stated=False)]
    return checks


def agreement(tables: Tables) -> list[NumberCheck]:
    """Check that simulated errors agree with the exact ones, or are close to the approximate ones."""
    return [agrees(f"{_condition(row)}, M = {row['batch_size']}", row) for row in rows(tables["floors"])]


def _pairs(floors: Table, batch_size: int, other: int) -> list[tuple[Row, Row]]:
    parts = (rows(rows_where(floors, batch_size=M)) for M in (batch_size, other))
    return list(zip(*parts, strict=True))


def _condition(row: Row) -> str:
    return f"draw {row['mdp_seed']}, {row['features']} features, from {_START[row['theta_0']]}"


# Claims


def make_claims(
    experiment: str,
    figure: str,
    words: str,
    basis: Basis,
    judged: Callable[[Compare, Table], list[NumberCheck]] = lambda compare, floors: compare(floors),
) -> list[Claim]:
    """Make the paper's three claims on a figure: batches reduce the error, substantially, and are not much slower.

    `judged` applies a comparison to the floors that the paper reports, and to further ones beyond the claim.
    """
    criteria = {"much_smaller": MUCH_SMALLER, "much_slower": MUCH_SLOWER, "stricter": STRICTER}
    texts = read_texts("batch-sizes", {"figure": figure, "words": words, "basis": basis, **criteria})["claims"]
    tests = {
        "error-falls": lambda tables: judged(partial(falls, basis=basis), tables["floors"]),
        "substantially-reduced": lambda tables: judged(partial(reduces, basis=basis), tables["floors"]),
        "not-much-slower": lambda tables: slows(tables["floors"]),
    }
    return [
        make_claim(experiment, f"figure-{figure}-{name}", texts[name], ClaimTest(test, agreement))
        for name, test in tests.items()
    ]
