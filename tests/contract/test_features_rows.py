"""A row depends on its own observation alone, in every bit; and what is not finite never looks right."""

import json
import tracemalloc
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from vrtd.features import (
    RBF,
    Auto,
    Fourier,
    FromFunction,
    Identity,
    ObservationSpace,
    OneHot,
    Polynomial,
    RandomFourier,
    Scaled,
    Selected,
    Stack,
    Standardised,
    Table,
    Tabular,
    Tiles,
    as_features,
    from_settings,
)

K = 3
BOUNDS = {"low": (-1.0, -2.0, 0.0), "high": (1.0, 2.0, 0.3)}
DATA = np.random.default_rng(0).normal(size=(3000, K))

BOXES = {
    "identity": Identity(),
    "polynomial": Polynomial(3, **BOUNDS),
    "fourier": Fourier(2, **BOUNDS),
    "rbf": RBF(37, **BOUNDS),
    "rbf-normalised": RBF(shape=(3, 2, 5), width=0.7, normalise=True, bias=True, **BOUNDS),
    "rbf-many": RBF(shape=(1, 99, 1), width=9.0, normalise=True, **BOUNDS),  # sums that NumPy would pair
    "rff": RandomFourier(21, **BOUNDS),
    "tiles": Tiles(4, (2, 3, 4), **BOUNDS),
    "from-data": RBF(11),
    "stack": Stack(Fourier(1), Identity(), RandomFourier(5)),
    "scaled": Scaled(Stack(Polynomial(1), RBF(8), Identity())),
    "standardised": Standardised(drop=(1,)),
    "selected": Selected(Stack(Polynomial(1), Identity())),  # the columns of the identity depend on the polynomials
    "auto": Auto(ObservationSpace("box")),
    "function": FromFunction(lambda s: np.cos(s @ np.arange(K * 13.0).reshape(K, 13))),  # BLAS
}
STATES = {
    "tabular": Tabular(17),
    "tabular-other": Tabular(9, other=True),
    "onehot": OneHot((17,)),
    "table": Table(np.random.default_rng(1).normal(size=(17, 5))),
}


@cache
def bound(name):
    return BOXES[name].bind(DATA)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", BOXES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_split_has_the_same_bits(name, dtype, data):
    made = bound(name)
    observations = DATA.astype(dtype)
    whole = made(observations)
    assert whole.dtype == dtype
    assert whole.flags.c_contiguous
    start = data.draw(st.integers(0, len(DATA) - 1))
    length = data.draw(st.one_of(st.integers(0, 40), st.integers(0, len(DATA))))
    step = data.draw(st.integers(1, 3))
    part = observations[start : start + length : step]  # not contiguous when step > 1
    assert np.array_equal(made(part), whole[start : start + length : step])
    assert np.array_equal(made(np.asfortranarray(part)), whole[start : start + length : step])
    assert np.array_equal(made(observations[start : start + 1]), whole[start : start + 1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", [name for name in BOXES if name != "function"])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_finite_observation_has_the_same_bits_alone(name, dtype, data):
    made = bound(name)
    width = 64 if dtype is np.float64 else 32
    numbers = st.floats(-(2.0**100), 2.0**100, width=width)
    observations = data.draw(arrays(dtype, st.tuples(st.integers(1, 20), st.just(K)), elements=numbers))
    whole = made(observations)
    assert np.isfinite(whole).all()
    for i in range(len(observations)):
        assert np.array_equal(made(observations[i : i + 1])[0], whole[i])


@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.float64])
@pytest.mark.parametrize("name", STATES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_split_of_states_has_the_same_bits(name, dtype, data):
    made = STATES[name]
    states = np.arange(1000) * 7 % 17
    states = states.astype(dtype)
    whole = made(states)
    start, length, step = data.draw(st.tuples(st.integers(0, 999), st.integers(0, 1000), st.integers(1, 3)))
    assert np.array_equal(made(states[start : start + length : step]), whole[start : start + length : step])


@pytest.mark.parametrize("name", [name for name in BOXES if name not in ("function", "scaled", "identity")])
def test_float32_rows_are_float64_rows_rounded_once(name):
    narrow = DATA.astype(np.float32)
    assert np.array_equal(bound(name)(narrow), bound(name)(narrow.astype(np.float64)).astype(np.float32))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", [*BOXES, "constant", "degree-0", "one-bump", "nan-hider"])
def test_observations_that_are_not_finite_give_rows_that_are_not_finite(name, bad, dtype):
    others = {
        "constant": Fourier(0, **BOUNDS),
        "degree-0": Polynomial(0, **BOUNDS),
        "one-bump": RBF(1, normalise=True, **BOUNDS),
        "nan-hider": FromFunction(np.nan_to_num).bind(DATA),
    }
    made = bound(name) if name in BOXES else others[name]
    observations = DATA[:300].astype(dtype)
    clean = made(observations)
    rows = [0, 17, 299]
    observations[rows, [0, 1, 2]] = bad
    dirty = made(observations)
    assert not np.isfinite(dirty[rows]).all(axis=1).any()
    rest = np.setdiff1d(np.arange(300), rows)
    assert np.array_equal(dirty[rest], clean[rest])
    assert not np.isfinite(made(observations[:1])).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", STATES)
def test_states_that_are_not_finite_give_rows_that_are_not_finite(name, bad):
    rows = STATES[name](np.array([1.0, bad, 3.0]))
    assert np.isfinite(rows).all(axis=1).tolist() == [True, False, True]


@pytest.mark.parametrize("name", BOXES)
def test_shapes_of_observations(name):
    made = bound(name)
    assert made(DATA[:0]).shape == (0, made.n_features)
    if name != "function":  # a user's function sees what the user has
        assert np.array_equal(made(DATA[:12].reshape(12, 3, 1)), made(DATA[:12]))
    line = as_features("rbf:5").bind(DATA[:, 0])
    assert np.array_equal(line(DATA[:, 0]), line(DATA[:, :1]))


@pytest.mark.parametrize("name", [*(name for name in BOXES if name != "function"), *STATES])
def test_settings_make_the_same_bits_again(name):
    for made in (BOXES[name], bound(name)) if name in BOXES else (STATES[name],):
        text = json.dumps(made.settings, allow_nan=False)
        again = from_settings(json.loads(text))
        assert type(again) is type(made)
        assert again.settings == made.settings
        assert again == made or name == "table"
    observations = DATA if name in BOXES else np.arange(17)
    assert np.array_equal(again(observations), made(observations))


def test_a_users_matrix_product_gives_a_row_the_same_bits_alone():
    """The product itself does not: a row alone is another routine of BLAS than a row in company."""
    weights = np.random.default_rng(0).normal(size=(16, 100))
    rows = np.random.default_rng(1).normal(size=(500, 16))
    function = FromFunction(lambda s: s @ weights).bind(rows)
    assert np.array_equal(np.concatenate([function(rows[i : i + 1]) for i in range(500)]), function(rows))


@pytest.mark.parametrize("name", [name for name in BOXES if name not in ("identity", "function")])
def test_memory_is_the_rows_and_as_much_again_at_most(name):
    observations = np.tile(DATA, (20, 1))
    bound(name)(observations)  # what is made once
    tracemalloc.start()
    rows = bound(name)(observations)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * rows.nbytes + observations.nbytes + 2**23
