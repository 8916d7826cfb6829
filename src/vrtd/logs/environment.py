"""Logs of live Gymnasium environments under a policy, which are the same at every reading."""

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
_SEGMENTS_AHEAD = 4  # how far an environment of a vector may run ahead of the slowest one
_UNDECLARED = "the vector environment does not declare its autoreset mode; next-step, Gymnasium's default, is assumed"
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
    """Create a log of transitions of an environment under a policy.

    Parameters
    ----------
    env : Gymnasium environment, vector environment or str
        Environment, or its id for ``gymnasium.make``. Its observation space is Box, Discrete, MultiDiscrete or
        MultiBinary, or a Dict or Tuple of these, which is flattened. An environment that is created from an id is
        closed after each reading. An environment that you pass stays open and allows one reading at a time.
    policy : {'random'}, str, callable, array_like or object
        Policy that chooses the actions. Pass 'random', ``'package.module:name'``, a function of the observation, an
        object with a method ``predict``, or, for Discrete spaces, an array of probabilities (S, A) or actions (S,).
    n_samples : int
        Number of transitions.
    seed : int, default=0
        Seed of the environment and of the random numbers of the policy.
    segment : int, optional
        Number of consecutive steps per environment in the log of a vector environment. If omitted, 64.
    chunk : int, optional
        Number of rows per chunk, which affects only memory. If omitted, 4096, or fewer if they would exceed 16 MiB.
    clip_actions : bool, default=False
        Whether actions of a Box are clipped to its bounds. Otherwise an action outside the bounds is an error.

    Returns
    -------
    EnvironmentLog
        The transitions. Each reading simulates them again, from ``env.reset(seed=seed)``.

    Raises
    ------
    InvalidInputError
        If an argument is invalid or a space is not supported, or, while the log is read, if the policy fails or returns
        an invalid action.
    DataError
        If the environment returns something invalid while the log is read.

    Notes
    -----
    The successor of a step that ends an episode is the last observation before the reset, never the observation after
    it. Actions of a Discrete space are numbered from 0, those of a Box of floats are vectors, and those of other spaces
    are not recorded.

    The rows of a vector environment come in rounds: ``segment`` consecutive steps of environment 0, as many of
    environment 1, and so on, until there are ``n_samples`` rows. A batch whose size is a multiple of ``segment``
    therefore holds whole segments. Resets follow the autoreset mode of the environment and add no rows.

    Messages count calls of ``env.step`` from 0.

    Examples
    --------
    >>> from vrtd.logs import from_env
    >>> log = from_env("FrozenLake-v1", "random", 5, seed=1)
    >>> [chunk.observations.tolist() for chunk in log.chunks()]
    [[0, 0, 0, 0, 1]]
    """
    return EnvironmentLog(env, policy, n_samples, seed, segment, chunk, clip_actions)


@final
class EnvironmentLog(Log):
    """Log of an environment under a policy; see ``from_env``."""

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
                if declared is None and "AutoresetMode" in vars(gym.vector):  # Gymnasium 1.0 has only next-step
                    self._notes = (_UNDECLARED,)
                spaces = live.single_observation_space, live.single_action_space
            elif not isinstance(live, gym.Env):
                raise InvalidInputError(
                    f"env must be a Gymnasium environment, a vector environment or an id, but is {live!r:.80}.",
                    "Pass one of these.",
                )
            elif segment is not None:
                raise InvalidInputError(
                    f"segment is only for vector environments, but is {segment} with a single environment.",
                    "Drop segment.",
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
        self._n_missed = 0  # steps that the last reading did not record

    @property
    def n_rows(self) -> int:
        """Number of transitions."""
        return self._n_samples

    @property
    def space(self) -> ObservationSpace:
        """Description of the observations."""
        return self._layout.space

    def sample_observations(self, n: int) -> NDArray[Any]:
        """Draw observations from their space, always the same ones, to try features before the first step.

        Parameters
        ----------
        n : int
            Number of observations.

        Returns
        -------
        ndarray of shape (n, ...)
            The observations as the log holds them.
        """
        self._observation_space.seed(0)
        return np.stack([self._layout.check(self._observation_space.sample(), 0) for _ in range(n)])

    @property
    def knows_first(self) -> bool:
        """True: the first row follows a reset."""
        return True

    @property
    def segment(self) -> int | None:
        """Number of consecutive rows per environment, or None for a single environment."""
        return None if self._n_envs in (None, 1) else self._segment

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks on the last complete reading."""
        if not self._n_missed:
            return self._notes
        missed = (
            f"{self._n_missed} steps between segments were not recorded, "
            f"because their environments were {_SEGMENTS_AHEAD} segments ahead of the slowest one"
        )
        return (*self._notes, missed)

    def chunks(self) -> Iterator[Chunk]:
        """Simulate the environment from its reset and yield all chunks."""
        self._reading += 1
        reading = self._reading
        with open_environment(self._env) as env:
            act = self._actors(self._seed)
            for chunk in self._read_one(env, act) if self._n_envs is None else self._read_several(env, act):
                yield chunk
                if reading != self._reading and not isinstance(self._env, str):
                    raise InvalidInputError(
                        "A second reading of the environment began before the first one ended.",
                        "Finish one reading before the next, or pass an id, so that each has its own environment.",
                    )

    def _allocate(self, n_rows: int) -> Chunk:
        """Allocate a chunk of ``n_rows`` rows to be written later."""
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
                # Stored before the step, because some environments return the same array every time.
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
                        f"A reward must be a number, but is {reward!r:.80} at step {step}.",
                        "Fix the environment.",
                    ) from None
                rows.terminated[i], rows.truncated[i] = terminated, truncated
                if terminated or truncated:
                    observation = _reset(env, step)
                    row = check(observation, step)
            starts, is_start = np.append(is_start, rows.ends[:-1]), bool(rows.ends[-1])
            yield self._finish(rows._replace(starts=starts), steps, first)

    def _finish(self, rows: Chunk, steps: Sequence[int] | NDArray[np.int64], first: int) -> Chunk:
        """Convert the actions of the rows and attach their steps; ``first`` rows came before these."""
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
        """Yield the segments with the steps of their rows, environment by environment, without end.

        The arrays of a segment are overwritten later. Reset rows are never recorded, so environments that reset often
        deliver fewer rows. The others store their rows in a ring buffer of whole segments. While the ring of an
        environment is full, its steps are not recorded. The gap lies between two segments, never inside one, and its
        time depends only on the other environments.
        """
        n, segment, check = int(env.num_envs), self._segment, self._layout.check
        capacity = _SEGMENTS_AHEAD * segment
        flat = self._allocate(n * capacity)  # ring after ring
        assert flat.starts is not None
        steps = np.empty(n * capacity, dtype=np.int64)  # of the rows
        rings = np.arange(n) * capacity
        n_kept = np.zeros(n, dtype=np.int64)  # rows of each environment so far
        n_yielded = 0  # rows of each that were yielded
        least = most = 0  # upper bounds on the rows in the emptiest and the fullest ring; a step adds at most one
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
            # Stored before the step, because some environments return the same array every time.
            flat.observations[place] = check(observation, step, n)[where]
            action = act(observation, step)
            if flat.action is not None:
                flat.action[place] = action[where]
            flat.starts[place] = is_start[where]
            observation, reward, terminated, truncated, info = _step(env, action, step)
            successors = check(observation, step, n)
            reward, terminated, truncated = np.asarray(reward), np.asarray(terminated), np.asarray(truncated)
            if not reward.shape == terminated.shape == truncated.shape == (n,) or reward.dtype.kind not in "biuf":
                shapes = f"{reward.shape}, {terminated.shape} and {truncated.shape}"
                raise DataError(
                    f"A vector environment must return {n} rewards, terminations and truncations, "
                    f"but at step {step} their shapes are {shapes} and the rewards are {reward.dtype}.",
                    "Fix the environment.",
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
        """Return the next input of the policy and the successors of a step that ended some episodes."""
        last = info.get("final_obs", info.get("final_observation")) if isinstance(info, dict) else None
        if self._mode == _SAME_STEP:
            if last is None:
                raise DataError(
                    "A vector environment that resets in the same step must report the last observation of an "
                    f'episode, but info["final_obs"] is missing at step {step}.',
                    "Use another autoreset mode.",
                )
            successors = successors.copy()
            for e in np.flatnonzero(done):
                successors[e] = self._layout.check(last[e], step)
            return observation, successors
        if last is not None:
            raise DataError(
                f"A vector environment in the mode {self._mode} must not reset in the step that ends an episode, "
                f'but has info["final_obs"] at step {step}.',
                'Set metadata["autoreset_mode"] to the mode that the environment implements.',
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
        """Return the step of row ``row`` of a chunk that follows the first ``first`` rows of the log."""
        if self._n_envs is None:
            return f"step {steps[row]} of the environment"
        return f"step {steps[row]} of environment {(first + row) // self._segment % self._n_envs}"

    @property
    def origin(self) -> str:
        """Name of the environment, number of copies and seed."""
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
        if not lacks:  # another error of the environment
            raise
        raise DataError(
            f"env.reset must accept the argument {lacks[0]}, but is reset({', '.join(parameters)}).",
            "Define reset(self, seed=None, options=None) and call super().reset(seed=seed).",
        ) from None
    if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], dict)):
        raise DataError(
            "env.reset must return an observation and a dict of information, "
            f"but returned {answer!r:.80} at step {step}.",
            "Return observation, {}. Environments with the old Gym API return only the observation.",
        )
    return answer[0]


def _step(env: Any, action: Any, step: int) -> tuple[Any, Any, Any, Any, Any]:
    """Step an environment and return its five results."""
    try:
        answer = env.step(action)
    except ValueError:  # perhaps from a wrapper that unpacks five values
        answer = env.unwrapped.step(action)
        if isinstance(answer, tuple) and len(answer) == 5:
            raise
    if not (isinstance(answer, tuple) and len(answer) == 5):
        result = f"{len(answer)} values" if isinstance(answer, tuple) else f"{answer!r:.80}"
        raise DataError(
            "env.step must return the five values observation, reward, terminated, truncated and info, "
            f"but returned {result} at step {step}.",
            "Return terminated and truncated instead of done. Four values are the old Gym API.",
        )
    return answer


def _autoreset_mode(env: Any) -> str | None:
    """Return the mode that the environment declares, or None, as in Gymnasium 1.0, which has only next-step."""
    # Before Gymnasium 1.4 all vectors of a class share the metadata: the last one created decides.
    declared = getattr(env.unwrapped, "autoreset_mode", None) or env.metadata.get("autoreset_mode")
    if declared is None:
        return None
    mode = str(getattr(declared, "value", declared))
    if mode not in (_NEXT_STEP, _SAME_STEP, _DISABLED):
        raise InvalidInputError(
            f"The autoreset mode of a vector environment must be {_NEXT_STEP}, {_SAME_STEP} "
            f"or {_DISABLED}, but is {declared!r}.",
            'Set metadata["autoreset_mode"] to one of them.',
        )
    return mode
