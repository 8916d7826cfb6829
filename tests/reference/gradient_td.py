"""Transcriptions of methods with a second vector beside theta, a target or gradient TD's w; see td.py."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tests.reference.sampling import Sample
from tests.reference.td import td_error
from vrtd.algorithms._base.schedules import as_schedule


def target_td_update(algorithm: Any, t: int, state: Any, x: Sample) -> Any:
    """State: theta and the target."""
    theta, target = state
    alpha = as_schedule(algorithm.step_size)(t)
    after = theta + alpha * _towards(x, target, theta)
    if algorithm.update == "average":
        return after, target + alpha * algorithm.mix * (theta - target)
    return after, after if (t + 1) % algorithm.period == 0 else target


def double_td_update(alpha: float, mix: float, state: Any, x: Sample) -> Any:
    """Lee and He's double TD, which is not in the library; state: theta and the target."""
    theta, target = state
    return (
        theta + alpha * (_towards(x, target, theta) + mix * (target - theta)),
        target + alpha * (_towards(x, theta, target) + mix * (theta - target)),
    )


def _towards(x: Sample, bootstrap: Any, own: Any) -> Any:
    return x.weight * (x.reward + x.discount * (x.phi_next @ bootstrap) - x.phi @ own) * x.phi


def gtd_update(algorithm: Any, t: int, state: Any, x: Sample) -> Any:
    theta, w = state
    alpha, beta = as_schedule(algorithm.step_size)(t), as_schedule(algorithm.step_size_w)(t)
    return (
        theta + alpha * x.weight * (x.phi - x.discount * x.phi_next) * (x.phi @ w),
        w + beta * (x.weight * td_error(x, theta) * x.phi - w),
    )


def gtd2_update(algorithm: Any, t: int, state: Any, x: Sample) -> Any:
    theta, w = state
    alpha, beta = as_schedule(algorithm.step_size)(t), as_schedule(algorithm.step_size_w)(t)
    return (
        theta + alpha * x.weight * (x.phi - x.discount * x.phi_next) * (x.phi @ w),
        w + beta * (x.weight * td_error(x, theta) - x.phi @ w) * x.phi,
    )


def tdc_update(algorithm: Any, t: int, state: Any, x: Sample) -> Any:
    theta, w = state
    alpha, beta = as_schedule(algorithm.step_size)(t), as_schedule(algorithm.step_size_w)(t)
    delta = td_error(x, theta)
    return (
        theta + alpha * x.weight * (delta * x.phi - x.discount * x.phi_next * (x.phi @ w)),
        w + beta * (x.weight * delta - x.phi @ w) * x.phi,
    )


def _run(
    update: Callable[..., Any], algorithm: Any, sampling: str, draw: Any, index: Any, theta: Any, n_epochs: int
) -> list[Any]:
    state = (theta, theta if algorithm.name == "target_td" else np.zeros_like(theta))
    outputs = [theta]
    for t in range(n_epochs):
        state = update(algorithm, t, state, draw())
        outputs.append(state[0])
    return outputs


target_td = partial(_run, target_td_update)
gtd = partial(_run, gtd_update)
gtd2 = partial(_run, gtd2_update)
tdc = partial(_run, tdc_update)
