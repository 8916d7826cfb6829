"""The output folder of a report, which must be new, empty or the folder of an earlier report of the same kind."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile

from vrtd import store
from vrtd.errors import InvalidInputError
from vrtd.files import check_regular, locked, write_at_once

_MANIFEST = "manifest.json"
_NEW = ".vrtd-new"  # folder of files that are not yet in their place
_AT_CWD, _EXCHANGE = -100, 2  # of renameat2 in Linux


@contextmanager
def opened(folder: Path, form: str, noun: str, parts: Sequence[str]) -> Iterator[Path]:
    """Lock the folder, create the subfolders `parts`, and record the format `form` in its manifest."""
    with hold(folder, form, noun):
        mark(folder, form, parts)
        yield folder


@contextmanager
def hold(folder: Path, form: str, noun: str, manifest: str = _MANIFEST) -> Iterator[None]:
    """Lock the folder against other processes. A new folder is removed if nothing was written into it."""
    holds_something_else = InvalidInputError(
        f"The output folder must be new, empty or that of an earlier {noun}, but {folder} holds something else.",
        "Name another folder.",
    )
    try:
        if folder.exists() and not folder.is_dir():
            raise holds_something_else
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _not_writable(folder, error) from None
    try:
        try:
            if any(folder.iterdir()) and not _is_ours(folder, form, manifest):
                raise holds_something_else
            with TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise _not_writable(folder, error) from None
        with locked(folder):
            yield
    finally:
        with suppress(OSError):  # not empty
            for path in missing:
                path.rmdir()


def _not_writable(folder: Path, error: OSError) -> InvalidInputError:
    problem = f"The output folder {folder} cannot be written: {error.strerror}."
    return InvalidInputError(problem, "Change its permissions, free space, or name another folder.")


def mark(folder: Path, form: str, parts: Sequence[str], manifest: str = _MANIFEST) -> None:
    """Write the manifest with the format, unless it exists, and create the subfolders."""
    if not (folder / manifest).is_file():
        store.write_json({"format": form}, folder / manifest)
    for part in parts:
        (folder / part).mkdir(exist_ok=True)


@contextmanager
def replacement(folder: Path, form: str, manifest: str, ours: Collection[str]) -> Iterator[Path]:
    """Yield a new folder whose files replace those of ``folder`` at the end, unless there is an error.

    The two folders are exchanged in one step, so that a crash leaves all files of the earlier report or all of the new
    one. If the folder holds other files, is the current folder or a mounted one, or if the system has no such step, the
    files of the earlier report are removed first and the new ones are moved one by one, the manifest last: a crash in
    these milliseconds leaves a part of one report. ``ours`` are the paths of all files that a report can have. Other
    files are never touched.
    """
    target = Path(os.path.realpath(folder))
    new = _make_beside(target)
    try:
        store.write_json({"format": form}, new / manifest)  # until the report is complete
        yield new
        for path in new.rglob(".*.tmp"):  # of a write that was interrupted
            path.unlink()
        if not _exchange(new, target, ours):
            names = [path.relative_to(new).as_posix() for path in sorted(new.rglob("*")) if path.is_file()]
            names.sort(key=manifest.__eq__)
            try:
                _move(new, target, names, form, manifest, ours)
            except KeyboardInterrupt:
                _move(new, target, names, form, manifest, ours)
                raise
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _make_beside(target: Path) -> Path:
    """Create an empty folder beside this one, or else in it, in place of one that a crash left."""
    places = [target.with_name(f".{target.name}{_NEW}"), target / _NEW]
    for place in places:
        shutil.rmtree(place, ignore_errors=True)
    if not os.path.ismount(target):
        with suppress(OSError):
            places[0].mkdir()
            shutil.copymode(target, places[0])
            return places[0]
    places[1].mkdir()
    return places[1]


def _exchange(new: Path, target: Path, ours: Collection[str]) -> bool:
    """Exchange the two folders where this affects no other files, and return whether it was done."""
    known = {*ours, *(name.rpartition("/")[0] for name in ours)}
    if new.parent == target or any(path.relative_to(target).as_posix() not in known for path in target.rglob("*")):
        return False
    before, after = target.stat(), new.stat()
    if _is_current(target) or (before.st_uid, before.st_gid) != (after.st_uid, after.st_gid):
        return False
    try:
        rename = ctypes.CDLL(None).renameat2
    except (OSError, AttributeError, TypeError):  # another system than Linux
        return False
    return bool(rename(_AT_CWD, os.fsencode(new), _AT_CWD, os.fsencode(target), _EXCHANGE) == 0)


def _is_current(folder: Path) -> bool:
    try:
        return Path.cwd().is_relative_to(folder)
    except FileNotFoundError:  # the current folder was removed
        return False


def _move(new: Path, target: Path, names: Sequence[str], form: str, manifest: str, ours: Collection[str]) -> None:
    """Remove the files of the earlier report, and move the new ones; it can be repeated after an interruption."""
    if not (new / manifest).exists():
        return
    store.write_json({"format": form}, target / manifest)
    for name in ours:
        if name != manifest and (name not in names or (new / name).exists()):
            (target / name).unlink(missing_ok=True)
    for name in names:
        if (new / name).exists():
            (target / name).parent.mkdir(exist_ok=True)
            (new / name).replace(target / name)


def write_text(text: str, path: Path) -> None:
    """Write a text file atomically, in UTF-8."""
    with write_at_once(path) as file:
        file.write(text.encode())


def _is_ours(folder: Path, form: str, manifest: str) -> bool:
    if all(path.name.startswith(f".{manifest}.") or path.name == _NEW for path in folder.iterdir()):
        return True  # a report was interrupted before its manifest was complete
    try:
        check_regular(folder / manifest)
        return bool(json.loads((folder / manifest).read_bytes())["format"] == form)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False
