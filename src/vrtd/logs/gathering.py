"""A whole log as a data set, for methods that come back to its rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from vrtd.checks import check_count, check_fraction
from vrtd.errors import DataError, InvalidInputError
from vrtd.features import as_features
from vrtd.logs.log import Chunk, Log, all_observations, checked_chunks
from vrtd.problems import Transitions


def data_set(log: Log, features: Any, discount: float, *, seed: int | None = 0) -> Transitions:
    """Read a whole log into memory, with features of its observations.

    Parameters
    ----------
    log : Log
        The log. Its weights are kept.
    features : Any
        Whatever `vrtd.Evaluator` takes as features.
    discount : float
        Discount in [0, 1] of every row but the terminated ones, which have discount 0.
    seed : int or None
        Seed of the shuffle of the rows, which makes batches of them alike. None keeps their order.

    Returns
    -------
    Transitions
        All rows of the log. When they are in order, `ends` marks the last row of each episode and segment. When they
        are shuffled, no row continues another one and `ends` is True everywhere.

    Examples
    --------
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
    check_fraction("discount", discount)
    if seed is not None:
        check_count("seed", seed, least=0)
    chunks: list[Chunk] = []
    n = 0
    for chunk in checked_chunks(log, is_over=False):
        chunk.check_finite(n)
        chunks.append(chunk.copy())  # the log may use its memory again
        n += chunk.n_rows
    if not n:
        raise DataError("a log must have rows to make a data set", "none", "record some")
    rows = Chunk.concatenate(chunks)
    bound = as_features(features).bind(all_observations([rows]))
    is_shuffled = seed is not None
    order = np.random.default_rng(seed).permutation(n) if is_shuffled else np.arange(n)
    return Transitions(
        bound(rows.observations)[order],
        rows.reward[order],
        bound(rows.successors)[order],
        np.where(rows.terminated, 0.0, discount)[order],
        None if rows.weight is None else rows.weight[order],
        rows.ends | is_shuffled,
    )
