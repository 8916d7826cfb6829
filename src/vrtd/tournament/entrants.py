"""The algorithms of a tournament and the settings that each may try.

They are read off the registry, so that a new algorithm takes part by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import FunctionType, MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np

from vrtd.algorithms import REGISTRY, TD, TDC, VRTD, Algorithm, Exponential, Harmonic, Schedule, Tuned
from vrtd.errors import InvalidInputError
from vrtd.kernels.digest import digest

#: How the step sizes of an entrant change: not at all, as 1/t, as 1/t^(2/3), or exponentially until the end of the run.
StepRule = Literal["constant", "harmonic", "polynomial", "exponential"]
_POWERS = {"harmonic": 1.0, "polynomial": 2 / 3}
_T0 = (100.0, 1000.0, 10_000.0)  # of a polynomial: until so many updates the step falls little
_DECREASE = "c / (t0 + t)^power"  # the key of t0 among hyperparameters: not the name of a field
_FEWEST = 4  # points of the grid
# Three batches, each 8 times the one before, take up all samples; 0.2 is enough for steps to contract at little cost.
_THREE_BATCHES = {"batch_size": Tuned((1 / 73,), is_share=True), "n_steps": Tuned((0.2,), is_share=True)}


@dataclass(frozen=True)
class Entrant:
    """An algorithm, with what makes it another method than its defaults do; or one object, which is not tuned."""

    name: str
    algorithm: type[Algorithm]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    retuned: Mapping[str, Tuned] = field(default_factory=dict)  # what is tuned otherwise than the algorithm declares
    steps: StepRule = "constant"
    passes: bool = False  # whether it goes through a data set again and again, though it need not
    given: Algorithm | None = None  # an object of the caller's, with its own settings

    @property
    def uses_data_set(self) -> bool:
        return self.algorithm.needs_data_set or self.passes

    @property
    def tuned(self) -> Mapping[str, Tuned]:
        """The hyperparameters that are tuned, and the values that are tried."""
        return {} if self.given is not None else {**self.algorithm.tuned, **self.retuned}

    @property
    def main_field(self) -> str:
        """The hyperparameter whose influence is shown: the first that is tuned; "" if there is none."""
        return next(iter(self.tuned), "")

    @property
    def words(self) -> str:
        """What it is in Python."""
        if self.given is not None:
            return f"{self.given!r}, not tuned"
        fixed = ", ".join(f"{name}={value!r}" for name, value in self.fixed.items())
        how = "" if self.steps == "constant" else f", {self.steps} steps"
        return f"{self.algorithm.__name__}({fixed}){how}{', on a data set' if self.passes else ''}"

    @property
    def identity(self) -> str:
        """What it is: as `words`, and for a class outside this package also by its code."""
        return f"{self.words} {_code(self.algorithm)}" if self.is_local else self.words

    @property
    def is_local(self) -> bool:
        """Whether it can run in the calling process only: another one does not have the caller's classes."""
        return self.given is not None and type(self.given) not in REGISTRY.values()

    @property
    def is_quadratic(self) -> bool:
        """Whether work and memory grow with the square of the number of features."""
        return self.algorithm.cost == "quadratic"


_STANDARD = (
    *(Entrant(name, algorithm) for name, algorithm in REGISTRY.items()),
    Entrant("td_averaged", TD, {"average": True}),
    Entrant("td_decreasing", TD, steps="harmonic"),
    Entrant("td_averaged_decreasing", TD, {"average": True}, steps="polynomial"),
    Entrant("td_exponential", TD, steps="exponential"),
    Entrant("tdc_decreasing", TDC, steps="harmonic"),
    Entrant("ctd", VRTD, {"inner": "resample", "output": "average"}),
    Entrant("vrtd_growing", VRTD, {"growth": 8.0, "output": "average"}, _THREE_BATCHES),
    Entrant("td_averaged_passes", TD, {"average": True}, passes=True),
    Entrant("vrtd_passes", VRTD, passes=True),
)
ENTRANTS: Mapping[str, Entrant] = MappingProxyType({entrant.name: entrant for entrant in _STANDARD})


def make_entrant(name: str, algorithm: Any) -> Entrant:
    """Return an algorithm object of the caller's as an entrant of a tournament."""
    if not isinstance(algorithm, Algorithm):
        raise InvalidInputError(
            "an algorithm of a comparison must be a name or an Algorithm", repr(algorithm), "pass vrtd.TD(0.1), say"
        )
    return Entrant(name, type(algorithm), given=algorithm)


def _code(kind: type[Algorithm]) -> str:
    """Return a digest of the kernels and methods of a class."""
    methods = [each for base in kind.__mro__ for each in vars(base).values() if isinstance(each, FunctionType)]
    return digest(*vars(kind.kernels).values(), *methods)


class Trial(NamedTuple):
    algorithm: Algorithm
    main: float  # the value of the main field, in units of the problem
    combination: int  # which of the values of the others


def list_trials(entrant: Entrant, n_trials: int, n_samples: int, squared_norm: float) -> Iterator[Trial]:
    """`n_trials` settings, or a few less: a grid of the main field times every combination of others, of which as many
    are varied as leave the grid a few points. The k-th setting means the same on every problem. Steps that fall to the
    end of a run do so within `n_samples`. A given object has its own settings and no others."""
    if entrant.given is not None:
        yield Trial(entrant.given, 1.0, 0)
        return
    main, tuned, steps = entrant.main_field, entrant.tuned, entrant.algorithm.step_size_fields
    others: dict[str, tuple[float, ...]] = {_DECREASE: _T0} if entrant.steps in _POWERS else {}
    others |= {name: each.values for name, each in tuned.items() if name != main}
    combinations: list[dict[str, Any]] = [{}]
    for name, values in others.items():
        varies = len(combinations) * len(values) * _FEWEST <= n_trials
        some = values if varies else (values[len(values) // 2],)  # the middle one
        combinations = [chosen | {name: value} for chosen in combinations for value in some]
    grid = [1.0]
    if main:
        n, (low, high) = n_trials // len(combinations), tuned[main].values
        grid = np.geomspace(low, high, n).tolist() if n > 1 else [(low * high) ** 0.5]
    for i, chosen in enumerate(combinations):
        for value in grid:
            settings = chosen | ({main: value} if main else {})
            t0 = settings.pop(_DECREASE, None)
            for name in settings:
                if main in steps and name in steps and name != main:
                    settings[name] *= value
                if tuned[name].power:
                    settings[name] *= squared_norm ** (tuned[name].power / 2)
                if tuned[name].is_share:
                    settings[name] = max(int(settings[name] * n_samples), 1)
            size = settings.get(main, value)
            if entrant.steps != "constant":
                settings |= {name: _make_schedule(entrant.steps, settings[name], t0, n_samples) for name in steps}
            yield Trial(entrant.algorithm(**entrant.fixed, **settings), size, i)


def _make_schedule(rule: StepRule, first: float, t0: float, n_samples: int) -> Schedule:
    """Return step sizes that begin with `first`; `t0` is of no use to exponential ones."""
    if rule == "exponential":
        return Exponential(first, n_samples)
    return Harmonic(first * t0 ** _POWERS[rule], t0, _POWERS[rule])
