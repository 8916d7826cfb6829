"""How options, names and numbers may be written, what is suggested in the place of others, and what help shows."""

from __future__ import annotations

import argparse
import shlex
from typing import Any

import pytest

import vrtd
from vrtd.checks import check_choice
from vrtd.cli import _COMMANDS, main, make_parser
from vrtd.cli.parser import parse_whole
from vrtd.errors import InvalidInputError
from vrtd.paper.experiments import FIGURES, NAMES, check_name
from vrtd.tournament.selection import choose_problems


def parse(line: str) -> argparse.Namespace:
    arguments = shlex.split(line)
    return make_parser(arguments).parse_args(arguments)


def test_underscores_and_hyphens_are_the_same_in_options_and_names() -> None:
    given = parse("simulate --problem random-walk --algorithm td-lambda --step_size=0.5 --metric value-error")
    assert (given.problem, given.algorithm, given.step_size) == ("random_walk", ["td_lambda"], 0.5)
    assert given.metrics == ["value_error"]


def test_values_keep_their_underscores() -> None:
    given = parse("evaluate --data my_file.csv --discount 0.9 --reward=my_reward --episode user_id day_of_year")
    assert (given.data, given.reward, given.episode) == (["my_file.csv"], "my_reward", ["user_id", "day_of_year"])


def test_underscores_and_hyphens_are_the_same_in_the_library() -> None:
    assert check_choice("method", None, (None, "closed_form")) is None
    assert set(choose_problems(["random_mdp"])) == {"random-mdp"}
    assert choose_problems({"mine": "random_mdp"})["mine"].identity == "random-mdp"
    assert check_name("random_mdp_iid") == check_name("figure_1") == "random-mdp-iid"
    result = vrtd.simulate(vrtd.problems.random_mdp(), vrtd.TD(), n_runs=2, n_gradients=10, metrics=("value-error",))
    assert result.metrics == ("value_error",)
    assert result.values("value-error").shape == result.values("value_error").shape
    with pytest.raises(InvalidInputError, match="Did you mean 'value_error'"):
        result.values("value-eror")


def test_every_figure_of_the_paper_names_an_experiment() -> None:
    assert set(FIGURES.values()) < set(NAMES)
    assert {check_name(name) for name in (*NAMES, *FIGURES)} == set(NAMES)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "simulat",
            "must be one of evaluate, simulate, sweep, plan, compare, reproduce, lab, doctor, but got 'simulat'.",
        ),
        ("simulat", "Did you mean 'simulate'? See: vrtd --help"),
        ("help simulat", "Did you mean 'simulate'? See: vrtd --help"),
        ("--oops", "unknown option --oops. See: vrtd --help"),
        ("simulate --stepsize 0.1", "unknown option --stepsize. Did you mean --step-size? See: vrtd simulate --help"),
        (
            "evaluate --env a --discount 1 --ordr_by=t",
            "unknown option --ordr-by. Did you mean --order-by? See: vrtd ev",
        ),
        ("plan --target 0.1", "unknown option --target. Did you mean --target-error? See: vrtd plan --help"),
        ("evaluate --enc FrozenLake-v1", "unknown option --enc. Did you mean --env? See: vrtd evaluate --help"),
        ("simulate --zzz", "unknown option --zzz. See: vrtd simulate --help"),
        ("simulate --problem baird vrtd", "unrecognized arguments: vrtd. See: vrtd simulate --help"),
        ("simulate --algorithm vrdt", "--algorithm must be one of td, "),
        ("simulate --algorithm vrdt", "got 'vrdt'. Did you mean 'vrtd'? See: vrtd simulate --help"),
        ("simulate --problem randommdp", "Did you mean 'random_mdp'? See: vrtd simulate --help"),
        (
            "simulate --metric value",
            "--metric must be one of squared_error, value_error, neu, mspbe, but got 'value'. Did",
        ),
        (
            "simulate --output lst",
            "--output must be one of random, last, average, tail, but got 'lst'. Did you mean",
        ),
        ("reproduce figur-3", "Did you mean 'figure-3'?"),
        ("compare --algorithms vrdt td", "Did you mean 'vrtd'?"),
        (
            "evaluate --data a.csv --discount 1 --missing dorp",
            "--missing must be one of error, drop, indicator, but got",
        ),
        ("evaluate --data a.csv --discount 1 --episode-end end", "--episode-end must be one of terminated, truncated,"),
    ],
)
def test_what_may_have_been_meant_is_suggested(capsys: Any, line: str, message: str) -> None:
    assert main(shlex.split(line)) == 2
    shown, noise = capsys.readouterr()
    assert shown == ""
    assert noise.count("\n") == 1
    assert message in noise


@pytest.mark.parametrize(
    ("text", "number"),
    [("1e3", 1000), ("1_000", 1000), ("25e2", 2500), ("1.5e1", 15), ("2.0", 2), ("-3", -3), ("9" * 18, 10**18 - 1)],
)
def test_whole_numbers(text: str, number: int) -> None:
    assert parse_whole(text) == number
    assert isinstance(parse_whole(text), int)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1.5", "must be a whole number, but got '1.5'"),
        ("1e-3", "must be a whole number"),
        ("nan", "must be a whole number"),
        ("inf", "must be a whole number"),
        ("ten", "must be a whole number"),
        ("", "must be a whole number"),
        ("1e18", "must be a number of at most 18 digits, but got '1e18'"),
        ("1e999999999", "must be a number of at most 18 digits"),
    ],
)
def test_numbers_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=message):
        parse_whole(text)


def test_numbers_of_options() -> None:
    given = parse("evaluate --data a.csv --discount 0.9 --samples 1e6 --batch-size 1e2 --step-size auto")
    assert (given.n_samples, given.batch_size, given.step_size) == (1_000_000, 100, "auto")
    assert parse("reproduce --runs 2e1").n_runs == 20


def test_options_that_say_how_a_log_is_read() -> None:
    line = "--order-by day time --episode user --episode-end drop --missing indicator --format csv --weight rho"
    given = parse(f"evaluate --data a.csv --discount 0.9 {line}")
    assert (given.order_by, given.episode, given.weight) == (["day", "time"], ["user"], "rho")
    assert (given.episode_end, given.missing, given.format) == ("drop", "indicator", "csv")


# Help


def test_help_is_a_command_and_version_has_a_short_option(capsys: Any) -> None:
    assert main([]) == main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert shown[: len(shown) // 2] == shown[len(shown) // 2 :]
    helps = []
    for line in ("--help", "help", "simulate --help", "help simulate"):
        assert main(shlex.split(line)) == 0
        helps.append(capsys.readouterr().out)
    assert helps[0] == helps[1]
    assert helps[2] == helps[3]
    assert helps[2].startswith("usage: vrtd simulate ")
    assert main(["-V"]) == 0
    assert capsys.readouterr().out == f"vrtd {vrtd.__version__}\n"


def test_examples_of_help_parse_and_exit_codes_are_told_once(capsys: Any) -> None:
    examples = []
    for name in ("", *_COMMANDS):
        main(["help", *name.split()])
        shown = capsys.readouterr().out
        assert ("exit codes:" in shown) == (name == "")
        lines = shown.replace("\\\n", "").splitlines()
        examples += [line.split("   ")[0] for line in (each.strip() for each in lines) if line.startswith("vrtd ")]
    assert len(examples) >= 12
    for example in examples:
        if not example.startswith("vrtd help"):
            parse(example.removeprefix("vrtd "))


def test_help_of_a_reproduction_names_the_figures(capsys: Any) -> None:
    main(["reproduce", "--help"])
    shown = " ".join(capsys.readouterr().out.replace("-\n", "-").split())
    for figure, name in FIGURES.items():
        assert f"{name} or {figure}" in shown.replace("- ", "-")
