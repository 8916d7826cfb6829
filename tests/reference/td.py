"""Plain transcriptions of TD and VRTD: slow, literal, independent.

Each transcription in this folder takes the algorithm's hyperparameters, the sampling, `draw()` -> the next `Sample`,
`index(n)` -> the next index from the algorithm's own stream, theta_0 and a number of epochs. It returns the outputs
after 0, 1, ..., n_epochs epochs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.reference.sampling import Sample
from vrtd.algorithms._base.schedules import as_schedule


def pseudo_gradient(x: Sample, theta: Any) -> Any:
    """g_x(theta) = weight phi (r + gamma phi'.theta - phi.theta)"""
    return x.weight * x.phi * td_error(x, theta)


def td_error(x: Sample, theta: Any) -> Any:
    return x.reward + x.discount * (x.phi_next @ theta) - x.phi @ theta


def project(theta: Any, radius: float | None) -> Any:
    norm = np.linalg.norm(theta)
    return theta if radius is None or norm <= radius else theta * (radius / norm)


def td(algorithm: Any, sampling: str, draw: Any, index: Any, theta: Any, n_epochs: int) -> list[Any]:
    """Equation (1)."""
    schedule = as_schedule(algorithm.step_size)
    outputs, iterates = [theta], []
    for t in range(n_epochs):
        theta = project(theta + schedule(t) * pseudo_gradient(draw(), theta), algorithm.radius)
        iterates.append(theta)
        outputs.append(np.mean(iterates, axis=0) if algorithm.average else theta)
    return outputs


def vrtd(algorithm: Any, sampling: str, draw: Any, index: Any, anchor: Any, n_epochs: int) -> list[Any]:
    """Algorithm 1 (i.i.d. samples) and Algorithm 2 (Markovian samples)."""
    M, alpha = algorithm.batch_size, algorithm.step_size
    inner = algorithm.inner or ("fresh" if sampling == "iid" else "resample")
    outputs = [anchor]
    for _ in range(n_epochs):
        batch = [draw() for _ in range(M)]
        g = sum(pseudo_gradient(x, anchor) for x in batch) / M
        chosen = index(M) if algorithm.output == "random" else M - 1
        theta, iterates = anchor, []
        for _ in range(M):
            if M == 1:  # no inner sample: the difference below is zero whatever x is
                x = batch[index(1)]
            else:
                x = draw() if inner == "fresh" else batch[index(M)]
            theta = theta + alpha * (pseudo_gradient(x, theta) - pseudo_gradient(x, anchor) + g)
            theta = project(theta, algorithm.radius)
            iterates.append(theta)
        anchor = np.mean(iterates, axis=0) if algorithm.output == "average" else iterates[chosen]
        outputs.append(anchor)
    return outputs
