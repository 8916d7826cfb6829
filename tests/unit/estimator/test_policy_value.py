"""The value of a policy from its start states, and what the log's episodes returned."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers.decision_processes import random_policy, random_process, without_propensity
from vrtd.errors import DataWarning, InvalidInputError
from vrtd.logs import Chunk, from_arrays

N = 2000
PROCESS, POLICY = random_process(0), random_policy(1)


@pytest.fixture(scope="module")
def rows() -> Chunk:
    return without_propensity(PROCESS.record(POLICY, N, seed=3)[0])


def fit(rows: Any, algorithm: Any = "auto", discount: float = 0.9, features: Any = "tabular:5") -> vrtd.Evaluator:
    return vrtd.Evaluator(algorithm, features=features, discount=discount).fit(rows)


def first_states(rows: Chunk) -> Any:
    starts = np.append(True, (rows.terminated | rows.truncated)[:-1])
    return rows.observations[starts]


def test_it_is_the_mean_over_the_first_states(rows: Chunk) -> None:
    evaluator = fit(rows)
    found, starts = evaluator.policy_value(), first_states(rows)
    assert found.value == pytest.approx(evaluator.predict(starts).mean(), rel=1e-12)
    assert found.low < found.value < found.high
    wider = evaluator.policy_value(level=0.99)
    assert wider.low < found.low
    # A log from which the values are known without noise: what is left is the noise of the starts.
    exact = np.where(rows.terminated, 0.0, PROCESS.values(POLICY)[0][rows.next_observations])
    reward = PROCESS.values(POLICY)[0][rows.observations] - 0.9 * exact
    certain = fit(rows._replace(reward=reward)).policy_value()
    values = PROCESS.values(POLICY)[0][starts]
    assert certain.value == pytest.approx(values.mean(), rel=1e-9)
    half = 1.96 * values.std(ddof=1) / np.sqrt(len(values))
    assert 0.7 * half < (certain.high - certain.low) / 2 < 1.5 * half


def test_given_starts_are_a_sample(rows: Chunk) -> None:
    evaluator = fit(rows)
    one = evaluator.policy_value([2])
    assert one == tuple(end[0] for end in evaluator.predict([2], return_interval=0.95))
    few, many = evaluator.policy_value([1, 2] * 2), evaluator.policy_value([1, 2] * 2000)
    assert few.value == pytest.approx(many.value)
    assert few.high - few.low > 1.2 * (many.high - many.low)


@pytest.mark.parametrize("algorithm", ["auto", vrtd.VRTD(0.1, 200, output="average")])
def test_it_does_not_depend_on_the_split(rows: Chunk, algorithm: Any, tmp_path: Any) -> None:
    whole = fit(rows, algorithm)
    parts = vrtd.Evaluator(algorithm, features="tabular:5", discount=0.9)
    for first in range(0, N, 333):
        parts.partial_fit(rows.part(first, first + 333))
        parts.save(tmp_path / "model.npz")
        parts = vrtd.Evaluator.load(tmp_path / "model.npz")
    for ask in (vrtd.Evaluator.policy_value, vrtd.Evaluator.mean_value, vrtd.Evaluator.check_returns):
        assert ask(parts) == ask(whole)
    assert whole.policy_value().high > whole.policy_value().low


def test_a_second_pass_adds_no_episodes(rows: Chunk) -> None:
    once = fit(rows)
    twice = vrtd.Evaluator(features="tabular:5", discount=0.9).fit(rows, n_passes=2)
    assert once.policy_value() == twice.policy_value()


def test_a_log_without_episodes_has_no_starts() -> None:
    evaluator = fit(from_arrays(np.arange(2000) % 5, np.ones(2000)))
    with pytest.raises(InvalidInputError, match="at least two episodes"):
        evaluator.policy_value()
    assert evaluator.policy_value([0]).value == pytest.approx(10.0)


def test_every_decision_is_an_episode_without_a_discount(rows: Chunk) -> None:
    goes_on = rows._replace(terminated=np.zeros(N, bool))
    evaluator = fit(goes_on, discount=0.0)
    assert evaluator.policy_value().value == pytest.approx(evaluator.predict(rows.observations).mean())
    check = evaluator.check_returns()
    assert check is not None
    assert check.mean_return.value == pytest.approx(rows.reward.mean())


def transcribe_returns(rows: Chunk, discount: float) -> Any:
    """First state, last state or -1 where it terminated, steps, return; of every episode that ends."""
    found, first, total, n = [], None, 0.0, 0
    for s, r, s_next, terminated, truncated in zip(*rows[:5], strict=True):
        first, total, n = (s if first is None else first), total + discount**n * r, n + 1
        if terminated or truncated:
            found.append((first, -1 if terminated else s_next, n, total))
            first, total, n = None, 0.0, 0
    return np.array(found)


def test_returns_are_those_of_a_transcription(rows: Chunk) -> None:
    cut = np.zeros(N, bool)
    cut[60::97] = True
    log = rows._replace(truncated=cut & ~rows.terminated)
    evaluator, episodes = fit(log), transcribe_returns(log, 0.9)
    check = evaluator.check_returns()
    assert check is not None
    first, last, n, total = episodes.T
    is_cut = last >= 0
    assert (check.n_complete, check.n_cut) == ((~is_cut).sum(), is_cut.sum())
    assert check.mean_return.value == pytest.approx(total[~is_cut].mean(), rel=1e-12)
    values = evaluator.predict(np.arange(5))
    total = total + np.where(is_cut, 0.9**n * values[last.astype(int)], 0.0)
    assert check.difference.value == pytest.approx((values[first.astype(int)] - total).mean(), rel=1e-9)
    assert check.agrees


def test_returns_show_observations_that_miss_the_state(rows: Chunk) -> None:
    """All states look alike: the value is that of a typical state, and not that of a start."""
    starts = np.append(True, rows.terminated[:-1])
    reward = rows.reward + 5.0 * starts  # the first step pays
    blind = rows._replace(observations=np.zeros(N, int), next_observations=np.zeros(N, int), reward=reward)
    aliased = fit(blind, features="tabular:1")
    check = aliased.check_returns()
    assert check is not None
    assert not check.agrees
    with pytest.warns(DataWarning, match="Noise does not explain this difference"):
        aliased.policy_value()
    with_state = fit(rows._replace(reward=reward), features="tabular:5").check_returns()
    assert with_state is not None


def test_rows_that_do_not_start_an_episode_are_no_starts(rows: Chunk) -> None:
    """A cut in the middle of an episode, where a row was dropped, is not the start of another one."""
    starts = np.append(True, rows.terminated[:-1])
    cut = np.zeros(N, bool)
    cut[10::50] = True
    log = rows._replace(truncated=cut, starts=starts)
    found = fit(log)
    assert found.policy_value().value == pytest.approx(found.predict(rows.observations[starts]).mean(), rel=1e-12)
    check = found.check_returns()
    assert check is not None
    assert check.n_complete < starts.sum()
    assert check.agrees


def test_weights_have_no_returns(rows: Chunk) -> None:
    assert fit(rows._replace(weight=np.ones(N))).check_returns() is None


@pytest.mark.parametrize("with_next", [True, False])
def test_pieces_of_a_table_go_on_where_the_last_one_stopped(with_next: bool) -> None:
    """The first row of a piece is no start of an episode because it is the first of a table."""
    n, length = 600, 50
    s = np.tile(np.r_[0, 1 + np.arange(length - 1) % 3], n // length)
    rng = np.random.default_rng(0)
    table: Any = {"state": s, "reward": 10.0 * (s == 0) + 0.1 * rng.normal(size=n)}
    table |= {"terminated": np.arange(n) % length == length - 1}
    if with_next:
        table["next_state"] = np.r_[s[1:], 0]
    parts = vrtd.Evaluator(features="tabular:4", discount=0.5, pilot_rows=100)
    for first in range(0, n, 70):
        parts.partial_fit({name: values[first : first + 70] for name, values in table.items()})
    assert parts.n_episodes_ == n // length
    anew = parts.partial_fit({name: values[:70] for name, values in table.items()} | {"is_first": np.arange(70) == 0})
    assert anew.n_episodes_ == n // length + 1  # the recorded flags alone tell


def test_few_episodes_have_few_degrees_of_freedom() -> None:
    """With two first states of known values the interval is that of the mean of two numbers."""
    values, length = np.array([1.0, 3.0]), 400
    s = np.ones(2 * length, int)
    s[[0, length]] = [0, 2]
    noise = 1e-6 * np.random.default_rng(0).normal(size=len(s))
    reward = np.where(s == 0, values[0], np.where(s == 2, values[1], 0.0)) + noise
    ends = np.arange(2 * length) % length == length - 1
    evaluator = fit(from_arrays(s, reward, np.ones_like(s), ends), "closed_form", 0.5, "tabular:3")
    found = evaluator.policy_value()
    half = 12.706 * values.std(ddof=1) / np.sqrt(2)
    assert 0.4 * half < (found.high - found.low) / 2 < 2.0 * half
    given = evaluator.policy_value([0, 2])
    assert 0.9 * half < (given.high - given.low) / 2 or np.isinf(given.high)


@pytest.mark.parametrize("observations", [0.95, 0, "a"])
def test_start_states_are_a_list(rows: Chunk, observations: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"must be start states.*or level=0\.95"):
        fit(rows).policy_value(observations)
