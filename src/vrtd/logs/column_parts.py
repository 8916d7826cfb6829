"""Base class of the parts of a log with named columns: tables and files of tables or arrays."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Iterator
from contextlib import closing

from vrtd.logs.blocks import Block, Piece, make_block, rows_per_block
from vrtd.logs.encoding import Encoder, Values
from vrtd.logs.part import Part


class ColumnPart(Part):
    """Part with named columns, which are read in pieces and encoded to observations."""

    @abstractmethod
    def rows(self) -> Generator[tuple[Piece, Values], None, None]:
        """Yield all rows in order, before they are encoded."""

    def peek(self, n_rows: int) -> list[Values]:
        """Return at least the first `n_rows` rows, or all if there are fewer."""
        pieces: list[Values] = []
        with closing(self.rows()) as rows:
            for piece, values in rows:
                pieces.append(values)
                n_rows -= piece.n_rows
                if n_rows <= 0:
                    break
        return pieces

    def blocks(self, encoder: Encoder) -> Generator[Block, None, None]:
        """Yield all rows in order as encoded blocks."""
        with closing(self.rows()) as rows:
            for piece, values in rows:
                for cut, columns in _cut(piece, values, encoder):
                    yield make_block(self.columns.select(columns), cut, encoder)


def _cut(piece: Piece, values: Values, encoder: Encoder) -> Iterator[tuple[Piece, Values]]:
    """Yield the rows in pieces that stay small after the encoding of categories."""
    step = piece.n_rows if encoder.row_bytes is None else rows_per_block(encoder.row_bytes)
    if step >= piece.n_rows:
        yield piece, values
        return
    for start in range(0, piece.n_rows, step):
        stop = min(piece.n_rows, start + step)
        cut = piece._replace(first_row=piece.first_row + start, n_rows=stop - start)
        yield cut, {name: column[start:stop] for name, column in values.items()}
