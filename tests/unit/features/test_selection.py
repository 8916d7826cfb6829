"""Columns that depend on others are left out; and whether a constant is among the combinations."""

import numpy as np
import pytest

from vrtd.errors import InvalidInputError
from vrtd.features import Identity, Selected, Stack, Tabular, Tiles, from_settings, spans_constant


def test_dependent_columns_are_left_out():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 300))
    rows = np.column_stack([np.ones(300), a, a + 3.0, np.zeros(300), 1e-9 * b, a - 1e8 * b])
    made = Selected(Identity()).bind(rows)
    assert made.n_features == 4
    assert made.keep[0] == 0
    assert 3 in made.keep  # rows to come may show it
    kept = made(rows)
    assert np.linalg.matrix_rank(kept / np.maximum(np.linalg.norm(kept, axis=0), 1e-300)) == 3
    assert from_settings(made.settings) == made
    assert made.bind(rows * 0 + 1) == made  # bound once


def test_independent_columns_need_no_selection():
    rows = np.eye(4)
    assert Selected(Identity()).bind(rows) == Identity(4)
    assert Selected(Tabular(4)).bind(np.arange(2)) == Tabular(4)  # states that were not seen are kept


def test_tiles_become_independent():
    points = np.random.default_rng(0).random((3000, 2))
    made = Selected(Tiles(4, 3)).bind(points)
    assert made.n_features == np.linalg.matrix_rank(Tiles(4, 3).bind(points)(points)) == 36 - 3
    assert made.largest_norm == 2.0


def test_a_larger_tolerance_keeps_less():
    x = np.random.default_rng(0).normal(size=(500, 2))
    rows = np.column_stack([x[:, 0], x[:, 0] + 0.01 * x[:, 1]])
    assert Selected(Identity()).bind(rows).n_features == 2
    assert Selected(Identity(), tolerance=0.02).bind(rows).n_features == 1


def test_a_row_that_is_not_finite_never_looks_right():
    made = Selected(Identity(2), [0])
    assert np.isnan(made(np.array([[1.0, np.nan]]))).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Selected(Identity(), []), r"keep must be a list of columns, but got \[\]"),
        (lambda: Selected(Identity(), [1, 1]), "keep must be increasing"),
        (lambda: Selected(Identity(), [-1]), "keep must be a whole number of at least 0"),
        (lambda: Selected(Identity(), tolerance=0), "tolerance must be a positive, finite number"),
        (
            lambda: Selected(Identity(), [5]).bind(np.ones((2, 3))),
            "keep must hold columns below 3, the number of features, but got 5",
        ),
        (
            lambda: Selected(Identity())(np.ones((2, 3))),
            "Selected features must be bound before use, to determine the columns to keep",
        ),
        (lambda: Selected(Identity()).bind(np.ones((0, 3))), "At least one observation is needed to select features"),
        (
            lambda: Selected(Identity()).bind(np.array([[np.inf]])),
            "Features must be finite on all rows to select columns",
        ),
        (lambda: Selected(3), "features must be a Features object, but got int"),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises(InvalidInputError, match=message):
        make()


def test_a_constant_among_the_combinations():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3))
    groups = np.eye(4)[rng.integers(0, 4, 200)]
    assert spans_constant(groups)
    assert not spans_constant(groups[:, 1:])
    assert not spans_constant(x)
    assert spans_constant(np.column_stack([x, 1e-12 * np.ones(200)]))  # of any size
    assert spans_constant(np.column_stack([x, x.sum(axis=1) - 1e3, np.zeros(200)]))
    assert spans_constant(np.column_stack([x, np.ones(200)]).astype(np.float32))
    assert not spans_constant(np.column_stack([x, 1.0 + 1e-3 * x[:, 0] ** 2]))
    assert not spans_constant(np.zeros((5, 2)))
    assert spans_constant(Stack(Tabular(3), Identity(1))(np.array([0, 1, 2, 1])))
