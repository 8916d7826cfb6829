"""The paper's experiments: one module each, or a package; what they say is in `texts/`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from vrtd.checks import check_choice

if TYPE_CHECKING:
    from vrtd.paper.evidence import Claim
    from vrtd.paper.experiment import Experiment

#: In the order in which they are run and shown.
NAMES = (
    "random-mdp-iid",
    "random-mdp-markov",
    "frozen-lake",
    "mountain-car",
    "changing-step",
    "table-1",
    "counter-example",
    "bounds",
)

#: The experiment behind a figure, by the number that is printed in the paper. Table 1 has the name of its experiment.
FIGURES = {
    "figure-1": "random-mdp-iid",
    "figure-2": "random-mdp-markov",
    "figure-3": "frozen-lake",
    "figure-4": "mountain-car",
    "figure-5": "changing-step",
}


def check_name(name: str) -> str:
    """Return the name of the experiment that is called so, or that a figure of this name shows."""
    chosen: str = check_choice("name of an experiment", name, (*NAMES, *FIGURES))
    return FIGURES.get(chosen, chosen)


def find(name: str) -> Experiment:
    """Return the experiment of this name, whose module is imported now and not before."""
    experiment: Experiment = import_module(f"vrtd.paper.{name.replace('-', '_')}").EXPERIMENT
    return experiment


def all_claims() -> tuple[Claim, ...]:
    """Return every claim of the paper that is judged."""
    return tuple(claim for name in NAMES for claim in find(name).claims)
