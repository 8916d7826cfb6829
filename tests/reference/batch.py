"""Transcriptions of the methods for a data set: dense, literal, with whole vectors in SAGA's memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.reference import td
from tests.reference.sampling import Sample, words
from vrtd.kernels.random import ENVIRONMENT


class Rows:
    """The rows as one run sees them: `gather` walks in order, from a random one on and around; `subset` takes some at
    random, without replacement; a call draws any."""

    def __init__(self, data: Any, seed: int, run: int) -> None:
        self.samples = list(map(Sample, data.phi, data.phi_next, data.reward, data.discount, data.weight))
        self._words, self.n = words(seed, run, ENVIRONMENT), len(self.samples)
        self.cursor = self.any_row()

    def any_row(self) -> int:
        return self.index(self.n)

    def index(self, n: int) -> int:
        return ((next(self._words) >> 32) * n) >> 32

    def __call__(self) -> Sample:
        return self.samples[self.any_row()]

    def gather(self) -> Sample:
        x = self.samples[self.cursor]
        self.cursor = (self.cursor + 1) % self.n
        return x

    def subset(self, size: int) -> list[Sample]:
        """The first numbers of a shuffle; all rows are no subset."""
        order = list(range(self.n))
        for i in range(size if size < self.n else 0):
            j = i + self.index(self.n - i)
            order[i], order[j] = order[j], order[i]
        return [self.samples[i] for i in order[:size]]


def vrtd(algorithm: Any, sampling: str, draw: Rows, index: Any, theta: Any, n_epochs: int) -> list[Any]:
    """Algorithm 2, whose batches are the next rows."""
    return td.vrtd(algorithm, sampling, draw.gather, index, theta, n_epochs)


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


def inner_steps(algorithm: Any, anchor: Any, batch: list[Sample], rows: Any) -> list[Any]:
    """The iterates of an epoch of SVRG, a step for each of the `rows`."""
    g, z, iterates = mean_gradients(batch, *anchor), anchor, []
    for x in rows:
        z = z + signed_steps(algorithm) * (gradients(x, *z) - gradients(x, *anchor) + g)
        iterates.append(z)
    return iterates


def growing(algorithm: Any, n: int) -> Any:
    size = algorithm.batch_size
    while True:
        yield min(size, n)
        size = max(size + 1, int(algorithm.growth * size)) if size < n else n


def svrg(algorithm: Any, sampling: str, draw: Rows, index: Any, theta: Any, n_epochs: int) -> list[Any]:
    """All rows are a batch."""
    return anchored(algorithm, draw, theta, n_epochs, iter([draw.n] * n_epochs))


def batching_svrg(algorithm: Any, sampling: str, draw: Rows, index: Any, theta: Any, n_epochs: int) -> list[Any]:
    return anchored(algorithm, draw, theta, n_epochs, growing(algorithm, draw.n))


def anchored(algorithm: Any, draw: Rows, theta: Any, n_epochs: int, sizes: Any) -> list[Any]:
    anchor = np.array([theta, np.zeros_like(theta)])
    outputs = [anchor[0]]
    for _ in range(n_epochs):
        batch = draw.subset(next(sizes))
        anchor = inner_steps(algorithm, anchor, batch, [draw() for _ in range(algorithm.n_steps or draw.n)])[-1]
        outputs.append(anchor[0])
    return outputs


def scsg(algorithm: Any, sampling: str, draw: Rows, index: Any, theta: Any, n_epochs: int) -> list[Any]:
    """The last anchors within budgets of 0, 1, ... times the mean length of an epoch, 2 M + 1 pseudo-gradients."""
    size = min(algorithm.batch_size, draw.n)
    anchor, spent, outputs = np.array([theta, np.zeros_like(theta)]), 0, []
    while len(outputs) <= n_epochs:
        n_steps = index.geometric(1.0 / (size + 1))
        spent += size + n_steps
        while len(outputs) <= n_epochs and len(outputs) * (2 * size + 1) < spent:
            outputs.append(anchor[0])
        batch = draw.subset(size)
        anchor = inner_steps(algorithm, anchor, batch, [draw() for _ in range(n_steps)])[-1]
    return outputs


def growing_scsg(algorithm: Any, sampling: str, draw: Rows, index: Any, theta: Any, n_epochs: int) -> list[Any]:
    """All steps are taken, and one of the iterates at random is returned."""
    anchor, sizes = np.array([theta, np.zeros_like(theta)]), growing(algorithm, draw.n)
    outputs = [anchor[0]]
    for _ in range(n_epochs):
        batch = [draw.gather() for _ in range(next(sizes))]
        n_steps = len(batch) * algorithm.steps_per_row
        chosen = index(n_steps)
        rows = [batch[index(len(batch))] for _ in range(n_steps)]
        anchor = inner_steps(algorithm, anchor, batch, rows)[chosen]
        outputs.append(anchor[0])
    return outputs


def saga_path(algorithm: Any, draw: Rows, theta: Any, n_steps: int) -> Any:
    """(z, memory) after 0, 1, ... steps; memory is (n, 2, d), the last gradients of each row."""
    z = np.array([theta, np.zeros_like(theta)])
    memory = np.array([gradients(x, *z) for x in draw.samples])
    yield z, memory
    for _ in range(n_steps):
        i = draw.any_row()
        new = gradients(draw.samples[i], *z)
        z = z + signed_steps(algorithm) * (new - memory[i] + memory.mean(axis=0))
        memory[i] = new
        yield z, memory


def saga(algorithm: Any, sampling: str, draw: Rows, index: Any, theta: Any, n_epochs: int) -> list[Any]:
    return [z[0] for z, _ in saga_path(algorithm, draw, theta, n_epochs)]
