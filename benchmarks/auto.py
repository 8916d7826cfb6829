"""Measure the accuracy and the cost of the automatic methods, compared with least squares (LSTD).

    python benchmarks/auto.py [--quick] [--tables errors,anytime,large,coverage,grid] [--json]

- errors: E|theta - theta_star|^2 of `Evaluator(cost="linear")` (VRTD with growing batches), of
  `Evaluator("richardson_td")` (extrapolated TD) and of plain averaged TD, divided by that of LSTD on the same rows.
  There are twenty random problems that were not used for tuning and five named ones, each with 200 trajectories of
  20,000 and of 200,000 rows, learned in one pass in chunks of 1,000 rows.
- anytime: the same ratios after 5,000, 9,000, 14,000 and 20,000 rows of one stream of unknown length.
- large: seconds for a fit and 100 intervals with 30,000 rows and 1,000, 3,000 and 10,000 dense features, divided by
  the seconds of one pass in NumPy over the same rows, X.T @ (r + gamma X' theta - X theta), on one thread.
- coverage: coverage of 95 % intervals of phi(s).theta_star over 300 logs, the lowest over states, compared with plain
  averaged TD with batch means. Logs with a warning are counted separately.
- grid: the error of "auto" for VRTD with a constant batch size and for TD, compared with the best cell of a grid of
  steps and batch sizes (20 problems, 20,000 rows). This table takes most of the time and is only made on request.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy

import numba
import numpy as np
from intervals import Case, Problem, autoregression, chain, sticky, trajectory
from scipy.stats import binom, t

import vrtd
from vrtd.errors import DivergenceError, SingularSystemError
from vrtd.estimator.learner import first_learner, learn
from vrtd.estimator.rows import NotFiniteError
from vrtd.logs import Chunk
from vrtd.theory import instance_optimal, stability_limit

STEPS, DECADES, SEED, CHUNK = 12, 3.0, 900, 1000
LINEAR: dict[str, dict[str, Any]] = {
    "growing VRTD": {"cost": "linear"},
    "extrapolated TD": {"algorithm": "richardson_td", "cost": "linear"},
}
AVERAGED = "averaged TD"  # with a constant step; the first tenth is discarded


def random_features(mrp: Any, d: int, seed: int) -> Any:
    """Return normal features and a constant one, scaled to |phi| <= 1."""
    phi = np.random.default_rng(seed).standard_normal((mrp.n_states, d))
    phi[:, 0] = 1.0
    return phi / np.linalg.norm(phi, axis=1).max()


def problems(n_rows: int) -> dict[str, Problem]:
    library, chains = vrtd.problems, {}
    for i, d in enumerate((3, 6, 10, 16, 24)):
        chains[f"random_mdp d={d}"] = library.random_mdp(seed=SEED + i, n_states=60, n_features=d, normalize=True)
        chains[f"lazy d={d}"] = library.random_mdp(seed=SEED + 10 + i, n_states=60, n_features=d, laziness=0.7)
        chains[f"garnet d={d}"] = library.garnet(seed=SEED + 20 + i, n_states=80, branching=3, n_features=d)
        mrp = library.garnet(seed=SEED + 30 + i, n_states=100, branching=4, gamma=0.97).mrp
        chains[f"garnet, normal features d={d}"] = vrtd.LinearProblem(mrp, random_features(mrp, d, SEED + i))
    chains["boyan_chain"] = library.boyan_chain()
    chains["random_walk 9"] = library.random_walk(n_states=9)
    chains["random_walk 19"] = library.random_walk(n_states=19)
    chains["frozen_lake"] = library.frozen_lake(seed=SEED)
    chains["frozen_lake, tabular"] = vrtd.LinearProblem(library.frozen_lake(seed=SEED + 1).mrp, np.eye(16))
    discount = {name: float(each.mrp.edges.discount.max()) for name, each in chains.items()}
    return {
        name: Problem(each.mrp, vrtd.features.Table(each.phi), each.phi, discount[name], n_rows)
        for name, each in chains.items()
    }


# One pass with O(d) work per row


def rows_of(problem: Problem, chunk: Chunk) -> vrtd.Transitions:
    phi, phi_next = problem.phi[chunk.observations], problem.phi[chunk.next_observations]
    discount = np.where(chunk.terminated, 0.0, problem.discount)
    return vrtd.Transitions(phi, chunk.reward, phi_next, discount, ends=chunk.terminated)


def stream(problem: Problem, chunk: Chunk, settings: dict[str, Any], counts: list[int]) -> Iterator[Any]:
    """Yield theta after each count of rows; the rows come in chunks."""
    evaluator = vrtd.Evaluator(features=problem.features, discount=problem.discount, **settings)
    done = 0
    for n in counts:
        while done < n:
            last = min(done + CHUNK, n)
            evaluator.partial_fit(chunk.part(done, last))
            done = last
        yield evaluator.theta_


@numba.njit(cache=True)
def average(phi: Any, reward: Any, phi_next: Any, discount: Any, step: float, first: int, means: Any) -> None:
    """Run plain TD with a constant step and compute the mean iterate of each block of rows after row `first`."""
    theta = np.zeros(phi.shape[1])
    size = (reward.size - first) // len(means)
    for i in range(first + size * len(means)):
        delta = reward[i]
        for j in range(theta.size):
            delta += (discount[i] * phi_next[i, j] - phi[i, j]) * theta[j]
        for j in range(theta.size):
            theta[j] += step * delta * phi[i, j]
        if i >= first:
            means[(i - first) // size] += theta / size


def averaged_blocks(rows: vrtd.Transitions, n_blocks: int) -> Any:
    means = np.zeros((n_blocks, rows.n_features))
    step = 0.25 / float(np.square(rows.phi).sum(axis=1).max())
    average(rows.phi, rows.reward, rows.phi_next, rows.discount, step, len(rows) // 10, means)
    return means


def closed_form(rows: vrtd.Transitions) -> Any:
    A, b = rows.phi.T @ rows.psi, rows.phi.T @ rows.reward
    return np.linalg.lstsq(-A, b, rcond=None)[0]


def measure_errors(problem: Problem, counts: list[int], n_replications: int) -> dict[str, Any]:
    """Return mean squared errors after each count of rows, divided by those of LSTD."""
    star = vrtd.LinearProblem(problem.mrp, problem.phi).theta_star
    squares = {name: np.zeros(len(counts)) for name in (*LINEAR, AVERAGED, "LSTD")}
    for r in range(n_replications):
        chunk = trajectory(problem._replace(n_rows=counts[-1]), SEED + r)
        rows = rows_of(problem, chunk)
        for name, settings in LINEAR.items():
            for i, theta in enumerate(stream(problem, chunk, settings | {"seed": r}, counts)):
                squares[name][i] += np.square(theta - star).sum()
        for i, n in enumerate(counts):
            some = rows.part(0, n)
            squares["LSTD"][i] += np.square(closed_form(some) - star).sum()
            squares[AVERAGED][i] += np.square(averaged_blocks(some, 1)[0] - star).sum()
    least = squares.pop("LSTD")
    return {name: (total / least).tolist() for name, total in squares.items()}


def table_of_errors(counts: list[int], separately: bool, n_problems: int | None, n_replications: int) -> dict[str, Any]:
    """Return ratios to LSTD.

    With `separately` each count of rows is a separate run; otherwise all counts are points of one stream.
    """
    results: dict[str, Any] = {}
    for name, problem in list(problems(counts[-1]).items())[:n_problems]:
        runs = [[n] for n in counts] if separately else [counts]
        parts = [measure_errors(problem, run, n_replications) for run in runs]
        results[name] = {method: [ratio for part in parts for ratio in part[method]] for method in parts[0]}
        show(f"{name:32} " + "; ".join(f"{method} {numbers(ratios)}" for method, ratios in results[name].items()))
    methods = next(iter(results.values()))
    summary = {}
    for method in methods:
        ratios = np.array([each[method] for each in results.values()])
        random = np.array([each[method] for name, each in results.items() if "d=" in name])
        summary[method] = {
            "median": np.median(ratios, axis=0).tolist(),
            "worst": ratios.max(axis=0).tolist(),
            "random problems, median": np.median(random, axis=0).tolist(),
            "random problems, worst": random.max(axis=0).tolist(),
        }
        show(f"{method} after {counts} rows: " + "; ".join(f"{k} {numbers(v)}" for k, v in summary[method].items()))
    return {"rows": counts, "problems": results, "summary": summary}


# Many features


def fourier_log(d: int, n_rows: int) -> Chunk:
    """Return a log of an AR(1) process in three dimensions, with a constant and d - 1 random Fourier features."""
    rng = np.random.default_rng(SEED)
    noise = rng.standard_normal((n_rows + 1, 3))
    x = np.empty_like(noise)
    x[0] = noise[0]
    for i in range(n_rows):
        x[i + 1] = 0.8 * x[i] + 0.6 * noise[i + 1]
    phi = np.empty((n_rows + 1, d))
    phi[:, 0] = 1.0
    phi[:, 1:] = np.cos(x @ rng.standard_normal((3, d - 1)) + rng.uniform(0.0, 2.0 * np.pi, d - 1))
    no = np.zeros(n_rows, bool)
    return Chunk(phi[:-1], x[:-1].sum(axis=1), phi[1:], no, no)


def best_time(call: Callable[[], Any], n: int = 3) -> float:
    times = []
    for _ in range(n):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def measure_large(d: int, n_rows: int) -> dict[str, float]:
    chunk = fourier_log(d, n_rows)
    X, Y, r, theta = chunk.observations, chunk.next_observations, chunk.reward, np.ones(d)
    one_pass = best_time(lambda: X.T @ (r + 0.95 * (Y @ theta) - X @ theta))
    states, result = X[:: max(1, n_rows // 100)][:100], {"seconds of a pass": one_pass}
    for name, settings in LINEAR.items():

        def evaluate(settings: dict[str, Any] = settings) -> None:
            evaluator = vrtd.Evaluator(features="identity", discount=0.95, **settings).fit(chunk)
            evaluator.predict(states, return_interval=0.95)

        evaluate()  # compiles the loops and loads the rows into memory
        result[name] = best_time(evaluate, 2) / one_pass
    return result


# Coverage


def many_features(d: int, seed: int) -> Case:
    mrp = vrtd.problems.garnet(seed=seed, n_states=2 * d, branching=5, gamma=0.95).mrp
    phi = np.random.default_rng(seed).standard_normal((2 * d, d)) / np.sqrt(d)
    phi[:, 0] = 1.0
    return chain(vrtd.LinearProblem(mrp, phi), 0.95, lambda rng, n: 0.5 * rng.standard_normal(n), n_rows=20_000)


def cases() -> dict[str, Case]:
    return {
        "random chain, d = 6": chain(vrtd.problems.random_mdp(seed=61, n_features=6), 0.95),
        "sticky 0.98, d = 5": sticky(0.98, 20, 5, 62),
        "Boyan's chain, episodic": chain(vrtd.problems.boyan_chain(), 1.0),
        "random walk of 19 states, episodic": chain(vrtd.problems.random_walk(n_states=19), 1.0),
        "AR(1) 0.97, cubic reward": autoregression(0.97, 0.9),
        "Garnet, d = 500, 20,000 rows": many_features(500, 63),
    }


def predict_averaged(case: Case, chunk: Chunk) -> tuple[Any, Any, bool]:
    """Return values and half-widths of averaged TD with batch means."""
    table = case.features if case.features is not None else None
    phi, phi_next, states = (
        (x if table is None else table(x)) for x in (chunk.observations, chunk.next_observations, case.observations)
    )
    discount = np.where(chunk.terminated, 0.0, case.discount)
    means = averaged_blocks(vrtd.Transitions(phi, chunk.reward, phi_next, discount), 30)
    values = means @ np.asarray(states, float).T
    half = t.ppf(0.975, 29) * values.std(axis=0, ddof=1) / np.sqrt(30)
    return values.mean(axis=0), half, False


def predict_linearly(case: Case, chunk: Chunk, settings: dict[str, Any]) -> tuple[Any, Any, bool]:
    evaluator = vrtd.Evaluator(features=case.features, discount=case.discount, **settings)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for first in range(0, len(chunk.reward), CHUNK):
            evaluator.partial_fit(chunk.part(first, first + CHUNK))
        answer = evaluator.predict(case.observations, return_interval=0.95)
    is_warned = any(issubclass(each.category, vrtd.errors.ConvergenceWarning) for each in caught)
    return answer.value, (answer.high - answer.low) / 2.0, is_warned


def measure_coverage(case: Case, n_rows: int, n_replications: int) -> dict[str, Any]:
    report: dict[str, Any] = {}
    methods = {name: lambda chunk, s=settings: predict_linearly(case, chunk, s) for name, settings in LINEAR.items()}
    methods[AVERAGED] = lambda chunk: predict_averaged(case, chunk)
    for name, predict in methods.items():
        answers = [predict(case.draw(n_rows, SEED + r)) for r in range(n_replications)]
        values, half = np.array([each[0] for each in answers]), np.array([each[1] for each in answers])
        good = ~np.array([each[2] for each in answers])
        held = np.abs(values - case.truth) <= half
        report[name] = {"warned": int((~good).sum()), "mean, all logs": float(held.mean())}
        if good.any():
            counts = held[good].sum(axis=0)
            report[name] |= {
                "mean": float(held[good].mean()),
                "lowest": float(counts.min() / good.sum()),
                "least probability": float(binom.cdf(counts.min(), good.sum(), 0.95)),
            }
    return report


# Constant batch sizes, and the best cell of a grid


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


def compare_with_grid(problem: Problem, n_replications: int) -> dict[str, Any]:
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
        rows = rows_of(problem, chunk)
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


def table_of_grid(n_rows: int, n_problems: int | None, n_replications: int) -> dict[str, Any]:
    report: dict[str, Any] = {}
    for name, problem in list(problems(n_rows).items())[:n_problems]:
        report[name] = row = compare_with_grid(problem, n_replications)
        ratios = ", ".join(f"{method} {row[method]['ratio']:.2f}" for method in ("vrtd", "td", "closed_form"))
        show(f"{name:32} best cell {row['best_cell']}; ratios to it: {ratios}")
    return report


def numbers(values: list[float]) -> str:
    return " ".join(f"{value:.3g}" for value in values)


def show(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


TABLES = ("errors", "anytime", "large", "coverage", "grid")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object with everything")
    parser.add_argument("--quick", action="store_true", help="two problems with few short trajectories")
    parser.add_argument("--tables", default="errors,anytime,large,coverage", help="tables to make, separated by commas")
    parser.add_argument("--replications", type=int, default=200, help="trajectories per problem (default 200)")
    options = parser.parse_args()
    tables = options.tables.split(",")
    if not set(tables) <= set(TABLES):
        parser.error(f"tables must be of {', '.join(TABLES)}")
    warnings.simplefilter("ignore")  # short logs give unreliable values, and some cells of the grid are unstable
    quick, n_problems = options.quick, 2 if options.quick else None
    n_replications = 3 if quick else options.replications
    report: dict[str, Any] = {}
    if "errors" in tables:
        report["errors"] = table_of_errors([2000] if quick else [20_000, 200_000], True, n_problems, n_replications)
    if "anytime" in tables:
        counts = [1500, 2500] if quick else [5000, 9000, 14_000, 20_000]
        report["anytime"] = table_of_errors(counts, False, n_problems, n_replications)
    if "large" in tables:
        report["large"] = {}
        for d in (300,) if quick else (1000, 3000, 10_000):
            report["large"][d] = measure_large(d, 3000 if quick else 30_000)
            show(f"d = {d}: " + "; ".join(f"{name} {value:.3g}" for name, value in report["large"][d].items()))
    if "coverage" in tables:
        report["coverage"] = {}
        for name, case in list(cases().items())[:n_problems]:
            n = 3000 if quick else case.n_rows
            report["coverage"][name] = found = measure_coverage(case, n, n_replications if quick else 300)
            show(f"{name}: {json.dumps(found)}")
    if "grid" in tables:
        report["grid"] = table_of_grid(2000 if quick else 20_000, n_problems, n_replications)
    report["machine"] = {"cores": os.cpu_count(), "python": sys.version.split()[0], "vrtd": vrtd.__version__}
    print(json.dumps(report if options.json else {"machine": report["machine"]}))


if __name__ == "__main__":
    main()
