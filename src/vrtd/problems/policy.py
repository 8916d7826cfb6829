"""A policy on finitely many states and actions, as one array."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vrtd.arrays import check_row_sums, real_array
from vrtd.errors import InvalidInputError


def policy_matrix(policy: ArrayLike, n_states: int, n_actions: int, name: str = "policy") -> NDArray[np.float64]:
    """(S, A) probabilities from (S, A) probabilities, whose rows may miss 1 by 1e-8, or from (S,) integer actions.

    >>> policy_matrix([1, 0], n_states=2, n_actions=3)
    array([[0., 1., 0.],
           [1., 0., 0.]])
    """
    S, A = n_states, n_actions
    raw = np.asarray(policy)
    if raw.shape == (S,):
        if raw.dtype.kind not in "iu":
            raise InvalidInputError(f"a {name} of shape (S,) must hold integers", f"dtype {raw.dtype}", "pass actions")
        bad = np.flatnonzero((raw < 0) | (raw >= A))
        if bad.size:
            raise InvalidInputError(
                f"actions must lie in 0..{A - 1}", f"{raw[bad[0]]} at state {bad[0]}", "repair that action"
            )
        one_hot: NDArray[np.float64] = np.eye(A)[raw]
        return one_hot
    pi = real_array(name, policy)
    if pi.shape != (S, A):
        raise InvalidInputError(
            f"{name} must have the shape (S, A) = ({S}, {A}) or (S,) = ({S},)", pi.shape, "pass one row per state"
        )
    if (pi < 0.0).any():
        s, a = (int(i) for i in np.argwhere(pi < 0.0)[0])
        raise InvalidInputError(f"{name} must be non-negative", f"{pi[s, a]} at state {s}, action {a}", "repair it")
    sums = pi.sum(axis=1)
    check_row_sums(name, sums, ("state",))
    pi /= sums[:, None]
    return pi
