"""SVRG for the saddle point of a data set, and two variants with growing batches.

Their kernels are in `vrtd.algorithms._base.anchor`. An epoch computes the mean gradients (g_theta, g_w) of a batch of
rows at an anchor. From there it takes inner steps, each on one row i::

    theta <- theta - alpha (g_theta,i(w) - g_theta,i(w_anchor) + g_theta)
    w     <- w     + beta  (g_w,i(theta, w) - g_w,i(theta_anchor, w_anchor) + g_w)

The end point is the next anchor. If the batch is all rows, the error of every inner step falls with the distances to
the solution and to the anchor, so convergence to the solution of the data set is linear.

- SVRG: the batch is always all rows. Inner steps use any row.
- Batching SVRG: the batch is a new random subset of the rows in each epoch, without replacement. It grows by a factor
  from epoch to epoch until it is all rows: in the first epochs, a rough gradient is good enough. Inner steps use any
  row.
- Growing SCSG, a variant of this library: the batch is the next rows of the data set, in cyclic order, and grows in the
  same way. Inner steps use rows of the batch, and their number is uniform on 1, ..., N, where N is the number of rows
  of the batch times ``steps_per_row``. This has the same distribution as N steps of which a random iterate is returned,
  and all N are counted. Published SCSG has batches of fixed size, inner rows from all data and a geometric number of
  steps: `vrtd.algorithms.scsg`.

The updates are derived here from the gradients in `vrtd.algorithms._base.saddle`.

S. S. Du, J. Chen, L. Li, L. Xiao, D. Zhou (2017), Stochastic variance reduction methods for policy evaluation, ICML.
Z. Peng, A. Touati, P. Vincent, D. Precup (2019), SVRG for policy evaluation with fewer gradient evaluations.
"""

from __future__ import annotations

from dataclasses import dataclass

from vrtd.algorithms._base.algorithm import Epoch, Sampling, Tuned
from vrtd.algorithms._base.anchor import AnchoredMethod
from vrtd.algorithms._base.batches import check_batches, grow_batches
from vrtd.algorithms._base.saddle import SaddleParams
from vrtd.checks import check_exact_count


@dataclass(frozen=True)
class SVRG(AnchoredMethod):
    """SVRG on a data set: the gradient of all rows at every anchor, then inner steps on single rows.

    It converges linearly to the least-squares solution of the data set.

    Parameters
    ----------
    step_size : float, default=0.1
        Step size alpha.
    step_size_w : float, default=0.1
        Step size beta of the second vector w.
    n_steps : int or None, default=None
        Number of inner steps per epoch. None means the number of rows of the data set.

    Examples
    --------
    >>> SVRG(n_steps=500).epoch("dataset", n_rows=1000).n_gradients
    1500
    """

    n_steps: int | None = None

    name = "svrg"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_exact_count("n_steps", 1 if self.n_steps is None else self.n_steps)

    def epoch(self, sampling: Sampling, n_rows: int = 0) -> Epoch:
        return Epoch(n_absorb=n_rows, n_steps=int(self.n_steps or n_rows), inner_samples="fresh")


@dataclass(frozen=True)
class BatchingSVRG(AnchoredMethod):
    """SVRG on a data set, with the gradient of a random subset that grows to all rows.

    Parameters
    ----------
    step_size : float, default=0.1
        Step size alpha.
    step_size_w : float, default=0.1
        Step size beta of the second vector w.
    n_steps : int or None, default=None
        Number of inner steps per epoch. None means the number of rows of the data set.
    batch_size : int, default=100
        Number of rows in the first batch.
    growth : float, default=2.0
        Growth factor of the batch from epoch to epoch.

    Examples
    --------
    >>> BatchingSVRG(batch_size=100, growth=3.0, n_steps=50).epoch("dataset", n_rows=1000).warmup
    ((100, 50), (300, 50), (900, 50))
    """

    n_steps: int | None = None
    batch_size: int = 100
    growth: float = 2.0

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
    """SCSG with growing batches, on a data set.

    Batches are consecutive rows. The number of inner steps is uniform, and each uses a row of the batch. This is a
    variant of this library.

    Parameters
    ----------
    step_size : float, default=0.1
        Step size alpha.
    step_size_w : float, default=0.1
        Step size beta of the second vector w.
    batch_size : int, default=100
        Number of rows in the first batch.
    growth : float, default=2.0
        Growth factor of the batch from epoch to epoch.
    steps_per_row : int, default=1
        Largest number of inner steps per row of the batch.

    Examples
    --------
    >>> GrowingSCSG(batch_size=100).epoch("dataset", n_rows=1000).gradients_until(1)
    array(200)
    """

    batch_size: int = 100
    growth: float = 2.0
    steps_per_row: int = 1

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
