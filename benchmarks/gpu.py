"""Measure runs on a GPU: billion pseudo-gradients per second, of the loop alone and of the whole call of `simulate`.

    python benchmarks/gpu.py [--json] [--quick] [--no-cpu] [CASE ...]

Each case is called twice, and the second call is reported: the first one compiles. The CPU computes a part of the same
runs with all its cores, in the same session.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import vrtd
from vrtd.kernels import cuda


class Case(NamedTuple):
    """Runs that are measured."""

    problem: Callable[[], Any]
    algorithm: Any
    sampling: str
    n_runs: int
    n_gradients: int


def dense(d: int) -> Callable[[], Any]:
    """Return a chain with 50 dense states, as in the paper; more than 50 features need more states."""
    return lambda: vrtd.problems.random_mdp(seed=0, n_states=max(50, d), n_features=d, normalize=d > 4)


def sparse() -> Any:
    return vrtd.problems.garnet(seed=0, n_states=500, n_features=16)


TD, VRTD = vrtd.TD(0.1), vrtd.VRTD(0.1, 500)
MANY, SOME = 1 << 20, 1 << 17
CASES = {
    "td_markov_d4": Case(dense(4), TD, "markov", MANY, 1_000_000),
    "vrtd_markov_d4": Case(dense(4), VRTD, "markov", MANY, 1_000_000),
    "vrtd_iid_d4": Case(dense(4), VRTD, "iid", MANY, 1_000_000),
    "td_markov_d16": Case(dense(16), TD, "markov", SOME, 200_000),
    "vrtd_markov_d16": Case(dense(16), VRTD, "markov", SOME, 200_000),
    "td_markov_d64": Case(dense(64), TD, "markov", SOME, 50_000),
    "vrtd_markov_d64": Case(dense(64), VRTD, "markov", SOME, 50_000),
    "td_sparse": Case(sparse, TD, "markov", SOME, 200_000),
    "vrtd_sparse": Case(sparse, VRTD, "markov", SOME, 200_000),
    "vrtd_frozen_lake": Case(vrtd.problems.frozen_lake, VRTD, "markov", SOME, 500_000),
    "td_mountain_car": Case(vrtd.problems.mountain_car, TD, "markov", SOME, 50_000),
    "vrtd_mountain_car": Case(vrtd.problems.mountain_car, vrtd.VRTD(0.1, 50), "markov", SOME, 50_000),
}
CHECKPOINTS = 10
CPU_RUNS_PER_CORE, CPU_GRADIENTS = 64, 200_000


def measure(case: Case, quick: bool, with_cpu: bool) -> dict[str, float]:
    """Return rates in billion pseudo-gradients per second, and their ratios."""
    problem, n_gradients = case.problem(), case.n_gradients // (10 if quick else 1)
    arguments = {"sampling": case.sampling, "checkpoints": CHECKPOINTS}
    launch, seconds = cuda.Gpu.launch, [0.0]

    def timed(self: Any, *options: Any) -> None:
        clock = time.perf_counter()
        launch(self, *options)
        seconds[0] += time.perf_counter() - clock

    cuda.Gpu.launch = timed  # type: ignore[method-assign]
    try:
        for size in (10_000, n_gradients):
            seconds[0] = 0.0
            clock = time.perf_counter()
            result = vrtd.simulate(
                problem, case.algorithm, n_runs=case.n_runs, n_gradients=size, device="cuda", **arguments
            )
            whole = time.perf_counter() - clock
    finally:
        cuda.Gpu.launch = launch  # type: ignore[method-assign]
    done = case.n_runs * int(result.n_gradients[-1])
    report = {"kernel": done / seconds[0] / 1e9, "call": done / whole / 1e9, "call_to_kernel_time": whole / seconds[0]}
    if with_cpu:
        cores = len(os.sched_getaffinity(0))
        n_runs, size = CPU_RUNS_PER_CORE * cores, min(CPU_GRADIENTS, n_gradients)
        best = float("inf")
        for _ in range(2):
            clock = time.perf_counter()
            vrtd.simulate(problem, case.algorithm, n_runs=n_runs, n_gradients=size, **arguments)
            best = min(best, time.perf_counter() - clock)
        report |= {
            f"cpu_{cores}_cores": n_runs * size / best / 1e9,
            "gpu_to_cpu": report["call"] * best * 1e9 / n_runs / size,
        }
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"cases (default: all): {', '.join(CASES)}")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="a tenth of the pseudo-gradients")
    parser.add_argument("--no-cpu", action="store_true", help="measure only the GPU")
    options = parser.parse_args()
    report: dict[str, Any] = {
        "gpu": cuda.Gpu().name,
        "vrtd": vrtd.__version__,
        "unit": "1e9 pseudo-gradients per second",
    }
    for name in options.cases or CASES:
        report[name] = measure(CASES[name], options.quick, not options.no_cpu)
        if not options.json:
            print(f"{name:20}" + "  ".join(f"{key} {value:.4g}" for key, value in report[name].items()), flush=True)
    if options.json:
        print(json.dumps(report))


if __name__ == "__main__":
    main()
