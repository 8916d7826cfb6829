"""A transition x as algorithms see it, and its pseudo-gradient.

g_x(theta) = A_x theta + b_x, with A_x = phi (gamma phi' - phi)^T.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from vrtd.kernels.jit import kernel


class Transition(NamedTuple):
    """One sample. Features are not copied: the sample refers to rows of tables.

    Attributes
    ----------
    phi, row : ndarray of shape (n, d) and int
        ``phi[row]`` are the features of the state that was left. The table holds the states of a chain, the rows of a
        log, or the states that a simulator has just computed.
    phi_next, row_next : ndarray of shape (n, d) and int
        ``phi_next[row_next]`` are the features of the state that was reached. For a log, this is another table.
    reward : float
        Reward.
    discount : float
        Discount gamma, 0 where the transition terminates.
    weight : float
        Importance ratio, 1 on-policy.
    carry : float
        Discount of a trace: ``discount``, or 0 if the next sample does not continue this one.
    """

    phi: Any
    row: Any
    phi_next: Any
    row_next: Any
    reward: Any
    discount: Any
    weight: Any
    carry: Any


@kernel
def bootstrap_difference(theta, x):
    """Return (gamma phi' - phi).theta."""
    total = 0.0
    for i in range(theta.size):
        total += (x.discount * x.phi_next[x.row_next, i] - x.phi[x.row, i]) * theta[i]
    return total


@kernel
def td_error(theta, x):
    """Return the TD error delta = r + gamma phi'.theta - phi.theta."""
    return x.reward + bootstrap_difference(theta, x)


@kernel
def add_pseudo_gradient(total, scale, theta, x):
    """Add scale * g_x(theta) to ``total``, which may be ``theta`` itself.

    The pseudo-gradient is g_x(theta) = weight * delta * phi (Section 2.2 of the paper).
    """
    factor = scale * x.weight * td_error(theta, x)
    for i in range(theta.size):
        total[i] += factor * x.phi[x.row, i]
