"""Measure the cost per row of the closed form and of VRTD, by number of features.

    OPENBLAS_NUM_THREADS=1 python benchmarks/closed_form.py [--quick]

The result shows at which number of features algorithm="auto" should switch. Rows are features in memory, so reading
takes no time. The environment variable restricts the measurement to one core.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import vrtd

REPEATS = 3


def seconds_per_row(algorithm: str | vrtd.VRTD, log: vrtd.logs.Log, n_rows: int) -> float:
    """Return the CPU time per row of learning, the best of several runs."""
    best = np.inf
    for _ in range(REPEATS):
        evaluator = vrtd.Evaluator(algorithm, features="identity", discount=0.9)
        start = time.process_time()
        evaluator.partial_fit(log)
        best = min(best, time.process_time() - start)
    return float(best / n_rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rows, to see that it runs")
    quick = parser.parse_args().quick
    rng = np.random.default_rng(0)
    print("features  closed form, us per row  VRTD, us per row  ratio")
    for d in (16, 64) if quick else (16, 64, 128, 256, 512, 900):
        n = 5_000 if quick else max(20_000, 2_500_000 // d)
        phi = rng.normal(size=(n + 1, d))
        log = vrtd.logs.from_arrays(phi[:-1], rng.normal(size=n), phi[1:])
        closed, run = (seconds_per_row(algorithm, log, n) for algorithm in ("closed_form", vrtd.VRTD(1e-3 / d, 1000)))
        print(f"{d:8}  {1e6 * closed:23.2f}  {1e6 * run:16.2f}  {closed / run:5.1f}", flush=True)


if __name__ == "__main__":
    main()
