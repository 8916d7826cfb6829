"""A, b, C and what follows from them, against plain sums over transitions."""

import hashlib
import pickle

import numpy as np
import pytest

import vrtd
from vrtd.errors import AccuracyError, AccuracyWarning, InvalidInputError, SingularSystemError
from vrtd.metrics import value_error
from vrtd.problems import MDP, LinearProblem, MarkovRewardProcess, baird, boyan_chain, garnet, random_mdp, random_walk

TWO_STATES = MarkovRewardProcess([[0.7, 0.3], [0.4, 0.6]], [[1, 0], [0, 2]], 0.9)


def parallel_edges():
    """A chain whose transitions carry several rewards and discounts."""
    rng = np.random.default_rng(4)
    P = rng.random((2, 6, 6))
    P /= P.sum(axis=2, keepdims=True)
    mrp = MDP(P, rng.random((2, 6)), rng.random((2, 1, 6))).chain(np.full((6, 2), 0.5))
    return LinearProblem(mrp, rng.random((6, 3)))


def importance_ratios():
    """A chain of a behaviour, whose transitions carry ratios, rewards and discounts of their own; some ratios are 0."""
    rng = np.random.default_rng(4)
    P = rng.random((3, 6, 6))
    P /= P.sum(axis=2, keepdims=True)
    target = np.column_stack([rng.dirichlet(np.ones(2), size=6), np.zeros(6)])
    mdp = MDP(P, rng.random((3, 6)), rng.random((3, 1, 6)))
    mrp = mdp.chain(target, behaviour=rng.dirichlet(np.ones(3), size=6))
    return LinearProblem(mrp, rng.random((6, 3)))


PROBLEMS = {
    "two states": lambda: LinearProblem(TWO_STATES, [[1.0], [0.5]]),
    "random_mdp": lambda: random_mdp(n_states=12),
    "garnet": lambda: garnet(n_states=15, n_features=3),
    "boyan_chain": boyan_chain,
    "random_walk": lambda: random_walk(n_states=7),
    "parallel edges": parallel_edges,
    "importance ratios": importance_ratios,
}


def transitions(mrp, phi, mu):
    """(probability, A_x, b_x) of every transition, in plain Python."""
    e = mrp.edges
    for s, t, p, r, g, w in zip(e.origin, e.successor, e.probability, e.reward, e.discount, e.weight, strict=True):
        yield mu[s] * p, w * np.outer(phi[s], g * phi[t] - phi[s]), w * r * phi[s]


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("off_policy", [False, True])
def test_moments_against_sums_over_transitions(name, off_policy):
    problem, rng = PROBLEMS[name](), np.random.default_rng(0)
    mrp, phi = problem.mrp, problem.phi
    mu = rng.dirichlet(np.ones(mrp.n_states)) if off_policy else mrp.stationary
    if off_policy:
        problem = LinearProblem(mrp, phi, mu)
    terms = list(transitions(mrp, phi, mu))
    assert np.allclose(problem.A, sum(p * A for p, A, _ in terms), atol=1e-14)
    assert np.allclose(problem.b, sum(p * b for p, _, b in terms), atol=1e-13)
    assert np.allclose(problem.C, sum(mu[s] * np.outer(phi[s], phi[s]) for s in range(mrp.n_states)), atol=1e-14)
    theta = problem.theta_star
    assert np.abs(problem.mean_update(theta)).max() < 1e-12
    noise = [(p, A @ theta + b) for p, A, b in terms]
    assert np.allclose(problem.noise_covariance, sum(p * np.outer(h, h) for p, h in noise), atol=1e-12)
    S = rng.standard_normal((phi.shape[1],) * 2)
    assert np.allclose(problem.expected_square(S), sum(p * A @ S @ A.T for p, A, _ in terms), atol=1e-13)
    assert problem.condition_number == pytest.approx(np.linalg.cond(problem.A))
    assert problem.n_features == phi.shape[1]
    assert problem.mrp is mrp
    assert repr(problem) == f"LinearProblem({mrp!r}, {phi.shape[1]} features)"


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("step_size", [1e-3, 0.1, 2.0])
def test_mean_square_radius_against_the_dense_eigenvalue(name, step_size):
    problem = PROBLEMS[name]()
    eye, terms = np.eye(problem.n_features), transitions(problem.mrp, problem.phi, problem.mrp.stationary)
    Q = sum(p * np.kron(eye + step_size * A, eye + step_size * A) for p, A, _ in terms)
    radius = np.abs(np.linalg.eigvals(Q)).max()
    assert problem.mean_square_radius(step_size) == pytest.approx(radius, abs=1e-8)


def test_mean_square_radius_restarts_and_is_cheap():
    rng = np.random.default_rng(0)
    problem = LinearProblem(random_mdp(n_states=200).mrp, rng.standard_normal((200, 14)))  # 105 dimensions: restarts
    eye, a = np.eye(14), 0.01
    square = np.stack([problem.expected_square(unit).ravel() for unit in np.eye(196).reshape(196, 14, 14)], axis=1)
    Q = np.eye(196) + a * (np.kron(problem.A, eye) + np.kron(eye, problem.A)) + a * a * square
    assert problem.mean_square_radius(a) == pytest.approx(np.abs(np.linalg.eigvals(Q)).max(), abs=1e-8)
    large = random_mdp(n_states=200, n_features=64)
    assert 0.9 < large.mean_square_radius(0.01) < 1.0
    assert large.mean_square_growth(1.0) == pytest.approx(large.mean_square_radius(1.0), rel=1e-3)
    assert large.mean_square_growth(1e200) == np.inf


def test_mean_square_radius_reports_failure(monkeypatch):
    problem = random_mdp(n_states=60, n_features=20)
    monkeypatch.setattr("vrtd.problems.cone_radius.RADIUS_RESTARTS", 1)
    monkeypatch.setattr("vrtd.problems.cone_radius.RADIUS_BASIS", 3)
    with pytest.raises(AccuracyError, match=r"mean-square radius did not converge to a relative accuracy of 1e-09"):
        problem.mean_square_radius(0.1)


def test_lambda_A_is_the_definition_of_the_proofs():
    problem = random_mdp()
    assert problem.lambda_A == pytest.approx(-np.linalg.eigvalsh(problem.A + problem.A.T).max())
    theta = np.random.default_rng(0).standard_normal(4)
    assert theta @ problem.A @ theta <= -0.5 * problem.lambda_A * theta @ theta


def test_lambda_A_is_refused_when_it_does_not_exist():
    P = np.array([[0.0, 1.0], [0.0, 1.0]])  # Tsitsiklis and Van Roy's divergence
    problem = LinearProblem(MarkovRewardProcess(P, np.zeros(2), 0.99), [[1.0], [2.0]], state_distribution=[0.9, 0.1])
    message = r"lambda_A exists only if A \+ A\^T is negative definite, but its largest eigenvalue is"
    with pytest.raises(InvalidInputError, match=message):
        _ = problem.lambda_A


def test_boyan_theta_star():
    assert boyan_chain().theta_star == pytest.approx([-24.0, -16.0, -8.0, 0.0], abs=1e-11)


def test_tabular_fixed_point_is_the_value_function():
    problem = random_walk(n_states=19)
    assert problem.theta_star == pytest.approx(problem.mrp.values, abs=1e-12)


def test_fixed_point_minimises_the_projected_bellman_error():
    problem = random_mdp()
    mrp, phi, theta = problem.mrp, problem.phi, problem.theta_star
    D = np.diag(mrp.stationary)
    target = mrp.mean_reward + mrp.discounted_P @ (phi @ theta)
    projection = np.linalg.solve(phi.T @ D @ phi, phi.T @ D @ target)
    assert projection == pytest.approx(theta, abs=1e-10)


def test_mean_update_takes_leading_axes():
    problem = random_mdp()
    thetas = np.random.default_rng(0).standard_normal((3, 2, 4))
    assert np.allclose(problem.mean_update(thetas)[2, 1], problem.A @ thetas[2, 1] + problem.b)


def test_arrays_are_private_and_read_only():
    phi, mu = np.array([[1.0], [0.5]]), np.array([0.5, 0.5 + 2e-9])
    problem = LinearProblem(TWO_STATES, phi, mu)
    A = problem.A.copy()
    phi[:] = mu[:] = 7.0
    assert np.array_equal(problem.A, A)
    assert problem.phi[0, 0] == 1.0
    assert problem.state_distribution.sum() == pytest.approx(1.0, abs=1e-15)
    own = (problem.phi, problem.state_distribution, problem.A, problem.b, problem.C, problem.theta_star)
    for array in (*own, problem.noise_covariance):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1.0


def test_large_sparse_problem():
    problem = garnet(n_states=10_000, n_features=64)
    assert np.abs(problem.mean_update(problem.theta_star)).max() < 1e-10


@pytest.mark.parametrize(
    ("phi", "mu", "message"),
    [
        (np.ones(2), None, r"phi must have the shape \(2, d\), but got \(2,\)"),
        (np.ones((3, 1)), None, r"phi must have the shape \(2, d\), but got \(3, 1\)"),
        (np.ones((2, 0)), None, r"phi must have the shape \(2, d\), but got \(2, 0\)"),
        ([[1.0], [np.nan]], None, r"phi must be finite, but got nan at index \(1, 0\)"),
        (1e200 * np.eye(2), None, r"phi must be at most 1e\+100 in size, but has an entry of 1e\+200\. Scale the fea"),
        (np.eye(2), [1.0], r"state_distribution must have the shape \(2,\), but got \(1,\)"),
        (np.eye(2), [1.5, -0.5], r"state_distribution must be non-negative, but got -0\.5 at state 1"),
        (np.eye(2), [0.5, 0.6], r"Each row of state_distribution must sum to 1 within 1e-08, but got the sum 1\.1"),
        (np.eye(2), [0.5, np.inf], r"state_distribution must be finite, but got inf"),
    ],
)
def test_bad_problems_are_refused(phi, mu, message):
    with pytest.raises(InvalidInputError, match=message):
        LinearProblem(TWO_STATES, phi, mu)


@pytest.mark.parametrize(
    "of", [lambda s: s.theta_star, lambda s: s.fixed_point(0.5), lambda s: s.lambda_A, lambda s: s.noise_covariance]
)
@pytest.mark.parametrize(
    ("problem", "rank"), [(LinearProblem(TWO_STATES, np.ones((2, 2))), "2.*has rank 1"), (baird(), "8.*has rank 7")]
)
def test_dependent_features_have_no_single_solution(problem, rank, of):
    message = f"full column rank {rank}. Remove dependent features, or use the metrics"
    with pytest.raises(SingularSystemError, match=message):
        of(problem)


def test_features_that_depend_on_the_visited_states_have_no_single_solution():
    problem = LinearProblem(TWO_STATES, np.eye(2), [1.0, 0.0])
    with pytest.raises(SingularSystemError, match=r"full column rank 2 on the states of positive .*rank 1"):
        _ = problem.theta_star
    assert np.array_equal(problem.C, [[1.0, 0.0], [0.0, 0.0]])


def test_a_singular_system_is_refused():
    P = np.array([[0.0, 1.0], [1.0, 0.0]])
    never_discounted = MarkovRewardProcess(P, [1.0, 0.0], np.ones((2, 2)))
    with pytest.raises(SingularSystemError, match=r"A must be invertible, but has condition number (\d|inf)"):
        _ = LinearProblem(never_discounted, np.eye(2)).theta_star


@pytest.mark.parametrize(("angle", "warns"), [(1e-5, False), (1e-6, True)])
def test_an_ill_conditioned_system_says_so(angle, warns, recwarn):
    chain = random_mdp()
    phi = chain.phi.copy()
    phi[:, 3] = phi[:, 2] + angle * phi[:, 3]
    problem = LinearProblem(chain.mrp, phi)
    assert (problem.condition_number > 1e12) == warns
    _ = problem.theta_star
    _ = problem.theta_star  # only once
    messages = [str(each.message) for each in recwarn if each.category is AccuracyWarning]
    assert len(messages) == warns
    if warns:
        problem = "A has condition number 4.6e+12, so the relative error of the fixed point may be as"
        assert messages[0].startswith(problem)
        assert messages[0].endswith("Remove nearly dependent features, or bring their columns to the same scale.")
        assert recwarn[0].filename == __file__


def test_the_value_error_counts_visited_states_only():
    """Of an absorbing chain it is 0 whatever theta is; over a distribution of one's own it is not."""
    chain = MarkovRewardProcess([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]], [1.0, 1.0, 0.0], 0.9)
    phi = np.eye(3)[:, :2]
    stationary, own = (value_error(LinearProblem(chain, phi, mu)) for mu in (None, [0.5, 0.5, 0.0]))
    theta = np.array([7.0, -3.0])
    assert stationary(theta) == 0.0
    assert own(theta) == pytest.approx(0.5 * np.sum((theta - chain.values[:2]) ** 2))


def test_bad_arguments_are_refused():
    problem = random_mdp()
    with pytest.raises(InvalidInputError, match=r"theta must have the shape \(..., 4\), but got \(3,\)"):
        problem.mean_update(np.ones(3))
    with pytest.raises(InvalidInputError, match="step_size must be a positive, finite number, but got 0"):
        problem.mean_square_radius(0)


def test_the_digest_tells_chains_features_and_distributions_apart():
    problem, mu = random_mdp(), np.full(50, 0.02)
    expected = hashlib.sha256(problem.mrp.digest.encode() + problem.phi.tobytes()).hexdigest()
    assert problem.digest == expected == pickle.loads(pickle.dumps(problem)).digest
    others = random_mdp(1), LinearProblem(problem.mrp, 2 * problem.phi), LinearProblem(problem.mrp, problem.phi, mu)
    assert len({problem.digest, *(other.digest for other in others)}) == 4


def test_sums_along_traces_report_what_they_missed(monkeypatch):
    problem = random_mdp()
    monkeypatch.setattr(np.linalg, "solve", lambda A, b: b + 1.0)
    with pytest.raises(
        AccuracyError, match=r"values have the relative residual .* \(at most 1e-10 is accepted\) .* Use discounts"
    ):
        problem.traced(0.5)


@pytest.mark.parametrize("sparse", [False, True])
def test_a_trace_decay_scales_the_discount(sparse):
    """Above 2,000 states the sum is iterated, or solved by LU when it converges slowly."""
    mrp = garnet(n_states=2_500 if sparse else 40).mrp
    for decay in (0.5, 0.9995 / 0.95 if sparse else 0.99):
        total = mrp.discounted_sum(np.stack([mrp.mean_reward, np.ones(mrp.n_states)], axis=1), decay)
        assert total[:, 1] == pytest.approx(1.0 / (1.0 - 0.95 * decay), rel=1e-9)
        assert total[:, 0] == pytest.approx(mrp.mean_reward + decay * (mrp.discounted_P @ total[:, 0]), rel=1e-9)


def test_each_kind_of_problem_has_its_default_sampling():
    chain, short = random_mdp(), {"n_runs": 2, "n_gradients": 10, "metrics": ()}
    for problem, sampling in ((chain, "markov"), (vrtd.record(chain, 20), "dataset")):
        result = vrtd.simulate(problem, vrtd.TD(0.1), **short)
        assert result.provenance["sampling"] == sampling == problem.samplings[0]
        assert result.provenance["problem"] == problem.digest
    assert vrtd.Simulator.samplings == ("markov",)


def test_independent_samples_come_from_the_state_distribution():
    """A distribution on two states, which a trajectory does not stay in."""
    problem = random_mdp()
    two = LinearProblem(problem.mrp, problem.phi, 0.5 * (np.eye(50)[3] + np.eye(50)[7]))
    data = vrtd.record(two, 1000, sampling="iid")
    seen = [(data.phi == problem.phi[s]).all(axis=1) for s in (3, 7)]
    assert np.logical_or(*seen).all()
    assert min(rows.sum() for rows in seen) > 0
    short = {"n_runs": 2, "n_gradients": 100, "metrics": ()}
    result = vrtd.simulate(two, vrtd.TD(0.1), sampling="iid", **short)
    assert not np.allclose(result.theta, vrtd.simulate(problem, vrtd.TD(0.1), sampling="iid", **short).theta)


ELSEWHERE = LinearProblem(TWO_STATES, [[1.0], [0.5]], [0.5, 0.5])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: vrtd.simulate(TWO_STATES, vrtd.TD(0.1)),
            r"problem must be a LinearProblem, a Simulator or Transitions, but got MarkovRewardProcess\(2 states, 4 "
            r"transitions\)\. Build LinearProblem\(mrp, phi\)",
        ),
        (lambda: vrtd.simulate(None, vrtd.TD(0.1)), "a Simulator or Transitions, but got None. Build one"),
        (
            lambda: vrtd.record(TWO_STATES, 10),
            r"a LinearProblem or a Simulator, but got .*. Build LinearProblem",
        ),
        (lambda: vrtd.record(vrtd.record(boyan_chain(), 5), 10), "a LinearProblem or a Simulator, but got Transitions"),
        (
            lambda: vrtd.plan(TWO_STATES, budget=10),
            "problem must be a LinearProblem or Transitions, but is of type MarkovRewardProcess",
        ),
        (
            lambda: vrtd.simulate(boyan_chain(), vrtd.TD(0.1), sampling="dataset"),
            r"sampling of a LinearProblem must be 'markov' or 'iid', but got 'dataset'. Draw rows first: vrtd\.record",
        ),
        (
            lambda: vrtd.simulate(vrtd.record(boyan_chain(), 5), vrtd.TD(0.1), sampling="iid"),
            "sampling of a Transitions must be 'dataset', but got 'iid'. Drop sampling, or pass 'dataset'",
        ),
        (
            lambda: vrtd.simulate(vrtd.record(boyan_chain(), 5), vrtd.TD(0.1), initial=2),
            "initial has no effect on a Transitions, but got 2. Drop initial",
        ),
        (
            lambda: vrtd.simulate(ELSEWHERE, vrtd.TD(0.1)),
            r'state_distribution must be stationary for a trajectory, but this problem has .*, or use sampling="iid"',
        ),
        (
            lambda: vrtd.theory.exact_curve(ELSEWHERE, vrtd.TD(0.1), sampling="markov"),
            "state_distribution must be stationary for a trajectory",
        ),
    ],
)
def test_problems_that_do_not_fit_are_refused(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()


def test_exact_curves_of_another_state_distribution():
    curve = vrtd.theory.exact_curve(ELSEWHERE, vrtd.TD(0.1), sampling="iid", n_gradients=100)
    moments = vrtd.theory.td_iid_moments(ELSEWHERE, 0.1, 100, [0.0])
    assert curve.values("squared_error")[0, -1] == pytest.approx(moments.squared_error[-1], rel=1e-12)
