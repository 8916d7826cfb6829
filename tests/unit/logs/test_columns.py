"""Names of columns: the table of aliases, patterns, families, and what is said when one is missing."""

from __future__ import annotations

import pytest

from vrtd.errors import DataError, InvalidInputError
from vrtd.logs.columns import ALIASES, Columns, find_columns


def test_every_alias_is_found_alone():
    for field, aliases in ALIASES.items():
        for alias in aliases:
            base = {"observations": "obs", "reward": "r"}
            there = [name for key, name in base.items() if key != field] + [alias]
            found = find_columns(there, Columns(), "a.csv")
            assert getattr(found, "unused_weight" if field == "weight" else field) == alias, field
    every = [alias for aliases in ALIASES.values() for alias in aliases]
    assert len(every) == len(set(every))


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        (  # D4RL
            ["observations", "actions", "rewards", "terminals", "timeouts"],
            Columns("observations", "rewards", None, "terminals", "timeouts"),
        ),
        (  # RLlib
            ["obs", "new_obs", "actions", "rewards", "terminateds", "truncateds", "eps_id", "t"],
            Columns("obs", "rewards", "new_obs", "terminateds", "truncateds", episode="eps_id"),
        ),
        (  # Stable-Baselines
            ["observations", "next_observations", "rewards", "dones", "timeouts"],
            Columns("observations", "rewards", "next_observations", truncated="timeouts", done="dones"),
        ),
        (["obs_1", "obs_0", "obs_10", "reward"], None),
        (["obs.2", "obs.1", "reward"], Columns(("obs.1", "obs.2"), "reward")),
        (
            ["x_0", "x_1", "next_x_1", "next_x_0", "r", "done", "terminated"],
            Columns(("x_0", "x_1"), "r", ("next_x_0", "next_x_1"), "terminated"),
        ),
    ],
)
def test_columns_of_well_known_formats_are_found(there, expected):
    if expected is None:
        with pytest.raises(
            DataError, match=r"obs_0 to obs_10 of a.csv must be numbered without a gap, but are columns 'obs_0'"
        ):
            find_columns(there, Columns(), "a.csv")
    else:
        assert find_columns(there, Columns(), "a.csv") == expected


def test_numbers_are_ordered_as_numbers():
    there = [f"x_{j}" for j in (10, 9, 2, 1, 0, 3, 4, 5, 6, 7, 8)] + ["r"]
    expected = tuple(f"x_{j}" for j in range(11))
    assert find_columns(there, Columns(), "a").observations == expected
    assert find_columns(there, Columns("x_*"), "a").observations == expected
    assert find_columns(there, Columns(["x_5", "x_1"]), "a").observations == ("x_5", "x_1")
    assert find_columns(there, Columns("x_3"), "a").observations == "x_3"


def test_next_observations_are_found_by_the_prefix_next():
    there = ["p", "q", "next_p", "next_q", "next_obs", "r"]
    assert find_columns(there, Columns(["q", "p"]), "a").next_observations == ("next_q", "next_p")
    assert find_columns(there, Columns("p"), "a").next_observations == "next_p"
    assert find_columns(there, Columns("p", next_observations="q"), "a").next_observations == "q"
    assert find_columns(["p", "next_obs", "r"], Columns("p"), "a").next_observations == "next_obs"
    with pytest.raises(
        DataError, match="as many columns of next observations as of observations, but has columns 'next_obs'"
    ):
        find_columns(["p", "q", "next_obs", "r"], Columns(["p", "q"]), "a")


def test_named_columns_take_precedence():
    there = ["obs", "r", "my_reward", "done", "over", "cut", "ratio", "run"]
    named = Columns(None, "my_reward", None, "over", "cut", "ratio", "run")
    expected = Columns("obs", "my_reward", None, "over", "cut", "ratio", "run")
    assert find_columns(there, named, "a") == expected
    assert expected.all == ["obs", "my_reward", "over", "cut", "ratio", "run"]
    assert find_columns(["x[0]", "r"], Columns("x[0]"), "a").observations == "x[0]"


@pytest.mark.parametrize(
    ("there", "wanted", "message"),
    [
        (
            ["obs", "rewrd"],
            Columns(),
            "a.csv has no column for reward, such as rewards, .*'rewrd'. Did you mean reward='rewrd'",
        ),
        (
            ["a", "r"],
            Columns(),
            "a.csv has no column for observations, .*; it has columns 'a', 'r'. Name the column with observations=",
        ),
        ([], Columns(), "it has no columns"),
        (["x_0", "r"], Columns("y_*"), r"has no column 'y_\*' for observations; it has columns 'x_0', 'r'"),
        (["position", "r"], Columns("postion"), "has no column 'postion' .*. Did you mean 'position'?"),
        (["zz", "r"], Columns("q"), "has no column 'q' .*. Name one of them"),
        (["stop_id", "r"], Columns("step"), "has no column 'step' .*. Name one of them"),
        (
            ["obs", "r_1", "r_2"],
            Columns(reward="r_*"),
            "reward must be one column of a.csv, but matches columns 'r_1', 'r_2'",
        ),
        (["obs", "obs", "r"], Columns(), "a.csv has 2 columns named 'obs'. Rename all but one"),
    ],
)
def test_a_missing_column_is_refused_with_a_suggestion(there, wanted, message):
    with pytest.raises(DataError, match=message):
        find_columns(there, wanted, "a.csv")


def test_names_must_be_text():
    with pytest.raises(
        InvalidInputError, match="observations must be the name of a column, a pattern or a list of them, but is"
    ):
        find_columns(["obs", "r"], Columns([1, 2]), "a")  # type: ignore[list-item]
    with pytest.raises(InvalidInputError, match="observations must name at least one column, but is"):
        find_columns(["obs", "r"], Columns([]), "a")


def test_a_long_list_of_columns_is_cut():
    with pytest.raises(DataError, match=r"'c19' and 80 more. Name the column"):
        find_columns([f"c{j}" for j in range(100)], Columns(), "a")
