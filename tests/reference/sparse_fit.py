"""Transcription of a fit to sparse rows with dense vectors: one row at a time, with every anchor and gradient kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from tests.reference.linear_fit import gradient, matrix
from tests.reference.sampling import Sample, words
from tests.reference.td import td_error
from vrtd.kernels.random import RESERVOIR


class Constants(NamedTuple):
    """Those of the modules `sparse_*` of `vrtd.estimator`."""

    first_block: int
    most_blocks: int
    least_to_drop: int
    few_epochs: int
    most_epochs: int
    least_steps: int
    solved: float
    capacity: int


def mean_product(rows: Sequence[Sample], w: Any) -> Any:
    """A w, with the mean A over some rows."""
    return np.mean([matrix(x) @ w for x in rows], axis=0)


def is_in(rows: Sequence[Sample]) -> Any:
    """Whether each feature is in some of the rows."""
    return np.any([x.phi != 0.0 for x in rows], axis=0)


def constant(rows: Sequence[Sample]) -> Any:
    """Parameters of features with one nonzero value, whose value is about the same in all rows; 0 if it varies."""
    c = np.zeros_like(rows[0].phi)
    for k in range(len(c)):
        values = {x.phi[k] for x in rows if x.phi[k] != 0.0}
        c[k] = 1.0 / values.pop() if len(values) == 1 else 0.0
    sums = np.array([x.phi @ c for x in rows])
    is_constant = sums.mean() > 0.0 and np.mean((sums / sums.mean() - 1.0) ** 2) <= 0.1
    return c / sums.mean() if is_constant else np.zeros_like(c)


def epochs(rows: Sequence[Sample], v: Any, step: float, n_steps: int, solved: float, c: Any) -> Iterator[Any]:
    """The w of VRTD for A w + v = 0 after each epoch; features that are in no row only move with the constant c."""
    w, n = np.zeros_like(v), len(rows)
    slope = c @ mean_product(rows, c)
    while True:
        if 0.1 / n < -slope < 0.4:
            w = w - c * (c @ (np.where(is_in(rows), v, 0.0) + mean_product(rows, w))) / slope
        g = np.where(is_in(rows), v + mean_product(rows, w), 0.0)
        if np.linalg.norm(g) <= solved * np.linalg.norm(np.where(is_in(rows), v, 0.0)):
            return
        u, iterates = np.zeros_like(v), []
        for t in range(n_steps):
            u = u + step * (matrix(rows[t % n]) @ u + g)
            iterates.append(u)
        w = w + np.mean(iterates[n_steps // 2 :], axis=0)
        yield w


class Run:
    """A run of VRTD with growing batches."""

    def __init__(self, step: float, batch: int, growth: float, theta: Any, seed: int, constants: Constants) -> None:
        self.step, self.growth, self.seed, self.constants = step, growth, seed, constants
        self.anchor, self.batch_start, self.batch_end = theta, 0, batch
        self.rows: list[Sample] = []
        self.anchors: list[Any] = []
        self.gradients: list[Any] = []

    def take(self, x: Sample) -> None:
        n = len(self.rows)
        if n == self.batch_end:
            self.anchor = self.estimate(self.constants.few_epochs)
            self.batch_start, self.batch_end = n, n + int((n - self.batch_start) * self.growth)
        self.rows.append(x)
        self.anchors.append(self.anchor)
        self.gradients.append(gradient(x, self.anchor))

    @property
    def block(self) -> int:
        """Rows per block."""
        size = self.constants.first_block
        while len(self.rows) >= self.constants.most_blocks * size:
            size *= 2
        return size

    @property
    def first(self) -> int:
        """The first row that estimates use."""
        return self.block if len(self.rows) >= self.constants.least_to_drop * self.block else 0

    def kept(self) -> list[Sample]:
        """The rows with the smallest random words."""
        stream = words(self.seed, 0, RESERVOIR)
        order = np.argsort([next(stream) for _ in self.rows], kind="stable")
        return [self.rows[i] for i in order[: self.constants.capacity]]

    def weights(self) -> list[float]:
        """Of each row: the mean of the reciprocal mean squared TD errors at the anchors of its block."""
        kept, square_at, n = self.kept(), {}, len(self.rows)
        for anchor in [*self.anchors, self.anchor]:
            if id(anchor) not in square_at:
                square_at[id(anchor)] = np.mean([(x.weight * td_error(x, anchor)) ** 2 for x in kept])
        now = square_at[id(self.anchor)]
        per_row = [now / square_at[id(anchor)] for anchor in self.anchors]
        blocks = [per_row[k : k + self.block] for k in range(0, n, self.block)]
        return [float(np.mean(block)) for block in blocks for _ in block]

    def mean_gradient(self) -> Any:
        return np.average(self.gradients[self.first :], axis=0, weights=self.weights()[self.first :])

    def epochs(self, v: Any, kept: Sequence[Sample]) -> Iterator[Any]:
        c, n_steps = self.constants, max(self.constants.least_steps, len(self.kept()))
        return islice(epochs(kept, v, self.step, n_steps, c.solved, constant(self.kept())), c.most_epochs)

    def inverse(self, v: Any, n_epochs: int) -> Any:
        kept = self.kept()
        *_, w = islice(self.epochs(v, kept), n_epochs)
        return np.where(is_in(kept), w, self.step * len(kept) * v)

    def estimate(self, n_epochs: int | None = None) -> Any:
        weights = self.weights()[self.first :]
        mean = np.average(self.anchors[self.first :], axis=0, weights=weights)
        return mean + self.inverse(self.mean_gradient(), n_epochs or self.choose()[0])

    def choose(self) -> tuple[int, float, float]:
        """The number of epochs with the least squared error of values, this error, and what is left of gradients."""
        kept, v = self.kept(), self.mean_gradient()
        phi = np.array([x.phi for x in kept])
        pairs = list(zip(self.epochs(v, kept[::2]), self.epochs(v, kept[1::2]), strict=False))
        for n in range(1, len(pairs) + 1):
            errors = []
            for one, other in pairs[:n]:
                last_one, last_other = pairs[n - 1]
                mean, last = phi @ (one + other) / 2.0, phi @ (last_one + last_other) / 2.0
                noise, last_noise = phi @ (one - other) / 2.0, phi @ (last_one - last_other) / 2.0
                bias = np.mean((mean - last) ** 2) - np.mean((noise - last_noise) ** 2)
                errors.append(max(0.0, bias) + np.mean(noise**2))
            best = int(np.argmin(errors)) + 1
            if n >= 2 * best + 2:
                break
        one, other = pairs[n - 1]
        left = v + mean_product(kept[1::2], one), v + mean_product(kept[::2], other)
        in_both = is_in(kept[::2]) & is_in(kept[1::2])
        rest = np.mean((left[0] * left[1] / np.mean(phi**2, axis=0))[in_both])
        share = 1.0
        for w, g in zip((one, other), left, strict=True):
            along, whole = (float(x[in_both] @ w[in_both]) for x in (g, v))
            share *= max(0.0, along) / (whole - along) if whole > along else 1.0
        error = max(errors[best - 1], share * np.mean((phi @ (one + other) / 2.0) ** 2))
        return best, float(error), max(0.0, float(rest))

    def excess(self) -> float:
        """The error of the correction divided by the noise of the values from so many independent rows."""
        (n_epochs, error, rest), kept, theta = self.choose(), self.kept(), self.estimate()
        signs = np.where(np.arange(len(kept)) % 2, -1.0, 1.0)
        noise = [s * x.weight * td_error(x, theta) * x.phi for s, x in zip(signs, kept, strict=True)]
        n = sum(self.weights()[self.first :])
        w = self.inverse(np.sum(noise, axis=0) / np.sqrt(len(kept) * n), n_epochs)
        square = np.mean([(x.weight * td_error(x, theta)) ** 2 for x in kept])
        noise_of_values = np.mean([(x.phi @ w) ** 2 for x in kept])
        least = 1e-8 * np.mean([(x.phi @ theta) ** 2 for x in kept])
        return float(max(error / noise_of_values * (error > least), n * rest / square * (rest > least)))

    def influence(self) -> Any:
        n_epochs, theta, weights, found = self.choose()[0], self.estimate(), self.weights(), []
        starts = range(self.first, len(self.rows) - self.block + 1, self.block)
        mean_weight = np.mean([weights[start] for start in starts])
        for start in starts:
            block = slice(start, start + self.block)
            own = np.mean(self.anchors[block], axis=0) + self.inverse(np.mean(self.gradients[block], axis=0), n_epochs)
            found.append((own - theta) * weights[start] / mean_weight)
        return np.sqrt(1.0 + self.excess()) * np.array(found)
