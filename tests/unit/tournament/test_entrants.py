"""A comparison tunes what an algorithm declares, whatever the names of its hyperparameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vrtd.algorithms import Algorithm, Tuned
from vrtd.tournament.entrants import Entrant, main_field, trials


def test_an_algorithm_that_declares_nothing_has_one_setting() -> None:
    @dataclass(frozen=True)
    class Still(Algorithm):
        trust: float = 0.5

        def params(self) -> Any: ...

    assert [(trial.algorithm, trial.main) for trial in trials(Entrant("still", Still), 18, 4.0)] == [(Still(), 1.0)]


@dataclass(frozen=True)
class Declared(Algorithm):
    """Hyperparameters with names that no other algorithm has."""

    pace: float = 1.0
    pace_w: float = 1.0
    t0: float = 0.0
    size: int = 7
    untouched: float = 0.5

    step_size_fields = ("pace", "pace_w")
    tuned = {  # noqa: RUF012
        "pace": Tuned((0.5, 8.0), power=-2),
        "pace_w": Tuned((3.0,), power=-4),
        "t0": Tuned((0.0, 1.0)),
        "size": Tuned((1, 2, 3, 4, 5)),
    }

    def params(self) -> Any: ...


def test_what_an_algorithm_declares_is_tuned() -> None:
    entrant = Entrant("declared", Declared)
    assert main_field(entrant) == "pace"
    tried = [trial.algorithm for trial in trials(entrant, 8, 4.0)]
    points = np.geomspace(0.5, 8.0, 4).tolist()
    assert tried == [Declared(x / 4.0, 3.0 * x / 16.0, t0, 3) for t0 in (0.0, 1.0) for x in points]
