"""The linear system A theta + b = 0 that TD methods solve: exact from a chain, its features and a distribution."""

from __future__ import annotations

from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vrtd.arrays import ROW_SUM_TOLERANCE, frozen, real_array
from vrtd.checks import check_positive
from vrtd.errors import AccuracyError, InvalidInputError, SingularSystemError
from vrtd.problems.markov_reward_process import MarkovRewardProcess

__all__ = ["LinearSystem", "check_system"]

Floats = NDArray[np.float64]

# Arnoldi's iteration for the mean-square radius: size of a basis, number of restarts, accepted relative residual.
RADIUS_BASIS, RADIUS_RESTARTS, RADIUS_TOLERANCE = 40, 100, 1e-9


def check_system(system: Any) -> None:
    if not isinstance(system, LinearSystem):
        raise InvalidInputError(
            "system must be a LinearSystem", type(system).__name__, "build one: vrtd.LinearSystem(mrp, phi)"
        )


@final
class LinearSystem:
    """Mean and second moments of the pseudo-gradient g_x(theta) = A_x theta + b_x of one transition x = (s, r, s').

    A_x = phi(s) (discount phi(s') - phi(s))^T and b_x = r phi(s), with s from the stationary distribution of `mrp`,
    or from `state_distribution` if given. Nothing larger than the (S, d) features and the list of transitions is held.

    >>> from vrtd.problems import boyan_chain
    >>> system = LinearSystem(*boyan_chain())
    >>> system.theta_star[:3].round(9).tolist()
    [-24.0, -16.0, -8.0]
    """

    def __init__(self, mrp: MarkovRewardProcess, phi: ArrayLike, state_distribution: ArrayLike | None = None) -> None:
        if not isinstance(mrp, MarkovRewardProcess):
            raise InvalidInputError(
                "mrp must be a MarkovRewardProcess", type(mrp).__name__, "build one, or take mdp.chain(policy)"
            )
        table = real_array("phi", phi)
        n = mrp.n_states
        if table.ndim != 2 or table.shape[0] != n or table.shape[1] == 0:
            raise InvalidInputError(f"phi must have the shape ({n}, d)", table.shape, "pass one row per state")
        if state_distribution is None:
            mu = mrp.stationary
        else:
            mu = real_array("state_distribution", state_distribution)
            if mu.shape != (n,):
                raise InvalidInputError(f"state_distribution must have the shape ({n},)", mu.shape, "reshape it")
            if (mu < 0.0).any():
                s = int(np.flatnonzero(mu < 0.0)[0])
                raise InvalidInputError("state_distribution must be non-negative", f"{mu[s]} at state {s}", "repair it")
            if not abs(mu.sum() - 1.0) <= ROW_SUM_TOLERANCE:
                must = f"state_distribution must sum to 1 within {ROW_SUM_TOLERANCE:g}"
                raise InvalidInputError(must, f"the sum {mu.sum()}", "normalise it")
            mu = frozen(mu / mu.sum())
        rank = int(np.linalg.matrix_rank(np.sqrt(mu)[:, None] * table))
        if rank < table.shape[1]:
            raise InvalidInputError(
                f"phi must have full column rank {table.shape[1]} on the states of positive probability",
                f"rank {rank}",
                "remove dependent features",
            )
        self._mrp, self._phi, self._mu = mrp, frozen(table), mu

    def __repr__(self) -> str:
        return f"LinearSystem({self._mrp!r}, {self.n_features} features)"

    @property
    def mrp(self) -> MarkovRewardProcess:
        return self._mrp

    @property
    def phi(self) -> Floats:
        return self._phi

    @property
    def state_distribution(self) -> Floats:
        return self._mu

    @property
    def n_features(self) -> int:
        return int(self._phi.shape[1])

    @cached_property
    def A(self) -> Floats:
        """(d, d) E[phi (discount phi' - phi)^T]."""
        return frozen(self._weighted_phi.T @ (self._next_phi - self._phi))

    @cached_property
    def b(self) -> Floats:
        """(d,) E[r phi]."""
        return frozen(self._weighted_phi.T @ self._mrp.mean_reward)

    @cached_property
    def C(self) -> Floats:
        """(d, d) E[phi phi^T]."""
        return frozen(self._weighted_phi.T @ self._phi)

    @cached_property
    def condition_number(self) -> float:
        """Condition number of A in the spectral norm; inf when A is exactly singular."""
        return float(np.linalg.cond(self.A))

    @cached_property
    def theta_star(self) -> Floats:
        """(d,) the fixed point -A^{-1} b."""
        if not self.condition_number * self.n_features * np.finfo(np.float64).eps < 1.0:
            raise SingularSystemError(
                "A must be invertible",
                f"condition number {self.condition_number:.3g}",
                "change the features, the discount or the state distribution",
            )
        return frozen(np.asarray(-np.linalg.solve(self.A, self.b), dtype=np.float64))

    @cached_property
    def lambda_A(self) -> float:
        """|lambda_max(A + A^T)|, the constant of the convergence proofs; A + A^T must be negative definite."""
        largest = float(np.linalg.eigvalsh(self.A + self.A.T)[-1])
        if not largest < 0.0:
            raise InvalidInputError(
                "A + A^T must be negative definite, else the proofs' lambda_A does not exist",
                f"largest eigenvalue {largest:.6g}",
                "use the stationary state distribution; off-policy, do not use bounds that need lambda_A",
            )
        return -largest

    @cached_property
    def noise_covariance(self) -> Floats:
        """(d, d) Sigma = E[h h^T] with h = g_x(theta_star), whose mean is 0."""
        square = self._by_state(self._td_error**2)
        return frozen((self._weighted_phi * square[:, None]).T @ self._phi)

    def mean_update(self, theta: ArrayLike) -> Floats:
        """E g_x(theta) = A theta + b; `theta` may have leading axes.

        >>> from vrtd.problems import random_walk
        >>> system = LinearSystem(*random_walk())
        >>> bool(abs(system.mean_update(system.theta_star)).max() < 1e-15)
        True
        """
        t = real_array("theta", theta)
        if t.ndim == 0 or t.shape[-1] != self.n_features:
            raise InvalidInputError(f"theta must have the shape (..., {self.n_features})", t.shape, "reshape theta")
        update: Floats = t @ self.A.T + self.b
        return update

    def expected_square(self, S: Floats) -> Floats:
        """(d, d) E[A_x S A_x^T], which is E[(psi^T S psi) phi phi^T] with psi = discount phi' - phi."""
        # The quadratic form of psi, averaged over s', needs K = Phi S Phi^T only on its diagonal and through next_phi.
        phi = self._phi
        half = phi @ S
        diagonal = np.einsum("si,si->s", half, phi)
        cross = np.einsum("si,si->s", phi @ (S + S.T), self._next_phi)
        form = self._discount_squared @ diagonal - cross + diagonal
        square: Floats = (self._weighted_phi * form[:, None]).T @ phi
        return square

    def expected_cross(self, m: Floats) -> Floats:
        """(d, d) E[A_x m h^T] with h = g_x(theta_star); symmetric, because both factors are multiples of phi."""
        cross: Floats = (self._weighted_phi * (self._error_psi @ m)[:, None]).T @ self._phi
        return cross

    def mean_square_radius(self, step_size: float) -> float:
        """Spectral radius of S -> E[(I + a A_x) S (I + a A_x)^T], a the step size: TD is mean-square stable below 1.

        The map preserves the cone of positive-semidefinite matrices, so its radius is its rightmost eigenvalue and the
        identity, inside the cone, is never orthogonal to it. Arnoldi's iteration starts there (power iteration with
        memory: same products, far fewer) and restarts from the Ritz matrix until its relative residual is below 1e-9.

        >>> from vrtd.problems import random_mdp
        >>> LinearSystem(*random_mdp()).mean_square_radius(0.1) < 1.0
        True
        """
        check_positive("step_size", step_size)
        a = float(step_size)
        d = self.n_features
        size = min(d * (d + 1) // 2, RADIUS_BASIS)
        x = np.eye(d).ravel()
        for _ in range(RADIUS_RESTARTS):
            basis, H = np.zeros((size + 1, d * d)), np.zeros((size + 1, size))
            basis[0] = x / np.linalg.norm(x)
            for k in range(size):
                S = basis[k].reshape(d, d)
                with np.errstate(over="ignore", invalid="ignore"):
                    image = (S + a * (self.A @ S + S @ self.A.T) + a * a * self.expected_square(S)).ravel()
                    scale = float(np.linalg.norm(image))
                if not np.isfinite(scale):
                    return float("inf")
                for _ in range(2):  # twice is enough for orthogonality
                    part = basis[: k + 1] @ image
                    H[: k + 1, k] += part
                    image -= part @ basis[: k + 1]
                H[k + 1, k] = np.linalg.norm(image)
                if H[k + 1, k] <= 1e-13 * scale:  # the basis spans an invariant subspace
                    break
                basis[k + 1] = image / H[k + 1, k]
            values, vectors = np.linalg.eig(H[: k + 1, : k + 1])
            i = int(values.real.argmax())
            x = vectors[:, i].real @ basis[: k + 1]
            radius = float(values[i].real)
            if H[k + 1, k] * abs(vectors[k, i]) <= RADIUS_TOLERANCE * max(abs(radius), 1e-12):
                return radius
        raise AccuracyError(
            f"the mean-square radius must be found to {RADIUS_TOLERANCE:g}; got no convergence at {radius:.9g}; "
            f"use fewer features"
        )

    def mean_square_growth(self, step_size: float, n_updates: int = 20) -> float:
        """The factor by which E|u|^2 grows in the last of a few updates without noise, from E[u u^T] = I.

        Tends to `mean_square_radius` with n_updates, at a fraction of its cost for many features.
        """
        check_positive("step_size", step_size)
        a, S, growth = float(step_size), np.eye(self.n_features), 1.0
        with np.errstate(over="ignore", invalid="ignore"):
            for _ in range(n_updates):
                S = S / np.trace(S)
                S = S + a * (self.A @ S + S @ self.A.T) + a * a * self.expected_square(S)
                growth = float(np.trace(S))
                if not np.isfinite(growth):
                    return float("inf")
        return growth

    @cached_property
    def _weighted_phi(self) -> Floats:
        return np.multiply(self._mu[:, None], self._phi)

    @cached_property
    def _next_phi(self) -> Floats:
        """(S, d) E[discount phi(s') | s]."""
        return np.asarray(self._mrp.discounted_P @ self._phi)

    @cached_property
    def _discount_squared(self) -> Any:
        edges = self._mrp.edges
        return self._mrp.matrix(edges.probability * edges.discount**2)

    @cached_property
    def _td_error(self) -> Floats:
        """TD error of each transition at theta_star."""
        edges, v = self._mrp.edges, self._phi @ self.theta_star
        return np.asarray(edges.reward + edges.discount * v[edges.successor] - v[edges.origin])

    @cached_property
    def _error_psi(self) -> Floats:
        """(S, d) E[td_error (discount phi' - phi) | s] at theta_star."""
        edges = self._mrp.edges
        carried = self._mrp.matrix(edges.probability * self._td_error * edges.discount) @ self._phi
        return np.asarray(carried - self._by_state(self._td_error)[:, None] * self._phi)

    def _by_state(self, value: Floats) -> Floats:
        edges = self._mrp.edges
        return np.bincount(edges.origin, edges.probability * value, minlength=self._mrp.n_states).astype(np.float64)
