"""Exact moments of VRTD on a trajectory (Algorithm 2) on tiny chains, by enumeration of all batches.

Given its batch, an epoch is like an epoch of Algorithm 1: the inner samples are drawn from the batch as a distribution,
and the pseudo-gradient at the anchor is the exact mean of that distribution. So the order of the transitions inside a
batch does not matter, only the first state, the last state and how often each transition occurs. Batches are therefore
counted by these types, of which there are far fewer than paths.
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

#: Largest number of types of batches; enumerating them takes about a second.
MOST_TYPES = 4000
_MOST_UNKNOWNS, _MOST_EDGES = 2000, 64

Types = dict[tuple[int, tuple[int, ...]], float]  # (last state, counts of transitions) -> probability


def batch_types(problem: LinearProblem, batch_size: int) -> list[Types] | None:
    """Return the types of batches from each first state, or None if there are too many of them."""
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
    """Return the map of one epoch of Algorithm 2 on the packed Y_s = E[y y^T; state s], one block per state.

    The epoch has ``batch_size`` inner steps, or ``n_steps`` if that is less.
    """
    check_on_policy(problem)
    types = batch_types(problem, batch_size)
    if types is None:
        raise InvalidInputError(
            f"batches are enumerated for at most {_MOST_EDGES} transitions, {MOST_TYPES} types "
            f"and {_MOST_UNKNOWNS} moments, which {problem.mrp.n_states} states with batch_size {batch_size} exceed.",
            'Use the approximation, method="approximate", or simulate.',
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
