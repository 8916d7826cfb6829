"""A chain with features, and the exact linear system A theta + b = 0 that TD methods solve."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, ClassVar, Final, final

import numpy as np
from numpy.typing import ArrayLike

from vrtd.arrays import Floats, check_probabilities, check_size, frozen, real_array
from vrtd.checks import check_fraction, check_positive
from vrtd.errors import InvalidInputError, SingularSystemError
from vrtd.lazy import cached_property
from vrtd.problems.cone_radius import cone_radius
from vrtd.problems.markov_reward_process import MarkovRewardProcess
from vrtd.solving import check_invertible

if TYPE_CHECKING:
    from vrtd.algorithms import Sampling


@final
class LinearProblem:
    """Markov reward process with linear features.

    Its properties are the mean and the second moments of the pseudo-gradient g_x(theta) = A_x theta + b_x of one
    transition x = (s, r, s'), where A_x = weight phi(s) (discount phi(s') - phi(s))^T and b_x = weight r phi(s). The
    weight is the importance ratio of x.

    Parameters
    ----------
    mrp : MarkovRewardProcess
        The chain.
    phi : array_like of shape (S, d)
        Features, one row per state. The columns may be linearly dependent; quantities that need a unique solution then
        raise an error.
    state_distribution : array_like of shape (S,), optional
        Distribution of the state s. If not given, it is the stationary distribution of ``mrp``. With another
        distribution, only independent samples can be simulated.

    Attributes
    ----------
    mrp : MarkovRewardProcess
        The chain.
    phi : ndarray of shape (S, d)
        Features, read-only.
    state_distribution : ndarray of shape (S,)
        Distribution of the state s, read-only.

    Examples
    --------
    >>> from vrtd.problems import boyan_chain
    >>> problem = boyan_chain()
    >>> problem
    LinearProblem(MarkovRewardProcess(13 states, 24 transitions), 4 features)
    >>> problem.theta_star[:3].round(9).tolist()
    [-24.0, -16.0, -8.0]
    """

    samplings: ClassVar[tuple[Sampling, ...]] = ("markov", "iid")  # accepted by `simulate`; the first is the default

    def __init__(self, mrp: MarkovRewardProcess, phi: ArrayLike, state_distribution: ArrayLike | None = None) -> None:
        if not isinstance(mrp, MarkovRewardProcess):
            raise InvalidInputError(
                f"mrp must be a MarkovRewardProcess, but got {type(mrp).__name__}.",
                "Build one, or call mdp.chain(policy).",
            )
        table = real_array("phi", phi)
        check_size("phi", table, "Scale the features.")
        n = mrp.n_states
        if table.ndim != 2 or table.shape[0] != n or table.shape[1] == 0:
            raise InvalidInputError(
                f"phi must have the shape ({n}, d), but got {table.shape}.", "Pass one row per state."
            )
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
        """Number of features d."""
        return int(self.phi.shape[1])

    @cached_property
    def digest(self) -> str:
        """SHA-256 in hexadecimal of the chain, the features and, if it was passed, the state distribution."""
        mu = b"" if self._follows_chain else self.state_distribution.tobytes()
        return hashlib.sha256(self.mrp.digest.encode() + self.phi.tobytes() + mu).hexdigest()

    @cached_property
    def is_stationary(self) -> bool:
        """Whether ``state_distribution`` equals the stationary distribution of the chain."""
        return bool(np.allclose(self.state_distribution, self.mrp.stationary, rtol=1e-12, atol=1e-15))

    @cached_property
    def A(self) -> Floats:
        """Matrix E[weight phi (discount phi' - phi)^T], of shape (d, d)."""
        return frozen(self._weighted_phi.T @ (self._next_phi - self.phi))

    @cached_property
    def b(self) -> Floats:
        """Vector E[weight r phi], of shape (d,)."""
        return frozen(self._weighted_phi.T @ self.mrp.mean_reward)

    @cached_property
    def C(self) -> Floats:
        """Matrix E[phi phi^T], of shape (d, d)."""
        return frozen(self._weighted_phi.T @ self.phi)

    @cached_property
    def condition_number(self) -> float:
        """Condition number of A in the spectral norm, or inf if A is exactly singular."""
        return float(np.linalg.cond(self.A))

    @cached_property
    def theta_star(self) -> Floats:
        """Fixed point -A^{-1} b, of shape (d,).

        An ``AccuracyWarning`` is issued if the condition number of A is above 1e12.
        """
        return self._solution(self.A, self.b)

    def traced(self, trace_decay: float) -> tuple[Floats, Floats]:
        """Return A and b of TD(lambda).

        Parameters
        ----------
        trace_decay : float
            The trace decay lambda in [0, 1].

        Returns
        -------
        A : ndarray of shape (d, d)
            The mean E[z (discount phi' - phi)^T] along a trajectory.
        b : ndarray of shape (d,)
            The mean E[r z] along a trajectory.

        Raises
        ------
        InvalidInputError
            If ``trace_decay`` is not 0 and the state distribution is not the stationary one.

        Notes
        -----
        The trace is z = weight (lambda before z_before + phi), where ``before`` is the discount of the transition that
        led to the present state and z_before the trace at that transition.

        Examples
        --------
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
                "Traces need the stationary state distribution, but this problem has another state_distribution.",
                "Build LinearProblem(mrp, phi) without state_distribution.",
            )
        if trace_decay == 1.0:  # the discounted TD errors telescope to values - phi.theta
            return frozen(-self.C), frozen(self._weighted_phi.T @ self.mrp.values)
        one_step = np.column_stack([self._next_phi - self.phi, self.mrp.mean_reward])
        both = self._weighted_phi.T @ self.mrp.discounted_sum(one_step, float(trace_decay))
        return frozen(both[:, :-1]), frozen(both[:, -1])

    def fixed_point(self, trace_decay: float = 0.0) -> Floats:
        """Return the fixed point of TD(lambda) and LSTD(lambda).

        Parameters
        ----------
        trace_decay : float, default=0.0
            The trace decay lambda in [0, 1].

        Returns
        -------
        ndarray of shape (d,)
            ``theta_star`` for 0. For 1, the projection of the values onto the features.

        Examples
        --------
        >>> from vrtd.problems import boyan_chain
        >>> boyan_chain().fixed_point(0.5)[:3].round(9).tolist()
        [-24.0, -16.0, -8.0]
        """
        A, b = self.traced(trace_decay)
        return self.theta_star if A is self.A else self._solution(A, b)

    @cached_property
    def lambda_A(self) -> float:
        """Constant ``|lambda_max(A + A^T)|`` of the convergence proofs.

        It exists only if A + A^T is negative definite.
        """
        self._check_rank()
        largest = float(np.linalg.eigvalsh(self.A + self.A.T)[-1])
        if not largest < 0.0:
            raise InvalidInputError(
                f"lambda_A exists only if A + A^T is negative definite, but its largest eigenvalue is {largest:.6g}.",
                "Use the stationary state distribution, or, off-policy, only bounds that do not need lambda_A.",
            )
        return -largest

    @cached_property
    def noise_covariance(self) -> Floats:
        """Covariance E[h h^T] of the noise h = g_x(theta_star), whose mean is 0, of shape (d, d)."""
        edges, v = self.mrp.edges, self.phi @ self.theta_star
        error = edges.weight * (edges.reward + edges.discount * v[edges.successor] - v[edges.origin])
        return frozen((self._weighted_phi * self._by_state(error**2)[:, None]).T @ self.phi)

    def mean_update(self, theta: ArrayLike) -> Floats:
        """Return the mean pseudo-gradient E g_x(theta) = A theta + b.

        Parameters
        ----------
        theta : array_like of shape (..., d)
            Parameters, with any number of leading axes.

        Returns
        -------
        ndarray of shape (..., d)
            The mean pseudo-gradients.

        Examples
        --------
        >>> from vrtd.problems import random_walk
        >>> problem = random_walk()
        >>> bool(abs(problem.mean_update(problem.theta_star)).max() < 1e-15)
        True
        """
        t = real_array("theta", theta)
        if t.ndim == 0 or t.shape[-1] != self.n_features:
            raise InvalidInputError(
                f"theta must have the shape (..., {self.n_features}), but got {t.shape}.", "Reshape theta."
            )
        return np.asarray(t @ self.A.T + self.b)

    def expected_square(self, S: Floats) -> Floats:
        """Return E[A_x S A_x^T].

        Parameters
        ----------
        S : ndarray of shape (d, d)
            A matrix.

        Returns
        -------
        ndarray of shape (d, d)
            E[weight^2 (psi^T S psi) phi phi^T] with psi = discount phi' - phi.
        """
        # The quadratic form of psi, averaged over s', needs K = Phi S Phi^T only on its diagonal and through next_phi.
        phi = self.phi
        stays, leads, carries = self._squares
        diagonal = np.einsum("si,si->s", phi @ S, phi)
        cross = np.einsum("si,si->s", phi @ (S + S.T), leads)
        form = carries @ diagonal - cross + stays * diagonal
        return np.asarray((self._weighted_phi * form[:, None]).T @ phi)

    def mean_square_radius(self, step_size: float) -> float:
        """Return the spectral radius of the map S -> E[(I + a A_x) S (I + a A_x)^T], where a is the step size.

        TD with independent samples is mean-square stable if the radius is below 1.

        Parameters
        ----------
        step_size : float
            The step size a.

        Returns
        -------
        float
            The radius, or inf if it overflows.

        Raises
        ------
        AccuracyError
            If the iteration for the radius does not converge.

        Examples
        --------
        >>> from vrtd.problems import random_mdp
        >>> random_mdp().mean_square_radius(0.1) < 1.0
        True
        """
        check_positive("step_size", step_size)
        a, d = float(step_size), self.n_features
        return cone_radius(lambda x: self._moved(x.reshape(d, d), a).ravel(), np.eye(d).ravel())

    def mean_square_growth(self, step_size: float, n_updates: int = 20) -> float:
        """Return the growth factor of ``E|u|^2`` per update, after a few updates without noise.

        The updates start at E[u u^T] = I. The factor tends to ``mean_square_radius`` as ``n_updates`` increases, and is
        much cheaper with many features.

        Parameters
        ----------
        step_size : float
            The step size of TD.
        n_updates : int, default=20
            Number of updates.

        Returns
        -------
        float
            The factor, or inf if it overflows.

        Examples
        --------
        >>> from vrtd.problems import random_mdp
        >>> random_mdp().mean_square_growth(0.1) < 1.0
        True
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
        """Matrix E[weight discount phi(s') | s], of shape (S, d)."""
        return np.asarray(self.mrp.discounted_P @ self.phi)

    @cached_property
    def _squares(self) -> tuple[Floats, Floats, Any]:
        """E[weight^2 | s], E[weight^2 discount phi(s') | s] and the matrix of E[weight^2 discount^2 1{s'} | s]."""
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
                f"phi must have full column rank {self.n_features} on the states of positive probability for a unique "
                f"theta_star, but has rank {rank}.",
                'Remove dependent features, or use the metrics "value_error", "neu" and "mspbe".',
            )

    def _solution(self, A: Floats, b: Floats) -> Floats:
        self._check_rank()
        condition = float(np.linalg.cond(A))
        check_invertible(
            condition,
            self.n_features,
            f"A must be invertible, but has condition number {condition:.3g}.",
            "Change the features, the discount or the state distribution.",
            stacklevel=4,
        )
        return frozen(np.asarray(-np.linalg.solve(A, b), dtype=np.float64))
