"""Files that are there whole or not at all."""

from __future__ import annotations

import json
import os
import re
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from threading import get_ident
from typing import IO, Any

from vrtd.errors import DataError, InvalidInputError, VrtdError

try:
    import fcntl

    _HAS_LOCKS = True
except ImportError:  # Windows
    _HAS_LOCKS = False

_DAY = 24 * 3600.0
_SPECIAL = {
    stat.S_IFIFO: "a FIFO or a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
}


def check_regular(path: str | os.PathLike[str]) -> None:
    """Refuse a FIFO, a socket or a device without opening it. Opening one can block for ever, and the readers here need
    files that they can seek in and read again."""
    kind = _SPECIAL.get(stat.S_IFMT(os.stat(path).st_mode))
    if kind is not None:
        raise DataError(f"{path} must be a regular file", kind, "write its content to a regular file and pass that")


@contextmanager
def translate_errors(where: str) -> Iterator[None]:
    """Make one error that names the file of whatever a library raises when a file is damaged."""
    try:
        yield
    except VrtdError:
        raise
    except FileNotFoundError:
        raise DataError(f"{where} must be there", "no such file", "check the path") from None
    except PermissionError as error:
        raise DataError(f"{where} must be readable", error.strerror or error, "change its permissions") from None
    except Exception as error:  # libraries raise nearly everything when a file is damaged
        what = " ".join(f"{type(error).__name__}: {error}".split())
        raise DataError(
            f"{where} must be whole and hold what its name says",
            what if len(what) <= 300 else f"{what[:300]}...",
            "the file is damaged, cut short or of another format: write or fetch it again",
        ) from error


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder for oneself; the system lets go of it when the process ends, however that is."""
    if not _HAS_LOCKS:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # of other errors, file systems without locks make some: then there is none
            raise InvalidInputError(
                "the output folder must not be in use",
                f"{folder}, into which another process writes",
                "wait, or name another",
            ) from None
        except OSError:
            pass
        yield
    finally:
        os.close(handle)


@contextmanager
def write_at_once(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Write into a temporary file in the same folder, which takes the place of `path` when all went well.

    Temporary files that a killed process left behind, for this `path`, are removed first.
    """
    target = Path(os.path.realpath(path))  # a link stays a link, to a new file
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{target.parent} must be a folder, for {target.name}; it is not there; create it")
    with suppress(OSError):  # a folder that cannot be listed
        _remove_abandoned(target)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.{get_ident()}.tmp")
    file = _create_locked(temporary)
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if not _HAS_LOCKS:
                file.close()  # Windows renames no open file
            if target.exists():
                temporary.chmod(target.stat().st_mode)
            temporary.replace(target)  # while it is locked: no other process may take it for abandoned
    finally:
        temporary.unlink(missing_ok=True)


def _create_locked(path: Path) -> IO[bytes]:
    """A new file with a lock, which the system releases when the process ends, however that is."""
    while True:
        file = path.open("xb")
        if not _HAS_LOCKS:
            return file
        with suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        if path.exists():
            return file
        file.close()  # another process found it before it was locked, and removed it


def _remove_abandoned(target: Path) -> None:
    """Remove temporary files of `target` that nobody holds a lock on; without locks, those that are a day old."""
    pattern = re.compile(rf"\.{re.escape(target.name)}\.\d+\.\d+\.tmp")
    with os.scandir(target.parent) as entries:
        found = [entry for entry in entries if pattern.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)]
    for entry in found:
        with suppress(OSError):  # in use, removed by now, or another user's
            if not _HAS_LOCKS:
                if time.time() - entry.stat().st_mtime > _DAY:
                    os.unlink(entry)
                continue
            with open(entry, "r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(file.fileno()), os.stat(entry)):  # and not a newer one of the same name
                    os.unlink(entry)


def write_arrays(path: str | os.PathLike[str], header: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """One .npz file of arrays and a JSON header, without pickled objects."""
    import numpy as np

    text = json.dumps(header, allow_nan=False)
    with write_at_once(path) as file:
        np.savez_compressed(file, header=np.frombuffer(text.encode(), np.uint8), **arrays)


def read_arrays(content: bytes, form: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and arrays of such a file; its header must name the format `form`. Damage raises whatever zip, zlib, json
    and numpy make of it."""
    import numpy as np

    with np.load(BytesIO(content), allow_pickle=False) as file:
        arrays = dict(file)
    header = json.loads(arrays.pop("header").tobytes())
    if header["format"] != form:
        raise ValueError(f"format {header['format']!r} instead of {form!r}")
    return header, arrays
