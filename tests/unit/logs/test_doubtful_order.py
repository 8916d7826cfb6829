"""Rows that were sorted, but perhaps not into the order in which they were recorded."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.helpers.log_cases import rows
from vrtd.errors import DataError
from vrtd.logs import blocks, read

REMEDY = (
    "Check that order_by gives the order in which rows were recorded. If different episodes share a name, add a column "
    "that distinguishes them to episode=... besides 'episode'"
)


def sorted_log(terminated, episode, time=None):
    n = len(terminated)
    columns = {"obs": np.arange(float(n)), "r": np.zeros(n), "terminated": terminated, "episode": episode}
    return read(pa.table(columns | {"time": np.arange(n) if time is None else time}), order_by="time")


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_rows_after_the_end_of_their_episode_are_counted(monkeypatch, size):
    monkeypatch.setattr(blocks, "CHUNK_ROWS", size)
    rng = np.random.default_rng(0)
    terminated, episode = rng.random(60) < 0.2, rng.integers(0, 12, 60)
    n = sum(any(terminated[i] for i in range(k) if episode[i] == episode[k]) for k in range(60))
    log = sorted_log(terminated, episode)
    for _ in range(2):
        rows(log)
        message = (
            f"{n} of 60 rows ({n / 60:.1%}) come after a terminated row of their episode. {REMEDY}, such as 'file'"
        )
        assert log.warnings[-1] == message
        assert message in log.remarks


def test_few_rows_after_the_end_are_only_a_remark():
    terminated = np.arange(400) % 100 == 99
    terminated[395] = True
    log = sorted_log(terminated, np.arange(400) // 100)
    rows(log)
    assert "4 of 400 rows (1.0%) come after a terminated row of their episode" in log.remarks[0]
    assert log.warnings == ()


def test_ids_that_begin_anew_in_each_file_are_told_apart_by_the_file(tmp_path):
    for k in range(2):
        last, step = np.arange(40) % 10 == 9, np.arange(40) + 40 * k
        arrays = {"obs": np.arange(40.0), "r": np.zeros(40), "terminated": last, "episode": np.arange(40) // 10}
        np.savez(tmp_path / f"{k}.npz", **arrays, step=step)
    log = read(tmp_path, order_by="step")
    rows(log)
    assert log.warnings[0].startswith("40 of 80 rows (50.0%) come after a terminated row of their episode")
    log = read(tmp_path, order_by="step", episode=["episode", "file"])
    rows(log)
    assert log.warnings == ()
    assert not any("come after" in remark for remark in log.remarks)


def test_without_episodes_a_terminated_row_is_followed_by_others():
    n = 50
    table = pa.table({"obs": np.arange(float(n)), "r": np.zeros(n), "terminated": np.arange(n) % 5 == 4, "t": range(n)})
    log = read(table, order_by="t")
    rows(log)
    assert not any("come after" in remark for remark in log.remarks)


@pytest.mark.parametrize(
    "texts",
    [
        ["1", "2", "10"],
        ["1.5", "22.5", "3"],
        ["-2", "-10", "3"],
        ["1e3", "20", "5"],
        ["10.5", "2.25", "3.75"],
    ],
)
@pytest.mark.parametrize("size", [2, 1000])
def test_numbers_as_text_are_refused(monkeypatch, texts, size):
    monkeypatch.setattr(blocks, "CHUNK_ROWS", size)
    log = sorted_log([False] * 3, [0] * 3, texts)
    message = "Rows cannot be sorted by column 'time': it holds numbers as text, which sort as 1, 10, 2. Convert the"
    for _ in range(2):
        with pytest.raises(DataError, match=message):
            rows(log)


@pytest.mark.parametrize(
    ("texts", "is_remarked"),
    [
        (["1", "2", "x"], True),
        (["2024-05-01", "2024-05-02", "3.5.2024"], True),
        (["1.5.2024", "2.5.2024", "3.5.2024"], True),
        (["2024-05-01T00:00:01.5Z", "2024-05-01T00:00:01Z", "2024-05-01T00:00:02Z"], True),
        (["2024-05-01", "2024-05-02", "2024-06-01"], False),
        (["2024-05-01 10:00:00.500", "2024-05-01 11:00:00.000", "2024-06-01 00:00:00.125"], False),
        (["2024-05-01T10:00:00+00:00", "2024-05-01T11:00:00+00:00", "2024-06-01T00:00:00+00:00"], False),
        (["0001", "0002", "0010"], False),
        (["20240501", "20240502", "20240601"], False),
    ],
)
def test_other_text_is_sorted_and_remarked_unless_that_is_the_order(texts, is_remarked):
    log = sorted_log([False] * 3, [0] * 3, texts)
    assert rows(log)["observations"].tolist() == [0.0, 1.0]
    assert ("column 'time' holds text and was sorted as text" in log.remarks) == is_remarked


def test_episodes_that_go_on_in_another_file_are_remarked(tmp_path, monkeypatch):
    """Two files with the episodes 0 and 1; in the second one they may be others."""
    monkeypatch.setattr(blocks, "CHUNK_ROWS", 3)
    for k in range(2):
        table = pa.table({"x": np.arange(6.0), "r": np.ones(6), "e": [0, 0, 0, 1, 1, 1], "t": np.arange(6) + 10 * k})
        pq.write_table(table, tmp_path / f"{k}.parquet", row_group_size=2)
    columns = {"observations": "x", "reward": "r", "order_by": "t"}
    log = read(tmp_path, episode="e", **columns)
    rows(log)
    assert any("episodes continue in another file 2 times. If each file reuses" in remark for remark in log.remarks)
    apart = read(tmp_path, episode=["e", "file"], **columns)
    rows(apart)
    assert not any("another file" in remark for remark in apart.remarks)
