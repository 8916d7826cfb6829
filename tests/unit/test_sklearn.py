"""The scikit-learn face of the estimator: its own checks, and the same numbers as the estimator underneath."""

import importlib
import pickle
import subprocess
import sys

import numpy as np
import pytest
from sklearn import clone, config_context
from sklearn.exceptions import NotFittedError
from sklearn.kernel_approximation import RBFSampler
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import vrtd
from vrtd.errors import DataError, InvalidInputError, MissingExtraError
from vrtd.sklearn import ValueRegressor

PROBLEM = vrtd.problems.random_mdp(seed=0)
PHI = np.column_stack([np.ones(50), PROBLEM.phi[:, 1:]])
RNG = np.random.default_rng(1)
STATES = np.cumsum(RNG.integers(1, 4, 3001)) % len(PHI)  # a trajectory: one to three states on at every step
X, NEXT, Y = PHI[STATES[:-1]], PHI[STATES[1:]], RNG.random(3000)
ENDS = np.arange(len(Y)) % 50 == 49


@pytest.mark.filterwarnings("ignore")  # small, dependent and odd data on purpose
@parametrize_with_checks([ValueRegressor(), ValueRegressor("closed_form")])
def test_checks_of_scikit_learn(estimator, check, monkeypatch):
    monkeypatch.setattr("vrtd.engine.stream.SMALL", 0)  # one loop for all numbers of features: checks have many
    check(estimator)


@pytest.mark.parametrize("algorithm", ["vrtd", "td", "closed_form"])
def test_it_learns_what_the_evaluator_learns(algorithm):
    weight = np.linspace(0.5, 1.5, len(Y))
    log = vrtd.logs.from_arrays(X, Y, NEXT, ENDS, weight=weight)
    evaluator = vrtd.Evaluator(algorithm, features=None, discount=0.9, n_samples=3000, pilot_rows=3000).fit(log)
    model = ValueRegressor(algorithm, discount=0.9).fit(X, Y, next_X=NEXT, terminated=ENDS, weight=weight)
    assert np.array_equal(model.coef_, evaluator.theta_)
    assert np.abs(model.coef_).max() > 0.1
    assert np.array_equal(model.predict(PHI), evaluator.predict(PHI))
    assert model.diagnostics_.n_rows == 3000
    assert model.n_features_in_ == PHI.shape[1]
    found = model.predict(PHI, return_interval=0.9, method="closed_form")
    wanted = evaluator.predict(PHI, return_interval=0.9, method="closed_form")
    assert all(np.array_equal(one, other) for one, other in zip(found, wanted, strict=True))


def test_settings_reach_the_evaluator():
    model = ValueRegressor("vrtd", step_size=0.2, batch_size=70, pilot_rows=400, closed_form=True, random_state=5)
    model.fit(X, Y, next_X=NEXT)
    evaluator = vrtd.Evaluator(
        "vrtd", discount=0.95, step_size=0.2, batch_size=70, n_samples=3000, pilot_rows=400, closed_form=True, seed=5
    ).fit(vrtd.logs.from_arrays(X, Y, NEXT))
    assert np.array_equal(model.coef_, evaluator.theta_)
    for method in ("recursion", "closed_form"):
        found, wanted = (one.predict(PHI, return_interval=0.95, method=method) for one in (model, evaluator))
        assert all(np.array_equal(one, other) for one, other in zip(found, wanted, strict=True))


def test_without_successors_the_next_row_follows():
    cut = np.arange(len(Y)) % 100 == 30
    model = ValueRegressor("closed_form").fit(X, Y, terminated=ENDS, truncated=cut)
    kept = np.flatnonzero(~cut[:-1] | ENDS[:-1])
    kept = np.append(kept, len(Y) - 1)  # it terminates
    successors = np.vstack([X[1:], np.zeros_like(X[:1])])
    by_hand = ValueRegressor("closed_form").fit(X[kept], Y[kept], next_X=successors[kept], terminated=ENDS[kept])
    assert np.allclose(model.coef_, by_hand.coef_, rtol=1e-12, atol=0)
    assert model.evaluator_.n_rows_ == len(kept) == len(Y) - 30
    assert "30 rows dropped: truncated without a final observation" in model.diagnostics_.remarks


def test_a_row_that_terminates_may_be_followed_by_anything():
    successors = NEXT.copy()
    successors[ENDS] = np.nan
    fitted = [ValueRegressor("closed_form").fit(X, Y, next_X=rows, terminated=ENDS) for rows in (NEXT, successors)]
    assert np.array_equal(fitted[0].coef_, fitted[1].coef_)
    with pytest.raises(DataError, match=r"A number in next_observations is not finite at .* row 49"):
        ValueRegressor("closed_form").fit(X, Y, next_X=successors)


@pytest.mark.filterwarnings("ignore::vrtd.errors.DataWarning")  # no combination of the waves is constant
@pytest.mark.parametrize("algorithm", ["vrtd", "closed_form"])
def test_a_pipeline_transforms_the_successors_too(algorithm):
    states = np.random.default_rng(3).normal(size=(2001, 2)).cumsum(axis=0) / 20
    now, after, reward, ends = states[:-1], states[1:], states[:-1, 0], ENDS[:2000]
    with config_context(enable_metadata_routing=True):
        value = ValueRegressor(algorithm, discount=0.9).set_fit_request(next_X=True, terminated=True)
        sampler = RBFSampler(n_components=12, random_state=0)
        model = Pipeline([("rbf", sampler), ("value", value)], transform_input=["next_X"])
        model.fit(now, reward, next_X=after, terminated=ends)
        found = model.predict(now)
    rbf = RBFSampler(n_components=12, random_state=0).fit(now)
    by_hand = ValueRegressor(algorithm, discount=0.9)
    by_hand.fit(rbf.transform(now), reward, next_X=rbf.transform(after), terminated=ends)
    assert np.array_equal(found, by_hand.predict(rbf.transform(now)))
    still = ValueRegressor(algorithm, discount=0.9)
    still.fit(rbf.transform(now), reward, next_X=rbf.transform(now), terminated=ends)
    assert not np.allclose(found, still.predict(rbf.transform(now)))


def test_grid_search_finds_the_step_that_learns():
    search = GridSearchCV(
        make_pipeline(StandardScaler(with_mean=False), ValueRegressor("vrtd", discount=0.9, batch_size=50)),
        {"valueregressor__step_size": [1e-7, 0.02]},
        cv=TimeSeriesSplit(3),
    )
    search.fit(X, Y)
    assert search.best_params_ == {"valueregressor__step_size": 0.02}
    assert clone(search.best_estimator_[-1]).get_params() == search.best_estimator_[-1].get_params()


def test_score_is_against_what_followed():
    model = ValueRegressor("closed_form", discount=0.5).fit(np.ones((400, 1)), np.ones(400), next_X=np.ones((400, 1)))
    assert model.coef_ == pytest.approx(2.0)  # 1 / (1 - 0.5)
    rows, reward = np.array([[1.0], [2.0], [3.0], [5.0], [7.0]]), np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    ends, cut = np.array([0, 1, 0, 0, 0]), np.array([0, 0, 0, 1, 0])
    after = np.full((5, 1), 4.0)  # worth 8

    def r2(returns, shares):
        values = 2.0 * rows[:, 0]
        mean = np.average(returns, weights=shares)
        return 1 - (shares * (returns - values) ** 2).sum() / (shares * (returns - mean) ** 2).sum()

    known = np.array([2.0, 2.0, 4 + 0.5 * (8 + 4), 8 + 4.0, 16 + 4.0]), np.array([1, 1, 0.75, 0.5, 0.5])
    found = model.score(rows, reward, next_X=after, terminated=ends, truncated=cut)
    assert found == pytest.approx(r2(*known))
    bare = np.array([2.0, 2.0, 4 + 0.5 * 10, 10.0, 14.0]), np.array([1, 1, 0.5, 0.0, 0.0])
    assert model.score(rows, reward, terminated=ends, truncated=cut) == pytest.approx(r2(*bare))


def test_what_was_learned_can_be_stored_and_goes_on():
    given = {"algorithm": "vrtd", "step_size": 0.1, "batch_size": 64}
    parts = [slice(0, 700), slice(700, 1500), slice(1500, 3000)]
    whole = ValueRegressor(**given)
    for part in parts:
        whole.partial_fit(X[part], Y[part], next_X=NEXT[part])
    evaluator = vrtd.Evaluator(discount=0.95, **given).fit(vrtd.logs.from_arrays(X, Y, NEXT))
    assert np.array_equal(whole.coef_, evaluator.theta_)
    resumed = ValueRegressor(**given).partial_fit(X[parts[0]], Y[parts[0]], next_X=NEXT[parts[0]])
    resumed = pickle.loads(pickle.dumps(resumed))
    for part in parts[1:]:
        resumed.partial_fit(X[part], Y[part], next_X=NEXT[part])
    assert np.array_equal(resumed.coef_, whole.coef_)


def test_partial_fit_waits_for_its_pilot_and_goes_on_after_fit():
    model = ValueRegressor("td", pilot_rows=2500).partial_fit(X[:2000], Y[:2000])
    assert model.evaluator_.n_waiting_ == 1999  # the last row is dropped
    assert not model.coef_.any()
    assert not model.predict(X).any()
    assert model.diagnostics_.status == "waiting"
    assert model.partial_fit(X[2000:], Y[2000:]).coef_.any()
    model = ValueRegressor("closed_form").fit(X[:2000], Y[:2000], next_X=NEXT[:2000])
    model.partial_fit(X[2000:], Y[2000:], next_X=NEXT[2000:])
    assert np.allclose(model.coef_, ValueRegressor("closed_form").fit(X, Y, next_X=NEXT).coef_, rtol=1e-12, atol=0)


def test_singles_stay_singles_and_later_parts_follow():
    single = X.astype(np.float32), Y, NEXT.astype(np.float32)
    model = ValueRegressor("td", step_size=0.1).partial_fit(single[0], single[1], next_X=single[2])
    model.partial_fit(X, Y, next_X=NEXT)
    log = vrtd.logs.from_arrays(*single)
    evaluator = vrtd.Evaluator("td", features=None, discount=0.95, step_size=0.1).partial_fit(log).partial_fit(log)
    assert np.array_equal(model.coef_, evaluator.theta_)


@pytest.mark.parametrize("is_weighted", [False, True])
def test_open_parameters_are_held_near_zero(is_weighted):
    weight = np.linspace(0.5, 1.5, len(Y)) if is_weighted else None
    sound = ValueRegressor("closed_form").fit(X, Y, next_X=NEXT, weight=weight)
    twice = np.hstack([X, X])
    model = ValueRegressor("closed_form").fit(twice, Y, next_X=np.hstack([NEXT, NEXT]), weight=weight)
    assert np.allclose(model.predict(twice), sound.predict(X), rtol=1e-9)
    assert np.allclose(model.coef_, np.tile(sound.coef_ / 2, 2), rtol=1e-9)  # the least norm


@pytest.mark.parametrize("algorithm", ["vrtd", "closed_form"])
def test_features_that_are_zero_throughout(algorithm):
    with pytest.raises(InvalidInputError, match="All features are 0 in "):
        ValueRegressor(algorithm).fit(np.zeros((20, 3)), np.ones(20))


@pytest.mark.parametrize("random_state", [None, np.random.RandomState(7)])
def test_random_states(random_state):
    given = {"algorithm": "vrtd", "step_size": 0.1, "batch_size": 10, "random_state": random_state}
    one, other = (ValueRegressor(**given).fit(X, Y) for _ in range(2))
    assert not np.array_equal(one.coef_, other.coef_)  # as with any generator that goes on


def test_a_row_without_a_successor_is_no_data():
    message = r"No row has a successor, with n_samples = {}\. Pass more rows or next_X, or mark"
    with pytest.raises(DataError, match=message.format(1)):
        ValueRegressor().fit(X[:1], Y[:1])
    with pytest.raises(DataError, match=message.format(4)):
        ValueRegressor().fit(X[:4], Y[:4], truncated=np.ones(4))


def test_refusals_come_with_fit():
    with pytest.raises(InvalidInputError, match="algorithm must be one of"):
        ValueRegressor("sarsa").fit(X, Y)
    with pytest.raises(InvalidInputError, match="pilot_rows must be a whole number"):
        ValueRegressor(pilot_rows=0.5).fit(X, Y)
    with pytest.raises(DataError, match="terminated must have one entry per row"):
        ValueRegressor().fit(X, Y, terminated=ENDS[:-1])
    with pytest.raises(ValueError, match="X has 3 features, but ValueRegressor is expecting 4"):
        ValueRegressor().fit(X, Y, next_X=NEXT[:, :3])
    for name in ("coef_", "diagnostics_"):
        with pytest.raises(NotFittedError):
            getattr(ValueRegressor(), name)
    with pytest.raises(NotFittedError):
        ValueRegressor().score(X, Y)


def test_without_scikit_learn(monkeypatch):
    monkeypatch.delitem(sys.modules, "vrtd.sklearn")
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    with pytest.raises(MissingExtraError, match=r"scikit-learn is not installed. Run: pip install 'vrtd\[sklearn\]'"):
        importlib.import_module("vrtd.sklearn")


def test_it_is_loaded_by_nothing_else():
    code = "import sys, vrtd; vrtd.Evaluator(discount=0.9); assert not {'sklearn', 'vrtd.sklearn'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
