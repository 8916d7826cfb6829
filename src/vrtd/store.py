"""Records of measurements as JSON files with checksums, and digests of everything that affects a measurement."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from vrtd import __version__
from vrtd.files import write_at_once

_PRESENTATION = ("findings.py", "page.py", "figures.py", "notebook.py", "plots.py", "progress.py", "wording.py")


def write_record(record: dict[str, Any], path: Path) -> None:
    """Write a record as JSON with its checksum."""
    write_json(record | {"checksum": _checksum(record)}, path)


def read_record(path: Path) -> dict[str, Any] | None:
    """Return a record as it was written, or None if the file is missing or damaged."""
    try:
        record: dict[str, Any] = json.loads(read_content(path))
        return record if record.pop("checksum") == _checksum(record) else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def read_content(path: Path) -> bytes:
    """Return the bytes of a file, or b"" if it is missing or not a regular file."""
    return path.read_bytes() if path.is_file() else b""


def _checksum(record: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def digest(settings: Mapping[str, Any]) -> str:
    """Return a digest of everything that affects the numbers: settings, code and libraries."""
    parts = [json.dumps(settings, sort_keys=True), _code(), json.dumps(versions())]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@cache  # looking them up takes milliseconds
def versions() -> dict[str, str]:
    """Return the versions of vrtd, Python and the numerical libraries."""
    libraries = {name: version(name) for name in ("numpy", "scipy", "numba", "matplotlib")}
    return {"vrtd": __version__, "python": platform.python_version()} | libraries


def describe_system() -> dict[str, Any]:
    """Return versions and a description of the machine, for a manifest."""
    machine = {"system": platform.system(), "architecture": platform.machine(), "processors": os.cpu_count()}
    return {"versions": dict(versions()), "machine": machine}


def write_json(content: Any, path: Path) -> None:
    """Write an object as indented JSON, atomically."""
    with write_at_once(path) as file:
        file.write(json.dumps(content, indent=2, allow_nan=False).encode() + b"\n")


@cache
def _code() -> str:
    """Return a digest of all source files except those that only present results."""
    package = Path(str(files("vrtd")))
    sources = [path for path in sorted(package.rglob("*.py")) if not _is_presentation(path)]
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()


def _is_presentation(path: Path) -> bool:
    return path.parent.name in ("cli", "report") or path.name in _PRESENTATION
