"""How often intervals of policy values and of their differences hold the truth: `benchmarks/policies.py` at full size.

One family: the statistics are counts of independent logs, with binomial limits at the nominal rate.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

import vrtd
from tests.helpers.decision_processes import random_policy, random_process, without_propensity
from tests.helpers.statistics import FAMILY_RATE
from vrtd.logs import Chunk

LEVEL, N_LOGS, N_ROWS, N_STATISTICS = 0.95, 100, 1000, 6
_PLAIN = random_process(0, end=0.95)
PROCESS = _PLAIN._replace(reward=_PLAIN.reward + 10.0 * np.arange(5))  # most of the noise is that of the first states
BEHAVIOUR, TARGET, OTHER = random_policy(1), random_policy(2), random_policy(3)
LEAST = int(binom.ppf(FAMILY_RATE / N_STATISTICS, N_LOGS, LEVEL))  # fewer hits are a false alarm of at most this rate


@pytest.fixture(scope="module")
def logs() -> list[Chunk]:
    return PROCESS.record(BEHAVIOUR, N_ROWS, seed=8, n_logs=2 * N_LOGS)


def fit(rows: Chunk, target: Any = None) -> vrtd.Evaluator:
    return vrtd.Evaluator(features="tabular:5", discount=PROCESS.discount, target=target).fit(rows)


def holds(interval: Any, truth: float) -> bool:
    return bool(interval.low <= truth <= interval.high)


def test_intervals_hold_the_truth_as_often_as_they_say(logs: list[Chunk]) -> None:
    J, J_target, J_other = (PROCESS.values(policy)[2] for policy in (BEHAVIOUR, TARGET, OTHER))
    hits = np.zeros(N_STATISTICS)
    blind = 0  # a planted bug: the first states of the log as if they were no sample
    for log, second in zip(logs[::2], logs[1::2], strict=True):
        rows = without_propensity(log)
        own, target, other, weighted = fit(rows), fit(rows, TARGET), fit(rows, OTHER), fit(log, TARGET)
        found = [
            (own.policy_value(), J),
            (target.policy_value(), J_target),
            (weighted.policy_value(), J_target),
            (vrtd.difference(own, fit(without_propensity(second))), 0.0),
            (vrtd.difference(target, other), J_target - J_other),
            (vrtd.difference(target, own), J_target - J),
        ]
        hits += [holds(interval, truth) for interval, truth in found]
        starts = np.append(True, rows.terminated[:-1])
        nu = own.features(rows.observations[starts]).mean(axis=0)
        blind += holds(own.spread().of(nu[None], LEVEL).first, J)
    assert np.all(hits >= LEAST), hits
    assert blind < LEAST
