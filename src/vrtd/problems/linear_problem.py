"""A chain with features: the linear system A theta + b = 0 that TD methods solve, exact."""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final, final

import numpy as np
from numpy.typing import ArrayLike

from vrtd.arrays import Floats, check_probabilities, frozen, real_array
from vrtd.checks import check_fraction, check_positive
from vrtd.errors import InvalidInputError, SingularSystemError
from vrtd.problems.cone_radius import cone_radius
from vrtd.problems.markov_reward_process import MarkovRewardProcess
from vrtd.solving import check_invertible

if TYPE_CHECKING:
    from vrtd.algorithms import Sampling


@final
class LinearProblem:
    """A Markov reward process `mrp` with features `phi`, one row per state.

    Its properties are mean and second moments of the pseudo-gradient g_x(theta) = A_x theta + b_x of one transition
    x = (s, r, s'): A_x = weight phi(s) (discount phi(s') - phi(s))^T and b_x = weight r phi(s), the weight being x's
    importance ratio. The state s is from the stationary distribution of `mrp`, or from `state_distribution` if given;
    then only independent samples can be simulated. Features may be dependent: only what needs one solution is refused
    then. Nothing larger than the (S, d) features and the list of transitions is held.

    >>> from vrtd.problems import boyan_chain
    >>> problem = boyan_chain()
    >>> problem
    LinearProblem(MarkovRewardProcess(13 states, 24 transitions), 4 features)
    >>> problem.theta_star[:3].round(9).tolist()
    [-24.0, -16.0, -8.0]
    """

    samplings: ClassVar[tuple[Sampling, ...]] = ("markov", "iid")  # of `simulate`; the first is the default

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
            mu = frozen(check_probabilities("state_distribution", state_distribution, (n,), ("state",)))
        self.mrp: Final = mrp
        self.phi: Final = frozen(table)
        self.state_distribution: Final = mu
        self._follows_chain = state_distribution is None

    def __repr__(self) -> str:
        return f"LinearProblem({self.mrp!r}, {self.n_features} features)"

    @property
    def n_features(self) -> int:
        return int(self.phi.shape[1])

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the chain, the features and, if one was given, the state distribution, in hexadecimal."""
        mu = b"" if self._follows_chain else self.state_distribution.tobytes()
        return hashlib.sha256(self.mrp.digest.encode() + self.phi.tobytes() + mu).hexdigest()

    @cached_property
    def is_stationary(self) -> bool:
        """Whether states are distributed as a trajectory of the chain visits them."""
        return bool(np.allclose(self.state_distribution, self.mrp.stationary, rtol=1e-12, atol=1e-15))

    @cached_property
    def A(self) -> Floats:
        """(d, d) E[weight phi (discount phi' - phi)^T]."""
        return frozen(self._weighted_phi.T @ (self._next_phi - self.phi))

    @cached_property
    def b(self) -> Floats:
        """(d,) E[weight r phi]."""
        return frozen(self._weighted_phi.T @ self.mrp.mean_reward)

    @cached_property
    def C(self) -> Floats:
        """(d, d) E[phi phi^T]."""
        return frozen(self._weighted_phi.T @ self.phi)

    @cached_property
    def condition_number(self) -> float:
        """Condition number of A in the spectral norm; inf when A is exactly singular."""
        return float(np.linalg.cond(self.A))

    @cached_property
    def theta_star(self) -> Floats:
        """(d,) the fixed point -A^{-1} b; warns where the condition number of A is above 1e12."""
        return self._solution(self.A, self.b)

    def traced(self, trace_decay: float) -> tuple[Floats, Floats]:
        """A and b of TD(lambda), lambda the `trace_decay`: E[z (discount phi' - phi)^T] and E[r z] along a trajectory.

        Its trace is z = weight (lambda before z_before + phi), `before` the discount of the transition that led here.

        >>> from vrtd.problems import boyan_chain
        >>> A, b = boyan_chain().traced(0.5)
        >>> A.shape, b.shape
        ((4, 4), (4,))
        """
        check_fraction("trace_decay", trace_decay)
        if trace_decay == 0.0:
            return self.A, self.b
        if not self.is_stationary:
            raise InvalidInputError(
                "traces must run along the chain, whose states are stationary",
                "a problem with another state_distribution",
                "build LinearProblem(mrp, phi)",
            )
        if trace_decay == 1.0:  # sums of all that follows: TD errors add up to values less phi
            return frozen(-self.C), frozen(self._weighted_phi.T @ self.mrp.values)
        one_step = np.column_stack([self._next_phi - self.phi, self.mrp.mean_reward])
        both = self._weighted_phi.T @ self.mrp.discounted_sum(one_step, float(trace_decay))
        return frozen(both[:, :-1]), frozen(both[:, -1])

    def fixed_point(self, trace_decay: float = 0.0) -> Floats:
        """(d,) where TD(lambda) and LSTD(lambda) end: `theta_star` for 0, the projection of the values for 1.

        >>> from vrtd.problems import boyan_chain
        >>> boyan_chain().fixed_point(0.5)[:3].round(9).tolist()
        [-24.0, -16.0, -8.0]
        """
        A, b = self.traced(trace_decay)
        return self.theta_star if A is self.A else self._solution(A, b)

    @cached_property
    def lambda_A(self) -> float:
        """|lambda_max(A + A^T)|, the constant of the convergence proofs; A + A^T must be negative definite."""
        self._check_rank()
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
        edges, v = self.mrp.edges, self.phi @ self.theta_star
        error = edges.weight * (edges.reward + edges.discount * v[edges.successor] - v[edges.origin])
        return frozen((self._weighted_phi * self._by_state(error**2)[:, None]).T @ self.phi)

    def mean_update(self, theta: ArrayLike) -> Floats:
        """E g_x(theta) = A theta + b; `theta` may have leading axes.

        >>> from vrtd.problems import random_walk
        >>> problem = random_walk()
        >>> bool(abs(problem.mean_update(problem.theta_star)).max() < 1e-15)
        True
        """
        t = real_array("theta", theta)
        if t.ndim == 0 or t.shape[-1] != self.n_features:
            raise InvalidInputError(f"theta must have the shape (..., {self.n_features})", t.shape, "reshape theta")
        return np.asarray(t @ self.A.T + self.b)

    def expected_square(self, S: Floats) -> Floats:
        """(d, d) E[A_x S A_x^T], which is E[weight^2 (psi^T S psi) phi phi^T] with psi = discount phi' - phi."""
        # The quadratic form of psi, averaged over s', needs K = Phi S Phi^T only on its diagonal and through next_phi.
        phi = self.phi
        stays, leads, carries = self._squares
        diagonal = np.einsum("si,si->s", phi @ S, phi)
        cross = np.einsum("si,si->s", phi @ (S + S.T), leads)
        form = carries @ diagonal - cross + stays * diagonal
        return np.asarray((self._weighted_phi * form[:, None]).T @ phi)

    def mean_square_radius(self, step_size: float) -> float:
        """Spectral radius of S -> E[(I + a A_x) S (I + a A_x)^T], a the step size: TD is mean-square stable below 1.

        >>> from vrtd.problems import random_mdp
        >>> random_mdp().mean_square_radius(0.1) < 1.0
        True
        """
        check_positive("step_size", step_size)
        a, d = float(step_size), self.n_features
        return cone_radius(lambda x: self._moved(x.reshape(d, d), a).ravel(), np.eye(d).ravel())

    def mean_square_growth(self, step_size: float, n_updates: int = 20) -> float:
        """The factor by which E|u|^2 grows in the last of a few updates without noise, from E[u u^T] = I.

        Tends to `mean_square_radius` with n_updates, at a fraction of its cost for many features.
        """
        check_positive("step_size", step_size)
        a, S, growth = float(step_size), np.eye(self.n_features), 1.0
        with np.errstate(over="ignore", invalid="ignore"):
            for _ in range(n_updates):
                S = self._moved(S / np.trace(S), a)
                growth = float(np.trace(S))
                if not np.isfinite(growth):
                    return float("inf")
        return growth

    def _moved(self, S: Floats, a: float) -> Floats:
        return np.asarray(S + a * (self.A @ S + S @ self.A.T) + a * a * self.expected_square(S))

    @cached_property
    def _weighted_phi(self) -> Floats:
        return np.multiply(self.state_distribution[:, None], self.phi)

    @cached_property
    def _next_phi(self) -> Floats:
        """(S, d) E[weight discount phi(s') | s]."""
        return np.asarray(self.mrp.discounted_P @ self.phi)

    @cached_property
    def _squares(self) -> tuple[Floats, Floats, Any]:
        """E[weight^2 | s], E[weight^2 discount phi(s') | s], and the matrix of E[weight^2 discount^2 1{s'} | s]."""
        edges = self.mrp.edges
        weighted = edges.probability * edges.weight**2
        leads = np.asarray(self.mrp.matrix(weighted * edges.discount) @ self.phi)
        return self._by_state(edges.weight**2), leads, self.mrp.matrix(weighted * edges.discount**2)

    def _by_state(self, value: Floats) -> Floats:
        edges = self.mrp.edges
        return np.bincount(edges.origin, edges.probability * value, minlength=self.mrp.n_states).astype(np.float64)

    def _check_rank(self) -> None:
        rank = int(np.linalg.matrix_rank(np.sqrt(self.state_distribution)[:, None] * self.phi))
        if rank < self.n_features:
            raise SingularSystemError(
                f"phi must have full column rank {self.n_features} on the states of positive probability, "
                "else there is no single theta_star",
                f"rank {rank}",
                'remove dependent features; the metrics "value_error", "neu" and "mspbe" exist nevertheless',
            )

    def _solution(self, A: Floats, b: Floats) -> Floats:
        self._check_rank()
        condition = float(np.linalg.cond(A))
        got, do = f"condition number {condition:.3g}", "change the features, the discount or the state distribution"
        check_invertible(condition, self.n_features, "A must be invertible", got, do, stacklevel=4)
        return frozen(np.asarray(-np.linalg.solve(A, b), dtype=np.float64))
