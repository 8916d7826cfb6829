"""Categories: text and categories of every library become the same numbers, which the first rows decide."""

from __future__ import annotations

from itertools import chain

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
from vrtd.logs import blocks, read, write
from vrtd.logs.new_observations import encode

LEVELS = ("new", "old", "vip")
SEGMENT = ["new", "vip", "old", "new", "old", "vip", "new"]
X = [0.5, 1.5, -1.0, 2.0, 0.0, 3.0, 4.0]
IS_MEMBER = [True, False, False, True, True, False, True]
NAMES = ["x", "segment", "member"]
SPACE = ObservationSpace("columns", (Column("x"), Column("segment", LEVELS), Column("member")))
ENCODED = np.array(
    [
        [x, *(float(level == segment) for level in LEVELS), 0.0, float(member)]
        for x, segment, member in zip(X, SEGMENT, IS_MEMBER, strict=True)
    ]
)


def columns(segment=SEGMENT) -> dict:
    return {"x": X, "segment": segment, "member": IS_MEMBER, "r": np.arange(7.0)}


def arrow(kind) -> pa.Table:
    array = pa.array(SEGMENT)
    return pa.table(columns(array.dictionary_encode() if kind is None else array.cast(kind)))


def written(path, table) -> str:
    if path.suffix == ".csv":
        polars.DataFrame(table).write_csv(path)
    elif path.suffix == ".npz":
        np.savez(path, **table)
    elif path.suffix == ".h5":
        with h5py.File(path, "w") as file:
            for name, values in table.items():
                file[name] = values
    else:
        pq.write_table(pa.table(table), path)
    return str(path)


FORMS = {
    "pandas category": lambda _: pandas.DataFrame(columns(pandas.Categorical(SEGMENT, ["unused", *LEVELS[::-1]]))),
    "pandas text": lambda _: pandas.DataFrame(columns()),
    "pandas objects": lambda _: pandas.DataFrame(columns(pandas.Series(SEGMENT, dtype=object))),
    "polars text": lambda _: polars.DataFrame(columns()),
    "polars Categorical": lambda _: polars.DataFrame(columns(polars.Series(SEGMENT, dtype=polars.Categorical))),
    "polars Enum": lambda _: polars.DataFrame(columns(polars.Series(SEGMENT, dtype=polars.Enum(LEVELS[::-1])))),
    "dictionary": lambda _: arrow(None),
    "string": lambda _: arrow(pa.string()),
    "large_string": lambda _: arrow(pa.large_string()),
    "string_view": lambda _: arrow(pa.string_view()),
    "parquet": lambda folder: written(folder / "a.parquet", columns()),
    "parquet dictionary": lambda folder: written(folder / "a.parquet", columns(pa.array(SEGMENT).dictionary_encode())),
    "csv": lambda folder: written(folder / "a.csv", columns()),
    "npz text": lambda folder: written(folder / "a.npz", columns()),
    "npz bytes": lambda folder: written(folder / "a.npz", columns(np.array(SEGMENT, dtype="S"))),
    "hdf5": lambda folder: written(folder / "a.h5", columns()),
    "hdf5 bytes": lambda folder: written(folder / "a.h5", columns(np.array(SEGMENT, dtype="S"))),
}


@pytest.mark.parametrize("form", FORMS)
def test_categories_of_every_library_become_the_same_numbers(form, tmp_path):
    log = read(FORMS[form](tmp_path), observations=NAMES)
    assert log.space == SPACE
    for _ in range(2):
        whole = rows(log)
        assert whole["observations"].dtype == np.float64
        assert whole["observations"].tolist() == ENCODED[:-1].tolist()
        assert whole["next_observations"].tolist() == ENCODED[1:].tolist()
    assert not any("segment" in remark for remark in [*log.remarks, *log.warnings])


@pytest.mark.parametrize("form", FORMS)
def test_tables_that_come_later_are_encoded_as_the_log_was(form, tmp_path):
    table = FORMS[form](tmp_path)
    if isinstance(table, str):
        table = columns()  # arrays by name
    assert encode(SPACE, table).tolist() == ENCODED.tolist()


def test_categories_of_numbers_are_sorted_as_numbers():
    values = [10, 2, 1, 2, 10]
    frame = pandas.DataFrame({"obs": pandas.Categorical(values), "r": 1.0})
    log = read(frame)
    assert log.space == ObservationSpace("columns", (Column("obs", ("1", "2", "10")),))
    assert rows(log)["observations"].argmax(axis=1).tolist() == [2, 1, 0, 1]
    assert encode(log.space, frame).argmax(axis=1).tolist() == [2, 1, 0, 1, 2]
    decimal = pa.table({"obs": pa.array([1.5, 0.5, 1.5]).dictionary_encode(), "r": [1.0] * 3})
    assert read(decimal).space.columns[0].levels == ("0.5", "1.5")


def long_table(n_unseen: int) -> pa.Table:
    """6000 rows, of which the last ones have values that the first 5000 rows do not show."""
    values = [("a", "b")[i % 2] for i in range(6000 - n_unseen)] + [f"z{i}" for i in range(n_unseen)]
    return pa.table({"obs": values, "r": np.arange(6000.0)})


def test_values_that_the_first_rows_do_not_show_are_counted():
    text = "a value in column 'obs' that does not occur in the first 5,000 rows and counts as 'other'"
    log = read(long_table(60))
    assert log.space.columns == (Column("obs", ("a", "b")),)
    for _ in range(2):
        observations = rows(log)["observations"]
        assert observations[:, 2].sum() == 59  # the last row is dropped
        assert (observations.sum(axis=1) == 1).all()
        assert f"60 of 6,000 rows (1.0%) have {text}" in log.remarks
        assert log.warnings == ()
    log = read(long_table(61))
    assert log.warnings == ()
    rows(log)
    assert log.warnings == (f"61 of 6,000 rows (1.0%) have {text}",)
    assert encode(log.space, pa.table({"obs": ["q", None, "a"]})).tolist() == [[0, 0, 1], [0, 0, 1], [1, 0, 0]]


def test_files_with_different_dictionaries_are_one_log(tmp_path):
    kinds = [pa.dictionary(pa.int8(), pa.string()), pa.large_string(), pa.dictionary(pa.int32(), pa.large_string())]
    texts = [["b", "a", "b"], ["c", "b", "c"], ["d", "a", "c"]]
    for name, kind, text in zip("abc", kinds, texts, strict=True):
        table = {"obs": pa.array(text).cast(kind), "r": [0.0, 1.0, 2.0], "episode": [7] * 3}
        pq.write_table(pa.table(table), tmp_path / f"{name}.parquet")
    log = read(tmp_path)
    whole = pa.table({"obs": list(chain(*texts)), "r": [0.0, 1.0, 2.0] * 3, "episode": [7] * 9})
    assert log.space == ObservationSpace("columns", (Column("obs", ("a", "b", "c", "d")),))
    assert read(whole).space == log.space
    for _ in range(2):
        same_bits(rows(log), rows(read(whole)))


@pytest.mark.parametrize("step", [17, 2500, 7000])
def test_any_split_gives_the_same_levels_and_bits(step, tmp_path, monkeypatch):
    table = long_table(300).append_column("x", pa.array([None if i % 7 == 3 else float(i) for i in range(6000)]))
    options = {"observations": ["x", "obs"], "missing": "indicator"}
    expected = read(table, **options)
    assert expected.space.columns[0].fill == np.mean([i for i in range(5000) if i % 7 != 3])
    split = pa.Table.from_batches(table.to_batches(max_chunksize=step))
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=max(step, 100))
    monkeypatch.setattr(blocks, "CHUNK_BYTES", 2**12)
    for log in (read(split, **options), read(tmp_path / "a.parquet", **options)):
        assert log.space == expected.space
        same_bits(rows(log), rows(expected))
        assert max(chunk.n_rows for chunk in log.chunks()) <= 4096 // (8 * 5) + 2


@pytest.mark.parametrize("step", [100, 4000, 9000])
def test_a_reader_can_be_looked_at_before_it_is_read_once(step):
    table = long_table(10)
    expected = rows(read(table))
    log = read(pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=step)))
    assert log.space == read(table).space
    same_bits(rows(log), expected)
    with pytest.raises(DataError, match="A RecordBatchReader can be read only once"):
        list(log.chunks())


def test_a_column_with_too_many_values_is_refused():
    table = pa.table({"obs": [f"user {i}" for i in range(1001)], "r": [0.0] * 1001})
    with pytest.raises(
        DataError,
        match=r"the table, column obs, must have at most 1,000 different values to be a category, but has 1,001 in the "
        r"first 1,001 rows. Leave it out .* name it as the episode if it is an identifier, or pass text=.hash. with",
    ):
        read(table)
    assert len(read(table.slice(1)).space.columns[0].levels) == 1000


def test_recorded_successors_have_the_levels_of_both_columns():
    table = pa.table({"s": ["a", "b"], "next_s": pa.array(["b", "c"]).dictionary_encode(), "r": [1.0, 2.0]})
    log = read(table)
    assert log.space == ObservationSpace("columns", (Column("s", ("a", "b", "c")),))
    whole = rows(log)
    assert whole["observations"].tolist() == [[1, 0, 0, 0], [0, 1, 0, 0]]
    assert whole["next_observations"].tolist() == [[0, 1, 0, 0], [0, 0, 1, 0]]
    with pytest.raises(
        DataError, match="the table, column next_s, must be like column s, but holds int64 instead of text"
    ):
        read(pa.table({"s": ["a", "b"], "next_s": [1, 2], "r": [1.0, 2.0]}))


def test_a_category_has_no_other_role(tmp_path):
    for data in (pa.table({"s": ["a", "b"], "r": [0.0, 1.0]}), tmp_path / "a.csv", tmp_path / "a.npz"):
        if isinstance(data, pa.Table):
            polars.from_arrow(data).write_csv(tmp_path / "a.csv")
            np.savez(tmp_path / "a.npz", s=np.array(["a", "b"]), r=np.zeros(2))
        with pytest.raises(
            DataError, match=r"column s, holds categories and cannot be both observations and episode. Leave it"
        ):
            read(data, episode="s")


def test_files_without_rows_do_not_matter(tmp_path):
    table = pa.table({"s": ["a", "b", "a"], "r": [0.0, 1.0, 2.0]})
    pq.write_table(table.slice(3), tmp_path / "a.parquet")
    pq.write_table(table, tmp_path / "b.parquet")
    log = read(tmp_path)
    assert log.space.columns[0].levels == ("a", "b")
    same_bits(rows(log), rows(read(table)))
    with pytest.raises(DataError, match=r"There is no transition in .*a.parquet: no rows"):
        read(tmp_path / "a.parquet")


def test_what_observations_are_is_known_from_types():
    def space(column, **others):
        return read(pa.table({"s": column, "r": [0.0, 1.0], **others})).space

    assert space(pa.array([3, 4], pa.uint8())) == ObservationSpace("states", (Column("s"),))
    assert space([3.0, 4.0]) == ObservationSpace("columns", (Column("s"),))
    assert space([True, False]) == ObservationSpace("columns", (Column("s"),))
    vectors = ObservationSpace("columns", (Column("s_0"), Column("s_1")))
    assert space([[1, 2], [3, 4]]) == vectors
    assert space(pa.array([[1, 2], [3, 4]], pa.list_(pa.int8(), 2))) == vectors
    assert space([[[1, 2]], [[3, 4]]]) == ObservationSpace("box")
    numbered = read(pa.table({"obs_1": [1, 2], "obs_0": [1, 2], "r": [0.0, 1.0]})).space
    assert numbered == ObservationSpace("columns", (Column("obs_0"), Column("obs_1")))


def test_what_observations_are_is_known_from_files(tmp_path):
    (tmp_path / "a.csv").write_text("s,r\n1,0\n2,0\n")
    assert read(tmp_path / "a.csv").space == ObservationSpace("states", (Column("s"),))
    (tmp_path / "b.csv").write_text("s,r\n1,0\n2.5,0\n")
    assert read(tmp_path / "b.csv").space == ObservationSpace("columns", (Column("s"),))
    assert read([tmp_path / "a.csv", tmp_path / "b.csv"]).space == ObservationSpace("columns", (Column("s"),))
    np.savez(tmp_path / "a.npz", s=np.zeros((3, 2)), r=np.zeros(3))
    assert read(tmp_path / "a.npz").space == ObservationSpace("columns", (Column("s_0"), Column("s_1")))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        # one mistake makes no category of a column of numbers
        (
            "obs,r\n1,2\n3,4\nx,5\n",
            "Line 4 of .*a.csv, column obs, cannot be read: .* invalid value 'x'",
        ),
        ("s,c,r\n1,a,2\n1,2,4\n", "Line 2 of .*a.csv, column c, cannot be read: .* invalid value 'a'"),
        ("s,c,r\n1,2024-01-01,2\n", r"a.csv, column c, must hold numbers or categories, but has type date32"),
    ],
)
def test_csv_columns_that_are_refused(text, message, tmp_path):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        list(read(tmp_path / "a.csv", observations=text.split(",r")[0].split(",")).chunks())


def test_a_later_entry_of_a_csv_file_that_does_not_fit_is_named(tmp_path):
    start = "s,f,r,pad\n" + f"1,true,0.5,{'-' * 1000}\n" * 5000  # more than the first block
    for column, line in (("s", "oops,true,1,-\n"), ("f", "1,maybe,1,-\n")):
        (tmp_path / "a.csv").write_text(start + line)
        with pytest.raises(DataError, match=f"Line 5002 of .*a.csv, column {column}, cannot be read"):
            list(read(tmp_path / "a.csv", observations=["s", "f"]).chunks())


def test_places_name_the_column_of_an_encoded_observation(tmp_path):
    values = [float(i) for i in range(6)]
    values[4] = np.inf
    table = pa.table({"segment": list("abcabc"), "x": values, "r": [0.0] * 6})
    pq.write_table(table, tmp_path / "a.parquet")
    (chunk,) = read(tmp_path / "a.parquet", observations=["segment", "x"]).chunks()
    assert chunk.locate("observations", 4) == f"{tmp_path}/a.parquet, column x, row 4"
    assert chunk.locate("next_observations", 3) == f"{tmp_path}/a.parquet, column x, row 4"
    (chunk,) = read(table, observations="segment").chunks()
    assert chunk.locate("observations", 4) == "the table, column segment, row 4"


def test_tables_of_plain_columns_vectors_and_states():
    frame = polars.DataFrame({"y": [1, 2], "x": [0.5, 1.5], "v": [[1.0, 2.0], [3.0, 4.0]]})
    assert encode(ObservationSpace("columns", (Column("x"), Column("y"))), frame).tolist() == [[0.5, 1.0], [1.5, 2.0]]
    assert encode(ObservationSpace("columns", (Column("x"),)), frame).shape == (2, 1)
    assert encode(ObservationSpace("columns", (Column("v_0"), Column("v_1"))), frame).tolist() == [[1, 2], [3, 4]]
    states = encode(ObservationSpace("states", (Column("y"),)), frame)
    assert (states.shape, states.dtype) == ((2,), np.int64)
    filled = ObservationSpace("columns", (Column("x", fill=9.0), Column("y")))
    later = {"x": [None, 1.0], "y": [2.0, 3.0]}
    assert encode(filled, later).tolist() == [[9.0, 1.0, 2.0], [1.0, 0.0, 3.0]]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            {"segmnt": ["a"], "x": [1.0]},
            "The table has no column 'segment'; it has 'segmnt', 'x'. Did you mean 'segmnt'",
        ),
        (
            {"segment": [1.0], "x": [1.0]},
            "The table, column segment, must hold a category, but holds double. Convert the",
        ),
        ({"segment": ["a"], "x": ["b"]}, "The table, column x, must hold numbers, but holds text. Convert the"),
        (
            {"segment": ["a", "a"], "x": [1.0, None]},
            "A value is missing in the table, column x, row 1, .* Fill in the value",
        ),
        ({"segment": [], "x": []}, "The table has no rows"),
    ],
)
def test_tables_that_do_not_fit_the_log_are_refused(table, message):
    space = ObservationSpace("columns", (Column("segment", ("a", "b")), Column("x")))
    if not table["x"]:
        table = pa.table(table, pa.schema({"segment": pa.string(), "x": pa.float64()}))
    with pytest.raises(DataError, match=message):
        encode(space, table)


def test_only_tables_with_names_are_encoded():
    with pytest.raises(
        InvalidInputError, match=r"A table must provide the Arrow C stream, but is of type ndarray. Pass"
    ):
        encode(ObservationSpace("columns", (Column("x"),)), np.zeros(3))
    with pytest.raises(InvalidInputError, match=r"must have the columns observation_0 to \.\.\., but has 'x'. Rename"):
        encode(ObservationSpace("features"), {"x": [1.0]})
    with pytest.raises(DataError, match="column v, must have 3 numbers per row, like the log, but has"):
        encode(ObservationSpace("columns", tuple(Column(f"v_{j}") for j in range(3))), {"v": [[1.0, 2.0]]})


FILES = [".parquet", ".csv", ".npz", ".h5"]
TABLES = {
    "pandas": pandas.DataFrame,
    "polars": polars.DataFrame,
    "arrow": pa.table,
    "stream": lambda table: pa.table(table).to_reader(2),
}


@pytest.mark.parametrize("form", [*FILES, *TABLES])
def test_the_text_of_hashes_is_known(form, tmp_path):
    table = columns() | {"plan": ["a", "é", "a", "b", "b", "a", "é"]}
    data = written(tmp_path / f"log{form}", table) if form in FILES else TABLES[form](table)
    log = read(data, observations=["x", "segment", "plan"], reward="r", text="hash")
    words = log.words  # of a stream before it is read
    assert set(words.values()) == {*LEVELS, "a", "b", "é"}
    observations = rows(log)["observations"]
    assert [words[number] for number in observations[:, 1]] == SEGMENT[:6]
    assert [words[number] for number in observations[:, 2]] == table["plan"][:6]


def test_the_text_of_hashes_is_that_of_the_first_rows_of_all_files(tmp_path):
    paths = []
    for first in (0, 3_000, 6_000):
        numbers = np.arange(first, first + 3_000)
        table = {"word": [f"w{i}" for i in numbers], "obs": [None] * 3_000, "r": numbers * 1.0, "t": -numbers}
        pq.write_table(pa.table(table | {"obs": [None, "much " * 100] * 1_500}), tmp_path / f"{first}.parquet")
        paths.append(tmp_path / f"{first}.parquet")
    log = read(paths, observations="word", text="hash")
    assert set(log.words.values()) == {f"w{i}" for i in range(5_000)}
    backwards = read(paths, observations="word", order_by="t", text="hash")
    assert backwards.words == log.words
    assert not {*backwards.words} & {*rows(backwards)["observations"][:3_000, 0]}
    (long,) = read(paths, observations="obs", text="hash", missing="indicator").words.values()
    assert long == ("much " * 40)[:199] + "…"


@pytest.mark.parametrize("suffix", [".parquet", ".npz"])
def test_a_stored_log_holds_hashes_without_text(suffix, tmp_path):
    table = pa.table(columns())
    log = read(table, observations=NAMES[:2], reward="r", text="hash")
    write(log, tmp_path / f"log{suffix}")
    back = read(tmp_path / f"log{suffix}")
    assert (back.space, back.words) == (log.space, {})
    same_bits(rows(back), rows(log))
    assert read(table, observations=NAMES[:2], reward="r").words == {}
