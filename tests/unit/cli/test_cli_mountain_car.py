"""Mountain Car on the command line: a named problem whose linear system is not known."""

import json
import shlex

import numpy as np
import pytest

import vrtd
from vrtd.cli import main
from vrtd.metrics import METRICS

SMALL = shlex.split("simulate --problem mountain_car --runs 4 --gradients 2000 --batch-size 50 --checkpoints 5")


def test_json_equals_the_library(capsys):
    more = "--seed 3 --problem-seed 1 --bandwidth 1 --time-limit 200 --metric neu --metric mspbe --json"
    assert main([*SMALL, *shlex.split(more)]) == 0
    shown = json.loads(capsys.readouterr().out)
    car = vrtd.problems.mountain_car(seed=1, bandwidth=1.0, time_limit=200)
    test = vrtd.record(car, 100_000, run=2**62, shuffle=False)
    forms = tuple(METRICS[name](test) for name in ("neu", "mspbe"))
    result = vrtd.simulate(
        car, vrtd.VRTD(batch_size=50), n_runs=4, n_gradients=2000, checkpoints=5, seed=3, metrics=forms
    )
    for name in ("neu", "mspbe"):
        assert shown["metrics"][name]["mean"] == result.summary(name).mean.tolist()
    described = {"name": "mountain_car", "seed": 1, "bandwidth": 1.0, "time_limit": 200, "digest": car.digest}
    assert shown["problem"].items() >= described.items()
    assert "n_states" not in shown["problem"]


def test_the_default_metric_is_the_norm_of_the_expected_update(capsys):
    assert main([*SMALL, "--theta-0", "0"]) == 0
    shown, noise = capsys.readouterr()
    assert "problem    mountain_car, seed 0, n_features 20, gamma 0.95, bandwidth 5.0\n" in shown
    assert "\nneu\n" in shown
    assert noise == ""


def test_rows_of_mountain_car_are_a_data_set(capsys):
    more = "--algorithm td --sampling dataset --rows 2000 --metric neu --json"
    assert main([*shlex.split("simulate --problem mountain_car --runs 2 --gradients 4000"), *shlex.split(more)]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["problem"]["digest"] == vrtd.record(vrtd.problems.mountain_car(), 2000).digest
    assert np.isfinite(shown["metrics"]["neu"]["mean"]).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("simulate --problem mountain_car --sampling iid", "--sampling of a Simulator must be 'markov', but got 'iid'"),
        (
            "simulate --problem mountain_car --initial 3",
            "--initial has no effect on a Simulator, but got 3. Drop --initial",
        ),
        ("simulate --problem mountain_car --metric value_error", "The value error needs the values of a known chain"),
        ("simulate --problem mountain_car --states 3", "--states belongs to random_mdp"),
        (
            "plan --problem mountain_car --budget 100",
            "--problem must be a chain, because exact moments and",
        ),
        ("plan --problem mountain_car --budget 100 --normalise", "but is the Simulator mountain_car. Simulate"),
        ("plan --problem mountain_car --budget 100 --mode estimated", "but is the Simulator mountain_car. Simulate"),
    ],
)
def test_options_of_finite_chains_are_refused(capsys, arguments, message):
    assert main(shlex.split(arguments)) == 2
    shown, noise = capsys.readouterr()
    assert shown == ""
    assert message in noise
