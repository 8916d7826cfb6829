"""One row for each algorithm and setting: the contract suite runs every row.

A new algorithm adds its transcription to reference.py and its rows here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import vrtd
from tests import reference
from vrtd.algorithms import Algorithm


class Row(NamedTuple):
    id: str
    algorithm: Algorithm
    sampling: str
    reference: Callable[..., Any]
    n_epochs: int = 12
    tolerance: float = 1e-9  # of the limit after 20,000 pseudo-gradients on a chain without noise


ROWS = [
    Row("td-iid", vrtd.TD(0.1), "iid", reference.td, 60),
    Row("td-markov", vrtd.TD(0.1), "markov", reference.td, 60),
    # The average keeps the first iterates with weight 1/t: |u_0| / (alpha |A| t), here 8e-4.
    Row("td-projected-averaged", vrtd.TD(0.2, radius=2.0, average=True), "markov", reference.td, 60, 1e-3),
    Row("td-harmonic", vrtd.TD(vrtd.Harmonic(c=60.0, t0=300.0)), "markov", reference.td, 60),
    Row("td-piecewise", vrtd.TD(vrtd.Piecewise((10, 30), (0.2, 0.1, 0.05))), "markov", reference.td, 60),
    Row("vrtd-algorithm-1", vrtd.VRTD(0.1, 7), "iid", reference.vrtd),
    Row("vrtd-algorithm-2", vrtd.VRTD(0.1, 7), "markov", reference.vrtd),
    Row("vrtd-projected", vrtd.VRTD(0.2, 9, radius=2.0), "markov", reference.vrtd),
    Row("vrtd-last", vrtd.VRTD(0.1, 7, output="last"), "iid", reference.vrtd),
    Row("vrtd-average", vrtd.VRTD(0.1, 7, output="average"), "markov", reference.vrtd),
    Row("vrtd-fresh-on-markov", vrtd.VRTD(0.1, 7, inner="fresh"), "markov", reference.vrtd),
    Row("vrtd-resample-on-iid", vrtd.VRTD(0.1, 7, inner="resample"), "iid", reference.vrtd),
    Row("vrtd-batch-of-one", vrtd.VRTD(0.1, 1), "markov", reference.vrtd, 40),
]


def two_states() -> tuple[Any, Any]:
    """A chain with two states, small enough to enumerate."""
    P, R = np.array([[0.7, 0.3], [0.4, 0.6]]), np.array([[1.0, 0.0], [0.0, 2.0]])
    return vrtd.MarkovRewardProcess(P, R, 0.9), np.array([[1.0], [0.5]])


def noiseless() -> tuple[Any, Any, Any]:
    """A chain whose every single transition is already in balance at theta_star: g_x(theta_star) = 0 for all x."""
    rng = np.random.default_rng(1)
    mrp, phi = vrtd.problems.random_mdp(seed=3, n_states=8, n_features=1, normalize=True)
    theta = rng.normal(size=1)
    values = phi @ theta
    return vrtd.MarkovRewardProcess(mrp.P, values[:, None] - 0.9 * values[None, :], 0.9), phi, theta
