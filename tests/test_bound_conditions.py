"""What a bound says when its conditions fail, and what it refuses."""

import math
import re

import numpy as np
import pytest

from tests.chains import COIN, SIGNS, TWO_STATES
from vrtd.errors import InvalidInputError, SingularSystemError
from vrtd.linear_system import LinearSystem
from vrtd.problems import MarkovRewardProcess, random_mdp
from vrtd.theory.bounds import (
    td_iid_bound,
    td_iid_sharp,
    td_markov_bound,
    theorem1,
    theorem1_corrected,
    theorem1_sharp,
    theorem2,
    theorem2_repaired,
)
from vrtd.theory.lemmas import lemma1, lemma5


def test_the_curve_starts_above_the_initial_error_and_is_read_only():
    bound = td_iid_sharp(COIN, 0.1, [2.0])
    curve = bound.curve(3)
    assert curve == pytest.approx(4.0 * bound.rate ** np.arange(4) + bound.floor)
    assert curve[0] >= bound.initial
    assert not curve.flags.writeable
    assert bound.curve(0).shape == (1,)
    with pytest.raises(InvalidInputError, match="n must be a whole number of at least 0; got -1"):
        bound.curve(-1)


@pytest.mark.parametrize("theta_0", [[0.0], [1.0]])
@pytest.mark.parametrize(
    "bound_of",
    [
        lambda theta_0: theorem1(COIN, 0.3, 10, theta_0),  # no denominator
        lambda theta_0: theorem1(COIN, 0.02, 10, theta_0),  # batch too small
        lambda theta_0: theorem1(COIN, 1.0 / 9.0, 10, theta_0),  # the denominator vanishes
        lambda theta_0: theorem1_corrected(COIN, 0.3, 10, theta_0),
        lambda theta_0: theorem1_corrected(COIN, 0.02, 10, theta_0),
        lambda theta_0: theorem1_sharp(COIN, 5.0, 10, theta_0),
        lambda theta_0: theorem1_sharp(SIGNS, 1.5, 10, theta_0),  # C0 + p above 1
        lambda theta_0: theorem2(COIN, 0.3, 10, theta_0),
        lambda theta_0: theorem2_repaired(COIN, 0.01, 10, theta_0),
        lambda theta_0: td_iid_bound(COIN, 3.0, theta_0),
        lambda theta_0: td_iid_sharp(COIN, 4.0, theta_0),
        lambda theta_0: td_markov_bound(COIN, 3.0, theta_0),
    ],
)
def test_without_contraction_there_is_no_number(bound_of, theta_0):
    bound = bound_of(theta_0)
    assert bound.rate == bound.floor == math.inf
    assert not bound.valid
    curve = bound.curve(3)
    assert curve[0] == bound.initial
    assert (curve[1:] == math.inf).all()


BIG = LinearSystem(*random_mdp())
PERIODIC = LinearSystem(MarkovRewardProcess([[0, 1], [1, 0]], [1.0, 0.0], 0.5), [[1.0], [0.5]])
WEIGHTED = LinearSystem(TWO_STATES.mrp, [[1.0], [0.5]], [0.5, 0.5])


@pytest.mark.parametrize(
    ("bound", "reason"),
    [
        (theorem1_corrected(BIG, 1e-5, 10**8, np.zeros(4)), r"Assumption 2\): the largest norm is 1\.59588; divide"),
        (
            theorem1_corrected(TWO_STATES, 1e-3, 10**6, [0.0], 0.1),
            r"\|theta_star\| <= radius: \|theta_star\| is .* raise",
        ),
        (
            theorem1_corrected(COIN, 0.03, 10**6, [0.0]),
            r"step_size < lambda_A/\(16 \(1 \+ gamma\)\^2\): .*0\.03 against 0\.0277778; lower step_size to below",
        ),
        (theorem1_corrected(COIN, 0.03, 10**6, [0.0]), "batch_size is 1000000 against inf; lower step_size first"),
        (theorem1_corrected(COIN, 0.02, 100, [0.0]), r"batch_size is 100 against 422\.714; raise batch_size to 423"),
        (theorem1(PERIODIC, 1e-3, 10**6, [0.0]), r"\(Assumption 3\): period 2"),
        (theorem1_sharp(COIN, 5.0, 10, [0.0]), r"step_size < lambda_A/\(eta \+ nu\)"),
        (
            theorem1_sharp(SIGNS, 1.5, 10, [0.0]),
            r"C0 \+ p < 1: C0 \+ p is 2\.79914 against 1; lower step_size or raise",
        ),
        (theorem2_repaired(WEIGHTED, 1e-3, 10**7, [0.0]), r"total variation distance 0\.0714; leave state_dist"),
        (theorem2_repaired(TWO_STATES, 1e-3, 10**7, [50.0], 20.0), r"\|theta_0\| is 50 against 20; raise radius to 50"),
        (
            td_iid_bound(COIN, 0.2, [0.0]),
            r"step_size <= lambda_A/\(4 .*0\.2 against 0\.111111; lower step_size to",
        ),
        (td_iid_sharp(COIN, 4.0, [0.0]), r"step_size < lambda_A/q: step_size is 4 against 4; lower"),
        (td_markov_bound(COIN, 1.5, [0.0]), r"step_size <= 1/lambda_A: .*1\.5 against 1; lower step_size to 1"),
    ],
)
def test_each_failing_condition_is_named(bound, reason):
    text = " | ".join(bound.reasons)
    assert re.search(reason, text), text
    assert not bound.valid


def test_numbers_are_still_given_when_only_an_assumption_fails():
    bound = theorem1_corrected(BIG, 1e-6, 10**9, np.zeros(4))
    assert not bound.valid
    assert 0.0 < bound.rate < 1.0
    assert math.isfinite(bound.floor)


def test_radius_defaults():
    star = float(np.linalg.norm(TWO_STATES.theta_star))
    assert theorem1(TWO_STATES, 1e-3, 10, [0.0]) == theorem1(TWO_STATES, 1e-3, 10, [0.0], star)
    assert theorem2(TWO_STATES, 1e-3, 10, [30.0]) == theorem2(TWO_STATES, 1e-3, 10, [30.0], 30.0)
    assert td_markov_bound(TWO_STATES, 1e-3, [0.0]) == td_markov_bound(TWO_STATES, 1e-3, [0.0], star)


@pytest.mark.parametrize("function", [theorem1, theorem1_corrected, theorem1_sharp, theorem2, theorem2_repaired])
@pytest.mark.parametrize(
    ("a", "M", "theta_0", "message"),
    [
        (-0.1, 2, [0.0], r"step_size must be a positive, finite number; got -0\.1"),
        (math.nan, 2, [0.0], "step_size must be a positive, finite number; got nan"),
        (0.1, 0, [0.0], "batch_size must be a whole number of at least 1; got 0"),
        (0.1, 2.5, [0.0], r"batch_size must be a whole number of at least 1; got 2\.5"),
        (0.1, 2, [0.0, 0.0], r"theta_0 must have the shape \(1,\); got \(2,\)"),
        (0.1, 2, [math.inf], "theta_0 must be finite"),
    ],
)
def test_bad_arguments_of_vrtd_bounds_are_refused(function, a, M, theta_0, message):
    with pytest.raises(InvalidInputError, match=message):
        function(COIN, a, M, theta_0)


@pytest.mark.parametrize("function", [td_iid_bound, td_iid_sharp, td_markov_bound])
def test_bad_arguments_of_td_bounds_are_refused(function):
    with pytest.raises(InvalidInputError, match="step_size must be a positive, finite number; got 0"):
        function(COIN, 0, [0.0])
    with pytest.raises(InvalidInputError, match=r"theta_0 must have the shape \(1,\)"):
        function(COIN, 0.1, 0.0)


@pytest.mark.parametrize("function", [theorem1, theorem1_corrected, theorem2, theorem2_repaired])
def test_a_bad_radius_is_refused(function):
    with pytest.raises(InvalidInputError, match="radius must be a positive, finite number; got -1"):
        function(COIN, 0.1, 2, [0.0], -1)


def test_errors_of_the_system_pass_through():
    singular = LinearSystem(MarkovRewardProcess([[0.7, 0.3], [0.4, 0.6]], [1.0, 2.0], np.ones((2, 2))), [[1.0], [1.0]])
    with pytest.raises(SingularSystemError, match="A must be invertible"):
        theorem1(singular, 0.1, 2, [0.0])
    off_policy = LinearSystem(MarkovRewardProcess([[0, 1], [0, 1]], [0.0, 0.0], 0.9), [[1.0], [2.0]], [0.9, 0.1])
    with pytest.raises(InvalidInputError, match="negative definite"):
        theorem1_sharp(off_policy, 0.1, 2, [0.0])


@pytest.mark.parametrize("theta_0", [0.0, 1.0])
def test_bounds_of_a_trajectory_are_not_valid_on_a_periodic_chain(theta_0):
    for bound in (
        theorem2(PERIODIC, 0.01, 10_000, [theta_0]),
        theorem2_repaired(PERIODIC, 0.01, 10_000, [theta_0]),
        td_markov_bound(PERIODIC, 0.01, [theta_0]),
        td_markov_bound(PERIODIC, 1.5, [theta_0]),
    ):
        assert not bound.valid
        assert any("aperiodic (Assumption 3): period 2" in reason for reason in bound.reasons)
        assert bound.floor == math.inf
    assert theorem1_corrected(PERIODIC, 0.001, 10**6, [theta_0]).valid  # independent samples do not mind


def test_lemmas_of_a_trajectory_name_a_periodic_chain():
    for inequality in (lemma1(PERIODIC, 10, [0.0]), *lemma5(PERIODIC, 3)):
        assert inequality.right == math.inf
        assert not all(condition.holds for condition in inequality.conditions)
