"""The problems of a tournament, with the initial parameters of runs and the measures of their error."""

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

#: Aims: to solve the projected Bellman equation, as all methods without traces do, or to estimate the values.
AIMS = MappingProxyType({"equation": "To solve the TD equation", "values": "To know the values"})


@dataclass(frozen=True, eq=False)
class Loaded:
    """Problem that is ready to be simulated."""

    problem: LinearProblem | Simulator
    theta_0: NDArray[np.float64]
    forms: Mapping[str, QuadraticForm]  # measure of the error by aim
    squared_norm: float  # the largest |phi|^2; step sizes are in units of its inverse


@dataclass(frozen=True)
class TournamentProblem:
    """Problem of a tournament.

    Attributes
    ----------
    name : str
        Name in the tournament.
    title : str
        Title on the page.
    load : callable
        Function that returns the problem with its initial parameters and its measures of the error.
    is_off_policy : bool
        Whether transitions have importance ratios.
    aims : tuple of str
        Aims for which it has a measure of the error.
    identity : str
        Digest of an object, or the name of a standard problem under another name. It is empty if the name suffices.
    is_local : bool
        Whether it can be loaded only in the calling process.
    """

    name: str
    title: str
    load: Callable[[], Loaded]
    is_off_policy: bool = False
    aims: tuple[str, ...] = tuple(AIMS)
    identity: str = ""
    is_local: bool = False


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
#: Standard problems by name.
PROBLEMS: Mapping[str, TournamentProblem] = MappingProxyType({problem.name: problem for problem in _STANDARD})


def make_problem(name: str, problem: Any) -> TournamentProblem:
    """Return a problem object as a problem of a tournament.

    It is loaded here, so that an unsuitable object is refused before anything is measured.
    """
    if not isinstance(problem, LinearProblem | Simulator):
        raise InvalidInputError(
            "A problem of a comparison must be a name, a LinearProblem or a Simulator, "
            f"but {name} is of type {type(problem).__name__}.",
            "Pass the problem from which transitions are drawn, because every run draws its own.",
        )
    is_local = isinstance(problem, Simulator)  # compiled functions cannot be sent to another process
    if isinstance(problem, LinearProblem) and not problem.is_stationary:
        raise InvalidInputError(
            f"The state_distribution of a problem must be the stationary one, but {name} has another.",
            "Build it with LinearProblem(mrp, phi).",
        )
    loaded = _load(problem)
    if not all(form(loaded.theta_0) > form.offset for form in loaded.forms.values()):
        raise InvalidInputError(
            f"Runs start at theta = 0, where an error of {name} is already minimal.",
            "Use rewards that are not all 0, or features that are not orthogonal to the mean reward.",
        )
    is_off_policy = isinstance(problem, LinearProblem) and problem.mrp.is_weighted
    load = partial(_return, loaded)
    return TournamentProblem(name, name, load, is_off_policy, tuple(loaded.forms), problem.digest, is_local)


def _return(loaded: Loaded) -> Loaded:
    return loaded
