"""Transcriptions of the methods for a data set: dense, literal, with whole vectors in SAGA's memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests import reference
from tests.reference import Sample
from vrtd.kernels.random import ENVIRONMENT


class Rows:
    """The rows as one run sees them: `gather` walks in order, from a random one on and around; a call draws any."""

    def __init__(self, data: Any, seed: int, run: int) -> None:
        self.samples = list(map(Sample, data.phi, data.phi_next, data.reward, data.discount, data.weight))
        self._words, self.n = reference.words(seed, run, ENVIRONMENT), len(self.samples)
        self.cursor = self.any_row()

    def any_row(self) -> int:
        return ((next(self._words) >> 32) * self.n) >> 32

    def __call__(self) -> Sample:
        return self.samples[self.any_row()]

    def gather(self) -> Sample:
        x = self.samples[self.cursor]
        self.cursor = (self.cursor + 1) % self.n
        return x


def vrtd(algorithm: Any, sampling: str, draw: Rows, index: Any, theta: Any, n_epochs: int) -> list[Any]:
    """Algorithm 2, whose batches are the next rows."""
    return reference.vrtd(algorithm, sampling, draw.gather, index, theta, n_epochs)


def gradients(x: Sample, theta: Any, w: Any) -> Any:
    """Of w.(A_x theta + b_x) - 1/2 (phi.w)^2 in theta and in w, one after the other."""
    A, b = x.weight * np.outer(x.phi, x.discount * x.phi_next - x.phi), x.weight * x.reward * x.phi
    return np.array([A.T @ w, A @ theta + b - np.outer(x.phi, x.phi) @ w])


def mean_gradients(batch: Any, theta: Any, w: Any) -> Any:
    return np.mean([gradients(x, theta, w) for x in batch], axis=0)


def signed_steps(algorithm: Any) -> Any:
    """Down in theta, up in w."""
    return np.array([[-algorithm.step_size], [algorithm.step_size_w]])


def primal_dual(algorithm: Any, sampling: str, draw: Rows, index: Any, theta: Any, n_epochs: int) -> list[Any]:
    z = np.array([theta, np.zeros_like(theta)])
    outputs = [z[0]]
    for _ in range(n_epochs):
        z = z + signed_steps(algorithm) * mean_gradients(draw.samples, *z)
        outputs.append(z[0])
    return outputs


def anchored(algorithm: Any, draw: Rows, index: Any, theta: Any, n_epochs: int, sizes: Any, stops: bool) -> list[Any]:
    """SVRG and its variants; `sizes` are those of the batches."""
    anchor = np.array([theta, np.zeros_like(theta)])
    outputs = [anchor[0]]
    for _ in range(n_epochs):
        batch = [draw.gather() for _ in range(next(sizes))]
        g = mean_gradients(batch, *anchor)
        n_steps = len(batch) * algorithm.steps_per_row if stops else algorithm.n_steps or draw.n
        chosen = index(n_steps) if stops else n_steps - 1
        z, iterates = anchor, []
        for _ in range(n_steps):
            x = batch[index(len(batch))] if stops else draw()
            z = z + signed_steps(algorithm) * (gradients(x, *z) - gradients(x, *anchor) + g)
            iterates.append(z)
        anchor = iterates[chosen]
        outputs.append(anchor[0])
    return outputs


def growing(algorithm: Any, n: int) -> Any:
    size = algorithm.batch_size
    while True:
        yield min(size, n)
        size = max(size + 1, int(algorithm.growth * size)) if size < n else n


def svrg(algorithm: Any, sampling: str, draw: Rows, index: Any, theta: Any, n_epochs: int) -> list[Any]:
    return anchored(algorithm, draw, index, theta, n_epochs, iter([draw.n] * n_epochs), stops=False)


def batching_svrg(algorithm: Any, sampling: str, draw: Rows, index: Any, theta: Any, n_epochs: int) -> list[Any]:
    return anchored(algorithm, draw, index, theta, n_epochs, growing(algorithm, draw.n), stops=False)


def scsg(algorithm: Any, sampling: str, draw: Rows, index: Any, theta: Any, n_epochs: int) -> list[Any]:
    """All steps are taken, and one of the iterates at random is returned."""
    return anchored(algorithm, draw, index, theta, n_epochs, growing(algorithm, draw.n), stops=True)


def saga_path(algorithm: Any, draw: Rows, theta: Any, n_steps: int) -> Any:
    """(z, memory) after 0, 1, ... steps; memory is (n, 2, d), the last gradients of each row."""
    z, memory = np.array([theta, np.zeros_like(theta)]), np.zeros((draw.n, 2, theta.size))
    yield z, memory
    for _ in range(n_steps):
        i = draw.any_row()
        new = gradients(draw.samples[i], *z)
        z = z + signed_steps(algorithm) * (new - memory[i] + memory.mean(axis=0))
        memory[i] = new
        yield z, memory


def saga(algorithm: Any, sampling: str, draw: Rows, index: Any, theta: Any, n_epochs: int) -> list[Any]:
    return [z[0] for z, _ in saga_path(algorithm, draw, theta, n_epochs)]
