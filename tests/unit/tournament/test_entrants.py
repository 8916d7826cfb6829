"""Who takes part in a tournament, on which problems, and with which settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers.tournament import (
    loaded,
)
from vrtd.algorithms import REGISTRY, Algorithm, Tuned, as_schedule
from vrtd.tournament import ENTRANTS, PROBLEMS
from vrtd.tournament.entrants import Entrant, list_trials


def test_every_algorithm_takes_part() -> None:
    assert {entrant.algorithm for entrant in ENTRANTS.values()} == set(REGISTRY.values())
    assert set(REGISTRY) <= set(ENTRANTS)


@pytest.mark.parametrize("name", [name for name, each in ENTRANTS.items() if each.algorithm.tuned])
@pytest.mark.parametrize("n_trials", [6, 18, 36])
def test_all_try_the_same_number_of_settings(name: str, n_trials: int) -> None:
    entrant = ENTRANTS[name]
    tried = list(list_trials(entrant, n_trials, 1000, 4.0))
    assert n_trials - 2 <= len(tried) <= n_trials
    assert len({repr(trial.algorithm) for trial in tried}) == len(tried)
    for trial in tried:
        assert all(getattr(trial.algorithm, key) == value for key, value in entrant.fixed.items())
        main = getattr(trial.algorithm, entrant.main_field)
        assert as_schedule(main).largest == pytest.approx(trial.main)
        assert type(main) is {"constant": float, "exponential": vrtd.Exponential}.get(entrant.steps, vrtd.Harmonic)


@pytest.mark.parametrize("name", [name for name, each in ENTRANTS.items() if not each.uses_data_set])
def test_a_setting_does_the_same_on_scaled_features(name: str) -> None:
    """The values that come out are the same: settings are in units that scale with the features."""
    entrant, problem = ENTRANTS[name], vrtd.problems.boyan_chain()
    values = []
    for scale in (1.0, 8.0):
        trial = list(list_trials(entrant, 18, 1024, float((problem.phi**2).sum(axis=1).max() * scale**2)))[9]
        scaled = vrtd.LinearProblem(problem.mrp, scale * problem.phi)
        result = vrtd.simulate(scaled, trial.algorithm, n_runs=2, n_gradients=1024, specialise=False)
        values.append(result.theta * scale)
    np.testing.assert_allclose(values[1], values[0], rtol=1e-9)


def test_exponential_steps_fall_over_the_samples_of_a_run() -> None:
    tried = [trial.algorithm.step_size for trial in list_trials(ENTRANTS["td_exponential"], 6, 1000, 4.0)]
    assert {step.n_updates for step in tried} == {1000}


def test_a_burn_in_is_a_share_of_the_samples_of_a_run() -> None:
    for n_samples, burn_in in ((1000, 100), (20_000, 2000)):
        tried = list_trials(ENTRANTS["richardson_td"], 6, n_samples, 4.0)
        assert {trial.algorithm.burn_in for trial in tried} == {burn_in}


def test_steps_that_fall_have_the_power_of_their_name() -> None:
    for name, power in (("td_decreasing", 1.0), ("tdc_decreasing", 1.0), ("td_averaged_decreasing", 2 / 3)):
        assert {t.algorithm.step_size.power for t in list_trials(ENTRANTS[name], 12, 1000, 4.0)} == {power}


def test_settings_beyond_the_main_one_are_tried_while_they_leave_a_grid() -> None:
    sizes = {
        (t.algorithm.batch_size, t.algorithm.step_size_w / t.algorithm.step_size)
        for t in list_trials(ENTRANTS["batching_svrg"], 18, 1000, 1.0)
    }
    assert sizes == {(64, 0.25), (64, 1.0), (64, 4.0)}
    assert len({t.algorithm.trace_decay for t in list_trials(ENTRANTS["td_lambda"], 12, 1000, 1.0)}) == 3
    assert {t.algorithm.trace_decay for t in list_trials(ENTRANTS["td_lambda"], 6, 1000, 1.0)} == {0.5}


def test_entrants_know_their_cost_their_data_and_their_words() -> None:
    assert [name for name, each in ENTRANTS.items() if each.is_quadratic] == ["lstd", "recursive_lstd"]
    assert {name for name, each in ENTRANTS.items() if each.uses_data_set} == {
        "primal_dual", "svrg", "batching_svrg", "scsg", "growing_scsg", "saga", "td_averaged_passes", "vrtd_passes",
    }  # fmt: skip
    assert ENTRANTS["ctd"].words == "VRTD(inner='resample', output='average')"
    assert ENTRANTS["td_averaged_passes"].words == "TD(average=True), on a data set"
    assert ENTRANTS["tdc_decreasing"].words == "TDC(), harmonic steps"
    assert ENTRANTS["td_exponential"].words == "TD(), exponential steps"


def test_named_variants_are_what_their_names_say() -> None:
    made = {name: ENTRANTS[name].algorithm(**ENTRANTS[name].fixed) for name in ("td_averaged", "ctd")}
    assert made["td_averaged"] == vrtd.TD(average=True)
    assert made["ctd"] == vrtd.VRTD(inner="resample", output="average")


def test_an_algorithm_that_declares_nothing_has_one_setting() -> None:
    @dataclass(frozen=True)
    class Still(Algorithm):
        trust: float = 0.5

        def params(self) -> Any: ...

    assert [(trial.algorithm, trial.main) for trial in list_trials(Entrant("still", Still), 18, 1000, 4.0)] == [
        (Still(), 1.0)
    ]


@dataclass(frozen=True)
class Declared(Algorithm):
    """Hyperparameters with names that no other algorithm has."""

    pace: float = 1.0
    pace_w: float = 1.0
    t0: float = 0.0
    size: int = 7
    burn_in: int = 0
    untouched: float = 0.5

    step_size_fields = ("pace", "pace_w")
    tuned = {  # noqa: RUF012
        "pace": Tuned((0.5, 8.0), power=-2),
        "pace_w": Tuned((3.0,), power=-4),
        "t0": Tuned((0.0, 1.0)),
        "size": Tuned((1, 2, 3, 4, 5)),
        "burn_in": Tuned((0.1,), is_share=True),
    }

    def params(self) -> Any: ...


def test_what_an_algorithm_declares_is_tuned() -> None:
    entrant = Entrant("declared", Declared)
    assert entrant.main_field == "pace"
    tried = [trial.algorithm for trial in list_trials(entrant, 8, 1000, 4.0)]
    points = np.geomspace(0.5, 8.0, 4).tolist()
    assert tried == [Declared(x / 4.0, 3.0 * x / 16.0, t0, 3, 100) for t0 in (0.0, 1.0) for x in points]


def test_an_entrant_may_tune_a_field_in_another_way() -> None:
    entrant = Entrant("other", Declared, retuned={"size": Tuned((0.01,), is_share=True)})
    assert entrant.main_field == "pace"
    assert {trial.algorithm.size for trial in list_trials(entrant, 8, 1000, 4.0)} == {10}


@pytest.mark.parametrize("name", [name for name in PROBLEMS if name != "mountain-car"])
def test_problems_start_with_an_error_and_know_their_units(name: str) -> None:
    problem, found = PROBLEMS[name], loaded(name)
    assert tuple(found.forms) == problem.aims
    assert all(form(found.theta_0) > 2 * form.offset for form in found.forms.values())
    assert found.squared_norm == (found.problem.phi**2).sum(axis=1).max()
    assert found.problem.mrp.is_weighted == problem.is_off_policy


def test_mountain_car_is_judged_on_transitions_of_its_own() -> None:
    found = loaded("mountain-car")
    assert tuple(found.forms) == ("equation",)
    assert found.forms["equation"].name == "neu"
    assert found.forms["equation"](found.theta_0) > 10 * found.forms["equation"].offset


def test_aims_are_what_they_say_and_the_star_starts_where_it_is_usual() -> None:
    for name in ("random-mdp", "baird"):
        assert [form.name for form in loaded(name).forms.values()] == ["mspbe", "value_error"]
    assert loaded("baird").theta_0.tolist() == [1, 1, 1, 1, 1, 1, 10, 1]
