"""Tables and their files."""

import numpy as np
import pytest

from vrtd.tables import parse_csv, rows, rows_where, table, write_csv


def test_a_file_gives_back_the_same_bits(tmp_path):
    rng = np.random.default_rng(0)
    whole = {
        "count": rng.integers(-(2**62), 2**62, 50),
        "value": rng.normal(size=50) * 10.0 ** rng.integers(-300, 300, 50),
        "text": np.array([f'a,"b"\n{i}é' for i in range(50)]),
    }
    write_csv(whole, tmp_path / "t.csv")
    again = parse_csv((tmp_path / "t.csv").read_bytes())
    assert list(again) == list(whole)
    for name, column in whole.items():
        assert again[name].dtype.kind == column.dtype.kind
        assert np.array_equal(again[name], column)


def test_not_a_number_and_infinity_come_back(tmp_path):
    write_csv({"x": np.array([np.nan, np.inf, -np.inf, -0.0])}, tmp_path / "t.csv")
    again = parse_csv((tmp_path / "t.csv").read_bytes())["x"]
    assert np.array_equal(again, [np.nan, np.inf, -np.inf, 0.0], equal_nan=True)
    assert np.signbit(again[3])


def test_a_column_of_whole_floats_stays_float(tmp_path):
    write_csv({"x": np.array([1.0, 2.0])}, tmp_path / "t.csv")
    assert parse_csv((tmp_path / "t.csv").read_bytes())["x"].dtype == np.float64


def test_rows():
    whole = table([{"M": 1, "name": "a"}, {"M": 2, "name": "b"}, {"M": 2, "name": "c"}])
    assert rows(rows_where(whole, M=2, name="c")) == [{"M": 2, "name": "c"}]
    assert rows_where(whole, M=3)["name"].size == 0
    with pytest.raises(KeyError):
        rows_where(whole, size=2)


def test_text_that_spreadsheets_take_for_formulas_gets_an_apostrophe(tmp_path):
    names = np.array(["=1+1", "+a", "-b", "@c", "-1.5", "+2", "plain", "a=b"])
    content = write_csv({"=cmd()": names, "x": np.array([-1.0] * 8)}, tmp_path / "t.csv").decode()
    assert content.splitlines()[0] == "'=cmd(),x"
    assert [line.split(",")[0] for line in content.splitlines()[1:]] == [
        "'=1+1", "'+a", "'-b", "'@c", "-1.5", "+2", "plain", "a=b",
    ]  # fmt: skip
    assert content.splitlines()[1] == "'=1+1,-1.0"
