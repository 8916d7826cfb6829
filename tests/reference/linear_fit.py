"""Transcriptions of learning with O(d) work per row: one row at a time, with every iterate and gradient kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

import vrtd
from tests.reference.sampling import AlgorithmIndex, Sample, words
from tests.reference.td import td_error
from vrtd.kernels.random import RESERVOIR


class Constants(NamedTuple):
    """Those of the modules `linear_*` of `vrtd.estimator`."""

    first_block: int
    most_blocks: int
    least_to_drop: int
    least_blocks: int
    most_large: float
    decay: float
    caution: float
    capacity: int


def matrix(x: Sample) -> Any:
    return x.weight * np.outer(x.phi, x.discount * x.phi_next - x.phi)


def gradient(x: Sample, theta: Any) -> Any:
    return matrix(x) @ theta + x.weight * x.reward * x.phi


def constant_direction(rows: Sequence[Sample], psis: Any) -> Any:
    """I + s e e^T, which stretches the direction e of w in which phi.w is constant; I if there is none."""
    phi = np.array([x.phi for x in rows])
    found = np.linalg.lstsq(phi, np.ones(len(rows)), rcond=None)[0]
    e = found / np.linalg.norm(found)
    along, usual = np.mean((psis @ e) ** 2), np.mean((psis**2).sum(axis=1)) / len(e)
    others = np.array([x.phi_next for x in rows if x.discount > 0.0])
    is_constant = np.mean((others @ found - 1.0) ** 2) <= 0.01 and along > 1e-8 * usual
    stretch = max(1.0, np.sqrt(usual / along)) - 1.0 if is_constant else 0.0
    return np.eye(len(e)) + stretch * np.outer(e, e)


def sample_inverse(rows: Sequence[Sample], caution: float) -> Callable[[Any], Any]:
    """w that minimises |A w + v|^2 + c w^T S w, S mixed with a multiple of the identity; by the normal equations."""
    n, d = len(rows), len(rows[0].phi)
    is_known = np.any([x.weight * x.phi != 0.0 for x in rows], axis=0)
    psis = np.array([np.where(is_known, x.discount * x.phi_next - x.phi, 0.0) for x in rows])
    T = constant_direction(rows, psis)
    A, S = np.zeros((d, d)), np.zeros((d, d))
    for x, psi in zip(rows, psis @ T, strict=True):
        left = x.weight * x.phi
        A += np.outer(left, psi) / n
        S += (left @ left) * np.outer(psi, psi) / n**2
    share = min(1.0, d / n) ** 2
    mixed = (1.0 - share) * S + share * np.trace(S) / d * np.eye(d)
    return lambda v: T @ np.linalg.solve(A.T @ A + caution * mixed, -A.T @ v)


def excess(rows: Sequence[Sample], caution: float, v: Any, theta: Any, n_rows: int) -> float:
    """By what share the squared error exceeds that of least squares after the correction of the mean gradient v."""
    halves, n, left = (rows[::2], rows[1::2]), len(rows), []
    for half, other in (halves, halves[::-1]):
        w = sample_inverse(half, caution)(v)
        left.append(v + np.mean([matrix(x) @ w for x in other], axis=0))
    noise = np.mean([td_error(x, theta) ** 2 for x in rows])
    C = sum(x.weight**2 * np.outer(x.phi, x.phi) for x in rows) / n
    whitening = np.linalg.inv(C + np.trace(C) / n * np.eye(len(v)))
    return float(n_rows * left[0] @ whitening @ left[1] / (noise * np.trace(whitening @ C)))


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
            dropped = n // self.block // 4
            self.levels = [self.estimate(dropped) for _ in self.levels]
            self.batch_start, self.batch_end = n, n + int((n - self.batch_start) * self.growth)

    def combine(self, vectors: Sequence[Any]) -> Any:
        return sum(h * vector for h, vector in zip(self.h, vectors, strict=True))

    def kept(self) -> list[Sample]:
        return [self.rows[i] for i in reservoir(len(self.rows), self.constants.capacity, self.seed)]

    def choose(self) -> tuple[int, float]:
        """How many blocks to leave out, so that the squared error is least, and the excess of that choice."""
        n = len(self.rows) // self.block
        if n < self.constants.least_to_drop:
            return 0, 0.0
        most = max(1, n - self.constants.least_blocks)
        counts = sorted({1, *(min(max(1, n // k), most) for k in (8, 4, 2))})
        kept, c = self.kept(), self.constants.caution
        g = [np.mean(self.gradients[k * self.block :], axis=0) for k in counts]
        last = np.mean(self.iterates[counts[-1] * self.block :], axis=0)
        theta = last + sample_inverse(kept, c)(g[-1])
        n_rows = [len(self.rows) - k * self.block for k in counts]
        left = [max(0.0, excess(kept, c, v, theta, m)) for v, m in zip(g, n_rows, strict=True)]
        best = int(np.argmin([(1.0 + s) / m for s, m in zip(left, n_rows, strict=True)]))
        return counts[best], left[best]

    def estimate(self, dropped: int | None = None) -> Any:
        first = (self.choose()[0] if dropped is None else dropped) * self.block
        return np.mean(self.iterates[first:], axis=0) + self.inverse()(np.mean(self.gradients[first:], axis=0))

    def block_of_influence(self) -> int:
        n = len(self.rows) // self.block - self.choose()[0]
        return 2 * self.block if self.is_vrtd and n > 2 * self.constants.least_blocks else self.block

    def influence(self) -> Any:
        (dropped, left), theta, inverse, found = self.choose(), self.estimate(), self.inverse(), []
        size = self.block_of_influence()
        for first in range(-(-dropped * self.block // size) * size, len(self.rows) - size + 1, size):
            block = slice(first, first + size)
            found.append(
                np.mean(self.iterates[block], axis=0) + inverse(np.mean(self.gradients[block], axis=0)) - theta
            )
        return np.sqrt(1.0 + left) * np.array(found)

    def inverse(self) -> Callable[[Any], Any]:
        kept = self.kept()
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
