"""Decision processes under a policy."""

import numpy as np
import pytest

from tests.helpers.chains import TWO
from vrtd.errors import InvalidInputError
from vrtd.problems import MDP

STAY_SWAP = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]])


def test_chain_of_a_stochastic_policy_keeps_rewards_apart():
    P = np.array([TWO, TWO])
    mdp = MDP(P, [[1.0, 5.0], [3.0, 5.0]], 0.9)
    mrp = mdp.chain([[0.25, 0.75], [0.5, 0.5]])
    assert mrp.edges.origin.tolist() == [0, 0, 0, 0, 1, 1]  # equal rewards of state 1 are merged
    assert mrp.edges.reward.tolist() == [1.0, 3.0, 1.0, 3.0, 5.0, 5.0]
    assert mrp.edges.probability == pytest.approx([0.175, 0.525, 0.075, 0.225, 0.4, 0.6])
    averaged = mdp.chain([[0.25, 0.75], [0.5, 0.5]], average_rewards=True)
    assert averaged.rewards_averaged
    assert not mrp.rewards_averaged
    assert averaged.edges.reward == pytest.approx([2.5, 2.5, 5.0, 5.0])
    assert averaged.values == pytest.approx(mrp.values)


def test_averaging_keeps_discounts_apart():
    gamma = np.array([0.0, 0.9])[:, None, None]
    mrp = MDP([TWO, TWO], [[1.0, 1.0], [3.0, 3.0]], gamma).chain(np.full((2, 2), 0.5), average_rewards=True)
    assert mrp.edges.discount.tolist() == [0.0, 0.9] * 4
    assert mrp.edges.reward == pytest.approx([1.0, 3.0] * 4)


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 3, 3)])
def test_chain_against_the_sum_over_actions(shape):
    rng = np.random.default_rng(5)
    P = rng.random((2, 3, 3))
    P /= P.sum(axis=2, keepdims=True)
    R, pi = rng.random(shape), rng.dirichlet([1.0, 1.0], size=3)
    full = np.broadcast_to(R if R.ndim == 3 else R[..., None], (2, 3, 3))
    mrp = MDP(P, R, 0.8).chain(pi)
    for s in range(3):
        assert mrp.P.toarray()[s] == pytest.approx(sum(pi[s, a] * P[a, s] for a in range(2)))
        assert mrp.mean_reward[s] == pytest.approx(sum(pi[s, a] * P[a, s] @ full[a, s] for a in range(2)))
    actions = np.array([1, 0, 1])
    fixed = MDP(P, R, 0.8).chain(actions)
    assert np.allclose(fixed.P.toarray(), P[actions, np.arange(3)])


def test_mdp_leaves_its_arguments_alone():
    P, R, pi = STAY_SWAP.copy(), np.ones(2), np.full((2, 2), 0.5)
    mdp = MDP(P, R, 0.5)
    digest = mdp.chain(pi).digest
    P[:] = R[:] = 9.0
    assert mdp.chain(pi).digest == digest
    assert (pi == 0.5).all()
    assert pi.flags.writeable
    assert (mdp.n_actions, mdp.n_states) == (2, 2)


@pytest.mark.parametrize(
    ("P", "R", "gamma", "message"),
    [
        (TWO, [0, 0], 0.9, r"P must have the shape \(A, S, S\), but got \(2, 2\)"),
        (-STAY_SWAP, [0, 0], 0.9, r"P must be non-negative, but got -1\.0 at action 0, 0 -> 0"),
        (STAY_SWAP * [[[1.0]], [[2.0]]], [0, 0], 0.9, r"row of P must sum to 1.*got the sum 2\.0 at action 1, state 0"),
        (STAY_SWAP, [0, 0, 0], 0.9, r"R must have the shape \(2,\), \(2, 2\) or \(2, 2, 2\), but got \(3,\)"),
        (STAY_SWAP, [0, np.inf], 0.9, r"R must be finite, but got inf at index \(1,\)"),
        (STAY_SWAP, [0, 0], 1.0, r"gamma must be a number in \[0, 1\).*got 1\.0"),
        (STAY_SWAP, [0, 0], np.full((2, 2), 1.5), r"discounts in \[0, 1\], but got 1\.5"),
        (STAY_SWAP, [0, 0], [1.0, -0.5], r"discounts in \[0, 1\], but got -0\.5"),
        (
            STAY_SWAP,
            [0, 0],
            np.full(3, 0.5),
            r"gamma must broadcast to \(A, S, S\) = \(2, 2, 2\), but has the shape \(3,\)",
        ),
    ],
)
def test_bad_mdps_are_refused(P, R, gamma, message):
    with pytest.raises(InvalidInputError, match=message):
        MDP(P, R, gamma)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ([0, 2], r"actions must lie in 0..1, but got 2 at state 1"),
        ([0.0, 1.0], r"policy of shape \(S,\) must hold integers, but has dtype float64"),
        ([0, 1, 0], r"policy must have the shape \(S, A\) = \(2, 2\) or \(S,\) = \(2,\), but got \(3,\)"),
        ([[0.5, 0.6], [1, 0]], r"row of policy must sum to 1.*got the sum 1\.1 at state 0"),
        ([[1.0, 0.0], [1.5, -0.5]], r"policy must be non-negative, but got -0\.5 at state 1, action 1"),
        ([[1.0, 0.0], [np.nan, 0.0]], r"policy must be finite, but got nan at index \(1, 0\)"),
    ],
)
def test_bad_policies_are_refused(policy, message):
    with pytest.raises(InvalidInputError, match=message):
        MDP(STAY_SWAP, [0, 0], 0.5).chain(policy)
