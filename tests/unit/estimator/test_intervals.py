"""Intervals of values, parameters and the mean value: when they are known, and how wide they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import vrtd
from tests.helpers.fits import N, fitted
from tests.helpers.some_logs import DISCOUNT, boyan, chain, chunk
from tests.helpers.sparse import random_rows
from vrtd.errors import (
    AccuracyWarning,
    ConvergenceWarning,
    InvalidInputError,
)
from vrtd.estimator import state as fit_state
from vrtd.features import Tabular
from vrtd.logs import from_arrays

N_ROWS = 12_000


def test_intervals_have_the_estimate_inside_and_grow_with_the_level() -> None:
    evaluator = fitted(n_samples=N, closed_form=True)
    phi, theta_star = chain().phi, chain().theta_star
    for method in ("recursion", "closed_form"):
        wide, narrow = (evaluator.predict(phi, return_interval=level, method=method) for level in (0.99, 0.5))
        assert np.all((wide.low < narrow.low) & (narrow.high < wide.high))
        np.testing.assert_allclose(wide.value, phi @ evaluator.spread(method).theta, rtol=1e-12)
        assert np.abs(wide.value - phi @ theta_star).max() < 0.5
    assert np.array_equal(evaluator.predict(phi), evaluator.predict(phi, return_interval=0.9).value)
    mean = evaluator.mean_value(0.95)
    assert mean.low < float(np.mean(phi @ theta_star)) + 0.3
    assert mean.high > float(np.mean(phi @ theta_star)) - 0.3
    theta = evaluator.theta_interval(0.9)
    assert np.array_equal(theta.value, evaluator.theta_)


def test_unvisited_states_are_reported_and_have_no_interval() -> None:
    rng = np.random.default_rng(0)
    states = rng.integers(0, 5, 9001)
    rows = from_arrays(states[:-1], rng.normal(size=9000), states[1:])
    for algorithm in ("closed_form", vrtd.VRTD(0.1, 500)):
        evaluator = vrtd.Evaluator(algorithm, features=Tabular(7), discount=0.9).fit(rows)
        assert evaluator.diagnostics_.unseen == (5, 6)
        found = evaluator.predict(np.arange(7), return_interval=0.95)
        assert np.isfinite(found.low[:5]).all()
        assert np.isinf(found.low[5:]).all()
        assert np.isinf(found.high[5:]).all()
        assert np.all(found.value[5:] == 0.0)


def test_vrtd_learns_values_with_dependent_features() -> None:
    """In any case values are learned: theta moves in the span of the rows."""
    rows = chunk(0, N)
    twice = rows._replace(
        observations=np.repeat(rows.observations, 2, axis=1),
        next_observations=np.repeat(rows.next_observations, 2, axis=1),
    )
    evaluator = vrtd.Evaluator("vrtd", features=None, discount=DISCOUNT, n_samples=N).fit(twice)
    assert evaluator.diagnostics_.rank == 4
    phi, theta_star = chain().phi, chain().theta_star
    found = evaluator.predict(np.repeat(phi, 2, axis=1), return_interval=0.95)
    assert np.abs(found.value - phi @ theta_star).max() < 0.4
    assert np.isfinite(found.low).all()


def test_a_run_that_has_not_converged_says_so_and_offers_the_closed_form() -> None:
    rows, phi, theta_star = boyan(N)
    evaluator = vrtd.Evaluator(vrtd.VRTD(1e-3, 1000), features=None, discount=1.0).fit(rows)
    diagnostics = evaluator.diagnostics_
    assert (diagnostics.converged, diagnostics.limit) == (False, "transient")
    assert "Not converged" in diagnostics.text
    with pytest.warns(ConvergenceWarning, match="method='closed_form'"):
        found = evaluator.predict(phi, return_interval=0.95)
    inside = (found.low < phi @ theta_star) & (phi @ theta_star < found.high)
    assert inside.mean() > 0.9  # the transient is part of the interval
    offered = evaluator.predict(phi, return_interval=0.95, method="closed_form")
    assert np.mean(offered.high - offered.low) < np.mean(found.high - found.low) / 4


def test_methods_without_known_moments_have_the_closed_form_only() -> None:
    evaluator = fitted(algorithm=vrtd.TD(0.05, average=True))
    with pytest.warns(AccuracyWarning, match="No interval: none is known for TD.*no radius and no average"):
        found = evaluator.theta_interval()
    assert np.array_equal(found.value, evaluator.theta_)
    assert np.isnan(found.low).all()
    assert np.isnan(found.high).all()
    assert "No interval" in evaluator.diagnostics_.text
    assert evaluator.theta_interval(method="closed_form").low.shape == (4,)


@pytest.mark.parametrize("algorithm", ["closed_form", vrtd.VRTD(0.02, 500, output="average")])
def test_further_passes_do_not_shorten_intervals(algorithm: Any) -> None:
    rows, _, _ = boyan(N_ROWS)
    log = from_arrays(*rows[:5])
    once, often = (vrtd.Evaluator(algorithm, features=None, discount=1.0).fit(log, n_passes=n) for n in (1, 9))
    assert often.n_rows_ == 9 * N_ROWS
    halves = [float(np.ptp(each.mean_value()[1:])) / 2 for each in (once, often)]
    assert halves[1] > 0.5 * halves[0]
    closed = [each.mean_value(method="closed_form").low for each in (once, often)]
    assert closed[0] == closed[1]
    errors = [each.diagnostics_.errors["budget"] for each in (once, often)]
    np.testing.assert_allclose(errors[0], errors[1])
    assert once.diagnostics_.effective_rows == often.diagnostics_.effective_rows


def test_rows_beyond_the_span_of_the_sample_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit_state, "_MOST_ROWS", 600)
    rng = np.random.default_rng(1)
    states = np.concatenate([rng.integers(0, 3, 2000), rng.integers(0, 6, N_ROWS - 1999)])
    log = from_arrays(states[:-1], rng.normal(size=N_ROWS), states[1:])
    evaluator = vrtd.Evaluator(vrtd.VRTD(0.1, 500), features=Tabular(6), discount=0.5).fit(log)
    diagnostics = evaluator.diagnostics_
    assert diagnostics.unseen == ()
    assert diagnostics.converged is False
    assert "later rows have features outside the span of the first 600 rows" in diagnostics.text
    with pytest.warns(ConvergenceWarning, match="outside the span of the first 600 rows"):
        found = evaluator.predict(np.arange(6), return_interval=0.9)
    assert np.isfinite(found.low).tolist() == [True] * 3 + [False] * 3


@pytest.mark.parametrize("algorithm", ["closed_form", vrtd.VRTD(0.2, 500, output="average")])
def test_what_was_seen_seldom_has_no_interval(algorithm: Any) -> None:
    """A state that was seen once has a residual of 0: nothing is known of its noise."""
    states = np.random.default_rng(0).integers(0, 4, N_ROWS + 1)
    states[5000] = 4
    log = from_arrays(states[:-1], np.random.default_rng(1).normal(size=N_ROWS), states[1:])
    evaluator = vrtd.Evaluator(algorithm, features=Tabular(5), discount=0.5).fit(log)
    found = evaluator.predict(np.arange(5), return_interval=0.95)
    assert np.isfinite(found.low).tolist() == [True] * 4 + [False]
    assert "Too rarely nonzero for an interval: 1 feature (4)." in evaluator.diagnostics_.text


def test_a_projection_that_may_be_active_has_no_interval() -> None:
    evaluator = vrtd.Evaluator(vrtd.VRTD(0.05, 500, radius=1.0), features=None, discount=DISCOUNT).fit(chunk(0, N_ROWS))
    with pytest.warns(AccuracyWarning, match="No interval: none is known for VRTD with these settings.*no radius"):
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
    assert 0.7 * exact < (mean.high - mean.low) / 2 < 1.4 * exact


@pytest.mark.parametrize(
    ("algorithm", "options", "n", "d"),
    [
        ("closed_form", {}, 200, 100),
        ("closed_form", {}, 3000, 5000),
        ("auto", {"cost": "linear"}, 500, 600),
        ("auto", {"cost": "linear"}, 300, 5000),
    ],
)
@pytest.mark.filterwarnings("ignore::vrtd.errors.ConvergenceWarning", "ignore::vrtd.errors.AccuracyWarning")
def test_the_mean_value_without_an_interval_is_that_of_all_rows(
    algorithm: str, options: dict[str, Any], n: int, d: int
) -> None:
    sparse, rng = random_rows(n + 1, d, 4)[0], np.random.default_rng(0)
    rows: Any = sparse if d > 1000 else sparse.toarray()
    reward = rng.normal(size=n) + np.linspace(0.0, 5.0, n)  # later states are worth more
    log = from_arrays(rows[:-1], reward, rows[1:])
    evaluator = vrtd.Evaluator(algorithm, features="identity", discount=0.5, **options).fit(log)
    mean = evaluator.mean_value()
    assert np.isnan(mean.low)
    np.testing.assert_allclose(mean.value, evaluator.predict(rows[:-1]).mean())


def test_the_mean_value_counts_the_rows_after_the_last_block() -> None:
    state = np.repeat([0, 1], [29_700, 300])
    evaluator = vrtd.Evaluator(features="tabular:2", discount=0.9).fit(from_arrays(state, 100.0 * state, state))
    assert evaluator.mean_value().value == pytest.approx(10.0)


def test_the_closed_form_of_sparse_rows_has_the_intervals_of_dense_ones() -> None:
    rows, values = random_rows(8001, 600, 4)
    reward = values[:-1] - 0.5 * values[1:] + np.random.default_rng(0).normal(size=8000)
    found = []
    for table in (rows, rows.toarray()):
        log = from_arrays(table[:-1], reward, table[1:])
        evaluator = vrtd.Evaluator("closed_form", features="identity", discount=0.5).fit(log)
        found.append(evaluator.predict(table[:50], return_interval=0.95))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


def test_the_spread_of_a_run_takes_sparse_rows() -> None:
    spread, phi = fitted(n_samples=N).spread(), chain().phi[:5]
    for one, other in zip(spread.of(csr_array(phi), 0.95), spread.of(phi, 0.95), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("scale", [1e-4, 1e-8])
def test_the_closed_form_takes_columns_of_very_different_scales(scale: float) -> None:
    rows = chunk(0, 20_000)
    sizes = np.array([scale, 1.0, 1.0 / scale, 1.0])
    scaled = rows._replace(observations=rows.observations * sizes, next_observations=rows.next_observations * sizes)
    plain, other = (
        vrtd.Evaluator("closed_form", features=None, discount=DISCOUNT).fit(part) for part in (rows, scaled)
    )
    np.testing.assert_allclose(other.theta_ * sizes, plain.theta_, rtol=1e-8)
    half = [np.subtract(*found.theta_interval()[:0:-1]) for found in (plain, other)]
    np.testing.assert_allclose(half[1] * sizes, half[0], rtol=1e-6)


@pytest.mark.parametrize(("n_rows", "why"), [(100, "too few to estimate how strongly they are correlated"), (31, None)])
def test_intervals_of_few_rows(n_rows: int, why: str | None) -> None:
    rng = np.random.default_rng(0)
    phi = np.c_[np.ones(n_rows + 1), rng.choice([-1.0, 1.0], n_rows + 1)]
    log = from_arrays(phi[:-1], rng.normal(size=n_rows), phi[1:])
    evaluator = vrtd.Evaluator(vrtd.TD(0.1), features=None, discount=0.0).fit(log)
    if why is None:
        with pytest.raises(
            InvalidInputError, match="An interval of the recursion needs at least 32 rows, but there are 31"
        ):
            evaluator.predict(phi[:2], return_interval=0.95)
    else:
        with pytest.warns(ConvergenceWarning, match=why):
            evaluator.predict(phi[:2], return_interval=0.95)
