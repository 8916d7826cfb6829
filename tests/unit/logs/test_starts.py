"""First rows of episodes: recorded ones are kept, and end the episode before."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tests.helpers.ladders import Ladders
from tests.helpers.log_cases import episodic, rows, same_bits
from vrtd.errors import DataError
from vrtd.logs import from_arrays, from_env, read, write


def test_recorded_starts_divide_the_rows():
    table = pa.table({"x": np.arange(6.0), "r": np.ones(6), "is_first": [True, False, False, True, False, False]})
    log = read(table)
    found = rows(log)
    assert found["observations"].tolist() == [0.0, 1.0, 3.0, 4.0]  # the last row of an episode has no successor
    assert found["next_observations"].tolist() == [1.0, 2.0, 4.0, 5.0]
    assert found["truncated"].tolist() == [False, True, False, False]
    assert found["starts"].tolist() == [True, False, True, False]
    assert log.remarks[0] == "1 row dropped: the last of an episode without a final observation"
    assert not any("one trajectory" in remark for remark in log.remarks)
    found = rows(read(table, episode_end="terminated"))
    assert found["terminated"].tolist() == [False, False, True] * 2
    found = rows(read(table.append_column("next_x", [np.arange(1.0, 7.0)])))
    assert found["truncated"].tolist() == [False, False, True, False, False, False]


def test_an_observation_is_no_flag():
    table = pa.table({"is_first": [3.0, 4.0, 5.0], "r": np.ones(3)})
    assert rows(read(table, observations="is_first"))["starts"].tolist() == [True, False]
    with pytest.raises(
        DataError, match=r"A flag must be 0 or 1, but is 3.0 in .*column is_first, row 0. .*rename the col"
    ):
        rows(read(table, observations="r", reward="r"))


def test_recorded_starts_are_sorted_with_their_rows():
    x = np.arange(6.0)
    table = pa.table({"x": x, "r": x, "time": x, "is_first": x == 3})  # the first row of the log is none
    sorted_rows = rows(read(table.take([5, 3, 1, 0, 2, 4]), observations="x", order_by="time"))
    same_bits(sorted_rows, rows(read(table, observations="x")))
    assert sorted_rows["starts"].tolist() == [False, False, True, False]


@pytest.mark.parametrize("suffix", [".parquet", ".npz", ".csv"])
def test_starts_of_dropped_rows_are_those_of_the_file(tmp_path, suffix):
    case = episodic(200, dtype=np.float64)
    reward = case["reward"].copy()
    reward[::7] = np.nan
    columns = {"x": case["observations"][:, 0], "r": reward, "terminated": case["terminated"]}
    log = read(pa.table(columns), missing="drop")
    whole = rows(log)
    assert 0 < whole["starts"].sum() < case["terminated"].sum()  # some first rows were dropped
    assert whole["truncated"].sum() > 10  # gaps, after which no episode starts
    write(log, tmp_path / f"log{suffix}")
    same_bits(rows(read(tmp_path / f"log{suffix}")), whole)
    write(from_arrays(**case), tmp_path / f"b{suffix}")
    assert rows(read(tmp_path / f"b{suffix}"))["starts"] is None  # as in the log that was written


def test_a_recording_of_several_environments_keeps_starts_and_segments(tmp_path):
    log = from_env(Ladders([[5, -3], [200]], "NextStep"), "random", 64, segment=8)
    write(log, tmp_path / "log.parquet")
    live, found = rows(log), rows(read(tmp_path / "log.parquet", action="action"))
    ends = live["truncated"] | (np.arange(64) % 8 == 7)
    same_bits(found, live | {"truncated": ends})
