"""What the corollaries promise: self-consistent batch sizes, targets that are met, and the ones that are missed."""

import math
from functools import partial

import numpy as np
import pytest

from vrtd.errors import InvalidInputError
from vrtd.problems import LinearProblem, MarkovRewardProcess, garnet, random_mdp
from vrtd.theory.bounds import td_iid_bound, td_markov_bound, vrtd_iid_bound, vrtd_markov_bound
from vrtd.theory.complexity import td_iid_complexity, td_markov_complexity, vrtd_iid_complexity, vrtd_markov_complexity
from vrtd.theory.curves import td_iid_moments, vrtd_iid_moments

COIN = LinearProblem(MarkovRewardProcess([[0.5, 0.5], [0.5, 0.5]], [1.0, -1.0], 0.5), [[1.0], [1.0]])
MIXING = LinearProblem(MarkovRewardProcess([[0.7, 0.3], [0.4, 0.6]], [1.0, -1.0], 0.5), [[1.0], [0.5]])
VRTD = tuple(
    partial(function, form=form)
    for function in (vrtd_iid_complexity, vrtd_markov_complexity)
    for form in ("printed", "corrected")
)
ALL = (*VRTD, td_iid_complexity, td_markov_complexity)


def normalised(problem):
    return LinearProblem(problem.mrp, problem.phi / np.linalg.norm(problem.phi, axis=1).max())


PROBLEMS = [COIN, MIXING, normalised(random_mdp()), normalised(garnet(n_states=20, n_features=2))]


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("eps", [1e-1, 1e-3])
def test_the_corrected_plans_reach_their_target(problem, eps):
    theta_0 = np.zeros(problem.n_features)
    plan = vrtd_iid_complexity(problem, eps, theta_0, form="corrected")
    assert plan.valid, plan.reasons
    assert plan.bound.curve(plan.n_epochs)[-1] <= eps * (1 + 1e-12)
    exact = vrtd_iid_moments(problem, plan.step_size, plan.batch_size, plan.n_epochs, theta_0).squared_error
    assert exact[-1] <= eps
    assert plan.n_gradients == plan.n_samples == 2 * plan.batch_size * plan.n_epochs


@pytest.mark.parametrize("eps", [1e-1, 1e-3])
def test_td_reaches_its_target(eps):
    for problem in PROBLEMS[:2]:
        plan = td_iid_complexity(problem, eps, np.ones(1))
        assert plan.valid, plan.reasons
        exact = td_iid_moments(problem, plan.step_size, plan.n_epochs, np.ones(1)).squared_error
        assert exact[-1] <= plan.bound.curve(plan.n_epochs)[-1] <= eps


@pytest.mark.parametrize("plan_of", [vrtd_markov_complexity, td_markov_complexity])
@pytest.mark.parametrize("eps", [1e-1, 1e-4])
def test_the_bounds_of_a_trajectory_reach_their_target(plan_of, eps):
    for problem in PROBLEMS[:3]:
        plan = plan_of(problem, eps, np.ones(problem.n_features))
        assert plan.valid, plan.reasons
        k = plan.n_epochs
        assert plan.bound.initial * plan.bound.rate**k + plan.bound.floor <= eps * (1 + 1e-12)


def test_corollary1_misses_its_target_on_two_states():
    """M = 2/eps, but the error is 4/M."""
    plan = vrtd_iid_complexity(COIN, 1e-3, [1.0], form="printed")
    assert plan.batch_size == pytest.approx(2_000, rel=0.05)
    exact = vrtd_iid_moments(COIN, plan.step_size, plan.batch_size, plan.n_epochs, [1.0]).squared_error
    assert exact[-1] > 1.8e-3
    assert not plan.valid
    assert "cross term" in plan.reasons[0]


def test_corollary1_misses_its_target_on_the_paper_s_random_mdp():
    problem = normalised(random_mdp())
    for eps, missed in ((1e-2, False), (1e-3, True), (1e-4, True)):
        plan = vrtd_iid_complexity(problem, eps, np.zeros(4), form="printed")
        exact = vrtd_iid_moments(problem, plan.step_size, plan.batch_size, plan.n_epochs, np.zeros(4)).squared_error
        assert (exact[-1] > eps) == missed


@pytest.mark.parametrize("eps", [10.0, 0.1, 1e-3])
def test_batch_sizes_agree_with_themselves_and_are_the_least(eps):
    for problem in PROBLEMS:
        lam, g2 = problem.lambda_A, (1 + problem.mrp.edges.discount.max()) ** 2
        theta_0 = np.ones(problem.n_features)

        def printed_iid(M):
            bound = vrtd_iid_bound(problem, lam / (16 * g2), M, theta_0, form="printed")  # noqa: B023
            C1, D2 = bound.rate, bound.constants.D2
            return max(D2 / (3 * (1 - C1) * eps), 33 * g2 / lam**2) <= M if math.isfinite(C1) else False  # noqa: B023

        def printed_markov(M):
            bound = vrtd_markov_bound(problem, lam / (24 * g2), M, theta_0, form="printed")  # noqa: B023
            C1, C2, _, C4, _ = bound.constants
            least = ((32 * C2 + 4 * C4) / (3 * (1 - C1)) + 100 * g2) * max(1 / eps, 1 / (eps * lam**2))  # noqa: B023
            return C1 < 1 and least <= M

        def corrected_iid(M):
            bound = vrtd_iid_bound(problem, lam / (32 * g2), M, theta_0, form="corrected")  # noqa: B023
            return bound.rate <= 0.5 and bound.floor <= eps / 2

        def corrected_markov(M):
            bound = vrtd_markov_bound(problem, lam / (24 * g2), M, theta_0, form="corrected")  # noqa: B023
            return bound.rate <= 0.5 and bound.floor <= eps / 2

        for plan_of, enough in zip(VRTD, (printed_iid, corrected_iid, printed_markov, corrected_markov), strict=True):
            M = plan_of(problem, eps, theta_0).batch_size
            assert enough(M)
            assert M == 1 or not enough(M - 1)


def test_counts_by_hand():
    plan = vrtd_markov_complexity(MIXING, 0.1, [0.0], form="corrected")
    excess = 2 * plan.bound.initial / 0.1
    assert plan.n_epochs == math.ceil(math.log(excess) / math.log(1 / plan.bound.rate))
    assert plan.n_gradients == 2 * plan.n_samples == 2 * plan.batch_size * plan.n_epochs
    plan = td_iid_complexity(COIN, 0.01, [1.0])
    assert plan.step_size == pytest.approx(0.01 / 8)  # eps lam/(4 C5), C5 = 2
    assert plan.n_epochs == plan.n_gradients == plan.n_samples == math.ceil(2 / plan.step_size * math.log(200))
    assert plan.batch_size == 1
    assert plan.bound == td_iid_bound(COIN, plan.step_size, [1.0], form="printed")
    assert td_iid_complexity(COIN, 100.0, [10.0]).step_size == pytest.approx(1 / 9)  # lam/(4 g2)
    plan = td_markov_complexity(MIXING, 0.01, [3.0])
    _, C6, C7 = plan.bound.constants
    x = 0.01 * MIXING.lambda_A * min(1 / (3 * C6), 1 / (6 * C7))
    assert plan.step_size == pytest.approx(x / math.log(1 / x))
    u0 = 3.0 - MIXING.theta_star[0]
    assert plan.n_epochs == math.ceil(2 / (MIXING.lambda_A * plan.step_size) * math.log(3 * u0**2 / 0.01))


def test_the_printed_c8_would_not_be_enough():
    """With 1/C6 for 1/(3 C6), at C8 eps = 1/e, the floor exceeds eps."""
    _, C6, C7 = td_markov_bound(COIN, 0.1, [1.0]).constants
    C8 = min(1 / C6, 1 / (6 * C7))
    eps = 1 / (math.e * C8)
    assert td_markov_bound(COIN, C8 * eps, [1.0]).floor > eps
    plan = td_markov_complexity(COIN, eps, [1.0])
    assert plan.valid
    assert plan.bound.floor <= 2 / 3 * eps


@pytest.mark.parametrize("plan_of", ALL)
def test_no_epochs_are_needed_near_theta_star(plan_of):
    for theta_0 in (MIXING.theta_star, MIXING.theta_star + 1e-3):
        plan = plan_of(MIXING, 0.5, theta_0)
        assert plan.n_epochs == plan.n_gradients == plan.n_samples == 0


def test_a_chain_without_noise():
    still = LinearProblem(MarkovRewardProcess([[0.5, 0.5], [0.5, 0.5]], [1.0, 1.0], 0.5), [[1.0], [1.0]])
    plan = td_iid_complexity(still, 0.1, [0.0])
    assert plan.step_size == pytest.approx(1 / 9)
    assert plan.bound.floor == pytest.approx(0.0, abs=1e-15)


def test_conditions_on_the_target():
    plan = vrtd_markov_complexity(MIXING, 2.0, [0.0], form="printed")
    limits = "target_error is 2, the limit is 1.04167; lower target_error to 100/96"
    assert plan.reasons[-1] == f"target_error <= 100/96: {limits}"
    plan = td_markov_complexity(MIXING, 1e6, [0.0])
    assert "C8 target_error <= 1/e" in plan.reasons[-1]
    assert plan.step_size > 0
    limit = float(plan.reasons[-1].split("lower target_error to ")[1])
    assert td_markov_complexity(MIXING, 0.999 * limit, [0.0]).valid


def test_orders_are_stated():
    assert [plan_of(MIXING, 0.1, [0.0]).order for plan_of in ALL] == [
        "max(1/eps, 1/lambda_A^2) log(1/eps)",
        "1/(eps lambda_A^2) log(1/eps)",
        "max(1/eps, 1/(eps lambda_A^2)) log(1/eps)",
        "1/(eps lambda_A^2) log(1/eps)",
        "1/(eps lambda_A^2) log(1/eps)",
        "1/(eps lambda_A^2) log^2(1/eps)",
    ]


def test_the_corrected_order_is_seen():
    """Halving eps doubles the batch; the batch grows with 1/lambda_A^2."""
    plans = [vrtd_iid_complexity(COIN, eps, [1.0], form="corrected") for eps in (1e-3, 5e-4)]
    assert plans[1].batch_size / plans[0].batch_size == pytest.approx(2.0, rel=1e-2)
    weak = LinearProblem(MarkovRewardProcess([[0.5, 0.5], [0.5, 0.5]], [1.0, -1.0], 0.5), [[0.1], [0.1]])
    ratio = vrtd_iid_complexity(weak, 1e-3, [1.0], form="corrected").batch_size / plans[0].batch_size
    assert ratio == pytest.approx((COIN.lambda_A / weak.lambda_A) ** 2, rel=0.1)


@pytest.mark.parametrize("plan_of", ALL)
@pytest.mark.parametrize("eps", [0.0, -1.0, math.nan])
def test_bad_targets_are_refused(plan_of, eps):
    with pytest.raises(InvalidInputError, match="target_error must be a positive, finite number"):
        plan_of(MIXING, eps, [0.0])


@pytest.mark.parametrize("function", VRTD)
def test_a_target_beyond_every_batch_is_named(function):
    """Nearly collinear features: lambda_A is 1e-9, and no count of a batch would do."""
    problem = LinearProblem(MIXING.mrp, [[1.0, 0.0], [0.99, 1e-4]])
    with pytest.raises(InvalidInputError, match=r"target_error 1e-06 needs batches of more than .*, with lambda_A = "):
        function(problem, 1e-6, [0.0, 0.0])


@pytest.mark.parametrize("function", [*VRTD[2:], td_markov_complexity])
def test_a_periodic_chain_has_no_count_for_a_trajectory(function):
    problem = LinearProblem(MarkovRewardProcess([[0.0, 1.0], [1.0, 0.0]], [1.0, 2.0], 0.5), [[1.0], [0.5]])
    with pytest.raises(InvalidInputError, match=r"irreducible and aperiodic \(Assumption 3\) fails: period 2"):
        function(problem, 0.1, [0.0])


def test_a_slow_chain_takes_its_step_from_c7():
    slow = LinearProblem(MarkovRewardProcess([[0.9, 0.1], [0.2, 0.8]], [1.0, -1.0], 0.5), [[1.0], [0.5]])
    found = td_markov_complexity(slow, 0.01, [3.0])
    _, C6, C7 = found.bound.constants
    assert 6 * C7 > 3 * C6
    x = 0.01 * slow.lambda_A / (6 * C7)
    assert found.step_size == pytest.approx(x / math.log(1 / x))


def test_samples_of_the_printed_corollaries():
    problem = LinearProblem(MarkovRewardProcess([[0.7, 0.3], [0.4, 0.6]], [1.0, -1.0], 0.5), [[1.0], [0.5]])
    for plan_of, per_update in ((vrtd_iid_complexity, 2), (vrtd_markov_complexity, 1)):
        found = plan_of(problem, 0.1, [3.0], form="printed")
        assert found.n_epochs > 0
        assert found.n_samples == per_update * found.batch_size * found.n_epochs
        assert found.n_gradients == 2 * found.batch_size * found.n_epochs
