"""Who takes part, and which settings each may try: read off the registry, so that a new algorithm joins by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from vrtd.algorithms import REGISTRY, TD, TDC, VRTD, Algorithm, Harmonic
from vrtd.errors import InvalidInputError

__all__ = ["ENTRANTS", "Entrant", "Trial", "main_field", "trials"]

# What a trial changes, by the name of the field, in units of the power of max |phi| that its algorithm declares.
_MAIN = {"step_size": (2.0**-10, 2.0**5), "ridge": (1e-4, 1e3)}  # from, to
_OTHERS: Mapping[str, tuple[float, ...]] = {
    "t0": (100.0, 1000.0, 10_000.0),  # of a decreasing step: after so many updates it is half of the first
    "step_size_w": (0.25, 1.0, 4.0),  # in units of step_size
    "trace_decay": (0.0, 0.5, 0.9),
    "batch_size": (16, 64, 256),
    "mix": (0.3, 1.0, 3.0),
}
_FEWEST = 4  # points of the grid


@dataclass(frozen=True)
class Entrant:
    """An algorithm, with what makes it another method than its defaults do."""

    name: str
    algorithm: type[Algorithm]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    decreases: bool = False  # whether its step sizes fall as 1/t
    passes: bool = False  # whether it goes through a data set again and again, though it need not

    @property
    def uses_data_set(self) -> bool:
        try:
            self.algorithm(**self.fixed).epoch("markov")
        except InvalidInputError:
            return True
        return self.passes

    @property
    def words(self) -> str:
        """What it is in Python."""
        fixed = ", ".join(f"{name}={value!r}" for name, value in self.fixed.items())
        how = (", decreasing steps" if self.decreases else "") + (", on a data set" if self.passes else "")
        return f"{self.algorithm.__name__}({fixed}){how}"

    @property
    def is_quadratic(self) -> bool:
        """Whether memory, and with it work, grows with the square of the number of features."""
        algorithm = self.algorithm(**self.fixed)
        return algorithm.workspace_size(1000) > 3 * algorithm.workspace_size(500)


ENTRANTS: Mapping[str, Entrant] = MappingProxyType(
    {
        entrant.name: entrant
        for entrant in (
            *(Entrant(name, algorithm) for name, algorithm in REGISTRY.items()),
            Entrant("td_averaged", TD, {"average": True}),
            Entrant("td_decreasing", TD, decreases=True),
            Entrant("tdc_decreasing", TDC, decreases=True),
            Entrant("ctd", VRTD, {"inner": "resample", "output": "average"}),
            Entrant("td_averaged_passes", TD, {"average": True}, passes=True),
            Entrant("vrtd_passes", VRTD, passes=True),
        )
    }
)


class Trial(NamedTuple):
    algorithm: Algorithm
    main: float  # the value of the main field, in units of the problem
    combination: int  # which of the values of the others


def _grid(main: str, n: int) -> list[float]:
    """Points of the main field, in its units; one alone is the middle."""
    if not main:
        return [1.0]
    low, high = _MAIN[main]
    points: list[float] = np.geomspace(low, high, n).tolist()
    return points if n > 1 else [(low * high) ** 0.5]


def main_field(entrant: Entrant) -> str:
    """The hyperparameter whose influence is shown: the step size, or what stands in its place; "" if there is none."""
    names = {each.name for each in fields(entrant.algorithm)}  # type: ignore[arg-type]
    return next((name for name in _MAIN if name in names), "")


def trials(entrant: Entrant, n_trials: int, squared_norm: float) -> Iterator[Trial]:
    """`n_trials` settings, or a few less: a grid of the main field times every combination of others, of which as many
    are varied as leave the grid a few points. The k-th setting means the same on every problem."""
    names = {each.name for each in fields(entrant.algorithm)}  # type: ignore[arg-type]
    main, units = main_field(entrant), entrant.algorithm.units
    if entrant.decreases:
        names.add("t0")
    combinations: list[dict[str, Any]] = [{}]
    for name, values in _OTHERS.items():
        if name in names:
            varies = len(combinations) * len(values) * _FEWEST <= n_trials
            some = values if varies else values[1:2]  # the middle one
            combinations = [chosen | {name: value} for chosen in combinations for value in some]
    grid = _grid(main, n_trials // len(combinations))
    for i, chosen in enumerate(combinations):
        for value in grid:
            settings = chosen | ({main: value} if main else {})
            t0 = settings.pop("t0", None)
            if "step_size_w" in settings:
                settings["step_size_w"] *= value
            for name in settings.keys() & units.keys():
                settings[name] *= squared_norm ** (units[name] / 2)
            size = settings.get(main, value)
            if t0 is not None:
                steps = settings.keys() & {"step_size", "step_size_w"}
                settings |= {name: Harmonic(c=settings[name] * t0, t0=t0) for name in steps}
            yield Trial(entrant.algorithm(**entrant.fixed, **settings), size, i)
