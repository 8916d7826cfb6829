"""An update is taken as a whole or not at all, and pilot rows are looked at once."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers.fits import make_evaluator
from tests.helpers.some_logs import DISCOUNT, chunk
from vrtd.errors import (
    ConvergenceWarning,
    DataError,
    DivergenceError,
    InvalidInputError,
    NotFittedError,
    StabilityWarning,
)
from vrtd.estimator import fit, least_squares
from vrtd.estimator import state as fit_state
from vrtd.estimator.learner import learn
from vrtd.logs import Chunk, from_arrays

N = 3000
TD = vrtd.TD(0.01)
SETTINGS: dict[str, dict[str, Any]] = {
    "auto": {"pilot_rows": 700, "closed_form": True},
    "td": {"algorithm": vrtd.TD(0.05), "closed_form": True},
    "vrtd": {"algorithm": vrtd.VRTD(0.05, 130), "closed_form": True},
    "traces": {"algorithm": vrtd.TDLambda(0.05, 0.7), "closed_form": True},
}
STOPS = [0, 500, 1100]  # nothing was received; rows wait for the pilot, or for their batch; settings are decided


def squares(observations: Any) -> Any:
    return np.column_stack([observations, np.asarray(observations) ** 2])


class Broken:
    """The function as it is, until it is told to be interrupted after so many calls."""

    def __init__(self, function: Any) -> None:
        self._function, self._left = function, None

    def interrupt(self, after: int) -> None:
        self._left: int | None = after

    def repair(self) -> None:
        self._left = None

    def __call__(self, *arguments: Any) -> Any:
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                raise KeyboardInterrupt
        return self._function(*arguments)


def kept(state: Any) -> dict[str, Any]:
    """Every array of a state, copied; buffers as far as they belong to it."""
    arrays: dict[str, Any] = {}

    def walk(value: Any, way: str) -> None:
        if isinstance(value, np.ndarray):
            arrays[way] = value.copy()
        elif isinstance(value, vrtd.Transitions):
            for name in ("phi", "reward", "phi_next", "discount", "weight", "ends"):
                arrays[f"{way}/{name}"] = np.array(getattr(value, name))
        elif isinstance(value, tuple):
            for i, item in enumerate(value):
                walk(item, f"{way}/{i}")

    walk(state.trim(), "")
    return arrays


def assert_same_arrays(found: dict[str, Any], right: dict[str, Any]) -> None:
    assert found.keys() == right.keys()
    assert all(np.array_equal(found[name], right[name]) for name in right)


@cache
def uninterrupted(name: str) -> vrtd.Evaluator:
    return make_evaluator(features=squares, **SETTINGS[name]).partial_fit(chunk(0, N))


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("where", ["learn", "add", "keep_until", "features", "a bad row"])
def test_an_update_that_raises_leaves_the_state_as_it_was(
    name: str, stop: int, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    features, settings, expected = Broken(squares), SETTINGS[name], uninterrupted(name)
    function = Broken(getattr(fit, where, None))
    if where in ("learn", "add", "keep_until"):
        monkeypatch.setattr(fit, where, function)
    evaluator = make_evaluator(features=features, **settings)
    if stop:
        evaluator.partial_fit(chunk(0, stop))
    state, before = evaluator._state, kept(evaluator._state)
    rows = chunk(stop, N)
    if where == "a bad row":
        reward = rows.reward.copy()
        reward[-1] = np.nan
        with pytest.raises(DataError, match=f"row {N - 1} of the log"):
            evaluator.partial_fit(rows._replace(reward=reward))
    else:
        broken = features if where == "features" else function
        broken.interrupt(after=0)
        with pytest.raises(KeyboardInterrupt):
            evaluator.partial_fit(rows)
        broken.repair()
    if "pilot_rows" in settings and stop < settings["pilot_rows"] and where == "a bad row":
        assert evaluator.n_rows_ in (stop, settings["pilot_rows"])  # the pilot is a piece of its own
    else:
        assert evaluator._state is state
        assert_same_arrays(kept(state), before)
    evaluator.partial_fit(chunk(evaluator.n_rows_, N))
    assert evaluator.theta_.tobytes() == expected.theta_.tobytes()
    assert_same_arrays(kept(evaluator._state), kept(expected._state))  # intervals and diagnostics follow from these
    found, right = (each._state for each in (evaluator, expected))
    assert (found.n_rows, found.n_distinct, found.remarks) == (right.n_rows, right.n_distinct, right.remarks)


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_a_state_is_not_changed_by_what_follows(settings: Any) -> None:
    """Buffers grow behind the rows of a state; an older state can be gone on from in two ways."""
    evaluator = make_evaluator(**settings).partial_fit(chunk(0, 1100))
    state, before = evaluator._state, kept(evaluator._state)
    evaluator.partial_fit(chunk(1100, N))
    theta = evaluator.theta_
    after = kept(state)
    assert all(np.array_equal(before[name], after[name]) for name in before)
    evaluator._state = state
    evaluator.partial_fit(chunk(2000, N))
    assert evaluator.theta_.tobytes() != theta.tobytes()
    evaluator._state = state
    assert evaluator.partial_fit(chunk(1100, N)).theta_.tobytes() == theta.tobytes()


def test_an_interrupted_pilot_is_decided_again() -> None:
    """Ctrl-C at any call of the features, from the first rows that wait to the first that are learned."""
    whole = vrtd.Evaluator("vrtd", discount=DISCOUNT, features=squares, pilot_rows=700).partial_fit(chunk(0, 1500))
    for after in (1, 2, 3, 4, 5):
        features = Broken(squares)
        evaluator = vrtd.Evaluator("vrtd", discount=DISCOUNT, features=features, pilot_rows=700).partial_fit(
            chunk(0, 600)
        )
        state = evaluator._state
        features.interrupt(after)
        with pytest.raises(KeyboardInterrupt):
            evaluator.partial_fit(chunk(600, 700))
        features.repair()
        assert evaluator._state is state
        evaluator.partial_fit(chunk(600, 1500))
        assert evaluator.theta_.tobytes() == whole.theta_.tobytes()


def numbered(first: int, last: int) -> Chunk:
    """Rows whose observations begin with the number of the row, successors with its negative."""
    rows, index = chunk(first, last), np.arange(first + 1.0, last + 1.0)[:, None]
    return rows._replace(
        observations=np.hstack([index, rows.observations]),
        next_observations=np.hstack([-index, rows.next_observations]),
    )


@pytest.mark.parametrize("splits", [[(0, N)], [(0, 300), (300, 2000), (2000, N)]], ids=["whole", "parts"])
@pytest.mark.parametrize("settings", [{"pilot_rows": 1000}, {"algorithm": vrtd.TD(0.05)}], ids=["auto", "given"])
def test_features_of_a_row_are_computed_once(splits: Any, settings: Any) -> None:
    """But for the first eight observations, on which `bind` tries a function."""
    seen: list[Any] = []

    def counted(observations: Any) -> Any:
        seen.append(np.unique(observations[:, 0]))  # the last row of a short block is repeated to fill it up
        return observations[:, 1:]

    evaluator = make_evaluator(features=counted, **settings)
    for first, last in splits:
        evaluator.partial_fit(numbered(first, last))
    rows, counts = np.unique(np.concatenate(seen), return_counts=True)
    assert len(rows) == 2 * N
    assert rows[counts > 1].tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
    whole = make_evaluator(**settings).partial_fit(chunk(0, N))
    assert evaluator.theta_.tobytes() == whole.theta_.tobytes()


def test_a_pilot_that_is_larger_than_the_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sample has room for 400 of 1000 pilot rows: all of them are learned, however they are split."""
    monkeypatch.setattr(fit_state, "_MOST_ROWS", 400)
    whole, parts = (vrtd.Evaluator("vrtd", discount=DISCOUNT, features=squares, pilot_rows=1000) for _ in range(2))
    whole.partial_fit(chunk(0, N))
    for first, last in ((0, 250), (250, 700), (700, N)):
        parts.partial_fit(chunk(first, last))
    assert whole._state.n_sampled == 400
    assert (whole.n_rows_, whole._state.learner.n_rows + whole.n_waiting_) == (N, N)  # type: ignore[union-attr]
    assert parts.theta_.tobytes() == whole.theta_.tobytes()


@pytest.mark.parametrize(("first", "then"), [(np.float32, np.float64), (np.float64, np.float32)])
def test_pilot_rows_of_two_types_are_refused_and_not_kept(first: Any, then: Any) -> None:
    def of(dtype: Any, a: int, b: int) -> Chunk:
        rows = chunk(a, b)
        return rows._replace(
            observations=rows.observations.astype(dtype), next_observations=rows.next_observations.astype(dtype)
        )

    evaluator = vrtd.Evaluator("td", features=None, discount=DISCOUNT, pilot_rows=300).partial_fit(of(first, 0, 100))
    for last in (200, 300, 600):
        with pytest.raises(DataError, match=f"the same type.*but are {np.dtype(first)} and then {np.dtype(then)}"):
            evaluator.partial_fit(of(then, 100, last))
        assert evaluator.n_rows_ == 100
    whole = vrtd.Evaluator("td", features=None, discount=DISCOUNT, pilot_rows=300).partial_fit(of(first, 0, N))
    assert evaluator.partial_fit(of(first, 100, N)).theta_.tobytes() == whole.theta_.tobytes()


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_chunks_without_rows_change_nothing(settings: dict[str, Any]) -> None:
    empty = chunk(0, 0)
    evaluator = make_evaluator(**settings).partial_fit(empty)
    before = evaluator._state
    assert before.n_rows == 0
    assert evaluator.partial_fit(empty._replace(weight=np.empty(0)))._state is before
    with pytest.raises(DataError, match="The log has no transition"):
        make_evaluator(**settings).fit(empty)


def test_intervals_before_the_first_row() -> None:
    for ask in (
        lambda e: e.theta_interval(),
        lambda e: e.mean_value(),
        lambda e: e.predict([[0.0]], return_interval=0.9),
    ):
        with pytest.raises(NotFittedError):
            ask(vrtd.Evaluator("vrtd", features=None, discount=DISCOUNT))


def test_a_mean_value_warns_once() -> None:
    evaluator = vrtd.Evaluator(vrtd.VRTD(1e-3, 50), features=None, discount=DISCOUNT).partial_fit(chunk(0, 300))
    with pytest.warns(ConvergenceWarning, match="Not converged") as caught:
        evaluator.mean_value()
    assert len(caught) == 1


def test_observations_of_another_type_or_shape_are_refused() -> None:
    """Kept observations must not be cast to the type of the first ones."""
    rows = chunk(0, 20)
    states = np.arange(20) % 3
    whole = Chunk(states, rows.reward, states, rows.terminated, rows.truncated)
    for settings in ({"algorithm": vrtd.TD(0.1)}, {"pilot_rows": 30}):
        evaluator = make_evaluator(**settings, features="tabular:3", discount=0.5).partial_fit(whole)
        other = states.astype(np.float64)
        with pytest.raises(
            DataError, match="must have the same type in all parts of a log, but are int64 and then float64"
        ):
            evaluator.partial_fit(whole._replace(observations=other, next_observations=other))
        other = states[:, None]
        with pytest.raises(
            DataError, match=r"observations must have the same shape in all rows, but have \(\) and then \(1,\)"
        ):
            evaluator.partial_fit(whole._replace(observations=other, next_observations=other))
        assert evaluator.n_rows_ == 20


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_copies_learn_apart(settings: dict[str, Any]) -> None:
    first = make_evaluator(**settings).partial_fit(chunk(0, 950))
    second = copy.copy(first)
    second.partial_fit(chunk(2000, N))
    first.partial_fit(chunk(950, N))
    second.partial_fit(chunk(0, 500))
    for evaluator, parts in ((first, [(0, N)]), (second, [(0, 950), (2000, N), (0, 500)])):
        expected = make_evaluator(**settings)
        for a, b in parts:
            expected.partial_fit(chunk(a, b))
        assert evaluator.theta_.tobytes() == expected.theta_.tobytes()
        found, right = (fit_state.sample_of(e._state) for e in (evaluator, expected))
        np.testing.assert_array_equal(found.phi, right.phi)


def test_a_given_step_that_diverges_with_a_batch_size_from_auto() -> None:
    rows = chunk(0, N)
    with pytest.warns(StabilityWarning), pytest.raises(DivergenceError, match=r"overflowed .* with the step size 30"):
        vrtd.Evaluator("vrtd", features=None, discount=DISCOUNT, step_size=30.0, pilot_rows=700).fit(rows)


def test_warnings_point_at_the_line_that_asked() -> None:
    evaluator = vrtd.Evaluator(vrtd.VRTD(1e-3, 50), features=None, discount=DISCOUNT).partial_fit(chunk(0, 300))
    states = chunk(0, 2).observations
    for ask in (
        lambda: evaluator.mean_value(),
        lambda: evaluator.spread(),
        lambda: evaluator.predict(states, return_interval=0.9),
    ):
        with pytest.warns(ConvergenceWarning) as caught:
            ask()
        assert caught[0].filename == __file__


def test_an_interrupted_decision_leaves_no_remark(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluator, times = vrtd.Evaluator("vrtd", features=None, discount=DISCOUNT, pilot_rows=400), iter([True, False])

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
    evaluator = vrtd.Evaluator("closed_form", features=None, discount=DISCOUNT).partial_fit(chunk(0, 1024))
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
    whole = vrtd.Evaluator("closed_form", features=None, discount=DISCOUNT).partial_fit(chunk(0, 9000))
    assert evaluator.partial_fit(chunk(1024, 9000)).theta_.tobytes() == whole.theta_.tobytes()


def test_large_observations_are_kept_of_fewer_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit_state, "_MOST_BYTES", 1 << 16)
    pictures = np.zeros((300, 16, 16), np.uint8)
    pictures[:, 0, :4] = np.random.default_rng(0).integers(0, 256, (300, 4))
    log = from_arrays(pictures, np.ones(300))
    evaluator = vrtd.Evaluator(TD, features=lambda rows: rows[:, 0, :4] / 255.0, discount=0.9).fit(log)
    assert evaluator._state.n_sampled == (1 << 16) // (2 * 256)


def test_rows_that_wait_are_copies() -> None:
    """The caller may write into its arrays again."""
    rows = chunk(0, 300)
    given = rows._replace(
        observations=rows.observations.copy(),
        reward=rows.reward.copy(),
        next_observations=rows.next_observations.copy(),
    )
    evaluator = vrtd.Evaluator("vrtd", features=None, discount=DISCOUNT, pilot_rows=400).partial_fit(given)
    given.observations[:] = given.next_observations[:] = 7.0
    given.reward[:] = 7.0
    whole = vrtd.Evaluator("vrtd", features=None, discount=DISCOUNT, pilot_rows=400).partial_fit(chunk(0, 1000))
    assert evaluator.partial_fit(chunk(300, 1000)).theta_.tobytes() == whole.theta_.tobytes()


def test_a_pilot_that_is_refused_leaves_no_trace() -> None:
    evaluator = vrtd.Evaluator("vrtd", features=None, discount=1.0, pilot_rows=400).partial_fit(chunk(0, 300))
    with pytest.raises(InvalidInputError, match="discount must be below 1 if no transition terminates"):
        evaluator.partial_fit(chunk(300, 500))
    assert (evaluator.n_rows_, evaluator.algorithm_) == (300, None)
    rest = chunk(300, 1000)._replace(terminated=np.arange(700) % 7 == 0)
    fresh = (
        vrtd.Evaluator("vrtd", features=None, discount=1.0, pilot_rows=400).partial_fit(chunk(0, 300)).partial_fit(rest)
    )
    assert evaluator.partial_fit(rest).theta_.tobytes() == fresh.theta_.tobytes()
    assert evaluator.diagnostics_.as_dict() == fresh.diagnostics_.as_dict()


@pytest.mark.parametrize("row", [1600, 2500])
def test_a_phase_does_not_end_before_a_bad_row(row: int) -> None:
    """Settings are made for 1600 rows; the bad row is the last one, and the first or a later one that needs others."""
    rest = chunk(1000, row + 1)
    reward = rest.reward.copy()
    reward[-1] = np.nan
    found, fresh = (
        vrtd.Evaluator("td", features=None, discount=DISCOUNT, pilot_rows=400).partial_fit(chunk(0, 1000)) for _ in "ab"
    )
    with pytest.raises(DataError, match=f"row {row}"):
        found.partial_fit(rest._replace(reward=reward))
    for each in (found, fresh):
        each.partial_fit(rest)
    assert found.theta_.tobytes() == fresh.theta_.tobytes()
    assert found.diagnostics_.remarks == fresh.diagnostics_.remarks
    assert len([remark for remark in fresh.diagnostics_.remarks if remark.startswith("from row")]) == 2


def test_diagnostics_and_intervals_in_between_change_nothing() -> None:
    """What is kept of an answer is kept for as long as no row comes."""
    asked, silent = (vrtd.Evaluator(vrtd.VRTD(0.05, 100), features=None, discount=DISCOUNT) for _ in range(2))
    for first, last in ((0, 400), (400, 2000)):
        asked.partial_fit(chunk(first, last))
        silent.partial_fit(chunk(first, last))
        before = asked.spread("closed_form"), asked.diagnostics_
    assert before[1].as_dict() == silent.diagnostics_.as_dict()
    np.testing.assert_array_equal(before[0].influence, silent.spread("closed_form").influence)
