"""How often intervals hold the truth, small: `benchmarks/intervals.py` does it at full size.

Each case is a family of its own. Counted is one functional, the value in the mean over states, so that replications are
independent trials; limits are binomial at the nominal rate.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, chi2

import vrtd
from tests.helpers.sparse import random_rows
from tests.helpers.statistics import FAMILY_RATE
from vrtd.errors import ConvergenceWarning
from vrtd.logs import Chunk, from_arrays

LEVEL = 0.95


def random_chain() -> tuple[vrtd.LinearProblem, float]:
    return vrtd.problems.random_mdp(seed=7), 0.95


def boyan() -> tuple[vrtd.LinearProblem, float]:
    return vrtd.problems.boyan_chain(), 1.0


def lake() -> tuple[vrtd.LinearProblem, float]:
    chain = vrtd.problems.restart_chain("FrozenLake-v1", "random", 0.9)
    return vrtd.LinearProblem(chain.mrp, np.eye(chain.states.size)), 0.9


def trial(problem: vrtd.LinearProblem, discount: float, algorithm: Any, n_rows: int, seed: int) -> tuple[float, float]:
    """(error, half-width) of the mean value; nan where the run says that it has not converged."""
    mrp, phi = problem.mrp, problem.phi
    index = np.arange(1.0, mrp.n_states + 1.0)[:, None]  # a feature that names the state, never 0
    s = vrtd.record(vrtd.LinearProblem(mrp, index), n_rows, seed=seed, shuffle=False)
    now, then = (rows[:, 0].astype(int) - 1 for rows in (s.phi, s.phi_next))
    rows = Chunk(phi[now], s.reward, phi[then], np.asarray(s.discount) == 0.0, np.zeros(n_rows, bool))
    evaluator = vrtd.Evaluator(algorithm, features=None, discount=discount, seed=seed).fit(rows)
    mean = mrp.stationary @ phi
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        try:
            found = evaluator.spread().of(mean[None], LEVEL)
        except ConvergenceWarning:
            return np.nan, np.nan
    truth = mean @ problem.theta_star
    return float(found.value[0] - truth), float(found.high[0] - found.low[0]) / 2


CASES: dict[str, tuple[Any, Any, int, int]] = {
    "closed form, random chain": (random_chain, "closed_form", 5000, 200),
    "closed form, lake": (lake, "closed_form", 20_000, 80),
    "vrtd, random chain": (random_chain, vrtd.VRTD(0.01, 2000, output="average"), 10_000, 80),
    "vrtd, Boyan": (boyan, vrtd.VRTD(0.02, 2000, output="average"), 10_000, 80),
    "extrapolated td, random chain": (random_chain, "richardson_td", 5000, 120),
    "growing vrtd, Boyan": (boyan, vrtd.VRTD(0.2, 500, growth=2.0, n_steps=500), 5000, 120),
}


def is_fine(error: Any, width: Any) -> bool:
    """By the number of hits, and by the sum of squared z, which sees a wrong width sooner."""
    n, hits, squares = error.size, int((np.abs(error) <= width).sum()), float(np.square(1.96 * error / width).sum())
    tails = binom.cdf(hits, n, LEVEL), binom.sf(hits - 1, n, LEVEL), chi2.cdf(squares, n), chi2.sf(squares, n)
    return bool(min(tails) > FAMILY_RATE / 4)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_intervals_hold_the_truth_as_often_as_they_say(case: Any) -> None:
    make, algorithm, n_rows, n_trials = case
    problem, discount = make()
    found = np.array([trial(problem, discount, algorithm, n_rows, seed) for seed in range(n_trials)])
    error, half = found[np.isfinite(found[:, 0])].T
    assert error.size > 0.9 * n_trials
    assert is_fine(error, half)
    assert not is_fine(error, half / 2)  # a covariance that is four times too small is seen


def test_intervals_of_sparse_rows_hold_the_truth_as_often_as_they_say() -> None:
    """Counted is the value of one state in each log, each of which has other parameters."""
    found, n = [], 12_000
    for seed in range(80):
        rows, values = random_rows(n + 1, 520, 4, seed)
        reward = values[:-1] - 0.5 * values[1:] + np.random.default_rng((seed, 1)).normal(size=n)
        log = from_arrays(rows[:-1], reward, rows[1:])
        evaluator = vrtd.Evaluator(features="identity", discount=0.5).fit(log)
        value, low, high = (each[0] for each in evaluator.predict(rows[:1], return_interval=LEVEL))
        found.append((value - values[0], (high - low) / 2))
    error, half = np.array(found).T
    assert is_fine(error, half)
    assert not is_fine(error, half / 2)
