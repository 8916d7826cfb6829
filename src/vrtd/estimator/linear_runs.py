"""Runs with O(d) work per row on the partitions of a log, whose extrapolated estimates are averaged.

All runs start from the same parameters with the same settings. Each leaves out its first blocks of rows, because of the
initial transient. The sums of iterates, pseudo-gradients and features over the other blocks are added, so that one
correction serves the mean of all runs. The runs are also the blocks for intervals.
"""

from __future__ import annotations

import numpy as np

from vrtd.estimator.block_totals import BlockTotals
from vrtd.estimator.linear_estimate import Inverse, choose_blocks
from vrtd.estimator.linear_settings import kept_rows
from vrtd.estimator.linear_state import LinearFit, mean_over
from vrtd.estimator.reservoir import join, thin

_MOST_RUNS = 64  # then runs are merged in pairs
_LEAST_KEPT = 16  # rows of the reservoir of a run


def close_run(fit: LinearFit, n_rows: int, n_partitions: int) -> LinearFit:
    """Return a complete run on a partition of `n_rows` rows as a sum, in which no more rows are learned."""
    (means, n), d = mean_over(fit, choose_blocks(fit, Inverse(fit))[0]), fit.n_features
    runs = BlockTotals(np.append(n * means, float(n)), _MOST_RUNS).thin(n_rows, 1)
    kept = max(_LEAST_KEPT, -(-2 * fit.reservoir.capacity // n_partitions))
    nothing = np.zeros((3, d))
    return fit._replace(reservoir=thin(fit.reservoir, kept), runs=runs, blocks=(), open=nothing, loops=None)


def join_runs(fit: LinearFit, n_rows: int, other: LinearFit, n_others: int) -> LinearFit:
    """Return the sum of the runs on the first `n_rows` rows of a log and on the `n_others` rows that follow."""
    assert fit.runs is not None
    assert other.runs is not None
    return fit._replace(
        runs=fit.runs.join(n_rows, other.runs, n_others),
        reservoir=join(fit.reservoir, other.reservoir, kept_rows(fit.n_features)),
        n_rows=fit.n_rows + other.n_rows,
        total_phi=fit.total_phi + other.total_phi,
    )
