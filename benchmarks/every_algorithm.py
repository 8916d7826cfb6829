"""Measure the cost of an update of each algorithm; `throughput.py --algorithms` runs it.

The cost is compared with that of TD and with the number of operations, for methods on a data set with NumPy, and for
recursive least squares with BLAS. An update is what the method counts as a pseudo-gradient: a sample that is absorbed
or used in a step.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.linalg import blas

import vrtd
from vrtd.algorithms import REGISTRY

N_ROWS, N_RUNS, WIDE = 1000, 16, 256
DIMENSIONS = (4, 16, 64)
SETTINGS: dict[str, dict[str, Any]] = {
    "vrtd": {"batch_size": 500},
    "lstd": {"trace_decay": 0.5},
    "recursive_lstd": {"trace_decay": 0.5},
}
# Multiplications and additions per update: (a, b) for a d^2 + b d. Methods with batches have the mean over an epoch
# with as many steps as rows; half of the steps of growing SCSG do nothing.
OPERATIONS: dict[str, tuple[float, float]] = {
    "td": (0, 6),
    "td_lambda": (0, 9),
    "true_online_td": (0, 14),
    "target_td": (0, 11),
    "gtd": (0, 13),
    "gtd2": (0, 12),
    "tdc": (0, 12),
    "vrtd": (0, 6.5),
    "lstd": (2, 7),
    "recursive_lstd": (6, 12),
    "primal_dual": (0, 12),
    "svrg": (0, 13),
    "batching_svrg": (0, 13),
    "scsg": (0, 13),
    "growing_scsg": (0, 9.5),
    "saga": (0, 20),
}
ASKED = {
    "of TD's rate at d = 64": {"td_lambda": ">= 0.5", "gtd2": ">= 0.4", "tdc": ">= 0.4"},
    "of NumPy's rate": {"svrg": ">= 10", "saga": ">= 10"},
    "of BLAS's rate at d = 256": {"recursive_lstd": ">= 0.5"},
}


def operations(name: str, d: int) -> float | None:
    if name not in OPERATIONS:
        return None
    a, b = OPERATIONS[name]
    return a * d**2 + b * d


def formula(name: str) -> str:
    a, b = OPERATIONS.get(name, (0, 0))
    return " + ".join(f"{factor:g} {term}" for factor, term in ((a, "d^2"), (b, "d")) if factor) or "-"


def update(name: str, d: int, budget: float, specialise: bool) -> Callable[[], float]:
    """Return a compiled call that measures the seconds per update over `budget` operations."""
    algorithm = REGISTRY[name](**SETTINGS.get(name, {}))
    problem: Any = vrtd.problems.random_mdp(seed=0, n_states=max(50, d), n_features=d, normalize=True)
    sampling, n_rows = "markov", 0
    if algorithm.needs_data_set:
        sampling, n_rows = "dataset", N_ROWS
        problem = vrtd.record(problem, N_ROWS)
    epoch = algorithm.epoch(sampling, n_rows)
    n_epochs = max(1, int(budget / (N_RUNS * (operations(name, d) or 20 * d) * epoch.n_gradients)))
    n = int(epoch.gradients_until(n_epochs))

    def call() -> float:
        result = vrtd.simulate(
            problem, algorithm, sampling=sampling, n_runs=N_RUNS, n_gradients=n, checkpoints=1, metrics=(),
            threads=1, specialise=specialise,
        )  # fmt: skip
        return float(result.provenance["seconds"]) / (N_RUNS * n)

    call()
    return call


def numpy_svrg(data: Any, n_epochs: int) -> float:
    """Return the seconds per inner step, including its share of the full gradients."""
    rng, (n, d) = np.random.default_rng(0), data.phi.shape
    phi, psi = data.phi, data.discount[:, None] * data.phi_next - data.phi
    theta, w = np.zeros(d), np.zeros(d)
    began = time.perf_counter()
    for _ in range(n_epochs):
        g, g_w = psi.T @ (phi @ w) / n, phi.T @ (psi @ theta + data.reward - phi @ w) / n
        u, v = np.zeros(d), np.zeros(d)
        for i in rng.integers(n, size=n):
            along, error = phi[i] @ v, psi[i] @ u
            u -= 0.1 * (along * psi[i] + g)
            v += 0.1 * ((error - along) * phi[i] + g_w)
        theta, w = theta + u, w + v
    return (time.perf_counter() - began) / (n_epochs * n)


def numpy_saga(data: Any, n_epochs: int) -> float:
    """Return the seconds per step."""
    rng, (n, d) = np.random.default_rng(0), data.phi.shape
    phi, psi = data.phi, data.discount[:, None] * data.phi_next - data.phi
    theta, w, g, g_w, memory = np.zeros(d), np.zeros(d), np.zeros(d), np.zeros(d), np.zeros((n, 2))
    began = time.perf_counter()
    for i in rng.integers(n, size=n_epochs * n):
        s = phi[i] @ w
        e = data.reward[i] + psi[i] @ theta - s
        move, move_w = (s - memory[i, 0]) * psi[i], (e - memory[i, 1]) * phi[i]
        theta -= 0.1 * (move + g)
        w += 0.1 * (move_w + g_w)
        g += move / n
        g_w += move_w / n
        memory[i] = s, e
    return (time.perf_counter() - began) / (n_epochs * n)


def blas_update(n: int) -> float:
    """Return the seconds of P z, P^T psi and a rank-one update of P, which is less than a whole update."""
    rng, P = np.random.default_rng(0), np.asfortranarray(np.eye(WIDE))
    z, psi, left, right = rng.random((4, WIDE))
    began = time.perf_counter()
    for _ in range(n):
        blas.dgemv(1.0, P, z, y=left, overwrite_y=1)
        blas.dgemv(1.0, P, psi, y=right, trans=1, overwrite_y=1)
        blas.dger(-1e-9, left, right, a=P, overwrite_a=1)
    return (time.perf_counter() - began) / n


def best(repeats: int, calls: dict[str, Callable[[], float]]) -> dict[str, float]:
    """Return the minimum of each call over repetitions; the calls alternate, so that all see the same noise."""
    times = [{name: call() for name, call in calls.items()} for _ in range(repeats)]
    return {name: min(each[name] for each in times) for name in calls}


def every_algorithm(quick: bool) -> dict[str, Any]:
    """Measure ratios of rates in one session.

    `quick` measures only algorithms with a requirement, each with one loop for all numbers of features, because
    compilation takes most of the time.
    """
    budget, repeats = (2e6, 1) if quick else (3e8, 5)
    asked = {"td"}.union(*ASKED.values())
    names = [name for name in REGISTRY if name in asked or not quick]
    report: dict[str, Any] = {"asked": ASKED, "operations": {name: formula(name) for name in names}}
    for d in DIMENSIONS:
        times = best(repeats, {name: update(name, d, budget, not quick) for name in names})
        rates = {name: {"of TD's rate": times["td"] / each, "ns": each * 1e9} for name, each in times.items()}
        for name, rate in rates.items():
            count = operations(name, d)
            rate["operations to TD's"] = "-" if count is None else count / (6 * d)
        report[f"d = {d}"] = rates
    for d in DIMENSIONS:
        problem = vrtd.problems.random_mdp(seed=0, n_states=max(50, d), n_features=d, normalize=True)
        data = vrtd.record(problem, N_ROWS)
        rivals = {"svrg": numpy_svrg, "saga": numpy_saga}
        ours = {name: update(name, d, budget, not quick) for name in rivals}
        theirs = {f"{name} in NumPy": partial(run, data, 1 if quick else 10) for name, run in rivals.items()}
        times = best(repeats, ours | theirs)
        times["svrg"] *= 2  # an inner step with its row of the full gradient
        report[f"of NumPy's rate, d = {d}"] = {name: times[f"{name} in NumPy"] / times[name] for name in rivals}
    wide = update("recursive_lstd", WIDE, 4 * budget, not quick)
    times = best(repeats, {"ours": wide, "BLAS": lambda: blas_update(50 if quick else 3000)})
    report[f"recursive_lstd of BLAS's rate, d = {WIDE}"] = times["BLAS"] / times["ours"]
    return report
