"""Gymnasium environments: how they are made, and the exact chains of those with a transition table."""

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

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # Gymnasium colours its warnings even if the output does not show colours


def gymnasium_library() -> Any:
    """Import Gymnasium, or raise an error that says how to install it."""
    return import_extra("gymnasium", "gym")


def make(name: str, n_envs: int | None = None) -> Any:
    """Return ``gymnasium.make(name)``, or a vector environment of ``n_envs`` copies.

    Warnings of Gymnasium are issued without colours.
    """
    gym = gymnasium_library()
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            env = gym.make(name) if n_envs is None else gym.make_vec(name, num_envs=n_envs, vectorization_mode="sync")
    except (gym.error.Error, ImportError) as error:
        raise InvalidInputError(
            f"env must be an environment, or the id of one that Gymnasium can make, but got {name!r} ({error}).",
            "Register it, or install the packages that it needs (or pass the environment itself to vrtd.evaluate).",
        ) from error
    for warning in caught:
        warnings.warn(_COLOUR.sub("", str(warning.message)), UserWarning, stacklevel=2)
    return env


def open_environment(env: Any) -> AbstractContextManager[Any]:
    """Return a context manager for an environment.

    An environment that is made from its id is closed at the end. An existing environment is left open.
    """
    return closing(make(env)) if isinstance(env, str) else nullcontext(env)


def environment_name(env: Any) -> str:
    """Return the id of an environment, or the name of its class if it has no id."""
    return str(env if isinstance(env, str) else env.spec.id if env.spec else type(env.unwrapped).__name__)


class RestartChain(NamedTuple):
    """Chain of an episodic environment, whose terminating transitions lead back to the start.

    Attributes
    ----------
    mrp : MarkovRewardProcess
        The chain. Its states are those in which an episode can be.
    states : ndarray of int, shape (n,)
        The environment's number of each state of the chain, in increasing order.
    start : ndarray of shape (n,)
        Probability that an episode starts in each state of the chain.
    """

    mrp: MarkovRewardProcess
    states: NDArray[np.int64]
    start: Floats


def restart_chain(env: Any, policy: ArrayLike, discount: float, *, restart: str = "terminate") -> RestartChain:
    """Return the exact chain of a finite environment under a policy.

    The environment needs a table ``P[s][a] = [(probability, next state, reward, terminated), ...]`` and the
    distribution ``initial_state_distrib``, as ``FrozenLake-v1``, ``CliffWalking`` and ``Taxi-v3`` have them. Terminal
    states are not states of the chain: the transition that ends an episode leads to the start of the next one.

    The table is that of ``env.unwrapped``. Wrappers have no effect, so a time limit is not part of the chain, and only
    runs without a time limit visit the states with the frequencies of the chain.

    Parameters
    ----------
    env : gymnasium.Env or str
        An environment, or the id of one.
    policy : array_like or str
        (S, A) probabilities or (S,) actions in the environment's numbering of states, or "random" for the uniform
        policy.
    discount : float
        Discount in [0, 1]. It may be 1 only if every state leads to a termination.
    restart : {"terminate", "bootstrap"}, default="terminate"
        Discount of the transition that ends an episode. With "terminate" it is 0, and the values are those of episodes.
        With "bootstrap" the transition keeps its discount, and the values include the rewards after the reset (the
        ergodic chain of the paper's experiments).

    Returns
    -------
    RestartChain
        The chain, the environment's numbers of its states, and the distribution of the start.

    Raises
    ------
    InvalidInputError
        If the environment is not finite, its table is not valid, or an argument is not valid.

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
            'discount must be below 1 if nothing terminates, but is 1 with restart="bootstrap".',
            'Lower discount, or choose restart="terminate".',
        )
    table, start = _table(env)
    if callable(policy):
        raise InvalidInputError(
            f'policy of an exact chain must be "random", (S, A) probabilities or (S,) actions, but got {policy!r:.80}.',
            f"Tabulate it, e.g. np.array([policy(s) for s in range({len(table)})]).",
        )
    pi = policy_matrix(policy, len(table), len(table[0]))

    # Equal transitions are merged. Others stay apart, because their spread is part of the noise of TD.
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
    """Return P[s][a] in plain numbers and the distribution of the start, both checked."""
    gym = gymnasium_library()
    with open_environment(env) as live:
        if not isinstance(live, gym.Env):
            raise InvalidInputError(
                f"env must be a Gymnasium environment or the id of one, but got {live!r:.80}.", "Pass one of them."
            )
        base = live.unwrapped
        P, first = getattr(base, "P", None), getattr(base, "initial_state_distrib", None)
        spaces = (base.observation_space, base.action_space)
        if P is None or first is None or not all(isinstance(space, gym.spaces.Discrete) for space in spaces):
            raise InvalidInputError(
                "env of an exact chain must have Discrete spaces, a table P and initial_state_distrib, "
                f"but got {base}.",
                "Estimate from its transitions instead (vrtd.logs.from_env).",
            )
        S, A = (int(space.n) for space in spaces)
        start = check_probabilities("initial_state_distrib", first, (S,), ("state",))
        return [[_outcomes(P, s, a, S) for a in range(A)] for s in range(S)], start


def _outcomes(P: Any, s: int, a: int, n_states: int) -> list[Outcome]:
    try:
        entries = list(P[s][a])
    except (LookupError, TypeError):
        raise InvalidInputError(
            f"The table of the environment has no P[s][a] for state {s} and action {a}.",
            "Complete the table.",
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
                f"P[s][a] must hold (probability, state in 0..{n_states - 1}, finite reward, "
                f"terminated), but got {entry!r:.80} at state {s}, action {a}.",
                "Correct the table.",
            )
        outcomes.append(outcome)
    return outcomes


def _check_termination(mrp: MarkovRewardProcess, states: NDArray[np.int64]) -> None:
    lasting = np.bincount(mrp.edges.origin, mrp.edges.discount < 1.0, minlength=mrp.n_states) == 0
    for members in closed_classes(mrp.P):
        if lasting[members].all():
            raise InvalidInputError(
                "discount must be below 1 if some states never lead to a termination, "
                f"but is 1, and no termination can be reached from state {states[members[0]]}.",
                "Lower discount, or choose a policy that ends every episode.",
            )
