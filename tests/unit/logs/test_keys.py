"""Columns that tell episodes apart or give the order: no value is rounded, and types that mean the same compare."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from tests.helpers.log_cases import rows
from vrtd.errors import DataError
from vrtd.logs import read

LARGE = 2**60  # neighbours of it are one float64


def exact_types() -> dict[str, pa.Array]:
    """Columns whose entries 0 and 1, 2 and 3 are equal, in the order of rows; as float64 all would be equal."""
    numbers = [LARGE + k for k in (1, 1, 2, 2)]
    cents = [Decimal(2**57 + k) / 100 for k in (1, 1, 2, 2)]
    return {
        "int64": pa.array(numbers),
        "uint64": pa.array([2**63 + k for k in (1, 1, 2, 2)], pa.uint64()),
        "decimal": pa.array([Decimal(number) for number in numbers], pa.decimal128(38, 0)),
        "cents": pa.array(cents, pa.decimal128(20, 2)),
        "negative": pa.array([Decimal(-LARGE - k) for k in (2, 2, 1, 1)], pa.decimal256(40, 0)),
        "timestamp": pa.array(numbers, pa.timestamp("ns", "UTC")),
        "duration": pa.array(numbers, pa.duration("ns")),
        "time": pa.array([1, 1, 2, 2], pa.time64("ns")),
        "date": pa.array([1, 1, 2, 2], pa.date32()),
        "dictionary": pa.array([Decimal(number) for number in numbers]).dictionary_encode(),
    }


@pytest.mark.parametrize("name", exact_types())
def test_keys_are_exact(name):
    key = exact_types()[name]
    table = pa.table({"x": [0.0, 1.0, 2.0, 3.0], "r": [0.0] * 4, "k": key})
    whole = rows(read(table, observations="x", episode="k", episode_end="terminated"))
    assert whole["terminated"].tolist() == [False, True, False, True]
    order = np.array([2, 0, 3, 1])
    log = read(table.take(pa.array(order)), observations="x", order_by="k", episode_end="terminated")
    assert rows(log)["observations"].tolist() == [0.0, 1.0, 2.0, 3.0]


def test_missing_and_large_decimals_are_refused():
    table = pa.table({"x": [0.0, 1.0], "r": [0.0] * 2, "k": pa.array([Decimal(1), None])})
    with pytest.raises(DataError, match=r"episode must have a value in every row, but .*column k, row 1"):
        rows(read(table, episode="k"))
    table = pa.table({"x": [0.0, 1.0], "r": [0.0] * 2, "k": pa.array([Decimal(1), Decimal(2**63)])})
    with pytest.raises(
        DataError, match=r"must hold decimals with at most 18 digits, but has 9223372036854775808 in row 1"
    ):
        rows(read(table, order_by="k"))


@pytest.mark.parametrize("kind", [">f8", ">i4", ">M8[s]", "f2", "S4", "?"])
def test_arrays_of_any_type_give_an_order(tmp_path, kind):
    times = np.array([1, 0] if kind == "?" else [3, 1, 2])
    np.savez(tmp_path / "a.npz", x=times.astype(float), r=np.zeros(times.size), t=times.astype(kind))
    whole = rows(read(tmp_path / "a.npz", observations="x", order_by="t", episode_end="terminated"))
    assert whole["observations"].tolist() == sorted(times.tolist())


def test_a_long_double_is_refused(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros(2), r=np.zeros(2), t=np.zeros(2, np.longdouble))
    with pytest.raises(DataError, match="column t, must have numbers of at most 64 bits, but has dtype "):
        rows(read(tmp_path / "a.npz", order_by="t"))


def test_bytes_and_text_name_the_same_episode(tmp_path):
    for k, names in enumerate((np.array(["a", "é"]), np.array(["é".encode(), b"longer"]))):
        np.savez(tmp_path / f"{k}.npz", x=np.array([0.0, 1.0]) + 2 * k, r=np.zeros(2), e=names)
    log = read(tmp_path, observations="x", episode="e", episode_end="terminated")
    assert rows(log)["terminated"].tolist() == [True, False, True, True]
    log = read(tmp_path, observations="x", episode="e", order_by="x", episode_end="terminated")
    assert rows(log)["observations"].tolist() == [0.0, 3.0, 1.0, 2.0]
    assert rows(log)["terminated"].tolist() == [True, True, False, True]


def write_csv(path, times) -> None:
    lines = [f"{k}.5,0,{time}" for k, time in enumerate(times)]
    path.write_text("\n".join(["x,r,t", *lines]) + "\n")


def test_whole_numbers_in_one_file_and_fractions_in_another(tmp_path):
    for first, second in ((["3", "1"], ["2.5", "0.5"]), (["2.5", "0.5"], ["3", "1"])):
        write_csv(tmp_path / "0.csv", first)
        write_csv(tmp_path / "1.csv", second)
        log = read(tmp_path, order_by=["t"], observations="t", episode_end="terminated")
        assert rows(log)["observations"].tolist() == [0.5, 1.0, 2.5, 3.0]
        log = read(tmp_path, order_by="t", observations="x", episode_end="terminated")
        places = [chunk.locate("reward", row) for chunk in log.chunks() for row in range(chunk.n_rows)]
        expected = (
            [("1", 1), ("0", 1), ("1", 0), ("0", 0)] if first[0] == "3" else [("0", 1), ("1", 1), ("0", 0), ("1", 0)]
        )
        assert places == [f"{tmp_path}/{file}.csv, column r, row {row}" for file, row in expected]


def test_whole_numbers_of_text_are_exact(tmp_path):
    write_csv(tmp_path / "a.csv", [LARGE + 2, LARGE + 1, LARGE])
    whole = rows(read(tmp_path / "a.csv", observations="x", order_by="t", episode_end="terminated"))
    assert whole["observations"].tolist() == [2.5, 1.5, 0.5]


@pytest.mark.parametrize("other", ["a", "2020-01-01", "2020-01-01 10:00:00", "true"])
def test_files_with_other_types_of_order_are_both_named(tmp_path, other):
    write_csv(tmp_path / "0.csv", [1, 2])
    write_csv(tmp_path / "1.csv", [other, other])
    with pytest.raises(
        DataError,
        match=r"same columns, but column 't' is of type numbers in .*0\.csv and of type .* in .*1\.csv. Convert",
    ):
        read(tmp_path, order_by="t")


def test_an_order_that_changes_its_type_within_a_file_is_named(tmp_path):
    write_csv(tmp_path / "a.csv", [*range(400_000), 1.5])  # beyond the block that tells the type
    log = read(tmp_path / "a.csv", order_by="t")
    with pytest.raises(DataError, match=r"Line 400002 of .*, column t, must have type int64, as in the first .*'1\.5'"):
        rows(log)
