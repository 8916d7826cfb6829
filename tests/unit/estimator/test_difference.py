"""By how much one policy is better than another: on two logs, and on one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers.decision_processes import random_policy, random_process, without_propensity
from vrtd.errors import InvalidInputError
from vrtd.logs import Chunk

PROCESS, BEHAVIOUR, TARGETS = random_process(0), random_policy(1), (random_policy(2), random_policy(3))
STATES = np.arange(5)


@pytest.fixture(scope="module")
def logs() -> list[Chunk]:
    return [without_propensity(log) for log in PROCESS.record(BEHAVIOUR, 4000, seed=6, n_logs=2)]


def fit(rows: Chunk, target: Any = None, **options: Any) -> vrtd.Evaluator:
    return vrtd.Evaluator(**({"features": "tabular:5", "discount": 0.9} | options), target=target).fit(rows)


def half(interval: Any) -> Any:
    return (interval.high - interval.low) / 2


def test_variances_of_two_logs_are_added(logs: list[Chunk]) -> None:
    a, b = map(fit, logs)
    found = vrtd.difference(a, b)
    assert found.value == a.policy_value().value - b.policy_value().value
    both = np.hypot(half(a.policy_value()), half(b.policy_value()))
    assert 0.9 * both < half(found) <= both * (1.0 + 1e-12)
    assert vrtd.difference(b, a).value == -found.value
    values = vrtd.difference(a, b, observations=STATES)
    np.testing.assert_array_equal(values.value, a.predict(STATES) - b.predict(STATES))


def test_noise_of_one_log_is_common_to_two_targets(logs: list[Chunk]) -> None:
    a, b = (fit(logs[0], target) for target in TARGETS)
    found = vrtd.difference(a, b)
    apart = np.hypot(half(a.policy_value()), half(b.policy_value()))
    assert half(found) < 0.9 * apart
    assert half(found) > 0.0
    values = vrtd.difference(a, b, observations=STATES)
    assert np.all(half(values) > 0.0)
    assert half(vrtd.difference(a, fit(logs[1], TARGETS[1]))) > half(found)  # another log, the same policies
    behaviour = fit(logs[0])
    assert half(vrtd.difference(a, behaviour)) < np.hypot(half(a.policy_value()), half(behaviour.policy_value()))


def test_a_policy_is_as_good_as_itself(logs: list[Chunk]) -> None:
    assert vrtd.difference(fit(logs[0], TARGETS[0]), fit(logs[0], TARGETS[0])) == (0.0, 0.0, 0.0)


def test_blocks_of_different_lengths_are_merged(logs: list[Chunk]) -> None:
    """Many features have fewer and longer blocks: the difference is that with few features, a little less certain."""
    wide = np.zeros((5, 200))
    wide[:, :5] = np.eye(5)
    a, b = fit(logs[0], TARGETS[0], features=wide), fit(logs[0], TARGETS[1])
    found, expected = vrtd.difference(a, b), vrtd.difference(fit(logs[0], TARGETS[0]), b)
    assert found.value == pytest.approx(expected.value)
    assert half(found) == pytest.approx(half(expected), rel=0.5)


def test_errors_are_added_where_rows_cannot_be_told_apart(logs: list[Chunk]) -> None:
    a, b = (fit(logs[0], target, algorithm=vrtd.VRTD(0.1, 200, output="average")) for target in TARGETS)
    total = half(a.policy_value()) + half(b.policy_value())
    assert half(vrtd.difference(a, b)) == pytest.approx(total, rel=1e-3)


def test_what_cannot_be_compared_is_refused(logs: list[Chunk]) -> None:
    with pytest.raises(InvalidInputError, match="the same discount"):
        vrtd.difference(fit(logs[0]), fit(logs[1], discount=0.5))
    with pytest.raises(InvalidInputError, match="fitted Evaluators"):
        vrtd.difference(fit(logs[0]), 1.0)


def test_other_columns_of_one_log_are_of_the_same_rows(logs: list[Chunk]) -> None:
    wide = np.stack([logs[0].observations, logs[0].observations], axis=1).astype(float)
    wide_next = np.stack([logs[0].next_observations, logs[0].next_observations], axis=1).astype(float)
    a, b = fit(logs[0]), fit(logs[0]._replace(observations=wide, next_observations=wide_next), features="standardised")
    assert a.has_same_rows(b)
    assert not a.has_same_rows(fit(logs[1]))
