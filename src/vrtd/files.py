"""Atomic writing of files, locks on folders, and checks of files that are read."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BytesIO
from math import prod
from pathlib import Path
from threading import get_ident
from typing import IO, Any
from zipfile import ZipFile, is_zipfile

from vrtd.errors import DataError, InvalidInputError, VrtdError

try:
    import fcntl

    _HAS_LOCKS = True
except ImportError:  # Windows
    _HAS_LOCKS = False

#: A file may declare contents of this many bytes, or of this many times its own size, whichever is more.
_DECLARED_BYTES, _DECLARED_RATIO = 2**28, 100

_DAY = 24 * 3600.0
_NO_MEMORY = "can't start new thread"  # what Python says if the system has no memory for one, or allows no more
_SPECIAL = {
    stat.S_IFIFO: "a FIFO or a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
}


_FREE, _PERMISSION = "Free space, then run it again.", "Change its permissions, or name another file."
_ADVICE = {
    errno.ENOSPC: _FREE,
    getattr(errno, "EDQUOT", errno.ENOSPC): _FREE,
    errno.EFBIG: "Raise the limit of file sizes (ulimit -f), or use another disk.",
    errno.EACCES: _PERMISSION,
    errno.EPERM: _PERMISSION,
    errno.EROFS: "Name a file on a disk that can be written.",
    errno.ENOENT: "Check the path.",
    errno.ENOTDIR: "Check the path: a part of it is a file.",
    errno.EISDIR: "Name a file in this folder.",
    errno.EEXIST: "Name another file.",
    errno.ELOOP: "Check the path: its links go round in a circle.",
    errno.ENAMETOOLONG: "Use a shorter name.",
    errno.EMFILE: "Raise the limit of open files (ulimit -n).",
    errno.ENFILE: "Close other programs: the system has too many open files.",
    errno.EIO: "Check the disk or the network drive.",
    errno.ESPIPE: "Write its content to a regular file, because a pipe cannot be read twice.",
}


def advise(error: OSError) -> str:
    """Return what to do about an error of the system, or "" if nothing is known."""
    return _ADVICE.get(error.errno or 0, "")


def check_regular(path: str | os.PathLike[str]) -> None:
    """Raise if the path is a FIFO, a socket or a device, without opening it.

    Opening one can block for ever, and the readers here need files in which they can seek.
    """
    kind = _SPECIAL.get(stat.S_IFMT(os.stat(path).st_mode))
    if kind is not None:
        raise DataError(f"{path} must be a regular file, but is {kind}.", "Write its content to a regular file.")


def as_path(name: str, value: Any) -> Path:
    """Return a path that a caller passed, or raise an error that names the parameter."""
    if not isinstance(value, str | os.PathLike) or not isinstance(os.fspath(value), str):
        raise InvalidInputError(f"{name} must be a path, but is {value!r:.60}.", "Pass a str or a pathlib.Path.")
    return Path(value)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether the system lacked memory or threads, which says nothing about a file.

    An array that is larger than the address space is the fault of the file that declares it.
    """
    if isinstance(error, MemoryError):
        shape: tuple[int, ...] = getattr(error, "shape", ())  # of the array that NumPy could not allocate
        return prod(shape) < 2**47
    if isinstance(error, RuntimeError) and _NO_MEMORY in str(error):
        return True
    return isinstance(error, OSError) and error.errno in (errno.ENOMEM, errno.EAGAIN)


def check_declared(where: str, n_declared: int, n_stored: int) -> None:
    """Raise if a file declares contents out of proportion to its size, before memory is taken for them.

    Parameters
    ----------
    where : str
        The file, as it is named in the message.
    n_declared : int
        Bytes in memory that it declares.
    n_stored : int
        Bytes of the file.
    """
    limit = limit_declared(n_stored)
    if n_declared > limit:
        raise DataError(
            f"{where} has {n_stored:,} bytes, but declares contents of {n_declared:,} bytes. At most {limit:,} "
            "are allowed.",
            "It may be damaged or made to exhaust the memory. If you trust it, write it again without compression.",
        )


def limit_declared(n_stored: int) -> int:
    """Return how many bytes of contents a file of this size may declare."""
    return max(_DECLARED_BYTES, _DECLARED_RATIO * n_stored)


def check_archive(file: IO[bytes], where: str) -> None:
    """Raise if the members of a zip archive, such as an .npz file, are out of proportion to its size."""
    if is_zipfile(file):
        with ZipFile(file) as archive:
            check_declared(where, sum(member.file_size for member in archive.infolist()), file.seek(0, 2))
    file.seek(0)


@contextmanager
def translate_errors(where: str) -> Iterator[None]:
    """Translate what a library raises on reading a file into an error that names the file, except a lack of memory."""
    try:
        yield
    except VrtdError:
        raise
    except FileNotFoundError:
        raise DataError(f"{where} does not exist.", "Check the path.") from None
    except PermissionError as error:
        raise DataError(f"{where} is not readable: {error.strerror or error}.", "Change its permissions.") from None
    except Exception as error:  # libraries raise almost any exception when a file is damaged
        if is_out_of_memory(error):
            raise MemoryError(f"Not enough memory or threads to read {where}.") from error
        if isinstance(error, OSError) and error.errno is not None and advise(error):
            problem = f"{where} could not be read: {error.strerror or os.strerror(error.errno)}."
            raise DataError(problem, advise(error)) from None
        cause = " ".join(f"{type(error).__name__}: {error}".split())
        raise DataError(
            f"{where} is damaged, truncated or of another format: "
            f"{cause if len(cause) <= 300 else f'{cause[:300]}...'}.",
            "Write or download it again.",
        ) from error


def read_bytes(path: Any) -> bytes:
    """Return the content of a regular file."""
    file = as_path("path", path)
    with translate_errors(str(file)):
        check_regular(file)
        return file.read_bytes()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder for this process. The system releases the lock when the process ends in any way."""
    if not _HAS_LOCKS:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            problem = f"The output folder {folder} is in use by another process."
            raise InvalidInputError(problem, "Wait until it has ended, or choose another folder.") from None
        except OSError:  # the file system has no locks
            pass
        yield
    finally:
        os.close(handle)


@contextmanager
def reserved(path: Path) -> Iterator[None]:
    """Lock a file that this process writes and then reads back, so that it does not read the rows of another process.

    The lock is a file beside it, because the file itself is replaced when it is written.
    """
    if not _HAS_LOCKS:
        yield
        return
    lock = path.with_name(f".{path.name}.lock")
    while True:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            problem = f"{path} is being recorded by another process."
            raise InvalidInputError(problem, "Wait until it has ended, or name another file.") from None
        except OSError:  # the file system has no locks
            break
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), os.stat(lock)):
                break
        os.close(handle)  # another process removed it before it was locked
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(handle)


@contextmanager
def write_at_once(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Write to a temporary file in the same folder, which replaces ``path`` if there was no error.

    Temporary files for this path that killed processes left behind are removed first. A device or a pipe is written to
    and not replaced. Errors of the system name ``path``.
    """
    target = Path(os.path.realpath(as_path("path", path)))  # a link stays a link
    try:
        with target.open("wb") if _is_special(target) else _write_and_replace(target) as file:
            yield file
    except OSError as error:
        if error.errno is not None and (error.filename is None or str(error.filename).endswith(".tmp")):
            error.filename = str(path)
        raise


def _is_special(path: Path) -> bool:
    return path.exists() and stat.S_IFMT(path.stat().st_mode) in _SPECIAL


@contextmanager
def _write_and_replace(target: Path) -> Iterator[IO[bytes]]:
    if not target.parent.is_dir():
        raise FileNotFoundError(f"The folder {target.parent} does not exist. Create it before writing {target.name}.")
    if target.is_dir():
        raise InvalidInputError(f"path must be a file, but {target} is a folder.", "Name a file in it.")
    with suppress(OSError):  # the folder cannot be listed
        _remove_abandoned(target)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.{get_ident()}.tmp")
    try:
        with _create_locked(temporary) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if not _HAS_LOCKS:
                file.close()  # Windows renames no open file
            if target.exists():
                temporary.chmod(target.stat().st_mode)
            temporary.replace(target)  # while it is locked, so that no other process removes it
    finally:
        temporary.unlink(missing_ok=True)


def _create_locked(path: Path) -> IO[bytes]:
    """Return a new file with a lock, which the system releases when the process ends in any way."""
    while True:
        file = path.open("xb")
        if not _HAS_LOCKS:
            return file
        with suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        if path.exists():
            return file
        file.close()  # another process removed it before it was locked


def _remove_abandoned(target: Path) -> None:
    """Remove temporary files of ``target`` that no process has locked; on systems without locks, those a day old."""
    pattern = re.compile(rf"\.{re.escape(target.name)}\.\d+\.\d+\.tmp")
    with os.scandir(target.parent) as entries:
        found = [entry for entry in entries if pattern.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)]
    for entry in found:
        with suppress(OSError):  # in use, already removed, or of another user
            if not _HAS_LOCKS:
                if time.time() - entry.stat().st_mtime > _DAY:
                    os.unlink(entry)
                continue
            with open(entry, "r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(file.fileno()), os.stat(entry)):  # not a newer file of the same name
                    os.unlink(entry)


def write_arrays(path: str | os.PathLike[str], header: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """Write an .npz file of arrays and a JSON header, without pickled objects."""
    content = pack_arrays(header, arrays)
    with write_at_once(path) as file:
        file.write(content)


def pack_arrays(header: Mapping[str, Any], arrays: Mapping[str, Any]) -> bytes:
    """Return the content of an .npz file of arrays and a JSON header."""
    import numpy as np

    content, text = BytesIO(), json.dumps(header, allow_nan=False)
    members = {"header": np.frombuffer(text.encode(), np.uint8), **arrays}
    np.savez_compressed(content, **members)
    if sum(np.asarray(array).nbytes for array in members.values()) > limit_declared(len(content.getbuffer())):
        content = BytesIO()
        np.savez(content, **members)
    return content.getvalue()


def read_arrays(content: bytes, form: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the header and the arrays of a file of ``write_arrays``, whose header must name the format ``form``.

    A damaged file raises any exception of zip, zlib, json or numpy.
    """
    import numpy as np

    stream = BytesIO(content)
    check_archive(stream, "the file")
    with np.load(stream, allow_pickle=False) as file:
        arrays = dict(file)
    header = json.loads(arrays.pop("header").tobytes())
    if header["format"] != form:
        raise ValueError(f"format {header['format']!r} instead of {form!r}")
    return header, arrays
