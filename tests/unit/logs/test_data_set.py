"""A whole log as a data set: the rows that the estimator would see, their discounts, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers.some_logs import boyan, chunk, sample
from vrtd.errors import DataError, InvalidInputError
from vrtd.logs import Chunk, Log, data_set, from_arrays
from vrtd.logs.environment import from_env


class Pieces(Log):
    """Chunks in one and the same memory, as logs of environments may have them."""

    def __init__(self, *chunks: Chunk, segment: int | None = None) -> None:
        self._chunks, self._segment = chunks, segment

    def chunks(self) -> Iterator[Chunk]:
        for piece in self._chunks:
            room = Chunk(*(None if values is None else np.array(values) for values in piece[:6]))
            yield room
            for values in room[:6]:
                if values is not None:
                    values[...] = 1

    @property
    def n_rows(self) -> int:
        return sum(piece.n_rows for piece in self._chunks)

    @property
    def segment(self) -> int | None:
        return self._segment


def test_rows_are_those_of_the_log_in_order() -> None:
    log = Pieces(chunk(0, 300), chunk(300, 1000))
    data, s = data_set(log, None, 0.95, seed=None), sample(20_000)
    for ours, theirs in ((data.phi, s.phi), (data.phi_next, s.phi_next), (data.reward, s.reward)):
        np.testing.assert_array_equal(ours, theirs[:1000])
    assert set(data.discount) == {0.95}
    assert set(data.weight) == {1.0}
    assert not data.is_weighted


def test_theta_star_is_the_closed_form_of_the_estimator() -> None:
    rows, _, _ = boyan(2000)
    log = Pieces(rows)
    data = data_set(log, None, 1.0)
    assert (data.discount == 0.0).sum() == rows.terminated.sum() > 0
    evaluator = vrtd.Evaluator(features=None, discount=1.0, algorithm="closed_form").fit(log)
    np.testing.assert_allclose(data.theta_star, evaluator.theta_, rtol=1e-9)


def test_rows_are_shuffled_by_the_seed_and_none_is_lost() -> None:
    log = Pieces(chunk(0, 500))
    plain, mixed, again, other = (data_set(log, None, 0.95, seed=seed) for seed in (None, 0, 0, 1))
    assert mixed.digest == again.digest
    assert len({plain.digest, mixed.digest, other.digest}) == 3
    order = np.random.default_rng(0).permutation(500)
    np.testing.assert_array_equal(mixed.phi, plain.phi[order])
    np.testing.assert_array_equal(mixed.phi_next, plain.phi_next[order])
    np.testing.assert_array_equal(mixed.reward, plain.reward[order])


def test_ends_are_those_of_the_log_in_order_and_everywhere_after_a_shuffle() -> None:
    def ends(*where: int) -> np.ndarray:
        return np.isin(np.arange(50), where)

    first = chunk(0, 30)._replace(terminated=ends(4)[:30], truncated=ends(10, 29)[:30])
    second = chunk(30, 50)._replace(terminated=ends(30)[30:], truncated=ends(30)[30:])
    data = data_set(Pieces(first, second), None, 0.9, seed=None)
    np.testing.assert_array_equal(data.ends, ends(4, 10, 29, 30))
    np.testing.assert_array_equal(data.discount == 0.0, ends(4, 30))
    in_segments = data_set(Pieces(first, second, segment=16), None, 0.9, seed=None)
    np.testing.assert_array_equal(in_segments.ends, ends(4, 10, 15, 29, 30, 31, 47))
    assert data_set(Pieces(first, second), None, 0.9).ends.all()


def test_rows_without_a_weight_count_as_one_where_others_have_weights() -> None:
    weight = np.array([0.5, 2.0, 0.0])
    log = Pieces(chunk(0, 2), chunk(2, 5)._replace(weight=weight), chunk(5, 6))
    data = data_set(log, None, 0.9, seed=None)
    assert data.weight.tolist() == [1.0, 1.0, 0.5, 2.0, 0.0, 1.0]
    order = np.random.default_rng(3).permutation(6)
    np.testing.assert_array_equal(data_set(log, None, 0.9, seed=3).weight, data.weight[order])


def test_features_weights_and_terminal_states_that_features_do_not_know() -> None:
    log = from_arrays(
        [0, 1, 2, 1],
        [1.0, 2.0, 3.0, 4.0],
        next_observations=[1, 2, 99, 2],
        terminated=[False, False, True, False],
        weight=[0.5, 1.0, 2.0, 0.0],
    )
    data = data_set(log, "tabular:3", 0.9, seed=None)
    np.testing.assert_array_equal(data.phi, np.eye(3)[[0, 1, 2, 1]])
    np.testing.assert_array_equal(data.phi_next[[0, 1, 3]], np.eye(3)[[1, 2, 2]])
    assert data.discount.tolist() == [0.9, 0.9, 0.0, 0.9]
    assert data.weight.tolist() == [0.5, 1.0, 2.0, 0.0]


def test_features_take_their_range_from_all_rows_but_terminal_states() -> None:
    observations, successors = np.array([[0.0], [1.0], [2.0]]), np.array([[1.0], [3.0], [1e9]])
    log = from_arrays(observations, np.ones(3), successors, terminated=[False, False, True])
    data = data_set(log, "polynomial:1", 0.9, seed=None)
    bound = vrtd.features.parse("polynomial:1").bind(np.array([[0.0], [3.0]]))
    np.testing.assert_array_equal(data.phi, bound(observations))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reward": [0.0, np.inf, 0.0]}, r"The reward is inf in .*row 1. Fix or drop the row"),
        ({"observations": [[0.0], [0.0], [np.nan]]}, r"The observation is nan in .*row 2.* Fix or drop the row"),
        (
            {"next_observations": [[np.nan], [0.0], [0.0]]},
            r"The next observation is nan in array next_observations, row 0",
        ),
        ({"weight": [1.0, np.nan, 1.0]}, r"The weight is nan in .*row 1"),
        (
            {"weight": [1.0, 1.0, -0.5]},
            r"Weights must not be negative, but the weight is -0.5 in array weight, row 2. Fix or drop",
        ),
    ],
)
def test_numbers_that_are_not_finite_are_refused_with_their_place(changes: dict[str, Any], message: str) -> None:
    arrays = {"observations": np.ones((3, 1)), "reward": np.ones(3), "next_observations": np.ones((3, 1))}
    with pytest.raises(DataError, match=message):
        data_set(from_arrays(**(arrays | changes)), None, 0.9)


def test_rows_are_counted_over_the_pieces_where_nothing_else_is_known() -> None:
    bad = chunk(0, 10)
    bad = bad._replace(reward=np.where(np.arange(10) == 4, np.nan, bad.reward))
    with pytest.raises(DataError, match="The reward is nan in row 24 of the log"):
        data_set(Pieces(chunk(0, 20), bad), None, 0.9)


def test_features_get_what_the_space_of_the_log_tells() -> None:
    lake = from_env("FrozenLake-v1", "random", 20)
    assert next(lake.chunks()).next_observations.max() < 15
    for features in ("tabular", "auto"):
        assert data_set(lake, features, 0.9).phi.shape == (20, 16)


def test_successors_of_terminated_rows_are_ignored() -> None:
    log = from_arrays(np.ones((2, 1)), np.ones(2), [[0.5], [np.nan]], terminated=[False, True])
    assert np.isfinite(data_set(log, None, 0.9).phi_next).all()


@pytest.mark.parametrize(
    ("n_rows", "discount", "seed", "message"),
    [
        (0, 0.9, 0, "The log has no rows for a data set. Pass a log"),
        (5, 1.5, 0, r"discount must lie in \[0, 1\], but got 1.5"),
        (5, 0.9, -1, "seed must be a whole number of at least 0, but got -1"),
    ],
)
def test_bad_arguments_are_refused(n_rows: int, discount: float, seed: int, message: str) -> None:
    log = Pieces(chunk(0, n_rows)) if n_rows else Pieces()
    with pytest.raises(InvalidInputError, match=message):
        data_set(log, None, discount, seed=seed)
