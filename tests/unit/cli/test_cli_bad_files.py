"""Files that a command cannot read: special files, which would block it, and damaged ones."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest

from tests.helpers.log_cases import damaged, episodic
from vrtd.cli import main
from vrtd.cli.terminal import BAD_USAGE
from vrtd.errors import DataError, InvalidInputError
from vrtd.estimator.evaluation_source import read_policy
from vrtd.files import check_regular
from vrtd.logs import from_arrays, write

LAKE = ["evaluate", "--env", "FrozenLake-v1", "--discount", "0.9", "--samples", "3000", "--quiet"]
REFUSED = "must be a regular file, but is a FIFO or a pipe. Write its content to a regular file.\n"


DAMAGED = "is damaged, truncated or of another format: "


# Special files


def in_time(folder: Path, *command: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """In a process of its own: what opens a FIFO waits for ever, in code that no signal handler ends."""
    return subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True, timeout=60, **options)


@pytest.fixture(scope="module")
def with_fifos(tmp_path_factory: Any) -> Path:
    """A whole log beside a FIFO, alone and in data sets of Minari."""
    folder: Path = tmp_path_factory.mktemp("fifos")
    for name in ("logs", "m_hdf5/data", "m_arrow/data/0", "m_parquet/data/0"):
        (folder / name).mkdir(parents=True)
    write(from_arrays(**episodic(50)), folder / "logs" / "a.csv")
    for kind in ("hdf5", "arrow", "parquet"):
        (folder / f"m_{kind}" / "data" / "metadata.json").write_text(f'{{"data_format": "{kind}"}}')
    for name in ("logs/b.csv", "m_hdf5/data/main_data.hdf5", "m_arrow/data/0/d.arrow", "m_parquet/data/0/d.parquet"):
        os.mkfifo(folder / name)
    for name in ("p.npy", "p.npz"):
        os.mkfifo(folder / name)
    return folder


def test_a_log_that_is_a_fifo_is_refused_unopened(with_fifos: Path) -> None:
    cases = [
        *(("logs/b.csv", {}), ("logs", {}), ("logs/*.csv", {}), (["logs/a.csv", "logs/b.csv"], {})),
        *(("logs/b.csv", {"format": kind}) for kind in ("parquet", "npz", "hdf5")),
        *((name, {}) for name in ("m_hdf5", "m_arrow", "m_parquet")),
    ]
    code = (
        "from vrtd.errors import DataError\nfrom vrtd.logs import read\n"
        f"for paths, options in {cases!r}:\n"
        "    try: print(read(paths, **options))\n"
        "    except DataError as error: print(error)\n"
    )
    shown = in_time(with_fifos, "-c", code)
    assert shown.stderr == ""
    messages = shown.stdout.splitlines(keepends=True)
    assert len(messages) == len(cases)
    for message, (paths, _) in zip(messages, cases, strict=True):
        assert message.endswith(REFUSED), paths
    assert messages[1] == f"logs/b.csv {REFUSED}"


def test_options_that_name_a_fifo_are_refused(with_fifos: Path) -> None:
    options = [
        *(["--data", "logs/b.csv"], ["--data", "logs"]),
        *(["--env", "FrozenLake-v1", "--policy", name] for name in ("p.npy", "p.npz")),
    ]
    code = (
        "from vrtd.cli import main\n"
        f"for options in {options!r}: print(main(['evaluate', '--discount', '0.9', *options]))\n"
    )
    shown = in_time(with_fifos, "-c", code)
    assert shown.stdout.split() == [str(BAD_USAGE)] * 4
    for message, name in zip(
        shown.stderr.splitlines(keepends=True), ("logs/b.csv", "logs/b.csv", "p.npy", "p.npz"), strict=True
    ):
        assert message == f"vrtd: error: {name} {REFUSED}"


@pytest.mark.parametrize("more", [[], ["--format", "csv"]])
def test_a_log_on_the_standard_input_must_be_a_file(with_fifos: Path, more: list[str]) -> None:
    arguments = ["-m", "vrtd", "evaluate", "--discount", "0.9", "--data", "/dev/stdin", "--quiet", "--out", "o", *more]
    piped = in_time(with_fifos, *arguments, input=(with_fifos / "logs" / "a.csv").read_text())
    assert (piped.returncode, piped.stderr) == (BAD_USAGE, f"vrtd: error: /dev/stdin {REFUSED}")


@pytest.mark.slow
def test_output_beside_a_fifo_is_refused(tmp_path: Path) -> None:
    """What a command reads to find out whether a file is its own."""
    for name in ("manifest.json", "diagnostics.json", "curve.csv"):
        os.mkfifo(tmp_path / name)
    for command in (
        [*LAKE, "--out", "."],
        ["reproduce", "--quick", "--out", "."],
        ["simulate", "--runs", "2", "--gradients", "10", "--figure", "curve.png"],
    ):
        shown = in_time(tmp_path, "-m", "vrtd", *command)
        assert shown.returncode == BAD_USAGE
        assert "holds something else. Name another" in shown.stderr


def test_every_kind_of_special_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s")
        with pytest.raises(DataError, match=r"s must be a regular file, but is a socket\. Write"):
            check_regular("s")
    with pytest.raises(DataError, match=r"/dev/null must be a regular file, but is a character device\. Write"):
        check_regular("/dev/null")
    os.mkfifo("fifo")
    os.symlink("fifo", "link")
    with pytest.raises(DataError, match="link must be a regular file, but is a FIFO"):
        check_regular("link")
    Path("file").touch()
    check_regular("file")
    check_regular(tmp_path)


# Damaged policies


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({"a": np.zeros(2), "b": np.zeros(2)}, "must be a file with one array of numbers, but holds 2 arrays (a, b)"),
        ({}, "must be a file with one array of numbers, but holds no array"),
        ({"a": np.array([print], dtype=object)}, "allow_pickle"),
    ],
)
def test_policy_files_without_one_array_are_refused(tmp_path: Path, capsys: Any, content: Any, problem: str) -> None:
    path = tmp_path / "policy.npz"
    np.savez(path, **content)
    assert main([*LAKE, "--policy", str(path), "--out", str(tmp_path / "out")]) == BAD_USAGE
    assert problem in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def npy(header: str, content: bytes = b"") -> bytes:
    """A .npy file with this header, right or wrong."""
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + content


def header(shape: str) -> str:
    return f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}\n"


def zipped(content: bytes) -> bytes:
    buffer = BytesIO()
    with ZipFile(buffer, "w") as archive:
        archive.writestr("policy", content)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("p.npy", b"", f"{DAMAGED}EOFError"),
        ("p.npy", npy("{'descr': '<f8', 'shape': (16, 4), \n"), f"{DAMAGED}TokenError"),
        ("p.npy", npy("{'descr': '<f8'}\n"), f"{DAMAGED}ValueError"),
        ("p.npy", npy(header("(16, 4)"), b"short"), f"{DAMAGED}ValueError"),
        ("p.npy", npy(header("(1152921504606846975,)")), DAMAGED),  # what it is depends on the memory there is
        ("p.npy", npy(header("(9999999999999999999999,)")), DAMAGED),
        ("p.npy", npy("(" * 9000 + "\n"), DAMAGED),
        ("p.npz", b"PK\x03\x04 and no more", f"{DAMAGED}BadZipFile"),
        ("p.npz", zipped(b"text"), "must be a file with one array of numbers, but holds no array"),
        ("p.npz", zipped(npy("{'descr': '<f8', 'shape': \n")), f"{DAMAGED}TokenError"),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else None,
)
def test_damaged_policy_files_are_refused(tmp_path: Path, capsys: Any, name: str, content: bytes, problem: str) -> None:
    (tmp_path / name).write_bytes(content)
    assert main([*LAKE, "--policy", str(tmp_path / name), "--out", str(tmp_path / "out")]) == BAD_USAGE
    message = capsys.readouterr().err
    assert message.startswith(f"vrtd: error: --policy {tmp_path / name} {problem}")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("suffix", "raised"), [(".npy", {"ValueError", "TokenError"}), (".npz", {"BadZipFile"})])
def test_random_damage_to_a_policy_file(tmp_path: Path, suffix: str, raised: set[str]) -> None:
    path = tmp_path / f"p{suffix}"
    policy = np.eye(4)[np.arange(16) % 4]
    np.save(path, policy) if suffix == ".npy" else np.savez_compressed(path, policy=policy)
    content, rng, problems = path.read_bytes(), np.random.default_rng(5), set()
    for _ in range(200):
        path.write_bytes(damaged(content, rng))
        try:
            read_policy(str(path))
        except InvalidInputError as error:  # any other is a failure
            problems |= set(re.findall(rf"{DAMAGED}(\w+)", error.problem))
    assert raised <= problems


def test_results_and_models_that_are_fifos_are_refused_unopened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.npz")
    for load in ("vrtd.load", "vrtd.Evaluator.load"):
        code = f"import vrtd\ntry: {load}('fifo.npz')\nexcept vrtd.errors.DataError as error: print(error)"
        assert REFUSED in in_time(tmp_path, "-c", code).stdout
