"""Sums over blocks of consecutive rows, and the ends of the blocks.

Blocks have equal lengths while rows arrive one by one, and at least these lengths where parts of a log are joined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import Floats

FIRST_BLOCK = 16  # rows; doubled each time the number of blocks reaches its limit


class Ends(NamedTuple):
    """Ends of blocks, counted in rows of the log."""

    block: int = FIRST_BLOCK  # least number of rows of a block
    rows: tuple[int, ...] = ()  # rows of the log up to the end of each block

    @property
    def last(self) -> int:
        """Rows of the log up to the end of the last block."""
        return self.rows[-1] if self.rows else 0

    @property
    def next(self) -> int:
        """Rows of the log up to the end of the block after the last one."""
        return self.last + self.block

    @property
    def per_block(self) -> float:
        """Mean number of rows per block."""
        return self.last / len(self.rows)

    def close(self, most: int) -> tuple[Ends, slice]:
        """Return the ends after the next block, and which ends are kept: every second one if there are `most`."""
        rows = (*self.rows, self.next)
        if len(rows) < most:
            return self._replace(rows=rows), slice(None)
        return Ends(2 * self.block, rows[1::2]), slice(1, None, 2)

    def thin(self, n_rows: int, n_blocks: int) -> tuple[Ends, list[int]]:
        """Return at most `n_blocks` ends in the first `n_rows` rows, and which of ``[*rows, n_rows]`` they are."""
        candidates, block = (*self.rows, n_rows), max(1, -(-n_rows // n_blocks))
        kept = _choose(candidates, block)
        return Ends(block, tuple(candidates[k] for k in kept)), kept

    def join(self, n_rows: int, other: Ends, n_others: int, most: int) -> tuple[Ends, list[int]]:
        """Join the ends in `n_rows` rows with those in the `n_others` rows that follow.

        Parameters
        ----------
        n_rows : int
            Number of rows of the log before the others.
        other : Ends
            Ends in the rows that follow, counted from the first of them.
        n_others : int
            Number of these rows.
        most : int
            Number of blocks that is not reached.

        Returns
        -------
        ends : Ends
            Ends in all rows.
        kept : list of int
            Which of ``[*self.rows, *other.rows, n_others]`` they are, the last ones counted from `n_rows`.
        """
        candidates = [*self.rows, *(n_rows + row for row in (*other.rows, n_others))]
        block = max(self.block, other.block)
        while len(kept := _choose(candidates, block)) >= most:
            block *= 2
        return Ends(block, tuple(candidates[k] for k in kept)), kept


def _choose(candidates: Sequence[int], block: int) -> list[int]:
    """Return the first candidates between which there are at least `block` rows."""
    kept, last = [], 0
    for k, row in enumerate(candidates):
        if row - last >= block:
            kept.append(k)
            last = row
    return kept


class BlockTotals(NamedTuple):
    """Totals of vectors that belong to some of the rows, and their values after each block of rows."""

    total: Floats  # (k,)
    most: int  # number of blocks at which they are merged in pairs
    ends: Ends = Ends()  # of the blocks before the last row that was added
    marks: tuple[Floats, ...] = ()  # (k,) each

    @property
    def mean(self) -> Floats:
        """Mean (k - 1,) of the vectors without their last entry, which is 1."""
        return np.asarray(self.total[:-1] / self.total[-1])

    def add(self, rows: NDArray[np.int64], vectors: Floats) -> BlockTotals:
        """Return the totals with the vectors (m, k) of these rows of the log; the rows are sorted and not empty."""
        totals = np.add.accumulate(np.concatenate([self.total[None], vectors]), axis=0)
        marked = self._mark(int(rows[-1]), lambda end: totals[np.searchsorted(rows, end)])
        return marked._replace(total=totals[-1])

    def by_block(self, n_rows: int) -> tuple[Floats, Ends]:
        """Return the totals (B, k) of the blocks in the first n rows of the log, and the ends of the blocks."""
        marked = self._mark(n_rows, lambda _end: self.total)
        return np.diff(np.array([np.zeros_like(self.total), *marked.marks]), axis=0), marked.ends

    def _mark(self, n_rows: int, total_before: Callable[[int], Floats]) -> BlockTotals:
        ends, marks = self.ends, self.marks
        while ends.next <= n_rows:
            marks = (*marks, total_before(ends.next))
            ends, kept = ends.close(self.most)
            marks = marks[kept]
        return self._replace(ends=ends, marks=marks)

    def thin(self, n_rows: int, n_blocks: int) -> BlockTotals:
        """Return the totals of the first `n_rows` rows of the log with at most `n_blocks` blocks.

        One block ends after the last row.
        """
        marked = self._mark(n_rows, lambda _: self.total)
        if 1 < n_blocks >= len(marked.marks):
            return marked
        ends, kept = marked.ends.thin(n_rows, n_blocks)
        marks = (*marked.marks, self.total)
        return self._replace(ends=ends, marks=tuple(marks[k] for k in kept))

    def join(self, n_rows: int, others: BlockTotals, n_others: int) -> BlockTotals:
        """Return the totals of the first `n_rows` rows of the log, and of the `n_others` rows that follow."""
        mine, its = self._mark(n_rows, lambda _: self.total), others._mark(n_others, lambda _: others.total)
        ends, kept = mine.ends.join(n_rows, its.ends, n_others, self.most)
        marks = [*mine.marks, *(self.total + mark for mark in (*its.marks, others.total))]
        return BlockTotals(marks[-1], self.most, ends, tuple(marks[k] for k in kept))

    def insert(self, row: int, vector: Floats) -> BlockTotals:
        """Return the totals with a vector that belongs to a row before the last one that was added."""
        rows_marks = zip(self.ends.rows, self.marks, strict=True)
        marks = tuple(mark + vector if row < end else mark for end, mark in rows_marks)
        return self._replace(total=self.total + vector, marks=marks)
