"""How logs and chunks show themselves: where the rows come from and which columns they are, without reading any."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pyarrow
import pytest

from tests.helpers.notebooks import Shown, check_repr, read_summary
from vrtd.logs import Chunk, Log, from_arrays, from_env, read
from vrtd.logs.log import WrappedLog


class Unread(Log):
    """A log that must not be read."""

    n_rows = 300_000
    origin = "<b>.parquet"
    remarks = ("2 rows dropped: <i>",)
    warnings = ("many rows dropped: </td>",)
    roles: Mapping[str, tuple[str, ...]] = {"observations": ("a", "<b>", "c", "d"), "reward": ("revenue",)}

    def chunks(self) -> Iterator[Chunk]:
        raise AssertionError("it was read")


def write_csv(path: Path) -> Path:
    path.write_text("x,reward\n" + "1.0,2.0\n" * 5)
    return path


def test_rows_origin_and_columns_are_shown() -> None:
    expected = "Log(300,000 rows from <b>.parquet; observations a, <b>, c and 1 more; reward revenue)"
    assert check_repr(Unread()) == expected
    assert read_summary(Unread()) == Shown(
        "Log",
        {
            "rows": "300,000 rows",
            "from": "<b>.parquet",
            "observations": "a, <b>, c and 1 more",
            "reward": "revenue",
            "warnings": "many rows dropped: </td>",
            "remarks": "2 rows dropped: <i>",
        },
        has_figure=False,
    )


def test_a_wrapped_log_is_shown_as_the_log_inside() -> None:
    class Same(WrappedLog):
        def chunks(self) -> Iterator[Chunk]:
            return self._log.chunks()

    assert repr(Same(Unread())) == repr(Unread())
    assert read_summary(Same(Unread())) == read_summary(Unread())


def test_a_log_that_says_nothing() -> None:
    class Bare(Log):
        n_rows = None

        def chunks(self) -> Iterator[Chunk]:
            raise AssertionError("it was read")

    assert check_repr(Bare()) == "Log(unknown number of rows)"
    assert read_summary(Bare()).entries == {"rows": "unknown number of rows"}


def test_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files = [write_csv(Path(name)) for name in ("<b>.csv", "b.csv", "c.csv", "d.csv")]
    assert check_repr(read(files[0])).startswith("Log(unknown number of rows from <b>.csv")
    assert read_summary(read(files[0])).entries["from"] == "<b>.csv"
    assert read_summary(read(files)).entries["from"] == "4 files: <b>.csv, b.csv, c.csv and 1 more"


def test_a_log_of_files_that_are_gone_is_still_shown(tmp_path: Path) -> None:
    log = read(write_csv(tmp_path / "gone.csv"))
    (tmp_path / "gone.csv").unlink()
    assert "gone.csv" in repr(log)
    assert "gone.csv" in read_summary(log).entries["from"]


def test_arrays_and_tables_are_named() -> None:
    assert check_repr(from_arrays([[0.0], [1.0]], [1.0, 2.0])).startswith("Log(2 rows from the arrays")
    table = pyarrow.table({"x": [0.0, 1.0], "reward": [1.0, 2.0]})
    assert check_repr(read(table)).startswith("Log(2 rows from the table")


def test_environments_are_named_and_not_run() -> None:
    log = from_env("FrozenLake-v1", "random", 1000, seed=3)
    assert check_repr(log) == "Log(1,000 rows from FrozenLake-v1, policy random, seed 3)"
    assert read_summary(log).entries["rows"] == "1,000 rows"
    env = gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync")
    vector = from_env(env, lambda observations: np.zeros(len(observations), int), 1000)
    env.close()
    assert check_repr(vector) == "Log(1,000 rows from CartPole-v1, 2 environments, seed 0)"


@pytest.mark.parametrize("weight", [None, np.ones(5)])
def test_a_chunk_shows_types_and_shapes(weight: Any) -> None:
    x, no = np.zeros((5, 2), np.float32), np.zeros(5, bool)
    text = check_repr(Chunk(x, np.zeros(5), x, no, no, weight), 250)
    assert text.startswith("Chunk(observations float32 (5, 2), reward float64 (5,), ")
    assert ("weight" in text) is (weight is not None)
    assert check_repr(Chunk(x, [0.0], x, no, no)).startswith("Chunk(observations float32 (5, 2), reward list, ")  # type: ignore[arg-type]
