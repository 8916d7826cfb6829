"""Classes, period and stationary distribution of a finite chain."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import Floats
from vrtd.errors import AccuracyError, ReducibleChainError

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Integers = NDArray[np.int64]

#: The largest accepted L1 residual |mu P - mu|.
RESIDUAL_LIMIT = 1e-12
#: Chains with more states than this are solved by sparse methods.
DENSE_LIMIT = 2_000


def closed_classes(P: csr_array) -> list[Integers]:
    """The closed communicating classes of a CSR matrix whose stored entries are positive, by smallest state.

    >>> import scipy.sparse
    >>> [c.tolist() for c in closed_classes(scipy.sparse.csr_array([[1.0, 0, 0], [0.5, 0, 0.5], [0, 0, 1.0]]))]
    [[0], [2]]
    """
    from scipy.sparse.csgraph import connected_components

    n_classes, label = connected_components(P, directed=True, connection="strong")
    origin = np.repeat(np.arange(P.shape[0]), np.diff(P.indptr))
    is_open = np.zeros(n_classes, dtype=bool)
    is_open[label[origin[label[origin] != label[P.indices]]]] = True
    closed = [np.flatnonzero(label == c) for c in np.flatnonzero(~is_open)]
    return sorted(closed, key=lambda states: int(states[0]))


def one_closed_class(P: csr_array) -> Integers:
    """The states of the only closed class; several are a ReducibleChainError."""
    classes = closed_classes(P)
    if len(classes) > 1:
        states = ", ".join(str(c[0]) for c in classes[:5]) + (", ..." if len(classes) > 5 else "")
        raise ReducibleChainError(
            "the chain must have one closed class",
            f"{len(classes)} of them, holding the states {states}",
            "connect them, or evaluate each class as a chain of its own",
        )
    return classes[0]


def period(P: csr_array) -> int:
    """The period of an irreducible CSR matrix: the gcd of its cycle lengths, from the levels of one search tree."""
    from scipy.sparse.csgraph import dijkstra

    level = dijkstra(P, indices=[0], unweighted=True)[0].astype(np.int64)
    origin = np.repeat(np.arange(P.shape[0]), np.diff(P.indptr))
    return int(np.gcd.reduce(level[origin] + 1 - level[P.indices]))


def gth(P: Floats, block: int = 64) -> Floats:
    """Stationary distribution of an irreducible dense matrix by Grassmann, Taksar and Heyman's (1985) elimination.

    States are censored out from the last to the first. Nothing is ever subtracted, so each entry comes out with a
    small *relative* error, however small it is. Updates are gathered over `block` pivots and applied as one product.

    >>> gth(np.array([[0.7, 0.3], [0.4, 0.6]])).round(6).tolist()
    [0.571429, 0.428571]
    """
    W = P.copy()
    n = W.shape[0]
    for stop in range(n, 0, -block):
        start = max(stop - block, 0)
        for k in range(stop - 1, max(start, 1) - 1, -1):
            W[k, :k] += W[k, k + 1 : stop] @ W[k + 1 : stop, :k]  # what the pivots k+1.. of this block owe
            W[:k, k] += W[:k, k + 1 : stop] @ W[k + 1 : stop, k]
            W[:k, k] /= W[k, :k].sum()
        W[:start, :start] += W[:start, start:stop] @ W[start:stop, :start]
    mu = np.ones(n)
    for k in range(1, n):
        mu[k] = mu[:k] @ W[:k, k]
        if mu[k] > 1e200:  # the ratios of a long drifting chain leave the range of a float
            mu[: k + 1] /= mu[k]
    mu /= mu.sum()
    _check(mu, P)
    return mu


def large_stationary(P: csr_array) -> Floats:
    """Stationary distribution of an irreducible sparse matrix with at least two states.

    Solved for the jump chain (self-loops removed, so that laziness costs nothing) and weighted by the holding times.
    First power iteration on (J + I)/2, which is cheap and ends fast-mixing chains; it is believed only when the
    residual, extrapolated by its own rate of decay, promises an error below 1e-10. Otherwise the sparse LU factors of
    I - J without its heaviest state: an M-matrix, which needs no pivoting. (LU comes second because random sparse
    graphs fill in almost completely, while slow chains are mostly nearly banded.) How parts that exchange less than
    1e-15 of their mass a step share it cannot be told at this accuracy.
    """
    from scipy.sparse import csr_array, eye_array
    from scipy.sparse.linalg import splu

    n = P.shape[0]
    origin = np.repeat(np.arange(n), np.diff(P.indptr))
    jumps = origin != P.indices
    leave = np.bincount(origin[jumps], P.data[jumps], minlength=n)  # 1 - P(s, s) without the subtraction
    place = (P.indices[jumps], origin[jumps])
    Jt = csr_array((P.data[jumps] / leave[origin[jumps]], place), shape=(n, n))

    limit = _power_iteration(Jt)
    mu = np.ones(n) if limit is None else limit
    if limit is None:
        heaviest = 0
        for _ in range(4):  # the heaviest state is known only from the solution; a light one loses digits
            rest = np.flatnonzero(np.arange(n) != heaviest)
            into = Jt[:, [heaviest]].toarray()[rest, 0]
            M = eye_array(n - 1, format="csc") - Jt[rest, :][:, rest].tocsc()
            factors = splu(M, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
            mu = np.ones(n)
            mu[rest] = np.maximum(factors.solve(into), 0.0)  # the inverse of an M-matrix is non-negative
            if mu[heaviest] >= 0.1 * mu.max():
                break
            heaviest = int(mu.argmax())
        mu /= mu.sum()
        mu += Jt @ mu  # one sweep smooths the rounding of the solve
    mu = mu / leave
    mu /= mu.sum()
    _check(mu, P)
    return mu


def _power_iteration(Jt: csr_array) -> Floats | None:
    """The fixed point of the transposed chain, or None when it comes too slowly to be believed."""
    n = Jt.shape[0]
    mu = np.full(n, 1.0 / n)
    previous, window = np.inf, 32
    for sweep in range(1, 10_001):
        image = Jt @ mu
        if sweep % window == 0:
            residual = float(np.abs(image - mu).sum())
            if residual <= 1e-15:
                rate = (residual / previous) ** (1 / window)
                # At the floor of rounding and still not decaying: the chain is slow.
                return mu if residual <= 1e-10 * (1.0 - rate) else None
            previous = residual
        mu = 0.5 * (mu + image)
        mu /= mu.sum()
    return None


def _check(mu: Floats, P: Floats | csr_array) -> None:
    residual = float(np.abs(mu @ P - mu).sum())
    if not residual <= RESIDUAL_LIMIT:
        raise AccuracyError(
            f"the stationary distribution must have an L1 residual |mu P - mu| of at most {RESIDUAL_LIMIT:g}; "
            f"got {residual:.3g}; make the chain less extreme, or merge its nearly unreachable states"
        )
