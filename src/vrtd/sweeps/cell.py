"""The measurement of cells: many short simulations, each with the numbers that ``vrtd.simulate`` would give."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.engine.device import choose_device
from vrtd.engine.simulation import run
from vrtd.errors import WorkerError
from vrtd.result import QUANTILES
from vrtd.sweeps.design import Design
from vrtd.sweeps.exact import expect

Records = NDArray[np.void]  # one structured entry per cell


class MeasuredCells(NamedTuple):
    """Cells that a worker has measured.

    Attributes
    ----------
    cells : ndarray of int
        Numbers of the cells.
    records : ndarray
        Their statistics.
    loop_seconds : float
        Time inside compiled loops.
    compile_seconds : float
        Time to compile or load them.
    seconds : float
        Time in all, without the compilation.
    """

    cells: NDArray[np.int64]
    records: Records
    loop_seconds: float
    compile_seconds: float
    seconds: float


def record_type(n_metrics: int, n_checkpoints: int) -> np.dtype[np.void]:
    """Return the type of the statistics of one cell."""
    curve = (n_metrics, n_checkpoints)
    return np.dtype(
        [
            ("n_samples", "<i8", (n_checkpoints,)),
            ("mean", "<f8", curve),
            ("standard_error", "<f8", curve),
            ("quantiles", "<f8", (n_metrics, len(QUANTILES), n_checkpoints)),
            ("n_diverged", "<i8", curve),
            ("exact", "<f8", curve),
            ("floor", "<f8", (n_metrics,)),
            ("method", "<i8"),
        ]
    )


def measure(
    design: Design, cells: NDArray[np.int64], threads: int = 1, watch: Callable[[float], None] | None = None
) -> MeasuredCells:
    """Simulate cells one after the other.

    Parameters
    ----------
    design : Design
        Design of the sweep.
    cells : ndarray of int
        Numbers of the cells.
    threads : int, default=1
        Number of threads for the runs of a cell.
    watch : callable or None, default=None
        Function of the share of the current cell that is done. If it raises an exception, the measurement ends.
    """
    records = np.zeros(len(cells), record_type(len(design.metrics), len(design.checkpoints)))
    loop_seconds = compile_seconds = 0.0
    clock = time.perf_counter()
    for record, i in zip(records, cells.tolist(), strict=True):
        try:
            inside, compiling = _measure_cell(design, i, record, threads, watch)
        except Exception as error:
            problem = f"{design.describe(i)} failed: {type(error).__name__}: {f'{error}'.rstrip('.')}."
            raise WorkerError(problem, "Fix the cause, then run the same call again.") from error
        loop_seconds += inside
        compile_seconds += compiling
    seconds = time.perf_counter() - clock - compile_seconds
    return MeasuredCells(cells, records, loop_seconds, compile_seconds, seconds)


def _measure_cell(design: Design, i: int, record: Any, threads: int, watch: Any) -> tuple[float, float]:
    """Fill the record of a cell, and return the seconds in its loop and those of its compilation."""
    name = design.problem_name(i)
    bound, algorithm = design.bound(name), design.algorithm(**design.setting(i))
    result = run(
        bound,
        algorithm,
        n_runs=design.n_runs,
        n_gradients=design.n_gradients,
        seed=design.seed,
        theta_0=design.theta_0[name],
        checkpoints=design.checkpoints,
        threads=threads,
        device=choose_device(design.device, design.n_runs, design.n_gradients, bound.source.n_features),
        start=None,
        progress=watch,
    )
    record["n_samples"] = result.n_samples
    for k, metric in enumerate(result.metrics):
        summary = result.summary(metric)
        record["mean"][k], record["standard_error"][k] = summary.mean, summary.standard_error
        record["quantiles"][k], record["n_diverged"][k] = summary.quantiles, summary.n_diverged
    record["exact"], record["floor"], record["method"] = expect(design, bound, name, algorithm)
    return result.provenance["seconds"], result.provenance["compile_seconds"]
