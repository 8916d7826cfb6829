"""Transcriptions of methods with traces, and of the forward view that one of them must equal; see td.py."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tests.reference.sampling import Sample
from tests.reference.td import td_error
from vrtd.algorithms._base.schedules import as_schedule


def td_lambda_update(algorithm: Any, t: int, state: Any, x: Sample) -> Any:
    """State: theta, the trace before, and the carry of the sample before."""
    theta, z, c = state
    z = x.weight * (c * algorithm.trace_decay * z + x.phi)
    return theta + as_schedule(algorithm.step_size)(t) * td_error(x, theta) * z, z, x.carry


def true_online_td_update(algorithm: Any, t: int, state: Any, x: Sample) -> Any:
    """As in Sutton and Barto's box, with step size and ratio inside the trace. State: theta, trace, carry, V_old."""
    theta, e, c, old = state
    alpha, rho = as_schedule(algorithm.step_size)(t), x.weight
    decay = rho * c * algorithm.trace_decay
    e = decay * e + alpha * rho * x.phi - alpha * rho * decay * (e @ x.phi) * x.phi
    change = theta @ x.phi - old
    after = theta + (td_error(x, theta) + change) * e - alpha * rho * change * x.phi
    return after, e, x.carry, theta @ x.phi_next


def begin(algorithm: Any, theta: Any) -> Any:
    """The state before the first sample."""
    state = (theta, np.zeros_like(theta), 0.0)
    return state if algorithm.name == "td_lambda" else (*state, 0.0)


def _run(
    update: Callable[..., Any], algorithm: Any, sampling: str, draw: Any, index: Any, theta: Any, n_epochs: int
) -> list[Any]:
    state = begin(algorithm, theta)
    outputs = [theta]
    for t in range(n_epochs):
        state = update(algorithm, t, state, draw())
        outputs.append(state[0])
    return outputs


td_lambda = partial(_run, td_lambda_update)
true_online_td = partial(_run, true_online_td_update)


def online_forward_view(algorithm: Any, samples: list[Sample], theta_0: Any) -> Any:
    """theta after all samples of a trajectory: for each horizon every update anew, with the lambda-return up to there.

    G_k = r_k + gamma_k (v_{k+1} + lambda rho_{k+1} (G_{k+1} - v_{k+1})), where v_{k+1} values the state on arrival with
    the parameter that the horizon k ended with; an update moves by alpha_k rho_k (G_k - theta.phi_k) phi_k.
    """
    schedule, ends = as_schedule(algorithm.step_size), [theta_0]
    for horizon in range(1, len(samples) + 1):
        arrival = [ends[k] @ samples[k].phi_next for k in range(horizon)]
        returns = [0.0] * horizon
        for k in reversed(range(horizon)):
            x, beyond = samples[k], 0.0
            if k + 1 < horizon and not x.ends:
                beyond = algorithm.trace_decay * samples[k + 1].weight * (returns[k + 1] - arrival[k])
            returns[k] = x.reward + x.discount * (arrival[k] + beyond)
        theta = theta_0
        for k in range(horizon):
            x = samples[k]
            theta = theta + schedule(k) * x.weight * (returns[k] - theta @ x.phi) * x.phi
        ends.append(theta)
    return ends[-1]
