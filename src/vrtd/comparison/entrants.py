"""Who takes part, and which hyperparameters each may try: read off the registry, so that a new algorithm joins by
itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

import numpy as np

from vrtd.algorithms import REGISTRY, TD, VRTD, Algorithm
from vrtd.errors import InvalidInputError

__all__ = ["ENTRANTS", "Entrant", "main_field", "trials"]

# What a trial changes, by the name of the field. Step sizes are in units of 1 / max |phi|^2, the ridge in units of it.
_MAIN = {"step_size": (2.0**-9, 2.0), "ridge": (1e-4, 1e3)}  # from, to
_OTHERS: Mapping[str, tuple[float, ...]] = {
    "step_size_w": (0.25, 1.0, 4.0),  # in units of step_size
    "trace_decay": (0.0, 0.5, 0.9),
    "batch_size": (16, 64, 256),
    "mix": (0.3, 1.0, 3.0),
}
_FEWEST = 4  # points of the grid


@dataclass(frozen=True)
class Entrant:
    """An algorithm, with the fields that make it another method than its defaults do."""

    name: str
    algorithm: type[Algorithm]
    fixed: Mapping[str, Any] = field(default_factory=dict)

    @property
    def needs_data_set(self) -> bool:
        try:
            self.algorithm(**self.fixed).epoch("markov")
        except InvalidInputError:
            return True
        return False

    @property
    def is_quadratic(self) -> bool:
        """Whether memory, and with it work, grows with the square of the number of features."""
        algorithm = self.algorithm(**self.fixed)
        return algorithm.workspace_size(1000) > 3 * algorithm.workspace_size(500)


ENTRANTS: Mapping[str, Entrant] = MappingProxyType(
    {name: Entrant(name, algorithm) for name, algorithm in REGISTRY.items()}
    | {
        "td_averaged": Entrant("td_averaged", TD, {"average": True}),
        "ctd": Entrant("ctd", VRTD, {"inner": "resample", "output": "average"}),
    }
)


def main_field(entrant: Entrant) -> str:
    """The hyperparameter whose influence is shown: the step size, or what stands in its place."""
    names = {each.name for each in fields(entrant.algorithm)}  # type: ignore[arg-type]
    return next(name for name in _MAIN if name in names)


def trials(entrant: Entrant, n_trials: int, squared_norm: float) -> Iterator[Algorithm]:
    """`n_trials` settings, or a few less: a grid of the main field times every combination of others, of which there
    are as many as leave the grid a few points."""
    names = {each.name for each in fields(entrant.algorithm)} - set(entrant.fixed)  # type: ignore[arg-type]
    main = main_field(entrant)
    combinations: list[dict[str, Any]] = [{"step_size_w": 1.0} if "step_size_w" in names else {}]
    for name, values in _OTHERS.items():
        if name in names and len(combinations) * len(values) * _FEWEST <= n_trials:
            combinations = [chosen | {name: value} for chosen in combinations for value in values]
    low, high = _MAIN[main]
    for chosen in combinations:
        for value in np.geomspace(low, high, n_trials // len(combinations)):
            size = value * squared_norm if main == "ridge" else value / squared_norm
            settings = chosen | {main: float(size)}
            if "step_size_w" in settings:
                settings["step_size_w"] *= settings[main]
            yield entrant.algorithm(**entrant.fixed, **settings)
