"""How much of a log tells of a target policy: weights of rows, rows that tell of an action, warnings."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers.decision_processes import random_policy, random_process, without_propensity
from vrtd.errors import DataWarning
from vrtd.estimator.cells import make_cells
from vrtd.estimator.diagnostics import capitalise
from vrtd.estimator.overlap import TargetSample, count_informative, invert_gram, measure_overlap, weigh_rows
from vrtd.features import Standardised, Tabular, TargetFeatures, as_target
from vrtd.logs import Chunk
from vrtd.problems import Transitions

N = 1000
PROCESS, BEHAVIOUR, TARGET = random_process(0), random_policy(1), random_policy(2)


@pytest.fixture(scope="module")
def logged() -> Chunk:
    return PROCESS.record(BEHAVIOUR, N, seed=4)[0]


def fit(rows: Chunk, target: Any = TARGET) -> Any:
    return vrtd.Evaluator(features="tabular:5", discount=0.9, target=target).fit(rows).diagnostics_.overlap


def sample_of(chunk: Chunk, n_rows: int = N) -> TargetSample:
    features = TargetFeatures(Tabular(5), as_target(TARGET), n_actions=2)
    phi, phi_next = features.of_pairs(chunk.observations, chunk.action), features(chunk.next_observations)
    rows = Transitions(phi, chunk.reward, phi_next, np.where(chunk.terminated, 0.0, 0.9))
    starts = np.append(True, chunk.terminated[:-1])
    state_phi = features(chunk.observations)
    return TargetSample(
        features.target, features, rows, chunk.observations, chunk.next_observations, chunk.action, state_phi, starts,
        n_rows,
    )  # fmt: skip


@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("n_more", [0, 2], ids=["independent", "dependent"])
def test_weights_of_rows_make_the_value(is_weighted: bool, n_more: int) -> None:
    rng = np.random.default_rng(0)
    mix = np.hstack([np.eye(3), rng.normal(size=(3, n_more))])
    phi, phi_next, nu = rng.normal(size=(50, 3)) @ mix, rng.normal(size=(50, 3)) @ mix, rng.normal(size=3) @ mix
    weight = rng.random(50) if is_weighted else np.ones(50)
    rows = Transitions(phi, rng.normal(size=50), phi_next, 0.7, weight if is_weighted else None)
    A = (phi * weight[:, None]).T @ (0.7 * phi_next - phi)
    theta = -np.linalg.lstsq(A, phi.T @ (weight * rows.reward), rcond=1e-10)[0]
    zeta = weigh_rows(rows, nu)
    assert zeta is not None
    assert abs((zeta * rows.reward).mean() - nu @ theta) < 1e-10


def test_rows_that_tell_of_a_pair_are_its_visits(logged: Chunk) -> None:
    sample = sample_of(logged.part(0, 30))
    states, actions = np.indices((5, 2)).reshape(2, -1)
    assert isinstance(sample.features, TargetFeatures)
    phi = sample.features.of_pairs(states, actions)
    visits = np.bincount(5 * sample.action + sample.observations, minlength=10)[5 * actions + states]
    assert visits.min() == 0  # a pair that was never seen is among them
    assert count_informative(sample.rows, invert_gram(sample.rows), phi) == pytest.approx(visits, rel=1e-9)


def test_it_is_measured_exactly(logged: Chunk) -> None:
    state, action = logged.observations, logged.action.copy()
    action[np.flatnonzero((state == 3) & (action == 1))[9:]] = 0  # 9 rows remain
    with pytest.warns(DataWarning, match="hardly logged"):
        found = fit(without_propensity(logged)._replace(action=action))
    # With a table, the weight of a pair is how often the target is there, over how often the log is.
    visits, follows = np.zeros((5, 2)), np.zeros((10, 5))
    np.add.at(visits, (state, action), 1.0)
    np.add.at(follows, (2 * state + action, logged.next_observations), ~logged.terminated / visits[state, action])
    onward = 0.9 * (follows[:, :, None] * TARGET).reshape(10, 10)
    start = np.bincount(state[np.append(True, logged.terminated[:-1])], minlength=5)
    occupied = np.linalg.solve(np.eye(10) - onward.T, (start[:, None] / start.sum() * TARGET).ravel())
    zeta = np.abs(occupied.reshape(5, 2) / visits)[state, action]
    assert found.effective_rows == pytest.approx(zeta.sum() ** 2 / np.square(zeta).sum(), rel=1e-8)
    assert found.largest_weight == pytest.approx(zeta.max() / zeta.sum(), rel=1e-8)
    assert found.hardly_logged == pytest.approx((state == 3).mean() * TARGET[3, 1], rel=1e-9)
    assert found.effective_ratios is None


def test_longer_logs_tell_more(logged: Chunk) -> None:
    """A log of which these are the first tenth has ten times the rows."""
    first = logged.part(0, 100)
    short, long = measure_overlap(sample_of(first, 100)), measure_overlap(sample_of(first, 1000))
    assert short is not None
    assert long is not None
    assert long.effective_rows == pytest.approx(10 * short.effective_rows, rel=1e-12)
    assert long.hardly_logged < short.hardly_logged


def test_propensities_have_ratios(logged: Chunk) -> None:
    found = fit(logged)
    ratio = TARGET[logged.observations, logged.action] / logged.propensity
    assert found.effective_ratios == pytest.approx(ratio.sum() ** 2 / np.square(ratio).sum())
    assert found.largest_ratio == ratio.max()
    assert found.hardly_logged == 0.0


POOR = np.stack([np.full(5, 0.985), np.full(5, 0.015)], axis=1)


@pytest.mark.parametrize("has_propensity", [False, True])
def test_poor_overlap_is_warned_of(has_propensity: bool) -> None:
    log = PROCESS.record(POOR, N, seed=5)[0]
    rows = log if has_propensity else without_propensity(log)
    with pytest.warns(DataWarning) as caught:
        evaluator = vrtd.Evaluator(features="tabular:5", discount=0.9, target=1 - np.eye(2)[[0] * 5]).fit(rows)
    words = [str(warning.message) for warning in caught]
    assert any("rests on few of the 1,000 rows" in text for text in words)
    assert any("% of the target's actions were hardly logged" in text for text in words)
    diagnostics = evaluator.diagnostics_
    plain = json.loads(json.dumps(diagnostics.as_dict(), allow_nan=False))
    assert plain["overlap"]["effective_rows"] == diagnostics.overlap.effective_rows < 50.0
    assert set(words) <= {f"{capitalise(warning)}." for warning in plain["warnings"]}
    assert diagnostics.overlap.describe()["Effective sample size"].endswith("of 1,000 rows")


def test_actions_that_a_log_never_takes_show_in_its_ratios() -> None:
    """In half of the states the log never takes the target's action, so that no row tells of it."""
    behaviour = BEHAVIOUR.copy()
    behaviour[:3] = [1.0, 0.0]
    log = PROCESS.record(behaviour, N, seed=6)[0]
    target = np.tile([0.4, 0.6], (5, 1))
    with pytest.warns(DataWarning) as caught:
        found = fit(log, target)
    missing = 0.6 * (log.observations < 3).mean()
    assert found.hardly_logged == pytest.approx(missing, rel=1e-9)
    assert found.mean_ratio == pytest.approx(1.0 - missing, abs=0.1)
    words = [str(each.message) for each in caught]
    assert any("hardly logged" in text for text in words)
    assert any("that the log's policy never takes, or the propensities are not" in text for text in words)


def test_propensities_that_are_not_those_of_the_logged_actions(logged: Chunk) -> None:
    """The column has the probability of action 1 in every row."""
    found = fit(logged)
    assert found.mean_ratio == pytest.approx(1.0, abs=4 * found.mean_ratio_error)  # a fixed log
    wrong = logged._replace(propensity=BEHAVIOUR[logged.observations, 1])
    with pytest.warns(DataWarning, match="Importance ratios have mean .* instead of 1: the propensities are not"):
        wrongly = fit(wrong)
    assert wrongly.mean_ratio == (TARGET[logged.observations, logged.action] / wrong.propensity).mean() > 1.1


def bandit(n: int, explored: float) -> Chunk:
    """Action 1 is taken half of the time where x0 < 0, seldom elsewhere, where it is bad."""
    rng = np.random.default_rng(3)
    x = rng.uniform(-1, 1, (n, 2))
    chance = np.where(x[:, 0] < 0, 0.5, explored)
    action = (rng.random(n) < chance).astype(np.int64)
    reward = np.where(action == 1, -10 * np.maximum(x[:, 0], 0), 0.2 * x[:, 1]) + 0.1 * rng.normal(size=n)
    ends = np.ones(n, np.bool_)
    propensity = np.where(action == 1, chance, 1 - chance)
    return Chunk(x, reward, x, ends, ~ends, action=action, propensity=propensity)


@pytest.mark.filterwarnings("ignore:(the value of the target policy rests on|importance ratios)")
@pytest.mark.parametrize("has_propensity", [False, True])
@pytest.mark.parametrize("explored", [0.0, 0.002])
def test_extrapolation_is_warned_of(explored: float, has_propensity: bool) -> None:
    """A line for each action seems to be known everywhere, though action 1 was logged in half of the states."""
    rows = bandit(5000, explored) if has_propensity else without_propensity(bandit(5000, explored))

    def overlap(target: Any) -> Any:
        evaluator = vrtd.Evaluator(features=Standardised(), discount=0.0, target=target)
        return evaluator.fit(rows).diagnostics_.overlap

    with pytest.warns(DataWarning, match="of the target's actions were hardly logged"):
        assert 0.3 < overlap(lambda s: np.ones(len(s), np.int64)).hardly_logged < 0.7
    assert overlap(lambda s: (s[:, 0] < -0.2).astype(np.int64)).hardly_logged < 0.1


def test_cells_count_rows_of_an_action() -> None:
    rng = np.random.default_rng(0)
    x = np.column_stack([np.zeros(4000), rng.integers(0, 2, 4000), rng.normal(size=4000)])
    action = rng.integers(0, 2, 4000) * (x[:, 1] == 0).astype(np.int64)  # 1 only where a number is 0
    cells = make_cells(x, action, 2)
    assert cells is not None
    told = cells.count(np.arange(4000), np.ones(4000))
    assert (told[x[:, 1] == 1] == 0).all()
    assert told[x[:, 1] == 0].min() > 100
    assert make_cells(x[:300], action[:300], 2) is None  # too few rows to say anything


def test_cells_of_continuous_actions() -> None:
    """The second number of the actions follows the state."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 1))
    action = np.column_stack([rng.normal(size=4000), x[:, 0]])
    cells = make_cells(x, action, 0)
    assert cells is not None
    rows = np.flatnonzero(np.abs(x[:, 0]) > 1.0)
    assert cells.count(rows, action[rows]).min() > 50
    assert cells.count(rows, -action[rows]).max() == 0


@pytest.mark.filterwarnings("ignore:the features do not represent which")
def test_continuous_actions_far_from_those_of_the_log() -> None:
    rng = np.random.default_rng(0)
    s, a = rng.normal(size=(200, 1)), rng.normal(size=200)
    none = np.zeros(200, np.bool_)
    rows = Chunk(s, s[:, 0] + a + rng.normal(size=200), rng.normal(size=(200, 1)), none, none, action=a)

    def overlap(action: float) -> Any:
        evaluator = vrtd.Evaluator(features=Standardised(), discount=0.5, target=lambda o: np.full(len(o), action))
        return evaluator.fit(rows).diagnostics_.overlap

    assert overlap(0.5).hardly_logged == 0.0
    with pytest.warns(DataWarning, match="100 % of the target's actions were hardly logged"):
        assert overlap(50.0).hardly_logged == 1.0


def test_negative_weights_show_features_that_cannot_tell_where_the_target_leads() -> None:
    process = random_process(0, n_states=6)
    rows = without_propensity(process.record(random_policy(1, n_states=6), 3000, seed=3)[0])
    target = random_policy(2, n_states=6, evenness=1.0)

    def overlap(features: Any) -> Any:
        return vrtd.Evaluator(features=features, discount=0.9, target=target).fit(rows).diagnostics_.overlap

    assert overlap("tabular:6").negative_weight == 0.0
    with pytest.warns(DataWarning) as caught:
        assert overlap(np.random.default_rng(0).normal(size=(6, 3))).negative_weight > 0.1
    assert any("do not represent which states the target policy visits" in str(each.message) for each in caught)


def test_an_unlogged_start_widens_the_value_by_its_share(logged: Chunk) -> None:
    """Of the target's first actions a small share was never logged: the value is as uncertain as that share."""
    rows, starts = without_propensity(logged), np.append(True, logged.terminated[:-1])
    never = rows._replace(action=np.where(rows.observations == 4, 0, rows.action))
    rare = TARGET.copy()
    rare[4] = [0.99, 0.01]
    known = vrtd.Evaluator(features="tabular:5", discount=0.9, target=rare).fit(rows)
    unknown = vrtd.Evaluator(features="tabular:5", discount=0.9, target=rare).fit(never)
    share = 0.01 * (rows.observations[starts] == 4).mean()
    assert share > 0.0
    assert np.isinf(unknown.predict([4], [1], return_interval=0.95).high[0])
    halves = [np.ptp(each.policy_value()[1:]) / 2 for each in (known, unknown)]
    assert np.isfinite(halves).all()
    assert halves[1] < 1.5 * halves[0] + 1.0


def test_a_value_that_rests_on_unlogged_actions_is_not_known(logged: Chunk) -> None:
    """The target begins with an action that the log never takes."""
    rows = without_propensity(logged)
    with pytest.warns(DataWarning) as caught:
        found = vrtd.Evaluator(features="tabular:5", discount=0.9, target=np.full(5, 2)).fit(rows)
    assert any("No row carries information about the value" in str(each.message) for each in caught)
    assert found.policy_value()[1:] == (-np.inf, np.inf)
    assert np.isinf(found.mean_value().high)
