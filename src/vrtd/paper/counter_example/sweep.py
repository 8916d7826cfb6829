"""The paper's counter-example to an earlier analysis, and chains on which its own Theorem 1 and Corollary 1 fail."""

from __future__ import annotations

from vrtd.paper.experiment import Settings


def settings(n_runs: int, seed: int) -> Settings:
    return {
        "seed": seed,
        "n_runs": n_runs,
        "uniform": {"bound": 3, "batch": [1, 2, -3], "n_batches": 700},
        # Each next state is a fair coin's, the feature is 1 and the reward +1 or -1, so theta_star = 0.
        "coin": {"gamma": 0.5, "step_size": 0.02, "batch_size": 2000, "radius": 1.0, "n_epochs": 10},
        "mdp_seeds": [0, 1, 2, 3, 4],
        "batch_factors": [1.02, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0],  # of the least that is allowed
        "mdp_targets": [1e-2, 1e-3, 1e-4],
        "coin_targets": [1e-2, 1e-4, 1e-6],
        "gammas": [0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999, 0.9999],
    }
