"""A finite Markov decision process, which a policy turns into the Markov reward process to be evaluated."""

from __future__ import annotations

from typing import final

import numpy as np
from numpy.typing import ArrayLike

from vrtd.arrays import Floats, check_probabilities, check_row_sums, check_unmasked, frozen, real_array
from vrtd.checks import check_choice
from vrtd.errors import InvalidInputError
from vrtd.problems.markov_reward_process import MarkovRewardProcess


@final
class MDP:
    """Markov decision process with A actions and S states.

    Parameters
    ----------
    P : array_like of shape (A, S, S)
        Transition probabilities. Rows must sum to 1 within 1e-8 and are normalised.
    R : array_like of shape (S,), (A, S) or (A, S, S)
        Rewards of states, of actions in states, or of transitions.
    gamma : float or array_like
        Discount in [0, 1), or discounts in [0, 1] that broadcast to (A, S, S).

    Attributes
    ----------
    n_actions : int
        Number of actions A.
    n_states : int
        Number of states S.

    Examples
    --------
    >>> stay, swap = [[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]
    >>> mdp = MDP([stay, swap], R=[[0.0, 1.0], [0.0, 0.0]], gamma=0.5)
    >>> mdp.chain([1, 0]).values  # leave state 0, stay in state 1
    array([1., 2.])
    """

    def __init__(self, P: ArrayLike, R: ArrayLike, gamma: ArrayLike) -> None:
        p = real_array("P", P)
        if p.ndim != 3 or p.shape[1] != p.shape[2] or 0 in p.shape:
            raise InvalidInputError(
                f"P must have the shape (A, S, S), but got {p.shape}.", "Pass one (S, S) matrix per action."
            )
        if (p < 0.0).any():
            a, s, t = (int(i) for i in np.argwhere(p < 0.0)[0])
            raise InvalidInputError(
                f"P must be non-negative, but got {p[a, s, t]} at action {a}, {s} -> {t}.", "Correct that entry."
            )
        sums = p.sum(axis=2)
        check_row_sums("P", sums, ("action", "state"))
        self.n_actions, self.n_states = A, S = p.shape[:2]
        r = real_array("R", R)
        if r.shape not in ((S,), (A, S), (A, S, S)):
            raise InvalidInputError(
                f"R must have the shape ({S},), ({A}, {S}) or ({A}, {S}, {S}), but got {r.shape}.", "Reshape R."
            )
        g = real_array("gamma", gamma)
        bad = (g < 0.0) | (g >= 1.0 if g.ndim == 0 else g > 1.0)
        if bad.any():
            raise InvalidInputError(
                f"gamma must be a number in [0, 1) or discounts in [0, 1], but got {g[bad].flat[0]}.",
                "Correct that discount.",
            )
        try:
            g = np.broadcast_to(g, p.shape)
        except ValueError:
            raise InvalidInputError(
                f"gamma must broadcast to (A, S, S) = {p.shape}, but has the shape {g.shape}.", "Reshape gamma."
            ) from None
        self._P = frozen(p / sums[:, :, None])
        self._R = np.broadcast_to(r if r.ndim == 3 else r[..., :, None], p.shape)
        self._gamma = g

    def chain(
        self, policy: ArrayLike, average_rewards: bool = False, behaviour: ArrayLike | None = None
    ) -> MarkovRewardProcess:
        """Return the Markov reward process under a policy.

        Actions that give one transition different rewards, discounts or weights become parallel transitions.

        Parameters
        ----------
        policy : array_like of shape (S, A) or (S,)
            Probabilities of actions, or integer actions, or "random" for the uniform policy.
        average_rewards : bool, default=False
            Merge parallel transitions of equal discount at their mean reward. The values stay the same and the noise
            decreases.
        behaviour : array_like of shape (S, A) or (S,), optional
            The behaviour policy, if the data come from another policy than the evaluated one. The transitions are then
            those of the behaviour policy, each with the importance ratio policy(``a|s``) / behaviour(``a|s``), also if
            it is 0. The values are still those of ``policy``. Merged transitions have their mean ratio, and the reward
            that keeps E[weight reward].

        Returns
        -------
        MarkovRewardProcess
            The chain.

        Raises
        ------
        InvalidInputError
            If the behaviour policy never takes an action that the policy takes.

        Examples
        --------
        >>> stay, swap = [[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]
        >>> mdp = MDP([stay, swap], R=[[0.0, 1.0], [0.0, 0.0]], gamma=0.5)
        >>> chain = mdp.chain([1, 0], behaviour=[[0.5, 0.5], [0.75, 0.25]])
        >>> chain.edges.probability.tolist(), chain.edges.weight.round(9).tolist()
        ([0.5, 0.5, 0.25, 0.75], [0.0, 2.0, 0.0, 1.333333333])
        >>> chain.values  # those of mdp.chain([1, 0])
        array([1., 2.])
        """
        target = policy_matrix(policy, self.n_states, self.n_actions)
        taken = target if behaviour is None else policy_matrix(behaviour, self.n_states, self.n_actions, "behaviour")
        missed = np.argwhere((target > 0.0) & (taken == 0.0))
        if missed.size:
            s, a = (int(i) for i in missed[0])
            raise InvalidInputError(
                "behaviour must take every action that the policy takes, but in state "
                f"{s} it never takes action {a}, which the policy takes with probability {target[s, a]:.6g}.",
                "Give that action a positive probability.",
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
            # A reward of weight 0 has no effect: keep the unweighted mean.
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
    """Return a policy as (S, A) probabilities.

    Parameters
    ----------
    policy : array_like or str
        (S, A) probabilities, whose rows sum to 1 within 1e-8; (S,) integer actions; or "random" for the uniform policy.
    n_states, n_actions : int
        The numbers of states S and actions A.
    name : str, default="policy"
        Name of the policy in error messages.

    Returns
    -------
    ndarray of shape (S, A)
        Probabilities.

    Examples
    --------
    >>> policy_matrix([1, 0], n_states=2, n_actions=3)
    array([[0., 1., 0.],
           [1., 0., 0.]])
    """
    S, A = n_states, n_actions
    if isinstance(policy, str):
        check_choice(name, policy, ("random",))
        return np.full((S, A), 1.0 / A)
    check_unmasked(name, policy)
    raw = np.asarray(policy)
    if raw.shape == (S,):
        if raw.dtype.kind not in "iu":
            raise InvalidInputError(
                f"{name} of shape (S,) must hold integers, but has dtype {raw.dtype}.",
                "Pass one action number per state.",
            )
        bad = np.flatnonzero((raw < 0) | (raw >= A))
        if bad.size:
            raise InvalidInputError(
                f"actions must lie in 0..{A - 1}, but got {raw[bad[0]]} at state {bad[0]}.", "Correct that action."
            )
        one_hot: Floats = np.eye(A)[raw]
        return one_hot
    pi = real_array(name, policy)
    if pi.shape != (S, A):
        raise InvalidInputError(
            f"{name} must have the shape (S, A) = ({S}, {A}) or (S,) = ({S},), but got {pi.shape}.",
            "Pass one row per state.",
        )
    return check_probabilities(name, pi, (S, A), ("state", "action"))
