"""Files that are there whole or not at all, and what a killed process leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from io import BytesIO
from pathlib import Path
from threading import Thread
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import pytest

import vrtd
from vrtd import files
from vrtd.errors import DataError, InvalidInputError
from vrtd.files import pack_arrays, read_arrays, reserved, translate_errors, write_at_once

WRITER = """
import sys, time
from vrtd.files import write_at_once
with write_at_once(sys.argv[1]) as file:
    file.write(b"half")
    file.flush()
    print("writing", flush=True)
    time.sleep(600)
"""


def start(*command: str) -> subprocess.Popen[str]:
    env = os.environ | {"PYTHONPATH": str(Path(vrtd.__file__).parents[1])}
    return subprocess.Popen([sys.executable, *command], env=env, stdout=subprocess.PIPE, text=True)


def writer_of(path: Path) -> subprocess.Popen[str]:
    """A process that is writing this file."""
    process = start("-c", WRITER, str(path))
    assert process.stdout is not None
    assert process.stdout.readline() == "writing\n"
    return process


def temporaries(folder: Path) -> list[Path]:
    return sorted(folder.glob(".*.tmp"))


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL


def test_temporary_files_of_killed_processes_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "a+[1].csv"  # signs that patterns use
    process = writer_of(path)
    left = temporaries(tmp_path)
    assert [one.read_bytes() for one in left] == [b"half"]
    with write_at_once(path) as file:  # while the process lives
        file.write(b"first")
    assert temporaries(tmp_path) == left
    end(process)
    assert temporaries(tmp_path) == left
    with write_at_once(tmp_path / "b.csv") as file:  # another file
        file.write(b"other")
    assert temporaries(tmp_path) == left
    with write_at_once(path) as file:
        file.write(b"second")
    assert temporaries(tmp_path) == []
    assert path.read_bytes() == b"second"


def test_files_with_similar_names_stay(tmp_path: Path) -> None:
    own = [".a.csv.tmp", ".a.csv.1.tmp", ".a.csv.1.x.tmp", "a.csv.1.2.tmp", ".a.csv.1.2.tmp~", ".a.csv.old.1.2.tmp"]
    for name in own:
        (tmp_path / name).touch()
    (tmp_path / "target").touch()
    (tmp_path / ".a.csv.1.2.tmp").mkdir()
    (tmp_path / ".a.csv.1.3.tmp").symlink_to("target")
    with write_at_once(tmp_path / "a.csv") as file:
        file.write(b"x")
    kept = {path.name for path in tmp_path.iterdir()}
    assert kept == {*own, "target", ".a.csv.1.2.tmp", ".a.csv.1.3.tmp", "a.csv"}


def test_writers_of_one_file_at_once_do_not_remove_each_other(tmp_path: Path) -> None:
    failed: list[BaseException] = []

    def write(k: int) -> None:
        try:
            for _ in range(200):
                with write_at_once(tmp_path / "a.csv") as file:
                    file.write(b"%d" % k * 1000)
        except BaseException as error:
            failed.append(error)

    threads = [Thread(target=write, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(set((tmp_path / "a.csv").read_bytes())) == 1
    assert temporaries(tmp_path) == []


def test_a_file_that_is_removed_before_it_is_locked_is_made_again(tmp_path: Path, monkeypatch: Any) -> None:
    lock, path = files.fcntl.flock, tmp_path / "a.csv"

    def late(file: Any, operation: int) -> None:
        monkeypatch.setattr(files.fcntl, "flock", lock)
        files._remove_abandoned(path)
        lock(file, operation)

    monkeypatch.setattr(files.fcntl, "flock", late)
    with write_at_once(path) as file:
        file.write(b"x")
    assert path.read_bytes() == b"x"


def test_a_newer_file_of_the_same_name_stays(tmp_path: Path, monkeypatch: Any) -> None:
    """Its writer finished one file and began the next while the first one was looked at."""
    lock, path = files.fcntl.flock, tmp_path / ".a.csv.1.2.tmp"
    path.write_bytes(b"first")

    def late(file: Any, operation: int) -> None:
        monkeypatch.setattr(files.fcntl, "flock", lock)
        path.rename(tmp_path / "a.csv")
        path.write_bytes(b"second")
        lock(file, operation)

    monkeypatch.setattr(files.fcntl, "flock", late)
    files._remove_abandoned(tmp_path / "a.csv")
    assert path.read_bytes() == b"second"


def test_a_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    path, read = tmp_path / "pipe.csv", []
    os.mkfifo(path)
    reader = Thread(target=lambda: read.append(path.read_bytes()))
    reader.start()
    with write_at_once(path) as file:
        file.write(b"through")
    reader.join()
    assert read == [b"through"]
    assert path.is_fifo()


def test_a_device_is_written_to_and_stays(tmp_path: Path) -> None:
    """A terminal, in the place of /dev/null."""
    ours, theirs = os.openpty()
    device = os.ttyname(theirs)
    (tmp_path / "link.csv").symlink_to(device)
    before = os.stat(device).st_rdev
    with write_at_once(tmp_path / "link.csv") as file:
        file.write(b"through")
    assert os.read(ours, 100) == b"through"
    assert os.stat(device).st_rdev == before
    os.close(ours)
    os.close(theirs)


def test_errors_name_the_file_and_not_the_temporary_one(tmp_path: Path, monkeypatch: Any) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as stop, write_at_once(tmp_path / "a.csv") as file:
        file.write(b"x")
    assert stop.value.filename == str(tmp_path / "a.csv")
    assert list(tmp_path.iterdir()) == []
    for path, message in ((tmp_path, "path must be a file, but .* is a folder"), (None, "path must be a path, but is")):
        with pytest.raises(InvalidInputError, match=message), write_at_once(path):
            pass


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("can't start new thread"), OSError(12, "Cannot allocate memory")]
)
def test_a_lack_of_memory_is_not_taken_for_damage(error: Exception) -> None:
    with (
        pytest.raises(MemoryError, match=r"Not enough memory or threads to read a\.parquet"),
        translate_errors("a.parquet"),
    ):
        raise error


def test_an_array_of_an_impossible_size_is_damage() -> None:
    with pytest.raises(DataError, match=r"a\.npy is damaged.* Unable to allocate"), translate_errors("a.npy"):
        np.empty(2**57)


def test_errors_of_the_system_are_not_taken_for_damage() -> None:
    with (
        pytest.raises(DataError, match=r"a\.csv could not be read: Illegal seek\. Write its content to a regular file"),
        translate_errors("a.csv"),
    ):
        raise OSError(29, "Illegal seek")


@pytest.mark.parametrize(("hours", "is_removed"), [(1, False), (25, True)])
def test_without_locks_temporary_files_are_removed_after_a_day(
    tmp_path: Path, monkeypatch: Any, hours: int, is_removed: bool
) -> None:
    """As on Windows."""
    monkeypatch.setattr(files, "_HAS_LOCKS", False)
    monkeypatch.delattr(files, "fcntl")
    left = tmp_path / ".a.csv.1.2.tmp"
    left.touch()
    os.utime(left, (0, time.time() - 3600 * hours))
    with write_at_once(tmp_path / "a.csv") as file:
        file.write(b"x")
    assert (tmp_path / "a.csv").read_bytes() == b"x"
    assert left.exists() is not is_removed


@pytest.mark.slow
def test_a_killed_recording_leaves_no_rows_behind(tmp_path: Path) -> None:
    command = [
        *(
            "-m",
            "vrtd",
            "evaluate",
            "--env",
            "FrozenLake-v1",
            "--discount",
            "0.9",
            "--algorithm",
            "closed_form",
            "--quiet",
        ),
        *("--out", str(tmp_path / "out"), "--record", str(tmp_path / "rows.parquet"), "--samples"),
    ]
    process = start(*command, "100000000")
    while not temporaries(tmp_path):
        assert process.poll() is None
        time.sleep(0.01)
    end(process)
    assert len(temporaries(tmp_path)) == 1
    process = start(*command, "500")
    process.communicate()
    assert process.returncode == 0
    assert {path.name for path in tmp_path.iterdir()} == {"out", "rows.parquet"}


def test_a_reserved_file_is_refused_until_it_is_free(tmp_path):
    path = tmp_path / "rows.parquet"
    code = f"""
from pathlib import Path
from vrtd.files import reserved
with reserved(Path({str(path)!r})):
    print("reserved", flush=True)
    input()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, text=True) as other:
        assert other.stdout.readline() == "reserved\n"
        with (
            pytest.raises(InvalidInputError, match=r"rows.parquet is being recorded by another process"),
            reserved(path),
        ):
            pass
        other.kill()
    with reserved(path):  # the lock of a killed process is free
        pass
    assert not list(tmp_path.iterdir())


def test_members_out_of_proportion_are_refused(tmp_path):
    """300 MB of zeros in 300 kB."""
    content, zeros = BytesIO(), bytes(2**20)
    with ZipFile(content, "w", ZIP_DEFLATED, compresslevel=1) as archive, archive.open("x.npy", "w") as member:
        for _ in range(300):
            member.write(zeros)
    with pytest.raises(DataError, match=r"declares contents of 314,572,800 bytes. At most 268,435,456 are allowed"):
        read_arrays(content.getvalue(), "a")


def test_what_is_written_is_never_out_of_proportion(monkeypatch):
    monkeypatch.setattr("vrtd.files._DECLARED_BYTES", 1000)
    arrays = {"x": np.zeros(100_000)}
    content = pack_arrays({"format": "a"}, arrays)
    assert len(content) > 800_000  # without compression
    assert np.array_equal(read_arrays(content, "a")[1]["x"], arrays["x"])
