"""Output files of commands: checked before the work, and written completely or not at all."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from vrtd.cli.interrupts import raise_when_safe
from vrtd.errors import InvalidInputError

JSON_HELP = "Print one JSON object."
QUIET_HELP = "Show no progress."
_SUFFIXES = {"out": (".npz",), "data": (".csv",), "figure": (".png", ".svg", ".pdf")}


def folder(name: str) -> Path:
    """Return the path of a folder from the value of an option."""
    if not name:  # an unset variable, which would be the current folder
        raise argparse.ArgumentTypeError("must be the name of a folder, but got ''.")
    return Path(name)


def add_file_options(add: Any, what: str) -> None:
    """Add the options for a figure and its table."""
    add("--figure", type=Path, metavar="FILE", help=f"Draw {what} into a .png, .svg or .pdf file.")
    text = f"Write the numbers of {what} to this file. (default: next to the figure)"
    add("--data", type=Path, metavar="FILE.csv", help=text)


def check_files(given: Mapping[str, Any], header: str) -> dict[str, Path]:
    """Return the files to write; refuse those that could not be written after the work.

    A table beside a figure replaces only a table of this command, which begins with `header`.
    """
    files: dict[str, Path] = {kind: given[kind] for kind in _SUFFIXES if kind in given}
    for kind, path in files.items():
        if path.suffix not in _SUFFIXES[kind] or path.is_dir():
            raise InvalidInputError(
                f"--{kind} must be a {' or '.join(_SUFFIXES[kind])} file, but got {path}.", "Change the name."
            )
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise InvalidInputError(
                f"--{kind} must be in an existing, writable folder, but {path.parent} is not.",
                "Create the folder, or use another one.",
            )
    if "figure" in files and "data" not in files:
        beside = files["figure"].with_suffix(".csv")
        if beside.exists() and not (beside.is_file() and beside.read_bytes().startswith(header.encode())):
            raise InvalidInputError(
                f"The numbers of the figure would replace {beside}, which holds something else.",
                "Name another file with --data.",
            )
        files["data"] = beside
    return files


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure in the format of the suffix."""
    from vrtd.files import write_at_once

    with write_at_once(path) as file:
        try:
            figure.savefig(file, format=path.suffix[1:], dpi=150)
        except (OSError, MemoryError):
            raise
        except Exception as error:  # Matplotlib raises almost any, for example if it has to call a missing LaTeX
            cause = " ".join(f"{type(error).__name__}: {error}".split())
            problem = f"The figure {path} could not be drawn: {cause[:200].rstrip('.')}."
            raise InvalidInputError(problem, "Check the settings of Matplotlib in matplotlibrc.") from error


def deliver(files: Mapping[str, Path], writers: Mapping[str, Callable[[Path], Any]], text: str, announce: bool) -> None:
    """Write the files, and print the text even if a file cannot be written."""
    raise_when_safe()  # Ctrl-C then removes temporary files
    try:
        for kind, write in writers.items():
            if kind in files:
                write(files[kind])
    finally:
        print(text)
    if files and announce:
        print(f"wrote {', '.join(map(str, files.values()))}")
