"""Orders as slopes on logarithmic scales: between neighbours where values are exact, else a fit with its error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf, log
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from vrtd.arrays import Floats
from vrtd.paper.table_1.floors import BETWEEN, LARGE_STEPS, Rows, epoch
from vrtd.paper.table_1.sweep import GAMMAS, MIXED, RANDOM

# The power of log(1/eps) in Table 1's costs, by sampling and method.
LOGARITHMS = {("iid", "TD"): 1, ("iid", "VRTD"): 1, ("markov", "TD"): 2, ("markov", "VRTD"): 1}
SMALL_TARGET = 1e-3  # an order in eps is about targets of at most this; here few long epochs begin to be best for VRTD
MODERATE_TARGETS = f"eps >= {SMALL_TARGET:g}"


def local_slopes(x: ArrayLike, y: ArrayLike) -> Floats:
    """d log|y| / d log x between neighbours.

    >>> local_slopes([1.0, 10.0, 100.0], [5.0, 0.5, 0.05]).round(12).tolist()
    [-1.0, -1.0]
    """
    return np.asarray(np.diff(np.log(np.abs(y))) / np.diff(np.log(x)), dtype=np.float64)


def fitted_slope(x: Sequence[float], y: Sequence[float], standard_error: Sequence[float]) -> tuple[float, float]:
    """The slope of log y over log x by weighted least squares, and its standard error.

    >>> fitted_slope([1.0, 10.0], [5.0, 50.0], [0.1, 1.0])[0]
    1.0
    """
    at, weight = np.log(x), (np.asarray(y) / np.asarray(standard_error)) ** 2
    centred = at - weight @ at / weight.sum()
    spread = float(weight @ centred**2)
    return float(weight @ (centred * np.log(y))) / spread, spread**-0.5


def slopes(floors: Rows, variances: Rows, biases: Rows, arrivals: Rows, costs: Rows, simulated: Rows) -> Rows:
    """One row a line of Table 1 and range: `low` to `high`, and `standard_error` with `n_runs` of a fit."""
    return [
        *_exact("floor", "floor", floors),
        *_exact("variance term", "value", variances),
        *(
            row
            for quantity in ("E xi", "|E u|")
            for row in _exact(quantity, "value", _where(biases, quantity=quantity))
        ),
        *_arrivals(arrivals),
        *_costs(costs),
        *_simulated(_where(simulated, kind="floor")),
    ]


def _exact(quantity: str, column: str, rows: Rows) -> Iterable[dict[str, Any]]:
    """Over what varies, everything else being fixed."""
    keys = ("problem", "sampling", "method", "against", "range", "basis")
    for against, varies, fixed in (("alpha", "step_size", "batch_size"), ("M", "batch_size", "step_size")):
        for (*key, _), group in _grouped(_where(rows, against=against), (*keys, fixed)).items():
            common = dict(zip(keys, key, strict=True))
            if common["range"] not in (BETWEEN, LARGE_STEPS) and len(group) > 1:
                yield _row(quantity, common, [row[varies] for row in group], [row[column] for row in group])


def _arrivals(rows: Rows) -> Iterable[dict[str, Any]]:
    for (problem,), group in _grouped(rows, ("problem",)).items():
        x, y = [row["step_size"] for row in group], [row["n_gradients"] for row in group]
        common = {"problem": problem, "sampling": "iid", "method": "TD", "against": "alpha", "basis": "exact"}
        yield _row("updates to twice the floor", common | {"range": f"alpha <= {max(x):g}"}, x, y)


def _costs(rows: Rows) -> Iterable[dict[str, Any]]:
    keys = ("family", "sampling", "method", "basis")
    for (family, sampling, method, basis), group in _grouped(_where(rows, family=RANDOM), keys).items():
        power = LOGARITHMS[sampling, method]
        common = {"problem": family, "sampling": sampling, "method": method, "against": "1/eps", "basis": basis}
        rest = [row["cost"] / log(1.0 / row["target"]) ** power for row in group]
        name = f"cost / log{'^2' if power == 2 else ''}(1/eps)"
        yield _row(name, common | {"range": "all eps"}, [1.0 / row["target"] for row in group], rest)
    for family in (MIXED, GAMMAS):
        for (sampling, method, basis, target), group in _grouped(
            _where(rows, family=family), (*keys[1:], "target")
        ).items():
            common = {"problem": family, "sampling": sampling, "method": method, "against": "1/lambda_A"}
            common |= {"range": f"eps = {target:g}", "basis": basis}
            yield _row("cost", common, [1.0 / row["lambda_A"] for row in group], [row["cost"] for row in group])
    for sampling in ("iid", "markov"):
        td, vrtd = (_where(rows, family=RANDOM, sampling=sampling, method=method) for method in ("TD", "VRTD"))
        for smaller, larger in ((SMALL_TARGET, inf), (0.0, SMALL_TARGET)):
            pairs = [(a, b) for a, b in zip(td, vrtd, strict=True) if smaller <= a["target"] <= larger]
            ends = [pair[0]["target"] for pair in pairs]
            common = {"problem": RANDOM, "sampling": sampling, "method": "TD / VRTD", "against": "log(1/eps)"}
            name = MODERATE_TARGETS if smaller > 0.0 else f"eps from {ends[0]:g} to {ends[-1]:g}"
            common |= {"range": name, "basis": vrtd[0]["basis"]}
            yield _row("cost", common, [log(1.0 / eps) for eps in ends], [a["cost"] / b["cost"] for a, b in pairs])


def _simulated(rows: Rows) -> Iterable[dict[str, Any]]:
    """Over steps at each batch size; over batch sizes at the step that has several of one range."""
    keys = ("problem", "sampling", "method")
    rows = [row | {"range": epoch(row["alpha_lambda_M"])} for row in rows]
    for against, varies, fixed in (("alpha", "step_size", "batch_size"), ("M", "batch_size", "step_size")):
        for (*key, where, at), group in _grouped(rows, (*keys, "range", fixed)).items():
            several = len({row[varies] for row in group}) > 1
            if several and where != BETWEEN:
                x, y, se = ([row[name] for row in group] for name in (varies, "mean", "standard_error"))
                slope, error = fitted_slope(x, y, se)
                common = dict(zip(keys, key, strict=True)) | {"against": against, "basis": "simulated"}
                common["range"] = f"{where}, {fixed} {at:g}"
                yield _row("floor", common, x, y) | {
                    "low": slope, "high": slope, "standard_error": error, "n_runs": group[0]["n_runs"],
                }  # fmt: skip


def _row(quantity: str, common: dict[str, Any], x: Sequence[float], y: Sequence[float]) -> dict[str, Any]:
    order = np.argsort(x)
    local = local_slopes(np.asarray(x)[order], np.asarray(y)[order])
    return {
        "quantity": quantity,
        **{key: common[key] for key in ("problem", "sampling", "method", "against", "range")},
        "n_points": len(x), "low": float(local.min()), "high": float(local.max()), "standard_error": 0.0, "n_runs": 0,
        "basis": common["basis"],
    }  # fmt: skip


def _where(rows: Rows, **values: Any) -> Rows:
    return [row for row in rows if all(row[key] == value for key, value in values.items())]


def _grouped(rows: Rows, keys: Sequence[str]) -> dict[tuple[Any, ...], Rows]:
    groups: dict[tuple[Any, ...], Rows] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return groups
