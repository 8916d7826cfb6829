"""The settings of the experiments, which are those of the paper or were chosen once."""

import pytest

from vrtd.paper import experiments

PINNED = {
    "random-mdp-iid": {
        "sampling": "iid",
        "step_size": 0.1,
        "batch_sizes": [1, 50, 500, 1000, 2000],
        "n_gradients": 80_000,
        "last_updates": 10_000,
        "initial": "stationary",
    },
    "random-mdp-markov": {
        "sampling": "markov",
        "step_size": 0.1,
        "batch_sizes": [1, 50, 500, 1000, 2000],
        "n_gradients": 80_000,
        "last_updates": 10_000,
        "initial": "stationary",
        "radius": 100.0,
    },
    "frozen-lake": {
        "sampling": "markov",
        "step_size": 0.1,
        "batch_sizes": [1, 50, 500, 1000, 2000],
        "n_gradients": 120_000,
        "last_updates": 10_000,
        "initial": 0,
    },
    "mountain-car": {
        "n_features": 20,
        "gamma": 0.95,
        "step_size": 0.2,
        "n_gradients": 300_000,
        "every": 10_000,
        "n_test": 1000,
        "n_test_steps": 1_000_000,
        "last_gradients": 100_000,
    },
    "changing-step": {
        "problem": "frozen_lake",
        "initial": 0,
        "n_gradients": 120_000,
        "step_size": 0.1,
        "batch_size": 5000,
        "starts": {"ones": 1.0, "zeros": 0.0},
        "windows": [1000, 2000, 5000],
        "least_decrease": 0.05,
        "authors_halvings": [12_000, 20_000],
    },
}


@pytest.mark.parametrize("name", PINNED)
def test_the_settings_are_those_that_were_chosen(name):
    found = experiments.find(name).settings(1000, 7)
    assert {key: found[key] for key in PINNED[name]} == PINNED[name]
    assert found["seed"] == 7


def test_the_cells_are_those_that_were_chosen():
    def cells(name):
        return [(c["arguments"], c["theta_0"], c["n_runs"]) for c in experiments.find(name).settings(1000, 0)["cells"]]

    mdps = [({"seed": k, "normalize": n}, 0.0, 1000) for n in (False, True) for k in range(5)]
    assert cells("random-mdp-iid") == cells("random-mdp-markov") == mdps
    lazy = experiments.find("random-mdp-markov").settings(1000, 0)["lazy"]
    assert (lazy["arguments"], lazy["n_runs"]) == ({"seed": 0, "laziness": 0.9}, 1000)
    assert cells("frozen-lake") == [({"seed": k}, start, 200 if k else 1000) for start in (1.0, 0.0) for k in range(5)]
    variants = experiments.find("mountain-car").settings(1000, 0)["variants"]
    assert {(v["bandwidth"], v["feature_seed"], v["time_limit"]) for v in variants} == {
        (b, k, limit) for b in (1.0, 5.0, 20.0) for k in range(5) for limit in (None, 200)
    }
