"""Moments of the pseudo-gradient of one transition, from which the exact recursions are built.

With u = theta - theta_star and y = (u, 1), the pseudo-gradient is linear in y:

    g_x(theta) = Z_x y,   Z_x = phi zeta^T,   zeta = (discount phi' - phi, delta),

where delta is the TD error at theta_star. So E[g g^T] = E[Z_x Y Z_x^T] for Y = E[y y^T], which contains E[u u^T], E u
and 1. Symmetric matrices are packed into their upper triangles.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from vrtd.algorithms import ChainSampling
from vrtd.arrays import Floats
from vrtd.errors import InvalidInputError
from vrtd.lazy import cached_property
from vrtd.problems import LinearProblem
from vrtd.theory.checks import check_features, check_on_policy, check_problem
from vrtd.theory.symmetric import operator, outer, pack, quadratic, triangle, unpack

# Transitions are processed in pieces of about this many numbers.
_PIECE = 1 << 22
# Largest number of states S, because (S, S) systems are solved with dense matrices.
_MOST_STATES = 4000


class Correlation(ABC):
    """Base of the covariances between the transitions of a trajectory.

    Cov_k[Y] = E[Z_0 Y Z_k^T] - Z Y Z^T is stored as the matrix C_k with Cov_k[Y]_ij = sum_pq Y_pq C_k[(i, p), (j, q)].
    """

    @abstractmethod
    def within(self, batch_size: float) -> Floats:
        """Return the sum over lags k = 1..M-1 of (1 - k/M) C_k; with M = inf the sum over all lags."""

    @abstractmethod
    def between(self, batch_size: int, decay: Floats) -> Floats:
        """Return the discounted covariances of the means of successive batches, the sum over j >= 1 of decay^(j-1) D_j.

        D_j = sum of (M - |k - jM|) C_k over |k - jM| < M is M^2 times the covariance of the means of a batch and of the
        j-th batch after it. ``decay`` is (d, d) and acts on i; it is the factor by which an epoch multiplies the error.
        """


@dataclass(frozen=True, eq=False)
class Increments:
    """Moments of Z_x; ``correlation`` is None if the transitions are independent."""

    theta_star: Floats
    mean: Floats  # (d, d + 1) Z = E Z_x, whose last column is 0
    square: Floats  # packed map Y -> E[Z_x Y Z_x^T]
    correlation: Correlation | None = None

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return len(self.theta_star)

    @property
    def A(self) -> Floats:
        """Mean of A_x, (d, d)."""
        return self.mean[:, :-1]

    @cached_property
    def mean_square(self) -> Floats:
        """Packed map Y -> Z Y Z^T."""
        return operator(lambda Y: self.mean @ Y @ self.mean.T, self.n_features + 1)

    def batch_square(self, batch_size: float) -> Floats:
        """Return the packed map Y -> E[G G^T] for G = mean of Z_x y over a batch; a batch of inf has the exact mean."""
        extra = self.square - self.mean_square
        if self.correlation is not None:
            extra = extra + lag_operator(self.correlation.within(batch_size), self.n_features)
        return self.mean_square + extra / batch_size

    def long_run_covariance(self) -> Floats:
        """Return (d, d) the limit of M Cov(mean of g_x(theta_star) over M transitions); Sigma if independent."""
        square = self.square
        if self.correlation is not None:
            square = square + lag_operator(self.correlation.within(inf), self.n_features)
        return unpack(square[:, -1], self.n_features)

    def start(self, theta_0: Floats) -> Floats:
        """Return pack(y y^T) at theta_0."""
        return outer(np.append(theta_0 - self.theta_star, 1.0))


def independent_increments(problem: LinearProblem) -> Increments:
    """Return the moments of independent transitions from the state distribution of the problem.

    Examples
    --------
    >>> from vrtd.problems import random_mdp
    >>> problem = random_mdp()
    >>> bool(np.allclose(independent_increments(problem).long_run_covariance(), problem.noise_covariance))
    True
    """
    check_problem(problem)
    edges = problem.mrp.edges
    d, n_edges = problem.n_features, edges.origin.size
    check_features(d, "TD")
    weight = problem.state_distribution[edges.origin] * edges.probability
    square = np.zeros((triangle(d), triangle(d + 1)))
    piece = max(1, _PIECE // triangle(d + 1))
    for i in range(0, n_edges, piece):
        part = slice(i, i + piece)
        square += (weight[part, None] * outer(problem.phi[edges.origin[part]])).T @ quadratic(zeta(problem, part))
    mean = np.concatenate([problem.A, np.zeros((d, 1))], axis=1)
    return Increments(problem.theta_star, mean, square)


def correlated_increments(problem: LinearProblem) -> Increments:
    """Return the moments of consecutive transitions of one stationary trajectory."""
    check_on_policy(problem)
    plain = independent_increments(problem)
    return replace(plain, correlation=_ChainCorrelation(problem, plain.mean))


def long_run_noise(problem: LinearProblem, sampling: ChainSampling) -> Floats:
    """Return (d, d) the limit of M Cov(mean of g_x(theta_star) over M transitions), for any number of features."""
    check_problem(problem)
    if sampling == "iid":
        return problem.noise_covariance
    check_on_policy(problem)
    lags = _ChainCorrelation(problem, np.zeros(problem.n_features), slice(-1, None)).within(inf)
    return np.asarray(problem.noise_covariance + lags + lags.T)


def zeta(problem: LinearProblem, part: slice = slice(None)) -> Floats:
    """Return zeta for each transition, (E, d + 1)."""
    edges, phi = problem.mrp.edges, problem.phi
    origin, successor = edges.origin[part], edges.successor[part]
    psi = edges.discount[part, None] * phi[successor] - phi[origin]
    delta = edges.reward[part] + psi @ problem.theta_star
    return np.column_stack([psi, delta])


class _ChainCorrelation(Correlation):
    """Covariances along a trajectory of a known chain, with sums over lags in closed form.

    With F(s) = E[Z_x | s] - Z, J(s') = E[Z_x; next state s'] and N = (I - P)^-1 on functions of mean 0,
    C_k = J^T P^(k-1) F, so that

    sum_{k=1}^{M-1} (1 - k/M) P^(k-1) = N - N^2 (I - P^M) / M   and   D_j = J^T R P^(M (j-1)) R F,   R = N (I - P^M).
    """

    def __init__(self, problem: LinearProblem, mean: Floats, columns: slice = slice(None)) -> None:
        """Prepare the sums; `mean` is the part of Z in these `columns`."""
        mrp, phi = problem.mrp, problem.phi
        edges, mu, n = mrp.edges, mrp.stationary, len(phi)
        if n > _MOST_STATES:
            raise InvalidInputError(
                f"covariances along a trajectory are limited to {_MOST_STATES} states, but there are {n}.",
                "Simulate instead.",
            )
        by_edge = zeta(problem)[:, columns]
        conditional = np.stack(
            [np.bincount(edges.origin, edges.probability * column, minlength=n) for column in by_edge.T], axis=1
        )
        self._F = np.einsum("si,sj->sij", phi, conditional).reshape(n, -1) - mean.ravel()
        self._J = np.zeros_like(self._F)
        flow = (mu[edges.origin] * edges.probability)[:, None] * phi[edges.origin]
        np.add.at(self._J, edges.successor, np.einsum("ei,ej->eij", flow, by_edge).reshape(len(flow), -1))
        P = mrp.matrix(edges.probability).toarray()
        self._squares = [P - mu]  # P^1, P^2, P^4, ... on functions of mean 0
        self._fundamental = np.linalg.inv(np.eye(n) - self._squares[0])  # N on functions of mean 0
        self._NF = self._fundamental @ self._F

    def within(self, batch_size: float) -> Floats:
        """Sum the lag covariances with the weights of pairs inside a batch."""
        weighted = self._NF
        if batch_size < inf:
            unmixed = weighted - self._power(int(batch_size), weighted)
            weighted = weighted - self._fundamental @ unmixed / batch_size
        return np.asarray(self._J.T @ weighted)

    def between(self, batch_size: int, decay: Floats) -> Floats:
        """Sum the lag covariances with the weights of pairs from two batches."""
        past = self._NF - self._power(batch_size, self._NF)
        sums, power = self._J.T @ self._fundamental, self._power(batch_size, np.eye(len(self._F)))
        sums = sums - sums @ power
        # The sum over j by doubling: X <- X + decay X P^M, then both factors are squared, until they vanish.
        with np.errstate(over="ignore", invalid="ignore"):
            while 1e-16 < np.abs(power).max() * np.abs(decay).max() < inf:
                sums = sums + (decay @ (sums @ power).reshape(len(decay), -1)).reshape(sums.shape)
                decay, power = decay @ decay, power @ power
        return np.asarray(sums @ past)

    def _power(self, k: int, X: Floats) -> Floats:
        """Return P^k X."""
        for bit in range(k.bit_length()):
            if bit == len(self._squares):
                self._squares.append(self._squares[-1] @ self._squares[-1])
            if not np.abs(self._squares[bit]).max() > 1e-30:  # the chain has mixed
                return np.zeros_like(X)
            if k >> bit & 1:
                X = self._squares[bit] @ X
        return X


def lag_operator(C: Floats, d: int) -> Floats:
    """Return the packed map Y -> Cov[Y] + its transpose, from a matrix of ``Correlation``."""
    four = C.reshape(d, d + 1, d, d + 1).transpose(0, 2, 1, 3)  # i, j, p, q
    both = four + four.transpose(1, 0, 3, 2)
    folded = both + both.swapaxes(2, 3)
    diagonal = np.arange(d + 1)
    folded[:, :, diagonal, diagonal] /= 2.0
    return np.ascontiguousarray(pack(np.moveaxis(pack(folded), 2, 0)).T)
