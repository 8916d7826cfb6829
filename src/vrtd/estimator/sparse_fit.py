"""Learning from sparse rows with O(nnz) work per row: VRTD with growing batches, as in `linear_fit`.

A vector of d numbers is the unit of memory. So a block of rows has one vector in single precision, its sum of
pseudo-gradients. Its sum of iterates follows from the anchors, which change only between batches: a block counts the
rows learned at each of the last anchors. The vectors of the run are interleaved (`vrtd.kernels.sparse`).

Inner loops use the rows of a reservoir whose size in bytes is bounded, because a rare feature is learned only if it
occurs in these rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.algorithms import VRTD, Algorithm
from vrtd.arrays import Floats, aligned_copy, aligned_empty
from vrtd.engine.stream import compile_epoch, row_of
from vrtd.errors import DivergenceError
from vrtd.estimator.linear_settings import choose_algorithm, find_scale, measure_sizes
from vrtd.estimator.linear_state import FIRST_BLOCK
from vrtd.estimator.rows import NotFiniteError, loop_columns
from vrtd.estimator.sample_inverse import SampleInverse
from vrtd.estimator.sparse_reservoir import SparseReservoir, add_sparse, empty_sparse_reservoir
from vrtd.kernels.jit import specialise
from vrtd.kernels.random import ALGORITHM, make_streams
from vrtd.kernels.sparse import add_row, dot, sparse_td_error
from vrtd.problems import Transitions
from vrtd.sparse import row_bytes

_VECTORS = 3  # interleaved: the anchor, the sum of pseudo-gradients over the open block, the sum of features
_MOST_BLOCKS = 32  # then blocks are merged in pairs
_BLOCKS_PER_FEATURE = 256  # the first block has at least d divided by this many rows: closing a block costs O(d)
_MOST_LARGE = 1.0  # as in `linear_fit`
_KEPT_BYTES, _LEAST_KEPT, _MOST_KEPT = 1 << 26, 2000, 200_000  # of the reservoir, in bytes and in rows
_INVERTED = 600  # rows of the reservoir that the `SampleInverse` uses
_LEAST_STEPS = 1500  # inner steps of an epoch, of which there are as many as kept rows unless the algorithm says so
_SOLVED = 1e-3  # share of the pseudo-gradient that may be left
FEW_ROUNDS, MANY_ROUNDS = 4, 30  # epochs for a new anchor and for the noise of a block, and for an estimate


class SparseBlock(NamedTuple):
    """Sums over a block of rows."""

    gradient: NDArray[np.float32]  # (d,) sum of pseudo-gradients
    counts: Mapping[int, int]  # number of an anchor -> rows at that anchor
    value: float  # sum of phi.anchor


class SparseFit(NamedTuple):
    """State of a run; `learn_sparsely` returns the next one."""

    algorithm: Algorithm  # VRTD with the current step
    lowers_step: bool
    scale: Floats | None  # (d,) features are divided by these; None if they are not scaled
    state: Floats  # (3 d,) the interleaved vectors
    seed: int
    reservoir: SparseReservoir
    batch_end: int  # the row before which the open batch ends
    block: int  # rows per block
    blocks: tuple[SparseBlock, ...] = ()
    anchors: Mapping[int, Floats] = {}  # those of the blocks, but the current one
    anchor: int = 0  # number of the current anchor
    counts: Mapping[int, int] = {}  # as in SparseBlock, for the open block
    value: float = 0.0
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
    def largest_step(self) -> float:
        """Step size of the algorithm."""
        return float(self.algorithm.largest_step_size or 0.0)

    def mean_over(self, n_dropped: int) -> tuple[Floats, Floats, int]:
        """Return the mean iterate and the mean pseudo-gradient after the first blocks, and the number of rows."""
        blocks, n = self.blocks[n_dropped:], self.n_rows - n_dropped * self.block
        gradient = self.state[1::_VECTORS].copy()
        counts: dict[int, int] = dict(self.counts)
        for block in blocks:
            gradient += block.gradient
            for number, count in block.counts.items():
                counts[number] = counts.get(number, 0) + count
        gradient /= n
        return self.mean_anchor(counts), gradient, n

    def mean_anchor(self, counts: Mapping[int, int]) -> Floats:
        """Return the mean of the anchors, weighted by numbers of rows."""
        n, mean = sum(counts.values()), np.zeros(self.n_features)
        for number, count in counts.items():
            mean += (count / n) * (self.theta_anchor if number == self.anchor else self.anchors[number])
        return mean


def first_sparse_fit(
    algorithm: VRTD | str, step_size: float | None, pilot: Transitions, theta_0: Floats, seed: int
) -> SparseFit:
    """Return a run with a starting point and settings from the pilot rows, see `linear_fit.first_linear_fit`."""
    is_auto, pilot = isinstance(algorithm, str) and step_size is None, pilot.as_float64()
    scale, d = find_scale(pilot) if is_auto else None, pilot.n_features
    rows = pilot if scale is None else pilot.divide(scale)
    start = theta_0 if scale is None else theta_0 * scale
    if isinstance(algorithm, VRTD):
        chosen = algorithm
    else:
        found = choose_algorithm(algorithm, step_size, rows)
        assert isinstance(found, VRTD)
        chosen = replace(found, n_steps=None)
    some = rows.part(0, _INVERTED)
    gradient = some.left.T @ (some.reward + some.psi @ start) / len(some)
    theta = start + SampleInverse(some, caution=1.0)(gradient)
    state = np.zeros(_VECTORS * d)
    state[::_VECTORS] = theta if np.isfinite(theta).all() else start
    size = row_bytes(rows.phi) + row_bytes(rows.phi_next) + 40
    reservoir = empty_sparse_reservoir(min(_MOST_KEPT, max(_LEAST_KEPT, int(_KEPT_BYTES / size))), seed)
    block = FIRST_BLOCK
    while block * _BLOCKS_PER_FEATURE < d:
        block *= 2
    return SparseFit(chosen, is_auto, scale, aligned_copy(state), seed, reservoir, int(chosen.batch_size), block)


@np.errstate(over="ignore", invalid="ignore")  # numbers that are not finite raise NotFiniteError
def learn_sparsely(fit: SparseFit, rows: Transitions) -> SparseFit:
    """Return the run after these rows.

    Raises NotFiniteError if a number in the rows or a parameter is not finite.
    """
    if fit.scale is not None:
        rows = rows.divide(fit.scale)
    if fit.lowers_step:
        largest = float(measure_sizes(rows).max(initial=0.0)) * fit.largest_step
        if largest > _MOST_LARGE:
            step = 0.999 * _MOST_LARGE / largest * fit.largest_step
            algorithm: Any = fit.algorithm
            fit = fit._replace(algorithm=replace(algorithm, step_size=step))
    fit = fit._replace(state=aligned_copy(fit.state))  # changed in place from here on
    columns, loop = loop_columns(rows), _absorb_loop(rows.is_weighted)
    at, n_sampled, n = 0, 0, len(rows)
    while at < n:
        last = min(n, at + fit.block - fit.n_rows % fit.block, at + fit.batch_end - fit.n_rows)
        value = loop(*columns, at, last, fit.state)
        if not np.isfinite(value):
            raise NotFiniteError
        counts = {**fit.counts, fit.anchor: fit.counts.get(fit.anchor, 0) + last - at}
        fit = fit._replace(counts=counts, value=fit.value + value, n_rows=fit.n_rows + last - at)
        at = last
        if fit.n_rows % fit.block == 0:
            fit = _close_block(fit)
        if at == n or fit.n_rows == fit.batch_end:
            fit, n_sampled = fit._replace(reservoir=add_sparse(fit.reservoir, rows.part(n_sampled, at))), at
        if fit.n_rows == fit.batch_end:
            fit = _close_batch(fit)
    if not np.isfinite(fit.state).all():
        raise NotFiniteError
    return fit


IS_WEIGHTED: Any = True


def _absorb(phi, reward, phi_next, discount, weight, ends, first, last, state):  # type: ignore[no-untyped-def]
    """Add the pseudo-gradients and the features of rows first, ..., last - 1, and return the sum of their values."""
    total = 0.0
    for i in range(first, last):
        x = row_of(phi, phi_next, reward, discount, weight, ends, IS_WEIGHTED, i)
        total += dot(state, _VECTORS, 0, x.phi, x.row)
        add_row(state, _VECTORS, 1, x.weight * sparse_td_error(state, _VECTORS, 0, x), x)
        add_row(state, _VECTORS, 2, 1.0, x)
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
    return _drop_anchors(fit._replace(blocks=blocks, block=size, counts={}, value=0.0))


def _merge(one: SparseBlock, other: SparseBlock) -> SparseBlock:
    numbers = {**one.counts, **other.counts}
    counts = {number: one.counts.get(number, 0) + other.counts.get(number, 0) for number in numbers}
    return SparseBlock(one.gradient + other.gradient, counts, one.value + other.value)


def _drop_anchors(fit: SparseFit) -> SparseFit:
    """Drop the anchors that only the first block needs, which is left out of every estimate once there are eight."""
    if len(fit.blocks) < 8:
        return fit
    needed = {number for block in fit.blocks[1:] for number in block.counts} | {*fit.counts, fit.anchor}
    first = fit.blocks[0]
    kept = {number: count for number, count in first.counts.items() if number in needed}
    moved = sum(first.counts.values()) - sum(kept.values())
    if moved:
        earliest = min(needed)
        kept[earliest] = kept.get(earliest, 0) + moved
    anchors = {number: anchor for number, anchor in fit.anchors.items() if number in needed}
    return fit._replace(blocks=(first._replace(counts=kept), *fit.blocks[1:]), anchors=anchors)


def _close_batch(fit: SparseFit) -> SparseFit:
    """Continue from the current estimate."""
    batch_end = fit.n_rows + int((fit.n_rows - fit.batch) * float(_vrtd(fit).growth or 1.0))
    fit = fit._replace(batch=fit.n_rows, batch_end=batch_end)
    fit = fit._replace(reservoir=fit.reservoir.compact())
    rows = fit.reservoir.rows
    assert rows is not None
    inverse, n = SparseInverse(fit, rows), len(fit.blocks)
    iterate, gradient, _ = fit.mean_over(max(n // 4, int(n >= 8)))
    theta = inverse(gradient)
    theta += iterate
    if not np.isfinite(theta).all():
        return fit
    before = fit.theta_anchor.copy()
    fit.state[::_VECTORS] = theta
    return _drop_anchors(fit._replace(anchors={**fit.anchors, fit.anchor: before}, anchor=fit.anchor + 1))


def _vrtd(fit: SparseFit) -> VRTD:
    assert isinstance(fit.algorithm, VRTD)
    return fit.algorithm


def multiply_by_mean(rows: Transitions, w: Floats, among: slice = slice(None)) -> Floats:
    """Return A w with the mean A over some of the rows."""
    ahead = rows.discount * (rows.phi_next @ w) - rows.phi @ w
    if rows.is_weighted:
        ahead *= rows.weight
    chosen = np.zeros(len(rows))
    chosen[among] = ahead[among]
    product = np.asarray(rows.phi.T @ chosen)
    product /= len(chosen[among])
    return product


class SparseInverse:
    """Approximate inverse Q of -A, from rows of the reservoir."""

    def __init__(self, fit: SparseFit, rows: Transitions) -> None:
        self._fit, self.rows = fit, rows
        self.some = rows.part(0, _INVERTED).as_float64()
        self.of_sample = SampleInverse(self.some)
        self.is_kept = np.zeros(fit.n_features, np.bool_)
        self.is_kept[rows.phi.indices] = True

    def __call__(self, vector: Floats, n_rounds: int = FEW_ROUNDS) -> Floats:
        """Return Q v: the w of VRTD on the kept rows with the system A w + v = 0, after so many epochs.

        An epoch is an inner loop on the pseudo-gradient that is left. A feature that is in none of the rows would not
        be corrected: it moves as in one pass over the rows.
        """
        algorithm, n, rows = _vrtd(self._fit), len(self.rows), self.rows
        inside = np.where(self.is_kept, vector, 0.0)
        n_steps = int(algorithm.n_steps or max(_LEAST_STEPS, n))
        inner = replace(algorithm, output="tail", n_steps=n_steps, growth=algorithm.growth or 2.0)
        stream = make_streams(self._fit.seed, np.arange(1), ALGORITHM)[0]
        total, left, size = np.zeros(len(vector)), inside, float(np.linalg.norm(inside))
        whole = size
        for _ in range(1 if algorithm.n_steps else n_rounds):
            w = self._run_inner_loop(inner, n_steps, left, stream)
            w += total
            after = multiply_by_mean(rows, w)
            after += inside
            size_after = float(np.linalg.norm(after))
            if not np.isfinite(size_after):
                raise DivergenceError(
                    f"The inner loop of vrtd diverged with the step size {inner.step_size:g}. Lower the step size."
                )
            if size_after > size and total.any():  # no progress beyond noise
                break
            total, left, size = w, after, size_after
            if size <= _SOLVED * whole:
                break
        total += self.of_sample(left)
        return np.add(total, (inner.step_size * n) * vector, out=total, where=~self.is_kept)

    def _run_inner_loop(self, inner: VRTD, n_steps: int, vector: Floats, stream: NDArray[np.uint64]) -> Floats:
        """Return the mean of the second half of the iterates from 0 on."""
        _, finish = compile_epoch(inner, self.rows.is_weighted, is_sparse=True)
        d, width, n_skipped = len(vector), inner.n_sparse_vectors, n_steps // 2
        state = aligned_empty(inner.workspace_size(d, is_sparse=True))
        state[...] = 0.0
        np.multiply(vector, n_steps, out=state[1 : width * d : width])
        state[width * d + 1] = n_steps
        finish(inner.params(), *loop_columns(self.rows), n_steps, state, stream, d)
        v, changes = (state[k : width * d : width] for k in (2, 3))
        n_averaged = n_steps - n_skipped  # w = v + t step vector after t steps
        mean_time = 0.5 * (n_steps * (n_steps + 1) - n_skipped * (n_skipped + 1)) / n_averaged
        changes /= n_averaged
        v -= changes
        w = (inner.step_size * mean_time) * vector
        w += v
        return w
