"""Step sizes that change: the compiled ones are those that Python computes."""

from __future__ import annotations

import math

import pytest

import vrtd
from vrtd.algorithms._base.schedules import schedule_kind, schedule_params, step_size_at

SCHEDULES = [
    vrtd.Constant(0.1),
    vrtd.Harmonic(c=4.0, t0=20.0),
    vrtd.Harmonic(c=4.0, t0=20.0, power=0.6),
    vrtd.Piecewise((10, 20), (0.2, 0.1, 0.05)),
    vrtd.Exponential(0.5, 100),
]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
def test_a_compiled_step_is_that_of_python(schedule: vrtd.algorithms.Schedule) -> None:
    params, kind = schedule_params(schedule), schedule_kind(schedule)
    for t in (0, 1, 9, 10, 50, 99, 100, 101, 1000):
        assert step_size_at(params, kind, t) == pytest.approx(schedule(t), rel=1e-14)


def test_exponential_steps_fall_by_one_factor_and_then_stay() -> None:
    schedule = vrtd.Exponential(0.5, 100)
    assert schedule.largest == schedule(0) == 0.5
    for t in range(100):
        assert schedule(t + 1) / schedule(t) == pytest.approx(math.exp(-math.log(100) / 100), rel=1e-12)
    assert schedule(100) == schedule(101) == schedule(10**9) == pytest.approx(0.5 / 100, rel=1e-14)
    assert vrtd.Exponential(0.5, 1)(7) == 0.5  # a run of one update
