"""A live Gymnasium environment as a log: its transitions under a policy, the same at every reading."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from vrtd.checks import check_count
from vrtd.errors import DataError, InvalidInputError
from vrtd.logs.log import SEGMENT, Chunk, Log
from vrtd.logs.policies import Actor, Policy, as_policy
from vrtd.logs.rows import layout_of
from vrtd.logs.vector_environment import SEGMENTS_AHEAD, Segments, autoreset_mode
from vrtd.problems.environments import gymnasium_library, make

_CHUNK_ROWS, _CHUNK_BYTES = 4096, 16 << 20


def from_env(
    env: Any, policy: Policy, n_samples: int, *, seed: int = 0, segment: int | None = None, chunk: int | None = None
) -> EnvironmentLog:
    """`n_samples` transitions of an environment under a policy, made anew at each reading from `env.reset(seed=seed)`.

    The row of a step that ends an episode has the last observation as its successor; the observation after the reset
    is never one. A vector environment is reset as its autoreset mode asks, and its reset rows are left out. Its rows
    come in rounds: `segment` consecutive steps of environment 0, as many of environment 1, and so on; the last round is
    cut where the `n_samples` are reached. So a batch of a multiple of `segment` rows holds whole segments. Steps that
    messages name are calls of `env.step`, from 0.

    Args:
        env: a Gymnasium environment, a vector environment, or an id for `gymnasium.make`. Observation spaces are Box,
            Discrete, MultiDiscrete or MultiBinary. What is made from an id is closed after each reading; an environment
            of yours stays open, and only one reading of it can be under way.
        policy: "random", a function, an array or an object with `predict`: see `vrtd.logs.policies.as_policy`.
        n_samples: how many transitions.
        seed: of the environment and of what the policy draws.
        segment: for a vector environment; 64 unless given.
        chunk: rows in a chunk; unless given 4096, or what fits into 16 MiB. It changes nothing but memory.

    >>> log = from_env("FrozenLake-v1", "random", 5, seed=1)
    >>> [chunk.observations.tolist() for chunk in log.chunks()]
    [[0, 0, 0, 0, 1]]
    """
    check_count("n_samples", n_samples)
    check_count("seed", seed, least=0)
    if segment is not None:
        check_count("segment", segment)
    if chunk is not None:
        check_count("chunk", chunk)
    gym = gymnasium_library()
    made = make(env) if isinstance(env, str) else None
    try:
        live = env if made is None else made
        is_vector = isinstance(live, gym.vector.VectorEnv)
        if not is_vector and not isinstance(live, gym.Env):
            raise InvalidInputError(
                "env must be a Gymnasium environment, a vector environment or an id", f"{live!r:.80}", "pass one"
            )
        if segment is not None and not is_vector:
            raise InvalidInputError(
                "segment is for vector environments", f"{segment} with one environment", "leave it out"
            )
        return EnvironmentLog(env, live, policy, int(n_samples), int(seed), segment, chunk)
    finally:
        if made is not None:
            made.close()


@final
class EnvironmentLog(Log):
    """What `from_env` returns."""

    def __init__(
        self, env: Any, live: Any, policy: Policy, n_samples: int, seed: int, segment: int | None, chunk: int | None
    ) -> None:
        gym = gymnasium_library()
        self._env, self._n_samples, self._seed = env, n_samples, seed
        self._n_envs: int | None = None
        self._is_undeclared = False
        spaces = live.observation_space, live.action_space
        if isinstance(live, gym.vector.VectorEnv):
            self._n_envs = int(live.num_envs)
            has_modes = "AutoresetMode" in vars(gym.vector)  # Gymnasium 1.0 has next-step and no more
            self._is_undeclared = autoreset_mode(live) is None and has_modes
            spaces = live.single_observation_space, live.single_action_space
        self._layout = layout_of(spaces[0], self._n_envs is not None)
        self._actors = as_policy(policy, *spaces, self._n_envs)
        self._segment = SEGMENT if segment is None else int(segment)
        row_bytes = 2 * self._layout.dtype.itemsize * int(np.prod(self._layout.shape)) + 1
        self._chunk = int(chunk) if chunk is not None else max(1, min(_CHUNK_ROWS, _CHUNK_BYTES // row_bytes))
        self._reading = 0
        self._segments: Segments | None = None  # of the last reading

    @property
    def n_rows(self) -> int:
        return self._n_samples

    @property
    def segment(self) -> int | None:
        return None if self._n_envs in (None, 1) else self._segment

    @property
    def remarks(self) -> tuple[str, ...]:
        remarks = []
        if self._is_undeclared:
            remarks.append(
                "the vector environment does not declare its autoreset mode: next-step, Gymnasium's default, is assumed"
            )
        if self._segments is not None and self._segments.n_missed:
            remarks.append(
                f"{self._segments.n_missed} steps between segments were left out: "
                f"their environments had run {SEGMENTS_AHEAD} segments ahead of the slowest one"
            )
        return tuple(remarks)

    def chunks(self) -> Iterator[Chunk]:
        made = make(self._env) if isinstance(self._env, str) else None
        env = self._env if made is None else made
        self._reading += 1
        reading = self._reading
        try:
            act = self._actors(self._seed)
            for chunk in self._one(env, act) if self._n_envs is None else self._several(env, act):
                yield chunk
                if made is None and reading != self._reading:
                    raise InvalidInputError(
                        "an environment must have one reading at a time",
                        "a second reading before the first one ended",
                        "read one after the other, or pass an id: each reading then has its own environment",
                    )
        finally:
            if made is not None:
                made.close()

    def _one(self, env: Any, act: Actor) -> Iterator[Chunk]:
        valid = self._layout.valid
        observation, _ = env.reset(seed=self._seed)
        row = valid(observation, 0)
        for first in range(0, self._n_samples, self._chunk):
            steps = range(first, min(first + self._chunk, self._n_samples))
            rows = self._layout.room(len(steps))
            for i, step in enumerate(steps):
                # Before the step: some environments return one array again and again.
                rows.observations[i] = row
                observation, reward, terminated, truncated, _ = env.step(act(observation, step))
                rows.next_observations[i] = row = valid(observation, step)
                try:
                    rows.reward[i] = reward
                except (TypeError, ValueError):
                    raise DataError(
                        "a reward must be one number", f"{reward!r:.80} at step {step}", "repair the environment"
                    ) from None
                rows.terminated[i], rows.truncated[i] = terminated, truncated
                if terminated or truncated:
                    observation, _ = env.reset()
                    row = valid(observation, step)
            yield rows._replace(locate=partial(self._place, steps, first))

    def _several(self, env: Any, act: Actor) -> Iterator[Chunk]:
        """The segments of all rounds, cut into chunks."""
        self._segments = Segments(env, act, self._layout, self._segment, self._seed)
        segments, taken = iter(self._segments), self._segment
        for first in range(0, self._n_samples, self._chunk):
            rows = self._layout.room(min(self._chunk, self._n_samples - first))
            steps = np.empty(rows.n_rows, dtype=np.int64)
            filled = 0
            while filled < rows.n_rows:
                if taken == self._segment:
                    (segment, segment_steps), taken = next(segments), 0
                k = min(self._segment - taken, rows.n_rows - filled)
                targets, sources = (*rows.columns.values(), steps), (*segment.columns.values(), segment_steps)
                for target, source in zip(targets, sources, strict=True):
                    target[filled : filled + k] = source[taken : taken + k]
                taken, filled = taken + k, filled + k
            yield rows._replace(locate=partial(self._place, steps, first))

    def _place(self, steps: Sequence[int] | NDArray[np.int64], first: int, _field: str, row: int) -> str:
        """Say at which step row `row` of the chunk came; `first` rows of the log came before this chunk."""
        if self._n_envs is None:
            return f"step {steps[row]} of the environment"
        return f"step {steps[row]} of environment {(first + row) // self._segment % self._n_envs}"
