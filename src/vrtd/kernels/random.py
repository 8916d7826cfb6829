"""Counter-based random streams: SplitMix64, with a different increment for each stream.

The k-th word of a stream is mix(state + k * increment). So a stream is two words, a draw costs a few cycles, and a
stream can be continued at any position. Streams are keyed by (seed, run, purpose) and never depend on threads or
blocks.

G. L. Steele, D. Lea, C. H. Flood (2014), Fast splittable pseudorandom number generators, OOPSLA.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from vrtd.kernels.jit import kernel

ENVIRONMENT, ALGORITHM, RESERVOIR = 0, 1, 2

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FACTOR_1 = np.uint64(0xBF58476D1CE4E5B9)
_FACTOR_2 = np.uint64(0x94D049BB133111EB)
_ALTERNATING = np.uint64(0xAAAAAAAAAAAAAAAA)
_1, _11, _27, _30, _31, _32 = (np.uint64(n) for n in (1, 11, 27, 30, 31, 32))


@kernel
def mix(z):
    """Mix the bits of a word by variant 13 of Stafford's 64-bit finaliser, a bijection."""
    z = (z ^ (z >> _30)) * _FACTOR_1
    z = (z ^ (z >> _27)) * _FACTOR_2
    return z ^ (z >> _31)


@kernel
def next_word(stream):
    """Return 64 random bits."""
    state = stream[0] + stream[1]
    stream[0] = state
    return mix(state)


@kernel
def next_uniform(stream):
    """Return a float64 in [0, 1) with 53 random bits."""
    return np.float64(np.int64(next_word(stream) >> _11)) * (1.0 / 9007199254740992.0)


@kernel
def uniform_index(stream, n):
    """Return an index in {0, ..., n - 1}, uniform up to n / 2**32."""
    return ((next_word(stream) >> _32) * np.uint64(n)) >> _32


@kernel
def geometric(stream, mean):
    """Return a geometric random number of trials, 1, 2, ..., with this mean, which must be above 1."""
    return 1 + np.int64(math.log1p(-next_uniform(stream)) / math.log1p(-1.0 / mean))


def make_streams(seed: int, runs: NDArray[np.int64], purpose: int) -> NDArray[np.uint64]:
    """Return one stream (state, increment) per run, with shape (n_runs, 2)."""
    mix_all = mix.py_func
    base = np.random.SeedSequence(seed, spawn_key=(purpose,)).generate_state(1, np.uint64)
    identity = mix_all(base + (runs.astype(np.uint64) + _1) * _GOLDEN)  # distinct for distinct runs
    increment = mix_all(identity ^ _ALTERNATING) | _1
    # An increment with few changes between neighbouring bits makes a weak sequence (Steele et al., section 5).
    weak = np.bitwise_count(increment ^ (increment >> _1)) < 24
    increment = np.where(weak, increment ^ _ALTERNATING, increment) | _1
    return np.stack([mix_all(identity), increment], axis=1)


def words_of(stream: NDArray[np.uint64], counts: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the words of a stream at these counts, from 0, without drawing the earlier ones."""
    words: NDArray[np.uint64] = mix.py_func(stream[0] + (counts.astype(np.uint64) + _1) * stream[1])
    return words
