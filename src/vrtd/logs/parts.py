"""A log that consists of parts, each of which reads its rows; `vrtd.logs.pairing` gives every row its successor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from vrtd.errors import DataError
from vrtd.features import ObservationSpace
from vrtd.logs.arrow_values import ColumnType
from vrtd.logs.blocks import Block, join_keys, split_keys
from vrtd.logs.columns import VECTORS, Columns, EpisodeEnd, Missing
from vrtd.logs.encoding import PILOT_ROWS, Encoder, Values
from vrtd.logs.log import Chunk, Log, shorten
from vrtd.logs.ordering import OrderedRows
from vrtd.logs.pairing import Reason, keep_next, pair
from vrtd.logs.pilot import choose_actions, choose_space, find_stored
from vrtd.logs.read_ahead import read_ahead
from vrtd.logs.repeats import SeenEpisodes, say_how_to_tell_apart

_MANY = 0.01  # a larger share of the rows is warned of


_SAY_WHAT_ENDS = (
    "say what they are: episode_end='terminated' keeps them, if nothing follows them; episode_end='truncated' and "
    "episode_end='drop' leave them out"
)
#: What helps against reasons that are not of the user's choice and concern more than one row.
_REMEDIES = {
    Reason.NO_FINAL: "they cannot be kept without the observations that follow them: record these as "
    "next_observations, or accept it with episode_end='drop'",
    Reason.NO_NEXT_IN_EPISODE: _SAY_WHAT_ENDS,
    Reason.LAST_OF_FILE: "name the columns that tell episodes apart with episode=..., or " + _SAY_WHAT_ENDS,
}


class Part(ABC):
    """A file, a table or arrays."""

    where: str
    n_rows: int | None  # with a successor or not; None when only a reading tells
    columns: Columns
    #: Columns and types must be the same in all parts of a log.
    kinds: Mapping[str, ColumnType] = {}
    missing: Missing = "error"
    #: Whether the columns have names of the user's.
    has_names: bool = True
    #: What the observations are, which are then numbers already; None: only the rows tell.
    space: ObservationSpace | None = None
    #: Why damage may go unnoticed, or None where checksums are verified.
    unverified: str | None = None

    @abstractmethod
    def blocks(self, encoder: Encoder) -> Generator[Block, None, None]:
        """Yield all rows, in order. Blocks have at least one row each and belong to whoever takes them."""

    def peek(self, n_rows: int) -> list[Values]:  # noqa: ARG002
        """Return at least the first `n_rows` rows if there are that many; return none if columns have no names."""
        return []


class PartsLog(Log):
    """The parts one after another, paired into transitions.

    `in_thread`: read one block ahead. `space`: that of an earlier log, like which observations are encoded.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        in_thread: bool,
        episode_end: EpisodeEnd | None = None,
        space: ObservationSpace | None = None,
    ) -> None:
        self._parts, self._in_thread, self._episode_end = tuple(parts), in_thread, episode_end
        self._columns = self._parts[0].columns
        self._ordered: OrderedRows | None = None
        if self._columns.order_by is not None:
            self._ordered = OrderedRows([part.where for part in self._parts], self._columns)
        self._dropped: Counter[Reason] = Counter()  # by the last whole reading
        self._unseen: Counter[str] = Counter()  # by the last whole reading
        self._lacking: Counter[str] = Counter()  # by the last whole reading
        self._is_divided = False  # by episodes or their ends
        self._rows_before: int | None = None
        counts = [part.n_rows for part in self._parts]
        self._n_rows = sum(n for n in counts if n is not None) if None not in counts else None
        if self._n_rows == 0:
            raise self._empty("no rows")
        self._space = choose_space(self._parts, space)
        self._actions = choose_actions(self._parts, self._space)
        self._encoder = self._make_encoder()

    @property
    def n_rows(self) -> int | None:
        return self._n_rows

    @property
    def roles(self) -> Mapping[str, tuple[str, ...]]:
        return self._columns.roles if self._parts[0].has_names else {}

    @property
    def space(self) -> ObservationSpace | None:
        return self._space

    @property
    def knows_first(self) -> bool:
        return self._columns.starts is not None

    @property
    def remarks(self) -> tuple[str, ...]:
        remarks = [f"{_rows(n)} dropped: {reason}" for reason, n in self._dropped.most_common() if n]
        remarks += [*self._describe_ended(0.0), *self._describe_shared(), *self._describe_unseen(0.0)]
        if self._parts[0].missing == "indicator":
            remarks += [
                f"{_count(n, 'missing value')} of column {name!r} filled in" for name, n in self._lacking.items()
            ]
        remarks += self._describe_trajectory()
        remarks += [remark for part in self._parts for remark in part.columns.remarks]
        remarks += [] if self._ordered is None else self._ordered.remarks
        reasons: dict[str, list[str]] = {}
        for part in self._parts:
            if part.unverified is not None:
                reasons.setdefault(part.unverified, []).append(part.where)
        for reason, places in reasons.items():
            others = f" (and {len(places) - 1} more of {len(self._parts)} files)" if len(places) > 1 else ""
            remarks.append(f"{places[0]} {reason}{others}: integrity cannot be verified")
        return tuple(dict.fromkeys(remarks))

    @property
    def warnings(self) -> tuple[str, ...]:
        dropped = (*self._describe_dropped(), *self._describe_missing())
        return (*dropped, *self._describe_ended(_MANY), *self._describe_unseen(_MANY))

    def _describe_dropped(self) -> tuple[str, ...]:
        """Describe many rows that were dropped for reasons that are not of the user's choice.

        Whoever says that episodes were truncated may not know that such rows are lost without their successors.
        """
        if self._episode_end == "drop" or not self._rows_before:
            return ()
        dropped = Counter({reason: n for reason, n in self._dropped.items() if reason in _REMEDIES})
        share = dropped.total() / self._rows_before
        if share <= _MANY:
            return ()
        ((reason, n_most),) = dropped.most_common(1)
        mostly = "" if n_most == dropped.total() else "mostly "
        what = f"{dropped.total():,} of {_rows(self._rows_before)} ({100 * share:.1f} %) were dropped"
        do = _REMEDIES[Reason.NO_FINAL if self._episode_end == "truncated" else reason]
        return (f"{what}: {mostly}{reason}; {do}",)

    def _describe_trajectory(self) -> list[str]:
        """Say that columns with names show no episodes, which may have been forgotten."""
        if self._rows_before is None or self._is_divided or not self._parts[0].has_names:
            return []
        is_cut = len(self._parts) > 1 and self._ordered is None and "next_observations" not in self._columns.by_field
        what = "each file is" if is_cut else "all rows are"
        return [f"no episode column and no end of an episode: {what} one trajectory"]

    def _describe_missing(self) -> tuple[str, ...]:
        """Describe many rows that were dropped because values are missing."""
        n_rows, n = self._rows_before or 0, self._dropped[Reason.MISSING] + self._dropped[Reason.MISSING_NEXT]
        if n <= _MANY * n_rows:
            return ()
        what = f"{n:,} of {_rows(n_rows)} ({100 * n / n_rows:.1f} %) were dropped because a value is missing"
        ((name, n_most),) = self._lacking.most_common(1)
        is_observed = any(name in self._columns.by_field.get(field, ()) for field in VECTORS)
        do = "missing='indicator' keeps rows that lack it" if is_observed else "repair the column"
        return (f"{what}, most often in column {name!r} ({_count(n_most, 'time')}); {do}",)

    def _describe_ended(self, share: float) -> list[str]:
        """Describe rows that were sorted behind the end of their episode, if these are a larger share."""
        n_rows, n = self._rows_before or 0, 0 if self._ordered is None else self._ordered.n_after_end
        if n <= share * n_rows:
            return []
        what = f"{n:,} of {n_rows:,} rows ({n / n_rows:.1%}) come after a terminated row of their episode"
        check = "check that order_by gives the order in which rows were recorded"
        return [f"{what}: {check}; if different episodes have one name, {say_how_to_tell_apart(self._columns)}"]

    def _describe_shared(self) -> list[str]:
        """Describe episodes that go on in another file."""
        n = 0 if self._ordered is None else self._ordered.n_file_changes
        if not n:
            return []
        apart = say_how_to_tell_apart(self._columns)
        return [f"episodes go on in another file {n:,} times; if names are reused in each file, {apart}"]

    def _describe_unseen(self, share: float) -> list[str]:
        """Describe the columns of which a larger share of rows had a value that is no level."""
        n_rows = self._rows_before or 0
        return [
            f"{n:,} of {n_rows:,} rows ({n / n_rows:.1%}) have a value in column {name!r} that the first "
            f"{PILOT_ROWS:,} rows do not show: these values count as one, 'other'"
            for name, n in self._unseen.items()
            if n > share * n_rows
        ]

    def chunks(self) -> Iterator[Chunk]:
        self._dropped, self._unseen, self._lacking = Counter(), Counter(), Counter()
        dropped: Counter[Reason] = Counter()
        n_kept = 0
        blocks = self._blocks()
        try:
            for first in blocks:
                pairs = pair(first, blocks, self._episode_end, dropped, self._encoder)
                has_episodes = first.episode is not None or first.starts is not None
                if first.next_observations is not None and not has_episodes and first.is_unusable is None:
                    pairs = keep_next(chain([first], blocks), self._encoder)
                for chunk in pairs:
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
        self._rows_before, self._dropped = n_read, dropped
        self._unseen, self._lacking = self._encoder.unseen, self._encoder.lacking

    def _blocks(self) -> Generator[Block, None, None]:
        """Return the blocks of one reading, in order."""
        if self._ordered is None or not self._ordered.is_sorted:
            self._encoder = self._make_encoder()
        if self._ordered is None:
            blocks = self._check_order()
            return read_ahead(blocks) if self._in_thread else blocks
        self._ordered.sort(self._recorded_blocks())
        return read_ahead(self._ordered.blocks())

    def _make_encoder(self) -> Encoder:
        is_encoded = find_stored(self._parts) is not None
        return Encoder(None if is_encoded else self._space, self._parts[0].missing, self._actions)

    def _check_order(self) -> Generator[Block, None, None]:
        """Yield the blocks as they were recorded; raise where an episode comes back."""
        seen = SeenEpisodes(self._columns, self._parts[0].has_names)
        for block in self._recorded_blocks():
            seen.check(block)
            yield block

    def _recorded_blocks(self) -> Generator[Block, None, None]:
        shapes: list[tuple[int, ...]] | None = None
        for i, part in enumerate(self._parts):
            n_read = 0
            for block in part.blocks(self._encoder):
                n_read += block.reward.size
                now = [array.shape[1:] for array in (block.observations, block.action) if array is not None]
                shapes = now if shapes is None else shapes
                for what, shape, before in zip(("observations", "actions"), now, shapes, strict=False):
                    if shape != before:
                        raise DataError(
                            f"the {what} of {part.where} must have one shape",
                            f"{shape} a row from row {block.pieces[0].first_row} on and {before} before",
                            f"keep {what} of different shapes apart",
                        )
                if part.columns.is_by_file:
                    file = np.full(block.reward.size, i)
                    keys = [] if block.episode is None else split_keys(block.episode)
                    block = block._replace(episode=join_keys([*keys, file]))
                has_episodes = block.episode is not None or block.starts is not None
                self._is_divided |= has_episodes or bool((block.terminated | block.truncated).any())
                yield block._replace(part=i)
            if part.n_rows not in (None, n_read):
                raise DataError(
                    f"{part.where} must hold the {_rows(part.n_rows or 0)} that it announces",
                    _rows(n_read),
                    "it is damaged or changed while it was read: write it again",
                )

    @property
    def origin(self) -> str:
        places = [part.where for part in self._parts]
        files = f"{len(places):,} files: {shorten([Path(place).name for place in places])}"
        return places[0] if len(places) == 1 else files

    def _empty(self, what: str) -> DataError:
        where = self._parts[0].where if len(self._parts) == 1 else f"the {len(self._parts)} parts of the log"
        return DataError(f"{where} must hold at least one transition", what, "pass a log with more rows")


def _rows(n: int) -> str:
    return _count(n, "row")


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}" + ("" if n == 1 else "s")
