"""Step sizes as a function of the number of previous updates."""

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
    """Base class of step-size schedules, sequences alpha_0, alpha_1, ...

    Algorithms accept the schedules of this package: `Constant`, `Harmonic`, `Exponential` and `Piecewise`. Other
    subclasses are refused, because compiled loops have code for these four.

    Examples
    --------
    >>> schedule = Harmonic(c=10, t0=100)
    >>> schedule(0), schedule.largest
    (0.1, 0.1)
    """

    @abstractmethod
    def __call__(self, t: int) -> float:
        """Return alpha_t.

        Parameters
        ----------
        t : int
            Number of previous updates.

        Returns
        -------
        float
            The step size of the next update.
        """

    @property
    def largest(self) -> float:
        """Largest step size, which decides stability. It is the first one unless step sizes can increase."""
        return self(0)


@dataclass(frozen=True)
class Constant(Schedule):
    """Constant step size: alpha_t = value.

    Parameters
    ----------
    value : float
        The step size.

    Examples
    --------
    >>> Constant(0.1)(1000)
    0.1
    """

    value: float

    def __post_init__(self) -> None:
        check_positive("step_size", self.value)

    def __call__(self, t: int) -> float:
        return self.value


@dataclass(frozen=True)
class Harmonic(Schedule):
    """Step sizes that decrease as a power of t: alpha_t = c / (t0 + t)^power.

    Power 1 suits the last iterate. A power between 1/2 and 1, such as 2/3, suits the average of all iterates. The
    average then converges to theta_star also on a trajectory, where a constant step size leaves a bias.

    Parameters
    ----------
    c : float
        Numerator.
    t0 : float
        Offset of the number of updates.
    power : float, default=1.0
        Exponent of the denominator.

    References
    ----------
    B. T. Polyak and A. B. Juditsky (1992), Acceleration of stochastic approximation by averaging, SIAM J. Control
    Optim. 30.

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
    """Step sizes that decrease geometrically: alpha_t = first n_updates^(-t / n_updates).

    They decrease from first to first / n_updates and then stay there. The schedule suits the last iterate of a run of
    known length: the early step sizes are large enough to forget theta_0, and the late ones leave little noise. No
    constant depends on the rate of convergence.

    Parameters
    ----------
    first : float
        First step size, alpha_0.
    n_updates : int
        Number of updates of the run.

    Notes
    -----
    The analysis in the reference is for independent samples. For a trajectory, its authors add a ridge to the update,
    which is left out here.

    References
    ----------
    Li, Schmidt, Babanezhad and Vaswani (2026), Towards parameter-free temporal difference learning, arXiv 2603.02577.

    Examples
    --------
    >>> schedule = Exponential(first=0.5, n_updates=100)
    >>> schedule(0), schedule(50), schedule(100), schedule(200)
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
    """Piecewise constant step sizes: alpha_t = values[j], where j is the number of boundaries that are at most t.

    Parameters
    ----------
    boundaries : tuple of int
        Numbers of updates at which the step size changes, in increasing order.
    values : tuple of float
        Step sizes, one more than there are boundaries.

    Examples
    --------
    >>> halving = Piecewise(boundaries=(12_000, 20_000), values=(0.1, 0.05, 0.025))
    >>> halving(11_999), halving(12_000)
    (0.1, 0.05)
    """

    boundaries: tuple[int, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        are_lists = isinstance(self.boundaries, Sequence) and isinstance(self.values, Sequence)
        problem = f"boundaries and values must be tuples, but got {self.boundaries!r} and {self.values!r}."
        require(are_lists, problem, "Pass tuples.")
        boundaries = tuple(check_count("every boundary of a piecewise schedule", b) for b in self.boundaries)
        values = tuple(check_positive("every value of a piecewise schedule", v) for v in self.values)
        object.__setattr__(self, "boundaries", boundaries)
        object.__setattr__(self, "values", values)
        counts = f"{len(values)} values and {len(boundaries)} boundaries"
        problem = f"values must have one entry more than boundaries, but got {counts}."
        require(len(values) == len(boundaries) + 1, problem, "Add or drop a value.")
        increase = all(a < b for a, b in pairwise((*boundaries, 2**53 + 1)))
        problem = f"boundaries must increase and be at most 2**53, but got {boundaries}."
        require(increase, problem, "Sort them and drop duplicates.")

    def __call__(self, t: int) -> float:
        return self.values[int(np.searchsorted(self.boundaries, t, side="right"))]

    @property
    def largest(self) -> float:
        return max(self.values)


class ScheduleParams(NamedTuple):
    """Numbers of any schedule. Those that a schedule does not have are empty or zero."""

    c: float = 0.0  # the constant, the numerator, or the first step size
    t0: float = 0.0
    power: float = 0.0
    n_updates: float = 0.0
    boundaries: NDArray[np.int64] = np.empty(0, np.int64)
    values: Floats = np.empty(0)


_KINDS = (Constant, Harmonic, Piecewise, Exponential)
_CONSTANT, _HARMONIC, _PIECEWISE, _EXPONENTIAL = range(4)  # indices in _KINDS


def as_schedule(step_size: float | Schedule, name: str = "step_size") -> Schedule:
    """Return a step size as a schedule.

    Parameters
    ----------
    step_size : float or Schedule
        A positive number, or a schedule of this package.
    name : str, default="step_size"
        Name of the parameter in error messages.

    Returns
    -------
    Schedule
        The schedule itself, or a `Constant`.

    Examples
    --------
    >>> as_schedule(0.1)
    Constant(value=0.1)
    """
    if isinstance(step_size, Schedule):
        check_choice("the kind of a schedule", type(step_size), _KINDS)
        return step_size
    return Constant(check_positive(name, step_size))


def schedule_kind(step_size: float | Schedule) -> int:
    """Return the index of the kind of the schedule, a constant of the compiled loop."""
    return _KINDS.index(type(as_schedule(step_size)))


def schedule_params(step_size: float | Schedule) -> ScheduleParams:
    """Return the numbers of a schedule, arguments of the compiled loop."""
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
    """Return alpha_t."""
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
