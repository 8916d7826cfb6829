"""Optional libraries that a command needs: all that are missing are named at once, before any work."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from vrtd.cli import main
from vrtd.cli.libraries import EXTRAS

NOTHING = "evaluate --data a.csv --discount 0.9"


@pytest.mark.parametrize(
    ("line", "libraries", "extras"),
    [
        ("evaluate --env FrozenLake-v1 --discount 0.9", "matplotlib, pyarrow and gymnasium are", "plot,data,gym"),
        (NOTHING, "matplotlib and pyarrow are", "plot,data"),
        (f"{NOTHING} --order-by time", "matplotlib, pyarrow and duckdb are", "plot,data"),
        ("evaluate --data a.csv b.h5 --discount 0.9", "matplotlib, pyarrow and h5py are", "plot,data,minari"),
        (f"{NOTHING} --format minari --order-by t", "matplotlib, pyarrow, h5py and duckdb are", "plot,data,minari"),
        ("compare --quick", "matplotlib and pyarrow are", "plot,data"),
        ("reproduce --quick", "matplotlib is", "plot"),
        ("simulate --figure a.png", "matplotlib is", "plot"),
        ("simulate --device cuda", "numba_cuda is", "cuda"),
        ("compare --device cuda", "matplotlib, pyarrow and numba_cuda are", "plot,data,cuda"),
        ("reproduce --device cuda", "matplotlib and numba_cuda are", "plot,cuda"),
        ("plan --budget 9 --figure a.png", "matplotlib is", "plot"),
    ],
)
def test_all_missing_libraries_are_named_at_once(
    capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, libraries: str, extras: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for library in EXTRAS:
        monkeypatch.setitem(sys.modules, library, None)
    assert main(shlex.split(line)) == 2
    shown, noise = capsys.readouterr()
    assert shown == ""
    assert noise.startswith(f"vrtd: error: {libraries} not installed. ")
    assert noise.endswith(f"not installed. Run: pip install 'vrtd[{extras}]'\n")
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_needed_is_not_asked_for(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for library in EXTRAS:
        monkeypatch.setitem(sys.modules, library, None)
    assert main(shlex.split("simulate --runs 4 --gradients 2000 --batch-size 50 --checkpoints 5 --quiet")) == 0
    assert "squared_error" in capsys.readouterr().out
