"""Missing values: an error, rows that are dropped without joining their neighbours, or numbers that are filled in."""

from __future__ import annotations

from collections import Counter

import h5py
import numpy as np
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.helpers.log_cases import rows, same_bits
from vrtd.errors import DataError, InvalidInputError
from vrtd.features import Column, ObservationSpace
from vrtd.logs import read

MISSING, MISSING_NEXT = "a value is missing", "the next observation is missing"


def random_rows(rng: np.random.Generator, has_next: bool) -> dict[str, list]:
    """Columns with nulls. The number x is the number of its row, so that every pair can be told."""
    n = int(rng.integers(1, 25))
    share = rng.choice([0.0, 0.1, 0.4])

    def holes(values) -> list:
        return [None if rng.random() < share else value for value in values]

    table = {
        "x": holes([float(i) for i in range(n)]),
        "c": holes(["a" if i % 2 else "b" for i in range(n)]),
        "r": holes([float(i) for i in range(n)]),
        "terminated": holes((rng.random(n) < 0.2).tolist()),
        "truncated": holes((rng.random(n) < 0.1).tolist()),
        "w": holes([1.0 + i for i in range(n)]),
    }
    if has_next:
        table |= {"next_x": holes([i + 0.5 for i in range(n)]), "next_c": holes(["a"] * n)}
    if rng.random() < 0.5:
        table["episode"] = np.cumsum(rng.random(n) < 0.2).tolist()
    return table


def drop_by_hand(table: dict[str, list]) -> tuple[list[tuple], Counter]:
    """Row by row: (row, successor or None, is truncated) of the rows that are kept, and why others are not."""
    n, has_next, episode = len(table["x"]), "next_x" in table, table.get("episode")
    reasons: list[str | None] = []
    for i in range(n):
        needed = ["x", "c", "r", "terminated", "truncated", "w"]
        if has_next and not table["terminated"][i]:
            needed += ["next_x", "next_c"]
        is_missing = any(table[name][i] is None for name in needed)
        reason = None
        lacks_next = has_next and None in (table["next_x"][i], table["next_c"][i])
        if has_next and episode is not None and lacks_next and not (table["terminated"][i] or table["truncated"][i]):
            if i + 1 == n:
                reason = "the last of the log"
            elif episode[i] != episode[i + 1]:
                reason = "the last of an episode without a final observation"
        if not has_next and not table["terminated"][i]:
            if table["truncated"][i]:
                reason = "truncated without a final observation"
            elif i + 1 < n and episode is not None and episode[i] != episode[i + 1]:
                reason = "the last of an episode without a final observation"
            elif i + 1 == n:
                reason = "the last of the log"
            elif not is_missing and (table["x"][i + 1] is None or table["c"][i + 1] is None):
                reason = MISSING_NEXT
        reasons.append(MISSING if reason is None and is_missing else reason)
    kept = []
    for i in range(n):
        if reasons[i] is not None:
            continue
        if table["terminated"][i]:
            kept.append((i, None, bool(has_next and table["truncated"][i])))
            continue
        is_cut = i + 1 < n and reasons[i + 1] not in (None, "the last of the log")
        if has_next:
            is_cut |= table["truncated"][i] or (i + 1 < n and episode is not None and episode[i] != episode[i + 1])
        kept.append((i, table["next_x"][i] if has_next else table["x"][i + 1], is_cut))
    return kept, Counter(reason for reason in reasons if reason is not None)


def is_start_by_hand(table: dict[str, list], i: int) -> bool:
    """Whether an episode begins with row i. A row that was dropped before it says nothing."""
    episode = table.get("episode", [0] * (i + 1))
    return i == 0 or bool(table["terminated"][i - 1] or table["truncated"][i - 1] or episode[i] != episode[i - 1])


@pytest.mark.parametrize("has_next", [False, True])
def test_dropped_rows_are_those_of_the_plain_form_and_join_nothing(has_next):
    rng = np.random.default_rng(5)
    n_joined = 0
    for _ in range(250):
        columns = random_rows(rng, has_next)
        kept, reasons = drop_by_hand(columns)
        kinds = {"x": pa.float64(), "c": pa.string(), "r": pa.float64(), "w": pa.float64(), "episode": pa.int64()}
        kinds |= {"next_x": pa.float64(), "next_c": pa.string(), "terminated": pa.bool_(), "truncated": pa.bool_()}
        table = pa.table({name: pa.array(column, kinds[name]) for name, column in columns.items()})
        table = pa.Table.from_batches(table.to_batches(max_chunksize=int(rng.integers(1, 12))))
        log = read(table, observations=["x", "c"], weight="w", missing="drop")
        if not kept:
            with pytest.raises(DataError, match="There is no transition in"):
                rows(log)
            continue
        whole = rows(log)
        assert whole["reward"].tolist() == [i for i, _, _ in kept]
        assert whole["observations"][:, 0].tolist() == [i for i, _, _ in kept]
        assert whole["weight"].tolist() == [i + 1.0 for i, _, _ in kept]
        assert whole["truncated"].tolist() == [is_cut for _, _, is_cut in kept]
        assert whole["starts"].tolist() == [is_start_by_hand(columns, i) for i, _, _ in kept]
        for row, (_, successor, _) in enumerate(kept):
            if successor is not None:
                assert whole["next_observations"][row, 0] == successor
                n_joined += 1
        remarks = {f"{n} row{'s' if n > 1 else ''} dropped: {reason}" for reason, n in reasons.items()}
        assert {remark for remark in log.remarks if "dropped" in remark} == remarks
    assert n_joined > 500


def drop(**columns) -> tuple[list, list, list, set]:
    log = read(polars.DataFrame(columns), observations="x", missing="drop")
    whole = rows(log)
    successors = whole["next_observations"].tolist()
    return (
        whole["observations"].tolist(),
        successors,
        whole["truncated"].tolist(),
        {r for r in log.remarks if "dropped" in r},
    )


def test_a_gap_in_the_middle_cuts_the_trajectory():
    x, successors, truncated, remarks = drop(x=[0.0, 1.0, 2.0, None, 4.0, 5.0, 6.0], r=[0.0] * 7)
    assert x == [0.0, 1.0, 4.0, 5.0]
    assert successors == [1.0, 2.0, 5.0, 6.0]
    assert truncated == [False, True, False, False]
    assert remarks == {
        f"1 row dropped: {MISSING}",
        f"1 row dropped: {MISSING_NEXT}",
        "1 row dropped: the last of the log",
    }


def test_gaps_at_the_start_at_the_end_and_two_in_a_row():
    x, successors, truncated, _ = drop(x=[None, 1.0, 2.0, None, None, 5.0, 6.0, 7.0, None], r=[0.0] * 9)
    assert x == [1.0, 5.0, 6.0]
    assert successors == [2.0, 6.0, 7.0]
    assert truncated == [True, False, True]
    ends = [False, False, True] * 3
    x, _, truncated, _ = drop(x=[None, 1.0, 2.0, 3.0, 4.0, None, 6.0, 7.0, 8.0], r=[0.0] * 9, terminated=ends)
    assert x == [1.0, 2.0, 3.0, 6.0, 7.0, 8.0]
    assert truncated == [False, False, True, False, False, False]


def test_a_row_without_its_reward_is_still_a_successor():
    x, successors, truncated, _ = drop(x=[0.0, 1.0, 2.0, 3.0], r=[0.0, None, 0.0, 0.0])
    assert x == [0.0, 2.0]
    assert successors == [1.0, 3.0]
    assert truncated == [True, False]


def test_missing_successors_that_were_recorded():
    x, successors, truncated, remarks = drop(
        x=[0.0, 1.0, 2.0, 3.0], next_x=[0.5, None, None, 3.5], r=[0.0] * 4, terminated=[False, False, True, False]
    )
    assert x == [0.0, 2.0, 3.0]  # a terminated row needs none
    assert successors == [0.5, 0.0, 3.5]
    assert truncated == [True, False, False]
    assert remarks == {f"1 row dropped: {MISSING}"}


def test_a_terminated_row_needs_no_successor_in_any_way():
    frame = polars.DataFrame({"s": [1, 2, 3], "next_s": [2, 3, None], "r": [0.0] * 3, "done": [False, False, True]})
    for missing in ("error", "drop", "indicator"):
        whole = rows(read(frame, missing=missing))
        assert whole["next_observations"][:2].tolist() == [2, 3]
        assert whole["terminated"].tolist() == [False, False, True]
    frame = frame.with_columns(done=False)
    with pytest.raises(
        DataError, match=r"A value is missing in the table, column next_s, row 2. Fill in the value, or pass"
    ):
        rows(read(frame))
    with pytest.raises(DataError, match="column s, has missing states, which have no mean to replace them"):
        read(frame, missing="indicator")


@pytest.mark.parametrize("missing", ["error", "drop", "indicator"])
def test_the_last_row_of_an_episode_may_lack_its_successor(missing):
    """As GROUP BY and LEAD, or groupby and shift, leave it."""
    columns = {"x": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], "r": [0.0] * 6, "episode": [0, 0, 0, 1, 1, 1]}
    plain = pa.table(columns)
    recorded = plain.append_column("next_x", pa.array([1.0, 2.0, None, 4.0, 5.0, None]))
    for n_rows in (1, 2, 6):
        table = pa.Table.from_batches(recorded.to_batches(max_chunksize=n_rows))
        for episode_end in ("terminated", "truncated", "drop", None):
            expected = read(plain, episode_end=episode_end)
            log = read(table, episode_end=episode_end, missing=missing)
            same_bits(rows(log), rows(expected))
            assert (log.remarks, log.warnings) == (expected.remarks, expected.warnings)


def test_a_missing_successor_within_an_episode_is_refused():
    columns = {"x": [0.0, 1.0, 2.0], "next_x": [None, 2.0, None], "r": [0.0] * 3, "episode": [0, 0, 0]}
    for kept in (columns, {name: column for name, column in columns.items() if name != "episode"}):
        with pytest.raises(
            DataError, match=r"A value is missing in the table, column next_x, row 0. Fill in the value, or pass"
        ):
            rows(read(polars.DataFrame(kept), episode_end="terminated"))


def test_a_dropped_first_row_of_a_file_cuts_the_file_before(tmp_path):
    for k, r in enumerate(([0.0, 0.0], [None, 0.0])):
        table = pa.table({"x": [0.0, 1.0], "next_x": [1.0, 2.0], "r": pa.array(r, pa.float64())})
        pq.write_table(table, tmp_path / f"{k}.parquet")
    for episode_end in ("terminated", "truncated", "drop", None):
        whole = rows(read(tmp_path, missing="drop", episode_end=episode_end))
        assert whole["truncated"].tolist() == [False, True, False]


@pytest.mark.parametrize("kind", [pa.int32(), pa.bool_(), pa.float32()])
def test_nulls_leave_the_type_of_observations_alone(kind):
    table = pa.table({"x": pa.array([1, None, 1, 1, 0]).cast(kind), "r": [0.0] * 5})
    whole = rows(read(pa.Table.from_batches(table.to_batches(max_chunksize=1)), missing="drop"))
    assert whole["observations"].dtype == (np.uint8 if kind == pa.bool_() else kind.to_pandas_dtype())
    assert whole["observations"].tolist() == [1, 1]


def test_vectors_with_missing_entries_or_missing_themselves():
    vectors = [[0.0, 1.0], None, [2.0, None], [3.0, float("nan")], [4.0, 5.0], [6.0, 7.0]]
    for kind in (pa.list_(pa.float64()), pa.list_(pa.float64(), 2)):
        table = pa.table({"x": pa.array(vectors, kind), "r": [0.0] * 6})
        whole = rows(read(table, missing="drop"))
        assert whole["observations"].tolist() == [[4.0, 5.0]]
        log = read(table, missing="indicator")
        assert log.space == ObservationSpace("columns", (Column("x_0", fill=3.0), Column("x_1", fill=13 / 3)))
        assert rows(log)["observations"].tolist() == [
            [0.0, 0.0, 1.0, 0.0],
            [3.0, 1.0, 13 / 3, 1.0],
            [2.0, 0.0, 13 / 3, 1.0],
            [3.0, 0.0, 13 / 3, 1.0],
            [4.0, 0.0, 5.0, 0.0],
        ]


@pytest.mark.parametrize("kind", [pa.list_(pa.float64()), pa.list_(pa.float64(), 2)])
@pytest.mark.parametrize("missing", ["drop", "indicator"])
def test_missing_vectors_do_not_depend_on_batches(kind, missing):
    vectors = [None, None, None, [0.0, 1.0], [2.0, 3.0], None, None, [4.0, 5.0], [6.0, 7.0], None]
    table = pa.table({"x": pa.array(vectors, kind), "r": np.arange(10.0)})
    table = table.append_column("next_x", pa.array([*vectors[1:], None], kind))
    for columns in (["x", "r"], ["x", "r", "next_x"]):
        part = table.select(columns)
        logs = [read(pa.Table.from_batches(part.to_batches(max_chunksize=n)), missing=missing) for n in (10, 1, 2, 3)]
        assert len({log.space for log in logs}) == 1
        for log in logs[1:]:
            same_bits(rows(log), rows(logs[0]))
            assert log.remarks == logs[0].remarks
    with pytest.raises(
        DataError, match="lists of the table, column x, is unknown, because they are null in the first 5,000 rows"
    ):
        read(pa.table({"x": pa.array([None, None], pa.list_(pa.float64())), "r": [0.0, 0.0]}), missing=missing)


def indicator_table() -> dict[str, list]:
    return {"x": [1.0, None, 3.0, 5.0], "y": [1, 2, 3, 4], "c": ["a", None, "b", "a"], "r": [0.0] * 4}


INDICATED = [
    [1.0, 0.0, 1.0, 1.0, 0.0, 0.0],
    [3.0, 1.0, 2.0, 0.0, 0.0, 1.0],
    [3.0, 0.0, 3.0, 0.0, 1.0, 0.0],
    [5.0, 0.0, 4.0, 1.0, 0.0, 0.0],
]


@pytest.mark.parametrize("form", ["polars", "pandas", "pandas category", "parquet", "csv", "csv words"])
def test_missing_numbers_are_filled_and_indicated(form, tmp_path):
    table = polars.DataFrame(indicator_table())
    data: object = table
    if form.startswith("pandas"):
        data = pandas.DataFrame(indicator_table())
        if form == "pandas category":
            data["c"] = data["c"].astype("category")
    elif form == "parquet":
        data = tmp_path / "a.parquet"
        table.write_parquet(data)
    elif form.startswith("csv"):
        data = tmp_path / "a.csv"
        table.write_csv(data, null_value="NA" if form == "csv words" else "")
    log = read(data, observations=["x", "y", "c"], missing="indicator")
    columns = (Column("x", fill=3.0), Column("y"), Column("c", ("a", "b")))
    assert log.space == ObservationSpace("columns", columns)
    for _ in range(2):
        whole = rows(log)
        assert whole["observations"].tolist() == INDICATED[:-1]
        assert whole["next_observations"].tolist() == INDICATED[1:]
        assert not any("'other'" in remark for remark in log.remarks)  # a missing category is no unseen value


@pytest.mark.parametrize("names", [["x"], ["x", "y"]])
def test_numbers_that_only_next_observations_lack_are_filled(names):
    x, done = [1.0, 2.0, 3.0, 4.0], [False, False, False, True]
    table = pa.table({"x": x, "y": x, "next_y": x, "next_x": [2.0, None, 4.0, None], "r": [0.0] * 4, "done": done})
    options = {"observations": names, "next_observations": [f"next_{name}" for name in names], "missing": "indicator"}
    log = read(table, **options)
    assert log.space.columns[0] == Column("x", fill=2.5)
    assert log.space.columns[1:] == tuple(Column(name) for name in names[1:])
    assert rows(log)["next_observations"][:3, :2].tolist() == [[2.0, 0.0], [2.5, 1.0], [4.0, 0.0]]
    whole = table.set_column(3, "next_x", pa.array([2.0, 3.0, 4.0, None]))
    assert read(whole, **options).space.columns[0] == Column("x")  # a terminated row needs none


def test_vectors_that_only_next_observations_lack_are_filled():
    vectors = pa.array([[2.0, 3.0], [4.0, None], None], pa.list_(pa.float64()))
    table = pa.table({"x": [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]], "next_x": vectors, "r": [0.0] * 3})
    table = table.append_column("terminated", pa.array([False, False, True]))
    log = read(table, missing="indicator")
    assert log.space.columns == (Column("x_0"), Column("x_1", fill=3.0))
    assert rows(log)["next_observations"][:2].tolist() == [[2.0, 3.0, 0.0], [4.0, 3.0, 1.0]]


def test_nan_in_arrays_of_files_is_missing(tmp_path):
    x = np.array([[1.0, 2.0], [np.nan, 3.0], [4.0, 5.0], [6.0, 7.0]])
    np.savez(tmp_path / "a.npz", x=x, r=np.zeros(4))
    assert rows(read(tmp_path / "a.npz", missing="drop"))["observations"].tolist() == [[4.0, 5.0]]
    log = read(tmp_path / "a.npz", missing="indicator")
    mean = 11 / 3
    assert log.space == ObservationSpace("columns", (Column("x_0", fill=mean), Column("x_1")))
    assert rows(log)["observations"].tolist() == [[1.0, 0.0, 2.0], [mean, 1.0, 3.0], [4.0, 0.0, 5.0]]
    (chunk,) = read(tmp_path / "a.npz").chunks()
    assert np.isnan(chunk.observations[1, 0])
    assert chunk.locate("observations", 1) == f"{tmp_path}/a.npz, column x, row 1, entry 0"


def test_a_column_without_any_value_is_filled_with_zero():
    table = pa.table({"x": pa.array([None] * 3, pa.float64()), "y": [1.0, 2.0, 3.0], "r": [0.0] * 3})
    log = read(table, observations=["x", "y"], missing="indicator")
    assert rows(log)["observations"].tolist() == [[0.0, 1.0, 1.0], [0.0, 1.0, 2.0]]


def test_a_first_missing_value_after_the_pilot_is_refused(tmp_path):
    x = pa.array([None if i == 5500 else float(i) for i in range(6000)])
    pq.write_table(pa.table({"x": x, "r": np.zeros(6000)}), tmp_path / "a.parquet")
    with pytest.raises(
        DataError,
        match=r"missing in .*parquet, column x, row 5500, .* only if one of its first 5,000 values is missing. "
        r"Fill in the value, or pass missing='drop'",
    ):
        rows(read(tmp_path / "a.parquet", missing="indicator"))


@pytest.mark.parametrize(
    ("columns", "missing", "message"),
    [
        (
            {"x": [1.0, None]},
            "error",
            "column x, row 1. Fill in the value, or pass missing='drop' or missing='indicator'",
        ),
        (
            {"x": ["a", None]},
            "error",
            "column x, row 1. Fill in the value, or pass missing='drop' or missing='indicator'",
        ),
        ({"r": [0.0, None]}, "error", "column r, row 1. Fill in the value, or pass missing='drop'.$"),
        ({"r": [0.0, None]}, "indicator", "column r, row 1, and missing='indicator' can fill in only observations"),
        (
            {"r": [0.0, float("nan")]},
            "indicator",
            "column r, row 1, and missing='indicator' can fill in only observations",
        ),
        ({"w": [1.0, None]}, "indicator", "column w, row 1, and .* can fill in only observations"),
        ({"terminated": [True, None]}, "indicator", "column terminated, row 1, and .* can fill in only observations"),
        (
            {"episode": ["a", None]},
            "drop",
            "episode must have a value in every row, .*column episode, row 1. Fill .*, or drop",
        ),
        ({"episode": [1.0, float("nan")]}, "error", "episode must have a value in every row, .*column episode, row 1"),
        ({"x": [1, None]}, "indicator", "column x, has missing states, which have no mean to replace them"),
    ],
)
def test_missing_values_that_are_refused(columns, missing, message):
    table = pa.table({"x": [1.0, 2.0], "r": [0.0, 1.0], "w": [1.0, 1.0], **columns})
    with pytest.raises(DataError, match=message):
        rows(read(table, weight="w", missing=missing))


def test_the_first_row_of_a_missing_value_is_named_with_its_column():
    table = pa.table({"x": [1.0, 2.0, None], "y": [1.0, None, 2.0], "r": [None, 1.0, 1.0]})
    with pytest.raises(DataError, match="column r, row 0"):
        rows(read(table, observations=["x", "y"]))
    with pytest.raises(DataError, match="column y, row 1"):
        rows(read(table.set_column(2, "r", [[0.0] * 3]), observations=["x", "y"]))


def test_the_choice_is_checked():
    table = pa.table({"x": [1.0, 2.0], "r": [0.0, 1.0]})
    with pytest.raises(
        InvalidInputError, match=r"missing must be one of 'error', 'drop', 'indicator', but got 'dorp'. Did"
    ):
        read(table, missing="dorp")


def test_data_sets_of_episodes_can_drop_but_not_fill(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["num_episodes"] = 1
        file["observations_0"] = np.array([[0.0], [1.0], [np.nan], [3.0], [4.0]])
        file["rewards_0"], file["terminated_0"] = np.zeros(5), True
    whole = rows(read(tmp_path / "a.h5", missing="drop"))
    assert whole["observations"].ravel().tolist() == [0.0, 3.0, 4.0]
    assert whole["truncated"].tolist() == [True, False, False]
    with pytest.raises(
        InvalidInputError, match=r"missing must be 'error' or 'drop' for the d3rlpy file .*, but is 'indicator'"
    ):
        read(tmp_path / "a.h5", missing="indicator")


def with_gaps(n_gaps: int):
    """A table of 200 rows, in which x lacks values at the end of episodes of ten rows, and r lacks one."""
    is_gap = (np.arange(200) % 10 == 9) & (np.arange(200) < 10 * n_gaps)
    x = pa.array(np.arange(200.0), mask=is_gap)
    reward = pa.array(np.zeros(200), mask=np.arange(200) == 3)
    return pa.table({"x": x, "r": reward, "next_x": np.arange(200.0), "episode": np.arange(200) // 10})


def test_many_rows_dropped_for_missing_values_are_a_warning():
    log = read(with_gaps(4), missing="drop")
    assert log.warnings == ()  # before a reading
    for _ in range(2):
        rows(log)
        assert log.warnings == (
            "5 of 200 rows (2.5 %) were dropped because a value is missing, most often in column 'x' (4 times). "
            "Pass missing='indicator' to keep these rows",
        )
    table = with_gaps(0)
    log = read(table.set_column(1, "r", pa.array(np.zeros(200), mask=np.arange(200) % 50 == 3)), missing="drop")
    rows(log)
    assert log.warnings[0].endswith("most often in column 'r' (4 times). Fix the column")
    few = read(with_gaps(1), missing="drop")
    rows(few)
    assert few.warnings == ()
    assert f"2 rows dropped: {MISSING}" in few.remarks


def test_values_that_were_filled_in_are_counted():
    frame = polars.DataFrame({"x": [0.0, None, 2.0, None], "c": ["a", None, "b", "a"], "r": [0.0] * 4})
    log = read(frame, observations=["x", "c"], missing="indicator")
    for _ in range(2):
        rows(log)
        assert "2 missing values of column 'x' filled in" in log.remarks
        assert "1 missing value of column 'c' filled in" in log.remarks
    vectors = pa.table({"obs": [[1.0, None], [None, None], [2.0, 3.0]], "r": [0.0] * 3})
    log = read(vectors, missing="indicator")
    rows(log)
    assert "3 missing values of column 'obs' filled in" in log.remarks
