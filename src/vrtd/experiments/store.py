"""Finished experiments in a folder: kept while their settings, this code and its libraries are the same.

An experiment's tables are written first and its record last, each whole or not at all; the record holds their
checksums. So whatever ends a process, an experiment is either there as it was measured, or it is not there.
"""

from __future__ import annotations

import hashlib
import json
import platform
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from vrtd import __version__
from vrtd.experiments.experiment import Experiment, Runner, Settings, Tables
from vrtd.experiments.tables import parse_csv, write_csv
from vrtd.files import write_at_once

__all__ = ["digest", "file_name", "load", "measure", "read_record", "remove", "versions", "write_json", "write_record"]


def load(experiment: Experiment, settings: Settings, folder: Path) -> tuple[Tables, dict[str, Any]] | None:
    """The tables and what they cost, if they were measured with these settings by this code and are undamaged."""
    record = read_record(folder / f"{experiment.name}.json")
    if record is None or record["digest"] != digest(settings):
        return None
    tables = {}
    for name, checksum in record["tables"].items():
        content = _content(folder / file_name(experiment, name))
        if hashlib.sha256(content).hexdigest() != checksum:
            return None
        tables[name] = parse_csv(content)
    return tables, dict(record["cost"])


def measure(experiment: Experiment, settings: Settings, folder: Path, runner: Runner) -> tuple[Tables, dict[str, Any]]:
    """Measure, and keep the tables. A record of other settings goes first, so that never one is beside the other."""
    tables = experiment.measure(settings, runner)
    remove(experiment, folder)
    checksums = {
        name: hashlib.sha256(write_csv(table, folder / file_name(experiment, name))).hexdigest()
        for name, table in tables.items()
    }
    cost = {
        "n_gradients": runner.n_gradients,
        "seconds": runner.seconds,
        "compile_seconds": runner.compile_seconds,
    }
    record = {"digest": digest(settings), "settings": settings, "tables": checksums, "cost": cost}
    write_record(record, folder / f"{experiment.name}.json")
    return tables, cost


def remove(experiment: Experiment, folder: Path) -> None:
    """What was measured with other settings: the record first, then the tables that it names."""
    record = read_record(folder / f"{experiment.name}.json")
    (folder / f"{experiment.name}.json").unlink(missing_ok=True)
    for name in record["tables"] if record is not None else ():
        (folder / file_name(experiment, name)).unlink(missing_ok=True)


def write_record(record: dict[str, Any], path: Path) -> None:
    """Plain JSON with its checksum."""
    write_json(record | {"checksum": _checksum(record)}, path)


def read_record(path: Path) -> dict[str, Any] | None:
    """As it was written, or None where there is none or it is damaged."""
    try:
        record: dict[str, Any] = json.loads(_content(path))
        return record if record.pop("checksum") == _checksum(record) else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _content(path: Path) -> bytes:
    """Of a file; nothing of what is not there, or is a pipe or a device, which would never end."""
    return path.read_bytes() if path.is_file() else b""


def _checksum(record: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def file_name(experiment: Experiment, table: str) -> str:
    return f"{experiment.name}-{table}.csv"


def digest(settings: Settings) -> str:
    """Of all that decides the numbers: settings, code, libraries."""
    parts = [json.dumps(settings, sort_keys=True), _code(), json.dumps(versions())]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@cache  # to look them up takes milliseconds
def versions() -> dict[str, str]:
    libraries = {name: version(name) for name in ("numpy", "scipy", "numba", "matplotlib")}
    return {"vrtd": __version__, "python": platform.python_version()} | libraries


def write_json(content: Any, path: Path) -> None:
    with write_at_once(path) as file:
        file.write(json.dumps(content, indent=2, allow_nan=False).encode() + b"\n")


@cache
def _code() -> str:
    """Of every file but those that only show what was measured."""
    package = Path(str(files("vrtd")))
    sources = [path for path in sorted(package.rglob("*.py")) if path.parent.name not in ("cli", "report")]
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()
