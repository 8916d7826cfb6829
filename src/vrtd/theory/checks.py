"""Checks for problems without a known chain, and for problems that are too large for exact moments.

The maps of second moments are dense matrices with about d^4/4 numbers, several times as many for VRTD. Powers of them
take d^6 operations. The limits are the largest sizes that took 10 to 30 seconds and less than 1 GB on one core. A plan
or a phase diagram computes hundreds of maps and takes one to several minutes at its limit. On a trajectory one update
of TD is a sweep over the transitions: transitions x (features + 1)^2 operations, about 3e8 of which take a second.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from vrtd.errors import InvalidInputError
from vrtd.problems import LinearProblem, Simulator

Computation = Literal[
    "TD",
    "averaged TD",
    "RichardsonTD with 2 levels",
    "RichardsonTD with 3 levels",
    "RichardsonTD with 4 levels",
    "VRTD",
    'VRTD with output="average"',
    'VRTD with output="tail"',
]

_MOST_FEATURES: dict[Computation, int] = {
    "TD": 64,
    "averaged TD": 32,
    "RichardsonTD with 2 levels": 21,
    "RichardsonTD with 3 levels": 16,
    "RichardsonTD with 4 levels": 12,
    "VRTD": 32,
    'VRTD with output="average"': 24,
    'VRTD with output="tail"': 24,
}
_MOST_FEATURES_OF_A_SEARCH = 16
# Limits on the operations of one sweep, of one sweep for each of the (d + 1)(d + 2)/2 basis matrices of a search, and
# of a whole curve.
_MOST_SWEEP, _MOST_BASIS_SWEEP, _MOST_WORK = 1e8, 5e8, 3e10
_DO = "Simulate instead, or use fewer features."
_DO_INSTEAD_OF_A_SEARCH = (
    'Use fewer features, use mode="guaranteed", or simulate (or pass a sample to vrtd.theory.settings_for).'
)


def check_problem(problem: Any) -> None:
    """Raise unless ``problem`` is a LinearProblem whose chain has no importance ratios."""
    if isinstance(problem, Simulator):
        raise InvalidInputError(
            "problem must be a chain (vrtd.LinearProblem), because exact moments and bounds need its transition "
            f"probabilities, but is the Simulator {problem.name}.",
            "Simulate instead.",
        )
    if not isinstance(problem, LinearProblem):
        raise InvalidInputError(
            f"problem must be a LinearProblem, but is of type {type(problem).__name__}.",
            "Build LinearProblem(mrp, phi).",
        )
    if problem.mrp.is_weighted:
        raise InvalidInputError(
            "problem has importance ratios of up to "
            f"{np.max(problem.mrp.edges.weight):.6g}, but the theory covers on-policy chains only.",
            "Simulate instead (or use mdp.chain(policy) of a vrtd.MDP, without a behaviour policy).",
        )


def check_on_policy(problem: LinearProblem) -> None:
    """Raise unless the state distribution is the stationary distribution of the chain."""
    check_problem(problem)
    if not problem.is_stationary:
        raise InvalidInputError(
            "problem has a state_distribution that is not the stationary distribution of its chain, which Markovian "
            "samples need.",
            "Build LinearProblem(mrp, phi), or use independent samples.",
        )


def check_features(d: int, what: Computation) -> None:
    """Raise if there are more features than exact moments are computed for."""
    if d > _MOST_FEATURES[what]:
        problem = f"exact moments of {what} are limited to {_MOST_FEATURES[what]} features, but there are {d}."
        raise InvalidInputError(problem, _DO)


def check_search(d: int, n_transitions: int | None = None) -> None:
    """Raise if a plan or a phase diagram would take too long; pass ``n_transitions`` of the chain for a trajectory."""
    if d > _MOST_FEATURES_OF_A_SEARCH:
        limit = f"plans and phase diagrams by moments are limited to {_MOST_FEATURES_OF_A_SEARCH} features"
        raise InvalidInputError(f"{limit}, but there are {d}.", _DO_INSTEAD_OF_A_SEARCH)
    if n_transitions is not None:
        _check_sweep(n_transitions, d, _MOST_BASIS_SWEEP / ((d + 1) * (d + 2) / 2), _DO_INSTEAD_OF_A_SEARCH)


def most_updates(n_transitions: int, d: int) -> int:
    """Return the limit on updates of TD that are made one by one; raise if a single update takes too long."""
    _check_sweep(n_transitions, d, _MOST_SWEEP, _DO)
    return int(_MOST_WORK / (n_transitions * (d + 1) ** 2))


def _check_sweep(n_transitions: int, d: int, most: float, remedy: str) -> None:
    if n_transitions * (d + 1) ** 2 > most:
        limit = f"transitions x (features + 1)^2 must be at most {most:.1e} on a trajectory"
        raise InvalidInputError(f"{limit}, but is {n_transitions} x {d + 1}^2.", remedy)
