"""What the options `--executor` and `--address` refuse before any work. What they do is in test_any_executor.py."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from vrtd.cli import main


@pytest.mark.parametrize("command", ["simulate --runs 2 --gradients 2000", "compare --quick", "reproduce bounds"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--address tcp://x:1", "--address belongs to --executor dask or ray, but got no --executor. Drop it, or"),
        (
            "--executor processes --address x",
            "--address belongs to --executor dask or ray, but got --executor processes",
        ),
        (
            "--executor ray --address x --threads 2",
            "--threads 2 has no effect on the cluster at x. Drop --threads or --address.",
        ),
        ("--executor processes --threads 0", "--threads must be a whole number of at least 1, but got 0."),
        ("--executor daks", "must be one of processes, dask, ray, but got 'daks'. Did you mean"),
    ],
)
def test_refused_options(
    capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, options: str, message: str
) -> None:
    monkeypatch.setitem(sys.modules, "ray", sys)  # whether it is installed is not the question
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(f"{command} {options}")) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "library"), [("dask", "distributed"), ("ray", "ray")])
def test_a_missing_library_is_named(
    capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, library: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.chdir(tmp_path)
    for command in ("simulate", "compare", "reproduce"):
        assert main([command, "--executor", name]) == 2
        told = f"vrtd: error: {library} is not installed. Run: pip install 'vrtd[{name}]'\n"
        assert capsys.readouterr().err == told
    assert list(tmp_path.iterdir()) == []
