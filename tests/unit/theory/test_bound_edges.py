"""The edges of conditions: steps, batches and constants exactly where a statement begins to hold."""

import math
from math import log

import numpy as np
import pytest

from vrtd.problems import LinearProblem, MarkovRewardProcess
from vrtd.theory import instance_constants, td_markov_complexity, vrtd_iid_complexity, vrtd_markov_complexity
from vrtd.theory.bounds import td_iid_bound, td_markov_bound, vrtd_iid_bound, vrtd_markov_bound
from vrtd.theory.lemmas import batch_bias_inequality, epoch_inequality_iid, epoch_inequality_markov, mixing_inequalities
from vrtd.theory.statements import batch_above

TWO = MarkovRewardProcess([[0.7, 0.3], [0.4, 0.6]], [[1, 0], [0, 2]], 0.9)
COIN = LinearProblem(MarkovRewardProcess([[0.5, 0.5], [0.5, 0.5]], [1.0, -1.0], 0.5), [[1.0], [1.0]])
SIGNS = LinearProblem(MarkovRewardProcess([[0.6, 0.4], [0.4, 0.6]], [1.0, -1.0], 0.5), [[1.0], [-1.0]])


def test_a_slow_chain_takes_its_step_from_c7():
    slow = LinearProblem(MarkovRewardProcess([[0.9, 0.1], [0.2, 0.8]], [1.0, -1.0], 0.5), [[1.0], [0.5]])
    found = td_markov_complexity(slow, 0.01, [3.0])
    _, C6, C7 = found.bound.constants
    assert 6 * C7 > 3 * C6
    x = 0.01 * slow.lambda_A / (6 * C7)
    assert found.step_size == pytest.approx(x / log(1 / x))


def test_transient_states_are_reported_by_the_lemmas_that_mix():
    transient = LinearProblem(
        MarkovRewardProcess([[0.5, 0.5, 0.0], [0.0, 0.6, 0.4], [0.0, 0.3, 0.7]], np.ones(3), 0.5),
        [[1.0], [0.5], [-0.5]],
    )
    for found in (batch_bias_inequality(transient, 2, [0.0]), *mixing_inequalities(transient, 1)):
        assert any("transient states" in c.detail and not c.holds for c in found.conditions)


@pytest.mark.parametrize(
    ("inequality", "share"),
    [
        (lambda a: epoch_inequality_iid(COIN, a, 10), 8.0),
        (lambda a: epoch_inequality_iid(COIN, a, 10, form="printed"), 4.0),
        (lambda a: epoch_inequality_markov(COIN, a, 10), 3.0),
    ],
)
def test_the_epoch_inequalities_hold_up_to_their_step(inequality, share):
    limit = COIN.lambda_A / (share * 1.5**2)
    assert inequality(0.999 * limit).conditions[-1].holds
    assert math.isfinite(inequality(0.999 * limit).contraction)
    assert not inequality(1.001 * limit).conditions[-1].holds


@pytest.mark.parametrize("share", [0.01, 0.5, 0.99])
def test_a_bound_of_theorem2_is_valid_exactly_where_it_contracts(share):
    problem = LinearProblem(MarkovRewardProcess([[0.7, 0.3], [0.4, 0.6]], [1.0, 2.0], 0.5), [[1.0], [0.5]])
    a = share * problem.lambda_A / (12 * 1.5**2)
    detail = vrtd_markov_bound(problem, a, 1, [0.0], form="corrected").conditions[-1].detail
    least = int(detail.split("raise batch_size to ")[1])
    for M, valid in ((least, True), (least - 1, False)):
        bound = vrtd_markov_bound(problem, a, M, [0.0], form="corrected")
        assert bound.valid is valid
        assert math.isfinite(bound.rate) is valid


def test_a_batch_at_the_limit_does_not_contract():
    assert not batch_above(4, 8.0, 2.0).holds
    assert batch_above(4, 8.0, 2.0).detail == "batch_size is 4 against 4; raise batch_size to 5"
    assert batch_above(5, 8.0, 2.0).holds


def test_samples_of_the_printed_corollaries():
    problem = LinearProblem(MarkovRewardProcess([[0.7, 0.3], [0.4, 0.6]], [1.0, -1.0], 0.5), [[1.0], [0.5]])
    for plan_of, per_update in ((vrtd_iid_complexity, 2), (vrtd_markov_complexity, 1)):
        found = plan_of(problem, 0.1, [3.0], form="printed")
        assert found.n_epochs > 0
        assert found.n_samples == per_update * found.batch_size * found.n_epochs
        assert found.n_gradients == 2 * found.batch_size * found.n_epochs


def test_instance_constants_weigh_states_as_told():
    problem = LinearProblem(TWO, [[1.0, 0.2], [0.5, -1.0]], [0.5, 0.5])
    e, phi = TWO.edges, problem.phi
    p = 0.5 * e.probability
    A = np.einsum("ei,ej->eij", phi[e.origin], e.discount[:, None] * phi[e.successor] - phi[e.origin])
    square = np.einsum("e,eji,ejk->ik", p, A, A)
    found = instance_constants(problem)
    assert found.q == pytest.approx(np.linalg.eigvalsh(square)[-1])
    assert found.nu == pytest.approx(np.linalg.eigvalsh(square - problem.A.T @ problem.A)[-1])


@pytest.mark.parametrize(
    ("bound_of", "limit"),
    [
        (lambda a: vrtd_iid_bound(SIGNS, a, 10**9, [0.0], form="printed"), lambda lam, _: lam / (8 * 2.25)),
        (lambda a: vrtd_iid_bound(SIGNS, a, 10**9, [0.0], form="corrected"), lambda lam, _: lam / (16 * 2.25)),
        (lambda a: vrtd_markov_bound(SIGNS, a, 10**9, [0.0], form="printed"), lambda lam, _: lam / (12 * 2.25)),
        (lambda a: vrtd_markov_bound(SIGNS, a, 10**9, [0.0], form="corrected"), lambda lam, _: lam / (12 * 2.25)),
        (
            lambda a: vrtd_iid_bound(SIGNS, a, 10**9, [0.0], form="sharp"),
            lambda lam, found: lam / (found.eta + found.nu),
        ),
        (lambda a: td_iid_bound(SIGNS, a, [0.0], form="printed"), lambda lam, _: lam / (4 * 2.25)),
        (lambda a: td_iid_bound(SIGNS, a, [0.0], form="sharp"), lambda lam, found: lam / found.q),
        (lambda a: td_markov_bound(SIGNS, a, [0.0]), lambda lam, _: 1.0 / lam),
    ],
)
def test_every_step_limit(bound_of, limit):
    edge = limit(SIGNS.lambda_A, instance_constants(SIGNS))
    for factor, holds in ((0.999, True), (1.001, False)):
        (condition,) = (c for c in bound_of(factor * edge).conditions if c.statement.startswith("step_size <"))
        assert condition.holds is holds


def test_the_left_of_lemma1_is_the_largest_value_not_the_largest_size():
    for sign in (-1.0, 1.0):
        problem = LinearProblem(MarkovRewardProcess([[0.9, 0.1], [0.3, 0.7]], [sign, -3.0 * sign], 0.0), [[1.0], [1.0]])
        theta = problem.theta_star[0] + 1.0  # u = 1 and g - mean = r - mean r
        deviations = np.array([sign, -3.0 * sign]) - problem.mrp.stationary @ [sign, -3.0 * sign]
        assert batch_bias_inequality(problem, 1, [theta]).left == pytest.approx(deviations.max())
