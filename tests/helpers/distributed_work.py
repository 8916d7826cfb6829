"""A sweep and a fit that consist of several tasks, for tests of executors."""

from __future__ import annotations

from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from pyarrow.parquet import write_table

import vrtd
from vrtd.estimator import partitioned_fit
from vrtd.logs import partition, parts
from vrtd.sweeps import groups

_N_ROWS, _ROWS_PER_PARTITION = 4000, 500


def sweep_in_groups(executor: Executor | None, **options: Any) -> dict[str, bytes]:
    """Return the columns of a sweep of six groups of one cell, of which two diverge."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_SECONDS", "_LEAST_SECONDS", "_FIRST_SECONDS"):
            patch.setattr(groups, name, 1e-9)
        grid = {"step_size": [0.01, 0.1, 9.0], "batch_size": [20, 50]}
        size = {"n_runs": 5, "n_gradients": 2000, "checkpoints": 3}
        result = vrtd.sweep("random_mdp", vrtd.VRTD, grid, executor=executor, **size, **options)
    assert result.table["n_diverged"].any()
    return {name: column.tobytes() for name, column in result.table.items()}


def write_log(folder: Path) -> None:
    """Write sessions to two files with row groups of 250 rows; a session may extend over partitions and files."""
    rng = np.random.default_rng(0)
    session = np.cumsum(rng.random(_N_ROWS) < 0.05)
    x, reward = rng.standard_normal((2, _N_ROWS))
    table = pyarrow.table({"x": x.cumsum() % 3.0, "reward": reward, "session": session})
    for k in range(2):
        part = table.slice(k * _N_ROWS // 2, _N_ROWS // 2)
        write_table(part, folder / f"{k}.parquet", row_group_size=_ROWS_PER_PARTITION // 2)


def fit_in_partitions(folder: Path, executor: Executor | None) -> dict[str, bytes]:
    """Return the arrays of a model that was fitted to the files of a folder in eight partitions."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (partition, partitioned_fit, parts):
            patch.setattr(module, "PARTITION_ROWS", _ROWS_PER_PARTITION)
        evaluator = vrtd.Evaluator("closed_form", discount=0.9, pilot_rows=300)
        options: Any = {"observations": "x", "reward": "reward", "episode": "session", "episode_end": "terminated"}
        evaluator.fit(folder, executor=executor, **options)
    assert evaluator.n_rows_ == _N_ROWS
    path = folder / "model.npz"
    evaluator.save(path)
    with np.load(path) as arrays:
        found = {name: arrays[name].tobytes() for name in arrays.files}
    path.unlink()
    return found
