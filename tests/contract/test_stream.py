"""The loop over rows of a log: every algorithm against its transcription, and what makes it safe to feed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers.streams import GAMMA, drawer, learner, some_rows, with_columns
from tests.helpers.table import ROWS
from tests.reference import td
from tests.reference.sampling import AlgorithmIndex
from vrtd.algorithms import Epoch
from vrtd.engine.stream import SMALL
from vrtd.errors import InvalidInputError
from vrtd.estimator.learner import batch_rows, first_learner, learn, next_phase
from vrtd.estimator.rows import NotFiniteError

# Each kind (features, type, whether rows have importance ratios) is compiled, in a second: every row with ratios,
# the first row of each algorithm without them, and some on both sides of the number of features that is unrolled.
KINDS = {
    "td-markov": [(1, "f8", False), (SMALL + 1, "f8", True)],
    "vrtd-algorithm-2": [(SMALL, "f4", True), (40, "f4", False)],
}
ON_A_STREAM = [row for row in ROWS if row.sampling != "dataset" and row.algorithm.learns_from_log]
FIRST = {type(row.algorithm): row for row in reversed(ON_A_STREAM)}
CASES = [
    (row, kind)
    for row in ON_A_STREAM
    for kind in [(4, "f8", True), *([(4, "f8", False)] if row in FIRST.values() else []), *KINDS.get(row.id, [])]
]


@pytest.mark.parametrize(("row", "kind"), CASES, ids=lambda case: getattr(case, "id", None))
def test_every_algorithm_equals_its_transcription(row: Any, kind: tuple[int, str, bool]) -> None:
    d, dtype, weighted = kind
    n_epochs = min(row.n_epochs, 12)
    rows = some_rows(n_epochs * batch_rows(row.algorithm), d, dtype, weighted)
    found = learn(learner(row.algorithm, d), rows)
    index = AlgorithmIndex(3, 0)
    expected = row.reference(row.algorithm, "markov", drawer(rows), index, np.linspace(-1.0, 1.0, d), n_epochs)[-1]
    assert found.n_epochs == n_epochs
    np.testing.assert_allclose(found.theta, expected, rtol=1e-12, atol=1e-12)


IN_NEED_OF_A_DATA_SET = {type(row.algorithm) for row in ROWS} - {type(row.algorithm) for row in ON_A_STREAM}


@pytest.mark.parametrize("algorithm", sorted(IN_NEED_OF_A_DATA_SET, key=lambda algorithm: algorithm.name))
def test_algorithms_for_data_sets_refuse_a_stream(algorithm: Any) -> None:
    message = (
        f"^{algorithm.name} needs a data set because it uses rows repeatedly, but got sampling='markov'. Use sampling"
    )
    assert not algorithm().learns_from_log
    with pytest.raises(InvalidInputError, match=message):
        learn(learner(algorithm(), 4), some_rows(5000, 4))
    with pytest.raises(InvalidInputError, match=message):
        vrtd.simulate(vrtd.problems.random_mdp(), algorithm())


def test_epochs_of_other_lengths_are_refused() -> None:
    class Ramped(vrtd.VRTD):
        def epoch(self, sampling: Any, n_rows: int = 0) -> Epoch:
            return super().epoch(sampling)._replace(warmup=((2, 7),))

    assert vrtd.VRTD(0.1, 7).learns_from_log
    assert not Ramped(0.1, 7).learns_from_log
    with pytest.raises(InvalidInputError, match=r"^All epochs on a log must have the same length, but got Epoch"):
        learn(learner(Ramped(0.1, 7), 4), some_rows(100, 4))


def test_the_transcriptions_see_a_planted_bug() -> None:
    """A loop that bootstraps through terminations is told from the transcription."""
    rows = some_rows(70, 4)
    found = learn(learner(vrtd.VRTD(0.1, 7), 4), with_columns(rows, discount=np.full(70, GAMMA)))
    index = AlgorithmIndex(3, 0)
    expected = td.vrtd(vrtd.VRTD(0.1, 7), "markov", drawer(rows), index, np.linspace(-1.0, 1.0, 4), 10)[-1]
    assert np.abs(found.theta - expected).max() > 1e-3


@pytest.mark.parametrize("algorithm", [vrtd.TD(0.1), vrtd.VRTD(0.1, 7), vrtd.VRTD(0.1, 100, output="average")])
@pytest.mark.parametrize(("d", "dtype"), [(4, "f8"), (40, "f4")])
def test_splits_do_not_change_a_bit(algorithm: Any, d: int, dtype: str) -> None:
    n = 3000
    rows = some_rows(n, d, dtype)
    whole = learn(learner(algorithm, d), rows)
    for seed in range(3):
        parts, rng, at = learner(algorithm, d), np.random.default_rng(seed), 0
        while at < n:
            last = min(n, at + int(rng.integers(1, 250)))
            piece = rows.part(at, last)
            if not seed:  # other memory, too
                piece = with_columns(piece, phi=piece.phi.copy(), phi_next=piece.phi_next.copy())
            parts = learn(parts, piece)
            at = last
        assert parts.theta.tobytes() == whole.theta.tobytes()
        assert (parts.n_epochs, parts.n_rows, parts.n_waiting) == (whole.n_epochs, whole.n_rows, whole.n_waiting)
        assert parts.path.n_rows == whole.path.n_rows
        assert np.array_equal(parts.path.theta, whole.path.theta)


def test_rows_of_an_open_batch_wait_and_do_not_move_theta() -> None:
    rows = some_rows(250, 4)
    found = learn(learner(vrtd.VRTD(0.1, 100), 4), rows.part(0, 99))
    assert found.n_waiting == 99
    assert np.array_equal(found.theta, np.linspace(-1.0, 1.0, 4))
    found = learn(found, rows.part(99, 250))
    assert (found.n_epochs, found.n_waiting) == (2, 50)
    assert np.array_equal(learn(found, some_rows(49, 4, seed=5)).theta, found.theta)


@pytest.mark.parametrize("algorithm", [vrtd.TD(0.1), vrtd.VRTD(0.1, 10)])
@pytest.mark.parametrize("field", ["phi", "phi_next", "reward", "weight"])
@pytest.mark.parametrize("row", [3, 47, 199])  # completes the open batch; inside; in what would wait
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_rows_that_are_not_finite_change_nothing(algorithm: Any, field: str, row: int, bad: float) -> None:
    first, rows = some_rows(1995, 4, weighted=True), some_rows(204, 4, weighted=True, seed=9)
    values = getattr(rows, field).copy()
    values[row] = bad
    rows_bad = with_columns(rows, **{field: values}, discount=np.full(204, GAMMA))
    before = learn(learner(algorithm, 4), first)
    untouched = learn(learn(learner(algorithm, 4), first), rows)
    with pytest.raises(NotFiniteError):
        learn(before, rows_bad)
    found = learn(before, rows)
    assert found.theta.tobytes() == untouched.theta.tobytes()
    assert found.path.n_rows == untouched.path.n_rows
    assert (found.n_rows, found.n_epochs) == (untouched.n_rows, untouched.n_epochs)


@pytest.mark.parametrize("algorithm", [vrtd.TD(0.1), vrtd.VRTD(0.1, 100), vrtd.TDLambda(0.1, 0.7)])
@pytest.mark.parametrize("d", [4, 40])
def test_learning_leaves_the_learner_unchanged(algorithm: Any, d: int) -> None:
    """Learning from one learner twice gives the same result, and leaves the learner as it was."""
    before = learn(learner(algorithm, d), some_rows(1050, d))
    kept = {name: getattr(before, name).copy() for name in ("theta", "state", "stream")}
    first, other, again = (learn(before, some_rows(777, d, seed=seed)) for seed in (1, 2, 1))
    assert first.theta.tobytes() == again.theta.tobytes() != other.theta.tobytes()
    for name, values in kept.items():
        assert np.array_equal(getattr(before, name), values)
    assert before.n_rows + before.n_waiting == 1050


def test_a_step_that_diverges_is_an_error() -> None:
    found = learner(vrtd.TD(50.0), 4)
    with pytest.raises(NotFiniteError):
        learn(found, some_rows(5000, 4))
    assert np.array_equal(found.theta, np.linspace(-1.0, 1.0, 4))


def test_the_path_is_thinned_and_keeps_its_ends() -> None:
    found = learner(vrtd.TD(1e-3), 4)
    for seed in range(4):
        found = learn(found, some_rows(150_000, 4, seed=seed))
    assert 60 < len(found.path.n_rows) <= 128
    assert found.path.n_rows[0] == 0
    gaps = np.diff(found.path.n_rows)
    assert gaps.max() <= 2 * gaps.min()


def test_a_new_phase_goes_on_from_the_old_one() -> None:
    rows = some_rows(1000, 4)
    found = learn(first_learner(vrtd.VRTD(0.1, 50), 10, np.zeros(4), 0), rows.part(0, 500))
    assert found.rows_left == 0
    found = learn(next_phase(found, vrtd.VRTD(0.02, 100), None), rows.part(500, 1000))
    assert (found.n_epochs, found.n_rows, found.rows_left) == (15, 1000, None)
    index = AlgorithmIndex(0, 0)
    draw = drawer(rows)
    middle = td.vrtd(vrtd.VRTD(0.1, 50), "markov", draw, index, np.zeros(4), 10)[-1]
    end = td.vrtd(vrtd.VRTD(0.02, 100), "markov", draw, index, middle, 5)[-1]
    np.testing.assert_allclose(found.theta, end, rtol=1e-12, atol=1e-12)
