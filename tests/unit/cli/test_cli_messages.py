"""Errors in the words of the shell: options, never parameters or objects of Python."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from vrtd.algorithms import REGISTRY
from vrtd.cli import main, make_parser
from vrtd.cli.messages import to_shell
from vrtd.cli.outputs import folder
from vrtd.logs.environment import EnvironmentLog

FLAGS = {
    "n_runs": "--runs",
    "n_states": "--states",
    "step_size": "--step-size",
    "step_size_w": "--step-size-w",
    "sampling": "--sampling",
    "features": "--features",
    "reward": "--reward",
    "order_by": "--order-by",
    "average": "--average",
}


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("n_runs must be at least 1", "--runs must be at least 1"),
        ("n_runs must be at least 1. Raise n_runs.", "--runs must be at least 1. Raise --runs."),
        ("step_size_w 2 or step_size 1, lower n_states", "--step-size-w 2 or --step-size 1, lower --states"),
        ("step_size=1.5 is unstable. Lower step_size.", "--step-size 1.5 is unstable. Lower --step-size."),
        ("features must be given; choose features", "--features must be given; choose features"),
        ("the reward of row 5 must be finite", "the reward of row 5 must be finite"),
        ("Got sampling='iid'. Use sampling=\"markov\".", "Got --sampling iid. Use --sampling markov."),
        ("Sort them with order_by='...', or drop features.", "Sort them with --order-by, or drop --features."),
        ("Pass order_by=, or average=True, or step_size=0.1.", "Pass --order-by, or --average, or --step-size 0.1."),
        ("It is unknown. Pass order_by=...", "It is unknown. Pass --order-by."),
        ("Pass order_by=..., sorted.", "Pass --order-by, sorted."),
        ("Use average=True.", "Use --average."),
        ("Drop reward, or change sampling.", "Drop --reward, or change --sampling."),
        ("It is odd. Change sampling. Omit features", "It is odd. Change --sampling. Omit --features"),
        ("Drop reward columns, or change sampling.csv", "Drop reward columns, or change sampling.csv"),
        ("a.csv must have a column 'n_runs'", "a.csv must have a column 'n_runs'"),
        ("data/n_runs must be there; see n_runs.csv", "data/n_runs must be there; see n_runs.csv"),
        (
            "write rff:9,features=1, but got TD(step_size=1). Say (features=2)",
            "write rff:9,features=1, but got TD(step_size=1). Say (--features 2)",
        ),
        ("x == 1 if sampling==2", "x == 1 if sampling==2"),
        ("It is 1 (of 2). Simulate (with vrtd.record(problem, 5), say).", "It is 1 (of 2). Simulate."),
        ("\x1b[33mWARN: old\x1b[0m", "WARN: old"),
    ],
)
def test_parameters_become_options(message: str, expected: str) -> None:
    assert to_shell(message, FLAGS) == expected


def options_of(command: str) -> list[Any]:
    parser: Any = make_parser([command])
    actions = parser._subparsers._group_actions[0].choices[command]._actions
    return [action for action in actions if action.option_strings and action.nargs is None]


@pytest.mark.parametrize("command", ["simulate", "plan", "compare", "reproduce", "evaluate"])
def test_a_value_of_the_wrong_kind_names_its_option(capsys: Any, command: str) -> None:
    actions = [action for action in options_of(command) if action.type not in (None, Path, folder)]
    for flag in (action.option_strings[0] for action in actions if action.dest != "names"):
        assert main([command, flag, "nonsense"]) == 2
        noise = capsys.readouterr().err
        assert noise.startswith(f"vrtd: error: {flag} must be "), noise
        assert noise.endswith(f". See: vrtd {command} --help\n")


SMALL = {
    "simulate": "--runs 2 --gradients 2000 --quiet",
    "plan": "--problem random_walk --budget 9 --quiet",
    "compare": "--algorithms td vrtd --quiet",
    "reproduce": "--quiet",
    "evaluate": "--env FrozenLake-v1 --discount 0.9 --quiet",
}
NEED_A_DATA_SET = [name for name, algorithm in REGISTRY.items() if algorithm.needs_data_set]
#: Options that need another one beside them.
TOGETHER = {
    "--rows": "--sampling dataset",
    "--transitions": "--mode estimated",
    "--confidence": "--mode estimated",
    "--target-error": "",
    "--period": "--algorithm target_td --update periodic",
}
TAKES_ANY_NUMBER = ("left_reward", "theta_0")


@pytest.mark.parametrize("command", SMALL)
def test_a_number_out_of_range_is_refused_in_words_of_the_shell(
    capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(EnvironmentLog, "chunks", lambda _: pytest.fail("sampling began"))
    tables = vars(make_parser([command]).parse_args([command, *shlex.split(SMALL[command])])).get("tables", {})
    numbers = [action for action in options_of(command) if action.metavar in ("N", "X", "K", "STATE")]
    assert len(numbers) >= 3
    for action in numbers:
        if action.dest in TAKES_ANY_NUMBER:
            continue
        flag = action.option_strings[0]
        small = SMALL[command].replace("--budget 9", "") if flag in ("--budget", "--target-error") else SMALL[command]
        owners = [
            f"--{kind} {next(name for name, options in table.items() if action.dest in options)}"
            for kind, table in tables.items()
            if any(action.dest in options for options in table.values())
        ]
        needs = "--sampling dataset" if owners and owners[0].removeprefix("--algorithm ") in NEED_A_DATA_SET else ""
        line = f"{small} {' '.join(owners)} {needs} {TOGETHER.get(flag, '')} {flag}=-1"
        assert main([command, *shlex.split(line)]) == 2, line
        shown, noise = capsys.readouterr()
        assert shown == ""
        assert flag in noise, (line, noise)
        assert not re.search(r"\bvrtd\.|\w=|=['\"]|\bn_[a-z]|step_size|batch_size", noise), (line, noise)
        assert list(tmp_path.iterdir()) == []
