"""The door of the theory: its statements and moments are of a policy's own chain, without importance ratios."""

from __future__ import annotations

from typing import Any

import numpy as np

from vrtd.errors import InvalidInputError
from vrtd.linear_system import LinearSystem
from vrtd.problems import MarkovRewardProcess

__all__ = ["check_chain", "check_on_policy", "check_system"]


def check_system(system: Any) -> None:
    if not isinstance(system, LinearSystem):
        raise InvalidInputError(
            "system must be a LinearSystem", type(system).__name__, "build one: vrtd.LinearSystem(mrp, phi)"
        )
    check_chain(system.mrp)


def check_chain(mrp: Any) -> None:
    """What is no chain is left to those that build a system from it."""
    if isinstance(mrp, MarkovRewardProcess) and mrp.is_weighted:
        raise InvalidInputError(
            "the theory is of chains without importance ratios, under the policy that is evaluated",
            f"importance ratios of up to {np.max(mrp.edges.weight):.6g}",
            "simulate instead, or take mdp.chain(policy) without a behaviour",
        )


def check_on_policy(system: LinearSystem) -> None:
    """A trajectory visits states as its chain does: another state distribution has no Markovian sampling."""
    check_system(system)
    if not system.is_stationary:
        raise InvalidInputError(
            "Markovian samples must come from the chain's own stationary distribution",
            "a system with another state_distribution",
            "build LinearSystem(mrp, phi), or use independent samples",
        )
