"""Settings of Figure 1. The paper gives no seed, no start and no number of updates in all; those are choices."""

from __future__ import annotations

from vrtd.paper.experiment import Settings

SEEDS = (0, 1, 2, 3, 4)
FEATURES = ("raw", "normalised")  # as described, norms reach 1.75; divided by the largest, Assumption 2 holds


def settings(n_runs: int, seed: int) -> Settings:
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
