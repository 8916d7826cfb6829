"""What cannot be learned from: one kind of error, which names the file, the column and the row."""

from __future__ import annotations

import h5py
import numpy as np
import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.helpers.log_cases import episodic, rows
from vrtd.errors import DataError, InvalidInputError
from vrtd.files import translate_errors
from vrtd.logs import from_arrays, read, write


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], []), "There is no transition in the arrays: no rows"),
        (([[1.0]], [1.0]), "There is no transition in the arrays: 1 row, none with a successor"),
        (([[1.0], [2.0]], [1.0]), "reward must have one entry per row, but has 1 entries for 2 observations"),
        (
            ([[1.0], [2.0, 3.0]], [1.0, 2.0]),
            "observations cannot be converted to an array: .* Pass rows of equal length",
        ),
        ((3.0, [1.0]), "observations must have one entry per row, but is a single float64"),
        (
            (["a", "b"], [1.0, 2.0]),
            r"observations must be an array of numbers, but has dtype <U1 and shape \(2,\). Convert it",
        ),
        (([1.0, 2.0], ["a", "b"]), "reward must be an array of numbers, but has dtype <U1"),
        (
            ([1.0, 2.0], np.ones((2, 2))),
            r"reward must have one entry per row, but has shape \(2, 2\). Name or pass a single",
        ),
        (([1.0, 2.0], [1j, 2j]), "reward must be an array of numbers, but has dtype complex128"),
        (
            ([1.0, 2.0], [1, 2], [[1.0], [2.0]]),
            r"next_observations must have the shape of the observations, \(\) per row, but has \(1,\)",
        ),
        (
            ([1.0, 2.0], [1, 2], [1.0, 2.0], [0, 2]),
            "A flag must be 0 or 1, but is 2 in array terminated, row 1. Fix the value",
        ),
        (
            ([1.0, 2.0], [1, 2], [1.0, 2.0], [0, np.nan]),
            "A flag must be 0 or 1, but is nan in array terminated, row 1",
        ),
        (([1.0, 2.0], [1, 2], [1.0, 2.0], ["y", "n"]), "terminated must be an array of True and False, or 1 and 0"),
        (
            ([1.0, 2.0], [1, 2], [1.0, 2.0], None, [True]),
            "truncated must have one entry per row, but has 1 entries for 2",
        ),
        (
            ([1.0, 2.0], [1, 2], [1.0, 2.0], None, None, [[1, 2]]),
            r"weight must have one entry per row, but has shape \(1, 2\)",
        ),
    ],
)
def test_arrays_that_are_refused(arguments, message):
    with pytest.raises(DataError, match=message):
        list(from_arrays(*arguments).chunks())


def test_places_in_arrays():
    observations = np.zeros((4, 3))
    observations[2, 1] = np.inf
    (chunk,) = from_arrays(observations, np.zeros(4), observations).chunks()
    assert chunk.locate("observations", 2) == "array observations, row 2, entry 1"
    assert chunk.locate("reward", 1) == "array reward, row 1"
    assert chunk.locate("terminated", 3) == "array terminated, row 3"
    (chunk,) = from_arrays(nan_at(2, (1, 0)), np.zeros(4)).chunks()
    assert chunk.locate("next_observations", 1) == "array observations, row 2, entry (1, 0)"


def nan_at(row, entry):
    values = np.zeros((4, 2, 2))
    values[(row, *entry)] = np.nan
    return values


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".npz"])
def test_places_in_files(tmp_path, suffix):
    case = episodic(200_000, dtype=np.float64)
    for name, row, entry in (("observations", 150_001, 1), ("next_observations", 199_999, 2)):
        case[name][row, entry] = np.nan
    case["reward"][70_000] = np.inf
    path = tmp_path / f"log{suffix}"
    write(from_arrays(**case), path)
    places = {}
    for chunk in read(path).chunks():
        for name in ("observations", "next_observations", "reward"):
            values = getattr(chunk, name).reshape(chunk.reward.size, -1)
            for row in np.flatnonzero(~np.isfinite(values).all(axis=1)):
                places[name] = chunk.locate(name, int(row))
    columns = {"observations": "obs_1", "next_observations": "next_obs_2", "reward": "reward"}
    inside = {"observations": ", entry 1", "next_observations": ", entry 2", "reward": ""}
    if suffix == ".npz":
        columns = {name: name for name in columns}
    else:
        inside = dict.fromkeys(inside, "")
    at = {"observations": 150_001, "next_observations": 199_999, "reward": 70_000}
    assert places == {name: f"{path}, column {columns[name]}, row {at[name]}{inside[name]}" for name in columns}


def test_tables_that_are_refused():
    with pytest.raises(
        InvalidInputError,
        match=r"or a table with the Arrow C stream .*, but is the ndarray array.*pass a table of polars",
    ):
        read(np.zeros(3))
    for column, kind in ((["a", "b"], "string"), ([None, None], "null"), ([[1.0], [2.0]], "list")):
        with pytest.raises(DataError, match=f"the table, column r, must hold numbers, but has type {kind}"):
            read(pa.table({"obs": [1.0, 2.0], "r": column}))
    with pytest.raises(DataError, match="There is no transition in the table: no rows"):
        read(pa.table({"obs": pa.array([], pa.float64()), "r": pa.array([], pa.float64())}))
    with pytest.raises(DataError, match="must be columns with one number per row, but have the shapes"):
        list(read(pa.table({"obs_0": [[1.0], [2.0]], "obs_1": [[1.0], [2.0]], "r": [1.0, 2.0]})).chunks())


def test_nulls_are_refused_with_their_row(tmp_path):
    obs, r = np.arange(100_000.0), pa.array([None if i == 70_123 else 1.0 for i in range(100_000)])
    pq.write_table(pa.table({"obs": obs, "r": r}), tmp_path / "a.parquet")
    with pytest.raises(
        DataError,
        match=r"A value is missing in .*a.parquet, column r, row 70123. Fill in the value, or",
    ):
        list(read(tmp_path / "a.parquet").chunks())
    table = pa.table({"obs": [[1.0, 2.0], [3.0, None], [5.0, 6.0]], "r": [1.0, 2.0, 3.0]})
    with pytest.raises(DataError, match="A value is missing in the table, column obs, row 1"):
        list(read(table).chunks())
    with pytest.raises(DataError, match="A value is missing in the table, column obs, row 0"):
        list(read(table.slice(1)).chunks())
    (tmp_path / "a.csv").write_text("obs,r\n1,2\n3,\n")
    with pytest.raises(DataError, match=r"A value is missing in .*a.csv, column r, row 1"):
        list(read(tmp_path / "a.csv").chunks())


def test_lists_of_different_lengths_are_refused():
    table = pa.table({"obs": [[1.0, 2.0], [3.0, 4.0], [5.0]], "r": [1.0, 2.0, 3.0]})
    with pytest.raises(
        DataError,
        match="The lists of the table, column obs, must have the same length, but there are 1 entries in row 2",
    ):
        list(read(table).chunks())
    table = pa.Table.from_batches(pa.table({"obs": [[1.0, 2.0]] * 3 + [[1.0]] * 3, "r": [1.0] * 6}).to_batches(3))
    with pytest.raises(
        DataError,
        match=r"The observations of the table must have the same shape in every row, but have \(1,\) .* \(2,\) before",
    ):
        list(read(table).chunks())


def test_files_with_different_columns_are_refused(tmp_path):
    pq.write_table(pa.table({"obs": [1.0, 2.0], "r": [1.0, 2.0]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"obs": pa.array([1.0], pa.float32()), "r": [1.0]}), tmp_path / "b.parquet")
    with pytest.raises(
        DataError,
        match=r"same columns, but column 'obs' is of type double in .*a.parquet and of type float in .*b.",
    ):
        read(tmp_path)
    pq.write_table(pa.table({"obs": [1.0], "r": [1.0], "done": [True]}), tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"column 'done' is missing in .*a.parquet and of type bool in .*b.parquet"):
        read(tmp_path)
    pq.write_table(pa.table({"state": [1.0], "r": [1.0]}), tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"column 'obs' is of type double in .*a.parquet and missing in .*b.parquet"):
        read(tmp_path)
    pq.write_table(pa.table({"r": [1.0], "more": [1], "obs": [1.0]}), tmp_path / "b.parquet")
    assert read(tmp_path).n_rows == 3
    np.savez(tmp_path / "a.npz", obs=np.zeros((3, 2)), r=np.zeros(3))
    np.savez(tmp_path / "b.npz", obs=np.zeros((3, 3)), r=np.zeros(3))
    with pytest.raises(
        DataError, match=r"column 'obs' is of type float64 \(2,\) in .*a.npz and of type float64 \(3,\) in .*b.npz"
    ):
        read(tmp_path, format="npz")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is damaged, truncated or of another format: ArrowInvalid: Empty CSV file"),
        ("obs,r\n", "There is no transition in .*a.csv: no rows"),
        (
            "obs,r\n1,2\n3\n",
            "Line 3 of .*a.csv cannot be read: Expected 2 columns, got 1",
        ),
        (
            "obs,r\n1,2\n3,4\nx,5\n",
            "Line 4 of .* cannot be read: CSV conversion error to double: invalid value 'x'. Fix the line",
        ),
        (
            "obs,r,done\n1,2,0\n3,4,2\n",
            "column done, must hold flags \\(1, 1.0, true, .* no, n\\), but has .2. in line 3. Convert",
        ),
        ("obs\n1\n", "has no column for reward"),
        ("1,2\n3,4\n", "has no column for observations"),
    ],
)
def test_csv_files_that_are_refused(tmp_path, text, message):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        list(read(tmp_path / "a.csv").chunks())


def test_flags_in_csv_are_words_or_numbers(tmp_path):
    (tmp_path / "a.csv").write_text(
        "obs,r,terminated,truncated,ep\n1,1,True,0.0,a\n1,1,false,1,a\n1,1,0,false,b\n2,2,1,0,b\n"
    )
    log = read(tmp_path / "a.csv")
    assert [chunk.terminated.tolist() for chunk in log.chunks()] == [[True, False, True]]
    words = {"yes": "no", "YES": "NO", "Yes": "No", "y": "n", "Y": "N", "t": "f", "T": "F", "TRUE": "FALSE", " 1": "0 "}
    for yes, no in words.items():
        (tmp_path / "a.csv").write_text(f"obs,r,over,next_obs\n1,1,{yes},2\n2,1,{no},3\n3,1,{yes},4\n")
        (chunk,) = read(tmp_path / "a.csv", terminated="over").chunks()
        assert chunk.terminated.tolist() == [True, False, True], yes


def test_a_column_that_holds_no_flags_is_refused_with_its_line(tmp_path):
    lines = ["1,1,no"] * 70_000 + ["1,1,maybe"]
    (tmp_path / "a.csv").write_text("\n".join(["obs,r,over", *lines]))
    message = (
        r"column over, must hold flags \(1, 1.0, true, t, yes, y or 0, .*, n\), but has 'maybe' in line 70002. Conv"
    )
    with pytest.raises(DataError, match=message):
        list(read(tmp_path / "a.csv", terminated="over").chunks())
    (tmp_path / "a.csv").write_text("obs,r,over\n1,1,no\n1,1,\n")
    with pytest.raises(DataError, match=r"A value is missing in .*a.csv, column over, row 1"):
        list(read(tmp_path / "a.csv", terminated="over").chunks())


def test_arrays_in_files_that_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", obs=np.zeros(3), r=np.zeros(2))
    with pytest.raises(
        DataError,
        match=r"columns of .*a.npz must have the same length, but r has 2 entries and obs has 3. Write arrays",
    ):
        read(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", obs=np.array([{}, {}]), r=np.zeros(2))  # a pickle
    with pytest.raises(
        DataError, match=r"column obs, must hold numbers, one entry per row, but has dtype object and shape \(\)"
    ):
        read(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", obs=np.array([["a"], ["b"]]), r=np.zeros(2))
    with pytest.raises(DataError, match="column obs, must hold numbers, one entry per row, but has dtype <U1"):
        read(tmp_path / "a.npz")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["obs"], file["r"] = [1.0, 2.0], ["a", "b"]
    with pytest.raises(DataError, match="column r, must hold numbers, one entry per row, but has dtype object"):
        read(tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file[b"\xff"] = [1.0]
    with pytest.raises(DataError, match=r"a.h5 is damaged: it has names that are not text. Write the file again"):
        read(tmp_path / "a.h5")


def test_what_libraries_raise_becomes_one_error():
    def failing(error):
        with translate_errors("a.npz"):
            raise error

    with pytest.raises(DataError, match=r"a.npz does not exist. Check the path"):
        failing(FileNotFoundError("a.npz"))
    with pytest.raises(DataError, match=r"a.npz is not readable: not allowed. Change its permissions"):
        failing(PermissionError("not allowed"))
    with pytest.raises(DataError, match=r"a.npz is damaged, truncated or of another format: KeyError: .*\.\.\.. Write"):
        failing(KeyError("x" * 1000))
    with pytest.raises(DataError, match=r"^a b$"):
        failing(DataError("a", "b"))


def test_files_without_checksums_carry_a_remark(tmp_path):
    table = pa.table({"obs": [1.0, 2.0], "r": [1.0, 2.0], "next_obs": [1.0, 2.0]})
    for name in "abc":
        pq.write_table(table, tmp_path / f"{name}.parquet", write_page_checksum=name == "c")
    assert read(tmp_path / "c.parquet").remarks == ()
    assert read(tmp_path / "a.parquet").remarks == (
        f"{tmp_path}/a.parquet has no page checksums: integrity cannot be verified",
    )
    assert read(tmp_path).remarks == (
        f"{tmp_path}/a.parquet has no page checksums (and 1 more of 3 files): integrity cannot be verified",
    )


def test_columns_of_pandas_that_are_not_used_may_hold_anything():
    index = pandas.Index([7, 7, 8], name="session")
    frame = pandas.DataFrame({"x": [0.0, 1.0, 2.0], "r": [0.0] * 3, "mixed": [1, "a", object()]}, index)
    log = read(frame, observations="x", episode="session", episode_end="terminated")
    assert rows(log)["terminated"].tolist() == [False, True, True]
    with pytest.raises(DataError) as error:
        read(frame, observations=["x", "mixed"])
    assert "Conversion failed for column mixed with type object" in error.value.problem
    assert "damaged" not in str(error.value)


def test_categories_that_are_intervals_are_refused():
    frame = pandas.DataFrame({"x": pandas.cut([1.0, 2.0, 3.0], 2), "r": [0.0] * 3})
    with pytest.raises(DataError, match=r"column x, must have categories that are text or numbers, but has .*interval"):
        read(frame)
    assert read(frame.astype({"x": str})).space.columns[0].levels == ("(0.998, 2.0]", "(2.0, 3.0]")
    with pytest.raises(DataError, match="column x, must hold numbers, text or times, but has type extension"):
        read(frame.assign(y=[0.0, 1.0, 2.0]), observations="y", episode="x")
