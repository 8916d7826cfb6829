"""Chains of two groups of states that change seldom, and trajectories of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from vrtd.logs import Chunk


def two_halves(seed: int, switch: float = 1e-3, scale: float = 2.5) -> tuple[Any, Any, Any]:
    """Two groups of five states with a small probability of a change; features are larger in the second."""
    rng, half = np.random.default_rng(seed), np.repeat([0.0, 1.0], 5)
    P = np.zeros((10, 10))
    P[:5, :5], P[5:, 5:] = rng.random((5, 5)), rng.random((5, 5))
    P *= (1.0 - switch) / P.sum(axis=1, keepdims=True)
    P[:5, 5] += switch
    P[5:, 0] += switch
    phi = np.c_[np.ones(10), half, rng.normal(size=10) * np.where(half, scale, 1.0)]
    return P, phi, half + 0.1 * rng.normal(size=10)


def walk(P: Any, n: int, rng: Any) -> Any:
    """n + 1 states of a trajectory from state 0."""
    cumulative, states, s = P.cumsum(axis=1), [0], 0
    last = len(P) - 1
    for u in rng.random(n).tolist():
        s = min(int(np.searchsorted(cumulative[s], u, side="right")), last)
        states.append(s)
    return np.array(states)


def rows_of(phi: Any, reward: Any, states: Any) -> Chunk:
    no = np.zeros(len(states) - 1, bool)
    return Chunk(phi[states[:-1]], reward[states[:-1]], phi[states[1:]], no, no)
