"""The algorithms of a tournament and the settings that each may try.

All algorithms of the registry are included, so that a new one takes part automatically.
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

#: Schedule of the step sizes of an entrant: constant, 1/t, 1/t^(2/3), or exponential until the end of a run.
StepRule = Literal["constant", "harmonic", "polynomial", "exponential"]
_POWERS = {"harmonic": 1.0, "polynomial": 2 / 3}
_T0 = (100.0, 1000.0, 10_000.0)  # values of t0: the number of updates before the step decreases
_DECREASE = "c / (t0 + t)^power"  # key of t0 among the hyperparameters, different from all names of fields
_FEWEST = 4  # points of a grid
# Three batches, each 8 times as large as the previous one, use all samples. With 0.2 times as many inner steps as
# samples, the steps contract at a low cost.
_THREE_BATCHES = {"batch_size": Tuned((1 / 73,), is_share=True), "n_steps": Tuned((0.2,), is_share=True)}


@dataclass(frozen=True)
class Entrant:
    """Algorithm of a tournament: a class with fixed and tuned hyperparameters, or an object that is not tuned.

    Attributes
    ----------
    name : str
        Name in the tournament.
    algorithm : type
        Class of the algorithm.
    fixed : mapping
        Values of hyperparameters that are not tuned.
    retuned : mapping of str to Tuned
        Tuning of hyperparameters that differs from what the class declares.
    steps : {"constant", "harmonic", "polynomial", "exponential"}
        Schedule of the step sizes.
    passes : bool
        Whether it makes several passes over a data set although it does not need one.
    given : Algorithm or None
        Object of the caller, which keeps its own settings.
    """

    name: str
    algorithm: type[Algorithm]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    retuned: Mapping[str, Tuned] = field(default_factory=dict)
    steps: StepRule = "constant"
    passes: bool = False
    given: Algorithm | None = None

    @property
    def uses_data_set(self) -> bool:
        """Whether it runs on a data set instead of a stream."""
        return self.algorithm.needs_data_set or self.passes

    @property
    def tuned(self) -> Mapping[str, Tuned]:
        """Hyperparameters that are tuned, and the values that are tried."""
        return {} if self.given is not None else {**self.algorithm.tuned, **self.retuned}

    @property
    def main_field(self) -> str:
        """Hyperparameter whose sensitivity is shown: the first that is tuned, "" if none is."""
        return next(iter(self.tuned), "")

    @property
    def words(self) -> str:
        """Description as a Python expression."""
        if self.given is not None:
            return f"{self.given!r}, not tuned"
        fixed = ", ".join(f"{name}={value!r}" for name, value in self.fixed.items())
        how = "" if self.steps == "constant" else f", {self.steps} steps"
        return f"{self.algorithm.__name__}({fixed}){how}{', on a data set' if self.passes else ''}"

    @property
    def identity(self) -> str:
        """Unique description: ``words``, with a digest of the code if the class is not in this package."""
        return f"{self.words} {_code(self.algorithm)}" if self.is_local else self.words

    @property
    def is_local(self) -> bool:
        """Whether it must run in the calling process, because its class is not in this package."""
        return self.given is not None and type(self.given) not in REGISTRY.values()

    @property
    def is_quadratic(self) -> bool:
        """Whether work and memory are quadratic in the number of features."""
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
#: Standard algorithms by name.
ENTRANTS: Mapping[str, Entrant] = MappingProxyType({entrant.name: entrant for entrant in _STANDARD})


def make_entrant(name: str, algorithm: Any) -> Entrant:
    """Return an algorithm object as an entrant of a tournament."""
    if not isinstance(algorithm, Algorithm):
        raise InvalidInputError(
            f"An algorithm of a comparison must be a name or an Algorithm, but got {algorithm!r}.",
            "Pass an object such as vrtd.TD(0.1).",
        )
    return Entrant(name, type(algorithm), given=algorithm)


def _code(kind: type[Algorithm]) -> str:
    """Return a digest of the kernels and methods of a class."""
    methods = [each for base in kind.__mro__ for each in vars(base).values() if isinstance(each, FunctionType)]
    return digest(*vars(kind.kernels).values(), *methods)


class Trial(NamedTuple):
    """One setting that is tried."""

    algorithm: Algorithm
    main: float  # value of the main field, in units of the problem
    combination: int  # index of the values of the other fields


def list_trials(entrant: Entrant, n_trials: int, n_samples: int, squared_norm: float) -> Iterator[Trial]:
    """Yield `n_trials` settings, or a few less: a grid of the main field times the combinations of the other fields.

    As many other fields vary as leave the grid at least four points. The k-th setting means the same on every problem.
    Exponential steps decrease until `n_samples`. An object of the caller has its own settings only.
    """
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
    """Return step sizes that begin with `first`; exponential ones do not use `t0`."""
    if rule == "exponential":
        return Exponential(first, n_samples)
    return Harmonic(first * t0 ** _POWERS[rule], t0, _POWERS[rule])
