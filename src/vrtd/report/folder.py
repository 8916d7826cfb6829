"""The output folder of a report, which must be new, empty or the folder of an earlier report of the same kind."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from vrtd import store
from vrtd.errors import InvalidInputError
from vrtd.files import check_regular, locked, write_at_once

_MANIFEST = "manifest.json"


@contextmanager
def opened(folder: Path, form: str, noun: str, parts: Sequence[str]) -> Iterator[Path]:
    """Lock the folder, create the subfolders `parts`, and record the format `form` in its manifest."""
    with hold(folder, form, noun):
        mark(folder, form, parts)
        yield folder


@contextmanager
def hold(folder: Path, form: str, noun: str, manifest: str = _MANIFEST) -> Iterator[None]:
    """Lock the folder against other processes. A new folder is removed if nothing was written into it."""
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not _is_ours(folder, form, manifest))):
        raise InvalidInputError(
            f"The output folder must be new, empty or that of an earlier {noun}, but {folder} holds something else.",
            "Name another folder.",
        )
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with locked(folder):
            yield
    finally:
        with suppress(OSError):  # not empty
            for path in missing:
                path.rmdir()


def mark(folder: Path, form: str, parts: Sequence[str], manifest: str = _MANIFEST) -> None:
    """Write the manifest with the format, unless it exists, and create the subfolders."""
    if not (folder / manifest).is_file():
        store.write_json({"format": form}, folder / manifest)
    for part in parts:
        (folder / part).mkdir(exist_ok=True)


def write_text(text: str, path: Path) -> None:
    """Write a text file atomically, in UTF-8."""
    with write_at_once(path) as file:
        file.write(text.encode())


def _is_ours(folder: Path, form: str, manifest: str) -> bool:
    if all(path.name.startswith(f".{manifest}.") for path in folder.iterdir()):
        return True  # a report was interrupted before its manifest was complete
    try:
        check_regular(folder / manifest)
        return bool(json.loads((folder / manifest).read_bytes())["format"] == form)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False
