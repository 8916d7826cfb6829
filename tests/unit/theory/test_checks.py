"""What is too large for exact moments is refused at once, before anything of that size is built."""

import time
import tracemalloc

import numpy as np
import pytest

import vrtd
from vrtd.cli import main
from vrtd.errors import InvalidInputError
from vrtd.problems import LinearProblem, Transitions
from vrtd.theory import (
    approximation_limit,
    exact_curve,
    instance_optimal,
    phase_diagram,
    stability_limit,
    stationary_second_moment,
    td_iid_moments,
    vrtd_iid_moments,
)
from vrtd.theory.increments import correlated_increments
from vrtd.theory.limits import optimal_error


def random_problem(n_states, d):
    rng = np.random.default_rng(0)
    P = rng.random((n_states, n_states))
    P /= P.sum(axis=1, keepdims=True)
    return LinearProblem(vrtd.MarkovRewardProcess(P, rng.random(n_states), 0.9), rng.normal(size=(n_states, d)))


WIDE = random_problem(200, 150)
ZEROS = np.zeros(150)
MANY, SEARCH = (
    "limited to (64|32) features, but there are 150. Simulate instead",
    'limited to 16 features, but there are .*[.] Use .*mode="guaranteed"',
)
SWEEP = r"transitions x \(features \+ 1\)\^2 must be at most"
SAMPLE = Transitions(np.eye(200)[np.arange(5000) % 200], np.ones(5000), np.eye(200)[(np.arange(5000) + 1) % 200], 0.9)


def narrow(d):
    return LinearProblem(WIDE.mrp, WIDE.phi[:, :d])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: exact_curve(WIDE, vrtd.TD(1e-4), sampling="iid", n_gradients=100), MANY),
        (lambda: exact_curve(WIDE, vrtd.TD(1e-4), n_gradients=100), MANY),
        (lambda: exact_curve(WIDE, vrtd.TD(1e-4, average=True), n_gradients=100), MANY),
        (lambda: exact_curve(WIDE, vrtd.VRTD(1e-4, 5), sampling="iid", n_gradients=100), MANY),
        (lambda: exact_curve(WIDE, vrtd.VRTD(1e-4, 5), n_gradients=100), MANY),
        (lambda: td_iid_moments(WIDE, 0.1, 3, ZEROS), MANY),
        (lambda: vrtd_iid_moments(WIDE, 0.1, 3, 3, ZEROS), MANY),
        (lambda: stationary_second_moment(WIDE, 0.1), MANY),
        (lambda: stationary_second_moment(WIDE, 0.1, sampling="markov"), MANY),
        (lambda: stability_limit(WIDE), MANY),
        (lambda: stability_limit(WIDE, "markov"), MANY),
        (lambda: stability_limit(WIDE, "markov", 5), MANY),
        (lambda: approximation_limit(WIDE), MANY),
        (lambda: vrtd.plan(narrow(120), budget=1000), SEARCH),
        (lambda: vrtd.plan(narrow(120), budget=1000, sampling="iid"), SEARCH),
        (lambda: vrtd.plan(narrow(120), target_error=0.1), SEARCH),
        (lambda: vrtd.plan(SAMPLE, budget=1000), SEARCH),
        (lambda: phase_diagram(WIDE, budget=1000), SEARCH),
        (lambda: phase_diagram(WIDE, budget=1000, sampling="iid"), SEARCH),
        # Fewer features on a chain with many transitions.
        (lambda: exact_curve(narrow(60), vrtd.TD(1e-4), n_gradients=100), SWEEP),
        (lambda: stability_limit(narrow(60), "markov"), SWEEP),
        (lambda: vrtd.plan(narrow(16), budget=1000), SWEEP),
        (lambda: exact_curve(narrow(30), vrtd.TD(1e-4)), "limited to 780 updates, but there are 100000"),
        (
            lambda: exact_curve(narrow(9), vrtd.TD(vrtd.Harmonic(1, 10)), n_gradients=7501),
            "limited to 7500 updates, but there are 7501. Simulate instead",
        ),
    ],
)
def test_what_is_too_large_is_refused_at_once(call, message):
    WIDE.theta_star  # noqa: B018  # what is timed is the theory
    begin = time.process_time()
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInputError, match=message):
            call()
        assert tracemalloc.get_traced_memory()[1] < 1e8  # d^4/4 numbers of 150 features are 1e9 bytes
    finally:
        tracemalloc.stop()
    assert time.process_time() - begin < 4.0  # on any machine; about 0.3 seconds


def test_the_command_refuses_at_once(capsys):
    assert main(["plan", "--states", "150", "--features", "120", "--budget", "1000"]) != 0
    assert "limited to 16 features, but there are 120" in capsys.readouterr().err


def test_a_guaranteed_plan_has_no_limit_of_features():
    problem = LinearProblem(WIDE.mrp, WIDE.phi[:, :40] / np.linalg.norm(WIDE.phi, axis=1).max())
    initial = (problem.theta_star**2).sum()
    assert vrtd.plan(problem, target_error=initial / 2, sampling="iid", mode="guaranteed").td is not None


def test_the_optimal_error_has_no_limit_of_features():
    """It takes matrices of d x d only, and is the same as from all moments."""
    assert instance_optimal(WIDE) > 0.0
    assert instance_optimal(WIDE, "iid") > 0.0
    small = random_problem(20, 5)
    assert instance_optimal(small) == pytest.approx(optimal_error(correlated_increments(small)), rel=1e-11)
