"""What the theory refuses: problems without a known chain, and problems too large for exact moments.

The maps of second moments are dense matrices with about d^4/4 numbers, several times that for VRTD, and powers of them
take d^6 operations. The limits are the largest sizes that took 10 to 30 seconds and less than 1 GB on one core; a plan
or a phase diagram computes hundreds of maps and takes one to several minutes at its limit. On a trajectory one update
of TD is a sweep over the transitions, transitions x (features + 1)^2 operations, some 3e8 of which take a second.
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
# Operations of one sweep, of a sweep for each of the (d + 1)(d + 2)/2 basis matrices of a search, of a whole curve.
_MOST_SWEEP, _MOST_BASIS_SWEEP, _MOST_WORK = 1e8, 5e8, 3e10
_DO = "simulate instead, or use fewer features"
_DO_INSTEAD_OF_A_SEARCH = (
    'use fewer features or mode="guaranteed", or simulate (or give a sample to vrtd.theory.settings_for)'
)


def check_problem(problem: Any) -> None:
    """Raise unless `problem` is a LinearProblem whose chain has no importance ratios."""
    if isinstance(problem, Simulator):
        raise InvalidInputError(
            "problem must be a chain (vrtd.LinearProblem): exact moments and bounds need its transition probabilities",
            f"the Simulator {problem.name}, whose probabilities are not known",
            "simulate instead",
        )
    if not isinstance(problem, LinearProblem):
        raise InvalidInputError(
            "problem must be a LinearProblem", type(problem).__name__, "build LinearProblem(mrp, phi)"
        )
    if problem.mrp.is_weighted:
        raise InvalidInputError(
            "the theory is of chains without importance ratios, under the policy that is evaluated",
            f"importance ratios of up to {np.max(problem.mrp.edges.weight):.6g}",
            "simulate instead (or take mdp.chain(policy) of a vrtd.MDP, without a behaviour)",
        )


def check_on_policy(problem: LinearProblem) -> None:
    """Raise unless states are distributed as a trajectory of the chain visits them."""
    check_problem(problem)
    if not problem.is_stationary:
        raise InvalidInputError(
            "Markovian samples must come from the chain's own stationary distribution",
            "a problem with another state_distribution",
            "build LinearProblem(mrp, phi), or use independent samples",
        )


def check_features(d: int, what: Computation) -> None:
    """Refuse more features than exact moments are computed for."""
    if d > _MOST_FEATURES[what]:
        must = f"exact moments of {what} are computed for at most {_MOST_FEATURES[what]} features"
        raise InvalidInputError(must, d, _DO)


def check_search(d: int, n_transitions: int | None = None) -> None:
    """Refuse a plan or a phase diagram that takes too long; `n_transitions` of the chain for a trajectory."""
    if d > _MOST_FEATURES_OF_A_SEARCH:
        must = f"plans and phase diagrams by moments are made for at most {_MOST_FEATURES_OF_A_SEARCH} features"
        raise InvalidInputError(must, d, _DO_INSTEAD_OF_A_SEARCH)
    if n_transitions is not None:
        _check_sweep(n_transitions, d, _MOST_BASIS_SWEEP / ((d + 1) * (d + 2) / 2), _DO_INSTEAD_OF_A_SEARCH)


def most_updates(n_transitions: int, d: int) -> int:
    """How many updates of TD on a trajectory may be made one by one; refuse a chain on which one takes too long."""
    _check_sweep(n_transitions, d, _MOST_SWEEP, _DO)
    return int(_MOST_WORK / (n_transitions * (d + 1) ** 2))


def _check_sweep(n_transitions: int, d: int, most: float, do: str) -> None:
    if n_transitions * (d + 1) ** 2 > most:
        must = f"on a trajectory, transitions x (features + 1)^2 must be at most {most:.1e} here"
        raise InvalidInputError(must, f"{n_transitions} x {d + 1}^2", do)
