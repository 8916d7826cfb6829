"""Rows of transitions in memory, and the linear system A theta + b = 0 that they define."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Self, final

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from vrtd.arrays import Floats, check_unmasked, frozen, real_array
from vrtd.errors import InvalidInputError
from vrtd.lazy import cached_property
from vrtd.series import (
    LEAST_WINDOWS,
    block_correlation,
    block_covariances,
    block_means,
    clip_negative,
    lag_covariance,
    lag_window,
)
from vrtd.solving import check_invertible, condition_number, solve_scaled
from vrtd.sparse import as_sparse_rows, divide_columns, is_scipy_sparse, is_sparse, part_of, scale_rows

if TYPE_CHECKING:
    from vrtd.algorithms import Sampling

Column = NDArray[Any]

# Directions with a singular value below this share of the largest count as linearly dependent.
_RANK_TOLERANCE = 1e-5
# The magnitude of features and rewards lies between this and its inverse, so that their products are finite.
_LEAST_SIZE = 1e-60
# Share of the squared norm of a row that may lie outside the span of the rows.
_OUTSIDE = 1e-6
# An estimate with an eigenvalue below minus this share of the largest is not accepted as a covariance.
_NEGATIVE = 1e-9
_BLOCKS = 64  # for the long-run covariance
_MOST_BLOCKS, _LEAST_BLOCKS = 256, 64  # for the correlation
_LEAST_BLOCK = 4  # rows in each of these blocks
_MERGED = 4  # of these blocks form one for a variance, so that adjacent ones are nearly independent
# Rows per direction that the covariance of the features needs.
_ROWS_PER_DIRECTION = 8


@final
class Transitions:
    """Rows of n transitions, whose means replace expectations.

    ``simulate`` accepts them as a problem and draws rows repeatedly. ``record`` draws them from a known chain,
    ``vrtd.logs.data_set`` reads them from a log, and ``plan`` and ``vrtd.theory`` estimate from them. The rows are
    consecutive steps of a trajectory or independent samples; functions that need one of the two say so.

    Parameters
    ----------
    phi : array_like or sparse matrix of shape (n, d)
        Features of the states that were left. Sparse matrices of SciPy become rows of ``scipy.sparse.csr_array``.
    reward : array_like of shape (n,)
        Rewards.
    phi_next : array_like or sparse matrix of shape (n, d)
        Features of the states that were reached.
    discount : float or array_like of shape (n,)
        Discounts in [0, 1], 0 where a transition terminates.
    weight : array_like of shape (n,), optional
        Importance ratios. If not given, all are 1.
    ends : array_like of bool, shape (n,), optional
        Rows that the next row does not continue. If not given, they are the rows with discount 0. Algorithms with
        traces use them on logs; sums over lags do not.

    Attributes
    ----------
    phi, phi_next : ndarray or csr_array of shape (n, d)
        Features of the states that were left and reached.
    reward, discount : ndarray of shape (n,)
        Rewards and discounts.
    ends : ndarray of bool, shape (n,)
        Rows that the next row does not continue.

    Notes
    -----
    One row x defines the pseudo-gradient g_x(theta) = A_x theta + b_x, with A_x = weight phi (discount phi_next -
    phi)^T and b_x = weight reward phi. ``A``, ``b`` and the noise at ``theta_star`` are means over the rows.
    ``theta_star`` and all quantities that depend on it need features of full rank.

    Examples
    --------
    >>> rows = Transitions(phi=[[1.0], [0.5]], reward=[1.0, 2.0], phi_next=[[0.5], [1.0]], discount=0.9)
    >>> rows.theta_star.round(4)
    array([5.7143])
    """

    samplings: ClassVar[tuple[Sampling, ...]] = ("dataset",)  # accepted by `simulate`; the first is the default

    phi: Any  # (n, d) ndarray or csr_array of float64, or of float32 in rows of a stream
    reward: Floats
    phi_next: Any
    discount: Floats
    ends: NDArray[np.bool_]
    _weight: Floats | None

    def __init__(
        self,
        phi: ArrayLike,
        reward: ArrayLike,
        phi_next: ArrayLike,
        discount: ArrayLike,
        weight: ArrayLike | None = None,
        ends: ArrayLike | None = None,
    ) -> None:
        table = _as_table("phi", phi)
        if table.ndim != 2 or 0 in table.shape:
            raise InvalidInputError(
                f"phi must have the shape (n, d), but got {table.shape}.", "Pass one row per transition."
            )
        n = table.shape[0]
        self.phi, self.phi_next = table, _as_table("phi_next", phi_next)
        if self.phi_next.shape != table.shape:
            raise InvalidInputError(
                f"phi_next must have the shape {table.shape}, but got {self.phi_next.shape}.", "Match phi."
            )
        if is_sparse(table) != is_sparse(self.phi_next):
            raise InvalidInputError("phi and phi_next must both be sparse or both be dense.", "Convert one of them.")
        self.reward = _check_column("reward", reward, n)
        self.discount = _check_column("discount", np.full(n, discount) if np.ndim(discount) == 0 else discount, n, 1.0)
        self._weight = None if weight is None else _check_column("weight", weight, n, np.inf)
        check_unmasked("ends", ends)
        self.ends = frozen(self.discount == 0.0 if ends is None else np.array(ends, dtype=np.bool_))
        if self.ends.shape != (n,):
            raise InvalidInputError(
                f"ends must have the shape ({n},), but got {self.ends.shape}.", "Pass one flag per transition."
            )

    @classmethod
    def wrap(
        cls, phi: Column, reward: Column, phi_next: Column, discount: Column, weight: Column | None, ends: Column
    ) -> Self:
        """Return rows that hold these arrays, without copies, conversions or checks.

        Parameters
        ----------
        phi : ndarray of shape (n, d)
            Features of the states that were left.
        reward : ndarray of shape (n,)
            Rewards.
        phi_next : ndarray of shape (n, d)
            Features of the states that were reached.
        discount : ndarray of shape (n,)
            Discounts.
        weight : ndarray of shape (n,) or None
            Importance ratios.
        ends : ndarray of bool, shape (n,)
            Rows that the next row does not continue.

        Returns
        -------
        Transitions
            The rows.
        """
        rows = cls.__new__(cls)
        rows.phi, rows.reward, rows.phi_next, rows.discount = phi, reward, phi_next, discount
        rows._weight, rows.ends = weight, ends
        return rows

    def __repr__(self) -> str:
        return f"Transitions({self.n_rows} rows, {self.n_features} features)"

    def __len__(self) -> int:
        return len(self.reward)

    @property
    def n_rows(self) -> int:
        """Number of rows n."""
        return len(self.reward)

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return int(self.phi.shape[1])

    @property
    def is_weighted(self) -> bool:
        """Whether importance ratios were passed."""
        return self._weight is not None

    @property
    def is_sparse(self) -> bool:
        """Whether the features are sparse rows; sums, rates and all quantities of size d^2 need dense ones."""
        return is_sparse(self.phi)

    @cached_property
    def weight(self) -> Floats:
        """Importance ratios, of shape (n,)."""
        return np.broadcast_to(np.float64(1.0), len(self)) if self._weight is None else self._weight

    def part(self, first: int, last: int) -> Transitions:
        """Return consecutive rows, without copying them.

        Parameters
        ----------
        first, last : int
            Number of the first row, and one more than that of the last row.

        Returns
        -------
        Transitions
            Rows first, ..., last - 1.
        """
        if first == 0 and last >= len(self):
            return self
        rows = slice(first, last)
        weight = None if self._weight is None else self._weight[rows]
        phi, phi_next = part_of(self.phi, first, last), part_of(self.phi_next, first, last)
        columns = phi, self.reward[rows], phi_next, self.discount[rows]
        return Transitions.wrap(*columns, weight, self.ends[rows])

    def take(self, at: NDArray[np.intp]) -> Transitions:
        """Return rows by their numbers.

        Parameters
        ----------
        at : ndarray of int, shape (m,)
            The numbers of the rows.

        Returns
        -------
        Transitions
            A copy of these rows.
        """
        weight = None if self._weight is None else self._weight[at]
        columns = self.phi[at], self.reward[at], self.phi_next[at], self.discount[at]
        return Transitions.wrap(*columns, weight, self.ends[at])

    def copy(self) -> Transitions:
        """Return a copy with writeable columns.

        Returns
        -------
        Transitions
            The copy.
        """
        weight = None if self._weight is None else self._weight.copy()
        phi, phi_next = self.phi.copy(), self.phi_next.copy()
        return Transitions.wrap(phi, self.reward.copy(), phi_next, self.discount.copy(), weight, self.ends.copy())

    def divide(self, sizes: Floats) -> Transitions:
        """Return the rows with each feature divided by its size.

        Parameters
        ----------
        sizes : ndarray of shape (d,)
            The sizes.

        Returns
        -------
        Transitions
            The rows with scaled features.
        """
        phi, phi_next = (divide_columns(table, sizes) for table in (self.phi, self.phi_next))
        return Transitions.wrap(phi, self.reward, phi_next, self.discount, self._weight, self.ends)

    def astype(self, dtype: DTypeLike) -> Transitions:
        """Return the rows with features of another type.

        Parameters
        ----------
        dtype : data-type
            The type.

        Returns
        -------
        Transitions
            The rows. Arrays that have this type already are not copied.
        """
        phi, phi_next = (table.astype(dtype, copy=False) for table in (self.phi, self.phi_next))
        return Transitions.wrap(phi, self.reward, phi_next, self.discount, self._weight, self.ends)

    @cached_property
    def left(self) -> Any:
        """Weighted features weight phi, of shape (n, d). They satisfy A_x = left psi^T and b_x = left reward."""
        phi = self.phi.astype(np.float64, copy=False)
        return phi if self._weight is None else scale_rows(phi, self._weight)

    @cached_property
    def psi(self) -> Any:
        """Differences discount phi_next - phi, of shape (n, d)."""
        if is_sparse(self.phi):
            return scale_rows(self.phi_next, self.discount) - self.phi
        return np.asarray(self.discount[:, None] * self.phi_next - self.phi, dtype=np.float64)

    @cached_property
    def A(self) -> Floats:
        """Mean of weight phi (discount phi_next - phi)^T, of shape (d, d)."""
        return frozen(self.left.T @ self.psi / len(self))

    @cached_property
    def b(self) -> Floats:
        """Mean of weight reward phi, of shape (d,)."""
        return frozen(self.left.T @ self.reward / len(self))

    @cached_property
    def C(self) -> Floats:
        """Mean of phi phi^T, of shape (d, d)."""
        return frozen(self._gram / len(self))

    @cached_property
    def _gram(self) -> Floats:
        self.check_dense()
        phi = np.asarray(self.phi, dtype=np.float64)
        return frozen(phi.T @ phi)

    @cached_property
    def left_square(self) -> Floats:
        """Mean of weight^2 phi phi^T, of shape (d, d)."""
        return self.C if self._weight is None else frozen(self.left.T @ self.left / len(self))

    @cached_property
    def update_form(self) -> Floats:
        """Matrix Psi with tr E[A_x S A_x^T] = tr(Psi S) tr(left_square) for every S, of shape (d, d)."""
        size = (self.left**2).sum(axis=1)
        return frozen((self.psi * (size / size.sum())[:, None]).T @ self.psi)

    def check_dense(self) -> None:
        """Raise if the rows are sparse.

        Raises
        ------
        InvalidInputError
            If the rows are sparse.
        """
        if self.is_sparse:
            raise InvalidInputError(
                f"This needs matrices of {self.n_features:,}^2 numbers, and so dense rows, but the rows are sparse.",
                "Use vrtd.Evaluator, or pass fewer features as an array.",
            )

    # Rank

    @property
    def rank(self) -> int:
        """Dimension of the span of the feature rows.

        Each feature is divided by its root mean square first. Rows of weight 0 are ignored.
        """
        return int(self.basis.shape[1])

    @property
    def basis(self) -> Floats:
        """Orthonormal basis of the span of the feature rows, of shape (d, rank).

        TD methods never leave theta_0 plus this span, and they give the same values in every orthonormal basis of it.
        """
        return self._span[0]

    @property
    def condition_number(self) -> float:
        """Condition number of the features on their span, each divided by its root mean square."""
        return self._span[1]

    def check_magnitude(self) -> None:
        """Raise if products of features or rewards may overflow or underflow.

        Raises
        ------
        InvalidInputError
            If the largest magnitude of the features or of the rewards is not between 1e-60 and 1e60.
        """
        for name, table in (("features", self.phi.data if is_sparse(self.phi) else self.phi), ("rewards", self.reward)):
            largest = float(np.abs(table).max(initial=0.0))
            if largest and not _LEAST_SIZE < largest < 1.0 / _LEAST_SIZE:
                raise InvalidInputError(
                    f"{name} must have a magnitude between {_LEAST_SIZE:g} and {1.0 / _LEAST_SIZE:g}, but the largest "
                    f"is {largest:.3g}.",
                    f"Rescale the {name}.",
                )

    @cached_property
    def _span(self) -> tuple[Floats, float]:
        self.check_dense()
        self.check_magnitude()
        # Scale all columns to the same size, so that small columns do not count as linearly dependent.
        norms = np.sqrt(np.einsum("ni,ni->i", self.phi, self.left))
        used = np.flatnonzero(norms > 0.0)
        if not used.size:
            return np.zeros((len(norms), 0)), np.inf
        if len(self) < used.size:
            return _wide_span(self.phi[:, used] * np.sqrt(self.weight)[:, None], norms, used)
        gram = self._gram if self._weight is None else self.phi.T @ self.left
        values, vectors = np.linalg.eigh(gram[np.ix_(used, used)] / np.outer(norms[used], norms[used]))
        kept = values > _RANK_TOLERANCE**2 * values[-1]
        basis = _complement(vectors[:, ~kept] / norms[used, None], used, len(norms))
        return basis, float(np.sqrt(values[-1] / values[kept][0]))

    def reduce_rank(self, theta_0: Floats | None = None) -> Transitions:
        """Return the rows in the coordinates of ``basis``, where the features have full rank.

        Parameters
        ----------
        theta_0 : ndarray of shape (d,), optional
            Start of the runs. Its component outside the span never changes and only shifts the rewards. If not given,
            it is 0.

        Returns
        -------
        Transitions
            The rows in the coordinates of ``basis``, or the rows themselves if their features have full rank.
        """
        if self.rank == self.n_features:
            return self
        B, reward = self.basis, self.reward
        if theta_0 is not None:
            reward = reward + self.psi @ self.outside(theta_0)
        reduced = Transitions.wrap(self.phi @ B, reward, self.phi_next @ B, self.discount, self._weight, self.ends)
        reduced._span = np.eye(self.rank), self.condition_number  # full rank by construction, despite rounding
        return reduced

    def outside(self, theta: Floats) -> Floats:
        """Return the component of theta that is orthogonal to the span of the rows.

        Parameters
        ----------
        theta : ndarray of shape (d,)
            Parameters.

        Returns
        -------
        ndarray of shape (d,)
            The orthogonal component.
        """
        if self.rank == self.n_features:
            return np.zeros(self.n_features)
        return np.asarray(theta - self.basis @ (self.basis.T @ theta))

    def spans(self, phi: Floats) -> NDArray[np.bool_]:
        """Return whether feature rows lie in the span of the transitions.

        Parameters
        ----------
        phi : ndarray of shape (m, d)
            Feature rows.

        Returns
        -------
        ndarray of bool, shape (m,)
            True for rows in the span.
        """
        if self.rank == phi.shape[1]:
            return np.ones(len(phi), bool)
        outside = phi - (phi @ self.basis) @ self.basis.T
        return np.asarray(np.square(outside).sum(axis=1) <= _OUTSIDE * np.square(phi).sum(axis=1))

    # Solution and noise, which need features of full rank

    @cached_property
    def theta_star(self) -> Floats:
        """Solution of A theta + b = 0, of shape (d,).

        It is the estimate of least-squares temporal differences (LSTD).
        """
        size = np.sqrt(np.diag(self.C))
        condition = condition_number(self.A / np.outer(size, size)) if (size > 0.0).all() else np.inf
        check_invertible(
            condition,
            self.n_features,
            f"A of the transitions must be invertible, but has condition number {condition:.3g} from {len(self)} rows.",
            "Use more rows, or remove dependent features.",
            stacklevel=3,
        )
        return frozen(-solve_scaled(self.A, self.b, size))

    @cached_property
    def noise(self) -> Floats:
        """Noise g_x(theta_star) of the rows, whose mean is 0, of shape (n, d).

        It is scaled up for the degrees of freedom that theta_star uses.
        """
        if len(self) <= self.n_features:
            raise InvalidInputError(
                f"The noise can be estimated only from more rows than features, but there are {len(self)} rows and "
                f"{self.n_features} features.",
                "Use more rows.",
            )
        delta = self.reward + self.psi @ self.theta_star
        used = np.sqrt(len(self) / (len(self) - self.n_features))
        return np.asarray(self.left * (used * delta)[:, None])

    @cached_property
    def noise_covariance(self) -> Floats:
        """Covariance of g_x at theta_star, of shape (d, d)."""
        return frozen(self.noise.T @ self.noise / len(self))

    @cached_property
    def lag_window(self) -> int | None:
        """Number of lags to sum of the noise A^-1 g_x along the rows.

        It is None if the correlation extends over too many rows to be estimated.
        """
        return lag_window(np.asarray(np.linalg.solve(self.A, self.noise.T).T, dtype=np.float64))

    @property
    def summed_lags(self) -> int:
        """``lag_window``, or a tenth of the rows if it is None."""
        return len(self) // LEAST_WINDOWS if self.lag_window is None else self.lag_window

    @cached_property
    def long_run_covariance(self) -> Floats:
        """Long-run covariance of g_x(theta_star) along the rows, positive semidefinite, of shape (d, d).

        Lags up to the window are summed. A sum with negative directions shows that the window is too short, as it is
        for noise that alternates with a long period. The covariance of block means is returned in this case.
        """
        total = lag_covariance(self.noise, self.summed_lags)
        values = np.linalg.eigvalsh(total)
        if values[0] >= -_NEGATIVE * values[-1]:
            return clip_negative(total)
        covariance, _ = block_covariances(block_means(self.noise, min(_BLOCKS, len(self))))
        return covariance * len(self)

    @cached_property
    def influence(self) -> Floats:
        """Influence of blocks of rows on theta_star, of shape (B, d).

        It consists of the block means of -A^-1 g_x.
        """
        if len(self) < self._n_blocks:
            raise InvalidInputError(
                f"The influence needs at least {self._n_blocks} rows, but there are {len(self)}.", "Use more rows."
            )
        g = self.left * (self.reward + self.psi @ self.theta_star)[:, None]
        return -solve_scaled(self.A, block_means(g, self._n_blocks).T, np.sqrt(np.diag(self.C))).T

    @property
    def merged_influence(self) -> Floats:
        """``influence`` of blocks that are four times as long, of shape (B / 4, d)."""
        return block_means(self.influence, self._n_blocks // _MERGED)

    @property
    def _n_blocks(self) -> int:
        return _MERGED * max(2, min(_MOST_BLOCKS, len(self) // _LEAST_BLOCK) // _MERGED)

    @cached_property
    def effective_blocks(self) -> float:
        """Effective number of independent blocks in the slowest direction.

        It is at most 256, and nan for fewer than 256 rows.

        B block means that follow an AR(1) process with correlation k count as B (1 - k) / (1 + k) independent ones. The
        directions are those of the features, which determine A, and those of the influence, which determines the
        values. If there are few rows per feature, these directions cannot be separated, and each direction is weighted
        by its variance.
        """
        B, scale = self._n_blocks, self.phi.std(axis=0)
        if B < _LEAST_BLOCKS:
            return float("nan")
        if len(self) < _ROWS_PER_DIRECTION * self.rank:
            k = max(0.0, block_correlation(block_means(self.phi - self.phi.mean(axis=0), B), np.ones(self.n_features)))
            return B * (1.0 - k) / (1.0 + k)
        scaled = self.phi / np.where(scale > 0.0, scale, 1.0)
        centred = scaled - scaled.mean(axis=0)
        metric = np.linalg.pinv(centred.T @ centred / len(self), rcond=_RANK_TOLERANCE**2, hermitian=True)
        k = max(0.0, block_correlation(block_means(centred, B), metric))
        with suppress(InvalidInputError):
            k = max(k, block_correlation(self.influence, self.C))
        return B * (1.0 - k) / (1.0 + k)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all columns except ``ends``, in hexadecimal."""
        sha = hashlib.sha256()
        tables = [
            part
            for table in (self.phi, self.phi_next)
            for part in ((table.data, table.indices, table.indptr) if is_sparse(table) else (table,))
        ]
        half = len(tables) // 2
        for array in (*tables[:half], self.reward, *tables[half:], self.discount, self.weight):
            sha.update(array.astype(array.dtype.newbyteorder("<")).tobytes())
        return sha.hexdigest()


def _as_table(name: str, value: Any) -> Any:
    """Return a private copy of dense rows, or sparse rows."""
    if not is_scipy_sparse(value):
        return frozen(real_array(name, value))
    table = as_sparse_rows(name, value).copy()
    real_array(name, table.data)
    return table


def _check_column(name: str, values: Any, n: int, most: float | None = None) -> Floats:
    """Return a private copy of n numbers; with ``most``, each of them must lie in [0, most]."""
    column = real_array(name, values)
    if column.shape != (n,):
        raise InvalidInputError(
            f"{name} must have the shape ({n},), but got {column.shape}.", "Pass one number per row of phi."
        )
    if most is not None and not ((column >= 0.0) & (column <= most)).all():
        i = int(((column < 0.0) | (column > most)).argmax())
        condition = "lie in [0, 1]" if most == 1.0 else "be non-negative"
        raise InvalidInputError(f"{name} must {condition}, but got {column[i]} in row {i}.", "Correct that row.")
    return frozen(column)


def _wide_span(rows: Floats, norms: Floats, used: NDArray[np.int64]) -> tuple[Floats, float]:
    """Return an orthonormal (d, r) basis of the span of fewer rows than features, and their condition number."""
    _, singular, right = np.linalg.svd(rows / norms[used], full_matrices=False)
    kept = singular > _RANK_TOLERANCE * singular[0]
    basis = np.zeros((len(norms), int(kept.sum())))
    basis[used] = np.linalg.qr(norms[used, None] * right[kept].T)[0]
    return basis, float(singular[0] / singular[kept][-1])


def _complement(null: Floats, used: NDArray[np.int64], d: int) -> Floats:
    """Return an orthonormal (d, r) basis of the used features' directions that are orthogonal to ``null``."""
    inside = np.linalg.qr(null, mode="complete")[0][:, null.shape[1] :] if null.size else np.eye(used.size)
    basis = np.zeros((d, inside.shape[1]))
    basis[used] = inside
    return basis
