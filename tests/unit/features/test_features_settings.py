"""Features as words and as plain values: what is read is checked as what is passed."""

import numpy as np
import pytest

from vrtd.errors import InvalidInputError
from vrtd.features import (
    RBF,
    Fourier,
    Identity,
    Polynomial,
    RandomFourier,
    Scaled,
    Stack,
    Standardised,
    Table,
    Tabular,
    Tiles,
    from_settings,
    parse,
)


@pytest.mark.parametrize(
    ("text", "features"),
    [
        ("identity", Identity()),
        ("tabular", Tabular()),
        ("tabular:16", Tabular(16)),
        ("tabular:32x11x2", Tabular((32, 11, 2))),
        ("standardised", Standardised()),
        ("polynomial:2", Polynomial(2)),
        ("fourier:3", Fourier(3)),
        ("rbf:20", RBF(20)),
        (" rbf:5x4 ", RBF(shape=(5, 4))),
        ("rbf:20,width=0.5,bias=false,normalise=false", RBF(20, width=0.5, bias=False)),
        ("rff:100", RandomFourier(100)),
        ("rff:100,bandwidth=5e-1,seed=1", RandomFourier(100, bandwidth=0.5, seed=1)),
        ("tiles:8x4", Tiles(8, 4)),
        ("tiles:8x6x4", Tiles(8, (6, 4))),
    ],
)
def test_words(text, features):
    assert parse(text) == features


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fourrier:3", "features must be one of 'auto', .*, but got 'fourrier'. Did you mean 'fourier'"),
        ("", "features must be one of .*, but got ''. Choose one of them"),
        ("tile:8x8", "Did you mean 'tiles'"),
        ("rbf", "features must have the form rbf:20 .* or rbf:5x4 .*, but got 'rbf'. Pass the right number"),
        ("rbf:", "features must have the form rbf:20 .*, but got 'rbf:'. Write whole numbers"),
        ("rbf:5x", "got 'rbf:5x'. Write whole numbers"),
        ("rbf:-3", "got 'rbf:-3'. Write whole numbers"),
        ("fourier:3x3", "features must have the form fourier:ORDER, but got 'fourier:3x3'"),
        ("tiles:8", "features must have the form tiles:TILINGSxTILES.*, but got 'tiles:8'"),
        ("identity:3", "features must have the form identity, but got 'identity:3'"),
        ("fourier:3,width=2", "fourier features have no options, but got 'width=2'"),
        ("rbf:20,widht=2", "an option of rbf features must be one of .*, but got 'widht'. Did you mean 'width'"),
        ("rbf:20,width=a", "width must be a number, but got 'a'"),
        ("rbf:20,bias=1", "bias must be true or false, but got '1'"),
        ("hash:9,categories=a", "categories must be numbers of columns such as 0x2, but got 'a'"),
        ("rff:9,seed=1.5", "seed must be a whole number, but got '1.5'"),
        ("rff:9,seed=1,seed=2", "features must have each option once, but got .*. Keep one seed"),
        ("rbf:20,width=nan", "width must be a positive, finite number, but got nan"),
        ("rbf:99999", "The number of features must be at most 4096, but is 99999. Use fewer centres"),
        ("rbf:" + "9" * 30, "Write whole numbers"),
    ],
)
def test_words_that_are_wrong(text, message):
    with pytest.raises(InvalidInputError, match=message):
        parse(text)


def nested(depth):
    settings = {"kind": "identity", "n": None, "sparse": False}
    for _ in range(depth):
        settings = {"kind": "scaled", "factor": 1.0, "features": settings}
    return settings


RBF_SETTINGS = RBF(4, low=0, high=1).settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (None, "settings must be a dict with a kind, but got None"),
        ([], "settings must be a dict with a kind"),
        ({}, "settings must be a dict with a kind"),
        ({"kind": 3}, "settings must be a dict with a kind"),
        ({"kind": "identity", 3: 4}, "settings must be a dict with a kind"),
        ({"kind": "__class__"}, "the kind of features must be one of .*, but got '__class__'"),
        ({"kind": "fourrier"}, "Did you mean 'fourier'"),
        ({"kind": "tabular"}, "settings of tabular features must be n_states, other, but got 'nothing'"),
        (
            {"kind": "tabular", "n_states": 3, "x": 1},
            "settings of tabular features must be n_states, other, but got 'n_states, x'",
        ),
        ({"kind": "tabular", "n_states": "3", "other": False}, "n_states must be a whole number"),
        ({"kind": "tabular", "n_states": True, "other": False}, "n_states must be a whole number"),
        ({"kind": "tabular", "n_states": 10**40, "other": False}, "The number of features must be at most 16777216"),
        ({"kind": "identity", "n": -1, "sparse": False}, "n must be a whole number of at least 1"),
        ({"kind": "table", "array": [[1.0], [2.0, 3.0]]}, "array must be an array of real numbers"),
        ({"kind": "table", "array": "abc"}, "array must be an array of real numbers"),
        ({"kind": "table", "array": [[None]]}, "array must be an array of real numbers"),
        ({"kind": "table", "array": []}, "array must have one row of features per state"),
        (RBF_SETTINGS | {"width": "1"}, "width must be a positive, finite number"),
        (RBF_SETTINGS | {"bias": 0}, "bias must be True or False"),
        (RBF_SETTINGS | {"n": [4]}, "n must be a whole number"),
        (RBF_SETTINGS | {"shape": {}}, "Exactly one of n and shape must be passed"),
        (RBF_SETTINGS | {"low": {"a": 1}}, "low must have one number per dimension"),
        (RBF_SETTINGS | {"low": [[0.0]]}, r"low\[0\] must be a finite number"),
        (RBF_SETTINGS | {"low": [2.0]}, "low must be less than high"),
        (RBF_SETTINGS | {"kind": "fourier"}, "settings of fourier features must be high, low, order"),
        (RandomFourier(3).settings | {"seed": -1}, "seed must be a whole number of at least 0"),
        (Tiles(3).settings | {"tiles": [2, "a"]}, "tiles must be a whole number"),
        (Tiles(3).settings | {"tiles": None}, "tiles must be a whole number"),
        ({"kind": "stack", "features": []}, "A Stack must have features"),
        ({"kind": "stack", "features": {}}, "The features of a stack must be a list"),
        ({"kind": "stack", "features": [3]}, "settings must be a dict with a kind, but got 3"),
        ({"kind": "scaled", "features": RBF_SETTINGS, "factor": "a"}, "factor must be a positive, finite number"),
        ({"kind": "scaled", "factor": 1.0}, "settings of scaled features must be factor, features, but got 'factor'"),
        (nested(17), "features are nested more than 16 levels deep"),
        (nested(5000), "features are nested more than 16 levels deep"),
    ],
)
def test_settings_that_are_wrong(settings, message):
    with pytest.raises(InvalidInputError, match=message):
        from_settings(settings)


def test_settings_as_deep_as_allowed():
    assert from_settings(nested(16)).settings == nested(16)


def test_settings_are_plain():
    made = Scaled(Stack(RBF(shape=(np.int64(2), 2), width=np.float32(0.5)), Fourier(np.int8(2))), np.float64(0.1))
    bound = made.bind(np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32))

    def check(value):
        if isinstance(value, dict):
            assert all(type(key) is str for key in value)
            value = list(value.values())
        if isinstance(value, list):
            for item in value:
                check(item)
        else:
            assert value is None or type(value) in (bool, int, float, str)

    check(bound.settings)
    check(Table(np.eye(2, dtype=np.float32)).settings)
    check(Tabular(np.uint8(3)).settings)
