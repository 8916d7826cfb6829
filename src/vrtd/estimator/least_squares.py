"""The closed form (LSTD): sums of A_x and b_x over all rows, and over blocks of rows for the error of the solution.

S. J. Bradtke, A. G. Barto (1996), Linear least-squares algorithms for temporal difference learning, Machine Learning.
With H = -A^-1 and g_x at the solution, theta - theta_star is to first order the mean of H g_x. The covariance of this
mean is estimated from the means over blocks that are longer than the correlation time (batch means).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import Floats
from vrtd.errors import SingularSystemError
from vrtd.estimator.block_gradients import BlockGradients, find_anchor, gradients_by_block, start_gradients
from vrtd.estimator.block_totals import FIRST_BLOCK, Ends
from vrtd.estimator.rows import append, loop_columns
from vrtd.kernels.jit import compiled
from vrtd.problems import Transitions
from vrtd.series import block_correlation
from vrtd.solving import least_norm_solver
from vrtd.sparse import divide_columns, has_any, squared_norms

_MOST_BLOCKS, LEAST_BLOCKS = 64, 20
_USUAL_BYTES, _MOST_BYTES = 1 << 26, 1 << 28  # of the matrices of all blocks, or of the rows that replace them
ROWS_PER_FEATURE = 4  # for an interval without matrices
LEAST_SEEN = 5  # an interval needs this many blocks in which a feature is not 0
_PIECE = 1024  # rows per matrix product
_SPARSE = 0.1  # if the share of nonzero features is below this, zeros are skipped
_DEPENDENT = 1e-3  # features are dependent in a direction if their root mean square in it is at most this
_NONE = np.empty(0)
_OUTSIDE = 1e-6  # share of the squared norm of a feature row that may lie in undetermined directions


@dataclass(frozen=True, eq=False)
class Solution:
    """Solution of the closed form, with the quantities from which its error is computed."""

    theta: Floats  # (d,)
    n_rows: int
    least_rows: int  # for an interval
    seen: NDArray[np.bool_]  # (d,) features that were not 0 in a row with a weight above 0; the others keep theta_0
    rare: NDArray[np.bool_]  # (d,) features that were not 0 in too few blocks to estimate their noise
    influence: Floats | None  # (B, d) block means of H g_x; None if there are too few rows for blocks
    mean_phi: Floats  # (d,) mean of the features
    own: Floats  # (B,) influence of blocks on mean_phi.theta through mean_phi
    squares: Floats  # (d,) mean squares of the features, which are taken as 0 in rows of weight 0
    ends: Ends  # of the blocks
    degrees: int  # degrees of freedom
    size: Floats  # (d,) root mean squares of the features; 1 for unseen ones
    open: Floats  # (d, k) undetermined directions, of features divided by their size
    leak: Floats  # (d, u) dependence of phi.theta on unseen features, of the row itself and of its successors
    largest: float  # largest absolute value of a row of the sample

    def spans(self, phi: Floats) -> NDArray[np.bool_]:
        """Return for each feature row whether the log determines phi.theta."""
        scaled = divide_columns(phi, self.size)
        is_known = squared_norms(scaled @ self.open) <= _OUTSIDE * squared_norms(scaled)
        return is_known & ~has_any(phi, np.flatnonzero(~self.seen))

    @property
    def doubt(self) -> str | None:
        """Reason why the covariance may be too small, or None.

        It may be too small if adjacent blocks are correlated by more than three standard errors.
        """
        if self.influence is None:
            return None
        if block_correlation(self.influence, self.squares) <= 3.0 / np.sqrt(len(self.influence)):
            return None
        return f"the rows are correlated over more than the {self.ends.per_block:,.0f} rows of a block"

    @property
    def why_no_interval(self) -> str | None:
        """Reason why the noise of theta is not known, or None if it is."""
        if self.influence is not None:
            return None
        if self.n_rows >= self.least_rows:
            return "the fit was stopped, or did not converge, before the noise of theta was computed"
        return f"it needs {self.least_rows:,} rows, but there are only {self.n_rows:,}"


class MatrixSums(NamedTuple):
    """Sums over a stream of rows; `add` returns the next ones.

    The sums are equal in every bit, independent of how the stream is split.
    """

    squares: Floats  # (d,) sum of phi^2 over rows with a weight above 0; the others determine nothing
    total_phi: Floats  # (d,) sum of phi
    total: Floats  # (d, d + 1) sums of A_x and b_x
    n_summed: int = 0
    ends: Ends = Ends()  # of the blocks
    marks: tuple[Floats, ...] = ()  # (2, d) `squares` and `total_phi` at the end of each block
    # If memory allows it, `total` at the end of each block. Otherwise the rows themselves, and when they are too many,
    # the pseudo-gradients of all blocks.
    totals: tuple[Floats, ...] = ()
    held: Transitions | None = None
    gradients: BlockGradients | None = None
    buffer: Transitions | None = None  # its first `n_waiting` rows are not summed yet
    n_waiting: int = 0

    @property
    def n_rows(self) -> int:
        """Number of rows received."""
        return self.n_summed + self.n_waiting

    @property
    def mean_phi(self) -> Floats:
        """Mean feature row (d,) of the summed rows, or of the waiting rows if none is summed."""
        if not self.n_summed and self.buffer is not None and self.n_waiting:
            return np.asarray(self.buffer.phi[: self.n_waiting].mean(axis=0, dtype=np.float64))
        return np.asarray(self.total_phi / max(self.n_summed, 1))


def no_sums(n_features: int) -> MatrixSums:
    """Return the sums of no rows."""
    d, block = n_features, FIRST_BLOCK
    while 2 * block * LEAST_BLOCKS <= least_rows(d):  # with larger matrices, rows are added in larger pieces
        block *= 2
    return MatrixSums(np.zeros(d), np.zeros(d), np.zeros((d, d + 1)), ends=Ends(block))


def keeps_matrices(n_features: int) -> bool:
    """Return whether the matrices of enough blocks fit into memory."""
    return 2 * LEAST_BLOCKS * _matrix_bytes(n_features) <= _MOST_BYTES


def _matrix_bytes(n_features: int) -> int:
    return 8 * n_features * (n_features + 1)


def most_blocks(n_features: int) -> int:
    """Return the number of blocks at which they are merged in pairs; half of it must be enough for an interval."""
    if not keeps_matrices(n_features):
        return _MOST_BLOCKS
    return max(2 * LEAST_BLOCKS, min(_MOST_BLOCKS, _USUAL_BYTES // _matrix_bytes(n_features) // 2 * 2))


def least_rows(n_features: int) -> int:
    """Return the number of rows that an interval needs."""
    least = FIRST_BLOCK * LEAST_BLOCKS
    return least if keeps_matrices(n_features) else max(least, ROWS_PER_FEATURE * n_features)


def most_held(n_features: int) -> int:
    """Return how many rows are held before vectors replace them, which is enough for a first anchor."""
    return 0 if keeps_matrices(n_features) else max(least_rows(n_features), _MOST_BYTES // (16 * n_features))


@np.errstate(over="ignore", invalid="ignore")  # numbers that overflow when squared raise an error where they are used
def add(sums: MatrixSums, rows: Transitions) -> MatrixSums:
    """Return the sums with these rows, which must be finite."""
    at, n, is_own = 0, len(rows), False
    most = most_held(rows.n_features)
    while at < n:
        size = min(sums.ends.block, _PIECE, sums.ends.next - sums.n_summed)
        if sums.n_waiting or n - at < size:
            last = min(n, at + size - sums.n_waiting)
            buffer = append(sums.buffer if sums.n_waiting else None, sums.n_waiting, rows.part(at, last), size)
            sums, piece, at = (
                sums._replace(buffer=buffer, n_waiting=sums.n_waiting + last - at),
                buffer.part(0, size),
                last,
            )
            if sums.n_waiting < size:
                break
        else:
            piece, at = rows.part(at, at + size), at + size
        if not is_own:
            sums, is_own = sums._replace(**{name: getattr(sums, name).copy() for name in _IN_PLACE}), True
        _accumulate(piece, sums.total, sums.squares, sums.total_phi)
        if sums.gradients is not None:
            sums = sums._replace(gradients=sums.gradients.add(piece))
        elif most:
            sums = sums._replace(held=append(sums.held, sums.n_summed, piece, most))
        sums = sums._replace(n_summed=sums.n_summed + size, n_waiting=0)
        if sums.n_summed == sums.ends.next:
            sums = _close_block(sums, most)
    return sums


_IN_PLACE = ("total", "squares", "total_phi")


def _close_block(sums: MatrixSums, most: int) -> MatrixSums:
    """Return the sums after the end of a block; at most `most` rows are held."""
    d, n, gradients = len(sums.squares), sums.n_summed, sums.gradients
    ends, kept = sums.ends.close(most_blocks(d))
    marks = (*sums.marks, np.stack([sums.squares, sums.total_phi]))[kept]
    totals = () if most else (*sums.totals, sums.total.copy())[kept]
    if gradients is not None:
        gradients = gradients.mark()
        gradients = gradients._replace(marks=gradients.marks[kept])
        anchor = None if len(marks) > len(sums.marks) else find_anchor(sums.total, sums.squares)
        if anchor is not None:
            gradients = gradients.move(anchor, sums.total[:, :d] / n, ends.block)
    sums = sums._replace(marks=marks, totals=totals, gradients=gradients, ends=ends)
    if sums.held is None or n + ends.block <= most:
        return sums
    anchor = find_anchor(sums.total, sums.squares)
    first = start_gradients(sums.held.part(0, n), ends.block, np.zeros(d) if anchor is None else anchor)
    return sums._replace(held=None, gradients=first)


def flush(sums: MatrixSums) -> MatrixSums:
    """Return the sums with the rows that wait."""
    if not sums.n_waiting or sums.buffer is None:
        return sums
    own = {name: getattr(sums, name).copy() for name in _IN_PLACE}
    for first in range(0, sums.n_waiting, _PIECE):
        _accumulate(sums.buffer.part(first, min(first + _PIECE, sums.n_waiting)), **own)
    return sums._replace(n_summed=sums.n_rows, buffer=None, n_waiting=0, **own)


def thin(sums: MatrixSums, n_blocks: int) -> MatrixSums:
    """Return the sums with at most `n_blocks` blocks, of which one ends after the last row.

    Matrices of blocks must be kept.
    """
    if 1 < n_blocks >= len(sums.marks):
        return sums
    sums = flush(sums)
    ends, kept = sums.ends.thin(sums.n_summed, n_blocks)
    marks, totals = (*sums.marks, np.stack([sums.squares, sums.total_phi])), (*sums.totals, sums.total)
    return sums._replace(ends=ends, marks=tuple(marks[k] for k in kept), totals=tuple(totals[k] for k in kept))


def join(sums: MatrixSums, others: MatrixSums) -> MatrixSums:
    """Return the sums of the rows of `sums` and of those of `others`, which follow; matrices of blocks must be kept."""
    sums, others = flush(sums), flush(others)
    ends, kept = sums.ends.join(sums.n_summed, others.ends, others.n_summed, most_blocks(len(sums.squares)))
    mark, total = np.stack([sums.squares, sums.total_phi]), sums.total
    last = np.stack([others.squares, others.total_phi])
    marks = [*sums.marks, *(mark + each for each in (*others.marks, last))]
    totals = [*sums.totals, *(total + each for each in (*others.totals, others.total))]
    (squares, total_phi), n = marks[-1], sums.n_summed + others.n_summed
    return MatrixSums(
        squares, total_phi, totals[-1], n, ends, tuple(marks[k] for k in kept), tuple(totals[k] for k in kept)
    )  # fmt: skip


@np.errstate(over="ignore", invalid="ignore")
def solve(sums: MatrixSums, theta_0: Floats, sample: NDArray[np.floating[Any]]) -> Solution:
    """Solve A theta + b = 0 on all rows so far.

    Parameters
    ----------
    sums : MatrixSums
        The sums over the rows.
    theta_0 : array of shape (d,)
        The parameters of features that were 0 in every row with a weight above 0, and of directions in which features
        are dependent. The rows do not determine them, and they do not affect the value of any state in the span of the
        rows.
    sample : array of shape (n, d)
        Feature rows from which these directions are found.
    """
    all_rows = flush(sums)
    total, squares = all_rows.total, all_rows.squares
    d = len(squares)
    seen = squares > 0.0
    theta = theta_0.copy()
    if not seen.any():
        raise nothing_seen()
    n = max(sums.n_rows, 1)
    A = total[np.ix_(seen, np.append(seen, False))] / n
    rest = (total[:, d] + total[:, :d] @ theta)[seen] / n  # A theta_0 + b
    size = np.ones(d)
    size[seen] = np.sqrt(squares[seen] / n)
    solver = least_norm_solver(A, size[seen])
    phi = np.asarray(sample[:, seen], dtype=np.float64) / size[seen]
    if solver is None or not np.isfinite(rest).all() or _largest_rms(phi @ solver.null) > _DEPENDENT:
        raise SingularSystemError(
            f"The rows do not determine the parameters: A of {len(A)} features from {sums.n_rows} rows is singular.",
            "Remove dependent features, use more data, or scale very large features.",
        )
    theta[seen] -= solver(rest)
    unknown = np.zeros((d, solver.null.shape[1]))
    unknown[seen] = solver.null
    missed = np.flatnonzero(~seen)
    leak = np.zeros((d, missed.size))
    leak[missed, np.arange(missed.size)] = 1.0
    if missed.size:
        leak[seen] = solver(total[np.ix_(seen, missed)] / n)
    largest = float(np.abs(phi @ (theta * size)[seen]).max(initial=0.0))
    between = np.diff(np.array([np.zeros((2, d)), *sums.marks]), axis=0)
    rare = (between[:, 0] > 0.0).sum(axis=0) < LEAST_SEEN
    influence = None
    if sums.n_rows >= least_rows(d) and len(sums.marks) >= LEAST_BLOCKS:
        g = _gradients_by_block(sums, theta, total[:, :d] / n)[:, seen] / sums.ends.per_block
        influence = np.zeros((len(g), d))
        influence[:, seen] = -solver(g.T).T
    nu, ends = all_rows.mean_phi, sums.ends
    own = (between[:, 1] - np.diff(ends.rows, prepend=0)[:, None] * nu) @ theta / ends.per_block if ends.rows else _NONE
    return Solution(
        theta, sums.n_rows, least_rows(d), seen, rare, influence, nu, own, squares / n, ends,
        len(sums.marks) - 1, size, unknown, leak, largest,
    )  # fmt: skip


def nothing_seen() -> SingularSystemError:
    """Return the error of rows that determine no parameter."""
    return SingularSystemError(
        "All features are 0 in every row with a weight above 0.", "Use other features, or other weights."
    )


def _gradients_by_block(sums: MatrixSums, theta: Floats, A: Floats) -> Floats:
    """Return the sums (B, d) of g_x at theta over each block."""
    if sums.gradients is not None:
        return sums.gradients.move(theta, A, sums.ends.block).by_block()
    if sums.held is not None:
        return gradients_by_block(sums.held.part(0, sums.n_summed), sums.ends.block, theta)
    up_to = [total @ np.append(theta, 1.0) for total in sums.totals]
    return np.diff(np.array([np.zeros(len(theta)), *up_to]), axis=0)


def _largest_rms(columns: Floats) -> float:
    return float(np.sqrt(np.square(columns).mean(axis=0).max())) if columns.size else 0.0


def _accumulate(rows: Transitions, total: Floats, squares: Floats, total_phi: Floats) -> None:
    """Add A_x and b_x of the rows to `total`, phi^2 to `squares` if the weight is above 0, and phi to `total_phi`."""
    if np.count_nonzero(rows.phi) < _SPARSE * rows.phi.size:
        scratch = np.empty(2 * len(squares), np.int64)
        _accumulate_sparse(*loop_columns(rows)[:5], total, squares, total_phi, scratch)
        return
    phi = rows.phi.astype(np.float64)
    squares += np.square(phi[rows.weight > 0.0] if rows.is_weighted else phi).sum(axis=0)
    total_phi += phi.sum(axis=0)
    psi = rows.discount[:, None] * rows.phi_next - phi
    left = phi * rows.weight[:, None] if rows.is_weighted else phi
    total[:, :-1] += left.T @ psi
    total[:, -1] += left.T @ rows.reward


@compiled
def _accumulate_sparse(phi, reward, phi_next, discount, weight, sums, squares, total_phi, scratch):
    d = squares.size
    mine, its = scratch[:d], scratch[d:]
    for k in range(reward.size):
        n_mine = n_its = 0
        for i in range(d):
            if phi[k, i] != 0.0:
                mine[n_mine] = i
                n_mine += 1
        if discount[k] > 0.0:
            for i in range(d):
                if phi_next[k, i] != 0.0:
                    its[n_its] = i
                    n_its += 1
        w = weight[k] if weight.size else 1.0
        for a in range(n_mine):
            i = mine[a]
            value = w * phi[k, i]
            if w > 0.0:
                squares[i] += phi[k, i] ** 2
            total_phi[i] += phi[k, i]
            sums[i, d] += value * reward[k]
            for c in range(n_mine):
                sums[i, mine[c]] -= value * phi[k, mine[c]]
            for c in range(n_its):
                sums[i, its[c]] += value * discount[k] * phi_next[k, its[c]]
