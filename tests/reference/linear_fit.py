"""Transcriptions of learning with O(d) work per row: one row at a time, with every iterate and gradient kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

import vrtd
from tests.reference.sampling import AlgorithmIndex, Sample, words
from vrtd.kernels.random import RESERVOIR


class Constants(NamedTuple):
    """Those of `vrtd.estimator.linear_fit`."""

    first_block: int
    most_blocks: int
    least_to_drop: int
    most_large: float
    decay: float
    caution: float
    capacity: int


def matrix(x: Sample) -> Any:
    return x.weight * np.outer(x.phi, x.discount * x.phi_next - x.phi)


def gradient(x: Sample, theta: Any) -> Any:
    return matrix(x) @ theta + x.weight * x.reward * x.phi


def sample_inverse(rows: Sequence[Sample], caution: float) -> Callable[[Any], Any]:
    """w that minimises |A w + v|^2 + c w^T S w, S mixed with a multiple of the identity; by the normal equations."""
    n, d = len(rows), len(rows[0].phi)
    is_known = np.any([x.weight * x.phi != 0.0 for x in rows], axis=0)
    A, S = np.zeros((d, d)), np.zeros((d, d))
    for x in rows:
        psi = np.where(is_known, x.discount * x.phi_next - x.phi, 0.0)
        left = x.weight * x.phi
        A += np.outer(left, psi) / n
        S += (left @ left) * np.outer(psi, psi) / n**2
    share = min(1.0, d / n) ** 2
    mixed = (1.0 - share) * S + share * np.trace(S) / d * np.eye(d)
    return lambda v: np.linalg.solve(A.T @ A + caution * mixed, -A.T @ v)


def reservoir(n: int, capacity: int, seed: int) -> list[int]:
    """The rows of a stream of n that are kept, by their places: Algorithm R, with a word for each row."""
    kept, stream = [], words(seed, 0, RESERVOIR)
    for i in range(n):
        place = int((next(stream) >> 11) / 2**53 * (i + 1))
        if i < capacity:
            kept.append(i)
        elif place < capacity:
            kept[place] = i
    return kept


class Run:
    """A run of RichardsonTD, or of VRTD with batches that grow."""

    def __init__(
        self, algorithm: Any, theta: Any, batch: int, growth: float, lowers_step: bool, seed: int, constants: Constants
    ) -> None:
        self.algorithm, self.step, self.lowers_step = algorithm, float(algorithm.step_size), lowers_step
        self.is_vrtd, self.seed, self.constants = isinstance(algorithm, vrtd.VRTD), seed, constants
        self.scales = [1.0] if self.is_vrtd else [2.0**m for m in range(algorithm.levels)]
        self.h = [prod(b / (b - a) for b in self.scales if b != a) for a in self.scales]
        self.levels = [theta.copy() for _ in self.scales]
        self.block, self.batch_start, self.batch_end, self.growth = constants.first_block, 0, batch, growth
        self.rows: list[Sample] = []
        self.iterates: list[Any] = []
        self.gradients: list[Any] = []

    def feed(self, rows: Sequence[Sample]) -> None:
        for x in rows:
            self.take(x)

    def take(self, x: Sample) -> None:
        size = x.weight * (x.phi @ x.phi) * self.step * self.scales[-1]
        if self.lowers_step and size > self.constants.most_large:
            self.step *= 0.999 * self.constants.most_large / size
        gradients = [gradient(x, theta) for theta in self.levels]
        if not self.is_vrtd:  # the anchor of VRTD stays where it is
            self.levels = [
                theta + self.step * scale * g
                for theta, scale, g in zip(self.levels, self.scales, gradients, strict=True)
            ]
        self.rows.append(x)
        self.gradients.append(self.combine(gradients))
        self.iterates.append(self.combine(self.levels))
        n = len(self.rows)
        if n == self.constants.most_blocks * self.block:
            self.block *= 2
            if self.lowers_step and not self.is_vrtd:
                self.step *= self.constants.decay
        if n == self.batch_end:
            self.levels = [self.estimate() for _ in self.levels]
            self.batch_start, self.batch_end = n, n + int((n - self.batch_start) * self.growth)

    def combine(self, vectors: Sequence[Any]) -> Any:
        return sum(h * vector for h, vector in zip(self.h, vectors, strict=True))

    def first_row(self) -> int:
        """The first row that counts: not those of the first block, where there are many."""
        return self.block if len(self.rows) // self.block >= self.constants.least_to_drop else 0

    def estimate(self) -> Any:
        first, inverse = self.first_row(), self.inverse()
        return np.mean(self.iterates[first:], axis=0) + inverse(np.mean(self.gradients[first:], axis=0))

    def influence(self) -> Any:
        theta, inverse, found = self.estimate(), self.inverse(), []
        for first in range(self.first_row(), len(self.rows) - self.block + 1, self.block):
            block = slice(first, first + self.block)
            found.append(
                np.mean(self.iterates[block], axis=0) + inverse(np.mean(self.gradients[block], axis=0)) - theta
            )
        return np.array(found)

    def inverse(self) -> Callable[[Any], Any]:
        kept = [self.rows[i] for i in reservoir(len(self.rows), self.constants.capacity, self.seed)]
        of_sample = sample_inverse(kept, self.constants.caution)
        return (lambda v: self.inner_loop(kept, of_sample, v)) if self.is_vrtd else of_sample

    def inner_loop(self, kept: Sequence[Sample], of_sample: Callable[[Any], Any], v: Any) -> Any:
        """The mean of the iterates of the inner loop that starts at 0, and what is left of their gradients."""
        index, w, iterates, gradients = AlgorithmIndex(self.seed, 0), np.zeros_like(v), [], []
        for _ in range(self.algorithm.n_steps or len(kept)):
            gradients.append(matrix(kept[index(len(kept))]) @ w + v)
            w = w + self.step * gradients[-1]
            iterates.append(w)
        return np.mean(iterates, axis=0) + of_sample(np.mean(gradients, axis=0))
