"""Measure the speed of the engine: million pseudo-gradients per second through `vrtd.simulate`, and start-up costs.

    python benchmarks/throughput.py [--json] [--against COMMAND] [--quick] [--algorithms]

Machines differ and are noisy, so compare only ratios of measurements in the same session. COMMAND may be any program
that prints one JSON object with the same names (td_markov, vrtd_iid, vrtd_markov) in the same unit; ratios to it are
then added.
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
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy

import numpy as np
from every_algorithm import every_algorithm

import vrtd

DIMENSIONS = (4, 16, 64, 256)
ALGORITHMS: dict[str, tuple[Any, str]] = {
    "td_markov": (vrtd.TD(0.1), "markov"),
    "vrtd_iid": (vrtd.VRTD(0.1, 500), "iid"),
    "vrtd_markov": (vrtd.VRTD(0.1, 500), "markov"),
    "vrtd_markov_projected": (vrtd.VRTD(0.1, 500, radius=100.0), "markov"),
}


def problem(d: int) -> vrtd.LinearProblem:
    """Return a chain with 50 dense states, as in the paper; more than 50 features need more states.

    Features are normalised if d > 4.
    """
    return vrtd.problems.random_mdp(seed=0, n_states=max(50, d), n_features=d, normalize=d > 4)


def rate(name: str, d: int, n_gradients: int, repeats: int, threads: int = 1, checkpoints: int = 1) -> float:
    """Return million pseudo-gradients per second, the best of several calls after one that compiles."""
    (algorithm, sampling), chain, n_runs = ALGORITHMS[name], problem(d), 64
    arguments = {"sampling": sampling, "n_runs": n_runs, "checkpoints": checkpoints, "threads": threads}
    vrtd.simulate(chain, algorithm, n_gradients=1000, **arguments)
    best = np.inf
    for _ in range(repeats):
        clock = time.perf_counter()
        vrtd.simulate(chain, algorithm, n_gradients=n_gradients, **arguments)
        best = min(best, time.perf_counter() - clock)
    return n_runs * n_gradients / best / 1e6


def numpy_rate(name: str, d: int = 4) -> float:
    """Measure the same methods written in plain NumPy, one run at a time."""
    (algorithm, sampling), chain = ALGORITHMS[name], problem(d)
    mrp, phi = chain.mrp, chain.phi
    rng, cumulative = np.random.default_rng(0), mrp.P.cumsum(axis=1)
    start, rewards = mrp.stationary.cumsum(), mrp.edges.reward.reshape(mrp.n_states, -1)
    state = 0

    def draw() -> tuple[Any, Any, Any]:
        nonlocal state
        s = state if sampling == "markov" else int(np.searchsorted(start, rng.random()))
        state = min(int(np.searchsorted(cumulative[s], rng.random())), mrp.n_states - 1)
        return phi[s], phi[state], rewards[s, state]

    def g(x: Any, theta: Any) -> Any:
        return x[0] * (x[2] + 0.95 * (x[1] @ theta) - x[0] @ theta)

    theta, count = np.zeros(d), 20_000
    clock = time.perf_counter()
    if isinstance(algorithm, vrtd.TD):
        for _ in range(count):
            theta = theta + 0.1 * g(draw(), theta)
    else:
        for _ in range(count // 1000):
            batch = [draw() for _ in range(500)]
            mean, anchor, iterates = sum(g(x, theta) for x in batch) / 500, theta, []
            for _ in range(500):
                x = batch[rng.integers(500)] if sampling == "markov" else draw()
                theta = theta + 0.1 * (g(x, theta) - g(x, anchor) + mean)
                norm = np.linalg.norm(theta)
                theta = theta * (100.0 / norm) if algorithm.radius and norm > algorithm.radius else theta
                iterates.append(theta)
            theta = iterates[rng.integers(500)]
    return count / (time.perf_counter() - clock) / 1e6


FIRST_RESULT = """
import time; clock = time.perf_counter()
import vrtd
problem = vrtd.problems.random_mdp(seed=0)
call = time.perf_counter()
vrtd.simulate(problem, vrtd.VRTD(0.1, 500), n_runs=10, n_gradients=10_000)
print(time.perf_counter() - clock, time.perf_counter() - call)
"""

# On Linux, writing 5 to clear_refs resets the peak of resident memory.
MEMORY = """
import vrtd
def mebibytes(key):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(key)) / 1024
problem = vrtd.problems.random_mdp(seed=0)
vrtd.simulate(problem, vrtd.VRTD(0.1, 5), n_runs=2, n_gradients=100)
for n_gradients in (40_000, 400_000):
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    idle = mebibytes("VmRSS")
    vrtd.simulate(problem, vrtd.VRTD(0.1, 2000), n_runs=1000, n_gradients=n_gradients)
    print(mebibytes("VmHWM") - idle)
"""


def child(code: str, **environment: str) -> list[float]:
    output = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True, check=True
    ).stdout
    return [float(word) for word in output.split()]


def cpu_seconds(*command: str) -> float:
    """Return the user and system time of a command, the best of five."""
    best = np.inf
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return best


def starting() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as empty:
        first, first_call = child(FIRST_RESULT, NUMBA_CACHE_DIR=empty)
        later, later_call = child(FIRST_RESULT, NUMBA_CACHE_DIR=empty)
    return {
        "first_ever_call_s": first_call,
        "first_ever_process_s": first,
        "later_call_s": later_call,
        "later_process_s": later,
        "help_cpu_s": cpu_seconds(sys.executable, "-m", "vrtd", "--help"),
        "import_cpu_s": cpu_seconds(sys.executable, "-c", "import vrtd"),
        "python_alone_cpu_s": cpu_seconds(sys.executable, "-c", "pass"),
    }


def engine(options: argparse.Namespace) -> dict[str, Any]:
    """Measure TD and VRTD as in the paper."""
    scale, repeats, dimensions = (0.1, 1, DIMENSIONS[::2]) if options.quick else (1.0, 7, DIMENSIONS)

    def others() -> dict[str, float]:
        return json.loads(subprocess.run(options.against, shell=True, check=True, capture_output=True).stdout)

    before = others() if options.against else {}
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    n_gradients = int(1_000_000 * scale)
    report: dict[str, Any] = {"unit": "million pseudo-gradients a second, one core"}
    for name in ALGORITHMS:
        report[name] = rate(name, 4, n_gradients, repeats)
    if options.against:
        after = others()
        best = {name: max(before[name], after[name]) for name in ALGORITHMS if name in before}
        best["vrtd_markov_projected"] = best["vrtd_markov"]
        report["against"] = best
        report["ratio_to_against"] = {name: report[name] / best[name] for name in ALGORITHMS}
    report["numpy"] = {name: numpy_rate(name) for name in ALGORITHMS}
    report["ratio_to_numpy"] = {name: report[name] / report["numpy"][name] for name in ALGORITHMS}
    report["by_dimension"] = {
        d: {name: rate(name, d, max(n_gradients * 16 // d, 10_000), repeats) for name in ALGORITHMS} for d in dimensions
    }
    # Alternate, so that both see the same noise of the machine.
    pairs = [[rate("td_markov", 4, n_gradients, 2, 1, count) for count in (1, 200)] for _ in range(repeats)]
    bare, recorded = (max(column) for column in zip(*pairs, strict=True))
    report["cost_of_200_checkpoints"] = bare / recorded - 1
    os.sched_setaffinity(0, cores)
    report["two_threads_to_one"] = {
        name: max(rate(name, 4, n_gradients, 2, 2) for _ in range(3))
        / max(rate(name, 4, n_gradients, 2, 1) for _ in range(3))
        for name in ALGORITHMS
    }
    report["starting"] = starting()
    short, long = child(MEMORY)
    report["memory_mib_1000_runs_M2000"] = {"40,000 pseudo-gradients": short, "400,000 pseudo-gradients": long}
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--against", metavar="COMMAND", help="command to compare with, which runs before and after")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work")
    parser.add_argument("--algorithms", action="store_true", help="measure only the updates of each algorithm")
    options = parser.parse_args()
    report = {} if options.algorithms else engine(options)
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    report["algorithms"] = every_algorithm(options.quick)
    report["machine"] = {"cores": len(cores), "python": sys.version.split()[0], "vrtd": vrtd.__version__}
    print(json.dumps(report) if options.json else json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
