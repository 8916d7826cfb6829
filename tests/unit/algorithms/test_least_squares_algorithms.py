"""LSTD and its recursive form: what they solve, what the ridge does, and that the two are one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers.some_logs import DISCOUNT, chunk
from tests.helpers.streams import drawer, learner, some_rows, with_columns
from tests.helpers.table import two_states
from tests.reference import least_squares
from tests.reference.sampling import AlgorithmIndex, Sample
from vrtd.algorithms import check_sampling
from vrtd.algorithms._base.least_squares import solve_in_place
from vrtd.errors import AccuracyWarning, DivergenceError, InvalidInputError
from vrtd.estimator.learner import learn
from vrtd.logs import from_arrays

PROBLEM = vrtd.problems.random_mdp(seed=0)
BOTH = pytest.mark.parametrize("kind", [vrtd.LSTD, vrtd.RecursiveLSTD])


def simulated(algorithm: Any, n: int = 500, **changes: Any) -> Any:
    return vrtd.simulate(PROBLEM, algorithm, n_runs=3, n_gradients=n, seed=5, **changes)


@BOTH
@pytest.mark.parametrize("trace_decay", [0.0, 0.7])
def test_theta_solves_the_sums_of_the_trajectory(kind: Any, trace_decay: float) -> None:
    data = vrtd.record(PROBLEM, 500, seed=5, run=1, shuffle=False)
    samples = list(map(Sample, data.phi, data.phi_next, data.reward, data.discount))
    A, b = least_squares.sums(samples, trace_decay)
    theta_0 = np.array([1.0, -2.0, 0.5, 3.0])
    ridge = 0.5 * least_squares.scale(samples)
    expected = np.linalg.solve(A + ridge * np.eye(4), b + ridge * theta_0)
    found = simulated(kind(trace_decay, 0.5), theta_0=theta_0).theta[1]
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_the_closed_form_of_recorded_rows_is_missed_by_the_ridge_alone() -> None:
    data = vrtd.record(PROBLEM, 500, seed=5, run=2, shuffle=False)
    scale = np.sum(data.phi[0] ** 2) + np.sum((data.discount[0] * data.phi_next[0]) ** 2)
    for ridge in (1e-6, 1.0):
        theta = simulated(vrtd.LSTD(ridge=ridge / scale)).theta[2]
        missed = np.linalg.solve(ridge * np.eye(4) - 500 * data.A, ridge * data.theta_star)
        np.testing.assert_allclose(theta, data.theta_star - missed, rtol=1e-9)


def test_every_transition_in_its_share_gives_theta_star() -> None:
    """The exact mean of the increments: (4/7, 3/7) of the states and tenths of their transitions make 70 rows."""
    problem = two_states()
    mrp, phi = problem.mrp, problem.phi
    edges, counts = mrp.edges, np.array([28, 12, 12, 18])
    np.testing.assert_allclose(counts / 70, mrp.stationary[edges.origin] * edges.probability)
    rows = np.repeat(np.arange(4), counts)
    log = from_arrays(phi[edges.origin[rows]], edges.reward[rows], phi[edges.successor[rows]])
    for algorithm in (vrtd.LSTD(ridge=1e-12), vrtd.RecursiveLSTD(ridge=1e-6)):
        theta = vrtd.Evaluator(algorithm, features=None, discount=0.9).fit(log).theta_
        np.testing.assert_allclose(theta, problem.theta_star, rtol=1e-6)


@BOTH
def test_with_traces_it_tends_to_the_fixed_point_with_traces(kind: Any) -> None:
    """On a cycle nothing is random: n rows miss it by what they know of the trace before the first, a share 1/n."""
    rng = np.random.default_rng(0)
    phi, reward, n = rng.normal(size=(6, 4)), rng.normal(size=6), 30_000
    states = np.arange(n + 1) % 6
    mrp = vrtd.MarkovRewardProcess(np.roll(np.eye(6), 1, axis=1), reward, 0.9)
    problem = vrtd.LinearProblem(mrp, phi)
    log = from_arrays(phi[states[:-1]], reward[states[:-1]], phi[states[1:]])
    for trace_decay in (0.0, 0.5, 0.9):
        theta = vrtd.Evaluator(kind(trace_decay, 1e-2), features=None, discount=0.9).fit(log).theta_
        np.testing.assert_allclose(theta, problem.fixed_point(trace_decay), atol=1e-3)
    assert np.abs(problem.fixed_point(0.9) - problem.fixed_point(0.5)).max() > 1e-2  # so that the others would be seen


@pytest.mark.parametrize("d", [4, 33])
@pytest.mark.parametrize("trace_decay", [0.0, 0.7])
def test_the_recursion_equals_the_solution(d: int, trace_decay: float) -> None:
    problem = vrtd.problems.random_mdp(seed=1, n_states=40, n_features=d, normalize=True)
    found = [
        vrtd.simulate(problem, kind(trace_decay, 0.3), n_runs=3, n_gradients=400, theta_0=np.ones(d), checkpoints=5)
        for kind in (vrtd.LSTD, vrtd.RecursiveLSTD)
    ]
    np.testing.assert_allclose(found[1].theta, found[0].theta, rtol=1e-8)
    np.testing.assert_allclose(found[1].curves, found[0].curves, rtol=1e-8)


@BOTH
def test_importance_ratios_enter_the_trace(kind: Any) -> None:
    algorithm, rows = kind(0.7, 0.5), some_rows(40, 4, weighted=True)
    found = learn(learner(algorithm, 4), rows)
    start = np.linspace(-1.0, 1.0, 4)
    expected = least_squares.lstd(algorithm, "markov", drawer(rows), None, start, 40)[-1]
    np.testing.assert_allclose(found.theta, expected, rtol=1e-10)


@BOTH
def test_the_ridge_pulls_towards_the_start(kind: Any) -> None:
    theta_0 = np.array([1.0, -2.0, 0.5, 3.0])
    far = [np.abs(simulated(kind(ridge=r), theta_0=theta_0).theta - theta_0).max() for r in (1.0, 1e2, 1e4, 1e6)]
    assert far == sorted(far, reverse=True)
    assert far[-1] < 1e-2
    form = vrtd.metrics.METRICS["squared_error"](PROBLEM)
    first = simulated(kind(), theta_0=theta_0).values("squared_error")[:, 0]
    np.testing.assert_allclose(first, form(theta_0), rtol=1e-14)


@BOTH
def test_features_in_other_units_give_the_same_values(kind: Any) -> None:
    for theta_0 in (np.zeros(4), np.array([1.0, -2.0, 0.5, 3.0])):
        values = []
        for unit in (1e-6, 1.0, 1e6):
            problem = vrtd.LinearProblem(PROBLEM.mrp, unit * PROBLEM.phi)
            result = vrtd.simulate(
                problem, kind(), n_runs=3, n_gradients=2000, seed=5, theta_0=theta_0 / unit, specialise=False
            )
            values.append(result.theta * unit)
        np.testing.assert_allclose(values[0], values[1], rtol=1e-9)
        np.testing.assert_allclose(values[2], values[1], rtol=1e-9)
    assert np.abs(values[1] - theta_0).max(axis=1).min() > 1.0  # it has learned


@BOTH
def test_samples_without_features_decide_nothing(kind: Any) -> None:
    rng = np.random.default_rng(0)
    phi = np.concatenate([np.zeros((3, 2)), 1e-6 * rng.normal(size=(30, 2))])
    rows = from_arrays(phi[:-1], np.ones(32), phi[1:])
    evaluator = vrtd.Evaluator(kind(), features=None, discount=0.5).partial_fit(
        from_arrays(phi[:2], np.ones(2), phi[:2])
    )
    assert evaluator.theta_.tolist() == [0.0, 0.0]
    samples = list(map(Sample, phi[:-1], phi[1:], np.ones(32), np.full(32, 0.5)))
    expected = least_squares.lstd(kind(), "markov", iter(samples).__next__, None, np.zeros(2), 32)[-1]
    np.testing.assert_allclose(
        vrtd.Evaluator(kind(), features=None, discount=0.5).fit(rows).theta_, expected, rtol=1e-9
    )


def test_a_system_without_a_solution_is_one_until_the_next_row() -> None:
    evaluator = vrtd.Evaluator(vrtd.LSTD(ridge=0.2), features=None, discount=0.5)
    evaluator.partial_fit(from_arrays([[1.0]], [1.0], [[4.0]]))  # A + ridge s = 1 (1 - 0.5 4) + 0.2 (1 + 4)
    assert np.isnan(evaluator.theta_).all()
    evaluator.partial_fit(from_arrays([[1.0]], [1.0], [[1.0]]))
    np.testing.assert_allclose(evaluator.theta_, 2.0 / 0.5)


@BOTH
def test_it_learns_from_a_log_and_has_no_interval_of_its_own(kind: Any) -> None:
    rows = chunk(0, 20_000)
    evaluator = vrtd.Evaluator(kind(ridge=1e-3), features=None, discount=DISCOUNT).fit(rows)
    closed = vrtd.Evaluator("closed_form", features=None, discount=DISCOUNT).fit(rows)
    np.testing.assert_allclose(evaluator.theta_, closed.theta_, rtol=1e-4)
    with pytest.warns(AccuracyWarning, match="only for VRTD and TD with a constant step"):
        assert np.isnan(evaluator.predict(PROBLEM.phi[:3], return_interval=0.95).high).all()
    assert np.isfinite(evaluator.predict(PROBLEM.phi[:3], return_interval=0.95, method="closed_form").high).all()
    assert any("no interval" in remark for remark in evaluator.diagnostics_.remarks)


def test_sums_that_overflow_are_an_error_that_does_not_speak_of_steps() -> None:
    rows = from_arrays(np.full((5, 1), 1e150), np.ones(5), np.full((5, 1), 1e150))
    with pytest.raises(
        DivergenceError, match=r"The parameters overflowed in rows 0 to 5 with LSTD.*Scale the features and the rewards"
    ):
        vrtd.Evaluator(vrtd.LSTD(), features=None, discount=0.5).fit(rows)


@BOTH
def test_what_cannot_be_is_refused(kind: Any) -> None:
    for trace_decay in (-0.1, 1.5, np.nan, "all"):
        with pytest.raises(InvalidInputError, match=r"trace_decay must lie in \[0, 1\]"):
            kind(trace_decay)
    with pytest.raises(InvalidInputError, match="ridge must be a positive, finite number"):
        kind(ridge=0.0)


@BOTH
def test_only_a_trace_needs_a_trajectory(kind: Any) -> None:
    for sampling in ("iid", "markov", "dataset"):
        check_sampling(kind(0.0), sampling)
    check_sampling(kind(0.5), "markov")
    for sampling in ("iid", "dataset"):
        message = rf"^{kind.name} \(trace_decay 0.5, .*\) needs consecutive samples, but got sampling="
        with pytest.raises(InvalidInputError, match=message):
            check_sampling(kind(0.5), sampling)


def test_the_transcription_sees_a_trace_that_ends_nowhere() -> None:
    """The planted bug of every comparison above: the carry of the sample before is forgotten."""
    rows = some_rows(40, 4)
    found = learn(learner(vrtd.LSTD(0.7, 0.5), 4), with_columns(rows, ends=rows.discount == 0.0))
    expected = least_squares.lstd(
        vrtd.LSTD(0.7, 0.5), "markov", drawer(rows), AlgorithmIndex(3, 0), np.linspace(-1.0, 1.0, 4), 40
    )[-1]
    assert np.abs(found.theta - expected).max() > 1e-3


@pytest.mark.parametrize("first", [0.0, 1e-20])
def test_a_small_pivot_is_not_divided_by(first: float) -> None:
    A = np.array([[first, 1.0, 2.0], [1.0, 1.0, 0.5], [2.0, 0.0, 1.0]])
    x = np.array([1.0, 2.0, 3.0])
    solved = A @ x
    solve_in_place(A.ravel(), solved)
    np.testing.assert_allclose(solved, x, rtol=1e-13)
