"""The doubly robust value of a target policy notices features that miss something, and only those."""

from __future__ import annotations

import json
import warnings
from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers.decision_processes import random_policy, random_process, without_propensity
from tests.helpers.statistics import t_limit
from vrtd.errors import DataWarning
from vrtd.features import Polynomial, Standardised
from vrtd.logs import Chunk

PROCESS, BEHAVIOUR, TARGET = random_process(0), random_policy(1), random_policy(2)
_, Q, J = PROCESS.values(TARGET)
ENOUGH = np.column_stack([np.ones(5), Q])  # represents Q(s, a) of each action
TOO_FEW = np.random.default_rng(0).normal(size=(5, 3))


def fit(rows: Chunk, features: Any, target: Any = TARGET, discount: float = 0.9) -> Any:
    return vrtd.Evaluator(features=features, discount=discount, target=target).fit(rows).diagnostics_


@pytest.mark.filterwarnings("ignore:the features do not represent which")
@pytest.mark.parametrize("has_propensity", [False, True])
def test_a_planted_misfit_is_noticed(has_propensity: bool) -> None:
    log = PROCESS.record(BEHAVIOUR, 4000, seed=7)[0]
    with pytest.warns(DataWarning, match="The features do not represent the values of the target policy"):
        diagnostics = fit(log if has_propensity else without_propensity(log), TOO_FEW)
    check = diagnostics.doubly_robust
    assert not check.agrees
    assert not check.low < check.plug_in < check.high
    assert abs(check.value - J) < check.high - check.low < abs(check.plug_in - J)
    plain = json.loads(json.dumps(diagnostics.as_dict(), allow_nan=False))
    assert plain["doubly_robust"]["plug_in"] == check.plug_in
    assert check.doubt in plain["warnings"]
    assert check.describe()["Verdict"].startswith("they differ")


def test_the_correction_has_mean_0_where_features_suffice() -> None:
    """Two random statistics; `agrees` has a level of 0.999, so that a few may disagree."""
    checks = []
    for rows in PROCESS.record(BEHAVIOUR, 1000, seed=8, n_logs=40):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)
            checks.append(fit(without_propensity(rows), ENOUGH).doubly_robust)
    corrections = np.array([check.value - check.plug_in for check in checks])
    score = corrections.mean() / (corrections.std(ddof=1) / np.sqrt(len(corrections)))
    assert abs(score) < t_limit(2, len(corrections))
    assert sum(not check.agrees for check in checks) <= 4  # of 40 with probability 0.001 each: more has 7e-10
    assert np.std([check.value for check in checks]) < 3.0 * np.std([check.plug_in for check in checks])


def test_nothing_is_richer_than_a_table() -> None:
    rows = without_propensity(PROCESS.record(BEHAVIOUR, 500, seed=9)[0])
    assert fit(rows, "tabular:5").doubly_robust is None
    assert fit(rows, np.random.default_rng(0).normal(size=(5, 5))).doubly_robust is None


def pushed(n: int, seed: int) -> Chunk:
    """s' = 0.6 s + 0.8 a - 0.2 + noise, reward s^2, and action 1 with probability 0.3: values are quadratic."""
    rng = np.random.default_rng(seed)
    action, noise = (rng.random(n) < 0.3).astype(np.int64), 0.3 * rng.normal(size=n)
    s = np.zeros(n + 1)
    for i in range(n):
        s[i + 1] = 0.6 * s[i] + 0.8 * action[i] - 0.2 + noise[i]
    none = np.zeros(n, np.bool_)
    return Chunk(
        s[:-1, None].copy(), s[:-1] ** 2 + 0.1 * rng.normal(size=n), s[1:, None].copy(), none, none, action=action
    )


def often(observations: Any) -> Any:
    return np.tile([0.4, 0.6], (len(observations), 1))


def test_linear_features_of_quadratic_values() -> None:
    rows = pushed(4000, 0)
    exact = fit(rows, Polynomial(2), often).doubly_robust
    with pytest.warns(DataWarning, match="do not represent"):
        linear = fit(rows, Standardised(), often).doubly_robust
    assert exact.agrees
    assert abs(linear.value - exact.plug_in) < 0.5 * abs(linear.plug_in - exact.plug_in)
    assert linear.low < exact.plug_in < linear.high


@pytest.mark.parametrize(("n_more", "is_checked"), [(1, True), (64, False)], ids=["constant", "pixels"])
def test_numbers_that_tell_nothing(n_more: int, is_checked: bool) -> None:
    """A large constant has no scale. Of many numbers, distances say little, so that there is no check."""
    rows = pushed(400, 1)

    def widen(s: Any) -> Any:
        return np.hstack([s, np.full((400, n_more), 1e17)])

    log = rows._replace(observations=widen(rows.observations), next_observations=widen(rows.next_observations))
    check = fit(log, lambda o: np.column_stack([np.ones(len(o)), o[:, 0], o[:, 0] ** 2]), often).doubly_robust
    assert (check is not None) == is_checked
    assert check is None or check.agrees
