"""Live environments as logs, on ladders whose every transition is known and on Gymnasium's own."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.ladders import Ladder, Ladders, Row, climbs, rows_of
from vrtd.errors import DataError, InvalidInputError, MissingExtraError
from vrtd.logs.environment import from_env
from vrtd.logs.log import Chunk

MODES = ["NextStep", "SameStep", "Disabled"]
LENGTHS = [[5, -3, 1], [7], [-1, 4], [200]]
HAS_MODES = "AutoresetMode" in vars(gymnasium.vector)


def in_rounds(lengths: list[list[int]], segment: int, n: int, action: int = 0) -> list[Row]:
    """What a vector of ladders must give: `segment` rows of each, round after round."""
    each = [climbs(lengths[e], 10_000.0 * e, n, action) for e in range(len(lengths))]
    rows = [row for k in range(0, n, segment) for ladder in each for row in ladder[k : k + segment]]
    return rows[:n]


def assert_same_bits(left: list[Chunk], right: list[Chunk]) -> None:
    for field in ("observations", "reward", "next_observations", "terminated", "truncated", "action", "starts"):
        ours, theirs = (np.concatenate([getattr(chunk, field) for chunk in chunks]) for chunks in (left, right))
        assert ours.dtype == theirs.dtype
        assert ours.tobytes() == theirs.tobytes()


# One environment


def check_starts(chunks: list[Chunk]) -> int:
    """Return how many episodes begin; the first observation of each ends in 00."""
    starts = np.concatenate([chunk.starts for chunk in chunks if chunk.starts is not None])
    rungs = np.concatenate([chunk.observations[:, 0] for chunk in chunks])
    assert starts.tolist() == (rungs % 100 == 0).tolist()
    return int(starts.sum())


def test_an_episode_ends_with_its_last_observation_and_the_next_starts_afresh() -> None:
    log = from_env(Ladder([3, -2, 1]), lambda observation: 2, 40)
    assert check_starts(list(from_env(Ladder([3, -2, 1]), "random", 40, chunk=7).chunks())) == 20
    assert rows_of(list(log.chunks())) == climbs([3, -2, 1], 0.0, 40, action=2)
    assert log.n_rows == 40
    assert log.segment is None
    assert log.remarks == ()


@given(n=st.integers(1, 50), chunk=st.integers(1, 60))
@settings(max_examples=30, deadline=None)
def test_chunks_are_cut_anywhere_and_are_plain_arrays(n: int, chunk: int) -> None:
    for env in (Ladder([3, -2, 1]), Ladders(LENGTHS, "NextStep")):
        chunks = list(from_env(env, "random", n, chunk=chunk).chunks())
        assert [c.reward.size for c in chunks] == [min(chunk, n - first) for first in range(0, n, chunk)]
        assert_same_bits(chunks, list(from_env(env, "random", n).chunks()))
        for c in chunks:
            assert c.observations.shape == c.next_observations.shape == (c.reward.size, 1)
            assert all(column.flags.c_contiguous for column in c[:5])
            assert [column.dtype for column in c[:5]] == [np.float32, np.float64, np.float32, np.bool_, np.bool_]
            assert c.weight is None


def test_gymnasiums_own_environment_gives_what_a_bare_loop_gives() -> None:
    def lean(observation: Any) -> int:
        return int(observation[2] > 0)

    env = gymnasium.make("CartPole-v1")
    observation, _ = env.reset(seed=7)
    expected = []
    for _ in range(700):
        successor, reward, terminated, truncated, _ = env.step(lean(observation))
        expected.append((observation, reward, successor, terminated, truncated))
        observation = env.reset()[0] if terminated or truncated else successor
    chunks = list(from_env("CartPole-v1", lean, 700, seed=7, chunk=128).chunks())
    columns = [np.array(column) for column in zip(*expected, strict=True)]
    assert columns[3].sum() > 3
    for field, column in enumerate(columns):
        np.testing.assert_array_equal(np.concatenate([chunk[field] for chunk in chunks]), column)


@pytest.mark.parametrize("name", ["CartPole-v1", "FrozenLake-v1", "Pendulum-v1", "MountainCarContinuous-v0"])
def test_every_reading_is_the_same_and_another_seed_is_another(name: str) -> None:
    for env in (name, gymnasium.make(name)):
        log = from_env(env, "random", 400, seed=3)
        once = list(log.chunks())
        assert_same_bits(once, list(log.chunks()))
        other = list(from_env(env, "random", 400, seed=4).chunks())
        assert once[0].observations.tobytes() != other[0].observations.tobytes()


def test_a_vector_of_gymnasiums_reads_the_same_twice() -> None:
    env = gymnasium.make_vec("CartPole-v1", num_envs=3, vectorization_mode="vector_entry_point")
    log = from_env(env, "random", 500, seed=3, segment=8)
    assert_same_bits(list(log.chunks()), list(log.chunks()))
    box = gymnasium.make_vec("Pendulum-v1", num_envs=2, vectorization_mode="sync")
    log = from_env(box, "random", 500, seed=3)
    assert_same_bits(list(log.chunks()), list(log.chunks()))


@pytest.mark.parametrize(
    ("space", "dtype", "action"),
    [
        (gymnasium.spaces.Discrete(4), np.int64, (np.int64, (5,))),
        (gymnasium.spaces.MultiDiscrete([3, 4]), np.int64, None),
        (gymnasium.spaces.MultiBinary(5), np.int8, None),
        (gymnasium.spaces.Box(0, 255, (2, 3), np.uint8), np.uint8, None),
        (gymnasium.spaces.Box(-1, 1, (2, 2), np.float32), np.float32, (np.float64, (5, 4))),
    ],
)
def test_observations_keep_the_type_of_their_space_and_actions_are_numbers(space: Any, dtype: Any, action: Any) -> None:
    class Echo(gymnasium.Env[Any, Any]):
        observation_space = action_space = space

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            space.seed(seed)
            return space.sample(), {}

        def step(self, action: Any) -> Any:
            assert space.contains(action)
            return space.sample(), 0.0, False, False, {}

    for policy in ("random", lambda observation: observation):
        (chunk,) = from_env(Echo(), policy, 5).chunks()
        assert chunk.observations.dtype == chunk.next_observations.dtype == dtype
        assert chunk.observations.shape == (5, *space.shape)
        np.testing.assert_array_equal(chunk.observations[1:], chunk.next_observations[:-1])

        assert (None if chunk.action is None else (chunk.action.dtype, chunk.action.shape)) == action


def test_actions_are_counted_from_0_and_are_those_of_each_step() -> None:
    class Offset(Ladder):
        action_space = gymnasium.spaces.Discrete(3, start=5)

    for env in (Offset([3, -2, 1]), Ladders(LENGTHS, "NextStep"), Ladders(LENGTHS, "SameStep")):
        first = 5 if isinstance(env, Offset) else 0
        chunks = list(from_env(env, "random", 120, chunk=50).chunks())
        actions = np.concatenate([chunk.action for chunk in chunks if chunk.action is not None])
        paid = np.concatenate([chunk.reward - chunk.next_observations[:, 0] for chunk in chunks])
        assert (actions + first).tolist() == paid.tolist()  # a ladder pays the rung it reaches plus the action
        assert set(actions) == {0, 1, 2}


# Several


@pytest.mark.parametrize("mode", [*MODES, None])
@pytest.mark.parametrize(("segment", "n"), [(4, 64), (4, 61), (1, 10), (16, 23)])
def test_no_autoreset_mode_records_a_reset(mode: str | None, segment: int, n: int) -> None:
    log = from_env(Ladders(LENGTHS, mode), lambda batch: np.ones(4, dtype=int), n, segment=segment, chunk=7)
    for _ in range(2):
        assert rows_of(list(log.chunks())) == in_rounds(LENGTHS, segment, n, action=1)
    assert check_starts(list(log.chunks())) >= 4
    assert log.segment == segment
    assert log.remarks == (
        ("the vector environment does not declare its autoreset mode; next-step, Gymnasium's default, is assumed",)
        if mode is None and HAS_MODES
        else ()
    )


@pytest.mark.parametrize("segment", [4, 16])
@pytest.mark.parametrize("kind", ["SyncVectorEnv", "AsyncVectorEnv"])
@pytest.mark.parametrize(
    "mode", [None, *(pytest.param(m, marks=pytest.mark.skipif(not HAS_MODES, reason="Gymnasium 1.0")) for m in MODES)]
)
def test_gymnasiums_own_vectors(kind: str, mode: str | None, segment: int) -> None:
    # In the mode "SameStep" these vectors keep no copy of the last observation: it must be an array of its own.
    makers = [lambda e=e: Ladder(LENGTHS[e], 10_000.0 * e, mode == "SameStep") for e in range(4)]  # type: ignore[misc]
    vector: Any = getattr(gymnasium.vector, kind)
    env = vector(makers, **({} if mode is None else {"autoreset_mode": mode}))
    try:
        log = from_env(env, "random", 100, segment=segment)
        rows = rows_of(list(log.chunks()))
    finally:
        env.close()
    without_rewards = [(row[0], *row[2:]) for row in rows]
    assert without_rewards == [(row[0], *row[2:]) for row in in_rounds(LENGTHS, segment, 100)]


def test_each_vector_environment_has_its_own_mode() -> None:
    """The metadata of Gymnasium's vectors are those of the class of their environments, before version 1.4."""
    env: Any = Ladders(LENGTHS, "SameStep")
    env.autoreset_mode = "SameStep"
    env.metadata["autoreset_mode"] = "Disabled"  # another vector over the same class was made since
    log = from_env(env, lambda batch: np.zeros(4, int), 60, segment=4)
    assert rows_of(list(log.chunks())) == in_rounds(LENGTHS, 4, 60)


def test_environments_far_ahead_skip_steps_between_segments_only() -> None:
    """Every other step of ladder 0 is a reset; ladder 1 never resets and must not fill the memory."""
    log = from_env(Ladders([[1], [10**4]], "NextStep"), "random", 8 * 50, segment=4)
    rows = np.array([row[:3] for row in rows_of(list(log.chunks()))])
    fast = rows[:, 0].reshape(-1, 2, 4)[:, 1]
    assert (np.diff(fast, axis=1) == 1).all()  # no hole in a segment
    between = fast[1:, 0] - fast[:-1, -1]
    assert set(between[:4]) == {1.0}
    assert between.max() > 1
    # Ladder 0 has its 200 rows after 399 steps; by then ladder 1 has given 49 segments and filled 4 more.
    assert log.remarks == (
        f"{399 - (49 + 4) * 4} steps between segments were not recorded, "
        "because their environments were 4 segments ahead of the slowest one",
    )
    assert check_starts(list(from_env(Ladders([[1], [6]], "NextStep"), "random", 8 * 50, segment=4).chunks())) > 200
    lockstep = from_env(Ladders([[1], [10**4]], "SameStep"), lambda batch: np.zeros(2, int), 8 * 50, segment=4)
    assert rows_of(list(lockstep.chunks())) == in_rounds([[1], [10**4]], 4, 8 * 50)
    assert lockstep.remarks == ()


def test_one_environment_in_a_vector_is_one_trajectory() -> None:
    log = from_env(Ladders([[5, -2]], "NextStep"), lambda batch: np.zeros(1, int), 30, segment=4)
    assert log.segment is None
    assert rows_of(list(log.chunks())) == climbs([5, -2], 0.0, 30)


# Where a row comes from


def test_rows_are_located_by_step_and_environment() -> None:
    class Broken(Ladder):
        def step(self, action: Any) -> Any:
            rung, reward, *rest = super().step(action)
            return rung, np.nan if reward == 103.0 else reward, *rest

    chunks = list(from_env(Broken([4]), lambda observation: 0, 20, chunk=5).chunks())
    assert np.isnan(chunks[1].reward[1])
    assert chunks[1].locate is not None
    assert chunks[1].locate("reward", 1) == "step 6 of the environment"

    env = Ladders([[4], [9]], "NextStep")
    env.envs[1] = Broken([9], 98.0)
    chunks = list(from_env(env, lambda batch: np.zeros(2, int), 24, segment=6, chunk=8).chunks())
    bad = [(k, int(i)) for k, c in enumerate(chunks) for i in np.flatnonzero(np.isnan(c.reward))]
    assert bad == [(1, 2)]  # the fifth step of environment 1: row 10
    assert chunks[1].locate is not None
    assert chunks[1].locate("reward", 2) == "step 4 of environment 1"
    assert chunks[2].locate is not None
    assert chunks[2].locate("reward", 0) == "step 12 of environment 0"  # 4 and 9 were resets


# Bad input


@pytest.mark.parametrize(
    ("env", "policy", "changes", "message"),
    [
        ("FrozenLake-v1", "random", {"n_samples": 0}, "n_samples must be a whole number of at least 1"),
        ("FrozenLake-v1", "random", {"seed": -1}, "seed must be a whole number of at least 0"),
        ("FrozenLake-v1", "random", {"chunk": 0}, "chunk must be a whole number of at least 1"),
        ("FrozenLake-v1", "random", {"segment": 0}, "segment must be a whole number of at least 1"),
        (
            "FrozenLake-v1",
            "random",
            {"segment": 8},
            "segment is only for vector environments, but is 8 with a single environment",
        ),
        ("FrozenLakes-v1", "random", {}, r"Gymnasium can make, but got 'FrozenLakes-v1' \(.*\). Register it"),
        ("no_such_module:Thing-v0", "random", {}, "Gymnasium can make, but got 'no_such_module:Thing-v0'"),
        (object(), "random", {}, "env must be a Gymnasium environment, a vector environment or an id, but is <object"),
        ("FrozenLake-v1", "randm", {}, "policy must be one of 'random', but got 'randm'. Did you mean 'random'"),
        ("FrozenLake-v1", np.full((16, 3), 1 / 3), {}, r"policy must have the shape \(S, A\) = \(16, 4\)"),
        ("FrozenLake-v1", np.full((16, 4), 0.3), {}, "Each row of policy must sum to 1"),
        (
            "FrozenLake-v1",
            np.full((16, 4), [1.5, -0.5, 0, 0]),
            {},
            "policy must be non-negative, but got -0.5 at state 0",
        ),
        ("FrozenLake-v1", np.full(16, 4), {}, r"actions must lie in 0..3, but got 4 at state 0"),
        ("FrozenLake-v1", np.full(16, 1.0), {}, r"policy of shape \(S,\) must hold integers, but has dtype float64"),
        ("FrozenLake-v1", np.full((16, 4), np.nan), {}, "policy must be finite, but got nan"),
        ("FrozenLake-v1", None, {}, "policy must be an array of real numbers, but got NoneType"),
        ("CartPole-v1", [0, 1], {}, r"an array needs a Discrete observation space, but the space is Box\("),
    ],
)
def test_bad_arguments_are_refused(env: Any, policy: Any, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        from_env(env, policy, **({"n_samples": 10} | changes))


def test_vectors_need_observations_of_numbers_and_a_known_mode() -> None:
    env: Any = Ladders(LENGTHS, "NextStep")
    env.single_observation_space = gymnasium.spaces.Dict({"a": gymnasium.spaces.Text(3)})
    with pytest.raises(
        InvalidInputError, match=r"or a Dict or Tuple of these, but is Text\(.*Convert the observations"
    ):
        from_env(env, "random", 10)
    env = Ladders(LENGTHS, "Sometimes")
    with pytest.raises(InvalidInputError, match="mode of a vector environment must be NextStep, SameStep or Disabled"):
        from_env(env, "random", 10)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (
            (np.zeros(2), 0.0),
            r"Observations must be float32 of shape \(1,\), .* at step 0 is array\(\[0., 0.\]\)",
        ),
        ((0.0, 0.0), r"Observations must be float32 of shape \(1,\), as in their space"),
        (("a", 0.0), r"Observations must be float32 of shape \(1,\), as in their space"),
        ((np.zeros(1, complex), 0.0), r"Observations must be float32 of shape \(1,\), as in their space"),
        (([[1.0], [1.0, 2.0]], 0.0), r"Observations must be float32 of shape \(1,\), as in their space"),
        ((np.zeros(1), [1.0, 2.0]), r"A reward must be a number, but is \[1.0, 2.0\] at step 0"),
        ((np.zeros(1), "much"), "A reward must be a number, but is 'much' at step 0"),
    ],
)
def test_observations_and_rewards_that_do_not_fit_are_refused(result: Any, message: str) -> None:
    class Broken(Ladder):
        def step(self, action: Any) -> Any:
            return *result, False, False, {}

    with pytest.raises(DataError, match=message):
        list(from_env(Broken([4]), "random", 10).chunks())


class OldStep(Ladder):
    def step(self, action: Any) -> Any:
        rung, reward, terminated, _, info = super().step(action)
        return rung, reward, terminated, info


@pytest.mark.parametrize("wrap", [lambda env: env, lambda env: gymnasium.wrappers.TimeLimit(env, 5)])
def test_steps_of_the_old_gym_are_explained(wrap: Any) -> None:
    """Also where a wrapper unpacks them before."""
    with pytest.raises(
        DataError, match=r"step must return the five values .*, but returned 4 values at step 0. .* instead of done"
    ):
        list(from_env(wrap(OldStep([4])), "random", 10).chunks())


def test_an_error_of_a_step_stays_what_it_is() -> None:
    class Fails(Ladder):
        n_calls = 0

        def step(self, action: Any) -> Any:
            self.n_calls += 1
            if self.n_calls == 3:
                raise ValueError("out of order")
            return super().step(action)

    with pytest.raises(ValueError, match="out of order"):
        list(from_env(Fails([4]), "random", 10).chunks())


@pytest.mark.parametrize("answer", [np.zeros(1, np.float32), (np.zeros(1, np.float32), 3)])
def test_resets_of_the_old_gym_are_explained(answer: Any) -> None:
    class Old(Ladder):
        def reset(self, **options: Any) -> Any:
            super().reset(**options)
            return answer

    with pytest.raises(
        DataError, match=r"reset must return an observation and a dict of information, but returned .* old Gym API"
    ):
        list(from_env(Old([4]), "random", 10).chunks())


def test_a_reset_without_a_seed_is_explained_and_an_error_of_its_own_is_not() -> None:
    class Old(Ladder):
        def reset(self) -> Any:  # type: ignore[override]
            return super().reset()

    class Fails(Ladder):
        def reset(self, **options: Any) -> Any:
            raise TypeError("out of order")

    with pytest.raises(
        DataError, match=r"must accept the argument seed, but is reset\(\). Define reset\(self, seed=None, opt"
    ):
        list(from_env(Old([4]), "random", 10).chunks())
    with pytest.raises(TypeError, match="out of order"):
        list(from_env(Fails([4]), "random", 10).chunks())


def test_fractions_in_a_discrete_space_are_refused() -> None:
    class Broken(Ladder):
        observation_space = gymnasium.spaces.Discrete(1000)  # type: ignore[assignment]

    with pytest.raises(DataError, match=r"int64 of shape \(\)"):
        list(from_env(Broken([4]), "random", 10).chunks())


def test_vector_environments_that_break_their_mode_are_refused() -> None:
    class Silent(Ladders):
        def step(self, actions: Any) -> Any:
            return *super().step(actions)[:4], {}

    with pytest.raises(DataError, match=r'must report the last observation.*info\["final_obs"\] is missing at step 0'):
        list(from_env(Silent(LENGTHS, "SameStep"), "random", 10).chunks())

    class Hasty(Ladders):
        def step(self, actions: Any) -> Any:
            return *super().step(actions)[:4], {"final_obs": self.rungs}

    with pytest.raises(DataError, match=r"mode NextStep must not reset in the step that ends an episode"):
        list(from_env(Hasty(LENGTHS, "NextStep"), "random", 10).chunks())

    class Short(Ladders):
        def step(self, actions: Any) -> Any:
            rungs, reward, *rest = super().step(actions)
            return rungs, reward[:3], *rest

    with pytest.raises(
        DataError, match=r"must return 4 rewards, terminations and truncations, but at step 0 their shapes are \(3,\)"
    ):
        list(from_env(Short(LENGTHS, "NextStep"), "random", 10).chunks())


def test_two_readings_of_one_environment_cannot_be_mixed() -> None:
    log = from_env(Ladder([3]), "random", 10, chunk=2)
    first = log.chunks()
    next(first)
    second = log.chunks()
    next(second)
    with pytest.raises(InvalidInputError, match="A second reading of the environment began before the first one ended"):
        next(first)
    assert len(list(second)) == 4
    log = from_env("FrozenLake-v1", "random", 10, chunk=2)
    for left, right in zip(log.chunks(), log.chunks(), strict=True):
        assert_same_bits([left], [right])


def test_only_environments_made_from_an_id_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Ladder] = []

    class Fails(Ladder):
        def step(self, action: Any) -> Any:
            if self.climb == 2:
                raise RuntimeError("out of order")
            return super().step(action)

    def fake(name: str) -> Ladder:
        opened.append(Fails([3]))
        return opened[-1]

    monkeypatch.setattr(gymnasium, "make", fake)
    log = from_env("Fails-v0", "random", 5)
    assert len(list(log.chunks())) == 1
    with pytest.raises(RuntimeError, match="out of order"):
        list(from_env("Fails-v0", "random", 50).chunks())
    reading = from_env("Fails-v0", "random", 5, chunk=1).chunks()
    next(reading)
    reading.close()  # type: ignore[attr-defined]
    with pytest.raises(InvalidInputError):
        from_env("Fails-v0", [0], 5)
    assert [env.n_closed for env in opened] == [1] * 7
    mine = Ladder([3])
    list(from_env(mine, "random", 5).chunks())
    assert mine.n_closed == 0


def test_gymnasium_is_loaded_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import sys, vrtd.logs.environment, vrtd.problems.environments; print('gymnasium' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'vrtd\[gym\]'"):
        from_env("FrozenLake-v1", "random", 5)
