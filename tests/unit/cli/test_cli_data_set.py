"""`vrtd simulate --sampling dataset`: the named problem gives the rows, the library does the rest."""

import json
import shlex

import pytest

import vrtd
from vrtd.cli import main

SMALL = shlex.split("simulate --algorithm saga --sampling dataset --runs 4 --gradients 2000 --checkpoints 5")


def test_json_equals_the_library(capsys):
    assert main([*SMALL, "--rows", "300", "--seed", "3", "--initial", "2", "--step-size-w", "0.2", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    data = vrtd.record(vrtd.problems.random_mdp(), 300, seed=3, initial=2)
    result = vrtd.simulate(
        data, vrtd.SAGA(step_size_w=0.2), sampling="dataset", n_runs=4, n_gradients=2000, checkpoints=5, seed=3
    )
    assert shown["metrics"]["squared_error"]["mean"] == result.summary().mean.tolist()
    assert shown["problem"]["n_rows"] == 300
    assert shown["problem"]["digest"] == data.digest
    assert shown["sampling"] == "dataset"


def test_the_text_shows_the_rows_and_every_metric(capsys):
    assert main([*SMALL, "--metric", "neu", "--metric", "mspbe", "--metric", "squared_error"]) == 0
    shown, noise = capsys.readouterr()
    assert "n_features 4, gamma 0.95, normalize False, laziness 0.0, n_rows 1000" in shown
    assert "4, dataset sampling, seed 0" in shown
    assert noise == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "--algorithm svrg",
            "svrg needs a data set because it uses rows repeatedly, but got --sampling markov. Use --sampling dataset",
        ),
        (
            "--algorithm scsg --sampling iid",
            "scsg needs a data set because it uses rows repeatedly, but got --sampling iid. Use",
        ),
        ("--rows 50", "--rows belongs to --sampling dataset, but got --sampling markov. Drop it, or change --sampling"),
        ("--rows 50 --sampling iid", "--rows belongs to --sampling dataset, but got --sampling iid. Drop it"),
        ("--sampling dataset --rows 0", "--rows must be a whole number of at least 1, but got 0"),
        ("--sampling dataset --metric value_error", "The value error needs the values of a known chain"),
        ("--levels 3", "--levels belongs to richardson_td, but got --algorithm vrtd. Drop it"),
    ],
)
def test_bad_usage_is_refused(capsys, arguments, message):
    assert main(["simulate", *shlex.split(arguments)]) == 2
    shown, noise = capsys.readouterr()
    assert shown == ""
    assert noise.startswith("vrtd: error: ")
    assert message in noise
