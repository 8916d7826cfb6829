"""Mountain Car: Gymnasium's dynamics bit for bit, its features, and what happens at the goal and at a time limit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from numba import njit

import vrtd
from tests.helpers.table import ROWS, Row
from tests.helpers.toy_simulator import ring
from tests.reference.sampling import AlgorithmIndex, Sample, words
from vrtd.errors import InvalidInputError
from vrtd.kernels.cosine import cosine_of_turns
from vrtd.kernels.random import ENVIRONMENT, make_streams
from vrtd.problems import mountain_car
from vrtd.problems.mountain_car import features_at, visited
from vrtd.problems.mountain_car_kernels import advance

START = (-0.5, 0.0)
STANDARDISATION, VISITS = 2, 3  # purposes of streams
ON_TRAJECTORIES = [row for row in ROWS if row.id in ("td-markov", "vrtd-algorithm-2")]
each_row = pytest.mark.parametrize("row", ON_TRAJECTORIES, ids=[row.id for row in ON_TRAJECTORIES])
each_limit = pytest.mark.parametrize("limit", [None, 30])


def actions(seed: int, run: int, purpose: int) -> Iterator[int]:
    return (((word >> 32) * 3) >> 32 for word in words(seed, run, purpose))


def step(position: float, velocity: float, action: int) -> tuple[float, float]:
    """Gymnasium's equations in plain Python."""
    velocity += (action - 1) * 0.001 + math.cos(3 * position) * (-0.0025)
    velocity = min(max(velocity, -0.07), 0.07)
    position = min(max(position + velocity, -1.2), 0.6)
    return position, 0.0 if position == -1.2 and velocity < 0 else velocity


def trajectory(limit: int | None, moves: Iterator[int]) -> Iterator[tuple[Any, Any]]:
    """(state, successor) of every step; the goal leads to the start, a cut keeps its last state and goes on from it."""
    state, steps = START, 0
    for action in moves:
        successor, steps = step(*state, action), steps + 1
        if successor[0] >= 0.5 and successor[1] >= 0:
            successor, steps = START, 0
        yield state, successor
        state = successor
        if steps == limit:
            state, steps = START, 0


def fourier(car: vrtd.Simulator, bandwidth: float, seed: int, state: Any) -> Any:
    rng = np.random.default_rng(seed)
    w = rng.normal(size=(car.n_features, 2)) * np.sqrt(2 * bandwidth)
    c = rng.uniform(0, 2 * np.pi, size=car.n_features)
    return np.sqrt(2 / car.n_features) * np.cos(w @ ((state - car.params.mean) / car.params.std) + c)


def car_draw(car: vrtd.Simulator, limit: int | None, moves: Iterator[int]) -> Callable[[], Any]:
    steps = trajectory(limit, moves)

    def draw() -> Any:
        state, successor = next(steps)
        return Sample(fourier(car, 5.0, 0, state), fourier(car, 5.0, 0, successor), -1.0, 0.95)

    return draw


def run(row: Row, car: vrtd.Simulator, **changes: Any) -> vrtd.Result:
    arguments = {"n_runs": 3, "n_gradients": row.n_epochs * row.algorithm.epoch("markov").n_gradients, "seed": 2}
    return vrtd.simulate(car, row.algorithm, **(arguments | {"metrics": ()} | changes))


def test_the_cosine_is_accurate_for_any_number_of_turns() -> None:
    @njit  # type: ignore[untyped-decorator]
    def cosines(turns: Any, out: Any) -> None:
        for i in range(turns.size):
            out[i] = cosine_of_turns(turns[i])

    rng = np.random.default_rng(0)
    turns = np.concatenate([scale * rng.uniform(-1, 1, 100_000) for scale in (0.5, 3, 1600, 1e9)])
    out = np.empty_like(turns)
    cosines(turns, out)
    # Without its whole turns, numpy's cosine is within 4e-16.
    assert np.abs(out - np.cos(2 * np.pi * (turns - np.rint(turns)))).max() < 1e-15
    exact = {0.0: 1.0, 0.25: 0.0, -0.25: 0.0, 0.5: -1.0, 7.0: 1.0, -3.5: -1.0, 1 / 6: 0.5}
    assert [cosine_of_turns(t) for t in exact] == pytest.approx(list(exact.values()), abs=5e-16)


def test_a_long_trajectory_is_gymnasiums_bit_for_bit() -> None:
    n = 150_000
    before, after = visited(mountain_car(), np.arange(n), seed=1)
    env: Any = gymnasium.make("MountainCar-v0").unwrapped
    env.state = START
    n_goals = 0
    for i, action in zip(range(n), actions(1, 0, VISITS), strict=False):
        assert tuple(before[i]) == tuple(env.state)
        _, reward, terminated, truncated, _ = env.step(action)
        assert (reward, truncated) == (-1.0, False)
        if terminated:
            env.state = START
            n_goals += 1
        assert tuple(after[i]) == tuple(env.state)
    assert n_goals > 0


def test_every_branch_of_the_dynamics_is_gymnasiums() -> None:
    rng = np.random.default_rng(0)
    env: Any = gymnasium.make("MountainCar-v0").unwrapped
    seen = set()
    places = rng.uniform(-1.2, 0.6, 6000), rng.uniform(-1.2, -1.1, 2000), rng.uniform(0.45, 0.6, 2000)
    for position in np.concatenate(places):
        velocity, action = rng.uniform(-0.07, 0.07), int(rng.integers(3))
        env.state = (position, velocity)
        _, _, terminated, _, _ = env.step(action)
        p, v = advance(position, velocity, action)
        assert (p, v) == tuple(env.state) == step(position, velocity, action)
        assert terminated == (p >= 0.5 and v >= 0)
        seen |= {("left wall", p == -1.2, v == 0), ("right wall", p == 0.6), ("speed", abs(v) == 0.07)}
        seen |= {("goal", p >= 0.5, terminated)}
    assert seen >= {("left wall", True, True), ("right wall", True), ("speed", True), ("goal", True, False)}


@each_limit
@each_row
def test_the_compiled_loop_moves_the_car_bit_for_bit(row: Row, limit: int | None) -> None:
    """Inside the loop, whose own arithmetic may be reordered, through the goal and through cuts."""
    result = run(row, mountain_car(time_limit=limit), n_gradients=140_000)  # whole epochs
    n_returns = 0
    for i in range(3):
        path = trajectory(limit, actions(2, i, ENVIRONMENT))
        for _ in range(int(result.n_samples[-1])):
            n_returns += next(path)[1] == START
        assert tuple(result.state.cursors[i, :2]) == next(path)[0]
    assert (n_returns > 0) == (limit is None)


@each_limit
def test_what_is_visited(limit: int | None) -> None:
    car = mountain_car(time_limit=limit)
    steps = np.array([0, 3, 29, 30, 31, 599, 70_000])
    before, after = visited(car, steps, seed=4)
    path = dict(zip(range(70_001), trajectory(limit, actions(4, 0, VISITS)), strict=False))
    assert [(tuple(b), tuple(a)) for b, a in zip(before, after, strict=True)] == [path[int(t)] for t in steps]
    if limit is not None:
        assert tuple(before[3]) == START
        assert tuple(after[2]) != START


@each_limit
def test_states_are_standardised_along_the_same_policy(limit: int | None) -> None:
    path = trajectory(limit, actions(0, 0, STANDARDISATION))
    states = np.array([next(path)[0] for _ in range(100_000)])
    car = mountain_car(bandwidth=1.0, seed=3, time_limit=limit)
    np.testing.assert_allclose(car.params.mean, states.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(car.params.std, states.std(axis=0), rtol=1e-12)


@pytest.mark.parametrize(("bandwidth", "seed", "d"), [(5.0, 0, 20), (1.0, 4, 20), (20.0, 1, 20), (2, 7, 3)])
def test_features_are_the_formula(bandwidth: float, seed: int, d: int) -> None:
    car = mountain_car(seed, d, bandwidth=bandwidth)
    rng = np.random.default_rng(0)
    states = rng.uniform([-1.2, -0.07], [0.6, 0.07], size=(200, 2))
    expected = [fourier(car, bandwidth, seed, state) for state in states]
    np.testing.assert_allclose(features_at(car, states), expected, rtol=0, atol=1e-13)


def test_features_approximate_the_kernel() -> None:
    car = mountain_car(bandwidth=0.3, n_features=40_000)
    one, two = np.array([-0.5, 0.0]), np.array([-0.2, 0.01])
    z = (one - two) / car.params.std
    phi = features_at(car, [one, two])
    # The mean of 40,000 products, each with a variance of at most 1.
    assert phi[0] @ phi[1] == pytest.approx(np.exp(-0.3 * z @ z), abs=6 / np.sqrt(40_000))


def test_the_goal_is_a_way_back_to_the_start() -> None:
    car = mountain_car(time_limit=5)
    stream = make_streams(0, np.zeros(1, np.int64), ENVIRONMENT)[0]
    state = np.array([0.49, 0.05, 4.0])
    assert car.transition(car.params, state, stream) == (-1.0, 0.95, False)  # the goal, not the limit
    assert state.tolist() == [-0.5, 0.0, 0.0]
    state = np.array([-0.4, 0.05, 4.0])
    assert car.transition(car.params, state, stream) == (-1.0, 0.95, True)  # cut, yet it goes on counting
    assert state[0] > -0.4
    assert state[2] == 5
    car.reset(car.params, state, stream)
    assert state.tolist() == [-0.5, 0.0, 0.0]


@each_limit
@each_row
def test_runs_agree_with_the_transcription(row: Row, limit: int | None) -> None:
    car = mountain_car(time_limit=limit)
    result = run(row, car)
    for i in range(3):
        draw = car_draw(car, limit, actions(2, i, ENVIRONMENT))
        index = AlgorithmIndex(2, i)
        outputs = row.reference(row.algorithm, "markov", draw, index, np.zeros(20), row.n_epochs)
        np.testing.assert_allclose(result.theta[i], outputs[-1], rtol=1e-11, atol=1e-12)


@each_row
def test_variants_share_one_loop_and_threads_change_no_bit(row: Row) -> None:
    from numba.core import event

    one = run(row, mountain_car(), threads=1)
    with event.install_recorder("numba:compile") as recorder:
        two = run(row, mountain_car(), threads=2)
        others = [
            run(row, mountain_car(1, bandwidth=20.0)),
            run(row, mountain_car(2, gamma=0.9, bandwidth=1.0, time_limit=200)),
        ]
    assert not recorder.buffer
    assert two.theta.tobytes() == one.theta.tobytes()
    assert not any(np.allclose(other.theta, one.theta) for other in others)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"bandwidth": 0.0}, "bandwidth must be a positive, finite number, but got 0.0"),
        ({"seed": -1}, "seed must be a whole number of at least 0"),
        ({"n_features": 0}, "n_features must be a whole number of at least 1"),
        ({"gamma": 1.0}, r"gamma must lie in \[0, 1\), but got 1.0. Pass a number such as 0.8"),
        ({"gamma": [0.9, 0.9]}, r"gamma must lie in \[0, 1\)"),
        ({"gamma": "high"}, r"gamma must lie in \[0, 1\), but got 'high'"),
        ({"time_limit": 0}, "time_limit must be a whole number of at least 2"),
    ],
)
def test_bad_cars_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        mountain_car(**arguments)


def test_bad_visits_are_refused() -> None:
    for steps in ([], [3, 3], [-1, 2], [0.5], [[1]]):
        with pytest.raises(InvalidInputError, match="steps must be increasing whole numbers of at least 0"):
            visited(mountain_car(), steps)
    with pytest.raises(InvalidInputError, match="car must be a Mountain Car, but got 'ring'"):
        visited(ring(np.eye(5)), [0])
    with pytest.raises(InvalidInputError, match="car must be a Mountain Car, but got 'ring'"):
        features_at(ring(np.eye(5)), [[0.0, 0.0]])
    with pytest.raises(InvalidInputError, match=r"states must have the shape \(n, 2\), but got \(2,\)"):
        features_at(mountain_car(), [0.0, 0.0])
