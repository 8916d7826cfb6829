"""Episodes in a stream of rows: their first states and their returns.

Totals are kept over blocks of rows, from which their noise and its correlation with that of theta are estimated. Rows
are added one by one, so that the totals do not depend on how the rows are split.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import Floats
from vrtd.estimator.block_totals import BlockTotals
from vrtd.estimator.least_squares import most_blocks
from vrtd.estimator.sparse_reservoir import SparseReservoir, add_sparse, empty_sparse_reservoir
from vrtd.kernels.jit import compiled
from vrtd.logs import Chunk
from vrtd.logs.log import is_any
from vrtd.problems import Transitions
from vrtd.sparse import mean_of, to_dense

LEAST_STARTS = 2  # episodes that a policy value needs
_NOTHING = 1e-18  # discounted rewards with a smaller factor do not change a return


class Episodes(NamedTuple):
    """Episodes of the rows so far; `add_rows` returns the next ones."""

    #: (d + 1) features of the first state, and 1, at the first row of an episode; unused with `first_rows`
    starts: BlockTotals
    #: (d + 5) at the last row of an episode that is known from its start on: x, y, 1, and if the episode terminated
    #: y, y^2 and 1, otherwise zeros. y is the discounted return. x has the features of the first state, minus the
    #: discounted features of the last state if the episode was truncated. So the mean of y - x.theta is 0 if theta
    #: gives the values of the policy.
    returns: BlockTotals | None
    states: BlockTotals | None = None  # (d + 1) features of every state, if they differ from those of the row
    start: Floats | None = None  # (d,) features of the first state of the open episode
    total: float = 0.0  # discounted return of the open episode so far
    factor: float = 1.0  # discount of its next reward
    is_open: bool = False  # whether the last row does not end its episode
    is_whole: bool = False  # whether the open episode is known from its start on
    #: With many sparse features: first rows of episodes, drawn at random, in place of totals of d numbers.
    first_rows: SparseReservoir | None = None

    @property
    def n_starts(self) -> int:
        """Number of episodes that began."""
        return int(self.starts.total[-1]) if self.first_rows is None else self.first_rows.n_seen

    @property
    def mean_start(self) -> Floats:
        """Mean features (d,) of the first states; with many sparse features, of those that are kept."""
        if self.first_rows is None or self.first_rows.rows is None:
            return self.starts.mean
        return mean_of(self.first_rows.rows.phi)


def no_episodes(n_features: int, *, has_returns: bool, has_states: bool) -> Episodes:
    """Return the state before the first row."""
    most = most_blocks(n_features)

    def none(n_more: int) -> BlockTotals:
        return BlockTotals(np.zeros(n_features + n_more), most)

    return Episodes(none(1), none(5) if has_returns else None, none(1) if has_states else None)


_MOST_FIRST = 2000  # rows


def sample_episodes(seed: int) -> Episodes:
    """Return the state before the first sparse row."""
    return Episodes(BlockTotals(np.zeros(1), 2), None, first_rows=empty_sparse_reservoir(_MOST_FIRST, seed))


def _add_first_rows(episodes: Episodes, rows: Transitions, chunk: Chunk, ends: NDArray[np.bool_]) -> Episodes:
    starts = chunk.starts if chunk.starts is not None else np.append(not episodes.is_open, ends[:-1])
    assert episodes.first_rows is not None
    first_rows = add_sparse(episodes.first_rows, rows, np.flatnonzero(starts))
    return episodes._replace(first_rows=first_rows, is_open=not ends[-1])


def add_rows(
    episodes: Episodes,
    n_before: int,
    rows: Transitions,
    chunk: Chunk,
    discount: float,
    phi_of: Callable[[NDArray[np.int64]], NDArray[Any]],
) -> Episodes:
    """Return the episodes with these rows, which follow `n_before` others.

    `phi_of` returns the features of the states in some of the rows.
    """
    n, ends = len(rows.reward), rows.ends
    if discount == 0.0:  # successors do not count, so that every row is an episode
        ends = np.ones(n, np.bool_)
        chunk = chunk._replace(terminated=ends, starts=ends)
    if episodes.first_rows is not None:
        return _add_first_rows(episodes, rows, chunk, ends)
    has_return = episodes.returns is not None and episodes.is_whole and episodes.factor > 0.0
    if episodes.states is None and episodes.is_open and not has_return and chunk.starts is None and not is_any(ends):
        return episodes  # nothing to add, the most frequent case
    if episodes.states is not None:
        at = np.arange(n)
        episodes = episodes._replace(states=episodes.states.add(n_before + at, _with_one(phi_of(at))))
    starts = chunk.starts
    if starts is None:
        starts = np.empty(n, np.bool_)
        starts[0], starts[1:] = not episodes.is_open, ends[:-1]
    at = np.flatnonzero(starts)
    phi = phi_of(at) if at.size else np.empty((0, len(episodes.starts.total) - 1))
    if at.size:
        episodes = episodes._replace(starts=episodes.starts.add(n_before + at, _with_one(phi)))
    if episodes.returns is None:
        return episodes._replace(is_open=not ends[-1])
    most = int(np.count_nonzero(ends))
    last, which, y, ahead = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most), np.empty(most)
    columns = _read_only(rows.reward, ends, chunk.terminated, starts)
    carried = episodes.total, episodes.factor, episodes.is_open, episodes.is_whole
    m, n_starts, total, factor, is_whole = _follow(*columns, discount, _NOTHING, *carried, last, which, y, ahead)
    begun = np.concatenate([np.zeros((1, phi.shape[1])) if episodes.start is None else episodes.start[None], phi])
    if m:
        last, which, y, ahead = last[:m], which[:m], y[:m], ahead[:m]
        terminated = chunk.terminated[last].astype(np.float64)
        vectors = np.empty((m, phi.shape[1] + 5))
        vectors[:, :-5] = begun[which] - ahead[:, None] * to_dense(rows.phi_next[last])
        vectors[:, -5:] = np.stack([y, np.ones(m), y * terminated, y * y * terminated, terminated], axis=1)
        episodes = episodes._replace(returns=episodes.returns.add(n_before + last, vectors))
    start = np.asarray(begun[n_starts], dtype=np.float64)
    return episodes._replace(start=start, total=total, factor=factor, is_open=not ends[-1], is_whole=is_whole)


class Head(NamedTuple):
    """First rows of a part of a log that continue an episode, up to its end or that of the part."""

    total: float = 0.0  # discounted return of these rows
    factor: float = 1.0  # discount of the reward that follows them
    is_open: bool = True  # whether the episode goes on after the part
    end: int | None = None  # its last row, if the return is known
    ahead: Floats | None = None  # (d,) discounted features of the last successor; zeros after a termination
    is_terminated: bool = False

    def join(self, n_rows: int, other: Head) -> Head:
        """Return the head of these rows, which are open, and of others that follow after `n_rows` rows."""
        factor = self.factor * other.factor
        return other._replace(
            total=self.total + self.factor * other.total,
            factor=factor if factor >= _NOTHING else 0.0,
            end=None if other.end is None else n_rows + other.end,
            ahead=None if other.ahead is None else self.factor * other.ahead,
        )


def find_head(chunk: Chunk, discount: float, phi_next_of: Callable[[int], NDArray[Any]]) -> Head | None:
    """Return the first rows of a chunk that continue an episode, or None if the first row starts one.

    `phi_next_of` returns the features of the successor of a row.
    """
    starts = np.zeros(chunk.n_rows, np.bool_) if chunk.starts is None else chunk.starts
    if discount == 0.0 or starts[0]:
        return None
    ends, later = np.flatnonzero(chunk.ends), np.flatnonzero(starts)
    end = int(ends[0]) if ends.size else chunk.n_rows
    stop = min(end + 1, int(later[0]) if later.size else chunk.n_rows)  # a start without an end follows a gap
    total, factor = 0.0, 1.0
    for reward in chunk.reward[:stop].tolist():
        total += factor * reward
        factor *= discount
        if factor < _NOTHING:
            factor = 0.0
            break
    if stop != end + 1:
        return Head(total, factor, is_open=stop == chunk.n_rows)
    is_terminated = bool(chunk.terminated[end])
    ahead = np.asarray(factor * phi_next_of(end), dtype=np.float64)
    return Head(total, factor, False, end, 0.0 * ahead if is_terminated else ahead, is_terminated)


def thin_episodes(episodes: Episodes, n_rows: int, n_blocks: int) -> Episodes:
    """Return the episodes in the first `n_rows` rows with at most `n_blocks` blocks."""
    starts, returns, states = (
        None if totals is None else totals.thin(n_rows, n_blocks)
        for totals in (episodes.starts, episodes.returns, episodes.states)
    )
    assert starts is not None
    return episodes._replace(starts=starts, returns=returns, states=states)


def join_episodes(episodes: Episodes, n_rows: int, others: Episodes, n_others: int, head: Head | None) -> Episodes:
    """Return the episodes in the first `n_rows` rows of the log, and in the `n_others` rows that follow.

    `head` are the first of the other rows, unless these start an episode.
    """
    returns = None
    if episodes.returns is not None and others.returns is not None:
        returns = episodes.returns.join(n_rows, others.returns, n_others)
    states = None
    if episodes.states is not None and others.states is not None:
        states = episodes.states.join(n_rows, others.states, n_others)
    joined = others._replace(
        starts=episodes.starts.join(n_rows, others.starts, n_others), returns=returns, states=states
    )
    start, is_known = episodes.start, episodes.is_open and episodes.is_whole
    if head is None or start is None or not is_known:
        return joined
    whole = Head(episodes.total, episodes.factor).join(n_rows, head)
    if whole.is_open:
        return joined._replace(start=start, total=whole.total, factor=whole.factor, is_whole=True)
    if returns is not None and whole.end is not None and whole.ahead is not None:
        y, own = whole.total, np.array([1.0, 0.0, 0.0, 0.0])
        if whole.is_terminated:
            own[1:] = y, y**2, 1.0
        vector = np.concatenate([start - whole.ahead, [y], own])
        joined = joined._replace(returns=returns.insert(whole.end, vector))
    return joined


def _read_only(*columns: NDArray[Any]) -> list[NDArray[Any]]:
    """Return read-only views, so that Numba compiles the loop for only one type."""
    views = [column[:] for column in columns]
    for view in views:
        view.setflags(write=False)
    return views


@compiled
def _follow(
    reward, ends, terminated, starts, discount, nothing, total, factor, is_open, is_whole, last, which, y, ahead
):
    """Follow episodes, and write those that end and are known from their start on.

    Written are the last row, the number of the start (0 if it is before these rows), the return, and the discount of
    the last successor. Return the number of these episodes, the number of starts, and the state of the last episode.
    """
    m = n_starts = 0
    for i in range(reward.size):
        if starts[i] or not is_open:
            total, factor, is_whole = 0.0, 1.0, starts[i]
            n_starts += starts[i]
        total += factor * reward[i]
        factor *= discount
        if factor < nothing:
            factor = 0.0
        is_open = not ends[i]
        if ends[i] and is_whole:
            last[m], which[m], y[m] = i, n_starts, total
            ahead[m] = 0.0 if terminated[i] else factor
            m += 1
    return m, n_starts, total, factor, is_whole


def _with_one(phi: NDArray[Any]) -> Floats:
    return np.concatenate([phi, np.ones((len(phi), 1))], axis=1, dtype=np.float64)
