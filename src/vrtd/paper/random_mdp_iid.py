"""Figure 1: batch sizes on the random MDP with independent samples.

The paper does not give the seed, theta_0 or the total number of updates; these are our choices.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from vrtd.paper.batch_sizes import draw_convergence, draw_floors, make_claims, measure
from vrtd.paper.experiment import Draw, Settings, make_experiment
from vrtd.tables import Tables

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SEEDS = (0, 1, 2, 3, 4)
FEATURES = ("raw", "normalised")  # raw norms reach 1.75; after division by the largest, Assumption 2 holds


def settings(n_runs: int, seed: int) -> Settings:
    """Return the settings of the experiment."""
    return {
        "sampling": "iid",
        "step_size": 0.1,
        "batch_sizes": [1, 50, 500, 1000, 2000],
        "n_gradients": 80_000,
        "last_updates": 10_000,
        "initial": "stationary",
        "seed": seed,
        "cells": [
            {
                "problem": "random_mdp",
                "arguments": {"seed": mdp_seed, "normalize": features == "normalised"},
                "labels": {"mdp_seed": mdp_seed, "features": features},
                "theta_0": 0.0,
                "n_runs": n_runs,
            }
            for features in FEATURES
            for mdp_seed in SEEDS
        ],
    }


def _draw_floors(features: str, axes: Axes, tables: Tables) -> None:
    draw_floors(axes, tables["floors"], [(f"MDP {s}", {"mdp_seed": s, "features": features}) for s in SEEDS])


FIGURES: dict[tuple[str, str], Draw] = {
    (f"{kind}-{features}", table): draw
    for features in FEATURES
    for kind, table, draw in (
        ("convergence", "curves", partial(draw_convergence, {"mdp_seed": 0, "features": features})),
        ("floors", "floors", partial(_draw_floors, features)),
    )
}

EXPERIMENT = make_experiment(
    "random-mdp-iid",
    settings,
    measure,
    weight=15.0,
    figures=FIGURES,
    claims=make_claims("random-mdp-iid", "1", "With independent samples", "exact"),
)
