"""Damaged files: one kind of error, and never other numbers where there are checksums."""

from __future__ import annotations

import json
import struct
import zipfile

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.helpers.log_cases import damaged, episodic, flip, rows, same_bits
from vrtd.errors import DataError
from vrtd.logs import from_arrays, read, write


def a_file(folder, kind, n=20):
    case = episodic(n)
    if kind == "minari":
        folder = folder / "data"
        folder.mkdir()
        (folder / "metadata.json").write_text(json.dumps({"data_format": "hdf5"}))
        path = folder / "main_data.hdf5"
        names = {"reward": "rewards", "terminated": "terminations", "truncated": "truncations"}
        with h5py.File(path, "w") as file:
            for k in range(2):
                file[f"episode_{k}/observations"] = np.concatenate([case["observations"], case["observations"][:1]])
                for name, stored in names.items():
                    file[f"episode_{k}/{stored}"] = case[name]
        return path, folder
    path = folder / f"log.{kind}"
    if kind == "hdf5":
        with h5py.File(path, "w") as file:
            for name, values in case.items():
                file[name] = values
    else:
        write(from_arrays(**case), path)
    return path, path


def rows_or_message(path):
    try:
        return rows(read(path)), ""
    except DataError as error:  # any other is a failure
        return None, str(error)


@pytest.mark.parametrize("kind", ["parquet", "npz", "csv", "hdf5", "minari"])
def test_random_damage_is_refused_or_harmless(tmp_path, kind):
    """20 rows: most of a file is then what describes the rows, where checksums of pages do not reach."""
    path, opened = a_file(tmp_path, kind)
    content, expected = path.read_bytes(), rows(read(opened))
    rng = np.random.default_rng(7)
    refused = 0
    for _ in range(200):
        path.write_bytes(damaged(content, rng))
        whole, message = rows_or_message(opened)
        refused += whole is None
        assert whole is not None or str(opened) in message
        if whole is not None and kind in ("parquet", "npz"):
            same_bits(whole, expected)
    assert refused > 40
    path.write_bytes(content)
    same_bits(rows(read(opened)), expected)


@pytest.mark.parametrize("kind", ["parquet", "npz"])
def test_every_byte_of_the_rows_is_verified(tmp_path, kind):
    path, _ = a_file(tmp_path, kind, n=4000)
    content = path.read_bytes()
    at = content.index(episodic(4000)["reward"][1000:1100].tobytes()[:64]) if kind == "npz" else len(content) // 2
    for shift in range(0, 64, 7):
        path.write_bytes(content)
        flip(path, at + shift, 1)
        with pytest.raises(DataError, match=r"log.*is damaged, truncated or of another format"):
            rows(read(path))


def test_without_checksums_damage_goes_unnoticed(tmp_path):
    """So the remark is needed, and the test above has power."""
    path = tmp_path / "a.parquet"
    table = pa.table({"obs": np.random.default_rng(0).random(4000), "r": np.zeros(4000)})
    pq.write_table(table, path, use_dictionary=False, compression="none", write_page_checksum=False)
    before = rows(read(path))
    flip(path, 8000, 1)
    log = read(path)
    assert not np.array_equal(rows(log)["observations"], before["observations"])
    assert "has no page checksums: integrity cannot be verified" in log.remarks[-1]


def test_a_damaged_column_name_is_refused(tmp_path):
    path, _ = a_file(tmp_path, "parquet")
    content = path.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    flip(path, content.index(b"truncated", footer), 1)
    with pytest.raises(DataError, match=r"log.parquet is damaged: its two lists of columns differ, .*'uruncated'"):
        read(path)
    path, _ = a_file(tmp_path, "npz")
    content = path.read_bytes()
    flip(path, content.rindex(b"truncated"), 1)
    with pytest.raises(DataError, match=r"log.npz"):
        read(path)


def test_hidden_members_of_an_npz_file_are_noticed(tmp_path):
    path, _ = a_file(tmp_path, "npz")
    with zipfile.ZipFile(path) as archive:
        first = archive.infolist()[-2]
    content = bytearray(path.read_bytes())
    entry = content.rindex(b"PK\1\2", 0, content.rindex(first.filename.encode()))
    last = content.rindex(b"PK\1\2")
    struct.pack_into("<H", content, entry + 32, len(content) - 22 - last)  # the last entry becomes a comment
    path.write_bytes(content)
    with pytest.raises(DataError, match="it lists 6 members, but should have 7"):
        read(path)


def test_an_npz_file_may_have_a_comment(tmp_path):
    path, _ = a_file(tmp_path, "npz")
    expected = rows(read(path))
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = b"recorded on a Monday"
    same_bits(rows(read(path)), expected)


def test_the_number_of_members_may_be_kept_elsewhere(tmp_path):
    path, _ = a_file(tmp_path, "npz")
    expected = rows(read(path))
    content = bytearray(path.read_bytes())
    struct.pack_into("<HH", content, len(content) - 14, 0xFFFF, 0xFFFF)  # as in an archive beyond 4 GiB
    path.write_bytes(content)
    same_bits(rows(read(path)), expected)


def test_a_member_that_is_longer_or_shorter_than_its_rows(tmp_path):
    path, _ = a_file(tmp_path, "npz")
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    reward = members["reward.npy"]
    for change, message in (
        (reward + b"x", "is damaged: it has bytes after its last row"),
        (reward[:-8], "is damaged: it ends too early"),
    ):
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in (members | {"reward.npy": change}).items():
                archive.writestr(name, content)
        with pytest.raises(DataError, match=f"log.npz, column reward, {message}"):
            rows(read(path))


def test_a_file_that_changes_while_it_is_read(tmp_path):
    path = tmp_path / "a.parquet"
    write(from_arrays(**episodic(50)), path)
    log = read(path)
    write(from_arrays(**episodic(40)), path)
    with pytest.raises(DataError, match=r"a.parquet announces 50 rows but has 40 rows: it is damaged, or"):
        list(log.chunks())
    path.unlink()
    with pytest.raises(DataError, match=r"a.parquet does not exist. Check the path"):
        list(log.chunks())


def test_a_file_of_another_format(tmp_path):
    for suffix in (".parquet", ".npz", ".hdf5", ".csv"):
        path = tmp_path / f"a{suffix}"
        path.write_bytes(b"\x00\xff not what it says\n\x80" * 20)
        with pytest.raises(DataError, match=f"a{suffix}"):
            list(read(path).chunks())


def a_small_parquet_file(path, **options):
    """Row groups shorter than a batch, so that pyarrow does not notice columns of another type."""
    x = np.random.default_rng(0).standard_normal(17).round(2)
    table = pa.table({"x": x[:-1], "next_x": x[1:], "r": np.ones(16)})
    options = {"row_group_size": 4, "write_page_checksum": True, "use_dictionary": False} | options
    pq.write_table(table, path, **options)
    return path.read_bytes()


def test_a_type_of_parquet_that_changed_is_refused(tmp_path):
    path = tmp_path / "a.parquet"
    content = bytearray(a_small_parquet_file(path))
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    at = content.index(b"\x15\x0a\x25\x02\x18\x01r", footer)  # DOUBLE, optional, "r"
    content[at + 1] = 0x08  # FLOAT
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"a.parquet is damaged"):
        rows(read(path))


def test_every_bit_of_the_schema_of_parquet(tmp_path):
    path = tmp_path / "a.parquet"
    content = a_small_parquet_file(path)
    expected = rows(read(path))
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    for at in range(footer, content.index(b"next_x", content.index(b"next_x", footer) + 1)):
        for bit in range(8):
            flip(path, at, 1 << bit)
            whole, _ = rows_or_message(path)
            if whole is not None:
                same_bits(whole, expected)
            flip(path, at, 1 << bit)


@pytest.mark.parametrize(
    ("options", "doubt"),
    [
        ({"data_page_version": "2.0"}, "has pages of version 2, whose checksums do not cover their headers"),
        ({"store_schema": False}, "has only one list of the types of its columns"),
        ({}, None),
    ],
)
def test_what_checksums_of_parquet_do_not_cover_is_remarked(tmp_path, options, doubt):
    path = tmp_path / "a.parquet"
    a_small_parquet_file(path, **options)
    log = read(path)
    rows(log)
    found = [remark for remark in log.remarks if "integrity" in remark]
    assert found == ([] if doubt is None else [f"{path} {doubt}: integrity cannot be verified"])


def an_hdf5_log(path, **columns):
    with h5py.File(path, "w") as file:
        for name, values in ({"observations": np.arange(64.0), "rewards": np.ones(64)} | columns).items():
            file[name] = values


def test_hdf5_does_not_read_other_files(tmp_path):
    secret, path = tmp_path / "secret", tmp_path / "log.hdf5"
    secret.write_bytes(bytes(64))
    an_hdf5_log(tmp_path / "other.hdf5")
    with h5py.File(path, "w") as file:
        file["rewards"] = np.ones(64)
        file.create_dataset("observations", (64,), np.uint8, external=[(str(secret), 0, 64)])
    with pytest.raises(DataError, match=r"log.hdf5, column observations, has values in other files"):
        read(path)
    layout = h5py.VirtualLayout((64,), np.float64)
    layout[:] = h5py.VirtualSource(str(tmp_path / "other.hdf5"), "observations", (64,))
    with h5py.File(path, "w") as file:
        file["rewards"] = np.ones(64)
        file.create_virtual_dataset("observations", layout)
    with pytest.raises(DataError, match=r"log.hdf5, column observations, has values in other files"):
        read(path)
    with h5py.File(path, "w") as file:
        file["rewards"] = np.ones(64)
        file["observations"] = h5py.ExternalLink(str(tmp_path / "other.hdf5"), "observations")
    with pytest.raises(DataError, match=r"log.hdf5 has links to values in other files"):
        read(path)


def test_hdf5_does_not_declare_more_than_it_holds(tmp_path):
    path = tmp_path / "log.hdf5"
    for shape in ((2**40,), (64, 2**23)):
        with h5py.File(path, "w") as file:
            file.create_dataset("observations", shape, np.float64)
            file.create_dataset("rewards", shape[:1], np.float64)
        with pytest.raises(DataError, match=r"log.hdf5, column observations, has .* bytes, but declares contents of"):
            read(path)


def test_parquet_does_not_declare_more_than_it_holds(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"obs": [[0.0] * 2**25], "r": [1.0]}), path)
    assert path.stat().st_size < 10_000
    with pytest.raises(DataError, match=r"a.parquet has .* bytes, but declares contents of"):
        read(path)


def test_a_page_longer_than_the_file_is_refused(tmp_path):
    """pyarrow would take memory for all of it."""
    path = tmp_path / "a.parquet"
    content = a_small_parquet_file(path, row_group_size=16, compression="none")
    header = content.index(b"\x15\x00\x15", 4)
    path.write_bytes(content[: header + 3] + b"\xff\xff\xff\xff\x0f" + content[header + 5 :])
    with pytest.raises(DataError, match=r"a.parquet is damaged"):
        read(path)
