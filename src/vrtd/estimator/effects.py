"""Mean values along each variable, and the best and worst states, for observations with more than two numbers.

The mean value at a level of a variable is taken over observations of the log. A partial dependence, which sets one
number and keeps the others, would use observations that cannot occur if the numbers are correlated.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import Floats
from vrtd.estimator.evaluator import Evaluator
from vrtd.estimator.state_values import LogSummary, StateValues, free_name
from vrtd.features import Column
from vrtd.report.figure_data import as_plain
from vrtd.report.numbers import percent
from vrtd.sparse import is_sparse, no_rows, scale_rows, to_sparse
from vrtd.tables import Table

MOST_EFFECTS = 6
_MOST_NUMBERS = 64  # of an observation; single pixels of an image are not informative
_MOST_LEVELS = 12  # of a category; with more levels, only the most frequent ones are shown
_MOST_VALUES, _N_RANGES = 25, 12  # a number with more different values is divided into this many ranges
_BLOCK = 512  # observations whose features are in memory at once
_EXTREMES = 5  # number of best states, and of worst states


class Effect(NamedTuple):
    """The mean value by the level or the range of a variable."""

    name: str
    table: Table  # levels of the variable, or its means over ranges; value, low, high, n_rows


class _Variable(NamedTuple):
    """A variable of the observations, and groups of observations in which it has similar values."""

    name: str
    labels: NDArray[Any]  # (k,) the level, or the mean number, of each group
    groups: NDArray[np.int64]  # (n,) the group of each observation; k if it is in none


def value_effects(evaluator: Evaluator, log: LogSummary, level: float, names: Sequence[str]) -> list[Effect]:
    """Return the effects of the variables along which the value varies most, in decreasing order.

    `names` are the names of the numbers in an observation. The means are taken over the first observations of the log.
    """
    if len(names) > _MOST_NUMBERS:
        return []
    rows = log.beginning
    columns = _decode(log.split(rows), log, names)
    variables = [variable for column in columns if len((variable := _group(*column)).labels) > 1]
    d, is_wide = evaluator.features.n_features, evaluator.features.is_sparse
    sums: list[Any] = [(no_rows if is_wide else np.zeros)((len(variable.labels), d)) for variable in variables]
    theta, values = evaluator.theta_, np.empty(len(rows))
    for at in range(0, len(rows), _BLOCK):
        phi = evaluator.features(rows[at : at + _BLOCK]).astype(np.float64, copy=False)
        values[at : at + _BLOCK] = phi @ theta
        for k, variable in enumerate(variables):
            is_in = variable.groups[at : at + _BLOCK] == np.arange(len(variable.labels))[:, None]
            sums[k] = sums[k] + (to_sparse(is_in.astype(np.float64)) if is_wide else is_in) @ phi
    effects = [
        _value_effect(evaluator, variable, total, values, level)
        for variable, total in zip(variables, sums, strict=True)
    ]
    return sorted(effects, key=lambda effect: -np.ptp(effect.table["value"]))[:MOST_EFFECTS]


def extreme_states(valued: StateValues, log: LogSummary) -> Table:
    """Return the states with the largest and the smallest values, sorted by value, with their observations."""
    known = np.flatnonzero(valued.is_known)
    order = known[np.argsort(-valued.table["value"][known], kind="stable")]
    n_best, n_worst = min(_EXTREMES, (len(order) + 1) // 2), min(_EXTREMES, len(order) // 2)
    chosen = np.concatenate([order[:n_best], order[len(order) - n_worst :]])
    table = {"states": np.array(["best"] * n_best + ["worst"] * n_worst)}
    table |= dict(_decode([valued.table[name][chosen] for name in valued.names], log, valued.names))
    return table | {name: valued.table[name][chosen] for name in ("value", "low", "high")}


def list_states(valued: StateValues, log: LogSummary, level: float) -> dict[str, Any]:
    """Return the states with their observations and values as plain JSON, for a reader who chooses one."""
    columns = _decode([valued.table[name] for name in valued.names], log, valued.names)
    states = {
        "columns": [{"name": name, "values": as_plain(column)} for name, column in columns],
        "is_known": valued.is_known.tolist(),
        "level": percent(level),
    }
    names = {"value": "value", "low": "low", "high": "high", "rows": "n_rows"}
    return states | {name: as_plain(valued.table[column]) for name, column in names.items() if column in valued.table}


def _decode(numbers: Sequence[NDArray[Any]], log: LogSummary, names: Sequence[str]) -> list[tuple[str, NDArray[Any]]]:
    """Return (name, values) of each variable: levels of a category, text, or numbers with nan for missing ones."""
    columns = () if log.space is None else log.space.columns
    if sum(len(column.numbers) for column in columns) != len(names):
        columns = tuple(Column(name) for name in names)
    variables, first = [], 0
    for column in columns:
        own = numbers[first : first + len(column.numbers)]
        if column.levels:
            levels = np.array([*column.levels, "other"])
            variables.append((free_name(column.name), levels[np.argmax(own, axis=0)]))
        elif len(own) == 2:  # the second number flags missing values of the first
            variables.append((names[first], np.where(own[1], np.nan, own[0])))
        else:
            variables.append((names[first], own[0]))
        first += len(column.numbers)
    return variables


def _group(name: str, values: NDArray[Any]) -> _Variable:
    """Group equal values; divide a number with many values into ranges with about equally many observations."""
    labels, groups, counts = np.unique(values, return_inverse=True, return_counts=True)
    if values.dtype.kind == "U":
        is_frequent = np.argsort(np.argsort(-counts, kind="stable")) < _MOST_LEVELS
        places = np.where(is_frequent, np.cumsum(is_frequent) - 1, is_frequent.sum())
        return _Variable(name, labels[is_frequent], places[groups])
    is_number = ~np.isnan(labels)
    n_labels, n_rows = int(is_number.sum()), int(counts[is_number].sum())
    if n_labels <= _MOST_VALUES:
        return _Variable(name, labels[is_number], groups)  # nan is the last label
    # The range of a value follows from the number of observations below it, so that equal values stay together.
    ranges = np.unique((np.cumsum(counts) - counts)[is_number] * _N_RANGES // n_rows, return_inverse=True)[1]
    weights = counts[is_number]
    means = np.bincount(ranges, weights * labels[is_number]) / np.bincount(ranges, weights)
    return _Variable(name, means, np.append(ranges, len(means))[np.minimum(groups, n_labels)])


def _value_effect(evaluator: Evaluator, variable: _Variable, sums: Any, values: Floats, level: float) -> Effect:
    n = len(variable.labels)
    n_rows = np.bincount(variable.groups, minlength=n)[:n]
    phi = scale_rows(sums, 1.0 / n_rows) if is_sparse(sums) else sums / n_rows[:, None]
    if evaluator.why_no_interval() is None:
        mean, low, high = evaluator.spread().of(phi, level)  # a mean of values is also linear in theta
        chance = NormalDist().inv_cdf((1.0 + level) / 2.0) * _standard_errors(variable.groups, values)[:n]
        half = np.hypot((high - low) / 2.0, chance)
    else:
        mean, half = phi @ evaluator.theta_, np.full(n, np.nan)
    columns = {"value": mean, "low": mean - half, "high": mean + half, "n_rows": n_rows}
    return Effect(variable.name, {variable.name: variable.labels} | columns)


def _standard_errors(groups: NDArray[np.int64], values: Floats) -> Floats:
    """Return the standard error of each group mean due to the sampling of its observations.

    Consecutive observations of a group form one cluster, because they are correlated. The error of a group with a
    single cluster is nan.
    """
    sizes = np.bincount(groups)
    distances = values - (np.bincount(groups, values) / np.maximum(sizes, 1))[groups]
    starts = np.flatnonzero(np.diff(groups, prepend=-1))
    clusters, of = np.add.reduceat(distances, starts), groups[starts]
    n_clusters = np.bincount(of)
    with np.errstate(invalid="ignore", divide="ignore"):
        variances = np.bincount(of, clusters**2) * n_clusters / (n_clusters - 1.0)
        return np.asarray(np.where(n_clusters > 1, np.sqrt(variances) / sizes, np.nan))
