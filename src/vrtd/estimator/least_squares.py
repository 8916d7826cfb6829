"""The closed form (LSTD): sums of A_x and b_x over all rows, and over blocks of rows for the spread of its solution.

S. J. Bradtke, A. G. Barto (1996), Linear least-squares algorithms for temporal difference learning, Machine Learning.
With H = -A^-1 and g_x at the solution, theta - theta_star is the mean of H g_x to first order, so the covariance of the
solution is that of this mean: estimated by the means over blocks that outlast the correlation (batch means).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from vrtd.checks import warn_if_ill_conditioned
from vrtd.errors import InvalidInputError, SingularSystemError
from vrtd.estimator.rows import Batches, Rows
from vrtd.kernels.jit import compiled
from vrtd.theory.rows import block_correlation, block_covariances

__all__ = ["LeastSquares", "Solution", "solve_scaled"]

Floats = NDArray[np.float64]

_FIRST_BLOCK = 16  # rows; doubled whenever the blocks are full
_MOST_BLOCKS, _LEAST_BLOCKS = 64, 20
_MOST_BYTES = 1 << 26  # of all blocks
_LEAST_SEEN = 5  # blocks in which a feature must not be 0, for an interval
_PIECE = 1024  # rows that are multiplied at once
_SPARSE = 0.1  # below this share of numbers that are not 0, zeros are skipped


@dataclass(frozen=True, eq=False)
class Solution:
    """theta with what its uncertainty needs."""

    theta: Floats  # (d,)
    n_rows: int
    seen: NDArray[np.bool_]  # (d,) features that were not 0 on every row; the others keep theta_0
    rare: NDArray[np.bool_]  # (d,) features that were not 0 in too few blocks for their noise to be known
    influence: Floats | None  # (B, d) block means of H g_x; None where rows or memory do not suffice for blocks
    phi: Floats  # (B, d) block means of the features
    squares: Floats  # (d,) mean squares of the features
    block: int  # rows of a block
    degrees: int  # of freedom
    condition_number: float  # of A on the features seen, each divided by its root mean square

    @property
    def doubt(self) -> str | None:
        """Why the covariance may be too small: adjacent blocks are correlated by more than three standard errors."""
        if self.influence is None:
            return None
        if block_correlation(self.influence, np.diag(self.squares)) <= 3.0 / np.sqrt(len(self.influence)):
            return None
        return f"the rows are correlated over more than the {self.block:,} rows of a block"

    def covariance(self) -> Floats:
        """(d, d) of theta."""
        if self.influence is None:
            raise InvalidInputError(
                f"an interval of the closed form needs {_LEAST_BLOCKS} blocks of rows and at most "
                f"{_most_features()} features",
                f"{self.n_rows} rows and {self.theta.size} features",
                "bring more rows, or fewer features",
            )
        return block_covariances(self.influence)[0]


class LeastSquares:
    """Sums over a stream of rows, equal in every bit however it is split."""

    def __init__(self, discount: float, theta_0: Floats) -> None:
        d = theta_0.size
        self._discount, self._theta_0 = discount, theta_0
        self._squares, self._sum_phi = np.zeros(d), np.zeros(d)
        most = _MOST_BYTES // (8 * d * (d + 1)) // 2 * 2
        self._most_blocks = min(_MOST_BLOCKS, most) if most >= _LEAST_BLOCKS else 0
        self._blocks: list[Floats] = []  # (d, d + 1) sums of A_x and b_x over `_block` rows each
        self._open = np.zeros((d, d + 1))
        self._marks: list[Floats] = []  # (2, d) sums of phi^2 and phi up to the end of each block
        self._n_open, self._block = 0, _FIRST_BLOCK if self._most_blocks else 1 << 62
        self._batches = Batches(min(self._block, _PIECE))

    @np.errstate(over="ignore", invalid="ignore")  # what is too large to be squared is refused where it is used
    def feed(self, rows: Rows) -> None:
        """Add rows; they must be finite."""
        at, n = 0, len(rows.reward)
        while at < n:
            # The size of pieces changes only between blocks, when nothing waits.
            last = min(n, at + self._block - self._n_open - self._batches.n_waiting)
            for batch, count in self._batches.cut(rows.part(at, last)):
                size = self._batches.size
                for k in range(count):
                    piece = batch.part(k * size, (k + 1) * size)
                    _accumulate(piece, self._discount, self._open, self._squares, self._sum_phi)
                    self._n_open += size
            if self._n_open == self._block:
                self._close_block()
            at = last

    @property
    def n_rows(self) -> int:
        return self._n_summed + self._batches.n_waiting

    @property
    def _n_summed(self) -> int:
        return len(self._blocks) * self._block + self._n_open

    def _close_block(self) -> None:
        self._blocks.append(self._open)
        self._marks.append(np.stack([self._squares, self._sum_phi]))
        self._open, self._n_open = np.zeros_like(self._open), 0
        if len(self._blocks) == self._most_blocks:
            self._blocks = [a + b for a, b in zip(self._blocks[::2], self._blocks[1::2], strict=True)]
            self._marks = self._marks[1::2]
            self._block *= 2
            self._batches = Batches(min(self._block, _PIECE))

    @np.errstate(over="ignore", invalid="ignore")
    def solve(self) -> Solution:
        """Of A theta + b = 0 on all rows so far."""
        total, squares = self._open.copy(), self._squares.copy()
        for block in self._blocks:
            total += block
        waiting = self._batches.waiting
        if waiting is not None:
            _accumulate(waiting, self._discount, total, squares, np.zeros_like(squares))
        d = len(squares)
        seen = squares > 0.0
        theta = self._theta_0.copy()
        if not seen.any():
            raise SingularSystemError("some feature must not be 0 on every row", "none", "bring other features")
        n = max(self.n_rows, 1)
        A = total[np.ix_(seen, np.append(seen, False))] / n
        b = (total[:, d] + total[:, :d] @ np.where(seen, 0.0, theta))[seen] / n
        finite = np.isfinite(A).all() and np.isfinite(b).all()
        size = np.sqrt(squares[seen] / n)
        condition = float(np.linalg.cond(A / np.outer(size, size))) if finite else np.inf
        if not condition * len(A) * np.finfo(np.float64).eps < 1.0:
            raise SingularSystemError(
                "the rows must determine the parameters: A must be invertible on the features that were seen",
                f"condition number {condition:.3g} of {len(A)} features from {self.n_rows} rows",
                "remove dependent features, bring more rows, or scale what is huge",
            )
        warn_if_ill_conditioned(condition, stacklevel=3)
        theta[seen] = -solve_scaled(A, b, size)
        sums = np.diff(np.array([np.zeros((2, d)), *self._marks]), axis=0)
        rare = (sums[:, 0] > 0.0).sum(axis=0) < _LEAST_SEEN
        influence = None
        if len(self._blocks) >= _LEAST_BLOCKS:
            extended = np.append(theta, 1.0)
            g = np.array([(block @ extended)[seen] / self._block for block in self._blocks])
            influence = np.zeros((len(g), d))
            influence[:, seen] = -solve_scaled(A, g.T, size).T
        phi = sums[:, 1] / self._block
        return Solution(
            theta, self.n_rows, seen, rare, influence, phi, squares / n, self._block, len(self._blocks) - 1, condition
        )  # fmt: skip

    def stored(self) -> dict[str, Any]:
        """Everything that it takes to go on as if it had never stopped."""
        d, waiting = len(self._squares), self._batches.waiting
        return {
            "n_open": self._n_open,
            "block": self._block,
            "squares": self._squares,
            "sum_phi": self._sum_phi,
            "open": self._open,
            "blocks": np.array(self._blocks).reshape(-1, d, d + 1),
            "marks": np.array(self._marks).reshape(-1, 2, d),
            "waiting": None if waiting is None else waiting._asdict(),
        }

    @classmethod
    def restored(cls, tree: Mapping[str, Any], discount: float, theta_0: Floats) -> Self:
        """Sums that go on from what was stored."""
        sums, d = cls(discount, theta_0), theta_0.size
        blocks = np.asarray(tree["blocks"], np.float64)
        if blocks.shape[1:] != (d, d + 1) or len(blocks) >= max(sums._most_blocks, 1):
            raise ValueError("blocks of another shape")
        marks = np.asarray(tree["marks"], np.float64)
        if marks.shape != (len(blocks), 2, d):
            raise ValueError("marks of another shape")
        sums._blocks, sums._marks = list(blocks), list(marks)
        for own, given in ((sums._squares, "squares"), (sums._sum_phi, "sum_phi"), (sums._open, "open")):
            if tree[given].shape != own.shape:
                raise ValueError(f"{given} of another shape")
            own[:] = tree[given]
        sums._n_open, sums._block = int(tree["n_open"]), int(tree["block"])
        if not 0 <= sums._n_open < sums._block:
            raise ValueError("more rows than a block has")
        sums._batches = Batches(min(sums._block, _PIECE))
        if tree["waiting"] is not None:
            sums._batches.wait_again(Rows.stored(tree["waiting"], d))
        return sums

    @property
    def mean_phi(self) -> Floats:
        """(d,) mean feature row, of the rows that are in whole pieces."""
        return np.asarray(self._sum_phi / max(self._n_summed, 1))


def solve_scaled(A: Floats, b: Floats, size: Floats) -> Floats:
    """Solve A x = b for columns b, with rows and columns of A divided by the sizes of the features.

    Features of very different sizes then do not make A look singular.
    """
    across = size.reshape(-1, *(1,) * (b.ndim - 1))
    return np.asarray(np.linalg.solve(A / np.outer(size, size), b / across) / across)


def _accumulate(rows: Rows, discount: float, sums: Floats, squares: Floats, mean: Floats) -> None:
    """Add A_x and b_x of the rows to `sums`, and phi^2 and phi to the others."""
    if np.count_nonzero(rows.phi) < _SPARSE * rows.phi.size:
        kept = rows.phi, rows.phi_next, rows.reward, rows.terminated, rows.weight
        _accumulate_sparse(*kept, discount, sums, squares, mean, np.empty(2 * len(squares), np.int64))
        return
    phi = rows.phi.astype(np.float64)
    squares += np.square(phi).sum(axis=0)
    mean += phi.sum(axis=0)
    psi = np.where(rows.terminated, 0.0, discount)[:, None] * rows.phi_next - phi
    weighted = phi * rows.weight[:, None] if rows.weight.size else phi
    sums[:, :-1] += weighted.T @ psi
    sums[:, -1] += weighted.T @ rows.reward


@compiled
def _accumulate_sparse(phi, phi_next, reward, terminated, weight, discount, sums, squares, mean, room):
    d = squares.size
    mine, its = room[:d], room[d:]
    for k in range(reward.size):
        n_mine = n_its = 0
        for i in range(d):
            if phi[k, i] != 0.0:
                mine[n_mine] = i
                n_mine += 1
        if not terminated[k]:
            for i in range(d):
                if phi_next[k, i] != 0.0:
                    its[n_its] = i
                    n_its += 1
        w = weight[k] if weight.size else 1.0
        for a in range(n_mine):
            i = mine[a]
            value = w * phi[k, i]
            squares[i] += phi[k, i] ** 2
            mean[i] += phi[k, i]
            sums[i, d] += value * reward[k]
            for c in range(n_mine):
                sums[i, mine[c]] -= value * phi[k, mine[c]]
            for c in range(n_its):
                sums[i, its[c]] += value * discount * phi_next[k, its[c]]


def _most_features() -> int:
    d = 1
    while _MOST_BYTES // (8 * (d + 1) * (d + 2)) // 2 * 2 >= _LEAST_BLOCKS:
        d += 1
    return d
