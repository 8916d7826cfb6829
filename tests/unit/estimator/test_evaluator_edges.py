"""What ordinary and extraordinary data make of the estimator: nothing wrong without a word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers.some_logs import DISCOUNT, boyan, chunk
from vrtd.errors import (
    AccuracyWarning,
    ConvergenceWarning,
    DataError,
    InvalidInputError,
    ModelFileError,
    NotFittedError,
)
from vrtd.estimator import state as fit_state
from vrtd.features import Tabular
from vrtd.logs import Chunk, from_arrays, from_env

N = 12_000


@pytest.mark.parametrize("algorithm", ["closed_form", vrtd.VRTD(0.02, 500, output="average")])
def test_rows_that_come_again_are_no_new_evidence(algorithm: Any) -> None:
    rows, _, _ = boyan(N)
    log = from_arrays(*rows[:5])
    once, often = (vrtd.Evaluator(algorithm, discount=1.0).fit(log, n_passes=n) for n in (1, 9))
    assert often.n_rows_ == 9 * N
    halves = [float(np.ptp(each.mean_value()[1:])) / 2 for each in (once, often)]
    assert halves[1] > 0.5 * halves[0]
    closed = [each.mean_value(method="closed_form").low for each in (once, often)]
    assert closed[0] == closed[1]
    errors = [each.diagnostics_.errors["budget"] for each in (once, often)]
    np.testing.assert_allclose(errors[0], errors[1])
    assert once.diagnostics_.effective_rows == often.diagnostics_.effective_rows


@pytest.mark.parametrize("algorithm", ["vrtd", "closed_form", vrtd.TD(0.05)])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("at", [1000, 6000])  # inside the pilot and after it
def test_weights_are_there_for_all_rows_or_for_none(algorithm: Any, first: bool, at: int) -> None:
    evaluator = vrtd.Evaluator(algorithm, discount=DISCOUNT)
    some, more = chunk(0, at), chunk(at, N)
    weighted = [part._replace(weight=np.ones(len(part.reward))) for part in (some, more)]
    evaluator.partial_fit(weighted[0] if first else some)
    with pytest.raises(DataError, match="must have weights, or none"):
        evaluator.partial_fit(more if first else weighted[1])
    assert evaluator.n_rows_ == at


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
@pytest.mark.parametrize("algorithm", ["vrtd", "closed_form", vrtd.TD(0.05)])
def test_weights_that_are_none(bad: float, algorithm: Any) -> None:
    rows = chunk(0, N)._replace(weight=np.where(np.arange(N) == 700, bad, 1.0))
    with pytest.raises(DataError, match="row 700 of the log"):
        vrtd.Evaluator(algorithm, discount=DISCOUNT).fit(rows)


@pytest.mark.parametrize("name", ["FrozenLake-v1", "CliffWalking"])
def test_states_of_an_environment_need_not_be_counted(name: str) -> None:
    gymnasium = pytest.importorskip("gymnasium")
    newest = max(key for key in gymnasium.registry if key.startswith(name))
    evaluator = vrtd.Evaluator(features="tabular", discount=0.9).fit(from_env(newest, "random", n_samples=8000))
    assert evaluator.n_rows_ == 8000


def test_the_successor_of_a_termination_is_not_looked_at() -> None:
    """Not its number by features of states, not its size by diagnostics."""
    states = np.random.default_rng(0).integers(0, 4, N + 1)
    ends = np.arange(N) % 5 == 0
    successors = np.where(ends, -1, states[1:])
    for features in (Tabular(4), np.eye(4)):
        for algorithm in ("vrtd", "closed_form"):
            log = from_arrays(states[:-1], np.ones(N), successors, ends)
            evaluator = vrtd.Evaluator(algorithm, features=features, discount=0.9).fit(log)
            assert evaluator.diagnostics_.rank == 4
    rows = chunk(0, N)
    for nothing in (np.nan, 1e308):
        odd = np.where(ends[:, None], nothing, rows.next_observations)
        evaluator = vrtd.Evaluator("closed_form", discount=0.9).fit(
            rows._replace(next_observations=odd, terminated=ends)
        )
        assert evaluator.diagnostics_.explained is not None


def test_rows_beyond_the_span_of_the_sample_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit_state, "_MOST_ROWS", 600)
    rng = np.random.default_rng(1)
    states = np.concatenate([rng.integers(0, 3, 2000), rng.integers(0, 6, N - 1999)])
    log = from_arrays(states[:-1], rng.normal(size=N), states[1:])
    evaluator = vrtd.Evaluator(vrtd.VRTD(0.1, 500), features=Tabular(6), discount=0.5).fit(log)
    diagnostics = evaluator.diagnostics_
    assert diagnostics.unseen == ()
    assert diagnostics.converged is False
    assert "later rows have features that the first 600 do not span" in diagnostics.text
    with pytest.warns(ConvergenceWarning, match="the first 600 do not span"):
        found = evaluator.predict(np.arange(6), return_interval=0.9)
    assert np.isfinite(found.low).tolist() == [True] * 3 + [False] * 3


@pytest.mark.parametrize(("rows", "reward"), [(1e160, 1.0), (1e-160, 1.0), (1.0, 1e160), (1.0, 1e-160)])
def test_sizes_that_cannot_be_squared(rows: float, reward: float) -> None:
    good = chunk(0, N)
    odd = good._replace(
        observations=rows * good.observations,
        next_observations=rows * good.next_observations,
        reward=reward * good.reward,
    )
    with pytest.raises(InvalidInputError, match="scale them"):
        vrtd.Evaluator(discount=0.9).fit(odd)
    with pytest.raises(InvalidInputError, match="scale"):
        _ = vrtd.Evaluator("closed_form", discount=0.9).fit(odd).diagnostics_


def test_nothing_to_learn_limits_nothing() -> None:
    still = vrtd.Evaluator("closed_form", discount=0.9).fit(chunk(0, N)._replace(reward=np.zeros(N))).diagnostics_
    assert still.limit is None


def test_observations_of_another_width_before_the_pilot() -> None:
    evaluator = vrtd.Evaluator(discount=0.9).partial_fit(chunk(0, 600))
    narrow = Chunk(*(values[:, :3].copy() if values.ndim == 2 else values for values in chunk(600, 900)[:5]))
    with pytest.raises(DataError, match="must have one shape"):
        evaluator.partial_fit(narrow)
    assert evaluator.n_rows_ == 600


def test_discount_one_leaves_no_trace_and_is_refused_for_short_logs() -> None:
    evaluator = vrtd.Evaluator(vrtd.VRTD(0.001, 100), discount=1.0).partial_fit(chunk(0, 4000))
    before = evaluator.theta_
    for _ in range(2):
        with pytest.raises(InvalidInputError, match="discount 1 needs episodes that end"):
            evaluator.partial_fit(chunk(4000, 6000))
        assert evaluator.n_rows_ == 4000
        assert np.array_equal(evaluator.theta_, before)
    with pytest.raises(InvalidInputError, match="discount 1 needs episodes that end"):
        vrtd.Evaluator("closed_form", discount=1.0).fit(chunk(0, 1000))
    evaluator.partial_fit(chunk(4000, 6000)._replace(terminated=np.arange(2000) == 7))  # one end is enough


def test_what_features_refuse_is_located() -> None:
    states = np.arange(N + 1) % 4
    states[9000] = 9
    log = from_arrays(states[:-1], np.ones(N), states[1:])
    with pytest.raises(DataError, match="row 9000"):
        vrtd.Evaluator("closed_form", features=Tabular(4), discount=0.9).fit(log)
    rows = Chunk(states[:-1], np.ones(N), np.zeros(N, np.int64), np.zeros(N, bool), np.zeros(N, bool))
    located = rows._replace(locate=lambda field, row: f"log.csv, {field}, line {row + 2}")
    with pytest.raises(DataError, match=r"log\.csv, observations, line 9002"):
        vrtd.Evaluator("closed_form", features=Tabular(4), discount=0.9).fit(located)


def test_settings_are_those_that_were_used() -> None:
    """A phase begins with its first row, not with the last of the one before."""
    rows, _, _ = boyan(20_000)
    evaluator = vrtd.Evaluator("td", discount=1.0, n_samples=20_000).fit(rows)
    assert len([remark for remark in evaluator.diagnostics_.remarks if remark.startswith("from row")]) == 1
    evaluator.partial_fit(Chunk(*(values[:1] for values in rows[:5])))
    assert len([remark for remark in evaluator.diagnostics_.remarks if remark.startswith("from row")]) == 2


def test_parameters_before_any_row() -> None:
    with pytest.raises(NotFittedError, match="call fit or partial_fit"):
        _ = vrtd.Evaluator(discount=0.9).theta_
    with pytest.raises(InvalidInputError, match="discount must lie in"):
        vrtd.Evaluator(discount=True)


def test_a_model_with_parameters_that_are_not_finite_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    vrtd.Evaluator(vrtd.TD(0.05), discount=0.9).fit(chunk(0, 6000)).save(path)
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **(arrays | {"state/learner/theta": np.full(4, np.nan)}))
    with pytest.raises(ModelFileError):
        vrtd.Evaluator.load(path)


def test_a_run_that_strays_from_its_sample_is_noticed() -> None:
    """Rows of another kind after the sample: theta is not where the sample says."""
    rows, _, _ = boyan(70_000)
    later = rows._replace(reward=np.where(np.arange(70_000) < 55_000, rows.reward, 50.0))
    evaluator = vrtd.Evaluator(vrtd.VRTD(0.1, 1000, output="average"), discount=1.0)
    with pytest.warns(ConvergenceWarning, match="away from the closed form of the first 50,000 rows"):
        diagnostics = evaluator.fit(later).diagnostics_
    assert diagnostics.converged is False
    assert "not where the first 50,000 rows say" in diagnostics.text


@pytest.mark.parametrize("algorithm", ["closed_form", vrtd.VRTD(0.2, 500, output="average")])
def test_what_was_seen_seldom_has_no_interval(algorithm: Any) -> None:
    """A state that was seen once has a residual of 0: nothing is known of its noise."""
    states = np.random.default_rng(0).integers(0, 4, N + 1)
    states[5000] = 4
    log = from_arrays(states[:-1], np.random.default_rng(1).normal(size=N), states[1:])
    evaluator = vrtd.Evaluator(algorithm, features=Tabular(5), discount=0.5).fit(log)
    found = evaluator.predict(np.arange(5), return_interval=0.95)
    assert np.isfinite(found.low).tolist() == [True] * 4 + [False]
    assert "1 features were seen too seldom for an interval, 4" in evaluator.diagnostics_.text


def sticky(n: int) -> Chunk:
    """Two states that are left every five hundred steps, with one feature that tells neither from the other."""
    states = np.cumsum(np.random.default_rng(3).random(n + 1) < 0.002) % 2
    ones, no = np.ones((n, 1)), np.zeros(n, bool)
    return Chunk(ones, states[:-1].astype(float), ones, no, no)


def test_correlation_that_outlasts_blocks_or_sample_is_said() -> None:
    rows = sticky(4000)
    closed = vrtd.Evaluator("closed_form", discount=0.9).fit(rows)
    assert closed.diagnostics_.converged is False
    with pytest.warns(ConvergenceWarning, match="correlated over more than the 64 rows of a block"):
        closed.predict([[1.0]], return_interval=0.9)
    run = vrtd.Evaluator(vrtd.VRTD(0.1, 500), discount=0.9).fit(rows)
    assert "correlation outlasts the sample" in run.diagnostics_.text
    with pytest.warns(ConvergenceWarning, match="correlation outlasts"):
        run.predict([[1.0]], return_interval=0.9)


def test_what_features_explain_does_not_depend_on_weights_of_one_policy() -> None:
    """Tabular features represent all values, whatever the weights."""
    rng = np.random.default_rng(0)
    states = rng.integers(0, 5, N + 1)
    log = from_arrays(states[:-1], states[:-1] + rng.normal(size=N), states[1:], weight=rng.lognormal(0.0, 0.8, N))
    diagnostics = vrtd.Evaluator("closed_form", features=Tabular(5), discount=0.9).fit(log).diagnostics_
    assert diagnostics.explained is not None
    assert diagnostics.explained > 0.95
    assert diagnostics.limit != "features"


def test_a_small_column_is_no_dependence() -> None:
    scale = np.array([1.0, 1.0, 1.0, 1e-6])
    rows = chunk(0, N)
    small = rows._replace(observations=rows.observations * scale, next_observations=rows.next_observations * scale)
    evaluator = vrtd.Evaluator("closed_form", discount=DISCOUNT).fit(small)
    assert evaluator.diagnostics_.rank == 4
    plain = vrtd.Evaluator("closed_form", discount=DISCOUNT).fit(rows)
    np.testing.assert_allclose(evaluator.theta_ * scale, plain.theta_, rtol=1e-6)


def test_a_projection_that_may_be_active_has_no_interval() -> None:
    evaluator = vrtd.Evaluator(vrtd.VRTD(0.05, 500, radius=1.0), discount=DISCOUNT).fit(chunk(0, N))
    with pytest.warns(AccuracyWarning, match=r"no interval: none is known for VRTD\(.*no radius"):
        assert np.isnan(evaluator.theta_interval().low).all()


def test_the_mean_value_counts_the_shares_of_states() -> None:
    """Values 0 and 10 that change every ten steps: how often each came is most of what is not known."""
    n = 20_000
    states = np.cumsum(np.random.default_rng(0).random(n + 1) < 0.1) % 2
    log = from_arrays(states[:-1], 10.0 * states[:-1], states[1:])
    evaluator = vrtd.Evaluator("closed_form", features=Tabular(2), discount=0.0).fit(log)
    each = evaluator.predict(np.arange(2), return_interval=0.95)
    mean = evaluator.mean_value(0.95)
    assert np.ptp([each.low, each.high], axis=0).max() < 1e-9
    # The variance of the mean of a symmetric chain that changes with probability p is 25 (1 - p) / p / n.
    exact = 1.96 * np.sqrt(25 * 0.9 / 0.1 / n)
    assert 0.7 * exact < (mean.high[0] - mean.low[0]) / 2 < 1.4 * exact


def test_segments_that_are_shorter_than_the_correlation_are_said() -> None:
    gymnasium = pytest.importorskip("gymnasium")
    env = gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync")
    for segment, said in ((4, True), (512, False)):
        log = from_env(env, "random", n_samples=6000, segment=segment)
        text = vrtd.Evaluator("closed_form", features="rbf:16", discount=0.9).fit(log).diagnostics_.text
        assert (f"segments of {segment} rows" in text) is said
