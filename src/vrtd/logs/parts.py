"""A log that consists of parts, each of which knows how to read itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Generator, Iterator, Sequence

from vrtd.errors import DataError
from vrtd.logs.ahead import ahead
from vrtd.logs.blocks import Block
from vrtd.logs.columns import Columns
from vrtd.logs.log import Chunk, Log
from vrtd.logs.pairing import with_next, with_recorded


class Part(ABC):
    """A file, a table or arrays."""

    where: str
    #: Why damage may go unnoticed, or None where checksums are verified.
    unverified: str | None = None

    @property
    @abstractmethod
    def n_rows(self) -> int | None:
        """Rows, successors or not; None when only a reading tells."""

    @property
    def remarks(self) -> tuple[str, ...]:
        return ()

    @abstractmethod
    def blocks(self) -> Generator[Block, None, None]:
        """All rows, in order. Blocks have at least one row each and belong to whoever takes them."""


class FilePart(Part):
    """One file of possibly several, all of which must have these columns, of these kinds."""

    columns: Columns
    kinds: dict[str, str]  # column -> type, in words

    @property
    def remarks(self) -> tuple[str, ...]:
        return self.columns.remarks


class PartsLog(Log):
    """The parts one after another, paired into transitions. `in_thread`: read one block ahead."""

    def __init__(self, parts: Sequence[Part], in_thread: bool) -> None:
        self._parts, self._in_thread = tuple(parts), in_thread
        self._remarks = self._known_remarks()
        self._rows_before: int | None = None
        counts = [part.n_rows for part in self._parts]
        self._n_rows = sum(n for n in counts if n is not None) if None not in counts else None
        if self._n_rows == 0:
            raise self._empty("no rows")

    @property
    def n_rows(self) -> int | None:
        return self._n_rows

    @property
    def remarks(self) -> tuple[str, ...]:
        return self._remarks

    def chunks(self) -> Iterator[Chunk]:
        dropped: Counter[str] = Counter()
        n_kept = 0
        self._remarks = self._known_remarks()
        blocks: Generator[Block, None, None] = self._blocks()
        if self._in_thread:
            blocks = ahead(blocks)
        try:
            for block in blocks:
                has_successors = block.next_observations is not None
                for chunk in with_recorded(block, blocks) if has_successors else with_next(block, blocks, dropped):
                    n_kept += chunk.n_rows
                    yield chunk
        finally:
            blocks.close()
        n_read = n_kept + dropped.total()
        if n_kept == 0:
            raise self._empty(f"{_rows(n_read)}, none with a successor" if n_read else "no rows")
        if self._rows_before not in (None, n_read):
            raise DataError(
                f"{self._parts[0].where} must be the same at every reading",
                f"{_rows(n_read)} now and {_rows(self._rows_before or 0)} before",
                "pass what can be read again: a file, a table or arrays",
            )
        self._rows_before = n_read
        told = tuple(f"{_rows(n)} dropped: {reason}" for reason, n in dropped.items() if n)
        self._remarks = self._known_remarks() + told

    def _blocks(self) -> Generator[Block, None, None]:
        first: Block | None = None
        for i, part in enumerate(self._parts):
            n_read = 0
            for block in part.blocks():
                n_read += block.reward.size
                first = first or block
                shapes = [one.observations.shape[1:] for one in (block, first)]
                if shapes[0] != shapes[1]:
                    raise DataError(
                        f"the observations of {part.where} must have one shape",
                        f"{shapes[0]} a row from row {block.pieces[0].first_row} on and {shapes[1]} before",
                        "keep observations of different shapes apart",
                    )
                yield block._replace(part=i)
            if part.n_rows not in (None, n_read):
                raise DataError(
                    f"{part.where} must hold the {_rows(part.n_rows or 0)} that it announces",
                    _rows(n_read),
                    "it is damaged or changed while it was read: write it again",
                )

    def _known_remarks(self) -> tuple[str, ...]:
        """What is known without reading, each remark once."""
        remarks = [remark for part in self._parts for remark in part.remarks]
        reasons: dict[str, list[str]] = {}
        for part in self._parts:
            if part.unverified is not None:
                reasons.setdefault(part.unverified, []).append(part.where)
        for reason, places in reasons.items():
            others = f" (and {len(places) - 1} more of {len(self._parts)} files)" if len(places) > 1 else ""
            remarks.append(f"{places[0]} {reason}{others}: integrity cannot be verified")
        return tuple(dict.fromkeys(remarks))

    def _empty(self, what: str) -> DataError:
        where = self._parts[0].where if len(self._parts) == 1 else f"the {len(self._parts)} parts of the log"
        return DataError(f"{where} must hold at least one transition", what, "pass a log with more rows")


def _rows(n: int) -> str:
    return f"{n} row" + ("" if n == 1 else "s")
