"""The settings of the lab: read from an address, refused out of range."""

from __future__ import annotations

import pytest

from vrtd import RichardsonTD
from vrtd.errors import InvalidInputError
from vrtd.lab.bounds import choose_bounds
from vrtd.lab.chains import CHAINS
from vrtd.lab.presets import PRESETS
from vrtd.lab.settings import ALGORITHMS, RANGES, LabSettings, as_texts, parse_settings
from vrtd.paper.counter_example import make_coin
from vrtd.paper.counter_example import settings as paper_settings

NAMES = tuple(CHAINS)


@pytest.mark.parametrize("name", PRESETS)
def test_settings_are_read_back_from_their_texts(name: str) -> None:
    settings = PRESETS[name].settings
    assert parse_settings(as_texts(settings), NAMES) == settings


def test_missing_settings_have_their_defaults() -> None:
    assert parse_settings({}, NAMES) == LabSettings()
    assert parse_settings({"radius": "", "also": ""}, NAMES) == LabSettings(also=())
    assert parse_settings({"also": "td,vrtd,td"}, NAMES).also == ("td", "vrtd")


@pytest.mark.parametrize("name", RANGES)
def test_the_ends_of_a_range_are_allowed_and_what_lies_beyond_is_not(name: str) -> None:
    least, most, whole, _ = RANGES[name]
    for value in (least, most):
        assert getattr(parse_settings({name: str(value)}, NAMES), name) == value
    for wrong in (
        str(least - 1),
        str(most + 1),
        "nan",
        "inf",
        "-inf",
        "1e999",
        "x",
        "0x10",
        *(["1.5"] if whole else []),
    ):
        with pytest.raises(InvalidInputError, match=f"^{name} must be a (whole )?number from "):
            parse_settings({name: wrong}, NAMES)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"chain": "own"}, "chain must be one of 'random_mdp'"),
        ({"algorithm": "vrdt"}, "algorithm must be one of .* Did you mean 'vrtd'?"),
        ({"also": "td,sarsa"}, "also must be one of"),
        ({"sampling": "dataset"}, "sampling must be one of 'iid', 'markov'"),
        ({"stepsize": "1"}, "'stepsize' is not a setting of the lab. Did you mean 'step_size'?"),
        ({"__class__": "1"}, "'__class__' is not a setting of the lab."),
    ],
)
def test_unknown_names_are_refused(texts: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        parse_settings(texts, NAMES)


def test_every_algorithm_can_be_built() -> None:
    built = {name: LabSettings(step_size=0.2, batch_size=30, growth=3.0).build(name) for name in ALGORITHMS}
    assert {algorithm.settings["step_size"] for algorithm in built.values()} == {0.2}
    assert (built["vrtd"].settings["batch_size"], built["vrtd"].settings["growth"]) == (30, None)
    assert built["vrtd_growing"].settings["growth"] == 3.0
    assert built["richardson_td"] == RichardsonTD(0.2, burn_in=333)  # a tenth of 10,000/3 updates


def test_the_counter_example_is_that_of_the_paper_s_audit() -> None:
    settings, coin = PRESETS["counter_example"].settings, paper_settings(1, 0)["coin"]
    assert CHAINS["coin"].build(settings).digest == make_coin(coin["gamma"]).digest
    assert (settings.step_size, settings.batch_size, settings.radius) == (
        coin["step_size"],
        coin["batch_size"],
        coin["radius"],
    )
    assert settings.n_gradients == 2 * coin["batch_size"] * coin["n_epochs"]
    assert settings.sampling == "iid"


def test_averages_and_growing_batches_have_no_bounds() -> None:
    n_bounds = {
        (name, sampling): len(choose_bounds(parse_settings({"algorithm": name, "sampling": sampling}, NAMES)))
        for name in ALGORITHMS
        for sampling in ("iid", "markov")
    }
    assert {key: n for key, n in n_bounds.items() if n} == {
        ("vrtd", "iid"): 3,
        ("vrtd", "markov"): 2,
        ("td", "iid"): 2,
        ("td", "markov"): 1,
    }
