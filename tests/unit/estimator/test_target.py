"""Values of a target policy from another policy's log: Q(s, a), importance ratios, stability, files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers.decision_processes import random_policy, random_process, without_propensity
from tests.reference.lstdq import lstdq
from vrtd.errors import DataError, DataWarning, InvalidInputError
from vrtd.logs import Chunk

N = 3000
PROCESS, BEHAVIOUR, TARGET = random_process(0), random_policy(1), random_policy(2, evenness=1.0)
PAIRS = tuple(np.indices((5, 2)).reshape(2, -1))


@pytest.fixture(scope="module")
def logged() -> Chunk:
    return PROCESS.record(BEHAVIOUR, N, seed=4)[0]


@pytest.fixture(scope="module")
def rows(logged: Chunk) -> Chunk:
    return without_propensity(logged)


def evaluator(algorithm: Any = "auto", **options: Any) -> vrtd.Evaluator:
    return vrtd.Evaluator(algorithm, **({"features": "tabular:5", "discount": 0.9, "target": TARGET} | options))


def listed(rows: Chunk) -> Any:
    return list(zip(rows.observations, rows.action, rows.reward, rows.next_observations, rows.terminated, strict=True))


@pytest.mark.filterwarnings("ignore:the features do not represent which")
def test_it_is_lstdq(rows: Chunk) -> None:
    table = np.random.default_rng(0).normal(size=(5, 3))
    with pytest.warns(DataWarning, match="do not represent"):  # three features for five states
        found = evaluator(features=table).fit(rows)
    expected = lstdq(lambda s: table[s], listed(rows), lambda s: TARGET[s], 2, 0.9)
    np.testing.assert_allclose(found.theta_, expected, rtol=0, atol=1e-10)
    q = (table @ expected.reshape(2, 3).T)[PAIRS]
    np.testing.assert_allclose(found.predict(*PAIRS), q, atol=1e-10)
    np.testing.assert_allclose(found.predict(np.arange(5)), (TARGET * (table @ expected.reshape(2, 3).T)).sum(axis=1))


def test_a_table_tends_to_the_exact_values() -> None:
    """The error falls as 1/sqrt(n): with 64 times the rows it is about an eighth."""
    V, Q, _ = PROCESS.values(TARGET)
    errors = []
    for n in (1000, 64_000):
        found = evaluator().fit(without_propensity(PROCESS.record(BEHAVIOUR, n, seed=5)[0]))
        errors.append([np.abs(found.predict(*PAIRS) - Q[PAIRS]).max(), np.abs(found.predict(np.arange(5)) - V).max()])
    assert np.all(np.array(errors[1]) < 0.08)
    assert np.all(np.array(errors[1]) < 0.5 * np.array(errors[0]))


@pytest.mark.parametrize("target", [lambda s: TARGET[s], TARGET.tolist()], ids=["function", "list"])
def test_a_target_is_what_it_computes(rows: Chunk, target: Any) -> None:
    assert np.array_equal(evaluator(target=target).fit(rows).theta_, evaluator().fit(rows).theta_)


def test_features_may_be_a_function_of_both(rows: Chunk) -> None:
    def both(s: Any, a: Any) -> Any:
        return np.eye(10)[5 * a + s]

    found = evaluator(features=both).fit(rows)
    np.testing.assert_allclose(found.theta_, evaluator().fit(rows).theta_, atol=1e-12)


def test_propensities_make_importance_ratios(logged: Chunk) -> None:
    found = evaluator().fit(logged)
    ratio = TARGET[logged.observations, logged.action] / BEHAVIOUR[logged.observations, logged.action]
    by_hand = evaluator(target=None).fit(without_propensity(logged)._replace(weight=ratio))
    assert found.n_features == 5
    assert np.array_equal(found.theta_, by_hand.theta_)
    assert found.policy_value() == by_hand.policy_value()


@pytest.mark.parametrize("name", ["rows", "logged"])
def test_nothing_depends_on_the_split_or_the_file(name: str, request: Any, tmp_path: Any) -> None:
    data = request.getfixturevalue(name)
    whole, parts = evaluator(pilot_rows=500).fit(data), evaluator(pilot_rows=500)
    for first in range(0, N, 400):
        parts.partial_fit(data.part(first, first + 400))
        parts.save(tmp_path / "model.npz")
        parts = vrtd.Evaluator.load(tmp_path / "model.npz")
    assert np.array_equal(parts.theta_, whole.theta_)
    assert parts.policy_value() == whole.policy_value()
    assert parts.mean_value() == whole.mean_value()


def test_code_is_passed_again_to_load(rows: Chunk, tmp_path: Any) -> None:
    found = evaluator(target=lambda s: TARGET[s]).fit(rows)
    found.save(tmp_path / "model.npz")
    with pytest.raises(
        InvalidInputError, match=r"target policy of .* was a function or an object.*Pass the same policy again: target="
    ):
        vrtd.Evaluator.load(tmp_path / "model.npz")
    again = vrtd.Evaluator.load(tmp_path / "model.npz", target=lambda s: TARGET[s])
    assert again.predict(*PAIRS, return_interval=0.9).low == pytest.approx(
        found.predict(*PAIRS, return_interval=0.9).low
    )


@pytest.mark.parametrize("n_rows", [100, N])
def test_code_with_propensities_is_loaded(logged: Chunk, tmp_path: Any, n_rows: int) -> None:
    def features(s: Any) -> Any:
        return np.eye(5)[s]

    found = evaluator(features=features, pilot_rows=200).partial_fit(logged.part(0, n_rows))
    found.save(tmp_path / "model.npz")
    again = vrtd.Evaluator.load(tmp_path / "model.npz", features=features)
    again.partial_fit(logged.part(n_rows, N) if n_rows < N else logged)
    found.partial_fit(logged.part(n_rows, N) if n_rows < N else logged)
    assert np.array_equal(again.theta_, found.theta_)


def test_another_target_needs_another_fit(rows: Chunk, tmp_path: Any) -> None:
    for target, words in ((TARGET, "already contains its target policy"), (None, "has no target policy")):
        evaluator(target=target).fit(rows).save(tmp_path / "model.npz")
        with pytest.raises(InvalidInputError, match=words):
            vrtd.Evaluator.load(tmp_path / "model.npz", target=BEHAVIOUR)


def test_an_action_that_was_never_logged_has_no_value(rows: Chunk) -> None:
    """Not where it is asked for; and what leads to it is as uncertain as it matters."""
    kept = rows.action * (rows.observations != 3)  # in state 3 action 1 is never taken
    log = rows._replace(action=kept)
    narrow, wide = evaluator().fit(rows), evaluator().fit(log)
    asked = wide.predict([3, 2], [1, 1], return_interval=0.95)
    assert np.isinf(asked.high[0])
    assert np.isfinite(asked.high[1])
    before = narrow.predict([3, 2], [1, 1], return_interval=0.95)
    assert asked.high[1] - asked.low[1] > 2.0 * (before.high[1] - before.low[1])


def counter_example() -> Chunk:
    """Two states with features 1 and 2, a target that always goes to the second, and a log that mostly stays."""
    rng = np.random.default_rng(0)
    s = rng.integers(0, 2, N)
    go = rng.random(N) < 0.5
    s[rng.random(N) < 0.8] = 0
    none = np.zeros(N, bool)
    return Chunk(s, np.zeros(N), np.where(go, 1, 0), none, none, action=go.astype(np.int64))


@pytest.mark.filterwarnings("ignore:the features do not represent which")
@pytest.mark.parametrize("algorithm", ["vrtd", "td", vrtd.TD(0.01)])
def test_an_unstable_system_is_refused(algorithm: Any) -> None:
    def features(s: Any, a: Any) -> Any:
        return ((1.0 + s) * (1.0 + 0.0 * a))[:, None]

    found = evaluator(algorithm, features=features, discount=0.99, target=[1, 1], pilot_rows=1000)
    with pytest.raises(InvalidInputError, match=r"diverges with every step size: .* Use algorithm='closed_form'"):
        found.fit(counter_example())
    for stable in ("closed_form", "tdc"):
        evaluator(stable, features=features, discount=0.99, target=[1, 1]).fit(counter_example())


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"action": None, "propensity": None}, {}, "Name their column: action="),
        ({}, {"target": None}, "propensity needs a target policy"),
        ({"weight": np.ones(N)}, {}, "both propensities and weights"),
        ({"propensity": np.zeros(N)}, {}, r"propensity must lie in \(0, 1\], but is 0\.0 \(row 0"),
        ({"propensity": np.full(N, 40.0)}, {}, r"propensity must lie in \(0, 1\], but is 40\.0 \(row 0"),
        ({"propensity": None, "weight": np.ones(N)}, {}, "weights are computed from propensities"),
        ({"propensity": None, "action": np.full(N, -1)}, {}, "(?i)actions of the log must be at least 0"),
        ({"propensity": None}, {"target": [[0.5, 0.6]] * 5}, "sum to 1"),
        ({"propensity": None}, {"target": "abc"}, "target must be"),
        ({}, {"features": lambda s, a: np.ones((len(s), 1))}, "features must not depend on actions"),
        ({"action": np.ones(N)}, {}, "propensity needs actions that are integers or words"),
    ],
)
def test_what_cannot_be_is_refused(logged: Chunk, change: Any, options: Any, message: str) -> None:
    with pytest.raises((DataError, InvalidInputError), match=message):
        evaluator(**options).fit(logged._replace(**change))


def test_parts_with_other_actions_are_refused(rows: Chunk) -> None:
    for other in (None, rows.action.astype(float), np.stack([rows.action] * 2, axis=1)):
        found = evaluator(pilot_rows=500).partial_fit(rows.part(0, 100))
        with pytest.raises(DataError, match="action"):
            found.partial_fit(rows._replace(action=other).part(100, 200))


def test_actions_of_a_prediction_are_checked(rows: Chunk) -> None:
    found = evaluator().fit(rows)
    with pytest.raises(InvalidInputError, match=r"return_interval=0\.95"):
        found.predict([0], 0.95)
    with pytest.raises(InvalidInputError, match="rows of equal length"):
        found.predict([0, 1], [[0], [0, 1]])
    with pytest.raises(DataError, match=r"(?i)actions of the log must lie in 0\.\.1"):
        found.predict([0], [2])
    with pytest.raises(InvalidInputError, match="or fit with target="):
        evaluator(target=None).fit(rows).predict([0], [1])


def test_continuous_actions() -> None:
    """Q(s, a) = 1 + 2 s - (a - s)^2 for discount 0; the target takes a = s / 2."""
    rng = np.random.default_rng(0)
    s, a = rng.random(4000), rng.random(4000)
    none = np.zeros(4000, bool)
    log = Chunk(s, 1 + 2 * s - (a - s) ** 2 + 0.1 * rng.normal(size=4000), s, none, none, action=a)

    def squares(s: Any, a: Any) -> Any:
        s, a = s.reshape(-1), a.reshape(-1)
        return np.stack([np.ones_like(s), s, a, s * s, s * a, a * a], axis=1)

    found = evaluator(features=squares, discount=0.0, target=lambda s: 0.5 * s).fit(log)
    np.testing.assert_allclose(found.predict([0.5], [0.25]), [1 + 1 - 0.0625], atol=0.02)
    np.testing.assert_allclose(found.predict([0.8]), [1 + 1.6 - 0.16], atol=0.02)
    assert found.policy_value().low < (1 + 2 * s - 0.25 * s * s).mean() < found.policy_value().high


@pytest.mark.parametrize("has_propensity", [False, True])
def test_numbers_of_words_are_those_of_the_log(logged: Chunk, has_propensity: bool) -> None:
    """A log without one of the target's actions numbers the others differently."""
    table = {"state": logged.observations, "reward": logged.reward, "terminated": logged.terminated}
    table |= {"next_state": logged.next_observations, "offer": np.array(["coupon", "none"])[logged.action]}
    options: Any = {"action": "offer"}
    if has_propensity:
        table["p"], options["propensity"] = logged.propensity, "p"
    found = evaluator().fit(table, **options)
    assert found.actions_ == ("coupon", "none")
    assert np.array_equal(
        found.theta_, evaluator().fit(logged if has_propensity else without_propensity(logged)).theta_
    )
    if not has_propensity:
        assert np.array_equal(found.predict([1, 1], ["none", "coupon"]), found.predict([1, 1], [1, 0]))
    with pytest.raises(InvalidInputError, match=r"target has 3 actions, but the log has 2, .*: coupon, none"):
        evaluator(target=np.tile([0.0, 1.0, 0.0], (5, 1))).fit(table, **options)
