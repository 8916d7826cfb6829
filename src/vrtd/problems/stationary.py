"""Communicating classes, period and stationary distribution of a finite chain."""

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
    """Return the closed communicating classes of a CSR matrix with positive entries, sorted by their smallest state.

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
    """Return the states of the only closed class, or raise ReducibleChainError if there are several."""
    classes = closed_classes(P)
    if len(classes) > 1:
        states = ", ".join(str(c[0]) for c in classes[:5]) + (", ..." if len(classes) > 5 else "")
        raise ReducibleChainError(
            f"The chain must have one closed class, but it has {len(classes)}, which contain the states {states}.",
            "Connect them, or evaluate each class as a separate chain.",
        )
    return classes[0]


def period(P: csr_array) -> int:
    """Return the period of an irreducible CSR matrix.

    It is the greatest common divisor of the cycle lengths, computed from the levels of a search tree.
    """
    from scipy.sparse.csgraph import dijkstra

    level = dijkstra(P, indices=[0], unweighted=True)[0].astype(np.int64)
    origin = np.repeat(np.arange(P.shape[0]), np.diff(P.indptr))
    return int(np.gcd.reduce(level[origin] + 1 - level[P.indices]))


def gth(P: Floats, block: int = 64) -> Floats:
    """Return the stationary distribution of an irreducible dense matrix by subtraction-free elimination.

    This is the algorithm of Grassmann, Taksar and Heyman (1985), which eliminates states from the last to the first. It
    never subtracts, so each entry has a small *relative* error, however small the entry is. Updates are collected over
    ``block`` pivots and applied as one product.

    >>> gth(np.array([[0.7, 0.3], [0.4, 0.6]])).round(6).tolist()
    [0.571429, 0.428571]
    """
    W = P.copy()
    n = W.shape[0]
    for stop in range(n, 0, -block):
        start = max(stop - block, 0)
        for k in range(stop - 1, max(start, 1) - 1, -1):
            W[k, :k] += W[k, k + 1 : stop] @ W[k + 1 : stop, :k]  # pending updates of pivots k + 1, ... of this block
            W[:k, k] += W[:k, k + 1 : stop] @ W[k + 1 : stop, k]
            W[:k, k] /= W[k, :k].sum()
        W[:start, :start] += W[:start, start:stop] @ W[start:stop, :start]
    mu = np.ones(n)
    for k in range(1, n):
        mu[k] = mu[:k] @ W[:k, k]
        if mu[k] > 1e200:  # the ratios of a long chain with a drift would overflow
            mu[: k + 1] /= mu[k]
    mu /= mu.sum()
    _check(mu, P)
    return mu


def large_stationary(P: csr_array) -> Floats:
    """Return the stationary distribution of an irreducible sparse matrix with at least two states.

    It is computed for the jump chain, whose self-loops are removed, and weighted by the holding times. Lazy chains
    therefore cost no more.

    Power iteration on (J + I)/2 comes first. It is cheap and sufficient for fast-mixing chains. Its result is accepted
    only if the residual, extrapolated by its own rate of decay, implies an error below 1e-10. Otherwise, sparse LU
    factors of I - J without the heaviest state solve the system; this M-matrix needs no pivoting. LU comes second
    because the factors of random sparse graphs are almost dense, while slow chains are mostly nearly banded.

    Between parts of the chain that exchange less than 1e-15 of their mass per step, the split of mass cannot be
    determined at this accuracy.
    """
    from scipy.sparse import csr_array, eye_array
    from scipy.sparse.linalg import splu

    n = P.shape[0]
    origin = np.repeat(np.arange(n), np.diff(P.indptr))
    jumps = origin != P.indices
    leave = np.bincount(origin[jumps], P.data[jumps], minlength=n)  # 1 - P(s, s), without a subtraction
    place = (P.indices[jumps], origin[jumps])
    Jt = csr_array((P.data[jumps] / leave[origin[jumps]], place), shape=(n, n))

    limit = _power_iteration(Jt)
    mu = np.ones(n) if limit is None else limit
    if limit is None:
        heaviest = 0
        for _ in range(4):  # only the solution shows the heaviest state; removing a light one loses digits
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
        mu += Jt @ mu  # one sweep reduces the rounding error of the solution
    mu = mu / leave
    mu /= mu.sum()
    _check(mu, P)
    return mu


def _power_iteration(Jt: csr_array) -> Floats | None:
    """Return the fixed point of the transposed chain, or None if the iteration converges too slowly to be accurate."""
    n = Jt.shape[0]
    mu = np.full(n, 1.0 / n)
    previous, window = np.inf, 32
    for sweep in range(1, 10_001):
        image = Jt @ mu
        if sweep % window == 0:
            residual = float(np.abs(image - mu).sum())
            if residual <= 1e-15:
                rate = (residual / previous) ** (1 / window)
                # At the level of rounding errors, a residual that hardly decays shows a slow chain.
                return mu if residual <= 1e-10 * (1.0 - rate) else None
            previous = residual
        mu = 0.5 * (mu + image)
        mu /= mu.sum()
    return None


def _check(mu: Floats, P: Floats | csr_array) -> None:
    residual = float(np.abs(mu @ P - mu).sum())
    if not residual <= RESIDUAL_LIMIT:
        raise AccuracyError(
            f"The stationary distribution has the L1 residual |mu P - mu| = {residual:.3g}, but at most "
            f"{RESIDUAL_LIMIT:g} is accepted. Make the chain less extreme, or merge its nearly unreachable states."
        )
