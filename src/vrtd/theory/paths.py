"""Moments along a run: E[y y^T] of the output of a method after given numbers of updates or epochs.

A run is cut into stretches in which the moments follow one map.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from vrtd.algorithms import VRTD, ChainSampling, Constant, Epoch, Piecewise, Schedule
from vrtd.arrays import Floats
from vrtd.problems import LinearProblem
from vrtd.theory.enumeration import enumerated_epoch_map
from vrtd.theory.increments import independent_increments
from vrtd.theory.markov import MarkovTD
from vrtd.theory.moments import LAST_ITERATE, Iterates, td_terms
from vrtd.theory.symmetric import orbit, outer, unpack

Counts = NDArray[np.int64]
Steps = Sequence[tuple[float, int, int]]  # (step size, first update, end) of each stretch
# (state, counts from its beginning) -> packed moments after each of them, and the state after the last
_Advance = Callable[[Floats, Counts], tuple[Floats, Floats]]


def split_schedule(schedule: Schedule, n: int) -> Steps:
    """Split n updates into stretches with a constant step size."""
    match schedule:
        case Constant(value):
            return [(float(value), 0, n)]
        case Piecewise(boundaries, values):
            ends = [*(b for b in boundaries if b < n), n]
            return list(zip(values, [0, *ends], ends, strict=False))
        case _:
            return [(schedule(t), t, t + 1) for t in range(n)]


def td_path(
    problem: LinearProblem,
    steps: Steps,
    sampling: ChainSampling,
    counts: Counts,
    theta_0: Floats,
    initial: Floats,
    iterates: Iterates = LAST_ITERATE,
    burn_in: int = 0,
) -> Floats:
    """Return E[y y^T] of the output of TD after each of the counts of updates, (C, d + 1, d + 1).

    The output is the mean of the sum in ``iterates`` after the burn-in. Before that, or without a sum, it is the first
    iterate.
    """
    d, n = problem.n_features, int(counts[-1])
    iterates.check_features(d)
    y = iterates.start(theta_0 - problem.theta_star)
    if sampling == "iid":
        increments, state = independent_increments(problem), outer(y)
    else:
        recursion = MarkovTD(problem, iterates)
        recursion.check_updates(len(steps))
        state = recursion.start(theta_0, initial)
    stretches: list[tuple[_Advance, int, int]] = []
    waiting = iterates._replace(weights=(0.0,) * len(iterates.weights))  # nothing is summed during the burn-in
    for part, begin, end in ((waiting, 0, min(burn_in, n)), (iterates, min(burn_in, n), n)):
        inside = [(a, max(first, begin), min(last, end)) for a, first, last in steps if first < end and begin < last]
        if inside and sampling == "iid":
            terms = td_terms(increments, part)
            stretches += [(partial(_advance_independent, terms, a), first, last) for a, first, last in inside]
        elif inside:
            recursion = MarkovTD(problem, part)
            stretches += [(partial(_advance_on_chain, recursion, a), first, last) for a, first, last in inside]
    Y = unpack(_follow(state, outer(y), stretches, counts), len(y))

    single = np.r_[iterates.rows(d)[0], len(y) - 1]
    returned = Y[:, single[:, None], single]
    if iterates.weights:
        after, mean = counts > burn_in, np.r_[:d, len(y) - 1]
        scale = np.ones((int(after.sum()), d + 1))
        scale[:, :d] /= (counts[after] - burn_in)[:, None]
        returned[after] = Y[after][:, mean[:, None], mean] * scale[:, :, None] * scale[:, None, :]
    return np.asarray(returned)


def batch_sizes_until(epoch: Epoch, n_epochs: int) -> list[int]:
    """Return the batch sizes of the first epochs, of at most ``n_epochs``; later batches are as large as the last."""
    return [size for size, _ in (*epoch.warmup, (epoch.n_absorb, epoch.n_steps))[:n_epochs]]


def enumerated_vrtd_path(
    problem: LinearProblem,
    algorithm: VRTD,
    batch_sizes: Sequence[int],
    counts: Counts,
    theta_0: Floats,
    initial: Floats,
) -> Floats:
    """Return packed E[y y^T] of Algorithm 2 on a tiny chain, (C, ...), by enumeration of all batches."""
    a, output, n_steps = float(algorithm.step_size), algorithm.returned, algorithm.n_steps
    maps = {M: enumerated_epoch_map(problem, a, M, output, n_steps) for M in sorted(set(batch_sizes), reverse=True)}
    start = outer(np.append(theta_0 - problem.theta_star, 1.0))
    state = np.outer(initial, start).ravel()
    path = follow_epochs(state, [maps[M] for M in batch_sizes], maps[batch_sizes[-1]], counts)
    path = path.reshape(len(counts), -1, len(start)).sum(axis=1)
    return np.asarray(path / path[:, -1:])


def follow_epochs(start: Floats, first: Sequence[Floats], later: Floats, counts: Counts) -> Floats:
    """Return packed moments after each of the counts of epochs; each of the ``first`` epochs has its own map."""
    n, n_first = int(counts[-1]), len(first)
    stretches = [(partial(_advance_by_map, T), k, k + 1) for k, T in enumerate(first)]
    if n > n_first:
        stretches.append((partial(_advance_by_map, later), n_first, n))
    return _follow(start, start, stretches, counts)


def _follow(state: Floats, start: Floats, stretches: Iterable[tuple[_Advance, int, int]], counts: Counts) -> Floats:
    """Return packed moments after each of the counts; after 0 they are `start`."""
    path = np.repeat(start[None], len(counts), axis=0)
    for advance, begin, end in stretches:
        inside = slice(*np.searchsorted(counts, [begin, end]))
        reached, state = advance(state, np.append(counts[inside], end) - begin)
        path[inside], path[-1] = reached[:-1], reached[-1]
    return path


def _advance_by_map(T: Floats, x: Floats, counts: Counts) -> tuple[Floats, Floats]:
    path = orbit(T, x, counts)
    return path, path[-1]


def _advance_independent(
    terms: tuple[Floats, Floats, Floats], a: float, x: Floats, counts: Counts
) -> tuple[Floats, Floats]:
    still, first, second = terms
    if counts[-1] == 1:  # the step changes at every update, so forming the map does not pay
        new = still @ x + a * (first @ x) + a * a * (second @ x)
        return np.stack([*[x] * (len(counts) - 1), new]), new
    return _advance_by_map(still + a * first + a * a * second, x, counts)


def _advance_on_chain(recursion: MarkovTD, a: float, Y: Floats, counts: Counts) -> tuple[Floats, Floats]:
    return recursion.run(Y, a, counts)
