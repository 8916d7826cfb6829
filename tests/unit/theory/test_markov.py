"""Exact moments of TD on a trajectory against all paths, plain updates, dense algebra and the fixture."""

import numpy as np
import pytest

from vrtd.errors import AccuracyError, InvalidInputError
from vrtd.problems import LinearProblem, MarkovRewardProcess, random_mdp
from vrtd.theory import markov, td_iid_moments
from vrtd.theory.increments import correlated_increments
from vrtd.theory.markov import MarkovTD
from vrtd.theory.moments import LAST_ITERATE, Iterates
from vrtd.theory.symmetric import orbit, pack

RNG = np.random.default_rng(0)
TWO = MarkovRewardProcess([[0.7, 0.3], [0.4, 0.6]], [[1, 0], [0, 2]], 0.9)
SCALAR = LinearProblem(TWO, [[1.0], [0.5]])
PLANE = LinearProblem(
    MarkovRewardProcess([[0.7, 0.3], [0.4, 0.6]], [[1, 0], [0, 2]], [[0.9, 0.5], [1.0, 0.0]]), [[1.0, 0.2], [0.5, -1.0]]
)
PARALLEL_EDGES = MarkovRewardProcess.from_edges(
    3,
    origin=[0, 0, 1, 1, 1, 2, 2, 2],
    successor=[0, 1, 1, 2, 2, 1, 2, 2],
    probability=[0.6, 0.4, 0.5, 0.2, 0.3, 0.6, 0.3, 0.1],
    reward=[1.0, -1.0, 0.5, 2.0, -3.0, 1.0, 0.0, 4.0],
    discount=[0.9, 0.8, 0.9, 1.0, 0.0, 0.7, 0.9, 0.5],
)
# Two ways from 1 to 2 and two from 2 to 2; state 0 is not come back to.
PARALLEL_LINE = LinearProblem(PARALLEL_EDGES, [[2.0], [1.0], [-0.4]])
PARALLEL_PLANE = LinearProblem(PARALLEL_EDGES, [[2.0, 1.0], [1.0, 0.3], [-0.4, 0.8]])
TINY = {"scalar": SCALAR, "plane": PLANE, "parallel line": PARALLEL_LINE, "parallel plane": PARALLEL_PLANE}

RANDOM = random_mdp()
LAZY = LinearProblem(
    MarkovRewardProcess(0.99 * np.eye(50) + 0.01 * RANDOM.mrp.P, RANDOM.mrp.edges.reward.reshape(50, 50), 0.95),
    RANDOM.phi,
)
PERIODIC = LinearProblem(
    MarkovRewardProcess(np.roll(np.eye(6), 1, axis=1), RNG.random((6, 6)), 0.9), RNG.random((6, 2))
)


def transitions(problem):
    """Origin, successor, probability given the origin, A_x and b_x of every transition."""
    e, phi = problem.mrp.edges, problem.phi
    for i, j, p, r, g in zip(e.origin, e.successor, e.probability, e.reward, e.discount, strict=True):
        yield i, j, p, np.outer(phi[i], g * phi[j] - phi[i]), r * phi[i]


AVERAGE, LEVELS = Iterates(weights=(1.0,)), Iterates(3, (8 / 3, -2.0, 1 / 3))


class Paths:
    """Every path so far: its probability, its state, its theta at each level and the sum of what is averaged; equation
    (1) as written."""

    def __init__(self, problem, theta_0, initial, iterates):
        n, d = problem.phi.shape
        self.problem, self.iterates, self.t = problem, iterates, 0
        self.weight, self.state = np.array(initial), np.arange(n)
        self.theta, self.total = np.tile(theta_0, (n, iterates.levels, 1)), np.zeros((n, d))

    def step(self, a):
        parts = []
        for i, j, p, A, b in transitions(self.problem):
            here = self.state == i
            steps = a * 2.0 ** np.arange(self.iterates.levels)[:, None]
            theta = self.theta[here] + steps * (self.theta[here] @ A.T + b)
            state = np.full(here.sum(), j)
            total = self.total[here]
            if self.iterates.weights:
                total = total + np.einsum("m,pmi->pi", self.iterates.weights, theta)
            parts.append((self.weight[here] * p, state, theta, total))
        self.weight, self.state, self.theta, self.total = map(np.concatenate, zip(*parts, strict=True))
        self.t += 1

    def moments(self):
        """(S, n, n) E[y y^T; state s] with y = (u, 1), or (r, u, 1) with the sum r of the errors."""
        u = (self.theta - self.problem.theta_star).reshape(len(self.theta), -1)
        columns = [self.total - self.t * self.problem.theta_star] if self.iterates.weights else []
        y = np.column_stack([*columns, u, np.ones(len(u))])
        return np.stack(
            [(y[s].T * self.weight[s]) @ y[s] for s in self.state == np.arange(len(self.problem.phi))[:, None]]
        )


@pytest.mark.parametrize("iterates", [LAST_ITERATE, AVERAGE, LEVELS], ids=["last", "average", "levels"])
@pytest.mark.parametrize("problem", TINY.values(), ids=TINY)
def test_moments_by_state_are_those_of_all_paths(problem, iterates):
    n, d = problem.phi.shape
    theta_0, initial = np.array([0.3, -0.7])[:d], np.array([0.5, 0.1, 0.4])[:n]
    initial = initial / initial.sum()
    recursion, paths = MarkovTD(problem, iterates), Paths(problem, theta_0, initial, iterates)
    Y = recursion.start(theta_0, initial)
    assert np.allclose(Y, paths.moments())
    for a in (0.5, 0.4, 0.1, 0.3, 0.7):
        Y = recursion.update(Y, a)
        paths.step(a)
        assert paths.weight.sum() == pytest.approx(1.0)
        assert np.allclose(Y, paths.moments(), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("problem", TINY.values(), ids=TINY)
def test_several_updates_at_once_and_stacks_are_updates_one_by_one(problem):
    recursion = MarkovTD(problem)
    stack = np.stack(
        [recursion.start(np.full(problem.n_features, x), problem.mrp.stationary) for x in (0.0, 1.0, -2.0)]
    )
    kept = stack.copy()
    for n_updates in (0, 1, 2, 5):
        one_by_one = list(stack)
        for _ in range(n_updates):
            one_by_one = [recursion.update(Y, 0.3) for Y in one_by_one]
        assert np.allclose(recursion.update(stack, 0.3, n_updates), one_by_one, rtol=1e-13)
    assert np.array_equal(stack, kept)


RUNS = {"fast": (RANDOM, True), "slow": (LAZY, False)}
SMALL_RUNS = {"transient": (PARALLEL_PLANE, True), "scalar": (SCALAR, True), "periodic": (PERIODIC, False)}


@pytest.mark.parametrize(
    ("iterates", "problem", "shortcut"),
    [
        pytest.param(iterates, *run, id=f"{name}-{what}")
        for what, iterates, runs in (
            ("last", LAST_ITERATE, RUNS | SMALL_RUNS),
            ("average", AVERAGE, RUNS | SMALL_RUNS),
            ("levels", LEVELS, SMALL_RUNS),
        )
        for name, run in runs.items()
    ],
)
def test_a_run_is_its_updates(problem, shortcut, iterates, monkeypatch):
    """Three segments, each with its own step; the shortcut through the slow subspace must be taken, or must not be."""
    taken = []
    monkeypatch.setattr(markov, "orbit", lambda *arguments: taken.append(1) or orbit(*arguments))
    recursion, plain = MarkovTD(problem, iterates), MarkovTD(problem, iterates)
    initial = np.eye(1, len(problem.phi)).ravel()
    Y = expected = recursion.start(np.full(problem.n_features, 2.0), initial)
    segments = [(0.2, [0, 1, 3, 40, 800, 1500]), (0.1, [900]), (0.05, [1, 2, 700, 700])]
    for a, counts in segments:
        totals, Y = recursion.run(Y, a, np.array(counts))
        done, rows = 0, []
        for count in counts:
            expected = plain.update(expected, a, count - done) if count > done else expected
            done = count
            rows.append(pack(expected.sum(axis=0)))
        # With an average the sums of t errors stand beside the errors: relative to those.
        scale = np.abs(rows).max(axis=0)
        assert np.abs((totals - rows) / np.where(scale > 0, scale, 1.0)).max() < 2e-9
        assert np.abs(Y - expected).max() < 1e-9 * np.abs(expected).max()
    assert bool(taken) == shortcut


@pytest.mark.parametrize("problem", [RANDOM, PARALLEL_PLANE, SCALAR], ids=["fast", "transient", "scalar"])
def test_until_the_subspace_is_reached_there_are_updates_and_then_a_map(problem):
    recursion, initial = MarkovTD(problem), np.eye(1, len(problem.phi)).ravel()
    Y = recursion.start(np.full(problem.n_features, 2.0), initial)
    totals, T = recursion.until_slow(Y, 0.2, 1000)
    assert 2 < len(totals) < 1000
    for total in totals:
        assert np.allclose(total, pack(Y.sum(axis=0)), rtol=1e-12, atol=1e-13)
        Y = recursion.update(Y, 0.2)
    for total in orbit(T, totals[-1], np.arange(1, 30)):
        assert np.allclose(total, pack(Y.sum(axis=0)), rtol=1e-9, atol=1e-10)
        Y = recursion.update(Y, 0.2)


@pytest.mark.parametrize("problem", [LAZY, PERIODIC], ids=["slow", "periodic"])
def test_the_subspace_of_a_slow_chain_is_not_reached(problem):
    recursion = MarkovTD(problem)
    Y = recursion.start(np.zeros(problem.n_features), problem.mrp.stationary)
    assert recursion.until_slow(Y, 0.2, 200) is None


def test_a_run_reaches_the_fixture():
    recursion = MarkovTD(SCALAR)
    totals, _ = recursion.run(recursion.start(np.zeros(1), np.array([0.0, 1.0])), 0.1, np.array([10**9]))
    assert totals[0, 0] == pytest.approx(0.3480492002, abs=1e-9)


def test_stationary_error_of_the_fixture():
    assert MarkovTD(SCALAR).stationary(0.1).item() == pytest.approx(0.3480492002, abs=1e-9)


@pytest.mark.parametrize("problem", TINY.values(), ids=TINY)
def test_stationary_moment_by_the_subspace_and_by_a_dense_solve(problem, monkeypatch):
    fast = MarkovTD(problem).stationary(0.1)
    monkeypatch.setattr(MarkovTD, "_slow", lambda *_: None)
    assert np.allclose(MarkovTD(problem).stationary(0.1), fast, rtol=1e-9)


@pytest.mark.parametrize("problem", [*TINY.values(), RANDOM, PERIODIC], ids=[*TINY, "random", "periodic"])
def test_stationary_moment_is_kept_by_an_update(problem):
    recursion = MarkovTD(problem)
    totals, Y = recursion.run(
        recursion.start(problem.theta_star, problem.mrp.stationary), 0.3, np.array([40_000, 40_001])
    )
    d = problem.n_features
    assert np.allclose(Y.sum(axis=0)[:d, :d], recursion.stationary(0.3), rtol=1e-9, atol=1e-12)
    assert np.allclose(totals[0], totals[1], atol=1e-12)


def test_a_slow_chain_with_many_unknowns_has_no_dense_solve(monkeypatch):
    monkeypatch.setattr(MarkovTD, "_slow", lambda *_: None)
    problem = random_mdp(n_states=210)
    with pytest.raises(AccuracyError, match=r"a system of .* unknowns, more than 3000. Use exact_curve"):
        MarkovTD(problem).stationary(0.1)


def dense_map(problem, a):
    """S_s -> sum over x = (s, s') of p_x B_x S_s B_x^T, on row-major vectors."""
    n, d = problem.phi.shape
    T = np.zeros((n, d * d, n, d * d))
    for i, j, p, A, _ in transitions(problem):
        B = np.eye(d) + a * A
        T[j, :, i, :] += p * np.kron(B, B)
    return T.reshape(n * d * d, -1)


@pytest.mark.parametrize("a", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("problem", [*TINY.values(), random_mdp(n_states=12)], ids=[*TINY, "random"])
def test_radius_is_the_dense_eigenvalue(problem, a):
    expected = np.abs(np.linalg.eigvals(dense_map(problem, a))).max()
    assert MarkovTD(problem).radius(a) == pytest.approx(expected, rel=1e-8)


def test_radius_of_a_periodic_chain_is_the_dense_eigenvalue():
    cycle = MarkovRewardProcess(np.roll(np.eye(10), 1, axis=1), np.ones(10), 0.9)
    problem = LinearProblem(cycle, np.random.default_rng(10).random((10, 2)))
    for a in (0.1, 0.5, 2.0):
        expected = np.abs(np.linalg.eigvals(dense_map(problem, a))).max()
        assert MarkovTD(problem).radius(a) == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("problem", [SCALAR, PARALLEL_PLANE, RANDOM], ids=["scalar", "parallel plane", "random"])
def test_small_steps_solve_lyapunovs_equation_with_the_long_run_covariance(problem):
    """E[u u^T] / a -> S with A S + S A^T + Sigma_LRV = 0, with an error of order a."""
    A, d = problem.A, problem.n_features
    noise = correlated_increments(problem).long_run_covariance()
    L = np.kron(A, np.eye(d)) + np.kron(np.eye(d), A)
    limit = -np.linalg.solve(L, noise.ravel()).reshape(d, d)
    ratios = [MarkovTD(problem).stationary(a) / a for a in (2e-3, 1e-3)]
    richer = 2 * ratios[1] - ratios[0]  # the term of order a is gone
    assert np.allclose(richer, limit, rtol=1e-3, atol=1e-3 * np.abs(limit).max())


def identical_rows(rewards, gamma, phi):
    return LinearProblem(MarkovRewardProcess(np.tile([0.2, 0.5, 0.3], (3, 1)), rewards, gamma), phi)


STATES, TABLE = [1.0, -2.0, 3.0], [[1.0, 0.2], [0.5, -1.0], [0.1, 0.4]]


def along_both(problem):
    """E[y y^T] along a trajectory from a stationary start and with independent samples."""
    d, counts = problem.n_features, np.arange(12)
    recursion = MarkovTD(problem)
    totals, _ = recursion.run(recursion.start(np.full(d, 0.4), problem.mrp.stationary), 0.3, counts)
    independent = td_iid_moments(problem, 0.3, 11, np.full(d, 0.4))
    u = independent.mean - problem.theta_star
    Y = np.concatenate([independent.second, u[:, :, None]], axis=2)
    Y = np.concatenate([Y, np.append(u, np.ones((12, 1)), axis=1)[:, None]], axis=1)
    return totals, pack(Y)


@pytest.mark.parametrize(
    "problem",
    [
        identical_rows(STATES, 0.0, TABLE),  # what a transition does depends on its first state only,
        identical_rows(np.tile(STATES, (3, 1)), 0.9, np.ones((3, 1))),  # or on its second only:
    ],  # then consecutive transitions share no state that matters, and successive states are independent
    ids=["first state", "second state"],
)
def test_identical_rows_are_independent_samples_where_no_state_is_shared(problem):
    trajectory, independent = along_both(problem)
    assert np.allclose(trajectory, independent, atol=1e-13)


@pytest.mark.parametrize(
    "problem",
    [
        identical_rows(STATES, 0.9, TABLE),  # the next state's features matter now and as the first state's then
        identical_rows(np.add.outer(STATES, STATES), 0.0, TABLE),  # so do the rewards of transitions
        identical_rows(np.add.outer(STATES, STATES), 0.9, np.ones((3, 1))),
    ],
    ids=["discount", "rewards", "constant feature"],
)
def test_identical_rows_are_not_independent_samples_where_a_state_is_shared(problem):
    trajectory, independent = along_both(problem)
    assert np.allclose(trajectory[:2], independent[:2], atol=1e-13)  # one transition has no other to share with
    assert np.abs(trajectory - independent)[2:].max(axis=1).min() > 1e-3


def test_a_problem_off_policy_is_refused():
    off = LinearProblem(TWO, [[1.0], [0.5]], [0.1, 0.9])
    with pytest.raises(
        InvalidInputError, match="not the stationary distribution of its chain, which Markovian samples need"
    ):
        MarkovTD(off)
