"""The closed form (LSTD) of many features, solved by a Krylov method without a d x d matrix.

Y. Saad, M. H. Schultz (1986), GMRES: a generalized minimal residual algorithm for solving nonsymmetric linear systems,
SIAM J. Sci. Stat. Comput. 7. It needs only products A v = mean of weight phi (discount phi_next - phi).v. On policy
-A - A^T is positive definite but for the ends of the log, and GMRES then converges however short its cycles are
(S. C. Eisenstat, H. C. Elman, M. H. Schultz 1983). Rows and columns of A are divided by the root mean squares of the
features. Iterates then stay orthogonal to directions in which features are dependent: these keep theta_0, as features
do that are 0 in every row with a weight above 0.

If this takes many products, and the LU factors of A are small, as with tile coding, these precondition the rest. They
are those of A - e I with a small number e, because A may be singular; they keep these directions, too. In the order of
E. Cuthill and J. McKee (1969), rows of the factors begin no further left than those of A, so their size is known
before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array, diags_array, eye_array
from scipy.sparse.csgraph import reverse_cuthill_mckee
from scipy.sparse.linalg import LinearOperator, gmres, splu

from vrtd.arrays import Floats
from vrtd.errors import DataError, SingularSystemError
from vrtd.estimator.block_totals import FIRST_BLOCK, Ends
from vrtd.estimator.least_squares import LEAST_BLOCKS, LEAST_SEEN, ROWS_PER_FEATURE, Solution, nothing_seen
from vrtd.estimator.rows import join_rows
from vrtd.problems import Transitions
from vrtd.sparse import row_bytes

_HELD_BYTES = 1 << 30  # of rows that are kept in memory
_MOST_NONZEROS = 50_000_000  # of the sum of A_x, if the rows are too many
_PAIRS = 1 << 22  # nonzeros of A_x that are added up at once
_PIECE_BYTES, _BYTES_PER_FEATURE = 1 << 24, 16  # of rows per product, so that adding d numbers takes little of its time
_BASIS_BYTES, _MOST_CYCLE, _LEAST_CYCLE = 1 << 29, 100, 10  # vectors of a cycle of GMRES
_MOST_PRODUCTS = 2_000  # with A, for one system
_PLAIN_PRODUCTS = 100  # before a preconditioner is computed
_MOST_FACTORED = 20_000_000  # nonzeros of the factors
_SHIFT, _PIVOT = 1e-5, 0.01  # of the matrix, whose diagonal is about -1; the least relative pivot
_RESIDUAL, _RESIDUAL_IN_MEMORY = 1e-6, 1e-8  # relative; in memory a product is cheap
_RESIDUAL_OF_BLOCKS = 1e-4  # relative; the error of a standard error
_N_BLOCKS = 24

_EMPTY = np.empty(0)


class IterativeFit(NamedTuple):
    """The solution so far, and how it was found."""

    theta: Floats | None = None  # (d,); None before the first pass is complete
    n_rows: int = 0
    squares: Floats = _EMPTY  # (d,) mean squares of the features, which are taken as 0 in rows of weight 0
    mean_phi: Floats = _EMPTY  # (d,)
    residual: float = 1.0  # norm of A theta + b relative to that at theta_0
    n_products: int = 0  # with A
    n_passes: int = 1  # over the log, of which the first one is not made here
    ends: Ends = Ends()  # of the blocks; none if there are too few rows for an interval
    influence: NDArray[Any] | None = None  # (B, d) float32 block means of H g_x; None if they are not solved
    residual_of_blocks: float = 1.0
    own: Floats = _EMPTY  # (B,) influence of blocks on mean_phi.theta through mean_phi
    rare: NDArray[np.bool_] = np.empty(0, np.bool_)  # (d,) features that were not 0 in too few blocks
    leak: Floats = _EMPTY  # (d,) dependence of phi.theta on unseen features of successors
    largest: float = 0.0  # largest absolute value of a row

    @property
    def is_converged(self) -> bool:
        """Whether the residual is as small as required."""
        return self.residual <= _RESIDUAL

    @property
    def doubt(self) -> str | None:
        """Reason why theta or its intervals are inaccurate, or None."""
        if self.theta is not None and not self.is_converged:
            return (
                f"the relative residual of least squares is {self.residual:.2g} after {self.n_products:,} products "
                f"with A, above the limit {_RESIDUAL:g}"
            )
        if self.influence is not None and not self.residual_of_blocks <= 10.0 * _RESIDUAL_OF_BLOCKS:
            return f"the influence of blocks of rows has the relative residual {self.residual_of_blocks:.2g}"
        return None

    @property
    def is_overfitted(self) -> bool:
        """Whether there are so few rows that the solution follows their noise."""
        return 0 < self.n_rows < ROWS_PER_FEATURE * int(np.count_nonzero(self.squares))

    @property
    def description(self) -> str:
        """How the solution was found, in a few words."""
        products = f"{self.n_products:,} products with A"
        return f"GMRES, residual {self.residual:.1e}, {products}, {self.n_passes:,} passes over the log"

    def as_solution(self) -> Solution:
        """Return the solution with the quantities from which its error is computed."""
        assert self.theta is not None
        seen, d = self.squares > 0.0, len(self.theta)
        return Solution(
            theta=self.theta,
            n_rows=self.n_rows,
            least_rows=_least_rows(int(seen.sum())),
            seen=seen,
            rare=self.rare if self.rare.size else np.zeros(d, np.bool_),
            influence=self.influence,
            mean_phi=self.mean_phi,
            own=self.own,
            squares=self.squares,
            ends=self.ends,
            degrees=len(self.ends.rows) - 1,
            size=np.where(seen, np.sqrt(self.squares), 1.0),
            open=np.empty((d, 0)),
            leak=self.leak[:, None] if self.leak.size else np.empty((d, 0)),
            largest=self.largest,
        )


def _least_rows(n_seen: int) -> int:
    return max(FIRST_BLOCK * LEAST_BLOCKS, ROWS_PER_FEATURE * n_seen)


class LogProducts:
    """Products of the sum of A_x over a log with vectors.

    Rows that fit into memory are kept. If they do not, sparse rows are added up as a sparse matrix while it has few
    nonzeros. Otherwise each product is a pass over the log.

    Parameters
    ----------
    read : callable
        Function that returns all rows, in order, each time it is called.
    n_features : int
        Number of features d.
    tell : callable
        Function that receives the number of rows done, over all passes and products.
    """

    def __init__(
        self, read: Callable[[], Iterable[Transitions]], n_features: int, tell: Callable[[int], None] | None
    ) -> None:
        self._read, self._tell, self._d = read, tell, n_features
        self.n_products = self._n_done = self.n_rows = 0
        self.n_passes = 1  # the log has been read before
        self.squares, self.total_phi, self.b = (np.zeros(n_features) for _ in range(3))
        self._held: list[Transitions] | None = None  # all rows, if they are kept
        self._A: Any = None  # the matrix, if it is kept
        held: list[Transitions] = []
        matrices: list[Any] = []
        keeps, n_bytes, n_rows = True, 0.0, 0
        for rows in self.rows():
            n_rows += len(rows)
            self.squares += _sum_squares(rows)
            self.total_phi += _column_sums(rows.phi)
            self.b += rows.phi.T @ (rows.weight * rows.reward)
            if not keeps:
                continue
            held.append(rows)
            n_bytes += _count_bytes(rows)
            if n_bytes > _HELD_BYTES:
                keeps = rows.is_sparse and _add_up(held, matrices, _MOST_NONZEROS)
                held, n_bytes = [], 0.0
        self.n_rows = n_rows
        if matrices and keeps and _add_up(held, matrices, _MOST_NONZEROS):
            self._A = sum(matrices[1:], matrices[0])
        elif keeps and not matrices:
            self._held = held

    def small_matrix(self) -> Any:
        """Return the sum of A_x as a sparse matrix, or None if it has many nonzeros."""
        if self._A is None and self._held and self._held[0].is_sparse:
            matrices: list[Any] = []
            if not _add_up(self._held, matrices, _MOST_FACTORED):
                return None
            A = sum(matrices[1:], matrices[0])
            if A.nnz > sum(rows.phi.nnz + rows.phi_next.nnz for rows in self._held):  # products are faster with rows
                return A
            self._A = A
        return self._A if self._A is not None and self._A.nnz <= _MOST_FACTORED else None

    @property
    def is_in_memory(self) -> bool:
        """Whether products need no pass over the log."""
        return self._held is not None or self._A is not None

    def rows(self) -> Iterator[Transitions]:
        """Yield all rows in float64, in pieces; this is a pass over the log unless they are kept."""
        if self._held is not None:
            yield from self._held
            return
        self.n_passes += 1
        n = 0
        for rows in _join(self._read(), max(_PIECE_BYTES, _BYTES_PER_FEATURE * self._d)):
            n += len(rows)
            if 0 < self.n_rows < n:
                raise self._changed(n)
            self._report(len(rows))
            yield rows
        if n < self.n_rows:
            raise self._changed(n)

    def _changed(self, n_rows: int) -> DataError:
        return DataError(
            f"The log changed between two passes: it had {self.n_rows:,} rows, and now {n_rows:,} have been read.",
            "Use a log that stays the same.",
        )

    def __call__(self, vectors: Floats) -> Floats:
        """Return the sum of A_x v for a vector v, or for the columns of a matrix."""
        self.n_products += 1
        if self.is_in_memory:
            self._report(self.n_rows)
        if self._A is not None:
            return np.asarray(self._A @ vectors)
        total = np.zeros_like(vectors)
        for rows in self.rows():
            change = _across(rows.discount, vectors) * (rows.phi_next @ vectors) - rows.phi @ vectors
            total += rows.phi.T @ (_across(rows.weight, vectors) * change)
        return total

    def _report(self, n_rows: int) -> None:
        self._n_done += n_rows
        if self._tell is not None:
            self._tell(self._n_done)


def _across(numbers: Floats, like: Floats) -> Floats:
    return numbers.reshape(-1, *(1,) * (like.ndim - 1))


def _column_sums(table: Any) -> Floats:
    return np.asarray(table.sum(axis=0)).ravel()


def _sum_squares(rows: Transitions) -> Floats:
    """Return the sums of phi^2 over rows with a weight above 0; the others determine nothing."""
    return np.asarray((rows.phi * rows.phi).T @ (rows.weight > 0.0))


def _count_bytes(rows: Transitions) -> float:
    return len(rows) * (row_bytes(rows.phi) + row_bytes(rows.phi_next))


def _join(parts: Iterable[Transitions], n_bytes: int) -> Iterator[Transitions]:
    """Copy the rows in float64, and join them to pieces of about so many bytes."""
    waiting: list[Transitions] = []
    n_waiting = 0.0
    for rows in parts:
        phi, phi_next = rows.phi.astype(np.float64), rows.phi_next.astype(np.float64)
        weight = rows.weight.copy() if rows.is_weighted else None
        waiting.append(
            Transitions.wrap(phi, rows.reward.copy(), phi_next, rows.discount.copy(), weight, rows.ends.copy())
        )
        n_waiting += _count_bytes(waiting[-1])
        if n_waiting >= n_bytes:
            yield join_rows(waiting)
            waiting, n_waiting = [], 0.0
    if waiting:
        yield join_rows(waiting)


def _add_up(held: list[Transitions], matrices: list[Any], most: int) -> bool:
    """Add the sum of A_x of sparse rows to a list of matrices; return whether they have at most so many nonzeros.

    Each matrix has at most half the nonzeros of the one before, so that adding one costs little.
    """
    for rows in held:
        tables: tuple[Any, ...] = rows.phi, rows.phi_next
        per_row = [int(np.diff(table.indptr).max(initial=0)) for table in tables]
        n = max(1, _PAIRS // max(1, per_row[0] * sum(per_row)))
        for first in range(0, len(rows), n):
            part = rows.part(first, first + n)
            psi = diags_array(part.discount) @ part.phi_next - part.phi
            matrix = csr_array(part.phi.T @ (diags_array(part.weight) @ psi))
            while matrices and matrices[-1].nnz <= 2 * matrix.nnz:
                matrix = matrix + matrices.pop()
            matrices.append(matrix)
            if sum(each.nnz for each in matrices) > most:
                matrices.clear()
                return False
    return True


class _System:
    """The linear system of the features that are seen, with A in scaled coordinates."""

    def __init__(self, products: LogProducts, seen: NDArray[np.intp], size: Floats) -> None:
        self.products, self.seen, self.size = products, seen, size
        self._precondition: Callable[[Floats], Floats] | None = None
        self._is_tried = False

    def multiply(self, x: Floats) -> Floats:
        """Return A x for the columns x (m, k)."""
        vectors = np.zeros((self.products.squares.size, x.shape[1]))
        vectors[self.seen] = x / self.size[:, None]
        return self.scale(self.products(vectors)) / self.products.n_rows

    def scale(self, vectors: Floats) -> Floats:
        """Return vectors (d, k) as right-hand sides (m, k)."""
        return np.asarray(vectors[self.seen] / self.size[:, None])

    def solve(self, right: Floats, tolerance: float) -> Iterator[tuple[Floats, float]]:
        """Yield the solution x of A x = right for all columns (m, k), and its relative residual, after each cycle."""
        m, k = right.shape
        norm, x, residual = float(np.linalg.norm(right)), np.zeros_like(right), right
        share, n_before = 1.0 if norm > 0.0 else 0.0, self.products.n_products

        def as_operator(function: Callable[[Floats], Floats]) -> Any:
            return LinearOperator((m * k, m * k), matvec=lambda v: function(v.reshape(m, k)).ravel(), dtype=np.float64)

        cycle = int(np.clip(_BASIS_BYTES // (8 * m * k), _LEAST_CYCLE, _MOST_CYCLE))
        yield x, share
        while share > tolerance and self.products.n_products - n_before < _MOST_PRODUCTS:
            if self.products.n_products - n_before >= _PLAIN_PRODUCTS:
                self._factor()
            M = None if self._precondition is None else as_operator(self._precondition)
            change, _ = gmres(
                as_operator(self.multiply), residual.ravel(), rtol=tolerance / share, restart=cycle, maxiter=1, M=M
            )
            x = x + change.reshape(m, k)
            residual = right - self.multiply(x)
            share = float(np.linalg.norm(residual)) / norm
            yield x, share

    def _factor(self) -> None:
        """Compute the preconditioner, if the factors of A are small."""
        if self._is_tried:
            return
        self._is_tried, A = True, self.products.small_matrix()
        if A is None:
            return
        scale = diags_array(1.0 / self.size)
        scaled = scale @ A[self.seen][:, self.seen] @ scale / self.products.n_rows
        shifted = csr_array(scaled - _SHIFT * eye_array(len(self.size)))
        order = reverse_cuthill_mckee(shifted)
        shifted = shifted[order][:, order]
        if _count_factors(shifted) > _MOST_FACTORED:
            return
        with suppress(RuntimeError):  # a factor is singular
            options = {"SymmetricMode": True}
            factors = splu(csc_array(shifted), permc_spec="NATURAL", diag_pivot_thresh=_PIVOT, options=options)
            self._precondition = lambda vectors: factors.solve(vectors[order])[np.argsort(order)]


def _count_factors(matrix: Any) -> int:
    """Return the most nonzeros that the LU factors of a matrix have in its order."""
    row, column = matrix.nonzero()
    n = matrix.shape[0]
    first = np.arange(n)  # column of each row, or row of each column, from which on the factors are not 0
    np.minimum.at(first, np.maximum(row, column), np.minimum(row, column))
    return int(n + 2 * (np.arange(n) - first).sum())


@np.errstate(over="ignore", invalid="ignore")  # sums that overflow raise an error
def solve_iteratively(
    read: Callable[[], Iterable[Transitions]],
    theta_0: Floats,
    keep: Callable[[IterativeFit], None],
    tell: Callable[[int], None] | None = None,
) -> IterativeFit:
    """Solve A theta + b = 0 on all rows of a log.

    Parameters
    ----------
    read : callable
        Function that returns all rows, in order, each time it is called.
    theta_0 : array of shape (d,)
        The parameters of features that were 0 in every row with a weight above 0, and of directions in which features
        are dependent.
    keep : callable
        Function that receives the solution so far after each cycle of GMRES.
    tell : callable, default=None
        Function that receives the number of rows done, over all passes and products.
    """
    products = LogProducts(read, len(theta_0), tell)
    n, squares = products.n_rows, products.squares
    seen = np.flatnonzero(squares > 0.0)
    if not seen.size:
        raise nothing_seen()
    system = _System(products, seen, np.sqrt(squares[seen] / n))
    rest = products.b + products(theta_0) if theta_0.any() else products.b
    if not (np.isfinite(rest).all() and np.isfinite(system.size).all()):
        raise SingularSystemError("Sums over the rows overflow.", "Scale very large features or rewards.")
    fit = IterativeFit(None, n, squares / n, products.total_phi / n)
    tolerance = _RESIDUAL_IN_MEMORY if products.is_in_memory else _RESIDUAL
    for x, residual in system.solve(-system.scale(rest[:, None]) / n, tolerance):
        if residual <= fit.residual:
            theta = theta_0.copy()
            theta[seen] += x[:, 0] / system.size
            fit = fit._replace(theta=theta, residual=residual)
        fit = fit._replace(n_products=products.n_products, n_passes=products.n_passes)
        keep(fit)
    if n < _least_rows(len(seen)) or not fit.is_converged:
        return fit
    fit, gradients = _measure_blocks(products, fit, seen)
    keep(fit)
    fit = _solve_blocks(system, fit, gradients)
    return fit._replace(n_products=products.n_products, n_passes=products.n_passes)


def _measure_blocks(products: LogProducts, fit: IterativeFit, seen: NDArray[np.intp]) -> tuple[IterativeFit, Floats]:
    """Return the fit with sums over blocks of rows, and their mean pseudo-gradients (B + 1, m).

    The last of these has the visits of successors to unseen features in place of TD errors, over all rows.
    """
    theta, n, d = fit.theta, fit.n_rows, fit.squares.size
    assert theta is not None
    rows_of = tuple(n * (k + 1) // _N_BLOCKS for k in range(_N_BLOCKS))
    ends = Ends(n // _N_BLOCKS, rows_of)
    gradients, values = np.zeros((_N_BLOCKS + 1, len(seen))), np.zeros(_N_BLOCKS)
    n_seen, is_seen, is_unseen = np.zeros(d, np.int64), np.zeros(d, np.bool_), np.ones(d)
    is_unseen[seen] = 0.0
    largest, at, k = 0.0, 0, 0
    for piece in products.rows():
        first = 0
        while first < len(piece):
            last = min(len(piece), first + rows_of[k] - at)
            rows = piece.part(first, last)
            value = rows.phi @ theta
            td_error = rows.reward + rows.discount * (rows.phi_next @ theta) - value
            gradients[k] += (rows.phi.T @ (rows.weight * td_error))[seen]
            if len(seen) < d:
                visits = rows.weight * rows.discount * (abs(rows.phi_next) @ is_unseen)
                gradients[-1] += (rows.phi.T @ visits)[seen]
            values[k] += value.sum()
            largest = max(largest, float(np.abs(value).max(initial=0.0)))
            is_seen |= _sum_squares(rows) > 0.0
            first, at = last, at + last - first
            if at == rows_of[k]:
                n_seen += is_seen
                is_seen[:] = False
                k += 1
    own = (values - np.diff(rows_of, prepend=0) * float(fit.mean_phi @ theta)) / ends.per_block
    gradients[:-1] /= ends.per_block
    gradients[-1] /= n
    return fit._replace(ends=ends, own=own, rare=n_seen < LEAST_SEEN, largest=largest), gradients


def _solve_blocks(system: _System, fit: IterativeFit, gradients: Floats) -> IterativeFit:
    """Return the fit with the influence of blocks and the leak; systems are solved together as far as memory allows."""
    d, m = fit.squares.size, len(system.seen)
    influence, leak = np.zeros((_N_BLOCKS, d), np.float32), np.where(fit.squares > 0.0, 0.0, 1.0)
    n_columns = max(1, _BASIS_BYTES // (8 * m * 2 * _LEAST_CYCLE))
    worst, used = 0.0, np.flatnonzero(gradients.any(axis=1))
    for first in range(0, len(used), n_columns):
        which = used[first : first + n_columns]
        x, residual = np.zeros((m, len(which))), 0.0
        # Columns of length 1, so that each is solved to the same relative residual.
        right = -gradients[which].T / system.size[:, None]
        norms = np.linalg.norm(right, axis=0)
        for x, residual in system.solve(right / norms, _RESIDUAL_OF_BLOCKS):  # noqa: B007
            pass
        found = (x * norms / system.size[:, None]).T
        worst = max(worst, residual)
        for j, k in enumerate(which):
            if k < _N_BLOCKS:
                influence[k, system.seen] = found[j]
            else:
                leak[system.seen] = found[j]
    return fit._replace(influence=influence, leak=leak if len(system.seen) < d else _EMPTY, residual_of_blocks=worst)
