"""Mountain Car under the uniform random policy, with random Fourier features of its standardised state."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vrtd.arrays import Floats, frozen, real_array
from vrtd.checks import check_count, check_positive
from vrtd.errors import InvalidInputError
from vrtd.problems.simulator import Simulator

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


def mountain_car(
    seed: int = 0, n_features: int = 20, gamma: float = 0.95, bandwidth: float = 5.0, time_limit: int | None = None
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
    from vrtd.problems.mountain_car_kernels import (
        mountain_car_features,
        mountain_car_reset,
        mountain_car_transition,
    )

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
    from vrtd.problems.mountain_car_kernels import compiled, describe

    _check_car(car)
    places = real_array("states", states)
    if places.ndim != 2 or places.shape[1] != 2:
        raise InvalidInputError("states must be of shape (n, 2)", places.shape, "pass positions and velocities")
    phi = np.empty((len(places), car.n_features))
    compiled(describe)(car.params, places, phi)
    return phi


def _check_car(car: Simulator) -> None:
    if not isinstance(car.params, MountainCarParams):
        raise InvalidInputError("car must be a Mountain Car", car.name, "pass mountain_car(...)")


def _visited(params: MountainCarParams, steps: NDArray[Any], seed: int, purpose: int) -> tuple[Floats, Floats]:
    from vrtd.kernels.random import make_streams
    from vrtd.problems.mountain_car_kernels import compiled, follow

    before, after = np.empty((2, steps.size, 2))
    stream = make_streams(seed, np.zeros(1, np.int64), purpose)[0]
    compiled(follow)(params, stream, steps.astype(np.int64), np.empty(3), before, after)
    return before, after
