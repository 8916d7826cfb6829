"""No function uses what lies below the mask of an array."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import vrtd
from vrtd.arrays import check_theta
from vrtd.errors import InvalidInputError
from vrtd.features import Identity, Tabular
from vrtd.logs import Chunk, from_arrays
from vrtd.logs.reading import as_log
from vrtd.problems import LinearProblem, MarkovRewardProcess, Transitions
from vrtd.problems.mdp import policy_matrix
from vrtd.sklearn import ValueRegressor

NUMBERS, NONE = [1.0, 2.0, 3.0], np.zeros(3, np.bool_)
MASKED = np.ma.masked_array([1.0, 1e20, 1.0], mask=[False, True, False])
ROWS = np.ma.masked_array(np.ones((3, 1)), mask=[[False], [True], [False]])
FLAGS = np.ma.masked_array([0, 1, 0], mask=[False, True, False])
SQUARE = np.ma.masked_array(np.full((2, 2), 0.5), mask=[[True, False], [False, False]])
CHAIN = np.full((2, 2), 0.5)


@cache
def fitted():
    rng = np.random.default_rng(0)
    return vrtd.Evaluator(discount=0.5, features="standardised").fit(
        from_arrays(rng.standard_normal((400, 1)), np.ones(400))
    )


ENTRANCES = {
    "P": lambda: MarkovRewardProcess(SQUARE, [0.0, 1.0], 0.9),
    "R": lambda: MarkovRewardProcess(CHAIN, np.ma.masked_array([0.0, 1e20], mask=[False, True]), 0.9),
    "phi": lambda: LinearProblem(MarkovRewardProcess(CHAIN, [0.0, 1.0], 0.9), SQUARE),
    "list": lambda: LinearProblem(MarkovRewardProcess(CHAIN, [0.0, 1.0], 0.9), list(SQUARE)),
    "theta_0": lambda: check_theta("theta_0", MASKED, 3),
    "policy": lambda: policy_matrix(FLAGS, 3, 2),
    "rows": lambda: Transitions(ROWS, NUMBERS, np.ones((3, 1)), 0.9),
    "ends": lambda: Transitions(np.ones((3, 1)), NUMBERS, np.ones((3, 1)), 0.9, ends=FLAGS),
    "observations": lambda: from_arrays(ROWS, NUMBERS),
    "reward": lambda: from_arrays(NUMBERS, MASKED),
    "next_observations": lambda: from_arrays(NUMBERS, NUMBERS, MASKED),
    "terminated": lambda: from_arrays(NUMBERS, NUMBERS, terminated=FLAGS),
    "weight": lambda: from_arrays(NUMBERS, NUMBERS, weight=MASKED),
    "action": lambda: from_arrays(NUMBERS, NUMBERS, action=FLAGS),
    "episode": lambda: from_arrays(NUMBERS, NUMBERS, episode=FLAGS),
    "chunk": lambda: Chunk(ROWS, np.ones(3), np.ones((3, 1)), NONE, NONE).check(),
    "predict": lambda: fitted().predict(ROWS),
    "identity": lambda: Identity(1)(ROWS),
    "tabular": lambda: Tabular(3)(FLAGS),
    "target": lambda: vrtd.Evaluator(discount=0.5, target=FLAGS),
    "X": lambda: ValueRegressor(discount=0.5).fit(ROWS, NUMBERS),
    "y": lambda: ValueRegressor(discount=0.5).fit(np.ones((3, 1)), MASKED),
}


@pytest.mark.parametrize("name", ENTRANCES)
def test_masked_entries_are_refused(name):
    with pytest.raises(InvalidInputError, match="has masked entries"):
        ENTRANCES[name]()


def test_an_array_without_masked_entries_is_an_array():
    plain = np.ma.masked_array(NUMBERS, mask=False)
    (chunk,) = from_arrays(plain, plain).chunks()
    assert chunk.reward.tolist() == [1.0, 2.0]


def test_masked_entries_of_a_table_are_missing_values():
    (chunk,) = as_log({"x": [1.0, 2.0, 3.0, 4.0], "r": np.ma.append(MASKED, [1.0])}, {"missing": "drop"}).chunks()
    assert chunk.reward.max() == 1.0
