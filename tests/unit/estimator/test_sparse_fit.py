"""Fits to sparse rows: VRTD with growing batches, its files, intervals and refusals."""

from __future__ import annotations

import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array, csr_matrix

import vrtd
from tests.helpers.sparse import as_sparse, random_rows, thin_out
from tests.helpers.streams import some_rows
from vrtd.errors import DataError, InvalidInputError
from vrtd.estimator import sparse_fit
from vrtd.estimator.sparse_fit import SparseFit, first_sparse_fit, learn_sparsely
from vrtd.estimator.sparse_reservoir import add_sparse, empty_sparse_reservoir
from vrtd.logs.log import WrappedLog
from vrtd.sparse import join_tables, part_of, products, take_rows

pytestmark = pytest.mark.filterwarnings("ignore::vrtd.errors.ConvergenceWarning")
N, D, GAMMA = 40_000, 600, 0.5


@pytest.fixture(scope="module")
def log() -> Any:
    rows, values = random_rows(N + 1, D, 4)
    reward = values[:-1] - GAMMA * values[1:] + 0.1 * np.random.default_rng(1).normal(size=N)
    return vrtd.logs.from_arrays(part_of(rows, 0, N), reward, part_of(rows, 1, N + 1)), rows, values


@pytest.fixture(scope="module")
def evaluator(log: Any) -> vrtd.Evaluator:
    return vrtd.Evaluator(discount=GAMMA).fit(log[0])


def naive_sums(fit: SparseFit, rows: vrtd.Transitions) -> tuple[Any, Any]:
    """Return the mean anchor and the mean pseudo-gradient of all rows, each at the anchor of its row."""
    anchors = {**fit.anchors, fit.anchor: fit.theta_anchor}
    counts = [block.counts for block in fit.blocks] + [fit.counts]
    at = [number for each in counts for number in sorted(each) for _ in range(each[number])]
    phi, phi_next = rows.phi.toarray(), rows.phi_next.toarray()
    iterates = np.array([anchors[number] for number in at])
    delta = rows.reward + rows.discount * (phi_next * iterates).sum(axis=1) - (phi * iterates).sum(axis=1)
    return iterates.mean(axis=0), ((delta * rows.weight)[:, None] * phi).mean(axis=0)


@pytest.mark.parametrize("weighted", [False, True])
def test_sums_are_those_of_single_rows_however_they_are_split(weighted: bool) -> None:
    rows = as_sparse(thin_out(some_rows(200, 20, weighted=weighted)))
    algorithm = vrtd.VRTD(0.05, 40, growth=2.0, output="average")
    first = first_sparse_fit(algorithm, None, rows.part(0, 50), np.zeros(20), 0)
    whole, split = learn_sparsely(first, rows), first
    for start in range(0, 200, 23):
        split = learn_sparsely(split, rows.part(start, min(200, start + 23)))
    assert whole.anchor == 2
    assert split.state.tobytes() == whole.state.tobytes()
    iterate, gradient, n = whole.mean_over(0)
    expected = naive_sums(whole, rows)
    assert n == 200
    np.testing.assert_allclose(iterate, expected[0], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(gradient, expected[1], rtol=1e-6, atol=1e-6)  # blocks are in single precision
    np.testing.assert_allclose(whole.total_phi, rows.phi.sum(axis=0), rtol=1e-12)


def test_values_are_near_those_of_least_squares(log: Any, evaluator: vrtd.Evaluator) -> None:
    rows, values = log[1], log[2]
    reward = np.concatenate([chunk.reward for chunk in log[0].chunks()])
    phi = rows[:-1]
    closed_form = np.linalg.lstsq((phi.T @ (phi - GAMMA * rows[1:])).toarray(), phi.T @ reward, rcond=None)[0]
    error, least = (np.sqrt(np.mean((rows @ theta - values) ** 2)) for theta in (evaluator.theta_, closed_form))
    diagnostics = evaluator.diagnostics_
    assert (diagnostics.settings["name"], diagnostics.converged, diagnostics.n_features) == ("vrtd", True, D)
    assert error < 1.5 * least
    found = evaluator.predict(log[1][:400], return_interval=0.95)
    covered = np.mean((found.low < values[:400]) & (values[:400] < found.high))
    assert covered > 0.85
    mean = evaluator.mean_value()
    assert mean.low < values.mean() < mean.high
    unseen = csr_array(([1.0], ([0], [D - 1])), shape=(1, D))
    assert np.isfinite(evaluator.predict(unseen)).all()


def test_a_stored_fit_goes_on(log: Any, tmp_path: Path) -> None:
    first, second = (chunk for chunk in _halves(log[0]))
    for algorithm in ("auto", vrtd.TD(0.1, average=True)):
        one = vrtd.Evaluator(algorithm, discount=GAMMA).partial_fit(first)
        one.save(tmp_path / "model.npz")
        other = vrtd.Evaluator.load(tmp_path / "model.npz")
        for each in (one, other):
            each.partial_fit(second)
        assert one.theta_.tobytes() == other.theta_.tobytes()


def _halves(log: Any) -> tuple[Any, Any]:
    chunk = vrtd.logs.Chunk.concatenate(list(log.chunks()))
    return chunk.part(0, N // 2), chunk.part(N // 2, N)


def test_short_sparse_rows_become_dense() -> None:
    rows, _ = random_rows(400, 30, 3)
    sparse = vrtd.Evaluator(discount=GAMMA).fit(vrtd.logs.from_arrays(rows, np.ones(400)))
    dense = vrtd.Evaluator(discount=GAMMA).fit(vrtd.logs.from_arrays(rows.toarray(), np.ones(400)))
    assert sparse.theta_.tobytes() == dense.theta_.tobytes()


def test_pairing_of_sparse_rows_is_that_of_dense_ones() -> None:
    rows, _ = random_rows(50, 9, 2)
    flags = {"terminated": np.arange(50) % 7 == 6, "truncated": np.arange(50) % 11 == 10}
    (sparse,) = vrtd.logs.from_arrays(csr_matrix(rows), np.arange(50.0), **flags).chunks()
    (dense,) = vrtd.logs.from_arrays(rows.toarray(), np.arange(50.0), **flags).chunks()
    assert isinstance(sparse.observations, csr_array)
    np.testing.assert_array_equal(sparse.observations.toarray(), dense.observations)
    np.testing.assert_array_equal(sparse.successors.toarray(), dense.successors)
    assert all(np.array_equal(sparse.columns[name], dense.columns[name]) for name in ("reward", "terminated", "starts"))


def test_a_sparse_reservoir_is_uniform_and_the_same_however_rows_are_split() -> None:
    rows = as_sparse(thin_out(some_rows(500, 4)))
    whole, split = add_sparse(empty_sparse_reservoir(30, 1), rows), empty_sparse_reservoir(30, 1)
    for first in range(0, 500, 3):
        split = add_sparse(split, rows.part(first, min(500, first + 3)))
    assert whole.rows is not None
    assert split.rows is not None
    assert len(whole.rows) == split.n_kept == 30
    assert whole.rows.reward.tobytes() == split.rows.reward.tobytes()
    assert (whole.rows.phi != split.rows.phi).nnz == 0
    places = np.flatnonzero(np.isin(rows.reward, whole.rows.reward))
    assert places.min() < 100
    assert places.max() >= 400


def test_tables_of_both_kinds_agree() -> None:
    rows, _ = random_rows(20, 9, 2)
    vectors = np.random.default_rng(0).normal(size=(3, 9))
    np.testing.assert_allclose(products(rows, vectors), rows.toarray() @ vectors.T)
    np.testing.assert_array_equal(part_of(rows, 3, 8).toarray(), rows.toarray()[3:8])
    assert np.shares_memory(part_of(rows, 3, 4).data, rows.data)
    parts, at = [part_of(rows, 0, 3), part_of(rows, 3, 20)], np.array([19, 0, 3, 2, 7])
    np.testing.assert_array_equal(take_rows(parts, at).toarray(), rows.toarray()[at])
    assert join_tables(parts).indices.dtype == take_rows(parts, at).indices.dtype == np.int32
    np.testing.assert_array_equal(join_tables([part_of(rows, 0, 3), part_of(rows, 3, 20)]).toarray(), rows.toarray())


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        ("richardson_td", "step_size='auto' of richardson_td needs dense rows"),
        (vrtd.GTD2(), "gtd2 cannot learn from sparse rows"),
        (vrtd.TD(0.1, radius=2.0), "On sparse rows, td has no projection, but radius is 2.0"),
    ],
)
def test_what_needs_dense_rows_says_so(log: Any, algorithm: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=f"^{message}"):
        vrtd.Evaluator(algorithm, discount=GAMMA).fit(log[0])


def test_matrices_need_dense_rows() -> None:
    rows = as_sparse(thin_out(some_rows(40, 6)))
    data = vrtd.Transitions(rows.phi, rows.reward, rows.phi_next, 0.5)
    for use in (lambda: data.theta_star, lambda: data.rank, lambda: vrtd.simulate(data, vrtd.TD(0.1), n_gradients=10)):
        with pytest.raises(InvalidInputError, match="so dense rows, but the rows are sparse"):
            use()


def test_sparse_rows_are_not_divided(log: Any) -> None:
    with ThreadPoolExecutor(1) as executor, pytest.raises(InvalidInputError, match=r"^Sparse rows are not learned in"):
        vrtd.Evaluator(discount=GAMMA).fit(LongLog(log[0]), executor=executor)


class LongLog(WrappedLog):
    """A log of unknown length, which is divided."""

    @property
    def n_rows(self) -> None:
        return None

    def chunks(self) -> Any:
        return self._log.chunks()


def test_a_damaged_sparse_matrix_is_refused() -> None:
    rows, _ = random_rows(5, 9, 2)
    rows.indices[3] = 11
    with pytest.raises(DataError, match=r"observations is not a valid sparse matrix: .*indices"):
        vrtd.logs.from_arrays(rows, np.ones(5))


def test_a_report_cannot_show_sparse_observations(log: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"^A report shows observations, but these are sparse rows of 600"):
        vrtd.evaluate(log[0], discount=GAMMA, out=tmp_path / "out")


def test_the_peak_of_memory_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    n, d, piece = 20_000, 50_000, 2000  # a million features, made smaller
    monkeypatch.setattr(sparse_fit, "_KEPT_BYTES", 8 * 8 * d)
    monkeypatch.setattr(sparse_fit, "_INVERTED", 100)
    rows, _ = random_rows(n + 1, d, 32)
    log = vrtd.logs.from_arrays(part_of(rows, 0, n), np.ones(n), part_of(rows, 1, n + 1))
    (chunk,) = log.chunks()

    def learn() -> vrtd.Evaluator:
        evaluator = vrtd.Evaluator(discount=GAMMA)
        for first in range(0, n, piece):
            evaluator.partial_fit(chunk.part(first, first + piece))
        return evaluator

    learn()  # compile before memory is counted
    tracemalloc.start()
    try:
        evaluator = learn()
        now, peak = (size / (8 * d) for size in tracemalloc.get_traced_memory())
    finally:
        tracemalloc.stop()
    assert evaluator.n_features == d
    assert now < 40
    assert peak < 62, (now, peak)
