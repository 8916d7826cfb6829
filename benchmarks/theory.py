"""Measure the speed of exact moments: the time of `exact_curve`, its growth, and the time of simulation.

    python benchmarks/theory.py [--json] [--quick]

Every number is the best of several calls in a warm process, on one core unless stated otherwise. Machines differ and
are noisy, so compare only ratios of measurements in the same session. A ratio to target below 1 meets the target.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy: one core is measured

import numpy as np

import vrtd
from vrtd.theory import exact_curve

BUDGET = 80_000
BATCH_SIZES = (50, 500, 1000, 2000)
STATES, FEATURES = (50, 100, 200, 400), (2, 4, 8, 16)
LARGE_BATCH_SIZES = (10, 100, 1000, 10_000, 100_000, 1_000_000)
TARGET_MS = {"td_iid": 50, "vrtd_iid": 50, "vrtd_markov": 50, "td_markov_d4": 1000, "td_markov_d16": 10_000}
PLAN_TARGET_MS = {"iid": 2000, "markov": 10_000}


def problem(n_states: int = 50, d: int = 4) -> vrtd.LinearProblem:
    """Return the paper's random MDP; features are normalised if d > 4, so that the step stays stable."""
    return vrtd.problems.random_mdp(seed=0, n_states=n_states, n_features=d, normalize=d > 4)


def best_ms(call: Callable[[], Any], repeats: int) -> float:
    """Return the milliseconds of the fastest of several calls, after one that warms up."""
    call()
    best = np.inf
    for _ in range(repeats):
        clock = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - clock)
    return 1e3 * best


def curve_ms(
    algorithm: Any, sampling: str, repeats: int, n_states: int = 50, d: int = 4, n_gradients: int = BUDGET
) -> float:
    chain = problem(n_states, d)
    return best_ms(lambda: exact_curve(chain, algorithm, sampling=sampling, n_gradients=n_gradients), repeats)


def against_target(ms: dict[str, float], target: float) -> dict[str, Any]:
    return {"ms": ms, "target_ms": target, "ratio_to_target": {name: value / target for name, value in ms.items()}}


def curves(repeats: int) -> dict[str, Any]:
    """Measure the curves of the paper's Figures 1 and 2, and TD on a trajectory with more features."""
    report = {"td_iid": against_target({"M = 1": curve_ms(vrtd.TD(0.1), "iid", repeats)}, TARGET_MS["td_iid"])}
    for sampling in ("iid", "markov"):
        ms = {f"M = {M}": curve_ms(vrtd.VRTD(0.1, M), sampling, repeats) for M in BATCH_SIZES}
        report[f"vrtd_{sampling}"] = against_target(ms, TARGET_MS[f"vrtd_{sampling}"])
    for d in (4, 16):
        ms = {f"d = {d}": curve_ms(vrtd.TD(0.1), "markov", min(repeats, 3), d=d)}
        report[f"td_markov_d{d}"] = against_target(ms, TARGET_MS[f"td_markov_d{d}"])
    return report


def growth(repeats: int, quick: bool) -> dict[str, Any]:
    """Measure ratios of times to the first case of each row."""
    methods = {
        "td_iid": (vrtd.TD(0.1), "iid"),
        "td_markov": (vrtd.TD(0.1), "markov"),
        "vrtd_iid": (vrtd.VRTD(0.1, 500), "iid"),
        "vrtd_markov": (vrtd.VRTD(0.1, 500), "markov"),
    }
    states, features = (STATES[:3], FEATURES[:3]) if quick else (STATES, FEATURES)
    report: dict[str, Any] = {"with_states": {}, "with_features": {}, "with_batch_size": {}}
    for name, (algorithm, sampling) in methods.items():
        few = min(repeats, 3) if name == "td_markov" else repeats
        report["with_states"][name] = ratios({S: curve_ms(algorithm, sampling, few, S) for S in states})
        report["with_features"][name] = ratios({d: curve_ms(algorithm, sampling, few, d=d) for d in features})
    for sampling in ("iid", "markov"):
        report["with_batch_size"][f"vrtd_{sampling}"] = ratios(
            {M: curve_ms(vrtd.VRTD(0.1, M), sampling, repeats, n_gradients=200 * M) for M in LARGE_BATCH_SIZES}
        )
    return report


def ratios(ms: dict[int, float]) -> dict[str, Any]:
    base = next(iter(ms.values()))
    return {"ms": ms, "ratio_to_first": {key: value / base for key, value in ms.items()}}


def simulation(repeats: int, n_runs: int) -> dict[str, Any]:
    """Measure how much longer `simulate` takes for the same curve, on all cores, with errors of 1 / sqrt(n_runs)."""
    chain = problem()
    report: dict[str, Any] = {"n_runs": n_runs, "n_gradients": BUDGET}
    for name, algorithm, sampling in (
        ("td_iid", vrtd.TD(0.1), "iid"),
        ("td_markov", vrtd.TD(0.1), "markov"),
        ("vrtd_iid_M500", vrtd.VRTD(0.1, 500), "iid"),
        ("vrtd_markov_M500", vrtd.VRTD(0.1, 500), "markov"),
    ):
        arguments = {"sampling": sampling, "n_gradients": BUDGET}
        exact = best_ms(lambda: exact_curve(chain, algorithm, **arguments), repeats)  # noqa: B023
        runs = best_ms(lambda: vrtd.simulate(chain, algorithm, n_runs=n_runs, **arguments), 2)  # noqa: B023
        report[name] = {"simulate_ms": runs, "exact_ms": exact, "ratio": runs / exact}
    return report


def planner(repeats: int) -> dict[str, Any]:
    """Measure `plan` for a thousandth of the initial error; the targets are 2 s and 10 s."""
    chain = problem()
    target_error = 1e-3 * float(chain.theta_star @ chain.theta_star)
    report: dict[str, Any] = {"target_error": target_error}
    for sampling, target in PLAN_TARGET_MS.items():

        def call(sampling: Any = sampling) -> Any:
            return vrtd.plan(chain, target_error=target_error, sampling=sampling, mode="exact")

        report[sampling] = against_target({"plan": best_ms(call, min(repeats, 2))}, target)
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="a fraction of the work")
    options = parser.parse_args()
    repeats = 1 if options.quick else 7

    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    report: dict[str, Any] = {"unit": "milliseconds, one core", "curves": curves(repeats)}
    report["growth"] = growth(repeats, options.quick)
    report["planner"] = planner(repeats)
    os.sched_setaffinity(0, cores)
    report["simulate_to_exact"] = simulation(repeats, 100 if options.quick else 1000)
    report["machine"] = {"cores": len(cores), "python": sys.version.split()[0], "vrtd": vrtd.__version__}
    if options.json:
        print(json.dumps(report))
    else:
        print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
