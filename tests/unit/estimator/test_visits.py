"""Counts of the observations of a log: exact, the same for any split and order, and bounded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from vrtd.estimator.visits import VisitCounts


def count(rows: Any, size: int | None = None) -> VisitCounts:
    visits = VisitCounts(rows.shape[1])
    for first in range(0, len(rows), size or len(rows)):
        visits.add(rows[first : first + (size or len(rows))])
    return visits


@pytest.mark.parametrize("n_numbers", [1, 2])
@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1.0, 1e5, 1e300])
def test_the_split_and_the_order_change_nothing(n_numbers: int, scale: float) -> None:
    rng = np.random.default_rng(0)
    rows = scale * rng.normal(size=(700, n_numbers))
    rows[:50] = 0.0  # a first chunk without a range must not decide on the cells
    points = 5.0 * scale * rng.normal(size=(50, n_numbers))
    whole = count(rows).near(points, 0.05)
    assert 0 < (whole > 0).sum() < 50
    for other in (count(rows, 7), count(rows[::-1], 30), count(rng.permutation(rows), 1)):
        assert np.array_equal(other.near(points, 0.05), whole)


@pytest.mark.parametrize("n_numbers", [1, 2])
def test_rows_within_the_distance_are_counted(n_numbers: int) -> None:
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(2000, n_numbers))
    points = rng.normal(size=(100, n_numbers))
    near = count(rows, 300).near(points, 0.1)
    distances = np.abs(rows[:, None] - points) / np.ptp(rows, axis=0)
    cell = 2.0 / (65536 if n_numbers == 1 else 256)  # of the range, at most
    for share, is_least in ((0.1 - cell, True), (0.1 + cell, False)):
        exact = (distances <= share).all(axis=-1).sum(axis=0)
        assert (near >= exact).all() if is_least else (near <= exact).all()


def test_states_are_counted_one_by_one() -> None:
    states = np.random.default_rng(2).integers(0, 60_000, 5000)
    visits = count(states[:, None], 64)
    assert np.array_equal(visits.near(np.arange(60_000)[:, None], 0.0), np.bincount(states, minlength=60_000))
    assert visits.is_whole.tolist() == [True]
    visits.add(np.array([[0.5]]))
    assert visits.is_whole.tolist() == [False]


def test_a_larger_range_needs_no_more_memory() -> None:
    visits, size = VisitCounts(2), VisitCounts(2)._counts.nbytes
    for power in range(-300, 301, 30):
        visits.add(np.array([[10.0**power, -(10.0**power)]]))
    assert visits._counts.nbytes == size <= 1 << 19
    assert visits._counts.sum() == visits.n_rows == 21


def test_points_outside_and_rows_that_are_not_finite() -> None:
    visits = count(np.array([[0.0], [1.0]]))
    visits.add(np.array([[np.nan], [5.0]]))  # refused elsewhere
    visits.add(np.array([[np.inf]]))
    assert visits.n_rows == 2
    assert visits.near(np.array([[-1e308], [1e308], [0.0]]), 0.01).tolist() == [0, 0, 1]
