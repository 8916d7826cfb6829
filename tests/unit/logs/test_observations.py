"""Observations of every kind of space as arrays, and what features may know of them."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.spaces.utils import flatten, flatten_space

from vrtd.errors import DataError, InvalidInputError
from vrtd.features import ObservationSpace
from vrtd.logs.environment import from_env
from vrtd.logs.observations import layout_of

BOX = spaces.Box(np.array([-1.0, -np.inf], np.float32), np.array([1.0, np.inf], np.float32))
MIXED = spaces.Dict(
    {
        "place": BOX,
        "mode": spaces.Discrete(3, start=5),
        "arms": spaces.Tuple([spaces.MultiBinary(2), spaces.MultiDiscrete([2, 3], start=[0, 1])]),
    }
)
CARDS = spaces.Tuple([spaces.Discrete(32), spaces.Discrete(11), spaces.Dict({"ace": spaces.Discrete(2)})])


class Dealer(gymnasium.Env[Any, Any]):
    """Draws an observation of the space at each step and remembers all; episodes have three steps."""

    action_space = spaces.Discrete(2)

    def __init__(self, space: Any) -> None:
        self.observation_space = deepcopy(space)  # with draws of its own
        self.shown: list[Any] = []
        self.actions: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self.observation_space.seed(seed)
        self.n_steps = 0
        return self._show(), {}

    def step(self, action: Any) -> Any:
        self.actions.append(action)
        self.n_steps += 1
        return self._show(), 1.0, self.n_steps == 3, False, {}

    def _show(self) -> Any:
        self.shown.append(self.observation_space.sample())
        return self.shown[-1]


@pytest.mark.parametrize("space", [MIXED, CARDS])
def test_an_environment_with_parts(space: Any) -> None:
    env, seen = Dealer(space), []

    def policy(observation: Any) -> int:
        assert space.contains(observation)  # as the environment returned it
        seen.append(observation)
        return 1

    log = from_env(env, policy, 7)
    (chunk,) = log.chunks()
    rows = iter(env.shown)
    expected, row = [], next(rows)
    for i in range(7):
        successor = next(rows)
        expected.append((row, successor))
        row = next(rows) if i % 3 == 2 else successor
    for i, pair in enumerate(expected):
        for array, observation in zip((chunk.observations, chunk.next_observations), pair, strict=True):
            if space is CARDS:
                wanted = [observation[0], observation[1], observation[2]["ace"]]
            else:
                wanted = flatten(space, observation)
            np.testing.assert_array_equal(array[i], wanted)
    assert len(seen) == 7
    assert chunk.observations.dtype == (np.int64 if space is CARDS else flatten_space(space).dtype)


@pytest.mark.parametrize("kind", ["SyncVectorEnv", "AsyncVectorEnv"])
@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
@pytest.mark.parametrize("space", [MIXED, CARDS])
def test_a_vector_environment_with_parts(space: Any, mode: str, kind: str) -> None:
    """The rows of each environment are those that it gives alone."""
    if "AutoresetMode" not in vars(gymnasium.vector):
        pytest.skip("Gymnasium 1.0 has one mode")
    batches = []

    def policy(observations: Any) -> Any:
        batches.append(observations)
        return np.zeros(2, int)

    vector: Any = getattr(gymnasium.vector, kind)
    env = vector([lambda: Dealer(space)] * 2, autoreset_mode=mode)
    try:
        log = from_env(env, policy, 24, segment=6)
        (chunk,) = log.chunks()
    finally:
        env.close()
    assert type(batches[0]) is type(space.sample())
    for e in range(2):
        (alone,) = from_env(Dealer(space), lambda observation: 0, 12, seed=e).chunks()
        for name in ("observations", "next_observations", "terminated"):
            values = getattr(chunk, name).reshape(2, 2, 6, *getattr(chunk, name).shape[1:])
            np.testing.assert_array_equal(np.concatenate(values[:, e]), getattr(alone, name))


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (spaces.Discrete(16), ObservationSpace("states", sizes=(16,))),
        (spaces.Discrete(4, start=3), ObservationSpace("states", sizes=(7,))),
        (spaces.Discrete(4, start=-3), ObservationSpace("states")),
        (spaces.MultiDiscrete([3, 4], start=[0, 2]), ObservationSpace("states", sizes=(3, 6))),
        (spaces.MultiBinary(3), ObservationSpace("states", sizes=(2, 2, 2))),
        (BOX, ObservationSpace("box", low=(-1.0, None), high=(1.0, None))),
        (spaces.Box(0, 255, (1, 2), np.uint8), ObservationSpace("box", low=(0.0, 0.0), high=(255.0, 255.0))),
    ],
)
def test_what_is_known_of_a_space(space: Any, expected: ObservationSpace) -> None:
    assert from_env(Dealer(space), "random", 5).space == expected


def test_what_is_known_of_a_space_with_parts() -> None:
    cards = layout_of(CARDS).space
    assert (cards.kind, cards.sizes) == ("states", (32, 11, 2))
    assert cards.names == ("0", "1", "2.ace")
    mixed = layout_of(MIXED).space
    assert mixed.kind == "box"
    flat = flatten_space(MIXED)
    assert mixed.low == tuple(None if np.isinf(value) else value for value in flat.low)
    assert mixed.high == tuple(None if np.isinf(value) else value for value in flat.high)
    assert mixed.names == (
        "arms.0[0]", "arms.0[1]", "arms.1[0]=0", "arms.1[0]=1", "arms.1[1]=1", "arms.1[1]=2", "arms.1[1]=3",
        "mode=5", "mode=6", "mode=7", "place[0]", "place[1]",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Text(3), r"must be Box, .*, or a Dict or Tuple of these, but is Text\(.*. Convert the observations"),
        (spaces.Dict({"a": BOX, "b": spaces.Sequence(BOX)}), "Tuple of these, but is Sequence"),
        (spaces.Graph(BOX, None), "Tuple of these, but is Graph"),
        (spaces.Dict({}), r"The observation space Dict\(\) contains no numbers"),
    ],
)
def test_spaces_without_numbers_are_refused(space: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        layout_of(space)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mode": 8}, "part 'mode' of the observation at step 4 is outside its space: 8"),
        ({"mode": 1.5}, r"Observations must be int64 of shape \(\), .* at step 4 is 1.5"),
        ({"place": np.zeros(3)}, r"Observations must be float32 of shape \(2,\)"),
        ({"arms": ()}, "observation at step 4 lacks the part 'arms.0' of its space"),
    ],
)
def test_observations_that_do_not_fit_their_parts_are_refused(change: dict[str, Any], message: str) -> None:
    observation = MIXED.sample() | change
    with pytest.raises(DataError, match=message):
        layout_of(MIXED).check(observation, 4)
