"""Exact chains of Gymnasium's finite environments, against plain evaluation of their tables and against live rows."""

from __future__ import annotations

import sys
from typing import Any

import gymnasium
import numpy as np
import pytest

import vrtd
from tests.helpers.finite_environments import GOOD, Table
from tests.helpers.statistics import z_limit, z_scores
from vrtd.errors import InvalidInputError, MissingExtraError
from vrtd.logs.environment import from_env as live
from vrtd.problems import environments
from vrtd.problems.environments import RestartChain, restart_chain

# Gymnasium warns of ids that have a newer version.
CLIFF = max(name for name in gymnasium.registry if name.startswith("CliffWalking-v"))
TAXI = max(name for name in gymnasium.registry if name.startswith("Taxi-v"))
NAMES = ["FrozenLake-v1", CLIFF, TAXI]


def some_policy(env: Any) -> Any:
    """Every action of every state, none as often as another."""
    pi = np.random.default_rng(3).random((env.observation_space.n, env.action_space.n)) + 0.1
    return pi / pi.sum(axis=1, keepdims=True)


def evaluated(env: Any, pi: Any, discount: float) -> Any:
    """v <- r + discount P v on the environment's own table until it stands still; what is terminated is worth 0."""
    S, A = pi.shape
    r, P = np.zeros(S), np.zeros((S, S))
    for s in range(S):
        for a in range(A):
            for probability, successor, reward, terminated in env.P[s][a]:
                r[s] += pi[s, a] * probability * reward
                P[s, successor] += pi[s, a] * probability * (not terminated)
    v = np.zeros(S)
    while True:
        new = r + discount * P @ v
        if np.abs(new - v).max() <= 1e-13 * max(1.0, np.abs(new).max()):
            return new
        v = new


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("is_random", [True, False])
def test_values_are_those_of_the_table(name: str, is_random: bool) -> None:
    env: Any = gymnasium.make(name).unwrapped
    uniform = np.full((env.observation_space.n, env.action_space.n), 1 / env.action_space.n)
    pi = uniform if is_random else some_policy(env)
    chain = restart_chain(name if is_random else env, "random" if is_random else pi, 0.95)
    np.testing.assert_allclose(chain.mrp.values, evaluated(env, pi, 0.95)[chain.states], rtol=1e-10, atol=1e-10)
    assert chain.mrp.recurrent_class.size == chain.states.size
    np.testing.assert_array_equal(chain.start, env.initial_state_distrib[chain.states])


def test_an_undiscounted_lake_is_the_probability_of_the_goal() -> None:
    env: Any = gymnasium.make("FrozenLake-v1").unwrapped
    chain = restart_chain(env, "random", 1.0)
    np.testing.assert_allclose(chain.mrp.values, evaluated(env, np.full((16, 4), 0.25), 1.0)[chain.states], rtol=1e-9)
    assert set(chain.mrp.edges.discount) == {0.0, 1.0}


def test_states_are_those_an_episode_can_be_in() -> None:
    assert restart_chain("FrozenLake-v1", "random", 0.9).states.tolist() == [0, 1, 2, 3, 4, 6, 8, 9, 10, 13, 14]
    assert restart_chain(CLIFF, "random", 0.9).states.tolist() == list(range(37))  # not the cliff, not the goal
    # A taxi whose passenger waits at the destination is never met; with one delivered, the episode is over.
    assert restart_chain(TAXI, "random", 0.9).states.size == 400
    dry = gymnasium.make("FrozenLake-v1", is_slippery=False)
    to_the_goal = np.array([1, 0, 0, 0, 1, 0, 0, 0, 2, 1, 0, 0, 0, 2, 2, 0])
    chain = restart_chain(dry, to_the_goal, 0.5)
    assert chain.states.tolist() == [0, 4, 8, 9, 13, 14]
    np.testing.assert_allclose(chain.mrp.values, 0.5 ** np.arange(5, -1, -1), rtol=1e-14)


def test_the_choice_to_bootstrap_through_the_reset() -> None:
    """An episode has six steps, the last pays 1: v = g^5 + g^6 v at the start."""
    dry = gymnasium.make("FrozenLake-v1", is_slippery=False)
    to_the_goal = np.array([1, 0, 0, 0, 1, 0, 0, 0, 2, 1, 0, 0, 0, 2, 2, 0])
    endless = restart_chain(dry, to_the_goal, 0.5, restart="bootstrap")
    assert set(endless.mrp.edges.discount) == {0.5}
    np.testing.assert_allclose(endless.mrp.values[0], 0.5**5 / (1 - 0.5**6), rtol=1e-14)
    once = restart_chain(dry, to_the_goal, 0.5)
    np.testing.assert_array_equal(endless.mrp.stationary, once.mrp.stationary)


def test_the_linear_problem_of_a_table_is_exact() -> None:
    chain = restart_chain(TAXI, "random", 0.9)
    problem = vrtd.LinearProblem(chain.mrp, np.eye(chain.states.size))
    np.testing.assert_allclose(problem.theta_star, chain.mrp.values, rtol=1e-8)


# The chain and live rows are the same process


def live_rows(env: Any, pi: Any, n: int) -> tuple[Any, ...]:
    chunks = list(live(env, pi, n, seed=11).chunks())
    return tuple(np.concatenate([chunk[k] for chunk in chunks]) for k in range(5))


@pytest.mark.parametrize("name", NAMES)
def test_every_live_row_is_an_edge(name: str) -> None:
    env: Any = gymnasium.make(name).unwrapped
    pi = some_policy(env)
    chain = restart_chain(env, pi, 0.9)
    edges = chain.mrp.edges
    number = chain.states
    going = {
        (int(number[s]), int(number[t]), float(r))
        for s, t, r, g in zip(edges.origin, edges.successor, edges.reward, edges.discount, strict=True)
        if g == 0.9
    }
    ending = {
        (int(number[s]), float(r)) for s, r, g in zip(edges.origin, edges.reward, edges.discount, strict=True) if g == 0
    }
    observations, reward, successors, terminated, truncated = live_rows(env, pi, 20_000)
    assert not truncated.any()
    assert terminated.any()
    seen = {
        (int(s), int(t), float(r))
        for s, t, r, end in zip(observations, successors, reward, terminated, strict=True)
        if not end
    }
    assert seen <= going
    assert {(int(s), float(r)) for s, r, end in zip(observations, reward, terminated, strict=True) if end} <= ending
    if name != TAXI:  # 20,000 steps meet everything that is not rare
        assert len(seen) > 0.9 * len(going)


def visits(chain: RestartChain, observations: Any, terminated: Any) -> Any:
    """(episodes, states) visits in each whole episode: episodes are independent."""
    ends = np.flatnonzero(terminated)
    episode = np.searchsorted(ends, np.arange(ends[-1] + 1))
    counts = np.zeros((ends.size, chain.states.size))
    np.add.at(counts, (episode, np.searchsorted(chain.states, observations[: ends[-1] + 1])), 1)
    return counts


@pytest.mark.statistical
def test_live_episodes_visit_states_as_the_stationary_distribution_says() -> None:
    """Over independent episodes, visits to s less stationary(s) times the length have mean 0 (renewal-reward)."""
    env: Any = gymnasium.make("FrozenLake-v1").unwrapped
    chain = restart_chain(env, "random", 0.9)
    observations, reward, _, terminated, _ = live_rows(env, "random", 60_000)
    counts = visits(chain, observations, terminated)
    limit = z_limit(chain.states.size + 1)

    def scores(mrp: Any) -> Any:
        return np.abs(z_scores(counts - counts.sum(axis=1, keepdims=True) * mrp.stationary, 0.0))

    assert len(counts) > 5_000
    assert scores(chain.mrp).max() < limit
    ends = np.flatnonzero(terminated)
    mean = chain.mrp.stationary @ chain.mrp.mean_reward
    gains = np.add.reduceat(reward[: ends[-1] + 1] - mean, np.r_[0, ends[:-1] + 1])
    assert abs(z_scores(gains[:, None], 0.0)[0]) < limit
    # Power: it notices a policy that is off by 0.1 in two actions, and episodes that start in another state.
    off = restart_chain(env, np.tile([0.35, 0.15, 0.25, 0.25], (16, 1)), 0.9)
    assert scores(off.mrp).max() > limit
    env.initial_state_distrib = np.eye(16)[1]
    assert scores(restart_chain(env, "random", 0.9).mrp).max() > limit


# Bad input


def test_chains_of_hand_written_tables() -> None:
    chain = restart_chain(Table(GOOD), [0, 0], 0.5)
    np.testing.assert_array_equal(chain.mrp.values, [2.0, 2.0])
    unequal = restart_chain(Table(GOOD, (0.25, 0.75)), [0, 0], 0.5)
    assert unequal.start.tolist() == [0.25, 0.75]
    np.testing.assert_array_equal(unequal.mrp.P.toarray(), [[0.0, 1.0], [0.25, 0.75]])
    spread = {0: {0: [(0.5, 1, 1.0, False), (0.5, 1, 3.0, False)]}, 1: GOOD[1]}
    assert restart_chain(Table(spread), [0, 0], 0.5).mrp.edges.reward.tolist() == [1.0, 3.0, 2.0]
    merged = {0: {0: [(0.5, 1, 1.0, False), (0.5, 1, 1.0, False)]}, 1: GOOD[1]}
    assert restart_chain(Table(merged), [0, 0], 0.5).mrp.digest == chain.mrp.digest


@pytest.mark.parametrize(
    ("env", "policy", "discount", "changes", "message"),
    [
        ("CartPole-v1", "random", 0.9, {}, r"must have Discrete spaces, a table P.*vrtd.logs.from_env"),
        ("Blackjack-v1", "random", 0.9, {}, "must have Discrete spaces, a table P"),
        ("FrozenLak-v1", "random", 0.9, {}, "Gymnasium can make, but got 'FrozenLak-v1'"),
        (object(), "random", 0.9, {}, "env must be a Gymnasium environment or the id of one, but got <object"),
        (Table(GOOD), "random", 1.1, {}, r"discount must lie in \[0, 1\], but got 1.1"),
        (Table(GOOD), "random", -0.1, {}, r"discount must lie in \[0, 1\], but got -0.1"),
        (Table(GOOD), "random", [0.9], {}, r"discount must lie in \[0, 1\]"),
        (Table(GOOD), "random", float("nan"), {}, r"discount must lie in \[0, 1\], but got nan"),
        (Table(GOOD), "random", "high", {}, r"discount must lie in \[0, 1\], but got 'high'"),
        (Table(GOOD), "random", 0.9, {"restart": "boot"}, "restart must be one of 'terminate', 'bootstrap'"),
        (Table(GOOD), "random", 1.0, {"restart": "bootstrap"}, "must be below 1 if nothing terminates, but is 1"),
        (Table(GOOD), "best", 0.9, {}, "policy must be one of 'random', but got 'best'"),
        (Table(GOOD), lambda s: 0, 0.9, {}, r"policy of an exact chain must be .*Tabulate it.*range\(2\)"),
        (Table(GOOD), [0, 1], 0.9, {}, r"actions must lie in 0..0, but got 1 at state 1"),
        (Table(GOOD), [[1.0]], 0.9, {}, r"policy must have the shape \(S, A\) = \(2, 1\)"),
        (Table(GOOD, (1.0,)), "random", 0.9, {}, r"initial_state_distrib must have the shape \(2,\), but got \(1,\)"),
        (Table(GOOD, (0.5, 0.4)), "random", 0.9, {}, "Each row of initial_state_distrib must sum to 1"),
        (Table({0: GOOD[0]}), "random", 0.9, {}, r"environment has no P\[s\]\[a\] for state 1"),
        (Table({**GOOD, 1: {0: [(1.0, 2, 0.0, True)]}}), "random", 0.9, {}, r"state in 0..1.*\(1.0, 2, 0.0, True\) at"),
        (Table({**GOOD, 1: {0: [(1.0, 0, np.nan, True)]}}), "random", 0.9, {}, "finite reward, terminated"),
        (Table({**GOOD, 1: {0: [(1.0, 0)]}}), "random", 0.9, {}, "finite reward, terminated"),
        (Table({**GOOD, 1: {0: [(0.5, 0, 0.0, True)]}}), "random", 0.9, {}, "Each row of P must sum to 1"),
        (
            Table({**GOOD, 1: {0: [(1.0, 0, 0.0, False)]}}),
            "random",
            1.0,
            {},
            "no termination can be reached from state 0",
        ),
    ],
)
def test_bad_input_is_refused(env: Any, policy: Any, discount: Any, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        restart_chain(env, policy, discount, **changes)


def test_a_missing_gymnasium_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'vrtd\[gym\]'"):
        restart_chain("FrozenLake-v1", "random", 0.9)


def test_an_environment_that_was_made_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    env, closed = gymnasium.make("FrozenLake-v1"), []
    monkeypatch.setattr(env, "close", lambda: closed.append(True))
    monkeypatch.setattr(environments, "make", lambda _name: env)
    restart_chain("FrozenLake-v1", "random", 0.9)
    assert closed == [True]


def test_what_cannot_happen_leads_nowhere_and_starts_are_shares() -> None:
    table = {0: {0: [(1.0, 0, 1.0, True), (0.0, 1, 5.0, False)]}, 1: GOOD[1]}
    assert restart_chain(Table(table), [0, 0], 0.5).states.tolist() == [0]
    both = restart_chain(Table(GOOD, (0.5, 0.5 + 5e-9)), [0, 0], 0.5)
    assert abs(both.start.sum() - 1.0) < 1e-15


def test_warnings_of_gymnasium_have_no_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    def warn(name: str) -> str:
        gymnasium.logger.deprecation("version %s is out of date", name)
        if name == "v2":
            raise gymnasium.error.DeprecatedEnv("use v4")
        return name

    monkeypatch.setattr(gymnasium, "make", warn)
    with pytest.warns(UserWarning, match=r"^WARN: version v3 is out of date$"):
        assert environments.make("v3") == "v3"
    with pytest.raises(InvalidInputError, match=r"got 'v2' \(use v4\)"):  # and no warning, which would be an error
        environments.make("v2")
