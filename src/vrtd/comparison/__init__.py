"""A tournament: every algorithm on every problem, tuned with the same budget, on the same transitions."""

from vrtd.comparison.cell import TournamentSize
from vrtd.comparison.entrants import ENTRANTS, Entrant
from vrtd.comparison.problems import PROBLEMS, TournamentProblem

__all__ = ["ENTRANTS", "PROBLEMS", "Entrant", "TournamentProblem", "TournamentSize"]
