"""A whole log as a data set, for methods that come back to its rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from vrtd.checks import check_count, check_fraction
from vrtd.errors import DataError, InvalidInputError
from vrtd.features import as_features
from vrtd.logs.log import Chunk, Log
from vrtd.problems import DataSet

__all__ = ["data_set"]

_COLUMNS = ("observations", "next_observations", "rewards", "terminated")


def data_set(log: Log, features: Any, gamma: float, *, seed: int | None = 0) -> DataSet:
    """All rows of the log, in memory, with features of their observations: whatever `vrtd.Evaluator` takes as features.

    A terminated row has discount 0, all others have `gamma`; importance ratios are kept. Rows are shuffled with `seed`,
    so that batches of them are alike; None keeps their order.

    >>> from vrtd.logs import from_arrays
    >>> log = from_arrays([[1.0], [2.0], [3.0]], [1.0, 0.0, 1.0], terminated=[False, False, True])
    >>> data = data_set(log, None, 0.9, seed=None)
    >>> data.phi_next.ravel()[:2], data.discount
    (array([2., 3.]), array([0.9, 0.9, 0. ]))
    """
    if not isinstance(log, Log):
        raise InvalidInputError(
            "log must be a Log", type(log).__name__, "make one with vrtd.logs: from_arrays, read, ..."
        )
    check_fraction("gamma", gamma)
    if seed is not None:
        check_count("seed", seed, least=0)
    columns: dict[str, list[Any]] = {name: [] for name in (*_COLUMNS, "weight")}
    n = 0
    for chunk in log.chunks():
        _check_rows(chunk, n)
        for name in _COLUMNS:
            columns[name].append(np.array(getattr(chunk, name)))  # the log may use its memory again
        columns["weight"].append(np.ones(len(chunk.rewards)) if chunk.weight is None else np.array(chunk.weight))
        n += len(chunk.rewards)
    if not n:
        raise DataError("a log must have rows to make a data set", "none", "record some")
    observations, successors, rewards, terminated, weight = (np.concatenate(parts) for parts in columns.values())
    successors[terminated] = observations[terminated]  # a terminal state need not be one that features know
    bound = as_features(features).bind(np.concatenate([observations, successors[~terminated]]))
    order = np.arange(n) if seed is None else np.random.default_rng(seed).permutation(n)
    return DataSet(
        bound(observations)[order],
        rewards[order],
        bound(successors)[order],
        np.where(terminated, 0.0, gamma)[order],
        weight[order],
    )


def _check_rows(chunk: Chunk, n_before: int) -> None:
    """Here, where it is still known where a row comes from."""
    n = len(chunk.rewards)
    for field in ("observations", "next_observations", "rewards", "weight"):
        values = getattr(chunk, field)
        if values is None:
            continue
        bad = ~np.isfinite(values.reshape(n, -1)).all(axis=1)
        if field == "next_observations":
            bad &= ~chunk.terminated
        must = "every number of a log must be finite"
        if field == "weight" and not bad.any():
            bad, must = values < 0.0, "importance ratios must not be negative"
        if bad.any():
            row = int(np.argmax(bad))
            where = f"row {n_before + row} of the log" if chunk.locate is None else chunk.locate(field, row)
            raise DataError(must, f"another in {field}: {where}", "repair or drop it")
