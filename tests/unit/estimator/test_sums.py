"""Sums of parts of a log: added in order, they give the fit of the whole log."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest

import vrtd
from tests.helpers.random_logs import random_table
from vrtd.errors import DataError, InvalidInputError, ModelFileError
from vrtd.logs import Chunk, read

ROWS = {"x": [0.0, 1.0, 2.0, 1.0, 0.5, 0.0, 2.0, 1.5], "gain": [1.0, 0.0, 2.0, 1.0, 0.0, 3.0, 1.0, 2.0]}
OPTIONS: dict[str, Any] = {"observations": "x", "reward": "gain"}


def parts(table: pyarrow.Table, ends: list[int], features: Any, discount: float, **options: Any) -> vrtd.Sums:
    cuts = [0, *ends, len(table)]
    found = [
        vrtd.accumulate(table.slice(first, last - first), features, discount, n_parts=len(ends) + 1, **options)
        for first, last in itertools.pairwise(cuts)
    ]
    total = found[0]
    for each in found[1:]:
        total = total + each
    return total


def test_sums_are_those_of_all_transitions() -> None:
    table = pyarrow.table(ROWS)
    phi, reward = np.array(ROWS["x"]), np.array(ROWS["gain"])
    for ends in ([], [4], [3, 5], [1, 2, 3, 4, 5, 6, 7]):
        evaluator = parts(table, ends, "identity", 0.5, **OPTIONS).to_evaluator()
        total = evaluator._state.sums.total
        np.testing.assert_allclose(total[0, 0], (phi[:-1] * (0.5 * phi[1:] - phi[:-1])).sum(), rtol=1e-12)
        np.testing.assert_allclose(total[0, 1], (phi * reward)[:-1].sum(), rtol=1e-12)
        np.testing.assert_allclose(evaluator.theta_, [-total[0, 1] / total[0, 0]], rtol=1e-12)
        assert evaluator.n_rows_ == 7
    sums = vrtd.accumulate(table, "identity", 0.5, **OPTIONS)
    assert (sums.n_rows, sums.n_features) == (5, 1)  # the first row and the last two wait for their neighbours
    inner = slice(1, 6)
    np.testing.assert_allclose(sums.A[0, 0], (phi[inner] * (0.5 * phi[2:7] - phi[inner])).sum(), rtol=1e-12)
    np.testing.assert_allclose(sums.b, [(phi * reward)[inner].sum()], rtol=1e-12)
    assert repr(sums) == "Sums(5 transitions, 1 features, discount 0.5)"


@pytest.mark.slow
def test_random_parts_give_the_fit_of_the_whole_log() -> None:
    rng, n_logs = np.random.default_rng(1), 0
    for _ in range(150):
        n = int(rng.integers(2, 80))
        table, options = random_table(rng, n)
        discount = float(rng.choice([0.0, 0.5, 0.9]))
        try:
            log = read(table, **options)
            chunk = next(log.chunks())
            whole = vrtd.Evaluator("closed_form", features="identity", discount=discount).partial_fit(log)
            whole._state = vrtd.estimator.fit.decide(whole._setup, whole._state, is_all=True)
        except DataError:
            continue
        features = vrtd.features.Identity().bind(chunk.observations)
        ends = np.unique(rng.integers(1, n, int(rng.integers(0, 6)))).tolist()
        evaluator = parts(table, ends, features, discount, space=log.space, **options).to_evaluator()
        a, b = whole._state, evaluator._state
        assert (a.n_rows, a.is_weighted) == (b.n_rows, b.is_weighted)
        for name in ("total", "squares"):
            mine, its = (getattr(vrtd.estimator.least_squares.flush(each.sums), name) for each in (a, b))
            np.testing.assert_allclose(mine, its, rtol=1e-9, atol=1e-12)
        for name in ("starts", "returns"):
            mine, its = getattr(a.episodes, name), getattr(b.episodes, name)
            assert (mine is None) == (its is None)
            if mine is not None:
                np.testing.assert_allclose(mine.total, its.total, rtol=1e-9, atol=1e-12)
        n_logs += 1
    assert n_logs > 80


def session_table(n: int, seed: int = 0) -> pyarrow.Table:
    rng = np.random.default_rng(seed)
    session = np.cumsum(rng.random(n) < 0.2)
    names = np.array([f"visit {k}" for k in session])
    return pyarrow.table(
        {"x": rng.random(n), "gain": rng.random(n), "session": names, "kind": rng.choice(["a", "b"], n)}
    )


SESSIONS: dict[str, Any] = {
    "observations": ["x", "kind"], "reward": "gain", "episode": "session", "episode_end": "terminated"
}  # fmt: skip


def test_arrow_and_back(tmp_path: Path) -> None:
    table = session_table(4000)
    log = read(table.slice(0, 1500), **SESSIONS)
    features = vrtd.Evaluator(discount=0.8, pilot_rows=1000).fit(log).features
    pieces = [table.slice(k, 1000) for k in range(0, 4000, 1000)]
    sums = [vrtd.accumulate(piece, features, 0.8, space=log.space, n_parts=4, **SESSIONS) for piece in pieces]
    batches = [each.to_arrow() for each in sums]
    assert batches[0].schema.names == ["n_rows", "sums"]
    assert [batch.column("n_rows")[0].as_py() for batch in batches] == [each.n_rows for each in sums]
    read_back = vrtd.Sums.from_arrow(pyarrow.Table.from_batches(batches)).to_evaluator()
    direct = ((sums[0] + sums[1]) + (sums[2] + sums[3])).to_evaluator()
    for name in ("one", "other"):
        {"one": direct, "other": read_back}[name].save(tmp_path / f"{name}.npz")
    with np.load(tmp_path / "one.npz") as a, np.load(tmp_path / "other.npz") as b:
        for name in set(a.files) - {"header"}:
            assert a[name].tobytes() == b[name].tobytes(), name
    whole = vrtd.Evaluator("closed_form", features=features, discount=0.8).partial_fit(table, **SESSIONS)
    np.testing.assert_allclose(direct.theta_, whole.theta_, rtol=1e-9)
    np.testing.assert_allclose(direct.policy_value().value, whole.policy_value().value, rtol=1e-9)
    mine, its = direct.policy_value(), whole.policy_value()
    np.testing.assert_allclose(mine.high - mine.low, its.high - its.low, rtol=0.4)
    assert direct.n_rows_ == whole.n_rows_
    assert direct.diagnostics_.text


def test_damaged_sums_are_refused() -> None:
    batch = vrtd.accumulate(
        session_table(200), vrtd.features.Identity(), 0.5, observations="x", reward="gain"
    ).to_arrow()
    content = bytearray(batch.column("sums")[0].as_py())
    for damaged in (b"", bytes(content[:100]), bytes(content[: len(content) // 2]), b"x" * 50):
        with pytest.raises(ModelFileError, match="damaged, or were written by another version"):
            vrtd.Sums.from_arrow(pyarrow.table({"sums": pyarrow.array([damaged], pyarrow.large_binary())}))
    with pytest.raises(DataError, match="no row with sums"):
        vrtd.Sums.from_arrow(batch.slice(0, 0))


def test_what_cannot_be_added_or_written() -> None:
    table = pyarrow.table(ROWS)
    one = vrtd.accumulate(table, "identity", 0.5, **OPTIONS)
    for other in (
        vrtd.accumulate(table, "identity", 0.9, **OPTIONS),
        vrtd.accumulate(table, vrtd.features.Polynomial(2, low=[0.0], high=[3.0]), 0.5, **OPTIONS),
        vrtd.accumulate(table, "identity", 0.5, episode_end="terminated", **OPTIONS),
    ):
        with pytest.raises(InvalidInputError, match="different features, discounts or settings"):
            one + other
    with pytest.raises(TypeError):
        one + 1  # type: ignore[operator]
    with pytest.raises(InvalidInputError, match="functions or transformers cannot be written"):
        vrtd.accumulate(table, lambda x: x.reshape(len(x), -1), 0.5, **OPTIONS).to_arrow()


def test_features_must_be_bound_and_few() -> None:
    table = pyarrow.table(ROWS)
    with pytest.raises(InvalidInputError, match="must have taken them from the first rows"):
        vrtd.accumulate(table, "auto", 0.5, **OPTIONS)
    with pytest.raises(InvalidInputError, match="do not fit into memory for 1,000 features"):
        vrtd.accumulate(table, lambda x: np.zeros((len(x), 1000)), 0.5, **OPTIONS)
    evaluator = vrtd.Evaluator("closed_form", discount=0.5, target=np.array([0, 1]), features="identity")
    with pytest.raises(InvalidInputError, match="policy of the log"):
        vrtd.accumulate(table, evaluator._given.features, 0.5, **OPTIONS)
    x = np.empty((0, 1))
    with pytest.raises(DataError, match="The part has no rows"):
        vrtd.accumulate(Chunk(x, x[:, 0], x, x[:, 0] > 0, x[:, 0] > 0), "identity", 0.5)
    with pytest.raises(DataError, match="no transition"):
        vrtd.accumulate(table.slice(0, 1), "identity", 0.5, **OPTIONS).to_evaluator()
