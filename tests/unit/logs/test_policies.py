"""Policies: whatever names or computes actions, with their laws and with what is not an action."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from tests.helpers.statistics import chi_square_is_fine
from vrtd.errors import DataError, InvalidInputError
from vrtd.logs import policies
from vrtd.logs.environment import from_env
from vrtd.logs.policies import as_policy, load_policy


@pytest.mark.statistical
def test_probabilities_are_followed() -> None:
    pi = np.array([[0.0, 0.5, 0.3, 0.2, 0.0], [0.25, 0.0, 0.0, 0.0, 0.75], [0.0, 0.0, 1.0, 0.0, 0.0]])
    states, actions = gymnasium.spaces.Discrete(3, start=2), gymnasium.spaces.Discrete(5, start=-1)
    actor = as_policy(pi, states, actions)(seed=5)
    drawn = np.array([[actor(s + 2, 0) + 1 for s in range(3)] for _ in range(20_000)])
    batch = as_policy(pi, states, actions, n_envs=3)(seed=6)
    several = np.array([batch(np.array([2, 3, 4]), 0) + 1 for _ in range(20_000)])
    for sample in (drawn, several):
        assert sample.shape == (20_000, 3)
        for s in range(2):
            counts = np.bincount(sample[:, s], minlength=5)
            assert (counts[pi[s] == 0] == 0).all()
            assert chi_square_is_fine(counts[pi[s] > 0], pi[s][pi[s] > 0], 8)
            assert not chi_square_is_fine(counts[pi[s] > 0], np.full((pi[s] > 0).sum(), 1 / (pi[s] > 0).sum()), 8)
        assert (sample[:, 2] == 2).all()


def test_the_largest_uniform_draw_has_an_action_of_positive_probability(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten times 0.1 add up to the largest float below 1, which can be drawn."""

    class Largest:
        def random(self, size: Any) -> Any:
            return np.full(size, 1 - 2.0**-53)

    monkeypatch.setattr(policies, "_generator", lambda seed: Largest())
    row = np.array([[0.1] * 10 + [0.0]])
    assert row.cumsum()[-1] <= 1 - 2.0**-53
    one, many = gymnasium.spaces.Discrete(1), gymnasium.spaces.Discrete(11)
    assert as_policy(row, one, many)(0)(0, 0) == 9
    assert as_policy(row, one, many, 2)(0)(np.zeros(2, int), 0).tolist() == [9, 9]


@pytest.mark.statistical
def test_random_is_uniform() -> None:
    space = gymnasium.spaces.Discrete(4, start=3)
    one, batch = (as_policy("random", None, space, n_envs)(seed=1) for n_envs in (None, 5))
    assert isinstance(one(None, 0), int)
    draws = np.array([one(None, 0) for _ in range(20_000)]) - 3
    several = np.array([batch(None, 0) for _ in range(4_000)]).ravel() - 3
    for sample in (draws, several):
        counts = np.bincount(sample, minlength=4)
        assert counts.shape == (4,)
        assert chi_square_is_fine(counts, np.full(4, 0.25), 8)
        assert not chi_square_is_fine(counts + 1000 * np.eye(4)[3], np.full(4, 0.25), 8)


def test_actions_by_state_and_models_that_predict() -> None:
    lake = gymnasium.make("FrozenLake-v1").unwrapped

    class Model:
        def predict(self, observation: Any) -> Any:
            return np.array(2), None  # as Stable-Baselines does: an array without axes, and a state

    class Plain:
        def predict(self, observation: Any) -> Any:
            return 2

    kinds: list[Any] = [np.full(16, 2), np.eye(4)[np.full(16, 2)], [2] * 16, lambda s: np.int64(2), Model(), Plain()]
    logs = [next(from_env(lake, policy, 300).chunks()) for policy in kinds]
    for log in logs[1:]:
        assert log.observations.tobytes() == logs[0].observations.tobytes()


def test_actions_get_the_type_of_the_space() -> None:
    box = gymnasium.spaces.Box(-0.7, 0.7, (2,), np.float32)
    actor = as_policy(lambda o: [0.7, -0.5], None, box)(0)  # 0.7 in float64 is above 0.7 in float32
    assert actor(None, 0).dtype == np.float32
    assert as_policy(lambda o: np.float64(o) > 0, None, gymnasium.spaces.Discrete(2))(0)(1.0, 0) == 1
    batch = as_policy(lambda o: np.zeros((3, 2)), None, box, 3)(0)(None, 0)
    assert batch.dtype == np.float32
    text = gymnasium.spaces.Text(3)
    assert as_policy(lambda o: "ab", None, text)(0)(None, 0) == "ab"
    pair = gymnasium.spaces.Tuple([gymnasium.spaces.Discrete(2), box])
    assert pair.contains(as_policy("random", None, pair)(0)(None, 0))


DISCRETE, BOX = gymnasium.spaces.Discrete(3), gymnasium.spaces.Box(-1, 1, (2,), np.float32)
OPEN = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
MULTI, BINARY = gymnasium.spaces.MultiDiscrete([2, 3]), gymnasium.spaces.MultiBinary(2)


@pytest.mark.parametrize(
    ("space", "n_envs", "action", "message"),
    [
        (
            DISCRETE,
            None,
            3,
            r"actions of Discrete\(3\), but returned 3 at step 12. Return an integer within the bounds",
        ),
        (DISCRETE, None, -1, "returned -1 at step 12"),
        (DISCRETE, None, 1.0, "returned 1.0 at step 12"),
        (DISCRETE, None, float("nan"), "returned nan at step 12"),
        (DISCRETE, None, None, "returned None at step 12"),
        (DISCRETE, None, "left", "returned 'left' at step 12"),
        (DISCRETE, None, [1], r"returned \[1\] at step 12"),
        (DISCRETE, 2, 1, r"2 actions of Discrete\(3\), but returned 1 at step 12. Return actions of shape \(2,\)"),
        (DISCRETE, 2, np.array([0, 3]), r"returned array\(\[0, 3\]\) at step 12 of environment 1"),
        (BOX, None, [0.0, 1.5], r"actions of Box\(-1.0, 1.0, \(2,\), float32\), but returned \[0.0, 1.5\] at step 12"),
        (
            BOX,
            None,
            [0.0, 1.5],
            r"Return actions of shape \(2,\) within the bounds .*, or pass clip_actions=True to clip",
        ),
        (BOX, 3, [0.0, 0.5], r"Return actions of shape \(3, 2\) .*, one action for each observation of the batch"),
        (BOX, None, [0.0, np.nan], "nan.* at step 12"),
        (BOX, None, 0.0, r"Return actions of shape \(2,\)"),
        (BOX, None, [[0.0], [0.0, 1.0]], "at step 12"),
        (BOX, None, [0.0, 1j], "at step 12"),
        (BOX, 2, np.array([[0.0, 0.0], [np.nan, 0.0]]), "at step 12 of environment 1"),
        (OPEN, None, [np.inf], "inf"),
        (OPEN, None, [1e300], "1e[+]300"),
        (MULTI, None, [1, 3], r"\[1, 3\] at step 12"),
        (BINARY, None, [0, 256], r"\[0, 256\] at step 12"),
        (gymnasium.spaces.Text(2), None, "abcdef", "returned 'abcdef' at step 12. Return elements of the space"),
    ],
)
def test_an_invalid_action_is_named_with_its_step(space: Any, n_envs: int | None, action: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        as_policy(lambda observation: action, None, space, n_envs)(0)(None, 12)


def test_actions_are_clipped_on_request() -> None:
    for n_envs, action in ((None, [3.0, -0.5]), (2, [[3.0, -0.5], [-9.0, 0.0]])):
        clipped = as_policy(lambda o, action=action: action, None, BOX, n_envs, clip_actions=True)(0)(None, 0)
        assert clipped.dtype == np.float32
        np.testing.assert_array_equal(clipped, np.clip(action, -1, 1))
    with pytest.raises(InvalidInputError, match="nan"):
        as_policy(lambda o: [np.nan, 0.0], None, BOX, clip_actions=True)(0)(None, 0)
    with pytest.raises(
        InvalidInputError, match=r"clip_actions needs .* a Box of floats, but the space is Discrete\(3\)"
    ):
        as_policy(lambda o: 1, None, DISCRETE, clip_actions=True)
    with pytest.raises(InvalidInputError, match="clip_actions must be True or False, but got 1"):
        as_policy(lambda o: 1, None, BOX, clip_actions=1)  # type: ignore[arg-type]
    (chunk,) = from_env("Pendulum-v1", lambda o: [9.0 * o[0]], 5, clip_actions=True).chunks()
    assert chunk.n_rows == 5


def test_a_policy_of_one_observation_is_explained_on_a_vector_environment() -> None:
    env = gymnasium.make_vec("CartPole-v1", num_envs=3, vectorization_mode="sync")
    with pytest.raises(
        InvalidInputError, match=r"batch of 3 observations .*, but accepts only a single .*TypeError.*omit n_envs"
    ):
        list(from_env(env, lambda observation: int(observation[2] > 0), 10).chunks())

    def broken(observation: Any) -> Any:
        raise LookupError("no such key")

    with pytest.raises(
        InvalidInputError, match=r"The policy failed at step 0: LookupError: no such key. Fix the policy"
    ):
        list(from_env(env, broken, 10).chunks())


def test_a_policy_that_fails_is_told_with_its_step_and_its_own_error() -> None:
    class Model:
        def predict(self, observation: Any) -> Any:
            if observation:
                raise StopIteration("no\nmore")
            return 2

    def stop(_observation: Any) -> Any:
        raise KeyboardInterrupt

    act = as_policy(Model(), None, DISCRETE)(0)
    assert act(0, 6) == 2
    with pytest.raises(InvalidInputError, match="The policy failed at step 7: StopIteration: no more") as found:
        act(1, 7)
    assert isinstance(found.value.__cause__, StopIteration)
    with pytest.raises(KeyboardInterrupt):
        as_policy(stop, None, DISCRETE)(0)(0, 0)


def test_policies_of_installed_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "agents_of_mine.py").write_text(
        "class Model:\n    def predict(self, observation):\n        return 2, None\n"
        "model = Model()\n\ndef right(observation):\n    return 2\n\nlimit = 3\n"
    )
    (tmp_path / "broken_agents.py").write_text("raise RuntimeError('no licence')\n")
    monkeypatch.syspath_prepend(tmp_path)
    lake = gymnasium.make("FrozenLake-v1").unwrapped
    expected = next(from_env(lake, np.full(16, 2), 50).chunks()).observations
    for name in ("right", "model"):
        assert callable(load_policy(f"agents_of_mine:{name}")) == (name == "right")
        observed = next(from_env(lake, f"agents_of_mine:{name}", 50).chunks()).observations
        np.testing.assert_array_equal(observed, expected)
    for text, message in [
        (
            "agents_of_mine:rihgt",
            "The module agents_of_mine has no policy 'rihgt'. Did you mean 'right'",
        ),
        ("agents_of_mine:limit", "a function of an observation or an object with a method predict, but is 3"),
        ("agents_of_mine:Model", "is the class Model. Name another object, or create an instance"),
        ("agents_of_nobody:right", "agents_of_nobody of the policy cannot be imported: ModuleNotFoundError"),
        ("broken_agents:right", "broken_agents of the policy cannot be imported: RuntimeError: no licence"),
        ("agents_of_mine:", "must be 'random' or have the form package.module:name, but is 'agents_of_mine:'"),
        ("./agents_of_mine.py:right", "must be 'random' or have the form package.module:name"),
        ("agents_of_mine:right()", "must be 'random' or have the form package.module:name"),
    ]:
        with pytest.raises(InvalidInputError, match=message):
            from_env(lake, text, 50)


def test_the_current_folder_is_not_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "agents_of_here.py").write_text("def right(observation):\n    return 2\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInputError, match="agents_of_here of the policy cannot be imported"):
        load_policy("agents_of_here:right")


def test_arrays_need_discrete_spaces() -> None:
    with pytest.raises(InvalidInputError, match="needs a Discrete action space, but the space is Box"):
        as_policy([0, 1], gymnasium.spaces.Discrete(2), BOX)
    with pytest.raises(InvalidInputError, match="needs a Discrete observation space, but the space is Box"):
        as_policy([0, 1], BOX, gymnasium.spaces.Discrete(2))


def test_states_outside_the_space_are_refused() -> None:
    two = gymnasium.spaces.Discrete(2)
    with pytest.raises(DataError, match=r"The observation -1 at step 1 is outside Discrete\(2\)"):
        as_policy([0, 1], two, two)(0)(-1, 1)
    with pytest.raises(DataError, match="The observation 2 at step 7 of environment 1 is outside"):
        as_policy([0, 1], two, two, 3)(0)(np.array([0, 2, 1]), 7)
