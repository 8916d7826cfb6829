"""Settings of Figure 4. The paper's rule, halve when the error stops decreasing, leaves open how that is seen."""

from __future__ import annotations

from vrtd.paper.experiment import Settings


def settings(n_runs: int, seed: int) -> Settings:
    return {
        "problem": "frozen_lake",
        "arguments": {"seed": 0},
        "initial": 0,
        "n_gradients": 120_000,
        "step_size": 0.1,
        "batch_size": 5000,
        "starts": {"ones": 1.0, "zeros": 0.0},
        "windows": [1000, 2000, 5000],  # the mean errors of successive windows are compared
        "least_decrease": 0.05,  # by less than this the error has stopped decreasing
        "most_halvings": 20,  # a step a million times smaller: nothing moves any more
        "authors_halvings": [12_000, 20_000],  # a remark in the paper's source
        "n_runs": n_runs,
        "seed": seed,
    }
