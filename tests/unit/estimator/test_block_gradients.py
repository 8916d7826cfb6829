"""The closed form of more features than matrices of blocks fit for: vectors in their place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers.streams import GAMMA, some_rows
from vrtd.errors import ModelFileError
from vrtd.estimator import least_squares
from vrtd.estimator.block_gradients import find_anchor
from vrtd.estimator.least_squares import add, keeps_matrices, least_rows, most_held, no_sums, solve
from vrtd.estimator.model_file import read_model, write_tree
from vrtd.problems import Transitions


@pytest.fixture
def no_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(least_squares, "_MOST_BYTES", 0)


def solved(rows: Transitions, cuts: Any = ()) -> Any:
    d = rows.n_features
    sums = no_sums(d)
    for first, last in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        sums = add(sums, rows.part(first, last))
    return solve(sums, np.zeros(d), rows.phi)


def cycle(n: int, d: int) -> Transitions:
    """Rows of a chain that goes around d states: the mean of A_x is the same in every block of d rows."""
    at, reward = np.arange(n + 1) % d, np.random.default_rng(0).normal(size=n) + np.arange(n) % d
    return Transitions(np.eye(d)[at[:-1]], reward, np.eye(d)[at[1:]], GAMMA)


def test_rows_that_are_held_tell_what_matrices_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = some_rows(590, 30, weighted=True)
    exact = solved(rows).influence
    monkeypatch.setattr(least_squares, "_MOST_BYTES", 290_000)
    assert most_held(30) == 604
    np.testing.assert_allclose(solved(rows).influence, exact, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("n", [332, 5000], ids=["one anchor", "anchors that move"])
def test_vectors_equal_matrices_where_every_block_has_the_same_matrix(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = solved(cycle(n, 4))
    monkeypatch.setattr(least_squares, "_MOST_BYTES", 0)
    found = solved(cycle(n, 4))
    assert found.theta.tobytes() == exact.theta.tobytes()
    assert found.ends == exact.ends
    np.testing.assert_allclose(found.influence, exact.influence, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_vectors_tell_nearly_what_matrices_tell(weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the move from anchor to solution the difference is several times the influence."""
    rows = some_rows(9000, 5, "f4", weighted)
    rows = Transitions(rows.phi, rows.reward + 5.0 * rows.phi[:, 0], rows.phi_next, rows.discount, rows.weight)
    exact = solved(rows).influence
    monkeypatch.setattr(least_squares, "_MOST_BYTES", 0)
    found = solved(rows).influence
    assert found.shape == exact.shape
    assert np.sqrt(np.square(found - exact).mean()) < 0.1 * exact.std()


@pytest.mark.usefixtures("no_matrices")
def test_splits_do_not_change_a_bit_of_vectors() -> None:
    rows = some_rows(9000, 12)
    whole = solved(rows)
    for seed in range(2):
        parts = solved(rows, np.sort(np.random.default_rng(seed).integers(1, 9000, 40)).tolist())
        assert parts.theta.tobytes() == whole.theta.tobytes()
        assert parts.influence.tobytes() == whole.influence.tobytes()


@pytest.mark.usefixtures("no_matrices")
@pytest.mark.parametrize("n", [200, 700], ids=["before the first anchor", "after it"])
def test_a_model_with_vectors_goes_on_as_if_it_had_not_been_stored(n: int, tmp_path: Path) -> None:
    path, x = tmp_path / "model.npz", np.random.default_rng(1).normal(size=(1501, 3))
    log = vrtd.logs.from_arrays

    def part(first: int, last: int) -> Any:
        return log(x[first:last], x[first:last, 0], x[first + 1 : last + 1])

    whole = vrtd.Evaluator("closed_form", features=None, discount=0.5).fit(part(0, 1500))
    vrtd.Evaluator("closed_form", features=None, discount=0.5).partial_fit(part(0, n)).save(path)
    again = vrtd.Evaluator.load(path).partial_fit(part(n, 1500))
    assert again.spread().influence.tobytes() == whole.spread().influence.tobytes()
    if n == 700:
        with read_model(path) as tree:
            tree["state"]["sums"]["gradients"]["anchor"] = np.zeros(4)
            write_tree(path, tree)
        with pytest.raises(ModelFileError, match="is not a model of this version of vrtd, or is damaged"):
            vrtd.Evaluator.load(path)


@pytest.mark.usefixtures("no_matrices")
def test_an_interval_needs_several_rows_for_each_feature() -> None:
    """Fewer rows are nearly reproduced by the values, and look as if they had no noise."""
    assert least_rows(100) == 400
    assert solved(some_rows(399, 100)).why_no_interval == "it needs 400 rows, but there are only 399"
    assert solved(some_rows(400, 100)).why_no_interval is None


def test_features_without_matrices_have_intervals() -> None:
    d = 920
    assert not keeps_matrices(d)
    rows = some_rows(least_rows(d), d, "f4", seed=3)
    log = vrtd.logs.from_arrays(rows.phi, rows.reward, rows.phi_next)
    found = (
        vrtd.Evaluator("closed_form", features=None, discount=GAMMA).fit(log).predict(rows.phi[:3], return_interval=0.9)
    )
    assert np.all(np.isfinite(found.low) & (found.low < found.value))


def test_an_anchor_is_near_the_solution_and_finite() -> None:
    rows = some_rows(500, 4)
    total = np.column_stack([rows.left.T @ rows.psi, rows.left.T @ rows.reward])
    squares = np.square(rows.phi).sum(axis=0)
    np.testing.assert_allclose(find_anchor(total, squares), rows.theta_star, rtol=1e-5)
    total[2], total[:, 2], squares[2] = 0.0, 0.0, 0.0
    anchor = find_anchor(total, squares)
    assert anchor is not None
    assert anchor[2] == 0.0
    assert find_anchor(np.full((4, 5), np.inf), squares) is None
