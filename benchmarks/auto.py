"""How good "auto" is: its error beside that of the best cell of a grid, on problems that were not used to tune it.

    python benchmarks/auto.py [--json] [--quick] [--tuning] [--problems N]

Each replication draws a pilot stretch, asks for the settings, and learns with them. The grid has 12 steps up to the
limit of stability and batches of TD and of powers of 2 up to the budget; every cell is run a few times, the best of
them as often as "auto". The error is E|theta - theta_star|^2; that of LSTD stands beside it. `--tuning` takes the
problems on which the constants were looked at instead.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy

import numpy as np

import vrtd
from vrtd.theory import TransitionSample, instance_optimal, stability_limit
from vrtd.theory.rows import Rows
from vrtd.theory.settings import settings_for

BUDGETS = {2000: 1000, 20_000: 5000, 200_000: 5000}  # and the rows of the pilot
STEPS, DECADES = 12, 3.0
LOOK, BEST = 20, 6  # runs of every cell, and cells that are run again


def random_features(mrp: Any, d: int, seed: int) -> Any:
    """Normal features and a constant one, scaled to |phi| <= 1."""
    phi = np.random.default_rng(seed).standard_normal((mrp.n_states, d))
    phi[:, 0] = 1.0
    return phi / np.linalg.norm(phi, axis=1).max()


def problems(tuning: bool) -> dict[str, tuple[Any, Any]]:
    """Two sets of 20 with different seeds and sizes."""
    library, seed = vrtd.problems, 100 if tuning else 500
    found: dict[str, tuple[Any, Any]] = {}
    for i, d in enumerate((2, 5, 16, 40) if tuning else (3, 7, 14, 25)):
        found[f"random_mdp d={d}"] = library.random_mdp(seed=seed + i, n_states=60, n_features=d, normalize=True)
        found[f"lazy d={d}"] = library.random_mdp(seed=seed + 10 + i, n_states=60, n_features=d, laziness=0.7)
        found[f"garnet d={d}"] = library.garnet(seed=seed + 20 + i, n_states=80, branching=3, n_features=d)
        mrp, _ = library.garnet(seed=seed + 30 + i, n_states=100, branching=4, gamma=0.9 if tuning else 0.98)
        found[f"garnet, normal features d={d}"] = mrp, random_features(mrp, d, seed + i)
    mrp, phi = library.boyan_chain()
    found["boyan_chain"] = (mrp, phi) if tuning else (mrp, np.eye(13))
    found["random_walk"] = library.random_walk(n_states=11 if tuning else 9)
    found["frozen_lake"] = library.frozen_lake(seed=seed)
    mrp, _ = library.frozen_lake(seed=seed + 1)
    found["frozen_lake, tabular"] = mrp, np.eye(16)
    return found


def draw(mrp: Any, phi: Any, n: int, seed: int) -> Rows:
    """A stretch of the chain, whatever the rank of the features on it."""
    index = np.arange(1.0, mrp.n_states + 1.0)[:, None]
    states = TransitionSample.draw(mrp, index, n, seed=seed)
    now, then = (rows[:, 0].astype(int) - 1 for rows in (states.phi, states.phi_next))
    return Rows(phi[now], states.reward, phi[then], states.discount)


def errors(mrp: Any, phi: Any, algorithm: Any, budget: int, n_runs: int, seed: int) -> Any:
    """Of each run; what diverged is inf."""
    epoch = algorithm.epoch("markov")
    per_epoch = int(epoch.samples_at(np.array(epoch.n_gradients)))
    n_gradients = budget // per_epoch * epoch.n_gradients
    result = vrtd.simulate(
        mrp, phi, algorithm, n_runs=n_runs, n_gradients=n_gradients, checkpoints=1, seed=seed
    )  # fmt: skip
    values = result.values("squared_error")[:, -1]
    return np.where(np.isfinite(values), values, np.inf)


def method(step: float, M: int) -> Any:
    return vrtd.TD(step) if M == 1 else vrtd.VRTD(step, M, None, "average")


def grid(mrp: Any, phi: Any, budget: int, n_runs: int) -> dict[str, Any]:
    """The best cell of VRTD and that of TD."""
    limit = stability_limit(vrtd.LinearSystem(mrp, phi))
    steps = limit * np.geomspace(10.0**-DECADES, 1.0, STEPS)
    sizes = [2**k for k in range(budget.bit_length()) if 2**k <= budget]
    report = {}
    for name, some in (("td", sizes[:1]), ("vrtd", sizes[1:])):
        cells = [(a, M) for a in steps.tolist() for M in some]
        look = {cell: float(errors(mrp, phi, method(*cell), budget, LOOK, 1).mean()) for cell in cells}
        best = sorted(cells, key=look.__getitem__)[:BEST]
        values = {cell: errors(mrp, phi, method(*cell), budget, n_runs, 2) for cell in best}
        cell = min(values, key=lambda cell: values[cell].mean())
        report[name] = {"step": cell[0], "batch": cell[1], "error": float(values[cell].mean())}
    return report


def auto(mrp: Any, phi: Any, budget: int, algorithm: Any, pilots: int, n_runs: int) -> dict[str, Any]:
    """Over pilots, and runs for each."""
    values, predicted, chosen, seconds = [], [], [], 0.0
    for i in range(pilots):
        sample = draw(mrp, phi, BUDGETS[budget], 1000 + i)
        clock = time.perf_counter()
        found = settings_for(sample, budget, None, algorithm=algorithm)
        seconds += time.perf_counter() - clock
        values.append(errors(mrp, phi, method(found.step_size, found.batch_size), budget, n_runs, 100 + i))
        predicted.append(found.error)
        chosen.append((found.step_size, found.batch_size))
    run = np.concatenate(values)
    by_pilot = np.array([v.mean() for v in values])
    return {
        "error": float(run.mean()),
        "standard_error": float(by_pilot.std(ddof=1) / np.sqrt(pilots)),
        "worst_pilot": float(by_pilot.max()),
        "predicted": float(np.median(predicted)),
        "step": float(np.median([step for step, _ in chosen])),
        "batch": float(np.median([M for _, M in chosen])),
        "method": found.method,
        "seconds": seconds / pilots,
    }


def lstd(mrp: Any, phi: Any, n: int, n_runs: int) -> float:
    """Mean squared error of the closed form on n transitions; the shortest solution where they do not determine it."""
    star, values = vrtd.LinearSystem(mrp, phi).theta_star, []
    for i in range(n_runs):
        sample = draw(mrp, phi, n, 5000 + i)
        psi = np.asarray(sample.discount)[:, None] * sample.phi_next - sample.phi
        theta = np.linalg.lstsq(sample.phi.T @ psi, -sample.phi.T @ sample.reward, rcond=None)[0]
        values.append(float(((theta - star) ** 2).sum()))
    return float(np.mean(values))


def study(name: str, mrp: Any, phi: Any, budget: int, quick: bool) -> dict[str, Any]:
    pilots, per_pilot = (5, 10) if quick else (20, 10)
    best = grid(mrp, phi, budget, pilots * per_pilot)
    row: dict[str, Any] = {"problem": name, "budget": budget, "grid": best}
    overall = min(cell["error"] for cell in best.values())
    for algorithm in ("vrtd", "td"):
        row[algorithm] = auto(mrp, phi, budget, algorithm, pilots, per_pilot)
        row[algorithm]["ratio"] = row[algorithm]["error"] / best[algorithm]["error"]
        row[algorithm]["ratio_to_overall"] = row[algorithm]["error"] / overall
    row["lstd"] = lstd(mrp, phi, budget, 5 if quick else 20) if budget <= 20_000 else None
    row["optimal"] = instance_optimal(vrtd.LinearSystem(mrp, phi)) / budget
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="a few problems and the smallest budget, for a look")
    parser.add_argument("--tuning", action="store_true", help="the problems the constants were looked at with")
    parser.add_argument("--problems", type=int, default=None, help="only so many of the problems")
    parser.add_argument("--budgets", type=int, nargs="*", choices=list(BUDGETS), default=None)
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # cells of the grid are unstable on purpose

    chosen = list(problems(options.tuning).items())[: 3 if options.quick else options.problems]
    budgets = [2000] if options.quick else options.budgets or list(BUDGETS)
    rows = []
    for budget in budgets:
        for name, (mrp, phi) in chosen:
            row = study(name, mrp, phi, budget, options.quick)
            rows.append(row)
            if not options.json:
                print(line(row), flush=True)
    report: dict[str, Any] = {"rows": rows}
    for algorithm in ("vrtd", "td"):
        for budget in budgets:
            ratios = [row[algorithm]["ratio"] for row in rows if row["budget"] == budget]
            report[f"{algorithm}, {budget}"] = {"median": float(np.median(ratios)), "worst": float(max(ratios))}
    report["machine"] = {"cores": os.cpu_count(), "python": sys.version.split()[0], "vrtd": vrtd.__version__}
    if options.json:
        print(json.dumps(report))
    else:
        print(json.dumps({key: value for key, value in report.items() if key != "rows"}, indent=2))


def line(row: dict[str, Any]) -> str:
    parts = [f"{row['problem']:32} {row['budget']:7}"]
    for algorithm in ("vrtd", "td"):
        found, best = row[algorithm], row["grid"][algorithm]
        parts.append(
            f"{algorithm}: {found['error']:.3g} at ({found['step']:.2g}, {found['batch']:.0f}),"
            f" grid {best['error']:.3g} at ({best['step']:.2g}, {best['batch']}): ratio {found['ratio']:.2f},"
            f" predicted {found['predicted']:.3g}, {found['seconds']:.2f} s"
        )
    known = row["optimal"] if row["lstd"] is None else row["lstd"]
    return "; ".join(parts) + f"; LSTD {known:.3g}"


if __name__ == "__main__":
    main()
