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
from vrtd.experiments.tables import read_csv, write_csv
from vrtd.files import write_at_once

__all__ = ["digest", "file_name", "load", "measure", "remove", "versions", "write_json"]


def load(experiment: Experiment, settings: Settings, folder: Path) -> tuple[Tables, dict[str, Any]] | None:
    """The tables and what they cost, if they were measured with these settings by this code and are undamaged."""
    try:
        record = json.loads(_content(folder / f"{experiment.name}.json"))
        checksum = record.pop("checksum")
        if checksum != _checksum(record) or record["digest"] != digest(settings):
            return None
        tables = {}
        for name, known in record["tables"].items():
            path = folder / file_name(experiment, name)
            if hashlib.sha256(_content(path)).hexdigest() != known:
                return None
            tables[name] = read_csv(path)
        return tables, dict(record["cost"])
    # Not there, or not a record: measure it.
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


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
    write_json(record | {"checksum": _checksum(record)}, folder / f"{experiment.name}.json")
    return tables, cost


def remove(experiment: Experiment, folder: Path) -> None:
    """What was measured with other settings: the record first."""
    for pattern in (f"{experiment.name}.json", f"{experiment.name}-*.csv"):
        for path in folder.glob(pattern):
            path.unlink()


def _content(path: Path) -> bytes:
    if not path.is_file():  # a pipe or a device would never end
        raise FileNotFoundError(path)
    return path.read_bytes()


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
