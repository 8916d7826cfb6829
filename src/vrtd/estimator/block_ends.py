"""Ends of blocks of rows: equal distances while rows arrive one by one, at least equal ones where logs are joined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

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
