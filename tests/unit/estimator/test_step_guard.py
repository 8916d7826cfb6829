"""Steps that rows make unstable: they are lowered, or the result is warned of."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers.some_logs import DISCOUNT, chunk, scaled, split
from tests.helpers.streams import with_columns
from tests.helpers.two_regimes import rows_of, two_halves, walk
from vrtd.engine.stream import epochs_within
from vrtd.errors import ConvergenceWarning, DivergenceError, StabilityWarning
from vrtd.estimator import learner as learners
from vrtd.estimator.learner import first_learner, learn
from vrtd.estimator.rows import NO_WEIGHT, NotFiniteError
from vrtd.logs import Chunk, from_arrays
from vrtd.problems import Transitions
from vrtd.theory import settings


def reported_log() -> tuple[Any, Any]:
    """A log on which the parameters once ended at 1e16 without a warning; its features."""
    rng = np.random.default_rng(2)
    P = np.zeros((10, 10))
    P[:5, :5] = rng.random((5, 5))
    P[5:, 5:] = rng.random((5, 5))
    P /= P.sum(axis=1, keepdims=True)
    P *= 0.999
    P[:5, 5] += 1e-3
    P[5:, 0] += 1e-3
    phi = np.c_[np.ones(10), np.repeat([0.0, 1.0], 5), rng.normal(size=10) * np.repeat([1.0, 2.5], 5)]
    reward = np.repeat([0.0, 1.0], 5) + 0.1 * rng.normal(size=10)
    rng, cumulative, states = np.random.default_rng(6), P.cumsum(axis=1), [0]
    for u in rng.random(10_000):
        row = cumulative[states[-1]]
        states.append(int(np.searchsorted(row, u * row[-1], side="right")))
    s = np.array(states)
    return from_arrays(phi[s[:-1]], reward[s[:-1]], phi[s[1:]]), phi


def test_the_default_warns_where_it_is_far_from_the_closed_form() -> None:
    log, phi = reported_log()
    evaluator = vrtd.Evaluator("vrtd", features=None, discount=0.9, n_samples=10_000)
    with pytest.warns(ConvergenceWarning, match="Not converged: .* distance of the values from the closed form"):
        evaluator.fit(log)
    with pytest.warns(ConvergenceWarning, match="Not converged"):
        values = evaluator.predict(phi)
    assert np.abs(values).max() < 20.0  # the truth is 0 to 11
    closed = vrtd.Evaluator("closed_form", features=None, discount=0.9).fit(log).predict(phi)
    assert 0.0 < closed.min() < closed.max() < 11.0


def largest_values(n_logs: int) -> Any:
    """Over logs of random two-regime chains, the largest value divided by the largest that the rewards allow."""
    largest = []
    for seed in range(n_logs):
        P, phi, reward = two_halves(seed, switch=3e-3, scale=4.0)
        rows = rows_of(phi, reward, walk(P, 1500, np.random.default_rng(seed)))
        evaluator = vrtd.Evaluator("vrtd", features=None, discount=0.9, n_samples=1500, pilot_rows=400)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            try:
                value = np.abs(evaluator.fit(rows).predict(phi)).max()
            except DivergenceError:
                value = np.inf
        largest.append(value / (np.abs(reward).max() / 0.1))
    return np.array(largest)


@pytest.mark.slow
def test_logs_of_two_regimes_stay_bounded() -> None:
    """Without the guard more than 3 % of the logs do not."""
    assert largest_values(300).max() < 3.0


def test_without_the_guard_some_logs_of_two_regimes_diverge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learners, "_within", lambda columns, first, n_epochs, size, step: (n_epochs, np.inf))
    monkeypatch.setattr(settings, "growth_ratio", lambda sample: 0.0)
    assert (largest_values(60) > 3.0).sum() >= 2


def quiet(evaluator: Any, rows: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return evaluator.fit(rows)


def test_a_step_is_lowered_at_the_batch_that_needs_it(tmp_path: Path) -> None:
    """It does not depend on how rows are split, survives a file, and is said."""
    rows = scaled(chunk(0, 20_000), np.where(np.arange(20_000) >= 12_000, 20.0, 1.0))
    whole = quiet(vrtd.Evaluator("vrtd", features=None, discount=DISCOUNT, n_samples=20_000), rows)
    phases = whole._state.learner.phases
    M = phases[0].algorithm.batch_size
    assert [phase.is_lowered for phase in phases][:2] == [False, True]
    assert phases[1].first_epoch == 12_000 // M
    used = slice(12_000 // M * M, 12_000 // M * M + M)
    batch = Transitions(rows.observations[used], rows.reward[used], rows.next_observations[used], DISCOUNT)
    np.testing.assert_allclose(phases[1].algorithm.step_size, 1.25 / settings.growth_ratio(batch))
    assert any("the step size was lowered" in remark for remark in whole.diagnostics_.remarks)
    parts = vrtd.Evaluator("vrtd", features=None, discount=DISCOUNT, n_samples=20_000)
    for k, (first, last) in enumerate(split(20_000, seed=3)):
        parts.partial_fit(Chunk(*(None if field is None else field[first:last] for field in rows[:5])))
        if k % 4 == 0:
            parts.save(tmp_path / "model.npz")
            parts = vrtd.Evaluator.load(tmp_path / "model.npz")
    assert np.array_equal(parts.theta_, whole.theta_)
    assert parts._state.learner.phases == phases


@pytest.mark.parametrize("algorithm", ["vrtd", "td"])
def test_the_planned_step_comes_back_after_an_outlier(algorithm: str) -> None:
    rows = scaled(chunk(0, 20_000), np.where(np.arange(20_000) == 6000, 100.0, 1.0))
    evaluator = quiet(vrtd.Evaluator(algorithm, features=None, discount=DISCOUNT, n_samples=20_000), rows)
    steps = [phase.algorithm.step_size for phase in evaluator._state.learner.phases]
    assert len(steps) == 3
    assert steps[0] == steps[2] > 2.0 * steps[1]


def test_steps_are_lowered_seldom_on_rows_that_grow() -> None:
    """Each time for twice as many epochs as before, so that phases do not grow with the log."""
    rows = scaled(chunk(0, 20_000), np.linspace(1.0, 50.0, 20_000))
    evaluator = quiet(vrtd.Evaluator("td", features=None, discount=DISCOUNT, n_samples=20_000), rows)
    assert len(evaluator._state.learner.phases) <= 2 * 15
    assert len(evaluator.diagnostics_.remarks) < 10


def epochs(algorithm: Any, phi: Any, n_epochs: int, discount: float, lowers_step: bool) -> Any:
    """|theta| after epochs on rows with reward 0, from |theta| = 1."""
    n = n_epochs * (algorithm.batch_size if isinstance(algorithm, vrtd.VRTD) else len(phi))
    phi = np.resize(phi, (n + 1, phi.shape[1]))
    learner = first_learner(algorithm, None, np.full(phi.shape[1], phi.shape[1] ** -0.5), 0, lowers_step)
    return np.linalg.norm(learn(learner, Transitions(phi[:-1], np.zeros(n), phi[1:], discount)).theta)


def test_lowered_steps_contract_where_larger_ones_diverge() -> None:
    """Rows of norm 1 in 50 dimensions, which a step of 1 makes grow; a cycle of three rows in two for TD."""
    rng = np.random.default_rng(1)
    sphere = rng.standard_normal((20_000, 50))
    sphere /= np.linalg.norm(sphere, axis=1, keepdims=True)
    large = vrtd.VRTD(1.0001, 1000, output="average")
    assert epochs(large, sphere, 40, 0.999, False) > 10.0
    assert epochs(large, sphere, 40, 0.999, True) < 1e-3
    cycle = np.array([[1.0, 0.0], [-0.5, 0.75**0.5], [-0.5, -(0.75**0.5)]])
    assert epochs(vrtd.TD(1.5), cycle, 200, 0.95, False) > 1e3
    assert epochs(vrtd.TD(1.5), cycle, 200, 0.95, True) < 1e-3


def test_a_batch_that_raises_leaves_the_step_as_it_was() -> None:
    rows = Transitions(np.ones((8, 1)), np.zeros(8), np.ones((8, 1)), 0.5)
    learner = learn(first_learner(vrtd.VRTD(0.5, 4), None, np.zeros(1), 0, lowers_step=True), rows)
    large = with_columns(rows, phi=np.where(np.arange(8)[:, None] < 4, 3.0, np.nan))
    with pytest.raises(NotFiniteError):
        learn(learner, large)
    assert [phase.algorithm.step_size for phase in learner.phases] == [0.5]
    steps = [phase.algorithm.step_size for phase in learn(learner, large.part(0, 4)).phases]
    np.testing.assert_allclose(steps, [0.5, 1.25 * (0.5 * 9.0 + 0.5 * 4.0 / 2.0) / (9.0 * 2.5**2)])


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_the_compiled_growth_ratio_is_that_of_the_rows(dtype: str, is_weighted: bool) -> None:
    rng = np.random.default_rng(0)
    phi, phi_next = rng.standard_normal((2, 60, 5)).astype(dtype)
    weight, ends = rng.gamma(2.0, 0.5, 60) if is_weighted else NO_WEIGHT, rng.random(60) < 0.1
    discount = np.where(ends, 0.0, 0.9)
    ratios = [
        settings.growth_ratio(
            Transitions(phi[k], np.zeros(20), phi_next[k], discount[k], weight[k] if is_weighted else None)
        )
        for k in (slice(0, 20), slice(20, 40), slice(40, 60))
    ]
    phi_next[ends] = np.nan  # nothing follows there
    for limit in (0.5 * min(ratios), np.mean(sorted(ratios)[:2]), 2.0 * max(ratios)):
        first = next((k for k, ratio in enumerate(ratios) if ratio > limit), 3)
        count, ratio = epochs_within()(phi, phi_next, discount, weight, 0, 3, 20, limit)
        assert count == first
        np.testing.assert_allclose(ratio, limit if first == 3 else ratios[first], rtol=1e-6)


def test_the_growth_ratio_is_computed_in_double_precision() -> None:
    large = np.full((4, 1), 1e12, np.float32)
    assert epochs_within()(large, large, np.full(4, 0.9), NO_WEIGHT, 0, 1, 4, 1.0)[0] == 0


def test_a_step_of_the_users_own_is_not_lowered() -> None:
    rows = chunk(0, 6000)
    large = rows._replace(observations=2.0 * rows.observations, next_observations=2.0 * rows.next_observations)
    evaluator = vrtd.Evaluator(vrtd.VRTD(0.05, 500), features=None, discount=DISCOUNT).fit(rows)
    evaluator.partial_fit(large)
    assert len(evaluator._state.learner.phases) == 1


def test_an_automatic_step_that_diverges_names_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learners, "_within", lambda columns, first, n_epochs, size, step: (n_epochs, np.inf))
    rows = scaled(chunk(0, 20_000), np.where(np.arange(20_000) >= 6000, 1e6, 1.0))
    with pytest.raises(
        DivergenceError, match=r"with the step size that 'auto' chose\. Scale .* algorithm='closed_form'"
    ):
        vrtd.Evaluator("vrtd", features=None, discount=DISCOUNT, n_samples=20_000).fit(rows)


def test_weights_lower_the_limit_of_a_step() -> None:
    """One constant feature: an update multiplies the error by 1 - 0.1 step weight, here by -1.5, whatever is drawn."""
    ones, no = np.ones((400, 1)), np.zeros(400, bool)
    rows = Chunk(ones, np.random.default_rng(0).normal(size=400), ones, no, no)
    evaluator = vrtd.Evaluator(vrtd.TD(0.025), features=None, discount=0.9, pilot_rows=100)
    with pytest.warns(StabilityWarning, match="on the first 100 rows, errors grow without bound above 0.02"):
        evaluator.partial_fit(rows._replace(weight=np.full(400, 1000.0)))
    with pytest.warns(ConvergenceWarning, match="distance of the values from the closed form"):
        evaluator.predict(ones)
    vrtd.Evaluator(vrtd.TD(0.025), features=None, discount=0.9, pilot_rows=100).partial_fit(rows).predict(
        ones
    )  # no warning
