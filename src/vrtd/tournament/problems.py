"""The problems of a tournament, standard and given, each with where runs start and how wrong a parameter is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrtd.engine.recording import record_test_rows
from vrtd.errors import InvalidInputError
from vrtd.metrics import METRICS, QuadraticForm
from vrtd.problems import LIBRARY, LinearProblem, Simulator

#: What one may want: to solve the projected Bellman equation, which all but methods with traces aim at; or the values.
AIMS = MappingProxyType({"equation": "To solve the TD equation", "values": "To know the values"})


@dataclass(frozen=True, eq=False)
class Loaded:
    """A problem that is ready to be simulated."""

    problem: LinearProblem | Simulator
    theta_0: NDArray[np.float64]
    forms: Mapping[str, QuadraticForm]  # the error, by aim
    squared_norm: float  # the largest |phi|^2, in whose inverse step sizes are measured


@dataclass(frozen=True)
class TournamentProblem:
    """A problem by its name in the tournament."""

    name: str
    title: str
    load: Callable[[], Loaded]
    is_off_policy: bool = False
    aims: tuple[str, ...] = tuple(AIMS)
    identity: str = ""  # what it is if the name does not say: the digest of a given problem, a standard one's name
    is_local: bool = False  # whether it can be loaded in the calling process only


def _load(problem: LinearProblem | Simulator, theta_0: Any = 0.0) -> Loaded:
    start = np.broadcast_to(np.asarray(theta_0, float), problem.n_features).copy()
    if isinstance(problem, Simulator):
        test = record_test_rows(problem)
        forms, phi = {"equation": METRICS["neu"](test)}, test.phi
    else:
        forms = {"equation": METRICS["mspbe"](problem), "values": METRICS["value_error"](problem)}
        phi = problem.phi
    return Loaded(problem, start, forms, float((phi**2).sum(axis=1).max()))


def _load_standard(name: str, theta_0: Any = 0.0, **settings: Any) -> Loaded:
    return _load(LIBRARY[name](**settings), theta_0)


_BAIRD_START = (1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 10.0, 1.0)
_WIDE = partial(_load_standard, "garnet", n_states=500, n_features=100)
_STANDARD = (
    TournamentProblem("random-mdp", "The paper's chain", partial(_load_standard, "random_mdp")),
    TournamentProblem("frozen-lake", "Frozen Lake", partial(_load_standard, "frozen_lake")),
    TournamentProblem("boyan-chain", "Boyan's chain", partial(_load_standard, "boyan_chain")),
    TournamentProblem("random-walk-5", "Random walk, 5 states", partial(_load_standard, "random_walk")),
    TournamentProblem("random-walk-19", "Random walk, 19 states", partial(_load_standard, "random_walk", n_states=19)),
    TournamentProblem("garnet", "Garnet", partial(_load_standard, "garnet")),
    TournamentProblem("garnet-wide", "Garnet, 100 features", _WIDE),
    *(
        TournamentProblem(
            f"garnet-off-policy-{i + 1}",
            f"Off-policy Garnet {i + 1}",
            partial(_load_standard, "off_policy_garnet", seed=i),
            is_off_policy=True,
        )
        for i in range(4)
    ),
    TournamentProblem("baird", "Baird's star", partial(_load_standard, "baird", _BAIRD_START), is_off_policy=True),
    TournamentProblem("mountain-car", "Mountain Car", partial(_load_standard, "mountain_car"), aims=("equation",)),
)
PROBLEMS: Mapping[str, TournamentProblem] = MappingProxyType({problem.name: problem for problem in _STANDARD})


def make_problem(name: str, problem: Any) -> TournamentProblem:
    """Return a problem object of the caller's as a problem of a tournament.

    It is loaded here, so that an object that cannot take part is refused before anything is measured.
    """
    if not isinstance(problem, LinearProblem | Simulator):
        raise InvalidInputError(
            "a problem of a comparison must be a name, a LinearProblem or a Simulator",
            f"{type(problem).__name__} as {name}",
            "pass the problem that transitions are drawn from: every run draws its own, so given rows are not enough",
        )
    is_local = isinstance(problem, Simulator)  # its compiled functions cannot be sent to another process
    if isinstance(problem, LinearProblem) and not problem.is_stationary:
        raise InvalidInputError(
            "a problem of a comparison must have the states of its chain's trajectories",
            f"another state_distribution in {name}",
            "build LinearProblem(mrp, phi)",
        )
    loaded = _load(problem)
    if not all(form(loaded.theta_0) > form.offset for form in loaded.forms.values()):
        raise InvalidInputError(
            "theta = 0, where runs start, must have an error that can be lowered",
            f"none on {name}",
            "give rewards that are not all 0, or features that are not orthogonal to the mean reward",
        )
    is_off_policy = isinstance(problem, LinearProblem) and problem.mrp.is_weighted
    load = partial(_return, loaded)
    return TournamentProblem(name, name, load, is_off_policy, tuple(loaded.forms), problem.digest, is_local)


def _return(loaded: Loaded) -> Loaded:
    return loaded
