"""Streams and alias tables: exact where that is possible, chi-square where it is not."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numba import njit

import vrtd
from tests.helpers.statistics import chi_square_is_fine, z_limit
from tests.reference.sampling import words
from vrtd.kernels.random import ALGORITHM, ENVIRONMENT, make_streams, next_uniform, next_word, uniform_index
from vrtd.kernels.sampling import build_alias, pick

DISTRIBUTIONS = {
    "uniform": np.full(7, 1 / 7),
    "skewed": np.array([0.9, 0.05, 0.03, 0.015, 0.004, 0.001]),
    "one": np.array([1.0]),
    "with-zeros": np.array([0.0, 0.5, 0.0, 0.5]),
    "random": np.random.default_rng(0).dirichlet(np.full(50, 0.3)),
    "large": np.random.default_rng(1).dirichlet(np.ones(3001)),
}


@njit
def count_picks(cells: Any, stream: Any, n_draws: int) -> Any:
    counts = np.zeros(cells.size, np.int64)
    for _ in range(n_draws):
        counts[pick(cells, np.uint64(0), np.uint64(cells.size), next_word(stream))] += 1
    return counts


@njit
def draw_uniforms(stream: Any, n: int) -> Any:
    out = np.empty(n)
    for i in range(n):
        out[i] = next_uniform(stream)
    return out


@njit
def draw_indices(stream: Any, n: int, n_draws: int) -> Any:
    counts = np.zeros(n, np.int64)
    for _ in range(n_draws):
        counts[uniform_index(stream, n)] += 1
    return counts


def cells_of(probability: Any) -> Any:
    return build_alias(np.array([0, probability.size]), probability)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_alias_cells_hold_exactly_the_distribution(name: str) -> None:
    """Added up in fractions over the cells, an outcome is off by at most 2**-33 of each cell that names it."""
    probability = DISTRIBUTIONS[name]
    n, total, named = probability.size, [Fraction(0)] * probability.size, np.ones(probability.size)
    for j, cell in enumerate(map(int, cells_of(probability))):
        words = -(-((j + 1) << 32) // n) - -(-(j << 32) // n)  # how many high halves choose this cell
        kept = Fraction(cell >> 32, 1 << 32)
        total[j] += Fraction(words, 1 << 32) * kept
        total[cell & 0xFFFFFFFF] += Fraction(words, 1 << 32) * (1 - kept)
        named[cell & 0xFFFFFFFF] += 1
    assert sum(total) == 1
    error = np.abs(np.array([float(t) for t in total]) - probability)
    assert np.all(error <= named * 2.0**-33 * (1 / n + 2.0**-32) + 1e-15)
    assert all(t == 0 for t, p in zip(total, probability, strict=True) if p == 0)


@pytest.mark.parametrize("name", [name for name in DISTRIBUTIONS if name not in ("one", "with-zeros")])
def test_picks_pass_chi_square(name: str) -> None:
    probability = DISTRIBUTIONS[name]
    counts = count_picks(cells_of(probability), make_streams(0, np.array([3]), ENVIRONMENT)[0], 4_000_000)
    assert chi_square_is_fine(counts, probability, n_tests=len(DISTRIBUTIONS))


def test_chi_square_catches_a_wrong_row() -> None:
    probability = DISTRIBUTIONS["random"]
    wrong = 0.99 * probability + 0.01 * np.roll(probability, 1)
    counts = count_picks(cells_of(wrong), make_streams(0, np.array([3]), ENVIRONMENT)[0], 4_000_000)
    assert not chi_square_is_fine(counts, probability, n_tests=len(DISTRIBUTIONS))


def test_trajectories_visit_transitions_as_often_as_they_should() -> None:
    """The state after two steps from state 7, over many runs: the whole way from the stream to the cursor."""
    problem = vrtd.problems.random_mdp(seed=2)
    result = vrtd.simulate(
        problem, vrtd.TD(), n_runs=400_000, n_gradients=2, initial=7, metrics=(), checkpoints=1, seed=3
    )
    law = (problem.mrp.P @ problem.mrp.P)[7]
    assert chi_square_is_fine(np.bincount(result.state.cursors[:, 0].astype(int), minlength=50), law)


def test_compiled_words_equal_plain_python() -> None:
    stream = make_streams(9, np.array([4]), ALGORITHM)[0]
    expected = words(9, 4, ALGORITHM)
    assert count_picks(np.zeros(1, np.uint64), stream, 5) == [5]
    for _ in range(5):
        next(expected)
    uniform = draw_uniforms(stream, 3)
    assert uniform.tolist() == [(next(expected) >> 11) / 2**53 for _ in range(3)]


def test_streams_differ_by_seed_run_and_purpose() -> None:
    runs = np.arange(20_000)
    streams = [make_streams(seed, runs, purpose) for seed in (0, 1) for purpose in (ENVIRONMENT, ALGORITHM)]
    states = np.concatenate([stream[:, 0] for stream in streams])
    increments = np.concatenate([stream[:, 1] for stream in streams])
    assert np.unique(states).size == states.size
    assert np.unique(increments).size == increments.size
    assert np.all(increments % 2 == 1)
    assert np.bitwise_count(increments ^ (increments >> np.uint64(1))).min() >= 24


def test_no_seed_has_the_streams_of_another_purpose() -> None:
    """Not even one that is 2**32 away, which looks alike to a hash of 32-bit words."""
    states = [make_streams(seed, np.arange(3), p)[0, 0] for seed in (5, 5 + 2**32, 2**64 + 5) for p in (0, 1)]
    assert len(set(states)) == 6


def test_a_stream_does_not_depend_on_the_other_runs() -> None:
    np.testing.assert_array_equal(
        make_streams(3, np.arange(10), ENVIRONMENT)[7:], make_streams(3, np.arange(7, 10), ENVIRONMENT)
    )


def test_words_of_neighbouring_runs_are_uncorrelated() -> None:
    """Products of centred uniforms: across runs, across lags, across purposes."""
    n = 200_000
    environment = draw_uniforms(make_streams(0, np.array([0]), ENVIRONMENT)[0], n) - 0.5
    neighbour = draw_uniforms(make_streams(0, np.array([1]), ENVIRONMENT)[0], n) - 0.5
    algorithm = draw_uniforms(make_streams(0, np.array([0]), ALGORITHM)[0], n) - 0.5
    pairs = [(environment, neighbour), (environment, algorithm), (environment[1:], environment[:-1])]
    pairs += [(environment[1:], neighbour[:-1]), (environment[:-1], neighbour[1:])]

    def score(left: Any, right: Any) -> float:
        return float(abs((left * right).sum()) * 12 / np.sqrt(left.size))

    assert all(score(left, right) < z_limit(len(pairs)) for left, right in pairs)
    assert score(environment, 0.98 * neighbour + 0.02 * environment) > z_limit(len(pairs))  # a planted correlation


@pytest.mark.parametrize("n", [2, 7, 500])
def test_indices_are_uniform(n: int) -> None:
    counts = draw_indices(make_streams(1, np.array([0]), ALGORITHM)[0], n, 1_000_000)
    assert chi_square_is_fine(counts, np.full(n, 1 / n), n_tests=3)
    tilted = np.full(n, 1 / n)
    tilted[0], tilted[-1] = 0.9 / n, 1.1 / n
    assert n == 500 or not chi_square_is_fine(counts, tilted, n_tests=3)  # a planted tilt
