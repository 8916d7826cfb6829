"""Logs that consist of parts (files, a table or arrays), whose rows `vrtd.logs.pairing` turns into transitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from vrtd.errors import DataError
from vrtd.features import ObservationSpace
from vrtd.lazy import cached_property
from vrtd.logs.blocks import Block
from vrtd.logs.columns import VECTORS, EpisodeEnd, Text
from vrtd.logs.encoding import PILOT_ROWS, Encoder
from vrtd.logs.log import Chunk, Log, shorten
from vrtd.logs.ordering import OrderedRows
from vrtd.logs.pairing import Reason, keep_next, pair
from vrtd.logs.part import Part, count_rows, recorded_blocks
from vrtd.logs.partition import MOST_PARTITIONS, PARTITION_ROWS, Counts, Pairing, Partition
from vrtd.logs.pilot import choose_actions, choose_space, find_stored, read_words
from vrtd.logs.read_ahead import read_ahead
from vrtd.logs.repeats import SeenEpisodes, say_how_to_tell_apart

_MANY = 0.01  # share of the rows above which a remark becomes a warning

_SET_EPISODE_END = (
    "episode_end='terminated' to keep them if their episodes have terminated, "
    "or episode_end='drop' to drop them without a warning"
)
#: Remedies for rows that were dropped without the user's request and may be many.
_REMEDIES = {
    Reason.NO_FINAL: "Record the observations that follow these rows as next_observations, "
    "or pass episode_end='drop' to drop the rows without a warning",
    Reason.NO_NEXT_IN_EPISODE: f"Pass {_SET_EPISODE_END}",
    Reason.LAST_OF_FILE: f"Name the columns that identify episodes with episode=..., or pass {_SET_EPISODE_END}",
}


class PartsLog(Log):
    """Log of one or several parts in sequence.

    With `in_thread`, blocks are read ahead in a thread. Observations are encoded as in `space`, the space of an earlier
    log, if it is given.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        in_thread: bool,
        episode_end: EpisodeEnd | None = None,
        space: ObservationSpace | None = None,
        text: Text = "category",
    ) -> None:
        self._parts, self._in_thread, self._episode_end = tuple(parts), in_thread, episode_end
        self._columns = self._parts[0].columns
        self._ordered: OrderedRows | None = None
        if self._columns.order_by is not None:
            self._ordered = OrderedRows([part.where for part in self._parts], self._columns)
        # Counts of the last complete reading.
        self._dropped: Counter[Reason] = Counter()
        self._unseen: Counter[str] = Counter()
        self._lacking: Counter[str] = Counter()
        self._is_divided = False  # whether the rows show episodes or ends of episodes
        self._rows_before: int | None = None
        counts = [part.n_rows for part in self._parts]
        self._n_rows = sum(n for n in counts if n is not None) if None not in counts else None
        if self._n_rows == 0:
            raise self._empty("no rows")
        self._space = choose_space(self._parts, space, text)
        self._actions = choose_actions(self._parts, self._space)
        self._encoder = self._make_encoder()

    @property
    def n_rows(self) -> int | None:
        """Upper bound on the number of transitions, or None if it is unknown."""
        return self._n_rows

    @property
    def roles(self) -> Mapping[str, tuple[str, ...]]:
        """Columns that each field is read from; empty if the columns have no names."""
        return self._columns.roles if self._parts[0].has_names else {}

    @property
    def space(self) -> ObservationSpace | None:
        """Description of the observations, or None if only the rows show what they are."""
        return self._space

    @cached_property
    def words(self) -> Mapping[float, str]:
        """Text of the first rows by its hash, for columns that are read as hashes."""
        return {} if self._space is None or find_stored(self._parts) else read_words(self._parts, self._space)

    @property
    def knows_first(self) -> bool:
        """Whether a column marks the first rows of episodes."""
        return self._columns.starts is not None

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks on the last complete reading, the most important first."""
        remarks = [f"{count_rows(n)} dropped: {reason}" for reason, n in _most_first(self._dropped) if n]
        remarks += [*self._describe_ended(0.0), *self._describe_shared(), *self._describe_unseen(0.0)]
        if self._parts[0].missing == "indicator":
            remarks += [
                f"{_count(n, 'missing value')} of column {name!r} filled in" for name, n in _most_first(self._lacking)
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
        """Reasons to doubt results from this log, after a complete reading."""
        dropped = (*self._describe_dropped(), *self._describe_missing())
        return (*dropped, *self._describe_ended(_MANY), *self._describe_unseen(_MANY))

    def _describe_dropped(self) -> tuple[str, ...]:
        """Describe the rows that were dropped without the user's request, if they are many.

        This includes rows of episodes that the user called truncated, because few users expect these to be dropped.
        """
        if self._episode_end == "drop" or not self._rows_before:
            return ()
        dropped = Counter({reason: n for reason, n in self._dropped.items() if reason in _REMEDIES})
        share = dropped.total() / self._rows_before
        if share <= _MANY:
            return ()
        (reason, n_most), *_ = _most_first(dropped)
        mostly = "" if n_most == dropped.total() else "mostly "
        problem = f"{dropped.total():,} of {count_rows(self._rows_before)} ({100 * share:.1f} %) were dropped"
        remedy = _REMEDIES[Reason.NO_FINAL if self._episode_end == "truncated" else reason]
        return (f"{problem}: {mostly}{reason}. {remedy}",)

    def _describe_trajectory(self) -> list[str]:
        """Report that named columns show no episodes, in case the user forgot to name them."""
        if self._rows_before is None or self._is_divided or not self._parts[0].has_names:
            return []
        is_cut = len(self._parts) > 1 and self._ordered is None and "next_observations" not in self._columns.by_field
        rows = "each file is" if is_cut else "all rows are"
        return [f"no episode column and no end of an episode: {rows} one trajectory"]

    def _describe_missing(self) -> tuple[str, ...]:
        """Describe the rows that were dropped because values are missing, if they are many."""
        n_rows, n = self._rows_before or 0, self._dropped[Reason.MISSING] + self._dropped[Reason.MISSING_NEXT]
        if n <= _MANY * n_rows:
            return ()
        problem = f"{n:,} of {count_rows(n_rows)} ({100 * n / n_rows:.1f} %) were dropped because a value is missing"
        (name, n_most), *_ = _most_first(self._lacking)
        is_observed = any(name in self._columns.by_field.get(field, ()) for field in VECTORS)
        remedy = "Pass missing='indicator' to keep these rows" if is_observed else "Fix the column"
        return (f"{problem}, most often in column {name!r} ({_count(n_most, 'time')}). {remedy}",)

    def _describe_ended(self, share: float) -> list[str]:
        """Describe the rows that were sorted after the end of their episode, if their share exceeds `share`."""
        n_rows, n = self._rows_before or 0, 0 if self._ordered is None else self._ordered.n_after_end
        if n <= share * n_rows:
            return []
        problem = f"{n:,} of {n_rows:,} rows ({n / n_rows:.1%}) come after a terminated row of their episode."
        remedy = "Check that order_by gives the order in which rows were recorded."
        return [f"{problem} {remedy} If different episodes share a name, {say_how_to_tell_apart(self._columns)}"]

    def _describe_shared(self) -> list[str]:
        """Describe the episodes that continue in another file."""
        n = 0 if self._ordered is None else self._ordered.n_file_changes
        if not n:
            return []
        remedy = say_how_to_tell_apart(self._columns)
        return [f"episodes continue in another file {_count(n, 'time')}. If each file reuses the names, {remedy}"]

    def _describe_unseen(self, share: float) -> list[str]:
        """Describe the columns whose share of rows with a value that is not a level exceeds `share`."""
        n_rows = self._rows_before or 0
        return [
            f"{n:,} of {n_rows:,} rows ({n / n_rows:.1%}) have a value in column {name!r} that does not occur in the "
            f"first {PILOT_ROWS:,} rows and counts as 'other'"
            for name, n in _most_first(self._unseen)
            if n > share * n_rows
        ]

    def chunks(self) -> Iterator[Chunk]:
        """Read all parts and yield their transitions in chunks."""
        self._dropped, self._unseen, self._lacking = Counter(), Counter(), Counter()
        dropped: Counter[Reason] = Counter()
        n_kept = 0
        blocks = self._blocks()
        try:
            for first in blocks:
                pairs = pair(first, blocks, self._episode_end, dropped, self._encoder)
                if first.needs_no_pair:
                    pairs = keep_next(chain([first], blocks), self._encoder)
                for chunk in pairs:
                    n_kept += chunk.n_rows
                    yield chunk
        finally:
            blocks.close()
        n_read = n_kept + dropped.total()
        if n_kept == 0:
            raise self._empty(f"{count_rows(n_read)}, none with a successor" if n_read else "no rows")
        if self._rows_before not in (None, n_read):
            raise DataError(
                f"{self._parts[0].where} must be the same in every reading, but has {count_rows(n_read)} "
                f"now and had {count_rows(self._rows_before or 0)} before.",
                "Pass data that can be read repeatedly: a file, a table or arrays.",
            )
        self._rows_before, self._dropped = n_read, dropped
        self._unseen, self._lacking = self._encoder.unseen, self._encoder.lacking

    def _blocks(self) -> Generator[Block, None, None]:
        """Return the blocks of one reading in order."""
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
        """Yield the blocks in recorded order, and raise if an episode appears again after another one."""
        seen = SeenEpisodes(self._columns, self._parts[0].has_names)
        for block in self._recorded_blocks():
            seen.check(block)
            yield block

    def _recorded_blocks(self) -> Generator[Block, None, None]:
        for block in recorded_blocks(list(enumerate(self._parts)), self._encoder):
            self._is_divided |= block.shows_episodes
            yield block

    @property
    def pairing(self) -> Pairing:
        """Settings with which rows become transitions."""
        return Pairing(self._make_encoder(), self._episode_end)

    def divide(self, least_rows: int | None = None) -> list[Partition]:
        """Divide the log into partitions, which can be read on their own.

        Files of other formats than Parquet, and tables of other libraries than pyarrow, stay whole.

        Parameters
        ----------
        least_rows : int or None, default=None
            Least number of rows of a partition, except of the last one. None means 131,072, or more if there would be
            more than 4096 partitions.

        Returns
        -------
        list of Partition
            Partitions in the order of the log; empty if the rows must be sorted first.
        """
        if self._ordered is not None:
            return []
        least = least_rows or max(PARTITION_ROWS, -(-(self._n_rows or 0) // MOST_PARTITIONS))
        groups: list[list[tuple[int, Part]]] = [[]]
        n_rows = 0
        for i, part in enumerate(self._parts):
            for piece in part.divide(least - n_rows, least):
                groups[-1].append((i, piece))
                n_rows = least if piece.n_rows is None else n_rows + piece.n_rows
                if n_rows >= least:
                    groups.append([])
                    n_rows = 0
        return [self._partition(group) for group in groups if group]

    def whole(self) -> Partition | None:
        """Return all rows as one partition, or None if they must be sorted first."""
        return None if self._ordered is not None else self._partition(list(enumerate(self._parts)))

    def _partition(self, parts: Sequence[tuple[int, Part]]) -> Partition:
        return Partition(parts, self._columns, self.pairing, self._parts[0].has_names)

    def complete(self, counts: Counts) -> None:
        """Take over the counts of a reading in partitions, for `remarks` and `warnings`."""
        self._dropped, self._unseen = Counter(counts.dropped), Counter(counts.unseen)
        self._lacking = Counter(counts.lacking)
        self._rows_before, self._is_divided = counts.n_rows, counts.is_divided

    @property
    def origin(self) -> str:
        """Name of the data, or number and first names of the files."""
        places = [part.where for part in self._parts]
        files = f"{len(places):,} files: {shorten([Path(place).name for place in places])}"
        return places[0] if len(places) == 1 else files

    def _empty(self, what: str) -> DataError:
        where = self._parts[0].where if len(self._parts) == 1 else f"the {len(self._parts)} files of the log"
        return DataError(f"There is no transition in {where}: {what}.", "Pass a log with more rows.")


def _most_first(counts: Mapping[Any, int]) -> list[tuple[Any, int]]:
    """Return the items with the largest counts first, and equal ones in alphabetical order."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}" + ("" if n == 1 else "s")
