"""What the last row of an episode is, which rows are dropped, and when that is a warning."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tests.helpers.log_cases import rows
from vrtd.errors import InvalidInputError
from vrtd.logs import from_arrays, read

LAST = "the last of an episode without a final observation"
ONE_PER_FILE = "no episode column and no end of an episode: each file is one trajectory"


def sessions(n: int, length: int, **columns):
    """A table of n rows in sessions without flags."""
    numbers = np.arange(n)
    return pa.table({"obs": numbers.astype(float), "r": np.ones(n), "episode": numbers // length} | columns)


@pytest.mark.parametrize(
    ("episode_end", "observations", "successors", "terminated", "truncated"),
    [
        ("terminated", [0, 1, 2, 3, 4, 5], [1, 2, 0, 4, 5, 0], [0, 0, 1, 0, 0, 1], [0, 0, 0, 0, 0, 0]),
        ("truncated", [0, 1, 3, 4], [1, 2, 4, 5], [0, 0, 0, 0], [0, 1, 0, 0]),
        ("drop", [0, 1, 3, 4], [1, 2, 4, 5], [0, 0, 0, 0], [0, 1, 0, 0]),
        (None, [0, 1, 3, 4], [1, 2, 4, 5], [0, 0, 0, 0], [0, 1, 0, 0]),
    ],
)
def test_ends_of_episodes_without_recorded_successors(episode_end, observations, successors, terminated, truncated):
    found = rows(read(sessions(6, 3), episode_end=episode_end))
    assert found["observations"].tolist() == observations
    assert found["next_observations"].tolist() == successors
    assert found["terminated"].tolist() == terminated
    assert found["truncated"].tolist() == truncated


@pytest.mark.parametrize(
    ("episode_end", "observations", "terminated", "truncated"),
    [
        ("terminated", [0, 1, 2, 3, 4, 5], [0, 0, 1, 0, 0, 1], [0, 0, 0, 0, 0, 0]),
        ("truncated", [0, 1, 2, 3, 4, 5], [0, 0, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0]),
        ("drop", [0, 1, 3, 4], [0, 0, 0, 0], [0, 1, 0, 0]),
        (None, [0, 1, 2, 3, 4, 5], [0, 0, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0]),
    ],
)
def test_ends_of_episodes_with_recorded_successors(episode_end, observations, terminated, truncated):
    log = read(sessions(6, 3, next_obs=np.arange(6.0) + 10), episode_end=episode_end)
    found = rows(log)
    assert found["observations"].tolist() == observations
    assert found["next_observations"].tolist() == [x + 10 for x in observations]
    assert found["terminated"].tolist() == terminated
    assert found["truncated"].tolist() == truncated
    assert log.warnings == ()


def test_flags_take_precedence_and_arrays_are_alike():
    flags = {"terminated": [0, 0, 1, 0, 0, 0, 0, 0], "truncated": [0, 0, 0, 0, 0, 1, 0, 0]}
    episode = [0, 0, 0, 1, 1, 1, 2, 2]
    log = from_arrays(np.arange(8.0), np.ones(8), **flags, episode=episode, episode_end="terminated")
    assert rows(log)["observations"].tolist() == [0, 1, 2, 3, 4, 6, 7]
    assert rows(log)["terminated"].tolist() == [0, 0, 1, 0, 0, 0, 1]
    assert log.remarks == ("1 row dropped: truncated without a final observation",)
    with pytest.raises(
        InvalidInputError, match=r"episode_end must be one of 'terminated', 'truncated', 'drop', but got"
    ):
        from_arrays([0.0], [0.0], episode_end="terminate")
    with pytest.raises(InvalidInputError, match=r"episode_end must be one of .*Did you mean 'truncated'"):
        read(sessions(6, 3), episode_end="truncatd")
    with pytest.raises(
        InvalidInputError, match=r"missing must be one of 'error', 'drop', 'indicator', but got 'ignore'"
    ):
        read(sessions(6, 3), missing="ignore")


def test_ends_of_files_are_ends_of_episodes(tmp_path):
    for k in range(3):
        np.savez(tmp_path / f"{k}.npz", obs=np.arange(3.0) + 3 * k, r=np.ones(3))
    log = read(tmp_path, episode_end="terminated")
    assert rows(log)["terminated"].tolist() == [0, 0, 1] * 3
    assert rows(log)["next_observations"].tolist() == [1, 2, 0, 4, 5, 0, 7, 8, 0]
    assert log.remarks == (ONE_PER_FILE,)
    log = read(tmp_path, episode_end="drop")
    assert rows(log)["observations"].tolist() == [0, 1, 3, 4, 6, 7]
    assert log.remarks == ("2 rows dropped: the last of a file", "1 row dropped: the last of the log", ONE_PER_FILE)
    log = read(tmp_path)
    rows(log)
    (warning,) = log.warnings
    assert warning.startswith("2 of 9 rows (22.2 %) were dropped: the last of a file. Name the columns that identify")


def test_many_dropped_rows_are_a_warning():
    log = read(sessions(10_000, 80))
    assert log.warnings == ()  # before a reading
    for _ in range(2):
        rows(log)
        assert log.remarks == (f"124 rows dropped: {LAST}", "1 row dropped: the last of the log")
        assert log.warnings == (
            f"124 of 10,000 rows (1.2 %) were dropped: {LAST}. "
            "Pass episode_end='terminated' to keep them if their episodes have terminated, "
            "or episode_end='drop' to drop them without a warning",
        )
    for episode_end in ("terminated", "truncated", "drop"):
        chosen = read(sessions(10_000, 80), episode_end=episode_end)
        rows(chosen)
        assert bool(chosen.warnings) == (episode_end == "truncated")
        assert bool(chosen.remarks) == (episode_end != "terminated")


def test_truncated_rows_that_cannot_be_kept_are_warned_of():
    log = read(sessions(10_000, 80), episode_end="truncated")
    rows(log)
    assert log.warnings == (
        f"124 of 10,000 rows (1.2 %) were dropped: {LAST}. Record the observations that follow "
        "these rows as next_observations, or pass episode_end='drop' to drop the rows without a warning",
    )


def test_few_dropped_rows_are_only_a_remark():
    log = read(sessions(10_000, 100))
    rows(log)
    assert log.remarks[0] == f"99 rows dropped: {LAST}"
    assert log.warnings == ()
    log = from_arrays(np.zeros(5), np.zeros(5))
    rows(log)
    assert log.remarks == ("1 row dropped: the last of the log",)  # one row, although it is a fifth of them
    assert log.warnings == ()


def test_a_warning_names_the_main_reason():
    truncated = np.isin(np.arange(600), [10, 20])
    log = from_arrays(np.zeros(600), np.zeros(600), truncated=truncated, episode=np.arange(600) // 60)
    rows(log)
    (warning,) = log.warnings
    assert warning.startswith(
        f"11 of 600 rows (1.8 %) were dropped: mostly {LAST}. Pass episode_end='terminated' to keep"
    )


def test_truncated_rows_without_a_final_observation_are_warned_of():
    truncated = np.arange(1000) % 50 == 49
    log = from_arrays(np.zeros(1000), np.zeros(1000), truncated=truncated)
    rows(log)
    (warning,) = log.warnings
    assert warning.startswith("20 of 1,000 rows (2.0 %) were dropped: truncated without a final observation. Record")
    assert "next_observations" in warning


@pytest.mark.parametrize(
    ("columns", "is_one"),
    [
        ({}, True),
        ({"terminated": [0, 0, 0]}, True),
        ({"next_obs": [1.0, 2.0, 3.0]}, True),
        ({"terminated": [0, 1, 0]}, False),
        ({"truncated": [0, 0, 1]}, False),
        ({"episode": [5, 5, 5]}, False),
    ],
)
@pytest.mark.parametrize("order_by", [None, "t"])
def test_a_table_without_episodes_is_one_trajectory(columns, is_one, order_by):
    log = read(pa.table({"obs": [0.0, 1.0, 2.0], "r": [0.0] * 3, "t": [1, 2, 3]} | columns), order_by=order_by)
    remark = "no episode column and no end of an episode: all rows are one trajectory"
    assert remark not in log.remarks  # before a reading
    for _ in range(2):
        rows(log)
        assert (remark in log.remarks) == is_one


def test_remarks_are_ordered_by_weight(tmp_path):
    lines = [f"{i},1,{i // 4},{int(i % 8 == 7)},1.0,{100 - i}" for i in range(41)]
    (tmp_path / "a.csv").write_text("\n".join(["obs,r,episode,done,rho,time", *lines]))
    log = read(tmp_path / "a.csv", order_by="time")
    rows(log)
    beginnings = (
        f"10 rows dropped: {LAST}",
        "15 of 41 rows (36.6%) come after a terminated row of their episode. Check that order_by gives",
        "column 'done' does not distinguish termination from truncation",
        "column 'rho' is not used. Pass weight='rho' if it holds importance ratios",
        "rows were sorted by time within each episode, in a temporary file in ",
        f"{tmp_path}/a.csv is text, without checksums",
    )
    assert len(log.remarks) == len(beginnings) + 1
    assert log.remarks[1] == "1 row dropped: the last of the log"
    for remark, beginning in zip([log.remarks[0], *log.remarks[2:]], beginnings, strict=True):
        assert remark.startswith(beginning)
