"""Environments whose every transition is known: climbs of given lengths, one after the other, each step one rung."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector.utils import batch_space

from vrtd.logs.log import Chunk

Row = tuple[float, float, float, bool, bool]


class Ladder(gymnasium.Env[Any, Any]):
    """Climb k has `lengths[k % len(lengths)]` steps and starts at 100 k + `first`; a length below 0 ends by truncation.

    Every step adds 1 to the observation and pays the rung it reaches plus the action. One array is returned again and
    again, unless each observation is asked to be fresh.
    """

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, lengths: Sequence[int], first: float = 0.0, fresh: bool = False) -> None:
        self.lengths, self.first, self.fresh = lengths, first, fresh
        self.rung = np.zeros(1, dtype=np.float32)
        self.n_closed = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.climb = 0 if seed is not None else self.climb + 1
        self.rung[0] = self.first + 100 * self.climb
        return self.rung.copy() if self.fresh else self.rung, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.rung += 1
        length = self.lengths[self.climb % len(self.lengths)]
        is_end = self.rung[0] == self.first + 100 * self.climb + abs(length)
        rung = self.rung.copy() if self.fresh else self.rung
        return rung, float(self.rung[0] + action), bool(is_end and length > 0), bool(is_end and length < 0), {}

    def close(self) -> None:
        self.n_closed += 1


def climbs(lengths: Sequence[int], first: float, n: int, action: int = 0) -> list[Row]:
    """The first n transitions of a ladder."""
    rows: list[Row] = []
    climb = 0
    while len(rows) < n:
        length = lengths[climb % len(lengths)]
        for k in range(abs(length)):
            rung = first + 100 * climb + k
            is_end = k == abs(length) - 1
            rows.append((rung, rung + 1 + action, rung + 1, is_end and length > 0, is_end and length < 0))
        climb += 1
    return rows[:n]


class Ladders(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """Several ladders in any autoreset mode, whatever modes the installed Gymnasium has; one array is returned."""

    def __init__(self, lengths: Sequence[Sequence[int]], mode: str | None) -> None:
        self.envs = [Ladder(each, first=10_000.0 * e) for e, each in enumerate(lengths)]
        self.num_envs, self.mode = len(self.envs), mode or "NextStep"
        self.metadata = {} if mode is None else {"autoreset_mode": mode}
        self.single_observation_space, self.single_action_space = Ladder.observation_space, Ladder.action_space
        self.observation_space = batch_space(Ladder.observation_space, self.num_envs)
        self.action_space = batch_space(Ladder.action_space, self.num_envs)
        self.rungs = np.zeros((self.num_envs, 1), dtype=np.float32)
        self.done = np.zeros(self.num_envs, dtype=np.bool_)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        mask = np.ones(self.num_envs, dtype=np.bool_) if options is None else options["reset_mask"]
        for e in np.flatnonzero(mask):
            self.rungs[e] = self.envs[e].reset(seed=seed)[0]
        self.done = self.done & ~mask
        return self.rungs, {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        reward = np.zeros(self.num_envs)
        terminated, truncated = np.zeros((2, self.num_envs), dtype=np.bool_)
        info: dict[str, Any] = {}
        assert self.mode != "Disabled" or not self.done.any()
        for e, env in enumerate(self.envs):
            if self.mode == "NextStep" and self.done[e]:
                self.rungs[e] = env.reset()[0]
                continue
            self.rungs[e], reward[e], terminated[e], truncated[e], _ = env.step(actions[e])
            if self.mode == "SameStep" and (terminated[e] or truncated[e]):
                info.setdefault("final_obs", np.full(self.num_envs, None))[e] = self.rungs[e].copy()
                self.rungs[e] = env.reset()[0]
        self.done = terminated | truncated
        return self.rungs, reward, terminated, truncated, info


def rows_of(chunks: Sequence[Chunk]) -> list[Row]:
    return [
        (float(o[0]), float(r), float(n[0]), bool(end), bool(cut))
        for c in chunks
        for o, r, n, end, cut in zip(*c[:5], strict=True)
    ]
