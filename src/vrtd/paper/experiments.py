"""The paper's experiments, one folder each: settings in `sweep.py`, the rest in `analysis.py`."""

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
    """The experiment of this name, whose module is imported now and not before."""
    found: Experiment = _analysis(name).EXPERIMENT
    return found


def all_claims() -> tuple[Claim, ...]:
    """Every claim of the paper that is judged."""
    return tuple(claim for name in NAMES for claim in _analysis(name).CLAIMS)


def _analysis(name: str):  # type: ignore[no-untyped-def]
    return import_module(f"vrtd.paper.{name.replace('-', '_')}.analysis")
