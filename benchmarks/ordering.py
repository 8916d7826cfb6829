"""Measure the cost of putting the rows of a log in order, compared with DuckDB's sort of the same file.

    python benchmarks/ordering.py [--quick] [--rows N]

The Parquet file has events in time order: text ids of interleaved sessions, timestamps and four numbers. Each
measurement runs in a separate process, which gives its peak memory. DuckDB sorts the file into another one with the
same limits, and `vrtd.logs.read(..., order_by=)` reads it twice: the first pass sorts, and the second one reads the
sorted file again. `asked` is the largest ratio required.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np


def write_events(path: Path, n_rows: int) -> None:
    """Write events of random sessions, ten events per session on average."""
    import pyarrow
    from pyarrow.parquet import ParquetWriter

    rng, n_sessions, step = np.random.default_rng(0), n_rows // 10, 2**20
    writer = None
    for first in range(0, n_rows, step):
        n = min(step, n_rows - first)
        time_of = (first + np.arange(n)).astype("datetime64[ms]")
        sessions = [f"session-{k:010d}" for k in rng.integers(0, n_sessions, n)]
        columns = {"session": sessions, "time": time_of, "reward": rng.random(n)}
        columns |= {f"x_{j}": rng.random(n) for j in range(3)}
        table = pyarrow.table(columns)
        writer = ParquetWriter(path, table.schema) if writer is None else writer
        writer.write_table(table)
    assert writer is not None
    writer.close()


def sort_with_duckdb(path: Path) -> dict[str, float]:
    """Sort the file with the limits that vrtd sets."""
    import duckdb

    from vrtd.logs.ordering import MEMORY, THREADS

    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        settings = {"memory_limit": MEMORY, "threads": min(THREADS, os.cpu_count() or 1), "temp_directory": folder}
        began = time.perf_counter()
        with duckdb.connect(config=settings) as connection:
            query = f"SELECT * FROM '{path}' ORDER BY session, time"
            connection.execute(f"COPY ({query}) TO '{folder}/sorted.parquet' (FORMAT parquet)")
        return {"seconds": time.perf_counter() - began}


def read_in_order(path: Path) -> dict[str, float]:
    """Read the file twice."""
    import pyarrow

    from vrtd.logs import read

    pyarrow.array(np.zeros(1))  # loads pandas, if installed, before the time is measured
    log = read(path, observations="x_*", reward="reward", episode="session", order_by="time", episode_end="terminated")
    seconds = []
    for _ in range(2):
        began = time.perf_counter()
        n_rows = sum(chunk.n_rows for chunk in log.chunks())
        seconds.append(time.perf_counter() - began)
        assert n_rows == log.n_rows
    return {"seconds": seconds[0], "second_pass": seconds[1]}


MEASUREMENTS = {"duckdb": sort_with_duckdb, "vrtd": read_in_order}


def measure(name: str, path: Path) -> dict[str, float]:
    """Run one measurement in a separate process."""
    command = [sys.executable, __file__, "--measure", name, str(path)]
    environment = os.environ | {"TMPDIR": str(path.parent)}
    completed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    result: dict[str, float] = json.loads(completed.stdout)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="100,000 rows, once")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure is not None:
        name, path = arguments.measure
        result = MEASUREMENTS[name](Path(path))
        kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(json.dumps(result | {"peak_megabytes": round(kilobytes / 1024)}))
        return
    n_rows = 100_000 if arguments.quick else arguments.rows
    report: dict[str, Any] = {"n_rows": n_rows}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.parquet"
        write_events(path, n_rows)
        report["file_megabytes"] = round(path.stat().st_size / 2**20)
        tries = [{name: measure(name, path) for name in MEASUREMENTS} for _ in range(1 if arguments.quick else 2)]
    for name in MEASUREMENTS:
        report[name] = min((one[name] for one in tries), key=lambda one: one["seconds"])
    report["ratio"] = report["vrtd"]["seconds"] / report["duckdb"]["seconds"]
    report["asked"] = 3.0
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
