"""A finite Markov reward process, validated when it is built, with exact quantities computed on demand."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple, Self, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vrtd.arrays import LARGEST, Floats, check_row_sums, check_unmasked, frozen, real_array
from vrtd.checks import check_count
from vrtd.errors import AccuracyError, InvalidInputError, SingularSystemError
from vrtd.lazy import cached_property
from vrtd.problems.mixing import mixing_constants
from vrtd.problems.stationary import DENSE_LIMIT, closed_classes, gth, large_stationary, one_closed_class, period


class Edges(NamedTuple):
    """Transitions of positive probability, sorted by origin.

    Those that leave state s are ``indptr[s]:indptr[s + 1]``. Two transitions may join the same states with different
    rewards or discounts.

    Attributes
    ----------
    indptr : ndarray of int, shape (S + 1,)
        First transition of each state.
    origin : ndarray of int, shape (n,)
        State that the transition leaves.
    successor : ndarray of int, shape (n,)
        State that the transition leads to.
    probability : ndarray of shape (n,)
        Probability of the transition, given its origin.
    reward : ndarray of shape (n,)
        Reward.
    discount : ndarray of shape (n,)
        Discount, 0 if the transition ends an episode.
    weight : ndarray of shape (n,)
        Importance ratio, of mean 1 in every state. All are 1 on-policy.
    """

    indptr: NDArray[np.int64]
    origin: NDArray[np.int32]
    successor: NDArray[np.int32]
    probability: Floats
    reward: Floats
    discount: Floats
    weight: Floats


@final
class MarkovRewardProcess:
    """Markov chain with rewards and discounts on its transitions.

    Parameters
    ----------
    P : array_like or scipy.sparse array of shape (S, S)
        Transition probabilities. Rows must sum to 1 within 1e-8 and are normalised.
    R : array_like of shape (S,), or array_like or scipy.sparse array of shape (S, S)
        Rewards on leaving a state, or rewards of transitions. With a sparse ``P``, rewards of transitions are sparse
        with the same stored entries as ``P`` (a reward of 0 is stored explicitly).
    gamma : float, or array_like or scipy.sparse array of shape (S, S)
        Discount in [0, 1), or discounts of transitions in [0, 1], sparse if ``P`` is sparse. A transition that ends an
        episode has discount 0.

    Attributes
    ----------
    edges : Edges
        The transitions, read-only.
    rewards_averaged : bool
        Whether the rewards of parallel transitions were replaced by their mean, which leaves the values unchanged and
        reduces the noise.

    Examples
    --------
    >>> mrp = MarkovRewardProcess([[0.7, 0.3], [0.4, 0.6]], [1.0, 2.0], gamma=0.9)
    >>> mrp.stationary.round(4)
    array([0.5714, 0.4286])
    >>> mrp.values.round(4)
    array([13.6986, 15.0685])
    """

    edges: Edges
    rewards_averaged: bool

    def __init__(self, P: ArrayLike | Any, R: ArrayLike | Any, gamma: ArrayLike | Any) -> None:
        from scipy import sparse

        pattern = _canonical("P", P) if sparse.issparse(P) else None
        # _sort_edges names the first entry that is not finite, as s -> s'.
        table = real_array("P", P, finite=False) if pattern is None else pattern
        if len(table.shape) != 2 or table.shape[0] != table.shape[1] or table.shape[0] == 0:
            raise InvalidInputError(
                f"P must be a square matrix, but has the shape {table.shape}.", "Pass (S, S) probabilities."
            )
        n = table.shape[0]
        if pattern is None:
            origin, successor = (index.ravel() for index in np.indices((n, n), dtype=np.int32))
            probability = table.ravel()
        else:
            origin = np.repeat(np.arange(n, dtype=np.int32), np.diff(pattern.indptr))
            successor, probability = pattern.indices, pattern.data
        reward = _on_transitions("R", R, pattern, origin, (n,))
        discount = _on_transitions("gamma", gamma, pattern, origin, ())
        self.edges = _sort_edges(n, [origin, successor, probability, reward, discount, np.ones_like(probability)])
        self.rewards_averaged, self._is_dense = False, pattern is None

    @classmethod
    def from_edges(
        cls,
        n_states: int,
        origin: ArrayLike,
        successor: ArrayLike,
        probability: ArrayLike,
        reward: ArrayLike,
        discount: ArrayLike,
        rewards_averaged: bool = False,
        weight: ArrayLike | None = None,
    ) -> Self:
        """Return the process with these transitions, given in any order.

        Parallel transitions are kept apart.

        Parameters
        ----------
        n_states : int
            Number of states.
        origin, successor : array_like of int, shape (n,)
            States that the transitions leave and lead to.
        probability : array_like of shape (n,)
            Probabilities. Those of the transitions from one state must sum to 1 within 1e-8 and are normalised.
        reward : array_like of shape (n,)
            Rewards.
        discount : array_like of shape (n,)
            Discounts in [0, 1].
        rewards_averaged : bool, default=False
            Whether the rewards of parallel transitions are already replaced by their mean.
        weight : array_like of shape (n,), optional
            Importance ratios, of mean 1 in every state. If not given, all are 1.

        Returns
        -------
        MarkovRewardProcess
            The process.

        Examples
        --------
        >>> MarkovRewardProcess.from_edges(1, [0, 0], [0, 0], [0.5, 0.5], [0.0, 1.0], [0.9, 0.0]).values
        array([0.90909091])
        """
        check_count("n_states", n_states)
        n = int(n_states)
        weight = np.ones(np.shape(probability)) if weight is None else weight
        numbers = {"probability": probability, "reward": reward, "discount": discount, "weight": weight}
        columns: list[NDArray[Any]] = [_state_indices("origin", origin, n), _state_indices("successor", successor, n)]
        columns += [real_array(name, values, finite=False) for name, values in numbers.items()]
        shapes = [column.shape for column in columns]
        if len(set(shapes)) > 1 or len(shapes[0]) != 1:
            raise InvalidInputError(
                "origin, successor, probability, reward, discount and weight must be vectors of the same length, but "
                f"their shapes are {', '.join(map(str, shapes))}.",
                "Pass one entry per transition.",
            )
        self = cls.__new__(cls)
        self.edges = _sort_edges(n, columns)
        self.rewards_averaged, self._is_dense = bool(rewards_averaged), False
        return self

    def __repr__(self) -> str:
        return f"MarkovRewardProcess({self.n_states} states, {self.edges.origin.size} transitions)"

    @property
    def n_states(self) -> int:
        """Number of states S."""
        return self.edges.indptr.size - 1

    @cached_property
    def is_weighted(self) -> bool:
        """Whether any transition has an importance ratio other than 1.

        If so, the chain is that of the behaviour policy, and ``mean_reward``, ``discounted_P`` and ``values`` are those
        of the target policy.
        """
        return bool(np.any(self.edges.weight != 1.0))

    @cached_property
    def P(self) -> Any:
        """Transition probabilities, read-only: dense if a dense ``P`` was passed, otherwise a ``csr_array``."""
        return frozen(self._csr.toarray()) if self._is_dense else self._csr

    @cached_property
    def discounted_P(self) -> Any:
        """Matrix E[discount 1{s'} | s] as a ``csr_array`` of shape (S, S), weighted by the importance ratios.

        The values solve v = mean_reward + discounted_P v.
        """
        return self.matrix(self.edges.probability * self.edges.weight * self.edges.discount)

    @cached_property
    def mean_reward(self) -> Floats:
        """Expected reward on leaving each state, of shape (S,)."""
        edges = self.edges
        mean = np.bincount(edges.origin, edges.probability * edges.weight * edges.reward, minlength=self.n_states)
        return frozen(mean.astype(np.float64))

    @property
    def r_max(self) -> float:
        """Largest absolute reward of a possible transition."""
        return float(np.abs(self.edges.reward).max())

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the transitions in hexadecimal. Equal processes have equal digests."""
        sha = hashlib.sha256()
        for array in self.edges if self.is_weighted else self.edges[:-1]:
            sha.update(array.astype(array.dtype.newbyteorder("<")).tobytes())
        return sha.hexdigest()

    @cached_property
    def recurrent_class(self) -> NDArray[np.int64]:
        """Sorted states of the only closed class.

        A chain with several closed classes raises a ``ReducibleChainError``.
        """
        return frozen(one_closed_class(self._csr))

    @cached_property
    def period(self) -> int:
        """Period of the closed class: 1 if the chain is aperiodic."""
        return period(self._recurrent_P)

    @cached_property
    def stationary(self) -> Floats:
        """Stationary distribution, of shape (S,), exactly 0 on transient states.

        With up to 2,000 recurrent states it is computed by subtraction-free elimination, with more by sparse methods.
        An ``AccuracyError`` is raised if the L1 residual ``|mu P - mu|`` is above 1e-12.
        """
        P = self._recurrent_P
        mu = np.zeros(self.n_states)
        mu[self.recurrent_class] = gth(P.toarray()) if P.shape[0] <= DENSE_LIMIT else large_stationary(P)
        return frozen(mu)

    @cached_property
    def values(self) -> Floats:
        """Expected discounted sum of rewards from each state, of shape (S,).

        A ``SingularSystemError`` is raised if the transitions of some closed class all have discount 1.
        """
        # The system is singular if and only if all discounts of some closed class are 1.
        edges, n = self.edges, self.n_states
        undiscounted = np.bincount(edges.origin, (edges.discount < 1.0) & (edges.weight > 0.0), minlength=n) == 0
        target = self.matrix(edges.probability * edges.weight).copy()  # the chain under the target policy
        target.eliminate_zeros()
        for states in closed_classes(target):
            if undiscounted[states].all():
                raise SingularSystemError(
                    "Every closed class must have a discount below 1, but the class of state "
                    f"{states[0]} has discount 1 on all transitions.",
                    "Give the transitions that end an episode discount 0.",
                )
        return frozen(self.discounted_sum(self.mean_reward))

    def discounted_sum(self, reward: Floats, decay: float = 1.0) -> Floats:
        """Return the sum over k >= 0 of (decay ``discounted_P``)^k ``reward``.

        Parameters
        ----------
        reward : ndarray of shape (S,) or (S, k)
            Expected rewards on leaving each state, in one or several columns.
        decay : float, default=1.0
            Additional discount in [0, 1].

        Returns
        -------
        ndarray of shape (S,) or (S, k)
            The discounted sums.

        Raises
        ------
        AccuracyError
            If the relative residual is above 1e-10 or the relative error may be above 1e-6.
        """
        from scipy.sparse import eye_array
        from scipy.sparse.linalg import splu

        n, D, r = self.n_states, self.discounted_P, reward
        # A row sum may round up to 1 although every discount is below 1.
        contraction = decay * min(float(D.sum(axis=1).max()), float(self.edges.discount.max()))
        if n <= DENSE_LIMIT:
            v = np.linalg.solve(np.eye(n) - decay * D.toarray(), r)
        elif contraction <= 0.999:  # iteration, because the LU factors of a random sparse graph are dense
            v = r
            for _ in range(int(np.ceil(np.log(1e-16) / np.log(max(contraction, 1e-16))))):
                v = r + decay * (D @ v)
        else:
            v = splu(eye_array(n, format="csc") - decay * D.tocsc()).solve(r)
        scale = np.maximum(1.0, np.abs(v).max(axis=0))
        residual = float((np.abs(r + decay * (D @ v) - v) / scale).max())
        # The error is at most (residual + rounding) / (1 - contraction). There is no such bound if contraction is 1.
        error = (residual + float(np.finfo(np.float64).eps)) / (1.0 - contraction) if contraction < 1.0 else 0.0
        if not (residual <= 1e-10 and error <= 1e-6):
            raise AccuracyError(
                f"The values have the relative residual {residual:.3g} (at most 1e-10 is accepted) and a relative "
                f"error of up to {error:.3g} (at most 1e-6). Use discounts that are less close to 1."
            )
        return np.asarray(v)

    @property
    def mixing_constant(self) -> float:
        """Constant kappa of geometric mixing.

        sup_s TV(P^t(s, .), stationary) <= kappa rho^t for all t >= 0. Of all such pairs, (kappa, rho) minimises
        kappa/(1 - rho). The chain must be aperiodic and have at most 2,000 states.
        """
        return self._mixing[0]

    @property
    def mixing_rate(self) -> float:
        """Rate rho of geometric mixing, see ``mixing_constant``."""
        return self._mixing[1]

    @cached_property
    def _mixing(self) -> tuple[float, float]:
        if self.n_states > DENSE_LIMIT:
            raise InvalidInputError(
                f"Mixing constants need a chain of at most {DENSE_LIMIT} states, but this one has {self.n_states}.",
                "Use a smaller or aggregated chain.",
            )
        if self.period > 1:
            raise InvalidInputError(
                f"Mixing constants exist only for aperiodic chains, but this chain has period {self.period}.",
                "Make it lazy, e.g. 0.9 P + 0.1 I.",
            )
        return mixing_constants(self._csr.toarray(), self.stationary)

    @cached_property
    def _csr(self) -> Any:
        return self.matrix(self.edges.probability)

    @property
    def _recurrent_P(self) -> Any:
        states = self.recurrent_class
        return self._csr if states.size == self.n_states else self._csr[states, :][:, states]

    def matrix(self, weight: Floats) -> Any:
        """Return the (S, S) matrix with ``weight`` on the transitions.

        Parameters
        ----------
        weight : ndarray of shape (n,)
            One number per transition. Those of parallel transitions are added.

        Returns
        -------
        scipy.sparse.csr_array
            The matrix, read-only.
        """
        from scipy.sparse import csr_array

        n = self.n_states
        # scipy's graph routines need one index type for all arrays, of 32 bits if possible.
        indptr: Any = self.edges.indptr.astype(np.int32 if weight.size < 2**31 else np.int64)
        M = csr_array((weight.copy(), self.edges.successor.copy(), indptr), shape=(n, n))
        M.sum_duplicates()
        for array in (M.data, M.indices, M.indptr):
            frozen(array)
        return M


def _sort_edges(n: int, columns: list[NDArray[Any]]) -> Edges:
    """Check origin, successor, probability, reward, discount and weight, and return the sorted transitions."""
    origin, successor, probability, reward, discount, weight = columns
    for name, value, holds, condition in (
        ("probabilities", probability, probability >= 0.0, "be finite and non-negative"),
        ("rewards", reward, True, "be finite"),
        ("rewards", reward, np.abs(reward) <= LARGEST, f"be at most {LARGEST:g} in size"),
        ("weights", weight, weight >= 0.0, "be finite and non-negative"),
        ("discounts", discount, (discount >= 0.0) & (discount <= 1.0), "lie in [0, 1]"),
    ):
        bad = np.flatnonzero(~(holds & np.isfinite(value)))
        if bad.size:
            i = bad[0]
            raise InvalidInputError(
                f"{name} must {condition}, but got {value[i]} on the transition {origin[i]} -> {successor[i]}.",
                "Correct that entry.",
            )
    sums: Floats = np.bincount(origin, probability, minlength=n).astype(np.float64)
    check_row_sums("P", sums, ("row",))
    mean_weight: Floats = np.bincount(origin, probability * weight, minlength=n) / sums
    check_row_sums("P times weight", mean_weight, ("row",))
    kept = np.flatnonzero(probability > 0.0)
    place = origin[kept].astype(np.int64) * n + successor[kept]
    if not (np.diff(place) > 0).all():  # sort by all columns, so that equal processes have equal digests
        kept = kept[np.lexsort((weight[kept], reward[kept], discount[kept], place))]
    origin = origin[kept]
    edges = Edges(
        indptr=np.searchsorted(origin, np.arange(n + 1)).astype(np.int64),
        origin=origin,
        successor=successor[kept].astype(np.int32),
        probability=probability[kept] / sums[origin],
        reward=reward[kept] + 0.0,  # + 0.0 removes negative zeros, which would change the digest
        discount=discount[kept],
        weight=weight[kept],
    )
    for array in edges:
        frozen(array)
    return edges


def _canonical(name: str, matrix: Any) -> Any:
    """Return a private CSR copy with sorted, unique entries."""
    from scipy.sparse import csr_array

    if matrix.dtype.kind not in "biuf":
        raise InvalidInputError(
            f"{name} must be an array of real numbers, but got dtype {matrix.dtype}.", "Pass numbers."
        )
    copy = csr_array(matrix, dtype=np.float64, copy=True)
    copy.sum_duplicates()
    return copy


def _on_transitions(name: str, value: Any, pattern: Any, origin: NDArray[np.int32], short: tuple[int, ...]) -> Floats:
    """Return R or gamma on each stored transition, from an (S, S) matrix or from the shape ``short``: (S,) or ()."""
    from scipy import sparse

    is_sparse = sparse.issparse(value)
    table: Any = _canonical(name, value) if is_sparse else real_array(name, value, finite=False)
    if table.shape == short and short == ():
        if not 0.0 <= table < 1.0:
            raise InvalidInputError(
                f"{name} must lie in [0, 1), but got {table}.", "Pass a smaller number, or discounts of transitions."
            )
        return np.full(origin.shape, table)
    if table.shape == short and not is_sparse:
        return np.asarray(table[origin])
    square = (int(origin[-1]) + 1,) * 2 if pattern is None else pattern.shape
    if table.shape != square:
        raise InvalidInputError(
            f"{name} must have the shape {short} or {square}, but got {table.shape}.", "Reshape it."
        )
    if is_sparse != (pattern is not None):
        kinds, remedy = (
            ("sparse, but P is dense", "Use .toarray().")
            if is_sparse
            else ("dense, but P is sparse", "Pass a csr_array with the stored entries of P.")
        )
        raise InvalidInputError(f"{name} of transitions is {kinds}.", remedy)
    if not is_sparse:
        return np.asarray(table.ravel())
    if not (np.array_equal(table.indptr, pattern.indptr) and np.array_equal(table.indices, pattern.indices)):
        raise InvalidInputError(
            f"A sparse {name} must have the same stored entries as P, zeros included, but it has {table.nnz} stored "
            f"entries and P has {pattern.nnz}, not all in the same places.",
            f"Build {name} as csr_array((data, P.indices, P.indptr), shape=P.shape).",
        )
    return np.asarray(table.data)


def _state_indices(name: str, value: ArrayLike, n: int) -> NDArray[np.int32]:
    check_unmasked(name, value)
    array = np.asarray(value)
    if array.dtype.kind not in "iu":
        raise InvalidInputError(f"{name} must hold integers, but got dtype {array.dtype}.", "Pass state indices.")
    bad = np.flatnonzero((array < 0) | (array >= n))
    if bad.size:
        raise InvalidInputError(
            f"{name} must hold states 0..{n - 1}, but got {array.flat[bad[0]]} at entry {bad[0]}.",
            "Correct that entry.",
        )
    return array.astype(np.int32)
