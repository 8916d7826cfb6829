"""Files that a command writes: checked before the work, written after it, each whole or not at all."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from vrtd.cli.interrupts import raise_when_safe
from vrtd.errors import InvalidInputError

_SUFFIXES = {"out": (".npz",), "data": (".csv",), "figure": (".png", ".svg", ".pdf")}


def folder(name: str) -> Path:
    """The type of an option that names one."""
    if not name:  # an unset variable, which would be the current folder
        raise argparse.ArgumentTypeError("must be the name of a folder; got ''")
    return Path(name)


def add_file_options(add: Any, what: str) -> None:
    add("--figure", type=Path, metavar="FILE", help=f"draw {what} into a .png, .svg or .pdf file")
    add("--data", type=Path, metavar="FILE.csv", help=f"the numbers of {what} (default: beside the figure)")


def check_files(given: Mapping[str, Any], header: str) -> dict[str, Path]:
    """Where to write, so that nothing is lost after the work; tables of this command begin with `header`."""
    files: dict[str, Path] = {kind: given[kind] for kind in _SUFFIXES if kind in given}
    for kind, path in files.items():
        if path.suffix not in _SUFFIXES[kind] or path.is_dir():
            raise InvalidInputError(f"--{kind} must be a {' or '.join(_SUFFIXES[kind])} file", path, "change the name")
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise InvalidInputError(
                f"--{kind} must be in a folder that exists and can be written", path.parent, "create it, or use another"
            )
    if "figure" in files and "data" not in files:
        beside = files["figure"].with_suffix(".csv")
        if beside.exists() and not (beside.is_file() and beside.read_bytes().startswith(header.encode())):
            raise InvalidInputError(
                "the numbers of a figure go beside it", f"{beside}, which holds something else", "name a --data file"
            )
        files["data"] = beside
    return files


def save_figure(figure: Any, path: Path) -> None:
    from vrtd.files import write_at_once

    with write_at_once(path) as file:
        figure.savefig(file, format=path.suffix[1:], dpi=150)


def deliver(files: Mapping[str, Path], writers: Mapping[str, Callable[[Path], Any]], text: str, announce: bool) -> None:
    """Write every file that is wanted and print the text; a full disk must not take the numbers too."""
    raise_when_safe()  # so that no temporary file stays
    try:
        for kind, write in writers.items():
            if kind in files:
                write(files[kind])
    finally:
        print(text)
    if files and announce:
        print(f"wrote {', '.join(map(str, files.values()))}")
