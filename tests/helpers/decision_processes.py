"""A small decision process with exact values, and logs of its actions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from vrtd.logs import Chunk


class DecisionProcess(NamedTuple):
    """States 0..S-1, actions 0..A-1. A step ends the episode with a probability that depends on the state."""

    P: Any  # (A, S, S) where a step leads if it does not end the episode
    reward: Any  # (A, S) mean rewards; noise of variance 1 is added
    end: Any  # (S,) probability that a step ends the episode
    start: Any  # (S,) shares of the first states
    discount: float

    def values(self, policy: Any) -> tuple[Any, Any, float]:
        """V (S,), Q (S, A) and J of (S, A) probabilities."""
        go_on = self.discount * (1.0 - self.end)[:, None]
        P, r = np.einsum("sa,ast->st", policy, self.P), np.einsum("sa,as->s", policy, self.reward)
        V = np.linalg.solve(np.eye(len(P)) - go_on * P, r)
        Q = (self.reward + (go_on[:, 0] * (self.P @ V))).T
        return V, Q, float(self.start @ V)

    def record(self, policy: Any, n_rows: int, seed: int, n_logs: int = 1) -> list[Chunk]:
        """Independent logs of (S, A) probabilities."""
        rng = np.random.default_rng(seed)
        S, A = policy.shape
        by_action, by_state = policy.cumsum(axis=1), self.P.cumsum(axis=2)
        s, a, s_next = (np.empty((n_rows, n_logs), np.int64) for _ in range(3))
        terminated = np.empty((n_rows, n_logs), np.bool_)
        now = rng.choice(S, n_logs, p=self.start)
        for i in range(n_rows):
            u = rng.random((3, n_logs, 1))
            s[i] = now
            a[i] = np.minimum((by_action[now] <= u[0]).sum(axis=1), A - 1)
            s_next[i] = np.minimum((by_state[a[i], now] <= u[1]).sum(axis=1), S - 1)
            terminated[i] = u[2, :, 0] < self.end[now]
            now = np.where(terminated[i], rng.choice(S, n_logs, p=self.start), s_next[i])
        reward = self.reward[a, s] + rng.normal(size=s.shape)
        none = np.zeros(n_rows, np.bool_)
        columns = [np.ascontiguousarray(values.T) for values in (s, reward, s_next, terminated, a)]
        logs = zip(*columns, policy[columns[0], columns[4]], strict=True)
        return [Chunk(*rows[:4], none, action=rows[4], propensity=rows[5]) for rows in logs]


def random_process(seed: int, n_states: int = 5, n_actions: int = 2, end: float = 0.1) -> DecisionProcess:
    rng = np.random.default_rng(seed)
    return DecisionProcess(
        rng.dirichlet(np.ones(n_states), (n_actions, n_states)),
        rng.normal(size=(n_actions, n_states)),
        np.full(n_states, end),
        rng.dirichlet(np.ones(n_states)),
        0.9,
    )


def random_policy(seed: int, n_states: int = 5, n_actions: int = 2, evenness: float = 3.0) -> Any:
    """(S, A) probabilities, the more even the larger `evenness` is."""
    return np.random.default_rng(seed).dirichlet(np.full(n_actions, evenness), n_states)


def without_propensity(chunk: Chunk) -> Chunk:
    return chunk._replace(propensity=None)
