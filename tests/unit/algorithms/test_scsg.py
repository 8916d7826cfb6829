"""SCSG and random subsets: every outcome of a small budget, the laws of what is drawn, and where it converges.

One family of random tests, with `N_TESTS` statistics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise, permutations, product
from typing import Any, ClassVar

import numpy as np
import pytest

import vrtd
from tests.helpers.statistics import chi_square_is_fine, z_limit, z_scores
from tests.reference.batch import Rows, inner_steps
from vrtd.algorithms import Epoch
from vrtd.errors import InvalidInputError
from vrtd.kernels.random import ENVIRONMENT, geometric, make_streams, uniform_index
from vrtd.sources.data_set import data_set_choose, data_set_source
from vrtd.sources.source import make_slots

N_TESTS = 3 + 4 + 2  # chi-squares, means of parameters, differences of errors
THREE = vrtd.Transitions(
    [[1.0], [0.6], [-0.5]], [1.0, -0.5, 2.0], [[0.3], [1.0], [0.8]], [0.9, 0.0, 0.7], [1.0, 1.5, 0.5]
)
ALGORITHM = vrtd.SCSG(0.4, 0.3, batch_size=2)
BUDGET = 6

Law = Callable[[int], float]  # P(N = k)


@pytest.fixture(scope="module")
def data() -> vrtd.Transitions:
    return vrtd.record(vrtd.problems.random_mdp(seed=0), n_rows=60, seed=1)


def simulate(data: vrtd.Transitions, algorithm: Any, n_gradients: int, n_runs: int) -> Any:
    return vrtd.simulate(data, algorithm, n_runs=n_runs, n_gradients=n_gradients, seed=5, checkpoints=1).theta


# Every outcome


def geometric_law(k: int) -> float:
    return (2 / 3) ** (k - 1) / 3


def outcomes(law: Law, own_rows: bool, anchor: Any, left: int) -> Iterator[tuple[float, float]]:
    """(theta, probability) of all that may happen with so many pseudo-gradients, and batches of two of three rows."""
    rows = Rows(THREE, 0, 0).samples
    longest = max(left - 2, 0)
    yield float(anchor[0, 0]), 1.0 - sum(law(k) for k in range(1, longest + 1))
    for k in range(1, longest + 1):
        for batch in combinations(rows, 2):
            inner = batch if own_rows else rows
            for path in product(inner, repeat=k):
                end = inner_steps(ALGORITHM, anchor, list(batch), path)[-1]
                share = law(k) / 3 / len(inner) ** k
                for theta, probability in outcomes(law, own_rows, end, left - 2 - k):
                    yield theta, share * probability


def is_explained(theta: Any, law: Law = geometric_law, own_rows: bool = False) -> bool:
    """Whether runs end where they may, as often as they should."""
    probability: dict[float, float] = {}
    for value, share in outcomes(law, own_rows, np.zeros((2, 1)), BUDGET):
        probability[round(value, 10)] = probability.get(round(value, 10), 0.0) + share
    values = np.array(sorted(probability))
    place = np.abs(theta[:, None] - values).argmin(axis=1)
    if np.abs(theta - values[place]).max() > 1e-9:
        return False
    counts = np.bincount(place, minlength=values.size)
    return chi_square_is_fine(counts, np.array([probability[value] for value in values]), N_TESTS)


def test_every_outcome_of_a_small_budget() -> None:
    """One epoch of one to four steps, two of one step each, or none: with a planted bug in the law of the number of
    steps (uniform, with the same mean), and in the rows of inner steps (those of the batch)."""
    theta = simulate(THREE, ALGORITHM, BUDGET, 100_000)[:, 0]
    assert is_explained(theta)
    assert not is_explained(theta, law=lambda k: 0.2 if k <= 5 else 0.0)
    assert not is_explained(theta, own_rows=True)


# What is drawn


def picks_are_fair(pick: Callable[[Any, int], int]) -> bool:
    """Whether all ordered pairs of five rows come equally often."""
    pairs = {pair: i for i, pair in enumerate(permutations(range(5), 2))}
    stream = make_streams(3, np.arange(1), ENVIRONMENT)[0]
    counts = np.zeros(len(pairs))
    for _ in range(20_000):
        pair = pick(stream, 0), pick(stream, 1)
        if pair not in pairs:
            return False
        counts[pairs[pair]] += 1
    return chi_square_is_fine(counts, np.full(len(pairs), 1 / len(pairs)), N_TESTS)


def test_subsets_are_uniform_and_leave_nothing_behind() -> None:
    data = vrtd.Transitions(np.ones((5, 1)), np.zeros(5), np.ones((5, 1)), 0.5)
    source = data_set_source(data)
    slots = make_slots(source, 2, 1, subset=True)

    def pick(stream: Any, slot: int) -> int:
        row = int(data_set_choose(source.data, slots, 1, slot, 2, stream))
        assert slot == 0 or slots.order.tolist() == [[0, 1, 2, 3, 4]] * 2
        return row

    assert picks_are_fair(pick)
    assert not picks_are_fair(lambda stream, slot: int(uniform_index(stream, 5)))  # with replacement
    assert not picks_are_fair(lambda stream, slot: slot + int(uniform_index(stream, 4)))  # not all are reached


@pytest.mark.parametrize("size", range(1, 8))
def test_a_subset_of_any_size_has_no_row_twice(size: int) -> None:
    source = data_set_source(vrtd.Transitions(np.ones((7, 1)), np.zeros(7), np.ones((7, 1)), 0.5))
    slots, stream = make_slots(source, 1, 1, subset=True), make_streams(0, np.arange(1), ENVIRONMENT)[0]
    for _ in range(50):
        rows = [int(data_set_choose(source.data, slots, 0, i, size, stream)) for i in range(size)]
        assert len(set(rows)) == size
        assert set(rows) <= set(range(7))
        assert slots.order[0].tolist() == list(range(7))


def geometric_is_fine(mean: float) -> bool:
    stream = make_streams(4, np.arange(1), ENVIRONMENT)[0]
    counts = np.bincount([geometric(stream, mean) for _ in range(100_000)], minlength=200)[:200]
    probability = 0.2 * 0.8 ** (np.arange(200.0) - 1.0)
    probability[0] = 0.0
    assert counts[0] == 0
    return chi_square_is_fine(counts[1:], probability[1:], N_TESTS)


def test_the_number_of_steps_is_geometric() -> None:
    assert geometric_is_fine(5.0)
    assert not geometric_is_fine(4.8)


# Where it converges


@dataclass(frozen=True)
class OwnRows(vrtd.SCSG):
    """A planted bug: inner steps are on the rows of the batch."""

    name: ClassVar[str] = "own_rows_scsg"

    def epoch(self, sampling: Any, n_rows: int = 0) -> Epoch:
        return super().epoch(sampling, n_rows)._replace(inner_samples="resample")


def test_the_mean_converges_to_the_solution_of_the_data(data: vrtd.Transitions) -> None:
    runs = {kind: simulate(data, kind(0.1, 0.1, batch_size=6), 40_000, 1000) for kind in (vrtd.SCSG, OwnRows)}
    scores = {kind: np.abs(z_scores(theta, data.theta_star)).max() for kind, theta in runs.items()}
    assert scores[vrtd.SCSG] < z_limit(N_TESTS)
    assert scores[OwnRows] > 2 * z_limit(N_TESTS)


def test_larger_batches_have_a_lower_floor_and_all_rows_have_none(data: vrtd.Transitions) -> None:
    errors = [
        ((simulate(data, vrtd.SCSG(0.1, 0.1, batch_size=size), 200_000, 200) - data.theta_star) ** 2).sum(axis=1)
        for size in (6, 30, 50, 60)
    ]
    for larger, smaller in pairwise(errors[:3]):
        assert z_scores(larger - smaller, 0.0) > z_limit(N_TESTS)
    assert errors[2].min() > 1e-8
    assert errors[3].max() < 1e-20


def test_a_budget_below_the_shortest_epoch_is_refused(data: vrtd.Transitions) -> None:
    with pytest.raises(InvalidInputError, match="n_gradients must be at least 7, the length of one epoch, but got 6"):
        simulate(data, vrtd.SCSG(batch_size=6), 6, 2)
    assert np.any(simulate(data, vrtd.SCSG(batch_size=6), 8, 50) != 0.0)


def test_diverged_runs_end_and_stay_diverged(data: vrtd.Transitions) -> None:
    """Their counts are not numbers any more, and no further epoch begins."""
    arguments: dict[str, Any] = {"sampling": "dataset", "n_runs": 3}
    algorithm = vrtd.SCSG(100.0, 100.0, batch_size=6)
    start = vrtd.simulate(data, algorithm, n_gradients=20_000, **arguments)
    assert np.all(start.diverged_at > 0)
    rest = vrtd.simulate(data, algorithm, n_gradients=20_000, start=start, **arguments)
    assert np.array_equal(rest.diverged_at, start.diverged_at)
    assert np.array_equal(rest.state.environment, start.state.environment)
