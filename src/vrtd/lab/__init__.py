"""The lab: a page on this computer on which settings are moved and the errors follow at once."""

from vrtd.lab.problem_file import read_problem as read_problem
from vrtd.lab.server import serve as serve
