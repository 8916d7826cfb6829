"""Settings of Figure 1.5: those of Figure 1 on a trajectory, and a lazy chain, whose successive samples are alike."""

from __future__ import annotations

from vrtd.paper.experiment import Settings
from vrtd.paper.random_mdp_iid import sweep

LAZY = "raw, lazy chain"


def settings(n_runs: int, seed: int) -> Settings:
    lazy = {"problem": "random_mdp", "arguments": {"seed": 0, "laziness": 0.9}, "n_runs": n_runs}
    return {**sweep.settings(n_runs, seed), "sampling": "markov", "lazy": lazy, "radius": 100.0, "n_same": 20_000}
