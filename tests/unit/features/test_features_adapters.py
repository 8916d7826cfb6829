"""A user's function, array or transformer as features."""

import builtins

import numpy as np
import pytest
from scipy.sparse import coo_array
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.kernel_approximation import RBFSampler
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from vrtd.errors import DataError, InvalidInputError, MissingExtraError
from vrtd.features import Fourier, FromFunction, FromTransformer, Identity, Table, as_features

DATA = np.random.default_rng(0).normal(size=(1000, 3))


def squares(s):
    return np.concatenate([s, s * s], axis=1)


class Halver:
    """Transforms, with nothing to fit."""

    def transform(self, X):
        return X / 2


def test_what_becomes_features():
    made = Fourier(2)
    assert as_features(None) == Identity()
    assert as_features(made) is made
    assert as_features("fourier:2") == made
    assert isinstance(as_features(np.eye(3)), Table)
    assert as_features(squares) == FromFunction(squares)
    sampler = RBFSampler()
    assert as_features(sampler) == FromTransformer(sampler)
    assert isinstance(as_features(Halver()), FromTransformer)


@pytest.mark.parametrize(
    ("value", "got"),
    [
        (3, "got 3. Pass one of them"),
        (np.zeros(3), r"got an array of shape \(3,\)"),
        ([[1.0]], r"got \[\[1.0\]\]"),
        (RBFSampler, "got <class .*. Pass one of them, and an instance instead of a class"),
    ],
)
def test_what_does_not_become_features(value, got):
    with pytest.raises(
        InvalidInputError, match=f"features must be None, Features, .* with a method transform, but {got}"
    ):
        as_features(value)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_a_function_is_applied(dtype):
    observations = (DATA * 10).astype(dtype)
    made = as_features(squares).bind(observations)
    assert made.n_features == 6
    assert made.bind(observations) is made
    rows = made(observations)
    assert rows.dtype == (np.float32 if dtype is np.float32 else np.float64)
    assert np.array_equal(rows, squares(observations))
    assert made(observations[:0]).shape == (0, 6)


def test_a_function_sees_the_shape_of_the_observations():
    images = np.random.default_rng(0).normal(size=(20, 4, 5))
    seen = []

    def centre(s):
        seen.append(s.shape[1:])
        return s[:, 2, :3]

    assert np.array_equal(FromFunction(centre).bind(images)(images), images[:, 2, :3])
    assert set(seen) == {(4, 5)}


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            lambda s: s[:, 0],
            r"features of 8 observations must be numbers of shape \(8, d\), but .* returned float64 of shape \(8,\)",
        ),
        (
            lambda s: coo_array(s[:, 0]),
            r"features of 8 observations must be numbers of shape \(8, d\), but .* returned float64 of shape \(8,\)",
        ),
        (lambda s: s[:-1], r"must be numbers of shape \(8, d\), but .* returned float64 of shape \(7, 3\)"),
        (lambda s: s.astype(str), r"must be numbers of shape \(8, d\), but .* returned <U32"),
        (lambda s: s[:, :0], "feature function returned no features"),
        (lambda s: np.zeros((len(s), 5000)), "The number of features must be at most 4096, but is 5000"),
        (lambda s: s - s.mean(axis=0), "treat each observation independently, but row 0 changes when passed alone"),
        (
            lambda s: s[: len(s), : 2 + (len(s) > 100)],
            r"numbers of shape \(256, 2\), but .* returned .* of shape \(256, 3\)",
        ),
        (
            lambda s: np.log(np.abs(s) * 0) if len(s) else s,
            "features of row 0 are not finite, although its observation is",
        ),
    ],
)  # fmt: skip
def test_functions_that_are_refused(function, message):
    with pytest.raises(InvalidInputError, match=message), np.errstate(divide="ignore"):
        FromFunction(function).bind(DATA)


def test_rows_of_a_function_are_checked_at_every_call():
    made = FromFunction(lambda s: np.where(s > 5, np.inf, s)).bind(DATA)
    observations = np.zeros((600, 3))
    observations[555, 1] = 6.0
    with pytest.raises(DataError, match="The features of row 555 are not finite, although its observation is"):
        made(observations)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FromFunction(3), "function must be callable, but got 3"),
        (lambda: FromFunction(squares, n=0), "n must be a whole number of at least 1, but got 0"),
        (lambda: FromFunction(squares, n=1 << 25), "The number of features must be at most 16777216, but is 33554432"),
        (
            lambda: FromFunction(squares, n=5).bind(DATA),
            r"must be numbers of shape \(8, 5\), but .* returned .* of shape \(8, 6\)",
        ),
        (
            lambda: FromFunction(squares)(DATA),
            "FromFunction features must be bound before use, to determine the number of features",
        ),
        (
            lambda: FromTransformer(RBFSampler()).n_features,
            "FromTransformer features must be bound before use, to determine the number",
        ),
        (lambda: FromTransformer(RBFSampler), "transformer must have a method transform, but got <class"),
        (
            lambda: FromFunction(squares).bind(DATA[:0]),
            "At least one observation is needed to test the features, but there is none",
        ),
        (lambda: as_features(RBFSampler()).bind(DATA[:0]), "At least one observation is needed to test the features"),
        (
            lambda: FromFunction(squares).bind(DATA * np.nan),
            "observations must be finite to test the features, but got nan in row 0",
        ),
        (
            lambda: as_features(RBFSampler()).bind(DATA * np.inf),
            "must be finite to fit a transformer, but got -?inf in",
        ),
        (
            lambda: FromFunction(squares).settings,
            "FromFunction features cannot be stored, because they are made of your own code. Keep the code",
        ),
        (lambda: FromTransformer(RBFSampler()).settings, "FromTransformer features cannot be stored"),
        (
            lambda: as_features(StandardScaler()).bind(DATA)(DATA[:, :2]),
            "The transformer does not accept the observations .*3 features.*. Fit it to observations of the same kind",
        ),
    ],
)  # fmt: skip
def test_what_adapters_refuse(make, message):
    with pytest.raises(InvalidInputError, match=message):
        make()


def test_a_transformer_that_is_not_fitted_is_fitted_on_a_copy():
    sampler = make_pipeline(StandardScaler(), RBFSampler(n_components=7, random_state=0))
    made = as_features(sampler).bind(DATA)
    assert made.n_features == 7
    expected = make_pipeline(StandardScaler(), RBFSampler(n_components=7, random_state=0)).fit(DATA).transform(DATA)
    assert made(DATA) == pytest.approx(expected, rel=1e-12)
    assert not hasattr(sampler[0], "mean_")


@pytest.mark.parametrize("wrap", [lambda p: p, lambda p: make_pipeline(p, "passthrough")])
def test_a_pipeline_whose_last_step_needs_no_fit_is_fitted_on_a_copy(wrap):
    states = np.arange(40) % 4
    pipeline = wrap(make_pipeline(OneHotEncoder(), FunctionTransformer()))
    made = as_features(pipeline)
    assert made.needs_data
    bound = made.bind(states)
    assert np.array_equal(bound(states), np.eye(4)[states])
    assert not bound.needs_data
    assert bound.bind(states).transformer is bound.transformer
    assert as_features(pipeline).needs_data


class Negative(TransformerMixin, BaseEstimator):
    """Learns nothing in its fit."""

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return -X


def test_a_pipeline_is_fitted_if_its_last_step_that_needs_a_fit_is():
    pipeline = make_pipeline(Negative(), StandardScaler(), FunctionTransformer()).fit(DATA)
    assert as_features(pipeline).bind(DATA + 100).transformer is pipeline
    assert not as_features(make_pipeline(FunctionTransformer(), "passthrough")).needs_data


def test_a_fitted_transformer_stays_as_it_is():
    scaler = StandardScaler().fit(DATA)
    made = as_features(scaler).bind(DATA + 100)
    assert np.array_equal(made(DATA), scaler.transform(DATA))
    assert made.transformer is scaler
    assert made.bind(DATA) == made


def test_transformers_of_all_sorts():
    assert np.array_equal(as_features(Halver()).bind(DATA)(DATA), DATA / 2)
    assert np.array_equal(as_features(FunctionTransformer(np.abs)).bind(DATA)(DATA), np.abs(DATA))
    states = np.arange(40) % 4
    one_hot = as_features(OneHotEncoder()).bind(states)  # sparse rows
    assert np.array_equal(one_hot(states), np.eye(4)[states])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_any_split_of_a_sampler_has_the_same_bits(dtype):
    observations = DATA.astype(dtype)
    made = as_features(RBFSampler(n_components=50, random_state=0)).bind(observations)
    whole = made(observations)
    assert whole.dtype == dtype
    for cuts in ([1, 2, 3, 500], [333, 400], [255, 256, 257], [999]):
        parts = np.split(observations, cuts)
        assert np.array_equal(np.concatenate([made(part) for part in parts]), whole)


def test_without_scikit_learn(monkeypatch):
    real = builtins.__import__

    def absent(name, *rest):
        if name.startswith("sklearn"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", absent)
    assert np.array_equal(as_features(Halver()).bind(DATA)(DATA), DATA / 2)
    with pytest.raises(MissingExtraError, match=r"scikit-learn is not installed. Run: pip install 'vrtd\[sklearn\]'"):
        as_features(RBFSampler()).bind(DATA)
