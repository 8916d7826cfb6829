"""What the transcriptions run on: transitions, and the random streams of one run in plain Python."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

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
