"""Mountain Car under the uniform random policy, with random Fourier features of its standardised state."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vrtd.arrays import Floats, frozen, real_array
from vrtd.checks import check_count, check_fraction, check_positive, require
from vrtd.problems.simulator import Simulator

# Purposes of random streams that no run uses.
_STANDARDISATION, _VISITS = 2, 3
_STANDARDISATION_STEPS = 100_000


class MountainCarParams(NamedTuple):
    """Parameters of the compiled functions of Mountain Car."""

    gamma: float
    time_limit: float  # steps after which an episode is truncated, or inf
    mean: Floats  # (2,) mean of position and velocity under the policy
    std: Floats  # (2,) their standard deviations
    waves: Floats  # (3, d) turns per standard deviation of position and of velocity, and the phase
    amplitude: float


def mountain_car(
    seed: int = 0, n_features: int = 20, gamma: float = 0.95, bandwidth: float = 5.0, time_limit: int | None = None
) -> Simulator:
    """Return the Mountain Car of the VRTD paper, with random Fourier features.

    Every step costs 1. The car starts at position -0.5 with velocity 0 and pushes left, right or not at all with equal
    probability. The transition that reaches the goal puts it back at the start and does not terminate, so the value is
    -1/(1 - gamma) everywhere. With ``time_limit``, an episode is truncated after that many steps: the last step
    bootstraps from the state that it reached, and the next one begins at the start.

    Parameters
    ----------
    seed : int, default=0
        Seed of the random features.
    n_features : int, default=20
        Number of random Fourier features.
    gamma : float, default=0.95
        Discount in [0, 1).
    bandwidth : float, default=5.0
        Bandwidth of the kernel that the features approximate. A larger bandwidth separates closer states.
    time_limit : int, optional
        Number of steps after which an episode is truncated. If not given, no episode is truncated. Gymnasium uses 200.

    Returns
    -------
    Simulator
        The environment with its policy and features.

    Notes
    -----
    The features sqrt(2/d) cos(w.z + c) approximate the kernel ``exp(-bandwidth |z - z'|^2)``. The frequencies w ~ N(0,
    2 bandwidth I) and the phases c ~ U[0, 2 pi] are drawn in this order with ``seed``. z is the standardised state: its
    mean and standard deviation are taken from 100,000 steps of the same policy with the same time limit, on a fixed
    stream.

    References
    ----------
    Xu, T., Wang, Z., Zhou, Y., Liang, Y. (2020), Reanalysis of variance reduced temporal difference learning, ICLR.

    Examples
    --------
    >>> car = mountain_car(bandwidth=1.0, seed=3)
    >>> car.n_features, car.params.mean.round(1)
    (20, array([-0.5,  0. ]))
    """
    from vrtd.problems import mountain_car_kernels as kernels

    check_positive("bandwidth", bandwidth)
    check_count("seed", seed, least=0)
    check_count("n_features", n_features)
    check_fraction("gamma", gamma, below_one=True)
    if time_limit is not None:
        check_count("time_limit", time_limit, least=2)
    rng = np.random.default_rng(seed)
    w = rng.normal(scale=math.sqrt(2.0 * bandwidth), size=(n_features, 2))
    c = rng.uniform(0.0, 2.0 * math.pi, size=n_features)
    params = MountainCarParams(
        gamma=float(gamma),
        time_limit=math.inf if time_limit is None else float(time_limit),
        mean=frozen(np.zeros(2)),
        std=frozen(np.ones(2)),
        waves=frozen(np.array([*w.T, c]) / (2.0 * math.pi)),
        amplitude=math.sqrt(2.0 / n_features),
    )
    states, _ = _visited(params, np.arange(_STANDARDISATION_STEPS), 0, _STANDARDISATION)
    params = params._replace(mean=frozen(states.mean(axis=0)), std=frozen(states.std(axis=0)))
    functions = kernels.mountain_car_reset, kernels.mountain_car_transition, kernels.mountain_car_features
    return Simulator("mountain_car", *functions, n_features=int(n_features), state_size=3, params=params)


def push_with_velocity(observation: ArrayLike) -> NDArray[np.int64]:
    """Return the action of Gymnasium's MountainCar-v0 that pushes in the direction of the velocity.

    It adds energy at every step, so the car reaches the goal.

    Parameters
    ----------
    observation : array_like of shape (..., 2)
        Position and velocity. The observations of a vector environment give one action each.

    Returns
    -------
    ndarray of int, shape (...)
        0 (push left) where the velocity is negative, else 2 (push right).

    Examples
    --------
    >>> push_with_velocity([-0.5, -0.01]).item(), push_with_velocity([[-0.5, 0.0], [-0.9, -0.02]])
    (0, array([2, 0]))
    """
    return np.where(np.asarray(observation)[..., 1] < 0.0, 0, 2)


def visited(car: Simulator, steps: ArrayLike, seed: int = 0) -> tuple[Floats, Floats]:
    """Return positions and velocities before and after some steps of one trajectory.

    The trajectory has a random stream of its own and is not one of the runs of ``simulate``.

    Parameters
    ----------
    car : Simulator
        A Mountain Car, as ``mountain_car`` returns it.
    steps : array_like of int, shape (n,)
        The steps to return, counted from 0 and increasing.
    seed : int, default=0
        Seed of the trajectory.

    Returns
    -------
    before, after : ndarray of shape (n, 2)
        Position and velocity before and after each of the steps.

    Examples
    --------
    >>> before, after = visited(mountain_car(), np.arange(3))
    >>> before[0], bool((before[1:] == after[:-1]).all())
    (array([-0.5,  0. ]), True)
    """
    _check_car(car)
    places = np.asarray(steps)
    is_list = places.ndim == 1 and places.size > 0 and places.dtype.kind in "iu"
    require(
        is_list and (np.diff(places, prepend=-1) > 0).all(),
        f"steps must be increasing whole numbers of at least 0, but got {steps!r}.",
        "Pass e.g. np.arange(1000).",
    )
    check_count("seed", seed, least=0)
    return _visited(car.params, places, seed, _VISITS)


def features_at(car: Simulator, states: ArrayLike) -> Floats:
    """Return the features of states, one row per state.

    Parameters
    ----------
    car : Simulator
        A Mountain Car, as ``mountain_car`` returns it.
    states : array_like of shape (n, 2)
        Positions and velocities.

    Returns
    -------
    ndarray of shape (n, d)
        The features.

    Examples
    --------
    >>> features_at(mountain_car(), [[-0.5, 0.0], [0.4, 0.01]]).shape
    (2, 20)
    """
    from vrtd.problems.mountain_car_kernels import compile_loop, describe

    _check_car(car)
    places = real_array("states", states)
    is_table = places.ndim == 2 and places.shape[1] == 2
    require(is_table, f"states must have the shape (n, 2), but got {places.shape}.", "Pass positions and velocities.")
    phi = np.empty((len(places), car.n_features))
    compile_loop(describe)(car.params, places, phi)
    return phi


def _check_car(car: Simulator) -> None:
    is_car = isinstance(car.params, MountainCarParams)
    require(is_car, f"car must be a Mountain Car, but got {car.name!r}.", "Pass mountain_car(...).")


def _visited(params: MountainCarParams, steps: NDArray[Any], seed: int, purpose: int) -> tuple[Floats, Floats]:
    from vrtd.kernels.random import make_streams
    from vrtd.problems.mountain_car_kernels import compile_loop, follow

    before, after = np.empty((2, steps.size, 2))
    stream = make_streams(seed, np.zeros(1, np.int64), purpose)[0]
    compile_loop(follow)(params, stream, steps.astype(np.int64), np.empty(3), before, after)
    return before, after
