"""Plain-Python transcriptions of the papers' boxes, and of the sampling they run on: slow, literal, independent.

Each reference takes the algorithm's hyperparameters, `draw()` -> the next transition, a `Sample`,
`index(n)` -> the next index from the algorithm's own stream, theta_0 and a number of epochs, and returns the outputs
after 0, 1, ..., n_epochs epochs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from vrtd.algorithms._base.schedules import as_schedule
from vrtd.kernels.random import ALGORITHM, ENVIRONMENT, make_streams
from vrtd.sources import Source

MASK = (1 << 64) - 1


class Sample(NamedTuple):
    phi: Any
    phi_next: Any
    reward: float
    discount: float
    weight: float = 1.0
    ends: bool = False  # whether the next sample does not go on from this one, although nothing terminated

    @property
    def carry(self) -> float:
        return 0.0 if self.ends else self.discount


def words(seed: int, run: int, purpose: int) -> Iterator[int]:
    state, increment = (int(word) for word in make_streams(seed, np.array([run]), purpose)[0])
    while True:
        state = (state + increment) & MASK
        z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        yield z ^ (z >> 31)


def uniforms(seed: int, run: int) -> Iterator[float]:
    for word in words(seed, run, ENVIRONMENT):
        yield (word >> 11) / 2**53


class AlgorithmIndex:
    """The algorithm's own draws in one run."""

    def __init__(self, seed: int, run: int) -> None:
        self.words = words(seed, run, ALGORITHM)

    def __call__(self, n: int) -> int:
        return ((next(self.words) >> 32) * n) >> 32

    def geometric(self, success: float) -> int:
        """By inversion: the least k >= 1 with 1 - (1 - success)^k > u."""
        u = (next(self.words) >> 11) / 2**53
        return 1 + int(math.log1p(-u) / math.log1p(-success))


def pick(cells: Any, word: int) -> int:
    own = ((word >> 32) * len(cells)) >> 32
    threshold, alias = int(cells[own]) >> 32, int(cells[own]) & 0xFFFFFFFF
    return own if word & 0xFFFFFFFF < threshold else alias


def chain_draw(source: Source, sampling: str, seed: int, run: int) -> Callable[[], Any]:
    """The transitions of one run, from the alias tables of a chain's source."""
    data, stream = source.data, words(seed, run, ENVIRONMENT)
    state = pick(data.start, next(stream))  # the draw of s_0; independent samples begin after it

    def draw() -> Any:
        nonlocal state
        s = state if sampling == "markov" else pick(data.start, next(stream))
        if source.name.startswith("dense"):
            n, first = int(data.n_states), s << int(data.shift)
            successor = pick(data.cells[first : first + n], next(stream))
            handle = first | successor
        else:
            first, last = int(data.indptr[s]), int(data.indptr[s + 1])
            handle = first + pick(data.cells[first:last], next(stream))
            successor = int(data.successor[handle])
        state = successor
        discount = data.discount[handle] if np.ndim(data.discount) else data.discount
        weight = data.weight[handle] if source.name.startswith("general") else 1.0
        return Sample(data.phi[s], data.phi[successor], data.reward[handle], discount, weight)

    return draw


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
