"""Settings of Figure 2. The paper gives no start: from zeros the error begins near where TD's ends, so ones too."""

from __future__ import annotations

from vrtd.paper.experiment import Settings

SEEDS = (0, 1, 2, 3, 4)
STARTS = {"ones": 1.0, "zeros": 0.0}
OTHER_SEEDS_SHARE = 5  # seeds other than 0 take a fifth of the runs


def settings(n_runs: int, seed: int) -> Settings:
    return {
        "sampling": "markov",
        "step_size": 0.1,
        "batch_sizes": [1, 50, 500, 1000, 2000],
        "n_gradients": 120_000,
        "last_updates": 10_000,
        "initial": 0,
        "seed": seed,
        "cells": [
            {
                "problem": "frozen_lake",
                "arguments": {"seed": lake_seed},
                "labels": {"mdp_seed": lake_seed, "features": "raw"},
                "theta_0": theta_0,
                "n_runs": n_runs if lake_seed == 0 else max(n_runs // OTHER_SEEDS_SHARE, 2),
            }
            for theta_0 in STARTS.values()
            for lake_seed in SEEDS
        ],
    }
