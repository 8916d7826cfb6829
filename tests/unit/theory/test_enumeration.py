"""Algorithm 2 on tiny chains: exact moments against all paths and inner indices, and the approximation against them."""

import itertools

import numpy as np
import pytest

from vrtd.errors import InvalidInputError
from vrtd.problems import LinearProblem, MarkovRewardProcess, random_mdp
from vrtd.theory.enumeration import batch_types, enumerated_epoch_map, is_enumerable
from vrtd.theory.increments import correlated_increments, independent_increments
from vrtd.theory.limits import instance_optimal, stationary_second_moment
from vrtd.theory.markov import MarkovTD, stationary_by_state
from vrtd.theory.moments import epoch_maps, fixed_point
from vrtd.theory.symmetric import pack, unpack

OUTPUTS = ("random", "last", "average")
P, R = [[0.7, 0.3], [0.4, 0.6]], [[1, 0], [0, 2]]
SCALAR = LinearProblem(MarkovRewardProcess(P, R, 0.9), [[1.0], [0.5]])
PLANE = LinearProblem(MarkovRewardProcess(P, R, [[0.9, 0.5], [1.0, 0.0]]), [[1.0, 0.2], [0.5, -1.0]])
# Two ways from 0 to 1, with different rewards and discounts, and one way back.
PARALLEL = LinearProblem(
    MarkovRewardProcess.from_edges(
        2, [0, 0, 0, 1], [0, 1, 1, 0], [0.5, 0.3, 0.2, 1.0], [1, 2, -3, 0], [0.9, 1, 0, 0.8]
    ),
    [[1.0], [0.5]],
)
TRANSIENT = LinearProblem(
    MarkovRewardProcess([[0.5, 0.5, 0.0], [0.0, 0.7, 0.3], [0.0, 0.4, 0.6]], [3.0, 1.0, 2.0], 0.9),
    [[2.0], [1.0], [0.5]],
)
TINY = {"scalar": SCALAR, "plane": PLANE, "parallel": PARALLEL, "transient": TRANSIENT}


def epoch(problem, atoms, step_size, M, output):
    """All outcomes of an epoch of Algorithm 2, as the paper writes it, from every atom (probability, state, theta)."""
    e, phi = problem.mrp.edges, problem.phi
    psi = e.discount[:, None] * phi[e.successor] - phi[e.origin]

    def g(x, theta):
        return (e.reward[x] + theta @ psi[x])[:, None] * phi[e.origin[x]]

    weight, state, anchors = atoms
    weights, states, thetas = [], [], []
    for batch in itertools.product(range(e.origin.size), repeat=M):
        if any(e.successor[x] != e.origin[y] for x, y in itertools.pairwise(batch)):
            continue
        here = state == e.origin[batch[0]]
        anchor, p = anchors[here], weight[here] * e.probability[list(batch)].prod()
        g_anchor = sum(g(x, anchor) for x in batch) / M
        for inner in itertools.product(batch, repeat=M):
            theta, path = anchor, []
            for x in inner:
                theta = theta + step_size * (g(x, theta) - g(x, anchor) + g_anchor)
                path.append(theta)
            chosen = {"random": path, "last": path[-1:], "average": [np.mean(path, axis=0)]}[output]
            for theta in chosen:
                weights.append(p / M**M / len(chosen))
                states.append(np.full(len(p), e.successor[batch[-1]]))
                thetas.append(theta)
    return np.concatenate(weights), np.concatenate(states), np.concatenate(thetas)


def by_state(problem, atoms):
    """(S, triangle) the packed Y_s = E[y y^T; state s]."""
    weight, state, theta = atoms
    y = np.column_stack([theta - problem.theta_star, np.ones(len(theta))])
    return np.stack([pack((y[s].T * weight[s]) @ y[s]) for s in state == np.arange(len(problem.phi))[:, None]])


def some_atoms(problem):
    """Two values of theta in each state, which depend on the state."""
    n, d = problem.phi.shape
    rng = np.random.default_rng(1)
    weight = rng.random(2 * n)
    return weight / weight.sum(), np.repeat(np.arange(n), 2), rng.normal(size=(2 * n, d))


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize(("M", "n_epochs"), [(1, 3), (2, 2), (3, 1)])
@pytest.mark.parametrize("problem", TINY.values(), ids=TINY)
def test_epochs_are_those_of_all_paths_and_inner_indices(problem, M, n_epochs, output):
    T, atoms = enumerated_epoch_map(problem, 0.4, M, output), some_atoms(problem)
    x = by_state(problem, atoms).ravel()
    for _ in range(n_epochs):
        x, atoms = T @ x, epoch(problem, atoms, 0.4, M, output)
        assert atoms[0].sum() == pytest.approx(1.0)
        assert np.allclose(x.reshape(len(problem.phi), -1), by_state(problem, atoms), rtol=1e-11, atol=1e-12)


def exact_limit(problem, a, M, output="random"):
    T = enumerated_epoch_map(problem, a, M, output)
    return stationary_by_state(T, problem.mrp.stationary, problem.n_features, "a test").trace()


def approximate_limit(problem, a, M, output="random"):
    T = epoch_maps(correlated_increments(problem), a, [M], output)[M].later
    return fixed_point(T, problem.n_features, "a test").trace()


@pytest.mark.parametrize(
    ("M", "expected"), [(1, 0.3480492002), (2, 0.3127245863), (4, 0.2761744368), (8, 0.2463712927)]
)
def test_stationary_error_of_the_fixture(M, expected):
    assert exact_limit(SCALAR, 0.1, M) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("problem", TINY.values(), ids=TINY)
def test_a_batch_of_one_is_td(problem, output):
    T, recursion = enumerated_epoch_map(problem, 0.3, 1, output), MarkovTD(problem)
    Y = unpack(by_state(problem, some_atoms(problem)), problem.n_features + 1)
    updated = pack(recursion.update(Y, 0.3))
    assert np.allclose((T @ pack(Y).ravel()).reshape(updated.shape), updated, atol=1e-13)


@pytest.mark.parametrize("problem", TINY.values(), ids=TINY)
def test_types_of_batches_are_counted_paths(problem):
    e, M = problem.mrp.edges, 4
    expected = [{} for _ in range(problem.mrp.n_states)]
    for path in itertools.product(range(e.origin.size), repeat=M):
        if all(e.successor[x] == e.origin[y] for x, y in itertools.pairwise(path)):
            key = int(e.successor[path[-1]]), tuple(np.bincount(path, minlength=e.origin.size).tolist())
            row = expected[e.origin[path[0]]]
            row[key] = row.get(key, 0.0) + e.probability[list(path)].prod()
    found = batch_types(problem, M)
    assert [set(row) for row in found] == [set(row) for row in expected]
    assert all(
        row[key] == pytest.approx(p) for row, naive in zip(found, expected, strict=True) for key, p in naive.items()
    )


# The approximation takes inner samples as independent of their batch. Its stationary error was measured over the three
# outputs, M = 2, 4, 8, 16 and steps from 0.02 to 0.2 to be off by at most these shares times the step size.
SLOW = LinearProblem(MarkovRewardProcess([[0.95, 0.05], [0.04, 0.96]], R, 0.9), [[1.0], [0.5]])
MEASURED = {"scalar": 0.12, "plane": 0.25, "parallel": 0.04, "transient": 0.3, "slow": 1.08}


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("name", MEASURED)
def test_the_approximation_is_off_by_a_share_of_the_step(name, output):
    problem = (TINY | {"slow": SLOW})[name]
    for a in (0.02, 0.05, 0.1, 0.2):
        for M in (2, 4, 8, 16):
            exact = exact_limit(problem, a, M, output)
            assert approximate_limit(problem, a, M, output) == pytest.approx(exact, rel=1.2 * MEASURED[name] * a)


def test_the_correlations_of_the_approximation_matter():
    for M in (4, 16):
        plain = epoch_maps(independent_increments(SCALAR), 0.1, [M], "random")[M].later
        assert fixed_point(plain, 1, "a test").trace() > 2.0 * exact_limit(SCALAR, 0.1, M)


def test_the_approximation_begins_as_the_exact_epoch_does():
    """From a stationary start at theta_star the first epoch's noise is that of one batch, with its exact covariance."""
    for problem in (SCALAR, PLANE, PARALLEL):
        d = problem.n_features
        start = np.append(np.zeros(len(pack(np.eye(d + 1))) - 1), 1.0)
        for a, tolerance in ((0.01, 0.01), (0.1, 0.1)):
            first = epoch_maps(correlated_increments(problem), a, [6], "last")[6].first @ start
            exact = enumerated_epoch_map(problem, a, 6, "last") @ np.outer(problem.mrp.stationary, start).ravel()
            exact = exact.reshape(len(problem.phi), -1).sum(axis=0)
            assert unpack(first, d + 1)[:d, :d].trace() == pytest.approx(
                unpack(exact, d + 1)[:d, :d].trace(), rel=tolerance
            )


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("problem", [SCALAR, PLANE, random_mdp()], ids=["scalar", "plane", "random"])
def test_large_batches_and_small_steps_reach_the_instance_optimal_error(problem, output):
    """M E|u|^2 -> tr(A^-1 Sigma_LRV A^-T) as a -> 0 with a lambda M large."""
    limit = instance_optimal(problem, "markov")
    a, M = 0.01, 10**6
    assert M * approximate_limit(problem, a, M, output) == pytest.approx(limit, rel=0.02)
    assert abs(instance_optimal(problem, "iid") / limit - 1.0) > 0.05 or problem is PLANE  # as many features as states


def test_what_cannot_be_enumerated_is_refused():
    assert is_enumerable(SCALAR, 8)
    assert not is_enumerable(SCALAR, 1000)
    random = random_mdp()
    assert not is_enumerable(random, 2)
    message = r"64 transitions, 4000 types and 2000 moments, which 50 states with batch_size 2 exceed. Use the approx"
    with pytest.raises(InvalidInputError, match=message):
        enumerated_epoch_map(random, 0.1, 2, "random")
    off = LinearProblem(SCALAR.mrp, [[1.0], [0.5]], [0.1, 0.9])
    with pytest.raises(InvalidInputError, match="not the stationary distribution of its chain"):
        enumerated_epoch_map(off, 0.1, 2, "random")


@pytest.mark.parametrize(
    ("M", "expected"), [(1, 0.3480492002), (2, 0.3127245863), (4, 0.2761744368), (8, 0.2463712927)]
)
def test_the_stationary_moment_of_a_trajectory_is_that_of_the_fixture(M, expected):
    mrp = MarkovRewardProcess([[0.7, 0.3], [0.4, 0.6]], [[1, 0], [0, 2]], 0.9)
    problem = LinearProblem(mrp, [[1.0], [0.5]])
    assert stationary_second_moment(problem, 0.1, M, sampling="markov").item() == pytest.approx(expected, abs=1e-9)
    if M > 1:
        near = stationary_second_moment(problem, 0.1, M, sampling="markov", method="approximate").item()
        assert near != pytest.approx(expected, rel=1e-4)
        assert near == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda s: stationary_second_moment(s, 0.1, 50, sampling="markov"),
            "batches are enumerated for at most 64 transitions",
        ),
        (lambda s: stationary_second_moment(s, 0.1, 2, sampling="both"), "sampling must be one of"),
        (lambda s: stationary_second_moment(s, 0.1, 2, sampling="markov", method="auto"), "method must be one of"),
        (lambda s: stationary_second_moment(s, 0.1, 2, anchor="mean", sampling="markov"), "needs independent samples"),
        (lambda s: stationary_second_moment(s, 9.0, sampling="markov"), "second moment diverges with step_size 9.0"),
        (lambda s: stationary_second_moment(s, -1.0, sampling="markov"), "step_size must be a positive"),
        (lambda s: stationary_second_moment(s, 0.1, 0, sampling="markov"), "batch_size must be a whole number"),
    ],
)
def test_what_has_no_stationary_moment_is_refused(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call(random_mdp())
