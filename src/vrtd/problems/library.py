"""Named problems: functions that return a ``LinearProblem``, or a ``Simulator`` if the state space is not finite."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrtd.checks import check_count, check_fits, check_fraction, require
from vrtd.errors import InvalidInputError, ReducibleChainError
from vrtd.problems.linear_problem import LinearProblem
from vrtd.problems.markov_reward_process import MarkovRewardProcess
from vrtd.problems.mdp import MDP
from vrtd.problems.mountain_car import mountain_car


def random_mdp(
    seed: int = 0,
    n_states: int = 50,
    n_features: int = 4,
    gamma: float = 0.95,
    normalize: bool = False,
    laziness: float = 0.0,
) -> LinearProblem:
    """Return the dense random chain of the VRTD paper.

    Transition probabilities are draws from the uniform distribution on [0, 1], divided by their row sums. Rewards of
    transitions and features are uniform on [0, 1].

    Parameters
    ----------
    seed : int, default=0
        Seed of the random draws.
    n_states : int, default=50
        Number of states.
    n_features : int, default=4
        Number of features, at most the number of states.
    gamma : float, default=0.95
        Discount in [0, 1).
    normalize : bool, default=False
        Divide the features by their largest row norm, as the theorems assume.
    laziness : float, default=0.0
        Probability in [0, 1) of staying in a state. Otherwise the transition is drawn as without laziness.

    Returns
    -------
    LinearProblem
        The chain with its features.

    References
    ----------
    Xu, T., Wang, Z., Zhou, Y., Liang, Y. (2020), Reanalysis of variance reduced temporal difference learning, ICLR.

    Examples
    --------
    >>> problem = random_mdp(seed=0)
    >>> problem.mrp.n_states, problem.phi.shape
    (50, (50, 4))
    """
    _check_sizes(n_states, n_features)
    check_fraction("laziness", laziness, below_one=True)
    n, d = n_states, n_features
    check_fits(f"The matrices of random_mdp with n_states={n}", 48 * n * n, "Lower n_states, or use garnet.")
    rng = _rng(seed)
    P = rng.random((n, n))
    P /= P.sum(axis=1, keepdims=True)
    if laziness:
        P = laziness * np.eye(n) + (1.0 - laziness) * P
    R = rng.random((n, n))
    phi = rng.random((n, d))
    if normalize:
        phi /= np.linalg.norm(phi, axis=1).max()
    return LinearProblem(MarkovRewardProcess(P, R, gamma), phi)


def garnet(
    seed: int = 0, n_states: int = 100, branching: int = 5, n_features: int = 8, gamma: float = 0.95
) -> LinearProblem:
    """Return a Garnet, a sparse random chain.

    Each state has ``branching`` distinct successors, drawn uniformly from all states. Their probabilities are the gaps
    between sorted uniform cut points. Rewards of transitions and features are uniform on [0, 1]. The draw is repeated
    until the chain has one closed class and the features have full rank on it.

    Parameters
    ----------
    seed : int, default=0
        Seed of the random draws.
    n_states : int, default=100
        Number of states.
    branching : int, default=5
        Number of distinct successors of each state.
    n_features : int, default=8
        Number of features, at most the number of states.
    gamma : float, default=0.95
        Discount in [0, 1).

    Returns
    -------
    LinearProblem
        The chain with its features.

    Raises
    ------
    InvalidInputError
        If none of 1000 draws has one closed class on which the features have full rank.

    References
    ----------
    Archibald, T. W., McKinnon, K. I. M., Thomas, L. C. (1995), On the generation of Markov decision processes, Journal
    of the Operational Research Society 46(3).

    Examples
    --------
    >>> problem = garnet(seed=0, n_states=30, branching=3)
    >>> problem.mrp.P.nnz, problem.phi.shape
    (90, (30, 8))
    """
    from scipy.sparse import csr_array

    _check_sizes(n_states, n_features, branching)
    n, rng = n_states, _rng(seed)

    def draw() -> tuple[MarkovRewardProcess, NDArray[np.float64]]:
        successor, probability = _branches(rng, n, branching, n)
        place = (successor, np.arange(0, successor.size + 1, branching))
        P = csr_array((probability, *place), shape=(n, n))
        R = csr_array((rng.random(successor.size), *place), shape=(n, n))
        return MarkovRewardProcess(P, R, gamma), rng.random((n, n_features))

    return _first_solvable(draw, f"branching {branching}, {n} states and {n_features} features")


def off_policy_garnet(
    seed: int = 0,
    n_states: int = 100,
    branching: int = 5,
    n_features: int = 8,
    gamma: float = 0.95,
    n_actions: int = 2,
    difference: float = 1.0,
) -> LinearProblem:
    """Return a Garnet with several actions, observed under another policy than the evaluated one.

    The behaviour policy takes all actions with equal probability. In every state, the evaluated policy is
    (1 - difference) times the behaviour policy plus ``difference`` times probabilities that are uniform on the simplex.
    Importance ratios are therefore below ``n_actions``, and they are 1 if ``difference`` is 0.

    Branches (action by action), rewards of transitions, policy and features are drawn as in ``garnet``, in this order.
    The draw is repeated until the chain under the behaviour policy has one closed class and the features have full rank
    on it. TD converges for some draws and diverges for others.

    Parameters
    ----------
    seed : int, default=0
        Seed of the random draws.
    n_states : int, default=100
        Number of states.
    branching : int, default=5
        Number of distinct successors of each state under each action.
    n_features : int, default=8
        Number of features, at most the number of states.
    gamma : float, default=0.95
        Discount in [0, 1).
    n_actions : int, default=2
        Number of actions, at least 2.
    difference : float, default=1.0
        Difference between the two policies in [0, 1]. With 0 they are equal.

    Returns
    -------
    LinearProblem
        The chain with its features.

    Raises
    ------
    InvalidInputError
        If none of 1000 draws has one closed class on which the features have full rank.

    Examples
    --------
    >>> problem = off_policy_garnet(seed=0)
    >>> edges = problem.mrp.edges
    >>> edges.origin.size, problem.phi.shape, bool(edges.weight.max() < 2.0)
    (1000, (100, 8), True)
    """
    _check_sizes(n_states, n_features, branching)
    check_count("n_actions", n_actions, least=2)
    check_fraction("difference", difference)
    check_fraction("gamma", gamma, below_one=True)
    n, k, A, rng = n_states, branching, n_actions, _rng(seed)
    origin = np.tile(np.repeat(np.arange(n), k), A)

    def draw() -> tuple[MarkovRewardProcess, NDArray[np.float64]]:
        successor, probability = _branches(rng, n, k, n * A)
        reward = rng.random(origin.size)
        ratio = (1.0 - difference) + difference * A * _simplex(rng, n, A)
        weight = np.repeat(ratio.T.ravel(), k)
        mrp = MarkovRewardProcess.from_edges(
            n, origin, successor, probability / A, reward, np.full(origin.size, gamma), weight=weight
        )
        return mrp, rng.random((n, n_features))

    return _first_solvable(draw, f"branching {k}, {n} states and {n_features} features")


def boyan_chain(seed: int = 0) -> LinearProblem:
    """Return Boyan's chain: 13 states, undiscounted episodes, and 4 features that represent the values exactly.

    States 12, ..., 2 move one or two states down with reward -3, and state 1 moves to state 0 with reward -2. State 0
    is visited for one step and restarts the chain at state 12 with reward and discount 0. The value of state s is -2 s.
    The features interpolate between 4 states, and theta_star is (-24, -16, -8, 0).

    Parameters
    ----------
    seed : int, default=0
        Not used, because nothing in this problem is random.

    Returns
    -------
    LinearProblem
        The chain with its features.

    References
    ----------
    Boyan, J. A. (1999), Least-squares temporal difference learning, ICML.

    Examples
    --------
    >>> boyan_chain().mrp.values[[12, 8, 4, 0]]
    array([-24., -16.,  -8.,   0.])
    """
    _rng(seed)
    down = [(s, s - step, 0.5, -3.0, 1.0) for s in range(12, 1, -1) for step in (1, 2)]
    mrp = _from_rows(13, [*down, (1, 0, 1.0, -2.0, 1.0), (0, 12, 1.0, 0.0, 0.0)])
    position = (12 - np.arange(13)[:, None]) / 4
    return LinearProblem(mrp, np.maximum(0.0, 1.0 - np.abs(position - np.arange(4))))


def random_walk(seed: int = 0, n_states: int = 5, left_reward: float | None = None) -> LinearProblem:
    """Return Sutton and Barto's random walk with tabular features, as a restart chain.

    Episodes start in the middle state and end beyond the left or the right end. The reward is 1 at the right end and
    ``left_reward`` at the left end. An exit leads to the middle state with discount 0. Every other transition has
    reward 0 and discount 1. Values increase linearly: state s has the value (s + 1)/6 with 5 states, and (s - 9)/10
    with 19. The chain has period 2 if (n_states + 1)/2 is even, as it is for 19 states.

    Parameters
    ----------
    seed : int, default=0
        Not used, because nothing in this problem is random.
    n_states : int, default=5
        Number of states, an odd number of at least 3.
    left_reward : float, optional
        Reward at the left end. If not given, it is 0 with 5 states and -1 otherwise.

    Returns
    -------
    LinearProblem
        The chain with its features.

    References
    ----------
    Sutton, R. S., Barto, A. G. (2018), Reinforcement Learning: An Introduction, 2nd edition, example 6.2.

    Examples
    --------
    >>> (6 * random_walk().mrp.values).round(12).tolist()
    [1.0, 2.0, 3.0, 4.0, 5.0]
    """
    _rng(seed)
    check_count("n_states", n_states, least=3)
    n = n_states
    require(n % 2, f"n_states must be odd, but is {n}.", f"Pass {n - 1} or {n + 1}.")
    if left_reward is None:
        left_reward = 0.0 if n == 5 else -1.0
    middle = n // 2
    rows = [(s, t, 0.5, 0.0, 1.0) for s in range(n) for t in (s - 1, s + 1) if 0 <= t < n]
    exits = [(0, middle, 0.5, left_reward, 0.0), (n - 1, middle, 0.5, 1.0, 0.0)]
    return LinearProblem(_from_rows(n, rows + exits), np.eye(n))


def baird(seed: int = 0) -> LinearProblem:
    """Return Baird's star, on which off-policy TD diverges: 7 states and 8 features.

    The behaviour policy moves to the seventh state with probability 1/7 and otherwise to one of the other six. The
    evaluated policy always moves to the seventh state. All seven states are therefore visited equally often, and the
    importance ratios are 7 and 0. Rewards are 0 and gamma is 0.99, so all values are 0 and theta = 0 is a solution.

    There are more features than states, so there are other solutions. Measure errors with the metrics "value_error",
    "neu" or "mspbe". A run that starts at theta = 0 stays there; the usual start is theta_0 = (1, 1, 1, 1, 1, 1, 10,
    1).

    Parameters
    ----------
    seed : int, default=0
        Not used, because nothing in this problem is random.

    Returns
    -------
    LinearProblem
        The chain with its features.

    References
    ----------
    Baird, L. (1995), Residual algorithms: reinforcement learning with function approximation, ICML. The features are
    those of Sutton, R. S., Barto, A. G. (2018), Reinforcement Learning: An Introduction, 2nd edition, section 11.2.

    Examples
    --------
    >>> problem = baird()
    >>> problem.phi[[0, 6]]
    array([[2., 0., 0., 0., 0., 0., 0., 1.],
           [0., 0., 0., 0., 0., 0., 1., 2.]])
    >>> problem.mrp.edges.weight[:7]
    array([0., 0., 0., 0., 0., 0., 7.])
    """
    _rng(seed)
    others, seventh = np.zeros((2, 7, 7))
    others[:, :6] = 1.0 / 6.0
    seventh[:, 6] = 1.0
    phi = np.zeros((7, 8))
    phi[np.arange(6), np.arange(6)] = 2.0
    phi[:6, 7] = 1.0
    phi[6, 6:] = 1.0, 2.0
    mdp = MDP([others, seventh], np.zeros(7), 0.99)
    behaviour = np.tile([6.0 / 7.0, 1.0 / 7.0], (7, 1))
    return LinearProblem(mdp.chain(np.ones(7, int), behaviour=behaviour), phi)


_LAKE = ("SFFF", "FHFH", "FFFH", "HFFG")  # start, frozen, hole, goal


def frozen_lake(seed: int = 0, n_features: int = 4, gamma: float = 0.95) -> LinearProblem:
    """Return the 4 x 4 Frozen Lake of the VRTD paper, with the map of Gymnasium.

    In the start cell and the frozen cells, the agent moves to a neighbouring cell (up, down, left, right). The
    probabilities are draws from the uniform distribution on [0, 1], divided by their sum. A hole or the goal is visited
    for one step and leads back to the start. Entering the goal pays 1. Nothing terminates: values include the rewards
    after a return to the start. Features are uniform on [0, 1].

    Parameters
    ----------
    seed : int, default=0
        Seed of the random draws.
    n_features : int, default=4
        Number of features, at most the number of states.
    gamma : float, default=0.95
        Discount in [0, 1).

    Returns
    -------
    LinearProblem
        The chain with its features.

    References
    ----------
    Xu, T., Wang, Z., Zhou, Y., Liang, Y. (2020), Reanalysis of variance reduced temporal difference learning, ICLR.

    Examples
    --------
    >>> problem = frozen_lake(seed=0)
    >>> problem.mrp.P.nnz, problem.phi.shape
    (39, (16, 4))
    """
    _check_sizes(16, n_features)
    rng, n = _rng(seed), len(_LAKE)
    rows = []
    for s in range(n * n):
        i, j = divmod(s, n)
        if _LAKE[i][j] in "HG":
            rows.append((s, 0, 1.0, 0.0, gamma))
            continue
        neighbours = (i - 1, j), (i + 1, j), (i, j - 1), (i, j + 1)
        near = [(k, m) for k, m in neighbours if 0 <= k < n and 0 <= m < n]
        weights = rng.random(len(near))
        rows += [
            (s, k * n + m, weight, float(_LAKE[k][m] == "G"), gamma)
            for (k, m), weight in zip(near, weights / weights.sum(), strict=True)
        ]
    return LinearProblem(_from_rows(n * n, rows), rng.random((n * n, n_features)))


def _rng(seed: int) -> np.random.Generator:
    check_count("seed", seed, least=0)
    return np.random.default_rng(seed)


def _check_sizes(n_states: int, n_features: int, branching: int = 1) -> None:
    check_count("n_states", n_states, least=2)
    for name, value in (("n_features", n_features), ("branching", branching)):
        check_count(name, value)
        require(
            value <= n_states,
            f"{name} must be at most n_states={n_states}, but is {value}.",
            f"Lower {name}.",
        )


def _branches(rng: np.random.Generator, n: int, k: int, n_rows: int) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Return k distinct successors out of n for each row, and their probabilities."""
    successor = np.concatenate([np.sort(rng.choice(n, size=k, replace=False)) for _ in range(n_rows)])
    return successor, _simplex(rng, n_rows, k).ravel()


def _simplex(rng: np.random.Generator, n: int, k: int) -> NDArray[np.float64]:
    """Return n rows of k probabilities: the gaps between sorted uniform cut points."""
    cuts = np.sort(rng.random((n, k - 1)), axis=1)
    return np.diff(cuts, axis=1, prepend=0.0, append=1.0)


def _first_solvable(draw: Callable[[], tuple[MarkovRewardProcess, NDArray[np.float64]]], what: str) -> LinearProblem:
    for _ in range(1000):
        mrp, phi = draw()
        try:
            recurrent = mrp.recurrent_class
        except ReducibleChainError:
            continue
        d = phi.shape[1]
        if recurrent.size >= d and np.linalg.matrix_rank(phi[recurrent]) == d:
            return LinearProblem(mrp, phi)
    raise InvalidInputError(
        f"None of 1000 draws with {what} has one closed class on which the features have full rank.",
        "Raise branching or lower n_features.",
    )


def _from_rows(n: int, rows: list[tuple[int, int, float, float, float]]) -> MarkovRewardProcess:
    origin, successor, probability, reward, discount = zip(*rows, strict=True)
    return MarkovRewardProcess.from_edges(n, origin, successor, probability, reward, discount)


_PROBLEMS = (random_mdp, garnet, boyan_chain, random_walk, baird, off_policy_garnet, frozen_lake, mountain_car)

#: All named problems. ``LIBRARY[name](seed=0)`` returns one.
LIBRARY: Mapping[str, Callable[..., Any]] = MappingProxyType({problem.__name__: problem for problem in _PROBLEMS})
