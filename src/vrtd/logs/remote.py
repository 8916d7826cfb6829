"""Files at addresses such as ``s3://bucket/log.parquet``, which Arrow or fsspec opens."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from operator import itemgetter
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import url2pathname

from vrtd.errors import DataError, VrtdError
from vrtd.tables import library

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")  # at least two letters, because C:// is a path


class RemoteFile(NamedTuple):
    """File of a file system of Arrow, which can be sent to other processes."""

    scheme: str
    filesystem: Any  # pyarrow.fs.FileSystem
    path: str  # in the file system

    def __str__(self) -> str:
        """Return the address without user names, passwords and options."""
        return hide_secrets(self.path if is_address(self.path) else f"{self.scheme}://{self.path.lstrip('/')}")

    @property
    def suffix(self) -> str:
        """End of the name, such as ``.parquet``."""
        return PurePosixPath(self.path.partition("?")[0]).suffix


def open_file(file: Path | RemoteFile) -> Any:
    """Open a file of Arrow for reading at any position."""
    if isinstance(file, RemoteFile):
        return file.filesystem.open_input_file(file.path)
    return library().OSFile(str(file))


def is_address(text: str) -> bool:
    """Return whether text is an address, such as ``s3://bucket/log.parquet``."""
    return _SCHEME.match(text) is not None


def to_local(address: str) -> str:
    """Return the path of a ``file://`` address; other texts are returned unchanged."""
    if not address.lower().startswith("file://"):
        return address
    place = urlsplit(address)
    if place.netloc not in ("", "localhost"):
        raise DataError(
            f"{address} must not name a machine, but names {place.netloc!r}.", "Write file:///folder/log.parquet."
        )
    return url2pathname(place.path)


def find_remote(address: str) -> tuple[list[RemoteFile], bool]:
    """Return the files at an address in the order of their names, and whether it is a folder.

    An address may be that of a file, of a folder, or a pattern. The only wildcards are * and **. The files of a folder
    include those of its subfolders. Names that begin with a dot are skipped, and in a folder also those that begin with
    an underscore.
    """
    scheme, shown = address.partition("://")[0], hide_secrets(address)
    with _translate_errors(address, shown):
        filesystem, path = _open_filesystem(address)
        folder, pattern = _split_pattern(path)
        if pattern:
            files = [file for file, names in _list_files(filesystem, folder, len(pattern) > 1) if _fits(names, pattern)]
            if not files:
                raise DataError(f"The pattern {shown} matches no file.", "Check the pattern and the folder before it.")
            return [RemoteFile(scheme, filesystem, file) for file in files], False
        info = filesystem.get_file_info(path)
        if info.type.name == "NotFound":
            raise DataError(f"{shown} does not exist.", "Check the address.")
        if info.is_file:
            return [RemoteFile(scheme, filesystem, path)], False
        files = [
            file
            for file, names in _list_files(filesystem, folder, is_recursive=True)
            if not any(name.startswith((".", "_")) for name in names)
        ]
        return [RemoteFile(scheme, filesystem, file) for file in files], True


def _open_filesystem(address: str) -> tuple[Any, str]:
    """Return the file system of an address and the path in it. Arrow is tried first, then fsspec."""
    from pyarrow import fs

    try:
        filesystem, path = fs.FileSystem.from_uri(address)
    except library().ArrowInvalid as error:
        if "Unrecognized filesystem type" not in str(error):
            raise
        fsspec = import_module("fsspec")
        opened, path = fsspec.core.url_to_fs(address)
        filesystem = fs.PyFileSystem(fs.FSSpecHandler(opened))
    return filesystem, path


def _split_pattern(path: str) -> tuple[str, list[str]]:
    """Return the folder before the first name with *, and the names from there on."""
    names = path.partition("?")[0].split("/")
    n_fixed = next((i for i, name in enumerate(names) if "*" in name), len(names))
    return "/".join(names[:n_fixed]).rstrip("/"), names[n_fixed:]


def _list_files(filesystem: Any, folder: str, is_recursive: bool) -> list[tuple[str, list[str]]]:
    """Return the files in a folder and the names below the folder, in the order of these names."""
    from pyarrow.fs import FileSelector

    found = filesystem.get_file_info(FileSelector(folder, allow_not_found=True, recursive=is_recursive))
    files = [(info.path, info.path.removeprefix(folder).strip("/").split("/")) for info in found if info.is_file]
    return sorted(files, key=itemgetter(1))


def _fits(names: Sequence[str], pattern: Sequence[str]) -> bool:
    """Return whether the names of folders and of a file match those of a pattern, in which ** is any number of them."""
    if not pattern:
        return not names
    if pattern[0] == "**" and (len(pattern) > 1 or not names):
        return _fits(names, pattern[1:]) or (bool(names) and not names[0].startswith(".") and _fits(names[1:], pattern))
    if not names or (names[0].startswith(".") and not pattern[0].startswith(".")):
        return False
    fits = re.fullmatch(".*".join(map(re.escape, pattern[0].split("*"))), names[0], re.DOTALL)
    return fits is not None and _fits(names[1:], pattern[1:])


def hide_secrets(address: str) -> str:
    """Return an address without password and without options, which may hold keys; other texts are unchanged."""
    if not is_address(address):
        return address
    scheme, _, rest = address.partition("://")
    return f"{scheme}://{re.sub(':.*@', ':***@', rest.partition('?')[0])}"


@contextmanager
def _translate_errors(address: str, shown: str) -> Iterator[None]:
    """Translate what file systems raise into an error that names the address."""
    try:
        yield
    except VrtdError:
        raise
    except ImportError as error:
        raise DataError(
            f"{shown} cannot be read without another library: {error}.", "Install it, or copy the files."
        ) from None
    except Exception as error:  # file systems raise almost any exception
        cause = " ".join(str(error).replace(address, shown).split())
        raise DataError(
            f"{shown} cannot be reached: {cause if len(cause) <= 300 else f'{cause[:300]}...'}.",
            "Check the address, the network and the credentials.",
        ) from None
