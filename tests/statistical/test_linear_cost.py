"""The error of learning with O(d) work per row beside that of least squares on the same rows: `benchmarks/auto.py` does
it at full size. Both methods are one family."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers.statistics import t_limit
from vrtd.errors import ConvergenceWarning
from vrtd.estimator.sample_inverse import SampleInverse
from vrtd.logs import Chunk

METHODS = ("richardson_td", "vrtd")
N_ROWS, N_RUNS, MOST = 3000, 60, 1.5


def errors(algorithm: str, cost: Any) -> Any:
    """Mean squared error of the values in each of several independent trajectories of Boyan's chain."""
    problem, found = vrtd.problems.boyan_chain(), []
    for seed in range(N_RUNS):
        s = vrtd.record(problem, N_ROWS, seed=seed, shuffle=False)
        rows = Chunk(s.phi, s.reward, s.phi_next, np.asarray(s.discount) == 0.0, np.zeros(N_ROWS, bool))
        evaluator = vrtd.Evaluator(algorithm, features=None, discount=1.0, cost=cost, seed=seed).fit(rows)
        u = problem.phi @ (evaluator.theta_ - problem.theta_star)
        found.append(problem.mrp.stationary @ u**2)
    return np.array(found)


@cache
def least_squares() -> Any:
    return errors("closed_form", "auto")


def is_near(found: Any) -> bool:
    """Whether the errors may be, in the mean, at most `MOST` times those of least squares: one-sided, by pairs."""
    excess = found - MOST * least_squares()
    return bool(excess.mean() / (excess.std(ddof=1) / np.sqrt(N_RUNS)) < t_limit(len(METHODS), N_RUNS))


@pytest.mark.parametrize("algorithm", METHODS)
def test_errors_are_near_those_of_least_squares(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Estimates that are corrected in the wrong direction are far away, which is seen."""
    assert is_near(errors(algorithm, "linear"))
    invert = SampleInverse.__call__
    monkeypatch.setattr(SampleInverse, "__call__", lambda inverse, vectors: -invert(inverse, vectors))
    with pytest.warns(ConvergenceWarning, match="Not converged"):
        assert not is_near(errors(algorithm, "linear"))
