"""Learning from sparse rows with O(nnz) work per row: VRTD with growing batches, as in `linear_fit`.

A vector of d numbers is the unit of memory. So a block of rows has one vector in single precision, its sum of
pseudo-gradients. Its sum of iterates follows from the anchors, which change only between batches: a block counts the
rows learned at each anchor, and earlier anchors are known from the moves between them, in single precision. The vectors
of the run are interleaved (`vrtd.kernels.sparse`).

The inverse of A comes from a reservoir whose size in bytes is bounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.algorithms import VRTD
from vrtd.arrays import Floats, aligned_copy
from vrtd.engine.stream import row_of
from vrtd.estimator.linear_settings import choose_algorithm, find_scale, measure_sizes
from vrtd.estimator.linear_state import FIRST_BLOCK
from vrtd.estimator.rows import NotFiniteError, loop_columns
from vrtd.estimator.sparse_inverse import FEW_EPOCHS, SparseInverse, td_errors
from vrtd.estimator.sparse_reservoir import MOST_CANDIDATES, SparseReservoir, add_sparse, empty_sparse_reservoir
from vrtd.kernels.jit import specialise
from vrtd.kernels.sparse import add_row, dot, fetch, set_bit, sparse_td_error
from vrtd.problems import Transitions

#: Interleaved: the anchor, the sum of pseudo-gradients over the open block, the sum of features, and bits that tell in
#: which blocks a feature was not 0.
_VECTORS = 4
_MOST_BLOCKS = 24  # then blocks are merged in pairs
_BLOCKS_PER_FEATURE = 256  # the first block has at least d divided by this many rows: closing a block costs O(d)
_FASTER = 2.0  # step size relative to that of dense rows: an epoch is long, and goes through the rows in turn
_MOST_LARGE = 0.999  # step size times |phi|^2, as in `linear_fit`
# Size of the reservoir in bytes, and rows in it: at least, at most, and for each feature.
_KEPT_BYTES, _LEAST_KEPT, _MOST_KEPT, _KEPT_PER_FEATURE = 1 << 26, 2000, 200_000, 100
_WEIGHED_ROWS = 10_000  # for the weights of anchors
_LEAST_TO_DROP = 8  # blocks


class SparseBlock(NamedTuple):
    """Sums over a block of rows."""

    gradient: NDArray[np.float32]  # (d,) sum of pseudo-gradients
    counts: Mapping[int, int]  # number of an anchor -> rows at that anchor
    value: float  # sum of phi.anchor


class SparseFit(NamedTuple):
    """State of a run; `learn_sparsely` returns the next one."""

    chosen: VRTD  # with the step size for the first rows
    lowers_step: bool
    scale: Floats | None  # (d,) features are divided by these; None if they are not scaled
    state: Floats  # (4 d,) the interleaved vectors
    seed: int
    reservoir: SparseReservoir
    batch_end: int  # the row before which the open batch ends
    block: int  # rows per block
    blocks: tuple[SparseBlock, ...] = ()
    moves: Mapping[int, NDArray[np.float32]] = {}  # number of an anchor -> the next anchor minus this one
    anchor: int = 0  # number of the current anchor
    counts: Mapping[int, int] = {}  # as in SparseBlock, for the open block
    value: float = 0.0
    largest: float = 0.0  # largest |phi|^2 of a row, times its weight
    n_rows: int = 0
    batch: int = 0  # the first row of the open batch

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return len(self.state) // _VECTORS

    @property
    def theta_anchor(self) -> Floats:
        """Current anchor, as a view."""
        return self.state[::_VECTORS]

    @property
    def total_phi(self) -> Floats:
        """Sum of the features of all rows, as a view."""
        return self.state[2::_VECTORS]

    @property
    def n_seen(self) -> NDArray[np.uint8]:
        """Number of complete blocks in which each feature was not 0."""
        return np.asarray(np.bitwise_count(self._seen & ((1 << len(self.blocks)) - 1)))

    @property
    def is_unseen(self) -> NDArray[np.bool_]:
        """Whether each feature was 0 in every row with a weight."""
        return np.asarray(self.state[3::_VECTORS] == 0.0)

    @property
    def _seen(self) -> NDArray[np.uint32]:
        return self.state[3::_VECTORS].astype(np.uint32)

    @property
    def algorithm(self) -> VRTD:
        """VRTD with a step size that is small enough for all rows."""
        step = float(self.chosen.step_size)
        if not self.lowers_step or step * self.largest <= 1.0:
            return self.chosen
        return replace(self.chosen, step_size=_MOST_LARGE / self.largest)

    @property
    def rows_left(self) -> int:
        """Number of rows to the end of the open batch, or of the next one if it is complete."""
        return self.batch_end - self.n_rows or self.next_size

    @property
    def next_size(self) -> int:
        """Number of rows in the batch after the open one."""
        return int((self.batch_end - self.batch) * float(self.algorithm.growth or 1.0))

    @property
    def n_dropped(self) -> int:
        """Number of first blocks that estimates leave out, because their anchors are no longer known."""
        return int(len(self.blocks) >= _LEAST_TO_DROP)

    def weigh_anchors(self, rows: Transitions) -> dict[int, float]:
        """Return the weight of a row at each anchor: the reciprocal mean square of the TD errors at that anchor.

        These are those of some rows, the same for all anchors. At an early anchor, TD errors are larger, and so is the
        noise of pseudo-gradients. Weights are relative to that of the current anchor.
        """
        rows, theta = rows.part(0, _WEIGHED_ROWS), self.theta_anchor.copy()
        squares = {self.anchor: np.square(td_errors(rows, theta)).mean()}
        for number in sorted(self.moves, reverse=True):
            theta -= self.moves[number]
            squares[number] = np.square(td_errors(rows, theta)).mean()
        now = squares[self.anchor]
        return {number: float(now / each) if each > 0.0 else 1.0 for number, each in squares.items()}

    def mean_over(self, weights: Mapping[int, float]) -> tuple[Floats, Mapping[int, float], float]:
        """Return the weighted mean pseudo-gradient, the weight of all rows at each anchor, and that of all rows."""
        gradient, shares = np.zeros(self.n_features), dict.fromkeys(weights, 0.0)
        blocks: list[tuple[Any, Mapping[int, int]]] = [(self.state[1::_VECTORS], self.counts)]
        blocks += [(block.gradient, block.counts) for block in self.blocks[self.n_dropped :]]
        for each, counts in blocks:
            n, weight = sum(counts.values()), weigh(counts, weights)
            if n:
                gradient += np.multiply(each, weight / n, dtype=np.float64)
            for number, count in counts.items():
                shares[number] += count * weight / n
        total = sum(shares.values())
        gradient /= total
        return gradient, shares, total

    def add_mean_anchor(self, counts: Mapping[int, float], out: Floats) -> Floats:
        """Add the mean of the anchors, weighted by numbers of rows, to a vector in place, and return it."""
        n, n_before = sum(counts.values()), 0.0
        out += self.theta_anchor
        for number in sorted(self.moves):
            n_before += counts.get(number, 0)
            if n_before:
                out -= np.multiply(self.moves[number], n_before / n, dtype=np.float64)
        return out


def weigh(counts: Mapping[int, int], weights: Mapping[int, float]) -> float:
    """Return the weight of a block: the sum of those of its rows."""
    return sum(weights[number] * count for number, count in counts.items())


def first_sparse_fit(
    algorithm: VRTD | str, step_size: float | None, pilot: Transitions, theta_0: Floats, seed: int
) -> SparseFit:
    """Return a run with a starting point and settings from the pilot rows, see `linear_fit.first_linear_fit`."""
    is_auto, pilot = isinstance(algorithm, str) and step_size is None, pilot.astype(np.float64)
    scale, d = find_scale(pilot) if is_auto else None, pilot.n_features
    rows = pilot if scale is None else pilot.divide(scale)
    start = theta_0 if scale is None else theta_0 * scale
    if isinstance(algorithm, VRTD):
        chosen = algorithm
    else:
        found = choose_algorithm(algorithm, step_size, rows)
        assert isinstance(found, VRTD)
        chosen = replace(found, n_steps=None, step_size=step_size or _FASTER * found.step_size)
    gradient = rows.left.T @ (rows.reward + rows.psi @ start) / len(rows)
    in_random_order = add_sparse(empty_sparse_reservoir(len(rows), seed), rows, dtype=np.float32).rows
    assert in_random_order is not None
    theta = start + SparseInverse(chosen, in_random_order, FEW_EPOCHS)(gradient)
    state = np.zeros(_VECTORS * d)
    state[::_VECTORS] = theta if np.isfinite(theta).all() else start
    n_kept = max(_LEAST_KEPT, min(_MOST_KEPT, _KEPT_PER_FEATURE * d))
    reservoir = empty_sparse_reservoir(n_kept, seed, int(_KEPT_BYTES / MOST_CANDIDATES))
    block = FIRST_BLOCK
    while block * _BLOCKS_PER_FEATURE < d:
        block *= 2
    return SparseFit(chosen, is_auto, scale, aligned_copy(state), seed, reservoir, int(chosen.batch_size), block)


@np.errstate(over="ignore", invalid="ignore")  # numbers that are not finite raise NotFiniteError
def learn_sparsely(fit: SparseFit, rows: Transitions) -> SparseFit:
    """Return the run after these rows. To save memory, they should not go beyond `rows_left`.

    All numbers in the rows must be finite. Raises NotFiniteError if a number that is computed from them is not.
    """
    before, at, n = fit.state, 0, len(rows)
    while at < n:
        if fit.n_rows == fit.batch_end:
            fit = _begin_batch(fit, is_shared=fit.state is before)
        last = min(n, at + fit.rows_left)
        fit = _learn_within_batch(fit, rows.part(at, last), is_shared=fit.state is before)
        at = last
    return fit


def _learn_within_batch(fit: SparseFit, rows: Transitions, is_shared: bool) -> SparseFit:
    """Return the run after these rows; another run may share its vectors."""
    if fit.scale is not None:
        rows = rows.divide(fit.scale)
    largest = max(fit.largest, float(measure_sizes(rows).max(initial=0.0)))
    fit = fit._replace(reservoir=add_sparse(fit.reservoir, rows, dtype=np.float32), largest=largest)
    if is_shared:
        fit = fit._replace(state=aligned_copy(fit.state))
    columns, loop = loop_columns(rows), _absorb_loop(rows.is_weighted)
    at, n = 0, len(rows)
    while at < n:
        last = min(n, at + fit.block - fit.n_rows % fit.block)
        value = loop(*columns, at, last, fit.value, 1 << len(fit.blocks), fit.state)
        counts = {**fit.counts, fit.anchor: fit.counts.get(fit.anchor, 0) + last - at}
        fit = fit._replace(counts=counts, value=value, n_rows=fit.n_rows + last - at)
        at = last
        if fit.n_rows % fit.block == 0:
            fit = _close_block(fit)
    if not (np.isfinite(fit.state).all() and np.isfinite([fit.value, fit.largest]).all()):
        raise NotFiniteError
    return fit


IS_WEIGHTED: Any = True


def _absorb(phi, reward, phi_next, discount, weight, ends, first, last, total, bit, state):  # type: ignore[no-untyped-def]
    """Add the pseudo-gradients and the features of rows first, ..., last - 1, and return a total plus their values."""
    for i in range(first, last):
        fetch(state, _VECTORS, phi, phi_next, i + 1)
        x = row_of(phi, phi_next, reward, discount, weight, ends, IS_WEIGHTED, i)
        total += dot(state, _VECTORS, 0, x.phi, x.row)
        add_row(state, _VECTORS, 1, x.weight * sparse_td_error(state, _VECTORS, 0, x), x)
        add_row(state, _VECTORS, 2, 1.0, x)
        if x.weight != 0.0:
            set_bit(state, _VECTORS, 3, bit, x)
    return total


def _absorb_loop(is_weighted: bool) -> Any:
    return specialise(_absorb, f"absorb_block{'_weighted' if is_weighted else ''}", {"IS_WEIGHTED": is_weighted})


def _close_block(fit: SparseFit) -> SparseFit:
    gradient = fit.state[1::_VECTORS]
    block = SparseBlock(gradient.astype(np.float32), fit.counts, fit.value)
    gradient[...] = 0.0
    blocks: tuple[SparseBlock, ...] = (*fit.blocks, block)
    size = fit.block
    if len(blocks) == _MOST_BLOCKS:
        blocks = tuple(_merge(a, b) for a, b in zip(blocks[::2], blocks[1::2], strict=True))
        size *= 2
        fit.state[3::_VECTORS] = _merge_bits(fit._seen)
    if not all(np.isfinite(each.gradient).all() for each in (block, *blocks[-1:])):
        raise NotFiniteError
    return _drop_moves(fit._replace(blocks=blocks, block=size, counts={}, value=0.0))


def _merge(one: SparseBlock, other: SparseBlock) -> SparseBlock:
    numbers = {**one.counts, **other.counts}
    counts = {number: one.counts.get(number, 0) + other.counts.get(number, 0) for number in numbers}
    return SparseBlock(one.gradient + other.gradient, counts, one.value + other.value)


def _merge_bits(seen: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return the bits of merged blocks: bit k is set if bit 2 k or bit 2 k + 1 was."""
    merged = np.zeros_like(seen)
    for k in range(_MOST_BLOCKS // 2):
        merged |= ((seen >> 2 * k & 3) != 0).astype(np.uint32) << k
    return merged


def _drop_moves(fit: SparseFit) -> SparseFit:
    """Drop the moves that only the first block needs, if estimates leave it out."""
    if not fit.n_dropped:
        return fit
    first = fit.blocks[0]
    earliest = min({number for block in fit.blocks[1:] for number in block.counts} | {*fit.counts, fit.anchor})
    counts: dict[int, int] = {}
    for number, count in first.counts.items():
        counts[max(number, earliest)] = counts.get(max(number, earliest), 0) + count
    moves = {number: move for number, move in fit.moves.items() if number >= earliest}
    return fit._replace(blocks=(first._replace(counts=counts), *fit.blocks[1:]), moves=moves)


def _begin_batch(fit: SparseFit, is_shared: bool) -> SparseFit:
    """Continue from the current estimate."""
    fit = fit._replace(batch=fit.n_rows, batch_end=fit.n_rows + fit.next_size, reservoir=fit.reservoir.compact())
    rows = fit.reservoir.rows
    assert rows is not None
    gradient, counts, _ = fit.mean_over(fit.weigh_anchors(rows))
    theta = fit.add_mean_anchor(counts, SparseInverse(fit.algorithm, rows, FEW_EPOCHS)(gradient))
    del gradient
    theta -= fit.theta_anchor
    move = theta.astype(np.float32)
    del theta
    if not np.isfinite(move).all():
        return fit
    if is_shared:
        fit = fit._replace(state=aligned_copy(fit.state))
    fit.state[::_VECTORS] += move
    return _drop_moves(fit._replace(moves={**fit.moves, fit.anchor: move}, anchor=fit.anchor + 1))
