"""What a bound says when its conditions fail, and what it refuses."""

import math
import re
from functools import partial

import numpy as np
import pytest

from tests.helpers.chains import COIN, SIGNS, TWO_STATES
from vrtd.errors import InvalidInputError, SingularSystemError
from vrtd.problems import LinearProblem, MarkovRewardProcess, random_mdp
from vrtd.theory.bounds import td_iid_bound, td_markov_bound, vrtd_iid_bound, vrtd_markov_bound
from vrtd.theory.complexity import vrtd_iid_complexity, vrtd_markov_complexity
from vrtd.theory.lemmas import batch_bias_inequality, epoch_inequality_iid, mixing_inequalities


def test_the_curve_starts_above_the_initial_error_and_is_read_only():
    bound = td_iid_bound(COIN, 0.1, [2.0], form="sharp")
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
        lambda theta_0: vrtd_iid_bound(COIN, 0.3, 10, theta_0, form="printed"),  # no denominator
        lambda theta_0: vrtd_iid_bound(COIN, 0.02, 10, theta_0, form="printed"),  # batch too small
        lambda theta_0: vrtd_iid_bound(COIN, 1.0 / 9.0, 10, theta_0, form="printed"),  # the denominator vanishes
        lambda theta_0: vrtd_iid_bound(COIN, 0.3, 10, theta_0, form="corrected"),
        lambda theta_0: vrtd_iid_bound(COIN, 0.02, 10, theta_0, form="corrected"),
        lambda theta_0: vrtd_iid_bound(COIN, 5.0, 10, theta_0, form="sharp"),
        lambda theta_0: vrtd_iid_bound(SIGNS, 1.5, 10, theta_0, form="sharp"),  # C0 + p above 1
        lambda theta_0: vrtd_markov_bound(COIN, 0.3, 10, theta_0, form="printed"),
        lambda theta_0: vrtd_markov_bound(COIN, 0.01, 10, theta_0, form="corrected"),
        lambda theta_0: td_iid_bound(COIN, 3.0, theta_0, form="printed"),
        lambda theta_0: td_iid_bound(COIN, 4.0, theta_0, form="sharp"),
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


WITH_RADIUS = [
    (function, form) for function in (vrtd_iid_bound, vrtd_markov_bound) for form in ("printed", "corrected")
]
BIG = random_mdp()
PERIODIC = LinearProblem(MarkovRewardProcess([[0, 1], [1, 0]], [1.0, 0.0], 0.5), [[1.0], [0.5]])
WEIGHTED = LinearProblem(TWO_STATES.mrp, [[1.0], [0.5]], [0.5, 0.5])


@pytest.mark.parametrize(
    ("bound", "reason"),
    [
        (
            vrtd_iid_bound(BIG, 1e-5, 10**8, np.zeros(4), form="corrected"),
            r"Assumption 2\): the largest norm is 1\.59588; divide",
        ),
        (
            vrtd_iid_bound(TWO_STATES, 1e-3, 10**6, [0.0], 0.1, form="corrected"),
            r"\|theta_star\| <= radius: \|theta_star\| is .* raise",
        ),
        (
            vrtd_iid_bound(COIN, 0.03, 10**6, [0.0], form="corrected"),
            r"step_size < lambda_A/\(16 \(1 \+ gamma\)\^2\): .*0\.03 against 0\.0277778; lower step_size to below",
        ),
        (
            vrtd_iid_bound(COIN, 0.03, 10**6, [0.0], form="corrected"),
            "batch_size is 1000000 against inf; lower step_size first",
        ),
        (
            vrtd_iid_bound(COIN, 0.02, 100, [0.0], form="corrected"),
            r"batch_size is 100 against 422\.714; raise batch_size to 423",
        ),
        (vrtd_iid_bound(PERIODIC, 1e-3, 10**6, [0.0], form="printed"), r"\(Assumption 3\): period 2"),
        (vrtd_iid_bound(COIN, 5.0, 10, [0.0], form="sharp"), r"step_size < lambda_A/\(eta \+ nu\)"),
        (
            vrtd_iid_bound(SIGNS, 1.5, 10, [0.0], form="sharp"),
            r"C0 \+ p < 1: C0 \+ p is 2\.79914 against 1; lower step_size or raise",
        ),
        (
            vrtd_markov_bound(WEIGHTED, 1e-3, 10**7, [0.0], form="corrected"),
            r"total variation distance 0\.0714; leave state_dist",
        ),
        (
            vrtd_markov_bound(TWO_STATES, 1e-3, 10**7, [50.0], 20.0, form="corrected"),
            r"\|theta_0\| is 50 against 20; raise radius to 50",
        ),
        (
            td_iid_bound(COIN, 0.2, [0.0], form="printed"),
            r"step_size <= lambda_A/\(4 .*0\.2 against 0\.111111; lower step_size to",
        ),
        (td_iid_bound(COIN, 4.0, [0.0], form="sharp"), r"step_size < lambda_A/q: step_size is 4 against 4; lower"),
        (td_markov_bound(COIN, 1.5, [0.0]), r"step_size <= 1/lambda_A: .*1\.5 against 1; lower step_size to 1"),
    ],
)
def test_each_failing_condition_is_named(bound, reason):
    text = " | ".join(bound.reasons)
    assert re.search(reason, text), text
    assert not bound.valid


def test_numbers_are_still_given_when_only_an_assumption_fails():
    bound = vrtd_iid_bound(BIG, 1e-6, 10**9, np.zeros(4), form="corrected")
    assert not bound.valid
    assert 0.0 < bound.rate < 1.0
    assert math.isfinite(bound.floor)


def test_radius_defaults():
    star = float(np.linalg.norm(TWO_STATES.theta_star))
    for form in ("printed", "corrected"):
        settings = TWO_STATES, 1e-3, 10
        assert vrtd_iid_bound(*settings, [0.0], form=form) == vrtd_iid_bound(*settings, [0.0], star, form=form)
        assert vrtd_markov_bound(*settings, [30.0], form=form) == vrtd_markov_bound(*settings, [30.0], 30.0, form=form)
    assert td_markov_bound(TWO_STATES, 1e-3, [0.0]) == td_markov_bound(TWO_STATES, 1e-3, [0.0], star)


@pytest.mark.parametrize(("function", "form"), [*WITH_RADIUS, (vrtd_iid_bound, "sharp")])
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
def test_bad_arguments_of_vrtd_bounds_are_refused(function, form, a, M, theta_0, message):
    with pytest.raises(InvalidInputError, match=message):
        function(COIN, a, M, theta_0, form=form)


@pytest.mark.parametrize(
    "function", [partial(td_iid_bound, form="printed"), partial(td_iid_bound, form="sharp"), td_markov_bound]
)
def test_bad_arguments_of_td_bounds_are_refused(function):
    with pytest.raises(InvalidInputError, match="step_size must be a positive, finite number; got 0"):
        function(COIN, 0, [0.0])
    with pytest.raises(InvalidInputError, match=r"theta_0 must have the shape \(1,\)"):
        function(COIN, 0.1, 0.0)


@pytest.mark.parametrize(("function", "form"), WITH_RADIUS)
def test_a_bad_radius_is_refused(function, form):
    with pytest.raises(InvalidInputError, match="radius must be a positive, finite number; got -1"):
        function(COIN, 0.1, 2, [0.0], -1, form=form)


def test_the_sharp_form_has_no_radius():
    with pytest.raises(InvalidInputError, match=r'radius must be left out with form="sharp"; got 1\.0; drop it'):
        vrtd_iid_bound(COIN, 0.1, 2, [0.0], 1.0, form="sharp")


@pytest.mark.parametrize(
    ("function", "form", "message"),
    [
        (partial(vrtd_iid_bound, COIN, 0.1, 2, [0.0]), "repaired", "one of 'printed', 'corrected', 'sharp'; got 'rep"),
        (partial(vrtd_markov_bound, COIN, 0.1, 2, [0.0]), "sharp", "one of 'printed', 'corrected'; got 'sharp'"),
        (partial(td_iid_bound, COIN, 0.1, [0.0]), "corrected", "one of 'printed', 'sharp'; got 'corrected'"),
        (partial(vrtd_iid_complexity, COIN, 0.1, [0.0]), "sharp", "one of 'printed', 'corrected'; got 'sharp'"),
        (partial(vrtd_markov_complexity, COIN, 0.1, [0.0]), "sharp", "one of 'printed', 'corrected'; got 'sharp'"),
        (partial(batch_bias_inequality, COIN, 2, [0.0]), True, "one of 'printed', 'corrected'; got True"),
        (partial(mixing_inequalities, COIN, 1), "sharp", "one of 'printed', 'corrected'; got 'sharp'"),
        (partial(epoch_inequality_iid, COIN, 0.1, 2), "sharp", "one of 'printed', 'corrected'; got 'sharp'"),
    ],
)
def test_forms_that_a_statement_does_not_have_are_refused(function, form, message):
    with pytest.raises(InvalidInputError, match=f"form must be {message}"):
        function(form=form)


def test_the_default_form_is_the_sharpest_that_is_proven():
    assert vrtd_iid_bound(COIN, 0.02, 2000, [0.0]) == vrtd_iid_bound(COIN, 0.02, 2000, [0.0], form="sharp")
    assert vrtd_markov_bound(COIN, 0.02, 2000, [0.0]) == vrtd_markov_bound(COIN, 0.02, 2000, [0.0], form="corrected")
    assert td_iid_bound(COIN, 0.1, [0.0]) == td_iid_bound(COIN, 0.1, [0.0], form="sharp")
    for function in (vrtd_iid_complexity, vrtd_markov_complexity):
        assert function(COIN, 0.1, [0.0]) == function(COIN, 0.1, [0.0], form="corrected")
    assert batch_bias_inequality(COIN, 2, [0.0]) == batch_bias_inequality(COIN, 2, [0.0], form="corrected")
    assert mixing_inequalities(COIN, 1) == mixing_inequalities(COIN, 1, form="corrected")
    assert epoch_inequality_iid(COIN, 0.1, 2) == epoch_inequality_iid(COIN, 0.1, 2, form="corrected")


def test_errors_of_the_problem_pass_through():
    singular = LinearProblem(MarkovRewardProcess([[0.7, 0.3], [0.4, 0.6]], [1.0, 2.0], np.ones((2, 2))), [[1.0], [1.0]])
    with pytest.raises(SingularSystemError, match="A must be invertible"):
        vrtd_iid_bound(singular, 0.1, 2, [0.0], form="printed")
    off_policy = LinearProblem(MarkovRewardProcess([[0, 1], [0, 1]], [0.0, 0.0], 0.9), [[1.0], [2.0]], [0.9, 0.1])
    with pytest.raises(InvalidInputError, match="negative definite"):
        vrtd_iid_bound(off_policy, 0.1, 2, [0.0], form="sharp")


@pytest.mark.parametrize("theta_0", [0.0, 1.0])
def test_bounds_of_a_trajectory_are_not_valid_on_a_periodic_chain(theta_0):
    for bound in (
        vrtd_markov_bound(PERIODIC, 0.01, 10_000, [theta_0], form="printed"),
        vrtd_markov_bound(PERIODIC, 0.01, 10_000, [theta_0], form="corrected"),
        td_markov_bound(PERIODIC, 0.01, [theta_0]),
        td_markov_bound(PERIODIC, 1.5, [theta_0]),
    ):
        assert not bound.valid
        assert any("aperiodic (Assumption 3): period 2" in reason for reason in bound.reasons)
        assert bound.floor == math.inf
    assert vrtd_iid_bound(PERIODIC, 0.001, 10**6, [theta_0], form="corrected").valid  # independent samples do not mind


def test_lemmas_of_a_trajectory_name_a_periodic_chain():
    for inequality in (batch_bias_inequality(PERIODIC, 10, [0.0]), *mixing_inequalities(PERIODIC, 3)):
        assert inequality.right == math.inf
        assert not all(condition.holds for condition in inequality.conditions)
