"""Measure the error of several methods after numbers of rows and after seconds, for 4 to 10^6 features.

    OPENBLAS_NUM_THREADS=1 python benchmarks/many_features.py [--quick] [--features D ...] [--seeds N] [--csv FILE]
        [--updates]

A row has up to 32 categories, each with its own feature, as a log of customers or tile coding has: most are rare. The
categories change at random, and the rewards are such that theta_star is known for every number of features. SwiftTD is
measured if it is installed (pip install swifttd). Its rows are lists that exist before the measurement begins. Loops
are compiled before, and the time of the closed form includes its intervals. Times and errors are medians over the
seeds of the log; of 10^6 features there is one log.

`--updates` compares the time of one update of VRTD, TD and SwiftTD (C++, without traces) on the same rows instead.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

import vrtd
from vrtd.errors import SingularSystemError
from vrtd.tables import write_csv

try:
    import swifttd  # type: ignore[import-not-found, import-untyped, unused-ignore]
except ImportError:
    swifttd = None

DISCOUNT, STAY, LEVEL, NOISE = 0.9, 0.7, 2.0, 0.5
FEATURES = (4, 64, 1_000, 10_000, 100_000, 1_000_000)
ROWS = (1_000, 10_000, 100_000, 1_000_000)
MOST_DENSE = 1_000  # features up to which a d x d matrix is practical
STEPS = (0.03, 0.1, 0.3, 1.0)  # of the TD loop, divided by the number of nonzeros; the best one counts
MOST_TUNED = 100_000  # rows on which all these steps are tried
MOST_SECONDS = 300.0  # that a method may take for the next number of rows
N_STATES = 5_000  # whose values are compared
Predict = Callable[[np.ndarray], np.ndarray]


class Rows(NamedTuple):
    """Rows of one trajectory, with the exact values of some states."""

    d: int
    active: np.ndarray  # (n + 1, k) features that are 1
    reward: np.ndarray  # (n,)
    states: np.ndarray  # (N_STATES, k)
    values: np.ndarray  # (N_STATES,)

    def first(self, n: int) -> Rows:
        """Return the first n rows."""
        return self._replace(active=self.active[: n + 1], reward=self.reward[:n])


def make_rows(d: int, n: int, seed: int = 0) -> Rows:
    """Return rows whose rewards are phi.theta_star - discount phi_next.theta_star plus noise."""
    rng = np.random.default_rng(seed)
    k = min(32, max(2, d // 8))
    per_slot = d // k

    def draw(m: int) -> np.ndarray:
        return (rng.random((m, k)) ** 3 * per_slot).astype(np.int32) + per_slot * np.arange(k, dtype=np.int32)

    changes = rng.random((n + 1, k)) >= STAY
    changes[0] = True
    last = np.maximum.accumulate(np.where(changes, np.arange(n + 1)[:, None], 0), axis=0)
    active = np.take_along_axis(draw(n + 1), last, axis=0)
    theta_star = LEVEL / k + rng.normal(size=d) / np.sqrt(k)
    value = theta_star[active].sum(axis=1)
    states = draw(N_STATES)
    reward = value[:-1] - DISCOUNT * value[1:] + NOISE * rng.normal(size=n)
    return Rows(d, active, reward, states, theta_star[states].sum(axis=1))


def tables(rows: Rows, active: np.ndarray) -> Any:
    """Return rows of features, which are sparse if there are many."""
    n, k = active.shape
    table = csr_array((np.ones(active.size), active.ravel(), np.arange(0, active.size + 1, k)), shape=(n, rows.d))
    return table.toarray() if rows.d <= 64 else table


def by_theta(theta: np.ndarray) -> Predict:
    """Return a function that values states with these parameters."""
    return lambda active: theta[active].sum(axis=1)


def numpy_lstd(rows: Rows) -> tuple[Predict, float]:
    """Add up A and b in pieces of dense rows, and solve."""
    start = time.perf_counter()
    d, A, b = rows.d, np.zeros((rows.d, rows.d)), np.zeros(rows.d)
    for first in range(0, len(rows.reward), 1000):
        some = rows.active[first : first + 1001]
        phi = np.zeros((len(some), d))
        phi[np.arange(len(some))[:, None], some] = 1.0
        A += phi[:-1].T @ (phi[:-1] - DISCOUNT * phi[1:])
        b += phi[:-1].T @ rows.reward[first : first + 1000]
    theta = np.linalg.lstsq(A, b, rcond=1e-9)[0]
    return by_theta(theta), time.perf_counter() - start


def numpy_td(rows: Rows, step: float) -> tuple[Predict, float]:
    """Run TD row by row in NumPy."""
    start = time.perf_counter()
    theta, active, reward = np.zeros(rows.d), rows.active, rows.reward.tolist()
    step /= active.shape[1]
    for t, r in enumerate(reward):
        now = active[t]
        theta[now] += step * (r + DISCOUNT * theta[active[t + 1]].sum() - theta[now].sum())
    return by_theta(theta), time.perf_counter() - start


def new_swift_td(d: int, trace_decay: float = 0.95) -> Any:
    """Return SwiftTD with the settings of its documentation."""
    return swifttd.SwiftTDBinaryFeatures(
        num_of_features=d, lambda_=trace_decay, alpha=1e-2, gamma=DISCOUNT, epsilon=1e-5, eta=0.1, decay=0.999,
        meta_step_size=1e-3, eta_min=1e-10,
    )  # fmt: skip


def swift_td(rows: Rows) -> tuple[Predict, float]:
    """Run SwiftTD row by row."""
    learner, active = new_swift_td(rows.d), rows.active.tolist()
    start = time.perf_counter()
    learner.step(active[0], 0.0)
    for now, r in zip(active[1:], rows.reward.tolist(), strict=True):
        learner.step(now, r)
    seconds = time.perf_counter() - start
    return lambda some: np.array([learner.predict(each) for each in some.tolist()]), seconds


def ours(algorithm: str, **options: Any) -> Callable[[Rows], tuple[Predict, float]]:
    """Return a function that fits an evaluator."""

    def fit(rows: Rows) -> tuple[Predict, float]:
        phi = tables(rows, rows.active)
        start = time.perf_counter()
        log = vrtd.logs.from_arrays(phi[:-1], rows.reward, phi[1:])
        theta = vrtd.Evaluator(algorithm, features="identity", discount=DISCOUNT, **options).fit(log).theta_
        return by_theta(theta), time.perf_counter() - start

    return fit


def methods(d: int) -> dict[str, Callable[[Rows], tuple[Predict, float]]]:
    """Return the methods that are practical for so many features, but for the TD loop."""
    found: dict[str, Callable[[Rows], tuple[Predict, float]]] = {}
    if d <= MOST_DENSE:
        found["NumPy LSTD"] = numpy_lstd
    if swifttd is not None:
        found["SwiftTD"] = swift_td
    found["vrtd closed form"] = ours("closed_form")
    found["vrtd VRTD"] = ours("vrtd", cost="linear")
    if d <= 64:
        found["vrtd extrapolated TD"] = ours("richardson_td")
    return found


def measure(d: int, sizes: tuple[int, ...], seed: int) -> list[dict[str, Any]]:
    """Return a record for each method and number of rows."""
    rows, records = make_rows(d, max(sizes), seed), []
    tuned = STEPS

    def add(name: str, n: int, predict: Predict, seconds: float) -> float:
        error = float(np.sqrt(np.square(predict(rows.states) - rows.values).mean() / np.square(rows.values).mean()))
        records.append({"features": d, "method": name, "rows": n, "seconds": seconds, "error": error})
        print(f"{d:>9,}  {name:20}  {n:>9,} rows  {seconds:8.2f} s  error {error:.3f}", flush=True)
        return error

    for n in sizes:
        tries = [numpy_td(rows.first(n), step) for step in tuned]
        errors = [float(np.square(predict(rows.states) - rows.values).mean()) for predict, _ in tries]
        best = int(np.argmin(errors))
        add("NumPy TD loop", n, *tries[best])
        if 10 * n > MOST_TUNED:  # a longer loop takes the step that was best
            tuned = (tuned[best],)
    for name, fit in methods(d).items():
        seconds = 0.0
        for n in sizes:
            if 10.0 * seconds < MOST_SECONDS:
                with suppress(SingularSystemError):  # so few rows may not determine the closed form
                    predict, seconds = fit(rows.first(n))
                    add(name, n, predict, seconds)
    return records


def find_medians(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a record for each number of features, method and number of rows, with medians over the seeds."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for record in records:
        groups.setdefault((record["features"], record["method"], record["rows"]), []).append(record)
    medians = []
    for (d, name, n), group in groups.items():
        seconds, errors = ([record[key] for record in group] for key in ("seconds", "error"))
        medians.append(
            {"features": d, "method": name, "rows": n, "seconds": float(np.median(seconds)),
             "error": float(np.median(errors)), "logs": len(group)}
        )  # fmt: skip
    return medians


def compare_updates(d: int, n: int, repeats: int) -> None:
    """Print the time per row of VRTD, TD and SwiftTD on the same rows, interleaved."""
    rows = make_rows(d, n)
    phi, active, reward = tables(rows, rows.active), rows.active.tolist(), rows.reward.tolist()
    log = vrtd.logs.from_arrays(phi[:-1], rows.reward, phi[1:])
    step = 0.1 / rows.active.shape[1]
    algorithms: dict[str, Any] = {
        "TD": vrtd.TD(step),
        "VRTD, one step per row of a batch": vrtd.VRTD(step, min(10_000, n // 4)),
        "VRTD with growing batches": vrtd.VRTD(step, 1000, growth=2),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ("SwiftTD", "SwiftTD's prediction", *algorithms)}
    for _ in range(repeats):
        if swifttd is not None:
            learner = new_swift_td(d, 0.0)
            start = time.perf_counter()
            for now, r in zip(active, reward, strict=False):
                learner.step(now, r)
            middle = time.perf_counter()
            for now in active[:-1]:
                learner.predict(now)
            seconds["SwiftTD"].append(middle - start)
            seconds["SwiftTD's prediction"].append(time.perf_counter() - middle)
        for name, algorithm in algorithms.items():
            evaluator = vrtd.Evaluator(algorithm, features="identity", discount=DISCOUNT)
            start = time.perf_counter()
            evaluator.partial_fit(log)
            seconds[name].append(time.perf_counter() - start)
    best = {name: 1e6 * min(each) / n for name, each in seconds.items() if each}
    for name, each in best.items():
        ratio = f"  {each / best['SwiftTD']:5.2f} times SwiftTD" if "SwiftTD" in best else ""
        print(f"{d:>9,} features  {name:34}  {each:7.2f} us per row{ratio}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few rows, to see that it runs")
    parser.add_argument("--features", type=int, nargs="+", default=FEATURES)
    parser.add_argument("--seeds", type=int, default=3, help="number of logs of each size")
    parser.add_argument("--csv", type=Path, help="file to which the table is written")
    parser.add_argument("--updates", action="store_true")
    options = parser.parse_args()
    if swifttd is None:
        print("SwiftTD is not measured, because it is not installed: pip install swifttd")
    warnings.simplefilter("ignore")
    if options.updates or options.quick:
        d, n, repeats = (2_000, 4_000, 1) if options.quick else (1_000_000, 200_000, 5)
        compare_updates(d, n, repeats)
        if not options.quick:
            return
    features, sizes = ((4, 1_000), (2_000,)) if options.quick else (options.features, ROWS)
    n_seeds, records = 1 if options.quick else options.seeds, []
    for d in features:
        for fit in methods(d).values():
            fit(make_rows(d, 3_000))  # compiles
        for seed in range(n_seeds if d < 1_000_000 else 1):
            records += measure(d, sizes, seed)
    records = find_medians(records)
    if options.csv is not None:
        write_csv({name: np.array([record[name] for record in records]) for name in records[0]}, options.csv)


if __name__ == "__main__":
    main()
