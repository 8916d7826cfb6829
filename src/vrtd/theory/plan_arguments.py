"""Checks of what is asked of the planner."""

from __future__ import annotations

from typing import Any, get_args

from vrtd.checks import check_choice, check_count, check_positive
from vrtd.errors import InvalidInputError
from vrtd.problems import LinearProblem, Simulator, Transitions
from vrtd.theory.checks import check_problem
from vrtd.theory.plans import Mode
from vrtd.theory.search import MOST_COST


def check_mode(problem: Any, mode: Mode | None) -> Mode:
    if isinstance(problem, Transitions):
        if mode not in (None, "estimated"):
            raise InvalidInputError(
                'a sample of transitions allows mode="estimated" only: bounds and exact moments need the chain',
                repr(mode),
                "drop the mode, or pass a LinearProblem",
            )
        return "estimated"
    if not isinstance(problem, LinearProblem | Simulator):
        raise InvalidInputError(
            "problem must be a LinearProblem or Transitions", type(problem).__name__, "build LinearProblem(mrp, phi)"
        )
    check_problem(problem)
    check_choice("mode", mode, (None, *get_args(Mode)))
    if mode == "estimated":
        raise InvalidInputError(
            'mode="estimated" needs a sample in place of the chain',
            "a LinearProblem",
            "pass vrtd.record(problem, n_rows, shuffle=False), or vrtd.Transitions(...)",
        )
    return mode or "exact"


def check_goal(target_error: Any, budget: Any, least_budget: int) -> None:
    if (target_error is None) == (budget is None):
        raise InvalidInputError(
            "either target_error or budget must be given", f"{target_error} and {budget}", "pass one of them"
        )
    if target_error is not None:
        check_positive("target_error", target_error)
    else:
        check_count("budget", budget)
        if budget < least_budget or budget > MOST_COST:
            raise InvalidInputError(
                f"budget must be at least one epoch of VRTD with a batch of two, {least_budget}, and at most 1e15",
                budget,
                "change the budget",
            )
