"""Exact moments of TD along one trajectory (a Markov jump linear system, Hu and Syed 2019).

The error and the state of the chain are correlated. So the recursion is for Y_s = E[y y^T; state s], one symmetric
matrix per state, with y = (u, 1) as in `vrtd.theory.moments`:

    Y'_{s'} = sum over transitions x = (s, s') of p_x F_x Y_s F_x^T,   F_x = I + a phi(s) zeta_x^T on the rows of u.

A longer y contains several iterates on the same trajectory, and a sum of them (`vrtd.theory.moments.Iterates`).

A compiled loop over transitions makes one update. Long runs with a constant step do not need every update. After the
chain has mixed, Y_s is a fixed linear function W of the total Y = sum_s Y_s: this is the invariant subspace of the slow
modes, which is found by iterating on a basis. The totals then follow a small matrix with cheap powers. A running sum in
y is the same in every state. It is left out of the products with the basis, which it would make ill-conditioned, and
added in closed form. If the chain mixes too slowly for this, every update is made.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import Floats
from vrtd.errors import AccuracyError, InvalidInputError
from vrtd.kernels.jit import compiled
from vrtd.problems import LinearProblem
from vrtd.problems.cone_radius import cone_radius
from vrtd.theory.checks import check_on_policy, most_updates
from vrtd.theory.increments import zeta
from vrtd.theory.moments import LAST_ITERATE, Iterates, fixed_point, fixed_point_vector
from vrtd.theory.symmetric import corner, operator, orbit, pack, triangle, unpack

# Relative accuracy of the slow subspace, and of the test whether the state lies in it.
_TOLERANCE = 1e-12
# Limits on the size of the basis of the slow subspace, and on the unknowns of a dense solve.
_MOST_NUMBERS, _MOST_UNKNOWNS = 1 << 25, 3000
# Least number of products with the basis that can find the slow subspace.
_LEAST_SWEEPS = 10
# Number of updates between two tests whether the state is in the slow subspace.
_STRIDE = 8


class _Slow(NamedTuple):
    basis: Floats  # (D, S, n, n): W; its totals are the unit symmetric matrices
    T: Floats  # (D, D) the map of the packed totals


class MarkovTD:
    """Recursion of the moments of TD along a trajectory of one problem."""

    def __init__(self, problem: LinearProblem, iterates: Iterates = LAST_ITERATE) -> None:
        check_on_policy(problem)
        edges, self.n_features = problem.mrp.edges, problem.n_features
        iterates.check_features(self.n_features)
        self.size = iterates.size(self.n_features)
        self._most_updates = most_updates(edges.origin.size, self.size - 1)
        self._edges = edges.origin, edges.successor, edges.probability, np.array(problem.phi), zeta(problem)
        self._stationary, self._theta_star, self._iterates = problem.mrp.stationary, problem.theta_star, iterates

    def start(self, theta_0: Floats, initial: Floats) -> Floats:
        """Return Y_s, (S, n, n), if the first state has the distribution ``initial``."""
        y = self._iterates.start(theta_0 - self._theta_star)
        return np.asarray(initial[:, None, None] * np.outer(y, y))

    def update(self, Y: Floats, step_size: float, n_updates: int = 1) -> Floats:
        """Return Y after ``n_updates`` updates; Y may be a stack (k, S, n, n)."""
        return self._update(Y, step_size, n_updates, np.array(self._iterates.weights))

    def _update(self, Y: Floats, step_size: float, n_updates: int, weights: Floats) -> Floats:
        old = np.array(Y, ndmin=4)
        new = np.empty_like(old)
        _updates(old, new, *self._edges, step_size, n_updates, self._iterates.levels, weights)
        return (old if n_updates % 2 == 0 else new).reshape(Y.shape)

    def run(self, Y: Floats, step_size: float, counts: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """Return the packed totals after each of the increasing ``counts`` of updates, and Y after the last one."""
        with np.errstate(over="ignore", invalid="ignore"):  # unstable steps overflow
            totals = np.empty((len(counts), triangle(self.size)))
            slow = self._slow(step_size, int(counts[-1]) // triangle(self.size))
            if slow is None:
                self.check_updates(int(counts[-1]))
            done, i = 0, 0
            while i < len(counts):
                if slow is not None and _is_slow(Y, slow):
                    totals[i:] = orbit(slow.T, pack(Y.sum(axis=0)), counts[i:] - done)
                    return totals, np.tensordot(totals[-1], slow.basis, 1)
                gap = int(counts[i]) - done
                gap = gap if slow is None else min(gap, _STRIDE)
                Y = self.update(Y, step_size, gap) if gap else Y
                done += gap
                if done == counts[i]:
                    totals[i] = pack(Y.sum(axis=0))
                    i += 1
            return totals, Y

    def check_updates(self, n_updates: int) -> None:
        """Raise if there are more updates than can be made one by one."""
        if n_updates > self._most_updates:
            limit = f"exact moments of TD on a chain of this size are limited to {self._most_updates} updates"
            raise InvalidInputError(f"{limit}, but there are {n_updates}.", "Simulate instead, or lower n_gradients.")

    def until_slow(self, Y: Floats, step_size: float, most: int) -> tuple[Floats, Floats] | None:
        """Return the packed totals after 0, 1, 2, ... updates until the slow subspace is reached, and their map there.

        Return None if that takes more than ``most`` updates.
        """
        slow = self._slow(step_size, most)
        if slow is None:
            return None
        totals = [pack(Y.sum(axis=0))]
        while not _is_slow(Y, slow):
            if len(totals) > most:
                return None
            Y = self.update(Y, step_size)
            totals.append(pack(Y.sum(axis=0)))
        return np.array(totals), slow.T

    def stationary(self, step_size: float) -> Floats:
        """Return the limit of E[u u^T] of the last iterate, (d, d)."""
        assert self._iterates == LAST_ITERATE
        what, d = f"step_size {step_size}", self.n_features
        slow = self._slow(step_size, 20_000)
        if slow is not None:
            return fixed_point(slow.T, d, what)
        if self.n_moments > _MOST_UNKNOWNS:
            raise AccuracyError(
                f"the chain mixes so slowly that its stationary moment needs a system of {self.n_moments} unknowns, "
                f"more than {_MOST_UNKNOWNS}. Use exact_curve instead."
            )
        return stationary_by_state(self.dense(step_size), self._stationary, d, what)

    def stationary_mean(self, step_size: float) -> Floats:
        """Return the limit of E u, (d,).

        It is the sum of v_s = E[u; s], with v_s' = sum over x = (s, s') of p_x (v_s + a E[g_x; s]).
        """
        origin, successor, probability, phi, zeta = self._edges
        n_states, d = phi.shape
        if n_states * d > _MOST_UNKNOWNS:
            raise InvalidInputError(
                f"the mean in the long run is limited to states x features = {_MOST_UNKNOWNS}, "
                f"but there are {n_states} x {d}.",
                "Simulate instead.",
            )
        flow = step_size * probability[:, None] * phi[origin]
        moved = np.einsum("ei,ej->eij", flow, zeta[:, :d]) + probability[:, None, None] * np.eye(d)
        T, fed = np.zeros((n_states, n_states, d, d)), np.zeros((n_states, d))
        np.add.at(T, (successor, origin), moved)
        np.add.at(fed, successor, flow * (self._stationary[origin] * zeta[:, d])[:, None])
        affine = np.eye(n_states * d + 1)
        affine[:-1, :-1] = T.transpose(0, 2, 1, 3).reshape(n_states * d, n_states * d)
        affine[:-1, -1] = fed.ravel()
        limit = fixed_point_vector(affine, f"step_size {step_size}")
        return np.asarray(limit.reshape(n_states, d).sum(axis=0))

    @property
    def n_moments(self) -> int:
        """Size of all the packed Y_s together."""
        return len(self._stationary) * triangle(self.size)

    def dense(self, step_size: float) -> Floats:
        """Return one update as a matrix on the packed Y_s, one block per state."""
        units = np.eye(self.n_moments).reshape(self.n_moments, -1, triangle(self.size))
        images = pack(self.update(unpack(units, self.size), step_size))
        return np.ascontiguousarray(images.reshape(self.n_moments, -1).T)

    def radius(self, step_size: float) -> float:
        """Return the spectral radius of the map of second moments; TD is mean-square stable if it is below 1."""
        assert self._iterates == LAST_ITERATE
        n_states, d = len(self._stationary), self.n_features

        def product(x: Floats) -> Floats:
            Y = np.zeros((n_states, d + 1, d + 1))
            Y[:, :d, :d] = unpack(x.reshape(n_states, -1), d)
            return pack(self.update(Y, step_size)[:, :d, :d]).ravel()

        return cone_radius(product, (self._stationary[:, None] * pack(np.eye(d))).ravel())

    def _slow(self, step_size: float, most: int) -> _Slow | None:
        """Return the slow subspace, or None if that takes more than `most` products with its basis."""
        size = triangle(self.size)
        most = min(most, self._most_updates // size)
        if most < _LEAST_SWEEPS or len(self._stationary) * self.size**2 * size > _MOST_NUMBERS:
            return None
        basis = self._stationary[:, None, None] * unpack(np.eye(size), self.size)[:, None]
        add = operator(self._iterates.add_sum, self.size)
        subtract = operator(partial(self._iterates.add_sum, sign=-1.0), self.size)
        before = np.inf
        for k in range(most):
            image = self._update(basis, step_size, 1, np.empty(0))
            totals = pack(image.sum(axis=1))
            if not np.isfinite(totals).all() or np.linalg.cond(totals) > 1e12:
                return None
            new = np.tensordot(subtract.T @ np.linalg.inv(totals), self._iterates.add_sum(image), 1)
            change = float(np.abs(new - basis).max() / np.abs(new).max())
            basis = new
            if change <= _TOLERANCE:
                T = add @ pack(self._update(basis, step_size, 1, np.empty(0)).sum(axis=1)).T
                T[-1] = np.eye(1, size, size - 1)  # the 1 of y stays exactly 1
                return _Slow(basis, T)
            rate = change / before
            if k > 10 and (rate >= 1.0 or k + np.log(_TOLERANCE / change) / np.log(rate) > most):
                return None
            before = change
        return None


def _is_slow(Y: Floats, slow: _Slow) -> bool:
    back = np.tensordot(pack(Y.sum(axis=0)), slow.basis, 1)
    return bool(np.abs(Y - back).max() <= 10.0 * _TOLERANCE * np.abs(Y).max())


def stationary_by_state(T: Floats, q: Floats, d: int, what: str) -> Floats:
    """Return E[u u^T], (d, d), of the fixed point of a map of the packed Y_s, with the known q_s = P(state s)."""
    n_states = len(q)
    size = len(T) // n_states
    ones = np.arange(n_states) * size + size - 1  # the 1 of y in each block
    rest = np.setdiff1d(np.arange(len(T)), ones)
    column = T[rest][:, ones] @ q
    reduced = np.block([[T[np.ix_(rest, rest)], column[:, None]], [np.zeros((1, len(rest))), np.ones((1, 1))]])
    limit = fixed_point_vector(reduced, what).reshape(n_states, size - 1).sum(axis=0)
    return unpack(limit[corner(d + 1, d)], d)


@compiled
def _updates(old, new, origin, successor, probability, phi, zeta, step_size, n_updates, levels, weights):
    """Make `n_updates` updates of each (S, n, n) of the stack; the result is in `old` if their number is even.

    Otherwise it is in `new`. F Y F^T = Y + sum_m a_m (f_m c_m^T + c_m f_m^T) with a_m = 2^m a, f_m = phi on the rows of
    u^m, zeta_m = zeta on those of (u^m, 1) and c_m = Y zeta_m + sum_k (a_k/2) (zeta_k^T Y zeta_m) f_k. So one half is
    summed up, and the transpose is added at the end.
    """
    d = phi.shape[1]
    n = old.shape[2]
    u = n - levels * d - 1
    c, forms = np.empty((levels, n)), np.empty((levels, levels))
    for _ in range(n_updates):
        for stack in range(old.shape[0]):
            Y, total = old[stack], new[stack]
            total[:] = 0.0
            for e in range(origin.size):
                s, p = origin[e], probability[e]
                half = total[successor[e]]
                for m in range(levels):
                    for i in range(n):
                        c[m, i] = zeta[e, d] * Y[s, n - 1, i]
                    for j in range(d):
                        for i in range(n):
                            c[m, i] += zeta[e, j] * Y[s, u + m * d + j, i]
                    for k in range(levels):
                        form = zeta[e, d] * c[m, n - 1]
                        for j in range(d):
                            form += zeta[e, j] * c[m, u + k * d + j]
                        forms[m, k] = form
                for m in range(levels):
                    a = step_size
                    for k in range(levels):
                        for i in range(d):
                            c[m, u + k * d + i] += 0.5 * a * forms[m, k] * phi[s, i]
                        a *= 2.0
                for i in range(n):
                    for j in range(n):
                        half[i, j] += 0.5 * p * Y[s, i, j]
                a = step_size
                for m in range(levels):
                    for i in range(d):
                        factor = p * a * phi[s, i]
                        for j in range(n):
                            half[u + m * d + i, j] += factor * c[m, j]
                    a *= 2.0
            for s in range(total.shape[0]):
                for i in range(n):
                    for j in range(i + 1):
                        value = total[s, i, j] + total[s, j, i]
                        total[s, i, j] = value
                        total[s, j, i] = value
                for m in range(weights.size):
                    for i in range(d):
                        for j in range(n):
                            total[s, i, j] += weights[m] * total[s, u + m * d + i, j]
                    for i in range(n):
                        for j in range(d):
                            total[s, i, j] += weights[m] * total[s, i, u + m * d + j]
        old, new = new, old
