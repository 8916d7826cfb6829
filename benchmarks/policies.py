"""Measure the coverage of intervals of policy values, of their differences and of Q(s, a), over independent logs.

    python benchmarks/policies.py            1000 logs of every problem (about 10 minutes on one core)
    python benchmarks/policies.py --quick    3 logs of each, to see that it runs

The true values are exact. A log is *warned* when `fit` issues a DataWarning or a query issues a ConvergenceWarning.
Coverage at 95 % is counted over all logs. `p` is the probability of at most the observed number of hits if each
interval contained the true value with probability 0.95; it is the smallest over states and actions.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from typing import Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy

import numpy as np
from scipy.stats import binom

import vrtd
from vrtd.errors import ConvergenceWarning, DataWarning
from vrtd.logs import Chunk

LEVEL = 0.95


class Problem(NamedTuple):
    """Decision process, the policy of the log, and two target policies."""

    P: Any  # (A, S, S)
    reward: Any  # (A, S) means; noise of variance 1 is added
    end: float  # probability that a step ends the episode
    start: Any  # (S,)
    behaviour: Any  # (S, A)
    targets: tuple[Any, Any]
    features: Any
    n_rows: int
    discount: float = 0.9

    @property
    def n_states(self) -> int:
        """Number of states."""
        return len(self.start)

    def values(self, policy: Any) -> tuple[Any, Any]:
        """Return V (S,) and Q (S, A) of a policy."""
        discount = self.discount * (1.0 - self.end)
        P, r = np.einsum("sa,ast->st", policy, self.P), np.einsum("sa,as->s", policy, self.reward)
        V = np.linalg.solve(np.eye(self.n_states) - discount * P, r)
        return V, (self.reward + discount * (self.P @ V)).T

    def projected(self) -> Any:
        """Return phi(s).theta_star (S,) for the policy of the log, which is V(s) if the features represent it."""
        if isinstance(self.features, str):
            return self.values(self.behaviour)[0]
        P, r = np.einsum("sa,ast->st", self.behaviour, self.P), np.einsum("sa,as->s", self.behaviour, self.reward)
        moves = (1.0 - self.end) * P + self.end * self.start
        shares = np.linalg.matrix_power(moves, 1 << 12)[0]
        phi, discount = self.features, self.discount * (1.0 - self.end)
        A = phi.T @ (shares[:, None] * (phi - discount * P @ phi))
        return phi @ np.linalg.solve(A, phi.T @ (shares * r))

    def record(self, n_logs: int, seed: int) -> list[Chunk]:
        """Record independent logs under the behaviour policy."""
        rng, (S, A) = np.random.default_rng(seed), self.behaviour.shape
        by_action, by_state = self.behaviour.cumsum(axis=1), self.P.cumsum(axis=2)
        s, a, s_next = (np.empty((self.n_rows, n_logs), np.int64) for _ in range(3))
        ends = rng.random((self.n_rows, n_logs)) < self.end
        now = rng.choice(S, n_logs, p=self.start)
        for i in range(self.n_rows):
            u = rng.random((2, n_logs, 1))
            s[i] = now
            a[i] = np.minimum((by_action[now] <= u[0]).sum(axis=1), A - 1)
            s_next[i] = np.minimum((by_state[a[i], now] <= u[1]).sum(axis=1), S - 1)
            now = np.where(ends[i], rng.choice(S, n_logs, p=self.start), s_next[i])
        reward, none = self.reward[a, s] + rng.normal(size=s.shape), np.zeros(self.n_rows, bool)
        columns = [np.ascontiguousarray(values.T) for values in (s, reward, s_next, ends, a)]
        return [Chunk(*rows[:4], none, action=rows[4]) for rows in zip(*columns, strict=True)]


def make(
    seed: int, n_states: int, n_actions: int, end: float, n_rows: int, features: Any = None, **more: Any
) -> Problem:
    """Make a random problem whose policies take all actions often."""
    rng = np.random.default_rng(seed)
    policies = rng.dirichlet(np.full(n_actions, 5.0), (3, n_states))
    settings = {
        "P": rng.dirichlet(np.ones(n_states), (n_actions, n_states)),
        "reward": rng.normal(size=(n_actions, n_states)),
        "end": end,
        "start": rng.dirichlet(np.ones(n_states)),
        "behaviour": policies[0],
        "targets": (policies[1], policies[2]),
        "features": f"tabular:{n_states}" if features is None else features,
        "n_rows": n_rows,
    }
    return Problem(**settings | more)


def poor(share: float) -> dict[str, Any]:
    """Return settings in which the first target takes an action that the log takes rarely."""
    return {
        "behaviour": np.tile([1.0 - share, share], (5, 1)),
        "targets": (np.tile([0.0, 1.0], (5, 1)), np.tile([0.5, 0.5], (5, 1))),
    }


PROBLEMS = {
    "episodes of 10 steps, random starts": make(0, 5, 2, 0.1, 3000),
    "episodes of 50 steps, 8 states": make(1, 8, 3, 0.02, 5000),
    "continuing": make(2, 5, 2, 0.0, 3000),
    "features that cannot represent V": make(3, 6, 2, 0.1, 3000, np.random.default_rng(3).normal(size=(6, 3))),
    "20 states, 4 actions": make(4, 20, 4, 0.1, 20_000),
    "poor overlap, 2 % of the actions": make(0, 5, 2, 0.1, 3000, **poor(0.02)),
    "poor overlap, 0.2 % of the actions": make(0, 5, 2, 0.1, 3000, **poor(0.002)),
}


def fit_all(problem: Problem, log: Chunk, second: Chunk) -> dict[str, tuple[vrtd.Evaluator, bool]]:
    """Fit the evaluators and return each with whether it issued a warning."""
    a, b = problem.targets
    rows: dict[str, tuple[Chunk, Any]] = {"log": (log, None), "second": (second, None)}
    if isinstance(problem.features, str):  # exact values of targets are known
        rows |= {"a": (log, a), "b": (log, b)}
    fits = {}
    for name, (chunk, target) in rows.items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            evaluator = vrtd.Evaluator(features=problem.features, discount=problem.discount, target=target).fit(chunk)
        fits[name] = evaluator, any(issubclass(w.category, DataWarning) for w in caught)
    return fits


def ask(problem: Problem, fits: dict[str, vrtd.Evaluator], starts: Any) -> dict[str, tuple[str, Any, Any]]:
    """Compute the intervals; return the name of the fit, the interval and the true value of each."""
    V, Q = problem.values(problem.targets[0])
    V_2, own, nu = problem.values(problem.targets[1])[0], problem.projected(), problem.start
    log, second, a, b = (fits.get(name) for name in ("log", "second", "a", "b"))
    asked = {"policy value, given starts": ("log", log.policy_value(starts), nu @ own)}
    if problem.end > 0.0:
        asked["policy value"] = "log", log.policy_value(), nu @ own
        asked["difference, two logs"] = "log", vrtd.difference(log, second), 0.0
    if a is None:
        return asked
    pairs, states = np.indices(Q.shape).reshape(2, -1), np.arange(problem.n_states)
    asked["Q of a target"] = "a", a.predict(*pairs, return_interval=LEVEL), Q[tuple(pairs)]
    asked["J of a target, given starts"] = "a", a.policy_value(starts), nu @ V
    asked["difference of values, two targets"] = "a", vrtd.difference(a, b, observations=states), V - V_2
    if problem.end > 0.0:
        asked["J of a target"] = "a", a.policy_value(), nu @ V
        asked["difference, two targets"] = "a", vrtd.difference(a, b), nu @ (V - V_2)
    return asked


def measure(problem: Problem, n_logs: int) -> dict[str, dict[str, float]]:
    logs, hits, n_warned = problem.record(2 * n_logs, seed=7), {}, {}
    for k in range(n_logs):
        starts = np.random.default_rng(k).choice(problem.n_states, 400, p=problem.start)
        fits = fit_all(problem, logs[2 * k], logs[2 * k + 1])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            asked = ask(problem, {name: one for name, (one, _) in fits.items()}, starts)
        is_slow = any(issubclass(w.category, ConvergenceWarning) for w in caught)
        for name, (which, found, truth) in asked.items():
            is_hit = (np.asarray(found.low) <= truth) & (truth <= np.asarray(found.high))
            hits.setdefault(name, []).append(np.atleast_1d(is_hit))
            n_warned[name] = n_warned.get(name, 0) + (is_slow or fits[which][1])
    table = {}
    for name, each in hits.items():
        counts = np.sum(each, axis=0)
        table[name] = {
            "coverage": float(np.mean(each)),
            "least": float(counts.min() / n_logs),
            "p": float(binom.cdf(counts, n_logs, LEVEL).min()),
            "warned": n_warned[name] / n_logs,
        }
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--logs", type=int, default=1000)
    arguments = parser.parse_args()
    n_logs = 3 if arguments.quick else arguments.logs
    report = {}
    for name, problem in PROBLEMS.items():
        report[name] = measure(problem, n_logs)
        if not arguments.json:
            print(f"\n{name}: {n_logs} logs of {problem.n_rows:,} rows\n{'':36}coverage   least       p  warned")
            for what, row in report[name].items():
                print(f"  {what:34}{row['coverage']:8.3f}{row['least']:8.3f}{row['p']:8.1g}{row['warned']:8.3f}")
            sys.stdout.flush()
    if arguments.json:
        print(json.dumps(report))


if __name__ == "__main__":
    main()
