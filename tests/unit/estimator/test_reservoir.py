"""A uniform sample of the rows of a stream."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.helpers.statistics import z_limit
from tests.helpers.streams import some_rows, with_columns
from tests.reference.linear_fit import reservoir
from vrtd.estimator.reservoir import Reservoir, add, empty_reservoir
from vrtd.problems import Transitions

COLUMNS = ("phi", "reward", "phi_next", "discount", "weight", "ends")


def fill(rows: Transitions, cuts: Any, capacity: int, seed: int = 4) -> Reservoir:
    found = empty_reservoir(capacity, seed)
    for first, last in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        found = add(found, rows.part(first, last))
    return found


def bytes_of(rows: Transitions | None) -> list[bytes]:
    assert rows is not None
    return [getattr(rows, name).tobytes() for name in COLUMNS]


@pytest.mark.parametrize(("dtype", "weighted"), [("f8", True), ("f4", False)])
@pytest.mark.parametrize("n", [30, 50, 700], ids=["not full", "full", "many times over"])
def test_it_is_the_algorithm_of_one_row_at_a_time_however_rows_are_split(n: int, dtype: str, weighted: bool) -> None:
    rows, kept = some_rows(n, 3, weighted=weighted), reservoir(n, 50, seed=4)
    rows = with_columns(rows, phi=rows.phi.astype(dtype), phi_next=rows.phi_next.astype(dtype))
    cuts = np.sort(np.random.default_rng(n).integers(0, n, 12)).tolist()
    for found in (fill(rows, (), 50), fill(rows, cuts, 50), fill(rows, range(1, n), 50)):
        assert found.n_seen == n
        assert found.n_kept == len(kept)
        assert found.rows is not None
        assert found.rows.phi.dtype == dtype
        assert found.rows.is_weighted == weighted
        for name in COLUMNS:
            assert np.array_equal(getattr(found.rows, name), getattr(rows, name)[kept]), name


def test_rows_that_are_added_leave_the_reservoir_before_as_it_was() -> None:
    rows = some_rows(400, 3, weighted=True)
    for n in (20, 50, 200):
        before = fill(rows.part(0, n), (), 50)
        expected = bytes_of(before.rows)
        after = add(before, rows.part(n, 400))
        assert bytes_of(before.rows) == expected
        assert bytes_of(after.rows) == bytes_of(fill(rows, (), 50).rows)


def test_every_row_is_kept_equally_often() -> None:
    """A row i, counted from 0, that takes a place of i instead of i + 1 is seen."""
    n, capacity, n_runs = 8, 2, 10_000
    phi = np.arange(n, dtype=np.float64)[:, None]
    rows = Transitions(phi, np.zeros(n), phi, 0.5)
    counts = np.zeros(n)
    for seed in range(n_runs):
        kept = fill(rows, (), capacity, seed).rows
        assert kept is not None
        counts[kept.phi[:, 0].astype(int)] += 1.0

    def is_fine(probability: float) -> bool:
        error = np.sqrt(n_runs * probability * (1.0 - probability))
        return bool(np.abs(counts - n_runs * probability).max() / error < z_limit(n))

    assert is_fine(capacity / n)
    assert not is_fine(capacity / (n - 1))  # of the last row, with the planted bug
