"""Figure 1: the error falls with the batch size, and how fast it gets there."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from vrtd.paper.batch_sizes import bars, claims, convergence, measure
from vrtd.paper.experiment import Experiment
from vrtd.paper.random_mdp_iid.sweep import FEATURES, SEEDS, settings
from vrtd.plots import Figure
from vrtd.tables import Tables

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def _draw_convergence(features: str, axes: Axes, tables: Tables) -> None:
    convergence(axes, tables["curves"], mdp_seed=0, features=features)


def _draw_floors(features: str, axes: Axes, tables: Tables) -> None:
    series = [(f"MDP {seed}", {"mdp_seed": seed, "features": features}) for seed in SEEDS]
    bars(axes, tables["floors"], series)


def figures(dashes: str, bars_are: str = "") -> list[Figure]:
    """Convergence and floors, for features as they are and normalised."""
    found = []
    for features in FEATURES:
        found += [
            Figure(
                f"convergence-{features}",
                f"Mean over runs with a band of two standard errors, MDP 0, {features} features. What VRTD returns "
                f"changes at the end of an epoch. {dashes}",
                "curves",
                partial(_draw_convergence, features),
            ),
            Figure(
                f"floors-{features}",
                f"Mean over the last 10,000 updates with an interval of two standard errors, five MDPs, {features} "
                f"features; the bars across are the expected values{bars_are}.",
                "floors",
                partial(_draw_floors, features),
            ),
        ]
    return found


EXPERIMENT = Experiment(
    name="random-mdp-iid",
    title="Batch sizes on a random MDP, independent samples",
    place="Figure 1, Section 5",
    question="The larger the batch, the smaller the error at which VRTD settles, without much slowing down.",
    method=(
        "50 states, 4 features, discount 0.95, step 0.1, Algorithm 1 with M = 50, 500, 1000, 2000 and TD, 80,000 "
        "pseudo-gradients from zero. Chosen here: five MDPs (seeds 0 to 4), features as described and divided by their "
        "largest norm; an epoch counts 2M pseudo-gradients; an error is that of what the algorithm would return."
    ),
    weight=15.0,
    settings=settings,
    measure=measure,
    figures=figures("Dashed: the exact expected error."),
)

CLAIMS = claims(
    "random-mdp-iid", "1", "With independent samples", "exact", lambda tables: tables["random-mdp-iid"]["floors"]
)
