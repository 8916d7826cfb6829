"""Settings of Table 1. The paper gives orders and no numbers, so all settings are our choices."""

from __future__ import annotations

from typing import Any

from vrtd.paper.experiment import Settings

RANDOM, STICKY, TWO_STATES = "random MDP 0", "two sticky states", "two states"
MIXED, GAMMAS = "features alike", "discount near 1"  # families along which lambda_A falls
# Limits of alpha lambda M: in a long epoch the inner loop reaches the solution of the batch, in a short one it hardly
# moves.
LONG, SHORT = 20.0, 0.1

_STEPS = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0]
_TARGETS = [1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-7, 1e-9]
_PROBLEMS: dict[str, dict[str, Any]] = {
    RANDOM: {"problem": "random_mdp", "arguments": {"seed": 0, "normalize": True}},
    STICKY: {"P": [[0.95, 0.05], [0.04, 0.96]], "R": [[1.0, 0.0], [0.0, 2.0]], "gamma": 0.9, "phi": [[1.0], [0.5]]},
    TWO_STATES: {"P": [[0.7, 0.3], [0.4, 0.6]], "R": [[1.0, 0.0], [0.0, 2.0]], "gamma": 0.5, "phi": [[1.0], [0.5]]},
}


def settings(n_runs: int, seed: int) -> Settings:
    """Return the settings of the experiment."""
    sizes = [m * 10**k for k in range(1, 6) for m in (1, 2, 5)]
    return {
        "n_runs": n_runs,
        "seed": seed,
        "problems": _PROBLEMS,
        # Largest step for which orders in the step are determined: at most a thirtieth of TD's stability limit.
        "largest_small_step": 0.1,
        "floors": {
            "problems": [RANDOM, STICKY],
            "step_sizes": _STEPS,
            "batch_sizes": [5, 5000, 1_000_000],
            # With normalised features the step 0.25 corresponds to 0.1, the paper's step, with the raw features.
            "fixed_step_size": 0.25,
            "all_batch_sizes": [2, 3, 5, 8, *sizes, 1_000_000, 2_000_000],
            # These steps satisfy the conditions of both printed theorems and of the repaired Theorem 2. On the random
            # MDP 9e-4 exceeds the largest step of the corrected Theorem 1, but the sharp one covers it.
            "theorem_step_sizes": [1e-5, 3e-5, 1e-4, 3e-4, 9e-4],
            "theorem_batch_sizes": [10**6, 10**7, 10**8, 10**9],
            "theorem_batch_size": 10**8,
        },
        "lemma_batch_sizes": [1, 2, 5, *sizes],
        # Algorithm 2 on the two states, with all batches enumerated.
        "enumerated": {"batch_sizes": [2, 4, 8, 16, 24, 32], "step_size": 2.0, "step_sizes": _STEPS, "batch_size": 8},
        "rates": [[9e-4, 1_000_000], [0.25, 50], [0.25, 500], [0.25, 2000]],
        # Step, batch size and epochs (for TD: updates) of the simulations from theta_star on the random MDP.
        "simulated": [
            *([0.03, 1, 6000], [0.1, 1, 3000], [0.3, 1, 2000], [0.1, 5, 600], [0.3, 5, 300]),
            *([0.25, 5, 300], [0.25, 50, 40], [0.25, 500, 6], [0.25, 2000, 3], [0.25, 5000, 2]),
            *([0.1, 5000, 2], [0.3, 5000, 2]),
        ],
        "simulated_targets": _TARGETS[:3],
        "costs": [
            *(_family(RANDOM, _PROBLEMS[RANDOM], 0.0, sampling, _TARGETS) for sampling in ("iid", "markov")),
            # Each feature is mixed with the mean of all four, which does not change the span of the features.
            *(
                _family(MIXED, _PROBLEMS[RANDOM] | {"mixing": mixing}, 0.0, "iid", [1e-1, 1e-3])
                for mixing in (1.0, 0.5, 0.25, 0.1)
            ),
            # For every discount theta_star = 0, theta_0 = 1 and r_max = 1, so that only lambda_A changes.
            *(
                _family(
                    GAMMAS,
                    {"P": [[0.5, 0.5], [0.5, 0.5]], "R": [0.9, -1.0], "gamma": gamma, "phi": [[1.0], [0.9]]},
                    1.0, sampling, targets,
                )
                for sampling, targets in (("iid", [1e-3, 1e-5]), ("markov", [1e-5]))
                for gamma in (0.5, 0.8, 0.95, 0.98)
            ),
        ],
    }  # fmt: skip


def _family(
    family: str, problem: dict[str, Any], theta_0: float, sampling: str, targets: list[float]
) -> dict[str, Any]:
    """Return the settings of one member of a family; targets are shares of the initial error."""
    return {"family": family, "problem": problem, "theta_0": theta_0, "sampling": sampling, "targets": targets}
