"""How good "auto" is: its error beside that of the best cell of a grid, at the same data.

    python benchmarks/auto.py [--quick] [--rows N] [--json]

Twenty random problems that were not used to tune it, and four named ones, 200 trajectories each. On every trajectory
`Evaluator(n_samples=N)` learns with what it decides at its pilot rows; every cell of a grid (12 steps up to the limit
of stability, TD and batches of powers of 2) learns from the same rows. Compared are mean squared errors
E|theta - theta_star|^2: of "auto", of the cell with the lowest mean, and of LSTD.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy

import numpy as np
from intervals import Problem, trajectory

import vrtd
from vrtd.errors import DivergenceError, SingularSystemError
from vrtd.estimator.learner import first_learner, learn
from vrtd.estimator.rows import NotFiniteError
from vrtd.theory import instance_optimal, stability_limit

STEPS, DECADES, SEED = 12, 3.0, 900


def random_features(mrp: Any, d: int, seed: int) -> Any:
    """Normal features and a constant one, scaled to |phi| <= 1."""
    phi = np.random.default_rng(seed).standard_normal((mrp.n_states, d))
    phi[:, 0] = 1.0
    return phi / np.linalg.norm(phi, axis=1).max()


def problems(n_rows: int) -> dict[str, Problem]:
    library, found = vrtd.problems, {}
    for i, d in enumerate((3, 6, 10, 16, 24)):
        found[f"random_mdp d={d}"] = library.random_mdp(seed=SEED + i, n_states=60, n_features=d, normalize=True)
        found[f"lazy d={d}"] = library.random_mdp(seed=SEED + 10 + i, n_states=60, n_features=d, laziness=0.7)
        found[f"garnet d={d}"] = library.garnet(seed=SEED + 20 + i, n_states=80, branching=3, n_features=d)
        mrp = library.garnet(seed=SEED + 30 + i, n_states=100, branching=4, gamma=0.97).mrp
        found[f"garnet, normal features d={d}"] = vrtd.LinearProblem(mrp, random_features(mrp, d, SEED + i))
    found["boyan_chain"] = library.boyan_chain()
    found["random_walk"] = library.random_walk(n_states=9)
    found["frozen_lake"] = library.frozen_lake(seed=SEED)
    found["frozen_lake, tabular"] = vrtd.LinearProblem(library.frozen_lake(seed=SEED + 1).mrp, np.eye(16))
    discount = {name: float(each.mrp.edges.discount.max()) for name, each in found.items()}
    return {
        name: Problem(each.mrp, vrtd.features.Table(each.phi), each.phi, discount[name], n_rows)
        for name, each in found.items()
    }


def cell_error(rows: vrtd.Transitions, step: float, M: int, seed: int, star: Any) -> float:
    algorithm = vrtd.TD(step) if M == 1 else vrtd.VRTD(step, M, output="average")
    try:
        learner = learn(first_learner(algorithm, None, np.zeros(star.size), seed), rows)
    except NotFiniteError:
        return np.inf
    return float(np.square(learner.theta - star).sum())


def evaluator_error(problem: Problem, chunk: Any, algorithm: str, seed: int, star: Any) -> float:
    n = problem.n_rows
    evaluator = vrtd.Evaluator(
        algorithm,
        features=problem.features,
        discount=problem.discount,
        n_samples=n,
        pilot_rows=min(5000, n // 2),
        seed=seed,
    )
    try:
        return float(np.square(evaluator.fit(chunk).theta_ - star).sum())
    except (DivergenceError, SingularSystemError):
        return np.inf


def study(problem: Problem, n_replications: int) -> dict[str, Any]:
    system = vrtd.LinearProblem(problem.mrp, problem.phi)
    star, limit = system.theta_star, stability_limit(system)
    cells = [
        (step, 1 << k)
        for step in (limit * np.geomspace(10.0**-DECADES, 1.0, STEPS)).tolist()
        for k in range(problem.n_rows.bit_length())
    ]
    errors = np.empty((n_replications, len(cells)))
    methods: dict[str, list[float]] = {"vrtd": [], "td": [], "closed_form": []}
    for r in range(n_replications):
        chunk = trajectory(problem, SEED + r)
        for algorithm, found in methods.items():
            found.append(evaluator_error(problem, chunk, algorithm, r, star))
        phi, phi_next = problem.phi[chunk.observations], problem.phi[chunk.next_observations]
        discount = np.where(chunk.terminated, 0.0, problem.discount)
        rows = vrtd.Transitions(phi, chunk.reward, phi_next, discount, ends=chunk.terminated)
        errors[r] = [cell_error(rows, step, M, r, star) for step, M in cells]
    mean = errors.mean(axis=0)
    best = int(mean.argmin())
    report: dict[str, Any] = {
        "best_cell": {"step": cells[best][0], "batch": cells[best][1], "error": float(mean[best])}
    }
    for algorithm, found in methods.items():
        values = np.array(found)
        report[algorithm] = {
            "error": float(values.mean()),
            "standard_error": float(values.std(ddof=1) / np.sqrt(n_replications)),
            "ratio": float(values.mean() / mean[best]),
        }
    report["optimal"] = instance_optimal(system) / problem.n_rows
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="two problems, few trajectories, for a look")
    parser.add_argument("--rows", type=int, default=20_000, help="of a trajectory (default 20000)")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # cells of the grid are unstable on purpose

    rows = 2000 if options.quick else options.rows
    chosen = list(problems(rows).items())[: 2 if options.quick else None]
    report: dict[str, Any] = {}
    for name, problem in chosen:
        report[name] = row = study(problem, 5 if options.quick else 200)
        if not options.json:
            ratios = ", ".join(f"{method} {row[method]['ratio']:.2f}" for method in ("vrtd", "td", "closed_form"))
            print(f"{name:32} best cell {row['best_cell']}; ratios to it: {ratios}", flush=True)
    ratios = {
        m: [row[m]["ratio"] for name, row in report.items() if "d=" in name] for m in ("vrtd", "td", "closed_form")
    }
    report["ratios"] = {m: {"median": float(np.median(r)), "worst": float(max(r))} for m, r in ratios.items()}
    report["machine"] = {"cores": os.cpu_count(), "python": sys.version.split()[0], "vrtd": vrtd.__version__}
    print(json.dumps(report if options.json else {key: report[key] for key in ("ratios", "machine")}))


if __name__ == "__main__":
    main()
