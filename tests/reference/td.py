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


def richardson_td(algorithm: Any, sampling: str, draw: Any, index: Any, theta: Any, n_epochs: int) -> list[Any]:
    """TD with several steps on the same samples, averaged after the burn-in, and extrapolated to a step of 0."""
    schedule, levels = as_schedule(algorithm.step_size), range(algorithm.levels)
    # The polynomial through the points (step, mean) at 0.
    weights = [np.prod([2.0**k / (2.0**k - 2.0**m) for k in levels if k != m]) for m in levels]
    thetas, iterates, outputs = [theta for _ in levels], [], [theta]
    for t in range(n_epochs):
        x = draw()
        thetas = [each + 2.0**m * schedule(t) * pseudo_gradient(x, each) for m, each in enumerate(thetas)]
        if t >= algorithm.burn_in:
            iterates.append(thetas)
        means = np.mean(iterates, axis=0) if iterates else None
        outputs.append(thetas[0] if means is None else np.tensordot(weights, means, axes=1))
    return outputs


def vrtd(algorithm: Any, sampling: str, draw: Any, index: Any, anchor: Any, n_epochs: int) -> list[Any]:
    """Algorithm 1 (i.i.d. samples) and Algorithm 2 (Markovian samples), and batches that grow."""
    M, alpha = algorithm.batch_size, algorithm.step_size
    inner = algorithm.inner or ("fresh" if sampling == "iid" else "resample")
    output = algorithm.output or ("random" if algorithm.growth is None else "tail")
    outputs = [anchor]
    for _ in range(n_epochs):
        n_steps = min(M, algorithm.n_steps or M)
        batch = [draw() for _ in range(M)]
        g = sum(pseudo_gradient(x, anchor) for x in batch) / M
        chosen = index(n_steps) if output == "random" else n_steps - 1
        theta, iterates = anchor, []
        for _ in range(n_steps):
            if M == 1:  # no inner sample: the difference below is zero whatever x is
                x = batch[index(1)]
            else:
                x = draw() if inner == "fresh" else batch[index(M)]
            theta = theta + alpha * (pseudo_gradient(x, theta) - pseudo_gradient(x, anchor) + g)
            theta = project(theta, algorithm.radius)
            iterates.append(theta)
        means = {"average": iterates, "tail": iterates[n_steps // 2 :]}
        anchor = np.mean(means[output], axis=0) if output in means else iterates[chosen]
        outputs.append(anchor)
        M = int(M * (algorithm.growth or 1.0))
    return outputs
