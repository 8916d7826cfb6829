"""The same rows arrive as the same bits, whatever file or table they were in."""

from __future__ import annotations

import itertools
import subprocess
import sys

import h5py
import numpy as np
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.sparse import csr_array

from tests.helpers.log_cases import episodic, rows, same_bits
from vrtd.errors import DataError, InvalidInputError, MissingExtraError
from vrtd.logs import Chunk, Log, from_arrays, read, write


def as_columns(case: dict) -> dict[str, np.ndarray]:
    columns = {f"obs_{j}": column.copy() for j, column in enumerate(case["observations"].T)}
    columns |= {f"next_obs_{j}": column.copy() for j, column in enumerate(case["next_observations"].T)}
    return columns | {"r": case["reward"], **{k: case[k] for k in ("terminated", "truncated", "weight")}}


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.uint8])
@pytest.mark.parametrize("suffix", [".parquet", ".npz", ".csv"])
def test_written_logs_are_read_back_bit_for_bit(tmp_path, suffix, dtype):
    case = episodic(3000, dtype=dtype)
    log = from_arrays(**case)
    path = tmp_path / f"log{suffix}"
    write(log, path)
    expected = rows(log)
    if suffix == ".csv":
        expected |= {name: expected[name].astype(np.float64) for name in ("observations", "next_observations")}
    back = read(path, weight="weight")
    for _ in range(2):
        same_bits(rows(back), expected)
    assert back.n_rows == (None if suffix == ".csv" else 3000)
    assert list(tmp_path.iterdir()) == [path]
    assert ("integrity cannot be verified" in " ".join(back.remarks)) == (suffix == ".csv")


class Reusing(Log):
    """Three chunks of two rows in the same memory."""

    n_rows = 6

    def chunks(self):
        x, flags = np.empty(2), np.zeros(2, bool)
        for k in range(3):
            x[:] = 2 * k, 2 * k + 1
            yield Chunk(x, x, x, flags, flags)


@pytest.mark.parametrize("suffix", [".parquet", ".npz", ".csv"])
def test_a_log_may_use_its_memory_again(suffix, tmp_path):
    write(Reusing(), tmp_path / f"log{suffix}")
    assert np.concatenate([chunk.reward for chunk in read(tmp_path / f"log{suffix}").chunks()]).tolist() == [*range(6)]


@pytest.mark.parametrize("shape", [(), (2, 3), (2, 3, 4), (1,)])
@pytest.mark.parametrize("suffix", [".parquet", ".npz"])
def test_observations_keep_their_shape(tmp_path, suffix, shape):
    values = np.random.default_rng(0).random((20, *shape), dtype=np.float32)
    log = from_arrays(values[:-1], np.arange(19.0), values[1:])
    write(log, tmp_path / f"a{suffix}")
    same_bits(rows(read(tmp_path / f"a{suffix}")), rows(log))


def test_numbers_in_csv_keep_every_bit(tmp_path):
    words = np.random.default_rng(0).integers(0, 2**64, 5000, dtype=np.uint64).view(np.float64)
    values = words[np.isfinite(words)][:4000].reshape(-1, 2)
    log = from_arrays(values[:-1], values[:-1, 0], values[1:])
    write(log, tmp_path / "a.csv")
    same_bits(rows(read(tmp_path / "a.csv")), rows(log))


def test_all_formats_agree_when_successors_are_paired(tmp_path):
    case = episodic(2000, dtype=np.float64)
    given = {name: case[name] for name in ("observations", "reward", "terminated", "truncated")}
    log = from_arrays(**given)
    expected = rows(log)
    np.savez(tmp_path / "a.npz", **given)
    np.savez_compressed(tmp_path / "b.npz", **(given | {"observations": np.asfortranarray(given["observations"])}))
    columns = {f"x_{j}": column.copy() for j, column in enumerate(given["observations"].T)}
    table = pa.table(columns | {"r": given["reward"], "terminals": given["terminated"], "timeouts": given["truncated"]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=77, data_page_size=512, write_page_checksum=True)
    polars.from_arrow(table).write_csv(tmp_path / "a.csv")
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        for name, alias in (("observations", "observations"), ("reward", "rewards"), ("terminated", "terminals")):
            file[alias] = given[name]
        file["timeouts"] = given["truncated"]
        file["infos/qpos"] = np.zeros(3)
    for name in ("a.npz", "b.npz", "a.parquet", "a.csv", "a.hdf5"):
        back = read(tmp_path / name)
        same_bits(rows(back), expected)
        assert set(log.remarks) <= set(back.remarks)
    for data in (table, polars.from_arrow(table), table.to_pandas(), table.to_batches(max_chunksize=7)):
        data = pa.Table.from_batches(data) if isinstance(data, list) else data
        same_bits(rows(read(data)), expected)


def test_tables_of_all_libraries(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    case = episodic(1000)
    expected = rows(from_arrays(**case))
    frame = pandas.DataFrame(as_columns(case))
    pq.write_table(pa.table(as_columns(case)), tmp_path / "t.parquet")
    tables = [pa.table(as_columns(case)), frame, polars.DataFrame(as_columns(case)), pa.record_batch(as_columns(case))]
    with duckdb.connect() as connection:
        tables.append(connection.read_parquet(str(tmp_path / "t.parquet")))
        for table in tables:
            log = read(table, weight="weight")
            assert isinstance(log, Log)
            for _ in range(2):
                same_bits(rows(log), expected)
    assert read(tables[0]).n_rows == 1000


def test_a_record_batch_reader_is_read_once():
    case = episodic(100)
    log = read(pa.table(as_columns(case)).to_reader(max_chunksize=13), weight="weight")
    same_bits(rows(log), rows(from_arrays(**case)))
    with pytest.raises(
        DataError, match=r"A RecordBatchReader can be read only once, but this is its second reading. Pass a table"
    ):
        list(log.chunks())


class OnceOnly:
    """A stream that is empty when it is asked for again, and does not say so."""

    def __init__(self, table: pa.Table) -> None:
        self._table, self._asked = table, 0

    def __arrow_c_stream__(self, requested_schema=None):
        self._asked += 1
        return (self._table if self._asked <= 2 else self._table.slice(0, 3)).__arrow_c_stream__(requested_schema)


def test_a_stream_that_shrinks_is_noticed():
    log = read(OnceOnly(pa.table(as_columns(episodic(100)))))
    list(log.chunks())
    with pytest.raises(
        DataError, match="must be the same in every reading, but has 3 rows now and had 100 rows before"
    ):
        list(log.chunks())


@pytest.mark.parametrize("kind", ["fixed", "list", "large"])
def test_lists_are_vectors(tmp_path, kind):
    case = episodic(300)
    types = {"fixed": pa.list_(pa.float32(), 3), "list": pa.list_(pa.float32()), "large": pa.large_list(pa.float32())}
    columns = {
        "obs": pa.array(case["observations"].tolist(), types[kind]),
        "new_obs": pa.array(case["next_observations"].tolist(), types[kind]),
        "rewards": case["reward"],
        "terminateds": case["terminated"].astype(np.int8),
        "truncateds": case["truncated"].astype(np.float32),
        "rho": case["weight"],
    }
    expected = rows(from_arrays(**case))
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    same_bits(rows(read(tmp_path / "a.parquet", weight="rho")), expected)
    same_bits(
        rows(read(pa.table(columns).slice(100, 200), weight="rho")),
        {k: v[100:] for k, v in expected.items() if v is not None},
    )


def test_files_of_d3rlpy(tmp_path):
    case = episodic(60, dtype=np.float64)
    ends = case["terminated"] | case["truncated"]
    ends[-1] = True
    given = {name: case[name] for name in ("observations", "reward", "terminated")}
    expected = rows(from_arrays(**given, truncated=ends))
    with h5py.File(tmp_path / "v1.h5", "w") as file:
        for name, alias in zip(given, ("observations", "rewards", "terminals"), strict=True):
            file[alias] = given[name]
        file["episode_terminals"] = ends.astype(float)
    same_bits(rows(read(tmp_path / "v1.h5")), expected)
    with h5py.File(tmp_path / "v2.h5", "w") as file:
        edges = np.concatenate([[0], np.flatnonzero(ends) + 1])
        file["columns"] = ["observations", "actions", "rewards", "terminated"]
        file["num_episodes"] = len(edges) - 1
        for k, (a, b) in enumerate(itertools.pairwise(edges)):
            file[f"observations_{k}"] = case["observations"][a:b]
            file[f"rewards_{k}"] = case["reward"][a:b, None]
            file[f"terminated_{k}"] = bool(case["terminated"][b - 1])
        file["version"] = "2.1"
    back = read(tmp_path / "v2.h5")
    same_bits(rows(back), expected)
    assert back.n_rows == 60
    with pytest.raises(
        InvalidInputError,
        match=r"reward cannot be named for the d3rlpy file .* because its columns are known. Drop reward",
    ):
        read(tmp_path / "v2.h5", reward="rewards_0")
    with h5py.File(tmp_path / "v2.h5", "a") as file:
        del file["rewards_1"]
    with pytest.raises(DataError, match="is damaged: it has 7 episodes instead of 8"):
        read(tmp_path / "v2.h5")


def test_parts_are_read_in_the_order_of_their_names(tmp_path):
    case = episodic(100)
    expected = rows(from_arrays(**case))
    table = pa.table(as_columns(case))
    (tmp_path / "b").mkdir()
    pq.write_table(table.slice(0, 30), tmp_path / "a.parquet")
    pq.write_table(table.slice(30, 30), tmp_path / "b" / "0.parquet")
    pq.write_table(table.slice(60), tmp_path / "c.pq")
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".hidden.parquet").touch()
    (tmp_path / "notes.txt").touch()
    several = [tmp_path / "a.parquet", str(tmp_path / "b"), f"{tmp_path}/c*"]
    for paths in (tmp_path, several, [tmp_path]):
        log = read(paths, weight="weight")
        assert log.n_rows == 100
        same_bits(rows(log), expected)
    with pytest.raises(
        DataError, match=r"CartPole-v1 does not exist. Check the path \(for an environment use vrtd.logs.from_env"
    ):
        read("CartPole-v1")
    with pytest.raises(DataError, match=r"nothing.csv does not exist. Check the path.$"):
        read("nothing.csv")
    with pytest.raises(DataError, match=r"does not exist"):
        read(tmp_path / "d.parquet")
    with pytest.raises(DataError, match=r"d\*\.parquet matches no file"):
        read(f"{tmp_path}/d*.parquet")
    (tmp_path / "x.csv").write_text("obs,r\n1,2\n")
    with pytest.raises(DataError, match=r"must hold files of one format .*, but holds 1 csv, 3 parquet. Pass format="):
        read(tmp_path)
    same_bits(rows(read(tmp_path, weight="weight", format="parquet")), expected)
    with pytest.raises(DataError, match="The files of a log must have one format, but include 1 csv, 1 parquet"):
        read([tmp_path / "a.parquet", tmp_path / "x.csv"])
    with pytest.raises(
        DataError, match=r"The suffix of .*notes.txt must be one of .parquet, .*, but is '.txt'. Rename"
    ):
        read(tmp_path / "notes.txt")
    with pytest.raises(
        InvalidInputError, match=r"format must be one of 'parquet'.*, but got 'parket'. Did you mean 'parquet'"
    ):
        read(tmp_path, format="parket")
    for paths in ([], 3 * [7], 7):
        with pytest.raises(InvalidInputError, match="data must be a path, a pattern, a list of them, or a table"):
            read(paths)


def test_files_continue_each_other_only_within_an_episode(tmp_path):
    x = np.arange(6.0)
    for name, part in (("a", slice(0, 3)), ("b", slice(3, 6))):
        np.savez(tmp_path / f"{name}.npz", obs=x[part], reward=x[part])
    log = read(tmp_path)
    assert rows(log)["next_observations"].tolist() == [1.0, 2.0, 4.0, 5.0]
    assert rows(log)["truncated"].tolist() == [False, True, False, False]
    assert set(log.remarks) == {
        "1 row dropped: the last of a file",
        "1 row dropped: the last of the log",
        "no episode column and no end of an episode: each file is one trajectory",
    }
    for name, part in (("a", slice(0, 3)), ("b", slice(3, 6))):
        np.savez(tmp_path / f"{name}.npz", obs=x[part], reward=x[part], episode=np.array(["run", "run", "run"]))
    log = read(tmp_path)
    assert rows(log)["next_observations"].tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert log.remarks == ("1 row dropped: the last of the log",)


def test_done_means_terminated_where_not_truncated():
    columns = {"obs": np.arange(5.0), "r": np.ones(5), "done": [0, 1, 0, 1, 0], "next_obs": np.arange(5.0) + 1}
    log = read(pa.table(columns))
    assert rows(log)["terminated"].tolist() == [False, True, False, True, False]
    assert "column 'done' does not distinguish termination from truncation" in log.remarks[0]
    log = read(pa.table(columns | {"timeouts": [0, 1, 0, 0, 0]}))
    assert rows(log)["terminated"].tolist() == [False, False, False, True, False]
    assert rows(log)["truncated"].tolist() == [False, True, False, False, False]
    assert log.remarks == ()


def test_reading_npz_imports_no_optional_library(tmp_path):
    write(from_arrays(**episodic(20)), tmp_path / "a.npz")
    code = (
        "import sys, vrtd.logs as L; log = L.read(sys.argv[1]); print(sum(c.reward.size for c in log.chunks()),"
        "sorted({m.split('.')[0] for m in sys.modules} & {'pyarrow', 'h5py', 'numba', 'scipy', 'pandas', 'gymnasium'}))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "a.npz")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "20 []\n"


@pytest.mark.parametrize(("library", "extra"), [("pyarrow", "data"), ("h5py", "minari")])
def test_a_missing_library_is_named(tmp_path, monkeypatch, library, extra):
    monkeypatch.setitem(sys.modules, library, None)
    suffixes = {"pyarrow": (".parquet", ".csv"), "h5py": (".hdf5",)}[library]
    for suffix in suffixes:
        path = tmp_path / f"a{suffix}"
        path.touch()
        with pytest.raises(MissingExtraError, match=rf"{library} is not installed. Run: pip install 'vrtd\[{extra}\]'"):
            read(path)
    if library == "pyarrow":
        with pytest.raises(MissingExtraError, match="pyarrow is not installed"):
            write(from_arrays(**episodic(5)), tmp_path / "b.parquet")
        with pytest.raises(MissingExtraError, match="pyarrow is not installed"):
            read(polars.DataFrame({"obs": [1.0], "r": [1.0]}))
        assert not (tmp_path / "b.parquet").exists()


def test_logs_that_cannot_be_written_are_refused(tmp_path):
    log = from_arrays(np.zeros((3, 2, 2)), np.zeros(3), np.zeros((3, 2, 2)))
    with pytest.raises(
        InvalidInputError,
        match=r"A CSV file can hold only numbers and vectors, but observations have the shape \(2, 2\)",
    ):
        write(log, tmp_path / "a.csv")
    with pytest.raises(
        InvalidInputError, match=r"The suffix of path must be one of '.parquet', '.csv', '.npz', but got"
    ):
        write(log, tmp_path / "a.txt")
    with pytest.raises(
        InvalidInputError, match=r"log must be a Log, but is of type ndarray. Create one with vrtd.logs.from_"
    ):
        write(np.zeros(3), tmp_path / "a.csv")
    sparse = csr_array(np.eye(3))
    for suffix in (".parquet", ".csv", ".npz"):
        message = rf"^A {suffix} file cannot hold sparse rows, but observations are rows of 3 numbers. Store the "
        with pytest.raises(InvalidInputError, match=message):
            write(from_arrays(sparse, np.zeros(3), sparse), tmp_path / f"a{suffix}")
    assert list(tmp_path.iterdir()) == []


def test_an_error_while_writing_leaves_no_file(tmp_path):
    (tmp_path / "bad.csv").write_text("obs,r\n" + "1,2\n" * 100 + "1,x\n")
    for name in ("a.parquet", "a.npz", "a.csv"):
        with pytest.raises(DataError, match="Line 102"):
            write(read(tmp_path / "bad.csv"), tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["bad.csv"]
