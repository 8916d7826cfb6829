"""Plain transcriptions of least-squares methods: sums, and NumPy's solution of the system at every output."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.reference.sampling import Sample


def sums(samples: list[Sample], trace_decay: float) -> tuple[Any, Any]:
    """Of z (phi - gamma phi')^T and r z over a trajectory."""
    d = len(samples[0].phi)
    A, b, z, carry = np.zeros((d, d)), np.zeros(d), np.zeros(d), 0.0
    for x in samples:
        z = x.weight * (carry * trace_decay * z + x.phi)
        A += np.outer(z, x.phi - x.discount * x.phi_next)
        b += z * x.reward
        carry = x.carry
    return A, b


def scale(samples: list[Sample]) -> float:
    """|phi|^2 + |gamma phi'|^2 of the first sample in which that is not 0."""
    sizes = (float(x.phi @ x.phi + (x.discount * x.phi_next) @ (x.discount * x.phi_next)) for x in samples)
    return next(size for size in sizes if size > 0.0)


def lstd(algorithm: Any, sampling: str, draw: Any, index: Any, theta: Any, n_epochs: int) -> list[Any]:
    """Both of them: the recursive one differs in how it comes to the same."""
    samples = [draw() for _ in range(n_epochs)]
    outputs = [theta]
    for n in range(1, n_epochs + 1):
        A, b = sums(samples[:n], algorithm.trace_decay)
        ridge = algorithm.ridge * scale(samples)
        outputs.append(np.linalg.solve(A + ridge * np.eye(len(theta)), b + ridge * theta))
    return outputs
