"""Stochastically controlled stochastic gradient (SCSG) for the saddle point of a data set.

An epoch of M rows::

    B <- a random subset of M rows, without replacement,   (g_theta, g_w) <- its mean gradients at the anchor
    N <- 1, 2, ... with P(N = k) = p (1 - p)^(k - 1),  p = 1 / (M + 1)
    N inner steps of SVRG from the anchor (`vrtd.algorithms.svrg`), each on any row of the data set

The end point of an epoch is the next anchor. An epoch computes M + N pseudo-gradients, 2 M + 1 on average.

N is drawn before the epoch begins, and the epoch is run only if it ends within the budget. So the value at a checkpoint
belongs to the last anchor with at most that many pseudo-gradients, counted exactly, and runs close epochs at different
counts.

The subset and the inner rows are independent, so the mean error of the anchor follows the full gradient and tends to
zero. The mean squared error falls to a floor, which is lower for larger M and zero if M is all rows.

Z. Peng, A. Touati, P. Vincent, D. Precup (2019), SVRG for policy evaluation with fewer gradient evaluations; the
distribution of N is the one in their program. L. Lei, M. I. Jordan (2017), Less than a single pass: stochastically
controlled stochastic gradient, AISTATS, give N - 1 this distribution.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from vrtd.algorithms._base.algorithm import Epoch, Sampling, Tuned
from vrtd.algorithms._base.anchor import AnchoredMethod
from vrtd.checks import check_exact_count
from vrtd.kernels.jit import kernel
from vrtd.kernels.random import geometric


@kernel
def scsg_length(params, options, state, stream, size, limit):
    """Draw N of the next epoch and count its end. If it would end after ``limit``, draw nothing and return 0."""
    before = stream[0]
    n = geometric(stream, size + 1.0)
    end = state.counts[2] + size + n
    if end <= limit:
        state.counts[2] = end
    else:  # also in a diverged run, where the count is NaN
        stream[0] = before
        n = 0
    return n


@dataclass(frozen=True)
class SCSG(AnchoredMethod):
    """SCSG on a data set: the gradient of a random subset, then a geometric number of inner steps.

    Parameters
    ----------
    step_size : float, default=0.1
        Step size alpha.
    step_size_w : float, default=0.1
        Step size beta of the second vector w.
    batch_size : int, default=100
        Number of rows in a batch. If the data set has fewer rows, all of them.

    Examples
    --------
    >>> SCSG(batch_size=100).epoch("dataset", n_rows=1000)[:3]
    (100, 101, 'fresh')
    """

    batch_size: int = 100

    name = "scsg"
    kernels = replace(AnchoredMethod.kernels, length=scsg_length)
    tuned = {**AnchoredMethod.tuned, "batch_size": Tuned((16, 64, 256))}

    def __post_init__(self) -> None:
        super().__post_init__()
        check_exact_count("batch_size", self.batch_size)

    def epoch(self, sampling: Sampling, n_rows: int = 0) -> Epoch:
        size = min(int(self.batch_size), n_rows)
        return Epoch(n_absorb=size, n_steps=size + 1, inner_samples="fresh", subset=True, random_length=True)
