"""Checks of the problems that the theory is about: chains without importance ratios, under the evaluated policy."""

from __future__ import annotations

from typing import Any

import numpy as np

from vrtd.errors import InvalidInputError
from vrtd.problems import LinearProblem, Simulator


def check_problem(problem: Any) -> None:
    """Raise unless `problem` is a LinearProblem whose chain has no importance ratios."""
    if isinstance(problem, Simulator):
        raise InvalidInputError(
            "problem must be a LinearProblem: exact moments and bounds need its transition probabilities",
            f"the Simulator {problem.name}, whose probabilities are not known",
            "simulate instead",
        )
    if not isinstance(problem, LinearProblem):
        raise InvalidInputError(
            "problem must be a LinearProblem", type(problem).__name__, "build LinearProblem(mrp, phi)"
        )
    if problem.mrp.is_weighted:
        raise InvalidInputError(
            "the theory is of chains without importance ratios, under the policy that is evaluated",
            f"importance ratios of up to {np.max(problem.mrp.edges.weight):.6g}",
            "simulate instead, or take mdp.chain(policy) without a behaviour",
        )


def check_on_policy(problem: LinearProblem) -> None:
    """Raise unless states are distributed as a trajectory of the chain visits them."""
    check_problem(problem)
    if not problem.is_stationary:
        raise InvalidInputError(
            "Markovian samples must come from the chain's own stationary distribution",
            "a problem with another state_distribution",
            "build LinearProblem(mrp, phi), or use independent samples",
        )
