"""Random tables with every kind of column that a log may have, and logs from them, in one table or in files."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from pyarrow.parquet import write_table

from tests.helpers.log_cases import rows
from vrtd.errors import DataError
from vrtd.logs import read
from vrtd.logs.parts import PartsLog

NAMES = {"observations": ["x", "y"], "reward": "gain"}


def random_table(rng: np.random.Generator, n: int) -> tuple[pyarrow.Table, dict[str, Any]]:
    """Rows with random columns, and the arguments with which they are read."""
    columns: dict[str, Any] = {name: rng.standard_normal(n) for name in ("x", "y", "gain")}
    options: dict[str, Any] = dict(NAMES)
    if rng.random() < 0.4:
        for name in ("x_next", "y_next"):
            columns[name] = rng.standard_normal(n)
        options["next_observations"] = ["x_next", "y_next"]
    end = rng.random(n)
    if rng.random() < 0.6:
        columns["terminated"] = end < 0.2
    if rng.random() < 0.4:
        columns["truncated"] = end > 0.9
    if rng.random() < 0.5:
        lengths = rng.integers(1, 6, n)
        columns["session"] = np.repeat(np.arange(n), lengths)[:n]
        options["episode"] = "session"
    if rng.random() < 0.3:
        columns["ratio"] = rng.random(n)
        options["weight"] = "ratio"
    if rng.random() < 0.4:
        columns["x"] = np.where(rng.random(n) < 0.2, np.nan, columns["x"])
        options["missing"] = str(rng.choice(["drop", "indicator"]))
    end_of_episode = rng.choice(["", "terminated", "truncated", "drop"])
    if end_of_episode:
        options["episode_end"] = str(end_of_episode)
    return pyarrow.table(columns), options


def random_log(rng: np.random.Generator, folder: Path, most: int = 60) -> PartsLog | None:
    """A table, or files with small row groups; None if the rows cannot be used."""
    n = int(rng.integers(1, most))
    table, options = random_table(rng, n)
    try:
        if rng.random() < 0.4:
            log = read(table, **options)
        else:
            cuts = [0, *sorted(rng.integers(1, n, rng.integers(0, 4)).tolist()), n] if n > 1 else [0, n]
            paths = [folder / f"{i}.parquet" for i in range(len(cuts) - 1)]
            for path, (first, last) in zip(paths, itertools.pairwise(cuts), strict=True):
                write_table(table.slice(first, last - first), path, row_group_size=int(rng.integers(1, 12)))
            log = read(paths, **options)
        rows(log)
    except DataError:
        return None
    assert isinstance(log, PartsLog)
    return log
