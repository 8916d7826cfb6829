"""The closed form of many features, solved without a matrix, against the dense closed form."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow.csv import write_csv
from scipy.sparse import csc_array, csr_array, eye_array
from scipy.sparse.csgraph import reverse_cuthill_mckee
from scipy.sparse.linalg import splu

import vrtd
from vrtd import progress
from vrtd.errors import ConvergenceWarning, DataError, InvalidInputError, NotFittedError, SingularSystemError
from vrtd.estimator import fit, state
from vrtd.estimator import iterative_least_squares as iterative
from vrtd.estimator.iterative_least_squares import IterativeFit, solve_iteratively
from vrtd.estimator.least_squares import Solution, add, no_sums, solve
from vrtd.problems import Transitions

D, N, GAMMA = 200, 4000, 0.9


def rows_of(form: str, n: int = N, d: int = D, seed: int = 0) -> Transitions:
    """Return weighted rows of a trajectory with d sparse features, of which some terminate.

    Features 0 and 1 are equal, so that A is singular, and the last two are 0 in every row.
    """
    rng = np.random.default_rng(seed)
    state_of = np.concatenate([[0], rng.integers(4 * d, size=n)])
    table = np.where(rng.random((4 * d, d)) < 4 / d, rng.normal(1.0, 1.0, (4 * d, d)), 0.0)
    table[:, 2] = 0.5
    table[:, 1] = table[:, 0]
    table[:, -2:] = 0.0
    discount = np.where(rng.random(n) < 0.05, 0.0, GAMMA)
    phi, phi_next = table[state_of[:-1]], table[state_of[1:]]
    phi_next[-40:, -2] = 1.0  # a successor with a feature that no row has
    reward = rng.normal(size=n) + 3.0 * phi[:, 3] + 1.0
    pack: Any = csr_array if form == "sparse" else np.asarray
    weight = rng.uniform(0.5, 1.5, n)
    return Transitions.wrap(pack(phi), reward, pack(phi_next), discount, weight, discount == 0.0)


def dense(rows: Transitions, theta_0: Any = None) -> Solution:
    tables = (table.toarray() if isinstance(table, csr_array) else table for table in (rows.phi, rows.phi_next))
    phi, phi_next = tables
    plain = Transitions.wrap(phi, rows.reward, phi_next, rows.discount, rows.weight, rows.ends)
    d = rows.n_features
    return solve(add(no_sums(d), plain), np.zeros(d) if theta_0 is None else theta_0, phi)


def solved(rows: Transitions, theta_0: Any = None, piece: int = 700) -> IterativeFit:
    def read() -> Iterator[Transitions]:
        for first in range(0, len(rows), piece):
            yield rows.part(first, first + piece)

    return solve_iteratively(read, np.zeros(rows.n_features) if theta_0 is None else theta_0, lambda _: None)


@pytest.fixture
def tight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Solve to rounding, so that what differs from the dense closed form is an error."""
    for name in ("_RESIDUAL", "_RESIDUAL_IN_MEMORY", "_RESIDUAL_OF_BLOCKS"):
        monkeypatch.setattr(iterative, name, 1e-11)
    monkeypatch.setattr(iterative, "_PIECE_BYTES", 1 << 18)
    monkeypatch.setattr(iterative, "_N_BLOCKS", 25)


FORMS = [
    pytest.param("dense", {}, 2, id="dense rows in memory"),
    pytest.param("dense", {"_HELD_BYTES": 0}, None, id="passes over dense rows"),
    pytest.param("sparse", {}, 2, id="sparse rows in memory"),
    pytest.param("sparse", {"_HELD_BYTES": 1 << 17, "_PAIRS": 1 << 12}, 3, id="sparse matrix"),
    pytest.param("sparse", {"_PLAIN_PRODUCTS": 0}, 2, id="sparse rows and a preconditioner"),
    pytest.param(
        "sparse",
        {"_HELD_BYTES": 1 << 17, "_PAIRS": 1 << 12, "_PLAIN_PRODUCTS": 0},
        3,
        id="sparse matrix and a preconditioner",
    ),
    pytest.param("sparse", {"_HELD_BYTES": 1 << 17, "_MOST_NONZEROS": 9000}, None, id="passes over sparse rows"),
]


@pytest.mark.usefixtures("tight")
@pytest.mark.parametrize(("form", "limits", "n_passes"), FORMS)
def test_it_equals_the_dense_closed_form(
    form: str, limits: dict[str, int], n_passes: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in limits.items():
        monkeypatch.setattr(iterative, name, value)
    rows = rows_of(form)
    theta_0 = np.random.default_rng(1).normal(size=D)
    found, exact = solved(rows, theta_0), dense(rows, theta_0)
    scale = np.abs(exact.theta).max()
    np.testing.assert_allclose(found.theta, exact.theta, rtol=0.0, atol=1e-8 * scale)
    assert found.theta is not None
    assert found.theta[-1] == theta_0[-1]
    assert found.residual < 1e-11
    assert found.n_passes == (found.n_products + 3 if n_passes is None else n_passes)
    mine = found.as_solution()
    assert mine.ends.rows == tuple(range(160, 4001, 160))
    influence = np.diff(np.array([np.zeros(D), *(find_influence(rows, exact.theta))]), axis=0)
    np.testing.assert_allclose(mine.influence, influence, rtol=0.0, atol=2e-6 * np.abs(influence).max())
    np.testing.assert_allclose(mine.mean_phi, np.asarray(rows.phi.mean(axis=0)), atol=1e-12)
    np.testing.assert_allclose(mine.squares, exact.squares, atol=1e-12)
    np.testing.assert_allclose(np.abs(mine.leak[:, 0]), np.abs(exact.leak).sum(axis=1), atol=1e-8)
    assert mine.seen.tolist() == exact.seen.tolist()


def find_influence(rows: Transitions, theta: Any) -> Iterator[Any]:
    """Yield the sums over blocks of H g_x up to each end, with the pseudo-inverse of the dense A."""
    phi, phi_next = (
        np.asarray(table.toarray() if isinstance(table, csr_array) else table) for table in (rows.phi, rows.phi_next)
    )
    left, psi = phi * rows.weight[:, None], rows.discount[:, None] * phi_next - phi
    seen = np.flatnonzero(phi.any(axis=0))
    size = np.sqrt(np.square(phi[:, seen]).mean(axis=0))
    A = (left.T @ psi / len(rows))[np.ix_(seen, seen)] / np.outer(size, size)
    H = np.zeros((rows.n_features, rows.n_features))
    H[np.ix_(seen, seen)] = -np.linalg.pinv(A, rcond=1e-10) / np.outer(size, size)
    for end in range(160, len(rows) + 1, 160):
        error = rows.reward[:end] + psi[:end] @ theta
        yield H @ (left[:end].T @ error) / 160


@pytest.mark.usefixtures("tight")
@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_products_without_weights_or_discounts_are_caught(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison with the dense closed form has the power to notice a wrong product."""
    exact = dense(rows_of(form))
    monkeypatch.setattr(iterative, "_across", lambda numbers, like: np.ones((len(numbers), *(1,) * (like.ndim - 1))))
    assert np.abs(solved(rows_of(form)).theta - exact.theta).max() > 1e-2 * np.abs(exact.theta).max()


def test_the_default_residual_is_small_enough_for_values() -> None:
    rows = rows_of("sparse")
    found, exact = solved(rows), dense(rows)
    assert found.is_converged
    assert found.doubt is None
    value, exact_value = rows.phi @ found.theta, rows.phi @ exact.theta
    np.testing.assert_allclose(value, exact_value, rtol=0.0, atol=1e-6 * np.abs(exact_value).max())


def test_no_blocks_are_solved_for_few_rows() -> None:
    found = solved(rows_of("sparse", n=790))
    assert found.influence is None
    assert found.as_solution().why_no_interval == "it needs 792 rows, but there are only 790"
    assert found.is_overfitted
    assert not solved(rows_of("sparse", n=800)).is_overfitted


def zero_weights(rows: Transitions) -> Transitions:
    """Return rows in which feature 3 is not 0 only where the weight is 0."""
    phi = rows.phi.toarray() if rows.is_sparse else rows.phi
    weight = np.where(phi[:, 3] != 0.0, 0.0, rows.weight)
    return Transitions.wrap(rows.phi, rows.reward, rows.phi_next, rows.discount, weight, rows.ends)


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_rows_of_weight_0_determine_nothing(form: str) -> None:
    rows, theta_0 = zero_weights(rows_of(form)), np.ones(D)
    found, exact = solved(rows, theta_0), dense(rows, theta_0)
    assert found.theta is not None
    for solution in (found.as_solution(), exact):
        assert not solution.seen[3]
        assert solution.theta[3] == 1.0
        assert solution.leak[3].any()
    np.testing.assert_allclose(found.theta, exact.theta, rtol=0.0, atol=1e-5 * np.abs(exact.theta).max())
    np.testing.assert_allclose(found.squares, exact.squares, atol=1e-12)
    none = Transitions.wrap(rows.phi, rows.reward, rows.phi_next, rows.discount, np.zeros(len(rows)), rows.ends)
    for solve_all in (solved, dense):
        with pytest.raises(SingularSystemError, match="All features are 0 in every row with a weight above 0"):
            solve_all(none)


def test_a_feature_is_rare_if_few_blocks_have_it_with_a_weight() -> None:
    rows = rows_of("sparse")
    weight = np.where((np.arange(N) < N // 2) | (rows.phi[:, [3]].toarray()[:, 0] == 0.0), rows.weight, 0.0)
    late = np.where(np.arange(N) < N * 22 // 24, 0.0, weight)
    kept = [Transitions.wrap(rows.phi, rows.reward, rows.phi_next, rows.discount, w, rows.ends) for w in (weight, late)]
    assert [bool(solved(each).rare[3]) for each in kept] == [False, True]


def test_a_fit_that_does_not_converge_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iterative, "_MOST_PRODUCTS", 3)
    monkeypatch.setattr(iterative, "_MOST_CYCLE", 2)
    monkeypatch.setattr(iterative, "_LEAST_CYCLE", 2)
    found = solved(rows_of("sparse"))
    assert found.doubt is not None
    assert "the relative residual of least squares is " in found.doubt
    assert found.influence is None
    assert found.as_solution().why_no_interval == (
        "the fit was stopped, or did not converge, before the noise of theta was computed"
    )


def test_rows_that_determine_nothing_or_overflow_are_refused() -> None:
    rows = rows_of("dense", n=400)
    with pytest.raises(SingularSystemError, match="All features are 0 in every row"):
        solved(Transitions.wrap(0.0 * rows.phi, rows.reward, rows.phi_next, rows.discount, None, rows.ends))
    with pytest.raises(SingularSystemError, match="Sums over the rows overflow"):
        solved(Transitions.wrap(1e200 * rows.phi, rows.reward, rows.phi_next, rows.discount, None, rows.ends))


@pytest.mark.parametrize("n", [300, 500])
def test_a_log_that_changes_between_passes_is_refused(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iterative, "_HELD_BYTES", 0)
    rows, sizes = rows_of("dense", n=500), iter([400, n])
    with pytest.raises(DataError, match=f"it had 400 rows, and now {n} have been read"):
        solve_iteratively(lambda: iter([rows.part(0, next(sizes))]), np.zeros(D), lambda _: None)


# With an evaluator


@pytest.fixture
def few_features(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the number of features up to which the closed form has a matrix."""
    for module in (state, fit):
        monkeypatch.setattr(module, "MOST_FEATURES", 30)


def a_log(n: int = 6144, d: int = 40) -> vrtd.logs.Log:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(n + 1, d)).astype(np.float32)
    x[1:] += 0.5 * x[:-1]
    x[:, 0] = 1.0
    ended = rng.random(n) < 0.01
    return vrtd.logs.from_arrays(x[:-1], x[:-1, 1] + rng.normal(size=n), x[1:], terminated=ended)


def an_evaluator(algorithm: str = "closed_form", **options: Any) -> vrtd.Evaluator:
    return vrtd.Evaluator(algorithm, features="identity", discount=GAMMA, **options)


def test_an_evaluator_gives_the_answers_of_the_dense_closed_form(few_features: None, tmp_path: Path) -> None:
    log, phi = a_log(), np.random.default_rng(0).normal(size=(5, 40))
    found = an_evaluator().fit(log)
    path = tmp_path / "model.npz"
    found.save(path)
    again = vrtd.Evaluator.load(path, None)
    with pytest.MonkeyPatch.context() as patch:
        for module in (state, fit):
            patch.setattr(module, "MOST_FEATURES", 4096)
        exact = an_evaluator().fit(log)
    for evaluator in (found, again):
        np.testing.assert_allclose(evaluator.theta_, exact.theta_, rtol=1e-6, atol=1e-7)
        mine, its = (each.predict(phi, return_interval=0.9) for each in (evaluator, exact))
        np.testing.assert_allclose(mine.value, its.value, rtol=1e-5, atol=1e-6)
        half, exact_half = mine.high - mine.value, its.high - its.value  # from other blocks of the same rows
        assert np.all((half > 0.5 * exact_half) & (half < 2.0 * exact_half))
        mean, exact_mean = evaluator.mean_value(), exact.mean_value()
        assert abs(mean.value - exact_mean.value) < 1e-6
        assert 0.5 < (mean.high - mean.low) / (exact_mean.high - exact_mean.low) < 2.0
        assert evaluator.has_policy_value
        assert abs(evaluator.policy_value().value - exact.policy_value().value) < 1e-6
    diagnostics = found.diagnostics_
    assert diagnostics.converged
    assert diagnostics.n_passes == 2
    assert diagnostics.as_dict()["residual"] < 1e-8
    assert "Least squares was solved by GMRES, residual " in diagnostics.text
    assert "closed form (GMRES, residual " in repr(found)
    assert "2 passes over the log" in repr(found)


def test_sparse_and_dense_rows_have_the_same_answers(few_features: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "MOST_DENSE", 20)
    rng = np.random.default_rng(0)
    x = np.where(rng.random((4001, 40)) < 0.2, rng.normal(1.0, 1.0, (4001, 40)), 0.0)
    reward = x[:-1, 0] + rng.normal(size=4000)
    found = {}
    for form, pack in (("dense", np.asarray), ("sparse", csr_array)):
        evaluator = an_evaluator().fit(vrtd.logs.from_arrays(pack(x[:-1]), reward, pack(x[1:])))
        values = evaluator.predict(pack(x[:50]), return_interval=0.9)
        assert evaluator.diagnostics_.as_dict()["residual"] < 1e-8
        found[form] = np.array([*values, np.repeat(evaluator.mean_value().low, 50)])
    np.testing.assert_allclose(found["sparse"], found["dense"], rtol=1e-6, atol=1e-7)


def test_a_rare_text_has_no_interval(few_features: None) -> None:
    """The closed form fits the noise of its rows, which may be larger than the differences between texts."""
    rng = np.random.default_rng(0)
    text = rng.integers(3, size=4001)
    text[1000:1003] = 7
    log = vrtd.logs.from_arrays(text[:-1], 10.0 * rng.normal(size=4000), text[1:])
    found = vrtd.Evaluator("closed_form", features="hash:10", discount=0.0).fit(log)
    low, high = found.predict(np.array([0, 2, 7, 9]), return_interval=0.95)[1:]
    assert np.isfinite(high - low).tolist() == [True, True, False, False]


def test_cost_chooses_it_too(few_features: None) -> None:
    found = an_evaluator("auto", cost="quadratic").fit(a_log(1000))
    assert found.algorithm_ is None
    assert found.diagnostics_.settings == {"name": "closed_form"}
    assert found.diagnostics_.n_products > 0


def test_one_pass_is_not_enough(few_features: None) -> None:
    with pytest.raises(InvalidInputError, match="In one pass over the rows, the closed form is limited to 30 features"):
        an_evaluator().partial_fit(a_log(100))
    with pytest.raises(InvalidInputError, match="closed_form=True is limited to 30 features"):
        an_evaluator("richardson_td", closed_form=True).fit(a_log(1200))
    fitted = an_evaluator().fit(a_log(1000))
    with pytest.raises(InvalidInputError, match="A closed form without a d x d matrix cannot be continued"):
        fitted.partial_fit(a_log(100))


def test_ctrl_c_keeps_the_best_solution(few_features: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iterative, "_MOST_CYCLE", 6)
    monkeypatch.setattr(iterative, "_LEAST_CYCLE", 6)

    def stop_at(n_rows: int) -> Any:
        def progress(done: int, _total: int | None) -> None:
            if done >= n_rows:
                raise KeyboardInterrupt

        return progress

    evaluator = an_evaluator()
    with pytest.raises(KeyboardInterrupt):
        evaluator.fit(a_log(2000), progress=stop_at(3000))
    with pytest.raises(NotFittedError, match="stopped before a first solution"):
        evaluator.predict(np.zeros((1, 40)))
    with pytest.raises(KeyboardInterrupt):
        evaluator.fit(a_log(2000), progress=stop_at(2000 * 14))
    with pytest.warns(ConvergenceWarning, match="the relative residual of least squares is"):
        stopped = evaluator.predict(np.eye(40))
    assert 0.0 < evaluator.diagnostics_.residual < 0.9
    assert evaluator.diagnostics_.converged is None
    exact = an_evaluator().fit(a_log(2000)).theta_
    assert np.linalg.norm(stopped - exact) < 0.5 * np.linalg.norm(exact)


def test_progress_says_how_often_all_rows_were_used(
    few_features: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0.0)
    x = np.random.default_rng(3).normal(size=(1_000, 40))
    write_csv(pa.table({f"x{j}": x[:, j] for j in range(40)} | {"reward": x[:, 0]}), tmp_path / "log.csv")
    an_evaluator().fit(tmp_path / "log.csv", observations="x*", progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"vrtd: all rows used \d+ times", lines[-1])


def band(n: int, width: int, seed: int = 0) -> csr_array:
    """Return a matrix with nonzeros near the diagonal, in random order."""
    rng = np.random.default_rng(seed)
    rows = np.repeat(np.arange(n), 4)
    columns = np.clip(rows + rng.integers(-width, width + 1, rows.size), 0, n - 1)
    matrix = csr_array((rng.normal(size=rows.size), (rows, columns)), shape=(n, n)) + 9.0 * eye_array(n)
    order = rng.permutation(n)
    return csr_array(csr_array(matrix)[order][:, order])


def test_the_size_of_factors_is_known_before() -> None:
    matrix = band(300, 5)
    order = reverse_cuthill_mckee(matrix)
    ordered = csr_array(matrix[order][:, order])
    factors = splu(csc_array(ordered), permc_spec="NATURAL", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
    exact = factors.L.nnz + factors.U.nnz
    assert exact <= iterative._count_factors(ordered) + 300 < 3 * exact < iterative._count_factors(matrix)


def test_large_factors_are_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    n_factored = []
    monkeypatch.setattr(iterative, "splu", lambda *args, **options: n_factored.append(1) or splu(*args, **options))
    monkeypatch.setattr(iterative, "_PLAIN_PRODUCTS", 0)
    for most, n in ((40_000, 1), (35_000, 0)):  # A has 31,252 nonzeros, and its factors have 38,870
        monkeypatch.setattr(iterative, "_MOST_FACTORED", most)
        n_factored.clear()
        assert solved(rows_of("sparse")).is_converged
        assert len(n_factored) == n
