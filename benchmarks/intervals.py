"""Measure the coverage of intervals of phi(s).theta_star over independent logs, for VRTD and the closed form.

    python benchmarks/intervals.py            300 logs of every problem (about 20 minutes on one core)
    python benchmarks/intervals.py --quick    3 shorter logs of each, to see that it runs

A log is *warned* when `fit` or `predict` issues a `ConvergenceWarning` or raises an error. Coverage is the share of
intervals that contain the true value, over states and logs without a warning. The width is the mean half-width at 95 %,
divided by 1.96 standard deviations of the method's error; 1 is the width needed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy

import numba
import numpy as np

import vrtd
from vrtd.errors import ConvergenceWarning, VrtdError
from vrtd.logs import Chunk

LEVELS = (0.95, 0.8)
METHODS = {"VRTD": "vrtd", "closed form": "closed_form"}


class Problem(NamedTuple):
    """Chain whose trajectories are logs; observations are states."""

    mrp: vrtd.MarkovRewardProcess
    features: Any  # for the Evaluator
    phi: Any  # (S, d)
    discount: float
    n_rows: int


class Case(NamedTuple):
    """Source of logs and the true values that the intervals should contain."""

    draw: Callable[[int, int], Chunk]  # n_rows, seed
    features: Any
    discount: float
    observations: Any
    truth: Any
    n_rows: int = 10_000
    pilot_rows: int = 5000
    is_slow: bool = False  # the chain changes its regime only a few dozen times per log


@numba.njit(cache=True)
def walk(indptr: Any, cumulative: Any, successor: Any, state: int, uniforms: Any, edges: Any) -> None:
    """Draw one trajectory as a sequence of edges."""
    for k in range(uniforms.size):
        first, last = indptr[state], indptr[state + 1]
        edge = first + np.searchsorted(cumulative[first:last], uniforms[k], side="right")
        edges[k] = min(edge, last - 1)
        state = successor[edges[k]]


def path(mrp: vrtd.MarkovRewardProcess, n_rows: int, rng: Any) -> Any:
    """Return the edges of a stationary trajectory."""
    edges = mrp.edges
    ends = np.cumsum(edges.probability)
    cumulative = ends - np.repeat(ends[edges.indptr[:-1]] - edges.probability[edges.indptr[:-1]], np.diff(edges.indptr))
    taken = np.empty(n_rows, np.int64)
    start = int(rng.choice(mrp.n_states, p=mrp.stationary))
    walk(edges.indptr, cumulative, edges.successor, start, rng.random(n_rows), taken)
    return taken


def trajectory(problem: Problem, seed: int) -> Chunk:
    """Return the rows of one stationary trajectory."""
    edges, taken = problem.mrp.edges, path(problem.mrp, problem.n_rows, np.random.default_rng(seed))
    terminated = edges.discount[taken] == 0.0
    no = np.zeros(problem.n_rows, bool)
    return Chunk(edges.origin[taken], edges.reward[taken], edges.successor[taken], terminated, no)


def chain(
    problem: vrtd.LinearProblem,
    discount: float,
    noise: Callable[[Any, int], Any] | None = None,
    truncate: int | None = None,
    **settings: Any,
) -> Case:
    """Return logs of a finite chain, with noise on the rewards or truncated episodes of `truncate` steps."""
    mrp, phi, edges = problem.mrp, problem.phi, problem.mrp.edges

    def draw(n: int, seed: int) -> Chunk:
        rng = np.random.default_rng(seed)
        taken = path(mrp, n, rng)
        reward = edges.reward[taken] + (0.0 if noise is None else noise(rng, n))
        weight = None if np.all(edges.weight == 1.0) else edges.weight[taken]
        terminated, truncated = edges.discount[taken] == 0.0, np.zeros(n, bool)
        if truncate is not None:
            truncated[truncate - 1 :: truncate] = True
            truncated &= ~terminated
        return Chunk(edges.origin[taken], reward, edges.successor[taken], terminated, truncated, weight)

    values = phi @ problem.theta_star
    return Case(draw, vrtd.features.Table(phi), discount, np.arange(mrp.n_states), values, **settings)


@numba.njit(cache=True)
def autoregress(x: Any, noise: Any, decay: float) -> None:
    for k in range(1, x.size):
        x[k] = decay * x[k - 1] + noise[k]


def autoregression(decay: float, discount: float, **settings: Any) -> Case:
    """Return logs of x' = decay x + noise with variance 1, features 1, x, x^2 and reward x + x^3 / 4."""

    def phi(x: Any) -> Any:
        return np.stack([np.ones_like(x), x, x * x], axis=-1)

    def draw(n: int, seed: int) -> Chunk:
        rng = np.random.default_rng(seed)
        noise = rng.standard_normal(n + 1)
        noise[1:] *= np.sqrt(1.0 - decay**2)
        x = noise.copy()
        autoregress(x, noise, decay)
        no = np.zeros(n, bool)
        return Chunk(phi(x[:-1]), x[:-1] + x[:-1] ** 3 / 4.0, phi(x[1:]), no, no)

    # E[phi'|x] = D phi, and the moments of a normal variable.
    D = np.array([[1.0, 0, 0], [0, decay, 0], [1.0 - decay**2, 0, decay**2]])
    C = np.array([[1.0, 0, 1.0], [0, 1.0, 0], [1.0, 0, 3.0]])
    b = np.array([0.0, 1.0 + 3.0 / 4.0, 0.0])
    theta_star = np.linalg.solve(C @ (np.eye(3) - discount * D.T), b)
    points = phi(np.linspace(-2.0, 2.0, 9))
    return Case(draw, None, discount, points, points @ theta_star, **settings)


def sticky(stay: float, n_states: int, d: int | None, seed: int, discount: float = 0.9, **settings: Any) -> Case:
    """Return a random chain with self-transitions of probability `stay`; features are tabular unless d is given."""
    rng = np.random.default_rng(seed)
    P = rng.random((n_states, n_states))
    P = stay * np.eye(n_states) + (1.0 - stay) * P / P.sum(axis=1, keepdims=True)
    phi = np.eye(n_states) if d is None else np.c_[np.ones(n_states), rng.standard_normal((n_states, d - 1))]
    reward = rng.standard_normal(n_states)
    mrp = vrtd.MarkovRewardProcess(P, np.repeat(reward[:, None], n_states, axis=1), discount)
    return chain(vrtd.LinearProblem(mrp, phi), discount, lambda rng, n: 0.5 * rng.standard_normal(n), **settings)


def halves(switch: float, seed: int, scale: float | None = None, **settings: Any) -> Case:
    """Return a chain with two groups of five states and a small probability to change the group.

    Features are a constant and two normal ones. With a scale they are a constant, the group, and a normal feature that
    is multiplied by `scale` in the second group.
    """
    rng, n = np.random.default_rng(seed), 5
    P = np.zeros((2 * n, 2 * n))
    P[:n, :n], P[n:, n:] = rng.random((n, n)), rng.random((n, n))
    P *= (1.0 - switch) / P.sum(axis=1, keepdims=True)
    P[:n, n] += switch
    P[n:, 0] += switch
    half, normal = np.repeat([0.0, 1.0], n), rng.standard_normal((2 * n, 2))
    phi = np.c_[np.ones(2 * n), normal]
    if scale is not None:
        phi[:, 1:] = np.c_[half, normal[:, 0] * np.where(half, scale, 1.0)]
    reward = half + 0.1 * rng.standard_normal(2 * n)
    mrp = vrtd.MarkovRewardProcess(P, np.repeat(reward[:, None], 2 * n, axis=1), 0.9)
    n_rows = settings.get("n_rows", 10_000)
    return chain(vrtd.LinearProblem(mrp, phi), 0.9, is_slow=n_rows * switch < 150, **settings)


def nearly_periodic(seed: int) -> Case:
    rng, n = np.random.default_rng(seed), 6
    P = 0.98 * np.roll(np.eye(n), 1, axis=1) + 0.02 / n
    phi = np.c_[np.ones(n), rng.standard_normal((n, 2))]
    mrp = vrtd.MarkovRewardProcess(P, rng.random((n, n)), 0.9)
    return chain(vrtd.LinearProblem(mrp, phi), 0.9)


def rare_reward(seed: int) -> Case:
    problem = vrtd.problems.random_mdp(seed=seed, n_states=40, n_features=4, gamma=0.9)
    R = np.zeros((40, 40))
    R[:, 0] = np.random.default_rng(seed).random(40) * 10.0
    mrp = vrtd.MarkovRewardProcess(np.asarray(problem.mrp.P), R, 0.9)
    return chain(vrtd.LinearProblem(mrp, problem.phi), 0.9)


def newest(name: str) -> str:
    import gymnasium

    return max(key for key in gymnasium.registry if key.startswith(f"{name}-v"))


def cases() -> dict[str, Case]:
    """Return ordinary and slowly mixing problems; none was used to choose a constant of the estimator."""
    lake = vrtd.problems.restart_chain(newest("FrozenLake"), "random", 0.95)
    found = {
        "random chain, d = 6": chain(vrtd.problems.random_mdp(seed=41, n_features=6), 0.95),
        "Garnet, d = 4": chain(vrtd.problems.garnet(seed=42, n_states=60, branching=3, n_features=4), 0.95),
        "sticky 0.98, tabular, d = 8": sticky(0.98, 8, None, 43),
        "sticky 0.9, d = 4": sticky(0.9, 30, 4, 44),
        "rare reward": rare_reward(45),
        "misfit, d = 2": chain(vrtd.problems.random_mdp(seed=46, n_features=2, gamma=0.9, laziness=0.5), 0.9),
        "random chain, 2,000 rows": chain(
            vrtd.problems.random_mdp(seed=47, n_features=4, gamma=0.9), 0.9, n_rows=2000, pilot_rows=500
        ),
        "AR(1) 0.97, cubic reward": autoregression(0.97, 0.9),
        "Boyan's chain": chain(vrtd.problems.boyan_chain(), 1.0),
        "FrozenLake-v1, 50,000 rows": chain(
            vrtd.LinearProblem(lake.mrp, np.eye(lake.states.size)), 0.95, n_rows=50_000
        ),
        "truncated after 50 rows": chain(
            vrtd.problems.random_mdp(seed=48, n_features=4, gamma=0.9, laziness=0.3), 0.9, truncate=50
        ),
        "off-policy": chain(vrtd.problems.off_policy_garnet(seed=49, n_features=4), 0.95),
        "discount 0.999, 20,000 rows": chain(vrtd.problems.random_mdp(seed=50, gamma=0.999), 0.999, n_rows=20_000),
        "t(2.2) noise": chain(vrtd.problems.random_mdp(seed=51, gamma=0.9), 0.9, lambda rng, n: rng.standard_t(2.2, n)),
        "nearly periodic": nearly_periodic(52),
        "sticky 0.995, tabular, d = 8": sticky(0.995, 8, None, 53, is_slow=True),
        "AR(1) 0.995, cubic reward": autoregression(0.995, 0.9, is_slow=True),
        "sticky 0.997, d = 3, 6,000 rows": sticky(0.997, 20, 3, 54, n_rows=6000, is_slow=True),
        "two halves, scale 2.5": halves(1e-3, 58, scale=2.5),
    }
    for k, switch in enumerate((1e-3, 3e-3, 1e-2)):
        for n in (10_000, 40_000):
            found[f"two halves, switch {switch:g}, {n:,} rows"] = halves(switch, 55 + k, n_rows=n)
    return found


class Replication(NamedTuple):
    """Errors and half-widths of one log."""

    errors: Any  # (S,)
    half_widths: Any  # (levels, S)
    is_warned: bool


def replicate(case: Case, algorithm: str, seed: int, is_planned: bool) -> Replication | None:
    """Return errors and half-widths for one log, or None if the estimator raises an error."""
    rows = case.draw(case.n_rows, seed)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        try:
            evaluator = vrtd.Evaluator(
                algorithm, features=case.features, discount=case.discount, pilot_rows=case.pilot_rows, seed=seed,
                n_samples=case.n_rows if is_planned else None,
            ).fit(rows)  # fmt: skip
            answers = [evaluator.predict(case.observations, return_interval=level) for level in LEVELS]
        except VrtdError:
            return None
    half = np.array([(one.high - one.low) / 2.0 for one in answers])
    return Replication(answers[0].value - case.truth, half, bool(caught))


def study(case: Case, algorithm: str, n_logs: int, is_planned: bool = True) -> dict[str, Any]:
    done = [one for k in range(n_logs) if (one := replicate(case, algorithm, k, is_planned)) is not None]
    quiet = [one for one in done if not one.is_warned]
    result: dict[str, Any] = {
        "n_rows": case.n_rows, "n_logs": n_logs, "is_slow": case.is_slow, "warned": (n_logs - len(quiet)) / n_logs,
    }  # fmt: skip
    for name, logs in (("unwarned", quiet), ("all", done)):
        if not logs:
            continue
        inside = np.array([np.abs(one.errors) <= one.half_widths for one in logs])  # (logs, levels, S)
        share = inside.mean(axis=0)
        result[name] = {
            f"{level:g}": {"mean": float(share[i].mean()), "least": float(share[i].min())}
            for i, level in enumerate(LEVELS)
        }
    if done:
        result["mean_squared_error"] = float(np.square([one.errors for one in done]).mean())
    if len(quiet) > 1:
        spread = np.std([one.errors for one in done], axis=0)
        widths = np.array([one.half_widths[0] for one in quiet])
        widths = np.where(np.isfinite(widths), widths, np.nan)
        result["width"] = float(np.nanmean(np.nanmean(widths, axis=0) / (1.96 * spread)))
        result["half_width"] = float(np.nanmean(widths))
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="3 logs of each problem, a quarter of the rows")
    parser.add_argument("--logs", type=int, default=300)
    parser.add_argument("--only", help="run only the problems whose name contains this text")
    parser.add_argument("--method", choices=METHODS, help="run only one method")
    parser.add_argument("--no-n-samples", action="store_true", help="do not announce the number of rows")
    arguments = parser.parse_args()
    results = {}
    for name, case in cases().items():
        if arguments.only is not None and arguments.only not in name:
            continue
        if arguments.quick:
            case = case._replace(n_rows=max(2000, case.n_rows // 4), pilot_rows=500)
        for label, algorithm in METHODS.items():
            if arguments.method in (None, label):
                n_logs = 3 if arguments.quick else arguments.logs
                row = results[f"{name}, {label}"] = study(case, algorithm, n_logs, not arguments.no_n_samples)
                print(f"{name}, {label}: {describe(row)}", file=sys.stderr, flush=True)
    print(json.dumps(results, indent=2))


def describe(row: dict[str, Any]) -> str:
    """Format a line: warned, coverage of unwarned logs (worst state), coverage of all logs, width."""
    parts = [f"warned {row['warned']:.3f}"]
    for name in ("unwarned", "all"):
        if name in row:
            levels = (f"{c['mean']:.3f} ({c['least']:.3f})" for c in row[name].values())
            parts.append(f"{name} {' / '.join(levels)}")
    if "width" in row:
        parts.append(f"width {row['width']:.2f} ({row['half_width']:.4g})")
    return "; ".join(parts)


if __name__ == "__main__":
    main()
