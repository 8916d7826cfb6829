"""Fits to sparse rows: VRTD with growing batches, its files, intervals and refusals."""

from __future__ import annotations

import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array, csr_matrix
from threadpoolctl import threadpool_limits

import vrtd
from tests.helpers.sparse import as_sparse, random_rows, thin_out
from tests.helpers.streams import some_rows, to_samples, with_columns
from tests.reference.sparse_fit import Constants, Run
from vrtd.errors import AccuracyWarning, ConvergenceWarning, DataError, DivergenceError, InvalidInputError
from vrtd.estimator import sparse_fit, sparse_inverse
from vrtd.estimator.linear_state import FIRST_BLOCK
from vrtd.estimator.sparse_estimate import estimate_sparse_point, estimate_sparsely
from vrtd.estimator.sparse_fit import SparseFit, first_sparse_fit, learn_sparsely
from vrtd.estimator.sparse_inverse import FEW_EPOCHS, SparseInverse, choose_epochs
from vrtd.estimator.sparse_reservoir import add_sparse, empty_sparse_reservoir
from vrtd.kernels.random import words_of
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


def learned(rows: vrtd.Transitions, cuts: Any = ()) -> SparseFit:
    """The run of VRTD(0.4, 60, growth=2.0) after these rows."""
    algorithm = vrtd.VRTD(0.4, 60, growth=2.0)
    fit = first_sparse_fit(algorithm, None, rows.part(0, 50), np.linspace(-1.0, 1.0, rows.n_features), 3)
    for start, end in pairwise([0, *cuts, len(rows)]):
        fit = learn_sparsely(fit, rows.part(start, end))
    return fit


def transcribed(rows: vrtd.Transitions, fit: SparseFit) -> Run:
    """The same, one row at a time, from the same first anchor."""
    inverse, first = sparse_inverse, learned(rows.part(0, 50))
    constants = Constants(
        FIRST_BLOCK, sparse_fit._MOST_BLOCKS, sparse_fit._LEAST_TO_DROP, FEW_EPOCHS, inverse._MOST_EPOCHS,
        inverse._LEAST_STEPS, inverse._SOLVED, fit.reservoir.capacity,
    )  # fmt: skip
    run = Run(0.4, 60, 2.0, first.theta_anchor.copy(), 3, constants)
    for x in to_samples(with_columns(rows, phi=rows.phi.toarray(), phi_next=rows.phi_next.toarray())):
        run.take(x)
    return run


def flags(n: int, weighted: bool) -> vrtd.Transitions:
    """Rows with three features that are 1 of twelve, and rewards that are all about 1, so that values are constant."""
    rng, rows = np.random.default_rng(0), as_sparse(thin_out(some_rows(n, 12, weighted=weighted)))
    phi, phi_next = (csr_array(np.eye(4)[rng.integers(0, 4, (n, 3))].reshape(n, 12)) for _ in range(2))
    discount = np.where(rows.discount > 0.0, 0.9, 0.0)
    return with_columns(rows, phi=phi, phi_next=phi_next, reward=1.0 + 0.1 * rows.reward, discount=discount)


def numbers(n: int, weighted: bool) -> vrtd.Transitions:
    """Rows without features from which a constant could be made."""
    return as_sparse(thin_out(some_rows(n, 12, weighted=weighted)))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("make", [numbers, flags])
@pytest.mark.parametrize("n", [55, 300, 1000])  # rows of one batch, too few blocks for an interval, and merged blocks
def test_a_fit_is_that_of_single_rows(n: int, make: Any, weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_fit, "_LEAST_KEPT", 200)
    monkeypatch.setattr(sparse_fit, "_KEPT_PER_FEATURE", 1)
    monkeypatch.setattr(sparse_inverse, "_LEAST_STEPS", 150)
    monkeypatch.setattr(sparse_inverse, "_LEAST_TESTED", 30)
    rows = make(n, weighted)
    assert (sparse_inverse.find_constant(rows) is None) == (make is numbers)
    fit = learned(rows)
    run = transcribed(rows, fit)
    point = estimate_sparse_point(fit)
    found = estimate_sparsely(fit, point)
    close = {"rtol": 1e-4, "atol": 1e-5}  # sums over blocks and the inverse are in single precision
    np.testing.assert_allclose(fit.theta_anchor, run.anchor, **close)
    np.testing.assert_allclose(found.theta, run.estimate(), **close)
    np.testing.assert_allclose(found.excess, run.excess(), rtol=1e-3)
    np.testing.assert_allclose(found.mean_phi, rows.phi.sum(axis=0) / n, rtol=1e-12)
    assert found.n_before == (n >= 300)
    assert (len(found.influence) > 0) == (n == 1000)
    if n == 1000:
        np.testing.assert_allclose(found.influence, run.influence(), rtol=1e-3, atol=1e-3)


def test_the_bits_do_not_depend_on_how_rows_are_split() -> None:
    rows = as_sparse(thin_out(some_rows(1000, 12)))
    whole, split = (learned(rows, cuts) for cuts in ((), (1, 60, 61, 200, 950)))
    assert whole.anchor == split.anchor == 4
    assert split.state.tobytes() == whole.state.tobytes()
    assert [block.value for block in split.blocks] == [block.value for block in whole.blocks]
    one, other = (estimate_sparse_point(fit) for fit in (whole, split))
    assert one.theta.tobytes() == other.theta.tobytes()


def test_the_bits_do_not_depend_on_the_threads_of_blas() -> None:
    rows, values = random_rows(8001, 50_000, 8)
    log, found = vrtd.logs.from_arrays(rows[:-1], values[:-1], rows[1:]), []
    for n_threads in (1, 2):
        with threadpool_limits(n_threads):
            evaluator = vrtd.Evaluator(discount=0.9).fit(log)
            found.append((evaluator.theta_.tobytes(), evaluator.predict(rows[:5]).tobytes(), evaluator.mean_value()[0]))
    assert found[0] == found[1]


@pytest.mark.parametrize("cuts", [(7500,), (700, 7000, 7001, 7950)])
def test_a_step_that_large_rows_lower_does_not_depend_on_how_rows_are_split(cuts: tuple[int, ...]) -> None:
    rows, _ = random_rows(10_001, 600, 4)
    for row, size in ((7000, 2.5), (7900, 2.5 * np.sqrt(1.0008))):
        rows.data[rows.indptr[row] : rows.indptr[row + 1]] = size
    found = []
    for ends in ((10_000,), (*cuts, 10_000)):
        evaluator = vrtd.Evaluator(discount=GAMMA)
        for first, last in pairwise((0, *ends)):
            evaluator.partial_fit(
                vrtd.logs.from_arrays(rows[first:last], np.ones(last - first), rows[first + 1 : last + 1])
            )
        found.append((evaluator.theta_.tobytes(), evaluator.diagnostics_.settings["step_size"]))
    assert found[0] == found[1]
    assert found[0][1] < 0.05


@pytest.mark.parametrize("algorithm", ["auto", vrtd.TD(0.1)])
@pytest.mark.parametrize("is_empty", [False, True])
def test_a_number_that_is_not_finite_is_refused_and_changes_nothing(algorithm: Any, is_empty: bool) -> None:
    """Also in a row without features, and in a block that later rows complete."""
    rows, values = random_rows(12_001, 600, 4)
    if is_empty:
        rows.data[rows.indptr[11_500] : rows.indptr[11_501]] = 0.0
        rows.eliminate_zeros()
    reward = values[:-1]
    bad = reward.copy()
    bad[11_500] = np.nan
    evaluator = vrtd.Evaluator(algorithm, discount=GAMMA)
    evaluator.partial_fit(vrtd.logs.from_arrays(rows[:8000], reward[:8000], rows[1:8001]))
    before = evaluator.theta_.tobytes()
    with pytest.raises(DataError, match=r"A number in reward is not finite at .*row 3500"):
        evaluator.partial_fit(vrtd.logs.from_arrays(rows[8000:12_000], bad[8000:], rows[8001:]))
    assert evaluator.n_rows_ == 8000
    assert evaluator.theta_.tobytes() == before


def test_sums_that_overflow_single_precision_are_refused() -> None:
    rows, values = random_rows(12_001, 600, 4)
    reward = values[:-1].copy()
    reward[11_500] = 1e300
    with pytest.raises(DivergenceError, match="parameters overflowed"):
        vrtd.Evaluator(discount=GAMMA).fit(vrtd.logs.from_arrays(rows[:-1], reward, rows[1:]))


@pytest.mark.parametrize(
    ("n", "n_states", "discount", "noise"),
    [(300, 300, 0.9, 0.0), (100, 100, 0.99, 0.0), (2000, 2000, 0.9, 0.3), (20_000, 5000, 0.99, 1.0)],
)
@pytest.mark.filterwarnings("ignore::vrtd.errors.AccuracyWarning")
def test_a_constant_value_is_learned_from_few_rows(n: int, n_states: int, discount: float, noise: float) -> None:
    rng = np.random.default_rng(0)
    state = rng.integers(0, n_states, n + 1)
    phi = csr_array((np.ones(n + 1), state, np.arange(n + 2)), shape=(n + 1, 5000))
    log = vrtd.logs.from_arrays(phi[:-1], 1.0 + noise * rng.normal(size=n), phi[1:])
    mean = vrtd.Evaluator(discount=discount).fit(log).mean_value()
    assert mean.value == pytest.approx(1.0 / (1.0 - discount), rel=0.001 if noise == 0.0 else 0.1)
    assert noise == 0.0 or mean.low < 1.0 / (1.0 - discount) < mean.high


@pytest.mark.filterwarnings("error")
def test_rewards_of_0_have_values_of_0() -> None:
    rows, _ = random_rows(12_001, 600, 4)
    evaluator = vrtd.Evaluator(discount=GAMMA).fit(vrtd.logs.from_arrays(rows[:-1], np.zeros(12_000), rows[1:]))
    assert not evaluator.predict(rows[:5]).any()


def scaled_logs(scale: Any) -> tuple[Any, Any, vrtd.logs.Log]:
    """Return rows with scaled columns, their values, and a log of them."""
    rows, values = random_rows(20_001, 600, 4)
    rows.data *= np.broadcast_to(scale, 600)[rows.indices]
    reward = values[:-1] - GAMMA * values[1:] + 0.1 * np.random.default_rng(0).normal(size=20_000)
    return rows, values, vrtd.logs.from_arrays(rows[:-1], reward, rows[1:])


@pytest.mark.parametrize("scale", [1.0, 1e30, 1e-18, np.where(np.arange(600) == 7, 1000.0, 1.0)])
def test_features_of_different_scales_are_learned_alike(scale: Any) -> None:
    rows, values, log = scaled_logs(scale)
    evaluator = vrtd.Evaluator(discount=GAMMA).fit(log)
    found = evaluator.predict(rows[:2000], return_interval=0.95)
    assert evaluator.diagnostics_.converged
    assert np.sqrt(np.mean((found.value - values[:2000]) ** 2)) < 0.04
    assert np.mean((found.low < values[:2000]) & (values[:2000] < found.high)) > 0.85


@pytest.mark.parametrize("size", [1e-60, 1e-100, 1e-170])
def test_features_that_are_almost_0_do_not_spoil_the_others(size: float) -> None:
    rows, values, log = scaled_logs(np.where(np.arange(600) == 7, size, 1.0))
    found = vrtd.Evaluator(discount=GAMMA).fit(log).predict(rows[:2000])
    others = np.asarray(rows[:2000, [7]].sum(axis=1)) == 0.0
    assert np.sqrt(np.mean((found - values[:2000])[others] ** 2)) < 0.04


@pytest.mark.parametrize("step_size", [1e-3, 1e-4, 1e-6])
def test_a_step_that_is_too_small_is_warned_of(step_size: float) -> None:
    _, _, log = scaled_logs(1.0)
    with pytest.warns(ConvergenceWarning, match="the initial transient adds"):
        evaluator = vrtd.Evaluator("vrtd", step_size=step_size, discount=GAMMA, cost="linear").fit(log)
    assert not evaluator.diagnostics_.converged


@pytest.mark.filterwarnings("error::vrtd.errors.ConvergenceWarning")
def test_values_without_noise_are_not_warned_of() -> None:
    """Their errors are those of single precision, which are larger than the noise."""
    state = np.arange(6001) % 2
    log = vrtd.logs.from_arrays(state[:-1], np.ones(6000), state[1:])
    evaluator = vrtd.Evaluator(features=vrtd.features.Hashed(12), discount=GAMMA).fit(log)
    np.testing.assert_allclose(evaluator.predict(np.array([0, 1])), 2.0, rtol=1e-5)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_first_anchor_of_a_slow_chain_is_not_far_off(seed: int) -> None:
    """Its rows are adjacent, so that an inner loop over them in order of time drifts."""
    rng, n, d, k = np.random.default_rng(seed), 8000, 600, 3
    stays = rng.random((n + 1, k)) >= 0.02
    stays[0] = False
    last = np.maximum.accumulate(np.where(stays, 0, np.arange(n + 1)[:, None]), axis=0)
    columns = np.take_along_axis(rng.integers(0, d // k, (n + 1, k)), last, axis=0) + d // k * np.arange(k)
    rows = csr_array((np.ones(columns.size), columns.ravel(), np.arange(0, columns.size + 1, k)), shape=(n + 1, d))
    values = rows @ rng.normal(size=d)
    log = vrtd.logs.from_arrays(rows[:-1], values[:-1] - GAMMA * values[1:] + rng.normal(size=n), rows[1:])
    found = vrtd.Evaluator(discount=GAMMA).fit(log).predict(rows)
    assert np.sqrt(np.mean((found - values) ** 2)) < np.sqrt(np.mean(values**2))


def test_states_that_are_visited_have_an_interval_even_if_td_errors_are_0() -> None:
    state = np.random.default_rng(0).integers(0, 600, 30_001)
    reward = np.where(state[:-1] < 300, 0.0, np.random.default_rng(1).normal(1.0, 1.0, 30_000))
    weight = np.where(state[:-1] == 7, 0.0, 1.0)
    log = vrtd.logs.from_arrays(state[:-1], reward, state[1:], weight=weight)
    evaluator = vrtd.Evaluator(features=vrtd.features.Tabular(600), discount=0.0, cost="linear").fit(log)
    found = evaluator.predict([5, 300, 7], return_interval=0.95)
    assert (found.low[0], found.high[0]) == (0.0, 0.0)
    assert found.low[1] < 1.0 < found.high[1]
    assert np.isinf(found.high[2])  # only in rows with the weight 0


@pytest.mark.parametrize("discount", [0.9, 0.0])
def test_policy_values_of_short_sparse_rows_use_all_episodes(discount: float, tmp_path: Path) -> None:
    rng, n, length = np.random.default_rng(0), 20_000, 5
    state, is_last = rng.integers(0, 600, n), np.arange(n) % length == length - 1
    reward = rng.normal(size=600)[state] + rng.normal(size=n)
    log = vrtd.logs.from_arrays(state, reward, np.roll(state, -1), terminated=is_last)
    evaluator = vrtd.Evaluator(features=vrtd.features.Tabular(600), discount=discount, cost="linear").fit(log)
    first = state if discount == 0.0 else state[::length]
    assert evaluator.policy_value().value == pytest.approx(evaluator.theta_[first].mean())
    found = evaluator.check_returns()
    assert found is not None
    assert found.n_complete == len(first)
    assert found.difference.low < 0.0 < found.difference.high
    evaluator.save(tmp_path / "model.npz")
    assert vrtd.Evaluator.load(tmp_path / "model.npz").policy_value() == evaluator.policy_value()


def test_bits_of_merged_blocks() -> None:
    bits = np.random.default_rng(0).random((50, sparse_fit._MOST_BLOCKS)) < 0.2
    powers = 1 << np.arange(sparse_fit._MOST_BLOCKS)
    merged = sparse_fit._merge_bits((bits * powers).sum(axis=1).astype(np.uint32))
    expected = (bits[:, ::2] | bits[:, 1::2]) * powers[: sparse_fit._MOST_BLOCKS // 2]
    np.testing.assert_array_equal(merged, expected.sum(axis=1))


@pytest.mark.parametrize(("n", "step", "bad"), [(600, 0.2, 16), (40_000, 0.005, 1)])
def test_the_best_number_of_epochs_is_chosen(n: int, step: float, bad: int) -> None:
    """With few rows for each feature, many epochs follow their noise; with a small step, few epochs are too short."""
    rng, algorithm = np.random.default_rng(0), vrtd.VRTD(step, 100, growth=2.0)
    truth, others = rng.normal(size=200), make_transitions(200_000, seed=2)
    vector = -(others.phi.T @ (others.psi @ truth)) / len(others)
    rows = make_transitions(n, seed=1)

    def error(n_epochs: int) -> float:
        w = SparseInverse(algorithm, rows.astype(np.float32), n_epochs)(vector)
        return float(np.square(rows.phi @ (w - truth)).mean())

    choice = choose_epochs(algorithm, rows.astype(np.float32), vector)
    best = error(choice.n_epochs)
    assert best < 1.1 * min(error(k) for k in (1, 2, 4, 8, 16))
    assert error(bad) > 1.3 * best
    assert 0.4 < choice.error / best < 2.5


def make_transitions(n: int, seed: int) -> vrtd.Transitions:
    """Return rows of 200 features without rewards."""
    phi, _ = random_rows(n + 1, 200, 4, seed=seed)
    return vrtd.Transitions(part_of(phi, 0, n), np.zeros(n), part_of(phi, 1, n + 1), 0.5)


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


@pytest.mark.parametrize("most_bytes", [1 << 24, 1500])
def test_a_sparse_reservoir_is_uniform_and_the_same_however_rows_are_split(most_bytes: int) -> None:
    """Rows take 40 bytes and 12 for each of up to 8 numbers."""
    rows, empty = as_sparse(thin_out(some_rows(500, 4))), empty_sparse_reservoir(30, 1, most_bytes)
    whole, split = add_sparse(empty, rows), empty
    for first in range(0, 500, 3):
        split = add_sparse(split, rows.part(first, min(500, first + 3)))
        assert split.rows is not None
        assert len(split.parts) <= 65
        assert 40 * len(split.rows) + 12 * (split.rows.phi.nnz + split.rows.phi_next.nnz) <= most_bytes
    assert whole.rows is not None
    assert split.rows is not None
    in_order = np.argsort(words_of(empty.stream, np.arange(500)))
    n_bytes = 40 + 12 * (np.diff(rows.phi.indptr) + np.diff(rows.phi_next.indptr))
    n = min(30, int((np.cumsum(n_bytes[in_order]) <= most_bytes).sum()))
    np.testing.assert_array_equal(whole.rows.reward, rows.reward[in_order[:n]])
    assert whole.rows.reward.tobytes() == split.rows.reward.tobytes()
    assert (whole.rows.phi != split.rows.phi).nnz == 0


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
    ("algorithm", "options", "message"),
    [
        ("richardson_td", {}, "step_size='auto' of richardson_td needs dense rows.*or use algorithm='vrtd'.$"),
        (vrtd.GTD2(), {}, "gtd2 cannot learn from sparse rows"),
        (vrtd.TD(0.1, radius=2.0), {}, "On sparse rows, td has no projection, but radius is 2.0"),
        ("td", {}, "step_size='auto' of td cannot be combined with sparse rows.*or use algorithm='vrtd'.$"),
        ("lstd", {}, "lstd cannot be combined with sparse rows.* algorithm='vrtd', or algorithm='closed_form'.$"),
        ("vrtd", {"batch_size": 9}, r"batch_size=9 cannot be combined with sparse rows.*vrtd.VRTD\(...\)\).$"),
        ("auto", {"closed_form": True}, "closed_form=True is limited to 4,096 features.*algorithm='closed_form'.$"),
    ],
)
def test_what_needs_dense_rows_says_so(algorithm: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=f"^{message}"):
        vrtd.Evaluator(algorithm, discount=GAMMA, **options).fit(wide_log())


def test_the_rows_that_an_interval_needs_are_named() -> None:
    rows, _ = random_rows(501, 50_000, 4)
    log = vrtd.logs.from_arrays(rows[:-1], np.ones(500), rows[1:])
    assert vrtd.Evaluator(discount=GAMMA).fit(log).why_no_interval() == "it needs about 3,072 rows"


def wide_log() -> vrtd.logs.Log:
    """Return a log whose rows are too long to be dense."""
    rows, _ = random_rows(1501, 5000, 4)
    return vrtd.logs.from_arrays(rows[:-1], np.ones(1500), rows[1:])


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        ("richardson_td", {}),
        (vrtd.GTD2(0.01, 0.01), {}),
        (vrtd.TD(0.1, radius=20.0), {}),
        ("closed_form", {}),
        ("auto", {"cost": "quadratic"}),
    ],
)
@pytest.mark.filterwarnings("ignore::vrtd.errors.AccuracyWarning", "ignore::vrtd.errors.StabilityWarning")
def test_what_needs_dense_rows_gets_them_from_short_sparse_ones(algorithm: Any, options: dict[str, Any]) -> None:
    rows, _ = random_rows(4001, 520, 4)
    found = []
    for table in (rows, rows.toarray()):
        log = vrtd.logs.from_arrays(table[:-1], np.arange(4000) % 7 + 0.0, table[1:])
        evaluator = vrtd.Evaluator(algorithm, features="identity", discount=GAMMA, **options).fit(log)
        found.append([*evaluator.predict(table[:20], return_interval=0.95), *evaluator.mean_value()])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


@pytest.mark.parametrize("algorithm", [vrtd.TD(0.1), vrtd.TDLambda(0.1, 0.5), vrtd.VRTD(0.1, 100)])
def test_runs_without_an_interval_say_so_for_sparse_rows(algorithm: Any) -> None:
    evaluator = vrtd.Evaluator(algorithm, discount=GAMMA).fit(wide_log())
    rows, _ = random_rows(3, 5000, 4)
    with pytest.warns(AccuracyWarning, match="No interval"):
        assert np.isnan(evaluator.predict(rows, return_interval=0.95).low).all()


def test_the_default_of_tile_coding_is_about_as_accurate_as_least_squares() -> None:
    n, discount, rng = 30_000, 0.9, np.random.default_rng(0)
    state = np.abs(1.0 - (1.0 + np.cumsum(rng.normal(scale=0.08, size=(n + 1, 2)), axis=0)) % 2.0)  # reflected walk
    reward = np.sin(6.0 * state[:-1, 0]) * np.cos(4.0 * state[:-1, 1]) + 0.3 * rng.normal(size=n)
    log, errors = vrtd.logs.from_arrays(state[:-1], reward, state[1:]), []
    tiles = vrtd.features.Tiles(8, 12, low=(0, 0), high=(1, 1))
    known = vrtd.Evaluator(
        "closed_form", features=vrtd.features.Tiles(8, 5, low=(0, 0), high=(1, 1)), discount=discount
    )
    values = known.fit(log).predict(state[:2000])  # fewer features have less noise
    for algorithm in ("auto", "closed_form"):
        evaluator = vrtd.Evaluator(algorithm, features=tiles, discount=discount).fit(log)
        errors.append(float(np.sqrt(np.square(evaluator.predict(state[:2000]) - values).mean())))
    assert errors[0] < 1.2 * errors[1], errors


def test_matrices_need_dense_rows() -> None:
    rows = as_sparse(thin_out(some_rows(40, 6)))
    data = vrtd.Transitions(rows.phi, rows.reward, rows.phi_next, 0.5)
    for use in (lambda: data.theta_star, lambda: data.rank, lambda: vrtd.simulate(data, vrtd.TD(0.1), n_gradients=10)):
        with pytest.raises(InvalidInputError, match="so dense rows, but the rows are sparse"):
            use()


def test_only_short_sparse_rows_are_divided(log: Any) -> None:
    short, wide = LongLog(log[0]), LongLog(wide_log())
    with ThreadPoolExecutor(1) as executor:
        assert (
            vrtd.Evaluator(discount=GAMMA).fit(short, executor=executor).diagnostics_.settings["name"]
            == "richardson_td"
        )
        for algorithm, each, remedy in (("auto", wide, "Drop executor.$"), ("vrtd", short, "or pass algorithm='rich")):
            with pytest.raises(InvalidInputError, match=f"^Sparse rows are not learned in partitions.*{remedy}"):
                vrtd.Evaluator(algorithm, discount=GAMMA, cost="linear").fit(each, executor=executor)


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
    """12 vectors of d numbers, and one in single precision for each block, besides the kept rows."""
    n, d, piece = 40_000, 100_000, 2000  # a million features, made smaller
    monkeypatch.setattr(sparse_fit, "_KEPT_BYTES", 8 * 8 * d)
    rows, _ = random_rows(n + 1, d, 32)
    log = vrtd.logs.from_arrays(part_of(rows, 0, n), np.ones(n), part_of(rows, 1, n + 1))
    (chunk,) = log.chunks()

    def learn() -> vrtd.Evaluator:
        evaluator = vrtd.Evaluator(discount=GAMMA)
        for first in range(0, n, piece):
            evaluator.partial_fit(chunk.part(first, first + piece))
        evaluator.theta_.sum()
        return evaluator

    learn()  # compile before memory is counted
    tracemalloc.start()
    try:
        evaluator = learn()
        now, peak = (size / (8 * d) for size in tracemalloc.get_traced_memory())
    finally:
        tracemalloc.stop()
    assert evaluator.n_features == d
    assert now < 24, (now, peak)
    assert peak < 38, (now, peak)  # 12 for the 24 blocks, 16 for two copies of the kept rows, and 10 others
