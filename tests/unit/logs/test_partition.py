"""Partitions of a log: read one by one and bridged, they give the rows and counts of the whole log."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow

from tests.helpers.log_cases import rows, same_bits
from tests.helpers.random_logs import random_log
from vrtd.logs import Chunk, read
from vrtd.logs.partition import Counts
from vrtd.logs.parts import PartsLog


class InPartitions:
    """All rows of a log, read in partitions; the log takes over their counts."""

    def __init__(self, log: PartsLog, least: int, has_starts: bool) -> None:
        self._log, self.partitions, self._has_starts = log, log.divide(least), has_starts

    def chunks(self) -> Iterator[Chunk]:
        pairing, dropped = self._log.pairing, Counter[Any]()
        last, counts = None, Counts()
        for each in self.partitions:
            between = [chunk.copy() for chunk in each.chunks()]  # their edges are known only afterwards
            if not self._has_starts:  # the first row of a partition has a mark even if successors were recorded
                between = [chunk._replace(starts=None) for chunk in between]
            last = yield from pairing.bridge(last, each.edges, dropped)
            yield from between
            counts = counts.join(each.counts)
        yield from pairing.finish(last, dropped)
        self._log.complete(counts.join(Counts(dropped=dropped)))


def test_partitions_give_the_rows_and_remarks_of_the_whole_log(tmp_path: Path) -> None:
    rng, n_logs, most = np.random.default_rng(0), 0, 0
    for _ in range(400):
        log = random_log(rng, tmp_path)
        if log is None:
            continue
        expected, remarks, warnings = rows(log), log.remarks, log.warnings
        divided = InPartitions(log, int(rng.integers(1, 25)), expected["starts"] is not None)
        found = rows(divided)  # type: ignore[arg-type]
        n_logs, most = n_logs + 1, max(most, len(divided.partitions))
        same_bits(found, expected)
        assert (log.remarks, log.warnings) == (remarks, warnings)
    assert n_logs > 300
    assert most > 10


def test_a_partition_of_a_table_is_sent_without_the_rows_around_it() -> None:
    """Arrow pickles whole buffers, of which a piece of a table is a view."""
    n = 100_000
    table = pyarrow.table({"state": np.zeros(n), "reward": np.arange(n, dtype=float), "kind": ["a", "b"] * (n // 2)})
    log = read(table.slice(7), observations=["state", "kind"], reward="reward")
    partitions = log.divide(n // 10)
    assert len(partitions) == 10
    for each in partitions:
        sent = pickle.dumps(each.load())
        assert len(sent) < 2 * table.nbytes / 10
        ours, expected = (list(part.chunks()) for part in (pickle.loads(sent), each))
        np.testing.assert_array_equal(ours[0].reward, expected[0].reward)
        np.testing.assert_array_equal(ours[0].observations, expected[0].observations)
