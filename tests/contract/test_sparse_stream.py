"""The loop over sparse rows: every algorithm that has a form for them against its transcription."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers.sparse import as_sparse, thin_out
from tests.helpers.streams import drawer, some_rows
from tests.helpers.table import ROWS
from tests.reference.sampling import AlgorithmIndex
from vrtd.errors import InvalidInputError
from vrtd.estimator.learner import batch_rows, first_learner, learn

D = 5
ON_A_STREAM = [row for row in ROWS if row.sampling != "dataset" and row.algorithm.learns_from_log]


def loop_of(row: Any) -> tuple[Any, ...]:
    """Return what the compiled loop depends on, so that each is compiled once."""
    epoch = row.algorithm.epoch("markov")
    return row.algorithm.name, *row.algorithm.options(), epoch.inner_samples, epoch.n_absorb > 0


SPARSE = list({loop_of(row): row for row in reversed(ON_A_STREAM) if row.algorithm.learns_from_sparse_rows}.values())
# Schedules, levels and the last iterate differ little from others, and each loop takes seconds to compile.
COMPILED = [row for row in SPARSE if row.id not in ("td-iid", "td-piecewise", "vrtd-last", "richardson-td-iid")]
OTHERS = [row for row in ON_A_STREAM if not row.algorithm.learns_from_sparse_rows]


def sparse_learner(algorithm: Any) -> Any:
    return first_learner(algorithm, None, np.linspace(-1.0, 1.0, D), 3, is_sparse=True)


def test_the_table_has_all_that_must_learn_from_sparse_rows() -> None:
    names = {row.algorithm.name for row in COMPILED}
    assert names == {"td", "td_lambda", "richardson_td", "vrtd"}
    assert {row.id for row in OTHERS} >= {"td-projected-averaged", "vrtd-projected", "gtd2", "true-online-td"}


@pytest.mark.parametrize("row", COMPILED, ids=lambda row: row.id)
def test_every_algorithm_equals_its_transcription(row: Any) -> None:
    n_epochs = min(row.n_epochs, 12)
    dense = thin_out(some_rows(n_epochs * batch_rows(row.algorithm), D, "f8", True))
    rows = as_sparse(dense)
    found = learn(sparse_learner(row.algorithm), rows)
    index = AlgorithmIndex(3, 0)
    expected = row.reference(row.algorithm, "markov", drawer(dense), index, np.linspace(-1.0, 1.0, D), n_epochs)[-1]
    assert found.n_epochs == n_epochs
    np.testing.assert_allclose(found.theta, expected, rtol=1e-12, atol=1e-12)
    in_pieces = sparse_learner(row.algorithm)
    for first in range(0, len(rows), 11):
        in_pieces = learn(in_pieces, rows.part(first, min(first + 11, len(rows))))
    assert in_pieces.state.tobytes() == found.state.tobytes()


@pytest.mark.parametrize("algorithm", [vrtd.TD(0.1, average=True), vrtd.VRTD(0.1, 9, output="tail")])
def test_averages_equal_those_of_dense_rows(algorithm: Any) -> None:
    dense = thin_out(some_rows(90, D, "f8", True))
    found = learn(sparse_learner(algorithm), as_sparse(dense))
    expected = learn(first_learner(algorithm, None, np.linspace(-1.0, 1.0, D), 3), dense)
    np.testing.assert_allclose(found.theta, expected.theta, rtol=1e-12, atol=1e-12)


def test_a_trace_forgets_what_has_decayed() -> None:
    """The list of a trace has only the coordinates of the last rows."""
    rng, n, d = np.random.default_rng(0), 400, 300
    phi = np.zeros((n, d))
    phi[np.arange(n), rng.integers(0, d, n)] = 1.0
    rows = as_sparse(vrtd.Transitions(phi, rng.normal(size=n), np.roll(phi, -1, axis=0), 0.9))
    found = learn(first_learner(vrtd.TDLambda(0.1, 0.7), None, np.zeros(d), 0, is_sparse=True), rows)
    n_listed, table = int(found.state[3 * d + 1]), found.state[: 3 * d].reshape(d, 3)
    listed = table[:n_listed, 2].astype(int)
    assert n_listed == len(set(listed.tolist())) == np.count_nonzero(table[:, 1]) < 90
    assert np.abs(table[listed, 1]).min() > 1e-16


@pytest.mark.parametrize("row", OTHERS, ids=lambda row: row.id)
def test_the_others_say_what_can(row: Any) -> None:
    rows = as_sparse(some_rows(40, D, "f8", True))
    message = f"^{row.algorithm.name} cannot learn from sparse rows. Use td, td_lambda, richardson_td or vrtd, or pass"
    if "radius" in row.algorithm.settings:
        message = "has no projection, but radius is 2.0. Drop radius"
    with pytest.raises(InvalidInputError, match=message):
        learn(sparse_learner(row.algorithm), rows)
