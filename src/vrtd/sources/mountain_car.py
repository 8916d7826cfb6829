"""Mountain Car under the uniform random policy, with random Fourier features of its standardised state.

The dynamics are those of Gymnasium's MountainCar-v0, bit for bit in float64 (A. W. Moore, 1990; Sutton and Barto, 2018,
example 10.1). The features approximate a Gaussian kernel (A. Rahimi, B. Recht, 2007).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vrtd.arrays import frozen, real_array
from vrtd.checks import check_count, check_positive
from vrtd.errors import InvalidInputError
from vrtd.kernels.cosine import cosine_of_turns
from vrtd.kernels.jit import dynamics, kernel, specialise
from vrtd.kernels.random import make_streams, uniform_index
from vrtd.sources.simulator import Simulator

__all__ = ["advance", "features_at", "mountain_car", "visited"]

Floats = NDArray[np.float64]

# Gymnasium's constants, and the start: near the lowest point, at rest.
_FORCE, _GRAVITY, _MAX_SPEED = 0.001, 0.0025, 0.07
_MIN_POSITION, _MAX_POSITION, _GOAL = -1.2, 0.6, 0.5
_START = -0.5

# Streams of trajectories that are not runs: purposes that no run has.
_STANDARDISATION, _VISITS = 2, 3
_STANDARDISATION_STEPS = 100_000


class MountainCarParams(NamedTuple):
    gamma: float
    time_limit: float  # steps after which an episode is cut short; inf: never
    mean: Floats  # (2,) of position and velocity under the policy
    std: Floats  # (2,)
    waves: Floats  # (3, d) turns for a standard deviation of position and of velocity, and the phase
    amplitude: float


@dynamics
def advance(position, velocity, action):
    """Position and velocity one step later; actions 0, 1 and 2 push left, not at all, and right."""
    velocity += (float(action) - 1.0) * _FORCE + math.cos(3.0 * position) * (-_GRAVITY)
    velocity = min(max(velocity, -_MAX_SPEED), _MAX_SPEED)
    position = min(max(position + velocity, _MIN_POSITION), _MAX_POSITION)
    if position == _MIN_POSITION and velocity < 0.0:
        velocity = 0.0
    return position, velocity


@dynamics
def mountain_car_reset(params, state, stream):
    state[0] = _START
    state[1] = 0.0
    state[2] = 0.0  # steps since the start


@dynamics
def mountain_car_transition(params, state, stream):
    position, velocity = advance(state[0], state[1], uniform_index(stream, 3))
    steps = state[2] + 1.0
    if position >= _GOAL and velocity >= 0.0:  # a continuing task: this very transition leads back to the start
        position, velocity, steps = _START, 0.0, 0.0
    state[0], state[1], state[2] = position, velocity, steps
    return -1.0, params.gamma, steps >= params.time_limit


@kernel  # not `dynamics`, which is optimised on its own first: inlined, its loop may know how many features there are
def mountain_car_features(params, state, out):
    """sqrt(2/d) cos(w.z + c), z the standardised state"""
    position = (state[0] - params.mean[0]) / params.std[0]
    velocity = (state[1] - params.mean[1]) / params.std[1]
    waves = params.waves
    for i in range(out.size):
        out[i] = params.amplitude * cosine_of_turns(waves[0, i] * position + waves[1, i] * velocity + waves[2, i])


def mountain_car(
    bandwidth: float = 5.0, seed: int = 0, n_features: int = 20, gamma: float = 0.95, time_limit: int | None = None
) -> Simulator:
    """Mountain Car as the VRTD experiments describe it (Xu, Wang, Zhou, Liang 2020): every step costs 1.

    The car starts at (-0.5, 0), pushes left, right or not at all with equal probability, and is put back at the start
    in the transition that reaches the goal, without an end: the value is -1/(1 - gamma) everywhere. With `time_limit`
    (200 in Gymnasium) an episode is cut short after that many steps: the last one bootstraps from the state it reached,
    and the next begins at the start.

    The features sqrt(2/d) cos(w.z + c) approximate the kernel exp(-bandwidth |z - z'|^2): w ~ N(0, 2 bandwidth I) and
    c ~ U[0, 2 pi], drawn in this order with `seed`; z is the state less its mean and divided by its standard
    deviation along 100,000 steps of the same policy, with the same time limit, on a fixed stream.

    >>> car = mountain_car(bandwidth=1.0, seed=3)
    >>> car.n_features, car.params.mean.round(1)
    (20, array([-0.5,  0. ]))
    """
    check_positive("bandwidth", bandwidth)
    check_count("seed", seed, least=0)
    check_count("n_features", n_features)
    discount = real_array("gamma", gamma)
    if discount.ndim or not 0 <= discount < 1:
        raise InvalidInputError("gamma must be a number in [0, 1)", repr(gamma), "pass e.g. 0.95")
    if time_limit is not None:
        check_count("time_limit", time_limit, least=2)
    rng = np.random.default_rng(seed)
    w = rng.normal(scale=math.sqrt(2.0 * bandwidth), size=(n_features, 2))
    c = rng.uniform(0.0, 2.0 * math.pi, size=n_features)
    params = MountainCarParams(
        gamma=float(discount),
        time_limit=math.inf if time_limit is None else float(time_limit),
        mean=frozen(np.zeros(2)),
        std=frozen(np.ones(2)),
        waves=frozen(np.array([*w.T, c]) / (2.0 * math.pi)),
        amplitude=math.sqrt(2.0 / n_features),
    )
    states, _ = _visited(params, np.arange(_STANDARDISATION_STEPS), 0, _STANDARDISATION)
    params = params._replace(mean=frozen(states.mean(axis=0)), std=frozen(states.std(axis=0)))
    kernels = mountain_car_reset, mountain_car_transition, mountain_car_features
    return Simulator("mountain_car", *kernels, n_features=int(n_features), state_size=3, params=params)


def visited(car: Simulator, steps: ArrayLike, seed: int = 0) -> tuple[Floats, Floats]:
    """Positions and velocities before and after some steps of one trajectory, each of shape (len(steps), 2).

    `steps` are counted from 0 and increase. The trajectory is no run's: its stream has a purpose of its own.

    >>> before, after = visited(mountain_car(), np.arange(3))
    >>> before[0], bool((before[1:] == after[:-1]).all())
    (array([-0.5,  0. ]), True)
    """
    _check_car(car)
    places = np.asarray(steps)
    if places.ndim != 1 or places.size == 0 or places.dtype.kind not in "iu" or np.any(np.diff(places, prepend=-1) < 1):
        raise InvalidInputError(
            "steps must be whole numbers of at least 0 that increase", steps, "pass e.g. np.arange(1000)"
        )
    check_count("seed", seed, least=0)
    return _visited(car.params, places, seed, _VISITS)


def features_at(car: Simulator, states: ArrayLike) -> Floats:
    """Features of states, each a position and a velocity, one row for each.

    >>> features_at(mountain_car(), [[-0.5, 0.0], [0.4, 0.01]]).shape
    (2, 20)
    """
    _check_car(car)
    places = real_array("states", states)
    if places.ndim != 2 or places.shape[1] != 2:
        raise InvalidInputError("states must be of shape (n, 2)", places.shape, "pass positions and velocities")
    phi = np.empty((len(places), car.n_features))
    _compiled(describe)(car.params, places, phi)
    return phi


def _check_car(car: Simulator) -> None:
    if not isinstance(car.params, MountainCarParams):
        raise InvalidInputError("car must be a Mountain Car", car.name, "pass mountain_car(...)")


def _visited(params: MountainCarParams, steps: NDArray[Any], seed: int, purpose: int) -> tuple[Floats, Floats]:
    before, after = np.empty((2, steps.size, 2))
    stream = make_streams(seed, np.zeros(1, np.int64), purpose)[0]
    _compiled(follow)(params, stream, steps.astype(np.int64), np.empty(3), before, after)
    return before, after


@cache
def _compiled(template: Callable[..., Any]) -> Callable[..., Any]:
    return specialise(template, f"mountain_car_{template.__name__}", {})


def follow(params, stream, steps, state, before, after):
    i, done = 0, True
    for step in range(steps[-1] + 1):
        if done:
            mountain_car_reset(params, state, stream)
        position, velocity = state[0], state[1]
        _, _, done = mountain_car_transition(params, state, stream)
        if step == steps[i]:
            before[i, 0], before[i, 1] = position, velocity
            after[i, 0], after[i, 1] = state[0], state[1]
            i += 1


def describe(params, states, phi):
    for i in range(phi.shape[0]):
        mountain_car_features(params, states[i], phi[i])
