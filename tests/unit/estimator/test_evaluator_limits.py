"""Short logs, badly scaled or dependent columns, and starts outside of the data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers.some_logs import DISCOUNT, chunk, scaled
from vrtd.errors import AccuracyWarning, ConvergenceWarning, InvalidInputError, NotFittedError
from vrtd.estimator import summary
from vrtd.estimator.state import sample_of
from vrtd.logs import Chunk, from_arrays
from vrtd.problems import Transitions


def test_a_log_shorter_than_the_pilot_is_learned_from() -> None:
    rows = chunk(0, 2000)
    evaluator = vrtd.Evaluator(discount=DISCOUNT).fit(rows)
    assert evaluator.algorithm_ is not None
    assert evaluator.n_waiting_ < 2000
    closed = vrtd.Evaluator("closed_form", discount=DISCOUNT).fit(rows).predict(rows.observations)
    np.testing.assert_allclose(evaluator.predict(rows.observations), closed, atol=0.5)  # values are 2 to 7
    evaluator.partial_fit(chunk(2000, 6000))
    assert evaluator.n_rows_ == 6000


def test_fit_does_not_wait_for_rows_that_were_announced() -> None:
    evaluator = vrtd.Evaluator(discount=DISCOUNT, n_samples=1_000_000).fit(chunk(0, 2000))
    assert evaluator.n_waiting_ < 1000


def test_data_without_noise_and_an_exact_start_are_not_warned_of() -> None:
    rows, start = chunk(0, 6000), np.arange(1.0, 5.0)
    exact = rows._replace(reward=rows.observations @ start - DISCOUNT * (rows.next_observations @ start))
    for algorithm in ("vrtd", "td"):
        evaluator = vrtd.Evaluator(algorithm, discount=DISCOUNT, theta_0=start, n_samples=6000).fit(exact)
        np.testing.assert_allclose(evaluator.theta_, start, rtol=1e-9)


@pytest.mark.parametrize("scale", [0.0, 1e65])
def test_rows_that_cannot_be_checked_are_learned_from(scale: float) -> None:
    rows = scaled(chunk(0, 2000), np.full(2000, scale))
    if scale:
        assert np.isfinite(vrtd.Evaluator("closed_form", discount=DISCOUNT).fit(rows).predict(rows.observations)).all()
    else:
        evaluator = vrtd.Evaluator(vrtd.TD(0.1), discount=DISCOUNT).fit(rows)
        assert np.array_equal(evaluator.predict(rows.observations), np.zeros(2000))


def test_a_start_outside_of_the_span_counts() -> None:
    """State 2 is only ever a successor: its start is what the others are bootstrapped from."""
    states = np.arange(12_000) % 2
    truncated, reward = states == 1, 0.1 * np.random.default_rng(0).normal(size=12_000)
    rows = Chunk(np.eye(3)[states], reward, np.eye(3)[states + 1], np.zeros(12_000, bool), truncated)
    start = np.array([0.0, 0.0, 10.0])
    run, closed = (vrtd.Evaluator(name, discount=0.9, theta_0=start).fit(rows) for name in ("vrtd", "closed_form"))
    sample = sample_of(run._state)
    found = sample.basis @ sample.reduce_rank(start).theta_star + sample.outside(start)
    np.testing.assert_allclose(found, closed.theta_, atol=1e-8)
    np.testing.assert_allclose(run.theta_, [8.1, 9.0, 10.0], atol=0.5)


def test_before_the_pilot_rows_the_start_is_in_force() -> None:
    start = np.arange(4.0)
    evaluator = vrtd.Evaluator(discount=DISCOUNT, theta_0=start).partial_fit(chunk(0, 2000))
    observations = chunk(0, 3).observations
    np.testing.assert_array_equal(evaluator.predict(observations), observations @ start)
    scaled = vrtd.Evaluator(features="rbf:4", discount=DISCOUNT).partial_fit(chunk(0, 2000))
    with pytest.raises(NotFittedError, match="must have received its pilot rows; got 2,000 of 5,000"):
        scaled.predict(observations)


def test_a_short_log_with_features_of_the_users_own_is_loaded(tmp_path: Path) -> None:
    scaler = pytest.importorskip("sklearn.preprocessing").StandardScaler
    evaluator = vrtd.Evaluator(features=scaler(), discount=DISCOUNT).fit(chunk(0, 2000))
    evaluator.save(tmp_path / "model.npz")
    loaded = vrtd.Evaluator.load(tmp_path / "model.npz", features=scaler())
    observations = chunk(0, 3).observations
    np.testing.assert_array_equal(loaded.predict(observations), evaluator.predict(observations))


@pytest.mark.parametrize("scale", [1e-4, 1e-8])
def test_the_closed_form_takes_columns_of_very_different_scales(scale: float) -> None:
    rows = chunk(0, 20_000)
    sizes = np.array([scale, 1.0, 1.0 / scale, 1.0])
    scaled = rows._replace(observations=rows.observations * sizes, next_observations=rows.next_observations * sizes)
    plain, other = (vrtd.Evaluator("closed_form", discount=DISCOUNT).fit(part) for part in (rows, scaled))
    np.testing.assert_allclose(other.theta_ * sizes, plain.theta_, rtol=1e-8)
    half = [np.subtract(*found.theta_interval()[:0:-1]) for found in (plain, other)]
    np.testing.assert_allclose(half[1] * sizes, half[0], rtol=1e-6)


def test_nearly_dependent_columns_are_warned_of() -> None:
    rows = chunk(0, 20_000)
    phi, phi_next = rows.observations.copy(), rows.next_observations.copy()
    for table in (phi, phi_next):
        table[:, 3] = table[:, 2] + 1e-6 * table[:, 3]
    log = rows._replace(observations=phi, next_observations=phi_next)
    evaluator = vrtd.Evaluator("closed_form", discount=DISCOUNT).fit(log)
    with pytest.warns(AccuracyWarning, match="A has condition number"):
        evaluator.predict(phi[:3])
    data = vrtd.Transitions(phi, rows.reward, phi_next, DISCOUNT)
    with pytest.warns(AccuracyWarning, match="A has condition number"):
        _ = data.theta_star


def test_the_check_of_predict_costs_little_in_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sample is looked at anew only when it has doubled."""
    made: list[int] = []

    def counted(state: Any) -> Transitions:
        made.append(state.n_sampled)
        return sample_of(state)

    monkeypatch.setattr(summary, "sample_of", counted)
    evaluator = vrtd.Evaluator(vrtd.TD(0.05), discount=DISCOUNT)
    for first in range(0, 6000, 100):
        evaluator.partial_fit(chunk(first, first + 100))
        evaluator.predict(chunk(0, 1).observations)
    assert len(made) <= 9


@pytest.mark.parametrize(("n_rows", "why"), [(100, "too few to show how strongly they are correlated"), (31, None)])
def test_intervals_of_few_rows(n_rows: int, why: str | None) -> None:
    rng = np.random.default_rng(0)
    phi = np.c_[np.ones(n_rows + 1), rng.choice([-1.0, 1.0], n_rows + 1)]
    log = from_arrays(phi[:-1], rng.normal(size=n_rows), phi[1:])
    evaluator = vrtd.Evaluator(vrtd.TD(0.1), discount=0.0).fit(log)
    if why is None:
        with pytest.raises(InvalidInputError, match="an interval of the recursion needs at least 32 rows; got 31"):
            evaluator.predict(phi[:2], return_interval=0.95)
    else:
        with pytest.warns(ConvergenceWarning, match=why):
            evaluator.predict(phi[:2], return_interval=0.95)
