"""Errors after any number of epochs, and the first that is small enough, against sequences written out."""

from math import inf

import numpy as np
import pytest

import vrtd
from vrtd.theory.markov import MarkovTD
from vrtd.theory.orbits import Orbit, markov_td_orbit
from vrtd.theory.predictions import BoundErrors
from vrtd.theory.statements import Bound, Condition

T, TRACE = np.array([[0.5, 1.0], [0.0, 1.0]]), np.array([1.0, 0.0])  # e -> e/2 + 1


def written_out(n_early, n=40):
    errors = [100.0]
    for _ in range(n):
        errors.append(errors[-1] / 2.0 + 1.0)
    orbit = Orbit(np.array(errors[: n_early + 1]), np.array([errors[n_early], 1.0]), T, TRACE)
    return errors, orbit


@pytest.mark.parametrize("n_early", [0, 1, 3, 10])
def test_errors_are_those_of_the_sequence(n_early):
    errors, orbit = written_out(n_early)
    assert [orbit.error(k) for k in range(41)] == pytest.approx(errors)


@pytest.mark.parametrize("n_early", [0, 1, 3, 10])
@pytest.mark.parametrize("target", [200.0, 99.0, 51.0, 30.0, 7.0, 3.0, 2.1, 2.0 + 1e-9, 2.0, 1.0])
def test_the_first_below_is_the_first_of_the_sequence(n_early, target):
    errors, orbit = written_out(n_early)
    for most in (*range(16), 40):
        expected = next((k for k in range(most + 1) if errors[k] <= target), None)
        assert orbit.first_below(target, most) == expected


def test_what_overflows_is_infinite_and_never_below():
    growing = Orbit(np.array([1.0]), np.array([1.0, 1.0]), 1e100 * np.eye(2), np.array([1.0, -1.0]))
    assert growing.error(5) == inf  # inf - inf
    assert growing.error(1) == 0.0


def bound(rate, floor, initial, holds=True):
    return Bound("a test", "update", "", (Condition("it holds", holds, ""),), (), rate, initial, floor, 0.0)


@pytest.mark.parametrize("target", [200.0, 50.0, 30.0, 7.0, 2.1, 1.0])
@pytest.mark.parametrize("most", [0, 1, 5, 100])
def test_a_bound_predicts_itself_where_it_is_valid(target, most):
    found = BoundErrors(bound(0.5, 2.0, 64.0))
    errors = [64.0 * 0.5**k + 2.0 for k in range(most + 1)]
    assert [found.error(k) for k in range(most + 1)] == errors
    assert found.first_below(target, most) == next((k for k, error in enumerate(errors) if error <= target), None)
    for nothing in (BoundErrors(bound(0.5, 2.0, 64.0, holds=False)), BoundErrors(bound(inf, inf, 64.0))):
        assert nothing.error(3) == inf
        assert nothing.first_below(target, most) is None


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_a_small_chain_that_mixes_too_slowly_is_followed_densely():
    slow = vrtd.MarkovRewardProcess([[1.0 - 1e-5, 1e-5], [2e-5, 1.0 - 2e-5]], [1.0, -1.0], 0.9)
    recursion = MarkovTD(vrtd.LinearProblem(slow, [[1.0], [0.5]]))
    assert recursion.until_slow(recursion.start(np.zeros(1), slow.stationary), 0.05, 200) is None
    orbit = markov_td_orbit(recursion, 0.05, np.zeros(1), slow.stationary)
    assert orbit is not None
    Y = recursion.update(recursion.start(np.zeros(1), slow.stationary), 0.05, 1000)
    assert orbit.error(1000) == pytest.approx(Y.sum(axis=0)[0, 0], rel=1e-9)


def test_a_dense_orbit_does_not_drift():
    P = [[1 - 1 / 3e4, 1 / 3e4, 0], [0, 1 - 1 / 7e4, 1 / 7e4], [1 / 9e4, 0, 1 - 1 / 9e4]]
    mrp = vrtd.MarkovRewardProcess(P, [1.0, -1.0, 0.5], 0.9)
    recursion = MarkovTD(vrtd.LinearProblem(mrp, [[1.0], [0.5], [-0.3]]))
    orbit = markov_td_orbit(recursion, 0.05, np.zeros(1), mrp.stationary)
    assert orbit.error(10**15) == pytest.approx(recursion.stationary(0.05).item(), rel=1e-6)
