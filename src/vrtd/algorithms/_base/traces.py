"""What the methods with a trace and a step size share: hyperparameters, and that they need a trajectory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from vrtd.algorithms._base.algorithm import STEP_SIZES, Algorithm, Tuned
from vrtd.algorithms._base.schedules import Schedule, as_schedule, schedule_kind, schedule_params
from vrtd.checks import check_fraction


class TraceParams(NamedTuple):
    schedule: Any
    trace_decay: float


class TraceOptions(NamedTuple):
    schedule: int


@dataclass(frozen=True)
class TraceMethod(Algorithm):
    """Base of the methods that step along a trace."""

    step_size: Annotated[float | Schedule, "alpha"] = 0.1
    trace_decay: Annotated[float, "lambda: 0 is TD, 1 counts on rewards alone"] = 0.8

    step_size_fields = ("step_size",)
    tuned = {"step_size": STEP_SIZES, "trace_decay": Tuned((0.0, 0.5, 0.9))}

    def __post_init__(self) -> None:
        as_schedule(self.step_size)
        check_fraction("trace_decay", self.trace_decay)

    @property
    def needs_trajectory(self) -> bool:
        return True

    def params(self) -> TraceParams:
        return TraceParams(schedule_params(as_schedule(self.step_size)), float(self.trace_decay))

    def options(self) -> TraceOptions:
        return TraceOptions(schedule_kind(as_schedule(self.step_size)))
