"""Transitions of a compiled simulator with compiled features. Only the current batch is stored."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from vrtd.kernels.jit import UNBOUND, dynamics, rebind, with_width
from vrtd.kernels.transition import Transition
from vrtd.problems import Simulator
from vrtd.sources.source import Source


def simulator_source(simulator: Simulator) -> Source:
    """Return a source that follows a trajectory of a simulator.

    Parameters
    ----------
    simulator : Simulator
        The simulator.

    Returns
    -------
    Source
        The source.
    """
    size, d, name = int(simulator.state_size), int(simulator.n_features), f"simulator_{simulator.name}"
    reset, draw = _bind(simulator.reset, simulator.transition, simulator.features, size, d)
    return Source(name, simulator.params, reset, draw, simulator_read, d, size + d, np.float64, uses_slots=True)


@cache  # the same kernels must give the same loop, or every call would compile it again
def _bind(reset: Any, transition: Any, features: Any, state_size: int, n_features: int) -> tuple[Any, Any]:
    bindings = {
        "env_reset": reset, "env_transition": transition, "env_features": features,
        "STATE_SIZE": state_size, "FEATURES": n_features,
    }  # fmt: skip
    return dynamics(rebind(simulator_reset, bindings)), dynamics(rebind(simulator_draw, bindings))


# The cursor of a run holds the state and then its features, so features are computed once per state.
env_reset = env_transition = env_features = UNBOUND  # bound to the kernels of the simulator
STATE_SIZE = FEATURES = 1  # bound to its sizes, because a loop of known length has no remainder


def simulator_reset(data, slots, lane, cursor, stream):
    env_reset(data, cursor[:STATE_SIZE], stream)
    env_features(data, cursor[:STATE_SIZE], cursor[STATE_SIZE:])


def simulator_draw(data, slots, lane, slot, cursor, stream):
    state, current = cursor[:STATE_SIZE], cursor[STATE_SIZE:]
    phi = with_width(slots.phi[lane], FEATURES)
    before, after = phi[2 * slot], phi[2 * slot + 1]
    reward, discount, done = env_transition(data, state, stream)
    env_features(data, state, after)
    for i in range(FEATURES):
        before[i] = current[i]
        current[i] = after[i]
    if done:
        env_reset(data, state, stream)
        env_features(data, state, current)
    slots.reward[lane, slot] = reward
    slots.discount[lane, slot] = discount
    slots.carry[lane, slot] = 0.0 if done else discount
    return np.uint64(slot)


@dynamics
def simulator_read(data, slots, lane, handle):
    row = handle << np.uint64(1)
    reward, discount = slots.reward[lane, handle], slots.discount[lane, handle]
    phi = slots.phi[lane]
    return Transition(phi, row, phi, row | np.uint64(1), reward, discount, 1.0, slots.carry[lane, handle])
