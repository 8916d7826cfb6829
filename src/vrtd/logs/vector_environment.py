"""Segments of a vector environment in each of its autoreset modes; no reset row is ever among them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from vrtd.errors import DataError, InvalidInputError
from vrtd.logs.log import Chunk
from vrtd.logs.policies import Actor
from vrtd.logs.rows import Layout

#: How far an environment may run ahead of the slowest one.
SEGMENTS_AHEAD = 4

_NEXT_STEP, _SAME_STEP, _DISABLED = "NextStep", "SameStep", "Disabled"  # values of gymnasium.vector.AutoresetMode


def autoreset_mode(env: Any) -> str | None:
    """What the environment declares; Gymnasium 1.0, which has next-step only, declares nothing."""
    # Before Gymnasium 1.4 the metadata belong to the class of the environments: the vector made last speaks for all.
    declared = getattr(env.unwrapped, "autoreset_mode", None) or env.metadata.get("autoreset_mode")
    if declared is None:
        return None
    mode = str(getattr(declared, "value", declared))
    if mode not in (_NEXT_STEP, _SAME_STEP, _DISABLED):
        raise InvalidInputError(
            f"the autoreset mode of a vector environment must be {_NEXT_STEP}, {_SAME_STEP} or {_DISABLED}",
            repr(declared),
            'repair metadata["autoreset_mode"]',
        )
    return mode


@final
class Segments:
    """Segment after segment with the steps of its rows, environment by environment, without end. What is yielded is
    overwritten later.

    Reset rows make some environments slower than others. Those that are ahead keep their rows in a ring of whole
    segments; one whose ring is full goes on unrecorded, which leaves a hole between two segments and never in one, and
    at a time that depends on the others alone.
    """

    def __init__(self, env: Any, act: Actor, layout: Layout, segment: int, seed: int) -> None:
        self._env, self._act, self._layout, self._segment, self._seed = env, act, layout, segment, seed
        self._mode = autoreset_mode(env) or _NEXT_STEP
        self._n_envs = int(env.num_envs)
        self.n_missed = 0  # steps that went unrecorded

    def __iter__(self) -> Iterator[tuple[Chunk, NDArray[np.int64]]]:
        n, segment, valid = self._n_envs, self._segment, self._layout.valid
        capacity = SEGMENTS_AHEAD * segment
        flat = self._layout.room(n * capacity)  # ring after ring
        steps = np.empty(n * capacity, dtype=np.int64)  # of the rows
        rings = np.arange(n) * capacity
        kept = np.zeros(n, dtype=np.int64)  # rows of each environment so far
        given = 0  # rows of each that were yielded
        least = most = 0  # what the emptiest and the fullest ring hold at most: a step adds one row or none
        done, is_end = np.zeros(n, dtype=np.bool_), False
        observation, _ = self._env.reset(seed=self._seed)
        for step in count():
            where: Any = slice(None)
            if most == capacity or (is_end and self._mode == _NEXT_STEP):
                is_transition = ~done if self._mode == _NEXT_STEP else np.ones(n, dtype=np.bool_)
                has_room = kept - given < capacity
                self.n_missed += int((is_transition & ~has_room).sum())
                where = np.flatnonzero(is_transition & has_room)
            place = (rings + kept % capacity)[where]
            # Before the step: some environments return one array again and again.
            flat.observations[place] = valid(observation, step, n)[where]
            observation, reward, terminated, truncated, info = self._env.step(self._act(observation, step))
            successors = valid(observation, step, n)
            reward, terminated, truncated = np.asarray(reward), np.asarray(terminated), np.asarray(truncated)
            _check_columns(reward, terminated, truncated, n, step)
            done = np.logical_or(terminated, truncated)
            is_end = bool(done.any())
            if is_end:
                observation, successors = self._after_the_end(observation, successors, done, info, step)
            flat.next_observations[place] = successors[where]
            flat.reward[place] = reward[where]
            flat.terminated[place] = terminated[where]
            flat.truncated[place] = truncated[where]
            steps[place] = step
            kept[where] += 1
            least, most = least + 1, min(most + 1, capacity)
            if least == segment:
                least = int(kept.min()) - given
            if least == segment:
                for begin in (rings + given % capacity).tolist():
                    yield flat.part(begin, begin + segment), steps[begin : begin + segment]
                given += segment
                least, most = 0, int(kept.max()) - given

    def _after_the_end(
        self, observation: Any, successors: NDArray[Any], done: NDArray[np.bool_], info: Any, step: int
    ) -> tuple[Any, NDArray[Any]]:
        """What the policy sees next, and the successors of this step, when some episodes ended with it."""
        last = info.get("final_obs", info.get("final_observation")) if isinstance(info, dict) else None
        if self._mode == _SAME_STEP:
            if last is None:
                raise DataError(
                    "a vector environment that resets in the same step must give the last observation of an episode",
                    f'no info["final_obs"] at step {step}',
                    "use another autoreset mode",
                )
            successors = successors.copy()
            for e in np.flatnonzero(done):
                successors[e] = self._layout.valid(last[e], step)
            return observation, successors
        if last is not None:
            raise DataError(
                f"a vector environment of the mode {self._mode} must not reset in the step that ends an episode",
                f'info["final_obs"] at step {step}',
                'set metadata["autoreset_mode"] to what the environment does',
            )
        if self._mode == _DISABLED:
            successors = successors.copy()  # the reset may write into the array that step returned
            fresh, _ = self._env.reset(options={"reset_mask": done.copy()})
            observation = successors.copy()
            observation[done] = self._layout.valid(fresh, step, self._n_envs)[done]
        return observation, successors


def _check_columns(
    reward: NDArray[Any], terminated: NDArray[Any], truncated: NDArray[Any], n_envs: int, step: int
) -> None:
    if not reward.shape == terminated.shape == truncated.shape == (n_envs,) or reward.dtype.kind not in "biuf":
        shapes = f"the shapes {reward.shape}, {terminated.shape}, {truncated.shape}"
        raise DataError(
            f"a vector environment must return {n_envs} rewards, terminations and truncations",
            f"{shapes} and rewards of type {reward.dtype} at step {step}",
            "repair the environment",
        )
