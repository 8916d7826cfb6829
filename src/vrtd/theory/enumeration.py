"""Exact moments of VRTD, Algorithm 2, on tiny chains: every batch that can occur is looked at.

Given its batch an epoch is like one of Algorithm 1: inner samples are drawn from the batch as from a distribution, and
the anchor's pseudo-gradient is that distribution's exact mean. The order of the transitions inside a batch does not
matter then, only where it starts, where it ends and how often each transition occurs; so batches are counted by type,
of which there are far fewer than paths.
"""

from __future__ import annotations

import numpy as np

from vrtd.algorithms.vrtd import Output
from vrtd.arrays import Floats
from vrtd.errors import InvalidInputError
from vrtd.problems import LinearProblem
from vrtd.theory.checks import check_on_policy
from vrtd.theory.increments import Increments, zeta
from vrtd.theory.moments import epoch_maps
from vrtd.theory.symmetric import outer, quadratic, triangle

#: Batches are enumerated up to this many types: a second or so.
MOST_TYPES = 4000
_MOST_UNKNOWNS, _MOST_EDGES = 2000, 64

Types = dict[tuple[int, tuple[int, ...]], float]  # (last state, counts of transitions) -> probability


def batch_types(problem: LinearProblem, batch_size: int) -> list[Types] | None:
    """The types of batches from each first state, or None if there are too many of them."""
    edges = problem.mrp.edges
    n_states, n_edges = problem.mrp.n_states, edges.origin.size
    if n_states * triangle(problem.n_features + 1) > _MOST_UNKNOWNS or n_edges > _MOST_EDGES:
        return None
    found: list[Types] = []
    for s in range(n_states):
        types: Types = {(s, (0,) * n_edges): 1.0}
        for _ in range(batch_size):
            longer: Types = {}
            for (state, counts), p in types.items():
                for e in range(edges.indptr[state], edges.indptr[state + 1]):
                    key = int(edges.successor[e]), (*counts[:e], counts[e] + 1, *counts[e + 1 :])
                    longer[key] = longer.get(key, 0.0) + p * float(edges.probability[e])
            types = longer
            if len(types) * n_states > MOST_TYPES:
                return None
        found.append(types)
    return found


def is_enumerable(problem: LinearProblem, batch_size: int) -> bool:
    """Whether Algorithm 2 can be followed exactly on this chain with this batch size."""
    return batch_types(problem, batch_size) is not None


def enumerated_epoch_map(
    problem: LinearProblem, step_size: float, batch_size: int, output: Output, n_steps: int | None = None
) -> Floats:
    """The map of one epoch of Algorithm 2 on the packed Y_s = E[y y^T; state s], one block a state.

    It makes `batch_size` inner steps, or `n_steps` if these are fewer.
    """
    check_on_policy(problem)
    types = batch_types(problem, batch_size)
    if types is None:
        raise InvalidInputError(
            f"batches are enumerated for {_MOST_EDGES} transitions, {MOST_TYPES} types and {_MOST_UNKNOWNS} moments",
            f"more, for {problem.mrp.n_states} states and batch_size {batch_size}",
            'use the approximation, method="approximate", or simulate',
        )
    edges, d = problem.mrp.edges, problem.n_features
    by_edge, phi = zeta(problem), problem.phi[edges.origin]
    means = np.einsum("ei,ej->eij", phi, by_edge)
    squares = np.einsum("ei,ej->eij", outer(phi), quadratic(by_edge))
    size = triangle(d + 1)
    whole = np.zeros((len(types), size, len(types), size))
    maps: dict[tuple[int, ...], Floats] = {}
    for first, from_first in enumerate(types):
        for (last, counts), p in from_first.items():
            if counts not in maps:
                share = np.array(counts) / batch_size
                batch = Increments(problem.theta_star, np.tensordot(share, means, 1), np.tensordot(share, squares, 1))
                maps[counts] = epoch_maps(batch, step_size, [batch_size], output, "mean", n_steps)[batch_size].later
            whole[last, :, first] += p * maps[counts]
    return whole.reshape(len(types) * size, -1)
