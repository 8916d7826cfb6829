"""The paper's experiments: one module each, or a package; what they say is in `texts/`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

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


def find(name: str) -> Experiment:
    """Return the experiment of this name, whose module is imported now and not before."""
    experiment: Experiment = import_module(f"vrtd.paper.{name.replace('-', '_')}").EXPERIMENT
    return experiment


def all_claims() -> tuple[Claim, ...]:
    """Return every claim of the paper that is judged."""
    return tuple(claim for name in NAMES for claim in find(name).claims)
