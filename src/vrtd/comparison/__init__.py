"""A tournament: every algorithm on every standard problem, tuned with the same budget, on the same transitions."""

from vrtd.comparison.cell import Plan
from vrtd.comparison.entrants import ENTRANTS, Entrant
from vrtd.comparison.problems import PROBLEMS, StandardProblem

__all__ = ["ENTRANTS", "PROBLEMS", "Entrant", "Plan", "StandardProblem"]
