"""Sums of partitions of a Spark DataFrame, called as Spark calls them: on iterators of record batches."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow
import pytest

import vrtd
from vrtd.errors import InvalidInputError
from vrtd.spark import SCHEMA, partition_sums

OPTIONS: dict[str, Any] = {
    "observations": ["x", "kind"], "reward": "gain", "episode": "session", "episode_end": "terminated",
}  # fmt: skip


def sessions(n: int) -> pyarrow.Table:
    rng = np.random.default_rng(0)
    session = np.cumsum(rng.random(n) < 0.125)
    kinds = rng.choice(["a", "b", "c"], n)
    return pyarrow.table({"session": session, "x": rng.random(n), "kind": kinds, "gain": rng.random(n)})


def in_batches(table: pyarrow.Table, size: int) -> Any:
    """Record batches as Spark yields them, with an empty one."""
    yield from table.slice(0, 0).to_batches() or [pyarrow.RecordBatch.from_pylist([], table.schema)]
    yield from table.to_batches(max_chunksize=size)


def test_partitions_of_whole_sessions_give_the_fit_of_all_rows() -> None:
    table = sessions(6000)
    log = vrtd.logs.read(table.slice(0, 2000), **OPTIONS)
    features = vrtd.Evaluator(discount=0.9, pilot_rows=1000).partial_fit(log).features
    function = partition_sums(features, 0.9, space=log.space, n_parts=3, **OPTIONS)
    function = pickle.loads(pickle.dumps(function))  # as Spark sends it to its workers
    place = np.asarray(table["session"]) % 3
    rows = []
    for k in range(3):
        found = list(function(in_batches(table.filter(pyarrow.array(place == k)), 500)))
        assert [batch.schema.names for batch in found] == [["n_rows", "sums"]]
        rows += found
    assert list(function(iter([]))) == []
    divided = vrtd.Sums.from_arrow(pyarrow.Table.from_batches(rows)).to_evaluator()
    whole = vrtd.Evaluator("closed_form", features=features, discount=0.9).partial_fit(table, **OPTIONS)
    assert divided.n_rows_ == whole.n_rows_ == 6000
    assert divided.n_episodes_ == whole.n_episodes_
    np.testing.assert_allclose(divided.theta_, whole.theta_, rtol=1e-9)
    np.testing.assert_allclose(divided.policy_value().value, whole.policy_value().value, rtol=1e-9)


def test_the_schema_is_that_of_the_rows() -> None:
    table = sessions(100)
    function = partition_sums("identity", 0.9, **OPTIONS | {"observations": ["x"]})
    batch = next(function(in_batches(table, 10)))
    kinds = {"long": pyarrow.int64(), "binary": pyarrow.large_binary()}
    declared = [column.split() for column in SCHEMA.split(", ")]
    assert [(name, kinds[kind]) for name, kind in declared] == [(field.name, field.type) for field in batch.schema]


def test_wrong_options_are_refused_before_spark_starts() -> None:
    with pytest.raises(InvalidInputError, match="no keyword argument 'rewards'"):
        partition_sums("identity", 0.9, rewards="gain")  # type: ignore[call-arg]
