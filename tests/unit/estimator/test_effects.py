"""Values along each variable, and the best and worst states."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import vrtd
from vrtd.estimator.effects import _group, _standard_errors, extreme_states, value_effects
from vrtd.estimator.state_values import LogSummary, StateValues, value_states
from vrtd.features import Column, ObservationSpace
from vrtd.logs import Chunk, from_arrays
from vrtd.logs.log import WrappedLog

N = 3000
NAMES = ("size", "kind=a", "kind=b", "kind=other", "age", "age is missing")


class Columns(WrappedLog):
    space = ObservationSpace("columns", (Column("size"), Column("kind", ("a", "b")), Column("age", fill=0.0)))

    def chunks(self) -> Iterator[Chunk]:
        return self._log.chunks()


def rows() -> Any:
    """A size, one of two kinds that adds to the reward, and an age that is sometimes missing."""
    rng = np.random.default_rng(3)
    kind, is_missing = np.eye(3)[rng.integers(0, 2, N)], rng.random(N) < 0.2
    return np.column_stack([rng.random(N), kind, np.where(is_missing, 0.0, rng.normal(size=N)), is_missing])


@pytest.fixture(scope="module")
def fitted() -> Any:
    x = rows()
    log = LogSummary(Columns(from_arrays(x, x[:, 0] + 3.0 * x[:, 2], np.roll(x, -1, axis=0))))
    evaluator = vrtd.Evaluator("closed_form", features="identity", discount=0.5, pilot_rows=500).fit(log)
    return evaluator, log, value_states(evaluator, log, 0.95, None)


def test_the_variable_that_matters_most_is_first(fitted: Any) -> None:
    evaluator, log, valued = fitted
    effects = value_effects(evaluator, log, 0.95, valued.names)
    assert [effect.name for effect in effects][:2] == ["kind", "size"]
    assert valued.names == NAMES
    kind, size, age = effects
    assert kind.table["kind"].tolist() == ["a", "b"]
    assert kind.table["value"][1] - kind.table["value"][0] == pytest.approx(3.0, abs=0.3)
    assert len(size.table["size"]) == 12
    assert age.table["n_rows"].sum() == N - rows()[:, 5].sum()


def test_a_value_along_a_variable_is_a_mean_over_observations(fitted: Any) -> None:
    evaluator, log, valued = fitted
    kind, size, _ = value_effects(evaluator, log, 0.95, valued.names)
    x = rows()
    values = evaluator.predict(x)
    assert kind.table["value"] == pytest.approx([values[x[:, 1] == 1].mean(), values[x[:, 2] == 1].mean()])
    order = np.argsort(x[:, 0])[: size.table["n_rows"][0]]
    assert size.table["value"][0] == pytest.approx(values[order].mean())
    assert size.table["size"][0] == pytest.approx(x[order, 0].mean())
    # Wider than an interval for exactly these observations, because others would have other values.
    known = evaluator.spread().of(evaluator.features(x[order]).mean(axis=0)[None], 0.95)
    assert size.table["high"][0] - size.table["low"][0] > (known.high - known.low)[0]


def test_numbers_without_columns_are_variables_of_their_own(fitted: Any) -> None:
    x = rows()[:, [0, 1, 4]]
    log = LogSummary(from_arrays(x, x[:, 0], np.roll(x, -1, axis=0)))
    evaluator = vrtd.Evaluator("closed_form", features="identity", discount=0.5, pilot_rows=500).fit(log)
    effects = value_effects(evaluator, log, 0.95, ("one", "two", "three"))
    assert {effect.name for effect in effects} == {"one", "two", "three"}
    (two,) = (effect for effect in effects if effect.name == "two")
    assert two.table["two"].tolist() == [0.0, 1.0]


def test_extremes_are_the_largest_and_least_values_in_order(fitted: Any) -> None:
    _, log, valued = fitted
    table = extreme_states(valued, log)
    ordered = np.sort(valued.table["value"])[::-1]
    assert table["states"].tolist() == ["best"] * 5 + ["worst"] * 5
    assert table["value"].tolist() == [*ordered[:5], *ordered[-5:]]
    assert list(table) == ["states", "size", "kind", "age", "value", "low", "high"]
    for i, value in enumerate(table["value"]):
        row = np.flatnonzero(valued.table["value"] == value)[0]
        assert table["size"][i] == valued.table["size"][row]
        assert table["kind"][i] == ("a" if valued.table["kind=a"][row] else "b")
        assert np.isnan(table["age"][i]) == bool(valued.table["age is missing"][row])


def test_few_states_are_named_once(fitted: Any) -> None:
    _, log, valued = fitted
    three = StateValues("list", valued.names, {name: column[:3] for name, column in valued.table.items()})
    assert extreme_states(three, log)["states"].tolist() == ["best", "best", "worst"]


def test_a_category_with_the_name_of_another_column_is_renamed(fitted: Any) -> None:
    class Values(Columns):
        space = ObservationSpace("columns", (Column("size"), Column("value", ("a", "b")), Column("age", fill=0.0)))

    evaluator, log, valued = fitted
    named = LogSummary(Values(log))
    list(named.chunks())
    first, *_ = value_effects(evaluator, named, 0.95, valued.names)
    assert list(first.table) == ["observation_value", "value", "low", "high", "n_rows"]
    assert list(extreme_states(valued, named))[2:] == ["observation_value", "age", "value", "low", "high"]


def test_an_image_has_no_variables(fitted: Any) -> None:
    evaluator, log, _ = fitted
    assert value_effects(evaluator, log, 0.95, [f"pixel_{i}" for i in range(65)]) == []


def test_groups_have_equal_values_or_equally_many() -> None:
    few = _group("x", np.array([2.0, 0.0, np.nan, 2.0]))
    assert (few.labels.tolist(), few.groups.tolist()) == ([0.0, 2.0], [1, 0, 2, 1])
    many = _group("x", np.array([*range(1200), np.nan]))
    assert np.bincount(many.groups).tolist() == [100] * 12 + [1]
    assert many.labels[:2].tolist() == [49.5, 149.5]
    heavy = _group("x", np.array([0.0] * 900 + [*range(100)], float))  # equal values are not torn apart
    assert (heavy.groups[:901] == 0).all()
    assert np.array_equal(np.unique(heavy.groups), np.arange(len(heavy.labels)))
    names = _group("x", np.array([f"level {i}" for i in range(20) for _ in range(i + 1)]))
    assert sorted(names.labels) == sorted(f"level {i}" for i in range(8, 20))
    assert (names.groups == 12).sum() == sum(range(1, 9))


def test_consecutive_observations_are_one_cluster() -> None:
    groups = np.array([0, 0, 1, 1, 0, 0, 2])
    values = np.array([1.0, 1.0, 5.0, 7.0, 3.0, 3.0, 9.0])
    found = _standard_errors(groups, values)
    # Two clusters of two with means 1 and 3: the standard error of the mean of two independent numbers.
    assert found[0] == pytest.approx(np.std([1.0, 3.0], ddof=1) / np.sqrt(2.0))
    assert np.isnan(found[1:]).all()
