"""The folder that a report is written into: new, empty, or that of an earlier one of the same kind."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from vrtd import store
from vrtd.errors import InvalidInputError
from vrtd.files import check_regular, locked, write_at_once


@contextmanager
def opened(folder: Path, form: str, noun: str, parts: Sequence[str]) -> Iterator[Path]:
    """The folder with its `parts`, into which nobody else writes; its manifest names the format `form`."""
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not _is_ours(folder, form))):
        raise InvalidInputError(
            f"the output folder must be new, empty or that of an earlier {noun}",
            f"{folder}, which holds something else",
            "name another",
        )
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        if not (folder / "manifest.json").is_file():  # first, so that the folder is known as ours from now on
            store.write_json({"format": form}, folder / "manifest.json")
        for part in parts:
            (folder / part).mkdir(exist_ok=True)
        yield folder


def write_text(text: str, path: Path) -> None:
    with write_at_once(path) as file:
        file.write(text.encode())


def _is_ours(folder: Path, form: str) -> bool:
    if all(path.name.startswith(".manifest.json.") for path in folder.iterdir()):
        return True  # begun, and ended before it had a manifest
    try:
        check_regular(folder / "manifest.json")
        return bool(json.loads((folder / "manifest.json").read_bytes())["format"] == form)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False
