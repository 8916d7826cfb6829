"""An approximate inverse of A from some rows, in memory that does not grow with the square of the number of features.

It removes the initial transient of a run of TD in slow directions, and turns pseudo-gradients into estimates of theta.
Its errors change how fast estimates converge, but not their limit.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import lu_factor, lu_solve
from scipy.sparse.linalg import lsqr

from vrtd.arrays import Floats
from vrtd.problems import Transitions

# Weight of the noise of A in the rows. On 25 chains, errors differ by a few percent between 0.1 and 1; with 0 they are
# larger because of rare states of a table.
_CAUTION = 0.3
# Search for a constant: number of iterations, largest variance of the constant, and largest stretch. Beyond it the rows
# do not determine the constant: with discount 1, no row terminates.
_ITERATIONS, _MOST_VARIED, _MOST_STRETCHED = 15, 0.01, 1e4
_LEAST_SHARE, _TINY = 1e-9, 1e-300  # so that no matrix is singular


class SampleInverse:
    """Approximate inverse of -A from n rows: the w that minimises |A w + v|^2 + E|(A_n - A) w|^2.

    The second term is the variance of A_n w, where A_n is the mean over n rows. It damps directions that few rows
    determine. It is estimated by c w^T S w with S = sum_t |phi_t|^2 psi_t psi_t^T / n^2. If the number of features d is
    not much smaller than n, this is too small, so that S is mixed with a multiple of the identity of the same trace,
    whose share is (d / n)^2. For d < n the d equations for w are solved, otherwise n equations for y with w = Psi^T y.

    Parameters
    ----------
    rows : Transitions
        The rows, in any order.
    caution : float, default=0.3
        Weight c of the variance.
    """

    def __init__(self, rows: Transitions, caution: float = _CAUTION) -> None:
        self._left, self._n, d = rows.left, len(rows), rows.n_features
        # A feature that is nonzero only in successors has no equation, and must not explain the rewards of others.
        self._psi = psi = np.where((self._left != 0.0).any(axis=0), rows.psi, 0.0)
        self._constant, self._stretch = _find_constant(rows, psi)
        psi += self._stretch * np.outer(psi @ self._constant, self._constant)
        share = min(1.0, d / self._n) ** 2
        sizes = caution * np.square(self._left).sum(axis=1)
        ridge = max(max(share, _LEAST_SHARE) * float(sizes @ np.square(psi).sum(axis=1)) / d, _TINY)
        self._is_wide = d >= self._n
        if self._is_wide:  # the share is 1
            product = self._left @ self._left.T @ (psi @ psi.T)
            self._factors = lu_factor(product + ridge * np.eye(self._n), overwrite_a=True)
        else:
            self._A = self._left.T @ psi
            noise = (psi * ((1.0 - share) * sizes)[:, None]).T @ psi
            self._factors = lu_factor(self._A.T @ self._A + noise + ridge * np.eye(d), overwrite_a=True)

    @staticmethod
    def count_work(n_rows: int, n_features: int) -> int:
        """Return the approximate number of operations to build the inverse."""
        few, many = sorted((n_rows, n_features))
        return 4 * few * few * many

    def __call__(self, vectors: Floats) -> Floats:
        """Return w for each v in `vectors`, (k, d) or (d,)."""
        v = -self._n * np.atleast_2d(vectors).T
        if self._is_wide:
            w = self._psi.T @ lu_solve(self._factors, self._left @ v)
        else:
            w = lu_solve(self._factors, self._A.T @ v)
        w += self._stretch * np.outer(self._constant, self._constant @ w)
        return np.asarray(w.T.reshape(np.shape(vectors)))


def _find_constant(rows: Transitions, psi: Floats) -> tuple[Floats, float]:
    """Return the direction of w in which phi.w is the same for all rows, if there is one, and its stretch minus 1.

    In this direction psi.w is (1 - gamma) phi.w, and its noise is small, too: it is slow, but known accurately. The
    stretch makes it as large as the other directions.
    """
    d = rows.n_features
    found = lsqr(np.asarray(rows.phi, dtype=np.float64), np.ones(len(rows)), iter_lim=_ITERATIONS)[0]
    size = float(np.linalg.norm(found))
    others = rows.phi_next[rows.discount > 0.0]  # the direction was not fitted to these
    if not size > 0.0 or not len(others) or np.square(others @ found - 1.0).mean() > _MOST_VARIED:
        return np.zeros(d), 0.0
    unit = found / size
    along, usual = float(np.square(psi @ unit).mean()), float(np.square(psi).sum(axis=1).mean()) / d
    stretch = np.sqrt(usual / along) if along > 0.0 else np.inf
    return unit, max(1.0, stretch) - 1.0 if stretch < _MOST_STRETCHED else 0.0


def whitened_products(phi: Floats, one: Floats, other: Floats) -> tuple[Floats, float]:
    """Return v^T C^-1 u for the rows v and u of two tables, C = phi^T phi / n + r I, and the number of directions.

    The ridge r is the noise of a mean over n rows, tr(C) / n. Each direction counts with its share in C without the
    ridge (effective degrees of freedom).
    """
    n, d = phi.shape
    ridge = max(float(np.square(phi).sum()) / n**2, _TINY)
    if d < n:
        C = phi.T @ phi / n
        factors = lu_factor(C + ridge * np.eye(d))
        return np.einsum("ki,ik->k", one, lu_solve(factors, other.T)), float(np.trace(lu_solve(factors, C)))
    G = phi @ phi.T
    factors = lu_factor(G + n * ridge * np.eye(n))
    inside = np.einsum("kn,nk->k", one @ phi.T, lu_solve(factors, phi @ other.T))
    return ((one * other).sum(axis=1) - inside) / ridge, float(np.trace(lu_solve(factors, G)))
