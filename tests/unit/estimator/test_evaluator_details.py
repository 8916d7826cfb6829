"""Details of the estimator that no other test would miss."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import vrtd
from tests.contract.test_stream import learner, some_rows
from tests.helpers.finite_environments import GOOD, Table
from tests.helpers.some_logs import DISCOUNT, chunk
from vrtd.errors import ConvergenceWarning, DataError, InvalidInputError, StabilityWarning
from vrtd.estimator import auto_settings, fit, least_squares
from vrtd.estimator import sample as samples
from vrtd.estimator.learner import learn
from vrtd.estimator.least_squares import add, no_sums, solve
from vrtd.features import Tabular
from vrtd.logs import Chunk, Log, from_arrays
from vrtd.problems import Transitions, environments
from vrtd.theory.settings import settings_for

TD = vrtd.TD(0.01)


def weighted(first: int, last: int) -> Chunk:
    return chunk(first, last)._replace(weight=np.full(last - first, 2.0))


# What is refused


@pytest.mark.parametrize("algorithm", [TD, "closed_form", "vrtd"], ids=["td", "closed_form", "auto"])
@pytest.mark.parametrize(("one", "other"), [(weighted, chunk), (chunk, weighted)])
def test_all_rows_have_weights_or_none(algorithm: Any, one: Any, other: Any) -> None:
    """A loop that was compiled for weights would read beyond an array without any."""
    evaluator = vrtd.Evaluator(algorithm, discount=DISCOUNT, pilot_rows=400).partial_fit(one(0, 300))
    with pytest.raises(DataError, match="must have weights, or none"):
        evaluator.partial_fit(other(300, 500))
    evaluator.partial_fit(one(300, 500))
    assert evaluator.n_rows_ == 500


@pytest.mark.parametrize("bad", [np.nan, np.inf, -0.5])
@pytest.mark.parametrize("algorithm", [TD, "closed_form", "vrtd"], ids=["td", "closed_form", "auto"])
def test_a_weight_that_is_no_ratio_is_named(algorithm: Any, bad: float) -> None:
    rows, weight = chunk(0, 500), np.ones(500)
    weight[10] = bad
    log = from_arrays(rows.observations, rows.reward, rows.next_observations, weight=weight)
    with pytest.raises(DataError, match="array weight, row 10"):
        vrtd.Evaluator(algorithm, discount=DISCOUNT, pilot_rows=400).fit(log)


@pytest.mark.parametrize("algorithm", [TD, "closed_form"], ids=["td", "closed_form"])
def test_discount_one_is_refused_on_a_log_that_is_shorter_than_the_pilot(algorithm: Any) -> None:
    with pytest.raises(InvalidInputError, match="discount 1 needs episodes that end"):
        vrtd.Evaluator(algorithm, discount=1.0).fit(chunk(0, 300))
    ends = np.arange(300) == 299
    vrtd.Evaluator(algorithm, discount=1.0).fit(chunk(0, 300)._replace(terminated=ends))


FIELDS: list[tuple[str, Any]] = [
    ("reward", np.ones(300, np.float32)),
    ("reward", np.ones((300, 1))),
    ("terminated", [False] * 300),
    ("truncated", np.zeros(300, np.int8)),
    ("weight", np.ones(300, np.int64)),
]


@pytest.mark.parametrize(("field", "value"), FIELDS, ids=[f"{field} {np.shape(value)}" for field, value in FIELDS])
def test_fields_of_a_chunk_are_of_the_types_that_it_says(field: str, value: Any) -> None:
    with pytest.raises(DataError, match=f"{field} of a chunk must be an array of one"):
        vrtd.Evaluator(TD, discount=DISCOUNT).partial_fit(chunk(0, 300)._replace(**{field: value}))


# What nobody looks at, and what leaves no trace


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


def test_a_decision_that_came_to_nothing_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluator, times = vrtd.Evaluator(discount=DISCOUNT, pilot_rows=400), iter([True, False])

    def interrupted(*arguments: Any) -> Any:
        after = learn(*arguments)
        if next(times, False):
            raise KeyboardInterrupt
        return after

    monkeypatch.setattr(fit, "learn", interrupted)
    with pytest.raises(KeyboardInterrupt):
        evaluator.partial_fit(chunk(0, 400))
    evaluator.partial_fit(chunk(0, 400))
    assert [remark[:10] for remark in evaluator.diagnostics_.remarks].count("from row 0") == 1


def test_an_interrupted_sum_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C comes in the middle of a piece: the sums are those of the pieces before it."""
    evaluator = vrtd.Evaluator("closed_form", discount=DISCOUNT).partial_fit(chunk(0, 1024))
    accumulate, times = least_squares._accumulate, iter(range(100))

    def interrupted(*arguments: Any) -> None:
        if next(times) == 20:
            raise KeyboardInterrupt
        accumulate(*arguments)

    monkeypatch.setattr(least_squares, "_accumulate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        evaluator.partial_fit(chunk(1024, 9000))
    monkeypatch.undo()
    sums = evaluator._state.sums
    assert sums is not None
    assert sums.n_rows == evaluator.n_rows_ == 1024
    np.testing.assert_allclose(sums.mean_phi, chunk(0, 1024).observations.mean(axis=0), rtol=1e-12)
    whole = vrtd.Evaluator("closed_form", discount=DISCOUNT).partial_fit(chunk(0, 9000))
    assert evaluator.partial_fit(chunk(1024, 9000)).theta_.tobytes() == whole.theta_.tobytes()


# What is kept


def test_large_observations_are_kept_of_fewer_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "_MOST_BYTES", 1 << 16)
    pictures = np.zeros((300, 16, 16), np.uint8)
    pictures[:, 0, :4] = np.random.default_rng(0).integers(0, 256, (300, 4))
    log = from_arrays(pictures, np.ones(300))
    evaluator = vrtd.Evaluator(TD, features=lambda rows: rows[:, 0, :4] / 255.0, discount=0.9).fit(log)
    assert evaluator._state.n_sampled == (1 << 16) // (2 * 256)


# Survivors of mutation


def test_rows_that_wait_are_copies() -> None:
    """The caller may write into its arrays again."""
    rows = chunk(0, 300)
    given = rows._replace(
        observations=rows.observations.copy(),
        reward=rows.reward.copy(),
        next_observations=rows.next_observations.copy(),
    )
    evaluator = vrtd.Evaluator(discount=DISCOUNT, pilot_rows=400).partial_fit(given)
    given.observations[:] = given.next_observations[:] = 7.0
    given.reward[:] = 7.0
    whole = vrtd.Evaluator(discount=DISCOUNT, pilot_rows=400).partial_fit(chunk(0, 1000))
    assert evaluator.partial_fit(chunk(300, 1000)).theta_.tobytes() == whole.theta_.tobytes()


def test_a_pilot_that_is_refused_leaves_no_trace() -> None:
    evaluator = vrtd.Evaluator(discount=1.0, pilot_rows=400).partial_fit(chunk(0, 300))
    with pytest.raises(InvalidInputError, match="discount 1 needs episodes that end"):
        evaluator.partial_fit(chunk(300, 500))
    assert (evaluator.n_rows_, evaluator.algorithm_) == (300, None)
    rest = chunk(300, 1000)._replace(terminated=np.arange(700) % 7 == 0)
    fresh = vrtd.Evaluator(discount=1.0, pilot_rows=400).partial_fit(chunk(0, 300)).partial_fit(rest)
    assert evaluator.partial_fit(rest).theta_.tobytes() == fresh.theta_.tobytes()
    assert evaluator.diagnostics_.as_dict() == fresh.diagnostics_.as_dict()


@pytest.mark.parametrize("row", [1600, 2500])
def test_a_phase_does_not_end_before_a_bad_row(row: int) -> None:
    """Settings are made for 1600 rows; the bad row is the last one, and the first or a later one that needs others."""
    rest = chunk(1000, row + 1)
    reward = rest.reward.copy()
    reward[-1] = np.nan
    found, fresh = (vrtd.Evaluator("td", discount=DISCOUNT, pilot_rows=400).partial_fit(chunk(0, 1000)) for _ in "ab")
    with pytest.raises(DataError, match=f"row {row}"):
        found.partial_fit(rest._replace(reward=reward))
    for each in (found, fresh):
        each.partial_fit(rest)
    assert found.theta_.tobytes() == fresh.theta_.tobytes()
    assert found.diagnostics_.remarks == fresh.diagnostics_.remarks
    assert len([remark for remark in fresh.diagnostics_.remarks if remark.startswith("from row")]) == 2


def test_no_split_decides_whether_a_log_ends() -> None:
    """The end comes after the pilot rows, in the same piece or in a later one."""
    rows = chunk(0, 1000)._replace(terminated=np.arange(1000) == 700)
    verdicts = []
    for cuts in ((0, 1000), (0, 500, 1000)):
        evaluator = vrtd.Evaluator(TD, discount=1.0, pilot_rows=400)
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
    vrtd.Evaluator(TD, discount=DISCOUNT).fit(log, progress=lambda *counts: told.append(counts))
    assert told == [(1024, 3000), (2048, 3000), (3000, 3000)]
    reward = rows.reward.copy()
    reward[2100] = np.nan
    with pytest.raises(DataError, match="array reward, row 2100"):
        vrtd.Evaluator(TD, discount=DISCOUNT).fit(from_arrays(rows.observations, reward, rows.next_observations))


def test_asking_in_between_changes_nothing() -> None:
    """What is kept of an answer is kept for as long as no row comes."""
    asked, silent = (vrtd.Evaluator(vrtd.VRTD(0.05, 100), discount=DISCOUNT) for _ in range(2))
    for first, last in ((0, 400), (400, 2000)):
        asked.partial_fit(chunk(first, last))
        silent.partial_fit(chunk(first, last))
        before = asked.spread("closed_form"), asked.diagnostics_
    assert before[1].as_dict() == silent.diagnostics_.as_dict()
    np.testing.assert_array_equal(before[0].covariance, silent.spread("closed_form").covariance)


def test_weights_make_a_step_larger() -> None:
    """One constant feature: an update multiplies the error by 1 - 0.1 step weight, here by -1.5, whatever is drawn."""
    ones, no = np.ones((400, 1)), np.zeros(400, bool)
    rows = Chunk(ones, np.random.default_rng(0).normal(size=400), ones, no, no)
    evaluator = vrtd.Evaluator(vrtd.TD(0.025), discount=0.9, pilot_rows=100)
    with pytest.warns(StabilityWarning, match="step_size must be below 0.02, as the first 100 rows show"):
        evaluator.partial_fit(rows._replace(weight=np.full(400, 1000.0)))
    with pytest.warns(ConvergenceWarning, match="away from the closed form"):
        evaluator.predict(ones)
    vrtd.Evaluator(vrtd.TD(0.025), discount=0.9, pilot_rows=100).partial_fit(rows).predict(ones)  # no warning


def test_the_start_of_features_that_are_only_arrived_at_counts() -> None:
    """Feature 1 is never left: it keeps its start, and what is bootstrapped from it is that."""
    phi, phi_next = np.tile([1.0, 0.0], (40, 1)), np.tile([0.0, 1.0], (40, 1))
    sums = add(no_sums(2), Transitions(phi, np.ones(40), phi_next, 0.5))
    np.testing.assert_allclose(solve(sums, np.array([0.0, 8.0])).theta, [1.0 + 0.5 * 8.0, 8.0], rtol=1e-14)


def test_td_with_a_step_waits_for_nothing() -> None:
    assert vrtd.Evaluator("td", discount=DISCOUNT, step_size=0.01).partial_fit(chunk(0, 100)).n_waiting_ == 0


def test_the_first_bad_row_is_named_whatever_its_field() -> None:
    rows = chunk(0, 300)
    observations, reward = rows.observations.copy(), rows.reward.copy()
    observations[50], reward[20] = np.nan, np.nan
    with pytest.raises(DataError, match="reward: row 20 of the log"):
        vrtd.Evaluator(TD, discount=DISCOUNT).fit(rows._replace(observations=observations, reward=reward))


@pytest.mark.parametrize(("distance", "rank"), [(1e-3, 4), (1e-7, 3)])
def test_rank_is_that_of_the_features_and_not_of_their_squares(distance: float, rank: int) -> None:
    """The last column is nearly the first."""
    rows = chunk(0, 500)
    mix = np.eye(4)
    mix[0, 3], mix[3, 3] = 1.0, distance
    near = rows._replace(observations=rows.observations @ mix, next_observations=rows.next_observations @ mix)
    assert vrtd.Evaluator(TD, discount=DISCOUNT).fit(near).diagnostics_.rank == rank


class Segmented(Log):
    """Rows of several environments."""

    def chunks(self) -> Iterator[Chunk]:
        yield chunk(0, 600)

    @property
    def n_rows(self) -> int:
        return 600

    @property
    def segment(self) -> int:
        return 64


@pytest.mark.parametrize(("size", "cuts"), [(32, False), (64, False), (128, False), (96, True), (100, True)])
def test_batches_that_fit_into_a_segment_cut_none(size: int, cuts: bool) -> None:
    evaluator = vrtd.Evaluator(vrtd.VRTD(0.01, size), discount=DISCOUNT).fit(Segmented())
    assert any("cut segments of 64" in remark for remark in evaluator.diagnostics_.remarks) == cuts


def test_an_environment_that_was_made_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    env, closed = pytest.importorskip("gymnasium").make("FrozenLake-v1"), []
    monkeypatch.setattr(env, "close", lambda: closed.append(True))
    monkeypatch.setattr(environments, "make", lambda _name: env)
    environments.restart_chain("FrozenLake-v1", "random", 0.9)
    assert closed == [True]


def test_settings_are_made_for_four_times_the_rows_so_far() -> None:
    evaluator = vrtd.Evaluator("td", discount=DISCOUNT, pilot_rows=400).fit(chunk(0, 6500))
    told = [remark.split(":")[0] for remark in evaluator.diagnostics_.remarks if remark.startswith("from row")]
    assert told == ["from row 0", "from row 1,600", "from row 6,400"]
    again = evaluator.fit(chunk(0, 6500)).diagnostics_.remarks  # forgets
    assert len([remark for remark in again if remark.startswith("from row")]) == 3


@pytest.mark.parametrize(("n_samples", "largest"), [(None, 200), (10**9, (1 << 26) // (16 * 4))])
def test_batches_are_bounded(n_samples: int | None, largest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By an eighth of the rows that are planned for where these are a guess, by memory where they are not."""
    spy = Mock(side_effect=settings_for)
    monkeypatch.setattr(auto_settings, "settings_for", spy)
    start = np.arange(4.0)
    vrtd.Evaluator(discount=DISCOUNT, pilot_rows=400, n_samples=n_samples, theta_0=start).partial_fit(chunk(0, 400))
    assert np.array_equal(spy.call_args.args[2], start)
    assert [call.kwargs["largest_batch"] for call in spy.call_args_list] == [largest]


def test_a_feature_that_only_waiting_rows_have_is_seen() -> None:
    phi = np.vstack([np.tile([1.0, 0.0], (16, 1)), [[0.0, 1.0]]])
    sums = add(no_sums(2), Transitions(phi, np.arange(17.0), np.zeros((17, 2)), 0.0))
    assert solve(sums, np.zeros(2)).theta.tolist() == [7.5, 16.0]


def test_what_cannot_happen_leads_nowhere_and_starts_are_shares() -> None:
    table = {0: {0: [(1.0, 0, 1.0, True), (0.0, 1, 5.0, False)]}, 1: GOOD[1]}
    assert environments.restart_chain(Table(table), [0, 0], 0.5).states.tolist() == [0]
    both = environments.restart_chain(Table(GOOD, (0.5, 0.5 + 5e-9)), [0, 0], 0.5)
    assert abs(both.start.sum() - 1.0) < 1e-15


@pytest.mark.parametrize("algorithm", [vrtd.TD(vrtd.Harmonic(10.0, 200.0)), vrtd.TD(0.1, average=True)], ids=repr)
def test_epochs_are_counted_over_calls(algorithm: Any) -> None:
    """A step that falls, and a mean over the run, depend on how many updates there were before."""
    rows = some_rows(300, 12, weighted=True)
    whole, parts = learn(learner(algorithm, 12), rows), learner(algorithm, 12)
    for first in range(0, 300, 60):
        parts = learn(parts, rows.part(first, first + 60))
    assert parts.theta.tobytes() == whole.theta.tobytes()


def test_no_split_decides_what_a_transformer_is_fitted_to() -> None:
    scaler = pytest.importorskip("sklearn.preprocessing").StandardScaler
    found = []
    for cuts in ((0, 500), (0, 77, 123, 500)):
        evaluator = vrtd.Evaluator(vrtd.TD(1e-6), features=scaler(), discount=DISCOUNT, pilot_rows=200)
        for first, last in itertools.pairwise(cuts):
            evaluator.partial_fit(chunk(first, last))
        found.append(evaluator.theta_.tobytes())
    assert found[0] == found[1]
