"""Step sizes as a function of the number of updates made so far."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.checks import check_choice, check_count, check_positive
from vrtd.errors import InvalidInputError
from vrtd.kernels.jit import kernel


class Schedule(ABC):
    """A sequence of step sizes alpha_0, alpha_1, ..."""

    @abstractmethod
    def __call__(self, t: int) -> float:
        """alpha_t"""

    @property
    @abstractmethod
    def largest(self) -> float:
        """The largest step size, which decides on stability."""


@dataclass(frozen=True)
class Constant(Schedule):
    """alpha_t = value"""

    value: float

    def __post_init__(self) -> None:
        check_positive("step_size", self.value)

    def __call__(self, t: int) -> float:
        return self.value

    @property
    def largest(self) -> float:
        return self.value


@dataclass(frozen=True)
class Harmonic(Schedule):
    """alpha_t = c / (t0 + t)

    >>> Harmonic(c=10, t0=100)(0)
    0.1
    """

    c: float
    t0: float

    def __post_init__(self) -> None:
        check_positive("c", self.c)
        check_positive("t0", self.t0)

    def __call__(self, t: int) -> float:
        return self.c / (self.t0 + t)

    @property
    def largest(self) -> float:
        return self(0)


@dataclass(frozen=True)
class Piecewise(Schedule):
    """alpha_t = values[j], where j of the `boundaries` are at most t.

    >>> halving = Piecewise(boundaries=(12_000, 20_000), values=(0.1, 0.05, 0.025))
    >>> halving(11_999), halving(12_000)
    (0.1, 0.05)
    """

    boundaries: tuple[int, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.boundaries, Sequence) or not isinstance(self.values, Sequence):
            raise InvalidInputError(
                "boundaries and values must be tuples", f"{self.boundaries!r} and {self.values!r}", "pass tuples"
            )
        for boundary in self.boundaries:
            check_count("every boundary of a piecewise schedule", boundary)
        for value in self.values:
            check_positive("every value of a piecewise schedule", value)
        object.__setattr__(self, "boundaries", tuple(int(b) for b in self.boundaries))
        object.__setattr__(self, "values", tuple(float(v) for v in self.values))
        if len(self.values) != len(self.boundaries) + 1:
            raise InvalidInputError(
                "a piecewise schedule needs one value more than it has boundaries",
                f"{len(self.values)} values and {len(self.boundaries)} boundaries",
                "add or drop a value",
            )
        if any(b <= a for a, b in pairwise(self.boundaries)) or max(self.boundaries, default=0) > 2**53:
            raise InvalidInputError(
                "boundaries must increase, up to 2**53", self.boundaries, "sort them and drop what repeats"
            )

    def __call__(self, t: int) -> float:
        return self.values[int(np.searchsorted(self.boundaries, t, side="right"))]

    @property
    def largest(self) -> float:
        return max(self.values)


class ScheduleParams(NamedTuple):
    """The numbers of any schedule: what is not its own is empty or zero."""

    boundaries: NDArray[np.int64]
    values: NDArray[np.float64]
    c: float  # the constant, or the numerator
    t0: float


_CONSTANT, _HARMONIC, _PIECEWISE = range(3)
_KINDS = {Constant: _CONSTANT, Harmonic: _HARMONIC, Piecewise: _PIECEWISE}


def as_schedule(step_size: float | Schedule) -> Schedule:
    if isinstance(step_size, Schedule):
        check_choice("the kind of a schedule", type(step_size), tuple(_KINDS))
        return step_size
    return Constant(step_size)


def schedule_kind(schedule: Schedule) -> int:
    return _KINDS[type(schedule)]


def schedule_params(schedule: Schedule) -> ScheduleParams:
    match schedule:
        case Piecewise(boundaries, values):
            return ScheduleParams(np.array(boundaries, np.int64), np.array(values), 0.0, 0.0)
        case Harmonic(c, t0):
            return ScheduleParams(np.empty(0, np.int64), np.empty(0), float(c), float(t0))
        case _:
            return ScheduleParams(np.empty(0, np.int64), np.empty(0), float(schedule(0)), 0.0)


@kernel
def step_size_at(schedule, kind, t):
    """alpha_t"""
    if kind == _PIECEWISE:
        j = 0
        while j < schedule.boundaries.size and schedule.boundaries[j] <= t:
            j += 1
        return schedule.values[j]
    if kind == _HARMONIC:
        return schedule.c / (schedule.t0 + t)
    return schedule.c
