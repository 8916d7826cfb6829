"""Orders as slopes on logarithmic scales: between neighbours for computed values, fitted for simulated ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import inf, log
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from vrtd.arrays import Floats
from vrtd.paper.table_1.floors import BETWEEN, LARGE_STEPS, Rows, classify_epochs
from vrtd.paper.table_1.settings import GAMMAS, MIXED, RANDOM

# The power of log(1/eps) in Table 1's costs, by sampling and method.
LOGARITHMS = {("iid", "TD"): 1, ("iid", "VRTD"): 1, ("markov", "TD"): 2, ("markov", "VRTD"): 1}
SMALL_TARGET = 1e-3  # orders in eps are tested up to this target, below which a few long epochs are best for VRTD
MODERATE_TARGETS = f"eps >= {SMALL_TARGET:g}"

Row = dict[str, Any]
_LABELS = ("problem", "sampling", "method", "against", "range", "basis")
_VARYING = (("alpha", "step_size", "batch_size"), ("M", "batch_size", "step_size"))  # name, varied setting, fixed one


def compute_local_slopes(x: ArrayLike, y: ArrayLike) -> Floats:
    """Compute the slopes d log|y| / d log x between neighbours.

    >>> compute_local_slopes([1.0, 10.0, 100.0], [5.0, 0.5, 0.05]).round(12).tolist()
    [-1.0, -1.0]
    """
    return np.asarray(np.diff(np.log(np.abs(y))) / np.diff(np.log(x)), dtype=np.float64)


def fit_slope(x: Sequence[float], y: Sequence[float], standard_error: Sequence[float]) -> tuple[float, float]:
    """Fit the slope of log y over log x by weighted least squares; return it and its standard error.

    >>> round(fit_slope([1.0, 10.0], [5.0, 50.0], [0.1, 1.0])[0], 12)
    1.0
    """
    at, weight = np.log(x), (np.asarray(y) / np.asarray(standard_error)) ** 2
    centred = at - weight @ at / weight.sum()
    spread = float(weight @ centred**2)
    return float(weight @ (centred * np.log(y))) / spread, spread**-0.5


def compute_slopes(floors: Rows, variances: Rows, biases: Rows, arrivals: Rows, costs: Rows, simulated: Rows) -> Rows:
    """Make one row per line of Table 1 and range, with the slopes from `low` to `high`.

    The row of a fit also has its `standard_error` and `n_runs`.
    """
    return [
        *_exact("floor", "floor", floors),
        *_exact("variance term", "value", variances),
        *_exact("E xi", "value", _where(biases, quantity="E xi")),
        *_exact("|E u|", "value", _where(biases, quantity="|E u|")),
        *_arrivals(arrivals),
        *_costs(costs),
        *_simulated(_where(simulated, kind="floor")),
    ]


def _exact(quantity: str, column: str, rows: Rows) -> Iterator[Row]:
    """Compute slopes in the step and in the batch size, each with the other fixed."""
    for against, varies, fixed in _VARYING:
        for group in _group(_where(rows, against=against), *_LABELS, fixed):
            if group[0]["range"] not in (BETWEEN, LARGE_STEPS) and len(group) > 1:
                yield _row(quantity, group[0], _column(group, varies), _column(group, column))


def _arrivals(rows: Rows) -> Iterator[Row]:
    for group in _group(rows, "problem"):
        steps = _column(group, "step_size")
        labels = {"sampling": "iid", "method": "TD", "against": "alpha", "basis": "exact"}
        labels |= {"problem": group[0]["problem"], "range": f"alpha <= {max(steps):g}"}
        yield _row("updates to twice the floor", labels, steps, _column(group, "n_gradients"))


def _costs(rows: Rows) -> Iterator[Row]:
    rows = [row | {"problem": row["family"]} for row in rows]
    for group in _group(_where(rows, problem=RANDOM), "sampling", "method", "basis"):
        power = LOGARITHMS[group[0]["sampling"], group[0]["method"]]
        rest = [row["cost"] / log(1.0 / row["target"]) ** power for row in group]
        labels = group[0] | {"against": "1/eps", "range": "all eps"}
        name = f"cost / log{'^2' if power == 2 else ''}(1/eps)"
        yield _row(name, labels, [1.0 / row["target"] for row in group], rest)
    for family in (MIXED, GAMMAS):
        for group in _group(_where(rows, problem=family), "sampling", "method", "basis", "target"):
            labels = group[0] | {"against": "1/lambda_A", "range": f"eps = {group[0]['target']:g}"}
            yield _row("cost", labels, [1.0 / row["lambda_A"] for row in group], _column(group, "cost"))
    for sampling in ("iid", "markov"):
        td, vrtd = (_where(rows, problem=RANDOM, sampling=sampling, method=method) for method in ("TD", "VRTD"))
        ratios = {a["target"]: a["cost"] / b["cost"] for a, b in zip(td, vrtd, strict=True)}
        for smaller, larger in ((SMALL_TARGET, inf), (0.0, SMALL_TARGET)):
            part = {eps: ratio for eps, ratio in ratios.items() if smaller <= eps <= larger}
            name = MODERATE_TARGETS if smaller > 0.0 else f"eps from {max(part):g} to {min(part):g}"
            labels = vrtd[0] | {"method": "TD / VRTD", "against": "log(1/eps)", "range": name}
            yield _row("cost", labels, [log(1.0 / eps) for eps in part], list(part.values()))


def _simulated(rows: Rows) -> Iterator[Row]:
    """Fit slopes in the step for each batch size, and in the batch size where a step has several in one range."""
    rows = [row | {"range": classify_epochs(row["alpha_lambda_M"])} for row in rows]
    for against, varies, fixed in _VARYING:
        for group in _group(rows, "problem", "sampling", "method", "range", fixed):
            first, x, y = group[0], _column(group, varies), _column(group, "mean")
            if len(set(x)) > 1 and first["range"] != BETWEEN:
                slope, error = fit_slope(x, y, _column(group, "standard_error"))
                fit = {"low": slope, "high": slope, "standard_error": error, "n_runs": first["n_runs"]}
                where = f"{first['range']}, {fixed} {first[fixed]:g}"
                yield _row("floor", first | {"against": against, "range": where, "basis": "simulated"}, x, y) | fit


def _row(quantity: str, labels: Row, x: Sequence[float], y: Sequence[float]) -> Row:
    order = np.argsort(x)
    local = compute_local_slopes(np.asarray(x)[order], np.asarray(y)[order])
    ends = {"low": float(local.min()), "high": float(local.max()), "standard_error": 0.0, "n_runs": 0}
    shown = {key: labels[key] for key in _LABELS if key != "basis"}
    return {"quantity": quantity, **shown, "n_points": len(x), **ends, "basis": labels["basis"]}


def _where(rows: Rows, **values: Any) -> Rows:
    return [row for row in rows if values.items() <= row.items()]


def _column(rows: Rows, name: str) -> list[float]:
    return [row[name] for row in rows]


def _group(rows: Rows, *keys: str) -> Iterable[Rows]:
    """Group rows by their values in some columns."""
    groups: dict[tuple[Any, ...], Rows] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return groups.values()
