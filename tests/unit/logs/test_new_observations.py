"""Observations to value: tables with the names of files that were written, arrays, and what is none of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars
import pyarrow as pa
import pytest

from vrtd.errors import DataError, InvalidInputError
from vrtd.features import Column, ObservationSpace
from vrtd.logs.new_observations import as_observations

CARDS = ObservationSpace("states", sizes=(32, 11, 2))
BOX = ObservationSpace("box", low=(None, 0.0), high=(None, 1.0))
DICT = ObservationSpace("box", (Column("pos[0]"), Column("mode=0")), low=(0.0, 0.0), high=(1.0, 1.0))
TABLE = ObservationSpace("columns", (Column("segment", ("new", "old")), Column("x", fill=2.0)))


@pytest.mark.parametrize(
    ("space", "columns", "expected"),
    [
        (CARDS, {"observation_0": [20], "observation_1": [10], "observation_2": [0], "value": [0.5]}, [[20, 10, 0]]),
        (ObservationSpace("states", (Column("a"), Column("b")), (3, 4)), {"b": [3], "a": [2]}, [[2, 3]]),
        (ObservationSpace("states", sizes=(16,)), {"state": [3, 4], "value": [0.1, 0.2]}, [3, 4]),
        (BOX, {"observation_0": [0.5], "observation_1": [1.0], "low": [0.0]}, [[0.5, 1.0]]),
        (ObservationSpace("features"), {"observation_0": [0.5], "observation_1": [1.0]}, [[0.5, 1.0]]),
        (ObservationSpace("box", low=(None,), high=(None,)), {"observation": [0.5, 1.5]}, [[0.5], [1.5]]),
        (DICT, {"pos[0]": [0.5], "mode=0": [1.0]}, [[0.5, 1.0]]),
        (
            TABLE,
            {"segment=new": [0.0], "segment=old": [1.0], "segment=other": [0.0], "x": [2.0], "x is missing": [1.0]},
            [[0.0, 1.0, 0.0, 2.0, 1.0]],
        ),
    ],
)
def test_tables_have_the_names_of_files_that_were_written(space: Any, columns: Any, expected: Any) -> None:
    found = as_observations(space, pa.table(columns))
    assert found.tolist() == expected
    assert (found.dtype.kind == "i") == (space.kind == "states")


def test_arrays_are_taken_as_they_are() -> None:
    assert as_observations(CARDS, [(20, 10, 0), (5, 1, 1)]).shape == (2, 3)
    assert as_observations(ObservationSpace("states", sizes=(16,)), [3, 4]).tolist() == [3, 4]
    assert as_observations(ObservationSpace("columns", (Column("x"),)), [0.5]).tolist() == [0.5]
    image = np.zeros((2, 4, 4))
    assert as_observations(ObservationSpace("box", low=(0.0,) * 16, high=(1.0,) * 16), image) is image


@pytest.mark.parametrize(
    ("space", "given", "message"),
    [
        (CARDS, (20, 10, 0), r"the shape \(n, 3\), but have the shape \(3,\). Pass a list with one row"),
        (CARDS, [[1, 2, 3], [1]], "must all have the same number of entries"),
        (TABLE, ["new", 1.0], "must be numbers or a table, but are .* Pass a table with the columns segment, x"),
        (
            TABLE,
            polars.Series([1.0]),
            "are a Series, which is a single column. Pass a table with the columns segment, x, or an array",
        ),
        (CARDS, pa.chunked_array([[1]]), "are a ChunkedArray, which is a single column. Pass an array of numbers"),
        (DICT, {"pos": [0.0], "mode": 1}, r"are a dict .* Pass a table with the columns pos\[0\], mode=0, or"),
    ],
)
def test_what_is_neither_a_table_nor_rows_is_refused(space: Any, given: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        as_observations(space, given)


def test_a_table_with_other_names_is_refused() -> None:
    columns = {"observation_0": [1], "observation_1": [1]}
    with pytest.raises(
        DataError, match="must have the columns observation_0 to observation_2, but has 'observation_0', "
    ):
        as_observations(CARDS, columns)
    with pytest.raises(DataError, match="must have the column observation, but has 'observation_0'"):
        as_observations(ObservationSpace("box", low=(None,), high=(None,)), columns)


def test_a_column_that_is_there_twice_is_refused() -> None:
    table = pa.Table.from_arrays([pa.array(["new"]), pa.array([1.0]), pa.array([2.0])], ["segment", "x", "x"])
    with pytest.raises(DataError, match="The table has several columns named 'x'"):
        as_observations(TABLE, table)
