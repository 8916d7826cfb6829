"""How often intervals hold the truth: phi(s).theta_star over independent replications, state by state.

    python benchmarks/intervals.py            1000 replications of every problem (about half an hour on one core)
    python benchmarks/intervals.py --quick    a few, to see that it runs

The closed form on FrozenLake-v1, Taxi, Boyan's chain and a random chain; VRTD with "auto" on all but Taxi, where its
diagnostics say "converged". For tabular features phi(s).theta_star is V(s). A problem is fine when no state's number of
hits is unlikely (1e-6 in all, Bonferroni over states) at the nominal rate of 95 %.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numba
import numpy as np
from scipy.stats import binom

import vrtd
from vrtd.errors import ConvergenceWarning
from vrtd.logs import Chunk

LEVEL, FALSE_ALARM_RATE = 0.95, 1e-6


class Problem(NamedTuple):
    mrp: vrtd.MarkovRewardProcess
    features: Any  # for the Evaluator
    phi: Any  # (S, d)
    discount: float
    n_rows: int


@numba.njit(cache=True)
def walk(indptr: Any, cumulative: Any, successor: Any, state: int, uniforms: Any, edges: Any) -> None:
    """One trajectory as the edges that it takes."""
    for k in range(uniforms.size):
        first, last = indptr[state], indptr[state + 1]
        edge = first + np.searchsorted(cumulative[first:last], uniforms[k], side="right")
        edges[k] = min(edge, last - 1)
        state = successor[edges[k]]


def trajectory(problem: Problem, seed: int) -> Chunk:
    """Rows of one stationary trajectory; observations are states."""
    edges, rng = problem.mrp.edges, np.random.default_rng(seed)
    ends = np.cumsum(edges.probability)
    cumulative = ends - np.repeat(ends[edges.indptr[:-1]] - edges.probability[edges.indptr[:-1]], np.diff(edges.indptr))
    taken = np.empty(problem.n_rows, np.int64)
    start = int(rng.choice(problem.mrp.n_states, p=problem.mrp.stationary))
    walk(edges.indptr, cumulative, edges.successor, start, rng.random(problem.n_rows), taken)
    terminated = edges.discount[taken] == 0.0
    no = np.zeros(problem.n_rows, bool)
    return Chunk(edges.origin[taken], edges.reward[taken], edges.successor[taken], terminated, no)


def newest(name: str) -> str:
    import gymnasium

    return max(key for key in gymnasium.registry if key.startswith(f"{name}-v"))


def tabular(name: str, discount: float, n_rows: int) -> Problem:
    chain = vrtd.problems.restart_chain(newest(name), "random", discount)
    n = chain.states.size
    return Problem(chain.mrp, vrtd.features.Tabular(n), np.eye(n), discount, n_rows)


def problems() -> dict[str, Problem]:
    random, phi = vrtd.problems.random_mdp(seed=7)
    boyan, boyan_phi = vrtd.problems.boyan_chain()
    return {
        "FrozenLake-v1": tabular("FrozenLake", 0.95, 50_000),
        "Boyan": Problem(boyan, vrtd.features.Table(boyan_phi), boyan_phi, 1.0, 20_000),
        "random chain": Problem(random, vrtd.features.Table(phi), phi, 0.95, 20_000),
        "Taxi": tabular("Taxi", 0.9, 400_000),
    }


class Replication(NamedTuple):
    hits: Any  # (S,)
    width: float  # mean half-width
    converged: bool


def replicate(problem: Problem, algorithm: str, seed: int) -> Replication:
    rows = trajectory(problem, seed)
    evaluator = vrtd.Evaluator(
        algorithm, features=problem.features, discount=problem.discount, n_samples=problem.n_rows, seed=seed
    ).fit(rows)
    truth = problem.phi @ vrtd.LinearSystem(problem.mrp, problem.phi).theta_star
    states = np.arange(problem.mrp.n_states)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        found = evaluator.predict(states, return_interval=LEVEL)
    inside = (found.low <= truth) & (truth <= found.high)
    return Replication(inside, float(np.mean(found.high - found.low)) / 2.0, not caught)


def study(problem: Problem, algorithm: str, n_replications: int, first_seed: int = 0) -> dict[str, Any]:
    """Replications that did not converge are counted and left out, as their user is told to."""
    done = [replicate(problem, algorithm, first_seed + k) for k in range(n_replications)]
    used = [one for one in done if one.converged]
    hits = np.sum([one.hits for one in used], axis=0) if used else np.zeros(problem.mrp.n_states)
    n, tail = len(used), FALSE_ALARM_RATE / (2.0 * hits.size)
    unlikely = (binom.cdf(hits, n, LEVEL) < tail) | (binom.sf(hits - 1, n, LEVEL) < tail)
    share = hits / max(n, 1)
    return {
        "n_rows": problem.n_rows,
        "n_replications": n_replications,
        "converged": n,
        "coverage": {"mean": float(share.mean()), "least": float(share.min()), "most": float(share.max())},
        "states": int(hits.size),
        "unlikely_states": int(unlikely.sum()),
        "half_width": float(np.mean([one.width for one in used])) if used else None,
    }


def cases() -> Iterator[tuple[str, str]]:
    for name in problems():
        yield name, "lstd"
        if name != "Taxi":
            yield name, "vrtd"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="3 replications")
    parser.add_argument("--replications", type=int, default=1000)
    parser.add_argument("--only", help="the name of one problem")
    arguments = parser.parse_args()
    every = problems()
    results = {}
    for name, algorithm in cases():
        if arguments.only not in (None, name):
            continue
        n = 3 if arguments.quick else arguments.replications
        problem = every[name]._replace(n_rows=every[name].n_rows // 4) if arguments.quick else every[name]
        results[f"{name}, {algorithm}"] = study(problem, algorithm, n)
        print(name, algorithm, results[f"{name}, {algorithm}"], file=sys.stderr, flush=True)
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
