"""The standard problems, each with where runs start and how wrong a parameter is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrtd.experiments.mountain_car.analysis import drawn_states, neu_on, variant_car
from vrtd.experiments.mountain_car.sweep import MAIN, settings
from vrtd.linear_system import LinearSystem
from vrtd.metrics import METRICS, QuadraticForm
from vrtd.problems import LIBRARY
from vrtd.sources.mountain_car import features_at

__all__ = ["AIMS", "PROBLEMS", "Loaded", "StandardProblem"]

#: What one may want: to solve the projected Bellman equation, which all but methods with traces aim at; or the values.
AIMS = MappingProxyType({"equation": "To solve the TD equation", "values": "To know the values"})


@dataclass(frozen=True, eq=False)
class Loaded:
    """A problem that is ready to be simulated."""

    problem: Any  # a chain or a simulator
    phi: NDArray[np.float64] | None
    theta_0: NDArray[np.float64]
    forms: Mapping[str, QuadraticForm]  # the error, by aim
    squared_norm: float  # the largest |phi|^2, in whose inverse step sizes are measured


@dataclass(frozen=True)
class StandardProblem:
    name: str
    title: str
    is_off_policy: bool
    aims: tuple[str, ...]
    load: Callable[[], Loaded]


def _chain(name: str, theta_0: Any = 0.0, **settings: Any) -> Loaded:
    mrp, phi = LIBRARY[name](**settings)
    system = LinearSystem(mrp, phi)
    forms = {"equation": METRICS["mspbe"](system), "values": METRICS["value_error"](system)}
    start = np.broadcast_to(np.asarray(theta_0, float), phi.shape[1]).copy()
    return Loaded(mrp, phi, start, forms, float((phi**2).sum(axis=1).max()))


def _mountain_car() -> Loaded:
    chosen = {**settings(2, 0), "n_test": 100_000}  # so that the error of the test is small beside that of a run
    car = variant_car(chosen, MAIN | {"n_runs": 2})
    states = drawn_states(chosen, car)
    squares = (features_at(car, states[0]) ** 2).sum(axis=1)
    return Loaded(car, None, np.zeros(car.n_features), {"equation": neu_on(car, *states)}, float(squares.max()))


_BAIRD_START = (1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 10.0, 1.0)
_BOTH = ("equation", "values")

PROBLEMS: Mapping[str, StandardProblem] = MappingProxyType(
    {
        each.name: each
        for each in (
            StandardProblem("random-mdp", "The paper's chain", False, _BOTH, partial(_chain, "random_mdp")),
            StandardProblem("frozen-lake", "Frozen Lake", False, _BOTH, partial(_chain, "frozen_lake")),
            StandardProblem("boyan-chain", "Boyan's chain", False, _BOTH, partial(_chain, "boyan_chain")),
            StandardProblem("random-walk-5", "Random walk, 5 states", False, _BOTH, partial(_chain, "random_walk")),
            StandardProblem(
                "random-walk-19", "Random walk, 19 states", False, _BOTH, partial(_chain, "random_walk", n_states=19)
            ),
            StandardProblem("garnet", "Garnet", False, _BOTH, partial(_chain, "garnet")),
            StandardProblem(
                "garnet-wide", "Garnet, 100 features", False, _BOTH,
                partial(_chain, "garnet", n_states=500, n_features=100),
            ),
            *(
                StandardProblem(
                    f"garnet-off-policy-{seed + 1}", f"Off-policy Garnet {seed + 1}", True, _BOTH,
                    partial(_chain, "off_policy_garnet", seed=seed),
                )
                for seed in range(4)
            ),
            StandardProblem("baird", "Baird's star", True, _BOTH, partial(_chain, "baird", theta_0=_BAIRD_START)),
            StandardProblem("mountain-car", "Mountain Car", False, ("equation",), _mountain_car),
        )
    }
)  # fmt: skip
