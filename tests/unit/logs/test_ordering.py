"""Rows that are put in order: by every format, over files and row groups, in one temporary file that goes away."""

from __future__ import annotations

import gc
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path

import h5py
import numpy as np
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import vrtd
from tests.helpers.log_cases import rows, same_bits
from vrtd.errors import DataError, InvalidInputError, MissingExtraError
from vrtd.logs import blocks, from_arrays, ordering, read
from vrtd.logs.blocks import Block, Piece
from vrtd.logs.columns import Columns
from vrtd.logs.encoding import Encoder
from vrtd.logs.part import Part
from vrtd.logs.parts import PartsLog

N = 400
NAMES = {"observations": ["x", "y"], "reward": "gain", "terminated": "bought", "episode": "session"}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    """The folder of temporary files, in which nothing else is."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


def events(n: int = N, n_sessions: int = 60, seed: int = 0) -> dict[str, np.ndarray]:
    """Sessions that interleave, in the order of time; many events have the same time."""
    rng = np.random.default_rng(seed)
    return {
        "session": np.array([f"s{k}" for k in rng.integers(0, n_sessions, n)]),
        "time": np.sort(rng.integers(0, n // 4, n)),
        "x": rng.standard_normal(n),
        "y": rng.standard_normal(n),
        "gain": rng.standard_normal(n),
        "bought": rng.random(n) < 0.1,
    }


def in_order(columns: dict[str, np.ndarray], *keys: str) -> list[int]:
    """The plain form: ties keep the order of the rows."""
    return sorted(range(len(columns["gain"])), key=lambda i: tuple(columns[key][i] for key in keys))


def sorted_log(columns: dict[str, np.ndarray], *keys: str, episode: bool = True):
    order = in_order(columns, *keys)
    taken = {name: column[order] for name, column in columns.items()}
    observations = np.stack([taken["x"], taken["y"]], axis=1)
    return from_arrays(
        observations, taken["gain"], None, taken["bought"], None, None, taken["session"] if episode else None
    )


def cut_in_three(columns: dict[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    return [{name: column[k::3] for name, column in columns.items()} for k in range(3)]


def joined(parts: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def write_parquet(path: Path, columns: dict[str, np.ndarray]) -> None:
    pq.write_table(pa.table(columns), path, row_group_size=23)


def write_csv(path: Path, columns: dict[str, np.ndarray]) -> None:
    polars.DataFrame(columns).write_csv(path)


def write_npz(path: Path, columns: dict[str, np.ndarray]) -> None:
    np.savez(path, **columns)


def write_hdf5(path: Path, columns: dict[str, np.ndarray]) -> None:
    with h5py.File(path, "w") as file:
        for name, column in columns.items():
            file[name] = column.astype("S") if column.dtype.kind == "U" else column


WRITERS = {"parquet": write_parquet, "csv": write_csv, "npz": write_npz, "hdf5": write_hdf5}


@pytest.mark.parametrize("suffix", WRITERS)
def test_rows_of_three_files_are_sorted(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr(blocks, "CHUNK_ROWS", 7)  # so that there are many blocks, of the files and of the sorted one
    parts = cut_in_three(events())
    for k, part in enumerate(parts):
        WRITERS[suffix](tmp_path / f"{k}.{suffix}", part)
    with pytest.raises(DataError, match=r"The episode with .* appears again after another one"):
        rows(read(f"{tmp_path}/*.{suffix}", **NAMES))
    log = read(f"{tmp_path}/*.{suffix}", **NAMES, order_by="time")
    expected = sorted_log(joined(parts), "session", "time")
    for _ in range(2):
        same_bits(rows(log), rows(expected))
    assert log.remarks[0] == expected.remarks[0]
    assert log.n_rows == (None if suffix == "csv" else N)


def test_tables_are_sorted():
    columns = events()
    expected = rows(sorted_log(columns, "session", "time"))
    table = pa.table(columns)
    reader = pa.Table.from_batches(table.to_batches(max_chunksize=7)).to_reader()
    frame = pandas.DataFrame(columns).astype({"session": "category"})
    for data in (table, polars.DataFrame(columns), frame, reader):
        log = read(data, **NAMES, order_by="time")
        for _ in range(2):  # also of a reader, which can be read once
            same_bits(rows(log), expected)


@pytest.mark.parametrize("kind", ["datetime64[s]", "datetime64[ns]", "timedelta64[ms]", "f8", "u1", "U"])
def test_any_type_of_time_is_sorted(kind):
    columns = events()
    times = (columns["time"] - 30).astype(np.int64) if kind[:2] != "u1" else columns["time"]
    columns["time"] = times.astype(kind) if kind != "U" else np.char.add("at ", times.astype(kind))
    expected = rows(sorted_log(columns, "session", "time"))
    same_bits(rows(read(pa.table(columns), **NAMES, order_by="time")), expected)


def test_times_in_csv_are_sorted_as_times_and_numbers_as_numbers(tmp_path):
    times = ["2024-01-02T00:00:00Z", "2024-01-01T00:00:10.5Z", "2024-01-01T00:00:09Z", "2023-12-31T23:59:59Z"]
    for values in (times, [100, 20, 3, -5], ["d", "c", "b", "a"]):
        lines = [f"{time},{k},{k}" for k, time in enumerate(values)]
        (tmp_path / "a.csv").write_text("\n".join(["time,obs,r", *lines]))
        log = read(tmp_path / "a.csv", order_by="time")
        assert rows(log)["observations"].tolist() == [3.0, 2.0, 1.0]


def test_several_columns_give_the_order_and_the_episode():
    columns = events()
    columns |= {"day": columns["time"] // 50, "second": -columns["time"] % 50}
    order = in_order(columns, "day", "session", "second", "gain")
    taken = {name: column[order] for name, column in columns.items()}
    episode = np.cumsum(
        [0, *((taken["day"][1:] != taken["day"][:-1]) | (taken["session"][1:] != taken["session"][:-1]))]
    )
    given = (np.stack([taken["x"], taken["y"]], axis=1), taken["gain"], None, taken["bought"], None, None, episode)
    expected = rows(from_arrays(*given))
    keys = {"episode": ["day", "session"], "order_by": ["second", "gain"]}
    log = read(pa.table(columns), **(NAMES | keys))
    same_bits(rows(log), expected)
    assert log.roles["episode"] == ("day", "session")
    assert log.roles["order_by"] == ("second", "gain")


def test_the_file_may_tell_episodes_apart(tmp_path):
    parts = cut_in_three(events())
    for k, part in enumerate(parts):
        write_npz(tmp_path / f"{k}.npz", part)
    whole = joined(parts)
    files = np.repeat([0, 1, 2], [len(part["gain"]) for part in parts])
    for episode, names in ((["session", "file"], ("session", "file")), ("file", ("file",))):
        labels = [f"{s if len(names) > 1 else ''} {k}" for s, k in zip(whole["session"], files, strict=True)]
        expected = rows(sorted_log(whole | {"session": np.array(labels)}, "session", "time"))
        log = read(tmp_path / "*.npz", **(NAMES | {"episode": episode}), order_by="time")
        same_bits(rows(log), expected)
        assert log.roles["episode"] == names


def test_without_an_episode_all_files_are_one_trajectory(tmp_path):
    parts = cut_in_three(events())
    for k, part in enumerate(parts):
        write_parquet(tmp_path / f"{k}.parquet", part)
    names = {field: name for field, name in NAMES.items() if field != "episode"}
    log = read(tmp_path, **names, order_by="time", format="parquet")
    same_bits(rows(log), rows(sorted_log(joined(parts), "time", episode=False)))
    assert "rows were sorted by time, in a temporary file" in " ".join(log.remarks)


def test_recorded_successors_and_weights_are_sorted_with_their_rows():
    columns = events()
    rng = np.random.default_rng(1)
    columns |= {"next_x": rng.random(N), "next_y": rng.random(N), "rho": rng.random(N)}
    log = read(pa.table(columns), **NAMES, order_by="time", weight="rho")
    found, order = rows(log), in_order(columns, "session", "time")
    assert found["next_observations"].tolist() == np.stack([columns["next_x"], columns["next_y"]], 1)[order].tolist()
    assert found["weight"].tolist() == columns["rho"][order].tolist()
    is_last = np.append(columns["session"][order][1:] != columns["session"][order][:-1], False)
    assert (found["truncated"] == is_last & ~columns["bought"][order]).all()


def test_vectors_and_images_are_sorted():
    images = np.arange(N * 6, dtype=np.uint8).reshape(N, 2, 3)
    array = pa.FixedSizeListArray.from_arrays(pa.FixedSizeListArray.from_arrays(images.reshape(-1), 3), 2)
    columns = events()
    order = in_order(columns, "time")
    found = rows(read(pa.table(columns | {"obs": array}), reward="gain", order_by="time"))
    assert found["observations"].dtype == np.uint8
    assert (found["observations"] == images[order][:-1]).all()


@pytest.mark.parametrize(("threads", "memory"), [(1, "512MB"), (4, "512MB"), (2, "32MB")])
def test_threads_and_memory_change_no_bit(monkeypatch, threads, memory):
    columns = events(20_000, 3000)
    monkeypatch.setattr(ordering, "THREADS", threads)
    monkeypatch.setattr(ordering, "MEMORY", memory)
    log = read(pa.table(columns), **NAMES, order_by="time")
    same_bits(rows(log), rows(sorted_log(columns, "session", "time")))


def test_places_are_those_before_the_sort(tmp_path):
    parts = cut_in_three(events())
    parts[2]["gain"][5] = np.nan
    write_parquet(tmp_path / "1b.parquet", {name: column[:0] for name, column in parts[1].items()})
    for k, part in enumerate(parts):
        write_parquet(tmp_path / f"{k}.parquet", part)
    log = read(tmp_path, **NAMES, order_by="time", format="parquet")
    places = [
        chunk.locate("reward", int(row)) for chunk in log.chunks() for row in np.flatnonzero(np.isnan(chunk.reward))
    ]
    assert places == [f"{tmp_path}/2.parquet, column gain, row 5"]
    numbers = {(k, i): part["gain"][i] for k, part in enumerate(parts) for i in range(len(part["gain"]))}
    for chunk in log.chunks():
        for row in range(0, chunk.n_rows, 17):
            file, number = re.search(r"(\d).parquet, column gain, row (\d+)", chunk.locate("reward", row)).groups()
            assert numbers[int(file), int(number)] == chunk.reward[row]


def test_the_file_is_made_once_and_removed_with_the_log(tmp_path, folder):
    path = tmp_path / "a.parquet"
    write_parquet(path, events())
    log = read(path, **NAMES, order_by="time")
    assert log.remarks == (f"{path} has no page checksums: integrity cannot be verified",)
    assert list(folder.iterdir()) == []  # opening sorts nothing
    first = rows(log)
    assert [place.name[:5] for place in folder.iterdir()] == ["vrtd-"]
    assert log.remarks[-2] == f"rows were sorted by time within each session, in a temporary file in {folder}"
    path.unlink()
    same_bits(rows(log), first)
    del log
    gc.collect()
    assert list(folder.iterdir()) == []


def test_the_file_is_removed_at_the_end_of_the_process(tmp_path, folder):
    write_parquet(tmp_path / "a.parquet", events())
    code = (
        "import sys, os, vrtd.logs as L; log = L.read(sys.argv[1], observations='x', reward='gain', order_by='time');"
        "print(sum(c.n_rows for c in log.chunks()), len(os.listdir(os.environ['TMPDIR'])))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "a.parquet")]
    environment = os.environ | {"TMPDIR": str(folder)}
    found = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert found.stdout == f"{N - 1} 1\n"
    assert list(folder.iterdir()) == []


def test_a_missing_time_is_refused_with_its_row(tmp_path, folder):
    parts = cut_in_three(events())
    for k, part in enumerate(parts):
        part["time"] = part["time"].astype(float)
        part["time"][7 if k == 2 else 0 :][:1] += np.nan if k == 2 else 0.0
        write_npz(tmp_path / f"{k}.npz", part)
    log = read(tmp_path / "*.npz", **NAMES, order_by="time")
    with pytest.raises(
        DataError,
        match=r"order_by must have a value in every row, but a value is missing in .*2.npz, column time, row 7. Fill",
    ):
        rows(log)
    assert list(folder.iterdir()) == []
    times = pa.array([*range(50), None, *range(51, N)])
    with pytest.raises(
        DataError,
        match="order_by must have a value in every row, but a value is missing in the table, column time, row 50",
    ):
        rows(read(pa.table(events() | {"time": times}), **NAMES, order_by="time"))
    table = pa.table({"obs": [1.0], "r": [1.0], "t": [[1.0]]})
    with pytest.raises(DataError, match="column t, must hold numbers, text or times, but has type list"):
        read(table, order_by="t")
    with pytest.raises(DataError, match=r"has no column 'tmie' for order_by; .*Did you mean 'time'"):
        read(pa.table(events()), **NAMES, order_by="tmie")


class Interrupted(Part):
    """A part whose third block never comes, because Ctrl-C is pressed before."""

    where, n_rows, columns = "a part", None, Columns("x", "r", order_by="t")

    def blocks(self, encoder: Encoder) -> Generator[Block, None, None]:
        no = np.zeros(1000, bool)
        for k in range(5):
            if k == 2:
                os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)
            x = np.arange(1000.0)
            piece = Piece(self.where, self.columns.by_field, 1000 * k, 1000)
            yield Block(x, x, None, no, no, *[None] * 8, (piece,), order=(x,))


def test_ctrl_c_stops_the_sort_and_leaves_no_file(folder):
    log = PartsLog([Interrupted()], in_thread=False)
    with pytest.raises(KeyboardInterrupt):
        rows(log)
    assert list(folder.iterdir()) == []


def wide(columns: dict[str, np.ndarray], width: int) -> dict:
    """Observations with so many numbers in the place of two."""
    numbers = np.random.default_rng(1).integers(0, 255, (len(columns["x"]), width), np.uint8)
    return columns | {"x": pa.FixedSizeListArray.from_arrays(numbers.ravel(), width)}


@pytest.mark.parametrize("width", [100, 300, 5000])
def test_rows_of_any_width_are_put_in_order(folder, width):
    names = NAMES | {"observations": "x", "order_by": "time"}
    table = pa.table(wide(events(), width))
    ordered = table.take(pa.array(in_order(events(), "session", "time")))
    log = read(pa.Table.from_batches(table.to_batches(max_chunksize=70)), **names)
    for _ in range(2):
        same_bits(rows(log), rows(read(ordered, **names | {"order_by": None})))
    del log
    gc.collect()
    assert list(folder.iterdir()) == []


def test_wide_rows_need_little_memory(monkeypatch):
    monkeypatch.setattr(ordering, "MEMORY", "64MB")
    x = np.zeros((30_000, 4000), np.uint8)
    times = np.random.default_rng(0).permutation(30_000)
    table = pa.table({"x": pa.FixedSizeListArray.from_arrays(x.ravel(), 4000), "r": times.astype(float), "t": times})
    log = read(table, order_by="t")
    assert np.concatenate([chunk.reward for chunk in log.chunks()]).tolist() == list(range(29_999))


def test_too_little_memory_is_named(folder, monkeypatch):
    monkeypatch.setattr(ordering, "MEMORY", "16MB")
    times = np.array([f"t{k:04d}" * 1000 for k in np.random.default_rng(0).permutation(10_000)], object)
    log = read(pa.table({"x": np.zeros(10_000), "r": np.zeros(10_000), "t": times}), order_by="t")
    with pytest.raises(
        DataError,
        match=r"Sorting the keys of the rows needs more than 16MB of memory: DuckDB: .*. Shorten the values of t",
    ):
        rows(log)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("width", [2, 300])
def test_a_full_disk_is_named(folder, width):
    columns = events(20_000) if width == 2 else wide(events(1000), width)
    table = pa.table(columns)
    names = NAMES | {"observations": ["x", "y"] if width == 2 else "x"}
    log = read(table, **names, order_by="time")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        with pytest.raises(DataError, match="has too little space for the temporary file of sorted rows") as error:
            rows(log)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert str(folder) in error.value.problem
    assert re.search(r"\([\d.]+ GiB free\): (DuckDB: |\[Errno \d+\] File too large)", error.value.problem)
    assert "TMPDIR" in error.value.remedy
    assert list(folder.iterdir()) == []
    ordered = table.take(pa.array(in_order(columns, "session", "time")))
    same_bits(rows(log), rows(read(ordered, **names)))  # with room, the same log works


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "not there"))
    with pytest.raises(DataError, match=r"There is no folder for the temporary file .*not there.* Set .* TMPDIR"):
        rows(read(pa.table(events()), **NAMES, order_by="time"))


def test_a_column_may_be_an_observation_and_give_the_order(tmp_path):
    columns = events()
    expected = columns["time"][in_order(columns, "session", "time")]
    for suffix, write_file in WRITERS.items():
        write_file(tmp_path / f"a.{suffix}", columns)
        names = NAMES | {"observations": ["time"], "order_by": "time", "episode_end": "terminated"}
        assert rows(read(tmp_path / f"a.{suffix}", **names))["observations"][:, 0].tolist() == expected.tolist()


def test_duckdb_is_asked_for_when_the_log_is_opened(monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(MissingExtraError, match=r"duckdb is not installed. Run: pip install 'vrtd\[data\]'"):
        read(pa.table(events()), **NAMES, order_by="time")


def test_data_with_known_columns_has_no_order(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["num_episodes"], file["rewards_0"], file["observations_0"] = 1, [1.0], [[1.0]]
    with pytest.raises(
        InvalidInputError,
        match=r"order_by cannot be named for the d3rlpy file .* because its columns are known. Drop order_by",
    ):
        read(tmp_path / "a.h5", order_by="time")


def test_an_interleaved_log_gives_the_values_of_the_ordered_one(tmp_path):
    columns = events(3000, 400)
    columns["bought"][:] = False  # nothing comes after the end of a session
    order = in_order(columns, "session", "time")
    pq.write_table(pa.table({name: column[order] for name, column in columns.items()}), tmp_path / "ordered.parquet")
    for k in range(3):  # in the order of time, over three files
        part = {name: column[1000 * k : 1000 * (k + 1)] for name, column in columns.items()}
        pq.write_table(pa.table(part), tmp_path / f"events-{k}.parquet", row_group_size=100)

    def values(log):
        evaluator = vrtd.Evaluator("closed_form", discount=0.95, features="polynomial:1")
        return evaluator.fit(log).predict(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))

    names = NAMES | {"episode_end": "drop"}
    with pytest.raises(DataError, match="order_by"):
        values(read(tmp_path / "events-*.parquet", **names))
    wanted = values(read(tmp_path / "ordered.parquet", **names))
    found = values(read(tmp_path / "events-*.parquet", **names, order_by="time"))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-10)


def test_categories_and_missing_values_are_those_of_rows_in_order(folder):
    n = 6000
    rng = np.random.default_rng(3)
    table = pa.table(
        {
            "user": np.repeat(np.arange(n // 20), 20),
            "time": np.tile(np.arange(20), n // 20),
            "kind": pa.array([None if i % 31 == 7 else ("a", "b", "c")[i % 3] for i in range(n)]),
            "x": pa.array([None if i % 13 == 5 else np.inf if i == 4322 else float(i) for i in range(n)]),
            "r": np.arange(float(n)),
        }
    )
    order = rng.permutation(n)
    mixed = table.take(pa.array(order))
    options = {"observations": ["kind", "x"], "episode": "user", "missing": "drop"}
    expected, log = read(table, **options), read(mixed, **options, order_by="time")
    for _ in range(2):
        same_bits(rows(log), rows(expected))
        places = [
            chunk.locate("observations", row)
            for chunk in log.chunks()
            for row in np.flatnonzero(np.isinf(chunk.observations).any(axis=1))
        ]
        assert places == [f"the table, column x, row {np.flatnonzero(order == 4322)[0]}"]


def test_values_that_the_first_rows_do_not_show_are_counted_once(folder):
    kinds = ["a"] * 5500 + ["b"] * 500
    log = read(pa.table({"obs": kinds, "r": np.arange(6000.0), "t": np.arange(6000)[::-1]}), order_by="t")
    for _ in range(2):
        assert rows(log)["observations"][:, 1].sum() == 500
        assert any(text.startswith("500 of 6,000 rows") for text in log.warnings)
