"""Sparse rows: time per row with 1,000 and with a million features, memory, and a log with two columns of text.

Every row has 32 nonzero features. Times are the smallest of several rounds, in which the sizes take turns,
after compilation. The log of text is read from Parquet in a process of its own, whose peak memory is printed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pyarrow
from pyarrow.parquet import ParquetWriter
from scipy.sparse import csr_array

import vrtd

NONZERO, DISCOUNT = 32, 0.9
_PART = 50_000  # rows that are written at once
ALGORITHMS = {
    "td": vrtd.TD(0.1),
    "averaged td": vrtd.TD(0.1, average=True),
    "td(lambda)": vrtd.TDLambda(0.05, 0.5),
    "richardson_td": vrtd.RichardsonTD(0.05),
    "vrtd, batches of 500": vrtd.VRTD(0.1, 500),
    "vrtd, batches of 50,000": vrtd.VRTD(0.1, 50_000, output="average"),
    "vrtd, growing batches (auto)": "auto",
}
READ = """
import resource, sys, time, warnings
import vrtd
warnings.simplefilter("ignore")
began = time.perf_counter()
evaluator = vrtd.Evaluator(features="hash:20", discount=0.9)
evaluator.fit(sys.argv[1], observations=["user", "item"], reward="reward")
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
print(f"{time.perf_counter() - began:.1f} s, peak of {peak:,.0f} MB")
"""


def make_log(n_rows: int, n_features: int) -> vrtd.logs.Log:
    rng, n = np.random.default_rng(0), n_rows + 1
    columns = np.sort(rng.integers(0, n_features, (n, NONZERO), np.int32), axis=1)
    starts = np.arange(0, n * NONZERO + 1, NONZERO, dtype=np.int32)
    rows = csr_array((np.full(n * NONZERO, NONZERO**-0.5), columns.ravel(), starts), shape=(n, n_features))
    return vrtd.logs.from_arrays(rows[:-1], rng.normal(size=n_rows), rows[1:])


def measure_time(log: vrtd.logs.Log, algorithm: object) -> float:
    began = time.perf_counter()
    vrtd.Evaluator(algorithm, discount=DISCOUNT).fit(log)
    return time.perf_counter() - began


def measure_memory(log: vrtd.logs.Log, n_features: int) -> tuple[float, float]:
    """Return the memory of a fitted model and the peak of the fit, in vectors of d float64."""
    tracemalloc.start()
    evaluator = vrtd.Evaluator(discount=DISCOUNT).partial_fit(log)
    now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert evaluator.n_features == n_features
    return now / (8 * n_features), peak / (8 * n_features)


def write_text(path: Path, n_rows: int) -> None:
    rng = np.random.default_rng(0)
    schema = pyarrow.schema([("user", pyarrow.string()), ("item", pyarrow.string()), ("reward", pyarrow.float64())])
    with ParquetWriter(path, schema) as file:
        for _ in range(0, n_rows, _PART):
            users, items = (rng.integers(0, size, _PART) for size in (1_000_000, 50_000))
            text = [
                pyarrow.array(np.char.add(name, numbers.astype(str))) for name, numbers in (("u", users), ("i", items))
            ]
            file.write_table(pyarrow.table([*text, rng.normal(size=_PART)], schema))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="Use few rows, to check that everything runs.")
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--text-rows", type=int, default=10_000_000, help="Rows of the log of text; 0 for none.")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    n_rows = 6_000 if arguments.quick else arguments.rows
    large, rounds = (20_000, 1) if arguments.quick else (1_000_000, 3)
    sizes = (1_000, large)
    logs, small = {d: make_log(n_rows, d) for d in sizes}, make_log(3000, 1_000)
    print(
        f"{n_rows:,} rows in memory, microseconds per row with {sizes[0]:,} and {sizes[1]:,} features, and their ratio"
    )
    chosen = ["td", "vrtd, growing batches (auto)"] if arguments.quick else ALGORITHMS
    for name in chosen:
        measure_time(small, ALGORITHMS[name])  # compilation
        times = [[measure_time(logs[d], ALGORITHMS[name]) for d in sizes] for _ in range(rounds)]
        few, many = 1e6 * np.min(times, axis=0) / n_rows
        print(f"  {name:30} {few:6.2f} {many:6.2f} {many / few:6.2f}")
    fitted, peak = measure_memory(logs[large], large)
    print(f"memory with {large:,} features, in vectors of d float64: fitted {fitted:.1f}, peak {peak:.1f}")
    n_text = 50_000 if arguments.quick else arguments.text_rows
    if n_text:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "log.parquet"
            write_text(path, n_text)
            command = [sys.executable, "-c", READ, str(path)]
            found = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
        print(f"{n_text:,} rows of Parquet with two columns of text, hashed into 2^20 features: {found}")


if __name__ == "__main__":
    main()
