"""Least squares for Q(s, a) of a target policy, written down row by row.

M. G. Lagoudakis, R. Parr (2003), Least-squares policy iteration, JMLR.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def lstdq(phi: Any, rows: Any, target: Any, n_actions: int, discount: float) -> Any:
    """theta (A * d,), action by action; `phi` gives the features of a state, `target` the probabilities in a state."""
    d = len(phi(rows[0][0]))
    A, b = np.zeros((n_actions * d, n_actions * d)), np.zeros(n_actions * d)
    for s, a, r, s_next, terminated in rows:
        x, x_next = np.zeros((n_actions, d)), np.zeros((n_actions, d))
        x[a] = phi(s)
        if not terminated:
            for a_next in range(n_actions):
                x_next[a_next] = target(s_next)[a_next] * phi(s_next)
        A += np.outer(x, x - discount * x_next)
        b += x.ravel() * r
    return np.linalg.solve(A, b)
