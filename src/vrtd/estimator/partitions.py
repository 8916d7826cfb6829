"""Fits of the partitions of a log, which are added in pairs in the order of the log.

Each partition is fitted on its own. The transitions between two partitions are learned when their fits are joined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from vrtd.errors import DataError
from vrtd.estimator.episodes import Head, find_head, join_episodes, thin_episodes
from vrtd.estimator.fit import begin, receive
from vrtd.estimator.least_squares import flush, join, keeps_matrices, most_blocks, thin
from vrtd.estimator.linear_runs import close_run, join_runs
from vrtd.estimator.linear_state import LinearFit
from vrtd.estimator.state import FitState, Setup
from vrtd.logs import Chunk
from vrtd.logs.pairing import Reason
from vrtd.logs.partition import Counts, Pairing, PartitionEdges

Term = TypeVar("Term")


class PartFit(NamedTuple):
    """Fit of consecutive rows of a log."""

    state: FitState  # of the transitions between the edges
    edges: PartitionEdges = PartitionEdges()
    counts: Counts = Counts()
    head: Head | None = None  # first of these transitions, unless they start an episode


def is_divisible(state: FitState) -> bool:
    """Return whether a fit with these bound features consists of sums that can be added."""
    is_alone = state.learner is None and state.linear is None and state.sparse is None
    return is_alone and state.sums is not None and keeps_matrices(len(state.sums.squares))


def has_runs(state: FitState) -> bool:
    """Return whether the fit can be the mean of runs on partitions."""
    return state.linear is not None and state.sums is None


def settings_of(state: FitState) -> FitState:
    """Return the state with bound features and chosen settings, but without rows."""
    return FitState(
        n_pilot=state.n_pilot, is_weighted=state.is_weighted, space=state.space, features=state.features,
        linear=state.linear, remarks=state.remarks,
    )  # fmt: skip


def first_state(setup: Setup, bound: FitState) -> FitState:
    """Return the state before the first row of a log, with the features and settings of another state of the fit."""
    assert bound.features is not None
    return begin(setup, settings_of(bound), bound.features)._replace(is_checked=bound.linear is not None)


def later_state(setup: Setup, bound: FitState) -> FitState:
    """Return the state before the first row of a later part, in which an episode may go on."""
    state = first_state(setup, bound)
    assert state.episodes is not None
    # Only the first part is checked for rows that terminate.
    return state._replace(episodes=state.episodes._replace(is_open=True), terminates=True)


def without_sample(state: FitState) -> FitState:
    """Return the state before its first row without a sample, which another part has."""
    return state._replace(capacity=0, is_checked=True)


def extend(
    setup: Setup, fit: PartFit, chunks: Iterable[Chunk], tell: Callable[[PartFit], None] | None = None
) -> PartFit:
    """Return the fit with further transitions; `tell` is called with the fit after each piece."""
    for chunk in chunks:
        chunk.check()
        if chunk.n_rows:
            fit = fit._replace(head=_follow_head(setup, fit, chunk))
        for state in receive(setup, fit.state, chunk):
            fit = fit._replace(state=state)
            if tell is not None:
                tell(fit)
    return fit


def _follow_head(setup: Setup, fit: PartFit, chunk: Chunk) -> Head | None:
    """Return the head after a chunk, before it is learned."""
    head, n, features = fit.head, fit.state.n_rows, fit.state.features
    if n and (head is None or not head.is_open):
        return head

    def phi_next_of(row: int) -> NDArray[Any]:
        assert features is not None
        return np.asarray(features(chunk.part(row, row + 1).successors)[0])

    found = find_head(chunk, setup.discount, phi_next_of)
    if head is None:
        return found
    return head._replace(is_open=False) if found is None else head.join(n, found)


def close(fit: PartFit, n_partitions: int) -> PartFit:
    """Return the complete fit of one of so many partitions with fewer blocks: all have about as many as one fit."""
    state, most = fit.state, 1
    if not state.n_rows or fit.state.episodes is None:
        return fit._replace(state=state.with_sample_of(state))
    if state.sums is not None:
        most = max(1, (most_blocks(len(state.sums.squares)) - 1) // n_partitions)
        state = state._replace(sums=thin(state.sums, most))
    elif state.linear is not None:
        state = state._replace(linear=close_run(state.linear, state.n_rows, n_partitions))
    state = state._replace(episodes=thin_episodes(fit.state.episodes, state.n_rows, most))
    return fit._replace(state=state.with_sample_of(state))


def add_fits(setup: Setup, pairing: Pairing | None, fit: PartFit, other: PartFit) -> PartFit:
    """Return the fit of the rows of `fit` and of those of `other`, which follow."""
    if fit.edges.is_lead:
        edges = other.edges._replace(lead=(*fit.edges.lead, *other.edges.lead))
        return other._replace(edges=edges, counts=fit.counts.join(other.counts))
    if pairing is not None:
        fit = _learn_between(setup, pairing, fit, other.edges)
    head, n, m = fit.head, fit.state.n_rows, other.state.n_rows
    if not n:
        head = other.head
    elif m and head is not None and head.is_open:
        head = head._replace(is_open=False) if other.head is None else head.join(n, other.head)
    state = _add_states(fit.state, other.state, other.head) if m else fit.state
    return PartFit(state, fit.edges, fit.counts.join(other.counts), head)


def _learn_between(setup: Setup, pairing: Pairing, fit: PartFit, edges: PartitionEdges) -> PartFit:
    """Return the fit with the transitions between its last rows and the rows between these edges."""
    dropped, last = Counter[Reason](), fit.edges.last

    def read() -> Iterator[Chunk]:
        nonlocal last
        last = yield from pairing.bridge(last, edges, dropped)

    fit = extend(setup, fit, read())
    return fit._replace(edges=fit.edges._replace(last=last), counts=fit.counts.join(Counts(dropped=dropped)))


def _add_states(state: FitState, other: FitState, head: Head | None) -> FitState:
    """Return the state after the rows of both; `head` are the first rows of the other one."""
    if state.n_rows and state.is_weighted != other.is_weighted:
        raise DataError("Some parts of the log have weights, and others have none.", "Add weights of 1 to the others.")
    assert state.episodes is not None
    assert other.episodes is not None
    visited = None if state.visited is None or other.visited is None else state.visited | other.visited
    whole = state.with_sample_of(state if state.n_sampled >= other.n_sampled else other)
    return whole._replace(
        n_rows=state.n_rows + other.n_rows,
        n_distinct=state.n_distinct + other.n_distinct,
        terminates=other.terminates and (state.terminates or not state.n_rows),
        sums=None if state.sums is None or other.sums is None else join(state.sums, other.sums),
        linear=_add_runs(state, other),
        visited=visited,
        episodes=join_episodes(state.episodes, state.n_rows, other.episodes, other.n_rows, head),
        is_weighted=other.is_weighted,
        remarks=tuple(dict.fromkeys((*state.remarks, *other.remarks))),
    )


def _add_runs(state: FitState, other: FitState) -> LinearFit | None:
    if state.linear is None or other.linear is None or state.linear.runs is None:  # no rows before those of `other`
        return other.linear
    return join_runs(state.linear, state.n_rows, other.linear, other.n_rows)


def finish(setup: Setup, pairing: Pairing | None, fit: PartFit) -> PartFit:
    """Return the fit of a log that ends with these rows."""
    if pairing is None:
        return fit
    dropped = Counter[Reason]()
    fit = extend(setup, fit, pairing.finish(fit.edges.last, dropped))
    if fit.state.sums is not None:
        fit = fit._replace(state=fit.state._replace(sums=flush(fit.state.sums)))
    return fit._replace(edges=fit.edges._replace(last=None), counts=fit.counts.join(Counts(dropped=dropped)))


class PairwiseSum(Generic[Term]):
    """Sum of numbered terms, in which neighbours are added in pairs as soon as both are known.

    The result does not depend on the order in which the terms arrive.
    """

    def __init__(self, add: Callable[[Term, Term], Term]) -> None:
        self._add = add
        self._sums: dict[tuple[int, int], Term] = {}  # by the first term and the number of terms

    def put(self, i: int, term: Term) -> None:
        """Take term number i."""
        n = 1
        while True:
            neighbour = i ^ n  # the sum of terms i .. i + n - 1 is added to that of as many before or after
            other = self._sums.pop((neighbour, n), None)
            if other is None:
                break
            term = self._add(term, other) if i < neighbour else self._add(other, term)
            i, n = min(i, neighbour), 2 * n
        self._sums[i, n] = term

    @property
    def total(self) -> Term | None:
        """Sum of all terms from the first one on, up to the first that is missing; None without the first one."""
        parts: list[Term] = []
        at = 0
        for i, n in sorted(self._sums):
            if i != at:
                break
            parts.append(self._sums[i, n])
            at += n
        total: Term | None = None
        for part in reversed(parts):
            total = part if total is None else self._add(part, total)
        return total
