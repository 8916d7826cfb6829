"""Exact curves at their limits: what has none, what overflows, and the longest."""

import numpy as np
import pytest

import vrtd
from vrtd.errors import InvalidInputError
from vrtd.theory import exact_curve
from vrtd.theory.markov import MarkovTD

PROBLEM = vrtd.problems.random_mdp()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: exact_curve(PROBLEM, vrtd.VRTD(0.1, 5), initial=3),
            'initial must be "stationary" for the approximation of Algorithm 2, but is 3',
        ),
        (
            lambda: exact_curve(PROBLEM, vrtd.VRTD(0.1, 2, inner="resample"), sampling="iid"),
            "inner='resample' was combined with iid samples",
        ),
    ],
)
def test_what_has_no_curve_is_refused(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()


def test_a_mean_is_not_shown_where_the_error_has_overflowed():
    named = {"sampling": "iid", "n_gradients": 20_000, "checkpoints": np.arange(0, 20_001)}
    gone = int(exact_curve(PROBLEM, vrtd.TD(1.3), **named).diverged_at[0])
    curve = exact_curve(PROBLEM, vrtd.TD(1.3), **named | {"n_gradients": gone, "checkpoints": [gone]})
    assert curve.diverged_at[0] == gone
    assert np.isnan(curve.theta).all()


def test_the_longest_curve_of_a_large_chain_does_not_drift():
    curve = exact_curve(PROBLEM, vrtd.TD(0.1), n_gradients=2**53, checkpoints=2)
    limit = MarkovTD(PROBLEM).stationary(0.1).trace()
    assert curve.values("squared_error")[0, -1] == pytest.approx(limit, rel=1e-9)
