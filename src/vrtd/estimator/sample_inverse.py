"""An approximate inverse of A from some rows, in memory that does not grow as the square of the number of features.

It removes what a run of TD leaves of its start in slow directions, and turns gradients into estimates of theta. What it
gets wrong is only left undone: it changes how fast estimates converge, not where to.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import lu_factor, lu_solve
from scipy.sparse.linalg import lsqr

from vrtd.arrays import Floats
from vrtd.problems import Transitions

# Of the noise of A in the rows, by how much it counts. Measured on 25 chains: from 0.1 to 1 the errors differ by a few
# percent; with 0, rare states of a table make them grow.
_CAUTION = 0.3
# To find a constant: how often to iterate, the variance that it may have, and by how much it may be stretched. Beyond,
# no row tells of it: with discount 1, none that terminates.
_ITERATIONS, _MOST_VARIED, _MOST_STRETCHED = 15, 0.01, 1e4
_LEAST_SHARE, _TINY = 1e-9, 1e-300  # so that what is factored is never singular


class SampleInverse:
    """Minus the inverse of A, as far as n rows tell: w that minimises |A w + v|^2 + E|(A_n - A) w|^2.

    The second term is the variance of A_n w, A_n the mean over n rows: caution in directions that few rows tell of. The
    rows show it as c w^T S w, S = sum_t |phi_t|^2 psi_t psi_t^T / n^2. With d features and not many more rows they show
    too little of it, so that S is mixed with a multiple of the identity of the same trace, with the share (d / n)^2.
    For d < n, w is solved for (d equations), otherwise y with w = Psi^T y (n equations).

    Parameters
    ----------
    rows : Transitions
        The rows, in any order.
    caution : float
        c, by how much the variance counts.
    """

    def __init__(self, rows: Transitions, caution: float = _CAUTION) -> None:
        self._left, self._n, d = rows.left, len(rows), rows.n_features
        # A feature that only successors have is in no equation of its own: it must not explain the rewards of others.
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
        """Return about how many operations it takes to build."""
        few, many = sorted((n_rows, n_features))
        return 4 * few * few * many

    def __call__(self, vectors: Floats) -> Floats:
        """Return w for each v of `vectors`, (k, d) or (d,)."""
        v = -self._n * np.atleast_2d(vectors).T
        if self._is_wide:
            w = self._psi.T @ lu_solve(self._factors, self._left @ v)
        else:
            w = lu_solve(self._factors, self._A.T @ v)
        w += self._stretch * np.outer(self._constant, self._constant @ w)
        return np.asarray(w.T.reshape(np.shape(vectors)))


def _find_constant(rows: Transitions, psi: Floats) -> tuple[Floats, float]:
    """Return the direction of w in which phi.w is the same for all rows, as far as there is one, and by how much it is
    to be stretched.

    In it psi.w is (1 - gamma) phi.w, and so is its noise: it is slow, but known well. Stretched, it is as the others.
    """
    d = rows.n_features
    found = lsqr(np.asarray(rows.phi, dtype=np.float64), np.ones(len(rows)), iter_lim=_ITERATIONS)[0]
    size = float(np.linalg.norm(found))
    others = rows.phi_next[rows.discount > 0.0]  # on which it was not fitted
    if not size > 0.0 or not len(others) or np.square(others @ found - 1.0).mean() > _MOST_VARIED:
        return np.zeros(d), 0.0
    unit = found / size
    along, usual = float(np.square(psi @ unit).mean()), float(np.square(psi).sum(axis=1).mean()) / d
    stretch = np.sqrt(usual / along) if along > 0.0 else np.inf
    return unit, max(1.0, stretch) - 1.0 if stretch < _MOST_STRETCHED else 0.0


def whitened_products(phi: Floats, one: Floats, other: Floats) -> tuple[Floats, float]:
    """Return v^T C^-1 u for the rows v and u of two tables, C = phi^T phi / n + r I, and how many directions count.

    The ridge r is the noise of a mean over n rows, tr(C) / n. Directions count by their share in C that is not ridge.
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
