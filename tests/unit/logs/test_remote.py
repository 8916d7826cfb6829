"""Logs at addresses: an object store on loopback, fsspec, and file://."""

from __future__ import annotations

import json

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from moto.server import ThreadedMotoServer
from pyarrow import fs

import vrtd
from tests.helpers.log_cases import rows, same_bits
from vrtd.cli import main
from vrtd.errors import DataError
from vrtd.executors import ProcessExecutor
from vrtd.logs import read

KEY, SECRET = "reader", "very%2Fsecret"


def table(n: int = 300_000) -> pa.Table:
    rng = np.random.default_rng(0)
    ends = np.arange(n) % 50 == 49
    return pa.table({"state": rng.integers(0, 5, n), "reward": rng.standard_normal(n), "terminated": ends})


@pytest.fixture(scope="module")
def store():
    """Yield an object store with two Parquet files, other files and a damaged one; and the options of its addresses."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    options = f"?endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"
    filesystem, _ = fs.FileSystem.from_uri(f"s3://{KEY}:{SECRET}@bucket/{options}&allow_bucket_creation=true")
    filesystem.create_dir("bucket")
    data = table()
    for k in range(2):
        part = data.slice(150_000 * k, 150_000)
        pq.write_table(part, f"bucket/logs/part-{k}.parquet", filesystem=filesystem, row_group_size=50_000)
    for name, content in (("logs/_SUCCESS", b""), ("logs/.part.crc", b"x"), ("bad.parquet", b"PAR1, but no more")):
        with filesystem.open_output_stream(f"bucket/{name}") as file:
            file.write(content)
    with filesystem.open_output_stream("bucket/other/log.csv") as file:
        pyarrow.csv.write_csv(data.slice(0, 1000), file)
    with filesystem.open_output_stream("bucket/other/log.npz") as file:
        file.write(b"x")
    yield filesystem, options
    server.stop()


@pytest.mark.parametrize("place", ["logs", "logs/", "logs/*.parquet", "*/p*t-*.parquet", "**/part-*.parquet"])
def test_folders_and_patterns_of_an_object_store_are_logs(store, place):
    log = read(f"s3://{KEY}:{SECRET}@bucket/{place}{store[1]}")
    assert log.origin == "2 files: part-0.parquet, part-1.parquet"
    same_bits(rows(log), rows(read(table())))


def test_files_of_an_object_store_are_read_in_the_given_order(store):
    address = f"s3://{KEY}:{SECRET}@bucket/logs/part-{{}}.parquet{store[1]}"
    log = read([address.format(1), address.format(0)])
    data = table()
    same_bits(rows(log), rows(read(pa.concat_tables([data.slice(150_000), data.slice(0, 150_000)]))))


def test_csv_files_and_sorted_logs_of_an_object_store(store):
    log = read(f"s3://{KEY}:{SECRET}@bucket/other/log.csv{store[1]}", order_by="reward")
    expected = table().slice(0, 1000)
    here = rows(read(expected.set_column(0, "state", expected["state"].cast("float64")), order_by="reward"))
    same_bits(rows(log), here)


@pytest.mark.slow
def test_workers_read_an_object_store_themselves(store, tmp_path):
    filesystem, options = store
    fs.copy_files("bucket/logs", str(tmp_path), source_filesystem=filesystem)
    names = {"episode_end": "terminated"}
    here = vrtd.Evaluator(discount=0.9).fit(tmp_path, **names)
    with ProcessExecutor(2) as executor:
        fitted = vrtd.Evaluator(discount=0.9).fit(
            f"s3://{KEY}:{SECRET}@bucket/logs{options}", executor=executor, **names
        )
    assert fitted.n_rows_ == here.n_rows_ == 300_000
    assert fitted.theta_.tobytes() == here.theta_.tobytes()


def test_evaluate_takes_addresses_and_shows_no_secret(store, tmp_path, capsys):
    address = f"s3://{KEY}:{SECRET}@bucket/other/log.csv{store[1]}"
    options = ["--discount", "0.9", "--episode-end", "terminated", "--out", str(tmp_path / "report"), "--json"]
    assert main(["evaluate", "--data", address, *options]) == 0
    written = capsys.readouterr()
    shown = (
        written.out
        + written.err
        + "".join(path.read_text("latin-1") for path in sorted((tmp_path / "report").rglob("*")) if path.is_file())
    )
    assert "s3://bucket/other/log.csv" in shown or "s3://reader:***@bucket/other/log.csv" in shown
    assert json.loads(written.out)
    for secret in ("secret", "endpoint_override"):
        assert secret not in shown


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("none.parquet", "does not exist"),
        ("none/*.parquet", "matches no file"),
        ("logs/*.csv", "matches no file"),
        ("", "must hold files of one format"),
        ("other", "must hold files of one format"),
        ("other/log.npz", "must have the format parquet or csv"),
        ("bad.parquet", "is damaged, truncated or of another format"),
        ("logs/_SUCCESS", "suffix"),
    ],
)
def test_what_cannot_be_read_is_an_error_without_secrets(store, place, message):
    with pytest.raises(DataError, match=message) as caught:
        read(f"s3://{KEY}:{SECRET}@bucket/{place}{store[1]}")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("s3://reader:very/secret@bucket/log.parquet", "cannot be reached: Cannot parse URI"),
        ("nosuch://reader:very-secret@host/log.parquet", "Protocol not known: nosuch"),
        ("gcs2://x", "Protocol not known"),
        ("file://host/log.parquet", "must not name a machine"),
        ("file:///no/such/log.parquet", "/no/such/log.parquet does not exist"),
    ],
)
def test_wrong_addresses_are_errors_without_secrets(address, message):
    with pytest.raises(DataError, match=message) as caught:
        read(address)
    assert "secret" not in str(caught.value)


def test_a_missing_file_system_is_an_error_that_names_the_library(monkeypatch):
    def refuse(address):
        raise ImportError("Install stars to read the sky")

    monkeypatch.setattr(fsspec.core, "url_to_fs", refuse)
    with pytest.raises(DataError, match="Install stars to read the sky"):
        read("stars://sky/log.parquet")


def test_fsspec_opens_what_arrow_does_not(tmp_path):
    memory = fsspec.filesystem("memory")
    with memory.open("/folder/log.parquet", "wb") as file:
        pq.write_table(table(1000), file)
    same_bits(rows(read("memory://folder/*.parquet")), rows(read(table(1000))))
    memory.rm("/folder", recursive=True)


def test_local_addresses_are_paths(tmp_path):
    folder = tmp_path / "with space"
    folder.mkdir()
    pq.write_table(table(1000), folder / "log.parquet")
    for address in (folder.as_uri(), (folder / "log.parquet").as_uri(), f"{tmp_path.as_uri()}/*/*.parquet"):
        log = read(address)
        assert log.origin == str(folder / "log.parquet")
    assert vrtd.Evaluator(discount=0.9).fit(folder.as_uri()).n_rows_ == 1000
