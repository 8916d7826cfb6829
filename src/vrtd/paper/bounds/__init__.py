"""Experiment `bounds`: both sides of every theorem, lemma and corollary of the paper."""

from vrtd.paper.bounds.claims import FIGURES, FORGOTTEN, STILL_THERE, TESTS
from vrtd.paper.bounds.settings import settings
from vrtd.paper.bounds.statements import measure
from vrtd.paper.experiment import make_experiment

EXPERIMENT = make_experiment(
    "bounds",
    settings,
    measure,
    weight=0.5,
    figures=FIGURES,
    tests=TESTS,
    numbers={"still_there": STILL_THERE, "forgotten": FORGOTTEN},
)
