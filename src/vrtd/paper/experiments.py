"""The paper's experiments: one module or package each; their texts are in `texts/`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from vrtd.checks import check_choice

if TYPE_CHECKING:
    from vrtd.paper.evidence import Claim
    from vrtd.paper.experiment import Experiment

#: Names of the experiments, in the order in which they are run and shown.
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

#: The experiment behind each figure of the paper, by printed number. Table 1 has the name of its experiment.
FIGURES = {
    "figure-1": "random-mdp-iid",
    "figure-2": "random-mdp-markov",
    "figure-3": "frozen-lake",
    "figure-4": "mountain-car",
    "figure-5": "changing-step",
}


def check_name(name: str) -> str:
    """Return the name of an experiment, given this name or that of its figure."""
    chosen: str = check_choice("name of an experiment", name, (*NAMES, *FIGURES))
    return FIGURES.get(chosen, chosen)


def find(name: str) -> Experiment:
    """Import the module of an experiment and return the experiment."""
    experiment: Experiment = import_module(f"vrtd.paper.{name.replace('-', '_')}").EXPERIMENT
    return experiment


def all_claims() -> tuple[Claim, ...]:
    """Return all claims and observations that are judged."""
    return tuple(claim for name in NAMES for claim in find(name).claims)
