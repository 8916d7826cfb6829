"""Chains and settings on which the statements are tested.

Each chain satisfies the assumptions of the theorems: one discount below 1, features of norm at most 1 (longer ones are
divided by the largest norm), irreducible and aperiodic. Boyan's chain does not: its discounts are 1 and 0.
"""

from __future__ import annotations

from typing import Any

from vrtd.paper.experiment import Settings


def _two_states(name: str, P: Any, R: Any, gamma: float, phi: Any) -> dict[str, Any]:
    return {"name": name, "family": "chains of two states", "P": P, "R": R, "gamma": gamma, "phi": phi}


def _named(name: str, family: str, problem: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "family": family, "problem": problem, "arguments": arguments}


def settings(n_runs: int, seed: int) -> Settings:
    """Return the settings of the experiment."""
    del n_runs, seed  # nothing is simulated
    small = {"n_states": 6, "n_features": 2}
    hop = [[0.0, 1.0], [0.8, 0.2]]  # with three transitions all kinds of batches can be enumerated for Algorithm 2
    return {
        "chains": [
            _two_states("coin", [[0.5, 0.5], [0.5, 0.5]], [1.0, -1.0], 0.5, [[1.0], [1.0]]),
            _two_states("two states", [[0.7, 0.3], [0.4, 0.6]], [1.0, -1.0], 0.5, [[1.0], [0.5]]),
            _two_states("two features", [[0.7, 0.3], [0.2, 0.8]], [[1, 0], [0, 2]], 0.9, [[0.9, 0.1], [0.4, -0.6]]),
            _two_states("hop", hop, [1.0, 0.0], 0.5, [[1.0], [-1.0]]),
            _two_states("constant feature", hop, [1.0, -1.0], 0.1, [[1.0], [1.0]]),
            *(_named(f"random MDP {k}", "random MDPs", "random_mdp", {"seed": k}) for k in range(5)),
            _named("lazy MDP", "lazy MDP", "random_mdp", {"seed": 0, "laziness": 0.9}),
            *(
                _named(f"small MDP {k}", "small MDPs", "random_mdp", {"seed": k, "gamma": gamma, **small})
                for k, gamma in enumerate((0.5, 0.9, 0.99))
            ),
            _named("lake 0", "lake", "frozen_lake", {"seed": 0}),
        ],
        "distance": 1.0,  # of theta_0 from theta_star
        # In units of (1 + gamma)^2/lambda_A^2. At the corollaries' steps the printed Theorem 1 needs 32, the corrected
        # one 144 and Theorem 2 96.
        "theorem1_batches": [40, 160, 2560],
        "theorem2_batches": [120, 1920],
        "n_epochs": 20,
        "enumerated": {"chains": ["hop", "constant feature"], "largest_batch": 100},
        "targets": [0.1, 0.001],
        "lemma1_batches": [1, 10, 1000],
        "lags": [1, 2, 5],
        "epoch_settings": [[0.05, 40], [0.9, 2560]],  # share of the largest step, batch size in the units above
        "trajectory_epochs": {"steps": [0.05, 0.9], "batch_sizes": [2, 10]},  # shares of the largest step
        "td_steps": [0.05, 1.0],  # shares of the largest step
        "td_times": [0.3, 1.0, 3.0, 10.0, 30.0],  # in units of 1/(step lambda_A)
        "td_updates": [10, 20, 30, 40, 50],  # on a trajectory
        # Chains for Section 2.2. Two states that swap are a finite chain that is periodic.
        "mixing": {
            "lag": 1000,
            "chains": {
                "two states that swap": {"P": [[0.0, 1.0], [1.0, 0.0]], "R": [1.0, 0.0], "gamma": 0.5},
                "random MDP 0": {"problem": "random_mdp", "arguments": {"seed": 0}},
                "lazy MDP": {"problem": "random_mdp", "arguments": {"seed": 0, "laziness": 0.9}},
                "lake 0": {"problem": "frozen_lake", "arguments": {"seed": 0}},
            },
        },
        "experiments": [
            *(_named(f"random MDP {k}", "random MDPs", "random_mdp", {"seed": k}) for k in range(5)),
            *(_named(f"lake {k}", "lakes", "frozen_lake", {"seed": k}) for k in range(5)),
        ],
        "experiments_step": 0.1,
    }
