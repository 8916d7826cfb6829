"""A finite Markov decision process; a policy turns it into the reward process that is evaluated."""

from __future__ import annotations

from typing import final

import numpy as np
from numpy.typing import ArrayLike

from vrtd.arrays import Floats, check_probabilities, check_row_sums, frozen, real_array
from vrtd.checks import check_choice
from vrtd.errors import InvalidInputError
from vrtd.problems.markov_reward_process import MarkovRewardProcess


@final
class MDP:
    """A Markov decision process with A actions on S states.

    Args:
        P: (A, S, S) transition probabilities; each row sums to 1 within 1e-8 and is normalised.
        R: (S,), (A, S) or (A, S, S) rewards.
        gamma: a discount in [0, 1), or an array of discounts in [0, 1] that broadcasts to (A, S, S).

    >>> stay, swap = [[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]
    >>> mdp = MDP([stay, swap], R=[[0.0, 1.0], [0.0, 0.0]], gamma=0.5)
    >>> mdp.chain([1, 0]).values  # leave state 0, stay in state 1
    array([1., 2.])
    """

    def __init__(self, P: ArrayLike, R: ArrayLike, gamma: ArrayLike) -> None:
        p = real_array("P", P)
        if p.ndim != 3 or p.shape[1] != p.shape[2] or 0 in p.shape:
            raise InvalidInputError("P must have the shape (A, S, S)", p.shape, "pass one (S, S) matrix per action")
        if (p < 0.0).any():
            a, s, t = (int(i) for i in np.argwhere(p < 0.0)[0])
            raise InvalidInputError(
                "P must be non-negative", f"{p[a, s, t]} at action {a}, {s} -> {t}", "repair that entry"
            )
        sums = p.sum(axis=2)
        check_row_sums("P", sums, ("action", "state"))
        self.n_actions, self.n_states = A, S = p.shape[:2]
        r = real_array("R", R)
        if r.shape not in ((S,), (A, S), (A, S, S)):
            raise InvalidInputError(
                f"R must have the shape ({S},), ({A}, {S}) or ({A}, {S}, {S})", r.shape, "reshape R"
            )
        g = real_array("gamma", gamma)
        bad = (g < 0.0) | (g >= 1.0 if g.ndim == 0 else g > 1.0)
        if bad.any():
            raise InvalidInputError(
                "gamma must be a number in [0, 1) or discounts in [0, 1]", g[bad].flat[0], "repair that discount"
            )
        try:
            g = np.broadcast_to(g, p.shape)
        except ValueError:
            raise InvalidInputError(
                f"gamma must broadcast to (A, S, S) = {p.shape}", f"the shape {g.shape}", "reshape gamma"
            ) from None
        self._P = frozen(p / sums[:, :, None])
        self._R = np.broadcast_to(r if r.ndim == 3 else r[..., :, None], p.shape)
        self._gamma = g

    def chain(
        self, policy: ArrayLike, average_rewards: bool = False, behaviour: ArrayLike | None = None
    ) -> MarkovRewardProcess:
        """The reward process under `policy`: (S, A) probabilities, or (S,) integer actions.

        Actions that give one transition different rewards, discounts or weights become parallel transitions. With
        `average_rewards` those of equal discount are merged at their mean reward: same values, less noise.

        With a `behaviour`, another policy, transitions are the behaviour's, each weighted by the importance ratio
        policy(a|s) / behaviour(a|s), also where that is 0. The values are still those of `policy`. Merged transitions
        have their mean ratio, and the reward that leaves E[weight reward] as it was.

        >>> stay, swap = [[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]
        >>> mdp = MDP([stay, swap], R=[[0.0, 1.0], [0.0, 0.0]], gamma=0.5)
        >>> chain = mdp.chain([1, 0], behaviour=[[0.5, 0.5], [0.75, 0.25]])
        >>> chain.edges.probability.tolist(), chain.edges.weight.round(9).tolist()
        ([0.5, 0.5, 0.25, 0.75], [0.0, 2.0, 0.0, 1.333333333])
        >>> chain.values  # as those of mdp.chain([1, 0])
        array([1., 2.])
        """
        target = policy_matrix(policy, self.n_states, self.n_actions)
        taken = target if behaviour is None else policy_matrix(behaviour, self.n_states, self.n_actions, "behaviour")
        missed = np.argwhere((target > 0.0) & (taken == 0.0))
        if missed.size:
            s, a = (int(i) for i in missed[0])
            raise InvalidInputError(
                "the behaviour must take every action that the policy takes",
                f"probability 0 of action {a} in state {s}, which the policy takes with {target[s, a]:.6g}",
                "give that action a positive probability",
            )
        joint = taken.T[:, :, None] * self._P
        action, origin, successor = np.nonzero(joint)
        reward, discount = self._R[action, origin, successor], self._gamma[action, origin, successor]
        probability, weight = joint[action, origin, successor], target[origin, action] / taken[origin, action]
        keys = [origin, successor, discount] + ([] if average_rewards else [reward, weight])
        order = np.lexsort(keys[::-1])
        is_first = np.ones(order.size, dtype=bool)
        is_first[1:] = np.any([key[order][1:] != key[order][:-1] for key in keys], axis=0)
        first = np.flatnonzero(is_first)

        def total(value: Floats) -> Floats:
            return np.asarray(np.add.reduceat(value[order], first))

        merged, representative = total(probability), order[first]
        if average_rewards:
            counted, plain = total(probability * weight), total(probability * reward) / merged
            # A reward of weight 0 does not count: the plain mean will do.
            reward = np.divide(total(probability * weight * reward), counted, out=plain, where=counted > 0.0)
            weight = counted / merged
        else:
            reward, weight = reward[representative], weight[representative]
        return MarkovRewardProcess.from_edges(
            self.n_states,
            origin[representative],
            successor[representative],
            merged,
            reward,
            discount[representative],
            rewards_averaged=average_rewards,
            weight=weight,
        )


def policy_matrix(policy: ArrayLike, n_states: int, n_actions: int, name: str = "policy") -> Floats:
    """Return (S, A) probabilities.

    A policy is given by (S, A) probabilities, whose rows may miss 1 by 1e-8, by (S,) integer actions, or by "random",
    which is uniform.

    >>> policy_matrix([1, 0], n_states=2, n_actions=3)
    array([[0., 1., 0.],
           [1., 0., 0.]])
    """
    S, A = n_states, n_actions
    if isinstance(policy, str):
        check_choice(name, policy, ("random",))
        return np.full((S, A), 1.0 / A)
    raw = np.asarray(policy)
    if raw.shape == (S,):
        if raw.dtype.kind not in "iu":
            raise InvalidInputError(f"a {name} of shape (S,) must hold integers", f"dtype {raw.dtype}", "pass actions")
        bad = np.flatnonzero((raw < 0) | (raw >= A))
        if bad.size:
            raise InvalidInputError(
                f"actions must lie in 0..{A - 1}", f"{raw[bad[0]]} at state {bad[0]}", "repair that action"
            )
        one_hot: Floats = np.eye(A)[raw]
        return one_hot
    pi = real_array(name, policy)
    if pi.shape != (S, A):
        raise InvalidInputError(
            f"{name} must have the shape (S, A) = ({S}, {A}) or (S,) = ({S},)", pi.shape, "pass one row per state"
        )
    return check_probabilities(name, pi, (S, A), ("state", "action"))
