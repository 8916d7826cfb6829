"""State of a run with O(d) work per row: a workspace, sums over blocks of rows, and a sample of the rows."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from vrtd.algorithms import VRTD, Algorithm, RichardsonTD
from vrtd.algorithms.richardson_td import extrapolation_weights
from vrtd.arrays import Floats
from vrtd.engine.stream import compile_epoch
from vrtd.estimator.block_totals import BlockTotals
from vrtd.estimator.learner import Loop
from vrtd.estimator.reservoir import Reservoir
from vrtd.kernels.random import ALGORITHM, make_streams

FIRST_BLOCK = 32  # rows


class LinearFit(NamedTuple):
    """State of a run; `learn_linearly` returns the next one."""

    algorithm: Algorithm  # with the current step
    lowers_step: bool
    scale: Floats | None  # (d,) features are divided by these; None if they are not scaled
    state: Floats  # the workspace
    seed: int
    reservoir: Reservoir
    mark: Floats  # the workspace after the first `n_marked` rows
    open: Floats  # (3, d) sums of iterates, gradients and features over the open block, up to the mark
    total_phi: Floats  # (2, d) sums of the features of all rows, and of those up to the mark
    batch_end: int  # the row before which the open batch ends; 0 if it has no end
    n_marked: int = 0
    n_rows: int = 0
    block: int = FIRST_BLOCK  # rows per block
    blocks: tuple[Floats, ...] = ()  # (3, d) sums over each block
    batch: int = 0  # the first row of the open batch
    #: Sums (3d + 1) over the runs on the partitions of a log, with the number of their rows, if there are several. Then
    #: no more rows are learned, and the workspace and the blocks are not in use.
    runs: BlockTotals | None = None
    loops: Loops | None = None  # compiled; not part of the state

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return len(self.open[0])

    @property
    def largest_step(self) -> float:
        """Largest step size of the algorithm."""
        return float(self.algorithm.largest_step_size or 0.0)

    @property
    def rows_left(self) -> int:
        """Number of rows to the next stop, which is the end of a block or of a batch."""
        to_block = self.block - self.n_rows % self.block
        return min(to_block, self.batch_end - self.n_rows) if self.batch_end else to_block


class Loops:
    """Compiled loops of an algorithm."""

    def __init__(self, algorithm: Algorithm, n_features: int, is_weighted: bool) -> None:
        if isinstance(algorithm, VRTD):
            self.absorb, self.finish = compile_epoch(with_mean(algorithm), is_weighted)
        else:
            self.online = Loop(algorithm, n_features, is_weighted)
            # The loop draws no random numbers.
            self.unused = make_streams(0, np.arange(1), ALGORITHM)[0], np.empty(n_features)


def with_mean(algorithm: VRTD) -> VRTD:
    """Return the algorithm with the mean of all iterates as output, whose pseudo-gradients sum to their change."""
    return replace(algorithm, output="average")


def sums_since(fit: LinearFit) -> Floats:
    """Return the sums (3, d) of iterates, pseudo-gradients and features since the mark."""
    algorithm, d, n = fit.algorithm, fit.n_features, fit.n_rows - fit.n_marked
    before, now, phi = fit.mark, fit.state, fit.total_phi[0] - fit.total_phi[1]
    if isinstance(algorithm, VRTD):
        return np.stack([n * now[:d], now[2 * d : 3 * d] - before[2 * d : 3 * d], phi])
    assert isinstance(algorithm, RichardsonTD)
    moved = now - before
    weights = extrapolation_weights(algorithm.levels)
    gradients = moved[:d] * weights[0]
    for m in range(1, algorithm.levels):
        gradients += (weights[m] / 2.0**m) * (moved[:d] + moved[(m + 1) * d : (m + 2) * d])
    return np.stack([moved[d : 2 * d], gradients * (2.0 ** (algorithm.levels - 1) / fit.largest_step), phi])


def mean_over(fit: LinearFit, n_dropped: int) -> tuple[Floats, int]:
    """Return the means (3, d) over all but the first `n_dropped` blocks, and the number of their rows.

    With several runs, they are those over all runs, whose first blocks are left out already.
    """
    if fit.runs is not None:
        return fit.runs.total[:-1].reshape(3, -1) / fit.runs.total[-1], int(fit.runs.total[-1])
    total = fit.open + sums_since(fit)
    for block in fit.blocks[n_dropped:]:
        total = total + block
    n = fit.n_rows - n_dropped * fit.block
    return total / n, n
