"""Finished experiments in a folder: kept while their settings, this code and its libraries are the same.

An experiment's tables are written first and its record last, each whole or not at all; the record holds their
checksums. So whatever ends a process, an experiment is either there as it was measured, or it is not there.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

from vrtd import store
from vrtd.paper.experiment import Experiment, Runner, Settings
from vrtd.tables import Tables, parse_csv, write_csv


class Measured(NamedTuple):
    """An experiment with its tables and what they cost."""

    experiment: Experiment
    settings: Settings
    tables: Tables
    cost: dict[str, Any]


def load(experiment: Experiment, settings: Settings, folder: Path) -> Measured | None:
    """Return what was measured with these settings by this code, if it is there and undamaged."""
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
    """Measure, and keep the tables. A record of other settings goes first, so that never one is beside the other."""
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
    """Remove what was measured with other settings: the record first, then the tables that it names."""
    record = store.read_record(folder / f"{experiment.name}.json")
    (folder / f"{experiment.name}.json").unlink(missing_ok=True)
    for name in record["tables"] if record is not None else ():
        (folder / file_name(experiment, name)).unlink(missing_ok=True)


def file_name(experiment: Experiment, table: str) -> str:
    return f"{experiment.name}-{table}.csv"
