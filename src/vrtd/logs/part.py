"""Base class of the parts of a log: files, a table or arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence

import numpy as np

from vrtd.errors import DataError
from vrtd.features import ObservationSpace
from vrtd.logs.arrow_values import ColumnType
from vrtd.logs.blocks import Block, join_keys, split_keys
from vrtd.logs.columns import Columns, Missing
from vrtd.logs.encoding import Encoder, Values


class Part(ABC):
    """Part of a log: a file, a table or arrays."""

    where: str
    n_rows: int | None  # all rows, with or without a successor; None if only a reading shows it
    columns: Columns
    #: Columns and types, which must be the same in all parts of a log.
    kinds: Mapping[str, ColumnType] = {}
    missing: Missing = "error"
    #: Whether the columns have names chosen by the user.
    has_names: bool = True
    #: Description of observations that are encoded already; None if only the rows show what they are.
    space: ObservationSpace | None = None
    #: Whether the rows are in memory, so that they travel to another process with the part.
    is_in_memory: bool = False
    #: Reason why damage may go undetected, or None if checksums are verified.
    unverified: str | None = None

    @abstractmethod
    def blocks(self, encoder: Encoder) -> Generator[Block, None, None]:
        """Yield all rows in order. Each block has at least one row and is not reused."""

    def divide(self, first: int, least: int) -> list[Part]:  # noqa: ARG002
        """Return pieces that can be read on their own, in order.

        The first has at least `first` rows and the others at least `least`, except the last one. A part that cannot be
        divided is its only piece.
        """
        return [self]

    def load(self) -> Part:
        """Return a part that holds no more than its rows, to be sent to another process."""
        return self

    def peek(self, n_rows: int) -> list[Values]:  # noqa: ARG002
        """Return at least the first `n_rows` rows, or all if there are fewer; none if columns have no names."""
        return []


def recorded_blocks(parts: Sequence[tuple[int, Part]], encoder: Encoder) -> Generator[Block, None, None]:
    """Yield all rows of numbered parts in recorded order."""
    shapes: list[tuple[int, ...]] | None = None
    for i, part in parts:
        n_read = 0
        for block in part.blocks(encoder):
            n_read += block.reward.size
            now = [array.shape[1:] for array in (block.observations, block.action) if array is not None]
            shapes = now if shapes is None else shapes
            for what, shape, before in zip(("observations", "actions"), now, shapes, strict=False):
                if shape != before:
                    raise DataError(
                        f"The {what} of {part.where} must have the same shape in every row, but have {shape} from "
                        f"row {block.pieces[0].first_row} and {before} before.",
                        f"Store {what} of different shapes separately.",
                    )
            if part.columns.is_by_file:
                file = np.full(block.reward.size, i)
                keys = [] if block.episode is None else split_keys(block.episode)
                block = block._replace(episode=join_keys([*keys, file]))
            yield block._replace(part=i)
        if part.n_rows not in (None, n_read):
            raise DataError(
                f"{part.where} announces {count_rows(part.n_rows or 0)} but has {count_rows(n_read)}: "
                "it is damaged, or it changed while it was read.",
                "Write it again.",
            )


def count_rows(n: int) -> str:
    """Return a number of rows as text."""
    return f"{n:,} row" + ("" if n == 1 else "s")
