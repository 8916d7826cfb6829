"""Tournaments: algorithms on problems, each tuned with the same budget, on the same transitions."""

from vrtd.tournament.cell import AimResult as AimResult
from vrtd.tournament.cell import Cell as Cell
from vrtd.tournament.cell import TournamentSize as TournamentSize
from vrtd.tournament.comparison import QUICK_PROBLEMS as QUICK_PROBLEMS
from vrtd.tournament.comparison import QUICK_SIZE as QUICK_SIZE
from vrtd.tournament.comparison import Comparison as Comparison
from vrtd.tournament.comparison import compare as compare
from vrtd.tournament.entrants import ENTRANTS as ENTRANTS
from vrtd.tournament.entrants import Entrant as Entrant
from vrtd.tournament.problems import PROBLEMS as PROBLEMS
from vrtd.tournament.problems import TournamentProblem as TournamentProblem
