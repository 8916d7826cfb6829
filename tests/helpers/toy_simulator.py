"""A walk on a ring of five states as a compiled simulator: every transition is known, so every bit can be checked."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tests.reference.sampling import Sample
from vrtd.kernels.jit import dynamics
from vrtd.kernels.random import next_uniform
from vrtd.problems import Simulator

N_STATES, LAST = 5, 4


class RingParams(NamedTuple):
    forward: float  # probability of a step forward
    gamma: float
    phi: Any


@dynamics
def ring_reset(params, state, stream):  # type: ignore[no-untyped-def]
    state[0] = np.floor(2.0 * next_uniform(stream))  # starts in 0 or 1


@dynamics
def ring_transition(params, state, stream):  # type: ignore[no-untyped-def]
    """From the last state an episode terminates (and pays 1) or is cut short (and goes on counting)."""
    if state[0] == LAST:
        terminates = next_uniform(stream) < 0.5
        state[0] = 0.0
        return 1.0, (0.0 if terminates else params.gamma), True
    state[0] += 1.0 if next_uniform(stream) < params.forward else 0.0
    return 0.0, params.gamma, False


@dynamics
def ring_features(params, state, out):  # type: ignore[no-untyped-def]
    for i in range(out.size):
        out[i] = params.phi[int(state[0]), i]


def ring(phi: Any, forward: float = 0.6, gamma: float = 0.9, name: str = "ring") -> Simulator:
    params = RingParams(forward, gamma, np.array(phi, float))
    return Simulator(name, ring_reset, ring_transition, ring_features, params.phi.shape[1], 1, params)


def ring_draw(simulator: Simulator, uniforms: Any) -> Any:
    """The same in plain Python."""
    params = simulator.params
    state = int(2.0 * next(uniforms))

    def draw() -> Any:
        nonlocal state
        before = state
        if state == LAST:
            discount = 0.0 if next(uniforms) < 0.5 else params.gamma
            state = int(2.0 * next(uniforms))
            return Sample(params.phi[before], params.phi[0], 1.0, discount, ends=True)
        state += next(uniforms) < params.forward
        return Sample(params.phi[before], params.phi[state], 0.0, params.gamma)

    return draw
