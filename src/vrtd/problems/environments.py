"""Gymnasium's environments, an optional library: where they are made, and those with a transition table as chains."""

from __future__ import annotations

import re
import warnings
from collections import defaultdict
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vrtd.arrays import Floats, check_probabilities, frozen
from vrtd.checks import check_choice, check_fraction, import_extra
from vrtd.errors import InvalidInputError
from vrtd.problems.markov_reward_process import MarkovRewardProcess
from vrtd.problems.mdp import policy_matrix
from vrtd.problems.stationary import closed_classes

Outcome = tuple[float, int, float, bool]  # probability, next state, reward, terminated

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # Gymnasium colours its warnings, also where nothing shows colours


def gymnasium_library() -> Any:
    """Import Gymnasium, or say how to install it."""
    return import_extra("gymnasium", "gym")


def make(name: str, n_envs: int | None = None) -> Any:
    """Return `gymnasium.make(name)`, or a vector environment of `n_envs` of them. Warnings come without colours."""
    gym = gymnasium_library()
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            env = gym.make(name) if n_envs is None else gym.make_vec(name, num_envs=n_envs, vectorization_mode="sync")
    except (gym.error.Error, ImportError) as error:
        raise InvalidInputError(
            "env must be an environment or the id of one that Gymnasium can make",
            f"{name!r} ({error})",
            "register it, or install what it needs (or pass the environment itself to vrtd.evaluate)",
        ) from error
    for warning in caught:
        warnings.warn(_COLOUR.sub("", str(warning.message)), UserWarning, stacklevel=2)
    return env


def open_environment(env: Any) -> AbstractContextManager[Any]:
    """Make an environment from its id, to be closed afterwards. An environment that exists is left open."""
    return closing(make(env)) if isinstance(env, str) else nullcontext(env)


def environment_name(env: Any) -> str:
    """Return the id of an environment, or the name of its class where it has none."""
    return str(env if isinstance(env, str) else env.spec.id if env.spec else type(env.unwrapped).__name__)


class RestartChain(NamedTuple):
    """A chain whose terminating transitions lead back to the start; its states are those an episode can be in."""

    mrp: MarkovRewardProcess
    states: NDArray[np.int64]  # states[i] is the environment's own number of state i of the chain; rising
    start: Floats  # with which probability an episode starts in state i


def restart_chain(env: Any, policy: ArrayLike, discount: float, *, restart: str = "terminate") -> RestartChain:
    """Return the exact chain of a finite environment under a policy.

    Finite are `FrozenLake-v1`, `CliffWalking`, `Taxi-v3` and all others with
    `P[s][a] = [(probability, next state, reward, terminated), ...]` and `initial_state_distrib`.
    Terminal states are no states of the chain: the transition that ends an episode goes to the start of the next one.
    The table is that of `env.unwrapped`, and wrappers do not count: time limits are no part of the chain, and only a
    live run without one has its frequencies.

    Parameters
    ----------
    env : Gymnasium environment or str
        An environment, or the id of one.
    policy : array_like or str
        (S, A) probabilities or (S,) actions in the environment's own numbers, or "random" (uniform).
    discount : float
        In [0, 1]; 1 where every state leads to a termination.
    restart : str
        "terminate" gives the transition that ends an episode discount 0: nothing is counted through the reset, values
        are those of episodes. "bootstrap" lets it keep the discount (the ergodic chain of the paper's experiments):
        values count what comes after the reset, too.

    Returns
    -------
    RestartChain
        The chain, the environment's numbers of its states, and the distribution of the start.

    Examples
    --------
    >>> chain = restart_chain("FrozenLake-v1", "random", 0.99)
    >>> chain.states
    array([ 0,  1,  2,  3,  4,  6,  8,  9, 10, 13, 14])
    >>> float(chain.start @ chain.mrp.values.round(4))
    0.0124
    """
    check_choice("restart", restart, ("terminate", "bootstrap"))
    check_fraction("discount", discount)
    gamma = float(discount)
    through_reset = gamma if restart == "bootstrap" else 0.0
    if through_reset == 1.0:
        raise InvalidInputError(
            "discount must be below 1 where nothing terminates",
            '1 with restart="bootstrap"',
            'lower it, or choose restart="terminate"',
        )
    table, start = _table(env)
    if callable(policy):
        raise InvalidInputError(
            'the policy of an exact chain must be "random", (S, A) probabilities or (S,) actions',
            f"{policy!r:.80}",
            f"tabulate it, e.g. np.array([policy(s) for s in range({len(table)})])",
        )
    pi = policy_matrix(policy, len(table), len(table[0]))

    # Transitions that differ in nothing are one edge; the spread of others is part of the noise that TD sees.
    edges: defaultdict[tuple[int, int, float, float], float] = defaultdict(float)
    beginnings = [int(s) for s in np.flatnonzero(start)]
    waiting, seen = list(beginnings), set(beginnings)
    while waiting:
        s = waiting.pop()
        for a in np.flatnonzero(pi[s]):
            for probability, successor, reward, terminated in table[s][int(a)]:
                weight = float(pi[s, a]) * probability
                if weight == 0.0:
                    continue
                if terminated:
                    for t in beginnings:
                        edges[s, t, reward, through_reset] += weight * float(start[t])
                    continue
                edges[s, successor, reward, gamma] += weight
                if successor not in seen:
                    seen.add(successor)
                    waiting.append(successor)

    states = np.array(sorted(seen))
    origins, successors, rewards, discounts = (np.array(column) for column in zip(*edges, strict=True))
    places = np.searchsorted(states, origins), np.searchsorted(states, successors)
    mrp = MarkovRewardProcess.from_edges(states.size, *places, list(edges.values()), rewards, discounts)
    if gamma == 1.0:
        _check_termination(mrp, states)
    return RestartChain(mrp, frozen(states), frozen(start[states]))


def _table(env: Any) -> tuple[list[list[list[Outcome]]], Floats]:
    """Return P[s][a] in plain numbers, and the distribution of the start, both checked."""
    gym = gymnasium_library()
    with open_environment(env) as live:
        if not isinstance(live, gym.Env):
            raise InvalidInputError("env must be a Gymnasium environment or its id", f"{live!r:.80}", "pass one")
        base = live.unwrapped
        P, first = getattr(base, "P", None), getattr(base, "initial_state_distrib", None)
        spaces = (base.observation_space, base.action_space)
        if P is None or first is None or not all(isinstance(space, gym.spaces.Discrete) for space in spaces):
            raise InvalidInputError(
                "an exact chain needs an environment with Discrete spaces, a table `P` and `initial_state_distrib`",
                f"{base}",
                "estimate from its transitions instead: vrtd.logs.from_env",
            )
        S, A = (int(space.n) for space in spaces)
        start = check_probabilities("initial_state_distrib", first, (S,), ("state",))
        return [[_outcomes(P, s, a, S) for a in range(A)] for s in range(S)], start


def _outcomes(P: Any, s: int, a: int, n_states: int) -> list[Outcome]:
    try:
        entries = list(P[s][a])
    except (LookupError, TypeError):
        raise InvalidInputError(
            "the table of an environment must have P[s][a] for every state and action",
            f"none at state {s}, action {a}",
            "complete the table",
        ) from None
    outcomes = []
    for entry in entries:
        try:
            probability, successor, reward, terminated = entry
            outcome = float(probability), int(successor), float(reward), bool(terminated)
            is_sound = np.isfinite(outcome[2]) and 0.0 <= outcome[0] <= 1.0 and 0 <= outcome[1] < n_states
        except (TypeError, ValueError):
            is_sound = False
        if not is_sound:
            raise InvalidInputError(
                f"P[s][a] must hold (probability, state in 0..{n_states - 1}, finite reward, terminated)",
                f"{entry!r:.80} at state {s}, action {a}",
                "repair the table",
            )
        outcomes.append(outcome)
    return outcomes


def _check_termination(mrp: MarkovRewardProcess, states: NDArray[np.int64]) -> None:
    lasting = np.bincount(mrp.edges.origin, mrp.edges.discount < 1.0, minlength=mrp.n_states) == 0
    for members in closed_classes(mrp.P):
        if lasting[members].all():
            raise InvalidInputError(
                "discount must be below 1 where some states never lead to a termination",
                f"1, and no way to an end from state {states[members[0]]}",
                "lower it, or choose a policy that ends every episode",
            )
