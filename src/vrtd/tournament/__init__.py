"""A tournament: every algorithm on every problem, tuned with the same budget, on the same transitions."""

from vrtd.tournament.cell import AimResult, Cell, TournamentSize
from vrtd.tournament.comparison import QUICK_PROBLEMS, QUICK_SIZE, Comparison, compare
from vrtd.tournament.entrants import ENTRANTS, Entrant
from vrtd.tournament.problems import PROBLEMS, TournamentProblem

__all__ = [
    "ENTRANTS",
    "PROBLEMS",
    "QUICK_PROBLEMS",
    "QUICK_SIZE",
    "AimResult",
    "Cell",
    "Comparison",
    "Entrant",
    "TournamentProblem",
    "TournamentSize",
    "compare",
]
