"""A finite Markov reward process: validated once, exact quantities on demand."""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import Any, NamedTuple, Self, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vrtd.arrays import Floats, check_row_sums, frozen, real_array
from vrtd.checks import check_count
from vrtd.errors import AccuracyError, InvalidInputError, SingularSystemError
from vrtd.problems.mixing import mixing_constants
from vrtd.problems.stationary import DENSE_LIMIT, closed_classes, gth, large_stationary, one_closed_class, period


class Edges(NamedTuple):
    """The transitions of positive probability, sorted by origin; `indptr[s]:indptr[s + 1]` are those that leave s.

    Two edges may join the same states with different rewards or discounts.
    """

    indptr: NDArray[np.int64]
    origin: NDArray[np.int32]
    successor: NDArray[np.int32]
    probability: Floats
    reward: Floats
    discount: Floats
    weight: Floats  # importance ratios, of mean 1 in every state; all 1 where the chain is the policy's own


@final
class MarkovRewardProcess:
    """A Markov chain with rewards and discounts on its transitions.

    Args:
        P: (S, S) transition probabilities, dense or scipy-sparse; rows may miss 1 by 1e-8 and are normalised.
        R: (S,) rewards on leaving a state, or (S, S) rewards of transitions. With a sparse P, (S, S) rewards are
            sparse with the same stored entries as P (a reward of 0 is stored explicitly).
        gamma: a discount in [0, 1), or (S, S) discounts in [0, 1] of transitions (sparse as R is, if P is sparse).
            A transition that ends an episode has discount 0; 1 is allowed.

    >>> mrp = MarkovRewardProcess([[0.7, 0.3], [0.4, 0.6]], [1.0, 2.0], gamma=0.9)
    >>> mrp.stationary.round(4)
    array([0.5714, 0.4286])
    >>> mrp.values.round(4)
    array([13.6986, 15.0685])
    """

    edges: Edges  # read-only
    rewards_averaged: (
        bool  # whether rewards of parallel transitions were replaced by their mean: same values, less noise
    )

    def __init__(self, P: ArrayLike | Any, R: ArrayLike | Any, gamma: ArrayLike | Any) -> None:
        from scipy import sparse

        pattern = _canonical("P", P) if sparse.issparse(P) else None
        # The transitions' own check names an entry that is not finite as s -> s'.
        table = real_array("P", P, finite=False) if pattern is None else pattern
        if len(table.shape) != 2 or table.shape[0] != table.shape[1] or table.shape[0] == 0:
            raise InvalidInputError(
                "P must be a square matrix", f"the shape {table.shape}", "pass (S, S) probabilities"
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
        """A process from its list of transitions, in any order; parallel transitions are kept apart.

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
                "origin, successor, probability, reward, discount and weight must be vectors of one length",
                f"the shapes {', '.join(map(str, shapes))}",
                "pass one entry per transition",
            )
        self = cls.__new__(cls)
        self.edges = _sort_edges(n, columns)
        self.rewards_averaged, self._is_dense = bool(rewards_averaged), False
        return self

    def __repr__(self) -> str:
        return f"MarkovRewardProcess({self.n_states} states, {self.edges.origin.size} transitions)"

    @property
    def n_states(self) -> int:
        return self.edges.indptr.size - 1

    @cached_property
    def is_weighted(self) -> bool:
        """Whether transitions carry importance ratios: the chain is then the behaviour's, and `mean_reward`,
        `discounted_P` and `values` are the target policy's."""
        return bool(np.any(self.edges.weight != 1.0))

    @cached_property
    def P(self) -> Any:
        """Transition probabilities: dense if a dense P came, else a `scipy.sparse.csr_array`; read-only."""
        return frozen(self._csr.toarray()) if self._is_dense else self._csr

    @cached_property
    def discounted_P(self) -> Any:
        """(S, S) `csr_array` of E[discount 1{s'} | s]: what carries values one step back."""
        return self.matrix(self.edges.probability * self.edges.weight * self.edges.discount)

    @cached_property
    def mean_reward(self) -> Floats:
        """(S,) expected reward on leaving each state."""
        edges = self.edges
        mean = np.bincount(edges.origin, edges.probability * edges.weight * edges.reward, minlength=self.n_states)
        return frozen(mean.astype(np.float64))

    @property
    def r_max(self) -> float:
        """The largest |reward| of a possible transition."""
        return float(np.abs(self.edges.reward).max())

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the transitions, in hexadecimal: equal processes have equal digests."""
        sha = hashlib.sha256()
        for array in self.edges if self.is_weighted else self.edges[:-1]:
            sha.update(array.astype(array.dtype.newbyteorder("<")).tobytes())
        return sha.hexdigest()

    @cached_property
    def recurrent_class(self) -> NDArray[np.int64]:
        """Sorted states of the one closed class; several such classes are a ReducibleChainError."""
        return frozen(one_closed_class(self._csr))

    @cached_property
    def period(self) -> int:
        """The period of the closed class: 1 when the chain is aperiodic."""
        return period(self._recurrent_P)

    @cached_property
    def stationary(self) -> Floats:
        """(S,) stationary distribution; exactly 0 on transient states.

        Up to 2,000 recurrent states by subtraction-free elimination, above by sparse methods; the L1 residual
        |mu P - mu| is at most 1e-12, or an AccuracyError says what it is.
        """
        P = self._recurrent_P
        mu = np.zeros(self.n_states)
        mu[self.recurrent_class] = gth(P.toarray()) if P.shape[0] <= DENSE_LIMIT else large_stationary(P)
        return frozen(mu)

    @cached_property
    def values(self) -> Floats:
        """(S,) expected discounted sum of rewards from each state."""
        # The system is singular exactly when some closed class never discounts.
        edges, n = self.edges, self.n_states
        undiscounted = np.bincount(edges.origin, (edges.discount < 1.0) & (edges.weight > 0.0), minlength=n) == 0
        target = self.matrix(edges.probability * edges.weight).copy()  # where the target policy leads
        target.eliminate_zeros()
        for states in closed_classes(target):
            if undiscounted[states].all():
                raise SingularSystemError(
                    "every closed class must have a discount below 1",
                    f"discount 1 on all transitions of the class of state {states[0]}",
                    "give the transitions that end an episode discount 0",
                )
        return frozen(self.discounted_sum(self.mean_reward))

    def discounted_sum(self, reward: Floats, decay: float = 1.0) -> Floats:
        """Return the sum over k >= 0 of (decay `discounted_P`)^k `reward`, for (S,) or (S, k) rewards."""
        from scipy.sparse import eye_array
        from scipy.sparse.linalg import splu

        n, D, r = self.n_states, self.discounted_P, reward
        # A row sum may round up to 1 where every discount is below it.
        contraction = decay * min(float(D.sum(axis=1).max()), float(self.edges.discount.max()))
        if n <= DENSE_LIMIT:
            v = np.linalg.solve(np.eye(n) - decay * D.toarray(), r)
        elif contraction <= 0.999:  # LU of a random sparse graph fills in; iteration does not care
            v = r
            for _ in range(int(np.ceil(np.log(1e-16) / np.log(max(contraction, 1e-16))))):
                v = r + decay * (D @ v)
        else:
            v = splu(eye_array(n, format="csc") - decay * D.tocsc()).solve(r)
        scale = np.maximum(1.0, np.abs(v).max(axis=0))
        residual = float((np.abs(r + decay * (D @ v) - v) / scale).max())
        # The error is at most the residual, itself known up to rounding, over 1 - contraction; where some state never
        # discounts that says nothing.
        error = (residual + float(np.finfo(np.float64).eps)) / (1.0 - contraction) if contraction < 1.0 else 0.0
        if not (residual <= 1e-10 and error <= 1e-6):
            raise AccuracyError(
                "values must solve v = r + P v to 1e-10 and be known to a millionth; got the residual "
                f"{residual:.3g} and an error of up to {error:.3g}, relative to the values; "
                "use discounts that are not so close to 1"
            )
        return np.asarray(v)

    @property
    def mixing_constant(self) -> float:
        """kappa of sup_s TV(P^t(s, .), stationary) <= kappa rho^t, t >= 0; the pair minimises kappa/(1 - rho)."""
        return self._mixing[0]

    @property
    def mixing_rate(self) -> float:
        """rho of sup_s TV(P^t(s, .), stationary) <= kappa rho^t, t >= 0; the pair minimises kappa/(1 - rho)."""
        return self._mixing[1]

    @cached_property
    def _mixing(self) -> tuple[float, float]:
        if self.n_states > DENSE_LIMIT:
            raise InvalidInputError(
                f"mixing constants need at most {DENSE_LIMIT} states",
                self.n_states,
                "use a smaller or aggregated chain",
            )
        if self.period > 1:
            raise InvalidInputError(
                "mixing constants need an aperiodic chain",
                f"period {self.period}",
                "make it lazy, e.g. 0.9 P + 0.1 I; everything else works with a periodic chain",
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
        """The (S, S) CSR matrix with `weight` on the transitions, parallel ones added; read-only."""
        from scipy.sparse import csr_array

        n = self.n_states
        # scipy's graph routines want one index type, 32 bits where that is enough.
        indptr: Any = self.edges.indptr.astype(np.int32 if weight.size < 2**31 else np.int64)
        M = csr_array((weight.copy(), self.edges.successor.copy(), indptr), shape=(n, n))
        M.sum_duplicates()
        for array in (M.data, M.indices, M.indptr):
            frozen(array)
        return M


def _sort_edges(n: int, columns: list[NDArray[Any]]) -> Edges:
    """Check origin, successor, probability, reward, discount and weight; return the sorted transitions."""
    origin, successor, probability, reward, discount, weight = columns
    for name, value, holds, must in (
        ("probabilities", probability, probability >= 0.0, "be finite and non-negative"),
        ("rewards", reward, True, "be finite"),
        ("weights", weight, weight >= 0.0, "be finite and non-negative"),
        ("discounts", discount, (discount >= 0.0) & (discount <= 1.0), "lie in [0, 1]"),
    ):
        bad = np.flatnonzero(~(holds & np.isfinite(value)))
        if bad.size:
            i = bad[0]
            got = f"{value[i]} on the transition {origin[i]} -> {successor[i]}"
            raise InvalidInputError(f"{name} must {must}", got, "repair that entry")
    sums: Floats = np.bincount(origin, probability, minlength=n).astype(np.float64)
    check_row_sums("P", sums, ("row",))
    mean_weight: Floats = np.bincount(origin, probability * weight, minlength=n) / sums
    check_row_sums("P times weight", mean_weight, ("row",))
    kept = np.flatnonzero(probability > 0.0)
    place = origin[kept].astype(np.int64) * n + successor[kept]
    if not (np.diff(place) > 0).all():  # a full order, so that equal processes have equal digests
        kept = kept[np.lexsort((weight[kept], reward[kept], discount[kept], place))]
    origin = origin[kept]
    edges = Edges(
        indptr=np.searchsorted(origin, np.arange(n + 1)).astype(np.int64),
        origin=origin,
        successor=successor[kept].astype(np.int32),
        probability=probability[kept] / sums[origin],
        reward=reward[kept] + 0.0,  # no negative zeros: they would change the digest
        discount=discount[kept],
        weight=weight[kept],
    )
    for array in edges:
        frozen(array)
    return edges


def _canonical(name: str, matrix: Any) -> Any:
    """A private CSR copy with sorted, unique entries."""
    from scipy.sparse import csr_array

    if matrix.dtype.kind not in "biuf":
        raise InvalidInputError(f"{name} must be an array of real numbers", f"dtype {matrix.dtype}", "pass numbers")
    copy = csr_array(matrix, dtype=np.float64, copy=True)
    copy.sum_duplicates()
    return copy


def _on_transitions(name: str, value: Any, pattern: Any, origin: NDArray[np.int32], short: tuple[int, ...]) -> Floats:
    """R or gamma on each stored transition, from an (S, S) matrix or from its `short` shape: (S,) or one number."""
    from scipy import sparse

    is_sparse = sparse.issparse(value)
    table: Any = _canonical(name, value) if is_sparse else real_array(name, value, finite=False)
    if table.shape == short and short == ():
        if not 0.0 <= table < 1.0:
            raise InvalidInputError(f"{name} must lie in [0, 1)", table, "pass less, or discounts of transitions")
        return np.full(origin.shape, table)
    if table.shape == short and not is_sparse:
        return np.asarray(table[origin])
    square = (int(origin[-1]) + 1,) * 2 if pattern is None else pattern.shape
    if table.shape != square:
        raise InvalidInputError(f"{name} must have the shape {short} or {square}", table.shape, "reshape it")
    if is_sparse != (pattern is not None):
        got, do = ("a sparse matrix", "use .toarray()") if is_sparse else ("a dense matrix", "pass csr_array")
        raise InvalidInputError(f"{name} of transitions must be sparse when P is, and dense when P is", got, do)
    if not is_sparse:
        return np.asarray(table.ravel())
    if not (np.array_equal(table.indptr, pattern.indptr) and np.array_equal(table.indices, pattern.indices)):
        raise InvalidInputError(
            f"a sparse {name} must have the stored entries of P, zeros included",
            f"{table.nnz} stored entries against {pattern.nnz} of P, not all in the same places",
            f"build {name} as csr_array((data, P.indices, P.indptr), shape=P.shape)",
        )
    return np.asarray(table.data)


def _state_indices(name: str, value: ArrayLike, n: int) -> NDArray[np.int32]:
    array = np.asarray(value)
    if array.dtype.kind not in "iu":
        raise InvalidInputError(f"{name} must hold integers", f"dtype {array.dtype}", "pass state indices")
    bad = np.flatnonzero((array < 0) | (array >= n))
    if bad.size:
        raise InvalidInputError(
            f"{name} must hold states 0..{n - 1}", f"{array.flat[bad[0]]} at entry {bad[0]}", "repair that entry"
        )
    return array.astype(np.int32)
