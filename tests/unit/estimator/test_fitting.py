"""Learning from rows: splits, passes, weights, terminations, pilot rows and starts."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers.fits import SETTINGS, N, fed, fitted, make_evaluator, whole_diagnostics, whole_fit
from tests.helpers.some_logs import DISCOUNT, chain, chunk, split
from vrtd.errors import (
    DataError,
    InvalidInputError,
    NotFittedError,
)
from vrtd.estimator import fit
from vrtd.estimator.learner import first_learner, learn
from vrtd.estimator.state import sample_of
from vrtd.features import Identity, Tabular
from vrtd.logs import Chunk, from_arrays
from vrtd.problems import Transitions

TD = vrtd.TD(0.01)
N_ROWS = 12_000


@pytest.mark.parametrize("name", SETTINGS)
def test_any_split_gives_the_same_bits(name: str) -> None:
    whole, settings, diagnostics = whole_fit(name), SETTINGS[name], whole_diagnostics(name)
    assert not np.array_equal(whole.theta_, np.zeros(whole.n_features))
    for seed in range(2):
        parts = fed(split(N, seed), **settings)
        assert parts.theta_.tobytes() == whole.theta_.tobytes()
        assert parts.n_waiting_ == whole.n_waiting_
        assert parts.diagnostics_.as_dict() == diagnostics


def test_nothing_is_learned_before_the_pilot_rows_have_come() -> None:
    evaluator = fed([(0, 4999)], theta_0=[1.0, 2.0, 3.0, 4.0])
    assert evaluator.n_waiting_ == 4999
    assert evaluator.algorithm_ is None
    diagnostics = evaluator.diagnostics_
    assert (diagnostics.status, diagnostics.limit) == ("waiting", "rows")
    assert "4,999 rows wait" in diagnostics.text
    with pytest.raises(NotFittedError):
        evaluator.predict(chain().phi, return_interval=0.9)
    assert np.array_equal(evaluator.theta_, [1.0, 2.0, 3.0, 4.0])
    evaluator.partial_fit(chunk(4999, 5000))
    assert evaluator.algorithm_ is not None
    assert evaluator.diagnostics_.status == "learning"
    assert (
        vrtd.Evaluator("vrtd", features=None, discount=0.9).fit(chunk(0, 100)).algorithm_ is not None
    )  # no more rows will come


def test_several_passes_and_a_second_fit() -> None:
    log = from_arrays(*(chunk(0, 6000)[k] for k in (0, 1, 2)))
    settings: dict[str, Any] = {"step_size": 0.02, "batch_size": 100}
    twice = make_evaluator(**settings).fit(log, n_passes=2)
    by_hand = make_evaluator(**settings).partial_fit(log).partial_fit(log)
    assert twice.theta_.tobytes() == by_hand.theta_.tobytes()
    assert twice.n_rows_ == 12_000
    again = twice.fit(log)  # forgets
    assert again.n_rows_ == 6000


def test_float32_rows_are_kept_and_types_do_not_mix() -> None:
    evaluator = vrtd.Evaluator(vrtd.VRTD(0.05, 500), features=None, discount=DISCOUNT).fit(chunk(0, N, dtype="f4"))
    near = fitted(algorithm=vrtd.VRTD(0.05, 500))
    np.testing.assert_allclose(evaluator.theta_, near.theta_, rtol=1e-4)
    before = evaluator.theta_
    with pytest.raises(DataError, match="the same type in all parts of a log, but are float32"):
        evaluator.partial_fit(chunk(0, 100))
    assert np.array_equal(evaluator.theta_, before)


def test_weights_count_like_repeated_rows() -> None:
    """A row of weight 2 is a row that comes twice, for the closed form; ratios of 1 change nothing."""
    rows = chunk(0, 3000)
    doubled = Chunk(*(np.repeat(values, 2, axis=0) for values in rows[:5]))
    heavy = vrtd.Evaluator("closed_form", features=None, discount=DISCOUNT).fit(
        rows._replace(weight=np.full(3000, 2.0))
    )
    twice = vrtd.Evaluator("closed_form", features=None, discount=DISCOUNT).fit(doubled)
    np.testing.assert_allclose(heavy.theta_, twice.theta_, rtol=1e-10)
    plain = vrtd.Evaluator(vrtd.TD(0.05), features=None, discount=DISCOUNT).fit(rows)
    ones = vrtd.Evaluator(vrtd.TD(0.05), features=None, discount=DISCOUNT).fit(rows._replace(weight=np.ones(3000)))
    np.testing.assert_allclose(ones.theta_, plain.theta_, rtol=1e-12)


def test_terminated_rows_do_not_bootstrap_and_need_no_successor() -> None:
    rows = chunk(0, 8000)
    ends = np.arange(8000) % 7 == 0
    nothing = rows.next_observations.copy()
    nothing[ends] = np.nan
    ended = rows._replace(terminated=ends)
    for algorithm in (vrtd.TD(0.05), vrtd.VRTD(0.05, 100), "closed_form", "vrtd"):
        by_flag = vrtd.Evaluator(algorithm, features=None, discount=DISCOUNT).fit(
            ended._replace(next_observations=nothing)
        )
        zeros = vrtd.Evaluator(algorithm, features=None, discount=DISCOUNT).fit(
            ended._replace(next_observations=np.where(ends[:, None], 0.0, rows.next_observations))
        )
        assert by_flag.theta_.tobytes() == zeros.theta_.tobytes()
    through = vrtd.Evaluator("closed_form", features=None, discount=DISCOUNT).fit(rows)
    assert np.abs(through.theta_ - by_flag.theta_).max() > 0.1


def test_progress_counts_rows() -> None:
    told: list[Any] = []
    log = from_arrays(*(chunk(0, N)[k] for k in (0, 1, 2)))
    vrtd.Evaluator(vrtd.TD(0.05), features=None, discount=DISCOUNT).fit(
        log, progress=lambda *counts: told.append(counts)
    )
    assert told[-1] == (N, N)


def test_successors_of_rows_that_terminate_need_not_be_observations() -> None:
    rng = np.random.default_rng(0)
    states, ends = rng.integers(0, 3, 501), np.arange(500) % 5 == 0
    after, reward = states[1:].copy(), rng.normal(size=500)
    after[ends] = -1
    for features in (Tabular(3), Tabular()):
        found = [
            vrtd.Evaluator("closed_form", features=features, discount=0.9, pilot_rows=100).fit(
                from_arrays(states[:-1], reward, successors, ends)
            )
            for successors in (after, states[1:])
        ]
        assert found[0].theta_.tobytes() == found[1].theta_.tobytes()


def test_splits_do_not_change_whether_discount_one_is_refused() -> None:
    """The end comes after the pilot rows, in the same piece or in a later one."""
    rows = chunk(0, 1000)._replace(terminated=np.arange(1000) == 700)
    verdicts = []
    for cuts in ((0, 1000), (0, 500, 1000)):
        evaluator = vrtd.Evaluator(TD, features=None, discount=1.0, pilot_rows=400)
        try:
            for first, last in itertools.pairwise(cuts):
                evaluator.partial_fit(Chunk(*(values[first:last] for values in rows[:5])))  # type: ignore[arg-type]
            verdicts.append("taken")
        except InvalidInputError:
            verdicts.append("refused")
    assert verdicts[0] == verdicts[1]


def test_a_large_chunk_is_taken_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "_VIEW_BYTES", 1)
    told: list[Any] = []
    rows = chunk(0, 3000)
    log = from_arrays(*rows[:3])
    vrtd.Evaluator(TD, features=None, discount=DISCOUNT).fit(log, progress=lambda *counts: told.append(counts))
    assert told == [(1024, 3000), (2048, 3000), (3000, 3000)]
    reward = rows.reward.copy()
    reward[2100] = np.nan
    with pytest.raises(DataError, match="array reward, row 2100"):
        make_evaluator(algorithm=TD).fit(from_arrays(rows.observations, reward, rows.next_observations))


def test_td_with_a_step_waits_for_nothing() -> None:
    assert (
        vrtd.Evaluator("td", features=None, discount=DISCOUNT, step_size=0.01).partial_fit(chunk(0, 100)).n_waiting_
        == 0
    )


@pytest.mark.parametrize("algorithm", [vrtd.TD(vrtd.Harmonic(10.0, 200.0)), vrtd.TD(0.1, average=True)], ids=repr)
def test_epochs_are_counted_over_calls(algorithm: Any) -> None:
    """A step that falls, and a mean over the run, depend on how many updates there were before."""
    columns, weight = chunk(0, 300), np.linspace(0.5, 1.5, 300)
    rows = Transitions(columns.observations, columns.reward, columns.next_observations, DISCOUNT, weight)
    fresh = first_learner(algorithm, None, np.linspace(-1.0, 1.0, 4), 3)
    whole, parts = learn(fresh, rows), fresh
    for first in range(0, 300, 60):
        parts = learn(parts, rows.part(first, first + 60))
    assert parts.theta.tobytes() == whole.theta.tobytes()


def test_splits_do_not_change_what_a_transformer_is_fitted_to() -> None:
    scaler = pytest.importorskip("sklearn.preprocessing").StandardScaler
    found = []
    for cuts in ((0, 500), (0, 77, 123, 500)):
        evaluator = vrtd.Evaluator(vrtd.TD(1e-6), features=scaler(), discount=DISCOUNT, pilot_rows=200)
        for first, last in itertools.pairwise(cuts):
            evaluator.partial_fit(chunk(first, last))
        found.append(evaluator.theta_.tobytes())
    assert found[0] == found[1]


def test_the_successor_of_a_termination_is_not_looked_at() -> None:
    """Not its number by features of states, not its size by diagnostics."""
    states = np.random.default_rng(0).integers(0, 4, N_ROWS + 1)
    ends = np.arange(N_ROWS) % 5 == 0
    successors = np.where(ends, -1, states[1:])
    for features in (Tabular(4), np.eye(4)):
        for algorithm in ("vrtd", "closed_form"):
            log = from_arrays(states[:-1], np.ones(N_ROWS), successors, ends)
            evaluator = vrtd.Evaluator(algorithm, features=features, discount=0.9).fit(log)
            assert evaluator.diagnostics_.rank == 4
    rows = chunk(0, N_ROWS)
    for nothing in (np.nan, 1e308):
        odd = np.where(ends[:, None], nothing, rows.next_observations)
        evaluator = vrtd.Evaluator("closed_form", features=None, discount=0.9).fit(
            rows._replace(next_observations=odd, terminated=ends)
        )
        assert evaluator.diagnostics_.explained is not None


def test_a_log_shorter_than_the_pilot_is_learned_from() -> None:
    rows = chunk(0, 2000)
    evaluator = vrtd.Evaluator("vrtd", features=None, discount=DISCOUNT).fit(rows)
    assert evaluator.algorithm_ is not None
    assert evaluator.n_waiting_ < 2000
    closed = vrtd.Evaluator("closed_form", features=None, discount=DISCOUNT).fit(rows).predict(rows.observations)
    np.testing.assert_allclose(evaluator.predict(rows.observations), closed, atol=0.5)  # values are 2 to 7
    evaluator.partial_fit(chunk(2000, 6000))
    assert evaluator.n_rows_ == 6000


def test_a_start_outside_of_the_span_counts() -> None:
    """State 2 is only ever a successor: its start is what the others are bootstrapped from."""
    states = np.arange(12_000) % 2
    truncated, reward = states == 1, 0.1 * np.random.default_rng(0).normal(size=12_000)
    rows = Chunk(np.eye(3)[states], reward, np.eye(3)[states + 1], np.zeros(12_000, bool), truncated)
    start = np.array([0.0, 0.0, 10.0])
    run, closed = (make_evaluator(algorithm=a, discount=0.9, theta_0=start).fit(rows) for a in ("vrtd", "closed_form"))
    sample = sample_of(run._state)
    found = sample.basis @ sample.reduce_rank(start).theta_star + sample.outside(start)
    np.testing.assert_allclose(found, closed.theta_, atol=1e-8)
    np.testing.assert_allclose(run.theta_, [8.1, 9.0, 10.0], atol=0.5)


def test_before_the_pilot_rows_values_are_those_of_theta_0() -> None:
    start = np.arange(4.0)
    evaluator = vrtd.Evaluator("vrtd", features=None, discount=DISCOUNT, theta_0=start).partial_fit(chunk(0, 2000))
    observations = chunk(0, 3).observations
    np.testing.assert_array_equal(evaluator.predict(observations), observations @ start)
    scaled = vrtd.Evaluator("vrtd", features="rbf:4", discount=DISCOUNT).partial_fit(chunk(0, 2000))
    with pytest.raises(NotFittedError, match="received 2,000 of 5,000 pilot rows"):
        scaled.predict(observations)


@pytest.mark.parametrize(
    ("features", "sums"), [(Identity(512), True), (Identity(513), False), (Tabular(900), True), (Tabular(901), False)]
)
def test_auto_sums_up_the_closed_form_of_few_features(features: Any, sums: bool) -> None:
    """A row of a table has one number that is not 0, so more states than other features are cheap."""
    first = np.eye(features.n_features)[:2] if isinstance(features, Identity) else np.arange(2)
    log = from_arrays(first, np.ones(2), first[::-1].copy())
    for closed_form, expected in (("auto", sums), (True, True), (False, False)):
        evaluator = vrtd.Evaluator(TD, features=features, discount=0.5, closed_form=closed_form).partial_fit(log)
        assert (evaluator._state.sums is not None) is expected
