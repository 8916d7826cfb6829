"""Step sizes as a function of the number of updates made so far."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import Floats
from vrtd.checks import check_choice, check_count, check_exact_count, check_positive, require
from vrtd.kernels.jit import kernel


class Schedule(ABC):
    """A sequence of step sizes alpha_0, alpha_1, ..."""

    @abstractmethod
    def __call__(self, t: int) -> float:
        """alpha_t"""

    @property
    def largest(self) -> float:
        """The largest step size, which decides on stability: the first one, unless steps may grow."""
        return self(0)


@dataclass(frozen=True)
class Constant(Schedule):
    """alpha_t = value"""

    value: float

    def __post_init__(self) -> None:
        check_positive("step_size", self.value)

    def __call__(self, t: int) -> float:
        return self.value


@dataclass(frozen=True)
class Harmonic(Schedule):
    """alpha_t = c / (t0 + t)**power, the terms of a harmonic series or, with another power than 1, a generalised one.

    Power 1 is for the last iterate. A power between 1/2 and 1, such as 2/3, is for the average of all iterates: it
    tends to theta_star on a trajectory, too, where a constant step leaves a bias (Polyak and Juditsky, 1992, SIAM J.
    Control Optim. 30).

    Examples
    --------
    >>> Harmonic(c=10, t0=100)(0)
    0.1
    """

    c: float
    t0: float
    power: float = 1.0

    def __post_init__(self) -> None:
        check_positive("c", self.c)
        check_positive("t0", self.t0)
        check_positive("power", self.power)

    def __call__(self, t: int) -> float:
        return float(self.c / (self.t0 + t) ** self.power)


@dataclass(frozen=True)
class Exponential(Schedule):
    """alpha_t = first * n_updates**(-t / n_updates), from `first` down to first / n_updates; later it stays there.

    For the last iterate of a run whose length is known. The early steps are large enough to forget theta_0, the late
    ones so small that little noise is left, and no constant depends on how fast the run converges. That is shown for
    independent samples; for a trajectory the authors add a ridge to the update, which is left out here (Li, Schmidt,
    Babanezhad and Vaswani, 2026, Towards parameter-free temporal difference learning, arXiv 2603.02577).

    Parameters
    ----------
    first : float
        The first step size, alpha_0.
    n_updates : int
        The number of updates of the run, T.

    Examples
    --------
    >>> falling = Exponential(first=0.5, n_updates=100)
    >>> falling(0), falling(50), falling(100), falling(200)
    (0.5, 0.05, 0.005, 0.005)
    """

    first: float
    n_updates: int

    def __post_init__(self) -> None:
        check_positive("first", self.first)
        check_exact_count("n_updates", self.n_updates)

    def __call__(self, t: int) -> float:
        return float(self.first * self.n_updates ** (-min(t, self.n_updates) / self.n_updates))


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
        are_lists = isinstance(self.boundaries, Sequence) and isinstance(self.values, Sequence)
        got = f"{self.boundaries!r} and {self.values!r}"
        require(are_lists, "boundaries and values must be tuples", got, "pass tuples")
        boundaries = tuple(check_count("every boundary of a piecewise schedule", b) for b in self.boundaries)
        values = tuple(check_positive("every value of a piecewise schedule", v) for v in self.values)
        object.__setattr__(self, "boundaries", boundaries)
        object.__setattr__(self, "values", values)
        got = f"{len(values)} values and {len(boundaries)} boundaries"
        must = "a piecewise schedule needs one value more than it has boundaries"
        require(len(values) == len(boundaries) + 1, must, got, "add or drop a value")
        increase = all(a < b for a, b in pairwise((*boundaries, 2**53 + 1)))
        require(increase, "boundaries must increase, up to 2**53", boundaries, "sort them and drop what repeats")

    def __call__(self, t: int) -> float:
        return self.values[int(np.searchsorted(self.boundaries, t, side="right"))]

    @property
    def largest(self) -> float:
        return max(self.values)


class ScheduleParams(NamedTuple):
    """The numbers of any schedule: what is not its own is empty or zero."""

    c: float = 0.0  # the constant, the numerator, or the first step
    t0: float = 0.0
    power: float = 0.0
    n_updates: float = 0.0
    boundaries: NDArray[np.int64] = np.empty(0, np.int64)
    values: Floats = np.empty(0)


_KINDS = (Constant, Harmonic, Piecewise, Exponential)
_CONSTANT, _HARMONIC, _PIECEWISE, _EXPONENTIAL = range(4)  # their places


def as_schedule(step_size: float | Schedule, name: str = "step_size") -> Schedule:
    if isinstance(step_size, Schedule):
        check_choice("the kind of a schedule", type(step_size), _KINDS)
        return step_size
    return Constant(check_positive(name, step_size))


def schedule_kind(step_size: float | Schedule) -> int:
    return _KINDS.index(type(as_schedule(step_size)))


def schedule_params(step_size: float | Schedule) -> ScheduleParams:
    match as_schedule(step_size):
        case Piecewise(boundaries, values):
            return ScheduleParams(boundaries=np.array(boundaries, np.int64), values=np.array(values))
        case Harmonic(c, t0, power):
            return ScheduleParams(float(c), float(t0), float(power))
        case Exponential(first, n_updates):
            return ScheduleParams(float(first), n_updates=float(n_updates))
        case constant:
            return ScheduleParams(float(constant(0)))


@kernel
def step_size_at(schedule, kind, t):
    """alpha_t"""
    if kind == _PIECEWISE:
        j = 0
        while j < schedule.boundaries.size and schedule.boundaries[j] <= t:
            j += 1
        return schedule.values[j]
    if kind == _HARMONIC:
        return schedule.c / (schedule.t0 + t) ** schedule.power
    if kind == _EXPONENTIAL:
        return schedule.c * schedule.n_updates ** (-min(t, schedule.n_updates) / schedule.n_updates)
    return schedule.c
