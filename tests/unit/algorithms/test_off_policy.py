"""Off-policy problems: transitions of a behaviour, weighted by importance ratios, against sums and closed forms."""

import inspect
import itertools
from functools import partial

import numpy as np
import pytest

import vrtd
from tests.helpers.chains import TWO
from vrtd import theory
from vrtd.errors import InvalidInputError, SingularSystemError, StabilityWarning
from vrtd.metrics import METRICS
from vrtd.problems import MDP, MarkovRewardProcess, Transitions, baird, off_policy_garnet, random_mdp

STAR = baird()
STAR_START = (1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 10.0, 1.0)


def decisions(seed=0, n_states=5):
    """Three actions, each transition with a reward and a discount of its own, a target that leaves one action out."""
    rng = np.random.default_rng(seed)
    P = rng.random((3, n_states, n_states))
    P /= P.sum(axis=2, keepdims=True)
    mdp = MDP(P, rng.random((3, n_states, n_states)), rng.choice([0.0, 0.8, 0.95], (3, n_states, n_states)))
    target = np.column_stack([rng.dirichlet([1.0, 1.0], n_states), np.zeros(n_states)])
    return mdp, target, rng.dirichlet(np.ones(3), n_states), rng.standard_normal((n_states, 3))


# The chain of a behaviour


@pytest.mark.parametrize("average_rewards", [False, True])
def test_values_are_the_targets_and_visits_the_behaviours(average_rewards):
    mdp, target, behaviour, _ = decisions()
    mrp = mdp.chain(target, average_rewards, behaviour)
    assert mrp.values == pytest.approx(mdp.chain(target).values, rel=1e-12)
    assert mrp.mean_reward == pytest.approx(mdp.chain(target).mean_reward, rel=1e-13)
    assert np.allclose(mrp.P.toarray(), mdp.chain(behaviour).P.toarray(), atol=1e-15)
    assert mrp.stationary == pytest.approx(mdp.chain(behaviour).stationary, rel=1e-12)
    assert mrp.is_weighted
    assert mrp.rewards_averaged is average_rewards


def test_each_action_has_its_ratio_and_those_of_weight_0_stay():
    mdp, target, behaviour, _ = decisions()
    edges = mdp.chain(target, behaviour=behaviour).edges
    assert edges.origin.size == 3 * 5 * 5
    assert (edges.weight == 0.0).sum() == 5 * 5
    ratio = target / behaviour
    for s in range(5):
        leaving = slice(edges.indptr[s], edges.indptr[s + 1])
        assert sorted(edges.weight[leaving]) == pytest.approx(sorted(np.repeat(ratio[s], 5)), rel=1e-14)
        assert edges.probability[leaving] @ (edges.weight[leaving] == 0.0) == pytest.approx(behaviour[s, 2])


def test_parallel_transitions_are_merged_where_their_ratios_agree():
    mdp = MDP([TWO, TWO, TWO], np.ones((3, 2)), 0.9)
    target = [[0.2, 0.2, 0.6], [0.5, 0.0, 0.5]]
    edges = mdp.chain(target, behaviour=[[0.4, 0.4, 0.2], [0.25, 0.5, 0.25]]).edges
    assert edges.weight == pytest.approx([0.5, 3.0, 0.5, 3.0, 0.0, 2.0, 0.0, 2.0])
    assert edges.probability == pytest.approx([0.56, 0.14, 0.24, 0.06, 0.2, 0.2, 0.3, 0.3])
    same = mdp.chain(target, behaviour=target)
    assert not same.is_weighted
    assert same.digest == mdp.chain(target).digest


def test_averages_keep_the_mean_ratio_and_the_mean_of_ratio_times_reward():
    gamma = np.array([0.9, 0.9, 0.5])[:, None, None]
    mdp = MDP([TWO, TWO, TWO], [[1.0, 4.0], [3.0, 2.0], [7.0, 6.0]], gamma)
    behaviour = np.array([[0.4, 0.4, 0.2], [0.25, 0.5, 0.25]])
    edges = mdp.chain([[0.2, 0.6, 0.2], [0.0, 0.0, 1.0]], average_rewards=True, behaviour=behaviour).edges
    assert edges.discount.tolist() == [0.5, 0.9] * 4
    assert edges.probability == pytest.approx([0.14, 0.56, 0.06, 0.24, 0.1, 0.3, 0.15, 0.45])
    assert edges.weight == pytest.approx([1.0, 1.0, 1.0, 1.0, 4.0, 0.0, 4.0, 0.0])
    # State 0: (0.2 * 1 + 0.6 * 3) / 0.8; of state 1 the policy takes neither of the first two: their plain mean.
    assert edges.reward == pytest.approx([7.0, 2.5, 7.0, 2.5, 6.0, 8 / 3, 6.0, 8 / 3])


@pytest.mark.parametrize(
    ("behaviour", "message"),
    [
        (
            [[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]],
            "behaviour must take every action that the policy takes, but in state 1 it never takes action 0, "
            r"which the policy takes with probability 0\.25\. Give that action a positive probability",
        ),
        ([0, 3], r"actions must lie in 0\.\.2, but got 3 at state 1"),
        ([0.0, 1.0], r"behaviour of shape \(S,\) must hold integers, but has dtype float64"),
        ([[1.0, 0.0]], r"behaviour must have the shape \(S, A\) = \(2, 3\)"),
        ([[1.5, -0.5, 0.0], [1.0, 0.0, 0.0]], r"behaviour must be non-negative, but got -0\.5 at state 0, action 1"),
        ([[0.5, 0.4, 0.0], [1.0, 0.0, 0.0]], "row of behaviour must sum to 1"),
    ],
)
def test_bad_behaviours_are_refused(behaviour, message):
    with pytest.raises(InvalidInputError, match=message):
        MDP([TWO, TWO, TWO], [0, 0], 0.5).chain([[0.0, 1.0, 0.0], [0.25, 0.75, 0.0]], behaviour=behaviour)


# The linear equation (its moments are in test_linear_problem)


def test_the_equation_is_the_targets_in_the_states_of_the_behaviour():
    mdp, target, behaviour, phi = decisions()
    problem = vrtd.LinearProblem(mdp.chain(target, behaviour=behaviour), phi)
    mixed = vrtd.LinearProblem(mdp.chain(target), phi, mdp.chain(behaviour).stationary)
    for name in ("A", "b", "C", "theta_star"):
        assert np.allclose(getattr(problem, name), getattr(mixed, name), rtol=1e-11, atol=1e-14)
    assert np.trace(problem.noise_covariance) > 1.5 * np.trace(mixed.noise_covariance)


def layers():
    """Episodes of three steps: what a trace remembers fits into paths that can be enumerated."""
    P = np.zeros((2, 4, 4))
    P[0, 0, 1:3], P[1, 0, 1:3] = [0.3, 0.7], [0.8, 0.2]
    P[:, 1:3, 3], P[:, 3, 0] = 1.0, 1.0
    gamma = np.full((2, 4, 4), 0.9)
    gamma[1], gamma[:, 3] = 0.6, 0.0
    R = np.random.default_rng(0).standard_normal((2, 4, 4))
    mdp = MDP(P, R, gamma)
    target, behaviour = np.array([[0.9, 0.1], [0.2, 0.8], [1.0, 0.0], [0.5, 0.5]]), np.full((4, 2), 0.5)
    phi = np.random.default_rng(1).standard_normal((4, 2))
    return vrtd.LinearProblem(mdp.chain(target, behaviour=behaviour), phi)


@pytest.mark.parametrize("trace_decay", [0.0, 0.3, 0.9, 1.0])
def test_traces_against_every_path(trace_decay):
    problem = layers()
    mrp, phi = problem.mrp, problem.phi
    e, length = mrp.edges, 3  # a trace begins anew with every episode, so two transitions before this one are enough
    A, b, total = np.zeros((2, 2)), np.zeros(2), 0.0
    for path in itertools.product(range(e.origin.size), repeat=length):
        if any(e.successor[i] != e.origin[j] for i, j in itertools.pairwise(path)):
            continue
        z, carry, p = np.zeros(2), 0.0, mrp.stationary[e.origin[path[0]]]
        for x in path:
            z = e.weight[x] * (carry * trace_decay * z + phi[e.origin[x]])
            carry, p = e.discount[x], p * e.probability[x]
        A += p * np.outer(z, e.discount[x] * phi[e.successor[x]] - phi[e.origin[x]])
        b += p * e.reward[x] * z
        total += p
    assert total == pytest.approx(1.0)
    assert np.allclose(problem.traced(trace_decay)[0], A, atol=1e-14)
    assert np.allclose(problem.traced(trace_decay)[1], b, atol=1e-14)
    assert problem.fixed_point(trace_decay) == pytest.approx(-np.linalg.solve(A, b))


def test_full_traces_project_the_values_and_tables_need_none():
    mdp, target, behaviour, phi = decisions()
    mrp = mdp.chain(target, behaviour=behaviour)
    problem = vrtd.LinearProblem(mrp, phi)
    assert problem.fixed_point(1) == pytest.approx(METRICS["value_error"](problem).centre)
    assert problem.fixed_point(1.0 - 1e-9) == pytest.approx(problem.fixed_point(1.0), rel=1e-6)
    assert problem.fixed_point() is problem.theta_star
    assert vrtd.LinearProblem(mrp, np.eye(5)).fixed_point(0.7) == pytest.approx(mrp.values)


@pytest.mark.parametrize("gamma", [0.9, 0.99999])
def test_traces_of_many_states_without_a_dense_matrix(monkeypatch, gamma):
    """By iteration, or by a sparse factorisation where that would take too long."""
    problem = off_policy_garnet(n_states=30, n_features=3, gamma=gamma)
    dense = problem.traced(0.9999)
    monkeypatch.setattr("vrtd.problems.markov_reward_process.DENSE_LIMIT", 10)
    for large, small in zip(problem.traced(0.9999), dense, strict=True):
        assert np.allclose(large, small, rtol=1e-9)


@pytest.mark.parametrize("trace_decay", [-0.1, 1.1, np.nan, True, "all"])
def test_bad_traces_are_refused(trace_decay):
    with pytest.raises(InvalidInputError, match=r"trace_decay must lie in \[0, 1\], but got"):
        random_mdp().traced(trace_decay)


def test_traces_need_the_chains_own_states():
    problem = random_mdp()
    other = vrtd.LinearProblem(problem.mrp, problem.phi, np.full(50, 0.02))
    with pytest.raises(
        InvalidInputError, match="Traces need the stationary state distribution, but this problem has another"
    ):
        other.fixed_point(0.5)
    assert other.fixed_point(0.0) is other.theta_star
    same = vrtd.LinearProblem(problem.mrp, problem.phi, problem.mrp.stationary)
    assert np.allclose(same.fixed_point(0.5), problem.fixed_point(0.5))


# Metrics without a theta_star


def test_dependent_features_change_no_metric_of_values():
    plain = random_mdp(n_states=10)
    T = np.array([[1.0, 0, 0, 0, 1.0], [0, 1.0, 0, 0, 1.0], [0, 0, 1.0, 0, 0], [0, 0, 0, 1.0, 0]])
    more = vrtd.LinearProblem(plain.mrp, plain.phi @ T)
    for theta in np.random.default_rng(0).standard_normal((3, 5)):
        for name in ("value_error", "mspbe"):
            assert METRICS[name](more)(theta) == pytest.approx(METRICS[name](plain)(T @ theta), rel=1e-9)
        update = more.A @ theta + more.b
        assert METRICS["neu"](more)(theta) == pytest.approx(update @ update, rel=1e-9)
    with pytest.raises(SingularSystemError, match="full column rank 5"):
        METRICS["squared_error"](more)


def test_a_data_set_of_dependent_features_has_its_metrics():
    rng = np.random.default_rng(0)
    phi, phi_next = rng.standard_normal((2, 30, 2))
    double = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    data = Transitions(phi @ double, rng.random(30), phi_next @ double, 0.9, rng.random(30))
    plain, theta = Transitions(phi, data.reward, phi_next, 0.9, data.weight), rng.standard_normal(3)
    assert METRICS["mspbe"](data)(theta) == pytest.approx(METRICS["mspbe"](plain)(double @ theta), rel=1e-9)


@pytest.mark.parametrize("name", ["neu", "mspbe"])
def test_what_no_parameter_removes_is_the_offset(name):
    """Nothing is discounted: A is singular although the features are not dependent, and b lies outside its range."""
    mrp = MarkovRewardProcess(np.array([[0.0, 1.0], [1.0, 0.0]]), [1.0, 0.0], np.ones((2, 2)))
    problem = vrtd.LinearProblem(mrp, np.eye(2))
    form = METRICS[name](problem)
    root = np.eye(2) * (1.0 if name == "neu" else np.sqrt(2.0))
    for theta in np.random.default_rng(0).standard_normal((3, 2)):
        assert form(theta) == pytest.approx(np.sum((root @ (problem.A @ theta + problem.b)) ** 2))
    assert form.offset == pytest.approx({"neu": 0.125, "mspbe": 0.25}[name])


# Simulation


def test_recorded_rows_are_transitions_of_the_chain():
    mdp, target, behaviour, phi = decisions()
    mrp = mdp.chain(target, behaviour=behaviour)
    e = mrp.edges
    known = {
        (*phi[s], *phi[t], r, g, w)
        for s, t, r, g, w in zip(e.origin, e.successor, e.reward, e.discount, e.weight, strict=True)
    }
    for sampling in ("iid", "markov"):
        data = vrtd.record(vrtd.LinearProblem(mrp, phi), 3000, sampling=sampling, shuffle=False)
        rows = np.column_stack([data.phi, data.phi_next, data.reward, data.discount, data.weight])
        seen = {tuple(row) for row in rows.tolist()}
        assert seen <= known
        assert len(seen) > 60  # of 75
    assert np.array_equal(data.phi[1:], data.phi_next[:-1])


def star(n_gradients, **options):
    with pytest.warns(
        StabilityWarning, match="mean squared error of TD grows by a factor of .* Use a smaller step size"
    ):
        return vrtd.simulate(
            STAR,
            vrtd.TD(0.01),
            n_gradients=n_gradients,
            metrics=("value_error",),
            theta_0=STAR_START,
            **options,
        )


def test_an_update_of_td_is_that_of_a_weighted_transition():
    theta, e = np.array(STAR_START), STAR.mrp.edges
    values = STAR.phi @ theta
    error = e.reward + e.discount * values[e.successor] - values[e.origin]
    moved = theta + 0.01 * (e.weight * error)[:, None] * STAR.phi[e.origin]
    mean = (STAR.mrp.stationary[e.origin] * e.probability) @ moved
    assert mean == pytest.approx(theta + 0.01 * STAR.mean_update(theta), rel=1e-13)
    ends = star(1, n_runs=400).theta
    nearest = np.abs(ends[:, None] - moved).max(axis=2).min(axis=1)
    assert nearest.max() < 1e-12
    assert len(np.unique(ends.round(9), axis=0)) == 8  # seven states left for the seventh, or no update at all


def test_td_diverges_on_bairds_star():
    assert np.linalg.eigvals(STAR.A).real.max() > 0.1
    result = star(4000, n_runs=4, checkpoints=5)
    error = result.values("value_error")
    assert (error[:, -1] > 1e6 * error[:, 0]).all()
    assert np.array_equal(error, star(4000, n_runs=4, checkpoints=5, threads=1).values("value_error"))


# The theory is of chains without ratios; the star's dependent features must not be what is refused

PROBLEM = off_policy_garnet(n_states=12, n_features=2)
THETA = np.zeros(2)
CALLS = {
    "approximation_limit": lambda f: f(PROBLEM),
    "batch_bias_inequality": lambda f: f(PROBLEM, 10, THETA),
    "check_assumptions": lambda f: f(PROBLEM),
    "epoch_inequality_iid": lambda f: f(PROBLEM, 0.1, 10),
    "epoch_inequality_markov": lambda f: f(PROBLEM, 0.1, 10),
    "exact_curve": lambda f: f(STAR, vrtd.TD(0.1)),
    "instance_constants": lambda f: f(PROBLEM),
    "instance_optimal": lambda f: f(PROBLEM, "iid"),
    "lambda_A": lambda f: f(PROBLEM),
    "limit_bias": lambda f: f(PROBLEM, vrtd.TD(0.1)),
    "mixing_inequalities": lambda f: f(PROBLEM, 1),
    "phase_diagram": lambda f: f(STAR, budget=100),
    "plan": lambda f: f(STAR, budget=100),
    "pseudo_gradient_inequality": lambda f: f(PROBLEM, 1.0),
    "squared_pseudo_gradient_inequality": lambda f: f(PROBLEM, THETA),
    "stability_limit": lambda f: f(PROBLEM),
    "stationary_second_moment": lambda f: f(PROBLEM, 0.1),
    "td_iid_bound": lambda f: f(PROBLEM, 0.1, THETA),
    "td_iid_complexity": lambda f: f(PROBLEM, 0.1, THETA),
    "td_iid_moments": lambda f: f(PROBLEM, 0.1, 10, THETA),
    "td_markov_bound": lambda f: f(PROBLEM, 0.1, THETA),
    "td_markov_complexity": lambda f: f(PROBLEM, 0.1, THETA),
    "transition_inequalities": lambda f: f(PROBLEM),
    "vrtd_iid_bound": lambda f: f(PROBLEM, 0.1, 10, THETA),
    "vrtd_iid_complexity": lambda f: f(PROBLEM, 0.1, THETA),
    "vrtd_iid_moments": lambda f: f(PROBLEM, 0.1, 10, 10, THETA),
    "vrtd_markov_bound": lambda f: f(PROBLEM, 0.1, 10, THETA),
    "vrtd_markov_complexity": lambda f: f(PROBLEM, 0.1, THETA),
}
RATIOS = r"problem has importance ratios of up to (1\.\d+|7), but the theory covers on-policy chains only\. Simulate"


@pytest.mark.parametrize("name", CALLS)
def test_the_theory_refuses_importance_ratios(name):
    function = theory
    for part in name.split("."):
        function = getattr(function, part)
    with pytest.raises(InvalidInputError, match=RATIOS):
        CALLS[name](function)


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("batch_bias_inequality", "printed"),
        ("epoch_inequality_iid", "printed"),
        ("mixing_inequalities", "printed"),
        ("td_iid_bound", "printed"),
        ("vrtd_iid_bound", "printed"),
        ("vrtd_iid_bound", "corrected"),
        ("vrtd_iid_complexity", "printed"),
        ("vrtd_markov_bound", "printed"),
        ("vrtd_markov_complexity", "printed"),
    ],
)
def test_the_forms_that_are_no_default_refuse_importance_ratios(name, form):
    with pytest.raises(InvalidInputError, match=RATIOS):
        CALLS[name](partial(getattr(theory, name), form=form))


def test_no_public_function_of_a_chain_is_forgotten():
    """`dobrushin` looks at probabilities only, and is right for the behaviour's chain."""
    functions = {name: value for name, value in vars(theory).items() if not name.startswith("_")}
    of_chains = {
        name
        for name, function in functions.items()
        if inspect.isfunction(function) and {"mrp", "problem"} & set(inspect.signature(function).parameters)
    }
    assert of_chains == set(CALLS) | {"dobrushin"}
    assert 0.0 < theory.dobrushin(PROBLEM.mrp) <= 1.0


def test_a_target_that_never_discounts_has_no_values_though_the_behaviour_ends_episodes() -> None:
    go_round, end = np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([[1.0, 0.0], [1.0, 0.0]])
    discounts = np.stack([np.ones((2, 2)), np.zeros((2, 2))])
    mdp = vrtd.MDP([go_round, end], R=[[1.0, 1.0], [0.0, 0.0]], gamma=discounts)
    with pytest.raises(SingularSystemError, match="Every closed class must have a discount below 1"):
        _ = mdp.chain([0, 0], behaviour=np.full((2, 2), 0.5)).values
    assert mdp.chain([0, 1], behaviour=np.full((2, 2), 0.5)).values.tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    "call",
    [
        lambda problem: theory.exact_curve(problem, vrtd.TD(0.1), sampling="dataset", n_gradients=100),
        lambda problem: vrtd.plan(problem, target_error=1.0, sampling="dataset"),
        lambda problem: vrtd.record(problem, 100, sampling="dataset", shuffle=False),
    ],
)
def test_the_theory_knows_no_data_sets(call) -> None:
    with pytest.raises(InvalidInputError, match="sampling must be one of 'iid', 'markov', but got 'dataset'"):
        call(random_mdp())
