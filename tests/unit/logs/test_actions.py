"""Actions and propensities: the same from every source, refused where they are wrong, and only where they are named."""

from __future__ import annotations

import h5py
import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.helpers.log_cases import rows, same_bits
from vrtd.errors import DataError, InvalidInputError
from vrtd.logs import Chunk, from_arrays, read, write
from vrtd.logs.actions import ActionCoding, convert_actions
from vrtd.logs.blocks import Piece
from vrtd.logs.reading import as_log

N = 40
WORDS = ("left", "right", "up")


def columns() -> dict[str, np.ndarray]:
    """Rows of one trajectory. The last one has no successor."""
    rng = np.random.default_rng(0)
    number = rng.integers(0, 3, N)
    number[:3] = 0, 1, 2
    return {
        "x": rng.standard_normal(N),
        "r": rng.standard_normal(N),
        "number": number,
        "word": np.array(WORDS)[number],
        "is_up": number == 2,
        "ax": rng.standard_normal(N),
        "ay": np.arange(N) + 0.5,
        "p": rng.random(N) + 0.1,
    }


EXPECTED = {
    "number": lambda c: c["number"],
    "word": lambda c: c["number"],
    "is_up": lambda c: (c["number"] == 2).astype(np.int64),
    "ax": lambda c: c["ax"],
    "a[xy]": lambda c: np.column_stack([c["ax"], c["ay"]]),
}


def stored(form: str, folder):
    """The same columns in a table or a file."""
    table = pa.table(columns())
    path = folder / f"log.{form}"
    match form:
        case "table":
            return polars.DataFrame(columns())
        case "dict":
            return {name: list(column) for name, column in columns().items()}
        case "parquet":
            pq.write_table(table, path)
        case "csv":
            polars.DataFrame(columns()).write_csv(path)
        case "npz":
            np.savez(path, **columns())
        case "h5":
            with h5py.File(path, "w") as file:
                for name, column in columns().items():
                    file[name] = column.astype("S") if name == "word" else column
    return path


@pytest.mark.parametrize("form", ["table", "dict", "parquet", "csv", "npz", "h5"])
def test_actions_of_every_source_are_the_same(form, tmp_path):
    source = stored(form, tmp_path)
    for name, expect in EXPECTED.items():
        log = as_log(source, {"observations": "x", "action": name, "propensity": "p"})
        found, expected = rows(log), expect(columns())[:-1]
        assert found["action"].dtype == expected.dtype
        assert found["action"].tolist() == expected.tolist()
        np.testing.assert_allclose(found["propensity"], columns()["p"][:-1], rtol=1e-15)
        assert log.space.actions == (WORDS if name == "word" else ())
        assert log.roles["action"] == (("ax", "ay") if name == "a[xy]" else (name,))


def test_actions_that_are_not_named_are_not_read():
    log = read(pa.table({"x": [0.0, 1.0], "r": [0.0, 1.0], "action": ["a", "b"], "propensity": [0.0, 0.0]}))
    found = rows(log)
    assert found["action"] is found["propensity"] is None
    assert not any("action" in remark or "propensity" in remark for remark in log.remarks)


def test_arrays_hold_numbers_floats_or_vectors():
    c = columns()
    for action in (c["number"], c["is_up"], c["number"][:, None], c["number"].astype(np.uint8)):
        found = rows(from_arrays(c["x"], c["r"], action=action, propensity=c["p"]))
        assert found["action"].dtype == np.int64
        assert found["action"].tolist() == action.ravel()[:-1].tolist()
    vectors = np.random.default_rng(1).random((N, 2, 3)).astype(np.float32)
    found = rows(from_arrays(c["x"], c["r"], c["x"], action=vectors))["action"]
    assert found.tolist() == vectors.astype(np.float64).reshape(N, 6).tolist()
    assert rows(from_arrays(c["x"], c["r"], c["x"], action=vectors[:, 0, :1]))["action"].shape == (N, 1)
    with pytest.raises(
        DataError, match=r"action must be an array of numbers \(a table may hold words\), but has dtype <U5"
    ):
        from_arrays(c["x"], c["r"], action=c["word"])


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.list_(pa.float64(), 2)])
def test_lists_and_dictionaries_are_actions(kind):
    table = pa.table({"x": np.arange(3.0), "r": np.ones(3), "a": pa.array([[0, 1], [2, 3], [4, 5]], kind)})
    assert rows(read(table, action="a"))["action"].tolist() == [[0.0, 1.0], [2.0, 3.0]]
    table = table.set_column(2, "a", pa.array(["b", "a", "b"]).dictionary_encode())
    log = read(table, observations="a", action="a")  # a category may be both
    assert rows(log)["action"].tolist() == [1, 0]
    assert (log.space.actions, log.space.columns[0].levels) == (("a", "b"), ("a", "b"))


def test_fractions_in_one_csv_file_make_all_actions_floats(tmp_path):
    (tmp_path / "a.csv").write_text("x,r,a\n0,0,1\n1,0,2\n2,0,0\n")
    assert rows(read(tmp_path, action="a"))["action"].dtype == np.int64
    (tmp_path / "b.csv").write_text("x,r,a\n0,0,1.5\n1,0,2\n2,0,0\n")
    found = rows(read(tmp_path, action="a"))["action"]
    assert found.dtype == np.float64
    assert found.tolist() == [1.0, 2.0, 1.5, 2.0]


def test_a_fraction_after_whole_numbers_is_refused():
    piece = Piece("a.csv", {"action": ("a",)}, 100, 3)
    with pytest.raises(
        DataError, match=r"must be 0, 1, \.\.\., but the action is 0\.5 in a\.csv, column a, row 102. Number the"
    ):
        convert_actions(np.array([0.0, 1.0, 0.5]), ActionCoding(is_whole=True), piece, [], False)


TABLE = {"x": np.arange(4.0), "r": np.ones(4)}


@pytest.mark.parametrize(
    ("added", "named", "message"),
    [
        (
            {"a": [0, -1, 0, 1]},
            {"action": "a"},
            r"must be 0, 1, \.\.\., but the action is -1 in the table, column a, row 1",
        ),
        ({"a": [0.0, np.inf, 0, 1]}, {"action": "a"}, "The action in .*, column a, row 1, is not finite"),
        (
            {"a": ["u"] * 4, "b": [1.0] * 4},
            {"action": ["a", "b"]},
            "must be columns of numbers, but one of them holds words",
        ),
        ({"p": [0.5, 0.0, 0.5, 0.5]}, {"propensity": "p"}, "positive and finite.* is 0.0 in .*, column p, row 1"),
        ({"p": [0.5, 0.5, np.nan, 1.0]}, {"propensity": "p"}, "positive and finite.* is nan in .*, column p, row 2"),
        ({"p": [0.5, 0.5, np.inf, 1.0]}, {"propensity": "p"}, "positive and finite.* is inf in .*, column p, row 2"),
        ({"p": ["a"] * 4}, {"propensity": "p"}, "column p, must hold numbers, but has type string"),
        ({}, {"action": "act"}, "has no column 'act' for action"),
    ],
)
def test_bad_actions_and_propensities_are_refused(added, named, message):
    with pytest.raises(DataError, match=message):
        rows(read(pa.table(TABLE | added), observations="x", **named))


def test_a_density_may_exceed_1():
    assert rows(read(pa.table(TABLE | {"p": [2.5] * 4}), propensity="p"))["propensity"].tolist() == [2.5] * 3


def test_a_word_that_the_first_rows_do_not_show_is_refused():
    n = 5_010
    words = ["stay"] * n
    words[5_000] = "jump"
    log = read(pa.table({"x": np.zeros(n), "r": np.zeros(n), "a": words}), action="a")
    with pytest.raises(
        DataError, match=r"'jump' in .*, column a, row 5000, does not occur .* have stay. Number the actions 0"
    ):
        rows(log)
    many = pa.table({"x": np.zeros(n), "r": np.zeros(n), "a": [f"{i}!" for i in range(n)]})
    with pytest.raises(DataError, match=r"at most 1,000 different values .*\. Number the actions 0"):
        read(many, action="a")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("action", [1, None, 1, 1, 1]),
        ("action", ["a", None, "a", "a", "a"]),
        ("action", [[0.5], None, [1.5], [2.5], [3.5]]),
        ("propensity", [0.5, None, 0.5, 0.5, 0.5]),
    ],
)
def test_rows_without_an_action_or_propensity_follow_missing(name, values):
    table = pa.table({"x": np.arange(5.0), "r": np.ones(5), "a": values})
    for missing in ("error", "indicator"):
        with pytest.raises(
            DataError,
            match=r"A value is missing in the table, column a, row 1.*\. Fill in the value, or pass missing='drop'",
        ):
            rows(read(table, observations="x", missing=missing, **{name: "a"}))
    found = rows(read(table, observations="x", missing="drop", **{name: "a"}))
    assert found["observations"].tolist() == [0.0, 2.0, 3.0]
    assert found["next_observations"].tolist() == [1.0, 3.0, 4.0]  # row 1 is still a successor
    assert found["truncated"].tolist() == [True, False, False]
    assert found["starts"].tolist() == [True, False, False]  # a gap is no start
    assert len(found[name]) == 3


def test_missing_vectors_do_not_depend_on_batches():
    actions = pa.array([None, [0.5, 1.5], [2.5, 3.5], None, [4.5, 5.5], [6.5, 7.5]], pa.list_(pa.float64()))
    table = pa.table({"x": np.arange(6.0), "r": np.ones(6), "a": actions})
    for n in (6, 1, 2):
        found = rows(read(pa.Table.from_batches(table.to_batches(max_chunksize=n)), action="a", missing="drop"))
        assert found["observations"].tolist() == [1.0, 2.0, 4.0]
        assert found["action"].tolist() == [[0.5, 1.5], [2.5, 3.5], [4.5, 5.5]]
        assert found["starts"].tolist() == [False, False, False]  # the first row was dropped


def test_a_later_log_numbers_words_as_the_first():
    def table(*words):
        return pa.table({"x": np.arange(float(len(words))), "r": np.ones(len(words)), "a": words})

    first = read(table("up", "left", "up"), action="a")
    later = read(table("up", "up", "up"), action="a", space=first.space)
    assert later.space == first.space
    assert rows(later)["action"].tolist() == [1, 1]
    with pytest.raises(DataError, match=r"action 'down' in .* does not occur in .* have left, up"):
        rows(read(table("up", "down", "up"), action="a", space=first.space))
    numbered = read(table(0, 1, 0), action="a")
    with pytest.raises(DataError, match="as in the log that was fitted before, but are text after numbers"):
        read(table("up", "left", "up"), action="a", space=numbered.space)


@pytest.mark.parametrize("suffix", [".parquet", ".npz", ".csv"])
def test_written_actions_come_back(tmp_path, suffix):
    for name in ("word", "a[xy]"):
        path = tmp_path / f"log{suffix}"
        log = read(pa.table(columns()), observations="x", action=name, propensity="p")
        write(log, path)
        action = "action_*" if name == "a[xy]" and suffix != ".npz" else "action"
        back = read(path, action=action, propensity="propensity")
        same_bits(rows(back), rows(log))
        if suffix != ".csv":
            assert back.space == log.space
            assert read(path, action=action, space=log.space).space == log.space


def test_files_with_other_words_do_not_continue_a_log(tmp_path):
    one, other = (
        read(pa.table(columns() | {"word": words}), observations="x", action="word")
        for words in (columns()["word"], ["down"] * N)
    )
    write(one, tmp_path / "a.npz")
    with pytest.raises(DataError, match=r"are left, right, up after down. Number the actions"):
        read(tmp_path / "a.npz", action="action", space=other.space)


def test_actions_are_sorted_with_their_rows():
    c, order = columns(), np.random.default_rng(2).permutation(N)
    table = pa.table(c | {"time": np.arange(N)})
    for name in ("word", "a[xy]"):
        named = {"observations": "x", "action": name, "propensity": "p"}
        same_bits(rows(read(table.take(order), **named, order_by="time")), rows(read(table, **named)))


def test_chunks_with_and_without_actions_are_joined_without():
    plain = next(from_arrays(np.zeros(3), np.zeros(3), np.zeros(3)).chunks())
    acted = next(from_arrays(np.zeros(3), np.zeros(3), np.zeros(3), action=[0, 1, 2]).chunks())
    for chunks in ([plain, acted], [acted, plain]):
        assert Chunk.concatenate(chunks).action is None
    assert Chunk.concatenate([acted, acted]).action.tolist() == [0, 1, 2, 0, 1, 2]


def test_episodes_of_d3rlpy_have_actions(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["num_episodes"] = 2
        for k in range(2):
            file[f"observations_{k}"] = np.arange(3.0)[:, None]
            file[f"actions_{k}"] = np.array([[2], [k], [0]], np.int32)
            file[f"rewards_{k}"] = np.zeros((3, 1))
            file[f"terminated_{k}"] = True
    found = rows(read(tmp_path / "a.h5", action="actions"))
    assert found["action"].tolist() == [2, 0, 0, 2, 1, 0]
    assert found["starts"].tolist() == [True, False, False] * 2
    with pytest.raises(InvalidInputError, match=r"action must be 'actions' for .*, but is 'a'. Pass action='actions'"):
        read(tmp_path / "a.h5", action="a")
