"""Compiled parts of Mountain Car: its dynamics, its features, and loops over states.

The dynamics equal those of Gymnasium's MountainCar-v0 bit for bit in float64 (A. W. Moore, 1990; Sutton and Barto,
2018, example 10.1). The features approximate a Gaussian kernel (A. Rahimi, B. Recht, 2007).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from vrtd.kernels.cosine import cosine_of_turns
from vrtd.kernels.jit import dynamics, kernel, specialise
from vrtd.kernels.random import uniform_index

# Gymnasium's constants. The start is at rest near the lowest point.
_FORCE, _GRAVITY, _MAX_SPEED = 0.001, 0.0025, 0.07
_MIN_POSITION, _MAX_POSITION, _GOAL = -1.2, 0.6, 0.5
_START = -0.5


@dynamics
def advance(position, velocity, action):
    """Return position and velocity one step later; actions 0, 1 and 2 push left, not at all, and right."""
    velocity += (float(action) - 1.0) * _FORCE + math.cos(3.0 * position) * (-_GRAVITY)
    velocity = min(max(velocity, -_MAX_SPEED), _MAX_SPEED)
    position = min(max(position + velocity, _MIN_POSITION), _MAX_POSITION)
    if position == _MIN_POSITION and velocity < 0.0:
        velocity = 0.0
    return position, velocity


@dynamics
def mountain_car_reset(params, state, stream):
    """Write the start into ``state``."""
    state[0] = _START
    state[1] = 0.0
    state[2] = 0.0  # steps since the start


@dynamics
def mountain_car_transition(params, state, stream):
    """Move ``state`` one step on and return reward, discount and whether a reset follows."""
    position, velocity = advance(state[0], state[1], uniform_index(stream, 3))
    steps = state[2] + 1.0
    if position >= _GOAL and velocity >= 0.0:  # a continuing task: this transition leads back to the start
        position, velocity, steps = _START, 0.0, 0.0
    state[0], state[1], state[2] = position, velocity, steps
    return -1.0, params.gamma, steps >= params.time_limit


@kernel  # not `dynamics`, which is compiled on its own: once inlined, this loop can use a constant number of features
def mountain_car_features(params, state, out):
    """Write sqrt(2/d) cos(w.z + c), where z is the standardised state."""
    position = (state[0] - params.mean[0]) / params.std[0]
    velocity = (state[1] - params.mean[1]) / params.std[1]
    waves = params.waves
    for i in range(out.size):
        out[i] = params.amplitude * cosine_of_turns(waves[0, i] * position + waves[1, i] * velocity + waves[2, i])


def compile_loop(template: Callable[..., Any]) -> Callable[..., Any]:
    """Compile ``follow`` or ``describe``."""
    return specialise(template, f"mountain_car_{template.__name__}", {})


def follow(params, stream, steps, state, before, after):
    """Write position and velocity before and after some steps of one trajectory."""
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
    """Write the features of states."""
    for i in range(phi.shape[0]):
        mountain_car_features(params, states[i], phi[i])
