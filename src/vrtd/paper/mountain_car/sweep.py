"""Settings of Figure 3. The paper names neither the features' bandwidth nor a time limit: all that is likely, then."""

from __future__ import annotations

from typing import Any

from vrtd.paper.experiment import Settings

BANDWIDTHS = (1.0, 5.0, 20.0)
FEATURE_SEEDS = (0, 1, 2, 3, 4)
TIME_LIMITS = (None, 200)  # Gymnasium's environment as registered has the second
MAIN: dict[str, Any] = {"bandwidth": 5.0, "feature_seed": 0, "time_limit": None}  # the variant of the figure
# The other variants take so many times fewer runs. Without a limit the runs differ more: at g = 20, 50 of them leave
# one of the five draws undecided, 60 decide it narrowly and 100 clearly.
OTHERS_SHARE = {None: 10, 200: 20}


def settings(n_runs: int, seed: int) -> Settings:
    return {
        "n_features": 20,
        "gamma": 0.95,
        "step_size": 0.2,
        "n_gradients": 300_000,
        "every": 10_000,  # the curve
        # The last pseudo-gradients are averaged. Episodes of 200 steps end at every multiple of 200, where TD's
        # parameter is not what it is on average; a prime stride falls on all of their steps.
        "last_gradients": 100_000,
        "stride": 499,
        "n_test": 1000,
        "n_test_steps": 1_000_000,  # of the trajectory from which the test transitions are drawn
        "test_seed": 0,
        "seed": seed,
        "variants": [
            _variant(n_runs, {"bandwidth": bandwidth, "feature_seed": feature_seed, "time_limit": time_limit})
            for time_limit in TIME_LIMITS
            for bandwidth in BANDWIDTHS
            for feature_seed in FEATURE_SEEDS
        ],
    }


def _variant(n_runs: int, features: dict[str, Any]) -> dict[str, Any]:
    if features == MAIN:
        return {**features, "batch_sizes": [1, 1000, 5000, 10_000], "n_runs": n_runs}
    n_others = max(n_runs // OTHERS_SHARE[features["time_limit"]], 2)
    return {**features, "batch_sizes": [1, 1000], "n_runs": n_others}
