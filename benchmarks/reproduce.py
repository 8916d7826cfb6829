"""Measure the cost of `vrtd reproduce`: the whole paper with nothing compiled, and `--quick` with compiled loops.

    python benchmarks/reproduce.py [--json] [--against COMMAND] [--quick]

Machines differ and are noisy, so compare only ratios of measurements in the same session. COMMAND may be any program
that prints one JSON object with the rates td_markov, vrtd_iid and vrtd_markov of one core, in million pseudo-gradients
per second. The experiments on chains are compared with the time that COMMAND would take for the same work on all cores.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from throughput import numpy_rate  # beside this file

# Share of TD in the pseudo-gradients of the experiments on chains, and the rate to compare the rest with.
CHAINS = {
    "random-mdp-iid": (1 / 5, "vrtd_iid"),
    "random-mdp-markov": (1 / 5, "vrtd_markov"),
    "frozen-lake": (1 / 5, "vrtd_markov"),
    "changing-step": (4 / 5, "vrtd_markov"),
}

QUICK = ["random-mdp-iid", "mountain-car"]  # experiments of the quick form

# The whole paper in one process: the share of time in compiled loops, without compilation, and the peak memory.
WHOLE = """
import json, resource, sys, threading, time
from vrtd.engine import simulation
from vrtd.engine.blocks import available_threads
from vrtd.paper import experiment
inside, lock, simulated = [0.0], threading.Lock(), [0.0]
run_blocks, simulate = simulation.run_blocks, experiment.simulate

def timed(loop):
    def call(*arguments):
        clock = time.perf_counter()
        loop(*arguments)
        with lock:
            inside[0] += time.perf_counter() - clock
    return call

def counted(*arguments, **options):
    clock = time.perf_counter()
    result = simulate(*arguments, **options)
    simulated[0] += time.perf_counter() - clock - result.provenance["compile_seconds"]
    return result

simulation.run_blocks = lambda job, loop, *rest: run_blocks(job, timed(loop), *rest)
experiment.simulate = counted
import vrtd
vrtd.reproduce(sys.argv[3:], out=sys.argv[1], n_runs=int(sys.argv[2]))
print(json.dumps({
    "share_compiled": inside[0] / simulated[0] / available_threads(),
    "memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
}))
"""


def run(command: list[str], **environment: str) -> tuple[float, str]:
    clock = time.perf_counter()
    shown = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=True).stdout
    return time.perf_counter() - clock, shown


def numpy_mountain_car(d: int = 20, n_samples: int = 20_000) -> float:
    """Measure TD on Mountain Car, written in plain NumPy, in million pseudo-gradients per second."""
    rng = np.random.default_rng(0)
    w, c = rng.normal(size=(d, 2)), rng.uniform(0.0, 2.0 * np.pi, d)
    mean, std, state = np.array([-0.5, 0.0]), np.array([0.2, 0.01]), np.array([-0.5, 0.0])

    def features(state: Any) -> Any:
        return np.sqrt(2.0 / d) * np.cos(w @ ((state - mean) / std) + c)

    theta, phi = np.zeros(d), features(state)
    clock = time.perf_counter()
    for _ in range(n_samples):
        position, velocity = state
        velocity = np.clip(velocity + (rng.integers(3) - 1) * 0.001 - math.cos(3 * position) * 0.0025, -0.07, 0.07)
        position = np.clip(position + velocity, -1.2, 0.6)
        state = (
            np.array([-0.5, 0.0])
            if position >= 0.5
            else np.array([position, max(velocity, 0.0 if position == -1.2 else -1)])
        )
        after = features(state)
        theta = theta + 0.2 * phi * (-1.0 + 0.95 * (after @ theta) - phi @ theta)
        phi = after
    return n_samples / (time.perf_counter() - clock) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--against", metavar="COMMAND", help="command to compare with, which runs before and after")
    parser.add_argument("--quick", action="store_true", help="two experiments, 10 runs, the usual cache of loops")
    options = parser.parse_args()

    def others() -> dict[str, float]:
        return json.loads(subprocess.run(options.against, shell=True, check=True, capture_output=True).stdout)

    before = others() if options.against else {}
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        cache, out = f"{folder}/cache", f"{folder}/whole"
        n_runs, names = (10, QUICK) if options.quick else (1000, [])
        where = {} if options.quick else {"NUMBA_CACHE_DIR": cache}
        whole, shown = run([sys.executable, "-c", WHOLE, out, str(n_runs), *names], **where)
        costs = {
            name: each["cost"]
            for name, each in json.loads(Path(out, "manifest.json").read_text())["experiments"].items()
        }
        quick = [sys.executable, "-m", "vrtd", "reproduce", *names, "--quick", "--quiet", "--out"]
        looks = [run([*quick, f"{folder}/quick-{k}"], **where)[0] for k in range(1 if options.quick else 3)]
    report: dict[str, Any] = {
        "n_runs": n_runs,
        "whole_cold_s": whole,
        "quick_warm_s": min(looks),
        "compile_s": sum(cost["compile_seconds"] for cost in costs.values()),
        "n_gradients": sum(cost["n_gradients"] for cost in costs.values()),
        **json.loads(shown),
        "million_gradients_a_second": {
            name: c["n_gradients"] / max(c["seconds"], 1e-9) / 1e6 for name, c in costs.items()
        },
    }
    if options.against:
        after = others()
        best = {name: max(before[name], after[name]) for name in before}
        report["ratio_to_against_on_all_cores"] = {
            name: costs[name]["n_gradients"]
            / 1e6
            * (td / best["td_markov"] + (1 - td) / best[vrtd])
            / cores
            / costs[name]["seconds"]
            for name, (td, vrtd) in CHAINS.items()
            if name in costs
        }
    # The faster of the two methods in NumPy, for each experiment.
    td, vrtd_iid, vrtd_markov = (numpy_rate(name) for name in ("td_markov", "vrtd_iid", "vrtd_markov"))
    rates = {"random-mdp-iid": max(td, vrtd_iid), "mountain-car": numpy_mountain_car()}
    in_numpy = sum(c["n_gradients"] / 1e6 / rates.get(name, max(td, vrtd_markov)) for name, c in costs.items())
    report["ratio_to_numpy"] = in_numpy / whole
    report["machine"] = {"cores": cores, "python": sys.version.split()[0]}
    print(json.dumps(report) if options.json else json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
