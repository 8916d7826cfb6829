"""A family of three algorithms: variance-reduced gradients for the saddle point of a data set (SVRG), and two variants
with growing batches. Their kernels are in `vrtd.algorithms._base.anchor`. An epoch takes the mean gradients
(g_theta, g_w) of a batch of rows at an anchor, and from there inner steps, each on one row i:

    theta <- theta - alpha (g_theta,i(w) - g_theta,i(w_anchor) + g_theta)
    w     <- w     + beta  (g_w,i(theta, w) - g_w,i(theta_anchor, w_anchor) + g_w).

Where it ends is the next anchor. With the batch of all rows in place the error of every inner step falls with the
distances to the solution and to the anchor, so the convergence is linear, to the data's own solution.

- SVRG: the batch is all rows, always. Inner rows are any.
- Batching SVRG: the batch is a random subset of the rows, without replacement, new in each epoch. It grows by a factor
  from epoch to epoch until it is all rows: early on, a rough gradient is good enough. Inner rows are any.
- Growing SCSG, a variant of this library: the batch is the next rows of the data set, in order and around, and grows in
  the same way. Inner rows are drawn from the batch, and the number of inner steps is uniform on 1, ..., N, where N is
  the rows of the batch times `steps_per_row`. That is equal in law to N steps of which a random iterate is returned,
  and all N are counted. Published SCSG has batches of fixed size, inner rows from all data and a geometric number of
  steps: `vrtd.algorithms.scsg`.

The updates are derived here from the gradients in `vrtd.algorithms._base.saddle`.

S. S. Du, J. Chen, L. Li, L. Xiao, D. Zhou (2017), Stochastic variance reduction methods for policy evaluation, ICML.
Z. Peng, A. Touati, P. Vincent, D. Precup (2019), SVRG for policy evaluation with fewer gradient evaluations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from vrtd.algorithms._base.algorithm import Epoch, Sampling, Tuned
from vrtd.algorithms._base.anchor import AnchoredMethod
from vrtd.algorithms._base.batches import check_batches, grow_batches
from vrtd.algorithms._base.saddle import SaddleParams
from vrtd.checks import check_exact_count


@dataclass(frozen=True)
class SVRG(AnchoredMethod):
    """The gradient of all rows at every anchor.

    >>> SVRG(n_steps=500).epoch("dataset", n_rows=1000).n_gradients
    1500
    """

    n_steps: Annotated[int | None, "inner steps an epoch; as many as rows if left out"] = None

    name = "svrg"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_exact_count("n_steps", 1 if self.n_steps is None else self.n_steps)

    def epoch(self, sampling: Sampling, n_rows: int = 0) -> Epoch:
        return Epoch(n_absorb=n_rows, n_steps=int(self.n_steps or n_rows), inner_samples="fresh")


@dataclass(frozen=True)
class BatchingSVRG(AnchoredMethod):
    """The gradient of a random subset that grows to all rows.

    >>> BatchingSVRG(batch_size=100, growth=3.0, n_steps=50).epoch("dataset", n_rows=1000).warmup
    ((100, 50), (300, 50), (900, 50))
    """

    n_steps: Annotated[int | None, "inner steps an epoch; as many as rows if left out"] = None
    batch_size: Annotated[int, "rows of the first batch"] = 100
    growth: Annotated[float, "of the batch, from epoch to epoch"] = 2.0

    name = "batching_svrg"
    tuned = {**AnchoredMethod.tuned, "batch_size": Tuned((16, 64, 256))}

    def __post_init__(self) -> None:
        super().__post_init__()
        check_exact_count("n_steps", 1 if self.n_steps is None else self.n_steps)
        check_batches(self.batch_size, self.growth)

    def epoch(self, sampling: Sampling, n_rows: int = 0) -> Epoch:
        n_steps = int(self.n_steps or n_rows)
        warmup = tuple((size, n_steps) for size in grow_batches(self.batch_size, self.growth, n_rows))
        return Epoch(n_rows, n_steps, "fresh", warmup=warmup, subset=True)


@dataclass(frozen=True)
class GrowingSCSG(AnchoredMethod):
    """Growing batches of consecutive rows, and a uniform number of inner steps on their own rows.

    >>> GrowingSCSG(batch_size=100).epoch("dataset", n_rows=1000).gradients_until(1)
    array(200)
    """

    batch_size: Annotated[int, "rows of the first batch"] = 100
    growth: Annotated[float, "of the batch, from epoch to epoch"] = 2.0
    steps_per_row: Annotated[int, "inner steps for each row of the batch at most: their number is random"] = 1

    name = "growing_scsg"
    tuned = {**AnchoredMethod.tuned, "batch_size": Tuned((16, 64, 256))}
    stops = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_batches(self.batch_size, self.growth)
        check_exact_count("steps_per_row", self.steps_per_row)

    def epoch(self, sampling: Sampling, n_rows: int = 0) -> Epoch:
        per_row = int(self.steps_per_row)
        warmup = tuple((size, size * per_row) for size in grow_batches(self.batch_size, self.growth, n_rows))
        return Epoch(n_rows, n_rows * per_row, "resample", warmup=warmup)

    def params(self) -> SaddleParams:
        return super().params()._replace(steps_per_row=int(self.steps_per_row))
