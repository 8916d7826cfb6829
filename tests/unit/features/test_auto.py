"""Which features are chosen for which observations, and that they never make a singular system."""

from dataclasses import replace

import numpy as np
import pytest

from vrtd.errors import InvalidInputError
from vrtd.features import (
    Auto,
    Column,
    Identity,
    ObservationSpace,
    OneHot,
    Scaled,
    Selected,
    Standardised,
    Tabular,
    as_features,
    from_settings,
    parse,
    spans_constant,
)

BOX = ObservationSpace("box")


def states(*sizes):
    return Auto(ObservationSpace("states", sizes=sizes))


def condition(features, observations):
    """The condition number of the rows, with columns on one scale and without those that are 0."""
    rows = features(observations)
    norms = np.linalg.norm(rows, axis=0)
    return np.linalg.cond(rows[:, norms > 0] / norms[norms > 0])


@pytest.mark.parametrize(
    ("observations", "expected"),
    [
        (np.array([0, 3, 1]), Tabular(4, other=True)),
        (np.array([True, False]), Tabular(2, other=True)),
        (np.array([200], np.uint8), Tabular(201, other=True)),
        (np.array([999]), Tabular(1000, other=True)),
        (np.ones((5, 3)), Identity(3)),
        (np.ones((5, 3), int), Identity(3)),
        (np.ones((5, 2, 2)), Identity(4)),
    ],
)
def test_arrays_without_a_space(observations, expected):
    assert Auto().bind(observations) == expected


@pytest.mark.parametrize("observations", [np.array([0, 1000]), np.array([-1, 4]), np.array([0.0, 2.0, 5.0])])
def test_numbers_that_are_no_states_are_standardised(observations):
    assert Auto().bind(observations) == Standardised().bind(observations)


def test_states_of_a_space():
    seen = np.array([1, 0])
    assert states(16).bind(seen) == Tabular(16)
    assert states(4096).bind(seen) == Tabular(4096)
    assert states(4097).bind(seen) == Standardised().bind(seen)
    assert states().bind(seen) == Tabular(2, other=True)
    several = np.array([[3, 1, 0], [0, 0, 1], [1, 1, 0], [2, 1, 1]])
    assert states(32, 11, 2).bind(several) == Tabular((32, 11, 2))
    assert states(100, 100, 2).bind(several) == OneHot((100, 100, 2))
    assert states(4000, 4000, 2).bind(several) == Standardised().bind(several)
    assert states().bind(several) == Tabular((4, 2, 2), other=True)


def test_columns_are_standardised_beside_a_constant():
    """Categories sum to 1: with the constant, one level of each would be too many."""
    rng = np.random.default_rng(0)
    n = 400
    segment, colour = np.eye(4)[rng.integers(0, 3, n)], np.eye(3)[rng.integers(0, 2, n)]  # the last ones: never seen
    price, age = rng.normal(50.0, 9.0, n), rng.normal(30.0, 1.0, n)
    missing = (age > 30).astype(float)
    observations = np.column_stack([price, segment, age, missing, colour])
    columns = (
        Column("price"),
        Column("segment", levels=("a", "b", "c")),
        Column("age", fill=30.0),
        Column("colour", levels=("red", "blue")),
    )
    made = Auto(ObservationSpace("columns", columns)).bind(observations)
    rows = made(observations)
    assert (rows[:, 0] == 1.0).all()
    assert condition(made, observations) < 100
    assert spans_constant(rows)
    # constant, price, 3 of 4 segments, age, its indicator, 2 of 3 colours
    assert made.n_features == 1 + 1 + 3 + 1 + 1 + 2
    assert rows[:, 1].mean() == pytest.approx(0.0, abs=1e-12)
    assert rows[:, 1].std() == pytest.approx(1.0)
    assert np.array_equal(rows[:, 2:5], segment[:, 1:])  # numbers of a category stay as they are
    assert np.array_equal(rows[:, 6], missing)
    new = observations[:1].copy()
    new[0, 1:5] = [0, 0, 0, 1]  # a level that came later
    assert made(new)[0, 4] == 1.0


@pytest.mark.parametrize("k", [1, 2, 3, 8])
def test_a_box_gets_independent_waves_and_a_constant(k):
    observations = np.random.default_rng(k).normal(size=(4000, k)) * 10.0 ** np.arange(k)
    made = Auto(BOX).bind(observations)
    assert isinstance(made, Selected) == (made.n_features < 201)
    assert {1: 15, 2: 40, 3: 70, 8: 180}[k] < made.n_features <= {1: 30, 2: 80, 3: 130, 8: 201}[k]
    assert condition(made, observations) < 1000
    assert spans_constant(made(observations[:500]))
    far = made(observations.max(axis=0, keepdims=True) * 1e6)  # bounded, far from all that was seen
    assert np.isfinite(far).all()
    assert np.linalg.norm(far) <= np.sqrt(3.0) + 1e-12


def test_the_values_of_a_box_are_represented():
    """A function of two of four numbers, on other points. A far narrower or wider kernel leaves much more."""
    rng = np.random.default_rng(0)
    train, test = rng.normal(size=(5000, 4)), rng.normal(size=(1000, 4))

    def value(x):
        return np.tanh(x[:, 0]) + np.sin(x[:, 3])

    def error(features):
        theta = np.linalg.lstsq(features(train), value(train))[0]
        return np.mean((features(test) @ theta - value(test)) ** 2) / value(test).var()

    made = Auto(BOX).bind(train)
    waves = made.features.features[1]
    assert error(made) < 0.01
    for factor in (10.0, 1e-4):
        other = replace(waves, bandwidth=factor * waves.bandwidth)
        assert error(Selected(other, tolerance=made.tolerance).bind(train)) > 0.05


def test_a_box_with_numbers_that_do_not_vary_or_depend_on_others():
    rng = np.random.default_rng(0)
    x = rng.normal(size=2000)
    kinds = np.eye(3)[rng.integers(0, 3, 2000)]
    observations = np.column_stack([x, np.full(2000, 1e9), np.zeros(2000), kinds, 2 * x])
    for made in (Auto(BOX).bind(observations), Auto(BOX).bind(observations.astype(np.float32))):
        assert condition(made, observations) < 1000
    fixed = Auto(BOX).bind(np.full((50, 2), 7.0))
    assert fixed.n_features == 1
    assert (fixed(np.full((3, 2), 7.0)) == 1.0).all()


def test_few_rows_get_few_features():
    observations = np.random.default_rng(0).normal(size=(200, 6))
    assert Auto(BOX).bind(observations).n_features <= 21


def test_words_and_settings():
    assert parse("auto") == as_features("auto") == Auto()
    columns = (Column("a", levels=("x", "y")), Column("b", fill=2.0))
    for space in (
        None,
        BOX,
        ObservationSpace("box", low=(0.0, None), high=(1.0, None)),
        ObservationSpace("states", sizes=(3, 4)),
        ObservationSpace("columns", columns),
    ):
        assert from_settings(Auto(space).settings) == Auto(space)
    assert Scaled(Auto()).bind(np.array([0, 1])) == Scaled(Tabular(2, other=True), 1.0)


def test_data_are_needed_unless_the_space_tells_all():
    assert not Auto(ObservationSpace("features")).needs_data
    assert not states(16).needs_data
    assert not states(100, 100).needs_data
    assert all(auto.needs_data for auto in (Auto(), Auto(BOX), states(), states(5000)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Auto("box"), "space must be an ObservationSpace, but got 'box'"),
        (lambda: Auto().n_features, "Auto features must be bound before use, to determine the features"),
        (lambda: Auto()(np.zeros(3)), "Auto features must be bound before use, to determine the features"),
        (
            lambda: Auto().bind(np.zeros((0, 2))),
            "At least one observation is needed to choose features, but there is none",
        ),
        (
            lambda: Auto(BOX).bind(np.zeros((2, 20_000))),
            "at most 16384 numbers, but these have 20000. Choose features yourself",
        ),
        (lambda: Auto(BOX).bind(np.array([[0.0, np.nan]])), "must be finite .*, but got nan in row 0, column 1"),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises(InvalidInputError, match=message):
        make()


SPACE = ObservationSpace("box", low=(0.0,), high=(1.0,)).settings
COLUMN = {"name": "a", "levels": None, "fill": None}


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ("box", "settings of a space must be kind, columns, sizes, low, high, actions, but got 'box'"),
        ({"kind": "box"}, "settings of a space must be"),
        (SPACE | {"kind": "circle"}, "the kind of a space must be one of"),
        (SPACE | {"low": 0.0}, "The parts of a space must be lists"),
        (SPACE | {"low": ["a"]}, "Bounds and fills of a space must be numbers or None, but got 'a'"),
        (SPACE | {"low": []}, "low and high of a space must have the same length, but have 0 and 1 numbers"),
        (SPACE | {"sizes": [0]}, "sizes must be a whole number of at least 1"),
        (SPACE | {"columns": ["a"]}, "settings of a column must be name, levels, fill"),
        (
            SPACE | {"columns": [COLUMN | {"name": 3}]},
            "The name and the levels of a column must be strings, but got .'name': 3",
        ),
        (
            SPACE | {"columns": [COLUMN | {"levels": [3]}]},
            "The name and the levels of a column must be strings, but got .'name': 'a', 'levels': ",
        ),
    ],
)
def test_spaces_in_files_are_checked(space, message):
    with pytest.raises(InvalidInputError, match=message):
        from_settings({"kind": "auto", "space": space})
