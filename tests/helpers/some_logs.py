"""Logs of a small chain whose answer is known."""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any

import numpy as np

import vrtd
from vrtd.logs import Chunk

DISCOUNT = 0.95


@cache
def chain() -> vrtd.LinearProblem:
    return vrtd.problems.random_mdp(seed=0)


@cache
def sample(n: int, seed: int = 1) -> Any:
    return vrtd.record(chain(), n, seed=seed, shuffle=False)


def chunk(first: int, last: int, n: int = 20_000, seed: int = 1, dtype: str = "f8") -> Chunk:
    """Rows first..last - 1 of a trajectory of n."""
    s, no = sample(n, seed), np.zeros(last - first, bool)
    phi, phi_next = (np.ascontiguousarray(table[first:last], dtype) for table in (s.phi, s.phi_next))
    return Chunk(phi, s.reward[first:last], phi_next, no, no)


def split(n: int, seed: int, most: int = 3000) -> list[tuple[int, int]]:
    """Random pieces of n rows."""
    rng, cuts = np.random.default_rng(seed), [0]
    while cuts[-1] < n:
        cuts.append(min(n, cuts[-1] + int(rng.integers(1, most))))
    return list(itertools.pairwise(cuts))


@cache
def boyan(n: int, seed: int = 1) -> tuple[Any, Any, Any]:
    """Rows of Boyan's chain, whose values its features represent; with the features and theta_star. Discount 1."""
    problem = vrtd.problems.boyan_chain()
    s = vrtd.record(problem, n, seed=seed, shuffle=False)
    rows = Chunk(s.phi, s.reward, s.phi_next, np.asarray(s.discount) == 0.0, np.zeros(n, bool))
    return rows, problem.phi, problem.theta_star


def scaled(rows: Chunk, scale: Any) -> Chunk:
    """Rows with features multiplied by a factor for each row."""
    each = np.asarray(scale)[:, None]
    return rows._replace(observations=rows.observations * each, next_observations=rows.next_observations * each)
