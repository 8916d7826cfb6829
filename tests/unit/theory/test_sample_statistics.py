"""What samples of a chain are: where they begin, their degrees of freedom, and what is refused."""

import numpy as np
import pytest
from scipy.stats import binomtest, chi2

import vrtd
from tests.helpers.statistics import FAMILY_RATE
from vrtd.errors import InvalidInputError
from vrtd.problems import LinearProblem, MarkovRewardProcess, Transitions
from vrtd.theory import autocorrelation_time
from vrtd.theory.increments import correlated_increments

TWO = MarkovRewardProcess([[0.7, 0.3], [0.4, 0.6]], [[1, 0], [0, 2]], 0.9)


@pytest.mark.statistical
def test_a_trajectory_begins_in_a_stationary_state():
    mrp = MarkovRewardProcess([[0.25, 0.75], [1.0, 0.0]], [[1.0, -2.0], [3.0, 0.0]], 0.9)
    problem = LinearProblem(mrp, [[1.0], [0.5]])
    firsts = [vrtd.record(problem, 1, seed=seed, shuffle=False).phi[0, 0] == 1.0 for seed in range(2000)]
    assert binomtest(sum(firsts), 2000, 4 / 7).pvalue > FAMILY_RATE


@pytest.mark.parametrize(("scale", "n_directions"), [(1.0, 2), (0.01, 1)])
def test_degrees_of_freedom_count_the_directions_of_the_noise(scale, n_directions):
    """Noise of two independent, equal coordinates, or with all of it in one."""
    fair = MarkovRewardProcess([[0.5, 0.5], [0.5, 0.5]], [[1.0, -1.0], [-1.0, 1.0]], 0.0)
    sample = vrtd.record(LinearProblem(fair, np.diag([1.0, scale])), 40_000, seed=1, shuffle=False)
    found = autocorrelation_time(sample, confidence=0.9)
    degrees = n_directions * (40_000 // found.block - 1)
    assert found.low == pytest.approx(found.tau * degrees / chi2.ppf(0.95, degrees), rel=0.01)
    assert found.high == pytest.approx(found.tau * degrees / chi2.ppf(0.05, degrees), rel=0.01)


def test_a_distribution_that_is_nearly_stationary_is_not():
    with pytest.raises(InvalidInputError, match="not the stationary distribution of its chain"):
        correlated_increments(LinearProblem(TWO, [[1.0], [0.5]], [4 / 7 + 1e-6, 3 / 7 - 1e-6]))


def test_a_negative_discount_is_refused():
    with pytest.raises(InvalidInputError, match=r"discount must lie in \[0, 1\], but got -0.1 in row 0"):
        Transitions(np.eye(2), [1.0, 2.0], np.eye(2), -0.1)
