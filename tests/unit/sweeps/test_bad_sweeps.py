"""Input that a sweep refuses before the first cell, with a message that names it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers.toy_simulator import ring
from vrtd.errors import InvalidInputError

STEPS = {"step_size": [0.1]}


def refuse(message: str, problems: Any = "boyan_chain", algorithm: Any = "td", grid: Any = STEPS, **size: Any) -> None:
    with pytest.raises(InvalidInputError, match=message):
        vrtd.sweep(problems, algorithm, grid, **{"n_runs": 2, "n_gradients": 100} | size)


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ({}, r"grid must map fields of TD to values, but got \{\}"),
        ([0.1], r"grid must map fields of TD to values, but got \[0.1\]"),
        ({"step": [0.1]}, "must be one of 'step_size', 'radius', 'average', but got 'step'"),
        ({"step_sizes": [0.1]}, "Did you mean 'step_size'"),
        ({3: [0.1]}, "but got 3"),
        ({"step_size": []}, "grid must have at least one value for step_size"),
        ({"step_size": 0.1}, "grid must have a sequence of values for step_size, but got 0.1"),
        ({"step_size": "0.1"}, "grid must have a sequence of values for step_size, but got '0.1'"),
        ({"step_size": np.ones((2, 2))}, "grid must have a sequence of values for step_size"),
        ({"step_size": [[0.1]]}, r"A value of step_size must be a number, a text, a schedule or None, but got \[0.1\]"),
        ({"step_size": [0.1, 0.2, 0.1]}, "grid must not repeat step_size=0.1"),
        ({"radius": [1, 1.0]}, "grid must not repeat radius=1.0"),
        ({"radius": [None, None]}, "grid must not repeat radius=None"),
        ({"step_size": [0.1], "step-size": [0.2]}, "grid must have each field once, but got step_size twice"),
        ({"step_size": [0.1, -0.1]}, "step_size must .* but .*-0.1"),
        ({"step_size": [float("nan")]}, "step_size must .*nan"),
        ({"step_size": [float("inf")]}, "step_size must .*inf"),
        ({"step_size": ["large"]}, "step_size must .*large"),
        ({"average": [2]}, "average must be True or False"),
    ],
)
def test_a_bad_grid(grid: Any, message: str) -> None:
    refuse(message, grid=grid)


@pytest.mark.parametrize(
    ("problems", "message"),
    [
        ([], "problems must hold at least one problem"),
        ({}, "problems must hold at least one problem"),
        ("boyan", "Did you mean 'boyan_chain'"),
        ([3], "problem-1 must be a LinearProblem, a Simulator, Transitions or a name, but got 3"),
        ({"a/b": "boyan_chain"}, "The name of a problem must consist of .* but got 'a/b'"),
        (["boyan_chain", "boyan-chain"], "problems must differ, but 'boyan_chain' is there twice"),
        (vrtd.problems.boyan_chain().mrp, "problem-1 must be a LinearProblem.*Build LinearProblem"),
    ],
)
def test_bad_problems(problems: Any, message: str) -> None:
    refuse(message, problems=problems)


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        ("tdd", "Did you mean"),
        (vrtd.TD(0.1), r"algorithm_class must be a class, but got the object TD\(.*Pass vrtd.TD, and its settings in"),
        (int, "algorithm_class must be a class of algorithms or its name, but got <class 'int'>"),
    ],
)
def test_a_bad_algorithm(algorithm: Any, message: str) -> None:
    refuse(message, algorithm=algorithm)


def test_an_algorithm_that_cannot_use_the_samples() -> None:
    refuse("svrg needs a data set", algorithm="svrg")
    rows = vrtd.record(vrtd.problems.boyan_chain(), 50)
    mixed = {"chain": vrtd.problems.boyan_chain(), "rows": rows}
    refuse("sampling of a Transitions must be 'dataset', but got 'markov' on rows", problems=mixed, sampling="markov")
    refuse("on chain", problems=mixed, sampling="dataset")
    cell = "cell: td_lambda on boyan_chain with step_size 0.1"
    refuse(f"needs consecutive samples.*{cell}", algorithm="td_lambda", sampling="iid")


def test_problems_with_different_default_metrics() -> None:
    simulator = ring(np.random.default_rng(4).random((5, 3)))
    refuse("metrics must be the same for all problems", problems=["boyan_chain", simulator])


def test_an_epoch_that_is_longer_than_the_budget() -> None:
    refuse("n_gradients must be at least 400.*vrtd on boyan_chain with batch_size 200", algorithm="vrtd",
           grid={"batch_size": [20, 200]})  # fmt: skip


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ({"n_runs": 0}, "n_runs must be"),
        ({"n_gradients": 0.5}, "n_gradients must be"),
        ({"seed": -1}, "seed must be"),
        ({"threads": 0}, "threads must be"),
        ({"metrics": "neu"}, "metrics must be a tuple"),
        ({"metrics": ("new",)}, "Did you mean 'neu'"),
        ({"metrics": ("neu", "neu")}, "metrics must have different names"),
        ({"metrics": 3}, "metrics must be a tuple"),
        ({"checkpoints": 0}, "checkpoints must be"),
        ({"checkpoints": [101]}, "checkpoints must be whole numbers"),
        ({"theta_0": [1.0, 2.0]}, "theta_0 must have the shape"),
        ({"initial": 99}, "initial must be a state"),
        ({"exact": "yes"}, "exact must be True or False"),
        ({"executor": 2}, "executor must be a concurrent.futures.Executor, but got 2"),
        ({"progress": "yes"}, "progress must be"),
    ],
)
def test_bad_sizes(size: dict[str, Any], message: str) -> None:
    refuse(message, **size)
