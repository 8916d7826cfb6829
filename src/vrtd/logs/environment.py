"""A live Gymnasium environment as a log: its transitions under a policy, the same at every reading."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from functools import partial
from inspect import Parameter, signature
from itertools import count
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from vrtd.checks import check_count
from vrtd.errors import DataError, InvalidInputError
from vrtd.features import ObservationSpace
from vrtd.logs.log import SEGMENT, Chunk, Log
from vrtd.logs.observations import layout_of
from vrtd.logs.policies import ActionLayout, Actor, Policy, as_policy
from vrtd.problems.environments import environment_name, gymnasium_library, open_environment

_CHUNK_ROWS, _CHUNK_BYTES = 4096, 16 << 20
_SEGMENTS_AHEAD = 4  # how far an environment of several may run ahead of the slowest one
_UNDECLARED = "the vector environment does not declare its autoreset mode: next-step, Gymnasium's default, is assumed"
_NEXT_STEP, _SAME_STEP, _DISABLED = "NextStep", "SameStep", "Disabled"  # values of gymnasium.vector.AutoresetMode


def from_env(
    env: Any,
    policy: Policy,
    n_samples: int,
    *,
    seed: int = 0,
    segment: int | None = None,
    chunk: int | None = None,
    clip_actions: bool = False,
) -> EnvironmentLog:
    """Make a log of `n_samples` transitions of an environment under a policy.

    They are made anew at each reading, from `env.reset(seed=seed)`. The row of a step that ends an episode has the last
    observation as its successor; the observation after the reset is never one. Actions of a Discrete space are numbers
    from 0 on, those of a Box of floats are vectors, and those of other spaces are left out.

    A vector environment is reset as its autoreset mode asks, and its reset rows are left out. Its rows come in rounds:
    `segment` consecutive steps of environment 0, as many of environment 1, and so on; the last round is cut where the
    `n_samples` are reached. So a batch of a multiple of `segment` rows holds whole segments. Messages count
    steps, calls of `env.step`, from 0.

    Parameters
    ----------
    env : Gymnasium environment, vector environment or str
        A str is an id for `gymnasium.make`. Observation spaces are Box, Discrete, MultiDiscrete or MultiBinary, or a
        Dict or Tuple of these, whose numbers are side by side in the log. What is made from an id is closed after each
        reading; an environment of yours stays open, and only one reading of it can be under way.
    policy : Policy
        "random", a function, an array, an object with `predict`, or "package.module:name": see
        `vrtd.logs.policies.as_policy`.
    n_samples : int
        Number of transitions.
    seed : int
        Seed of the environment and of what the policy draws.
    segment : int, optional
        For a vector environment; 64 unless given.
    chunk : int, optional
        Rows in a chunk; unless given 4096, or what fits into 16 MiB. It changes nothing but memory.
    clip_actions : bool
        Whether actions of a Box are clipped to its bounds. Otherwise an action outside of them is an error.

    Returns
    -------
    EnvironmentLog
        The transitions.

    Examples
    --------
    >>> log = from_env("FrozenLake-v1", "random", 5, seed=1)
    >>> [chunk.observations.tolist() for chunk in log.chunks()]
    [[0, 0, 0, 0, 1]]
    """
    return EnvironmentLog(env, policy, n_samples, seed, segment, chunk, clip_actions)


@final
class EnvironmentLog(Log):
    """What `from_env` returns."""

    def __init__(
        self,
        env: Any,
        policy: Policy,
        n_samples: int,
        seed: int,
        segment: int | None,
        chunk: int | None,
        clip_actions: bool,
    ) -> None:
        check_count("n_samples", n_samples)
        check_count("seed", seed, least=0)
        for name, value in (("segment", segment), ("chunk", chunk)):
            if value is not None:
                check_count(name, value)
        self._env, self._n_samples, self._seed = env, int(n_samples), int(seed)
        self._n_envs: int | None = None
        self._notes: tuple[str, ...] = ()
        gym = gymnasium_library()
        with open_environment(env) as live:
            if isinstance(live, gym.vector.VectorEnv):
                self._n_envs = int(live.num_envs)
                declared = _autoreset_mode(live)
                self._mode = declared or _NEXT_STEP
                if declared is None and "AutoresetMode" in vars(gym.vector):  # Gymnasium 1.0 has next-step and no more
                    self._notes = (_UNDECLARED,)
                spaces = live.single_observation_space, live.single_action_space
            elif not isinstance(live, gym.Env):
                raise InvalidInputError(
                    "env must be a Gymnasium environment, a vector environment or an id", f"{live!r:.80}", "pass one"
                )
            elif segment is not None:
                raise InvalidInputError(
                    "segment is for vector environments", f"{segment} with one environment", "leave it out"
                )
            else:
                spaces = live.observation_space, live.action_space
            self._layout, self._observation_space = layout_of(spaces[0]), deepcopy(spaces[0])
            self._action_layout = ActionLayout.of(spaces[1])
            self._actors = as_policy(policy, *spaces, self._n_envs, clip_actions)
            self._name = environment_name(env) + (f", policy {policy}" if isinstance(policy, str) else "")
        self._segment = SEGMENT if segment is None else int(segment)
        row_bytes = 2 * self._layout.dtype.itemsize * int(np.prod(self._layout.shape)) + 1
        self._chunk = int(chunk) if chunk is not None else max(1, min(_CHUNK_ROWS, _CHUNK_BYTES // row_bytes))
        self._reading = 0
        self._n_missed = 0  # steps of the last reading that went unrecorded

    @property
    def n_rows(self) -> int:
        return self._n_samples

    @property
    def space(self) -> ObservationSpace:
        return self._layout.space

    def sample_observations(self, n: int) -> NDArray[Any]:
        """Draw observations from their space, always the same: features can be tried on them before any step."""
        self._observation_space.seed(0)
        return np.stack([self._layout.check(self._observation_space.sample(), 0) for _ in range(n)])

    @property
    def knows_first(self) -> bool:
        return True

    @property
    def segment(self) -> int | None:
        return None if self._n_envs in (None, 1) else self._segment

    @property
    def remarks(self) -> tuple[str, ...]:
        if not self._n_missed:
            return self._notes
        missed = (
            f"{self._n_missed} steps between segments were left out: "
            f"their environments had run {_SEGMENTS_AHEAD} segments ahead of the slowest one"
        )
        return (*self._notes, missed)

    def chunks(self) -> Iterator[Chunk]:
        self._reading += 1
        reading = self._reading
        with open_environment(self._env) as env:
            act = self._actors(self._seed)
            for chunk in self._read_one(env, act) if self._n_envs is None else self._read_several(env, act):
                yield chunk
                if reading != self._reading and not isinstance(self._env, str):
                    raise InvalidInputError(
                        "an environment must have one reading at a time",
                        "a second reading before the first one ended",
                        "read one after the other, or pass an id: each reading then has its own environment",
                    )

    def _allocate(self, n_rows: int) -> Chunk:
        """Allocate a chunk of `n_rows` rows that are written later."""
        action = None if self._action_layout is None else self._action_layout.allocate(n_rows)
        return self._layout.allocate(n_rows)._replace(action=action, starts=np.empty(n_rows, np.bool_))

    def _read_one(self, env: Any, act: Actor) -> Iterator[Chunk]:
        check, is_start = self._layout.check, True
        observation = _reset(env, 0, seed=self._seed)
        row = check(observation, 0)
        for first in range(0, self._n_samples, self._chunk):
            steps = range(first, min(first + self._chunk, self._n_samples))
            rows = self._allocate(len(steps))
            actions = rows.action
            for i, step in enumerate(steps):
                # Before the step: some environments return one array again and again.
                rows.observations[i] = row
                action = act(observation, step)
                if actions is not None:
                    actions[i] = action
                observation, reward, terminated, truncated, _ = _step(env, action, step)
                rows.next_observations[i] = row = check(observation, step)
                try:
                    rows.reward[i] = reward
                except (TypeError, ValueError):
                    raise DataError(
                        "a reward must be one number", f"{reward!r:.80} at step {step}", "repair the environment"
                    ) from None
                rows.terminated[i], rows.truncated[i] = terminated, truncated
                if terminated or truncated:
                    observation = _reset(env, step)
                    row = check(observation, step)
            starts, is_start = np.append(is_start, rows.ends[:-1]), bool(rows.ends[-1])
            yield self._finish(rows._replace(starts=starts), steps, first)

    def _finish(self, rows: Chunk, steps: Sequence[int] | NDArray[np.int64], first: int) -> Chunk:
        """Return the rows with actions as a log has them, and with their places; `first` rows came before them."""
        if self._action_layout is not None and rows.action is not None:
            rows = rows._replace(action=self._action_layout.convert(rows.action))
        return rows._replace(locate=partial(self._place, steps, first))

    def _read_several(self, env: Any, act: Actor) -> Iterator[Chunk]:
        """Yield the segments of all rounds, cut into chunks."""
        segments, n_taken = self._segments(env, act), self._segment
        for first in range(0, self._n_samples, self._chunk):
            rows = self._allocate(min(self._chunk, self._n_samples - first))
            steps = np.empty(rows.n_rows, dtype=np.int64)
            n_filled = 0
            while n_filled < rows.n_rows:
                if n_taken == self._segment:
                    (segment, segment_steps), n_taken = next(segments), 0
                k = min(self._segment - n_taken, rows.n_rows - n_filled)
                targets, sources = (*rows.columns.values(), steps), (*segment.columns.values(), segment_steps)
                for target, source in zip(targets, sources, strict=True):
                    target[n_filled : n_filled + k] = source[n_taken : n_taken + k]
                n_taken, n_filled = n_taken + k, n_filled + k
            yield self._finish(rows, steps, first)

    def _segments(self, env: Any, act: Actor) -> Iterator[tuple[Chunk, NDArray[np.int64]]]:
        """Yield segment after segment with the steps of its rows, environment by environment, without end. What is
        yielded is overwritten later.

        Reset rows, which are never among them, make some environments slower than others. Those that are ahead keep
        their rows in a ring of whole segments; one whose ring is full goes on unrecorded, which leaves a hole between
        two segments and never in one, and at a time that depends on the others alone.
        """
        n, segment, check = int(env.num_envs), self._segment, self._layout.check
        capacity = _SEGMENTS_AHEAD * segment
        flat = self._allocate(n * capacity)  # ring after ring
        assert flat.starts is not None
        steps = np.empty(n * capacity, dtype=np.int64)  # of the rows
        rings = np.arange(n) * capacity
        n_kept = np.zeros(n, dtype=np.int64)  # rows of each environment so far
        n_yielded = 0  # rows of each that were yielded
        least = most = 0  # what the emptiest and the fullest ring hold at most: a step adds one row or none
        done, is_end = np.zeros(n, dtype=np.bool_), False
        is_start = np.ones(n, dtype=np.bool_)  # environments that were just reset
        self._n_missed = 0
        observation = _reset(env, 0, seed=self._seed)
        for step in count():
            where: Any = slice(None)
            if most == capacity or (is_end and self._mode == _NEXT_STEP):
                is_transition = ~done if self._mode == _NEXT_STEP else np.ones(n, dtype=np.bool_)
                has_room = n_kept - n_yielded < capacity
                self._n_missed += int((is_transition & ~has_room).sum())
                where = np.flatnonzero(is_transition & has_room)
            place = (rings + n_kept % capacity)[where]
            # Before the step: some environments return one array again and again.
            flat.observations[place] = check(observation, step, n)[where]
            action = act(observation, step)
            if flat.action is not None:
                flat.action[place] = action[where]
            flat.starts[place] = is_start[where]
            observation, reward, terminated, truncated, info = _step(env, action, step)
            successors = check(observation, step, n)
            reward, terminated, truncated = np.asarray(reward), np.asarray(terminated), np.asarray(truncated)
            if not reward.shape == terminated.shape == truncated.shape == (n,) or reward.dtype.kind not in "biuf":
                shapes = f"the shapes {reward.shape}, {terminated.shape}, {truncated.shape}"
                raise DataError(
                    f"a vector environment must return {n} rewards, terminations and truncations",
                    f"{shapes} and rewards of type {reward.dtype} at step {step}",
                    "repair the environment",
                )
            was_done, done = done, np.logical_or(terminated, truncated)
            is_start = was_done if self._mode == _NEXT_STEP else done
            is_end = bool(done.any())
            if is_end:
                observation, successors = self._end_episodes(env, observation, successors, done, info, step)
            flat.reward[place] = reward[where]
            flat.next_observations[place] = successors[where]
            flat.terminated[place] = terminated[where]
            flat.truncated[place] = truncated[where]
            steps[place] = step
            n_kept[where] += 1
            least, most = least + 1, min(most + 1, capacity)
            if least == segment:
                least = int(n_kept.min()) - n_yielded
            if least == segment:
                for begin in (rings + n_yielded % capacity).tolist():
                    yield flat.part(begin, begin + segment), steps[begin : begin + segment]
                n_yielded += segment
                least, most = 0, int(n_kept.max()) - n_yielded

    def _end_episodes(
        self, env: Any, observation: Any, successors: NDArray[Any], done: NDArray[np.bool_], info: Any, step: int
    ) -> tuple[Any, NDArray[Any]]:
        """Return what the policy sees next, and the successors of this step, when some episodes ended with it."""
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
                successors[e] = self._layout.check(last[e], step)
            return observation, successors
        if last is not None:
            raise DataError(
                f"a vector environment of the mode {self._mode} must not reset in the step that ends an episode",
                f'info["final_obs"] at step {step}',
                'set metadata["autoreset_mode"] to what the environment does',
            )
        if self._mode == _DISABLED:
            successors = successors.copy()  # the reset may write into the array that step returned
            fresh = _reset(env, step, options={"reset_mask": done.copy()})
            if self._layout.is_flattened:
                return fresh, successors
            observation = successors.copy()
            observation[done] = self._layout.check(fresh, step, self._n_envs)[done]
        return observation, successors

    def _place(self, steps: Sequence[int] | NDArray[np.int64], first: int, _field: str, row: int) -> str:
        """Say at which step row `row` of the chunk came; `first` rows of the log came before this chunk."""
        if self._n_envs is None:
            return f"step {steps[row]} of the environment"
        return f"step {steps[row]} of environment {(first + row) // self._segment % self._n_envs}"

    @property
    def origin(self) -> str:
        copies = "" if self._n_envs is None else f", {self._n_envs} environments"
        return f"{self._name}{copies}, seed {self._seed}"


def _reset(env: Any, step: int, **options: Any) -> Any:
    """Reset an environment and return the observation."""
    try:
        answer = env.reset(**options)
    except TypeError:
        parameters = signature(env.unwrapped.reset).parameters
        takes_any = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values())
        lacks = [name for name in options if name not in parameters and not takes_any]
        if not lacks:  # an error of its own
            raise
        raise DataError(
            f"env.reset must have the argument {lacks[0]}",
            f"reset({', '.join(parameters)})",
            "write reset(self, seed=None, options=None), and call super().reset(seed=seed)",
        ) from None
    if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], dict)):
        raise DataError(
            "env.reset must return an observation and a dict of information",
            f"{answer!r:.80} at step {step}",
            "return observation, {}: environments of the old Gym API return the observation alone",
        )
    return answer[0]


def _step(env: Any, action: Any, step: int) -> tuple[Any, Any, Any, Any, Any]:
    """Step an environment and return its five answers."""
    try:
        answer = env.step(action)
    except ValueError:  # perhaps of a wrapper that unpacks five values
        answer = env.unwrapped.step(action)
        if isinstance(answer, tuple) and len(answer) == 5:
            raise
    if not (isinstance(answer, tuple) and len(answer) == 5):
        raise DataError(
            "env.step must return five values: observation, reward, terminated, truncated, info",
            f"{len(answer)} values at step {step}" if isinstance(answer, tuple) else f"{answer!r:.80} at step {step}",
            "return terminated and truncated in place of done: four values are the old Gym API",
        )
    return answer


def _autoreset_mode(env: Any) -> str | None:
    """Return what the environment declares; Gymnasium 1.0, which has next-step only, declares nothing."""
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
