"""Finished experiments in a folder, which are kept as long as settings, code and libraries stay the same.

The tables of an experiment are written first and its record, with their checksums, last; each file is written whole or
not at all. However a process ends, an experiment is therefore either stored as measured or not stored.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

from vrtd import store
from vrtd.paper.experiment import Experiment, Runner, Settings
from vrtd.tables import Tables, parse_csv, write_csv


class Measured(NamedTuple):
    """Experiment with its tables and their cost."""

    experiment: Experiment
    settings: Settings
    tables: Tables
    cost: dict[str, Any]


def load(experiment: Experiment, settings: Settings, folder: Path) -> Measured | None:
    """Load the tables measured with these settings by this code; None if they are missing or damaged."""
    record = store.read_record(folder / f"{experiment.name}.json")
    if record is None or record["digest"] != store.digest(settings):
        return None
    tables = {}
    for name, checksum in record["tables"].items():
        content = store.read_content(folder / file_name(experiment, name))
        if hashlib.sha256(content).hexdigest() != checksum:
            return None
        tables[name] = parse_csv(content)
    return Measured(experiment, settings, tables, dict(record["cost"]))


def measure(experiment: Experiment, settings: Settings, folder: Path, runner: Runner) -> Measured:
    """Measure and store the tables.

    A record of other settings is removed first, so that a record never stands next to tables of other settings.
    """
    tables = experiment.measure(settings, runner)
    remove(experiment, folder)
    checksums = {
        name: hashlib.sha256(write_csv(table, folder / file_name(experiment, name))).hexdigest()
        for name, table in tables.items()
    }
    cost = {name: getattr(runner, name) for name in ("n_gradients", "seconds", "compile_seconds")}
    record = {"digest": store.digest(settings), "settings": settings, "tables": checksums, "cost": cost}
    store.write_record(record, folder / f"{experiment.name}.json")
    return Measured(experiment, settings, tables, cost)


def remove(experiment: Experiment, folder: Path) -> None:
    """Remove a stored experiment: first its record, then the tables that the record names."""
    record = store.read_record(folder / f"{experiment.name}.json")
    (folder / f"{experiment.name}.json").unlink(missing_ok=True)
    for name in record["tables"] if record is not None else ():
        (folder / file_name(experiment, name)).unlink(missing_ok=True)


def file_name(experiment: Experiment, table: str) -> str:
    """Return the name of the CSV file of a table."""
    return f"{experiment.name}-{table}.csv"
